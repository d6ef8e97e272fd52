//! Causal experiments: a program is delayed by known amounts, and what it loses bounds what it could gain (Curtsinger and
//! Berger, SOSP 2015, with progress points as there).
//!
//! Where a run's structure stays, its time is convex in every cost and never falls as one grows: it is a maximum of sums. So
//! the slope at today's costs bounds from above what a lower cost gives back, and from below what a higher one takes.
//! Delays are switched in blocks of one run, by the program's own repetition ([`period`], [`within`]). Where it has none, whole
//! runs are the blocks of a round: a round gives one slope, by least squares on the delays as they were recorded, and the
//! rounds' slopes give the interval ([`rounds::contrast`]).

mod design;
mod page;
pub mod period;
mod predict;
mod shares;
mod target;
pub mod within;

use machine::{Bytes, Fault, Result};
use profile::injection::Injection;
use profile::profile::Profile;
use profile::summary::Totals;
use record::functions::{Class, counted, function};
use record::layout::perturbed;
use record::scale::size_floor;
use rounds::blocks::{Series, Taken, difference};
use rounds::clocks::at_one_clock;
use rounds::estimate::Estimate;
use rounds::nearness::at_one_place;
use rounds::statistics::median;
use serde::Serialize;

pub use design::{ALL_DOSES, Arm, BLOCK_DOSE, Design, InBlocks, LEAST_OF_BLOCK};
pub use page::render as page;
pub use predict::{Expected, expect};
pub use shares::{Share, Work};
pub use target::{Factor, Place, Target};
pub(crate) use within::inverse;

use period::Period;
use within::Rounds;

/// The figures of one run. Times in nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Shown {
    /// The time of the longest rank between MPI_Init's return and MPI_Finalize's call, with delays.
    pub elapsed: f64,
    /// By kind of delay: number in all ranks, and total time.
    pub given: [(u64, f64); 3],
    pub ranks: Vec<Amounts>,
    /// Messages of all ranks, and their bytes.
    pub messages: u64,
    pub bytes: u64,
    /// Messages by size class: the mean size and the number.
    pub sizes: Vec<(Bytes, u64)>,
    /// The marks of [`perturbed`].
    pub marks: u32,
}

/// What there is to delay in a rank.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Amounts {
    /// By kind: number of delays.
    pub delays: [u64; 3],
    /// Bytes of the messages that it sends.
    pub bytes: u64,
    /// Time between calls of its main thread, ns.
    pub computing: f64,
}

impl Shown {
    /// # Errors
    /// The profile is incomplete: what it lacks cannot be told from the effect of a delay.
    pub fn of(profile: &Profile) -> Result<Shown> {
        profile.whole()?;
        let totals = Totals::of(profile);
        let injection = Injection::of(profile);
        let marks = injection.as_ref().map_or(0, |injection| injection.marks);
        if marks & (perturbed::UNREAD | perturbed::MISPLACED) != 0 {
            let shortfalls = injection.map(|injection| injection.shortfalls().join("; ")).unwrap_or_default();
            return Err(Fault::new("a run", shortfalls, "run the command under plimsoll profile, and see its report"));
        }
        let mut given = [(0, 0.0); 3];
        for rank in injection.iter().flat_map(|injection| &injection.ranks) {
            for (kind, (count, seconds)) in rank.delays.into_iter().enumerate() {
                given[kind].0 += count;
                given[kind].1 += seconds * 1e9;
            }
        }
        let computing = |rank: &profile::tables::Tables| {
            let (from, to) = rank.run();
            let main = rank.threads.first().map(|(thread, _)| *thread);
            // MPI_Init and MPI_Finalize lie outside of the run.
            let calls = rank.calls.iter().filter(|calls| Some(calls.thread) == main && counted(calls.function));
            let inside = calls.map(|calls| calls.cell.ticks).fold(0, u64::saturating_add);
            rank.seconds((to - from).saturating_sub(inside)) * 1e9
        };
        let amounts = |(place, rank): (usize, &profile::tables::Tables)| Amounts {
            delays: injection.as_ref().map_or([0; 3], |all| all.ranks[place].delays.map(|(count, _)| count)),
            bytes: rank.threads.iter().map(|(_, thread)| thread.bytes).sum(),
            computing: computing(rank),
        };
        Ok(Shown {
            elapsed: totals.seconds * 1e9,
            given,
            ranks: profile.ranks.iter().enumerate().map(amounts).collect(),
            messages: totals.messages,
            bytes: totals.bytes,
            sizes: sizes(profile),
            marks,
        })
    }
}

impl Shown {
    /// The sum of an amount over the ranks of a target.
    fn amount(&self, target: Target, of: impl Fn(&Amounts) -> f64) -> f64 {
        self.of_target(target).map(of).sum()
    }

    fn of_target(&self, target: Target) -> impl Iterator<Item = &Amounts> {
        self.ranks.iter().enumerate().filter(move |(rank, _)| target.is_in(*rank)).map(|(_, of)| of)
    }
}

/// Messages by size class, of functions that begin one each.
fn sizes(profile: &Profile) -> Vec<(Bytes, u64)> {
    let mut classes = std::collections::BTreeMap::<usize, (u64, u64)>::new();
    for calls in profile.ranks.iter().flat_map(|rank| &rank.calls) {
        let sends = function(calls.function).is_some_and(|of| {
            of.argument("dest").is_some() && matches!(of.class, Class::Send | Class::Exchange | Class::Post)
        });
        if sends {
            let (count, bytes) = classes.entry(calls.size_class).or_default();
            (*count, *bytes) = (*count + calls.cell.calls, *bytes + calls.cell.bytes);
        }
    }
    let mean = |class, count: u64, bytes: u64| Bytes((bytes / count.max(1)).max(size_floor(class)));
    classes.into_iter().map(|(class, (count, bytes))| (mean(class, count, bytes), count)).collect()
}

/// The part of injected time by which a run gets longer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Slope {
    #[serde(flatten)]
    pub target: Target,
    /// Increase of the run's time over the time injected into all ranks together: 1 where each delay is on the critical
    /// path; 1 over the number of ranks where all are delayed alike and none waits. `None` for fewer than two rounds.
    pub interval: Option<Estimate>,
    /// The number of a run's delays in all ranks: messages, or gaps between calls.
    pub count: f64,
    /// Bytes of a run, for [`Factor::Byte`].
    pub bytes: f64,
    /// The doses: time injected into all ranks over the time of a run, or of the blocks with delays.
    pub doses: Vec<f64>,
    /// The time of the blocks, ns, from which on half the interval's width was at most 20 % of the slope, or 0.05; within a run.
    pub near_after: Option<f64>,
    /// `None` where the cost is not known.
    pub share: Option<Share>,
}

impl Slope {
    /// The interval cut to what is possible: a delay lengthens a run by no more than itself, and shortens none.
    pub fn possible(&self) -> Option<Estimate> {
        let within = |value: f64| value.clamp(0.0, 1.0);
        let possible =
            |of: Estimate| Estimate { middle: within(of.middle), low: within(of.low), high: within(of.high), ..of };
        self.interval.map(possible)
    }

    /// The most nanoseconds that a run gains where each message (or byte) costs `nanoseconds` less; `None` where the slope
    /// is not known.
    pub fn bound(&self, nanoseconds: f64) -> Option<f64> {
        let times = if self.target.factor == Factor::Byte { self.bytes } else { self.count };
        Some(self.possible()?.high * times * nanoseconds)
    }

    /// Rounds needed, by the noise so far, until the slope is known to [`TOLD`]; `None`: it is, or there are fewer than two
    /// rounds.
    pub fn rounds_needed(&self) -> Option<usize> {
        Some((self.interval?.samples as f64 * self.times_needed()?).ceil() as usize)
    }

    /// The same as a multiple of what was measured.
    pub fn times_needed(&self) -> Option<f64> {
        let of = self.interval?;
        let times = ((of.high - of.low) / 2.0 / TOLD).powi(2);
        (times > 1.0).then_some(times)
    }

    /// Whether the slope is known well enough.
    fn is_enough(&self) -> bool {
        self.interval.is_some_and(|of| is_within(&of, NEAR_ENOUGH))
    }
}

/// Whether half the interval's width is at most so large a share of the slope, or small in itself.
fn is_within(of: &Estimate, share: f64) -> bool {
    (of.high - of.low) / 2.0 <= (share * of.middle.abs()).max(SMALL)
}

/// The precision, as a part of the injected time, to which a slope must be known: 0, a half and all are then apart.
pub const TOLD: f64 = 0.25;

/// Half the width of a slope's interval that is enough, as a share of the slope,
const NEAR_ENOUGH: f64 = 0.15;
/// the share whose time is told,
const NEAR: f64 = 0.2;
/// and as an absolute value.
const SMALL: f64 = 0.05;

/// How much longer blocks may take than in the first run, delays included.
const SLOWER: f64 = 1.5;

/// The least part of a delay that counts as acting on the next block.
const LATER: f64 = 0.1;

/// The greatest share by which messages of two arms may differ in number: beyond it, the delayed program does other work.
const SAME_WORK: f64 = 0.01;

/// How runs were cut into blocks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Within {
    pub period: Period,
    pub runs: usize,
    pub blocks: usize,
    pub rounds: usize,
    /// Mean time of a block, ns, without what is not measured after each switch.
    pub block: f64,
}

/// The results of an experiment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Findings {
    /// Time of a run without delays, in nanoseconds.
    pub elapsed: f64,
    /// Time of a run with delays of no length over that of one without delays; must be near 1.
    pub null: Option<Estimate>,
    pub slopes: Vec<Slope>,
    /// `None`: by whole runs.
    pub within: Option<Within>,
    /// Messages by size class in the first run.
    pub sizes: Vec<(Bytes, u64)>,
    /// Reasons for doubt.
    pub notes: Vec<String>,
}

/// The indices of the first two arms.
const NONE: usize = 0;
const ZERO: usize = 1;

impl Findings {
    /// The findings from the arms' measurements, in the order of the design's arms.
    pub fn of(design: &Design, first: &Shown, arms: &[Series<Shown>]) -> Findings {
        let elapsed = |arm: usize| median(&arms[arm].values(|run| Some(run.elapsed)));
        let slopes = design.slopes(arms);
        let null = arms[ZERO].over(&arms[NONE], |run| Some(run.elapsed)).interval();
        let mut notes = design.left_out.clone();
        if null.is_none() {
            notes.push(
                "delays of no length were not held against none: too few rounds, of which those do not count in which the cores \
                 moved between near and far"
                    .to_owned(),
            );
        }
        if let Some(of) = null.filter(|of| of.low > 1.0 || of.high < 1.0) {
            notes.push(format!(
                "delays of no length alone make a run {:.3} .. {:.3} times as long: slopes are of a run that is so much longer, and \
                 bound the gain of one that is not",
                of.low, of.high
            ));
        }
        let runs = || arms.iter().flat_map(|arm| &arm.blocks).map(|taken| &taken.block);
        let other = runs()
            .filter(|run| (run.messages as f64 - first.messages as f64).abs() > SAME_WORK * first.messages as f64);
        if other.count() > 0 {
            notes.push("the program sends other messages when it is delayed: nothing is bounded by that".to_owned());
        }
        if runs().any(|run| run.marks & (perturbed::STOPPED | perturbed::CUT) != 0) {
            notes.push("some delays were left out at their limit; slopes are by those that were given".to_owned());
        }
        let failures = arms.iter().flat_map(|arm| &arm.failures);
        notes.extend(failures.map(|why| format!("a run failed: {why}")));
        let elapsed = elapsed(NONE).or_else(|| elapsed(ZERO)).unwrap_or(first.elapsed);
        Findings { elapsed, null, slopes, within: None, sizes: first.sizes.clone(), notes }
    }

    /// The findings from the blocks of `runs`, of which `marks` are the marks of [`perturbed`].
    pub fn within(design: &InBlocks, first: &Shown, rounds: &Rounds, runs: usize, marks: u32) -> Findings {
        let columns = rounds.columns();
        let mut notes = design.left_out.clone();
        let null = rounds.null(InBlocks::NULL);
        if let Some(of) = null.filter(|of| of.low > 1.0 || of.high < 1.0) {
            let [low, high] = [of.low, of.high].map(|ratio| 100.0 * (ratio - 1.0));
            notes.push(format!(
                "delays of no length read {low:+.2} .. {high:+.2} % of a block: intervals are narrower than the noise, or one of \
                 twenty such intervals is beside the truth. Next: measure again with another --seed"
            ));
        }
        let longer = rounds.block() / design.block();
        if longer > SLOWER {
            notes.push(format!(
                "blocks took {longer:.1} times as long as in the first run: where other work takes the cores, a delay lengthens a run \
                 by more than itself. Next: keep other work off the machine"
            ));
        }
        let slopes = design.targets.iter().zip(&columns[InBlocks::NULL + 1..]);
        let slopes: Vec<Slope> = slopes
            .map(|(target, column)| {
                let slope = Slope {
                    target: *target,
                    interval: column.slope,
                    count: first.amount(*target, |rank| rank.delays[target.factor.kind()] as f64),
                    bytes: first.amount(*target, |rank| rank.bytes as f64),
                    doses: vec![column.dose],
                    near_after: column.near_after.map(|blocks| blocks as f64 * design.whole_block()),
                    share: None,
                };
                let acts_later = |of: &Estimate| (of.low > 0.0 || of.high < 0.0) && of.middle.abs() > LATER;
                if let Some(of) = column.later.filter(acts_later) {
                    notes.push(format!(
                        "delays of {target} change the next block too, by {:.0} % of their time ({:.0} .. {:.0} %): its slope is of \
                         delays that come and go. Next: compare it with --whole",
                        100.0 * of.middle,
                        100.0 * of.low,
                        100.0 * of.high
                    ));
                }
                if column.messages.abs() > SAME_WORK {
                    notes.push(format!("the program sends other messages while {target} is delayed: nothing is bounded by that"));
                }
                slope
            })
            .collect();
        if marks & (perturbed::STOPPED | perturbed::CUT) != 0 {
            notes.push("some delays were left out at their limit; slopes are by those that were given".to_owned());
        }
        if marks & perturbed::FULL != 0 {
            notes.push("a run had more blocks than are noted; its end is left out".to_owned());
        }
        let (blocks, count, block) = (rounds.blocks(), rounds.count(), rounds.block());
        let within = Some(Within { period: design.period.clone(), runs, blocks, rounds: count, block });
        Findings { elapsed: first.elapsed, null, slopes, within, sizes: first.sizes.clone(), notes }
    }

    /// Whether further runs may tell something new.
    pub fn is_open(&self) -> bool {
        self.slopes.iter().any(|slope| !slope.is_enough())
    }

    /// Whether delays of no length make no visible difference.
    pub fn is_null(&self) -> bool {
        self.null.is_some_and(|of| of.low <= 1.0 && of.high >= 1.0)
    }
}

/// The slope of each round in which all three arms ran on equally near cores at one clock, by least squares within the round.
fn slopes_of_rounds(kind: usize, arms: [&Series<Shown>; 3]) -> Vec<f64> {
    let beside = |arm: usize, round: u32| arms[arm].blocks.iter().find(move |taken| taken.round == round);
    let of = |zero: &Taken<Shown>| {
        let runs = [zero, beside(1, zero.round)?, beside(2, zero.round)?];
        if !at_one_place(runs.iter().flat_map(|run| run.probes).flatten())
            || !at_one_clock(runs.iter().flat_map(|run| &run.clocks))
        {
            return None;
        }
        let points = runs.map(|run| (run.block.given[kind].1, run.block.elapsed));
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / points.len() as f64;
        let (x, y) = (mean(|point| point.0), mean(|point| point.1));
        let spread: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
        (spread > 0.0).then(|| points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum::<f64>() / spread)
    };
    arms[0].blocks.iter().filter_map(of).collect()
}

impl Design {
    /// The slopes so far.
    fn slopes(&self, arms: &[Series<Shown>]) -> Vec<Slope> {
        let mean = |arm: &Series<Shown>, of: &dyn Fn(&Shown) -> f64| {
            let values = arm.values(|run| Some(of(run)));
            values.iter().sum::<f64>() / values.len().max(1) as f64
        };
        self.targets()
            .map(|(target, [one, two])| {
                let (kind, arms) = (target.factor.kind(), [&arms[ZERO], &arms[one], &arms[two]]);
                let dose = |run: &Shown| run.given[kind].1 / run.elapsed;
                Slope {
                    target,
                    interval: difference(&slopes_of_rounds(kind, arms)),
                    count: mean(arms[1], &|run| run.given[kind].0 as f64),
                    bytes: mean(arms[1], &|run| run.bytes as f64),
                    doses: vec![mean(arms[1], &dose), mean(arms[2], &dose)],
                    near_after: None,
                    share: None,
                }
            })
            .collect()
    }

    /// Whether further rounds may tell something new.
    pub fn is_open(&self, arms: &[Series<Shown>]) -> bool {
        self.slopes(arms).iter().any(|slope| !slope.is_enough())
    }
}

#[cfg(test)]
mod tests;
