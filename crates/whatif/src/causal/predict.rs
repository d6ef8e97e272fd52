//! From slopes over one carrier to a run over another: the difference of what their messages cost, as far as it counts.

use machine::costs::{Costs, Interval, Item, Way};
use machine::{Fault, Result};

use super::{Factor, Findings};

/// An expectation whose ends lie further apart than this factor says nothing, and would be held by whatever comes.
const WIDEST: f64 = 2.0;

/// What is expected of the other carrier.
#[derive(Debug, Clone, PartialEq)]
pub struct Expected {
    /// Time of a run there over time here.
    pub ratio: Interval,
    /// What it rests on, a sentence.
    pub because: String,
}

/// The run of `findings`, measured over `from`, over `to`.
///
/// Half a round trip holds the sender's work, the receiver's and the way between them; how they share the difference is not
/// known, so that the interval goes from all of it at the end that counts least to all of it at the one that counts most.
///
/// # Errors
/// Neither end was measured, a cost is not known, or the other carrier is not the dearer one: then slopes bound, and do not
/// predict.
pub fn expect(findings: &Findings, costs: &Costs, from: &Way, to: &Way) -> Result<Expected> {
    let subject = || format!("{to} for {from}");
    let ends = findings.slopes.iter().filter(|slope| matches!(slope.factor, Factor::Send | Factor::Receive));
    let ends: Vec<_> = ends.filter_map(|slope| Some((slope.possible()?, slope.count))).collect();
    let Some(count) = ends.iter().map(|(_, count)| *count).max_by(f64::total_cmp) else {
        return Err(Fault::new(
            subject(),
            "no slope of send or receive is known",
            "measure send,receive with a longer --budget",
        ));
    };
    let (mut difference, mut known) = (Interval::exactly(0.0), 0.0);
    for (size, messages) in &findings.sizes {
        let cost = |way: &Way| {
            let cost = costs.sized(&Item::HalfTrip(way.clone()), *size).reading;
            let next = "run plimsoll calibrate, as root for two hosts";
            cost.value()
                .copied()
                .ok_or_else(|| Fault::new(way.to_string(), "what its messages cost is not known", next))
        };
        let (here, there) = (cost(from)?, cost(to)?);
        let more =
            Interval { low: there.low - here.high, middle: there.middle - here.middle, high: there.high - here.low };
        difference = difference.plus(more.times(*messages as f64));
        known += *messages as f64;
    }
    if known == 0.0 || difference.middle <= 0.0 {
        let cause = "its messages do not cost more, and towards a faster carrier slopes only bound the gain";
        return Err(Fault::new(subject(), cause, "measure over the faster carrier, and predict the slower one"));
    }
    // Persistent sends have no size in the tables: they are taken to be as the others.
    let difference = difference.times(count / known);
    let of = |pick: fn(&experiment::findings::Interval) -> f64, least: bool| {
        let slopes = ends.iter().map(|(interval, _)| pick(interval));
        if least { slopes.fold(f64::INFINITY, f64::min) } else { slopes.fold(0.0, f64::max) }
    };
    let (low, high) = (of(|i| i.low, true), of(|i| i.high, false));
    let middle = (of(|i| i.median, true) + of(|i| i.median, false)) / 2.0;
    let ratio = |slope: f64, more: f64| 1.0 + slope * more / findings.elapsed;
    let ends = [
        ratio(low, difference.low),
        ratio(high, difference.low),
        ratio(low, difference.high),
        ratio(high, difference.high),
    ];
    let ratio = Interval {
        low: ends.into_iter().fold(f64::INFINITY, f64::min).max(f64::MIN_POSITIVE),
        middle: ratio(middle, difference.middle),
        high: ends.into_iter().fold(0.0, f64::max),
    };
    if ratio.high > WIDEST * ratio.low {
        let cause =
            format!("{:.2} .. {:.2} times the time is too wide to be held against anything", ratio.low, ratio.high);
        let next = "keep other work off the machine, run plimsoll calibrate again, and measure with a longer --budget";
        return Err(Fault::new(subject(), cause, next));
    }
    let because = format!(
        "{count:.0} messages, each {:.0} ns dearer ({:.0} .. {:.0}), of which {:.0} to {:.0} % lengthen a run of {:.3} s",
        difference.middle / count,
        difference.low / count,
        difference.high / count,
        100.0 * low,
        100.0 * high,
        findings.elapsed / 1e9
    );
    Ok(Expected { ratio, because })
}
