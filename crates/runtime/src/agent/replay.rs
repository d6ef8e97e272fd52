//! A window of packet numbers, to find packets of a channel that came already.

/// Numbers per word.
const WORD: u64 = 64;

/// Words of the window: more numbers than the engine has packets on the way.
const WORDS: u64 = 32;

/// A ring of bits up to the highest number that came; numbers before it are too old to tell, and count as come.
#[derive(Default)]
pub(crate) struct Window {
    /// The word that the highest number is in, counted from number 0.
    top: u64,
    came: [u64; WORDS as usize],
}

impl Window {
    /// Notes that `number` came, of a packet that is authentic: the window moves to where it says. False where it came before.
    #[inline]
    pub fn take(&mut self, number: u64) -> bool {
        let word = number / WORD;
        if word > self.top {
            for fresh in 1..=(word - self.top).min(WORDS) {
                self.came[((self.top + fresh) % WORDS) as usize] = 0;
            }
            self.top = word;
        } else if self.top - word >= WORDS {
            return false;
        }
        let (came, bit) = (&mut self.came[(word % WORDS) as usize], 1u64 << (number % WORD));
        let is_new = *came & bit == 0;
        *came |= bit;
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As far back as a number is told from all others, wherever the highest lies in its word.
    const BACK: u64 = (WORDS - 1) * WORD;

    #[test]
    fn a_number_is_taken_once() {
        let mut window = Window::default();
        for number in [0, 1, 2, 3, 63, 64, 65, 1000, u64::MAX] {
            assert!(window.take(number), "{number}");
            assert!(!window.take(number), "{number}");
        }
    }

    #[test]
    fn numbers_in_any_order_within_the_window_are_taken_once() {
        let mut window = Window::default();
        // 7 and the number of numbers have no common divisor: each comes once, far from the one before.
        let shuffled = || (0..BACK).map(|at| at * 7 % BACK);
        assert!(shuffled().all(|number| window.take(number)));
        assert!(!shuffled().any(|number| window.take(number)));
    }

    #[test]
    fn what_is_too_old_to_tell_is_not_taken() {
        let mut window = Window::default();
        let high = 10 * WORDS * WORD;
        assert!(window.take(high));
        assert!(window.take(high - BACK) && !window.take(high - BACK));
        assert!(!window.take(high - BACK - 1) && !window.take(0));
    }

    #[test]
    fn a_jump_forgets_what_lay_in_the_same_words() {
        for jump in [1, WORD, WORD * WORDS - 1, WORD * WORDS, WORD * WORDS + 1, 100 * WORD * WORDS] {
            let mut window = Window::default();
            assert!((0..BACK).all(|number| window.take(number)));
            let high = BACK - 1 + jump;
            assert!((BACK.max(high - BACK)..=high).rev().all(|number| window.take(number)));
            assert!(!(0..BACK).any(|number| window.take(number)), "one is new again after a jump by {jump}");
        }
    }

    #[test]
    fn numbers_beyond_32_bits_are_others_than_those_below() {
        let mut window = Window::default();
        let first = (1u64 << 32) - 100;
        assert!((first..first + 200).all(|number| window.take(number)));
        assert!(!(first..first + 200).any(|number| window.take(number)));
        // What these would be, cut to 32 bits.
        assert!(!(0..100).any(|number| window.take(number)));
    }
}
