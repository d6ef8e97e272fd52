//! The order of one round: contenders of a group side by side, groups and contenders shuffled for each pair of rounds.

use crate::random::Random;

/// One block to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    pub group: usize,
    /// Its place in the group.
    pub member: usize,
    /// Place within the round, over all groups whether they still run or not.
    pub order: u32,
}

/// Every block of `round` of groups with so many members, in the order that `seed` draws. Every second round is the reverse of
/// the one before: what drifts steadily meets all alike.
pub fn turns(groups: &[usize], seed: u64, round: u32) -> Vec<Turn> {
    let mut random = Random::stream(seed, u64::from(round / 2));
    let mut order: Vec<usize> = (0..groups.len()).collect();
    random.shuffle(&mut order);
    let mut turns: Vec<(usize, usize)> = Vec::new();
    for group in order {
        let mut members: Vec<usize> = (0..groups[group]).collect();
        random.shuffle(&mut members);
        turns.extend(members.into_iter().map(|member| (group, member)));
    }
    if round % 2 == 1 {
        turns.reverse();
    }
    (0..).zip(turns).map(|(order, (group, member))| Turn { group, member, order }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUPS: [usize; 4] = [3, 2, 5, 1];

    #[test]
    fn a_round_holds_each_member_once_with_its_group_together() {
        for round in [2, 3] {
            let turns = turns(&GROUPS, 42, round);
            let mut all: Vec<(usize, usize)> = turns.iter().map(|turn| (turn.group, turn.member)).collect();
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), GROUPS.iter().sum::<usize>());
            let mut runs: Vec<usize> = turns.iter().map(|turn| turn.group).collect();
            runs.dedup();
            assert_eq!(runs.len(), GROUPS.len(), "no group is taken up twice");
            assert!(turns.iter().enumerate().all(|(nth, turn)| turn.order == nth as u32));
        }
    }

    #[test]
    fn the_seed_repeats_an_order_and_pairs_of_rounds_differ() {
        let order = |seed, round| -> Vec<(usize, usize)> {
            turns(&GROUPS, seed, round).iter().map(|turn| (turn.group, turn.member)).collect()
        };
        assert_eq!(order(42, 2), order(42, 2));
        assert_eq!(order(42, 3), order(42, 2).into_iter().rev().collect::<Vec<_>>());
        assert_ne!(order(42, 2), order(42, 4));
        assert_ne!(order(42, 2), order(43, 2));
    }

    #[test]
    fn each_member_comes_first_about_as_often() {
        let mut firsts = [0u32; 3];
        for round in 0..300 {
            let first = turns(&GROUPS, 1, round).into_iter().find(|turn| turn.group == 0).unwrap();
            firsts[first.member] += 1;
        }
        assert!(firsts.iter().all(|&n| (70..130).contains(&n)), "{firsts:?}");
    }
}
