//! The distance between the two application cores while blocks ran.
//!
//! Distances differ by machine, so there is no fixed threshold. A machine that shows its topology says which caches two
//! cores share. Where cores move, as those of a virtual machine may, the probes around blocks show it: those of one
//! place are close together, those of another place a step away.

use std::collections::BTreeMap;

use machine::{CoreId, Probe};

use crate::statistics::median;

/// Distances within this factor count as equal: the steps between places that a virtual machine moves cores to are
/// larger, the spread within one place is smaller.
const AS_NEAR: f64 = 1.5;

/// A share of the probes of a pair of cores: a place has more than these, the step between two places fewer.
const FEW: f64 = 0.02;

/// Whether two probes found the cores equally near.
pub fn as_near(one: Probe, other: Probe) -> bool {
    let (one, other) = (one.half_round_trip_ps as f64, other.half_round_trip_ps as f64);
    one <= AS_NEAR * other && other <= AS_NEAR * one
}

/// Whether all of these probes found the cores equally near.
pub fn at_one_place(probes: impl IntoIterator<Item = Probe>) -> bool {
    let mut probes = probes.into_iter();
    let Some(first) = probes.next() else { return true };
    let (least, most) = probes.fold((first, first), |(least, most), probe| (least.min(probe), most.max(probe)));
    as_near(least, most)
}

/// The longest probe of the near place, where a pair's probes fall into two places or more; `None` where all are of one.
pub fn parted(probes: &[Probe]) -> Option<Probe> {
    let mut sorted: Vec<u64> = probes.iter().map(|probe| probe.half_round_trip_ps).collect();
    sorted.sort_unstable();
    let few = (FEW * sorted.len() as f64) as usize;
    let step = |at: usize| {
        let beyond = sorted.partition_point(|other| *other as f64 <= AS_NEAR * sorted[at] as f64);
        let (near, between, far) = (at + 1, beyond - at - 1, sorted.len() - beyond);
        (near > few.max(1) && far > few.max(1) && between <= few / 2).then_some((between, at))
    };
    let (_, at) = (0..sorted.len()).filter_map(step).min()?;
    Some(Probe { half_round_trip_ps: sorted[at] })
}

/// Probes of each pair of application cores.
type ByPair = BTreeMap<(CoreId, CoreId), Vec<Probe>>;

/// One sentence a pair of cores: `47 ns one way between cores 0 and 1 (median), near in 20 of 60`.
pub fn said(probes: impl IntoIterator<Item = ((CoreId, CoreId), Probe)>) -> Vec<String> {
    let mut pairs = ByPair::new();
    for (cores, probe) in probes {
        pairs.entry(cores).or_default().push(probe);
    }
    let sentence = |((one, other), probes): ((CoreId, CoreId), Vec<Probe>)| {
        let ns: Vec<f64> = probes.iter().map(|probe| probe.nanoseconds()).collect();
        let where_ = match parted(&probes) {
            Some(limit) => format!("near in {} of {}", probes.iter().filter(|p| **p <= limit).count(), probes.len()),
            None => format!("at one distance in all {}", probes.len()),
        };
        let middle = median(&ns)?;
        Some(format!("{middle:.0} ns one way between cores {} and {} (median), {where_}", one.0, other.0))
    };
    pairs.into_iter().filter_map(sentence).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probes(ns: impl IntoIterator<Item = u64>) -> Vec<Probe> {
        ns.into_iter().map(|ns| Probe { half_round_trip_ps: ns * 1000 }).collect()
    }

    /// The probes of a machine that is `factor` times as slow.
    fn scaled(probes: &[Probe], factor: u64) -> Vec<Probe> {
        probes.iter().map(|probe| Probe { half_round_trip_ps: probe.half_round_trip_ps * factor }).collect()
    }

    #[test]
    fn places_are_told_by_the_steps_between_probes_on_machines_of_any_speed() {
        let one = probes((0..200).map(|n| 40 + n % 17));
        let two = probes((0..200).map(|n| if n % 3 == 0 { 110 + n % 30 } else { 40 + n % 17 }));
        for factor in [1, 2, 5] {
            assert_eq!(parted(&scaled(&one, factor)), None, "{factor}");
            let limit = parted(&scaled(&two, factor)).unwrap().half_round_trip_ps;
            assert_eq!(limit, 56_000 * factor);
        }
    }

    #[test]
    fn a_few_probes_that_were_held_up_are_no_place() {
        let held_up = probes((0..300).map(|n| if n % 100 == 7 { 400 } else { 50 + n % 9 }));
        assert_eq!(parted(&held_up), None);
        assert_eq!(parted(&probes([50, 400])), None);
        assert_eq!(parted(&[]), None);
        // A few probes between two places do not join them.
        let between = probes((0..300).map(|n| if n == 5 { 70 } else { [45, 120][n as usize % 2] }));
        assert_eq!(parted(&between).unwrap().half_round_trip_ps, 45_000);
    }

    #[test]
    fn probes_are_as_near_within_a_factor() {
        let [a, b, c] = [40, 60, 61].map(|ns| Probe { half_round_trip_ps: ns * 1000 });
        assert!(as_near(a, b) && as_near(b, a) && !as_near(a, c));
    }
}
