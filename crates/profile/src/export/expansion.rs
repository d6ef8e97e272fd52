//! Collective operations as the messages of well-known algorithms, seen from one member.
//!
//! | operation | algorithm |
//! |---|---|
//! | barriers, creation of communicators and windows | dissemination |
//! | broadcast, reduction to a root, gather, scatter | binomial tree |
//! | reduction to all | recursive doubling, with the members beyond a power of two folded in |
//! | gather to all | ring |
//! | all to all, reduction with scatter | pairwise |
//! | prefix reductions | recursive doubling to higher ranks |

use std::ops::Range;

/// The algorithm of a collective operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    Dissemination,
    Broadcast,
    Scatter,
    Reduce,
    Gather,
    ReduceToAll,
    GatherToAll,
    AllToAll,
    ReduceScatter,
    Prefix,
}

impl Pattern {
    /// The pattern of a blocking, nonblocking or persistent function, named without `MPI_`.
    pub fn of(function: &str) -> Pattern {
        let base = function.trim_end_matches("_init");
        let base = match base.strip_prefix('I') {
            Some(rest) if rest.starts_with(|c: char| c.is_ascii_lowercase()) => rest,
            _ => base,
        };
        match base.to_ascii_lowercase().as_str() {
            "bcast" => Pattern::Broadcast,
            "scatter" | "scatterv" => Pattern::Scatter,
            "reduce" => Pattern::Reduce,
            "gather" | "gatherv" => Pattern::Gather,
            "allreduce" => Pattern::ReduceToAll,
            "allgather" | "allgatherv" => Pattern::GatherToAll,
            "alltoall" | "alltoallv" | "alltoallw" => Pattern::AllToAll,
            "reduce_scatter" | "reduce_scatter_block" => Pattern::ReduceScatter,
            "scan" | "exscan" => Pattern::Prefix,
            _ => Pattern::Dissemination,
        }
    }
}

/// Messages, `(member, bytes)`, that a member sends and receives concurrently; the next round starts after them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Round {
    pub sends: Vec<(usize, u64)>,
    pub receives: Vec<(usize, u64)>,
}

impl Round {
    fn send(to: usize, bytes: u64) -> Round {
        Round { sends: vec![(to, bytes)], receives: Vec::new() }
    }

    fn receive(from: usize, bytes: u64) -> Round {
        Round { sends: Vec::new(), receives: vec![(from, bytes)] }
    }

    fn exchange(to: (usize, u64), from: (usize, u64)) -> Round {
        Round { sends: vec![to], receives: vec![from] }
    }
}

/// The rounds of member `own`. `bytes`: the contributions by member, as MPI's calls have them. `root` is ignored where
/// the operation has none.
pub fn rounds(pattern: Pattern, own: usize, root: usize, bytes: &[u64]) -> Vec<Round> {
    let members = bytes.len();
    if members < 2 {
        return Vec::new();
    }
    match pattern {
        Pattern::Dissemination => dissemination(own, members),
        Pattern::Broadcast => {
            let all = bytes[root];
            tree(own, root, members, |_| all)
        }
        Pattern::Scatter => {
            // `bytes` of a member is the size of its part; the root's own part is not sent.
            let share = |place: usize| if place == 0 { 0 } else { bytes[(root + place) % members] };
            tree(own, root, members, |subtree| subtree.map(share).sum())
        }
        Pattern::Reduce => reversed(tree(own, root, members, |_| bytes.iter().copied().max().unwrap_or(0))),
        Pattern::Gather => {
            reversed(tree(own, root, members, |subtree| subtree.map(|place| bytes[(root + place) % members]).sum()))
        }
        Pattern::ReduceToAll => doubling(own, bytes),
        Pattern::GatherToAll => {
            let part = |place: usize| bytes[place % members];
            let round = |step| {
                let (sent, got) = (part(own + members - step), part(own + 2 * members - step - 1));
                Round::exchange(((own + 1) % members, sent), ((own + members - 1) % members, got))
            };
            (0..members - 1).map(round).collect()
        }
        Pattern::AllToAll => pairwise(own, bytes),
        Pattern::ReduceScatter => pairwise(own, bytes),
        Pattern::Prefix => prefix(own, bytes),
    }
}

fn dissemination(own: usize, members: usize) -> Vec<Round> {
    let distances = (0..).map(|step| 1usize << step).take_while(|distance| *distance < members);
    distances
        .map(|distance| Round::exchange(((own + distance) % members, 1), ((own + members - distance) % members, 1)))
        .collect()
}

/// A binomial tree from the root. `carried`: bytes to a subtree, a range of places counted from the root.
fn tree(own: usize, root: usize, members: usize, carried: impl Fn(Range<usize>) -> u64) -> Vec<Round> {
    let place = (own + members - root) % members;
    let member = |place: usize| (place + root) % members;
    let mut rounds = Vec::new();
    // The parent of a place is the place without its lowest set bit; the root has none.
    let mut span = if place == 0 { members.next_power_of_two() } else { 1 << place.trailing_zeros() };
    if place != 0 {
        let parent = place - span;
        rounds.push(Round::receive(member(parent), carried(place..(place + span).min(members))));
    }
    while span > 1 {
        span /= 2;
        let child = place + span;
        if child < members {
            rounds.push(Round::send(member(child), carried(child..(child + span).min(members))));
        }
    }
    rounds
}

/// The same tree with messages from the leaves to the root.
fn reversed(mut rounds: Vec<Round>) -> Vec<Round> {
    rounds.reverse();
    for round in &mut rounds {
        std::mem::swap(&mut round.sends, &mut round.receives);
    }
    rounds
}

fn doubling(own: usize, bytes: &[u64]) -> Vec<Round> {
    let members = bytes.len();
    let all = bytes.iter().copied().max().unwrap_or(0);
    let core = 1usize << members.ilog2();
    let beyond = members - core;
    let mut rounds = Vec::new();
    if own >= core {
        return vec![Round::send(own - core, all), Round::receive(own - core, all)];
    }
    if own < beyond {
        rounds.push(Round::receive(own + core, all));
    }
    let mut distance = 1;
    while distance < core {
        let other = own ^ distance;
        rounds.push(Round::exchange((other, all), (other, all)));
        distance *= 2;
    }
    if own < beyond {
        rounds.push(Round::send(own + core, all));
    }
    rounds
}

fn pairwise(own: usize, bytes: &[u64]) -> Vec<Round> {
    let members = bytes.len();
    let part = |member: usize| bytes[member] / members as u64;
    let round = |step: usize| {
        let (to, from) = ((own + step) % members, (own + members - step) % members);
        Round::exchange((to, part(own)), (from, part(from)))
    };
    (1..members).map(round).collect()
}

fn prefix(own: usize, bytes: &[u64]) -> Vec<Round> {
    let members = bytes.len();
    let all = bytes.iter().copied().max().unwrap_or(0);
    let distances = (0..).map(|step| 1usize << step).take_while(|distance| *distance < members);
    distances
        .map(|distance| {
            let mut round = Round::default();
            if own + distance < members {
                round.sends.push((own + distance, all));
            }
            if own >= distance {
                round.receives.push((own - distance, all));
            }
            round
        })
        .filter(|round| *round != Round::default())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    const ALL: [&str; 11] = [
        "Barrier",
        "Bcast",
        "Iscatterv",
        "Reduce",
        "Gather_init",
        "Allreduce",
        "Iallgatherv",
        "Alltoallw",
        "Reduce_scatter",
        "Scan",
        "Comm_split",
    ];

    /// Runs all members. Returns, by member, whose data reached it, directly or through others; and the bytes sent.
    fn run(pattern: Pattern, root: usize, bytes: &[u64]) -> (Vec<Vec<bool>>, u64) {
        let members = bytes.len();
        let all: Vec<_> = (0..members).map(|own| rounds(pattern, own, root, bytes)).collect();
        type Wire = VecDeque<(u64, Vec<bool>)>;
        let mut wires: Vec<Vec<Wire>> = vec![vec![VecDeque::new(); members]; members];
        let mut known: Vec<Vec<bool>> = (0..members).map(|own| (0..members).map(|one| one == own).collect()).collect();
        let (mut at, mut sent) = (vec![0; members], vec![false; members]);
        let mut total = 0;
        loop {
            let mut moved = false;
            for own in 0..members {
                let Some(round) = all[own].get(at[own]) else { continue };
                if !sent[own] {
                    for (to, bytes) in &round.sends {
                        assert_ne!(*to, own);
                        wires[own][*to].push_back((*bytes, known[own].clone()));
                        total += bytes;
                    }
                    (sent[own], moved) = (true, true);
                }
                if round.receives.iter().all(|(from, _)| !wires[*from][own].is_empty()) {
                    for (from, bytes) in &round.receives {
                        let (got, knew) = wires[*from][own].pop_front().unwrap();
                        assert_eq!(got, *bytes, "{pattern:?} of {members}: {from} to {own}");
                        known[own].iter_mut().zip(knew).for_each(|(own, knew)| *own |= knew);
                    }
                    (at[own], sent[own], moved) = (at[own] + 1, false, true);
                }
            }
            if !moved {
                break;
            }
        }
        assert!(wires.iter().flatten().all(VecDeque::is_empty), "{pattern:?} of {members}: a message is left");
        assert!((0..members).all(|own| at[own] == all[own].len()), "{pattern:?} of {members}: somebody waits for ever");
        (known, total)
    }

    #[test]
    fn every_operation_ends_and_reaches_whom_it_must() {
        for members in 1..20 {
            for root in [0, members / 2, members - 1] {
                for name in ALL {
                    let pattern = Pattern::of(name);
                    let bytes: Vec<u64> = (0..members as u64).map(|own| 100 * (own + 1)).collect();
                    let (known, _) = run(pattern, root, &bytes);
                    let must = |own: usize, other: usize| match pattern {
                        Pattern::Broadcast | Pattern::Scatter => other == root,
                        Pattern::Reduce | Pattern::Gather => own == root,
                        Pattern::Prefix => other <= own,
                        _ => true,
                    };
                    for (own, known) in known.iter().enumerate() {
                        for other in (0..members).filter(|other| must(own, *other)) {
                            assert!(known[other], "{name} of {members} from {root}: {own} has nothing of {other}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn trees_and_rings_carry_what_the_algorithms_carry() {
        let bytes = |pattern, bytes: &[u64]| run(pattern, 0, bytes).1;
        assert_eq!(bytes(Pattern::Broadcast, &[10; 8]), 70);
        assert_eq!(bytes(Pattern::Reduce, &[10; 8]), 70);
        // A part at depth d is sent d times.
        assert_eq!(bytes(Pattern::Gather, &[10; 8]), 10 * (3 + 3 * 2 + 3));
        assert_eq!(bytes(Pattern::Scatter, &[80, 10, 10, 10, 10, 10, 10, 10]), 10 * (3 + 3 * 2 + 3));
        assert_eq!(bytes(Pattern::GatherToAll, &[1, 2, 3, 4]), 30);
        assert_eq!(bytes(Pattern::AllToAll, &[40; 4]), 120);
        assert_eq!(bytes(Pattern::ReduceToAll, &[10; 8]), 240);
    }
}
