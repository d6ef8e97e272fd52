//! Checksums that detect accidental changes, not forgery.

const SEEDS: [u64; 4] = [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344, 0xa409_3822_299f_31d0, 0x082e_fa98_ec4e_6c89];
/// 2^64 over the golden ratio, made odd: a change of a single word always changes the sum.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Checksum of so many bytes, given as little-endian words padded with 0s. Never 0, which stands for no seal.
#[inline]
pub fn of_words(bytes: usize, mut word: impl FnMut(usize) -> u64) -> u64 {
    let mut lanes = SEEDS;
    for group in 0..bytes.div_ceil(32) {
        for (place, lane) in lanes.iter_mut().enumerate() {
            *lane = (*lane ^ word(4 * group + place)).wrapping_mul(FACTOR).rotate_left(29);
        }
    }
    let mix = |sum: u64, lane: u64| {
        let mixed = (sum ^ lane).wrapping_mul(FACTOR);
        mixed ^ mixed >> 32
    };
    lanes.into_iter().fold(bytes as u64, mix).max(1)
}

pub fn of(bytes: &[u8]) -> u64 {
    of_words(bytes.len(), |place| word(bytes, place))
}

/// The `place`th little-endian word of `bytes`, padded with 0s.
pub fn word(bytes: &[u8], place: usize) -> u64 {
    let rest = bytes.get(8 * place..).unwrap_or_default();
    let mut word = [0; 8];
    let length = rest.len().min(8);
    word[..length].copy_from_slice(&rest[..length]);
    u64::from_le_bytes(word)
}

/// The seal in 32 bits.
pub fn short(seal: u64) -> u32 {
    ((seal ^ seal >> 32) as u32).max(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_change_passes(bytes in prop::collection::vec(any::<u8>(), 1..200), at: prop::sample::Index, other: u8, cut: prop::sample::Index) {
            let at = at.index(bytes.len());
            let mut changed = bytes.clone();
            changed[at] = other;
            prop_assert_eq!(of(&changed) == of(&bytes), changed == bytes);
            prop_assert_ne!(of(&bytes[..cut.index(bytes.len())]), of(&bytes));
            prop_assert_eq!(of_words(bytes.len(), |place| word(&bytes, place)), of(&bytes));
        }
    }

    #[test]
    fn nothing_is_sealed_too() {
        assert!(of(&[]) != 0 && short(of(&[])) != 0 && of(&[0]) != of(&[0, 0]));
    }
}
