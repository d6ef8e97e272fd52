//! A trial for a terminal.

use chart::clock;
use machine::count;

use super::Runs;
use super::conduct::End;
use super::design::{Design, letter};
use super::judgement::Judgement;
use super::words;

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
    let figure = |arm: usize| judgement.arms[arm].median.map_or("-".to_owned(), |value| words::figure(design, value));
    let figures = (0..design.arms.len()).map(|arm| figure(arm).len()).max().unwrap_or(0);
    for (arm, of) in design.arms.iter().enumerate() {
        let answer = words::answer(design, judgement, arm);
        text += &format!("  {}  {:<width$}  {:>figures$}  {answer}\n", letter(arm), of.name, figure(arm));
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
