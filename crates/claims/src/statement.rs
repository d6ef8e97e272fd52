//! Predictions: statements, with parameters and null models.

use std::collections::BTreeMap;

use machine::costs::Interval;
use serde::{Deserialize, Serialize};

use super::rows::Range;

/// A predicted value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Statement {
    /// The median and the central 95 % of the draws.
    Number(Interval),
    /// A sign, an order or a shape: the share of the draws for each, which sum to 1.
    Words(BTreeMap<String, f64>),
}

impl Statement {
    /// The statement of draws that each gave a word.
    pub fn said(words: impl IntoIterator<Item = String>) -> Statement {
        let mut counts: BTreeMap<String, f64> = BTreeMap::new();
        words.into_iter().for_each(|word| *counts.entry(word).or_default() += 1.0);
        let total: f64 = counts.values().sum();
        counts.values_mut().for_each(|count| *count /= total);
        Statement::Words(counts)
    }

    /// One word, with certainty.
    pub fn always(word: &str) -> Statement {
        Statement::said([word.to_owned()])
    }

    /// A number without width.
    pub fn exactly(value: f64) -> Statement {
        Interval::exactly(value).into()
    }
}

impl From<Interval> for Statement {
    fn from(interval: Interval) -> Statement {
        Statement::Number(interval)
    }
}

/// A parameter of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Parameter {
    pub name: String,
    pub range: Range,
    pub unit: String,
    /// The rows that it is fitted to, or why it is swept over this range.
    pub from: String,
    /// Fitted to rows; else swept.
    pub fitted: bool,
}

/// The statement of a simple rule: the published neighbours interpolated, or no effect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Null {
    pub rule: String,
    pub says: Statement,
}

/// One quantity predicted, or why it is not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// The name that a check row has for it.
    pub quantity: String,
    /// `None`: no model.
    pub says: Option<Statement>,
    /// The model's equation in words or symbols; without a model, the reason.
    pub model: String,
    pub parameters: Vec<Parameter>,
    /// The calibrate, input and reference rows that it reads.
    pub rows: Vec<String>,
    pub nulls: Vec<Null>,
}

impl Prediction {
    /// A quantity without a model.
    pub fn none(quantity: &str, why: &str) -> Prediction {
        Prediction {
            quantity: quantity.into(),
            says: None,
            model: why.into(),
            parameters: Vec::new(),
            rows: Vec::new(),
            nulls: Vec::new(),
        }
    }

    /// The numbers of fitted parameters and of swept ones.
    pub fn counted(&self) -> (usize, usize) {
        let fitted = self.parameters.iter().filter(|parameter| parameter.fitted).count();
        (fitted, self.parameters.len() - fitted)
    }
}
