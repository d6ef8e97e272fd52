//! The order of one round: the contenders of a group next to each other, groups and contenders shuffled for each pair of rounds.

use crate::random::Random;

/// One block to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    pub group: usize,
    /// Index in the group.
    pub member: usize,
    /// Position in the round, counting groups that no longer run.
    pub place: u32,
}

/// Every block of `round`, of groups with so many members, in the order that `seed` draws. Every second round is the
/// reverse of the one before, so that steady drift affects all equally.
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
    (0..).zip(turns).map(|(place, (group, member))| Turn { group, member, place }).collect()
}

/// Groups of a round whose blocks are sorted by kind together.
const BATCH: usize = 8;

/// `turns`, sorted by kind within each batch of groups: each kind then starts once for several groups, and blocks
/// that are compared are still seconds apart. Turns of one kind keep their order.
pub fn by_kind<K: Ord + Copy>(turns: Vec<Turn>, kind: impl Fn(&Turn) -> K) -> Vec<Turn> {
    let groups: Vec<&[Turn]> = turns.chunk_by(|one, next| one.group == next.group).collect();
    let batches = groups.chunks(BATCH).map(|batch| {
        let mut batch: Vec<Turn> = batch.concat();
        batch.sort_by_key(&kind);
        batch
    });
    (0..).zip(batches.flatten()).map(|(place, turn)| Turn { place, ..turn }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_begins_once_for_several_groups() {
        let groups = [4; 20];
        let plain = turns(&groups, 7, 0);
        let kind = |turn: &Turn| turn.member.saturating_sub(1);
        let sorted = by_kind(plain.clone(), kind);
        let begins = |turns: &[Turn], of: usize| {
            let kinds: Vec<usize> = turns.iter().map(kind).collect();
            kinds.chunk_by(|one, next| one == next).filter(|run| run[0] == of).count()
        };
        assert_eq!((begins(&sorted, 1), begins(&sorted, 2)), (3, 3), "of 20 groups, 8 together");
        assert!(begins(&plain, 1) > 15);
        let members = |turns: &[Turn]| {
            let mut all: Vec<_> = turns.iter().map(|turn| (turn.group, turn.member)).collect();
            all.sort_unstable();
            all
        };
        assert_eq!(members(&sorted), members(&plain));
        assert!(sorted.iter().enumerate().all(|(nth, turn)| turn.place == nth as u32));
        assert_eq!(by_kind(plain.clone(), |_| 0), plain, "of one kind nothing moves");
    }

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
            assert!(turns.iter().enumerate().all(|(nth, turn)| turn.place == nth as u32));
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
