//! A small seeded generator: the same seed gives the same order and the same intervals on every machine.

/// SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// An independent stream for one part of a whole: a round, a pattern.
    pub fn stream(seed: u64, part: u64) -> Self {
        let mut mixed = Random(seed ^ part.wrapping_mul(0xD6E8_FEB8_6659_FD93));
        Random(mixed.draw())
    }

    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in `0..bound`; `bound` must not be 0.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.draw()) * bound as u128) >> 64) as usize
    }

    /// Uniform in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Shuffles by Fisher and Yates.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_and_streams_differ() {
        let draw = |mut r: Random| (0..8).map(|_| r.draw()).collect::<Vec<_>>();
        assert_eq!(draw(Random::new(7)), draw(Random::new(7)));
        assert_ne!(draw(Random::stream(7, 0)), draw(Random::stream(7, 1)));
    }

    #[test]
    fn a_shuffle_is_fair() {
        let mut random = Random::new(1);
        let mut first = [0u32; 4];
        for _ in 0..8000 {
            let mut items = [0usize, 1, 2, 3];
            random.shuffle(&mut items);
            first[items[0]] += 1;
        }
        assert!(first.iter().all(|&n| (1800..2200).contains(&n)), "{first:?}");
    }
}
