//! How long a run may take before it is ended.

use machine::Nanoseconds;

/// So many times as long as usual.
const TIMES: u64 = 10;

/// And no less than this.
pub const LEAST: Nanoseconds = Nanoseconds(60_000_000_000);

/// For a run that usually takes so many nanoseconds; `unknown` where nobody knows.
pub fn limit(usual: Option<f64>, unknown: Nanoseconds) -> Nanoseconds {
    usual.map_or(unknown, |usual| Nanoseconds(TIMES * usual as u64)).max(LEAST)
}
