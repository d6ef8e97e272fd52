//! What is wrong with an ODF: where, why, and what to write instead.

use std::fmt;
use std::sync::Arc;

use machine::Fault;
use machine::fault::line_and_column;
/// More than these are counted, not shown.
const MOST: usize = 50;

/// One mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Line of the file, from 1.
    pub line: usize,
    /// Character of the line, from 1.
    pub column: usize,
    /// What is wrong, for the user.
    pub cause: String,
    /// What to write instead.
    pub next: String,
    /// Of the source line, in bytes.
    offset: usize,
    length: usize,
}

/// Every mistake that one pass found, in the order of the text; one at least.
#[derive(Debug, Clone)]
pub struct Problems {
    text: Arc<str>,
    list: Vec<Problem>,
    /// Found beyond [`MOST`].
    more: usize,
}

/// A mistake before its line is known.
pub(super) struct Mistake {
    pub at: std::ops::Range<usize>,
    pub cause: String,
    pub next: String,
}

impl Problems {
    /// `None` where there is no mistake.
    pub(super) fn of(text: &str, mut mistakes: Vec<Mistake>) -> Option<Problems> {
        mistakes.sort_by_key(|mistake| mistake.at.start);
        let more = mistakes.len().saturating_sub(MOST);
        mistakes.truncate(MOST);
        let list: Vec<Problem> = mistakes
            .into_iter()
            .map(|Mistake { at, cause, next }| {
                let start = text.floor_char_boundary(at.start);
                let end = text.floor_char_boundary(at.end).max(start);
                // A mark that goes over lines says less than one at their beginning.
                let length = text[start..end].find('\n').unwrap_or(end - start);
                let (line, column) = line_and_column(text, start);
                Problem { line, column, cause: cut(cause), next: cut(next), offset: start, length }
            })
            .collect();
        (!list.is_empty()).then(|| Problems { text: text.into(), list, more })
    }

    /// The mistakes in the order of the text, the first 50 at most.
    pub fn list(&self) -> &[Problem] {
        &self.list
    }

    /// Number of mistakes, also of those that are not listed.
    pub fn count(&self) -> usize {
        self.list.len() + self.more
    }

    /// The first mistake as a fault, with the number of the others.
    pub fn fault(&self, file: &str) -> Fault {
        let first = &self.list[0];
        let others = match self.count() - 1 {
            0 => String::new(),
            1 => " (and one mistake more)".to_owned(),
            n => format!(" (and {n} mistakes more)"),
        };
        let subject = format!("ODF {file}:{}:{}", first.line, first.column);
        Fault::new(subject, format!("{}{others}", first.cause), first.next.clone())
    }

    /// All mistakes with their source lines, for a terminal.
    pub fn render(&self, file: &str, colour: bool) -> String {
        let (bold, red, blue, plain) = match colour {
            true => ("\x1b[1m", "\x1b[1;31m", "\x1b[1;34m", "\x1b[0m"),
            false => ("", "", "", ""),
        };
        let mut page = String::new();
        for Problem { line, column, cause, next, offset, length } in &self.list {
            let indent = line.to_string().len();
            page += &format!(
                "{red}error{plain}{bold}: {cause}{plain}\n{:indent$}{blue}-->{plain} {file}:{line}:{column}\n",
                ""
            );
            if let Some((source, before)) = self.excerpt(*offset) {
                // A carriage return before the line's end is no part of `source`.
                let rest = source.chars().count().saturating_sub(before);
                let marks = self.text[*offset..*offset + *length].chars().take(rest).count();
                let mark = "^".repeat(marks.max(1));
                page += &format!("{:indent$} {blue}|{plain}\n{blue}{line} |{plain} {source}\n", "");
                page += &format!("{:indent$} {blue}|{plain} {:before$}{red}{mark}{plain}\n", "", "");
            }
            page += &format!("{:indent$} {blue}={plain} next: {next}\n\n", "");
        }
        if self.more > 0 {
            page += &format!("and {} mistakes more\n", self.more);
        }
        page
    }

    /// The line around an offset, cut where it is long, and the characters before the offset in it.
    fn excerpt(&self, offset: usize) -> Option<(String, usize)> {
        const WIDTH: usize = 120;
        let start = self.text[..offset].rfind('\n').map_or(0, |newline| newline + 1);
        let line = self.text[start..].lines().next().filter(|line| !line.trim().is_empty())?;
        let before = self.text[start..offset].chars().count();
        let skipped = before.saturating_sub(WIDTH - 20);
        let shown = line.chars().skip(skipped).take(WIDTH).map(visible);
        Some((shown.collect(), before - skipped))
    }
}

impl fmt::Display for Problems {
    /// A line each: `line:column: cause. Next: what to write`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Problem { line, column, cause, next, .. } in &self.list {
            writeln!(f, "{line}:{column}: {cause}. Next: {next}")?;
        }
        if self.more > 0 {
            writeln!(f, "and {} mistakes more", self.more)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// A name in an XML file can be as long as the file.
fn cut(sentence: String) -> String {
    const LONGEST: usize = 300;
    let mut short: String = sentence.chars().take(LONGEST).map(visible).collect();
    if short.chars().count() < sentence.chars().count() {
        short += "...";
    }
    short
}

/// A file shall not steer the terminal.
fn visible(character: char) -> char {
    match character {
        '\t' => ' ',
        other if other.is_control() => char::REPLACEMENT_CHARACTER,
        other => other,
    }
}
