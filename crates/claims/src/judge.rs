//! Predictions scored against the check rows.

use machine::costs::Interval;
use machine::{Fault, Result};
use serde::Serialize;

use super::rows::{Checks, Contradiction, Published, Row};
use super::statement::{Null, Prediction, Statement};

/// Weight of a miss in the interval score of a 95 % interval: one unit of miss counts 2 / 0.05 times one unit of width.
const MISS: f64 = 2.0 / 0.05;

/// The least share of the draws at which words count as predicted.
const SURELY: f64 = 0.95;

/// Relative difference below which scores count as equal.
const ALIKE: f64 = 0.02;

/// A statement held against what was published.
#[derive(Debug, Clone, Serialize)]
pub struct Scored {
    /// Of a number: its middle is in the published interval, or the published value in its interval. Of words: at least 95 % of
    /// the draws say them.
    pub inside: bool,
    /// Less is better. Of a number: the width of its interval, and 40 times how far the published value is from it where it is
    /// outside. Of words: the share of draws that say something else.
    pub score: f64,
}

/// The comparison of the model with the best null.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Against {
    Better,
    Same,
    Worse,
}

/// One figure of a check row.
#[derive(Debug, Clone, Serialize)]
pub struct Judged {
    pub id: String,
    pub paper: String,
    pub place: String,
    pub quantity: String,
    pub conditions: String,
    pub wording: String,
    pub published: Published,
    /// Whether the model's form was chosen with knowledge of the row.
    pub seen: bool,
    /// Whether the model's form alone makes the prediction come true.
    pub constructed: bool,
    pub prediction: Prediction,
    /// `None`: no model.
    pub scored: Option<Scored>,
    pub nulls: Vec<(Null, Scored)>,
    /// The comparison with the null of the best score.
    pub against: Option<Against>,
    /// The reason for a miss or a missing model, or another remark.
    pub note: String,
}

/// All figures of all check rows, and the papers' contradictions.
#[derive(Debug, Clone, Serialize)]
pub struct Judgement {
    pub judged: Vec<Judged>,
    pub contradictions: Vec<Contradiction>,
}

/// The papers' check rows.
pub fn checks() -> Checks {
    Checks::parse(include_str!("checks.toml")).expect("the tests parse it")
}

/// Holds `predictions`, the JSON of what [`super::predict`] gave, against `checks`.
///
/// # Errors
/// Text that is not such JSON; a figure that nothing says anything of.
pub fn judge(predictions: &str, checks: &Checks) -> Result<Judgement> {
    let predictions: Vec<Prediction> =
        serde_json::from_str(predictions).map_err(|e| Fault::because("predictions", e, "report it"))?;
    let mut judged = Vec::new();
    for row in &checks.rows {
        for (name, published) in &row.values {
            let prediction = predictions.iter().find(|prediction| prediction.quantity == *name).ok_or_else(|| {
                Fault::new(format!("row {}", row.id), format!("nothing predicts {name}"), "say why there is no model")
            })?;
            judged.push(of(row, published, prediction));
        }
    }
    Ok(Judgement { judged, contradictions: checks.contradictions.clone() })
}

fn of(row: &Row, published: &Published, prediction: &Prediction) -> Judged {
    let scored = prediction.says.as_ref().map(|says| score(says, published));
    let nulls: Vec<_> = prediction.nulls.iter().map(|null| (null.clone(), score(&null.says, published))).collect();
    let best = nulls.iter().map(|(_, scored)| scored.score).min_by(f64::total_cmp);
    let against = scored.as_ref().zip(best).map(|(scored, best)| match scored.score - best {
        difference if difference.abs() <= ALIKE * best.max(scored.score) => Against::Same,
        difference if difference < 0.0 => Against::Better,
        _ => Against::Worse,
    });
    let own = match published {
        Published::Number { note, .. } | Published::Words { note, .. } => note,
    };
    let note = match (&prediction.says, own.is_empty()) {
        (None, _) => &prediction.model,
        (Some(_), true) => &row.note,
        (Some(_), false) => own,
    };
    Judged {
        id: row.id.clone(),
        paper: row.paper.clone(),
        place: row.place.clone(),
        quantity: row.quantity.clone(),
        conditions: row.conditions.clone(),
        wording: row.wording.clone(),
        published: published.clone(),
        seen: row.seen,
        constructed: row.constructed,
        prediction: prediction.clone(),
        scored,
        nulls,
        against,
        note: note.clone(),
    }
}

/// The score of a statement; one of another kind than the published one misses.
fn score(says: &Statement, published: &Published) -> Scored {
    match (says, published) {
        (Statement::Number(Interval { middle, low, high }), Published::Number { value, within, .. }) => {
            let inside = (within[0]..=within[1]).contains(middle) || (low..=high).contains(&value);
            let miss = if inside { 0.0 } else { (low - value).max(value - high) };
            Scored { inside, score: high - low + MISS * miss }
        }
        (Statement::Words(said), Published::Words { says, .. }) => {
            let share = said.get(says).copied().unwrap_or(0.0);
            Scored { inside: share >= SURELY, score: 1.0 - share }
        }
        _ => Scored { inside: false, score: f64::INFINITY },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(low: f64, middle: f64, high: f64) -> Statement {
        Interval { middle, low, high }.into()
    }

    fn published(value: f64, within: [f64; 2]) -> Published {
        Published::Number { value, within, unit: "%".into(), note: String::new() }
    }

    #[test]
    fn a_wide_interval_wins_nothing_and_a_miss_costs_forty_times_its_distance() {
        let five = published(5.0, [4.95, 5.05]);
        let score = |says| score(&says, &five);
        assert!(score(number(4.0, 4.5, 5.5)).inside && score(number(4.0, 4.5, 5.5)).score == 1.5);
        assert!(score(number(-50.0, 0.0, 50.0)).score > score(number(4.0, 4.5, 5.5)).score);
        let missed = score(number(5.5, 6.0, 6.5));
        assert!(!missed.inside && (missed.score - (1.0 + 40.0 * 0.5)).abs() < 1e-9);
    }

    #[test]
    fn a_published_range_counts_by_where_the_middle_is() {
        let about_zero = published(0.0, [-0.6, 0.6]);
        assert!(score(&Statement::exactly(0.5), &about_zero).inside);
        assert!(!score(&number(0.3, 1.4, 2.5), &about_zero).inside, "its edge alone is in the range");
    }

    #[test]
    fn words_are_judged_by_the_share_that_says_them() {
        let published = Published::Words { says: "drops".into(), note: String::new() };
        let three_of_four = Statement::said(["drops", "drops", "drops", "rises"].map(String::from));
        let scored = score(&three_of_four, &published);
        assert!(!scored.inside && scored.score == 0.25);
        assert!(score(&Statement::always("drops"), &published).inside);
        assert_eq!(score(&Statement::exactly(1.0), &published).score, f64::INFINITY);
    }
}
