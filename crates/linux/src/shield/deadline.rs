//! Deadline scheduling: the thread gets its share of every period before other threads on the core.

use std::io;

use machine::{CoreId, CpuSet, Nanoseconds, Result};

use super::{Means, not_possible};
use crate::mask::{self, Mask};
use crate::scheduling::{Attributes, get, set};

/// Nine tenths of a period: the kernel grants 95 % of a core, of which its server for ordinary threads has 5 %.
const RUNTIME: Nanoseconds = Nanoseconds(900_000);
const PERIOD: Nanoseconds = Nanoseconds(1_000_000);

/// Attempts to return to the core when the kernel moved the thread off it.
const TRIES: u32 = 16;

/// From `linux/sched.h`.
const SCHED_DEADLINE: u32 = 6;
/// Children become ordinary threads; without this flag a deadline thread may have none.
const RESET_ON_FORK: u64 = 1;

/// Deadline scheduling of the calling thread, until this is dropped.
pub(super) struct Deadline {
    policy: Attributes,
    mask: CpuSet,
    cores: Vec<CoreId>,
}

impl Deadline {
    pub fn enter(core: CoreId) -> Result<Deadline> {
        let failed = |doing: &str, e: io::Error| not_possible(core, format!("{doing}: {e}"), "use a cpuset");
        let mask = mask::get(0).map_err(|e| failed("reading this thread's cores", e))?;
        let policy = get().map_err(|e| failed("reading this thread's scheduling", e))?;
        let only = Mask::from(&[core].into_iter().collect::<CpuSet>());
        only.apply(0).map_err(|e| failed("going to the core", e))?;
        // Made here, so that every return restores.
        let mut deadline = Deadline { policy, mask, cores: vec![core] };
        let wanted = Attributes {
            policy: SCHED_DEADLINE,
            flags: RESET_ON_FORK,
            runtime: RUNTIME.0,
            deadline: PERIOD.0,
            period: PERIOD.0,
            ..Attributes::default()
        };
        // The kernel demands a mask of all cores of the thread's root domain, which is this core alone where a cpuset
        // or `isolcpus` made it so.
        if set(&wanted).is_err() {
            let all = Mask::full().map_err(|e| failed("reading this thread's cores", e))?;
            // Between the two calls the kernel may move the thread to a core with less work.
            for left in (0..TRIES).rev() {
                all.apply(0).map_err(|e| failed("widening this thread's cores", e))?;
                set(&wanted).map_err(|e| refusal(core, &e))?;
                if left == 0 || rustix::thread::sched_getcpu() == core.0 as usize {
                    break;
                }
                set(&deadline.policy).map_err(|e| failed("restoring this thread's scheduling", e))?;
                only.apply(0).map_err(|e| failed("going to the core", e))?;
            }
            let now = mask::get(0).map_err(|e| failed("reading this thread's cores", e))?;
            deadline.cores = now.iter().collect();
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
        // The mask of a deadline thread cannot be narrowed, so the policy is restored first.
        let _ = set(&self.policy);
        let _ = mask::set(0, &self.mask);
    }
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
