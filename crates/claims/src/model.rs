//! A model: its equation, its parameters, the rows that it reads.

use machine::costs::Interval;

use super::draws::{Unknown, interval};
use super::rows::Range;
use super::statement::{Null, Parameter, Prediction, Statement};

/// The common parts of predictions of one form.
#[derive(Debug, Clone)]
pub struct Model {
    pub equation: &'static str,
    pub parameters: Vec<Parameter>,
    /// Names of the rows of `calibration.toml` that the model reads.
    pub rows: &'static [&'static str],
}

impl Model {
    pub fn predicts(&self, quantity: &str, says: impl Into<Statement>, nulls: Vec<(&str, Statement)>) -> Prediction {
        Prediction {
            quantity: quantity.into(),
            says: Some(says.into()),
            model: self.equation.into(),
            parameters: self.parameters.clone(),
            rows: self.rows.iter().map(ToString::to_string).collect(),
            nulls: nulls.into_iter().map(|(rule, says)| Null { rule: rule.into(), says }).collect(),
        }
    }
}

/// A parameter that is fitted to rows, with its values over the draws.
pub fn fitted(name: &str, values: Vec<f64>, unit: &str, from: &str) -> Parameter {
    let Interval { low, high, .. } = interval(values);
    Parameter { name: name.into(), range: Range { low, high }, unit: unit.into(), from: from.into(), fitted: true }
}

impl From<&Unknown> for Parameter {
    fn from(unknown: &Unknown) -> Parameter {
        Parameter {
            name: unknown.name.into(),
            range: Range { low: unknown.low, high: unknown.high },
            unit: unknown.unit.into(),
            from: unknown.why.into(),
            fitted: false,
        }
    }
}
