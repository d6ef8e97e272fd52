//! A point with open axes: the requested settings of one run, by name. A point has no unset axes, so that a new axis leaves
//! the keys of all points without this axis unchanged.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The value of one axis.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    Number(i64),
    Text(String),
    List(Vec<String>),
}

impl Value {
    /// The value as a number: 1.9e9 of `1.9GHz`, 4096 of `4KiB`; `None` of a value that is no number.
    pub fn magnitude(&self) -> Option<f64> {
        let text = match self {
            Value::Number(number) => return Some(*number as f64),
            Value::Text(text) => text.trim(),
            Value::List(_) => return None,
        };
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let times = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit.trim()))?.1;
        Some(number.parse::<f64>().ok()? * times)
    }
}

const UNITS: [(&str, f64); 13] = [
    ("", 1.0),
    ("Hz", 1.0),
    ("kHz", 1e3),
    ("MHz", 1e6),
    ("GHz", 1e9),
    ("B", 1.0),
    ("KiB", 1024.0),
    ("MiB", 1048576.0),
    ("GiB", 1073741824.0),
    ("ns", 1.0),
    ("us", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
];

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Number(number) => f.pad(&number.to_string()),
            Value::Text(text) => f.pad(text),
            Value::List(words) => f.pad(&words.join(" ")),
        }
    }
}

/// Values of a point by the names of their axes.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Axes(BTreeMap<String, Value>);

impl Axes {
    /// The point with `value` on the axis `name`.
    #[must_use]
    pub fn with(mut self, name: &str, value: Value) -> Axes {
        self.0.insert(name.to_owned(), value);
        self
    }

    /// The value of an axis.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// Axes with their values, in the order of names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// The point's key: equal for equal axes alone, independent of the order in which they were set, and the same in every
    /// version.
    pub fn key(&self) -> String {
        let mut hash = Sha256::new();
        let mut put = |text: &str| hash.update(format!("{}:{text},", text.len()));
        for (name, value) in &self.0 {
            put(name);
            match value {
                Value::Number(number) => put(&format!("n{number}")),
                Value::Text(text) => put(&format!("t{text}")),
                Value::List(words) => {
                    put(&format!("l{}", words.len()));
                    words.iter().for_each(|word| put(word));
                }
            }
        }
        hash.finalize()[..16].iter().fold("p2-".to_owned(), |key, byte| key + &format!("{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: &str) -> Value {
        Value::Text(value.to_owned())
    }

    fn list(words: &[&str]) -> Value {
        Value::List(words.iter().map(|&word| word.to_owned()).collect())
    }

    #[test]
    fn keys_are_of_the_axes_alone() {
        let one = Axes::default().with("carrier", text("tcp")).with("ranks", Value::Number(4));
        assert_eq!(one, Axes::default().with("ranks", Value::Number(4)).with("carrier", text("tcp")));
        // The key identifies stored points.
        assert_eq!(one.key(), "p2-bb49040172873106cb1458797f1ee9fc");
        let others = [
            Axes::default(),
            one.clone().with("ranks", text("4")),
            one.clone().with("carriers", text("tcp")),
            Axes::default().with("a", list(&["b", "c"])),
            Axes::default().with("a", list(&["bc"])),
            Axes::default().with("a", list(&["b"])).with("c", list(&[])),
            Axes::default().with("a", text("l2")).with("b", text("c")),
        ];
        let mut keys: Vec<String> = others.iter().chain([&one]).map(Axes::key).collect();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), others.len() + 1);
    }

    #[test]
    fn values_with_units_have_a_magnitude() {
        let magnitudes =
            ["1.9GHz", "800 MHz", "4KiB", "2", "2.5", "tcp", "core:3", "1.9.9"].map(|of| text(of).magnitude());
        let expected = [Some(1.9e9), Some(8e8), Some(4096.0), Some(2.0), Some(2.5), None, None, None];
        assert_eq!(magnitudes, expected);
        assert_eq!((Value::Number(3).magnitude(), list(&["1"]).magnitude()), (Some(3.0), None));
    }

    #[test]
    fn what_is_stored_is_read_back() {
        let axes = Axes::default().with("command", list(&["a", "b c"])).with("ranks", Value::Number(4));
        let stored = serde_json::to_string(&axes).unwrap();
        assert_eq!(stored, r#"{"command":["a","b c"],"ranks":4}"#);
        assert_eq!(serde_json::from_str::<Axes>(&stored).unwrap(), axes);
    }
}
