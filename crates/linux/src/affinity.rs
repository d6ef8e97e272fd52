//! Pinning a thread to a core, for as long as a guard lives.

use std::marker::PhantomData;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use machine::{CoreId, Fault, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The mask this process started with, as the first caller here saw it: later pins do not narrow it.
static GIVEN: OnceLock<CpuSet> = OnceLock::new();

fn given() -> Result<CpuSet> {
    if let Some(mask) = GIVEN.get() {
        return Ok(*mask);
    }
    Ok(*GIVEN.get_or_init(|| own_mask().unwrap_or_default())).and_then(|mask| {
        if mask.count() == 0 {
            return Err(Fault::new("CPU affinity", "the kernel does not tell it", "check seccomp filters"));
        }
        Ok(mask)
    })
}

fn own_mask() -> Result<CpuSet> {
    sched_getaffinity(None).map_err(|e| Fault::because("CPU affinity", e, "check seccomp filters of this container"))
}

fn cores_of(mask: &CpuSet) -> Vec<CoreId> {
    (0..CpuSet::MAX_CPU).filter(|&core| mask.is_set(core)).map(|core| CoreId(core as u32)).collect()
}

/// The cores this process was given when it started (cpuset, `taskset`), whatever its threads pinned themselves to since.
/// Call it, or [`pin`], once before any other code changes the thread's mask.
pub fn allowed() -> Result<Vec<CoreId>> {
    given().map(|mask| cores_of(&mask))
}

/// Gives the calling thread all cores that its cpuset has, whatever mask it came with, and takes that for what the process
/// was given. For a process that was started by one that is bound to a core. Call it before anything else here.
pub fn unbind() -> Result<()> {
    let mut all = CpuSet::new();
    for core in 0..CpuSet::MAX_CPU {
        all.set(core);
    }
    sched_setaffinity(None, &all).map_err(|e| Fault::because("CPU affinity", e, "check seccomp filters"))?;
    given().map(|_| ())
}

/// The cores the calling thread may run on now.
pub fn current() -> Result<Vec<CoreId>> {
    own_mask().map(|mask| cores_of(&mask))
}

/// The calling thread is pinned; dropping it puts the thread's earlier mask back.
#[derive(Debug)]
#[must_use = "the thread is pinned only while this lives"]
pub struct Pinned {
    core: CoreId,
    before: CpuSet,
    // Affinity belongs to a thread: the guard must be dropped where it was made.
    _thread: PhantomData<*const ()>,
}

impl Pinned {
    pub fn core(&self) -> CoreId {
        self.core
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // It fails only where the cpuset was changed under us; the kernel has then moved the thread already.
        let _ = sched_setaffinity(None, &self.before);
    }
}

/// A fault, naming the allowed cores, where `core` does not exist or was not given to this process.
pub fn check(core: CoreId) -> Result<()> {
    let cores = allowed()?;
    if cores.contains(&core) {
        return Ok(());
    }
    let exists = Path::new(&format!("/sys/devices/system/cpu/cpu{}", core.0)).exists();
    let cause = if exists { "it is not given to this process" } else { "this machine has no such core" };
    Err(Fault::new(core.to_string(), cause, format!("choose one of {}", in_words(&cores))))
}

/// Pins the calling thread to `core`; faults as [`check`] does.
pub fn pin(core: CoreId) -> Result<Pinned> {
    check(core)?;
    let before = own_mask()?;
    let mut only = CpuSet::new();
    only.set(core.0 as usize);
    sched_setaffinity(None, &only)
        .map_err(|e| Fault::because(core.to_string(), e, "bring the core on line, or choose another"))?;
    Ok(Pinned { core, before, _thread: PhantomData })
}

/// Lets the calling thread run on `cores` and nowhere else from now on. For threads that go out of others' way; see [`pin`]
/// for those that need a core.
pub fn settle(cores: &[CoreId]) -> Result<()> {
    given()?;
    let mut mask = CpuSet::new();
    cores.iter().for_each(|core| mask.set(core.0 as usize));
    sched_setaffinity(None, &mask).map_err(|e| Fault::because("CPU affinity", e, "name cores that are on line"))
}

/// Makes a child start with the cores this process was given, even when the spawning thread is pinned by then.
pub fn inherit_allowed(command: &mut Command) -> Result<()> {
    let mask = given()?;
    // SAFETY: between fork and exec only sched_setaffinity is called, a plain system call without locks or allocation.
    unsafe { command.pre_exec(move || sched_setaffinity(None, &mask).map_err(Into::into)) };
    Ok(())
}

/// Makes a child start on `cores` and nowhere else; faults as [`check`] does for each.
pub fn confine_child(command: &mut Command, cores: &[CoreId]) -> Result<()> {
    let mut only = CpuSet::new();
    for &core in cores {
        check(core)?;
        only.set(core.0 as usize);
    }
    // SAFETY: as in `inherit_allowed`.
    unsafe { command.pre_exec(move || sched_setaffinity(None, &only).map_err(Into::into)) };
    Ok(())
}

/// Makes a child start on `core` and nowhere else; faults as [`check`] does.
pub fn pin_child(command: &mut Command, core: CoreId) -> Result<()> {
    confine_child(command, &[core])
}

/// The cores that a process (its first thread) may run on now.
pub fn of_process(process: u32) -> Result<machine::CpuSet> {
    let mask = rustix::thread::Pid::from_raw(process as i32).map(|pid| sched_getaffinity(Some(pid)));
    match mask {
        Some(Ok(mask)) => Ok(cores_of(&mask).into_iter().collect()),
        _ => Err(Fault::new(format!("process {process}"), "it has ended", "start it again")),
    }
}

/// `0-3,8`
fn in_words(cores: &[CoreId]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for core in cores {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == core.0 => *last = core.0,
            _ => ranges.push((core.0, core.0)),
        }
    }
    let word = |&(first, last): &(u32, u32)| if first == last { format!("{first}") } else { format!("{first}-{last}") };
    ranges.iter().map(word).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    // Affinity is a thread's own: every test here runs in its own thread already.

    #[test]
    fn a_pin_holds_while_its_guard_lives() {
        let before = current().unwrap();
        let core = *allowed().unwrap().last().unwrap();
        let pinned = pin(core).unwrap();
        assert_eq!((pinned.core(), current().unwrap()), (core, vec![core]));
        assert_eq!(allowed().unwrap(), before, "a pin does not narrow what the process was given");
        drop(pinned);
        assert_eq!(current().unwrap(), before);
    }

    #[test]
    fn a_core_that_does_not_exist_is_refused_with_the_choices() {
        let fault = pin(CoreId(9_999)).unwrap_err();
        assert_eq!((fault.subject(), fault.cause()), ("core 9999", "this machine has no such core"));
        assert_eq!(fault.next(), format!("choose one of {}", in_words(&allowed().unwrap())));
    }

    #[test]
    fn a_child_of_a_pinned_thread_gets_all_allowed_cores() {
        let all = allowed().unwrap();
        let _pinned = pin(all[0]).unwrap();
        let mut child = Command::new("cat");
        child.arg("/proc/self/status");
        inherit_allowed(&mut child).unwrap();
        let status = String::from_utf8(child.output().unwrap().stdout).unwrap();
        assert!(status.contains(&format!("Cpus_allowed_list:\t{}\n", in_words(&all))), "{status}");
    }

    #[test]
    fn cores_are_named_in_ranges() {
        assert_eq!(in_words(&[0, 1, 2, 5, 7, 8].map(CoreId)), "0-2,5,7-8");
    }
}
