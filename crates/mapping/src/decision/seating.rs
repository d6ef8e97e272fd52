//! Estimates of a job's time with its ranks on other cores, from the observation of one window.
//!
//! A rank that does not wait sets the pace (paper 002, section 6.1): its busy time is inverse to the capability of its core.
//! Partners on cores of unequal capability fall out of phase (section 6.2), which costs them at most their time in MPI, in
//! proportion to the difference.

use std::collections::HashMap;

use machine::{CoreId, CpuSet};

use super::observation::{Observation, RankSeen};

/// Least assumed capability of a core, so that ratios stay finite.
const LEAST_CAPABILITY: f64 = 0.01;
/// Exponent of a mean over ranks that follows the slowest rank, but falls when one of two equally slow ranks is relieved.
const TOWARDS_SLOWEST: i32 = 16;
/// Difference in capability below which the cores of partners match.
pub const MATCH: f64 = 0.1;

/// The estimates of one window for ranks on any seats.
pub struct Seating<'a> {
    seen: &'a Observation,
    capability: HashMap<(&'a str, CoreId), f64>,
    /// By place: the place of the rank's partner.
    partners: Vec<Option<usize>>,
}

impl<'a> Seating<'a> {
    pub fn of(seen: &'a Observation) -> Seating<'a> {
        let capability = seen.cores.iter().filter_map(|core| {
            Some(((core.host.as_str(), core.core), (1.0 - core.taken?).clamp(LEAST_CAPABILITY, 1.0)))
        });
        let places: HashMap<u32, usize> = seen.ranks.iter().enumerate().map(|(at, rank)| (rank.rank, at)).collect();
        let partner = |rank: &RankSeen| {
            let place = *places.get(&rank.partner?)?;
            (seen.ranks[place].host != rank.host).then_some(place)
        };
        Seating { seen, capability: capability.collect(), partners: seen.ranks.iter().map(partner).collect() }
    }

    /// The mean capability of a seat's cores; `None` where one of these is not known.
    pub fn capability(&self, host: &str, seat: &CpuSet) -> Option<f64> {
        let of = |core| self.capability.get(&(host, core)).copied();
        seat.iter().map(of).sum::<Option<f64>>().filter(|_| !seat.is_empty()).map(|sum| sum / seat.len() as f64)
    }

    /// The share of the window in which a rank would be busy. A rank of unknown waiting is taken not to wait. Blocked time
    /// is the same on any core.
    pub fn busy(&self, place: usize, seat: &CpuSet) -> Option<f64> {
        let rank = &self.seen.ranks[place];
        let busy = 1.0 - rank.wait.unwrap_or(0.0);
        match *seat == rank.cores {
            true => Some(busy),
            false => {
                let blocked = rank.blocked.unwrap_or(0.0).clamp(0.0, busy.max(0.0));
                let (from, to) = (self.capability(&rank.host, &rank.cores)?, self.capability(&rank.host, seat)?);
                Some(blocked + (busy - blocked) * from / to)
            }
        }
    }

    /// The difference in capability between the cores of a rank and of its partner.
    pub fn mismatch(&self, place: usize, seats: &[CpuSet]) -> Option<f64> {
        let partner = self.partners[place]?;
        let of = |place: usize| self.capability(&self.seen.ranks[place].host, &seats[place]);
        Some((of(place)? - of(partner)?).abs())
    }

    /// The job's time over that of the window, by the slowest rank.
    pub fn time(&self, seats: &[CpuSet]) -> Option<f64> {
        let slowest = (0..seats.len())
            .map(|place| self.busy(place, &seats[place]))
            .try_fold(0.0, |most: f64, busy| Some(most.max(busy?)))?;
        Some(slowest + self.out_of_phase(seats))
    }

    /// Like [`Seating::time`], but by a smooth mean over ranks, which a search can descend.
    pub fn potential(&self, seats: &[CpuSet]) -> Option<f64> {
        let powers = (0..seats.len()).map(|place| Some(self.busy(place, &seats[place])?.powi(TOWARDS_SLOWEST)));
        let mean = powers.sum::<Option<f64>>()? / seats.len().max(1) as f64;
        Some(mean.powf(1.0 / f64::from(TOWARDS_SLOWEST)) + self.out_of_phase(seats))
    }

    fn out_of_phase(&self, seats: &[CpuSet]) -> f64 {
        let cost = |place: usize| Some(self.mismatch(place, seats)? * self.seen.ranks[place].mpi?);
        (0..seats.len()).filter_map(cost).sum::<f64>() / seats.len().max(1) as f64
    }

    /// The share of the job's time that other seats would save.
    pub fn gain(&self, seats: &[CpuSet]) -> Option<f64> {
        let present: Vec<CpuSet> = self.seen.ranks.iter().map(|rank| rank.cores.clone()).collect();
        let before = self.time(&present).filter(|time| *time > 0.0)?;
        Some(1.0 - self.time(seats)? / before)
    }
}
