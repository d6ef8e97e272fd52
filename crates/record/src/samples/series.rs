//! Running totals of one subject over time.

/// Most fields that a kind of totals has.
pub(super) const MOST: usize = 18;

/// Values of one subject at a moment. All but those that are absolute only grow (and may wrap).
pub trait Totals: Copy + Default {
    #[doc(hidden)]
    const KIND: u8;
    #[doc(hidden)]
    const FIELDS: usize;
    /// A bit for each field that is a value of its own and no total.
    #[doc(hidden)]
    const ABSOLUTE: u32;
    #[doc(hidden)]
    fn fields(&self) -> [u64; MOST];
    #[doc(hidden)]
    fn of(fields: &[u64; MOST]) -> Self;
}

/// Fields are u64, or `[n]` of them; `absolute` marks one that is no total.
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

/// Totals of one subject by time. Between two points a total grew evenly, as far as is known.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Series<T> {
    points: Vec<(u64, T)>,
}

impl<T: Totals> Series<T> {
    /// The totals in the order of time: CLOCK_MONOTONIC, ns.
    pub fn points(&self) -> &[(u64, T)] {
        &self.points
    }

    /// Ignores what is not later than the last point.
    pub(super) fn push(&mut self, at: u64, totals: T) {
        if self.points.last().is_none_or(|(last, _)| *last < at) {
            self.points.push((at, totals));
        }
    }

    pub fn first(&self) -> Option<&(u64, T)> {
        self.points.first()
    }

    pub fn last(&self) -> Option<&(u64, T)> {
        self.points.last()
    }

    /// What was known at `time`: the last point that is not later.
    pub fn known(&self, time: u64) -> Option<&T> {
        let after = self.points.partition_point(|(at, _)| *at <= time);
        self.points.get(after.checked_sub(1)?).map(|(_, totals)| totals)
    }

    /// How far a total went from `from` to `to`, interpolated. Before the first point and after the last nothing is known
    /// to have happened; `None` where the window holds no time between the two.
    pub fn between(&self, from: u64, to: u64, total: impl Fn(&T) -> u64) -> Option<f64> {
        let ((first, origin), (last, _)) = (self.first()?, self.last()?);
        let (from, to) = (from.max(*first), to.min(*last));
        if from >= to {
            return None;
        }
        let origin = total(origin);
        Some(self.grown(to, origin, &total) - self.grown(from, origin, &total))
    }

    /// From `origin` until `time`, which lies between the first point and the last.
    fn grown(&self, time: u64, origin: u64, total: &impl Fn(&T) -> u64) -> f64 {
        let after = self.points.partition_point(|(at, _)| *at <= time);
        let Some((at, before)) = after.checked_sub(1).and_then(|place| self.points.get(place)) else { return 0.0 };
        let base = total(before).wrapping_sub(origin) as f64;
        match self.points.get(after) {
            Some((next, then)) => {
                let part = (time - at) as f64 / (next - at) as f64;
                base + part * total(then).wrapping_sub(total(before)) as f64
            }
            None => base,
        }
    }
}
