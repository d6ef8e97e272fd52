//! The verdict: would this program gain from offload, from a core of its own for the protocol, from another mapping of
//! ranks to cores, or from none of them?
//!
//! Losses that no placement mends come first ([`Hindrance`]): causes that keep ranks from running, and the program's own
//! shape. The worst comes first.
//!
//! Each answer is an interval, in shares of the run, from the certain protocol work on the ranks' cores to all the work that
//! may be protocol work; missing data widen it. An interval above the variation between runs is a gain, one below is none;
//! in between the answer is open. Paper 000 (IV.B.2) argues in this way from mpiP's tables that MILC gains; the
//! tests hold the rules to its figures (claims A13, A17, A20 to A24).

mod bounds;
mod dedicated;
pub mod evidence;
mod hindrance;
mod mapping;
mod offload;
mod shape;

use machine::Costs;
use serde::{Deserialize, Serialize};

pub use bounds::Bounds;
pub use evidence::{Evidence, HostEvidence, RankEvidence};
pub use hindrance::{Cause, Hindrance};

/// Runs of one program differ by this share of their time: 'below 1 % of the mean in 80 % of the runs' (claim A13).
pub const NOISE: f64 = 0.01;

machine::named! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Choice {
        Offload = "offload",
        DedicatedCore = "a dedicated core",
        Mapping = "another mapping",
    }
}

impl Choice {
    /// The choice as a phrase in a sentence.
    fn words(self) -> &'static str {
        match self {
            Choice::Offload => "a network device that does the work of messages",
            Choice::DedicatedCore => "a core of its own for the work of messages",
            Choice::Mapping => "other cores for its ranks",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Gains,
    DoesNot,
    CannotTell,
}

/// What a choice would bring.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// `offload`, `dedicated_core` or `mapping`.
    pub choice: Choice,
    /// `gains`, `does_not` or `cannot_tell`.
    pub answer: Answer,
    /// Share of the run, least and most; negative where it costs; `None` where unbounded.
    pub gain: Option<(f64, f64)>,
    /// The numbers, a sentence each.
    pub why: Vec<String>,
    /// The measurement that decides, or how to get the gain.
    pub next: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// What hinders most and what to do; where nothing does, what another place would bring.
    pub sentence: String,
    /// What no placement mends, worst first.
    #[serde(default)]
    pub hindrances: Vec<Hindrance>,
    /// How often it calls MPI, how large messages are, how long it waits.
    pub program: Vec<String>,
    /// One a choice.
    pub judgements: Vec<Judgement>,
}

impl Verdict {
    /// The verdict from the profile and the costs of messages on the machine.
    pub fn of(evidence: &Evidence, costs: &Costs) -> Verdict {
        let judgements =
            vec![offload::judge(evidence, costs), dedicated::judge(evidence, costs), mapping::judge(evidence)];
        Verdict::by(evidence, judgements)
    }

    /// The verdict with the judgement of who knows more of a choice than the tables tell.
    #[must_use]
    pub fn with(self, evidence: &Evidence, known: Judgement) -> Verdict {
        let kept = |of: Judgement| if of.choice == known.choice { known.clone() } else { of };
        Verdict::by(evidence, self.judgements.into_iter().map(kept).collect())
    }

    fn by(evidence: &Evidence, judgements: Vec<Judgement>) -> Verdict {
        let hindrances = hindrance::find(evidence);
        let sentence = match &hindrances[..] {
            _ if evidence.is_empty() => "Nothing can be said: no rank was profiled to its end.".into(),
            [] => placement(&judgements, &format!(": {}", evidence.where_time_goes())),
            [first, rest @ ..] => {
                let more = match rest.len() {
                    0 => String::new(),
                    more => format!(" ({more} more below)"),
                };
                format!("{}{more}. {}", capitalised(&first.words), first.cause.remedy())
            }
        };
        Verdict { sentence, hindrances, program: evidence.words(), judgements }
    }

    /// The sentence on other placements where a hindrance comes first.
    pub fn beside(&self) -> Option<String> {
        (!self.hindrances.is_empty()).then(|| placement(&self.judgements, ""))
    }
}

impl Judgement {
    /// The gain in words, a share of the run, without its unit.
    pub fn gain_in_words(&self) -> String {
        self.gain.map_or_else(|| "nothing bounds it".into(), percent)
    }
}

/// The answer and the gain between these shares of the run. A gain that may be the whole run has no bound.
fn judged(least: f64, most: f64) -> (Answer, Option<(f64, f64)>) {
    let gain = (least, most.min(1.0));
    let answer = answer(gain);
    (answer, (gain.1 < 1.0 || answer == Answer::Gains).then_some(gain))
}

/// The answer to a gain between these bounds, compared with the variation between runs.
fn answer(gain: (f64, f64)) -> Answer {
    match gain {
        (least, _) if least > NOISE => Answer::Gains,
        (_, most) if most < NOISE => Answer::DoesNot,
        _ => Answer::CannotTell,
    }
}

/// The sentence whether other placements would make the program faster; `instead`: its words where none does.
fn placement(judgements: &[Judgement], instead: &str) -> String {
    let with = |wanted| judgements.iter().filter(move |judgement| judgement.answer == wanted);
    let best = with(Answer::Gains).max_by(|a, b| least(a).total_cmp(&least(b)));
    let words = |wanted| with(wanted).map(|judgement| judgement.choice.words().to_owned()).collect::<Vec<_>>();
    let unsure = words(Answer::CannotTell);
    let Some(best) = best else {
        let without = words(Answer::DoesNot);
        return match (without.is_empty(), unsure.is_empty()) {
            (_, true) => format!("No other place would make this program faster{instead}."),
            (true, false) => format!("This profile cannot tell whether {} would make it faster.", or(&unsure)),
            (false, false) => format!(
                "{} would not make this program faster; whether {} would, this profile cannot tell.",
                capitalised(&or(&without)),
                or(&unsure)
            ),
        };
    };
    let saves =
        |judgement: &Judgement| format!("{} would save {}", judgement.choice.words(), judgement.gain_in_words());
    let mut said = format!("{} of the run.", capitalised(&saves(best)));
    for other in with(Answer::Gains).filter(|other| other.choice != best.choice) {
        said += &format!(" {}.", capitalised(&saves(other)));
    }
    if !unsure.is_empty() {
        said += &format!(" Whether {} would, this profile cannot tell.", or(&unsure));
    }
    said
}

/// The lower bound of the gain; minus infinity where it is unbounded.
fn least(judgement: &Judgement) -> f64 {
    judgement.gain.map_or(f64::NEG_INFINITY, |(least, _)| least)
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn or(words: &[String]) -> String {
    list(words, "or")
}

fn list(words: &[String], last_by: &str) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} {last_by} {last}", first.join(", ")),
    }
}

fn percent((least, most): (f64, f64)) -> String {
    match most - least {
        width if width < 0.0005 => format!("{:.1} %", 100.0 * least),
        _ if most >= 1.0 => format!("at least {:.1} %", 100.0 * least),
        _ => format!("{:.1} to {:.1} %", 100.0 * least, 100.0 * most),
    }
}

/// A share as a percentage; a share above 0 never reads 0.
fn share(value: f64) -> String {
    match 100.0 * value {
        0.0 => "0 %".into(),
        v if v.abs() < 0.1 => format!("{v:.3} %"),
        v => format!("{v:.1} %"),
    }
}

/// A rate or a count with three significant digits.
fn amount(value: f64) -> String {
    match value {
        v if v >= 99_950.0 => format!("{:.3} million", v / 1e6),
        v if v >= 99.95 => format!("{v:.0}"),
        v if v >= 9.995 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

#[cfg(test)]
mod tests;
