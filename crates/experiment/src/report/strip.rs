//! A strip of raw samples: every block a dot, the median a line, the interval a box.

use chart::{Frame, Placed, Scale, Svg};

use rounds::estimate::Estimate;

/// A strip over the samples' own range: for spread and outliers, not for size. `None` where there is no finite sample.
pub fn strip(id: &str, description: &str, samples: &[f64], interval: &Estimate) -> Option<String> {
    let frame = Frame { name: "strip", width: 120.0, height: 20.0 };
    let least = samples.iter().copied().filter(|v| v.is_finite()).fold(f64::INFINITY, f64::min);
    if !least.is_finite() {
        return None;
    }
    // The smallest sample is the origin, so that the spread fills the strip.
    let shift = |v: f64| v - least;
    let x = Placed::over(Scale::Linear, samples.iter().map(|v| shift(*v)), (5.0, 115.0))?;
    let mut svg = Svg::new(frame, id, "Raw samples", description);
    let (low, high) = (x.at(shift(interval.low)), x.at(shift(interval.high)));
    svg.rectangle("box", (low, 3.0), (high - low).max(1.0), 14.0, description);
    for sample in samples.iter().filter(|v| v.is_finite()) {
        let at = x.at(shift(*sample));
        svg.line("dot", (at, 6.0), (at, 14.0));
    }
    svg.line("median", (x.at(shift(interval.middle)), 1.0), (x.at(shift(interval.middle)), 19.0));
    Some(svg.finish())
}
