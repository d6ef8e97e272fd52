//! Watts and joules of a run: static, and dynamic by clock and use (as `claims::power`). Modelled.
//!
//! ```text
//! joules of a host = W (1 - d) T  +  W d / cores x sum over its cores of busy x (f/f0)^n
//! ```
//! `W` are watts at full clock and use, `d` the dynamic share. A core is busy while it computes, moves messages or does the
//! protocol's work; one whose rank spins, as long as the rank runs; an engine's, always.

use super::profile::{Place, Profile, Waiting};
use super::{Cluster, Finished, Time};

/// Watts of a host at full clock and use, and how they follow clock and use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Watts {
    pub full: f64,
    pub dynamic: f64,
    pub exponent: f64,
}

impl Watts {
    /// The law with the profile's dynamic share and exponent.
    pub fn of(full: f64, profile: &Profile) -> Watts {
        let get = |name| profile.constants.iter().find(|of| of.name == name).and_then(|of| of.value.value().copied());
        let (dynamic, exponent) = (get("watts.dynamic").unwrap_or(0.0), get("watts.exponent").unwrap_or(1.0));
        Watts { full, dynamic, exponent }
    }
}

/// Joules of a host by consumer.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Joules {
    /// Joules that it takes whatever it does.
    pub fixed: f64,
    pub computing: f64,
    pub messages: f64,
    pub protocol: f64,
    /// Joules of cores that wait without sleeping.
    pub spinning: f64,
}

impl Joules {
    pub fn total(&self) -> f64 {
        self.fixed + self.computing + self.messages + self.protocol + self.spinning
    }
}

/// By host: its joules, from its watts.
pub fn joules(cluster: &Cluster, finished: &Finished, watts: &[Watts]) -> Vec<Joules> {
    let seconds = |time: Time| time as f64 * 1e-12;
    let total = finished.total();
    let of_host = |at: usize| {
        let (host, watts) = (&cluster.hosts[at], &watts[at]);
        let mut joules = Joules { fixed: watts.full * (1.0 - watts.dynamic) * seconds(total), ..Joules::default() };
        for (place, (core, busy)) in host.cores.iter().zip(&finished.cores[at]).enumerate() {
            let each = watts.full * watts.dynamic / host.cores.len() as f64 * core.dilation.powf(-watts.exponent);
            let seated = |seat: &super::Seat| (seat.host, seat.core) == (at, place);
            let ranks = cluster.seats.iter().zip(&finished.ranks).filter(|(seat, _)| seated(seat));
            let engine = cluster.profile.place == Place::Engine && host.engines.contains(&place);
            let awake = match cluster.profile.waiting {
                _ if engine => total,
                Waiting::Spin => ranks.map(|(_, end)| *end).max().unwrap_or(0),
                Waiting::Sleep => 0,
            };
            joules.computing += each * seconds(busy.computing);
            joules.messages += each * seconds(busy.messages);
            joules.protocol += each * seconds(busy.protocol);
            joules.spinning += each * seconds(awake.saturating_sub(busy.total()));
        }
        joules
    };
    (0..cluster.hosts.len()).map(of_host).collect()
}
