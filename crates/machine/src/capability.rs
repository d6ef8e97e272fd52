//! The share of a core that ranks can have.
//!
//! Other work always takes part of a core: network receive work, threads of file systems, a busy sibling, a lower clock
//! (paper 002, section 3: 'effective capability').

mod map;
mod time;

use serde::{Deserialize, Serialize};

use crate::reading::Reading;
use crate::site::CoreId;

pub use map::{CapabilityMap, SilentHost};
pub use time::{CoreTime, sibling};

/// The parts of a core that ranks cannot have.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CoreCapability {
    /// The host's name.
    pub host: String,
    /// The core's number on its host.
    pub core: CoreId,
    /// Share of the time in which the core did other work than the job's, interruptions of ranks included. A
    /// busy-waiting rank is the job's own work.
    pub taken: Reading<f64>,
    /// The part of `taken` that is network softirqs; softirqs of all kinds where modelled from the kernel's ticks.
    pub softirq: Reading<f64>,
    /// Clock of the core over that of the fastest core of all hosts.
    pub clock: Reading<f64>,
    /// Share of the time in which another thread of the core (SMT) was busy, the job's ranks included; 0 without SMT.
    pub sibling: Reading<f64>,
}

/// Least speed of a thread whose sibling is busy, over its speed alone.
const BESIDE_SIBLING: f64 = 0.5;

impl CoreCapability {
    /// Lowest and highest share of the core that ranks can have: `(1 - taken) x clock`, less what a busy sibling may
    /// take. Unknown parts widen the range, but an unknown clock counts as full.
    pub fn range(&self) -> (f64, f64) {
        let clock = self.clock.value().copied().unwrap_or(1.0);
        let free = |taken: f64| (1.0 - taken).clamp(0.0, 1.0) * clock;
        let (low, high) = self.taken.value().map_or((0.0, clock), |taken| (free(*taken), free(*taken)));
        let beside = self.sibling.value().copied().unwrap_or(1.0).clamp(0.0, 1.0);
        (low * (1.0 - beside * (1.0 - BESIDE_SIBLING)), high)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::quantity::Hertz;

    fn core(host: &str, core: u32, taken: Reading<f64>) -> CoreCapability {
        let (softirq, sibling) = (Reading::not_permitted("not you", "be root"), Reading::Measured(0.0));
        CoreCapability { host: host.into(), core: CoreId(core), taken, softirq, clock: Reading::Measured(1.0), sibling }
    }

    #[test]
    fn what_is_not_known_widens_the_range() {
        let known = core("h", 0, Reading::Measured(0.25));
        assert_eq!(known.range(), (0.75, 0.75));
        assert_eq!(CoreCapability { clock: Reading::Measured(0.5), ..known.clone() }.range(), (0.375, 0.375));
        assert_eq!(CoreCapability { clock: Reading::absent("?"), ..known.clone() }.range(), (0.75, 0.75));
        assert_eq!(CoreCapability { sibling: Reading::Measured(1.0), ..known.clone() }.range(), (0.375, 0.75));
        assert_eq!(CoreCapability { sibling: Reading::absent("?"), ..known }.range(), (0.375, 0.75));
        assert_eq!(core("h", 0, Reading::absent("?")).range(), (0.0, 1.0));
    }

    #[test]
    fn clocks_of_several_hosts_are_over_the_fastest_core_of_all() {
        let clock = |hertz| Reading::Measured(Hertz(hertz));
        let of = |host, clocks: [Reading<Hertz>; 2]| {
            let cores = clocks.into_iter().zip(0..);
            CapabilityMap::of(cores.map(|(clock, nth)| (core(host, nth, Reading::Measured(0.0)), clock)))
        };
        let fast = of("a", [clock(4_000_000_000), clock(2_000_000_000)]);
        assert_eq!(fast.cores[1].clock, Reading::Measured(0.5));
        let slow = of("b", [clock(1_000_000_000), Reading::absent("off")]);
        assert_eq!((&slow.cores[0].clock, &slow.fastest), (&Reading::Measured(1.0), &clock(1_000_000_000)));
        let none = of("c", [Reading::absent("off"), Reading::absent("off")]);
        let silent = SilentHost { host: "d".into(), reason: "it does not answer".into() };
        let all = CapabilityMap::join([slow, fast, CapabilityMap { silent: vec![silent.clone()], ..none }]);
        let clocks: Vec<_> = all.cores.iter().map(|core| core.clock.value().copied()).collect();
        assert_eq!(clocks, [Some(0.25), None, Some(1.0), Some(0.5), None, None]);
        assert_eq!((&all.fastest, &all.silent[..]), (&clock(4_000_000_000), &[silent][..]));
        let text = serde_json::to_string(&all).unwrap();
        assert_eq!(serde_json::from_str::<CapabilityMap>(&text).unwrap(), all);
        assert!(text.contains(r#""taken":{"measured":0.0}"#) && text.contains("not_permitted"), "{text}");
    }

    #[test]
    fn several_siblings_are_busy_as_one_of_them_is() {
        assert_eq!(sibling([]), Reading::Measured(0.0));
        assert_eq!(sibling([0.25]), Reading::Measured(0.25));
        assert_eq!(sibling([0.5, 0.5, 1.5]), Reading::Modelled(1.0));
    }

    proptest! {
        #[test]
        fn ranges_are_shares_and_other_work_raises_none(
            taken in 0.0f64..=1.0, more in 0.0f64..=1.0, clock in 0.01f64..=1.0, beside in 0.0f64..=1.0,
        ) {
            let range = |taken, beside| CoreCapability {
                clock: Reading::Measured(clock),
                sibling: Reading::Measured(beside),
                ..core("h", 0, Reading::Measured(taken))
            }.range();
            let (low, high) = range(taken, beside);
            prop_assert!(0.0 <= low && low <= high && high <= 1.0);
            for (less_low, less_high) in [range((taken + more).min(1.0), beside), range(taken, (beside + more).min(1.0))] {
                prop_assert!(less_low <= low && less_high <= high);
            }
        }

        #[test]
        fn what_is_taken_is_a_share_that_the_own_time_lowers(
            busy in -0.5f64..1.5, own in 0.0f64..1.5, interrupted in -0.5f64..1.5, more in 0.0f64..1.0,
        ) {
            let taken = |busy, own| {
                let time = CoreTime { busy, own, interrupted: Reading::Measured(interrupted) };
                *time.taken().value().unwrap()
            };
            let base = taken(busy, own);
            prop_assert!((0.0..=1.0).contains(&base));
            prop_assert!(taken(busy + more, own) >= base && taken(busy, own + more) <= base + 1e-12);
        }
    }
}
