//! The papers' figures as data: `calibration.toml` for models, `checks.toml` for the judge.

use std::collections::BTreeMap;

use machine::{Fault, Result};
use serde::{Deserialize, Serialize};

machine::named! {
    /// The permitted use of a row.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Use {
        /// Feeds fits.
        Calibrate = "calibrate",
        /// Describes a program.
        Input = "input",
        /// Comes with the others for comparison; models may read it, and it judges nothing.
        Reference = "reference",
        /// Only judges.
        Check = "check",
    }
}

/// One figure of a row, in the paper's unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Published {
    /// A number and the interval that its printed form allows.
    Number {
        value: f64,
        within: [f64; 2],
        unit: String,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        note: String,
    },
    /// A sign, an order or a shape, in the words that predictions of it use.
    Words {
        says: String,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        note: String,
    },
}

/// A claim of a paper.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    pub id: String,
    pub paper: String,
    /// Section, figure or table.
    pub place: String,
    #[serde(rename = "use")]
    pub usage: Use,
    pub quantity: String,
    pub conditions: String,
    /// The paper's own words.
    pub wording: String,
    /// Whether a model's form was chosen with knowledge of this row.
    #[serde(default)]
    pub seen: bool,
    /// Whether a model's form alone makes the prediction come true.
    #[serde(default)]
    pub constructed: bool,
    #[serde(default)]
    pub note: String,
    /// Figures by the name of their quantity, which predictions and checks share.
    pub values: BTreeMap<String, Published>,
}

/// A contradiction within a paper.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contradiction {
    pub rows: Vec<String>,
    pub says: String,
    pub but: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    row: Vec<Row>,
    #[serde(default)]
    contradiction: Vec<Contradiction>,
}

fn read(text: &str, of: &str) -> Result<File> {
    let file: File = toml::from_str(text).map_err(|e| Fault::because(of, e, "mend it at that line"))?;
    for row in &file.row {
        for (name, value) in &row.values {
            if let Published::Number { value, within: [low, high], .. } = value
                && !(low <= value && value <= high)
            {
                let cause = format!("{name}: {value} is not within {low} and {high}");
                return Err(Fault::new(format!("row {}", row.id), cause, "write the interval that holds the value"));
            }
        }
    }
    Ok(file)
}

/// The rows that models may read; check rows are refused.
#[derive(Debug, Clone)]
pub struct Calibration {
    rows: Vec<Row>,
}

impl Calibration {
    /// The papers' rows.
    pub fn of_papers() -> Calibration {
        Calibration::parse(include_str!("calibration.toml")).expect("the tests parse it")
    }

    /// Rows of a file like `calibration.toml`.
    ///
    /// # Errors
    /// A file that does not parse, a value outside of its interval, a row that only judges.
    pub fn parse(text: &str) -> Result<Calibration> {
        Calibration::of(read(text, "calibration rows")?.row)
    }

    /// # Errors
    /// A row that only judges.
    pub fn of(rows: Vec<Row>) -> Result<Calibration> {
        match rows.iter().find(|row| row.usage == Use::Check) {
            Some(row) => {
                Err(Fault::new(format!("row {}", row.id), "it only judges", "keep it with the rows that judge"))
            }
            None => Ok(Calibration { rows }),
        }
    }

    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The row that has the quantity `name`, and its interval, in the paper's unit.
    ///
    /// # Errors
    /// No row has it.
    pub fn range(&self, name: &str) -> Result<Range> {
        let found = self.rows.iter().find_map(|row| match row.values.get(name) {
            Some(Published::Number { within: [low, high], .. }) => Some(Range { low: *low, high: *high }),
            _ => None,
        });
        found.ok_or_else(|| Fault::new(name, "no calibration row has this figure", "add the row to calibration.toml"))
    }
}

/// The check rows, with the papers' contradictions.
#[derive(Debug, Clone)]
pub struct Checks {
    pub rows: Vec<Row>,
    pub contradictions: Vec<Contradiction>,
}

impl Checks {
    /// # Errors
    /// A file that does not parse, a value outside of its interval, a row that may be read by predictions.
    pub fn parse(text: &str) -> Result<Checks> {
        let File { row: rows, contradiction: contradictions } = read(text, "check rows")?;
        match rows.iter().find(|row| row.usage != Use::Check) {
            Some(row) => {
                Err(Fault::new(format!("row {}", row.id), "it is not for judging", "put it into calibration.toml"))
            }
            None => Ok(Checks { rows, contradictions }),
        }
    }
}

/// A closed interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Range {
    pub low: f64,
    pub high: f64,
}
