//! Patterns of the ranks' messages, and their measured values.

use std::fmt;

use machine::{Bytes, BytesPerSecond, figure};
use rounds::point::Receiver;
use serde::{Deserialize, Serialize};

use super::result::Figures;

/// Messages of a window: OSU's number.
pub const WINDOW: u64 = 64;

machine::named! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Pattern ("pattern") {
        /// One message to and fro; half a round trip, ns.
        Latency = "latency",
        /// Windows of messages one way; bytes per second.
        Bandwidth = "bandwidth",
        /// The same through 64 MiB at either end, which no core's own cache holds.
        ColdBandwidth = "cold-bandwidth",
        /// Windows of messages one way; messages per second.
        Rate = "rate",
        /// The same by two threads of each rank, both counted.
        RateOfThreads = "rate-of-threads",
        /// Computing while a border is exchanged; ns per step.
        Exchange = "exchange",
        /// Transfers both ways while rank 0 computes for as long and rank 1 waits; the share that computing hides.
        Overlap = "overlap",
        /// Each rank passes a message on to the next; ns per step.
        Ring = "ring",
        /// All ranks wait for each other; ns.
        Barrier = "barrier",
        /// Each rank sends a message of the size to each other; ns.
        AllToAll = "alltoall",
        /// The largest of each number over all ranks; ns.
        AllReduce = "allreduce",
    }
}

/// Messages per second, for readers.
pub fn rate(a_second: f64) -> String {
    figure::scaled(a_second, &[(1.0, "/s"), (1e3, "k/s"), (1e6, "M/s")])
}

impl Pattern {
    pub fn more_is_better(self) -> bool {
        matches!(
            self,
            Pattern::Bandwidth | Pattern::ColdBandwidth | Pattern::Rate | Pattern::RateOfThreads | Pattern::Overlap
        )
    }

    /// Whether all ranks take part, however many; other patterns are of two.
    pub fn is_of_all(self) -> bool {
        matches!(self, Pattern::Ring | Pattern::Barrier | Pattern::AllToAll | Pattern::AllReduce)
    }

    /// Whether its MPI calls can be timed: those of two threads overlap.
    pub fn is_divisible(self) -> bool {
        self != Pattern::RateOfThreads
    }

    /// Messages of one round, in both directions; of more than two ranks those of one rank.
    pub fn messages(self) -> u64 {
        match self {
            Pattern::Bandwidth | Pattern::ColdBandwidth | Pattern::Rate => WINDOW,
            Pattern::RateOfThreads => 2 * WINDOW,
            _ => 2,
        }
    }

    /// The value by rank 0's figures.
    pub fn value(self, size: Bytes, figures: &Figures) -> f64 {
        let (rounds, elapsed) = (figures.rounds as f64, figures.elapsed.max(1) as f64);
        match self {
            Pattern::Latency => elapsed / rounds.max(1.0) / 2.0,
            Pattern::Overlap => {
                let (transfer, computing) = (figures.transfer as f64, figures.computing as f64);
                ((transfer + computing - elapsed / rounds.max(1.0)) / transfer.max(1.0)).clamp(0.001, 1.0)
            }
            Pattern::Rate | Pattern::RateOfThreads => rounds * self.messages() as f64 / elapsed * 1e9,
            Pattern::Bandwidth | Pattern::ColdBandwidth => rounds * WINDOW as f64 * size.0 as f64 / elapsed * 1e9,
            _ => elapsed / rounds.max(1.0),
        }
    }

    /// A value for readers.
    pub fn quantity(self, value: f64) -> String {
        match self {
            Pattern::Overlap => format!("{:.0} %", value * 100.0),
            Pattern::Bandwidth | Pattern::ColdBandwidth => BytesPerSecond(value).to_string(),
            Pattern::Rate | Pattern::RateOfThreads => rate(value),
            _ => figure::nanoseconds(value),
        }
    }

    /// Sizes that say most about the pattern.
    pub fn usual_sizes(self) -> &'static [u64] {
        match self {
            Pattern::Latency => &[8, 4096],
            Pattern::Bandwidth | Pattern::ColdBandwidth => &[1 << 20],
            Pattern::Rate | Pattern::RateOfThreads => &[8],
            Pattern::Exchange => &[8192],
            Pattern::Overlap => &[64 << 10, 1 << 20],
            Pattern::Ring => &[1024],
            Pattern::Barrier => &[0],
            Pattern::AllToAll | Pattern::AllReduce => &[8],
        }
    }
}

/// A pattern at a size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Task {
    pub pattern: Pattern,
    pub size: Bytes,
    pub receiver: Receiver,
}

impl Task {
    /// The argument of the ranks' program.
    pub(crate) fn argument(&self) -> String {
        let receiver = if self.receiver == Receiver::Works { "works" } else { "reads" };
        format!("{}:{}:{receiver}", self.pattern, self.size.0)
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.pattern == Pattern::Barrier {
            return f.pad("barrier");
        }
        let works = if self.receiver == Receiver::Works { ", the receiver works" } else { "" };
        if self.pattern == Pattern::RateOfThreads {
            return f.pad(&format!("{} rate of two threads", self.size));
        }
        f.pad(&format!("{} {}{works}", self.size, self.pattern))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_their_units() {
        let figures = |rounds, elapsed| Figures { rounds, elapsed, ..Figures::default() };
        assert_eq!(Pattern::Latency.value(Bytes(8), &figures(1000, 300_000)), 150.0);
        assert_eq!(Pattern::Rate.value(Bytes(8), &figures(1000, 1_000_000_000)), 64_000.0);
        assert_eq!(Pattern::RateOfThreads.value(Bytes(8), &figures(1000, 1_000_000_000)), 128_000.0);
        assert_eq!(Pattern::Bandwidth.value(Bytes(1 << 20), &figures(1, 1_000_000_000)), 64.0 * 1048576.0);
        assert_eq!(Pattern::Exchange.quantity(Pattern::Exchange.value(Bytes(8), &figures(10, 50_000))), "5 us");
        let beside = Figures { transfer: 100, computing: 100, ..figures(10, 1250) };
        assert_eq!([1.5e6, 2_300.0, 0.25].map(rate), ["1.5 M/s", "2.3 k/s", "0.25 /s"]);
        assert_eq!(Pattern::Overlap.quantity(Pattern::Overlap.value(Bytes(8), &beside)), "75 %");
    }

    #[test]
    fn names_read_back() {
        for pattern in Pattern::ALL {
            assert_eq!(pattern.name().parse::<Pattern>().unwrap(), pattern);
        }
        assert!("stream".parse::<Pattern>().unwrap_err().to_string().contains("choose latency"));
    }
}
