//! The verdict for a terminal.

use std::path::Path;

use chart::{clock, number};

use super::{html, wording};
use crate::decision::command;
use crate::findings::{Decision, Findings, Line, SizeRange};
use crate::wording::{decision, largest_losses};

/// Properties of the terminal, and the wanted detail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Screen {
    /// Columns, at which text wraps.
    pub width: usize,
    /// Whether escape sequences for bold and colour may be written.
    pub colour: bool,
    /// Whether to print all reasons: the rows behind the lines, why each other place was not taken, the notes.
    pub reasons: bool,
}

/// The verdict as text. The choices come first, each with its command; the path of the HTML report, if there is one,
/// comes last.
pub fn render(findings: &Findings, screen: Screen, report: Option<&Path>) -> String {
    let mut page = Page { screen, text: String::new() };
    let verdict = &findings.verdict;
    page.decisions(&verdict.decisions);
    page.paragraph(
        0,
        0,
        &format!(
            "{}{} {}, {}, took {}",
            findings.title,
            if findings.title.ends_with('?') { "" } else { "," },
            wording::path(&findings.path),
            clock::date(findings.started),
            clock::duration(findings.took)
        ),
    );
    page.blank();
    page.lines(&verdict.lines);
    page.blank();
    page.paragraph(0, 0, &format!("Questions: {}.", wording::answered(verdict)));
    if screen.reasons {
        page.largest_losses(&verdict.decisions);
        page.ranges(&verdict.ranges);
        if !verdict.sweep.is_empty() {
            page.blank();
            page.sweep(findings);
        }
    }
    if let Some(nearness) = &verdict.nearness {
        page.blank();
        page.paragraph(
            0,
            0,
            &format!(
                "The application cores were {} from each other one way: {}.",
                wording::interval(&nearness.one_way_ns, number::nanoseconds),
                nearness.note.trim_end_matches('.')
            ),
        );
    }
    for (title, lines) in [("Warnings", verdict.warnings.clone()), ("Notes", html::notes(findings))] {
        if title == "Notes" && !screen.reasons {
            page.blank();
            page.paragraph(
                0,
                0,
                "Gains with their intervals, CPU, why each other place was not taken, and notes: `plimsoll study --why`.",
            );
            continue;
        }
        if !lines.is_empty() {
            page.blank();
            page.styled(if title == "Warnings" { Style::Warning } else { Style::Heading }, 0, title);
        }
        for line in lines {
            page.paragraph(2, 4, &format!("- {line}"));
        }
    }
    if let Some(path) = report {
        page.blank();
        // On one line whatever the width, for copying.
        page.text.push_str(&format!("Report: {}\n", printable(&machine::shell::path(path))));
    }
    page.text
}

/// Widths of the columns of the ranges.
struct Columns {
    sizes: usize,
    choice: usize,
    gain: usize,
}

/// Least width of the last column; with less, rows are stacked.
const CPU_WIDTH: usize = 26;
const GAP: usize = 2;

impl Columns {
    /// `None` where the screen is too narrow for columns.
    fn of(ranges: &[SizeRange], width: usize) -> Option<Self> {
        let widest = |write: fn(&SizeRange) -> String| {
            ranges.iter().map(|range| printable(&write(range)).chars().count()).max().unwrap_or(0)
        };
        let columns = Columns { sizes: widest(sizes), choice: widest(choice), gain: widest(wording::gain_of) };
        (columns.before_cpu() + CPU_WIDTH <= width).then_some(columns)
    }

    fn before_cpu(&self) -> usize {
        2 + self.sizes + GAP + self.choice + GAP + self.gain + GAP
    }
}

fn sizes(range: &SizeRange) -> String {
    wording::sizes(range.from, range.to)
}

fn choice(range: &SizeRange) -> String {
    wording::brief(&range.choice)
}

enum Style {
    Bold,
    Heading,
    Warning,
    Quiet,
}

struct Page {
    screen: Screen,
    text: String,
}

impl Page {
    fn blank(&mut self) {
        self.text.push('\n');
    }

    /// One choice for each question, with its command.
    fn decisions(&mut self, decisions: &[Decision]) {
        for of in decisions {
            self.in_style(Style::Bold, |page| page.paragraph(0, 2, &decision(of).to_string()));
            self.paragraph(2, 4, &command(of));
        }
        if !decisions.is_empty() {
            self.blank();
        }
    }

    fn largest_losses(&mut self, decisions: &[Decision]) {
        for of in decisions {
            self.blank();
            let title = of.question.title();
            self.styled(Style::Heading, 0, &format!("{title}: the most that one choice for all sizes loses"));
            for loses in largest_losses(of) {
                self.paragraph(2, 4, &loses);
            }
        }
    }

    /// The verdict by size: question on the left, answer on the right.
    fn lines(&mut self, lines: &[Line]) {
        if lines.is_empty() {
            self.styled(Style::Bold, 0, "Nothing can be said: no comparison was measured.");
        }
        let asked = lines.iter().map(|line| printable(&line.asked).chars().count()).max().unwrap_or(0);
        let answer = lines.iter().map(|line| printable(&line.answer).chars().count()).max().unwrap_or(0);
        for line in lines {
            let style = if line.told { Style::Bold } else { Style::Quiet };
            self.in_style(style, |page| match asked + GAP + answer <= page.screen.width {
                true => page.paragraph_after(&format!("{:asked$}  ", line.asked), asked + GAP, &line.answer),
                false => page.paragraph(0, 2, &line.to_string()),
            });
        }
    }

    fn ranges(&mut self, ranges: &[SizeRange]) {
        let mut asked = String::new();
        let columns = Columns::of(ranges, self.screen.width);
        for range in ranges {
            let question = wording::asked(range);
            if question != asked {
                self.blank();
                self.styled(Style::Heading, 0, &question);
                asked = question;
            }
            self.range(range, columns.as_ref());
        }
    }

    fn range(&mut self, range: &SizeRange, columns: Option<&Columns>) {
        let cpu =
            number::reading(&range.cpu_per_message, |i| format!("{} of CPU a message", number::nanoseconds(i.middle)));
        match columns {
            Some(columns) => {
                let Columns { sizes: a, choice: b, gain: c } = columns;
                let row = format!("  {:a$}  {:b$}  {:c$}  ", sizes(range), choice(range), wording::gain_of(range));
                self.paragraph_after(&row, columns.before_cpu(), &cpu);
            }
            None => {
                self.paragraph(2, 4, &format!("{}: {}", sizes(range), choice(range)));
                self.paragraph(4, 6, &format!("{}; {cpu}", wording::gain_of(range)));
            }
        }
        if let Some(why) = wording::why_no_place(&range.choice) {
            self.styled(Style::Quiet, 4, &format!("{}: {why}", wording::choice(&range.choice)));
        }
        for rejected in &range.rejected {
            self.styled(Style::Quiet, 4, &format!("not {}: {}", rejected.contender, rejected.why));
        }
        for reference in &range.references {
            let gain = reference.gain.as_ref().map(|g| format!("the choice over it {}; ", wording::gain(g)));
            let gain = gain.unwrap_or_default();
            self.styled(Style::Quiet, 4, &format!("beside it {}: {gain}{}", reference.contender, reference.why));
        }
    }

    fn sweep(&mut self, findings: &Findings) {
        self.styled(Style::Heading, 0, crate::findings::Question::ProtocolCore.title());
        for row in &findings.verdict.sweep {
            let metric = row.pattern.metric();
            let gain = match &row.gain {
                Some(gain) => format!("{} of the protocol's core", wording::gain(gain)),
                None => "the protocol's core itself".into(),
            };
            let softirqs =
                number::reading(&row.softirqs_per_message, |n| format!("{} NET_RX a message", number::digits(*n)));
            let value = wording::interval(&row.value, |v| wording::value(metric, v));
            let what = wording::receiver(row.receiver);
            self.paragraph(
                2,
                4,
                &format!("{} {}, {what}, on {}: {value}; {gain}; {softirqs}", row.size, row.pattern, row.core),
            );
        }
    }

    /// Wraps `text`: the first line after `first` spaces, the rest after `rest`.
    fn paragraph(&mut self, first: usize, rest: usize, text: &str) {
        self.paragraph_after(&" ".repeat(first), rest, text);
    }

    /// Wraps `text` after `lead`; following lines are indented by `indent` spaces.
    fn paragraph_after(&mut self, lead: &str, indent: usize, text: &str) {
        let mut line = printable(lead);
        let mut empty = true;
        for word in printable(text).split_whitespace() {
            let used = line.chars().count();
            if !empty && used + 1 + word.chars().count() > self.screen.width {
                self.text.push_str(line.trim_end());
                self.text.push('\n');
                line = " ".repeat(indent);
                empty = true;
            }
            if !empty {
                line.push(' ');
            }
            line.push_str(word);
            empty = false;
        }
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    fn styled(&mut self, style: Style, indent: usize, text: &str) {
        self.in_style(style, |page| page.paragraph(indent, indent + 2, text));
    }

    fn in_style(&mut self, style: Style, write: impl FnOnce(&mut Self)) {
        let code = match style {
            Style::Bold => "1",
            Style::Heading => "1;36",
            Style::Warning => "1;33",
            Style::Quiet => "2",
        };
        if self.screen.colour {
            self.text.push_str(&format!("\x1b[{code}m"));
        }
        write(self);
        if self.screen.colour {
            self.text.insert_str(self.text.len() - 1, "\x1b[0m");
        }
    }
}

/// Text without control characters: a machine's name must not steer the reader's terminal.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{FFFD}' } else { c }).collect()
}
