//! Results of a trial in words.

use chart::number::{seconds, significant};
use machine::count;
use rounds::clocks::changes;
use rounds::contrast::{FIRST_LOOK, Verdict};
use rounds::estimate::Estimate;
use rounds::sitting::End;

use super::Runs;
use super::check::Check;
use super::design::{Design, letter};
use super::judgement::{Best, Judgement, Standing, moved, rounds_needed};
use super::spread::Spread;

/// Words for a difference in logarithms, above 0 for better: `5.3 % faster`, `2.1x slower`, `0.4 % more`.
pub fn difference(design: &Design, better: f64) -> String {
    let timed = design.merit.pattern.is_none();
    let (up, down) = match (timed, design.merit.more_is_better) {
        (true, _) => ("faster", "slower"),
        (false, true) => ("more", "less"),
        (false, false) => ("less", "more"),
    };
    let word = if better >= 0.0 { up } else { down };
    // For a time, or a figure of which less is better, the share of the reference.
    let share = if design.merit.more_is_better { better.exp() - 1.0 } else { 1.0 - (-better).exp() };
    match share.abs() {
        _ if better.abs() > 0.7 => format!("{}x {word}", digits(better.abs().exp())),
        share => format!("{} % {word}", digits(100.0 * share)),
    }
}

/// The ends of an interval in the unit and direction of [`difference`]: above 0 is better.
pub fn interval(design: &Design, estimate: &Estimate) -> String {
    let middle = estimate.middle;
    let is_ratio = middle.abs() > 0.7;
    let end = |end: f64| match is_ratio {
        true => (end * middle.signum()).exp(),
        false => {
            let share = if design.merit.more_is_better { end.exp() - 1.0 } else { 1.0 - (-end).exp() };
            100.0 * share * middle.signum()
        }
    };
    let unit = if is_ratio { "x" } else { "" };
    let (one, other) = (end(estimate.low), end(estimate.high));
    let (low, high) = if middle < 0.0 { (other, one) } else { (one, other) };
    match apart(low, high) {
        Some((low, high)) => format!("({low}{unit} .. {high}{unit})"),
        None => format!("(the same in all {} rounds)", estimate.samples),
    }
}

/// Two numbers with the fewest digits that show their difference; `None` where they are equal.
fn apart(low: f64, high: f64) -> Option<(String, String)> {
    if (high - low).abs() <= 1e-9 * low.abs().max(high.abs()) {
        return None;
    }
    let plain = (digits(low), digits(high));
    if plain.0 != plain.1 {
        return Some(plain);
    }
    // Values that round to 0 have no sign.
    let round = |value: f64, places: usize| {
        let tens = 10f64.powi(places as i32);
        format!("{:.places$}", (value * tens).round() / tens + 0.0)
    };
    (2..=6).map(|places| (round(low, places), round(high, places))).find(|(low, high)| low != high)
}

/// A number with two significant digits.
fn digits(value: f64) -> String {
    match value.abs() {
        size if size >= 1e4 => format!("{value:.1e}"),
        size if size >= 99.5 => format!("{value:.0}"),
        size if size >= 0.995 || size == 0.0 => format!("{:.1}", value + 0.0),
        // Values that round to 0 have no sign.
        _ => format!("{:.2}", (100.0 * value).round() / 100.0 + 0.0),
    }
}

/// A figure of merit with four significant digits.
pub fn figure(design: &Design, value: f64) -> String {
    if design.merit.pattern.is_none() { seconds(value) } else { significant(value, 4) }
}

/// The figures of an arm in one unit.
#[derive(Debug, PartialEq, Eq)]
pub struct Figures {
    /// With its standard deviation.
    pub mean: String,
    pub least: String,
    pub most: String,
    pub median: String,
}

impl Figures {
    /// All `-` without a completed run.
    pub fn of(design: &Design, spread: Option<&Spread>) -> Figures {
        let Some(spread) = spread else {
            let none = || "-".to_owned();
            return Figures { mean: none(), least: none(), most: none(), median: none() };
        };
        let (unit, factor) = match spread.mean.abs() {
            _ if design.merit.pattern.is_some() => ("", 1.0),
            mean if mean >= 0.1 => (" s", 1.0),
            mean if mean >= 1e-3 => (" ms", 1e3),
            _ => (" us", 1e6),
        };
        let written = |value: f64| significant(factor * value, 4) + unit;
        let mean = match spread.deviation {
            Some(deviation) => {
                format!("{} ± {}{unit}", significant(factor * spread.mean, 4), significant(factor * deviation, 2))
            }
            None => written(spread.mean),
        };
        Figures { mean, least: written(spread.least), most: written(spread.most), median: written(spread.median) }
    }
}

/// Answer for an arm, beside its figures.
pub fn answer(design: &Design, judgement: &Judgement, arm: usize) -> String {
    let standing = &judgement.arms[arm];
    if let Some(why) = &standing.left_out {
        return format!("left out: {why}");
    }
    if arm == 0 {
        return "today".to_owned();
    }
    let Some(found) = standing.told() else {
        return format!("cannot tell: {} of {FIRST_LOOK} rounds", standing.rounds);
    };
    let (difference, interval) = (difference(design, found.middle), interval(design, &found));
    match standing.says {
        Verdict::Better | Verdict::Worse => format!("{difference} {interval}"),
        Verdict::Either => format!("either: {difference} {interval}"),
        Verdict::CannotTell => format!("cannot tell: {difference} {interval}"),
    }
}

/// The answer in one sentence: the arm to run.
pub fn verdict(design: &Design, judgement: &Judgement) -> String {
    if let Some(why) = &judgement.arms[0].left_out {
        return format!("Nothing can be said: {} {why}", letter(0));
    }
    let names = |of: &[usize]| of.iter().map(|&arm| letter(arm).to_string()).collect::<Vec<_>>().join(" and ");
    let open = judgement.arms[1..].iter().filter(|standing| standing.left_out.is_none());
    let few = open.map(|standing| standing.rounds).min().filter(|rounds| *rounds < FIRST_LOOK as usize);
    let verb = if design.merit.pattern.is_none() { "faster" } else { "better" };
    match &judgement.best {
        Best::One(0) => "Keep A: it is the best.".to_owned(),
        Best::One(best) if judgement.arms[*best].says == Verdict::Better => {
            let found = judgement.arms[*best].over_first.expect("it is better than the first");
            let what = if design.merit.pattern.is_none() { "" } else { "better: " };
            format!("{} is {what}{}.", letter(*best), difference(design, found.middle))
        }
        Best::One(best) => format!("{} is the best of those compared.", letter(*best)),
        Best::Either(of) if of.contains(&0) => {
            format!("Keep A: {} come to the same within {}.", names(of), percent(design.margin))
        }
        Best::Either(of) => format!("{} are {verb}, and alike within {}.", names(of), percent(design.margin)),
        Best::CannotTell(of) if of.contains(&0) => match few {
            Some(rounds) => format!("Cannot tell {} apart: {rounds} of {FIRST_LOOK} rounds.", names(of)),
            None => format!("Cannot tell {} apart.", names(of)),
        },
        Best::CannotTell(of) => format!("{} are {verb}; cannot tell which of them is best.", names(of)),
    }
}

/// The arm to run, where it is not the first.
pub fn chosen(judgement: &Judgement) -> Option<usize> {
    match &judgement.best {
        _ if judgement.arms[0].left_out.is_some() => None,
        Best::One(arm) => Some(*arm),
        Best::Either(of) => of.first().copied(),
        Best::CannotTell(_) => None,
    }
    .filter(|arm| *arm != 0)
}

pub fn percent(share: f64) -> String {
    format!("{} %", (share * 1000.0).round() / 10.0)
}

/// Notes below the answers: the extent of the measurement, its disturbances, and the need for more.
pub fn notes(design: &Design, runs: &Runs, judgement: &Judgement, end: End) -> Vec<String> {
    let mut notes = Vec::new();
    let rounds = runs.measured(0).count();
    let compared = (1..design.arms.len()).map(|arm| judgement.rounds(arm)).max().unwrap_or(0);
    let lost = rounds.saturating_sub(compared);
    if lost > 0 && compared > 0 {
        notes.push(format!(
            "{lost} of {rounds} rounds are not compared: the cores moved or changed their clock within them, or a run was lost"
        ));
    }
    let moved_in = (1..design.arms.len()).map(|arm| moved(design, runs, arm, 0)).max().unwrap_or(0);
    if moved_in > 0 {
        notes.push(format!(
            "the cores moved or changed their clock within {moved_in} of {rounds} rounds; all rounds are compared, which widens the intervals"
        ));
    }
    notes.extend(changes(runs.done.iter().flatten().flat_map(|run| &run.clocks)));
    let slow = |arm: usize| {
        let median = judgement.arms[arm].median().unwrap_or(f64::INFINITY);
        let worse = |value: f64| if design.merit.more_is_better { median / value } else { value / median };
        runs.measured(arm).filter(|run| worse(run.value) > 1.5).count()
    };
    for arm in (0..design.arms.len()).filter(|&arm| slow(arm) > 0) {
        notes.push(format!(
            "{}: {} of {} runs took more than 1.5 times the usual; they count",
            letter(arm),
            slow(arm),
            runs.measured(arm).count()
        ));
    }
    let failed = |arm: usize| runs.measured(arm).filter(|run| run.status.is_some_and(|status| status != 0)).count();
    for arm in (0..design.arms.len()).filter(|&arm| design.check != Some(Check::Status) && failed(arm) > 0) {
        let (letter, all) = (letter(arm), count::of(runs.measured(arm).count() as u64, "run"));
        notes.push(format!("{letter}: {} of {all} ended with another exit status than 0; they count", failed(arm)));
    }
    if end == End::Interrupted {
        notes.push("the trial is unfinished: the same command, perhaps with a larger --budget, goes on".to_owned());
    }
    if end == End::OutOfTime {
        let needed = |standing: &Standing| Some(rounds_needed(&standing.over_first?, design.margin));
        let open = judgement.arms.iter().filter(|standing| standing.says == Verdict::CannotTell);
        let most = open.filter_map(needed).max().filter(|needed| *needed > compared);
        let rounds = runs.measured(0).count().max(1);
        notes.push(match most {
            Some(most) if compared >= FIRST_LOOK as usize => format!(
                "the budget is spent; about {most} rounds would tell: --budget {:.0}m goes on from here",
                (runs.spent.0 as f64 * most as f64 / rounds as f64 * 1.2 / 60e9).ceil()
            ),
            _ => "the budget is spent; a larger --budget goes on from here".to_owned(),
        });
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::conditions::Conditions;
    use crate::trial::merit::Merit;

    #[test]
    fn ends_of_an_interval_are_told_apart_or_are_one_number() {
        let of = |low, high| apart(low, high).map(|(low, high)| format!("{low} .. {high}"));
        assert_eq!(of(4.1, 6.4).as_deref(), Some("4.1 .. 6.4"));
        assert_eq!(of(5.31, 5.34).as_deref(), Some("5.31 .. 5.34"));
        assert_eq!(of(-0.0001, 0.0003).as_deref(), Some("-0.0001 .. 0.0003"));
        assert_eq!((of(5.0, 5.0), of(0.0, -0.0)), (None, None));
        assert_eq!(of(1.0, 1e40).as_deref(), Some("1.0 .. 1.0e40"));
    }

    #[test]
    fn figures_have_four_digits_however_small_they_are() {
        let of = |pattern, value| {
            let design = Design {
                arms: Vec::new(),
                merit: Merit::new(pattern, false).unwrap(),
                check: None,
                margin: 0.02,
                warmup: 0,
                folder: String::new(),
                programs: Vec::new(),
                nodes: String::new(),
                conditions: Conditions::default(),
            };
            figure(&design, value)
        };
        assert_eq!([3.2e-7, 0.2631, 28_310.0].map(|value| of(Some("(.*)"), value)), ["3.200e-7", "0.2631", "28310"]);
        assert_eq!([612e-6, 0.2631, 83.5].map(|value| of(None, value)), ["612.0 us", "0.2631 s", "83.50 s"]);
        assert_eq!([-0.001, 0.0, 0.014, 3.0].map(digits), ["0.00", "0.0", "0.01", "3.0"]);
    }
}
