//! Samples of a host: its cores and their ranks, moment by moment on one clock.
//!
//! ```text
//! MAGIC  VERSION (u32)  frame*         frame: length, kind, contents, seal (u32) of kind and contents
//! ```
//! Numbers are little-endian base-128 (LEB128) but for the version and seals. Running totals are kept of each subject
//! (a core, a thread of a rank, a rank, a zone of energy), so that a missing moment only costs resolution. The frame of
//! a moment has what changed since the last: most totals grow by little, and an idle core takes no byte. A file that
//! was cut off is read up to its last whole frame, a damaged one up to the damage.
//!
//! Work is sampled often; load, which the kernel counts in steps of some ms or is slow to return, less often.

mod frame;
mod power;
mod reader;
mod series;
mod tail;
#[cfg(test)]
mod tests;
mod writer;

use machine::Reading;

pub use power::PowerSamples;
pub use reader::{CoreSamples, MISSED, RankSamples, Samples, ThreadSamples};
pub use series::{Series, Totals};
pub use tail::Tail;
pub use writer::Writer;

pub const MAGIC: [u8; 8] = *b"PLIMSAMP";
/// Raised when the format changes.
pub const VERSION: u32 = 2;

/// The subject of the samples. Times are of CLOCK_MONOTONIC of the host, ns, unless stated otherwise.
#[derive(Debug, Clone, PartialEq)]
pub struct Head {
    pub host: String,
    /// Identifier of the host's present boot, as the kernel gives it; the ranks that are sampled here have the same.
    pub boot: String,
    /// Process number of the sampler.
    pub pid: u32,
    /// One moment on two clocks: CLOCK_MONOTONIC, and CLOCK_REALTIME in ns since 1970.
    pub monotonic: u64,
    pub realtime: u64,
    /// Time from one sample to the next at the start, ns; later intervals are in [`SamplerCost`].
    pub interval: u64,
    /// Number of cores that the host's ranks may use, threads of one core counted once; `None`: not known, as in heads
    /// of version 1.
    pub for_ranks: Option<u32>,
    /// Cores that are online, each with its package.
    pub cores: Vec<(u32, u32)>,
    pub origins: Origins,
}

/// The source of each kind of value, in words, or why it is missing.
#[derive(Debug, Clone, PartialEq)]
pub struct Origins {
    /// Source of [`CoreWork::net_rx`] and [`CoreWork::net_tx`].
    pub softirq_counts: Reading<String>,
    /// Source of [`CoreWork::net_rx_time`] and [`CoreWork::net_tx_time`].
    pub softirq_times: Reading<String>,
    /// Source of [`CoreWork::softirq_time`]; modelled where the kernel estimates it by its ticks.
    pub softirq_all: Reading<String>,
    pub interrupts: Reading<String>,
    /// Source of [`CoreLoad`].
    pub load: Reading<String>,
    pub energy: Reading<String>,
    /// Source of [`ThreadWork`], [`ThreadLoad`], [`ThreadStop`], [`ThreadBlocked`], [`ThreadRan`] and [`ThreadDelay`].
    pub ranks: Reading<String>,
}

impl Origins {
    /// All sources, where everything is measured in this way.
    pub fn measured(how: &str) -> Origins {
        let how = || Reading::Measured(how.to_owned());
        Origins {
            softirq_counts: how(),
            softirq_times: how(),
            softirq_all: how(),
            interrupts: how(),
            load: how(),
            energy: how(),
            ranks: how(),
        }
    }
}

/// Properties of the kernel's accounting that decide how ranks' time is separated from other work. Files of earlier
/// versions lack them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Accounting {
    /// Whether a thread's time includes the softirqs that interrupted it; `None`: not known.
    pub softirqs_charged: Option<bool>,
    /// Whether a thread's time includes time that a hypervisor stole.
    pub stolen_charged: Option<bool>,
    /// Logical CPUs of cores with several, each with the first of its core.
    pub threads: Vec<(u32, u32)>,
}

series::totals! {
    /// Network work and interrupts of a core, counted from some moment before the first sample.
    CoreWork: 1 {
        /// Receive softirqs, and their time, ns.
        net_rx,
        net_rx_time,
        /// Send softirqs, which finish transmission, and their time, ns.
        net_tx,
        net_tx_time,
        /// Time in softirqs of all kinds, the network's among them, ns.
        softirq_time,
        /// Interrupts from devices and other cores, without its own timer.
        interrupts,
    }

    /// The core's time by use, to 10 ms.
    CoreLoad: 2 {
        /// Idle time, ns.
        idle,
        /// Time that a hypervisor gave to others, ns.
        stolen,
    }

    /// A thread of a rank that calls MPI, according to the rank's tables.
    ThreadWork: 3 {
        /// The core that it ran on last, plus 1; 0: not known.
        core: absolute,
        /// The function that it is in, plus 1; 0: in none.
        inside: absolute,
        /// Ticks (of the rank's tables) when it entered that function.
        since: absolute,
        calls,
        messages,
        bytes,
        /// Ticks in completed calls, by class of function.
        ticks: [12],
    }

    /// Context switches of a thread of a rank.
    ThreadLoad: 4 {
        /// Times that it waited.
        voluntary,
        /// Times that another thread took its core.
        involuntary,
    }

    /// The processor time that a rank used, with all of its threads.
    RankLoad: 5 {
        /// Processor time, ns.
        cpu,
    }

    Energy: 6 {
        microjoules,
    }

    /// The cost of sampling itself.
    SamplerCost: 7 {
        /// Processor time, ns.
        cpu,
        looks,
        /// The core that it ran on last, plus 1.
        core: absolute,
        /// Present interval between looks, ns.
        interval: absolute,
    }

    /// Time for which a thread of a rank was stopped, as far as looks found. Missing where its state cannot be read.
    ThreadStop: 8 {
        /// Stopped by a signal or a debugger, ns.
        stopped,
    }

    /// Time of the kernel's softirq thread (ksoftirqd) on a core. Files of earlier versions lack it.
    CoreDeferred: 10 {
        /// Processor time, ns.
        cpu,
    }

    /// The clock of a core. Missing where the kernel does not give it.
    CoreClock: 11 {
        hertz: absolute,
    }

    /// Time for which a thread of a rank ran on a core. Files of earlier versions lack it.
    ThreadRan: 12 {
        /// Running time, ns.
        ran,
    }

    /// Time for which a thread of a rank was blocked (neither running nor runnable nor stopped), as far as looks found.
    /// Files of earlier versions lack it.
    ThreadBlocked: 13 {
        /// Blocked outside of MPI, ns.
        outside,
        /// Blocked inside MPI, ns.
        inside,
        /// Part of `outside`: waits for a timer.
        sleep,
        /// Part of `outside`: waits for a lock.
        lock,
        /// Part of `outside`: waits for a disk, a file system or a page.
        storage,
    }

    /// Time for which a thread of a rank was runnable while others had its core. Missing where the kernel does not count it.
    ThreadDelay: 9 {
        /// Time runnable, ns.
        delayed,
    }
}

impl ThreadWork {
    /// The core that it ran on last.
    pub fn on(&self) -> Option<u32> {
        self.core.checked_sub(1).map(|core| core as u32)
    }
}
