//! Scales and their ticks.

/// The mapping of values to an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Linear, from zero.
    Linear,
    /// Logarithmic, with ticks at powers of two: for sizes.
    Log2,
    /// Logarithmic, with ticks at 1, 2 and 5 times powers of ten.
    Log10,
}

/// An axis before its extent is known, which comes from the data.
#[derive(Debug, Clone, Copy)]
pub struct Axis {
    pub label: &'static str,
    pub scale: Scale,
    pub write: fn(f64) -> String,
}

impl Axis {
    /// The label of a tick, without needless zeros: `10 us`, not `10.0 us`.
    pub fn tick(&self, value: f64) -> String {
        let text = (self.write)(value);
        let (number, unit) = text.split_once(' ').map_or((text.as_str(), ""), |(number, unit)| (number, unit));
        match number.contains('.') && !number.contains('e') {
            true => format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.')).trim_end().to_string(),
            false => text,
        }
    }
}

/// An axis with its extent, mapped onto pixels.
pub struct Placed {
    scale: Scale,
    from: f64,
    to: f64,
    start: f64,
    end: f64,
}

impl Scale {
    /// Whether `value` has a place on this scale.
    pub fn takes(self, value: f64) -> bool {
        value.is_finite() && (self == Scale::Linear || value > 0.0)
    }

    fn position(self, value: f64) -> f64 {
        match self {
            Scale::Linear => value,
            Scale::Log2 => value.log2(),
            Scale::Log10 => value.log10(),
        }
    }
}

impl Placed {
    /// An axis that covers `values`, ignoring those without a place on the scale; `None` where none is left.
    pub fn over(scale: Scale, values: impl Iterator<Item = f64>, (start, end): (f64, f64)) -> Option<Self> {
        let (mut from, mut to) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|v| scale.takes(*v)) {
            from = from.min(scale.position(value));
            to = to.max(scale.position(value));
        }
        if from > to {
            return None;
        }
        match scale {
            Scale::Linear => {
                from = from.min(0.0);
                to = if to > from { from + (to - from) * 1.06 } else { from + 1.0 };
            }
            Scale::Log2 => (from, to) = (from - 0.35, to + 0.35),
            Scale::Log10 => (from, to) = (from - 0.06 * (to - from) - 0.05, to + 0.06 * (to - from) + 0.05),
        }
        Some(Placed { scale, from, to, start, end })
    }

    /// The pixel of `value`, kept within the axis.
    pub fn at(&self, value: f64) -> f64 {
        let position = if self.scale.takes(value) { self.scale.position(value) } else { self.from };
        let share = ((position - self.from) / (self.to - self.from)).clamp(0.0, 1.0);
        self.start + share * (self.end - self.start)
    }

    /// Values of ticks, at least `apart` pixels from one another.
    pub fn ticks(&self, apart: f64) -> Vec<f64> {
        let per_unit = (self.end - self.start).abs() / (self.to - self.from);
        match self.scale {
            Scale::Linear => {
                let step = nice(apart / per_unit);
                let first = (self.from / step).ceil() as i64;
                let last = (self.to / step).floor() as i64;
                (first..=last).map(|n| n as f64 * step).collect()
            }
            Scale::Log2 => {
                let step = [1, 2, 3, 4, 5, 10].into_iter().find(|s| f64::from(*s) * per_unit >= apart).unwrap_or(20);
                let (first, last) = (self.from.ceil() as i32, self.to.floor() as i32);
                (first..=last).filter(|e| e.rem_euclid(step) == 0).map(|e| 2_f64.powi(e)).collect()
            }
            Scale::Log10 => self.decades(per_unit, apart),
        }
    }

    /// The finest ticks that fit of: 1-2-5 a decade, one a decade, one in two or three decades.
    fn decades(&self, per_unit: f64, apart: f64) -> Vec<f64> {
        let (first, last) = (self.from.floor() as i32, self.to.ceil() as i32);
        let inside = |v: &f64| (self.from..=self.to).contains(&v.log10());
        if per_unit * 0.3 >= apart {
            let finer: Vec<_> =
                (first..=last).flat_map(|e| [1.0, 2.0, 5.0].map(|m| m * 10_f64.powi(e))).filter(inside).collect();
            if finer.len() >= 2 {
                return finer;
            }
        }
        let step = [1, 2, 3].into_iter().find(|s| f64::from(*s) * per_unit >= apart).unwrap_or(6);
        let whole: Vec<_> = (first..=last).filter(|e| e % step == 0).map(|e| 10_f64.powi(e)).filter(inside).collect();
        if whole.len() >= 2 {
            return whole;
        }
        // Below one decade: evenly spaced on the scale, rounded to two digits.
        let count = ((self.end - self.start).abs() / apart).clamp(2.0, 4.0) as i32;
        let mut ticks: Vec<f64> = (0..=count)
            .map(|i| 10_f64.powf(self.from + (self.to - self.from) * f64::from(i) / f64::from(count)))
            .map(|v| {
                let unit = 10_f64.powi(v.log10().floor() as i32 - 1);
                (v / unit).round() * unit
            })
            .filter(inside)
            .collect();
        ticks.dedup();
        ticks
    }
}

/// The smallest of 1, 2, 5 times a power of ten that is not below `least`.
fn nice(least: f64) -> f64 {
    let unit = 10_f64.powi(least.log10().floor() as i32);
    [1.0, 2.0, 5.0].into_iter().map(|m| m * unit).find(|s| *s >= least).unwrap_or(10.0 * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_inside_and_apart_on_every_scale_and_range() {
        for scale in [Scale::Linear, Scale::Log2, Scale::Log10] {
            for (low, high) in [(1.0, 1.0), (2.0, 1_048_576.0), (130.0, 171.0), (0.003, 40_000.0), (5.0e9, 1.4e10)] {
                let axis = Placed::over(scale, [low, high].into_iter(), (280.0, 20.0)).unwrap();
                let pixels: Vec<_> = axis.ticks(28.0).into_iter().map(|t| axis.at(t)).collect();
                assert!(!pixels.is_empty(), "{scale:?} {low} {high}");
                for pair in pixels.windows(2) {
                    assert!(pair[0] - pair[1] >= 12.0, "{scale:?} {low} {high}: {pixels:?}");
                }
            }
        }
    }

    #[test]
    fn what_has_no_place_is_left_out() {
        assert!(Placed::over(Scale::Log10, [0.0, -1.0, f64::NAN].into_iter(), (0.0, 1.0)).is_none());
        assert!(Placed::over(Scale::Linear, std::iter::empty(), (0.0, 1.0)).is_none());
    }
}
