//! Paper 002 §5.1: the receiving process on each core in turn, receive processing pinned to one of them.

use std::collections::BTreeMap;

use machine::{CoreId, Reading};
use rounds::comparison::{Paired, SETTLED, Standing};
use rounds::cost::{receive_softirqs_per_message, softirq_time};
use rounds::point::PointSpec;
use rounds::sample::Sample;
use rounds::statistics::median;

use crate::findings::{PointFindings, Question, SweepRow};
use crate::ranges::collect_interval;

/// The sender's core while the receiving process is on `process`: another one, if there is one, and not the protocol's,
/// if there are three.
pub fn sender(cores: &[CoreId], process: CoreId, protocol: CoreId) -> CoreId {
    let others = || cores.iter().copied().filter(|&core| core != process);
    others().find(|&core| core != protocol).or(others().next()).unwrap_or(process)
}

/// One row for each point of the sweep, by receiver, size and core.
pub fn rows(points: &[PointFindings]) -> Vec<SweepRow> {
    let swept: Vec<&PointFindings> =
        points.iter().filter(|p| p.questions.contains(&Question::ProtocolCore) && !p.samples.is_empty()).collect();
    let mut rows: Vec<SweepRow> = swept
        .iter()
        .filter_map(|point| {
            let spec = &point.spec;
            let protocol_core = spec.protocol_core?;
            let on_protocol_core = swept.iter().find(|p| {
                p.spec.remote_core == protocol_core
                    && (p.spec.receiver, p.spec.size, p.spec.pattern) == (spec.receiver, spec.size, spec.pattern)
                    && p.spec.contender() == spec.contender()
            });
            let pair = on_protocol_core
                .filter(|base| base.key != point.key)
                .map(|base| Paired::performance(&point.samples, &base.samples, spec.pattern.metric()));
            Some(SweepRow {
                pattern: spec.pattern,
                size: spec.size,
                receiver: spec.receiver,
                core: spec.remote_core,
                protocol_core,
                value: point.value,
                gain: pair.as_ref().and_then(Paired::interval),
                standing: pair.as_ref().map(Paired::standing),
                softirqs_per_message: softirqs(&point.samples),
                softirq_share: shares(&point.samples),
                evidence: point.key.clone(),
            })
        })
        .collect();
    rows.sort_by_key(|r| (r.receiver, r.size, r.core));
    rows
}

/// The receiving process's best core: the core that does the protocol's work, or another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Together,
    Apart,
    /// Both perform the same.
    Either,
}

/// The decision by the standings of the other cores over the protocol's own; `best` is the best of them. `None` where
/// they cannot be distinguished. The order of the other cores does not matter.
pub fn side(best: Standing, all: &[Standing]) -> Option<Side> {
    use Standing::{Better, Equal, NotBetter, NotWorse, Worse};
    match best {
        Better => Some(Side::Apart),
        _ if all.iter().all(|standing| *standing == Equal) => Some(Side::Either),
        _ if all.iter().all(|standing| matches!(standing, Worse | Equal | NotBetter)) => Some(Side::Together),
        NotWorse | Equal => Some(Side::Apart),
        _ => None,
    }
}

/// Whether more rounds could still tell the protocol's own core from another.
pub fn is_open(points: &[(&PointSpec, &[Sample])]) -> bool {
    let of =
        |beside: bool| points.iter().filter(move |(spec, _)| (spec.protocol_core == Some(spec.remote_core)) == beside);
    let Some((spec, base)) = of(true).next() else { return false };
    let pairs: Vec<Paired> =
        of(false).map(|(_, samples)| Paired::performance(samples, base, spec.pattern.metric())).collect();
    let by = |pair: &Paired| median(&pair.ratios).unwrap_or(0.0);
    let standings: Vec<Standing> = pairs.iter().map(Paired::standing).collect();
    let best = (0..pairs.len()).max_by(|&a, &b| by(&pairs[a]).total_cmp(&by(&pairs[b])));
    best.is_some_and(|best| match side(standings[best], &standings) {
        None => true,
        Some(_) => {
            matches!(standings[best], Standing::NotWorse | Standing::NotBetter) && pairs[best].ratios.len() < SETTLED
        }
    })
}

fn softirqs(samples: &[Sample]) -> Reading<f64> {
    collect_interval(samples.iter().map(receive_softirqs_per_message)).map(|interval| interval.middle)
}

fn shares(samples: &[Sample]) -> Vec<(CoreId, f64)> {
    let mut times: BTreeMap<CoreId, u64> = BTreeMap::new();
    for core in samples.iter().filter_map(|s| s.accounting.as_ref()).flat_map(|a| &a.cores) {
        *times.entry(core.core).or_default() += softirq_time(core);
    }
    let total: u64 = times.values().sum();
    if total == 0 {
        return Vec::new();
    }
    times.into_iter().map(|(core, time)| (core, time as f64 / total as f64)).collect()
}
