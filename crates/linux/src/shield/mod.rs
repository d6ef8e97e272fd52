//! Shields: means that keep other work off a core that one of our threads is to have alone.
//!
//! - [`Means::Cpuset`]: the rest of our control group is moved to other cores by the kernel's cpusets
//!   (`Documentation/admin-guide/cgroup-v1/cpusets.rst`, `cgroup-v2.rst`), and off the core's sibling threads
//!   if there are more cores. Only kernel threads bound to the core remain.
//! - [`Means::Deadline`]: other threads may run in the tenth of the time that deadline scheduling leaves them
//!   (`Documentation/scheduler/sched-deadline.rst`). Beside a busy thread, pauses of up to 1 ms were measured.
//! - [`Means::Pinned`]: nothing, with the reasons. The thread is pinned and shares its core.
//!
//! Everything is restored when the shield is dropped, and by a keeper process when the owner is killed. If the keeper
//! is killed too, the remains are found by name and removed by the next shield, or by [`remove_remains`].

mod cpuset;
mod deadline;
mod group;
mod keeper;

#[cfg(test)]
mod tests;

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use machine::lock::Lock;
use machine::{CoreId, Fault, Nanoseconds, Result};

use crate::affinity::{self, Pinned};
use crate::ownership;
use cpuset::Partition;
use deadline::Deadline;
pub use group::{cores_of, remove_remains};

/// A child of this process holds its locks too, until its exec.
const TIMEOUT: Duration = Duration::from_millis(200);

machine::named! {
    /// The means to protect a core with.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Wanted ("means") {
        /// The best means that this machine and user have: a cpuset, else deadline scheduling, else nothing.
        Best = "best",
        Cpuset = "cpuset",
        Deadline = "deadline",
        /// The thread is only pinned; others may be pinned to the same core.
        Nothing = "nothing",
    }
}

/// The means that protects the core.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Means {
    Cpuset {
        /// Number of threads that were moved off the core.
        moved: usize,
        /// Number of kernel threads bound to their core.
        bound: usize,
        /// The control group outside of which nothing was moved; `None`: the whole machine.
        only_within: Option<String>,
    },
    Deadline {
        runtime: Nanoseconds,
        period: Nanoseconds,
        /// The cores of the thread's root domain; the kernel moves a deadline thread only if another wants its core.
        cores: Vec<CoreId>,
    },
    Pinned {
        /// Why it is no better: one sentence for each means tried. Empty where none was wanted.
        because: Vec<String>,
    },
}

impl fmt::Display for Means {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Means::Cpuset { moved, bound, only_within } => {
                write!(f, "cpuset: {moved} threads moved off, {bound} kernel threads are bound to their cores")?;
                only_within.as_ref().map_or(Ok(()), |group| write!(f, "; what is outside {group} was left alone"))
            }
            Means::Deadline { runtime, period, cores } => {
                write!(f, "deadline scheduling: {runtime} of every {period}")?;
                if cores.len() > 1 { write!(f, "; the kernel may move it among {} cores", cores.len()) } else { Ok(()) }
            }
            Means::Pinned { because } if because.is_empty() => f.write_str("nothing: pinned, as was asked"),
            Means::Pinned { because } => write!(f, "nothing: pinned; {}", because.join("; ")),
        }
    }
}

enum Holding {
    // Each undoes its work when dropped.
    Cpuset { _partition: Partition },
    Deadline { _deadline: Deadline },
    Pinned { _pinned: Pinned },
}

/// Protection of the core that the calling thread runs on, while this lives. To be dropped by the same thread.
pub struct Shield {
    core: CoreId,
    means: Means,
    // Dropped first: the thread leaves the core before another may own it.
    _holding: Holding,
    _ownership: Option<Lock>,
    _thread: PhantomData<*const ()>,
}

impl Shield {
    /// Moves the calling thread to `core` and protects it there.
    ///
    /// A fault where the core does not exist, another shield of this user has it, or a means asked for by name is not available.
    pub fn raise(core: CoreId, wanted: Wanted) -> Result<Shield> {
        affinity::check(core)?;
        let own = || {
            let next = "choose another core, or wait until it ends";
            ownership::take(&format!("core-{}", core.0), &subject(core), TIMEOUT, next)
        };
        let ownership = (wanted != Wanted::Nothing).then(own).transpose()?;
        let mut because = Vec::new();
        let mut attempt = |tried: Result<(Holding, Means)>, by_name: bool| match tried {
            Err(fault) if by_name => Err(fault),
            Err(fault) => {
                because.push(fault.to_string());
                Ok(None)
            }
            Ok(held) => Ok(Some(held)),
        };
        let mut held = None;
        if matches!(wanted, Wanted::Best | Wanted::Cpuset) {
            held = attempt(cpuset(core), wanted == Wanted::Cpuset)?;
        }
        if held.is_none() && matches!(wanted, Wanted::Best | Wanted::Deadline) {
            held = attempt(deadline(core), wanted == Wanted::Deadline)?;
        }
        let (holding, means) = match held {
            Some(held) => held,
            None => (Holding::Pinned { _pinned: affinity::pin(core)? }, Means::Pinned { because }),
        };
        Ok(Shield { core, means, _holding: holding, _ownership: ownership, _thread: PhantomData })
    }

    pub fn core(&self) -> CoreId {
        self.core
    }

    /// The means that protects the core; printed in results.
    pub fn by(&self) -> &Means {
        &self.means
    }
}

/// Whether this process may make cpusets that keep other threads off a core. Changes nothing.
///
/// # Errors
/// There are no usable cpusets, or this user may not change them.
pub fn cpusets_usable() -> Result<()> {
    let own = group::own()?;
    own.check_changeable()?;
    own.without_cpusets().map(drop).map_err(|e| {
        let next = "use deadline scheduling, or have whoever made this container delegate the cpuset controller to it";
        Fault::because(format!("cpusets: {}", own.path.display()), e, next)
    })
}

fn cpuset(core: CoreId) -> Result<(Holding, Means)> {
    let partition = Partition::make(core)?;
    let means = partition.means();
    Ok((Holding::Cpuset { _partition: partition }, means))
}

fn deadline(core: CoreId) -> Result<(Holding, Means)> {
    let deadline = Deadline::enter(core)?;
    let means = deadline.means();
    Ok((Holding::Deadline { _deadline: deadline }, means))
}

fn subject(core: CoreId) -> String {
    format!("shield of {core}")
}

fn not_possible(core: CoreId, cause: impl Into<String>, next: impl Into<String>) -> Fault {
    Fault::new(subject(core), cause, next)
}
