//! Shades: a magnitude in eight steps.

use std::fmt::Write;

use super::plot::unit;

/// Shades in the style sheet: `h1`, the faintest, to `h8`.
pub const SHADES: u8 = 8;

/// A logarithmic scale of shades; the least value has the faintest shade.
pub struct LogShades {
    least: f64,
    most: f64,
}

impl LogShades {
    /// Over the values above 0; `None` where there is none.
    pub fn over(values: impl Iterator<Item = f64>) -> Option<LogShades> {
        let (least, most) = values
            .filter(|value| value.is_finite() && *value > 0.0)
            .fold((f64::INFINITY, 0.0_f64), |(least, most), value| (least.min(value), most.max(value)));
        (most > 0.0).then_some(LogShades { least, most })
    }

    /// 1 to [`SHADES`]; 0 for a value that is not above 0.
    pub fn shade(&self, value: f64) -> u8 {
        if value.is_nan() || value <= 0.0 {
            return 0;
        }
        if self.most <= self.least {
            return SHADES;
        }
        let share = (value / self.least).ln() / (self.most / self.least).ln();
        1 + (share.clamp(0.0, 1.0) * f64::from(SHADES) - 1e-9).max(0.0) as u8
    }

    /// The least value of each shade and the greatest of the last; one bound where all values are equal.
    pub fn bounds(&self) -> Vec<f64> {
        if self.most <= self.least {
            return vec![self.most];
        }
        let at = |shade: u8| self.least * (self.most / self.least).powf(f64::from(shade) / f64::from(SHADES));
        (0..=SHADES).map(at).collect()
    }
}

/// The shade of a share of 1; 0 for a share that is not above 0.
pub fn shade_of_share(share: f64) -> u8 {
    if share.is_nan() || share <= 0.0 {
        return 0;
    }
    (share.min(1.0) * f64::from(SHADES)).ceil() as u8
}

/// A legend: the shades in a row between their bounds.
pub fn legend(what: &str, bounds: &[String]) -> String {
    let (Some(first), Some(last)) = (bounds.first(), bounds.last()) else { return String::new() };
    let shades = if bounds.len() > 1 { 1..=SHADES } else { SHADES..=SHADES };
    let boxes: String = shades.map(|shade| format!("<i class=\"heat h{shade}\"></i>")).collect();
    let middle = match bounds.len() {
        n if n >= 5 => format!("<span>{}</span>", chart::escape(&bounds[n / 2])),
        _ => String::new(),
    };
    let ends = match bounds.len() {
        1 => format!("<span>{}</span>", chart::escape(last)),
        _ => format!("<span>{}</span>{middle}<span>{}</span>", chart::escape(first), chart::escape(last)),
    };
    format!(
        "<div class=\"shades\"><span class=\"of\">{}</span><span class=\"scale\"><span class=\"boxes\">{boxes}</span>\
         <span class=\"bounds\">{ends}</span></span></div>",
        chart::escape(what)
    )
}

/// A row of equal cells, each one unit wide and high: one path for each shade, so that thousands of cells are little text.
pub fn row(out: &mut String, top: usize, shades: &[u8]) {
    for shade in 1..=SHADES {
        let mut path = String::new();
        let mut at = 0;
        while at < shades.len() {
            let run = shades[at..].iter().take_while(|s| **s == shade).count();
            if run > 0 {
                let _ = write!(path, "M{} {top}h{run}v1h-{run}z", unit(at as f64));
            }
            at += run.max(1);
        }
        if !path.is_empty() {
            let _ = write!(out, "<path class=\"heat h{shade}\" d=\"{path}\"/>");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_is_faintest_and_the_most_is_fullest() {
        let scale = LogShades::over([0.0, 3.0, 3e6, f64::NAN].into_iter()).unwrap();
        assert_eq!((scale.shade(0.0), scale.shade(3.0), scale.shade(3e6)), (0, 1, SHADES));
        let mut last = 1;
        for bound in scale.bounds() {
            assert!(scale.shade(bound * 1.0001) >= last);
            last = scale.shade(bound * 1.0001);
        }
        let flat = LogShades::over([5.0, 5.0].into_iter()).unwrap();
        assert_eq!((flat.shade(5.0), flat.bounds().len()), (SHADES, 1));
        assert!(LogShades::over([0.0].into_iter()).is_none());
        assert_eq!([0.0, 0.001, 0.5, 1.0, 2.0].map(shade_of_share), [0, 1, 4, 8, 8]);
    }

    #[test]
    fn runs_of_a_shade_are_one_piece() {
        let mut out = String::new();
        row(&mut out, 2, &[0, 3, 3, 1, 3]);
        assert_eq!(out.matches("<path").count(), 2);
        assert!(out.contains("M1 2h2v1h-2z") && out.contains("M4 2h1v1h-1z"), "{out}");
    }
}
