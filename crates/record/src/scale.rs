//! The logarithmic scales of the histograms.

/// Number of classes of sizes: class 0 is for no bytes, class `k` for `2^(k-1) .. 2^k` bytes, the last for all beyond.
pub const SIZE_CLASSES: usize = 44;

/// Number of classes of durations: four to each doubling, from 4 ticks; the last is for all beyond, about a minute.
pub const TIME_CLASSES: usize = 144;

#[inline]
pub fn size_class(bytes: u64) -> usize {
    ((u64::BITS - bytes.leading_zeros()) as usize).min(SIZE_CLASSES - 1)
}

/// The smallest size of a class, in bytes.
pub fn size_floor(class: usize) -> u64 {
    if class == 0 { 0 } else { 1 << (class - 1) }
}

#[inline]
pub fn time_class(ticks: u64) -> usize {
    let ticks = ticks.max(4);
    let octave = ticks.ilog2();
    let quarter = (ticks >> (octave - 2)) & 3;
    ((octave as usize - 2) * 4 + quarter as usize).min(TIME_CLASSES - 1)
}

/// The shortest duration of a class, in ticks.
pub fn time_floor(class: usize) -> u64 {
    if class == 0 {
        return 0;
    }
    (4 + class as u64 % 4) << (class / 4)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_fall_between_powers_of_two() {
        assert_eq!([0, 1, 2, 3, 4, 7, 8].map(size_class), [0, 1, 2, 2, 3, 3, 4]);
        assert_eq!(size_class(u64::MAX), SIZE_CLASSES - 1);
    }

    #[test]
    fn every_class_of_time_begins_where_it_says() {
        for class in 1..TIME_CLASSES {
            assert_eq!(time_class(time_floor(class)), class);
            assert_eq!(time_class(time_floor(class) - 1), class - 1);
        }
        assert_eq!((time_class(0), time_class(u64::MAX)), (0, TIME_CLASSES - 1));
    }

    proptest! {
        #[test]
        fn a_duration_is_in_a_class_at_most_a_quarter_wider(ticks in 4u64..1 << 37) {
            let floor = time_floor(time_class(ticks));
            prop_assert!(floor <= ticks && ticks < floor + floor / 4 + 1);
        }
    }
}
