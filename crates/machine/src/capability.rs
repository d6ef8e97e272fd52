//! Which share of a core ranks can have.
//!
//! Something always takes part of a core: receive work of the network, file systems' threads, a busy sibling, a lower clock
//! (paper 002, section 3: 'effective capability').

use serde::{Deserialize, Serialize};

use crate::quantity::Hertz;
use crate::reading::Reading;
use crate::site::CoreId;

/// What of one core ranks cannot have, over the time that it was looked at.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CoreCapability {
    /// The host, by its name.
    pub host: String,
    /// The core.
    pub core: CoreId,
    /// Share of the time that it was busy with other than the job's ranks, 0 to 1. A rank that busy-waits has its core: that is the
    /// job's own. What interrupts a rank is not.
    pub taken: Reading<f64>,
    /// Of `taken`: softirqs of the network. Modelled where only the kernel's ticks tell them: then of all kinds.
    pub softirq: Reading<f64>,
    /// Its clock over that of the fastest core of all hosts.
    pub clock: Reading<f64>,
    /// Share of the time that another thread of the same core (SMT) was busy, with ranks of the job too; 0 where it has none.
    pub sibling: Reading<f64>,
}

/// What a thread computes at least while its sibling is busy, over what it computes alone.
const BESIDE_SIBLING: f64 = 0.5;

impl CoreCapability {
    /// What ranks can have of the core, from and to: `(1 - taken) x clock`, less what a busy sibling may take. What is not known widens
    /// it, except for the clock, which is taken for full.
    pub fn range(&self) -> (f64, f64) {
        let clock = self.clock.value().copied().unwrap_or(1.0);
        let free = |taken: f64| (1.0 - taken).clamp(0.0, 1.0) * clock;
        let (low, high) = self.taken.value().map_or((0.0, clock), |taken| (free(*taken), free(*taken)));
        let beside = self.sibling.value().copied().unwrap_or(1.0).clamp(0.0, 1.0);
        (low * (1.0 - beside * (1.0 - BESIDE_SIBLING)), high)
    }
}

/// How the time of one core passed, as shares of it.
#[derive(Debug, Clone, PartialEq)]
pub struct CoreTime {
    /// It was not idle; what a hypervisor gave to others counts.
    pub busy: f64,
    /// The job's threads had it, by the kernel's account of these threads.
    pub own: f64,
    /// What comes on top of whatever thread is there and is in the kernel's account of that thread: softirqs, except on kernels that
    /// account interrupts apart, and what a hypervisor took.
    pub interrupted: Reading<f64>,
}

impl CoreTime {
    /// [`CoreCapability::taken`]. What the account of the job's threads has and the job did not is taken to strike the job as often as
    /// the job had the core.
    pub fn taken(&self) -> Reading<f64> {
        let own = self.own.clamp(0.0, 1.0);
        let beside = (self.busy - own).clamp(0.0, 1.0);
        let interrupted = self.interrupted.value().copied().unwrap_or(0.0).clamp(0.0, 1.0);
        let taken = (beside + interrupted * own).max(interrupted).min(1.0);
        match self.interrupted {
            Reading::Measured(0.0) => Reading::Measured(taken),
            _ if own == 0.0 => Reading::Measured(taken),
            _ => Reading::Modelled(taken),
        }
    }
}

/// Of one core with several siblings: the share of the time that one of them at least was busy, as if each were by itself.
pub fn sibling(busy: impl IntoIterator<Item = f64>) -> Reading<f64> {
    let all: Vec<f64> = busy.into_iter().map(|busy| busy.clamp(0.0, 1.0)).collect();
    match all[..] {
        [] => Reading::Measured(0.0),
        [one] => Reading::Measured(one),
        _ => Reading::Modelled(1.0 - all.iter().map(|busy| 1.0 - busy).product::<f64>()),
    }
}

/// The cores of a host, or of several.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CapabilityMap {
    /// The cores, by host and number.
    pub cores: Vec<CoreCapability>,
    /// Clock of the fastest core.
    pub fastest: Reading<Hertz>,
    /// Hosts that were asked and gave no answer.
    pub silent: Vec<SilentHost>,
}

/// A host that gave no answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SilentHost {
    /// The host, by its name.
    pub host: String,
    /// Why it gave none.
    pub reason: String,
}

impl CapabilityMap {
    /// Cores with their clocks, where these are known, as a map.
    pub fn of(cores: impl IntoIterator<Item = (CoreCapability, Reading<Hertz>)>) -> CapabilityMap {
        let cores: Vec<_> = cores.into_iter().collect();
        let fastest = cores.iter().filter_map(|(_, clock)| clock.value()).max().copied();
        let over = |clock: Hertz| clock.0 as f64 / fastest.map_or(1.0, |fastest| fastest.0.max(1) as f64);
        let cores = cores.into_iter().map(|(core, clock)| CoreCapability { clock: clock.map(over), ..core }).collect();
        let fastest = fastest.map_or_else(|| Reading::absent("the clock of no core is known"), Reading::Measured);
        CapabilityMap { cores, fastest, silent: Vec::new() }
    }

    /// The maps of several hosts as one, whose clocks are over the fastest core of all.
    pub fn join(maps: impl IntoIterator<Item = CapabilityMap>) -> CapabilityMap {
        let (mut cores, mut silent) = (Vec::new(), Vec::new());
        for map in maps {
            let fastest = map.fastest;
            cores.extend(map.cores.into_iter().map(|core| {
                let clock = match fastest.value() {
                    Some(fastest) => core.clock.clone().map(|share| Hertz((share * fastest.0 as f64).round() as u64)),
                    None => Reading::absent("its clock is not known"),
                };
                (core, clock)
            }));
            silent.extend(map.silent);
        }
        CapabilityMap { silent, ..CapabilityMap::of(cores) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
