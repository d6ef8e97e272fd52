//! Predictions in the ledger that a trial settles.

use experiment::ledger::{Ledger, Outcome, Prediction};
use experiment::trial::design::{Arm, Design};
use experiment::trial::judgement::Judgement;
use launch::trial::{carriers_quantity, subject};
use machine::Result;
use rounds::estimate::Estimate;

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

/// Compares the outcome with the predictions of `plimsoll whatif`, `map` and `tune`.
///
/// A replay predicts the time of a command over another's, of both or of what both have between MPI_Init and MPI_Finalize;
/// either may be the first arm. Delays (`--predict`) predict the time that the program prints, or that it has between MPI_Init
/// and MPI_Finalize, over another network or carrier.
pub fn settle(design: &Design, judgement: &Judgement) -> Result<Vec<Settled>> {
    let of_times = design.merit.pattern.is_none() && !design.merit.mpi;
    if !of_times && design.merit.more_is_better {
        return Ok(Vec::new());
    }
    let carrier = |arm: &Arm| {
        let value = ["network ", "carrier "].iter().find_map(|axis| arm.name.strip_prefix(axis))?;
        value.split([':', ',']).next().map(str::to_owned)
    };
    let mut ledger = Ledger::open()?;
    let mut said = Vec::new();
    for Compared { arm, base, value, interval } in compared(&design.arms, judgement) {
        let mut names = Vec::new();
        if of_times {
            names.push((expectation::subject(&base.line), expectation::over(&arm.line, &base.line)));
        } else if design.merit.mpi {
            names.push((expectation::subject(&base.line), expectation::over_in_mpi(&arm.line, &base.line)));
        }
        if let (false, Some(from), Some(to)) = (of_times, carrier(base), carrier(arm)) {
            let quantity = carriers_quantity(&from, &to);
            // The subject is a digest of files.
            if ledger.open_predictions().any(|open| open.quantity == quantity) {
                names.push((subject(&arm.command)?, quantity));
            }
        }
        for (of, quantity) in names {
            let source = "plimsoll try".to_owned();
            let outcome = Outcome { id: 0, came: machine::here::now(), value, interval, source };
            let settled = ledger.settle(&of, &quantity, &outcome)?.into_iter();
            said.extend(settled.map(|prediction| Settled { prediction, value }));
        }
    }
    Ok(said)
}

/// The time of an arm over another's.
struct Compared<'a> {
    arm: &'a Arm,
    base: &'a Arm,
    value: f64,
    interval: Option<(f64, f64)>,
}

/// Every arm over every other, where both are told from the first or are it.
fn compared<'a>(arms: &'a [Arm], judgement: &Judgement) -> Vec<Compared<'a>> {
    let first = Estimate { middle: 0.0, low: 0.0, high: 0.0, samples: 0 };
    let gain = |nth: usize| if nth == 0 { Some(first) } else { judgement.arms[nth].told() };
    let gains: Vec<(usize, Estimate)> = (0..arms.len()).filter_map(|nth| Some((nth, gain(nth)?))).collect();
    let over = |(base, of_base): &(usize, Estimate), (arm, of_arm): &(usize, Estimate)| Compared {
        arm: &arms[*arm],
        base: &arms[*base],
        value: (of_base.middle - of_arm.middle).exp(),
        // Of two others, gains over the first share its noise.
        interval: (*base == 0 || *arm == 0)
            .then(|| ((of_base.low - of_arm.high).exp(), (of_base.high - of_arm.low).exp())),
    };
    let each = gains.iter().flat_map(|base| gains.iter().map(move |arm| (base, arm)));
    each.filter(|(base, arm)| base.0 != arm.0).map(|(base, arm)| over(base, arm)).collect()
}

#[cfg(test)]
mod tests {
    use experiment::axes::Axes;
    use experiment::trial::judgement::{Best, Standing};
    use rounds::contrast::Verdict;

    use super::*;

    #[test]
    fn each_arm_is_compared_with_each_other_whatever_their_order() {
        let arm = |name: &str| Arm {
            name: name.to_owned(),
            axes: Axes::default(),
            command: vec![name.to_owned()],
            variables: Vec::new(),
            proven: false,
            line: name.to_owned(),
        };
        let standing = |gain: Option<f64>| Standing {
            spread: None,
            rounds: 9,
            over_first: gain.map(|gain| Estimate { middle: gain.ln(), low: 0.0, high: 2.0 * gain.ln(), samples: 9 }),
            says: Verdict::CannotTell,
            left_out: None,
        };
        let arms = ["a", "b", "c", "none"].map(arm);
        let judgement = Judgement { arms: [None, Some(2.0), Some(8.0), None].map(standing).into(), best: Best::One(2) };
        let all = compared(&arms, &judgement);
        let of = |arm: &str, base: &str| {
            let found = all.iter().find(|of| of.arm.name == arm && of.base.name == base)?;
            let ends = found.interval.map(|(low, high)| (low * 100.0, high * 100.0));
            Some(((found.value * 100.0).round(), ends.map(|(low, high)| (low.round(), high.round()))))
        };
        assert_eq!(of("b", "a"), Some((50.0, Some((25.0, 100.0)))));
        assert_eq!(of("a", "b"), Some((200.0, Some((100.0, 400.0)))));
        assert_eq!(of("b", "c"), Some((400.0, None)));
        assert_eq!((of("none", "a"), of("a", "a"), all.len()), (None, None, 6));
    }
}
