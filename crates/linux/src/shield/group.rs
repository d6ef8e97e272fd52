//! Control groups of cpusets: where ours is, what they hold, and how a killed owner's are told from a living one's.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use machine::{CoreId, CpuSet, Fault, Result};
use rustix::fs::FlockOperation;

const SUBJECT: &str = "cpusets";

/// A folder of the cpuset hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Group(pub PathBuf);

impl Group {
    pub fn read(&self, file: &str) -> io::Result<String> {
        fs::read_to_string(self.0.join(file)).map(|text| text.trim().to_owned())
    }

    /// Writes by one system call, so that the kernel's verdict is on the whole value.
    pub fn write(&self, file: &str, value: &str) -> io::Result<()> {
        use io::Write;
        File::options().write(true).open(self.0.join(file))?.write_all(value.as_bytes())
    }

    pub fn child(&self, name: &str) -> Group {
        Group(self.0.join(name))
    }

    pub fn children(&self) -> io::Result<Vec<Group>> {
        let mut groups = Vec::new();
        for entry in fs::read_dir(&self.0)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                groups.push(Group(entry.path()));
            }
        }
        Ok(groups)
    }

    pub fn name(&self) -> &str {
        self.0.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }

    pub fn cores(&self) -> io::Result<CpuSet> {
        let text = self.read("cpuset.cpus")?;
        text.parse().map_err(|_| io::Error::new(io::ErrorKind::InvalidData, format!("cpuset.cpus is '{text}'")))
    }

    /// Threads, by number.
    pub fn threads(&self) -> io::Result<Vec<i32>> {
        Ok(self.read("tasks")?.lines().filter_map(|line| line.parse().ok()).collect())
    }

    /// One maker at a time in this group.
    pub fn lock(&self) -> io::Result<File> {
        let folder = File::open(&self.0)?;
        rustix::fs::flock(&folder, FlockOperation::LockExclusive)?;
        Ok(folder)
    }

    /// Moves every thread that can be moved to `to`. Returns how many stayed.
    ///
    /// Looks again until nothing more moves, since those who are moved may start others meanwhile.
    pub fn move_threads(&self, to: &Group, mut before_move: impl FnMut(i32) -> bool) -> io::Result<usize> {
        let mut stayed = 0;
        for _ in 0..16 {
            let mut moved = 0;
            stayed = 0;
            for thread in self.threads()? {
                if !before_move(thread) {
                    continue;
                }
                match to.write("tasks", &thread.to_string()) {
                    Ok(()) => moved += 1,
                    // It has ended.
                    Err(e) if e.raw_os_error() == Some(libc::ESRCH) => {}
                    // A kernel thread that is bound to its core.
                    Err(e) if e.raw_os_error() == Some(libc::EINVAL) => stayed += 1,
                    Err(e) => return Err(e),
                }
            }
            if moved == 0 {
                break;
            }
        }
        Ok(stayed)
    }
}

/// The cpuset of the calling thread, in the hierarchy of cgroup version 1.
pub(super) fn own() -> Result<Group> {
    let next = "use deadline scheduling, or mount it: `mount -t cgroup -o cpuset cpuset /sys/fs/cgroup/cpuset`";
    let read = |path: &str| fs::read_to_string(path).map_err(|e| Fault::because(SUBJECT, e, "mount procfs"));
    let absent = |cause: &str| Fault::new(SUBJECT, cause, next);
    let mounts = read("/proc/self/mountinfo")?;
    let Some((mount, root)) = mount(&mounts) else {
        return Err(match fs::read_to_string("/sys/fs/cgroup/cgroup.controllers") {
            Ok(controllers) if controllers.split_whitespace().any(|name| name == "cpuset") => Fault::new(
                SUBJECT,
                "this machine has them in cgroup version 2, which shields do not use yet",
                "use deadline scheduling, or boot with `isolcpus=` of the core",
            ),
            _ => absent("no hierarchy of cgroup version 1 with cpusets is mounted here"),
        });
    };
    let path = own_path(&read("/proc/thread-self/cgroup")?)
        .ok_or_else(|| absent("the kernel does not say in which cpuset this thread is"))?;
    let below = Path::new(&path)
        .strip_prefix(&root)
        .map_err(|_| absent("this thread's cpuset is outside what is mounted here"))?;
    Ok(Group(mount.join(below)))
}

/// Mount point and root of the hierarchy in the text of `mountinfo`.
fn mount(text: &str) -> Option<(PathBuf, String)> {
    text.lines().find_map(|line| {
        let (place, system) = line.split_once(" - ")?;
        let mut system = system.split(' ');
        let (kind, _, options) = (system.next()?, system.next()?, system.next()?);
        if kind != "cgroup" || !options.split(',').any(|option| option == "cpuset") {
            return None;
        }
        let mut place = place.split(' ').skip(3);
        let (root, mount) = (place.next()?, place.next()?);
        Some((PathBuf::from(mount), root.to_owned()))
    })
}

/// Path of the thread's cpuset in the text of `cgroup`: `3:cpuset:/path`.
fn own_path(text: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let controllers = fields.next()?;
        controllers.split(',').any(|name| name == "cpuset").then(|| fields.next().map(str::to_owned))?
    })
}

/// Who made a group: in its name, so that it can be read when the maker is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Maker {
    process: u32,
    /// Ticks since boot. Tells the process from a later one of the same number.
    start: u64,
    /// The namespace in which the number means this process.
    namespace: u64,
}

impl Maker {
    pub fn this_process() -> io::Result<Maker> {
        let start = start_of(std::process::id())?;
        Ok(Maker { process: std::process::id(), start, namespace: own_namespace()? })
    }

    pub fn group_name(&self, what: &str, core: CoreId) -> String {
        format!("plimsoll-{what}{}-{}-{}-{}", core.0, self.process, self.start, self.namespace)
    }

    /// The maker of a group of this name; `None` for a name that is not of ours.
    pub fn of(name: &str) -> Option<Maker> {
        let mut parts = name.strip_prefix("plimsoll-")?.split('-');
        let what = parts.next()?;
        let core = what.strip_prefix(CORE).or_else(|| what.strip_prefix(REST))?;
        core.parse::<u32>().ok()?;
        let maker = Maker {
            process: parts.next()?.parse().ok()?,
            start: parts.next()?.parse().ok()?,
            namespace: parts.next()?.parse().ok()?,
        };
        parts.next().is_none().then_some(maker)
    }

    /// Certainly so: a maker in another namespace is left alone.
    fn is_gone(&self) -> bool {
        own_namespace().is_ok_and(|namespace| namespace == self.namespace)
            && start_of(self.process).map_or_else(|e| e.kind() == io::ErrorKind::NotFound, |start| start != self.start)
    }
}

/// The group that holds the core, and the one that holds what was moved off it.
pub(super) const CORE: &str = "core";
pub(super) const REST: &str = "rest";

fn own_namespace() -> io::Result<u64> {
    fs::metadata("/proc/self/ns/pid").map(|namespace| namespace.ino())
}

/// The 22nd field of `stat`. The second, the name, may hold blanks and parentheses. A zombie has ended.
fn start_of(process: u32) -> io::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/stat"))?;
    let odd = || io::Error::new(io::ErrorKind::InvalidData, "no start time in stat");
    let (_, after) = text.rsplit_once(')').ok_or_else(odd)?;
    let mut fields = after.split_ascii_whitespace();
    if fields.next() == Some("Z") {
        return Err(io::ErrorKind::NotFound.into());
    }
    fields.nth(18).and_then(|field| field.parse().ok()).ok_or_else(odd)
}

/// Removes what killed owners left in this thread's cpuset or around it, and gives back the cores. Returns how many
/// groups there were. Never touches a group that this program did not make, or whose maker lives.
pub fn remove_remains() -> Result<usize> {
    let mut group = own()?;
    loop {
        let fault = |e| Fault::because(format!("{SUBJECT}: {}", group.0.display()), e, "run as root");
        // A thread that a killed owner had moved lives in the remains.
        let around = Maker::of(group.name()).is_some_and(|maker| maker.is_gone());
        match group.0.parent() {
            Some(parent) if around => group = Group(parent.to_owned()),
            _ => {
                let _lock = group.lock().map_err(fault)?;
                return remove_remains_of(&group).map_err(fault);
            }
        }
    }
}

/// The same, of a group that the caller has locked.
fn remove_remains_of(group: &Group) -> io::Result<usize> {
    let mut removed = 0;
    for child in group.children()? {
        if Maker::of(child.name()).is_some_and(|maker| maker.is_gone()) {
            removed += remove_remains_of(&child)?;
            dissolve(&child, group)?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// Gives the threads of `group` to `parent` and removes it; what others made in it stays, with all of its parent's cores.
pub(super) fn dissolve(group: &Group, parent: &Group) -> io::Result<()> {
    group.move_threads(parent, |_| true)?;
    match fs::remove_dir(&group.0) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) if e.raw_os_error() == Some(libc::EBUSY) => {
            let _ = group.write("cpuset.cpu_exclusive", "0");
            group.write("cpuset.cpus", &parent.read("cpuset.cpus")?)
        }
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_the_maker_and_others_are_not_ours() {
        let maker = Maker::this_process().unwrap();
        for what in [CORE, REST] {
            let name = maker.group_name(what, CoreId(3));
            assert_eq!(Maker::of(&name), Some(maker), "{name}");
        }
        for name in ["docker", "plimsoll", "plimsoll-core", "plimsoll-core1", "plimsoll-core1-2-3", "plimsoll-x1-2-3-4"]
        {
            assert_eq!(Maker::of(name), None, "{name}");
        }
        assert!(!maker.is_gone());
        assert!(Maker { start: maker.start + 1, ..maker }.is_gone(), "the number was used again");
        assert!(Maker { process: u32::MAX, ..maker }.is_gone());
        assert!(!Maker { process: u32::MAX, namespace: 1, ..maker }.is_gone(), "nobody knows");
    }

    #[test]
    fn reads_where_cpusets_are() {
        let text = "35 24 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                    36 24 0:31 /docker/x /sys/fs/cgroup/cpuset rw,relatime shared:9 - cgroup cgroup rw,cpuset,noprefix\n";
        assert_eq!(mount(text), Some(("/sys/fs/cgroup/cpuset".into(), "/docker/x".into())));
        assert_eq!(mount("30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw"), None);
        assert_eq!(own_path("4:memory:/m\n3:cpuset:/a:b\n0::/\n"), Some("/a:b".into()));
        assert_eq!(own_path("0::/user.slice\n"), None);
    }
}
