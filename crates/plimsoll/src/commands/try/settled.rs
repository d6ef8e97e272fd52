//! Predictions in the ledger that a trial settles.

use experiment::ledger::{Ledger, Outcome, Prediction};
use experiment::trial::design::{Arm, Design};
use experiment::trial::judgement::Judgement;
use launch::trial::{carriers_quantity, subject};
use machine::Result;

use crate::commands::expectation;

/// A prediction and its outcome.
pub struct Settled {
    pub prediction: Prediction,
    pub value: f64,
}

impl Settled {
    /// The prediction and its outcome as a sentence.
    pub fn words(&self) -> String {
        self.prediction.against(self.value)
    }
}

/// Compares the outcome with the predictions of `plimsoll whatif`.
///
/// A replay predicts the time of a command; delays (`--predict`) predict the time that the program prints, or that it has between
/// MPI_Init and MPI_Finalize, over another network or carrier.
pub fn settle(design: &Design, judgement: &Judgement) -> Result<Vec<Settled>> {
    let of_times = design.merit.pattern.is_none() && !design.merit.mpi;
    if !of_times && design.merit.more_is_better {
        return Ok(Vec::new());
    }
    let carrier = |arm: &Arm| {
        let value = ["network ", "carrier "].iter().find_map(|axis| arm.name.strip_prefix(axis))?;
        value.split([':', ',']).next().map(str::to_owned)
    };
    let first = &design.arms[0];
    let mut ledger = Ledger::open()?;
    let mut said = Vec::new();
    for (arm, standing) in design.arms.iter().zip(&judgement.arms).skip(1) {
        let Some(found) = standing.told() else { continue };
        let value = (-found.middle).exp();
        let interval = Some(((-found.high).exp(), (-found.low).exp()));
        let outcome = Outcome { id: 0, came: machine::here::now(), value, interval, source: "plimsoll try".to_owned() };
        let (of, quantity) = if of_times {
            (expectation::subject(&first.line), expectation::over(&arm.line, &first.line))
        } else {
            let (Some(from), Some(to)) = (carrier(first), carrier(arm)) else { continue };
            (subject(&arm.command)?, carriers_quantity(&from, &to))
        };
        let settled = ledger.settle(&of, &quantity, &outcome)?.into_iter();
        said.extend(settled.map(|prediction| Settled { prediction, value }));
    }
    Ok(said)
}
