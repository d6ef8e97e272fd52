//! Running totals of one subject over time.

/// Most fields that a kind of totals has.
pub(super) const MOST: usize = 18;

/// Values of one subject at a moment. Totals only grow: a total that fell was reset, or is damaged.
pub trait Totals: Copy + Default {
    #[doc(hidden)]
    const KIND: u8;
    #[doc(hidden)]
    const FIELDS: usize;
    /// Mask of the fields that are absolute values, not totals.
    #[doc(hidden)]
    const ABSOLUTE: u32;
    #[doc(hidden)]
    fn fields(&self) -> [u64; MOST];
    #[doc(hidden)]
    fn of(fields: &[u64; MOST]) -> Self;
}

/// Declares totals with fields of u64 or `[n]` of them; `absolute` marks values that are no totals.
macro_rules! totals {
    ($($(#[$doc:meta])* $name:ident: $kind:literal { $($(#[$about:meta])* $field:ident $(: $how:tt)?,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct $name { $($(#[$about])* pub $field: $crate::samples::series::totals!(@type $($how)?),)* }

        impl $crate::samples::series::Totals for $name {
            const KIND: u8 = $kind;
            const FIELDS: usize = 0 $(+ $crate::samples::series::totals!(@count $($how)?))*;
            const ABSOLUTE: u32 = {
                let (mut mask, mut at) = (0u32, 0);
                $(
                    mask |= $crate::samples::series::totals!(@mask $($how)?) << at;
                    at += $crate::samples::series::totals!(@count $($how)?);
                )*
                let _ = at;
                mask
            };

            fn fields(&self) -> [u64; $crate::samples::series::MOST] {
                let (mut all, mut at) = ([0; $crate::samples::series::MOST], 0);
                $(
                    let field: &[u64] = $crate::samples::series::totals!(@slice (self.$field) $($how)?);
                    all[at..at + field.len()].copy_from_slice(field);
                    at += field.len();
                )*
                let _ = at;
                all
            }

            fn of(fields: &[u64; $crate::samples::series::MOST]) -> Self {
                let (mut totals, mut at) = ($name::default(), 0);
                $(
                    let field: &mut [u64] = $crate::samples::series::totals!(@mut_slice (totals.$field) $($how)?);
                    field.copy_from_slice(&fields[at..at + field.len()]);
                    at += field.len();
                )*
                let _ = at;
                totals
            }
        }
    )*};
    (@type) => { u64 };
    (@type absolute) => { u64 };
    (@type [$n:literal]) => { [u64; $n] };
    (@count) => { 1 };
    (@count absolute) => { 1 };
    (@count [$n:literal]) => { $n };
    (@mask) => { 0 };
    (@mask absolute) => { 1 };
    (@mask [$n:literal]) => { 0 };
    (@slice ($field:expr)) => { std::slice::from_ref(&$field) };
    (@slice ($field:expr) absolute) => { std::slice::from_ref(&$field) };
    (@slice ($field:expr) [$n:literal]) => { &$field };
    (@mut_slice ($field:expr)) => { std::slice::from_mut(&mut $field) };
    (@mut_slice ($field:expr) absolute) => { std::slice::from_mut(&mut $field) };
    (@mut_slice ($field:expr) [$n:literal]) => { &mut $field };
}
pub(super) use totals;

/// Totals of one subject by time, interpolated linearly between two points.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Series<T> {
    points: Vec<(u64, T)>,
}

impl<T: Totals> Series<T> {
    /// The totals in order of time (CLOCK_MONOTONIC, ns).
    pub fn points(&self) -> &[(u64, T)] {
        &self.points
    }

    /// Adds a point, unless it is no later than the last.
    pub(super) fn push(&mut self, at: u64, totals: T) {
        if self.points.last().is_none_or(|(last, _)| *last < at) {
            self.points.push((at, totals));
        }
    }

    /// Changes the totals of every point.
    pub(super) fn change(&mut self, change: impl Fn(&mut T)) {
        self.points.iter_mut().for_each(|(_, totals)| change(totals));
    }

    pub fn first(&self) -> Option<&(u64, T)> {
        self.points.first()
    }

    pub fn last(&self) -> Option<&(u64, T)> {
        self.points.last()
    }

    /// The totals known at `time`: the last point that is not later.
    pub fn known(&self, time: u64) -> Option<&T> {
        let after = self.points.partition_point(|(at, _)| *at <= time);
        self.points.get(after.checked_sub(1)?).map(|(_, totals)| totals)
    }

    /// The increase of a total from `from` to `to`, interpolated. Falls count as 0, as does time before the first point
    /// and after the last; `None` where the window has no time between these.
    pub fn between(&self, from: u64, to: u64, total: impl Fn(&T) -> u64) -> Option<f64> {
        let (from, to) = (from.max(self.first()?.0), to.min(self.last()?.0));
        if from >= to {
            return None;
        }
        let before = self.points.partition_point(|(at, _)| *at <= from).saturating_sub(1);
        let pairs = self.points[before..].windows(2).take_while(|pair| pair[0].0 < to);
        let grown = pairs.map(|pair| {
            let (at, next) = (pair[0].0, pair[1].0);
            let part = (to.min(next) - from.max(at)) as f64 / (next - at) as f64;
            part * total(&pair[1].1).saturating_sub(total(&pair[0].1)) as f64
        });
        Some(grown.sum())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::samples::ThreadLoad;

    fn series(points: &[(u64, u64)]) -> Series<ThreadLoad> {
        let mut series = Series::default();
        points
            .iter()
            .for_each(|(at, voluntary)| series.push(*at, ThreadLoad { voluntary: *voluntary, involuntary: 0 }));
        series
    }

    #[test]
    fn a_total_that_falls_grew_by_nothing_there() {
        let series = series(&[(10, 100), (20, 300), (30, 5), (40, 25)]);
        let grown = |from, to| series.between(from, to, |load| load.voluntary);
        assert_eq!(grown(0, u64::MAX), Some(220.0));
        assert_eq!((grown(20, 30), grown(15, 35)), (Some(0.0), Some(110.0)));
        assert_eq!((grown(12, 15), grown(40, 50), grown(0, 10)), (Some(60.0), None, None));
    }

    proptest! {
        #[test]
        fn what_grew_is_never_less_than_nothing_and_adds_up(
            points in prop::collection::vec((1u64..1000, any::<u64>()), 0..12),
            cuts in (0u64..9000, 0u64..9000, 0u64..9000),
        ) {
            let mut time = 0;
            let points: Vec<(u64, u64)> = points.into_iter().map(|(step, total)| { time += step; (time, total) }).collect();
            let series = series(&points);
            let mut cuts = [cuts.0, cuts.1, cuts.2];
            cuts.sort_unstable();
            let grown = |from, to| series.between(from, to, |load| load.voluntary).unwrap_or(0.0);
            let (one, other, whole) = (grown(cuts[0], cuts[1]), grown(cuts[1], cuts[2]), grown(cuts[0], cuts[2]));
            prop_assert!(one >= 0.0 && other >= 0.0);
            prop_assert!((one + other - whole).abs() <= 1e-9 * whole.max(1.0), "{one} + {other}, {whole}");
        }
    }
}
