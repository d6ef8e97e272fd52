//! Numbers in words: the same in every rendering.

use machine::Reading;
pub use machine::figure::{digits, nanoseconds, scaled, significant};

/// A time in seconds with four significant digits: `12.35 s`, `51.20 ms`, `612.0 us`.
pub fn seconds(value: f64) -> String {
    match value.abs() {
        v if v >= 0.1 || v == 0.0 => significant(value, 4) + " s",
        v if v >= 1e-3 => significant(value * 1e3, 4) + " ms",
        _ => significant(value * 1e6, 4) + " us",
    }
}

/// A reading with its provenance: nothing before a measured value, `modelled` before a modelled one, the reason in
/// place of a missing one.
pub fn reading<T>(of: &Reading<T>, write: impl Fn(&T) -> String) -> String {
    match of {
        Reading::Measured(v) => write(v),
        Reading::Modelled(v) => format!("{} (modelled)", write(v)),
        missing => why_missing(missing).unwrap_or_default(),
    }
}

/// The reason of a missing value.
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
    fn a_time_in_seconds_keeps_its_digits() {
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
