//! Usual duration of a run, and the limit after which it is ended.

use machine::Nanoseconds;
use rounds::statistics::median;

/// Limit of a run as a multiple of its usual duration.
const TIMES: u64 = 10;

/// Least limit of a run.
pub const LEAST: Nanoseconds = Nanoseconds(60_000_000_000);

/// Usual duration, from the durations of earlier runs; `None` without any.
pub fn usual(took: impl IntoIterator<Item = Nanoseconds>) -> Option<Nanoseconds> {
    let took: Vec<f64> = took.into_iter().map(|time| time.0 as f64).collect();
    median(&took).map(|ns| Nanoseconds(ns as u64))
}

/// Limit of a run; `unknown` where its usual duration is not known.
pub fn limit(usual: Option<Nanoseconds>, unknown: Nanoseconds) -> Nanoseconds {
    usual.map_or(unknown, |usual| Nanoseconds(TIMES * usual.0)).max(LEAST)
}
