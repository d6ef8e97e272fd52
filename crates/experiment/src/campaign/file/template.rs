//! Words with names in braces, `{size}`, that a point fills in; `{{` and `}}` are braces.

use machine::{Fault, Result};
use serde::{Deserialize, Serialize};

use crate::axes::Value;

/// A word with names in braces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Template(String);

/// A part of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part<'a> {
    Text(&'a str),
    Name(&'a str),
}

impl Template {
    /// # Errors
    /// A brace stands alone.
    pub fn new(text: &str) -> Result<Template, String> {
        let template = Template(text.to_owned());
        template.parts()?;
        Ok(template)
    }

    /// The text with its names in braces.
    pub fn text(&self) -> &str {
        &self.0
    }

    fn parts(&self) -> Result<Vec<Part<'_>>, String> {
        let mut parts = Vec::new();
        let mut rest = self.0.as_str();
        while let Some(at) = rest.find(['{', '}']) {
            let (before, brace) = rest.split_at(at);
            if !before.is_empty() {
                parts.push(Part::Text(before));
            }
            if brace.starts_with("{{") || brace.starts_with("}}") {
                parts.push(Part::Text(&brace[..1]));
                rest = &brace[2..];
                continue;
            }
            let name = brace.strip_prefix('{').and_then(|inner| inner.split_once('}'));
            let Some((name, after)) = name.filter(|(name, _)| !name.is_empty() && !name.contains('{')) else {
                return Err(format!("'{}' has a brace that stands alone", self.0));
            };
            parts.push(Part::Name(name));
            rest = after;
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest));
        }
        Ok(parts)
    }

    /// The names in braces.
    pub fn names(&self) -> Vec<&str> {
        let parts = self.parts().unwrap_or_default();
        let name = |part| match part {
            Part::Name(name) => Some(name),
            Part::Text(_) => None,
        };
        parts.into_iter().filter_map(name).collect()
    }

    /// The filled-in words: one, or those of a list if its name is the whole template.
    ///
    /// # Errors
    /// `known` lacks a name.
    pub fn words(&self, known: &dyn Fn(&str) -> Option<Value>) -> Result<Vec<String>> {
        let parts = self.parts().unwrap_or_default();
        let value = |name: &str| {
            known(name).ok_or_else(|| {
                let next = "name an axis, a word of [set], or ranks, nodes, program, folder";
                Fault::new(format!("'{}'", self.0), format!("there is no {{{name}}}"), next)
            })
        };
        if let [Part::Name(name)] = parts[..]
            && let Value::List(words) = value(name)?
        {
            return Ok(words);
        }
        let mut word = String::new();
        for part in parts {
            match part {
                Part::Text(text) => word += text,
                Part::Name(name) => word += &value(name)?.to_string(),
            }
        }
        Ok(vec![word])
    }

    /// The filled-in template as one word.
    pub fn word(&self, known: &dyn Fn(&str) -> Option<Value>) -> Result<String> {
        Ok(self.words(known)?.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_filled_in_and_braces_can_be_written() {
        let known = |name: &str| match name {
            "size" => Some(Value::Number(64)),
            "both" => Some(Value::List(vec!["a b".into(), "c".into()])),
            _ => None,
        };
        let words = |text: &str| Template::new(text).unwrap().words(&known).unwrap();
        assert_eq!(words("-n{size}k"), ["-n64k"]);
        assert_eq!(words("{both}"), ["a b", "c"]);
        assert_eq!(words("x{both}"), ["xa b c"]);
        assert_eq!(words("{{{size}}}"), ["{64}"]);
        assert_eq!(words(""), [""]);
        for wrong in ["{", "a}", "{}", "{a{b}"] {
            assert!(Template::new(wrong).is_err(), "{wrong}");
        }
        let fault = Template::new("{sise}").unwrap().words(&known).unwrap_err().to_string();
        assert!(fault.contains("there is no {sise}"), "{fault}");
        assert_eq!(Template::new("{a}/{b}").unwrap().names(), ["a", "b"]);
    }
}
