//! Counters of arrivals in user space: the same words and rules as those of the program at the driver hook.

use std::sync::atomic::{AtomicU64, Ordering};

use machine::Nanoseconds;

use crate::receiver::{Expected, WINDOW_BITS, word};

/// The words of one queue; one writer, any number of readers.
pub(crate) struct Tally {
    words: Vec<AtomicU64>,
}

const WINDOW_WORDS: u64 = WINDOW_BITS / 64;

impl Tally {
    pub fn new() -> Tally {
        Tally { words: (0..word::WORDS).map(|_| AtomicU64::new(0)).collect() }
    }

    pub fn words(&self) -> &[AtomicU64] {
        &self.words
    }

    fn get(&self, at: usize) -> u64 {
        self.words[at].load(Ordering::Relaxed)
    }

    fn put(&self, at: usize, value: u64) {
        self.words[at].store(value, Ordering::Relaxed);
    }

    fn add(&self, at: usize, more: u64) {
        self.put(at, self.get(at) + more);
    }

    pub fn foreign(&self) {
        self.add(word::FOREIGN, 1);
    }

    /// Counts a frame of the stream.
    pub fn arrived(&self, expected: &Expected, sequence: u64, bytes: u64, now: Nanoseconds) {
        if expected.timing {
            self.time(expected, now.0);
        }
        self.follow(sequence);
        self.add(word::BYTES, bytes);
        self.add(word::RECEIVED, 1);
    }

    fn time(&self, expected: &Expected, now: u64) {
        if self.get(word::RECEIVED) == 0 {
            self.put(word::FIRST_NS, now);
        } else {
            let gap = now.saturating_sub(self.get(word::LAST_NS));
            let off = gap.abs_diff(expected.target.0);
            self.add(word::GAPS, 1);
            self.add(word::HISTOGRAM + bucket_of(gap), 1);
            if let Some(band) = crate::receiver::BANDS.iter().position(|&band| off <= band) {
                self.add(word::WITHIN_64 + band, 1);
            }
            self.add(word::BURSTS, u64::from(gap <= expected.burst.0));
            let square = u128::from(off) * u128::from(off);
            let sum =
                square + (u128::from(self.get(word::SQUARES_HIGH)) << 64 | u128::from(self.get(word::SQUARES_LOW)));
            self.put(word::SQUARES_LOW, sum as u64);
            self.put(word::SQUARES_HIGH, (sum >> 64) as u64);
            self.put(word::GAP_MAX_NS, gap.max(self.get(word::GAP_MAX_NS)));
            if self.get(word::GAPS) == 1 || gap < self.get(word::GAP_MIN_NS) {
                self.put(word::GAP_MIN_NS, gap);
            }
        }
        self.put(word::LAST_NS, now);
    }

    fn follow(&self, sequence: u64) {
        let (window, bit) = (word::WINDOW + (sequence / 64 % WINDOW_WORDS) as usize, 1 << (sequence % 64));
        let next = self.get(word::NEXT);
        if self.get(word::RECEIVED) == 0 {
            self.put(word::LOWEST, sequence);
            self.put(word::NEXT, sequence + 1);
            return self.put(window, bit);
        }
        if sequence >= next {
            // The words of the window that are entered are cleared for the new numbers.
            let (left, last) = ((next - 1) / 64, sequence / 64);
            for entered in (left + 1).max((last + 1).saturating_sub(WINDOW_WORDS))..=last {
                self.put(word::WINDOW + (entered % WINDOW_WORDS) as usize, 0);
            }
            self.put(word::NEXT, sequence + 1);
        } else if (next - 1) / 64 - sequence / 64 >= WINDOW_WORDS {
            return self.add(word::STALE, 1);
        } else if self.get(window) & bit != 0 {
            return self.add(word::DUPLICATED, 1);
        } else {
            self.add(word::REORDERED, 1);
            self.put(word::LOWEST, sequence.min(self.get(word::LOWEST)));
        }
        self.put(window, self.get(window) | bit);
    }
}

/// The bucket of a gap: exact below 32 ns, then 32 buckets an octave.
fn bucket_of(gap: u64) -> usize {
    let gap = gap.min((1 << 35) - 1);
    match gap {
        0..32 => gap as usize,
        _ => {
            let exponent = 63 - gap.leading_zeros();
            ((exponent - 4) * 32 + (gap >> (exponent - 5) & 31) as u32) as usize
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_those_that_the_reader_takes_them_for() {
        for gap in (0..5000).chain((12..35).flat_map(|power| [(1 << power) - 1, 1 << power, (1 << power) + 77])) {
            let bucket = bucket_of(gap);
            assert!(gap <= crate::receiver::bucket_end(bucket), "{gap}");
            assert!(bucket == 0 || gap > crate::receiver::bucket_end(bucket - 1), "{gap}");
        }
        assert_eq!(bucket_of(u64::MAX), bucket_of((1 << 35) - 1));
    }
}
