//! The state of the machine against that in which its costs were measured: how far its cores are apart, and who else runs.

use std::time::Duration;

use machine::costs::store::Known;
use machine::costs::{Interval, Item};
use machine::figure::nanoseconds;
use machine::{CoreId, Nanoseconds, Probe, Result, count};
use rounds::statistics::median;

/// Pairs of cores that are probed.
const PAIRS: usize = 8;

/// Probes of each pair for the state now, and time between reads of the running threads.
const PROBES: usize = 3;
const BETWEEN_READS: Duration = Duration::from_millis(1);

/// Reads of the running threads.
const READS: u32 = 10;

/// Threads of other programs that are no load.
const FEW: f64 = 0.3;

/// What was known when costs were measured, and what is now.
#[derive(Debug, Clone, PartialEq)]
pub struct MachineState {
    /// Time since the oldest and the newest of the measured costs; `None`: nothing is measured.
    age: Option<(Nanoseconds, Nanoseconds)>,
    /// One way of a cache line between two cores, ns.
    latency: Option<(Interval, f64)>,
    /// Threads of other programs that ran then and run now.
    others: Option<(f64, f64)>,
    cores: usize,
}

impl MachineState {
    /// Probes the cores, in some milliseconds.
    pub fn of(known: &Known) -> MachineState {
        let rows = known.costs.rows();
        let taken = || rows.iter().map(|row| row.taken).filter(|taken| taken.0 > 0);
        let now = machine::here::now();
        let ago = |taken: Nanoseconds| Nanoseconds(now.0.saturating_sub(taken.0));
        let then = rows.iter().find(|row| row.item == Item::Handover).and_then(|row| row.cost.value().copied());
        let others = others(BETWEEN_READS);
        // A probe beside others measures when they leave the cores.
        let is_calm = others.is_some_and(|others| others < FEW);
        let latency = then.filter(|_| is_calm).and_then(|then| Some((then, median(&latencies(PROBES).ok()?)?)));
        MachineState {
            age: taken().min().map(ago).zip(taken().max().map(ago)),
            latency,
            others: known.others.zip(others),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }

    /// The logarithm of the cores' latency over the nearer end of what was measured; 0 within it, and where it is not known.
    pub fn moved(&self) -> f64 {
        let Some((then, now)) = self.latency else { return 0.0 };
        (now / now.clamp(then.low, then.high)).ln()
    }

    /// The share of their cores' time that ranks would lose to the threads that run now, by fair shares.
    pub fn taken(&self) -> f64 {
        let now = self.others.map(|(_, now)| now).filter(|now| *now >= FEW);
        now.map_or(0.0, |now| now / (2.0 * self.cores as f64)).min(0.5)
    }

    /// How old the costs are; `None`: nothing is measured.
    pub fn age(&self) -> Option<String> {
        let (oldest, newest) = self.age?;
        let ago = |age: Nanoseconds| match age.0 / 1_000_000_000 {
            seconds if seconds < 2 * 3600 => count::of(seconds / 60, "minute"),
            seconds if seconds < 2 * 24 * 3600 => count::of(seconds / 3600, "hour"),
            seconds => count::of(seconds / (24 * 3600), "day"),
        };
        Some(match (ago(oldest), ago(newest)) {
            (oldest, newest) if oldest == newest => format!("{newest} ago"),
            (oldest, newest) => format!("{oldest} to {newest} ago"),
        })
    }

    /// What is otherwise than when the costs were measured; `None`: nothing that would show.
    pub fn changed(&self) -> Option<String> {
        let age = self.age()?;
        let mut changes = Vec::new();
        if let Some((then, now)) = self.latency.filter(|_| self.moved() != 0.0) {
            changes.push(format!("cores are {} apart, then {then}", nanoseconds(now)));
        }
        let differs = |(then, now): &(f64, f64)| f64::max(*then, *now) >= FEW && (now - then).abs() >= FEW;
        if let Some((then, now)) = self.others.filter(differs) {
            changes.push(format!("{now:.1} threads of other programs run, then {then:.1}"));
        }
        (!changes.is_empty()).then(|| {
            format!("The machine is not as it was when its costs were measured, {age}: {}", changes.join("; "))
        })
    }
}

/// Threads of other programs that run now, on average over ten reads; `None`: the kernel does not say.
pub fn others(between: Duration) -> Option<f64> {
    let running = || -> Option<f64> {
        let text = std::fs::read_to_string("/proc/loadavg").ok()?;
        let running: f64 = text.split_whitespace().nth(3)?.split('/').next()?.parse().ok()?;
        Some(running - 1.0)
    };
    let mut sum = 0.0;
    for _ in 0..READS {
        std::thread::sleep(between);
        sum += running()?;
    }
    Some(sum / f64::from(READS))
}

/// Whether other programs run enough to make what is measured wide.
pub fn is_loaded(others: Option<f64>) -> bool {
    others.is_some_and(|others| others >= FEW)
}

/// One way of a cache line between pairs of cores, ns; of a single core nothing.
///
/// # Errors
/// The allowed cores cannot be read.
pub fn latencies(probes: usize) -> Result<Vec<f64>> {
    let cores = linux::affinity::allowed()?;
    let Some((first, others)) = cores.split_first() else { return Ok(Vec::new()) };
    let step = others.len().div_ceil(PAIRS).max(1);
    let probe = |other: CoreId| ports::probe::between(*first, other).ok().map(Probe::nanoseconds);
    Ok(others.iter().step_by(step).flat_map(|other| (0..probes).filter_map(|_| probe(*other))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000_000_000;

    fn state(now: f64, others: Option<(f64, f64)>) -> MachineState {
        let latency = Some((Interval { low: 40.0, middle: 50.0, high: 60.0 }, now));
        MachineState { age: Some((Nanoseconds(97 * HOUR), Nanoseconds(4 * HOUR))), latency, others, cores: 2 }
    }

    #[test]
    fn what_lies_in_the_measured_interval_has_not_changed() {
        let same = state(58.0, Some((0.1, 0.2)));
        assert_eq!((same.moved(), same.taken(), same.changed()), (0.0, 0.0, None));
        assert_eq!(same.age().unwrap(), "4 days to 4 hours ago");
        assert_eq!(MachineState { age: None, ..state(120.0, None) }.changed(), None, "nothing is measured");
    }

    #[test]
    fn cores_farther_apart_and_other_work_are_named() {
        let moved = state(120.0, Some((0.0, 1.0)));
        assert!((moved.moved() - 2f64.ln()).abs() < 1e-12 && (moved.taken() - 0.25).abs() < 1e-12);
        let (now, then) = (nanoseconds(120.0), Interval { low: 40.0, middle: 50.0, high: 60.0 });
        let heading = "The machine is not as it was when its costs were measured, 4 days to 4 hours ago";
        let others = "1.0 threads of other programs run, then 0.0";
        assert_eq!(moved.changed().unwrap(), format!("{heading}: cores are {now} apart, then {then}; {others}"));
        assert!((state(20.0, None).moved() + 2f64.ln()).abs() < 1e-12, "nearer cores are another state too");
        let measured_beside_others = state(50.0, Some((2.0, 0.0)));
        assert!(measured_beside_others.changed().unwrap().ends_with("0.0 threads of other programs run, then 2.0"));
    }
}
