//! The effective clocks of cores around blocks: a core that was throttled or boosted in between is not comparable.

use std::collections::BTreeMap;

use machine::{CoreId, Hertz, Reading};
use serde::{Deserialize, Serialize};

/// Clocks within this factor count as equal: probes of a steady core differ by less, and the steps of processors'
/// clocks (100 MHz, 25 MHz on some) mostly by more.
const STEADY: f64 = 0.03;

/// Effective clocks of some cores at one moment, without those of cores that could not be probed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Clocks(Vec<(CoreId, Hertz)>);

impl Clocks {
    /// The clocks of these probes, one a core.
    pub fn of(probes: impl IntoIterator<Item = (CoreId, Reading<Hertz>)>) -> Clocks {
        let mut clocks: Vec<_> = probes.into_iter().filter_map(|(core, clock)| Some((core, *clock.value()?))).collect();
        clocks.sort_unstable();
        clocks.dedup_by_key(|(core, _)| *core);
        Clocks(clocks)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn core(&self, core: CoreId) -> Option<Hertz> {
        self.0.iter().find(|(of, _)| *of == core).map(|(_, clock)| *clock)
    }

    pub fn iter(&self) -> impl Iterator<Item = (CoreId, Hertz)> {
        self.0.iter().copied()
    }
}

/// Whether two clocks are equal within the precision of a probe.
pub fn as_fast(one: Hertz, other: Hertz) -> bool {
    one.0.max(other.0) as f64 <= (1.0 + STEADY) * one.0.min(other.0) as f64
}

/// The slowest and the fastest clock of each core.
fn ranges<'a>(all: impl IntoIterator<Item = &'a Clocks>) -> BTreeMap<CoreId, (Hertz, Hertz)> {
    let mut ranges = BTreeMap::new();
    for (core, clock) in all.into_iter().flat_map(Clocks::iter) {
        let range = ranges.entry(core).or_insert((clock, clock));
        *range = (clock.min(range.0), clock.max(range.1));
    }
    ranges
}

/// Whether every core had one clock in all of its probes. Two blocks are comparable where this holds for the probes of both.
pub fn at_one_clock<'a>(all: impl IntoIterator<Item = &'a Clocks>) -> bool {
    ranges(all).values().all(|(slow, fast)| as_fast(*slow, *fast))
}

/// One sentence a core: `effective clock of core 0: 2.45 GHz in all 60 probes`, or between which clocks it changed.
pub fn said<'a>(all: impl IntoIterator<Item = &'a Clocks>) -> Vec<String> {
    let mut cores: BTreeMap<CoreId, Vec<u64>> = BTreeMap::new();
    for (core, clock) in all.into_iter().flat_map(Clocks::iter) {
        cores.entry(core).or_default().push(clock.0);
    }
    let sentence = |(CoreId(core), mut clocks): (CoreId, Vec<u64>)| {
        clocks.sort_unstable();
        let (slow, middle, fast) = (clocks[0], clocks[clocks.len() / 2], clocks[clocks.len() - 1]);
        let other = clocks.iter().filter(|clock| !as_fast(Hertz(**clock), Hertz(middle))).count();
        let probes = machine::count::of(clocks.len() as u64, "probe");
        match other {
            0 => format!("effective clock of core {core}: {} in {probes}", Hertz(middle)),
            other => format!(
                "effective clock of core {core} changed: {} mostly, {} to {} in {other} of {probes}",
                Hertz(middle),
                Hertz(slow),
                Hertz(fast)
            ),
        }
    };
    cores.into_iter().map(sentence).collect()
}

/// The sentences of [`said`] about changes.
pub fn changes<'a>(all: impl IntoIterator<Item = &'a Clocks>) -> Vec<String> {
    said(all).into_iter().filter(|said| said.contains(" changed: ")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clocks(mhz: [u64; 2]) -> Clocks {
        let of = |(core, mhz): (u32, u64)| (CoreId(core), Reading::Measured(Hertz(mhz * 1_000_000)));
        Clocks::of([(CoreId(7), Reading::absent("none"))].into_iter().chain((0..).zip(mhz).map(of)))
    }

    #[test]
    fn a_core_that_changed_its_clock_is_told_from_noise_whichever_it_is() {
        let (usual, noise) = (clocks([3000, 2000]), clocks([2930, 2050]));
        let (throttled, boosted) = (clocks([3000, 1900]), clocks([3200, 2000]));
        assert!(at_one_clock([&usual, &noise]) && at_one_clock([&usual]) && at_one_clock([]));
        assert!(!at_one_clock([&usual, &throttled]) && !at_one_clock([&usual, &boosted, &noise]));
        // Cores that were not probed do not count.
        assert!(at_one_clock([&usual, &Clocks::default()]));
        assert_eq!(usual.core(CoreId(1)), Some(Hertz(2_000_000_000)));
        assert_eq!(usual.core(CoreId(7)), None);
    }

    #[test]
    fn each_core_gets_its_sentence() {
        let all = [clocks([3000, 2000]), clocks([3001, 2000]), clocks([2999, 1400])];
        let said = said(&all);
        assert_eq!(said[0], "effective clock of core 0: 3 GHz in 3 probes");
        assert!(said[1].starts_with("effective clock of core 1 changed: 2 GHz mostly, 1.4 GHz to 2 GHz in 1 of 3"));
        assert_eq!(changes(&all), said[1..]);
    }

    #[test]
    fn what_is_stored_is_read_back() {
        let of = clocks([3000, 2000]);
        let stored = serde_json::to_string(&of).unwrap();
        assert_eq!(stored, "[[0,3000000000],[1,2000000000]]");
        assert_eq!(serde_json::from_str::<Clocks>(&stored).unwrap(), of);
    }
}
