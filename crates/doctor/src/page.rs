//! A checkup as a page of text.

use std::fmt;

use crate::check::{Check, State};
use crate::{Checkup, Section};

const WIDTH: usize = 100;
const NAME: usize = 18;
const WORD: usize = 14;

/// As wide on every terminal, so that it can be kept and compared.
impl fmt::Display for Checkup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        paragraph(f, "", &self.machine)?;
        for Section { title, checks } in &self.sections {
            writeln!(f, "\n{title}")?;
            for check in checks {
                paragraph(f, &format!("  {:<NAME$}{:<WORD$}", check.name, check.state.word()), &text(check))?;
            }
        }
        let all = self.sections.iter().flat_map(|section| &section.checks);
        let usable = all.clone().filter(|check| check.state == State::Yes).count();
        writeln!(f)?;
        paragraph(f, "", &format!("{usable} of {} can be used. `plimsoll machine` describes the machine.", all.count()))
    }
}

fn text(check: &Check) -> String {
    let Check { found, gives, cost, .. } = check;
    match &check.next {
        None => format!("{gives} ({found})"),
        Some(next) => format!("{found}. Costs: {cost}. Next: {next}"),
    }
}

/// `first`, then the words of `text`, wrapped under themselves. An archive is untrusted text: control characters,
/// which could drive the terminal, are replaced.
fn paragraph(f: &mut fmt::Formatter<'_>, first: &str, text: &str) -> fmt::Result {
    let printable = |c: char| if c.is_control() && !c.is_whitespace() { char::REPLACEMENT_CHARACTER } else { c };
    let indent = first.chars().count();
    let mut line = first.to_owned();
    for word in text.split_whitespace() {
        let word: String = word.chars().map(printable).collect();
        let used = line.chars().count();
        if used > indent && used + 1 + word.chars().count() > WIDTH {
            writeln!(f, "{}", line.trim_end())?;
            line = " ".repeat(indent);
        }
        if line.chars().count() > indent {
            line.push(' ');
        }
        line.push_str(&word);
    }
    writeln!(f, "{}", line.trim_end())
}
