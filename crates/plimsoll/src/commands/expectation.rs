//! Expectations for a whole job from a replay of a part of it, and their names in the ledger.

use experiment::ledger::{Kind, Ledger, Prediction, Subject, Widening};
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

/// Changes of a replay, by which the ledger judges its predictions apart.
pub const CARRIER: &str = "carrier";
pub const MAPPING: &str = "mapping";
pub const SETTING: &str = "setting";

/// The prediction of a quantity over that of `now`, from a replay of the profile `folder` with another `lever`. `level`: the
/// share of outcomes in the interval, where outcomes of recorded programs say it.
pub fn expectation(
    folder: &str,
    quantity: String,
    now: &str,
    lever: &str,
    expected: Interval,
    level: Option<f64>,
) -> Prediction {
    let because = format!("a replay of {folder} under the costs of the machine");
    let of = Prediction::new(Kind::WhatIf, subject(now), quantity, expected, because);
    Prediction { lever: Some(lever.to_owned()), level: level.unwrap_or(of.level), ..of }
}

/// The widening of expectations with this lever; `None` also without a ledger.
pub fn widening(ledger: Option<&Ledger>, lever: &str) -> Option<Widening> {
    ledger?.widening(Kind::WhatIf, Some(lever))
}

/// The ledger's name of the run that commands are compared with.
pub fn subject(now: &str) -> Subject {
    Subject { words: now.to_owned(), digest: String::new() }
}

/// The ledger's name of the time of a command over another's; `plimsoll try` looks for it.
pub fn over(command: &str, now: &str) -> String {
    format!("time of `{command}` over `{now}`")
}

/// The same of the time between MPI_Init and MPI_Finalize.
pub fn over_in_mpi(command: &str, now: &str) -> String {
    format!("time between MPI_Init and MPI_Finalize of `{command}` over `{now}`")
}
