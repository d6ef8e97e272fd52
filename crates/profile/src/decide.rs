//! Which placement a program's messages should have, by the costs of the machine and what the program sends.
//!
//! A message costs a rank between its part of a stream, where nobody waits for it, and half a round trip, where
//! somebody does. No table shows which messages are on the critical path, so the time of a placement is an interval from the
//! one to the other. So is the difference of two placements, whose costs are uncertain independently of each other.

use std::collections::{BTreeMap, BTreeSet};

use machine::costs::{Cost, Interval, Item, Way};
use machine::{Bytes, Costs, Minimax, Reading, minimax};

use crate::summary::Summary;

/// Least gain, as a share of the run, that justifies leaving the default: runs differ by as much (claim A13).
pub const WORTH: f64 = crate::verdict::NOISE;

/// Largest busy share of an engine; a busier engine would delay the ranks.
const BUSIEST: f64 = 0.7;

/// A program's messages, as far as its placement depends on them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Traffic {
    pub ranks: u32,
    /// Seconds of the run.
    pub seconds: f64,
    /// Messages of all ranks by size, at least and at most: the number of messages of a collective call depends on its
    /// algorithm.
    pub messages: BTreeMap<Bytes, (f64, f64)>,
    /// The share of the run that the mean rank spends in MPI: no placement of messages saves more.
    pub in_mpi: f64,
    /// The share of messages to another host.
    pub crossing: f64,
}

impl Traffic {
    /// The traffic of a profile, for ranks on one host or, with `lab`, half of them on each of two.
    pub fn of(summary: &Summary, lab: bool) -> Traffic {
        let mut messages: BTreeMap<Bytes, (f64, f64)> = BTreeMap::new();
        let mut add = |size: u64, low: f64, high: f64| {
            let of = messages.entry(Bytes(size)).or_default();
            *of = (of.0 + low, of.1 + high);
        };
        for class in &summary.sizes {
            let mean = class.bytes.checked_div(class.messages).unwrap_or(class.floor);
            add(mean, class.messages as f64, class.messages as f64);
        }
        for function in summary.functions.iter().filter(|function| function.class == "collective") {
            let (low, high) = messages_of_collective(function.group);
            for size in &function.sizes {
                let mean = size.bytes.checked_div(size.calls).unwrap_or(size.floor);
                add(mean, low * size.calls as f64, high * size.calls as f64);
            }
        }
        messages.retain(|_, count| count.1 > 0.0);
        Traffic {
            ranks: summary.ranks.len() as u32,
            seconds: summary.totals.seconds,
            messages,
            in_mpi: summary.totals.mpi_share,
            crossing: if lab { crossing(summary) } else { 0.0 },
        }
    }

    /// Messages of all ranks.
    pub fn count(&self) -> (f64, f64) {
        self.messages.values().fold((0.0, 0.0), |sum, count| (sum.0 + count.0, sum.1 + count.1))
    }

    /// "212 k messages a second of 64 B".
    pub fn words(&self) -> String {
        let (low, high) = self.count();
        let count = (low + high) / 2.0;
        let bytes: f64 = self.messages.iter().map(|(size, (low, high))| size.0 as f64 * (low + high) / 2.0).sum();
        let rate = count / self.seconds.max(1e-9);
        let scaled = chart::number::scaled(rate, &[(1.0, ""), (1e3, "k"), (1e6, "M")]);
        format!("{} messages a second of {:.0} B", scaled.trim(), bytes / count.max(1.0))
    }
}

/// Mean messages of one rank's collective call: at least those of a tree, at most those to and from all others.
fn messages_of_collective(group: u32) -> (f64, f64) {
    match group {
        0 | 1 => (0.0, 0.0),
        _ => {
            let others = f64::from(group - 1);
            (others / f64::from(group), 2.0 * others.max(1.0))
        }
    }
}

/// The part of the messages whose ends are in different halves of the ranks.
fn crossing(summary: &Summary) -> f64 {
    let (mut all, mut far) = (0u64, 0u64);
    for matrix in &summary.matrices {
        let half = u64::from(matrix.ranks.div_ceil(2));
        for [from, to, messages, ..] in &matrix.cells {
            all = all.saturating_add(*messages);
            far = far.saturating_add(if (*from < half) == (*to < half) { 0 } else { *messages });
        }
    }
    // Collective calls are in no matrix: half of all pairs of ranks are apart.
    if all == 0 { 0.5 } else { far as f64 / all as f64 }
}

/// A possible place of the engine.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// As `plimsoll mpirun` takes it: "core:3", "app, udp".
    pub name: String,
    /// How messages within a host travel, and those between hosts.
    pub within: Way,
    pub between: Way,
    /// Why the candidate is not possible, with what to do.
    pub refused: Option<String>,
    /// Whether the candidate can be chosen; otherwise only its time is predicted.
    pub eligible: bool,
}

/// The prediction for a candidate.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    pub candidate: Candidate,
    /// Its time over the default's, the whole run as 1.
    pub expected: Result<Interval, String>,
}

/// The chosen candidate, and the prediction for each.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// The default first.
    pub judged: Vec<Judged>,
    pub chosen: usize,
}

/// Chooses the candidate with the least worst-case loss; the default (the first) unless the expected gain of another is at
/// least [`WORTH`].
pub fn decide(traffic: &Traffic, candidates: Vec<Candidate>, costs: &Costs) -> Decision {
    let times: Vec<Result<Times, String>> = candidates
        .iter()
        .map(|candidate| match &candidate.refused {
            Some(why) => Err(why.clone()),
            None => Times::of(traffic, candidate, costs),
        })
        .collect();
    let expected = |at: usize| match (&times[at], &times[0]) {
        (Ok(own), Ok(usual)) if at > 0 => own.over(usual, traffic),
        (Err(why), _) | (_, Err(why)) => Err(why.clone()),
        _ => Ok(Interval::exactly(1.0)),
    };
    let judged: Vec<Judged> = (0..candidates.len())
        .map(expected)
        .collect::<Vec<_>>()
        .into_iter()
        .zip(candidates)
        .map(|(expected, candidate)| Judged { candidate, expected })
        .collect();
    let known = |of: &Judged| of.expected.clone().ok();
    // Worst-case time over that of each eligible alternative, never below 1.
    let losses = |at: usize| {
        let others = judged.iter().enumerate().filter(|(other, of)| *other != at && of.candidate.eligible);
        let more = |other: usize| times[at].as_ref().ok()?.over(times[other].as_ref().ok()?, traffic).ok();
        let more = others.filter(|(_, of)| of.expected.is_ok()).filter_map(|(other, _)| more(other));
        let most = more.map(|more| Interval::exactly(more.high.max(1.0)));
        std::iter::once(Interval::exactly(1.0)).chain(most).collect::<Vec<_>>()
    };
    let worth = |at: usize, own: Interval| at == 0 || own.middle < 1.0 - WORTH;
    let able = judged.iter().enumerate().filter(|(_, of)| of.candidate.eligible);
    let able = able.filter_map(|(at, of)| Some((at, known(of)?)));
    let able: Vec<usize> = able.filter(|(at, own)| worth(*at, *own)).map(|(at, _)| at).collect();
    let found = minimax(&able.iter().map(|at| losses(*at)).collect::<Vec<_>>());
    Decision { chosen: found.map_or(0, |found| able[found.choice]), judged }
}

/// One place for any program.
#[derive(Debug, Clone, PartialEq)]
pub struct General {
    /// Its place among the candidates.
    pub chosen: usize,
    /// How many times as long as the best its messages take at the size where it loses most.
    pub loses: f64,
}

/// Chooses for a program of which nothing is known, by the same rule as a study: the candidate that loses least at the size where it
/// loses most, waited for or not; `between` hosts or within one. `None` where the costs do not tell of two candidates.
pub fn in_general(candidates: &[Candidate], costs: &Costs, between: bool) -> Option<General> {
    let way = |of: &Candidate| if between { of.between.clone() } else { of.within.clone() };
    let items = |of: &Candidate| [Item::HalfTrip(way(of)), Item::Message(way(of))];
    let measured = |item: &Item| {
        let of_item = costs.rows().iter().filter(|row| row.item.is_like(item) && row.cost.value().is_some());
        of_item.filter_map(|row| row.size).collect::<BTreeSet<Bytes>>()
    };
    let able: Vec<usize> = (0..candidates.len())
        .filter(|at| candidates[*at].eligible && candidates[*at].refused.is_none())
        .filter(|at| !measured(&items(&candidates[*at])[0]).is_empty())
        .collect();
    if able.len() < 2 {
        return None;
    }
    let mut losses: Vec<Vec<Interval>> = vec![Vec::new(); able.len()];
    for kind in 0..2 {
        let each: Vec<BTreeSet<Bytes>> = able.iter().map(|at| measured(&items(&candidates[*at])[kind])).collect();
        // Sizes that all candidates have measurements of: elsewhere a cost would be modelled.
        let sizes = each[0].iter().filter(|size| each.iter().all(|of| of.contains(size)));
        for size in sizes {
            let cost = |at: &usize| costs.sized(&items(&candidates[*at])[kind], *size).reading.value().copied();
            let Some(taken) = able.iter().map(cost).collect::<Option<Vec<Interval>>>() else { continue };
            let best = taken.iter().map(|of| of.middle).fold(f64::INFINITY, f64::min);
            for (losses, taken) in losses.iter_mut().zip(taken) {
                losses.push(taken.times(1.0 / best));
            }
        }
    }
    let Minimax { choice, worst, .. } = minimax(&losses)?;
    Some(General { chosen: able[choice], loses: worst[choice].0.middle })
}

/// Seconds that the mean rank spends on its messages.
struct Times {
    /// Time if nobody waits for a message.
    stream: Interval,
    /// Time if somebody waits for each message.
    waited: Interval,
    /// Share of the run that an engine on a core of its own is busy.
    engine: Option<f64>,
}

impl Times {
    fn of(traffic: &Traffic, candidate: &Candidate, costs: &Costs) -> Result<Times, String> {
        let value = |cost: Cost| match cost.reading {
            Reading::Measured(interval) | Reading::Modelled(interval) => Ok(interval),
            Reading::Absent { reason } | Reading::NotPermitted { reason, .. } => Err(reason),
        };
        let zero = Interval::exactly(0.0);
        let (mut stream, mut waited) = (zero, zero);
        let parts = [(&candidate.within, 1.0 - traffic.crossing), (&candidate.between, traffic.crossing)];
        for (way, part) in parts.into_iter().filter(|(_, part)| *part > 0.0) {
            for (size, (low, high)) in &traffic.messages {
                let each = 1e-9 * part * (low + high) / 2.0 / f64::from(traffic.ranks.max(1));
                stream = plus(stream, value(costs.sized(&Item::Message(way.clone()), *size))?.times(each));
                waited = plus(waited, value(costs.sized(&Item::HalfTrip(way.clone()), *size))?.times(each));
            }
        }
        let own_core = candidate.within.placement == machine::SiteKind::Core;
        let engine = own_core.then(|| stream.middle * f64::from(traffic.ranks) / traffic.seconds.max(1e-9));
        Ok(Times { stream, waited, engine })
    }

    /// The run's time with these message times, over its time with `usual`.
    fn over(&self, usual: &Times, traffic: &Traffic) -> Result<Interval, String> {
        if let Some(busy) = self.engine.filter(|busy| *busy > BUSIEST) {
            return Err(format!(
                "its engine would be busy {:.0} % of the run with the messages of all ranks",
                100.0 * busy
            ));
        }
        let streams = less(self.stream, usual.stream);
        let waits = less(self.waited, usual.waited);
        let share = |seconds: f64| (seconds / traffic.seconds.max(1e-9)).max(-traffic.in_mpi);
        let middle = (share(streams.middle) + share(waits.middle)) / 2.0;
        let low = share(streams.low.min(waits.low)).min(middle);
        let high = share(streams.high.max(waits.high)).max(middle);
        Ok(Interval { low: 1.0 + low, middle: 1.0 + middle, high: 1.0 + high })
    }
}

/// Adds interval ends: a machine that is slow today is slow at all sizes.
fn plus(a: Interval, b: Interval) -> Interval {
    Interval { low: a.low + b.low, middle: a.middle + b.middle, high: a.high + b.high }
}

/// The difference of two intervals that vary independently of each other.
fn less(a: Interval, b: Interval) -> Interval {
    let middle = a.middle - b.middle;
    let down = (a.middle - a.low).hypot(b.high - b.middle);
    let up = (a.high - a.middle).hypot(b.middle - b.low);
    Interval { low: middle - down, middle, high: middle + up }
}

#[cfg(test)]
mod tests {
    use machine::costs::{ENGINE, Row};
    use machine::{Nanoseconds, SiteKind};
    use proptest::prelude::*;

    use super::*;

    fn way(placement: SiteKind, network: Option<&str>) -> Way {
        Way { carrier: ENGINE.into(), mpi: "m".into(), placement, network: network.map(str::to_owned) }
    }

    fn candidate(name: &str, placement: SiteKind, network: &str) -> Candidate {
        let (within, between) = (way(placement, None), way(placement, Some(network)));
        Candidate { name: name.into(), within, between, refused: None, eligible: true }
    }

    fn candidates() -> Vec<Candidate> {
        vec![candidate("app", SiteKind::App, "udp"), candidate("core:3", SiteKind::Core, "udp")]
    }

    fn costs(app: f64, core: f64) -> Costs {
        let row = |placement, ns: f64| {
            [Item::Message(way(placement, None)), Item::HalfTrip(way(placement, None))].map(|item| Row {
                item,
                size: Some(Bytes(64)),
                cost: Reading::Measured(Interval::between(ns * 0.95, ns / 0.95)),
                source: "calibrate".into(),
                taken: Nanoseconds(1),
            })
        };
        Costs::of([row(SiteKind::App, app), row(SiteKind::Core, core)].concat())
    }

    /// 4 ranks that send a million messages in 10 s.
    fn traffic() -> Traffic {
        let messages = BTreeMap::from([(Bytes(64), (1e6, 1e6))]);
        Traffic { ranks: 4, seconds: 10.0, messages, in_mpi: 0.3, crossing: 0.0 }
    }

    #[test]
    fn costs_that_are_swapped_change_the_choice() {
        let (dear, cheap) = (4000.0, 400.0);
        let decision = decide(&traffic(), candidates(), &costs(dear, cheap));
        assert_eq!(decision.chosen, 1);
        // 250 thousand messages a rank, each 3.6 us less: 0.9 s of 10.
        let expected = decision.judged[1].expected.clone().unwrap();
        assert!(expected.low < 0.91 && 0.91 < expected.high && expected.high < 0.93, "{expected:?}");
        assert_eq!(decide(&traffic(), candidates(), &costs(cheap, dear)).chosen, 0);
    }

    #[test]
    fn what_is_not_worth_it_or_not_known_leaves_the_default() {
        let decision = decide(&traffic(), candidates(), &costs(400.0, 390.0));
        assert_eq!(decision.chosen, 0);
        let decision = decide(&traffic(), candidates(), &Costs::modelled());
        assert_eq!(decision.chosen, 0);
        let why = decision.judged[1].expected.clone().unwrap_err();
        assert!(why.contains("plimsoll calibrate"), "{why}");
    }

    #[test]
    fn a_refused_place_is_not_taken_and_says_why() {
        let mut all = candidates();
        all[1].refused = Some("4 ranks and an engine need 5 cores, there are 4".into());
        let decision = decide(&traffic(), all, &costs(4000.0, 400.0));
        assert_eq!((decision.chosen, decision.judged[1].expected.is_err()), (0, true));
        // An engine that serves all ranks has a limit of its own.
        let busy = Traffic { messages: BTreeMap::from([(Bytes(64), (2e7, 2e7))]), ..traffic() };
        let why = decide(&busy, candidates(), &costs(4000.0, 400.0)).judged[1].expected.clone().unwrap_err();
        assert!(why.contains("busy 80 % of the run"), "{why}");
    }

    #[test]
    fn no_placement_saves_more_than_the_time_in_mpi() {
        let little = Traffic { in_mpi: 0.02, ..traffic() };
        let decision = decide(&little, candidates(), &costs(8000.0, 400.0));
        assert!(decision.judged[1].expected.clone().unwrap().low >= 0.98);
    }

    #[test]
    fn a_program_of_which_nothing_is_known_gets_what_loses_least_where_it_loses_most() {
        let rows = |placement, short: f64, long: f64| {
            let half_trip = |size, ns| Row {
                item: Item::HalfTrip(way(placement, None)),
                size: Some(Bytes(size)),
                cost: Reading::Measured(Interval::exactly(ns)),
                source: "plimsoll study 1".into(),
                taken: Nanoseconds(1),
            };
            [half_trip(8, short), half_trip(65_536, long)]
        };
        // The one is 1.5x behind at 8 B, the other 1.2x at 64 KiB.
        let costs = |app: [f64; 2], core: [f64; 2]| {
            Costs::of([rows(SiteKind::App, app[0], app[1]), rows(SiteKind::Core, core[0], core[1])].concat())
        };
        let (one, other) = ([1500.0, 10_000.0], [1000.0, 12_000.0]);
        let found = in_general(&candidates(), &costs(one, other), false).unwrap();
        assert_eq!((found.chosen, (found.loses - 1.2).abs() < 1e-9), (1, true));
        assert_eq!(in_general(&candidates(), &costs(other, one), false).unwrap().chosen, 0, "costs that are swapped");
        assert_eq!(in_general(&candidates(), &costs(one, other), true), None, "nothing was measured between hosts");
    }

    #[test]
    fn collectives_are_messages() {
        assert_eq!(messages_of_collective(1), (0.0, 0.0));
        assert_eq!(messages_of_collective(2), (0.5, 2.0));
        assert_eq!(messages_of_collective(5), (0.8, 8.0));
    }

    #[test]
    fn two_that_are_both_uncertain_do_not_keep_the_slow_one() {
        let rows = |network: &str, low: f64, high: f64| {
            let way = way(SiteKind::App, Some(network));
            [Item::Message(way.clone()), Item::HalfTrip(way)].map(|item| Row {
                item,
                size: Some(Bytes(64)),
                cost: Reading::Measured(Interval::between(low, high)),
                source: "calibrate".into(),
                taken: Nanoseconds(1),
            })
        };
        let costs = [rows("udp", 3800.0, 5600.0), rows("afxdp", 2600.0, 3800.0), rows("xdp", 2700.0, 4700.0)];
        let traffic = Traffic { crossing: 1.0, in_mpi: 0.9, ..traffic() };
        let all = ["udp", "afxdp", "xdp"].map(|network| candidate(network, SiteKind::App, network));
        assert_eq!(decide(&traffic, all.to_vec(), &Costs::of(costs.concat())).chosen, 1);
    }

    proptest! {
        #[test]
        fn expectations_are_in_order(app in 50.0..1e5f64, core in 50.0..1e5f64, count in 0.0..1e7f64, seconds in 0.1..100.0f64) {
            let messages = BTreeMap::from([(Bytes(200), (count, 2.0 * count))]);
            let traffic = Traffic { messages, seconds, ..traffic() };
            let decision = decide(&traffic, candidates(), &costs(app, core));
            if let Ok(expected) = &decision.judged[1].expected {
                prop_assert!(expected.low <= expected.middle && expected.middle <= expected.high, "{expected:?}");
                prop_assert!(expected.low >= 1.0 - traffic.in_mpi - 1e-9);
            }
        }
    }
}
