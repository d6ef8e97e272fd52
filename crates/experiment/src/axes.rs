//! A point with open axes: whatever was asked of one run, by name. What is not asked is not in it, so that a new axis leaves
//! the keys of all points without it as they are.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// What is asked on one axis.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    Number(i64),
    Text(String),
    List(Vec<String>),
}

/// Names of what can be asked, with what is asked.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Axes(BTreeMap<String, Value>);

impl Axes {
    /// The same with `value` on the axis `name`.
    #[must_use]
    pub fn with(mut self, name: &str, value: Value) -> Axes {
        self.0.insert(name.to_owned(), value);
        self
    }

    /// Names the point: equal for equal axes alone, whatever the order in which they were asked, and the same in every
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
        // Stored points are found by it.
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
    fn what_is_stored_is_read_back() {
        let axes = Axes::default().with("command", list(&["a", "b c"])).with("ranks", Value::Number(4));
        let stored = serde_json::to_string(&axes).unwrap();
        assert_eq!(stored, r#"{"command":["a","b c"],"ranks":4}"#);
        assert_eq!(serde_json::from_str::<Axes>(&stored).unwrap(), axes);
    }
}
