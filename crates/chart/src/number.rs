//! Numbers in words: the same in every rendering.

use machine::Reading;

/// A number with three significant digits and its unit's prefix: `142 ns`, `1.43 µs`, `12.1 GB/s`. `steps`: what each
/// unit is worth, rising.
pub fn scaled(value: f64, steps: &[(f64, &str)]) -> String {
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

/// So many digits that count, with an exponent where many zeros would stand before or after them.
pub fn significant(value: f64, digits: usize) -> String {
    let after = digits.saturating_sub(1);
    let written = format!("{value:.after$e}");
    let exponent: i32 = written.rsplit_once('e').and_then(|(_, exponent)| exponent.parse().ok()).unwrap_or(0);
    match exponent {
        _ if value == 0.0 => "0".into(),
        ..=-5 | 16.. => written,
        _ => {
            let after = (after as i32 - exponent).max(0) as usize;
            format!("{value:.after$}")
        }
    }
}

/// A time in seconds with four digits that count: `12.35 s`, `51.20 ms`, `612.0 us`.
pub fn seconds(value: f64) -> String {
    match value.abs() {
        v if v >= 0.1 || v == 0.0 => significant(value, 4) + " s",
        v if v >= 1e-3 => significant(value * 1e3, 4) + " ms",
        _ => significant(value * 1e6, 4) + " us",
    }
}

pub fn nanoseconds(value: f64) -> String {
    scaled(value, &[(1.0, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")])
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
        assert_eq!(nanoseconds(f64::NAN), "no value");
    }

    #[test]
    fn digits_count_however_small_or_large_the_number_is() {
        for (value, text) in [
            (0.0, "0"),
            (3.2e-7, "3.200e-7"),
            (-0.000_123_44, "-0.0001234"),
            (0.2631, "0.2631"),
            (0.999_99, "1.000"),
            (12.345, "12.35"),
            (123_456.0, "123456"),
            (2e20, "2.000e20"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(significant(value, 4), text);
        }
        assert_eq!(
            [0.0, 2e-7, 612e-6, 0.0512, 0.1, 83.0].map(seconds),
            ["0 s", "0.2000 us", "612.0 us", "51.20 ms", "0.1000 s", "83.00 s"]
        );
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
