//! The facts about a job and its cores that a mapping depends on, and the estimated time of a mapping.
//!
//! The rules of paper 002 (sections 6.1 and 6.2) as formulas, in shares of the recorded run:
//! ```text
//! dilation(core)  = 1 / (free x (1 - softirqs))          how much longer computing takes there than on a core of its own
//! time(rank)      = fixed + computing x dilation(its core)
//! slowest         = max over ranks of time               (a) a rank with slack belongs on a burdened core
//! unequal         = sum over pairs on two hosts with large messages of share of bytes x |difference of dilations|      (b)
//! far             = sum over pairs on one host of share of bytes x distance of their cores                             (c)
//! apart           = sum over pairs on two hosts of share of bytes                                                      (d)
//! ```
//! The estimate proposes mappings, which a replay then judges ([`crate::search`]).

use machine::CoreId;

/// Difference in dilation below which cores of a host are of one class.
pub const ALIKE: f64 = 0.02;

/// Least mean bytes of messages that tie the pace of two hosts' ranks to each other (paper 002 has 256 KiB).
pub const LARGE: f64 = 65_536.0;

/// The least share of a core that a rank gets: the scheduler runs the rank even where other work takes all of the core.
pub const LEAST: f64 = 0.01;

/// A core where a rank can be.
#[derive(Debug, Clone, PartialEq)]
pub struct Spot {
    /// Its host, by number.
    pub host: u32,
    /// The core there.
    pub core: CoreId,
    /// Share of its time that softirqs of the network take.
    pub softirq: f64,
    /// Share that other work than ranks and softirqs leaves, times its clock over that of the fastest core.
    pub free: f64,
    /// Whether it is in another package than the cores that do most of its host's softirqs.
    pub far: bool,
}

impl Spot {
    /// Time of computing here over that on a core of its own at full clock.
    pub fn dilation(&self) -> f64 {
        1.0 / (self.free * (1.0 - self.softirq)).max(LEAST)
    }
}

/// A rank's work, in shares of the recorded run.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Load {
    /// Computing, as it would be on a core of its own.
    pub computing: f64,
    /// All else but waiting.
    pub fixed: f64,
}

/// The messages between two ranks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Talk {
    /// The lower rank.
    pub one: u32,
    /// The higher rank.
    pub other: u32,
    /// Share of the bytes of all pairs.
    pub share: f64,
    /// Mean bytes of a message.
    pub mean: f64,
}

/// A job and its cores, for which a mapping is searched.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Problem {
    /// Names of the hosts.
    pub hosts: Vec<String>,
    /// Cores where ranks can be.
    pub spots: Vec<Spot>,
    /// By rank: its work.
    pub ranks: Vec<Load>,
    /// By rank: the share of its time outside MPI in which it was blocked or stopped, on any core alike. Empty: 0 for all.
    pub blocked: Vec<f64>,
    /// Pairs of ranks that send to each other.
    pub talks: Vec<Talk>,
    /// By rank: the place of its recorded spot in `spots`, each taken once.
    pub seats: Vec<u32>,
    /// Distance of two spots of a host, by the place of one times the number of spots plus that of the other: 0 the same core,
    /// 1 the farthest. Empty: not known.
    pub distances: Vec<f32>,
    /// Whether ranks may change their hosts.
    pub across: bool,
    /// Whether the softirqs of all spots are known.
    pub sampled: bool,
}

/// The time and distances of a mapping, by the formulas of this module.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Estimate {
    /// Time of the slowest rank.
    pub slowest: f64,
    /// Mean time of the ranks.
    pub mean: f64,
    /// Unequal capability of partners on two hosts.
    pub unequal: f64,
    /// Distance of partners on one host.
    pub far: f64,
}

/// The weights of a search for the parts of an [`Estimate`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Aim {
    /// The weight of `mean`.
    pub mean: f64,
    /// The weight of `unequal`.
    pub unequal: f64,
    /// The weight of [`Problem::apart`].
    pub apart: f64,
}

impl Problem {
    /// A spot by its place.
    pub fn spot(&self, place: u32) -> &Spot {
        &self.spots[place as usize]
    }

    /// The work of a rank outside MPI in a time at the spot `to` over that at `from`: the cores' ratio, less the time
    /// in which it was blocked.
    pub fn faster(&self, rank: usize, from: u32, to: u32) -> f64 {
        let capability = self.spot(to).free / self.spot(from).free;
        match self.blocked.get(rank) {
            Some(blocked) if *blocked > 0.0 => 1.0 / ((1.0 - blocked) / capability + blocked),
            _ => capability,
        }
    }

    /// Time of a rank at a spot.
    pub fn time(&self, rank: usize, spot: u32) -> f64 {
        let Load { computing, fixed } = self.ranks[rank];
        fixed + computing * self.spots[spot as usize].dilation()
    }

    /// The estimate of a mapping.
    pub fn estimate(&self, seats: &[u32]) -> Estimate {
        let times = seats.iter().enumerate().map(|(rank, spot)| self.time(rank, *spot));
        let (slowest, sum) = times.fold((0.0f64, 0.0), |(most, sum), time| (most.max(time), sum + time));
        let unequal = self.talks.iter().map(|talk| self.unequal(talk, seats)).sum();
        let far = self.talks.iter().map(|talk| self.far(talk, seats)).sum();
        Estimate { slowest, mean: sum / seats.len().max(1) as f64, unequal, far }
    }

    /// The part of a pair in [`Estimate::unequal`].
    pub fn unequal(&self, talk: &Talk, seats: &[u32]) -> f64 {
        let spot = |rank: u32| &self.spots[seats[rank as usize] as usize];
        let (one, other) = (spot(talk.one), spot(talk.other));
        match talk.mean >= LARGE && one.host != other.host {
            true => talk.share * (one.dilation() - other.dilation()).abs(),
            false => 0.0,
        }
    }

    /// The part of a pair in what passes between hosts.
    pub fn apart(&self, talk: &Talk, seats: &[u32]) -> f64 {
        let host = |rank: u32| self.spots[seats[rank as usize] as usize].host;
        if host(talk.one) == host(talk.other) { 0.0 } else { talk.share }
    }

    /// The part of a pair in [`Estimate::far`].
    pub fn far(&self, talk: &Talk, seats: &[u32]) -> f64 {
        let (one, other) = (seats[talk.one as usize] as usize, seats[talk.other as usize] as usize);
        match self.distances.get(one * self.spots.len() + other) {
            Some(distance) if self.spots[one].host == self.spots[other].host => talk.share * f64::from(*distance),
            _ => 0.0,
        }
    }

    /// By spot: its class. Spots of one class are on one host and of like dilation.
    pub fn classes(&self) -> Vec<u32> {
        let mut order: Vec<usize> = (0..self.spots.len()).collect();
        let key = |spot: &Spot| (2 * spot.host + u32::from(spot.far), spot.dilation());
        order.sort_by(|a, b| {
            let (a, b) = (key(&self.spots[*a]), key(&self.spots[*b]));
            a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
        });
        let mut classes = vec![0; self.spots.len()];
        let mut first: Option<(u32, f64)> = None;
        let mut class = 0;
        for spot in order {
            let (host, dilation) = key(&self.spots[spot]);
            match first {
                Some((of, least)) if of == host && dilation <= least * (1.0 + ALIKE) => {}
                Some(_) => {
                    class += 1;
                    first = Some((host, dilation));
                }
                None => first = Some((host, dilation)),
            }
            classes[spot] = class;
        }
        classes
    }

    /// Whether a rank that is at `from` may go to `to`.
    pub fn allows(&self, from: u32, to: u32) -> bool {
        self.across || self.spots[from as usize].host == self.spots[to as usize].host
    }
}
