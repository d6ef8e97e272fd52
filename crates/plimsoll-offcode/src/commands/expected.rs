//! What offcodes are expected to take, in the ledger before they start, and what came beside it.

use std::collections::HashSet;
use std::time::{SystemTime, UNIX_EPOCH};

use experiment::ledger::{Kind, Ledger, Outcome, Prediction, Subject};
use experiment::statistics::predictive_interval;
use machine::{Nanoseconds, Result};
use runtime::control::Report;
use runtime::expectation::Expectation;

/// Of fewer timed uses the first ones, with cold caches, would tell.
const USES: u64 = 32;
/// Outcomes of which the next one can be told, sharper than from costs.
const RUNS: usize = 3;

/// Stores what is expected of each offcode of an application, by its earlier runs or else by the costs, unless the same
/// still waits for an outcome.
///
/// # Errors
/// The ledger cannot be written.
pub fn predict(ledger: &mut Ledger, application: &str, expected: &[Expectation]) -> Result<()> {
    for of in expected {
        let (subject, quantity) = (subject(application, of), quantity(of));
        let earlier = earlier(ledger, &subject, &quantity);
        let told = if earlier.len() < RUNS { None } else { predictive_interval(&earlier) };
        let (expected, because) = match told {
            Some(interval) => (interval, format!("{} earlier runs", earlier.len())),
            None => (of.time, of.because.clone()),
        };
        let prediction = Prediction {
            id: 0,
            made: now(),
            kind: Kind::Offcode,
            subject,
            quantity,
            expected,
            because,
            choice: Some(of.site.to_string()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let same = |open: &Prediction| {
            (&open.subject, &open.quantity, open.expected)
                == (&prediction.subject, &prediction.quantity, prediction.expected)
        };
        if !ledger.open_predictions().any(same) {
            ledger.predict(prediction)?;
        }
    }
    Ok(())
}

/// Holds what the sites timed against it, of offcodes that still run. Returns a sentence for each outcome.
///
/// # Errors
/// The ledger cannot be written.
pub fn settle(ledger: &mut Ledger, expected: &[Expectation], last: &Report) -> Result<Vec<String>> {
    let mut said = Vec::new();
    for of in expected {
        let running = last.offcodes.iter().find(|running| running.offcode == of.offcode);
        let timed = running.and_then(|running| running.evidence.as_ref().ok()?.timed);
        let Some(timed) = timed.filter(|timed| timed.uses >= USES) else { continue };
        let outcome =
            Outcome { id: 0, came: now(), value: timed.each(), interval: None, source: "plimsoll run".to_owned() };
        let settled = ledger.settle(&subject(&last.application, of), &quantity(of), &outcome)?;
        said.extend(settled.last().map(|one| format!("{}: {}", of.offcode, one.against(outcome.value))));
    }
    Ok(said)
}

/// What came of earlier predictions of the same, once a run.
fn earlier(ledger: &Ledger, subject: &Subject, quantity: &str) -> Vec<f64> {
    let same = |of: &&Prediction| of.subject == *subject && of.quantity == quantity;
    let ids: HashSet<u64> = ledger.predictions.iter().filter(same).map(|of| of.id).collect();
    let mut outcomes: Vec<&Outcome> = ledger.outcomes.iter().filter(|outcome| ids.contains(&outcome.id)).collect();
    outcomes.dedup_by_key(|outcome| outcome.came);
    outcomes.iter().map(|outcome| outcome.value).collect()
}

fn subject(application: &str, of: &Expectation) -> Subject {
    let words = format!("{} {} of {application}, {}", of.offcode, of.version, of.body);
    Subject { words, digest: of.digest.clone() }
}

fn quantity(of: &Expectation) -> String {
    format!("time for a message at {}", of.site)
}

fn now() -> Nanoseconds {
    Nanoseconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use machine::costs::Interval;
    use machine::{BodyKind, Site};
    use runtime::Running;
    use runtime::site::Evidence;
    use runtime::site::evidence::Timed;

    use super::*;

    fn expectation() -> Expectation {
        Expectation {
            offcode: "test.counter".into(),
            version: "1".into(),
            digest: "d".into(),
            site: Site::App,
            body: BodyKind::Wasm,
            time: Interval { low: 10.0, middle: 100.0, high: 1000.0 },
            because: "costs".into(),
        }
    }

    fn report(uses: u64, each: u64) -> Report {
        let timed = Some(Timed { uses, time: Nanoseconds(uses * each) });
        let evidence = Ok(Evidence { uses, timed, ..Evidence::default() });
        let (offcode, version) = ("test.counter".into(), "1".into());
        let running = Running { offcode, version, site: Site::App, attributes: Vec::new(), evidence };
        Report { process: 1, application: "monitor".into(), running_ms: 1, offcodes: vec![running] }
    }

    #[test]
    fn earlier_runs_tell_more_than_costs() {
        let folder = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::at(&folder.path().join("l")).unwrap();
        let expected = [expectation()];
        for each in [150, 152, 149] {
            predict(&mut ledger, "monitor", &expected).unwrap();
            assert_eq!(ledger.predictions.last().unwrap().because, "costs");
            let said = settle(&mut ledger, &expected, &report(64, each)).unwrap();
            assert_eq!(
                said,
                [format!("test.counter: time for a message at app: {each} ns, expected 10 ns .. 1000 ns: held")]
            );
        }
        predict(&mut ledger, "monitor", &expected).unwrap();
        let last = ledger.predictions.last().unwrap();
        assert!(last.because == "3 earlier runs" && last.expected.high < 200.0, "{last:?}");
        // Of another application it is not known.
        predict(&mut ledger, "other", &expected).unwrap();
        assert_eq!(ledger.predictions.last().unwrap().because, "costs");
    }

    #[test]
    fn what_too_few_messages_tell_leaves_the_prediction_open_and_it_is_made_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::at(&folder.path().join("l")).unwrap();
        let expected = [expectation()];
        for _ in 0..2 {
            predict(&mut ledger, "monitor", &expected).unwrap();
            assert_eq!(settle(&mut ledger, &expected, &report(USES - 1, 150)).unwrap(), Vec::<String>::new());
        }
        assert_eq!((ledger.predictions.len(), ledger.open_predictions().count()), (1, 1));
    }
}
