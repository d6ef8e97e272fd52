//! How long a run usually takes, and how long it may take before it is ended.

use machine::Nanoseconds;
use rounds::statistics::median;

/// So many times as long as usual.
const TIMES: u64 = 10;

/// And no less than this.
pub const LEAST: Nanoseconds = Nanoseconds(60_000_000_000);

/// By what runs took; `None`: nobody knows.
pub fn usual(took: impl IntoIterator<Item = Nanoseconds>) -> Option<Nanoseconds> {
    let took: Vec<f64> = took.into_iter().map(|time| time.0 as f64).collect();
    median(&took).map(|ns| Nanoseconds(ns as u64))
}

/// `unknown` where nobody knows what is usual.
pub fn limit(usual: Option<Nanoseconds>, unknown: Nanoseconds) -> Nanoseconds {
    usual.map_or(unknown, |usual| Nanoseconds(TIMES * usual.0)).max(LEAST)
}
