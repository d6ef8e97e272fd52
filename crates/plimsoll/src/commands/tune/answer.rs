//! The answer: one sentence, one line to paste, and the evidence.

use std::fs;
use std::path::{Path, PathBuf};

use chart::clock;
use experiment::trial::Runs;
use experiment::trial::judgement::{Best, Judgement, judge};
use experiment::trial::store::{Store, Trial};
use linux::output;
use machine::costs::Interval;
use machine::text::{Table, folded};
use machine::{Fault, Result, count, shell};
use rounds::contrast::FIRST_LOOK;
use rounds::estimate::Estimate;
use rounds::sitting::End;
use serde::{Deserialize, Serialize};

use super::candidates::{LeftOut, faster, ratio};

/// The file of the working folder that keeps a [`Found`].
const KEPT: &str = ".plimsoll/tune.json";

/// The store of the trial's runs.
pub const STORE: &str = ".plimsoll/tune.sqlite";

/// The result of `plimsoll tune`, without the runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Found {
    /// Today's command, quoted for a shell.
    pub today: String,
    /// The number of the trial in the store; `None`: there was nothing to try.
    pub trial: Option<i64>,
    pub profile: PathBuf,
    /// The limits of the program today, in words.
    pub limits: String,
    /// By arm, the replay's time over today's.
    pub predicted: Vec<Option<Interval>>,
    /// By arm, the share of outcomes that are expected in it, where that is known.
    #[serde(default)]
    pub levels: Vec<Option<f64>>,
    pub left_out: Vec<LeftOut>,
    pub notes: Vec<String>,
    /// The evidence that the chosen command does what it is to do.
    pub verified: Option<String>,
}

impl Found {
    /// # Errors
    /// It cannot be written.
    pub fn keep(&self) -> Result<()> {
        let text = serde_json::to_string_pretty(self).map_err(|e| Fault::because("what was found", e, "report it"))?;
        output::replace(Path::new(KEPT), &text)
    }

    fn read() -> Result<Found> {
        let next = "run plimsoll tune -- mpirun -n 4 ./program, in the folder where it is to be shown";
        let text = fs::read_to_string(KEPT).map_err(|e| Fault::because(KEPT, e, next))?;
        serde_json::from_str(&text).map_err(|e| Fault::because(KEPT, e, next))
    }
}

/// A trial with its results so far.
pub struct Tried<'a> {
    pub trial: &'a Trial,
    pub runs: &'a Runs,
    pub judgement: &'a Judgement,
    pub end: End,
}

/// The decision.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// This arm is faster than today's; the others of the list may be as fast.
    Take(usize, Vec<usize>),
    /// No other is faster by more than this share.
    Keep(f64),
    CannotTell,
    /// Today's command fails.
    Nothing(String),
}

impl Decision {
    /// `margin`: the share below which differences do not count.
    pub fn of(judgement: &Judgement, margin: f64) -> Decision {
        if let Some(why) = &judgement.arms[0].left_out {
            return Decision::Nothing(why.clone());
        }
        match &judgement.best {
            Best::One(0) => Decision::Keep(margin),
            Best::One(arm) => Decision::Take(*arm, Vec::new()),
            Best::Either(of) if of.contains(&0) => Decision::Keep(margin),
            Best::CannotTell(of) if of.contains(&0) && judgement.suffices() => {
                let others = of.iter().filter(|arm| **arm != 0);
                let gains = others.filter_map(|arm| judgement.arms[*arm].told()).map(|told| told.high.exp_m1());
                Decision::Keep(gains.fold(margin, f64::max))
            }
            Best::CannotTell(of) if of.contains(&0) => Decision::CannotTell,
            Best::Either(of) | Best::CannotTell(of) => {
                let middle = |arm: &usize| judgement.arms[*arm].told().map_or(0.0, |found| found.middle);
                let best = of.iter().copied().max_by(|one, other| middle(one).total_cmp(&middle(other))).unwrap_or(0);
                Decision::Take(best, of.iter().copied().filter(|arm| *arm != best).collect())
            }
        }
    }
}

/// Prints the latest result in this folder.
///
/// # Errors
/// Nothing was found yet.
pub fn show() -> Result<()> {
    let found = Found::read()?;
    let Some(number) = found.trial else { return output::page(&render(&found, None, output::width())) };
    let store = Store::read(Path::new(STORE))?;
    let trial = store.trial(Some(number))?;
    let runs = store.runs(&trial)?;
    let judgement = judge(&trial.design, &runs);
    let end = if trial.finished.is_some() { End::Finished } else { End::Interrupted };
    let tried = Tried { trial: &trial, runs: &runs, judgement: &judgement, end };
    output::page(&render(&found, Some(&tried), output::width()))
}

/// The answer as text of `width` columns.
pub fn render(found: &Found, tried: Option<&Tried>, width: usize) -> String {
    let mut text = match tried {
        Some(tried) => decided(tried),
        None => format!("Keep what you have: there is nothing else to try.\n  {}\n", found.today),
    };
    text = text
        .lines()
        .map(|line| if line.starts_with("  ") { format!("{line}\n") } else { folded("", line, 0, width) })
        .collect();
    if let Some(verified) = &found.verified {
        text += &folded("Verified: ", &format!("{verified}."), 2, width);
    }
    text += &folded("What limits it today: ", &found.limits, 2, width);
    if let Some(tried) = tried {
        let rounds = count::of(tried.runs.measured(0).count() as u64, "round");
        text += &format!("\n{rounds} in {}:\n", clock::duration(tried.runs.spent));
        text += &table(found, tried).text(width);
    }
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for LeftOut { name, why } in &found.left_out {
        match reasons.iter_mut().find(|(known, _)| known == why) {
            Some((_, names)) => names.push(name),
            None => reasons.push((why, vec![name])),
        }
    }
    if !reasons.is_empty() {
        text += "\nNot tried:\n";
    }
    for (why, names) in reasons {
        text += &folded(&format!("  {}: ", names.join(", ")), why, 4, width);
    }
    for note in &found.notes {
        text += &folded("Note: ", note, 2, width);
    }
    text += "\n";
    if tried.is_some() {
        text += &format!("All runs: plimsoll try --show --store {STORE}\n");
    }
    text + &format!("Profile: plimsoll report {}\n", shell::path(&found.profile))
}

/// The sentence of the decision, and the line to paste.
fn decided(tried: &Tried) -> String {
    let Tried { trial, runs, judgement, end } = tried;
    let design = &trial.design;
    let (rounds, spent) = (runs.measured(0).count() as u64, clock::duration(runs.spent));
    let others = count::of(design.arms.len() as u64 - 1, "other way");
    let cut = if *end == End::Interrupted { "So far: " } else { "" };
    let line = |arm: usize| format!("  {}\n", design.arms[arm].line);
    let by = if design.merit.pattern.is_none() { "faster" } else { "better" };
    match Decision::of(judgement, design.margin) {
        Decision::Take(arm, alike) => {
            let how = judgement.arms[arm].told().map_or_else(String::new, |told| format!(", {}", speed(&told)));
            let names: Vec<&str> = alike.iter().map(|arm| design.arms[*arm].name.as_str()).collect();
            let alike = match names.is_empty() {
                true => String::new(),
                false => format!(" ({} may be as fast)", names.join(", ")),
            };
            let name = &design.arms[arm].name;
            format!("{cut}Fastest: {name}{how} {by} than today{alike}. Paste this:\n{}", line(arm))
        }
        Decision::Keep(most) => {
            let most = 100.0 * most;
            format!("{cut}Keep what you have: none of {others} is {by} by more than {most:.0} %.\n{}", line(0))
        }
        Decision::CannotTell => {
            let rounds = count::of(rounds, "round");
            format!(
                "{cut}Cannot tell after {rounds} in {spent}. The same command goes on; --budget gives it more time.\n{}",
                line(0)
            )
        }
        Decision::Nothing(why) => format!("Nothing can be said: today's command {why}.\n"),
    }
}

/// For each arm, the replay's expectation and the outcome.
fn table(found: &Found, tried: &Tried) -> Table {
    let mut table = Table::new(["tried", "predicted", "measured, times as fast as today"]);
    for (arm, of) in tried.trial.design.arms.iter().enumerate().skip(1) {
        let predicted = found.predicted.get(arm).copied().flatten();
        let level = found.levels.get(arm).copied().flatten();
        let predicted = predicted.map_or_else(|| "-".to_owned(), |time| ratio(&faster(&time), level));
        let standing = &tried.judgement.arms[arm];
        let came = match (&standing.left_out, standing.told()) {
            (Some(why), _) => why.clone(),
            (None, Some(told)) => speed(&told),
            (None, None) => format!("cannot tell: {} of {FIRST_LOOK} rounds", standing.rounds),
        };
        table.row([of.name.clone(), predicted, came]);
    }
    table
}

/// `1.31x (1.22 .. 1.40)`.
fn speed(told: &Estimate) -> String {
    ratio(&Interval { low: told.low.exp(), middle: told.middle.exp(), high: told.high.exp() }, None)
}

#[cfg(test)]
mod tests {
    use experiment::trial::judgement::Standing;
    use rounds::contrast::Verdict;

    use super::*;

    fn judged(middles: &[f64], best: Best) -> Judgement {
        let standing = |middle: &f64| Standing {
            spread: None,
            rounds: 9,
            over_first: Some(Estimate { middle: *middle, low: middle - 0.05, high: middle + 0.05, samples: 9 }),
            says: Verdict::CannotTell,
            left_out: None,
        };
        Judgement { arms: middles.iter().map(standing).collect(), best }
    }

    #[test]
    fn the_fastest_is_taken_and_todays_is_kept_unless_another_beats_it() {
        let of = |best| Decision::of(&judged(&[0.0, 0.2, 0.3], best), 0.02);
        assert_eq!(of(Best::One(0)), Decision::Keep(0.02));
        assert_eq!(of(Best::One(1)), Decision::Take(1, vec![]));
        assert_eq!(of(Best::Either(vec![0, 1])), Decision::Keep(0.02));
        assert_eq!(of(Best::Either(vec![1, 2])), Decision::Take(2, vec![1]));
        assert_eq!(of(Best::CannotTell(vec![1, 2])), Decision::Take(2, vec![1]));
        assert_eq!(of(Best::CannotTell(vec![0, 2])), Decision::CannotTell);
        let slight = judged(&[0.0, -0.02, -0.2], Best::CannotTell(vec![0, 1]));
        assert_eq!(Decision::of(&slight, 0.02), Decision::Keep((-0.02_f64 + 0.05).exp_m1()));
        let mut failed = judged(&[0.0, 0.2], Best::One(1));
        failed.arms[0].left_out = Some("failed: exit code 1".to_owned());
        assert_eq!(Decision::of(&failed, 0.02), Decision::Nothing("failed: exit code 1".to_owned()));
    }

    #[test]
    fn speeds_are_times_as_fast_as_today() {
        let told = Estimate { middle: 0.27, low: 0.2, high: 0.34, samples: 9 };
        assert_eq!(speed(&told), "1.31x (1.22 .. 1.40)");
        let time = Interval { low: 0.5, middle: 0.8, high: 1.0 };
        assert_eq!(ratio(&faster(&time), None), "1.25x (1.00 .. 2.00)");
        assert_eq!(ratio(&faster(&time), Some(0.9)), "1.25x (90 %: 1.00 .. 2.00)");
    }
}
