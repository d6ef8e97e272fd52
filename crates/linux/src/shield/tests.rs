//! Shields in a cpuset of the test's own, so that nothing else on this machine is moved. They need root, and cpusets in
//! control groups of either version.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use machine::FaultKind;

use super::group::{CORE, Group, REST, Version};
use super::*;
use crate::lab::testing::{line_of, wait_until};

/// One shield at a time: all want the last core.
static LAST_CORE: Mutex<()> = Mutex::new(());

fn one() -> MutexGuard<'static, ()> {
    LAST_CORE.lock().unwrap_or_else(|failed| failed.into_inner())
}

const ROLE: &str = "SHIELD_TEST_ROLE";

fn last_core() -> CoreId {
    *affinity::allowed().unwrap().last().unwrap()
}

/// Raises a shield once no other test, perhaps of another checkout, has the core.
fn raise(wanted: Wanted) -> Result<Shield> {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        match Shield::raise(last_core(), wanted) {
            Err(fault) if fault.kind() == FaultKind::Busy && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(20));
            }
            outcome => return outcome,
        }
    }
}

/// A cpuset with all cores of its parent, and processes that end with it.
struct Ground {
    group: PathBuf,
    version: Version,
    processes: Vec<Child>,
}

/// The group in which tests make theirs: in version 2 only the root may have unthreaded groups beside processes.
fn place_for_grounds() -> Result<Group> {
    let mut group = group::own()?;
    while group.version == Version::Two && !group.is_top() {
        let Some(above) = group.path.parent() else { break };
        group = Group { path: above.to_owned(), ..group };
    }
    Ok(group)
}

impl Ground {
    fn new() -> Option<Ground> {
        if affinity::allowed().unwrap().len() < 2 {
            skip::test("one core only");
            return None;
        }
        let made = place_for_grounds().map_err(|fault| fault.to_string()).and_then(|own| {
            let id = std::thread::current().id();
            let name: String = format!("{id:?}").chars().filter(char::is_ascii_digit).collect();
            let group = own.child(&format!("test-of-shields-{}-{name}", std::process::id()));
            let fill = || {
                if own.version == Version::Two {
                    own.write("cgroup.subtree_control", "+cpuset")?;
                    return fs::create_dir(&group.path);
                }
                fs::create_dir(&group.path)?;
                group.write("cpuset.mems", &own.read("cpuset.mems")?)?;
                group.write("cpuset.cpus", &own.read("cpuset.cpus")?)
            };
            fill().map(|()| group.clone()).map_err(|e| e.to_string())
        });
        match made {
            Ok(Group { path, version }) => Some(Ground { group: path, version, processes: Vec::new() }),
            Err(reason) => {
                skip::test(format_args!("no cpuset can be made: {reason}"));
                None
            }
        }
    }

    /// Starts `script` in the cpuset; returns its index in `processes`.
    fn start(&mut self, script: &str, role: &str) -> usize {
        let file = if self.version == Version::One { "tasks" } else { "cgroup.procs" };
        let enter = format!("echo $$ > {}/{file} && {script}", self.group.display());
        let mut command = Command::new("sh");
        command.args(["-c", &enter]).env(ROLE, role).stdin(Stdio::piped()).stdout(Stdio::piped());
        affinity::inherit_allowed(&mut command).unwrap();
        self.processes.push(command.spawn().unwrap());
        self.processes.len() - 1
    }

    /// A process that always wants to run, on `mask` or on any core.
    fn hog(&mut self, mask: Option<CoreId>) -> u32 {
        let endless = "sh -c 'echo ready; while :; do :; done'";
        let script = match mask {
            Some(core) => format!("exec taskset -c {} {endless}", core.0),
            None => format!("exec {endless}"),
        };
        let at = self.start(&script, "");
        line_of(&mut self.processes[at], "ready");
        self.processes[at].id()
    }

    /// Starts this test binary in another role.
    fn act(&mut self, role: &str) -> &mut Child {
        let binary = std::env::current_exe().unwrap();
        let script = format!("exec {} --exact --nocapture shield::tests::an_actor", binary.display());
        let at = self.start(&script, role);
        &mut self.processes[at]
    }

    /// Names of our groups in it.
    fn groups(&self) -> Vec<String> {
        let of_ours = |name: &String| name.starts_with("plimsoll-");
        Group { path: self.group.clone(), version: self.version }
            .children()
            .unwrap()
            .iter()
            .map(|g| g.name().to_owned())
            .filter(of_ours)
            .collect()
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
        for name in self.groups() {
            let _ = fs::remove_dir(self.group.join(name));
        }
        // The kernel frees a group shortly after its last process.
        wait_until("the test's cpuset is not empty", || fs::remove_dir(&self.group).is_ok());
    }
}

fn cores_of(process: u32) -> String {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.unwrap().trim().to_owned()
}

/// CPU time in ticks, and the core that it last ran on.
fn used(process: u32) -> (u64, u32) {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    (fields[11].parse().unwrap(), fields[36].parse().unwrap())
}

/// The role that the tests below start: raises a shield, says so, spins until its input ends.
#[test]
fn an_actor() {
    let Some(role) = std::env::var_os(ROLE) else { return };
    match role.to_str().unwrap() {
        "owner" => {
            let shield = raise(Wanted::Cpuset).unwrap();
            println!("\nraised: {}", shield.by());
            let ended = std::sync::atomic::AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let _ = std::io::stdin().read_line(&mut String::new());
                    ended.store(true, std::sync::atomic::Ordering::Relaxed);
                });
                while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            drop(shield);
        }
        "rival" => match Shield::raise(last_core(), Wanted::Best) {
            Ok(_) => println!("\nrefused: no"),
            Err(fault) => println!("\nrefused: {fault}"),
        },
        "seeker" => {
            let refusal = raise(Wanted::Cpuset).err().map_or("no".into(), |fault| fault.to_string());
            println!("\nrefused: {refusal}");
        }
        "cleaner" => {
            println!("\nremoved: {}", remove_remains().unwrap());
            if let Err(fault) = cpusets_usable() {
                println!("no cpusets: {fault}");
            }
        }
        _ => {}
    }
}

#[test]
fn a_hog_is_kept_off_the_core_and_everything_comes_back() {
    let _one = one();
    let Some(mut ground) = Ground::new() else { return };
    let core = last_core();
    let all: machine::CpuSet = affinity::allowed().unwrap().into_iter().collect();
    let hogs = [ground.hog(None), ground.hog(Some(core))];
    let before = hogs.map(cores_of);
    assert_eq!(before, [all.to_string(), core.0.to_string()]);

    let owner = ground.act("owner");
    let said = line_of(owner, "raised: ");
    let process = owner.id();
    assert!(said.starts_with("cpuset: ") && said.contains("left alone"), "{said}");
    assert_eq!(ground.groups().len(), 2, "{:?}", ground.groups());
    for hog in hogs {
        let allowed: machine::CpuSet = cores_of(hog).parse().unwrap();
        assert!(!allowed.contains(core), "{hog} may still run on {core}");
    }
    // Both get time, but the hogs on other cores.
    let (hogs_had, owner_had) = (hogs.map(used), used(process));
    wait_until("nobody runs", || {
        hogs.iter().zip(hogs_had).all(|(hog, had)| used(*hog).0 > had.0 + 2) && used(process).0 > owner_had.0 + 2
    });
    assert!(hogs.iter().all(|hog| used(*hog).1 != core.0), "a hog runs on {core}");

    let rival = ground.act("rival");
    let refusal = line_of(rival, "refused: ");
    assert!(refusal.contains(&format!("process {process} ")), "{refusal}");

    let owner = ground.processes.iter_mut().find(|child| child.id() == process).unwrap();
    drop(owner.stdin.take());
    // Its exit status is ignored, since nobody reads the test harness's output in it.
    owner.wait().unwrap();
    assert_eq!(hogs.map(cores_of), before, "masks are as they were");
    assert_eq!(ground.groups(), Vec::<String>::new());
}

#[test]
fn another_users_locks_on_what_all_may_open_keep_nobody_from_a_core() {
    let _one = one();
    let Some(mut ground) = Ground::new() else { return };
    let places = [PathBuf::from(format!("/sys/devices/system/cpu/cpu{}", last_core().0)), ground.group.clone()];
    let theirs = skip::another_user(|| {
        places.map(|place| {
            let folder = fs::File::open(place).unwrap();
            folder.try_lock().unwrap();
            folder
        })
    });
    let Some(_theirs) = theirs else { return };
    let owner = ground.act("owner");
    line_of(owner, "raised: ");
    // At the end of its shield the group's threads are moved back.
    drop(owner.stdin.take());
    owner.wait().unwrap();
    assert_eq!(ground.groups(), Vec::<String>::new());
}

#[test]
fn a_core_that_a_group_beside_may_use_is_refused_and_what_was_begun_is_undone() {
    let _one = one();
    let Some(mut ground) = Ground::new() else { return };
    let hog = ground.hog(None);
    let around = Group { path: ground.group.clone(), version: ground.version };
    let beside = around.child("beside");
    for above in around.without_cpusets().unwrap().iter().rev() {
        above.write("cgroup.subtree_control", "+cpuset").unwrap();
    }
    beside.make(&around, &around.cores().unwrap()).unwrap();
    beside.take(hog as i32).unwrap();
    let refusal = line_of(ground.act("seeker"), "refused: ");
    assert!(refusal.contains("has threads that may run there"), "{refusal}");
    assert_eq!(ground.groups(), Vec::<String>::new());
    let hog = ground.processes.iter_mut().find(|child| child.id() == hog).unwrap();
    hog.kill().unwrap();
    hog.wait().unwrap();
    wait_until("the group beside is not empty", || fs::remove_dir(&beside.path).is_ok());
}

fn keeper_of(owner: u32) -> i32 {
    let tasks = fs::read_dir(format!("/proc/{owner}/task")).unwrap().flatten();
    // The keeper is a child of the thread that raised the shield.
    let all: Vec<String> =
        tasks.map(|task| fs::read_to_string(task.path().join("children")).unwrap_or_default()).collect();
    let is_it = |child: &&str| {
        fs::read_to_string(format!("/proc/{child}/cmdline")).is_ok_and(|line| line.contains("plimsoll-warden"))
    };
    let found = all.iter().flat_map(|list| list.split_whitespace()).find(is_it);
    found.expect("the owner has a keeper").parse().unwrap()
}

#[test]
fn a_killed_owners_core_and_masks_are_given_back_at_once() {
    let _one = one();
    let Some(mut ground) = Ground::new() else { return };
    if skip::tool("taskset").is_none() {
        return;
    }
    let hogs = [ground.hog(None), ground.hog(Some(last_core()))];
    let before = hogs.map(cores_of);
    let owner = ground.act("owner");
    line_of(owner, "raised: ");
    let process = owner.id();
    assert!(hogs.map(cores_of).iter().zip(&before).all(|(now, before)| now != before), "nobody was moved");
    let owner = ground.processes.iter_mut().find(|child| child.id() == process).unwrap();
    owner.kill().unwrap();
    owner.wait().unwrap();
    wait_until("groups are left", || ground.groups().is_empty());
    wait_until("masks are not as they were", || hogs.map(cores_of) == before);
    // The core is available again.
    line_of(ground.act("owner"), "raised: ");
}

#[test]
fn what_a_killed_owner_and_its_keeper_leave_is_cleaned_up_after_and_a_living_owners_is_not() {
    let _one = one();
    let Some(mut ground) = Ground::new() else { return };
    let hog = ground.hog(None);
    let before = cores_of(hog);
    let owner = ground.act("owner");
    line_of(owner, "raised: ");
    let process = owner.id();
    let removed = |ground: &mut Ground| line_of(ground.act("cleaner"), "removed: ").trim().parse::<usize>().unwrap();
    // The cleaner starts in the group that contains both; the owner lives.
    assert_eq!(removed(&mut ground), 0);
    assert_eq!(ground.groups().len(), 2);

    let keeper = rustix::process::Pid::from_raw(keeper_of(process)).unwrap();
    rustix::process::kill_process(keeper, rustix::process::Signal::KILL).unwrap();
    let owner = ground.processes.iter_mut().find(|child| child.id() == process).unwrap();
    owner.kill().unwrap();
    owner.wait().unwrap();
    assert_ne!(cores_of(hog), before, "nobody has put it back yet");
    assert_eq!(removed(&mut ground), 2);
    assert_eq!((cores_of(hog), ground.groups()), (before, Vec::new()));
    // The core is available again.
    line_of(ground.act("owner"), "raised: ");
}

#[test]
fn groups_of_others_are_left_alone() {
    let Some(ground) = Ground::new() else { return };
    let own = group::Maker::this_process().unwrap();
    let others = ["docker".to_owned(), own.group_name(CORE, CoreId(0), 0), own.group_name(REST, CoreId(0), 0)];
    for name in &others {
        fs::create_dir(ground.group.join(name)).unwrap();
    }
    let mut ground = ground;
    assert_eq!(line_of(ground.act("cleaner"), "removed: ").trim(), "0");
    for name in &others {
        assert!(ground.group.join(name).exists());
        fs::remove_dir(ground.group.join(name)).unwrap();
    }
}

#[test]
fn deadline_scheduling_outranks_a_hog_on_the_same_core() {
    let _one = one();
    let before = affinity::current().unwrap();
    let shield = match raise(Wanted::Deadline) {
        Ok(shield) => shield,
        Err(fault) => return skip::test(fault),
    };
    assert!(matches!(shield.by(), Means::Deadline { runtime: Nanoseconds(900_000), .. }), "{}", shield.by());
    let Some(taskset) = skip::tool("taskset") else { return };
    let mut hog = Command::new(taskset);
    hog.args(["-c", &shield.core().0.to_string(), "sh", "-c", "while :; do :; done"]);
    affinity::inherit_allowed(&mut hog).unwrap();
    let mut hog = hog.spawn().unwrap();
    // Waits until the hog has had 3 ticks of the rest, or for 600 ms.
    let until = Instant::now() + Duration::from_millis(600);
    let own = || used_by_thread(crate::accounting::current_thread());
    let from = own();
    while Instant::now() < until {
        std::hint::spin_loop();
    }
    let (ours, theirs) = (own() - from, used(hog.id()).0);
    hog.kill().unwrap();
    hog.wait().unwrap();
    eprintln!("deadline thread {ours} ticks, hog {theirs} ticks");
    // Fair shares would be equal. The excess depends on the kernel's tick.
    assert!(ours > theirs, "{ours} ticks to us, {theirs} to the hog");
    drop(shield);
    assert_eq!(affinity::current().unwrap(), before);
}

fn used_by_thread(thread: i32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
    stat.rsplit_once(')').unwrap().1.split_whitespace().nth(11).unwrap().parse().unwrap()
}

#[test]
fn a_second_shield_of_one_core_names_the_first_and_pins_need_none() {
    let _one = one();
    let first = match raise(Wanted::Deadline) {
        Ok(first) => first,
        Err(fault) => return skip::test(fault),
    };
    let other = |wanted| {
        let raise = move || Shield::raise(last_core(), wanted).map(|shield| shield.by().clone());
        std::thread::spawn(raise).join().unwrap()
    };
    for wanted in [Wanted::Deadline, Wanted::Best] {
        let fault = other(wanted).unwrap_err();
        assert!(fault.cause().contains(&format!("process {} ", std::process::id())), "{fault}");
    }
    assert_eq!(other(Wanted::Nothing).unwrap(), Means::Pinned { because: vec![] });
    drop(first);
    drop(raise(Wanted::Deadline).unwrap());
    let pinned = raise(Wanted::Nothing).unwrap();
    assert_eq!(affinity::current().unwrap(), vec![pinned.core()]);
}

#[test]
fn a_core_that_does_not_exist_is_refused() {
    let fault = Shield::raise(CoreId(9_999), Wanted::Best).map(|_| ()).unwrap_err();
    assert_eq!(fault.cause(), "this machine has no such core");
}

#[test]
fn means_are_said_in_words() {
    let cpuset = Means::Cpuset { moved: 3, bound: 2, only_within: None };
    assert_eq!(cpuset.to_string(), "cpuset: 3 threads moved off, 2 kernel threads are bound to their cores");
    let pinned = Means::Pinned { because: vec!["no".into(), "nor that".into()] };
    assert_eq!(pinned.to_string(), "nothing: pinned; no; nor that");
}

/// A machine where version 1 has the controller and only the unified hierarchy is mounted.
#[test]
fn where_no_cpuset_can_be_had_none_was_left() {
    let Some(unshare) = skip::tool("unshare") else { return };
    let script = "while read -r _ where kind options _; do case \"$kind:,$options,\" in \
                  cgroup:*,cpuset,*) umount \"$where\" || exit 77;; esac; done </proc/self/mounts; \
                  exec \"$0\" --exact --nocapture shield::tests::an_actor";
    let mut command = Command::new(unshare);
    command.args(["--mount", "sh", "-c", script]).arg(std::env::current_exe().unwrap()).env(ROLE, "cleaner");
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(77) || said.contains("unshare failed") {
        return skip::test(format_args!("no mount namespace without cpusets may be made here: {said}"));
    }
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && out.contains("removed: 0"), "{out}{said}");
    let is_of_version_one = group::own().is_ok_and(|group| group.version == Version::One);
    if is_of_version_one {
        assert!(out.contains("no cpusets: cpusets: version 1 of control groups has their controller"), "{out}");
    }
}
