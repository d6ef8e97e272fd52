//! Control groups with cpusets: our own, their contents, and remains of killed owners.
//!
//! The kernel has cpusets in one of two hierarchies: that of version 1 (`Documentation/admin-guide/cgroup-v1/cpusets.rst`)
//! or the unified one (`cgroup-v2.rst`). In the latter the groups that a shield makes are threaded, since a process has its
//! other threads elsewhere.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use machine::lock::Lock;
use machine::{CoreId, CpuSet, Fault, Result};

use crate::ownership::{self, start_of};

const SUBJECT: &str = "cpusets";
/// Longer than moving the threads of a machine takes.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Excludes other makers of this user.
pub(super) fn lock() -> Result<Lock> {
    ownership::take(SUBJECT, SUBJECT, TIMEOUT, "wait until that has made its own")
}

/// The hierarchy that has the cpusets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    One,
    Two,
}

/// A folder of the cpuset hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Group {
    pub path: PathBuf,
    pub version: Version,
}

impl Group {
    pub fn read(&self, file: &str) -> io::Result<String> {
        fs::read_to_string(self.path.join(file)).map(|text| text.trim().to_owned())
    }

    /// Writes a value by one system call, so that the kernel judges the whole of it.
    pub fn write(&self, file: &str, value: &str) -> io::Result<()> {
        use io::Write;
        File::options().write(true).open(self.path.join(file))?.write_all(value.as_bytes())
    }

    fn at(&self, path: PathBuf) -> Group {
        Group { path, version: self.version }
    }

    pub fn child(&self, name: &str) -> Group {
        self.at(self.path.join(name))
    }

    pub fn children(&self) -> io::Result<Vec<Group>> {
        let mut groups = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                groups.push(self.at(entry.path()));
            }
        }
        Ok(groups)
    }

    pub fn name(&self) -> &str {
        self.path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }

    /// Whether it is the root of its hierarchy, which has all processes of the machine.
    pub fn is_top(&self) -> bool {
        match self.version {
            Version::One => {
                self.path.join("release_agent").exists() && self.read("cpuset.sched_relax_domain_level").is_ok()
            }
            Version::Two => !self.path.join("cgroup.type").exists(),
        }
    }

    pub fn cores(&self) -> io::Result<CpuSet> {
        let file = match self.version {
            Version::One => "cpuset.cpus",
            Version::Two => "cpuset.cpus.effective",
        };
        let text = self.read(file)?;
        text.parse().map_err(|_| io::Error::new(io::ErrorKind::InvalidData, format!("{file} is '{text}'")))
    }

    /// The name of the file that lists its threads, and accepts one.
    pub fn threads_file(&self) -> &'static str {
        match self.version {
            Version::One => "tasks",
            Version::Two => "cgroup.threads",
        }
    }

    /// Numbers of its threads.
    pub fn threads(&self) -> io::Result<Vec<i32>> {
        // A thread of another PID namespace is listed as 0.
        let number = |line: &str| line.parse().ok().filter(|thread| *thread > 0);
        Ok(self.read(self.threads_file())?.lines().filter_map(number).collect())
    }

    /// Whether it or a group below it has a thread that may run on `core`.
    pub fn may_run_on(&self, core: CoreId) -> bool {
        self.cores().is_ok_and(|cores| cores.contains(core))
            && (self.threads().is_ok_and(|threads| !threads.is_empty())
                || self.children().is_ok_and(|children| children.iter().any(|child| child.may_run_on(core))))
    }

    pub fn take(&self, thread: i32) -> io::Result<()> {
        self.write(self.threads_file(), &thread.to_string())
    }

    /// Makes the group below `parent`, with `cores`.
    pub fn make(&self, parent: &Group, cores: &CpuSet) -> io::Result<()> {
        fs::create_dir(&self.path)?;
        if self.version == Version::Two {
            self.write("cgroup.type", "threaded")?;
            return self.write("cpuset.cpus", &cores.to_string());
        }
        self.write("cpuset.mems", &parent.read("cpuset.mems")?)?;
        self.write("cpuset.cpus", &cores.to_string())?;
        // Exclusive, so that no other group gets these cores.
        let exclusive = parent.read("cpuset.cpu_exclusive").is_ok_and(|flag| flag == "1");
        if exclusive { self.write("cpuset.cpu_exclusive", "1") } else { Ok(()) }
    }

    pub fn check_changeable(&self) -> Result<()> {
        rustix::fs::access(&self.path, rustix::fs::Access::WRITE_OK)
            .map_err(|e| Fault::because(format!("{SUBJECT}: {}", self.path.display()), e, "run as root"))
    }

    /// Moves every movable thread to `to`, also after failures. Returns the number of those that stayed.
    ///
    /// Repeats until nothing moves, since moved threads may start others meanwhile.
    pub fn move_threads(&self, to: &Group, mut before_move: impl FnMut(i32) -> io::Result<bool>) -> io::Result<usize> {
        let (mut stayed, mut failed) = (0, Ok(()));
        for _ in 0..16 {
            let mut moved = 0;
            (stayed, failed) = (0, Ok(()));
            for thread in self.threads()? {
                if !before_move(thread)? {
                    continue;
                }
                match to.take(thread) {
                    Ok(()) => moved += 1,
                    // The thread has ended.
                    Err(e) if e.raw_os_error() == Some(libc::ESRCH) => {}
                    // A kernel thread bound to its core.
                    Err(e) if e.raw_os_error() == Some(libc::EINVAL) => stayed += 1,
                    Err(e) => failed = Err(e),
                }
            }
            if moved == 0 {
                break;
            }
        }
        failed.map(|()| stayed)
    }

    /// The groups from this one upwards, itself first, that have the controller but do not enable it for their
    /// children. In version 2 a group has cpusets if its parent's `cgroup.subtree_control` names them.
    pub fn without_cpusets(&self) -> io::Result<Vec<Group>> {
        let names = |group: &Group, file| -> io::Result<bool> {
            Ok(group.read(file)?.split_whitespace().any(|name| name == "cpuset"))
        };
        let mut without: Vec<Group> = Vec::new();
        let mut group = self.clone();
        while self.version == Version::Two && !names(&group, "cgroup.subtree_control")? {
            without.push(group.clone());
            if names(&group, "cgroup.controllers")? {
                break;
            }
            let above =
                group.path.parent().map(Path::to_owned).filter(|above| above.join("cgroup.controllers").exists());
            let Some(above) = above else {
                return Err(io::Error::new(io::ErrorKind::Unsupported, "its control groups are given no cpusets"));
            };
            group = self.at(above);
        }
        Ok(without)
    }
}

/// The cpuset of the calling thread.
pub(super) fn own() -> Result<Group> {
    of("thread-self")
}

fn of(process: &str) -> Result<Group> {
    let read = |path: &str| fs::read_to_string(path).map_err(|e| Fault::because(SUBJECT, e, "mount procfs"));
    // Kernels without version 1 lack this file.
    let controllers = fs::read_to_string("/proc/cgroups").unwrap_or_default();
    locate(&read("/proc/self/mountinfo")?, &read(&format!("/proc/{process}/cgroup"))?, &controllers)
}

/// The cores that a process's control group may use, by the nearest group from it upwards with a cpuset.
pub fn cores_of(process: u32) -> Result<CpuSet> {
    let group = of(&process.to_string())?;
    let cores = group.path.ancestors().find_map(|path| group.at(path.to_path_buf()).cores().ok());
    let next = "mount the control groups of this host where this process sees them";
    cores.filter(|cores| !cores.is_empty()).ok_or_else(|| Fault::new(SUBJECT, "no group above it has one", next))
}

/// The group by the texts of `mountinfo`, `cgroup` and `/proc/cgroups`.
fn locate(mounts: &str, groups: &str, controllers: &str) -> Result<Group> {
    let next = "use deadline scheduling, or mount them: `mount -t cgroup2 none /sys/fs/cgroup`";
    let absent = |cause: &str| Fault::new(SUBJECT, cause, next);
    // The kernel binds the controller to one hierarchy; if that is of version 1, the unified one lacks it.
    let mounted = mount(mounts, Version::One).or_else(|| mount(mounts, Version::Two));
    let Some(Mount { at, root, version }) = mounted else {
        return Err(absent("no hierarchy of control groups with cpusets is mounted here"));
    };
    if let (Version::Two, Some(hierarchy)) = (version, hierarchy_of_version_one(controllers)) {
        let cause = format!(
            "version 1 of control groups has their controller (hierarchy {hierarchy}), and is not mounted here"
        );
        let next =
            "use deadline scheduling, mount it: `mount -t cgroup -o cpuset none DIR`, or boot with cgroup_no_v1=cpuset";
        return Err(Fault::new(SUBJECT, cause, next));
    }
    let path = own_path(groups, version)
        .ok_or_else(|| absent("the kernel does not say in which control group this thread is"))?;
    let below = Path::new(&path)
        .strip_prefix(&root)
        .map_err(|_| absent("this thread's control group is outside what is mounted here"))?;
    Ok(Group { path: at.join(below), version })
}

#[derive(Debug, PartialEq, Eq)]
struct Mount {
    at: PathBuf,
    root: String,
    version: Version,
}

/// The hierarchy's mount in the text of `mountinfo`.
fn mount(text: &str, version: Version) -> Option<Mount> {
    text.lines().find_map(|line| {
        let (place, system) = line.split_once(" - ")?;
        let mut system = system.split(' ');
        let (kind, _, options) = (system.next()?, system.next()?, system.next()?);
        let is_it = match version {
            Version::One => kind == "cgroup" && options.split(',').any(|option| option == "cpuset"),
            Version::Two => kind == "cgroup2",
        };
        let mut place = place.split(' ').skip(3);
        let (root, at) = (place.next()?, place.next()?);
        is_it.then(|| Mount { at: PathBuf::from(at), root: root.to_owned(), version })
    })
}

/// The number of the version 1 hierarchy with cpusets, by the text of `/proc/cgroups`, where 0 is the unified one.
fn hierarchy_of_version_one(text: &str) -> Option<u32> {
    let number = |line: &str| line.strip_prefix("cpuset")?.split_whitespace().next()?.parse().ok();
    text.lines().find_map(number).filter(|hierarchy| *hierarchy != 0)
}

/// Path of the thread's group in the text of `cgroup`: `3:cpuset:/path`, `0::/path`.
fn own_path(text: &str, version: Version) -> Option<String> {
    text.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let controllers = fields.next()?;
        let is_it = match version {
            Version::One => controllers.split(',').any(|name| name == "cpuset"),
            Version::Two => controllers.is_empty(),
        };
        is_it.then(|| fields.next().map(str::to_owned))?
    })
}

/// The maker of a group, stored in its name, so that it is known when the maker is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Maker {
    process: u32,
    /// Start time in ticks since boot, which distinguishes later processes of the same number.
    start: u64,
    /// The PID namespace of the number.
    namespace: u64,
}

impl Maker {
    pub fn this_process() -> io::Result<Maker> {
        let start = start_of(std::process::id())?;
        Ok(Maker { process: std::process::id(), start, namespace: own_namespace()? })
    }

    /// The name of a group. `given`: number of groups, from the parent upwards, in which the controller was enabled.
    pub fn group_name(&self, what: &str, core: CoreId, given: usize) -> String {
        let given = if given == 0 { String::new() } else { format!("x{given}") };
        format!("plimsoll-{what}{}{given}-{}-{}-{}", core.0, self.process, self.start, self.namespace)
    }

    /// The maker of a group of this name, and the number of groups in which the controller was enabled for it; `None`
    /// for names that are not ours.
    pub fn of(name: &str) -> Option<(Maker, usize)> {
        let mut parts = name.strip_prefix("plimsoll-")?.split('-');
        let what = parts.next()?;
        let core = what.strip_prefix(CORE).or_else(|| what.strip_prefix(REST))?;
        let (core, given) = core.split_once('x').unwrap_or((core, "0"));
        core.parse::<u32>().ok()?;
        let given = given.parse().ok()?;
        let maker = Maker {
            process: parts.next()?.parse().ok()?,
            start: parts.next()?.parse().ok()?,
            namespace: parts.next()?.parse().ok()?,
        };
        parts.next().is_none().then_some((maker, given))
    }

    /// Whether the maker is certainly gone; one in another namespace is left alone.
    fn is_gone(&self) -> bool {
        own_namespace().is_ok_and(|namespace| namespace == self.namespace)
            && start_of(self.process).map_or_else(|e| e.kind() == io::ErrorKind::NotFound, |start| start != self.start)
    }
}

/// Names of the group of the core, and of the group of the threads moved off it.
pub(super) const CORE: &str = "core";
pub(super) const REST: &str = "rest";

fn own_namespace() -> io::Result<u64> {
    fs::metadata("/proc/self/ns/pid").map(|namespace| namespace.ino())
}

/// Removes groups that killed owners left in or above this thread's cpuset, and frees the cores. Returns the number of
/// groups. Never touches a group that this program did not make, or whose maker lives.
pub fn remove_remains() -> Result<usize> {
    // Without cpusets there are no remains.
    let Ok(mut group) = own() else { return Ok(0) };
    loop {
        let fault = |e| Fault::because(format!("{SUBJECT}: {}", group.path.display()), e, "run as root");
        // A thread that a killed owner had moved is in the remains itself.
        match group.path.parent() {
            Some(parent) if is_left(&group) => group = group.at(parent.to_owned()),
            _ => {
                // Usually there is nothing, and no need for the lock.
                if !group.children().map_err(fault)?.iter().any(is_left) {
                    return Ok(0);
                }
                let _lock = lock()?;
                return remove_remains_of(&group).map_err(fault);
            }
        }
    }
}

/// Whether a killed owner has left the group.
fn is_left(group: &Group) -> bool {
    Maker::of(group.name()).is_some_and(|(maker, _)| maker.is_gone())
}

/// Removes the remains in one group; the caller holds the lock.
fn remove_remains_of(group: &Group) -> io::Result<usize> {
    let (mut removed, mut given, mut failed) = (0, 0, Ok(()));
    for child in group.children()? {
        if let Some((_, levels)) = Maker::of(child.name()).filter(|(maker, _)| maker.is_gone()) {
            for done in [remove_remains_of(&child), dissolve(&child, group).map(|()| 1)] {
                match done {
                    Ok(more) => removed += more,
                    Err(e) => failed = Err(e),
                }
            }
            given = given.max(levels);
        }
    }
    take_back(group, given);
    failed.map(|()| removed)
}

/// Disables the controller again in the groups in which it was enabled, from `group` upwards. A group whose children
/// still need it refuses, and keeps it.
pub(super) fn take_back(group: &Group, given: usize) {
    for path in group.path.ancestors().take(given) {
        if group.at(path.to_owned()).write("cgroup.subtree_control", "-cpuset").is_err() {
            break;
        }
    }
}

/// Moves the threads of `group` to `parent` and removes it; groups that others made in it stay, with all of its parent's cores.
pub(super) fn dissolve(group: &Group, parent: &Group) -> io::Result<()> {
    let moved = group.move_threads(parent, |_| Ok(true));
    let removed = match fs::remove_dir(&group.path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) if e.raw_os_error() == Some(libc::EBUSY) => match group.version {
            Version::One => {
                let _ = group.write("cpuset.cpu_exclusive", "0");
                group.write("cpuset.cpus", &parent.read("cpuset.cpus")?)
            }
            Version::Two => {
                let _ = group.write("cpuset.cpus.partition", "member");
                group.write("cpuset.cpus", "\n")
            }
        },
        outcome => outcome,
    };
    moved.and(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_the_maker_and_others_are_not_ours() {
        let maker = Maker::this_process().unwrap();
        for what in [CORE, REST] {
            for given in [0, 3] {
                let name = maker.group_name(what, CoreId(3), given);
                assert_eq!(Maker::of(&name), Some((maker, given)), "{name}");
            }
        }
        let others =
            ["docker", "plimsoll", "plimsoll-core", "plimsoll-core1", "plimsoll-core1-2-3", "plimsoll-x1-2-3-4"];
        for name in others.into_iter().chain(["plimsoll-core1x-2-3-4", "plimsoll-corex1-2-3-4"]) {
            assert_eq!(Maker::of(name), None, "{name}");
        }
        assert!(!maker.is_gone());
        assert!(Maker { start: maker.start + 1, ..maker }.is_gone(), "the number was used again");
        assert!(Maker { process: u32::MAX, ..maker }.is_gone());
        assert!(!Maker { process: u32::MAX, namespace: 1, ..maker }.is_gone(), "nobody knows");
    }

    /// `/proc/cgroups` with the controller in version 1, and in the unified hierarchy.
    const BY_ONE: &str = "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpuset\t3\t2\t1\ncpu\t1\t1\t1\n";
    const BY_TWO: &str = "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpuset\t0\t70\t1\ncpu\t0\t70\t1\n";

    #[test]
    fn reads_where_cpusets_are() {
        let one = "35 24 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                   36 24 0:31 /docker/x /sys/fs/cgroup/cpuset rw,relatime shared:9 - cgroup cgroup rw,cpuset,noprefix\n\
                   37 24 0:32 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let found = locate(one, "4:memory:/m\n3:cpuset:/docker/x/a:b\n0::/\n", BY_ONE).unwrap();
        assert_eq!(found, Group { path: "/sys/fs/cgroup/cpuset/a:b".into(), version: Version::One });
        // The setup of Debian 12 and Ubuntu.
        let two =
            "30 1 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n";
        let found = locate(two, "0::/user.slice/user-0.slice/session-1.scope\n", BY_TWO).unwrap();
        let path = "/sys/fs/cgroup/user.slice/user-0.slice/session-1.scope".into();
        assert_eq!(found, Group { path, version: Version::Two });
        assert!(locate("36 24 0:31 / /proc rw - proc proc rw\n", "0::/\n", BY_TWO).is_err());
        // Both hierarchies exist, and the one mounted here lacks the controller.
        let fault = locate(two, "3:cpuset:/\n0::/\n", BY_ONE).unwrap_err();
        assert!(fault.cause().contains("(hierarchy 3)") && fault.next().contains("cgroup_no_v1=cpuset"), "{fault}");
        assert!(locate(two, "0::/\n", "").is_ok(), "a kernel without version 1");
        assert!(locate(one, "3:cpuset:/elsewhere\n", BY_ONE).unwrap_err().cause().contains("outside what is mounted"));
        assert!(locate(two, "", BY_TWO).is_err());
    }

    /// A plain tree of files like the unified hierarchy, which shows reads and writes but enforces nothing.
    fn unified(levels: &[(&str, &str, &str)]) -> (tempfile::TempDir, Group) {
        let tree = tempfile::tempdir().unwrap();
        let mut path = tree.path().to_owned();
        for (name, controllers, given) in levels {
            path.push(name);
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("cgroup.controllers"), controllers).unwrap();
            fs::write(path.join("cgroup.subtree_control"), given).unwrap();
        }
        (tree, Group { path, version: Version::Two })
    }

    #[test]
    fn groups_that_give_no_cpusets_are_found_from_the_own_one_upwards() {
        let names = |levels: &[(&str, &str, &str)]| {
            let (_tree, group) = unified(levels);
            let without = group.without_cpusets();
            without.map(|groups| groups.iter().map(|group| group.name().to_owned()).collect::<Vec<_>>().join(" ")).ok()
        };
        let session =
            [("root", "cpuset cpu io", "cpuset cpu"), ("user.slice", "cpuset cpu", "cpu"), ("session", "cpu", "")];
        assert_eq!(names(&session).as_deref(), Some("session user.slice"));
        assert_eq!(names(&session[..2]).as_deref(), Some("user.slice"));
        assert_eq!(names(&session[..1]).as_deref(), Some(""));
        // The controller is bound to version 1, or kept from a container.
        assert_eq!(names(&[("root", "cpu io", "cpu"), ("session", "cpu", "")]), None);
    }

    #[test]
    fn remains_that_cannot_be_removed_keep_no_others() {
        let (_tree, parent) = unified(&[("root", "cpuset", "cpuset")]);
        let maker = Maker::this_process().unwrap();
        let name = Maker { start: maker.start + 1, ..maker }.group_name(CORE, CoreId(3), 0);
        let around = parent.child(&name);
        // The inner group lists no threads.
        fs::create_dir_all(around.child(&name).path).unwrap();
        for (group, threads) in [(&parent, ""), (&around, "17\n")] {
            fs::write(group.path.join("cgroup.threads"), threads).unwrap();
        }
        assert!(remove_remains_of(&parent).is_err());
        assert_eq!(parent.threads().unwrap(), [17], "it has the thread back");
    }

    #[test]
    fn a_group_of_the_unified_hierarchy_is_threaded_and_has_its_cores() {
        let (_tree, parent) = unified(&[("root", "cpuset", "cpuset")]);
        let group = parent.child("plimsoll-core3-1-2-3");
        let made = group.make(&parent, &[CoreId(3)].into_iter().collect());
        // A file that the kernel would have made is missing here.
        assert_eq!(made.unwrap_err().kind(), io::ErrorKind::NotFound);
        for file in ["cgroup.type", "cpuset.cpus", "cgroup.threads", "cpuset.cpus.effective"] {
            fs::write(group.path.join(file), "").unwrap();
        }
        group.write("cgroup.type", "threaded").unwrap();
        fs::write(group.path.join("cgroup.threads"), "17\n0\n4\n").unwrap();
        fs::write(group.path.join("cpuset.cpus.effective"), "3\n").unwrap();
        assert_eq!(group.threads().unwrap(), [17, 4], "one of another PID namespace has no number");
        assert_eq!(group.cores().unwrap().to_string(), "3");
        assert!(parent.is_top() && !group.is_top());
    }
}
