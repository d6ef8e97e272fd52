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
    fn what_is_missing_says_why_and_is_never_a_number() {
        let absent: Reading<u64> = Reading::absent("no PMU");
        assert_eq!(reading(&absent, u64::to_string), "absent: no PMU");
        let refused: Reading<u64> = Reading::not_permitted("tracefs is root's", "run as root");
        assert_eq!(reading(&refused, u64::to_string), "not permitted: tracefs is root's. Next: run as root");
        assert_eq!(reading(&Reading::Modelled(3_u64), u64::to_string), "3 (modelled)");
    }
}
