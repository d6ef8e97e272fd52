//! Detects bursts of packets to a peer.

/// Most packets between two flushes that are no burst, and number of flushes without a burst that end a series of bursts.
pub(super) const BURST: u32 = 3;
const CALM: u32 = 8;

/// Whether packets to a peer are a burst. All packets of a series of bursts go the same way, so that they keep their
/// order except where the way changes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Burst {
    on: bool,
    /// Packets since the flush before `round`.
    count: u32,
    round: u64,
    /// Consecutive rounds without a burst.
    calm: u32,
}

impl Burst {
    /// Counts one more packet; says whether it belongs to a burst.
    #[inline]
    pub fn with_another(&mut self, limit: u32, round: u64) -> bool {
        if self.round != round {
            self.calm = if self.count > limit { 0 } else { self.calm + 1 };
            self.on &= self.calm < CALM;
            (self.round, self.count) = (round, 0);
        }
        self.count += 1;
        self.on |= self.count > limit;
        self.on
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The results of `with_another` for each packet, for rounds of so many packets.
    fn said(rounds: &[u32]) -> Vec<Vec<bool>> {
        let mut burst = Burst::default();
        let mut round =
            |(number, &count): (usize, &u32)| (0..count).map(|_| burst.with_another(3, number as u64)).collect();
        rounds.iter().enumerate().map(&mut round).collect()
    }

    #[test]
    fn more_than_a_few_between_flushes_are_one() {
        assert_eq!(said(&[1, 3, 2, 1, 3]).concat(), [false; 10]);
        assert_eq!(said(&[6]), [[false, false, false, true, true, true]]);
    }

    #[test]
    fn a_row_of_them_goes_one_way_and_ends_with_a_calm() {
        let said = said(&[[64, 64, 1, 64].as_slice(), &[1; 12], &[4]].concat());
        assert!(said[1..4].concat().iter().all(|by_kernel| *by_kernel));
        let calm = said[4..16].concat();
        let ended = calm.iter().position(|by_kernel| !by_kernel).unwrap();
        assert!((CALM as usize - 1..=CALM as usize + 1).contains(&ended), "{calm:?}");
        assert_eq!(calm[ended..], vec![false; 12 - ended]);
        assert_eq!(said[16], [false, false, false, true]);
    }
}
