//! From points to rows of the verdict: the choice at each size, adjacent sizes with the same choice merged.

use machine::{Bytes, CoreId, Reading, Site};
use rounds::comparison::{Answer, Paired, Standing, alike, answer, leader};
use rounds::contrast::EQUALITY;
use rounds::estimate::Estimate;
use rounds::point::{Contender, Metric, Path, Pattern, PointSpec, Stack};
use rounds::sample::Sample;
use rounds::statistics::median_interval;

use crate::findings::{Choice, PointFindings, Question, Reference, Rejected, SizeRange};

/// The choice at one size of one pattern.
struct Decision<'a> {
    size: Bytes,
    kind: Kind,
    /// Difference up to which candidates are alike, as a share.
    within: f64,
    /// Candidates between which the choice is open, the leader first; with a chosen place, only that candidate.
    between: Vec<&'a PointFindings>,
    points: Vec<&'a PointFindings>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Better,
    NoWorse,
    Either,
    Alike,
    CannotTell,
}

/// Rows of one question, pattern by pattern, sizes ascending.
pub fn ranges(question: Question, points: &[PointFindings]) -> Vec<SizeRange> {
    let asked = || points.iter().filter(|p| p.questions.contains(&question));
    let mut rows = Vec::new();
    for pattern in Pattern::ALL {
        let mut sizes: Vec<Bytes> = asked().filter(|p| p.spec.pattern == pattern).map(|p| p.spec.size).collect();
        sizes.sort();
        sizes.dedup();
        let at = |size| asked().filter(move |p| p.spec.pattern == pattern && p.spec.size == size).collect();
        let decisions: Vec<Decision> = sizes.into_iter().filter_map(|size| decide(size, at(size))).collect();
        rows.extend(merge(&decisions, same_choice).into_iter().map(|run| row(question, pattern, run)));
    }
    rows
}

/// Cuts `items` into runs of neighbours that are `alike`; every item is in exactly one run, in order.
fn merge<T>(items: &[T], alike: impl Fn(&T, &T) -> bool) -> Vec<&[T]> {
    items.chunk_by(alike).collect()
}

fn same_choice(a: &Decision, b: &Decision) -> bool {
    let names = |d: &Decision| {
        let mut names: Vec<Contender> = d.between.iter().map(|p| p.spec.contender()).collect();
        names.sort();
        names
    };
    a.kind == b.kind && names(a) == names(b)
}

fn performance(a: &PointFindings, b: &PointFindings) -> Paired {
    Paired::performance(&a.samples, &b.samples, a.spec.pattern.metric())
}

fn decide(size: Bytes, points: Vec<&PointFindings>) -> Option<Decision<'_>> {
    let candidates: Vec<&PointFindings> =
        points.iter().copied().filter(|p| p.candidate && !p.samples.is_empty()).collect();
    let samples: Vec<&[Sample]> = candidates.iter().map(|p| p.samples.as_slice()).collect();
    let metric = candidates.first()?.spec.pattern.metric();
    let mut within = 0.0;
    let (kind, between) = match answer(&samples, metric)? {
        Answer::Place(one) => (Kind::Better, vec![one]),
        Answer::Safe(one) => (Kind::NoWorse, vec![one]),
        Answer::Either(between) => (Kind::Either, between),
        Answer::Open(between) => match alike(&samples, metric, &between) {
            Some(share) => {
                within = share;
                (Kind::Alike, between)
            }
            None => (Kind::CannotTell, between),
        },
    };
    Some(Decision { size, kind, within, between: between.into_iter().map(|nth| candidates[nth]).collect(), points })
}

fn row(question: Question, pattern: Pattern, run: &[Decision]) -> SizeRange {
    let (first, last) = (&run[0], &run[run.len() - 1]);
    let held = first.between[0].spec.contender();
    let between = || first.between.iter().map(|p| p.spec.contender()).collect();
    let choice = match first.kind {
        Kind::Better | Kind::NoWorse => Choice::Place(held.clone()),
        Kind::Either => Choice::Either(between()),
        Kind::Alike => Choice::Alike { between: between(), within: run.iter().map(|d| d.within).fold(0.0, f64::max) },
        Kind::CannotTell => Choice::CannotTell { between: between(), why: why_open(run) },
    };
    let placed = matches!(first.kind, Kind::Better | Kind::NoWorse);
    let gain = over_the_next_best(run, &held, performance).filter(|_| placed);
    let saving = gain.filter(|gain| gain.low <= 1.0).and_then(|_| {
        over_the_next_best(run, &held, |a, b| Paired::cost(&a.samples, &b.samples))
            .filter(|cost| cost.low > 1.0 + EQUALITY)
    });
    let level = |decision: &Decision, other: &Contender| {
        let pair = find(decision, &held).zip(find(decision, other)).filter(|(_, other)| other.candidate);
        pair.is_some_and(|(own, other)| performance(own, other).standing() != Standing::Better)
    };
    let mut others: Vec<&PointFindings> = Vec::new();
    for decision in run {
        for point in &decision.points {
            let known = others.iter().any(|o| o.spec.contender() == point.spec.contender());
            let between = decision.between.iter().any(|b| b.spec.contender() == point.spec.contender());
            if !known && !between {
                others.push(point);
            }
        }
    }
    let is_tie = |other: &Contender| placed && saving.is_none() && run.iter().all(|decision| level(decision, other));
    let ties = others.iter().map(|point| point.spec.contender()).filter(is_tie).collect();
    let mut rejected = Vec::new();
    let mut references = Vec::new();
    for point in others {
        let spec = &point.spec;
        let contender = spec.contender();
        let gain = pooled(run, &held, &contender, performance);
        if point.candidate {
            rejected.push(Rejected { why: why_not(run, &held, spec, gain), contender });
        } else {
            let why = match (spec.stack, shares(spec)) {
                (Stack::Udp, _) => "reference: it loses messages, which the others do not".into(),
                (Stack::OpenMpi, _) => "reference: another implementation over the same path, not a place".into(),
                (_, Some((core, whose))) => format!("measured beside: its engine had to share {core} with {whose}"),
                (_, None) => "measured beside: this machine has no core to spare for the peer's engine".into(),
            };
            references.push(Reference { contender, gain: gain.filter(|_| placed), why });
        }
    }
    SizeRange {
        question,
        path: first.points[0].spec.path.clone(),
        pattern,
        from: first.size,
        to: last.size,
        ties,
        gain,
        saving,
        cpu_per_message: match placed {
            true => pooled_cost(run, &held),
            false => Reading::absent("there is no one choice to cost"),
        },
        choice,
        rejected,
        references,
        evidence: run.iter().flat_map(|d| d.points.iter().map(|p| p.key.clone())).collect(),
    }
}

fn why_open(run: &[Decision]) -> String {
    let pairs: Vec<Paired> =
        run.iter().flat_map(|d| d.between[1..].iter().map(|other| performance(d.between[0], other))).collect();
    let ends = pairs.iter().filter_map(Paired::deciding);
    let (low, high) = ends.fold((f64::INFINITY, 0.0f64), |(l, h), (low, high)| (l.min(low), h.max(high)));
    if pairs.is_empty() {
        "nothing else could be measured beside it".into()
    } else if !high.is_normal() {
        "too few of their blocks ran side by side under the same conditions".into()
    } else {
        format!(
            "block by block, the ratio of their performance lies between {low:.2} and {high:.2}: too wide to tell a \
             difference from equality within {:.0} %",
            EQUALITY * 100.0
        )
    }
}

fn find<'a>(decision: &Decision<'a>, contender: &Contender) -> Option<&'a PointFindings> {
    decision.points.iter().copied().find(|p| p.spec.contender() == *contender)
}

/// Ratios of `one` over `other` at every size of the run, as one interval.
fn pooled(
    run: &[Decision],
    one: &Contender,
    other: &Contender,
    pair: impl Fn(&PointFindings, &PointFindings) -> Paired,
) -> Option<Estimate> {
    let pairs = run.iter().filter_map(|d| Some(pair(find(d, one)?, find(d, other)?)));
    let ratios: Vec<f64> = pairs.flat_map(|p| p.ratios).collect();
    Paired { ratios }.interval()
}

/// Ratios of the choice over the next best, size by size, as one interval.
fn over_the_next_best(
    run: &[Decision],
    held: &Contender,
    pair: impl Fn(&PointFindings, &PointFindings) -> Paired,
) -> Option<Estimate> {
    let mut ratios = Vec::new();
    for decision in run {
        let Some(choice) = find(decision, held) else { continue };
        let others: Vec<&PointFindings> = decision
            .points
            .iter()
            .copied()
            .filter(|p| p.key != choice.key && p.candidate && !p.samples.is_empty())
            .collect();
        let samples: Vec<&[Sample]> = others.iter().map(|p| p.samples.as_slice()).collect();
        if let Some(next) = leader(&samples, choice.spec.pattern.metric()) {
            ratios.extend(pair(choice, others[next]).ratios);
        }
    }
    Paired { ratios }.interval()
}

fn pooled_cost(run: &[Decision], held: &Contender) -> Reading<Estimate> {
    let points: Vec<&PointFindings> = run.iter().filter_map(|d| find(d, held)).collect();
    let costs = points.iter().flat_map(|p| &p.samples).map(rounds::cost::cpu_per_message);
    collect_interval(costs)
}

/// The interval of the readings with a value; without any, the first reason.
pub fn collect_interval(readings: impl IntoIterator<Item = Reading<f64>>) -> Reading<Estimate> {
    let mut values = Vec::new();
    let mut reason = None;
    for reading in readings {
        match reading {
            Reading::Measured(v) | Reading::Modelled(v) => values.push(v),
            missing => reason = reason.or(Some(missing)),
        }
    }
    match (median_interval(&values), reason) {
        (Some(interval), _) => Reading::Measured(interval),
        (None, Some(Reading::NotPermitted { reason, next })) => Reading::not_permitted(reason, next),
        (None, Some(Reading::Absent { reason })) => Reading::absent(reason),
        (None, _) => Reading::absent("no block was measured"),
    }
}

fn why_not(run: &[Decision], held: &Contender, spec: &PointSpec, gain: Option<Estimate>) -> String {
    let other = spec.contender();
    let Some(gain) = gain else {
        let measured = run.iter().any(|d| find(d, &other).is_some_and(|p| !p.samples.is_empty()));
        return match measured {
            true => "none of its blocks ran side by side with the choice's under the same conditions".into(),
            false => "it could not be measured; see the notes".into(),
        };
    };
    let span = |of: &Estimate| format!("(95 %: {})", of.ends(2).replace(" .. ", " to "));
    let (is, what) = match spec.pattern.metric() {
        Metric::HalfRoundTrip => (gain, "latency"),
        metric => {
            let share = Estimate { middle: 1.0 / gain.middle, low: 1.0 / gain.high, high: 1.0 / gain.low, ..gain };
            (share, if metric == Metric::BytesPerSecond { "bandwidth" } else { "message rate" })
        }
    };
    let mut why = if gain.low <= 1.0 {
        format!("{what} cannot be told from the choice's {}", span(&is))
    } else {
        format!("{:.2} times the choice's {what} {}", is.middle, span(&is))
    };
    let cost = pooled(run, held, &other, |a, b| Paired::cost(&a.samples, &b.samples));
    if let Some(cost) = cost.filter(|c| c.low > 1.0 || c.high < 1.0) {
        let joint = if cost.middle > 1.0 || gain.low <= 1.0 { "at" } else { "though at" };
        why += &format!(", {joint} {:.2} times its CPU time per message", cost.middle);
    }
    why
}

/// The core that a dedicated engine shares with an application of its host, and the name of the application.
pub fn shares(spec: &PointSpec) -> Option<(CoreId, &'static str)> {
    let Site::Core(core) = spec.placement else { return None };
    let here = !matches!(spec.path, Path::Remote(_));
    let (local, remote) = ((spec.local_core, "the local application"), (spec.remote_core, "the remote application"));
    let beside = |engine: CoreId, of: [_; 2]| of.into_iter().flatten().find(|(application, _)| *application == engine);
    let own = beside(core, [Some(local), Some(remote).filter(|_| here)]);
    own.or_else(|| beside(spec.peer_engine?, [Some(remote), Some(local).filter(|_| here)]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn runs_tile_the_sizes_and_are_maximal(choices in prop::collection::vec(0u8..3, 0..40)) {
            let runs = merge(&choices, |a, b| a == b);
            prop_assert_eq!(&runs.concat(), &choices);
            for run in &runs {
                prop_assert!(!run.is_empty() && run.iter().all(|c| *c == run[0]));
            }
            for pair in runs.windows(2) {
                prop_assert_ne!(pair[0][0], pair[1][0]);
            }
        }
    }
}
