//! What offcodes are expected to take, in the ledger before they start, and what came beside it.

use std::time::{SystemTime, UNIX_EPOCH};

use experiment::ledger::{Kind, Ledger, Outcome, Prediction, Subject};
use machine::{Nanoseconds, Result};
use runtime::control::Report;
use runtime::expectation::Expectation;

/// Of fewer timed uses the first ones, with cold caches, would tell.
const USES: u64 = 32;

/// Stores what is expected of each offcode, unless the same still waits for an outcome.
///
/// # Errors
/// The ledger cannot be written.
pub fn predict(ledger: &mut Ledger, expected: &[Expectation]) -> Result<()> {
    for of in expected {
        let prediction = Prediction {
            id: 0,
            made: now(),
            kind: Kind::Offcode,
            subject: subject(of),
            quantity: quantity(of),
            expected: of.time,
            because: of.because.clone(),
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
        let settled = ledger.settle(&subject(of), &quantity(of), &outcome)?;
        said.extend(settled.last().map(|one| format!("{}: {}", of.offcode, one.against(outcome.value))));
    }
    Ok(said)
}

fn subject(of: &Expectation) -> Subject {
    Subject { words: format!("{} {}, {}", of.offcode, of.version, of.body), digest: of.digest.clone() }
}

fn quantity(of: &Expectation) -> String {
    format!("time for a message at {}", of.site)
}

fn now() -> Nanoseconds {
    Nanoseconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64)
}
