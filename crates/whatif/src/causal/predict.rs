//! A prediction of a run over another carrier, from slopes over one: the additional cost of messages, as far as it counts.

use machine::{Bytes, Fault, Result, costs};
use rounds::estimate::Estimate;

use super::{Factor, Findings};

/// The greatest factor between the ends of an expectation; a wider one says nothing.
const WIDEST: f64 = 2.0;

/// An expectation for the other carrier.
#[derive(Debug, Clone, PartialEq)]
pub struct Expected {
    /// Time of a run over that carrier, over time here.
    pub ratio: costs::Interval,
    /// The grounds, in a sentence.
    pub because: String,
}

/// The run of `findings` over another carrier. `dearer` is what half a round trip takes there more than here, in nanoseconds,
/// both measured in the same rounds; a message of another size takes that of the nearest.
///
/// Half a round trip holds the sender's work, the receiver's and the way between them; how they share the difference is not
/// known, so that the interval goes from all of it at the end that counts least to all of it at the one that counts most.
///
/// # Errors
/// Neither end was measured, or the other carrier is not the dearer one: then slopes bound, and do not predict.
pub fn expect(findings: &Findings, dearer: &[(Bytes, Estimate)], to: &str) -> Result<Expected> {
    let subject = || format!("a run over {to}");
    let ends = findings.slopes.iter().filter(|slope| matches!(slope.target.factor, Factor::Send | Factor::Receive));
    let ends: Vec<_> = ends.filter_map(|slope| Some((slope.possible()?, slope.count))).collect();
    let Some(count) = ends.iter().map(|(_, count)| *count).max_by(f64::total_cmp) else {
        let cause = "no slope of send or receive is known";
        return Err(Fault::new(subject(), cause, "measure send,receive with a longer --budget"));
    };
    let (mut more, mut known) = (costs::Interval::exactly(0.0), 0.0);
    for (size, messages) in &findings.sizes {
        let Some(Estimate { middle, low, high, .. }) = nearest(dearer, *size) else { continue };
        more = more.plus(costs::Interval { low, middle, high }.times(*messages as f64));
        known += *messages as f64;
    }
    if known == 0.0 || more.low <= 0.0 {
        let cause = format!(
            "its messages are not seen to cost more ({:.0} ns each, {:.0} .. {:.0}), and towards a faster carrier slopes \
             only bound the gain",
            more.middle / known.max(1.0),
            more.low / known.max(1.0),
            more.high / known.max(1.0)
        );
        return Err(Fault::new(subject(), cause, "measure over the faster carrier, and predict the slower one"));
    }
    // Persistent sends have no size in the tables: they are assumed to be like the others.
    let more = more.times(count / known);
    let of = |pick: fn(&Estimate) -> f64, least: bool| {
        let slopes = ends.iter().map(|(interval, _)| pick(interval));
        if least { slopes.fold(f64::INFINITY, f64::min) } else { slopes.fold(0.0, f64::max) }
    };
    let (low, high) = (of(|i| i.low, true), of(|i| i.high, false));
    let middle = (of(|i| i.middle, true) + of(|i| i.middle, false)) / 2.0;
    let ratio = |slope: f64, more: f64| 1.0 + slope * more / findings.elapsed;
    let ratio =
        costs::Interval { low: ratio(low, more.low), middle: ratio(middle, more.middle), high: ratio(high, more.high) };
    if ratio.high > WIDEST * ratio.low {
        let cause =
            format!("{:.2} .. {:.2} times the time is too wide to be held against anything", ratio.low, ratio.high);
        let next = "keep other work off the machine, and measure with a longer --budget";
        return Err(Fault::new(subject(), cause, next));
    }
    let because = format!(
        "{count:.0} messages, each {:.0} ns dearer ({:.0} .. {:.0}), of which {:.0} to {:.0} % lengthen a run of {:.3} s",
        more.middle / count,
        more.low / count,
        more.high / count,
        100.0 * low,
        100.0 * high,
        findings.elapsed / 1e9
    );
    Ok(Expected { ratio, because })
}

fn nearest(dearer: &[(Bytes, Estimate)], size: Bytes) -> Option<Estimate> {
    let log = |size: Bytes| (size.0.max(1) as f64).log2();
    let apart = |of: &Bytes| (log(*of) - log(size)).abs();
    dearer.iter().min_by(|one, other| apart(&one.0).total_cmp(&apart(&other.0))).map(|(_, more)| *more)
}
