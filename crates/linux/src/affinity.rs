//! Pinning a thread to a core, for as long as a guard lives.

use std::marker::PhantomData;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use machine::{CoreId, CpuSet, Fault, Result};

use crate::mask::{self, Mask};

/// The cores this process started with, as the first call here saw them; later pins do not narrow them.
static GIVEN: OnceLock<CpuSet> = OnceLock::new();

fn given() -> Result<&'static CpuSet> {
    if let Some(cores) = GIVEN.get() {
        return Ok(cores);
    }
    let own = own_cores()?;
    Ok(GIVEN.get_or_init(|| own))
}

fn own_cores() -> Result<CpuSet> {
    mask::get(0).map_err(|e| Fault::because("CPU affinity", e, "check seccomp filters of this container"))
}

/// The cores this process was given when it started (cpuset, `taskset`), whatever its threads pinned themselves to since.
/// Call it, or [`pin`], once before any other code changes the thread's mask.
pub fn allowed() -> Result<Vec<CoreId>> {
    given().map(|cores| cores.iter().collect())
}

/// Gives the calling thread all cores of its cpuset, whatever mask it started with, and takes these as given to the
/// process. For a process started by one that is bound to a core. Call it before anything else here.
pub fn unbind() -> Result<()> {
    Mask::full()
        .and_then(|all| all.apply(0))
        .map_err(|e| Fault::because("CPU affinity", e, "check seccomp filters"))?;
    given().map(|_| ())
}

/// The cores of this process's cpuset, whatever mask it started with.
pub fn reachable() -> Result<CpuSet> {
    let of_thread = || Mask::full().and_then(|all| all.apply(0)).and_then(|()| mask::get(0));
    let found = std::thread::scope(|scope| scope.spawn(of_thread).join());
    let found = found.unwrap_or_else(|_| Err(std::io::Error::other("its thread ended")));
    found.map_err(|e| Fault::because("CPU affinity", e, "check seccomp filters of this container"))
}

/// The cores the calling thread may run on now.
pub fn current() -> Result<Vec<CoreId>> {
    own_cores().map(|cores| cores.iter().collect())
}

/// A guard that keeps the calling thread pinned; dropping it restores the thread's earlier mask.
#[derive(Debug)]
#[must_use = "the thread is pinned only while this lives"]
pub struct Pinned {
    core: CoreId,
    before: CpuSet,
    // Affinity belongs to a thread, so the guard must be dropped on its own thread.
    _thread: PhantomData<*const ()>,
}

impl Pinned {
    pub fn core(&self) -> CoreId {
        self.core
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // Fails only where the cpuset has changed; the kernel has then moved the thread already.
        let _ = mask::set(0, &self.before);
    }
}

/// A fault, naming the allowed cores, where `core` does not exist or was not given to this process.
pub fn check(core: CoreId) -> Result<()> {
    let cores = given()?;
    if cores.contains(core) {
        return Ok(());
    }
    let exists = Path::new(&format!("/sys/devices/system/cpu/cpu{}", core.0)).exists();
    let cause = if exists { "it is not given to this process" } else { "this machine has no such core" };
    Err(Fault::new(core.to_string(), cause, format!("choose one of {cores}")))
}

/// Pins the calling thread to `core`; faults as [`check`] does.
pub fn pin(core: CoreId) -> Result<Pinned> {
    check(core)?;
    let before = own_cores()?;
    mask::set(0, &[core].into_iter().collect())
        .map_err(|e| Fault::because(core.to_string(), e, "bring the core on line, or choose another"))?;
    Ok(Pinned { core, before, _thread: PhantomData })
}

/// Lets the calling thread run on `cores` only, from now on. For threads that make room for others; see [`pin`] for
/// those that need a core.
pub fn settle(cores: &[CoreId]) -> Result<()> {
    given()?;
    mask::set(0, &cores.iter().copied().collect())
        .map_err(|e| Fault::because("CPU affinity", e, "name cores that are on line"))
}

/// Makes a child start with the cores this process was given, even when the spawning thread is pinned by then.
pub fn inherit_allowed(command: &mut Command) -> Result<()> {
    start_at(command, given()?);
    Ok(())
}

/// Makes a child start on `cores` and nowhere else; faults as [`check`] does for each.
pub fn confine_child(command: &mut Command, cores: &[CoreId]) -> Result<()> {
    cores.iter().try_for_each(|core| check(*core))?;
    start_at(command, &cores.iter().copied().collect());
    Ok(())
}

fn start_at(command: &mut Command, cores: &CpuSet) {
    let mask = Mask::from(cores);
    // SAFETY: between fork and exec only sched_setaffinity is called, a plain system call without locks or allocation.
    unsafe { command.pre_exec(move || mask.apply(0)) };
}

/// Makes a child start on `core` and nowhere else; faults as [`check`] does.
pub fn pin_child(command: &mut Command, core: CoreId) -> Result<()> {
    confine_child(command, &[core])
}

/// The cores that a process (its first thread) may run on now.
pub fn of_process(process: u32) -> Result<CpuSet> {
    let gone = || Fault::new(format!("process {process}"), "it has ended", "start it again");
    // 0 would be the caller.
    let thread = i32::try_from(process).ok().filter(|thread| *thread > 0).ok_or_else(gone)?;
    mask::get(thread).map_err(|_| gone())
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
        assert_eq!(fault.next(), format!("choose one of {}", given().unwrap()));
    }

    #[test]
    fn a_child_of_a_pinned_thread_gets_all_allowed_cores() {
        let all = given().unwrap();
        let _pinned = pin(all.first().unwrap()).unwrap();
        let mut child = Command::new("cat");
        child.arg("/proc/self/status");
        inherit_allowed(&mut child).unwrap();
        let status = String::from_utf8(child.output().unwrap().stdout).unwrap();
        assert!(status.contains(&format!("Cpus_allowed_list:\t{all}\n")), "{status}");
    }
}
