//! Figures in words: the same in every rendering.

use machine::{Bytes, Reading};

use crate::findings::{Choice, Interval, PointFindings, SizeRange};
use crate::point::{Metric, Path, Pattern, PointSpec, Receiver};

/// A number with three significant digits and its unit's prefix: `142 ns`, `1.43 µs`, `12.1 GB/s`.
fn scaled(value: f64, steps: &[(f64, &str)]) -> String {
    if !value.is_finite() {
        return "no value".into();
    }
    let (divisor, unit) = steps.iter().rev().find(|(divisor, _)| value.abs() >= *divisor * 0.9995).unwrap_or(&steps[0]);
    format!("{} {unit}", digits(value / divisor))
}

/// Three significant digits, no exponent.
pub fn digits(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        v if v >= 0.0995 => format!("{value:.2}"),
        v if v >= 0.000_995 => format!("{value:.4}"),
        _ => format!("{value:.1e}"),
    }
}

pub fn nanoseconds(value: f64) -> String {
    scaled(value, &[(1.0, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")])
}

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

/// A reading with how it was got: nothing before a measured value, `modelled` before a modelled one, and the reason
/// where there is none.
pub fn reading<T>(of: &Reading<T>, write: impl Fn(&T) -> String) -> String {
    match of {
        Reading::Measured(v) => write(v),
        Reading::Modelled(v) => format!("{} (modelled)", write(v)),
        missing => why_missing(missing).unwrap_or_default(),
    }
}

/// The reason for a value that is not there.
pub fn why_missing<T>(of: &Reading<T>) -> Option<String> {
    match of {
        Reading::Measured(_) | Reading::Modelled(_) => None,
        Reading::Absent { reason } => Some(format!("absent: {reason}")),
        Reading::NotPermitted { reason, next } => Some(format!("not permitted: {reason}. Next: {next}")),
    }
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
    fn three_digits_and_the_right_prefix() {
        for (ns, text) in [
            (0.0, "0 ns"),
            (0.25, "0.25 ns"),
            (142.4, "142 ns"),
            (999.9, "1.00 µs"),
            (1_434.0, "1.43 µs"),
            (12_100_000.0, "12.1 ms"),
        ] {
            assert_eq!(nanoseconds(ns), text);
        }
        assert_eq!(value(Metric::BytesPerSecond, 13.4e9), "13.4 GB/s");
        assert_eq!(value(Metric::MessagesPerSecond, 9.81e6), "9.81 M msg/s");
        assert_eq!(nanoseconds(f64::NAN), "no value");
    }

    #[test]
    fn what_is_missing_says_why_and_is_never_a_number() {
        let absent: Reading<u64> = Reading::absent("no PMU");
        assert_eq!(reading(&absent, u64::to_string), "absent: no PMU");
        let refused: Reading<u64> = Reading::not_permitted("tracefs is root's", "run as root");
        assert_eq!(reading(&refused, u64::to_string), "not permitted: tracefs is root's. Next: run as root");
        assert_eq!(reading(&Reading::Modelled(3_u64), u64::to_string), "3 (modelled)");
    }
}
