//! Reasons for the moves of a mapping.

use crate::problem::{ALIKE, Problem};

/// A rank that a mapping moves.
#[derive(Debug, Clone, PartialEq)]
pub struct Move {
    /// The rank.
    pub rank: u32,
    /// The spot that it leaves.
    pub from: u32,
    /// The spot that it gets.
    pub to: u32,
    /// The rule that moves the rank.
    pub reason: Reason,
}

/// The rules of paper 002, and those that follow from an exchange.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reason {
    /// (a) The rank gets more of a core, in shares of one core: it has little slack.
    Relieved {
        /// The share of the core it leaves that ranks can have.
        from: f64,
        /// The same share of the core that it gets.
        to: f64,
        /// The share of the run in which the rank computes.
        computing: f64,
    },
    /// (a) The rank waits for much of the run, so a core with less left for ranks is enough.
    Slack {
        /// The share of the run in which the rank waits.
        waiting: f64,
        /// The share of the core it gets that ranks can have.
        to: f64,
    },
    /// (b) The rank gets a core as capable as that of a partner on another host.
    Paired {
        /// The partner.
        partner: u32,
        /// Mean bytes of their messages.
        mean: f64,
    },
    /// (c) The rank gets nearer to a partner.
    Near {
        /// The partner.
        partner: u32,
    },
}

/// The moves of a mapping, each with its reason.
pub fn moves(problem: &Problem, seats: &[u32]) -> Vec<Move> {
    let changed = (0u32..).zip(problem.seats.iter().zip(seats)).filter(|(_, (from, to))| from != to);
    changed
        .map(|(rank, (from, to))| Move { rank, from: *from, to: *to, reason: reason(problem, seats, rank) })
        .collect()
}

fn reason(problem: &Problem, seats: &[u32], rank: u32) -> Reason {
    let spot = |seats: &[u32], rank: u32| &problem.spots[seats[rank as usize] as usize];
    let (from, to) = (spot(&problem.seats, rank), spot(seats, rank));
    let capability = |spot: &crate::problem::Spot| 1.0 / spot.dilation();
    let load = problem.ranks[rank as usize];
    let partners = || {
        let of = problem.talks.iter().filter(move |talk| talk.one == rank || talk.other == rank);
        of.map(move |talk| (if talk.one == rank { talk.other } else { talk.one }, talk))
    };
    let unequal = |seats: &[u32]| partners().map(|(_, talk)| problem.unequal(talk, seats)).sum::<f64>();
    let pairs = partners().filter(|(_, talk)| problem.unequal(talk, &problem.seats) > problem.unequal(talk, seats));
    if unequal(seats) < unequal(&problem.seats) * 0.5
        && let Some((partner, talk)) = pairs.max_by(|a, b| a.1.share.total_cmp(&b.1.share))
    {
        return Reason::Paired { partner, mean: talk.mean };
    }
    let gain = capability(to) / capability(from).max(1e-3);
    let waiting = (1.0 - problem.time(rank as usize, problem.seats[rank as usize])).clamp(0.0, 1.0);
    match () {
        () if gain > 1.0 + ALIKE => {
            Reason::Relieved { from: capability(from), to: capability(to), computing: load.computing * from.dilation() }
        }
        () if gain < 1.0 / (1.0 + ALIKE) => Reason::Slack { waiting, to: capability(to) },
        () => {
            let nearer = partners().filter(|(_, talk)| problem.far(talk, seats) < problem.far(talk, &problem.seats));
            match nearer.max_by(|a, b| a.1.share.total_cmp(&b.1.share)) {
                Some((partner, _)) => Reason::Near { partner },
                None => Reason::Slack { waiting, to: capability(to) },
            }
        }
    }
}
