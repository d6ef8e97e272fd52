//! The trials that a store holds.

use std::path::Path;
use std::process::ExitCode;

use experiment::trial::judgement::judge;
use experiment::trial::store::Store;
use experiment::trial::terminal;
use linux::output;
use machine::Result;
use rounds::sitting::End;

use super::outputs::Outputs;

/// Prints each trial with its commands and its answer.
pub fn list(store: &Path) -> Result<ExitCode> {
    let store = Store::read(store)?;
    let mut text = String::new();
    for trial in store.all()? {
        let runs = store.runs(&trial)?;
        text += &terminal::entry(&trial, &runs, &judge(&trial.design, &runs));
    }
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints one trial again: the latest, or that of a number.
pub fn show(store: &Path, number: Option<i64>, outputs: &Outputs) -> Result<ExitCode> {
    let store = Store::read(store)?;
    let trial = store.trial(number)?;
    let runs = store.runs(&trial)?;
    let judgement = judge(&trial.design, &runs);
    let end = if trial.finished.is_some() { End::Finished } else { End::Interrupted };
    outputs.tell((&trial, &runs), &judgement, end, outputs.html.as_deref())?;
    Ok(ExitCode::SUCCESS)
}
