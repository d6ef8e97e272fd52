//! Conducts a design: round by round, each block stored before the next, until all is decided or the budget spent.
//!
//! The budget is planned before it is spent. A first round calibrates: it measures the cost of a block of each point. Groups
//! that do not fit with the first look's rounds are then left out as a whole; after that look, rounds go where
//! a group is open (see [`rounds::contrast::looks`]), and there to candidates that none is shown to be better than. A
//! round in which the machine changed between two contenders is repeated.

use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;

use machine::{Fault, Nanoseconds, Result, count};
use rounds::contrast::FIRST_LOOK;
use rounds::order::{Turn, by_kind, turns};
use rounds::point::{PointKey, PointSpec};
use rounds::sample::{Runner, Sample};
use rounds::sitting::{End, FAILURES, Sitting, sit};

use crate::design::{Group, too_short};
use crate::observer::{Observer, Progress};
use crate::store::{Contents, Store, Study};
use crate::tally::{Tally, most_tries};

/// Failed blocks in a row, none having worked, that end the study: the cause is no single point.
const HOPELESS: usize = 12;

/// Runs `study` to its end, from its state in `store`. `stop` is polled between blocks.
///
/// # Errors
/// The store fails, or no point can be measured at all; a point that fails by itself is noted and left out.
pub fn conduct(
    store: &mut Store,
    study: &mut Study,
    runner: &mut dyn Runner,
    observer: &mut dyn Observer,
    stop: &dyn Fn() -> bool,
) -> Result<End> {
    let standing = Standing::of(study, store.contents(study)?);
    let groups = study.design.groups.iter().map(|group| group.points.len()).collect();
    let (prepared, times) = (HashSet::new(), None);
    sit(&mut Conducted { standing, groups, prepared, times, store, study, runner, observer, stop })
}

struct Conducted<'a> {
    standing: Standing,
    /// Number of points of each group.
    groups: Vec<usize>,
    prepared: HashSet<PointKey>,
    /// Start of the running block's preparation, and start of the block.
    times: Option<(Nanoseconds, Nanoseconds)>,
    store: &'a mut Store,
    study: &'a mut Study,
    runner: &'a mut dyn Runner,
    observer: &'a mut dyn Observer,
    stop: &'a dyn Fn() -> bool,
}

impl Conducted<'_> {
    fn spec(&self, turn: &Turn) -> PointSpec {
        self.standing.tally.design.groups[turn.group].points[turn.member].clone()
    }
}

impl Sitting for Conducted<'_> {
    type Turn = Turn;
    type Block = Sample;

    fn next_round(&mut self) -> Result<ControlFlow<End, Vec<Turn>>> {
        let began = std::mem::replace(&mut self.standing.began, true);
        self.standing.round += u32::from(began);
        if !self.standing.plan(self.observer) {
            return Ok(ControlFlow::Break(End::Finished));
        }
        let turns = turns(&self.groups, self.study.seed, self.standing.round);
        let groups = &self.standing.tally.design.groups;
        // A session that must have an interface for itself is opened once for some groups.
        Ok(ControlFlow::Continue(by_kind(turns, |turn| groups[turn.group].points[turn.member].alone())))
    }

    fn is_due(&self, turn: &Turn) -> bool {
        let spec = &self.standing.tally.design.groups[turn.group].points[turn.member];
        self.standing.is_due(turn.group, spec, &self.standing.tally.keys(turn.group)[turn.member])
    }

    fn block(&mut self, turn: &Turn) -> Result<Sample> {
        let spec = self.spec(turn);
        self.observer.progress(&self.standing.progress(&spec));
        let began = self.runner.now();
        self.times = Some((began, began));
        if self.prepared.insert(spec.key()) {
            self.runner.prepare(&spec)?;
            self.times = Some((began, self.runner.now()));
        }
        self.runner.run_block(&spec, self.standing.round, turn.place)
    }

    fn keep(&mut self, turn: Turn, outcome: Result<Sample>) -> Result<()> {
        let (spec, now) = (self.spec(&turn), self.runner.now().0);
        let key = spec.key();
        let (began, from) = self.times.take().expect("a block has run");
        let (took, spent) = (Nanoseconds(now - from.0), Nanoseconds(now - began.0));
        self.standing.spent = self.standing.spent + spent;
        self.study.spent = self.standing.spent;
        match outcome {
            Ok(sample) => {
                self.store.keep(self.study, &spec, &sample, took, spent)?;
                self.standing.took(key, sample, took);
            }
            Err(fault) => {
                self.store.keep_failure(self.study, &spec, self.standing.round, &fault, spent)?;
                let left_out = self.standing.could_not(key, &fault);
                let end = if left_out { "; it is left out of the rest" } else { "" };
                self.observer.note(&format!("{} {} {}: {fault}{end}", spec.contender(), spec.pattern, spec.size));
                if self.standing.hopeless() {
                    return Err(fault.within("study: no block can be measured"));
                }
            }
        }
        Ok(())
    }

    fn stopped(&self) -> bool {
        (self.stop)()
    }
}

/// The state of a running study.
struct Standing {
    tally: Tally,
    contents: Contents,
    spent: Nanoseconds,
    round: u32,
    /// Whether the current round ran at this sitting.
    began: bool,
    blocks: usize,
    failed_in_a_row: usize,
    /// Planned rounds of each group; 0 where the group is left out.
    wanted: Vec<u32>,
    /// Points beside the candidates that get no more rounds.
    spared: HashSet<PointKey>,
    /// Groups that run in the current round.
    due: HashSet<usize>,
}

impl Standing {
    fn of(study: &Study, contents: Contents) -> Standing {
        let rounds = contents.samples.values().flatten().map(|s| s.round);
        let failed = contents.failures.values().flatten().map(|f| f.0);
        Standing {
            tally: Tally::of(&study.design),
            spent: study.spent,
            round: rounds.chain(failed).max().unwrap_or(0),
            began: false,
            blocks: contents.samples.values().map(Vec::len).sum(),
            failed_in_a_row: 0,
            wanted: vec![study.design.minimum_rounds; study.design.groups.len()],
            spared: HashSet::new(),
            due: HashSet::new(),
            contents,
        }
    }

    /// Plans this round; false at the end of the study.
    fn plan(&mut self, observer: &mut dyn Observer) -> bool {
        self.leave_out(observer);
        self.tally.take_out_beaten(&self.contents);
        self.due = self.short();
        if self.due.is_empty() && self.look() {
            self.due = self.short();
        }
        !self.due.is_empty()
    }

    /// Groups short of their planned rounds. A round under way is completed.
    fn short(&self) -> HashSet<usize> {
        let short = |&group: &usize| {
            let wanted = self.wanted[group];
            let has = self.tally.rounds(&self.contents, group).map_or(usize::MAX, |rounds| rounds.len());
            let tried = self.tally.tries(&self.contents, group) >= most_tries(wanted);
            self.under_way(group) || (has < wanted as usize && !tried && self.may_start(group))
        };
        self.tally.groups().filter(short).collect()
    }

    /// A look at all groups: open groups get the next look's rounds, the most informative first, each whole or not
    /// at all. False where none gets any.
    fn look(&mut self) -> bool {
        let mut left = self.budget().saturating_sub(self.spent.0);
        let mut open: Vec<(usize, u32)> = (self.tally.groups())
            .filter(|&group| self.wanted[group] > 0)
            .filter_map(|group| Some((group, self.tally.next_look(&self.contents, group)?)))
            .collect();
        open.sort_by_key(|&(group, next)| (next, self.tally.design.groups[group].rank));
        let mut granted = false;
        for (group, next) in open {
            let cost = self.tally.cost(&self.contents, group, next).0;
            if self.wanted[group] < next && cost <= left {
                left -= cost;
                self.wanted[group] = next;
                granted = true;
            }
        }
        granted
    }

    /// Where the first look's rounds of all exceed the budget: leaves out first points beside the candidates, the costliest
    /// first, then the groups of highest rank.
    fn leave_out(&mut self, observer: &mut dyn Observer) {
        if self.round == 0 {
            return;
        }
        let asked = |group: &usize| self.wanted[*group] > 0 && !self.tally.is_judged(&self.contents, *group);
        let mut need: BTreeMap<u32, u64> = BTreeMap::new();
        for group in self.tally.groups().filter(asked) {
            let cost = self.tally.cost(&self.contents, group, self.tally.design.minimum_rounds);
            *need.entry(self.tally.design.groups[group].rank).or_default() += cost.0;
        }
        let beside = self.tally.beside(&self.contents).filter(|(_, key, _)| !self.spared.contains(key));
        let mut beside: Vec<(u64, PointKey)> = beside.map(|(_, key, cost)| (cost.0, key.clone())).collect();
        beside.sort();
        // A small excess over the budget is allowed, so that no comparison is lost to the jitter of the estimate.
        let limit = (self.budget() + self.budget() / 10).saturating_sub(self.spent.0);
        let mut total = need.values().sum::<u64>() + beside.iter().map(|(cost, _)| cost).sum::<u64>();
        while total > limit
            && let Some((cost, key)) = beside.pop()
        {
            total -= cost;
            self.spared.insert(key);
        }
        let enough = self.spent + Nanoseconds(total);
        let mut dropped = Vec::new();
        while total > limit && need.len() > 1 {
            let (rank, saved) = need.pop_last().expect("more than one is left");
            total -= saved;
            let of_rank = |group: &usize| asked(group) && self.tally.design.groups[*group].rank == rank;
            dropped.extend(self.tally.groups().filter(of_rank));
        }
        for &group in &dropped {
            self.wanted[group] = 0;
        }
        if !dropped.is_empty() {
            let groups: Vec<&Group> = dropped.iter().map(|&g| &self.tally.design.groups[g]).collect();
            observer.note(&too_short(&groups, self.tally.design.grounds.budget, enough));
        }
    }

    fn budget(&self) -> u64 {
        self.tally.design.grounds.budget.0
    }

    /// Whether a block of the group was measured in this round already.
    fn under_way(&self, group: usize) -> bool {
        self.tally.keys(group).iter().any(|key| self.contents.was_tried(key, self.round))
    }

    /// Called between groups only, since a group cut in two would be no comparison.
    fn may_start(&self, group: usize) -> bool {
        let budget = self.budget();
        let first = self.wanted[group] <= FIRST_LOOK;
        self.spent.0 < if first { budget + budget / 8 } else { budget }
    }

    fn is_due(&self, group: usize, spec: &PointSpec, key: &PointKey) -> bool {
        let done = self.contents.was_tried(key, self.round)
            || self.contents.has_failed(key)
            || self.tally.is_beaten(key)
            || self.spared.contains(key)
            || self.tally.is_shown(&self.contents, spec, key);
        self.due.contains(&group) && !done && (self.under_way(group) || self.may_start(group))
    }

    fn took(&mut self, key: PointKey, sample: Sample, took: Nanoseconds) {
        self.contents.samples.entry(key.clone()).or_default().push(sample);
        self.contents.took.entry(key).or_default().push(took);
        self.blocks += 1;
        self.failed_in_a_row = 0;
    }

    /// Whether the point is left out from now on.
    fn could_not(&mut self, key: PointKey, fault: &Fault) -> bool {
        self.contents.failures.entry(key.clone()).or_default().push((self.round, fault.to_string()));
        self.failed_in_a_row += 1;
        self.contents.has_failed(&key)
    }

    fn hopeless(&self) -> bool {
        let points: usize = self.tally.groups().map(|group| self.tally.keys(group).len()).sum();
        self.blocks == 0 && self.failed_in_a_row >= HOPELESS.min(points * FAILURES)
    }

    fn progress(&self, spec: &PointSpec) -> Progress {
        let left = Nanoseconds(self.budget().saturating_sub(self.spent.0));
        let now = format!("{}, {} at {}", spec.contender(), spec.pattern, spec.size);
        Progress { state: state(self.round, self.blocks, left), now: Some(now), spent: self.spent }
    }
}

/// `left`: most time, since a study ends earlier where everything is decided.
fn state(round: u32, blocks: usize, left: Nanoseconds) -> String {
    let left = match left.0.div_ceil(1_000_000_000) {
        s if s >= 60 => format!("{} min {:02} s", s / 60, s % 60),
        s => format!("{s} s"),
    };
    format!("round {}, {}, at most {left} left", round + 1, count::of(blocks as u64, "block"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_round_blocks_and_time() {
        let at = |left| state(1, 240, Nanoseconds(left));
        assert_eq!(at(125_300_000_000), "round 2, 240 blocks, at most 2 min 06 s left");
        assert_eq!(at(9_000_000_000), "round 2, 240 blocks, at most 9 s left");
    }
}
