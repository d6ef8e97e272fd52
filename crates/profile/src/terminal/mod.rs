//! A profile as tables for a terminal.

pub mod capability;
pub mod paper;
mod tables;

pub use tables::place;

use chart::{clock, number};
use machine::text::{Table, folded};
use machine::{Nanoseconds, Reading, count, shell};

use crate::summary::{State, Summary, ratio};
use crate::words::{bytes, percent, seconds};

/// Options of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Screen {
    /// Columns; text wraps there.
    pub width: usize,
    /// Whether escape sequences for bold and colour may be written.
    pub colour: bool,
    /// Greatest number of call sites, functions and ranks to list.
    pub sites: usize,
}

/// The profile as a page of text.
pub fn render(summary: &Summary, screen: Screen) -> String {
    let mut page = Page { screen, text: String::new() };
    page.job(summary);
    if let Some(verdict) = &summary.verdict {
        page.text.push('\n');
        page.bold(&verdict.sentence);
        // The verdict's sentence has the words of the first hindrance.
        for (nth, hindrance) in verdict.hindrances.iter().enumerate() {
            match nth {
                0 => page.paragraph(2, &format!("- first: {}", hindrance.next)),
                _ => page.paragraph(2, &format!("- then: {}; {}", hindrance.words, hindrance.next)),
            }
        }
        if let Some(beside) = verdict.beside() {
            page.paragraph(2, &format!("- {beside}"));
        }
        for judgement in &verdict.judgements {
            for why in &judgement.why {
                page.paragraph(2, &format!("- {}: {why}", judgement.choice));
            }
            if let Some(next) = &judgement.next {
                page.paragraph(2, &format!("- next: {next}"));
            }
        }
    }
    for (title, remark, table) in tables::all(summary, screen) {
        page.text.push('\n');
        page.bold(&title);
        page.text += &table.text(screen.width);
        if let Some(remark) = remark {
            page.paragraph(2, &remark);
        }
    }
    if !summary.job.notes.is_empty() {
        page.text.push('\n');
        page.bold("Notes");
        for note in &summary.job.notes {
            page.paragraph(2, &format!("- {note}"));
        }
    }
    page.text.push('\n');
    page.paragraph(0, &format!("Not counted: {NOT_COUNTED}"));
    page.text
}

/// Calls that no figure of a profile counts.
pub const NOT_COUNTED: &str = "inquiries (MPI_Comm_rank, MPI_Cart_shift, MPI_Wtime), datatypes, groups and MPI-IO; \
                               their time is compute.";

struct Page {
    screen: Screen,
    text: String,
}

impl Page {
    fn job(&mut self, summary: &Summary) {
        let (job, totals) = (&summary.job, &summary.totals);
        let command =
            if job.command.is_empty() { "a command that is not known".into() } else { shell::words(&job.command) };
        if let Some(perturbed) = &job.perturbed {
            self.bold(perturbed);
        }
        self.bold(&command);
        let hosts: Vec<&str> = job.hosts.iter().map(|host| host.name.as_str()).collect();
        let hosts = match hosts.len() {
            0..=4 => hosts.join(", "),
            many => format!("{many} hosts"),
        };
        let expected = count::of(job.expected as u64, "rank");
        let ranks = if job.ranks == job.expected { expected } else { format!("{} of {expected}", job.ranks) };
        let worlds = if job.worlds > 1 { format!(" in {} worlds", job.worlds) } else { String::new() };
        let ended = match (job.signal, job.exit_code) {
            (Some(signal), _) => format!(", ended by signal {signal}"),
            (None, Some(code)) if code != 0 => format!(", ended with {code}"),
            _ => String::new(),
        };
        let libraries: Vec<&str> = job.libraries.iter().map(|library| first_line(library)).collect();
        self.paragraph(
            0,
            &format!(
                "{ranks}{worlds} on {hosts}; {}; {}{ended}",
                libraries.join(", "),
                clock::date(Nanoseconds(job.started)),
            ),
        );
        self.paragraph(
            0,
            &format!(
                "{} between MPI_Init and MPI_Finalize, {} of it in MPI: {}, {} a second; {}, {}",
                seconds(totals.seconds),
                percent(totals.mpi_share),
                count::of(totals.calls, "call"),
                rate(totals.calls_per_second),
                count::of(totals.messages, "message"),
                bytes(totals.bytes as f64),
            ),
        );
        let recorded = match &totals.recording {
            Reading::Measured(cost) => format!(
                "; recording a call took {}, all of them {} of the run",
                seconds(*cost),
                percent(ratio(cost * totals.calls as f64, totals.thread_seconds))
            ),
            _ => String::new(),
        };
        self.paragraph(
            0,
            &format!("load balance {} (mean over greatest compute){recorded}", number::digits(totals.balance)),
        );
        let lost: Vec<String> = [State::Aborted, State::Killed, State::Exited, State::Running]
            .into_iter()
            .filter_map(|state| {
                let ranks = summary.ranks.iter().filter(|rank| rank.state == state).count() as u64;
                (ranks > 0).then(|| format!("{} {}", count::of(ranks, "rank"), word(state, ranks)))
            })
            .collect();
        if !lost.is_empty() {
            self.paragraph(0, &format!("{}; their figures end at the last moment noted", lost.join(", ")));
        }
    }

    fn bold(&mut self, text: &str) {
        let text = folded("", text, 2, self.screen.width);
        match self.screen.colour {
            true => self.text.push_str(&format!("\x1b[1m{}\x1b[0m\n", text.trim_end())),
            false => self.text.push_str(&text),
        }
    }

    fn paragraph(&mut self, indent: usize, text: &str) {
        self.text += &folded(&" ".repeat(indent), text, indent + 2, self.screen.width);
    }
}

/// A table with right-aligned columns, except those in `left`.
fn table(header: &[&str], left: &[usize], rows: impl IntoIterator<Item = Vec<String>>) -> Table {
    let mut table = Table::new(header).right((0..header.len()).filter(|place| !left.contains(place)));
    rows.into_iter().for_each(|row| table.row(row));
    table
}

fn first_line(text: &str) -> &str {
    text.split([',', '\n']).next().unwrap_or("").trim()
}

/// The predicate of a sentence on `ranks` ranks in a state.
fn word(state: State, ranks: u64) -> &'static str {
    match state {
        State::Finalized => "finalized",
        State::Exited => "ended without MPI_Finalize",
        State::Aborted => "called MPI_Abort",
        State::Killed => count::either(ranks, "was killed", "were killed"),
        State::Running => count::either(ranks, "is running", "are running"),
    }
}

fn rate(value: f64) -> String {
    if value >= 1000.0 { count::grouped(value.round() as u64) } else { number::digits(value) }
}
