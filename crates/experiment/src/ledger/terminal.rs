//! The ledger for a terminal.

use std::fmt::Write;

use chart::clock;
use chart::number::{seconds, significant};
use machine::costs::Interval;

use super::{Kind, Ledger, Prediction, Settled, Tally, tallies};

/// Predictions shown of each kind.
const SHOWN: usize = 8;

/// Each kind with its tally, its misses, then its latest outcomes.
pub fn render(ledger: &Ledger) -> String {
    let all = tallies(ledger);
    if all.is_empty() {
        let next = "plimsoll mpirun --placement auto -- PROGRAM and plimsoll run APP.toml make predictions, and hold each run \
                    against them";
        return format!("The ledger is empty: nothing was predicted yet.\n{next}\n");
    }
    let mut text = String::new();
    for tally in &all {
        let _ = writeln!(text, "{}: {}", tally.kind.words(), summary(tally));
        for settled in tally.settled.iter().take(SHOWN) {
            let _ = writeln!(text, "  {}", line(settled));
        }
        if let Some(more) = tally.settled.len().checked_sub(SHOWN).filter(|more| *more > 0) {
            let _ = writeln!(text, "  and {more} more");
        }
    }
    for open in all.iter().flat_map(|tally| &tally.open).take(SHOWN) {
        let _ = writeln!(text, "open: {} of {}: {} expected", open.quantity, open.subject.words, expected(open));
    }
    if ledger.damaged > 0 {
        let _ =
            writeln!(text, "note: {} of the file could not be read", machine::count::of(ledger.damaged as u64, "line"));
    }
    text
}

/// A tally in a line.
pub(super) fn summary(tally: &Tally) -> String {
    let n = tally.settled.len();
    let mut words = match tally.coverage() {
        None if n == 0 => String::from("none has an outcome yet"),
        None => format!("{} of {n} held", tally.held()),
        Some((share, low, high)) => format!(
            "{} of {n} held, {:.0} % ({:.0} .. {:.0}) where {:.0} % were expected",
            tally.held(),
            100.0 * share,
            100.0 * low,
            100.0 * high,
            100.0 * tally.level().unwrap_or_default()
        ),
    };
    if tally.near() > 0 {
        let _ = write!(words, ", {} more within what the outcome was measured to", tally.near());
    }
    if !tally.open.is_empty() {
        let _ = write!(words, "; {} open", tally.open.len());
    }
    words
}

/// The verdict on a prediction, a word.
pub(super) fn verdict(settled: &Settled) -> &'static str {
    match (settled.held(), settled.near()) {
        (true, _) => "held",
        (false, true) => "near",
        (false, false) => "MISSED",
    }
}

fn line(settled: &Settled) -> String {
    let verdict = verdict(settled);
    let of = settled.prediction;
    format!(
        "{verdict:<6}  {}  {} of {}: {}, expected {}",
        clock::date(settled.outcome.came),
        of.quantity,
        of.subject.words,
        value(of.kind, settled.outcome.value),
        expected(of)
    )
}

/// The interval, in the words of its kind.
pub(super) fn expected(of: &Prediction) -> String {
    let Interval { low, high, .. } = of.expected;
    let widened = of.widened.map(|widened| format!(" (widened {:.1}x)", widened.by.factor));
    format!("{} .. {}{}", value(of.kind, low), value(of.kind, high), widened.unwrap_or_default())
}

/// A value in the words of its kind.
pub(super) fn value(kind: Kind, value: f64) -> String {
    match kind {
        Kind::Placement | Kind::Study | Kind::WhatIf | Kind::Causal if value >= 0.1 => format!("{value:.3}x"),
        Kind::Placement | Kind::Study | Kind::WhatIf | Kind::Causal => significant(value, 3) + "x",
        Kind::Elapsed => seconds(value),
        Kind::Messages => format!("{value:.0}"),
        Kind::Offcode if value < 10.0 => significant(value, 2) + " ns",
        Kind::Offcode => format!("{value:.0} ns"),
        Kind::Rate if value < 10.0 => significant(value, 2) + " a second",
        Kind::Rate => format!("{value:.0} a second"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Outcome;
    use super::super::tests::{outcome, prediction};
    use super::*;

    #[test]
    fn misses_are_named_before_what_held() {
        let mut ledger = Ledger::default();
        for (id, value) in [0.95, 1.3].into_iter().enumerate() {
            let of = prediction(Kind::Placement, "time at core:3 over app", 0.9 - 1e-5 * id as f64, 1.0);
            ledger.predictions.push(Prediction { id: id as u64, ..of });
            ledger.outcomes.push(Outcome { id: id as u64, ..outcome(value, None) });
        }
        ledger.predictions.push(Prediction { id: 9, ..prediction(Kind::Elapsed, "seconds", 1.0, 2.0) });
        let text = render(&ledger);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("gain of a placement: 1 of 2 held"), "{text}");
        assert!(lines[1].contains("MISSED") && lines[1].contains("1.300x, expected 0.900x .. 1.000x"), "{text}");
        assert!(lines[2].contains("held"), "{text}");
        assert!(text.contains("open: seconds of lmp, 4 ranks: 1.000 s .. 2.000 s expected"), "{text}");
        let small = [(Kind::WhatIf, 3.2e-4), (Kind::Elapsed, 3.2e-4), (Kind::Offcode, 0.32), (Kind::Rate, 0.0)];
        assert_eq!(small.map(|(kind, of)| value(kind, of)), ["0.000320x", "320.0 us", "0.32 ns", "0 a second"]);
        assert!(render(&Ledger::default()).contains("nothing was predicted yet"));
    }
}
