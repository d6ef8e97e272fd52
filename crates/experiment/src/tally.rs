//! A study's rounds of each group, and the cost of further rounds.

use std::collections::{BTreeMap, HashMap, HashSet};

use machine::{Bytes, Nanoseconds};
use rounds::clocks;
use rounds::comparison::{even_rounds, is_beaten, is_open};
use rounds::contrast::looks;
use rounds::point::{Contender, Pattern, PointKey, PointSpec};
use rounds::sample::Sample;
use rounds::sitting::FAILURES;

use crate::design::{Design, Group, REFERENCE_ROUNDS, places, too_short};
use crate::findings::Question;
use crate::patience::usual;
use crate::store::Contents;
use crate::sweep;

/// A design with the state of its measurements. Groups and their points by their place in the design.
pub struct Tally {
    pub design: Design,
    keys: Vec<Vec<PointKey>>,
    /// Candidates that another is shown to be better than: they get no more rounds.
    beaten: HashSet<PointKey>,
}

impl Tally {
    pub fn of(design: &Design) -> Tally {
        let keys = design.groups.iter().map(|g| g.points.iter().map(PointSpec::key).collect()).collect();
        Tally { design: design.clone(), keys, beaten: HashSet::new() }
    }

    /// At a look, removes candidates shown to be worse than another, in groups that have the first look's rounds.
    pub fn take_out_beaten(&mut self, contents: &Contents) {
        for group in self.groups() {
            let rounds = self.rounds(contents, group).map_or(0, |rounds| rounds.len());
            let is_look = looks().find(|look| *look as usize >= rounds).is_some_and(|look| look as usize == rounds);
            if !is_look || self.design.groups[group].questions.contains(&Question::ProtocolCore) {
                continue;
            }
            let candidates = self.candidates(contents, group);
            let samples: Vec<&[Sample]> = candidates.iter().map(|(_, samples)| *samples).collect();
            if even_rounds(&samples).len() < self.design.minimum_rounds as usize {
                continue;
            }
            let points = self.keys[group].iter().zip(&self.design.groups[group].points);
            let open = points.filter(|(key, _)| !self.is_beaten(key));
            let worse = open.filter(|(_, spec)| self.is_told_worse(group, &candidates, spec));
            let found: Vec<PointKey> = worse.map(|(key, _)| key.clone()).collect();
            self.beaten.extend(found);
        }
    }

    /// Whether another candidate is shown to be better than `spec`, for each question with both.
    fn is_told_worse(&self, group: usize, candidates: &[(&PointSpec, &[Sample])], spec: &PointSpec) -> bool {
        let Group { questions, pattern, .. } = &self.design.groups[group];
        let network = &self.design.grounds.network;
        questions.iter().filter(|question| question.asks(spec, network)).all(|question| {
            let asked: Vec<_> = candidates.iter().filter(|(other, _)| question.asks(other, network)).collect();
            let samples: Vec<&[Sample]> = asked.iter().map(|(_, samples)| *samples).collect();
            let at = asked.iter().position(|(other, _)| *other == spec);
            at.is_some_and(|at| is_beaten(&samples, pattern.metric(), at))
        })
    }

    pub fn is_beaten(&self, key: &PointKey) -> bool {
        self.beaten.contains(key)
    }

    pub fn groups(&self) -> std::ops::Range<usize> {
        0..self.design.groups.len()
    }

    pub fn keys(&self, group: usize) -> &[PointKey] {
        &self.keys[group]
    }

    /// Candidates of the group that did not fail for good, with their samples.
    fn candidates<'a>(&'a self, contents: &'a Contents, group: usize) -> Vec<(&'a PointSpec, &'a [Sample])> {
        let points = self.keys[group].iter().zip(&self.design.groups[group].points);
        let measurable = points.filter(|(key, spec)| self.design.is_candidate(spec) && !contents.has_failed(key));
        measurable.map(|(key, spec)| (spec, contents.samples_of(key))).collect()
    }

    /// Rounds in which all candidates of the group that are not beaten ran side by side; `None` where none can be measured.
    pub fn rounds(&self, contents: &Contents, group: usize) -> Option<Vec<u32>> {
        let points = self.keys[group].iter().zip(&self.design.groups[group].points);
        let measurable = points.filter(|(key, spec)| self.design.is_candidate(spec) && !contents.has_failed(key));
        let open = measurable.filter(|(key, _)| !self.is_beaten(key));
        let samples: Vec<&[Sample]> = open.map(|(key, _)| contents.samples_of(key)).collect();
        (!samples.is_empty()).then(|| even_rounds(&samples))
    }

    /// Whether the group can be judged: it has the first look's rounds.
    pub fn is_judged(&self, contents: &Contents, group: usize) -> bool {
        self.rounds(contents, group).is_some_and(|rounds| rounds.len() >= self.design.minimum_rounds as usize)
    }

    /// Rounds in which a candidate of the group was tried, comparable or not.
    pub fn tries(&self, contents: &Contents, group: usize) -> usize {
        let tried = |key| contents.samples_of(key).len() + contents.failures.get(key).map_or(0, Vec::len);
        let points = self.keys[group].iter().zip(&self.design.groups[group].points);
        points.filter(|(_, spec)| self.design.is_candidate(spec)).map(|(key, _)| tried(key)).max().unwrap_or(0)
    }

    /// The next look at a group that the last one left open; `None` where it is decided. Later blocks do not count.
    pub fn next_look(&self, contents: &Contents, group: usize) -> Option<u32> {
        let rounds = self.rounds(contents, group)?;
        let next = looks().find(|&look| look as usize > rounds.len())?;
        let last = looks().take_while(|&look| look as usize <= rounds.len()).last()?;
        let end = rounds[last as usize - 1];
        let until = |samples: &[Sample]| samples.partition_point(|s| s.round <= end);
        let candidates = self.candidates(contents, group);
        let Group { questions, pattern, .. } = &self.design.groups[group];
        let open = questions.iter().any(|question| {
            let asked = candidates.iter().filter(|(spec, _)| question.asks(spec, &self.design.grounds.network));
            let seen: Vec<(&PointSpec, &[Sample])> = asked.map(|(spec, s)| (*spec, &s[..until(s)])).collect();
            match question {
                Question::ProtocolCore => sweep::is_open(&seen),
                _ => is_open(&seen.iter().map(|(_, samples)| *samples).collect::<Vec<_>>(), pattern.metric()),
            }
        });
        open.then_some(next)
    }

    /// Whether a point beside the candidates has all the rounds that it gets.
    pub fn is_shown(&self, contents: &Contents, spec: &PointSpec, key: &PointKey) -> bool {
        !self.design.is_candidate(spec) && contents.samples_of(key).len() >= REFERENCE_ROUNDS as usize
    }

    /// Points beside the candidates that did not fail for good, with the cost of their missing rounds.
    pub fn beside<'a>(
        &'a self,
        contents: &'a Contents,
    ) -> impl Iterator<Item = (&'a PointSpec, &'a PointKey, Nanoseconds)> {
        let points = self.keys.iter().flatten().zip(self.design.groups.iter().flat_map(|g| &g.points));
        let beside = points.filter(|(key, spec)| !self.design.is_candidate(spec) && !contents.has_failed(key));
        beside.map(|(key, spec)| {
            let missing = u64::from(REFERENCE_ROUNDS).saturating_sub(contents.samples_of(key).len() as u64);
            (spec, key, Nanoseconds(missing * contents.typical_block(key).0))
        })
    }

    /// Time until the group's candidates have `rounds`, estimated from the blocks so far.
    pub fn cost(&self, contents: &Contents, group: usize, rounds: u32) -> Nanoseconds {
        let has = self.rounds(contents, group).map_or(usize::MAX, |rounds| rounds.len());
        let missing = u64::from(rounds).saturating_sub(has as u64);
        let points = self.keys[group].iter().zip(&self.design.groups[group].points);
        let asked = |key: &PointKey, spec: &PointSpec| self.design.is_candidate(spec) && !self.is_beaten(key);
        let measurable = points.filter(|(key, spec)| asked(key, spec) && !contents.has_failed(key));
        Nanoseconds(measurable.map(|(key, _)| missing * contents.typical_block(key).0).sum())
    }

    /// Omissions, for the report: points that failed, and groups that exceeded the budget.
    pub fn left_out(&self, contents: &Contents, spent: Nanoseconds) -> Vec<String> {
        let mut notes = failures(&self.design, contents);
        notes.extend(clocks::changes(contents.samples.values().flatten().map(|sample| &sample.clocks)));
        let (mut starved, mut flipped) = (Vec::new(), Vec::new());
        let mut enough = spent;
        for group in self.groups() {
            if self.rounds(contents, group).is_none() || self.is_judged(contents, group) {
                continue;
            }
            let tried = self.tries(contents, group) >= most_tries(self.design.minimum_rounds);
            if tried { &mut flipped } else { &mut starved }.push(&self.design.groups[group]);
            enough = enough + self.cost(contents, group, self.design.minimum_rounds);
        }
        if !starved.is_empty() {
            notes.push(too_short(&starved, self.design.grounds.budget, enough));
        }
        let of_judged = |spec: &PointSpec| {
            let judged = |&group: &usize| self.is_judged(contents, group);
            self.groups().filter(judged).any(|group| self.design.groups[group].points.contains(spec))
        };
        let mut spared: BTreeMap<Contender, Vec<(Pattern, Bytes)>> = BTreeMap::new();
        for (spec, ..) in self.beside(contents).filter(|(spec, _, missing)| missing.0 > 0 && of_judged(spec)) {
            spared.entry(spec.contender()).or_default().push((spec.pattern, spec.size));
        }
        for (contender, at) in spared {
            notes.push(format!(
                "{contender}, {}: left out, since the budget goes to what is compared first",
                places(at.into_iter())
            ));
        }
        if !flipped.is_empty() {
            let named = places(flipped.iter().map(|group| (group.pattern, group.size)));
            notes.push(format!("left out: {named}: the cores moved between near and far, or changed their clock, within nearly all rounds"));
        }
        notes
    }
}

/// Rounds after which no more are tried, since nearly all were lost because the machine changed within them.
pub fn most_tries(rounds: u32) -> usize {
    8 * rounds as usize
}

/// Points that failed: a line for each contender and fault, with the patterns and sizes that met it.
fn failures(design: &Design, contents: &Contents) -> Vec<String> {
    let specs: HashMap<PointKey, &PointSpec> = design.points().into_iter().map(|s| (s.key(), s)).collect();
    let met = contents.failures.iter().filter_map(|(key, f)| Some((*specs.get(key)?, f)));
    let mut lines: BTreeMap<(Contender, String), Vec<(Pattern, Bytes)>> = BTreeMap::new();
    for (spec, failures) in met {
        let what = if failures.len() >= FAILURES { "left out" } else { "one block failed" };
        let (_, fault) = failures.last().expect("an entry holds a failure");
        lines.entry((spec.contender(), format!("{what}: {fault}"))).or_default().push((spec.pattern, spec.size));
    }
    lines.into_iter().map(|((who, why), at)| format!("{who}, {}: {why}", places(at.into_iter()))).collect()
}

impl Contents {
    pub fn samples_of(&self, key: &PointKey) -> &[Sample] {
        self.samples.get(key).map_or(&[], Vec::as_slice)
    }

    /// Whether the point is left out from now on.
    pub fn has_failed(&self, key: &PointKey) -> bool {
        self.failures.get(key).is_some_and(|f| f.len() >= FAILURES)
    }

    /// Whether the point was tried in `round`.
    pub fn was_tried(&self, key: &PointKey, round: u32) -> bool {
        let failures = self.failures.get(key).map_or(&[][..], Vec::as_slice);
        self.samples_of(key).iter().any(|s| s.round == round) || failures.iter().any(|f| f.0 == round)
    }

    /// Usual duration of a block of the point: the median of its own, else of all.
    fn typical_block(&self, key: &PointKey) -> Nanoseconds {
        let own = self.took.get(key).and_then(|took| usual(took.iter().copied()));
        own.or_else(|| usual(self.took.values().flatten().copied())).unwrap_or(Nanoseconds(0))
    }
}
