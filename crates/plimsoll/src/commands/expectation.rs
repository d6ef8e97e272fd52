//! Expectations for a whole job from a replay of a part of it, and their names in the ledger.

use experiment::ledger::{Kind, Prediction, Subject};
use machine::costs::Interval;

/// Note where measured costs contradict a recording.
pub const CONTRADICTED: &str = "calls were over sooner than the costs say: plimsoll calibrate, and profile again";

/// The most time of a job's start and end over that of the replayed part: beyond it, the replay tells too little of the job.
pub const MOST_OUTSIDE: f64 = 4.0;

/// The time of a whole job over today's, where the replayed part takes `time` of today's. `outside`: start and end over
/// that part; they may change by the factors `becomes`, at least and at most.
pub fn of_job(time: &Interval, outside: f64, becomes: (f64, f64)) -> Interval {
    let of_job = |time: f64, factor: f64| (time + outside * factor) / (1.0 + outside);
    Interval { low: of_job(time.low, becomes.0), middle: of_job(time.middle, 1.0), high: of_job(time.high, becomes.1) }
}

/// The ledger's prediction for a command that is expected to take `expected` of the time of `now`.
pub fn expectation(folder: &str, command: &str, now: &str, expected: Interval) -> Prediction {
    Prediction {
        id: 0,
        made: machine::here::now(),
        kind: Kind::WhatIf,
        subject: subject(now),
        quantity: over(command, now),
        expected,
        because: format!("a replay of {folder} under the costs of the machine"),
        choice: None,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

/// The ledger's name of the run that commands are compared with.
pub fn subject(now: &str) -> Subject {
    Subject { words: now.to_owned(), digest: String::new() }
}

/// The ledger's name of the time of a command over another's; `plimsoll try` looks for it.
pub fn over(command: &str, now: &str) -> String {
    format!("time of `{command}` over `{now}`")
}
