//! The findings of a study: filled by the statistics and read by every rendering (HTML, terminal, JSON).

use std::fmt;

use machine::{Bytes, CoreId, Nanoseconds, Reading};
use rounds::estimate::Estimate;
use serde::{Deserialize, Serialize};

use rounds::comparison::Standing;
use rounds::point::{Contender, Path, Pattern, PointKey, PointSpec, Receiver, Stack};
use rounds::sample::Sample;

machine::named! {
    /// What a comparison answers. Stacks that are no alternatives for one another never meet in one comparison.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Question {
        /// Both ends on this host: the engine over shared memory, TCP over loopback, Open MPI as a reference.
        SameHost = "same-host",
        /// The ends on two hosts (lab or remote; loopback stands in where there is no lab): the engine over UDP, AF_XDP or the driver's hook, TCP.
        BetweenHosts = "between-hosts",
        /// Which core the process should have while the kernel's receive processing is pinned to one (paper 002 §5.1).
        ProtocolCore = "protocol-core",
    }
}

impl Question {
    /// The question as a heading.
    pub fn title(self) -> &'static str {
        match self {
            Question::SameHost => "Within this host",
            Question::BetweenHosts => "Between hosts",
            Question::ProtocolCore => "Which core, when one does the protocol's work",
        }
    }

    /// Whether `spec` takes part, in a study whose network path is `network`.
    pub fn asks(self, spec: &PointSpec, network: &Path) -> bool {
        let steered = spec.protocol_core.is_some();
        match self {
            Question::SameHost => {
                !steered
                    && spec.path == Path::Loopback
                    && matches!(spec.stack, Stack::EngineShm | Stack::Tcp | Stack::OpenMpi)
            }
            Question::BetweenHosts => {
                !steered
                    && spec.path == *network
                    && (spec.stack.network().is_some() || matches!(spec.stack, Stack::Tcp | Stack::Udp))
            }
            Question::ProtocolCore => steered,
        }
    }
}

/// One point with all its measurements.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PointFindings {
    pub key: PointKey,
    pub spec: PointSpec,
    /// The point's questions; TCP over loopback may serve two.
    pub questions: Vec<Question>,
    /// Whether a verdict may choose the point; otherwise it is a reference.
    pub candidate: bool,
    /// The value, in the unit of the pattern's metric.
    pub value: Estimate,
    /// CPU time per message, all participating threads and network softirqs of both ends.
    pub cpu_per_message: Reading<Estimate>,
    pub samples: Vec<Sample>,
}

/// The choice for a range of sizes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Choice {
    Place(Contender),
    /// They perform the same within 2 %, and none costs clearly less CPU.
    Either(Vec<Contender>),
    /// They perform the same within this small share; no smaller difference can be resolved.
    Alike {
        between: Vec<Contender>,
        within: f64,
    },
    /// The intervals overlap, or the machine was too noisy.
    CannotTell {
        between: Vec<Contender>,
        why: String,
    },
}

impl Choice {
    /// The chosen place, or the places between which the choice is open.
    pub fn contenders(&self) -> &[Contender] {
        match self {
            Choice::Place(contender) => std::slice::from_ref(contender),
            Choice::Either(between) | Choice::Alike { between, .. } | Choice::CannotTell { between, .. } => between,
        }
    }

    /// Whether it answers the question: a place, or a tie.
    pub fn is_told(&self) -> bool {
        !matches!(self, Choice::CannotTell { .. })
    }
}

/// Why a contender was not taken for a range.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rejected {
    pub contender: Contender,
    pub why: String,
}

/// A point measured beside the candidates: an outside stack, or a stack that loses messages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reference {
    pub contender: Contender,
    /// The choice over the reference, paired by round: above 1 where the choice is better; absent where there is no
    /// choice.
    pub gain: Option<Estimate>,
    pub why: String,
}

/// One row of the verdict: adjacent sizes with the same choice.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SizeRange {
    pub question: Question,
    pub path: Path,
    pub pattern: Pattern,
    pub from: Bytes,
    pub to: Bytes,
    pub choice: Choice,
    /// Candidates not shown to be worse than the chosen place; none where CPU time decided.
    pub ties: Vec<Contender>,
    /// Choice over the best other contender: a ratio above 1 in the choice's favour; paired by round.
    pub gain: Option<Estimate>,
    /// CPU time of the next best over the choice's, where that decided because they perform alike.
    pub saving: Option<Estimate>,
    /// CPU nanoseconds per message of the choice.
    pub cpu_per_message: Reading<Estimate>,
    pub rejected: Vec<Rejected>,
    pub references: Vec<Reference>,
    pub evidence: Vec<PointKey>,
}

/// One row of paper 002's sweep: the receiving process on one core, receive processing pinned to another or the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SweepRow {
    pub pattern: Pattern,
    pub size: Bytes,
    pub receiver: Receiver,
    /// Core of the receiving process.
    pub core: CoreId,
    pub protocol_core: CoreId,
    /// The value, in the unit of the pattern's metric.
    pub value: Estimate,
    /// Over the row of the same receiver on the protocol core itself, paired by round; above 1 where this core is
    /// better; absent on that row.
    pub gain: Option<Estimate>,
    /// The decision by that gain.
    pub standing: Option<Standing>,
    /// NET_RX softirqs of all cores for one message (paper 002 Fig. 4a, counted by softirq).
    pub softirqs_per_message: Reading<f64>,
    /// Share of network softirq time on each core, 0 to 1.
    pub softirq_share: Vec<(CoreId, f64)>,
    pub evidence: PointKey,
}

/// How near the two application cores were while a study ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Nearness {
    /// One-way latency between the cores, in nanoseconds.
    pub one_way_ns: Estimate,
    /// Share of blocks in which the cores were near, 0 to 1: where they moved, in the nearest of their places. `None` where
    /// they did not, and the machine does not show what they share.
    pub near_share: Option<f64>,
    /// "near throughout", "far throughout", "one distance throughout", "flipped between near and far".
    pub note: String,
}

/// An answer in at most a dozen words: `Same host, any size` and `shm, 4.1x faster`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    pub asked: String,
    pub answer: String,
    /// Whether it answers the question.
    pub told: bool,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.asked, self.answer)
    }
}

/// Loss of a contender at one size of one pattern against the best there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Loss {
    pub contender: Contender,
    pub pattern: Pattern,
    pub size: Bytes,
    /// The best contender there.
    pub best: Contender,
    /// The best over the contender: a ratio from 1 on.
    pub loss: Estimate,
}

/// One choice for all cases of a question: the contender with the smallest largest loss, or, of several that cannot be
/// distinguished by it, the one that asks least of the machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    pub question: Question,
    pub path: Path,
    pub choice: Contender,
    /// Others whose largest loss cannot be distinguished from that of the choice.
    pub open: Vec<Contender>,
    /// Whether neither the choice nor any of these is behind the best anywhere.
    pub tie: bool,
    /// The most that the choice loses anywhere: the best over it, 1 where it is nowhere behind.
    pub loses: Estimate,
    /// Pattern and size of the largest loss.
    pub at: (Pattern, Bytes),
    /// How many times as fast as the kernel's TCP short messages are, where they are faster.
    pub gain: Option<Estimate>,
    /// Losses of the contenders, by pattern and size.
    pub losses: Vec<Loss>,
}

/// The decision, in words and rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The first answer: one choice for each question.
    pub decisions: Vec<Decision>,
    /// What to do, a line for each answer.
    pub lines: Vec<Line>,
    /// Questions that were asked: same host or between hosts, pattern by pattern, and the receiver's core.
    pub asked: usize,
    /// Number of those that are answered at every size.
    pub answered: usize,
    pub ranges: Vec<SizeRange>,
    /// Empty where receive processing could not be steered.
    pub sweep: Vec<SweepRow>,
    pub nearness: Option<Nearness>,
    pub warnings: Vec<String>,
}

/// One labelled line about the machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fact {
    pub name: String,
    pub value: String,
}

/// Everything a report shows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Findings {
    pub title: String,
    /// The path that stands for the network in this study.
    pub path: Path,
    /// When it started, since the Unix epoch.
    pub started: Nanoseconds,
    pub took: Nanoseconds,
    pub machine: Vec<Fact>,
    pub verdict: Verdict,
    pub points: Vec<PointFindings>,
    /// Omitted points with the reason, and deviations from the request.
    pub notes: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use rounds::blocks::difference;

    #[test]
    fn ends_that_say_nothing_are_cut_short() {
        let of = |low, high, samples| Estimate { middle: 1.02, low, high, samples };
        assert_eq!(of(0.98, 1.07, 7).ratio(2, "x"), "1.02x (0.98 .. 1.07)");
        assert_eq!(of(1e-40, 1e40, 6).ratio(2, ""), "1.02 (<0.01 .. >100)");
        assert_eq!(Estimate { middle: 50.0, ..of(40.0, 480.0, 7) }.ends(1), "40.0 .. 480.0");
        assert_eq!(of(1.02, 1.02, 7).ratio(3, ""), "1.020 (all digits hold)");
    }

    #[test]
    fn too_few_rounds_have_no_interval() {
        // Of two rounds, Student's t has one degree of freedom.
        let two = difference(&[0.9, 0.1]).unwrap();
        let two = Estimate { middle: two.middle.exp(), low: two.low.exp(), high: two.high.exp(), samples: 2 };
        assert_eq!(two.ends(2), "cannot tell: 2 of 6 rounds");
        assert_eq!(Estimate { samples: 1, ..two }.range(|end| end.to_string()), "cannot tell: 1 of 6 rounds");
    }
}
