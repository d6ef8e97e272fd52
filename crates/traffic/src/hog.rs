//! A process that always wants one core: the neighbour that a sender is tried beside.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use linux::affinity;
use machine::{CoreId, CpuSet, Fault, Result};

/// Spins until the pipe from its owner breaks, which it does however the owner ends. The spinner itself has a limit on
/// its CPU time, should the shell that waits be killed.
const SCRIPT: &str = r#"
ulimit -t "$1"
while :; do :; done </dev/null &
read -r _
kill $!
"#;

/// The most CPU time that a hog gets, in seconds.
const MOST_SECONDS: u32 = 120;

/// A running hog; dropping it ends the process.
#[derive(Debug)]
pub struct Hog {
    core: CoreId,
    shell: Child,
}

impl Hog {
    /// Starts a hog pinned to `core`. To be called before a shield is raised there: afterwards the core is out of its
    /// reach, and this is a fault.
    pub fn start(core: CoreId) -> Result<Hog> {
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "plimsoll-hog", &MOST_SECONDS.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // Ctrl-C at the terminal is for the owner: the shell would go and leave the spinner, which ignores it.
        command.process_group(0);
        affinity::pin_child(&mut command, core)?;
        let subject = || format!("hog on {core}");
        let shell = command.spawn().map_err(|error| match error.raw_os_error() {
            Some(invalid) if invalid == rustix::io::Errno::INVAL.raw_os_error() => {
                Fault::new(subject(), "it is not let onto the core", "start it before the core is shielded")
            }
            _ if error.kind() == io::ErrorKind::NotFound => {
                Fault::new(subject(), "there is no sh", "install a POSIX shell")
            }
            _ => Fault::because(subject(), error, "check the limit on processes (ulimit -u)"),
        })?;
        Ok(Hog { core, shell })
    }

    /// The core it was started on.
    pub fn core(&self) -> CoreId {
        self.core
    }

    /// Cores where it may run now: no longer its own, once that is shielded by a cpuset.
    pub fn may_run_on(&self) -> Result<CpuSet> {
        affinity::of_process(self.shell.id())
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::{Duration, Instant};

    use super::*;

    fn children(process: u32) -> Vec<u32> {
        let text = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default();
        text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
    }

    #[test]
    fn it_runs_on_its_core_and_ends_with_its_owner() {
        let core = *affinity::allowed().unwrap().last().unwrap();
        let hog = Hog::start(core).unwrap();
        assert_eq!(hog.may_run_on().unwrap(), std::iter::once(core).collect());
        let patience = Instant::now() + Duration::from_secs(20);
        let ticks = |process: u32| {
            let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
            stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(11)?.parse::<u64>().ok()).unwrap_or(0)
        };
        let spinner = loop {
            match children(hog.shell.id())[..] {
                [spinner] if ticks(spinner) > 1 => break spinner,
                _ => assert!(Instant::now() < patience, "it does not spin"),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        drop(hog);
        while fs::read_to_string(format!("/proc/{spinner}/stat")).is_ok_and(|stat| !stat.contains(") Z ")) {
            assert!(Instant::now() < patience, "it spins on");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_core_that_does_not_exist_is_refused() {
        assert!(Hog::start(CoreId(9_999)).unwrap_err().cause().contains("no such core"));
    }
}
