//! Words for figures and choices, the same in every rendering.

use std::borrow::Cow;

use chart::number::{digits, nanoseconds, scaled};
use machine::{Bytes, count};
use rounds::estimate::Estimate;
use rounds::point::{Metric, Path, Pattern, PointSpec, Receiver};

use crate::findings::{Choice, PointFindings, SizeRange, Verdict};

/// The value with the unit of its metric.
pub fn value(metric: Metric, value: f64) -> String {
    match metric {
        Metric::HalfRoundTrip => nanoseconds(value),
        Metric::BytesPerSecond => scaled(value, &[(1.0, "B/s"), (1e3, "kB/s"), (1e6, "MB/s"), (1e9, "GB/s")]),
        Metric::MessagesPerSecond => scaled(value, &[(1.0, "msg/s"), (1e3, "k msg/s"), (1e6, "M msg/s")]),
    }
}

/// `142.3 ns (138.1 ns to 149.4 ns)`.
pub fn interval(of: &Estimate, write: impl Fn(f64) -> String) -> String {
    format!("{} ({})", write(of.middle), of.range(&write).replace(" .. ", " to "))
}

/// `1.803× (1.620 to 2.010)`.
pub fn gain(of: &Estimate) -> String {
    format!("{}× ({})", digits(of.middle), of.ends(3).replace(" .. ", " to "))
}

pub fn sizes(from: Bytes, to: Bytes) -> String {
    if from == to { from.to_string() } else { format!("{from} to {to}") }
}

pub fn choice(of: &Choice) -> String {
    let names = || of.contenders().iter().map(ToString::to_string).collect::<Vec<_>>();
    match of {
        Choice::Place(contender) => contender.to_string(),
        Choice::Either(_) | Choice::Alike { .. } => format!("either {}", names().join(" or ")),
        Choice::CannotTell { .. } => format!("cannot tell between {}", names().join(" and ")),
    }
}

/// The choice without its contenders, where these are named beside it.
pub fn brief(of: &Choice) -> String {
    match of {
        Choice::Place(contender) => contender.to_string(),
        Choice::Either(_) | Choice::Alike { .. } => "either".into(),
        Choice::CannotTell { .. } => "cannot tell".into(),
    }
}

/// Reason why no single place was chosen; `None` where one was.
pub fn why_no_place(of: &Choice) -> Option<Cow<'_, str>> {
    match of {
        Choice::Place(_) => None,
        Choice::Either(_) => Some("they perform the same within 2 %, and none costs clearly less CPU".into()),
        Choice::Alike { within, .. } => Some(format!("they perform the same within {}", percent(*within)).into()),
        Choice::CannotTell { why, .. } => Some(why.into()),
    }
}

/// Percentage, rounded up so that it bounds the share.
fn percent(share: f64) -> String {
    format!("{:.0} %", (100.0 * share).ceil())
}

/// Gain of the choice over the next best.
pub fn gain_of(range: &SizeRange) -> String {
    match (&range.saving, &range.gain, &range.choice) {
        (Some(saving), ..) => format!("as fast, CPU {}", gain(saving)),
        (None, Some(found), _) => gain(found),
        (None, None, Choice::Place(_)) => "nothing to compare with".into(),
        (None, None, Choice::Either(_)) => "none, equal within 2 %".into(),
        (None, None, Choice::Alike { within, .. }) => format!("none, alike within {}", percent(*within)),
        (None, None, Choice::CannotTell { .. }) => "none that can be told".into(),
    }
}

/// `12 of 13 answered at every size`.
pub fn answered(of: &Verdict) -> String {
    format!("{} of {} answered at every size", of.answered, of.asked)
}

/// The applications' cores and the cores of others: the peer's engine (the local engine's core is in its contender's
/// name) and receive processing.
pub fn cores(spec: &PointSpec) -> String {
    let engine = spec.peer_engine.map(|core| format!(", the peer's engine on {core}")).unwrap_or_default();
    let protocol = spec.protocol_core.map(|core| format!(", receive processing on {core}")).unwrap_or_default();
    format!("cores {} and {}{engine}{protocol}", spec.local_core.0, spec.remote_core.0)
}

pub fn path(of: &Path) -> String {
    match of {
        Path::Loopback => "on one host".into(),
        Path::Lab => "between the lab's two hosts".into(),
        Path::Remote(host) => format!("to {host}"),
    }
}

pub fn receiver(of: Receiver) -> &'static str {
    match of {
        Receiver::Reads => "receiver only reads",
        Receiver::Works => "receiver works on the data",
    }
}

/// Heading of a pattern.
pub fn heading(of: Pattern) -> &'static str {
    match of {
        Pattern::PingPong => "Latency, ping-pong",
        Pattern::Stream => "Bandwidth, stream",
        Pattern::StreamNoCache => "Bandwidth, stream without cache effects",
        Pattern::Bidirectional => "Bandwidth, both ways at once",
        Pattern::Window => "Bandwidth, windows of 64",
        Pattern::MessageRate => "Message rate, windows of 64",
    }
}

/// Heading of a row of the verdict.
pub fn asked(of: &SizeRange) -> String {
    format!("{}: {} ({})", of.question.title(), heading(of.pattern).to_lowercase(), path(&of.path))
}

/// The quantity on a chart's axis.
pub fn quantity(of: Metric) -> &'static str {
    match of {
        Metric::HalfRoundTrip => "half the round trip, less is better",
        Metric::BytesPerSecond => "bytes a second, more is better",
        Metric::MessagesPerSecond => "messages a second, more is better",
    }
}

/// `tcp in the kernel, 64 KiB: 2.1 GB/s (2.0 GB/s to 2.2 GB/s), 9 blocks`.
pub fn point(of: &PointFindings) -> String {
    let metric = of.spec.pattern.metric();
    format!(
        "{}, {}: {}, {}",
        of.spec.contender(),
        of.spec.size,
        interval(&of.value, |v| value(metric, v)),
        count::of(of.value.samples as u64, "block")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_in_the_unit_of_their_metric() {
        assert_eq!(value(Metric::HalfRoundTrip, 1_434.0), "1.434 us");
        assert_eq!(value(Metric::BytesPerSecond, 13.4e9), "13.4 GB/s");
        assert_eq!(value(Metric::MessagesPerSecond, 9.81e6), "9.81 M msg/s");
    }
}
