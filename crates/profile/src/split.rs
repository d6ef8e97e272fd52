//! Transfer and wait: the parts of a call's time that its own work takes and that it waits for others.
//!
//! # The model
//! Tables hold durations and not moments, and do not show which rank was late. But calls of one function with sizes of one
//! class in groups of one size do the same work, over all ranks and the whole run. The calls that waited for nobody
//! are the shortest; the time beyond theirs is wait: for a peer that is late, or for a core or network that is busy
//! with others.
//!
//! *Which are the shortest?* Of `G` ranks in a collective call one is the last to arrive, and waits for nobody. So at
//! least one call in `G` is unhindered, also where the same rank is always late; the median of these calls is the
//! quantile `1/2G` of all. A higher quantile would count waits as work where ranks are imbalanced (at 5 % with more than
//! 20 ranks); the minimum would be the one call that noise made shortest. Messages between two ranks have no group;
//! there, `G` is the number of ranks of the world, since in an imbalanced program others wait for at least one rank.
//!
//! *How long do they take?* Sizes of a class differ by up to 2x, and so do durations of equal calls (caches, roles in a
//! tree). So all calls up to twice that quantile are unhindered: all of their time is transfer. Of a longer call the mean
//! of the unhindered calls is transfer, and the rest is wait.
//!
//! *When is the time not divided?* The quantile must not rest on chance: at least [`FEWEST`] calls lie below it, which is
//! the case from 8 calls a rank on. With fewer calls the time stays undivided.
//!
//! Some calls need no model: calls that only begin an operation (`MPI_Isend`, `MPI_Ireduce`, `MPI_Put`) are
//! all transfer, since they return when their own work is done; probes, and tests in which nothing completed, are all
//! wait; collectives of one rank wait for nobody.
//!
//! A large send may wait for its receiver every time, so that its shortest calls are waits as well. A message takes both
//! ends about the same time: where the shortest sends of a size take several times as long as the shortest receives of that
//! size take, the receives' time stands for both.
//!
//! # What it gets wrong
//! - Where every call of a kind waits, as in a program whose only two ranks always wait for a third party (a disk), the
//!   shortest waits pass for work.
//! - Where peers differ in distance, on the host and beyond it, the near ones set the measure and the slower wire to the far
//!   ones counts as wait. The same holds for roles: the root of a broadcast returns before its leaves.
//! - Copying and protocol inside `MPI_Wait` count as wait where most messages are complete when it is called.
//! - A call in which the calling thread lost its core is long, and that time counts as wait, or as transfer where the calls only
//!   begin something. Where the host was sampled that time is subtracted again, by class of function, and named `off_core`.
//!
//! A timeline has the moments and needs no model; its figures are `measured`.

use std::collections::HashMap;

use machine::Reading;
use record::functions::{Class, Function, FunctionId, function};
use record::layout::Cell;
use record::scale::{TIME_CLASSES, size_floor, time_floor};

use crate::summary::Split;
use crate::tables::{Calls, Tables};

/// Least number of calls below the quantile.
pub const FEWEST: f64 = 4.0;

/// Bytes from which a send may wait for its receiver, even every time: carriers send smaller messages at once.
pub const RENDEZVOUS: u64 = 4 << 10;

/// Sends that take this many times as long as receives of their size have waited.
const FAR_LONGER: f64 = 3.0;

/// Calls of one kind: function, group, class of size.
pub type Kind = (FunctionId, u32, usize);

/// Time of a call of one kind when nobody is late, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Unhindered {
    /// Calls up to this duration are unhindered.
    pub bound: f64,
    pub mean: f64,
}

/// The division of the time of calls of one kind.
#[derive(Debug, Clone, PartialEq)]
pub enum Rule {
    AllTransfer,
    AllWait,
    Beyond(Unhindered),
    CannotTell(String),
}

/// The parts of calls' time, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Parts {
    pub transfer: f64,
    pub wait: f64,
    pub undivided: f64,
}

impl Parts {
    pub fn sum(&self) -> f64 {
        self.transfer + self.wait + self.undivided
    }

    pub fn add(&mut self, other: Parts) {
        self.transfer += other.transfer;
        self.wait += other.wait;
        self.undivided += other.undivided;
    }

    pub fn times(self, factor: f64) -> Parts {
        Parts { transfer: self.transfer * factor, wait: self.wait * factor, undivided: self.undivided * factor }
    }

    /// The parts as readings: absent where all of the time is undivided.
    pub fn split(&self) -> Split {
        let off_core = Reading::absent("durations do not tell it, and nothing was sampled that does");
        if self.undivided > 0.0 && self.transfer + self.wait == 0.0 {
            let absent = || Reading::absent("cannot tell: too few calls to know what they take when nobody is late");
            return Split { transfer: absent(), wait: absent(), off_core, undivided: self.undivided };
        }
        let (transfer, wait) = (Reading::Modelled(self.transfer), Reading::Modelled(self.wait));
        Split { transfer, wait, off_core, undivided: self.undivided }
    }
}

impl Split {
    /// The split with `off_core` seconds moved out of the parts in which the model counts them.
    pub fn apart(self, off_core: f64) -> Split {
        let mut left = off_core;
        let mut rest = |part: f64| {
            let taken = part.min(left);
            left -= taken;
            part - taken
        };
        let wait = self.wait.map(&mut rest);
        let undivided = rest(self.undivided);
        let transfer = self.transfer.map(&mut rest);
        Split { transfer, wait, off_core: Reading::Modelled(off_core - left), undivided }
    }

    pub fn sum<'a>(all: impl Iterator<Item = &'a Split> + Clone) -> Split {
        let mut parts = Parts::default();
        for split in all.clone() {
            // Time of an unknown part is in the undivided part.
            parts.transfer += split.transfer.value().unwrap_or(&0.0);
            parts.wait += split.wait.value().unwrap_or(&0.0);
            parts.undivided += split.undivided;
        }
        let sum = parts.split();
        let unknown = all.clone().find(|split| split.off_core.value().is_none());
        let off_core = match unknown {
            Some(split) => split.off_core.clone(),
            None => Reading::Modelled(all.clone().filter_map(|split| split.off_core.value()).sum()),
        };
        let mut all = all.peekable();
        if all.peek().is_some() && all.all(|split| matches!(split.wait, Reading::Measured(_))) {
            let (transfer, wait) = (Reading::Measured(parts.transfer), Reading::Measured(parts.wait));
            return Split { transfer, wait, off_core, ..sum };
        }
        Split { off_core, ..sum }
    }
}

/// The rules of all kinds of calls of a job.
#[derive(Debug, Default)]
pub struct Model {
    rules: HashMap<Kind, Rule>,
}

impl Model {
    pub fn of(ranks: &[Tables]) -> Model {
        Model::of_calls(ranks.iter().map(|rank| (rank.header.size, rank.tick, &*rank.calls)))
    }

    /// `ranks`: for each rank the size of its world, the length of its ticks in seconds, and its calls.
    pub fn of_calls<'a>(ranks: impl Iterator<Item = (u32, f64, &'a [Calls])>) -> Model {
        let mut merged: HashMap<Kind, Merged> = HashMap::new();
        for (size, tick, all) in ranks {
            for calls in all {
                let merged = merged.entry(kind(calls)).or_default();
                merged.world = merged.world.max(size);
                merged.add(tick, &calls.cell);
            }
        }
        let mut model = Model { rules: merged.into_iter().map(|(kind, calls)| (kind, rule(kind, &calls))).collect() };
        model.end_sends_with_receives();
        model
    }

    /// Sends that wait for their receivers every time get the unhindered time of the receives.
    fn end_sends_with_receives(&mut self) {
        let of_class = |kind: &Kind, class| function(kind.0).is_some_and(|function| function.class == class);
        let mut received: HashMap<usize, Unhindered> = HashMap::new();
        for (kind, rule) in self.rules.iter().filter(|(kind, _)| of_class(kind, Class::Receive)) {
            let Rule::Beyond(unhindered) = rule else { continue };
            let least = received.entry(kind.2).or_insert(*unhindered);
            *least = if unhindered.mean < least.mean { *unhindered } else { *least };
        }
        for (kind, rule) in &mut self.rules {
            let receives = received.get(&kind.2).filter(|_| size_floor(kind.2) >= RENDEZVOUS);
            let (Rule::Beyond(sends), Some(receives)) = (&mut *rule, receives) else { continue };
            if of_class(kind, Class::Send) && sends.mean > FAR_LONGER * receives.mean {
                *sends = *receives;
            }
        }
    }

    pub fn rule(&self, kind: Kind) -> Option<&Rule> {
        self.rules.get(&kind)
    }

    /// The parts add up to the calls' time.
    pub fn divide(&self, tick: f64, calls: &Calls) -> Parts {
        let seconds = calls.cell.ticks as f64 * tick;
        match self.rules.get(&kind(calls)) {
            Some(Rule::AllTransfer) => Parts { transfer: seconds, ..Parts::default() },
            Some(Rule::AllWait) => Parts { wait: seconds, ..Parts::default() },
            Some(Rule::Beyond(unhindered)) => beyond(unhindered, tick, &calls.cell),
            Some(Rule::CannotTell(_)) | None => Parts { undivided: seconds, ..Parts::default() },
        }
    }
}

pub fn kind(calls: &Calls) -> Kind {
    (calls.function, calls.group, calls.size_class)
}

fn beyond(unhindered: &Unhindered, tick: f64, cell: &Cell) -> Parts {
    let seconds = cell.ticks as f64 * tick;
    let (mut short, mut long) = (0.0, 0.0);
    for (class, calls) in cell.histogram.iter().enumerate().filter(|(_, calls)| **calls > 0) {
        let calls = *calls as f64;
        match middle(class) * tick {
            duration if duration <= unhindered.bound => short += calls * duration,
            _ => long += calls,
        }
    }
    if long == 0.0 {
        return Parts { transfer: seconds, ..Parts::default() };
    }
    let transfer = (short + long * unhindered.mean).min(seconds);
    Parts { transfer, wait: seconds - transfer, undivided: 0.0 }
}

/// The middle of a class of durations, in ticks.
pub fn middle(class: usize) -> f64 {
    let (from, to) = (time_floor(class), time_floor(class + 1));
    (from as f64 + to as f64) / 2.0
}

/// Histograms of all ranks, one for each length of a tick.
#[derive(Default)]
struct Merged {
    world: u32,
    histograms: Vec<(f64, Box<[u64; TIME_CLASSES]>)>,
}

impl Merged {
    fn add(&mut self, tick: f64, cell: &Cell) {
        let place = self.histograms.iter().position(|(known, _)| *known == tick).unwrap_or_else(|| {
            self.histograms.push((tick, Box::new([0; TIME_CLASSES])));
            self.histograms.len() - 1
        });
        for (sum, calls) in self.histograms[place].1.iter_mut().zip(cell.histogram) {
            *sum = sum.saturating_add(calls);
        }
    }

    /// `(class's middle, calls)` in seconds, shortest first.
    fn sorted(&self) -> Vec<(f64, f64)> {
        let mut all: Vec<(f64, f64)> = Vec::new();
        for (tick, histogram) in &self.histograms {
            let used = histogram.iter().enumerate().filter(|(_, calls)| **calls > 0);
            all.extend(used.map(|(class, calls)| (middle(class) * tick, *calls as f64)));
        }
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        all
    }
}

fn rule((id, group, size_class): Kind, calls: &Merged) -> Rule {
    let Some(function) = function(id) else { return Rule::CannotTell("the function is not known".into()) };
    if only_begins(function) {
        return Rule::AllTransfer;
    }
    if only_looks(function, size_class) {
        return Rule::AllWait;
    }
    let among = if group > 0 { group } else { calls.world.max(1) };
    if among == 1 {
        return Rule::AllTransfer;
    }
    let sorted = calls.sorted();
    let number: f64 = sorted.iter().map(|(_, calls)| calls).sum();
    let below = number / (2.0 * f64::from(among));
    if below < FEWEST {
        let least = FEWEST * 2.0 * f64::from(among);
        return Rule::CannotTell(format!("{number:.0} calls at {among} ranks; it takes {least:.0} to tell"));
    }
    let mut seen = 0.0;
    let quantile = sorted.iter().find(|(_, calls)| {
        seen += calls;
        seen >= below
    });
    let bound = 2.0 * quantile.map_or(0.0, |(duration, _)| *duration);
    let short = || sorted.iter().filter(|(duration, _)| *duration <= bound);
    let time: f64 = short().map(|(duration, calls)| duration * calls).sum();
    Rule::Beyond(Unhindered { bound, mean: time / short().map(|(_, calls)| calls).sum::<f64>() })
}

/// Whether the function returns when its own work is done, whatever other ranks do.
fn only_begins(function: &Function) -> bool {
    let request = function.argument("request").is_some();
    match function.class {
        Class::Post | Class::Request | Class::OneSided => true,
        Class::Collective | Class::Neighbour => request,
        _ => false,
    }
}

/// Whether the call moves no data: a test for a message, or a wait for one.
fn only_looks(function: &Function, size_class: usize) -> bool {
    match function.class {
        Class::Probe => true,
        Class::Completion => function.name == "Parrived" || (function.name.starts_with("Test") && size_class == 0),
        Class::Synchronization => function.name == "Win_test",
        _ => false,
    }
}
