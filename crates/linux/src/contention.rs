//! Competition for a core: threads pinned to it and it alone.

use std::fs;
use std::marker::PhantomData;

use machine::topology::Topology;
use machine::{CoreId, CpuSet, Fault, Result};

use crate::mask;

/// A thread of another process that may run on one core only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occupant {
    pub process: u32,
    pub name: String,
}

/// Processes, other than this one, with a thread pinned to `core` alone. Kernel threads do not count: every core has
/// some. Processes that end meanwhile, or that this user may not look at, are skipped.
pub fn pinned_to(core: CoreId) -> Result<Vec<Occupant>> {
    let only = core.0.to_string();
    let own = std::process::id();
    let processes = fs::read_dir("/proc").map_err(|e| Fault::because("/proc", e, "mount procfs"))?;
    let mut occupants = Vec::new();
    for entry in processes.flatten() {
        let Some(process) = entry.file_name().to_str().and_then(|name| name.parse().ok()).filter(|&p| p != own) else {
            continue;
        };
        let Ok(tasks) = fs::read_dir(entry.path().join("task")) else { continue };
        let pinned = tasks.flatten().any(|task| {
            fs::read_to_string(task.path().join("status")).is_ok_and(|status| is_user_thread_pinned(&status, &only))
        });
        if pinned {
            let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default().trim().to_string();
            occupants.push(Occupant { process, name });
        }
    }
    Ok(occupants)
}

/// Whether `status` is of a thread with user memory (not a kernel thread) whose mask is `only`.
fn is_user_thread_pinned(status: &str, only: &str) -> bool {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    field("VmSize:").is_some() && field("Cpus_allowed_list:") == Some(only)
}

/// A guard that keeps the calling thread off a core. Several may be dropped in any order.
#[derive(Debug)]
pub struct Excluded {
    taken: CpuSet,
    _thread: PhantomData<*const ()>,
}

/// Removes `core` from the calling thread's mask, and its sibling threads where that leaves any core. A fault where it
/// is the only core in the mask.
pub fn exclude(core: CoreId) -> Result<Excluded> {
    let fault = |e| Fault::because(format!("keeping this thread off {core}"), e, "check seccomp filters");
    let before = mask::get(0).map_err(fault)?;
    let threads = Topology::live()?.cpu(core).map(|cpu| cpu.threads.clone()).unwrap_or_default();
    let (apart, beside) = (before.difference(&threads), before.iter().filter(|other| *other != core).collect());
    let left = if apart.is_empty() { beside } else { apart };
    mask::set(0, &left).map_err(fault)?;
    Ok(Excluded { taken: before.difference(&left), _thread: PhantomData })
}

impl Drop for Excluded {
    fn drop(&mut self) {
        // A core that has gone offline since then leaves nothing to restore.
        let Ok(left) = mask::get(0) else { return };
        let _ = mask::set(0, &left.iter().chain(self.taken.iter()).collect());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_gets_its_cores_back_whichever_guard_goes_first() {
        let before = mask::get(0).unwrap();
        if before.len() < 2 {
            return skip::test("it needs two cores");
        }
        let core = before.iter().next_back().unwrap();
        let (older, newer) = (exclude(core).unwrap(), exclude(core).unwrap());
        assert!(!mask::get(0).unwrap().contains(core));
        drop(older);
        drop(newer);
        assert_eq!(mask::get(0).unwrap(), before);
    }

    #[test]
    fn tells_pinned_user_threads_from_others() {
        let user = "Name:\tx\nVmSize:\t  12 kB\nCpus_allowed:\t2\nCpus_allowed_list:\t1\n";
        assert!(is_user_thread_pinned(user, "1"));
        assert!(!is_user_thread_pinned(user, "0"));
        assert!(!is_user_thread_pinned("Name:\tkworker/1\nCpus_allowed_list:\t1\n", "1"));
        assert!(!is_user_thread_pinned("VmSize:\t1 kB\nCpus_allowed_list:\t0-1\n", "1"));
    }
}
