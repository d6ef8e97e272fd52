//! How fast a sender copies into the memory that it shares with a peer.
//!
//! Where the two cores share a cache, both copies of an eager message together are faster than one read of the sender's
//! memory by the kernel: each runs on its own core, and neither pays for page tables. Where the cores are far apart,
//! each line that the sender writes first has to come from the other core's cache, and the single read is faster.
//! Virtual CPUs move between cores, so each link decides by timing its copies.

use machine::Nanoseconds;

/// One of so many packets whose copy can be timed is timed: two readings of the clock cost a tenth of such a copy.
const TIMED: u8 = 4;
/// After so many announcements of messages that might have been eager, one is sent eagerly to time copies anew.
const PROBED: u8 = 64;
/// Bytes per nanosecond above which copies become fast, and below which they become slow. Cores 250 ns apart reach 2 to
/// 5; cores that share a cache 8 to 30, also from uncached buffers; a read by the kernel 4 to 12.
const FAST: f32 = 7.0;
const SLOW: f32 = 5.5;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Copies {
    /// Smoothed rate of copies, bytes per nanosecond.
    rate: f32,
    fast: bool,
    untimed: u8,
    announced: u8,
}

impl Copies {
    /// State of a new link: copies count as fast until they are timed.
    pub const NEW: Copies = Copies { rate: 8.0, fast: true, untimed: 0, announced: 0 };

    /// Whether a message whose way depends on the speed of copies is to be eager now.
    #[inline]
    pub fn are_fast(&self) -> bool {
        self.fast || self.announced >= PROBED
    }

    /// Counts the announcement of a message that might have been eager.
    pub fn announced(&mut self) {
        self.announced = self.announced.saturating_add(1);
    }

    /// Whether the copy of the next packet is to be timed.
    pub fn is_timed(&mut self) -> bool {
        self.untimed = (self.untimed + 1) % TIMED;
        self.untimed == 0 || self.announced >= PROBED
    }

    /// Takes in that copying `bytes` took `time`.
    pub fn took(&mut self, bytes: usize, time: Nanoseconds) {
        let rate = bytes as f32 / time.0.max(1) as f32;
        // Slow copies weigh less: they are often disturbed, and none is faster than the cores allow.
        let weight = if rate > self.rate { 0.5 } else { 0.125 };
        self.rate += weight * (rate - self.rate);
        self.fast = self.rate > if self.fast { SLOW } else { FAST };
        self.announced = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: usize = 16 << 10;

    fn timed(copies: &mut Copies, nanoseconds: u64, packets: usize) {
        for _ in 0..packets {
            if copies.is_timed() {
                copies.took(PACKET, Nanoseconds(nanoseconds));
            }
        }
    }

    #[test]
    fn far_cores_are_noticed_and_near_ones_at_the_next_probe() {
        let mut copies = Copies::NEW;
        timed(&mut copies, 8000, 80);
        assert!(!copies.are_fast(), "2 bytes a nanosecond");
        for _ in 0..PROBED {
            assert!(!copies.are_fast());
            copies.announced();
        }
        assert!(copies.are_fast(), "a probe");
        timed(&mut copies, 8000, 1);
        assert!(!copies.are_fast(), "still far");
        (0..PROBED).for_each(|_| copies.announced());
        timed(&mut copies, 1000, 1);
        assert!(copies.are_fast(), "16 bytes a nanosecond");
    }

    #[test]
    fn a_few_disturbed_copies_change_nothing() {
        let mut copies = Copies::NEW;
        timed(&mut copies, 1000, 100);
        timed(&mut copies, 4_000_000, 4 * 8);
        assert!(copies.are_fast());
        timed(&mut copies, 1000, 4);
        assert!(copies.rate > 8.0);
    }
}
