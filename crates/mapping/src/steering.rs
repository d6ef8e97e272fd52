//! Steering of the network's interrupts to another core, while the ranks stay.

use std::collections::BTreeSet;

use machine::Result;
use whatif::answer::in_parallel;

use crate::problem::{ALIKE, Problem};

/// Softirqs of one host, moved to another of its cores.
#[derive(Debug, Clone, PartialEq)]
pub struct Steering {
    /// The host.
    pub host: u32,
    /// The spots that have the recorded softirqs.
    pub from: Vec<u32>,
    /// The spot that gets the softirqs.
    pub to: u32,
    /// By spot: the share of its time that softirqs take afterwards.
    pub softirqs: Vec<f64>,
}

/// Most candidate cores of a host.
const TRIED: usize = 3;

/// The best steering of each host that softirqs burden, and its time over the recorded one by `judge`. Hosts without a gain
/// are left out.
///
/// # Errors
/// The errors of the judge.
pub fn steerings(
    problem: &Problem,
    judge: impl Fn(&Steering) -> Result<f64> + Sync,
    least: f64,
) -> Result<Vec<(Steering, f64)>> {
    let mut found = Vec::new();
    for host in 0..problem.hosts.len() as u32 {
        let tried = tried(problem, host);
        let times = in_parallel(&tried, &judge)?;
        let best = tried.into_iter().zip(times).min_by(|a, b| a.1.total_cmp(&b.1));
        found.extend(best.filter(|(_, time)| *time < 1.0 - least));
    }
    Ok(found)
}

/// Candidate cores: those without a rank first, then those of the ranks with most slack.
fn tried(problem: &Problem, host: u32) -> Vec<Steering> {
    let of_host = || (0u32..).zip(&problem.spots).filter(|(_, spot)| spot.host == host);
    let burdened = of_host().filter(|(_, spot)| spot.softirq > ALIKE);
    let from: Vec<u32> = burdened.map(|(place, _)| place).collect();
    let all: f64 = from.iter().map(|place| problem.spots[*place as usize].softirq).sum();
    if from.is_empty() {
        return Vec::new();
    }
    let taken: BTreeSet<u32> = problem.seats.iter().copied().collect();
    let time = |place: u32| {
        let rank = problem.seats.iter().position(|seat| *seat == place);
        rank.map_or(0.0, |rank| problem.time(rank, place))
    };
    let mut to: Vec<u32> = of_host().map(|(place, _)| place).filter(|place| !from.contains(place)).collect();
    to.sort_by(|a, b| taken.contains(a).cmp(&taken.contains(b)).then(time(*a).total_cmp(&time(*b))));
    let steering = |to: u32| {
        let mut softirqs: Vec<f64> = problem.spots.iter().map(|spot| spot.softirq).collect();
        from.iter().for_each(|place| softirqs[*place as usize] = 0.0);
        softirqs[to as usize] += all;
        Steering { host, from: from.clone(), to, softirqs }
    };
    to.into_iter().take(TRIED).map(steering).collect()
}
