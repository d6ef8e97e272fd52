//! Figures in words: the same in every rendering.

use chart::number::{digits, nanoseconds, scaled};
use machine::Bytes;

use crate::findings::{Choice, Interval, PointFindings, SizeRange};
use crate::point::{Metric, Path, Pattern, PointSpec, Receiver};

/// In the unit of the metric.
pub fn value(metric: Metric, value: f64) -> String {
    match metric {
        Metric::HalfRoundTrip => nanoseconds(value),
        Metric::BytesPerSecond => scaled(value, &[(1.0, "B/s"), (1e3, "kB/s"), (1e6, "MB/s"), (1e9, "GB/s")]),
        Metric::MessagesPerSecond => scaled(value, &[(1.0, "msg/s"), (1e3, "k msg/s"), (1e6, "M msg/s")]),
    }
}

/// `142 ns (138 ns to 149 ns)`.
pub fn interval(of: &Interval, write: impl Fn(f64) -> String) -> String {
    format!("{} ({} to {})", write(of.median), write(of.low), write(of.high))
}

/// `1.80× (1.62 to 2.01)`.
pub fn gain(of: &Interval) -> String {
    format!("{}× ({} to {})", digits(of.median), digits(of.low), digits(of.high))
}

pub fn sizes(from: Bytes, to: Bytes) -> String {
    if from == to { from.to_string() } else { format!("{from} to {to}") }
}

pub fn choice(of: &Choice) -> String {
    match of {
        Choice::Place(contender) => contender.to_string(),
        Choice::CannotTell { between, .. } => {
            let names: Vec<_> = between.iter().map(ToString::to_string).collect();
            format!("cannot tell between {}", names.join(" and "))
        }
    }
}

/// Two characters or more for each of the three cores that matter.
pub fn cores(spec: &PointSpec) -> String {
    let protocol = spec.protocol_core.map(|core| format!(", receive processing on {core}")).unwrap_or_default();
    format!("cores {} and {}{protocol}", spec.local_core.0, spec.remote_core.0)
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

/// What a pattern measures, as a heading.
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

/// What a row of the verdict answers, as a heading.
pub fn asked(of: &SizeRange) -> String {
    format!("{}: {} ({})", of.question.title(), heading(of.pattern).to_lowercase(), path(&of.path))
}

/// What the value on the chart is.
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
        "{}, {}: {}, {} blocks",
        of.spec.contender(),
        of.spec.size,
        interval(&of.value, |v| value(metric, v)),
        of.value.samples
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_in_the_unit_of_their_metric() {
        assert_eq!(value(Metric::HalfRoundTrip, 1_434.0), "1.43 µs");
        assert_eq!(value(Metric::BytesPerSecond, 13.4e9), "13.4 GB/s");
        assert_eq!(value(Metric::MessagesPerSecond, 9.81e6), "9.81 M msg/s");
    }
}
