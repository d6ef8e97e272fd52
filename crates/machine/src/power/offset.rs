//! The offset of a sensor's clock from ours, fitted to a load that was switched on and off on purpose.

use serde::{Deserialize, Serialize};

use super::track::Track;
use crate::quantity::{Nanoseconds, Watts};
use crate::reading::Reading;

/// How far a sensor's clock is ahead of ours.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Offset {
    /// The sensor's time less ours, ns; positive for a sensor that reports late.
    pub ahead: i64,
    /// Greatest error of `ahead`.
    pub within: Nanoseconds,
    /// Mean power under the load, at this offset.
    pub on: Watts,
    /// Mean power without the load, at this offset.
    pub off: Watts,
}

/// Offsets that the first, coarse search tries.
const PLACES: i64 = 2000;

/// Standard errors by which the load must show.
const CLEAR: f64 = 4.0;

/// Fits the clock of `track` to a load that was on in the times `on` of our clock and off between them. Offsets up to
/// `most` either way are tried. The times should differ in length, so that no other offset fits as well.
///
/// Absent where the load does not show, or where samples do not cover it at any offset.
pub fn fit(track: &Track, on: &[(Nanoseconds, Nanoseconds)], most: Nanoseconds) -> Reading<Offset> {
    let off: Vec<_> = on.windows(2).map(|pair| (pair[0].1, pair[1].0)).collect();
    if on.len() < 3 {
        return Reading::absent("a load must be on three times or more to be told from chance");
    }
    let Some(period) = track.period() else { return Reading::absent("there are fewer than two samples") };
    let most = most.0 as i64;
    let at = |ahead: i64| contrast(track, on, &off, ahead);
    let step = (2 * most / PLACES).max(1);
    let tried = (-PLACES / 2..=PLACES / 2).map(|nth| nth * step);
    let tried: Vec<(i64, Contrast)> = tried.filter_map(|ahead| Some((ahead, at(ahead)?))).collect();
    let Some((coarse, _)) = best(&tried) else {
        return Reading::absent("the samples do not cover the load at any offset");
    };
    // The peak is as wide as the period of samples: a finer search around it.
    let reach = step.max(period.0 as i64);
    let near: Vec<(i64, Contrast)> =
        (-200..=200).map(|nth| coarse + nth * reach / 200).filter_map(|ahead| Some((ahead, at(ahead)?))).collect();
    let Some((ahead, found)) = best(&near) else { return Reading::absent("the samples do not cover the load") };
    if found.on - found.off <= CLEAR * found.error {
        return Reading::absent(format!(
            "the load does not show in the samples: {} under it, {} without",
            Watts(found.on),
            Watts(found.off)
        ));
    }
    let as_good = |contrast: &Contrast| contrast.on - contrast.off >= found.on - found.off - found.error;
    let good = tried.iter().chain(&near).filter(|(_, contrast)| as_good(contrast)).map(|(ahead, _)| *ahead);
    let (low, high) = good.fold((ahead, ahead), |(low, high), ahead| (low.min(ahead), high.max(ahead)));
    // An edge of the load is known no better than to a sample.
    let within = ((high - low) as u64 / 2).max(period.0);
    // A range wider than the shortest time of the load holds several separate offsets that fit.
    let shortest = on.iter().chain(&off).map(|(from, to)| to.0 - from.0).min().unwrap_or(0);
    if within > shortest.max(period.0) {
        return Reading::absent("several offsets fit the load as well: let it last longer, or sample oftener");
    }
    Reading::Measured(Offset {
        ahead: low + (high - low) / 2,
        within: Nanoseconds(within),
        on: Watts(found.on),
        off: Watts(found.off),
    })
}

/// Mean power in the times of the load and between them, and the standard error of their difference.
#[derive(Debug, Clone, Copy)]
struct Contrast {
    on: f64,
    off: f64,
    error: f64,
}

type Times = [(Nanoseconds, Nanoseconds)];

fn contrast(track: &Track, on: &Times, off: &Times, ahead: i64) -> Option<Contrast> {
    let means = |times: &Times| {
        let shift = |at: Nanoseconds| Nanoseconds(at.0.saturating_add_signed(ahead));
        let mean = |(from, to): &(Nanoseconds, Nanoseconds)| {
            let integral = track.between(shift(*from), shift(*to));
            // A time is used only where samples cover nine tenths of it.
            let enough = integral.covered.0 * 10 >= (to.0 - from.0) * 9;
            integral.joules.over(integral.covered).filter(|_| enough).map(|watts| watts.0)
        };
        times.iter().map(mean).collect::<Option<Vec<f64>>>()
    };
    let (on, off) = (spread(&means(on)?), spread(&means(off)?));
    Some(Contrast { on: on.0, off: off.0, error: (on.1 + off.1).sqrt() })
}

/// Mean, and the square of its standard error.
fn spread(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    (mean, squares / (count - 1.0).max(1.0) / count)
}

fn best(tried: &[(i64, Contrast)]) -> Option<(i64, Contrast)> {
    let by = |contrast: &Contrast| contrast.on - contrast.off;
    tried.iter().copied().max_by(|a, b| by(&a.1).total_cmp(&by(&b.1)))
}
