//! Text of a profile without control characters. Names and paths are written by a program or another host: they must not
//! drive a terminal, nor break a line of a table.

pub use machine::printable;
use machine::{Fault, Result};

use crate::summary::Summary;

/// All figures as JSON with all control characters escaped, also those that JSON allows.
///
/// # Errors
/// A figure cannot be written in JSON, which is a defect.
pub fn json(summary: &Summary) -> Result<String> {
    let text = serde_json::to_string_pretty(summary);
    Ok(escaped(&text.map_err(|e| Fault::because("the summary", e, "report this as a defect"))?))
}

/// JSON with its control characters escaped, except newlines.
pub(crate) fn escaped(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        match c.is_control() && c != '\n' {
            true => text.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_escaped_reads_as_what_it_was() {
        let text = "a\u{7f}b\u{9b}31m\n\u{1b}";
        let json = escaped(&serde_json::to_string(text).unwrap());
        assert!(json.chars().all(|c| !c.is_control()), "{json}");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
        assert_eq!(printable(text), "a\u{FFFD}b\u{FFFD}31m\u{FFFD}\u{FFFD}");
    }
}
