//! Carries a design out: round by round, each block stored before the next, until all is decided or the budget spent.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Instant;

use machine::{Fault, Nanoseconds, Result};

use crate::comparison::{LOOKS, undecided};
use crate::design::{Design, Group};
use crate::order::turns;
use crate::point::{PointKey, PointSpec};
use crate::sample::{Runner, Sample};
use crate::statistics::median;
use crate::store::{Contents, Store, Study};

/// A point that failed this often is left out of the rest of the study.
const FAILURES: usize = 2;

/// So many blocks that fail one after the other, and none that worked, end the study: it is not about one point.
const HOPELESS: usize = 12;

/// How far a study is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// From 0.
    pub round: u32,
    /// Blocks measured, in this sitting and before.
    pub done: usize,
    /// Points still being measured.
    pub points: usize,
    pub spent: Nanoseconds,
    /// At most: the study ends earlier where everything is decided.
    pub left: Nanoseconds,
}

/// Watches a study.
pub trait Observer {
    /// A block is about to run.
    fn block_starts(&mut self, spec: &PointSpec, progress: &Progress);
    /// A block was measured and stored.
    fn block_done(&mut self, spec: &PointSpec, sample: &Sample, progress: &Progress);
    /// Something that the reader should know now: a point that failed, a group left out.
    fn note(&mut self, text: &str);
}

/// Why a study stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Finished,
    /// `stop` said so; what was measured is stored and the study can go on.
    Interrupted,
}

/// Runs `study` to its end, from wherever it stands in `store`. `stop` is asked between blocks.
///
/// Faults where the store fails, or where no point can be measured at all; a point that fails by itself is noted and
/// left out.
pub fn conduct(
    store: &mut Store,
    study: &mut Study,
    runner: &mut dyn Runner,
    observer: &mut dyn Observer,
    stop: &dyn Fn() -> bool,
) -> Result<Outcome> {
    let mut standing = Standing::of(study, store.contents(study)?);
    loop {
        let active = standing.active(observer);
        if active.is_empty() {
            break;
        }
        for turn in turns(&standing.design, study.seed, standing.round) {
            if !active.contains(&turn.group) {
                continue;
            }
            let spec = standing.design.groups[turn.group].points[turn.point].clone();
            let key = spec.key();
            if standing.has(&key, standing.round) || standing.failed(&key) || standing.is_shown(&spec, &key) {
                continue;
            }
            if stop() {
                return Ok(Outcome::Interrupted);
            }
            if !standing.may_start(turn.group) {
                continue;
            }
            observer.block_starts(&spec, &standing.progress());
            let began = Instant::now();
            let outcome = runner.run_block(&spec, standing.round, turn.order);
            let took = Nanoseconds(began.elapsed().as_nanos() as u64);
            match outcome {
                Ok(sample) => {
                    store.keep(study, &spec, &sample, took)?;
                    standing.took(key, sample.clone(), took);
                    study.spent = standing.spent;
                    observer.block_done(&spec, &sample, &standing.progress());
                }
                // The signal that interrupts a study reaches its peers too: that is no failure of the point.
                Err(_) if stop() => return Ok(Outcome::Interrupted),
                Err(fault) => {
                    store.keep_failure(study, &spec, standing.round, &fault, took)?;
                    let left_out = standing.could_not(key, &fault, took);
                    study.spent = standing.spent;
                    let end = if left_out { "; it is left out of the rest" } else { "" };
                    observer.note(&format!("{} {} {}: {fault}{end}", spec.contender(), spec.pattern, spec.size));
                    if standing.hopeless() {
                        return Err(fault.within("study: no block can be measured"));
                    }
                }
            }
        }
        standing.round += 1;
    }
    Ok(Outcome::Finished)
}

/// What is known while a study runs.
struct Standing {
    design: Design,
    contents: Contents,
    spent: Nanoseconds,
    round: u32,
    blocks: usize,
    points: usize,
    failed_in_a_row: usize,
    /// Groups whose comparisons are decided.
    settled: HashSet<usize>,
    left_out: HashSet<usize>,
    keys: Vec<Vec<PointKey>>,
}

impl Standing {
    fn of(study: &Study, contents: Contents) -> Standing {
        let rounds = contents.samples.values().flatten().map(|s| s.round);
        let failed = contents.failures.values().flatten().map(|f| f.0);
        let keys = study.design.groups.iter().map(|g| g.points.iter().map(PointSpec::key).collect()).collect();
        Standing {
            design: study.design.clone(),
            spent: study.spent,
            round: rounds.chain(failed).max().unwrap_or(0),
            blocks: contents.samples.values().map(Vec::len).sum(),
            points: 0,
            failed_in_a_row: 0,
            settled: HashSet::new(),
            left_out: HashSet::new(),
            contents,
            keys,
        }
    }

    fn samples(&self, key: &PointKey) -> &[Sample] {
        self.contents.samples.get(key).map_or(&[], Vec::as_slice)
    }

    fn has(&self, key: &PointKey, round: u32) -> bool {
        let failures = self.contents.failures.get(key).map_or(&[][..], Vec::as_slice);
        self.samples(key).iter().any(|s| s.round == round) || failures.iter().any(|f| f.0 == round)
    }

    fn failed(&self, key: &PointKey) -> bool {
        self.contents.failures.get(key).is_some_and(|f| f.len() >= FAILURES)
    }

    /// A reference with its minimum of rounds: more would decide nothing, and some are slow to run.
    fn is_shown(&self, spec: &PointSpec, key: &PointKey) -> bool {
        !spec.stack.is_candidate() && self.samples(key).len() >= self.design.minimum_rounds as usize
    }

    /// A block of the group was measured in this round already.
    fn under_way(&self, group: usize) -> bool {
        self.keys[group].iter().any(|key| self.has(key, self.round))
    }

    /// Samples of one round up to, but not with, the current one: what decides must not depend on where a resumed
    /// round stood.
    fn before(&self, key: &PointKey) -> &[Sample] {
        let samples = self.samples(key);
        &samples[..samples.partition_point(|s| s.round < self.round)]
    }

    fn measurable(&self, group: usize) -> impl Iterator<Item = (&PointKey, &PointSpec)> {
        self.keys[group].iter().zip(&self.design.groups[group].points).filter(|(key, _)| !self.failed(key))
    }

    /// Rounds that every measurable point of the group has; those of a reference with its minimum do not count.
    fn rounds_of(&self, group: usize) -> u32 {
        let rounds = self.measurable(group).filter(|(key, spec)| !self.is_shown(spec, key));
        rounds.map(|(key, _)| self.before(key).len() as u32).min().unwrap_or(u32::MAX)
    }

    /// Groups that run in the current round: those short of the minimum and those not decided.
    fn active(&mut self, observer: &mut dyn Observer) -> HashSet<usize> {
        let mut active = HashSet::new();
        if self.round < LOOKS[LOOKS.len() - 1] {
            for group in 0..self.design.groups.len() {
                if !self.settled.contains(&group) && LOOKS.contains(&self.rounds_of(group)) && !self.is_open(group) {
                    self.settled.insert(group);
                }
            }
            let wanted = (0..self.design.groups.len()).filter(|g| !self.left_out.contains(g) && self.may_start(*g));
            active.extend(
                wanted.filter(|&g| self.is_short(g) || (self.rounds_of(g) != u32::MAX && !self.settled.contains(&g))),
            );
        }
        self.leave_out(&mut active, observer);
        self.points = active.iter().map(|&g| self.measurable(g).count()).sum();
        active
    }

    fn is_short(&self, group: usize) -> bool {
        self.rounds_of(group) < self.design.minimum_rounds
    }

    /// Asked between groups only, since a group cut in two would be no comparison: one under way is ended.
    fn may_start(&self, group: usize) -> bool {
        let budget = self.design.grounds.budget.0;
        let limit = if self.is_short(group) { budget + budget / 8 } else { budget };
        self.under_way(group) || self.spent.0 < limit
    }

    fn is_open(&self, group: usize) -> bool {
        let Group { questions, pattern, .. } = &self.design.groups[group];
        questions.iter().any(|question| {
            let candidates = self
                .measurable(group)
                .filter(|(_, spec)| question.asks(spec, &self.design.grounds.network) && spec.stack.is_candidate());
            let samples: Vec<&[Sample]> = candidates.map(|(key, _)| self.before(key)).collect();
            undecided(&samples, pattern.metric())
        })
    }

    /// Leaves out the groups of highest rank while the minimum of rounds does not fit the budget.
    fn leave_out(&mut self, active: &mut HashSet<usize>, observer: &mut dyn Observer) {
        let Some(typical) = self.typical_block() else { return };
        let minimum = self.design.minimum_rounds;
        let mut need: BTreeMap<u32, f64> = BTreeMap::new();
        for &group in active.iter() {
            let missing = minimum.saturating_sub(self.rounds_of(group));
            let round: f64 = self.measurable(group).map(|(key, _)| self.block_cost(key, typical)).sum();
            *need.entry(self.design.groups[group].rank).or_default() += f64::from(missing) * round;
        }
        let mut total: f64 = need.values().sum();
        let budget = self.design.grounds.budget.0.saturating_sub(self.spent.0) as f64;
        // A little over the budget is borne rather than a comparison lost to the jitter of the estimate.
        while total > budget * 1.1 && need.len() > 1 {
            let (rank, saved) = need.pop_last().expect("more than one is left");
            total -= saved;
            let dropped: Vec<usize> =
                active.iter().copied().filter(|&g| self.design.groups[g].rank == rank && saved > 0.0).collect();
            for group in dropped {
                active.remove(&group);
                self.left_out.insert(group);
                let Group { pattern, size, .. } = &self.design.groups[group];
                observer.note(&format!(
                    "{pattern} at {size} gets no more rounds: a block takes {} here, the budget is {}",
                    Nanoseconds(typical as u64),
                    self.design.grounds.budget
                ));
            }
        }
    }

    fn typical_block(&self) -> Option<f64> {
        let all: Vec<f64> = self.contents.took.values().flatten().map(|t| t.0 as f64).collect();
        median(&all)
    }

    fn block_cost(&self, key: &PointKey, typical: f64) -> f64 {
        let took = self.contents.took.get(key).map(|t| t.iter().map(|t| t.0 as f64).collect::<Vec<_>>());
        took.and_then(|t| median(&t)).unwrap_or(typical)
    }

    fn took(&mut self, key: PointKey, sample: Sample, took: Nanoseconds) {
        self.contents.samples.entry(key.clone()).or_default().push(sample);
        self.contents.took.entry(key).or_default().push(took);
        self.spent = self.spent + took;
        self.blocks += 1;
        self.failed_in_a_row = 0;
    }

    /// Whether the point is left out from now on.
    fn could_not(&mut self, key: PointKey, fault: &Fault, took: Nanoseconds) -> bool {
        self.contents.failures.entry(key.clone()).or_default().push((self.round, fault.to_string()));
        self.spent = self.spent + took;
        self.failed_in_a_row += 1;
        self.failed(&key)
    }

    fn hopeless(&self) -> bool {
        self.blocks == 0 && self.failed_in_a_row >= HOPELESS.min(self.keys.iter().map(Vec::len).sum())
    }

    fn progress(&self) -> Progress {
        let left = Nanoseconds(self.design.grounds.budget.0.saturating_sub(self.spent.0));
        Progress { round: self.round, done: self.blocks, points: self.points, spent: self.spent, left }
    }
}

/// What a study left out, for the report: points that failed, comparisons short of the minimum of rounds.
pub fn left_out(design: &Design, contents: &Contents) -> Vec<String> {
    let mut notes = Vec::new();
    let specs: HashMap<PointKey, &PointSpec> = design.points().into_iter().map(|s| (s.key(), s)).collect();
    let mut failures: Vec<_> = contents.failures.iter().filter_map(|(key, f)| Some((specs.get(key)?, f))).collect();
    failures.sort_by_key(|(spec, _)| **spec);
    for (spec, failures) in failures {
        let what = if failures.len() >= FAILURES { "left out" } else { "one block failed" };
        let (_, fault) = failures.last().expect("an entry holds a failure");
        notes.push(format!("{}, {} at {}: {what}: {fault}", spec.contender(), spec.pattern, spec.size));
    }
    for group in &design.groups {
        let rounds = group.points.iter().map(PointSpec::key);
        let rounds = rounds.filter(|k| contents.failures.get(k).is_none_or(|f| f.len() < FAILURES));
        let rounds = rounds.map(|key| contents.samples.get(&key).map_or(0, Vec::len)).min();
        if let Some(rounds) = rounds.filter(|&r| r < design.minimum_rounds as usize) {
            let questions: Vec<_> = group.questions.iter().map(|q| q.name()).collect();
            notes.push(format!(
                "{} at {} ({}) has {rounds} rounds of the {} that a decision needs: the budget of {} was spent",
                group.pattern,
                group.size,
                questions.join(", "),
                design.minimum_rounds,
                design.grounds.budget
            ));
        }
    }
    notes
}
