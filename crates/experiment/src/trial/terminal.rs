//! A trial as text for a terminal.

use chart::clock;
use machine::count;
use rounds::sitting::End;

use super::Runs;
use super::design::{Design, letter};
use super::judgement::Judgement;
use super::store::Trial;
use super::words::{self, Figures};

/// The answers as text.
pub fn render(design: &Design, runs: &Runs, judgement: &Judgement, end: End) -> String {
    let better = if design.merit.more_is_better { "more" } else { "less" };
    let mut text = format!("{}, {better} is better\n", design.merit.name());
    text += &format!(
        "{} in {} · margin {} · all of these together 95 %\n",
        count::of(runs.measured(0).count() as u64, "round"),
        clock::duration(runs.spent),
        words::percent(design.margin)
    );
    let width = design.arms.iter().map(|arm| arm.name.chars().count()).max().unwrap_or(0).min(48);
    for (arm, of) in design.arms.iter().enumerate() {
        let answer = words::answer(design, judgement, arm);
        text += &format!("  {}  {:<width$}  {answer}\n", letter(arm), of.name);
        let spread = judgement.arms[arm].spread.as_ref();
        if spread.is_some() {
            let Figures { mean, least, most, median } = Figures::of(design, spread);
            text += &format!("     mean {mean}, min {least}, max {most}, median {median}\n");
        }
    }
    text += &format!("{}\n", words::verdict(design, judgement));
    if let Some(arm) = words::chosen(judgement) {
        text += &format!("  {}\n", design.arms[arm].line);
    }
    if design.check.is_some() && judgement.arms.iter().all(|arm| arm.left_out.is_none()) {
        text += "results agree\n";
    }
    for note in words::notes(design, runs, judgement, end) {
        text += &format!("note: {note}\n");
    }
    text
}

/// A trial as an entry of a list: its number, its date, its answer and its commands.
pub fn entry(trial: &Trial, runs: &Runs, judgement: &Judgement) -> String {
    let rounds = count::of(runs.measured(0).count() as u64, "round");
    let state = if trial.finished.is_some() { "" } else { " (unfinished)" };
    let (date, verdict) = (clock::date(trial.started), words::verdict(&trial.design, judgement));
    let mut text = format!("{}  {date}  {rounds}{state}  {verdict}\n", trial.id);
    for (arm, of) in trial.design.arms.iter().enumerate() {
        text += &format!("   {}  {}\n", letter(arm), of.line);
    }
    text
}
