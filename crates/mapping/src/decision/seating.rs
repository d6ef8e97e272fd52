//! Estimates of a job's time with its ranks on other cores, from the observation of one window.
//!
//! A rank that does not wait sets the pace (paper 002, section 6.1): its busy time is inverse to the capability of its core.
//! Partners on cores of unequal capability fall out of phase (section 6.2), which costs them at most their time in MPI, in
//! proportion to the difference.
//!
//! Others also hold the job up. Where a process shares a rank's core, the rank is kept from it for a stretch of time (the
//! scheduler's slice) and not for a share of each moment; what the stretch is longer than the rank's slack, all ranks wait.
//! A rank that spins while it waits meets a stretch at any time; one that gives its core away (`sched_yield`, a wait in
//! the kernel) meets a whole one in each wait. A rank that hardly enters the kernel does not give way; whether another does is
//! not seen, so both outlooks are estimated.

use std::collections::HashMap;

use machine::{CoreId, CpuSet};

use super::observation::{CoreSeen, Observation, RankSeen};

/// Least assumed capability of a core, so that ratios stay finite.
const LEAST_CAPABILITY: f64 = 0.01;
/// Exponent of a mean over ranks that follows the slowest rank, but falls when one of two equally slow ranks is relieved.
const TOWARDS_SLOWEST: i32 = 16;
/// Difference in capability below which the cores of partners match.
pub const MATCH: f64 = 0.1;

/// Share of a core that others must take to hold ranks up.
const LEAST_TAKEN: f64 = 0.05;
/// Share of slack below which a rank does not wait.
const LEAST_SLACK: f64 = 0.01;

/// Share of a rank's processor time in the kernel below which it makes no system call in each look for a message.
const LEAST_SYSTEM: f64 = 0.05;

/// What ranks do with their core while they wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// All spin, the better case.
    Keeps,
    /// Those that may let others run do, the worse case.
    GivesWay,
}

/// The estimates of one window for ranks on any seats.
pub struct Seating<'a> {
    seen: &'a Observation,
    cores: HashMap<(&'a str, CoreId), &'a CoreSeen>,
    /// Waits a second of the rank that waits most: the rhythm of the job.
    waits: Option<f64>,
    waiting: Waiting,
    /// By place: the place of the rank's partner.
    partners: Vec<Option<usize>>,
}

impl<'a> Seating<'a> {
    pub fn of(seen: &'a Observation, waiting: Waiting) -> Seating<'a> {
        let cores = seen.cores.iter().map(|core| ((core.host.as_str(), core.core), core)).collect();
        let places: HashMap<u32, usize> = seen.ranks.iter().enumerate().map(|(at, rank)| (rank.rank, at)).collect();
        let partner = |rank: &RankSeen| {
            let place = *places.get(&rank.partner?)?;
            (seen.ranks[place].host != rank.host).then_some(place)
        };
        let waits = seen.ranks.iter().filter_map(|rank| Some((rank.wait?, rank.pause.filter(|pause| *pause > 0.0)?)));
        let waits = waits.max_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(wait, pause)| wait / pause);
        Seating { seen, cores, waits, waiting, partners: seen.ranks.iter().map(partner).collect() }
    }

    /// The mean over a seat's cores; `None` where it is not known of one of these.
    fn mean(&self, host: &str, seat: &CpuSet, of: impl Fn(&CoreSeen) -> Option<f64>) -> Option<f64> {
        let sum = seat.iter().map(|core| of(self.cores.get(&(host, core))?)).sum::<Option<f64>>();
        sum.filter(|_| !seat.is_empty()).map(|sum| sum / seat.len() as f64)
    }

    /// The mean capability of a seat's cores; `None` where one of these is not known.
    pub fn capability(&self, host: &str, seat: &CpuSet) -> Option<f64> {
        self.mean(host, seat, |core| Some((1.0 - core.taken?).clamp(LEAST_CAPABILITY, 1.0)))
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

    /// The busy share of a rank if its core were its own, as far as the core is known.
    fn alone(&self, place: usize) -> f64 {
        let rank = &self.seen.ranks[place];
        let busy = (1.0 - rank.wait.unwrap_or(0.0)).max(0.0);
        let blocked = rank.blocked.unwrap_or(0.0).clamp(0.0, busy);
        blocked + (busy - blocked) * self.capability(&rank.host, &rank.cores).unwrap_or(1.0)
    }

    /// The factor by which others on a rank's core hold the job up. `slack` and `step` are shares of the window: what the rank
    /// would wait without them, and what the job would take if each core were its rank's own.
    fn delay(&self, place: usize, seat: &CpuSet, taken: f64, slack: f64, step: f64) -> Option<f64> {
        let rank = &self.seen.ranks[place];
        // A rank that stays is seen as it is.
        let may_give_way = rank.system.is_none_or(|system| system >= LEAST_SYSTEM) && slack > LEAST_SLACK;
        let gives_way = may_give_way && self.waiting == Waiting::GivesWay && *seat != rank.cores;
        let known = self.mean(&rank.host, seat, |core| core.stretch).zip(self.waits.filter(|waits| *waits > 0.0));
        let Some((stretch, waits)) = known else { return (!gives_way).then_some(1.0 / (1.0 - taken)) };
        let late = (stretch - slack / waits).max(0.0);
        if late == 0.0 {
            return Some(1.0);
        }
        let kept = 1.0 / (1.0 - taken * late / stretch);
        // Others that take half of a core from a rank that spins want it all the time.
        let (there, step) = ((2.0 * taken).min(1.0), step / waits);
        let given = 1.0 / (1.0 - there + there * step / (step + late));
        Some(if gives_way { kept.max(given) } else { kept })
    }

    /// The time if each core were its rank's own, and by place the factors of [`Seating::delay`].
    fn delays(&self, busy: &[f64], seats: &[CpuSet]) -> Option<(f64, Vec<f64>)> {
        let alone: Vec<f64> = (0..seats.len()).map(|place| self.alone(place)).collect();
        let step = alone.iter().copied().fold(0.0, f64::max);
        let delay = |place: usize| {
            let taken = 1.0 - self.capability(&self.seen.ranks[place].host, &seats[place]).unwrap_or(1.0);
            if taken < LEAST_TAKEN {
                return Some(1.0);
            }
            let others = busy.iter().enumerate().filter(|(other, _)| *other != place);
            let slowest = others.map(|(_, busy)| *busy).fold(0.0, f64::max);
            self.delay(place, &seats[place], taken, (slowest - alone[place]).max(0.0), step)
        };
        Some((step, (0..seats.len()).map(delay).collect::<Option<_>>()?))
    }

    /// The rank that others hold up most.
    pub fn most_delayed(&self, seats: &[CpuSet]) -> Option<usize> {
        let (_, delays) = self.delays(&self.all_busy(seats)?, seats)?;
        let delayed = delays.iter().enumerate().filter(|(_, delay)| **delay > 1.0);
        delayed.max_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(place, _)| place)
    }

    fn all_busy(&self, seats: &[CpuSet]) -> Option<Vec<f64>> {
        seats.iter().enumerate().map(|(place, seat)| self.busy(place, seat)).collect()
    }

    /// The job's time over that of the window, by the slowest rank.
    pub fn time(&self, seats: &[CpuSet]) -> Option<f64> {
        self.whole(seats, |busy| busy.iter().copied().fold(0.0, f64::max))
    }

    /// Like [`Seating::time`], but by a smooth mean over ranks, which a search can descend.
    pub fn potential(&self, seats: &[CpuSet]) -> Option<f64> {
        self.whole(seats, |busy| {
            let powers: f64 = busy.iter().map(|busy| busy.powi(TOWARDS_SLOWEST)).sum();
            (powers / busy.len().max(1) as f64).powf(1.0 / f64::from(TOWARDS_SLOWEST))
        })
    }

    fn whole(&self, seats: &[CpuSet], pace: impl Fn(&[f64]) -> f64) -> Option<f64> {
        let busy = self.all_busy(seats)?;
        let (step, delays) = self.delays(&busy, seats)?;
        let delayed = step * delays.into_iter().fold(1.0, f64::max);
        Some(pace(&busy).max(delayed) + self.out_of_phase(seats))
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
