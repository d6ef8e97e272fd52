//! The order of one round: contenders of a group side by side, groups and contenders shuffled anew each round.

use crate::design::Design;
use crate::random::Random;

/// One block to run: indices into [`Design::groups`] and the group's points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    pub group: usize,
    pub point: usize,
    /// Place within the round, over all groups whether they still run or not.
    pub order: u32,
}

/// So many contenders of a round that run side by side. Every second round is the reverse of the one before: what drifts
/// steadily meets all alike.
pub fn of_round(seed: u64, round: u32, contenders: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..contenders).collect();
    Random::stream(seed, u64::from(round / 2)).shuffle(&mut order);
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

/// Every block of `round`, in the order that `seed` draws.
pub fn turns(design: &Design, seed: u64, round: u32) -> Vec<Turn> {
    let mut random = Random::stream(seed, u64::from(round));
    let mut groups: Vec<usize> = (0..design.groups.len()).collect();
    random.shuffle(&mut groups);
    let mut turns = Vec::new();
    for group in groups {
        let mut points: Vec<usize> = (0..design.groups[group].points.len()).collect();
        random.shuffle(&mut points);
        for point in points {
            turns.push(Turn { group, point, order: turns.len() as u32 });
        }
    }
    turns
}

#[cfg(test)]
mod tests {
    use machine::{CoreId, Nanoseconds};

    use super::*;
    use crate::design::Grounds;
    use crate::point::Path;

    fn design() -> Design {
        Design::of(Grounds {
            cores: vec![CoreId(0), CoreId(1)],
            distance: None,
            network: Path::Lab,
            protocol_core: Some(CoreId(0)),
            networks: Vec::new(),
            peer_cores: Vec::new(),
            open_mpi: false,
            budget: Nanoseconds(170_000_000_000),
        })
        .unwrap()
    }

    #[test]
    fn a_round_holds_each_point_once_with_its_group_together() {
        let design = design();
        let turns = turns(&design, 42, 3);
        let all: usize = design.groups.iter().map(|g| g.points.len()).sum();
        assert_eq!(turns.len(), all);
        let mut runs: Vec<usize> = turns.iter().map(|t| t.group).collect();
        runs.dedup();
        assert_eq!(runs.len(), design.groups.len(), "no group is taken up twice");
        assert!(turns.iter().enumerate().all(|(nth, t)| t.order == nth as u32));
    }

    #[test]
    fn the_seed_repeats_an_order_and_rounds_differ() {
        let design = design();
        assert_eq!(turns(&design, 42, 3), turns(&design, 42, 3));
        assert_ne!(turns(&design, 42, 3), turns(&design, 42, 4));
        assert_ne!(turns(&design, 42, 3), turns(&design, 43, 3));
    }

    #[test]
    fn each_contender_comes_first_about_as_often() {
        let design = design();
        let group = design.groups.iter().position(|g| g.points.len() == 3).unwrap();
        let mut firsts = [0u32; 3];
        for round in 0..300 {
            let first = turns(&design, 1, round).into_iter().find(|t| t.group == group).unwrap();
            firsts[first.point] += 1;
        }
        assert!(firsts.iter().all(|&n| (70..130).contains(&n)), "{firsts:?}");
    }
}
