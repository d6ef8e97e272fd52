//! A process that outlives a killed owner to end what that left running.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use machine::{Fault, Result};

use crate::orphans::{Awaited, Orphans};

/// Waits for the end of its standard input, which comes when the owner ends in any way. Then ends every process whose
/// link `/proc/PID/$link` leads to one of the targets, or, if `$link` is `environ`, whose environment has the target
/// (`NAME=value`): asks once, kills after `$grace` polls, and removes `$folder`. A pipe instead of a parent-death
/// signal, which follows the *thread* that started the child: an owner's thread may end long before the child.
///
/// Prints a line once it waits, unless the owner has ended already.
const SCRIPT: &str = r#"
trap '' PIPE
echo
read -r _
link=$1 grace=$2 folder=$3
shift 3
residents() {
    if [ "$link" = environ ]; then
        grep -lzxF -e "$1" /proc/[0-9]*/environ 2>/dev/null | cut -d / -f 3
        return
    fi
    ls -l /proc/[0-9]*/"$link" 2>/dev/null | while read -r line; do
        for target; do
            case $line in
            *"/$link -> $target" | *"/$link -> $target (deleted)")
                process=${line#*/proc/}
                echo "${process%%/*}"
                ;;
            esac
        done
    done
}
looks=0
while [ $looks -lt 200 ]; do
    found=$(residents "$@")
    [ -n "$found" ] || break
    if [ $looks -ge "$grace" ]; then
        kill -9 $found 2>/dev/null
    elif [ $looks -eq 0 ]; then
        kill $found 2>/dev/null
    fi
    looks=$((looks + 1))
    sleep 0.05
done
[ -z "$folder" ] || rm -rf -- "$folder"
[ -z "$(residents "$@")" ]
"#;

/// Polls, 50 ms apart, until processes that were asked to end are killed.
const GRACE: &str = "40";

/// Watches over processes while it lives; dropping it ends them as its owner's death would, and waits.
#[derive(Debug)]
pub struct Warden {
    shell: Child,
    /// Marks the warden as no orphan of an earlier run.
    _awaited: Awaited,
    /// Orphans of its run, where this process adopts them.
    orphans: Option<Orphans>,
}

impl Warden {
    /// Watches over all processes whose current folder is `folder` itself. They are asked to end and killed two seconds
    /// later, then the folder is removed with its contents.
    ///
    /// Start it before the first of them. Fails where no shell can be started.
    pub fn over_folder(folder: &Path) -> Result<Warden> {
        // The kernel names a process's folder by its real path.
        let folder = folder
            .canonicalize()
            .map_err(|e| Fault::because(format!("folder {}", folder.display()), e, "make it before its warden"))?;
        let folder = folder.as_os_str();
        Warden::start(SCRIPT, ["cwd".as_ref(), GRACE.as_ref(), folder, folder])
    }

    /// Watches over all processes that were started with `name` set to `value` in their environment, and their
    /// descendants. They are asked to end and killed two seconds later, then `folder` is removed with its contents.
    /// Descendants that cleared their environment are ended too, where this process adopts orphans
    /// ([`crate::orphans::adopt`]) and is not killed itself.
    ///
    /// Start it before the first of them, without the variable in this process's own environment.
    pub fn over_marked(name: &str, value: &str, folder: &Path) -> Result<Warden> {
        let mark = format!("{name}={value}");
        let mut warden =
            Warden::start(SCRIPT, ["environ".as_ref(), GRACE.as_ref(), folder.as_os_str(), mark.as_ref()])?;
        warden.orphans = Orphans::of_a_run();
        Ok(warden)
    }

    /// Watches over all processes in two network namespaces, named by inode and by the path of a descriptor of this process.
    /// They are killed.
    ///
    /// The warden holds the namespaces until it ends: the kernel gives an inode that nobody holds to the next namespace,
    /// whose processes it would kill.
    pub(crate) fn over_networks(inodes: [u64; 2], descriptors: [String; 2]) -> Result<Warden> {
        let [one, other] = inodes.map(|inode| format!("net:[{inode}]"));
        let script = format!("exec 8<{} 9<{}\n{SCRIPT}", descriptors[0], descriptors[1]);
        Warden::start(&script, ["ns/net", "0", "", &one, &other].map(OsStr::new))
    }

    /// Returns once the warden waits, so that the start of a shell does not disturb the owner's measurement.
    fn start<const N: usize>(script: &str, arguments: [&OsStr; N]) -> Result<Warden> {
        let mut shell = Command::new("sh");
        shell.args(["-c", script, "plimsoll-warden"]).args(arguments).stdout(Stdio::piped());
        let mut warden = Warden::by(&mut shell)?;
        let said = warden.shell.stdout.take();
        said.map_or(Ok(()), |mut said| said.read_exact(&mut [0]))
            .map_err(|error| Fault::because("warden", error, "see that `sh -c echo` works here"))?;
        Ok(warden)
    }

    /// A warden that runs `script`, which must first wait for the end of its standard input.
    pub(crate) fn by_script<const N: usize>(script: &str, arguments: [&OsStr; N]) -> Result<Warden> {
        let mut shell = Command::new("sh");
        shell.args(["-c", script, "plimsoll-warden"]).args(arguments).stdout(Stdio::null());
        Warden::by(&mut shell)
    }

    /// A warden that runs `command`, which must first wait for the end of its standard input.
    pub(crate) fn by(command: &mut Command) -> Result<Warden> {
        command
            .current_dir("/")
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            // A process group of its own: Ctrl-C at the owner's terminal must not end the warden first.
            .process_group(0);
        Awaited::spawn(command).map(|(shell, awaited)| Warden { shell, _awaited: awaited, orphans: None }).map_err(
            |error| match error.kind() {
                io::ErrorKind::NotFound => {
                    let program = command.get_program().display();
                    Fault::new(
                        format!("warden: {program}"),
                        "not installed",
                        "install a POSIX shell, and plimsoll anew",
                    )
                }
                _ => Fault::because("warden", error, "check the limit on processes (ulimit -u)"),
            },
        )
    }

    /// Writes to the warden's standard input.
    pub(crate) fn tell(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.shell.stdin.as_mut().map_or(Ok(()), |input| input.write_all(bytes))
    }

    /// Collects ended orphans of the run, for owners that wait long.
    pub fn reap(&self) {
        if let Some(orphans) = &self.orphans {
            orphans.reap();
        }
    }

    /// Ends the warden before it does anything.
    pub(crate) fn dismiss(mut self) {
        let _ = self.shell.kill();
    }

    #[cfg(test)]
    pub(crate) fn id(&self) -> u32 {
        self.shell.id()
    }
}

impl Drop for Warden {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
        if let Some(orphans) = &self.orphans {
            orphans.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::process::ExitStatusExt;

    use rustix::process::{Pid, Signal, kill_process};

    use super::*;
    use crate::orphans;

    #[test]
    fn who_bears_the_mark_is_ended_wherever_it_works() {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("folder");
        fs::create_dir(&folder).unwrap();
        let value = format!("{}-a [mark] *", std::process::id());
        let warden = Warden::over_marked("PLIMSOLL_TEST", &value, &folder).unwrap();
        let sleeper = |value: &str| {
            let mut command = Command::new("sh");
            let script = "sleep 600 & echo $!; wait";
            command.args(["-c", script]).env("PLIMSOLL_TEST", value).current_dir("/").stdout(Stdio::piped());
            let mut child = command.spawn().unwrap();
            // It prints its child's number, so both have started.
            let mut line = String::new();
            io::BufRead::read_line(&mut io::BufReader::new(child.stdout.take().unwrap()), &mut line).unwrap();
            (child, line.trim().to_owned())
        };
        let (mut marked, grandchild) = sleeper(&value);
        let (mut other, others_child) = sleeper(&format!("{value}*"));
        drop(warden);
        assert_eq!(marked.wait().unwrap().signal(), Some(15));
        let alive = |process: &str| {
            let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
            !status.is_empty() && !status.contains("State:\tZ")
        };
        assert!(!alive(&grandchild), "a process that inherited the mark is left");
        assert!(other.try_wait().unwrap().is_none() && alive(&others_child), "a process of another mark was ended");
        assert!(!folder.exists());
        let others_child = Pid::from_raw(others_child.parse().unwrap()).unwrap();
        kill_process(others_child, Signal::TERM).unwrap();
        other.wait().unwrap();
    }

    #[test]
    fn who_cleared_its_environment_is_ended_too_and_no_child_that_is_waited_for() {
        // Orphans are of the whole process, whose other tests have children too.
        if !skip::alone() {
            return;
        }
        orphans::adopt();
        let above = tempfile::tempdir().unwrap();
        let earlier = Command::new("sleep").arg("600").spawn().unwrap();
        let warden = Warden::over_marked("PLIMSOLL_TEST", "alone", &above.path().join("folder")).unwrap();
        let awaited = Command::new("sleep").arg("600").spawn().unwrap();
        let _awaited = Awaited::new(&awaited);
        let script = "env -i sleep 600 >/dev/null 2>&1 & echo $!; \
                      env -i sh -c 'sleep 600; sleep 600' >/dev/null 2>&1 & echo $!";
        let run = Command::new("sh").args(["-c", script]).env("PLIMSOLL_TEST", "alone").output().unwrap();
        let left: Vec<String> = String::from_utf8(run.stdout).unwrap().lines().map(str::to_owned).collect();
        assert_eq!(left.len(), 2);
        let there = |process: &str| Path::new("/proc").join(process).exists();
        assert!(there(&left[0]), "it ended by itself");
        // An ended orphan is collected before the run is over.
        let quick = Command::new("sh").args(["-c", "env -i sleep 0 >/dev/null 2>&1 & echo $!"]).output().unwrap();
        let quick = String::from_utf8(quick.stdout).unwrap().trim().to_owned();
        while there(&quick) {
            warden.reap();
        }
        drop(warden);
        assert!(!there(&left[0]) && !there(&left[1]), "a process that cleared its environment is left");
        for mut own in [earlier, awaited] {
            assert!(own.try_wait().unwrap().is_none(), "a child of this process was ended");
            own.kill().unwrap();
            own.wait().unwrap();
        }
    }

    #[test]
    fn who_works_in_the_folder_is_ended_and_nobody_else() {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("a [folder] with * -> odd name");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("left"), "behind").unwrap();
        let warden = Warden::over_folder(&folder).unwrap();
        let sleeper = |at: &Path, script: &str| {
            let child = Command::new("sh").args(["-c", script]).current_dir(at).stdout(Stdio::piped()).spawn();
            let mut child = child.unwrap();
            // From here on all that ignore the signal do so.
            let mut ready = [0; 1];
            io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
            child
        };
        let mut willing = sleeper(&folder, "echo; exec sleep 600");
        let mut deaf = sleeper(&folder, "trap '' TERM; echo; exec sleep 600");
        let mut other = sleeper(above.path(), "echo; exec sleep 600");
        drop(warden);
        assert_eq!(willing.wait().unwrap().signal(), Some(15));
        assert_eq!(deaf.wait().unwrap().signal(), Some(9));
        assert!(other.try_wait().unwrap().is_none(), "a process of another folder was ended");
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(!folder.exists() && above.path().exists());
    }
}
