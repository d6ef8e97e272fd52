//! Keeping a thread on the core that its point names.

use machine::{CoreId, Fault, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Pins the calling thread.
pub fn pin(core: CoreId) -> Result<()> {
    let failed =
        |e: rustix::io::Errno| Fault::because(core.to_string(), std::io::Error::from(e), "choose another core");
    let allowed = sched_getaffinity(None).map_err(failed)?;
    let mut wanted = CpuSet::new();
    if core.0 as usize >= CpuSet::MAX_CPU {
        return Err(Fault::new(core.to_string(), "no kernel numbers a core so high", "choose another core"));
    }
    wanted.set(core.0 as usize);
    sched_setaffinity(None, &wanted).map_err(|_| {
        let cores: Vec<_> = (0..CpuSet::MAX_CPU).filter(|c| allowed.is_set(*c)).map(|c| c.to_string()).collect();
        Fault::new(
            core.to_string(),
            format!("this process may run on cores {} only", cores.join(", ")),
            format!("choose one of cores {}", cores.join(", ")),
        )
    })
}
