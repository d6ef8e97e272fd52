//! Deadline scheduling: the thread gets its share of every period before anyone else on the core runs.

use std::io;

use machine::{CoreId, Nanoseconds, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::{Means, not_possible};
use crate::scheduling::{Attributes, get, set};

/// Nine tenths: the kernel grants 95 % of a core in all, of which its server for ordinary threads has 5 %.
const RUNTIME: Nanoseconds = Nanoseconds(900_000);
const PERIOD: Nanoseconds = Nanoseconds(1_000_000);

/// From `linux/sched.h`.
const SCHED_DEADLINE: u32 = 6;
/// Children are ordinary threads; without it the kernel lets a deadline thread have none.
const RESET_ON_FORK: u64 = 1;

/// The calling thread is one, until this is dropped.
pub(super) struct Deadline {
    policy: Attributes,
    mask: CpuSet,
    cores: Vec<CoreId>,
}

impl Deadline {
    pub fn enter(core: CoreId) -> Result<Deadline> {
        let failed = |doing: &str, e: io::Error| not_possible(core, format!("{doing}: {e}"), "use a cpuset");
        let mask = sched_getaffinity(None).map_err(|e| failed("reading this thread's cores", e.into()))?;
        let policy = get().map_err(|e| failed("reading this thread's scheduling", e))?;
        let mut only = CpuSet::new();
        only.set(core.0 as usize);
        sched_setaffinity(None, &only).map_err(|e| failed("going to the core", e.into()))?;
        // Made now, so that every way out restores.
        let mut deadline = Deadline { policy, mask, cores: vec![core] };
        let wanted = Attributes {
            policy: SCHED_DEADLINE,
            flags: RESET_ON_FORK,
            runtime: RUNTIME.0,
            deadline: PERIOD.0,
            period: PERIOD.0,
            ..Attributes::default()
        };
        // The kernel takes a thread only with a mask of all cores that it schedules deadlines over together, which is
        // this core alone where a cpuset or `isolcpus` made it so.
        if set(&wanted).is_err() {
            let all = every_core();
            sched_setaffinity(None, &all).map_err(|e| failed("widening this thread's cores", e.into()))?;
            set(&wanted).map_err(|e| refusal(core, &e))?;
            let now = sched_getaffinity(None).map_err(|e| failed("reading this thread's cores", e.into()))?;
            deadline.cores = (0..CpuSet::MAX_CPU).filter(|&c| now.is_set(c)).map(|c| CoreId(c as u32)).collect();
        }
        let now = get().map_err(|e| failed("reading this thread's scheduling", e))?;
        if (now.policy, now.runtime, now.period) != (SCHED_DEADLINE, RUNTIME.0, PERIOD.0) {
            let cause = "the kernel took deadline scheduling and did not keep it";
            return Err(not_possible(core, cause, "use a cpuset"));
        }
        let at = rustix::thread::sched_getcpu();
        if at != core.0 as usize {
            let cause = format!("the kernel moved the thread to core {at}");
            return Err(not_possible(core, cause, "use a cpuset, or end the other deadline thread of this core"));
        }
        Ok(deadline)
    }

    pub fn means(&self) -> Means {
        Means::Deadline { runtime: RUNTIME, period: PERIOD, cores: self.cores.clone() }
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        // A deadline thread's mask cannot be narrowed: first the policy.
        let _ = set(&self.policy);
        let _ = sched_setaffinity(None, &self.mask);
    }
}

/// The kernel takes those out that are not there.
fn every_core() -> CpuSet {
    let mut all = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|core| all.set(core));
    all
}

fn refusal(core: CoreId, error: &io::Error) -> machine::Fault {
    match error.raw_os_error() {
        Some(libc::EBUSY) => not_possible(
            core,
            "deadline scheduling: other deadline threads have the time that this would need",
            "end them, or use a cpuset",
        ),
        Some(libc::EPERM) => not_possible(
            core,
            "deadline scheduling: not permitted, or this process does not have all cores that are scheduled together",
            "run as root (CAP_SYS_NICE) and outside a cpuset, or use a cpuset of one core",
        ),
        _ => not_possible(core, format!("deadline scheduling: {error}"), "use a cpuset"),
    }
}
