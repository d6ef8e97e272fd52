//! Distance between the application cores of a study while its blocks ran.

use std::collections::BTreeMap;

use machine::choice::Distance;
use machine::{CoreId, Probe};
use rounds::nearness::parted;
use rounds::statistics::median_interval;

use crate::findings::{Nearness, PointFindings};

/// Probes of each pair of application cores.
type ByPair = BTreeMap<(CoreId, CoreId), Vec<Probe>>;

fn by_pair(points: &[PointFindings]) -> ByPair {
    let mut pairs = ByPair::new();
    for point in points {
        let probes = point.samples.iter().filter_map(|sample| sample.probe);
        pairs.entry((point.spec.local_core, point.spec.remote_core)).or_default().extend(probes);
    }
    pairs
}

/// Of the pair that most blocks ran on: where its probes part, for a chart.
pub fn parted_at(points: &[PointFindings]) -> Option<Probe> {
    parted(by_pair(points).values().max_by_key(|probes| probes.len())?)
}

/// What the probes beside `points` say. `distance` is what the topology says of the two application cores, where it can
/// be believed.
pub fn of(points: &[PointFindings], distance: Option<Distance>) -> Option<Nearness> {
    let pairs = by_pair(points);
    let most = pairs.values().max_by_key(|probes| probes.len())?;
    let one_way: Vec<f64> = most.iter().map(|probe| probe.nanoseconds()).collect();
    let one_way_ns = median_interval(&one_way)?;
    let moved: Vec<(&Vec<Probe>, Probe)> =
        pairs.values().filter_map(|probes| Some((probes, parted(probes)?))).collect();
    let all: usize = moved.iter().map(|(probes, _)| probes.len()).sum();
    let near: usize = moved.iter().map(|(probes, limit)| probes.iter().filter(|probe| *probe <= limit).count()).sum();
    let (near_share, note) = match distance {
        _ if all > 0 => (Some(near as f64 / all as f64), "flipped between near and far"),
        Some(distance) if distance < Distance::Node => (Some(1.0), "near throughout"),
        Some(_) => (Some(0.0), "far throughout"),
        None => (None, "one distance throughout"),
    };
    Some(Nearness { one_way_ns, near_share, note: note.into() })
}
