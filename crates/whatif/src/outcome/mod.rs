//! Outcomes: how far answers are off, learned from programs that were recorded on one carrier and then on another.
//!
//! The error of an answer is unlike that of its costs: the recording is one run, the machine changes, and the model may be
//! wrong. So errors are taken from a [`bank`] of outcomes, by kind of lever, each divided by a [`Features::scale`] that is
//! known beforehand. The interval is the middle of the answer, times and over the exponential of the scale times a conformal
//! quantile ([`rounds::conformal`]).

pub mod bank;

use machine::costs::Interval;
use machine::{SiteKind, figure};
use profile::summary::Summary;
use rounds::statistics::median;

use crate::answer::{Answer, Program};
use crate::graph::{Graph, Reach};
use crate::lever::Lever;
use crate::path::Path;

/// Levers whose errors are alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// None: the same run again.
    Same,
    /// Another carrier within a host.
    Carrier,
    /// Another carrier between hosts.
    Network,
    /// Ranks on other hosts.
    Mapping,
}

impl Kind {
    pub const ALL: [Kind; 4] = [Kind::Same, Kind::Carrier, Kind::Network, Kind::Mapping];

    /// The kind of a lever; `None`: no outcome of such a lever was recorded.
    pub fn of(program: &Program, lever: &Lever) -> Option<Kind> {
        let Lever { ways, mapping, .. } = lever;
        let others = Lever { ways: None, mapping: None, ..lever.clone() } != Lever::default();
        let reach = farthest(program.graph);
        let on_core = |ways: &crate::model::Ways| ways.of(reach).placement == SiteKind::Core;
        if program.graph.scheduled || others || on_core(&program.ways) || ways.as_ref().is_some_and(on_core) {
            return None;
        }
        match (mapping, ways) {
            (Some(of), _) => {
                let moved = of.hosts != program.graph.hosts && of.capability.iter().all(|factor| *factor == 1.0);
                moved.then_some(Kind::Mapping)
            }
            (None, Some(_)) => Some(if reach == Reach::Host { Kind::Carrier } else { Kind::Network }),
            (None, None) => Some(Kind::Same),
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Kind::Same => "same",
            Kind::Carrier => "carrier",
            Kind::Network => "network",
            Kind::Mapping => "mapping",
        }
    }
}

fn farthest(graph: &Graph) -> Reach {
    graph.kinds.iter().map(|kind| kind.reach).max().unwrap_or(Reach::Host)
}

/// How well a recording tells of the program: what is the same for all answers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quality {
    /// Standard error of its time by the spread of its parts, relative; infinite of too few calls.
    pub noise: f64,
    /// Share of its time in which others had its cores.
    pub taken: f64,
    /// Its time.
    pub seconds: f64,
    /// Whether measured costs contradict it.
    pub contradicted: bool,
    /// How far the machine is now from where its costs were measured: the logarithm of the cores' latency over what it was
    /// then, 0 where it lies in the measured interval.
    pub moved: f64,
}

/// Parts of a recording that are compared.
const PARTS: usize = 8;

/// The standard deviation of a normal distribution over its median absolute deviation.
const NORMAL: f64 = 1.4826;

impl Quality {
    pub fn of(program: &Program, summary: Option<&Summary>) -> Quality {
        let ranks = summary.map(|summary| summary.ranks.as_slice()).unwrap_or_default();
        let all: f64 = ranks.iter().map(|rank| rank.thread_seconds).sum();
        let lost = ranks.iter().flat_map(|rank| [&rank.run_delay, &rank.stolen]).filter_map(|of| of.value());
        let taken = lost.sum::<f64>() / all.max(f64::MIN_POSITIVE);
        Quality {
            noise: noise(program.graph),
            taken: if ranks.is_empty() { 0.0 } else { taken.min(1.0) },
            seconds: seconds(program.graph),
            contradicted: program.contradicted,
            moved: 0.0,
        }
    }

    /// The quality for a run on the machine as it is now: [`Quality::moved`], and the share of time in which others would have the
    /// cores.
    #[must_use]
    pub fn now(self, moved: f64, taken: f64) -> Quality {
        Quality { moved, taken: self.taken.max(taken), ..self }
    }

    /// The features of an answer to a lever.
    pub fn features(&self, answer: &Answer) -> Features {
        Features::of(self, &answer.path, &answer.time)
    }
}

/// The longest lane of a recording.
fn seconds(graph: &Graph) -> f64 {
    let length = |call: u32| graph.calls.gap.get(call) + graph.calls.inside.get(call);
    let lane = |lane: &crate::graph::Lane| (lane.first..lane.end).map(length).sum::<i64>();
    graph.lanes.iter().map(lane).max().unwrap_or(0) as f64 / 1e9
}

/// The spread of the times of a recording's parts, each over what its calls take on average by their class.
fn noise(graph: &Graph) -> f64 {
    let length = |call: u32| (graph.calls.gap.get(call) + graph.calls.inside.get(call)) as f64;
    let mut classes = vec![(0.0, 0.0); graph.classes.len()];
    for call in 0..graph.len() as u32 {
        let of: &mut (f64, f64) = &mut classes[graph.calls.class[call as usize] as usize];
        *of = (of.0 + length(call), of.1 + 1.0);
    }
    let mut parts = [(0.0, 0.0); PARTS];
    for lane in &graph.lanes {
        let calls = (lane.end - lane.first) as usize;
        if calls < PARTS {
            return f64::INFINITY;
        }
        for call in lane.first..lane.end {
            let (sum, count) = classes[graph.calls.class[call as usize] as usize];
            let of = &mut parts[(call - lane.first) as usize * PARTS / calls];
            *of = (of.0 + length(call), of.1 + sum / count);
        }
    }
    let over = parts.map(|(took, expected)| f64::ln((took / f64::max(expected, 1.0)).max(f64::MIN_POSITIVE)));
    let middle = median(&over).unwrap_or(0.0);
    let spread = median(&over.map(|of| (of - middle).abs())).unwrap_or(0.0);
    NORMAL * spread / (PARTS as f64).sqrt()
}

/// The figures on which the error of an answer depends, known before its outcome.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Features {
    /// Half the width of the interval over all draws, in logarithms.
    pub draws: f64,
    /// The predicted change, in logarithms; not negative.
    pub change: f64,
    /// [`Quality::noise`]
    pub noise: f64,
    /// [`Quality::taken`]
    pub taken: f64,
    /// Share of the critical path without a model.
    pub unexplained: f64,
    /// Trips on the critical path.
    pub trips: f64,
    /// [`Quality::seconds`]
    pub seconds: f64,
    /// [`Quality::contradicted`]
    pub contradicted: bool,
    /// [`Quality::moved`], times the share of messages in the critical path.
    pub moved: f64,
}

/// A cause that makes an interval wide.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Widening {
    pub cause: Cause,
    /// The width of the interval over that without the cause.
    pub factor: f64,
    /// The feature's value.
    pub value: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Costs are known to a factor.
    Costs,
    /// Much changes.
    Change,
    /// Parts of the recording differ.
    Noise,
    /// Others had its cores.
    Taken,
    /// Much of the path is not modelled.
    Unexplained,
    /// The cores' latency is another than when costs were measured.
    Moved,
}

/// The scale of an exact answer about a steady recording: by about this two runs of a program differ.
const FLOOR: f64 = 0.02;

/// The share of a recording's time in which others had its cores from which on it is one of a loaded machine.
const LOADED: f64 = 0.1;

/// Widenings by at least this factor are named.
const NAMED: f64 = 1.2;

impl Features {
    /// The features of an answer with this critical path after the change.
    pub fn of(quality: &Quality, path: &Path, drawn: &Interval) -> Features {
        let trips: u64 = path.counts.iter().map(|counts| counts.trips).sum();
        Features {
            draws: (drawn.high / drawn.low).ln() / 2.0,
            change: drawn.middle.ln().abs(),
            noise: quality.noise,
            taken: quality.taken,
            unexplained: path.parts.unknown_share(),
            trips: trips as f64,
            seconds: quality.seconds,
            contradicted: quality.contradicted,
            moved: quality.moved * (path.parts.messages + path.parts.work) as f64 / path.parts.total().max(1) as f64,
        }
    }

    /// By cause, the part that it has in the scale. Weights are fixed beforehand; quantiles of the bank correct their sum.
    fn parts(&self) -> [(Cause, f64, f64); 6] {
        [
            (Cause::Costs, self.draws, self.draws),
            (Cause::Change, self.change, 0.25 * self.change),
            (Cause::Noise, self.noise, self.noise),
            (Cause::Taken, self.taken, 0.1 * self.taken),
            (Cause::Unexplained, self.unexplained, 0.5 * self.unexplained * self.change),
            (Cause::Moved, self.moved, self.moved),
        ]
    }

    /// Whether others had its cores for much of the time.
    pub fn is_loaded(&self) -> bool {
        self.taken > LOADED
    }

    /// The expected size of the error, in logarithms.
    pub fn scale(&self) -> f64 {
        self.parts().iter().fold(FLOOR * FLOOR, |sum, (.., part)| sum + part * part).sqrt()
    }

    /// Causes that make the interval clearly wider, the greatest first.
    pub fn widenings(&self) -> Vec<Widening> {
        let scale = self.scale();
        let widening = |(cause, value, part): (Cause, f64, f64)| {
            let without = (scale * scale - part * part).max(FLOOR * FLOOR).sqrt();
            Widening { cause, factor: scale / without, value }
        };
        let mut all: Vec<Widening> = self.parts().into_iter().map(widening).filter(|of| of.factor > NAMED).collect();
        all.sort_by(|one, other| other.factor.total_cmp(&one.factor));
        all
    }
}

impl Cause {
    /// The cause in words, with its feature's value.
    pub fn words(self, value: f64) -> String {
        let percent = |share: f64| format!("{} %", figure::significant(100.0 * share, 2));
        match self {
            Cause::Costs => format!("costs leave {}", percent(value.exp_m1())),
            Cause::Change => format!("a change by {}", percent(value.exp_m1())),
            Cause::Noise => format!("parts of the recording differ by {}", percent(value * (PARTS as f64).sqrt())),
            Cause::Taken => format!("others had its cores for {} of the time", percent(value)),
            Cause::Unexplained => format!("{} of the path unexplained", percent(value)),
            Cause::Moved => format!("messages by {} off, as the cores' latency", percent(value.abs().exp_m1())),
        }
    }
}

/// An expected outcome.
#[derive(Debug, Clone, PartialEq)]
pub enum Forecast {
    /// The lever has no effect at all. `again`: another run of the program, where outcomes say how runs differ.
    Unchanged {
        again: Option<Interval>,
    },
    /// Calibrated: [`bank::LEVEL`] of outcomes lie in `time`.
    Within {
        time: Interval,
        widened: Vec<Widening>,
    },
    /// The interval over all draws: no outcome of such a lever says how far it is off.
    Uncalibrated(Interval),
    CannotTell {
        reason: String,
        next: String,
    },
}

impl Forecast {
    /// The effect: the time over today's; `None`: cannot tell.
    pub fn effect(&self) -> Option<Interval> {
        match self {
            Forecast::Unchanged { .. } => Some(Interval::exactly(1.0)),
            Forecast::Within { time, .. } | Forecast::Uncalibrated(time) => Some(*time),
            Forecast::CannotTell { .. } => None,
        }
    }

    /// The time of a run with the lever over that of one without; `None`: cannot tell.
    pub fn run(&self) -> Option<Interval> {
        match self {
            Forecast::Unchanged { again } => again.or_else(|| self.effect()),
            _ => self.effect(),
        }
    }

    /// The share of outcomes that lie in the interval; `None`: not known.
    pub fn level(&self) -> Option<f64> {
        matches!(self, Forecast::Within { .. } | Forecast::Unchanged { again: Some(_) }).then_some(bank::LEVEL)
    }
}

#[cfg(test)]
mod tests;
