//! Paper 002 §5.1: the receiving process on each core in turn, receive processing pinned to one of them.

use std::collections::BTreeMap;

use machine::{CoreId, Reading};

use crate::comparison::Paired;
use crate::cost::{receive_softirqs_per_message, softirq_time};
use crate::findings::{PointFindings, Question, SweepRow};
use crate::ranges::collect_interval;
use crate::sample::Sample;

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
            let gain = on_protocol_core
                .filter(|base| base.key != point.key)
                .and_then(|base| Paired::performance(&point.samples, &base.samples, spec.pattern.metric()).interval);
            Some(SweepRow {
                pattern: spec.pattern,
                size: spec.size,
                receiver: spec.receiver,
                core: spec.remote_core,
                protocol_core,
                value: point.value,
                gain,
                softirqs_per_message: softirqs(&point.samples),
                softirq_share: shares(&point.samples),
                evidence: point.key.clone(),
            })
        })
        .collect();
    rows.sort_by_key(|r| (r.receiver, r.size, r.core));
    rows
}

fn softirqs(samples: &[Sample]) -> Reading<f64> {
    collect_interval(samples.iter().map(receive_softirqs_per_message)).map(|interval| interval.median)
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
