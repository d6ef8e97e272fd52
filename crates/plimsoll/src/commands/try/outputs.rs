//! The outputs of a trial: the terminal, a page, files for programs.

use std::path::{Path, PathBuf};

use experiment::trial::Runs;
use experiment::trial::export::{self, Format};
use experiment::trial::judgement::Judgement;
use experiment::trial::store::Trial;
use experiment::trial::{page, terminal};
use linux::output::{self, Destination};
use machine::{Fault, Result};
use rounds::sitting::End;

#[derive(clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Output")]
pub struct Outputs {
    /// Write every run as JSON to FILE, or to standard output
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = Destination::STDOUT)]
    json: Option<Destination>,
    /// Write every run as CSV to FILE, or to standard output
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = Destination::STDOUT)]
    csv: Option<Destination>,
    /// Write the arms and every run as tables in Markdown to FILE, or to standard output
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = Destination::STDOUT)]
    markdown: Option<Destination>,
    /// Write the page to this file; beside the page of another trial it gets a number [default: try.html; none with --show]
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

impl Outputs {
    fn files(&self) -> impl Iterator<Item = (Format, &Destination)> {
        let all = [(Format::Json, &self.json), (Format::Csv, &self.csv), (Format::Markdown, &self.markdown)];
        all.into_iter().filter_map(|(format, file)| Some((format, file.as_ref()?)))
    }

    fn on_stdout(&self) -> usize {
        self.files().filter(|(_, to)| **to == Destination::Stdout).count()
    }

    /// # Errors
    /// Two outputs are to be standard output.
    pub fn checked(&self) -> Result<()> {
        if self.on_stdout() < 2 {
            return Ok(());
        }
        let next = "name a file for the others, like --csv=runs.csv";
        Err(Fault::new("standard output", "only one of --json, --csv and --markdown can be written to it", next))
    }

    /// Prints words for a reader: to standard error where standard output is for a program.
    pub fn say(&self, text: &str) -> Result<()> {
        if self.on_stdout() == 0 {
            return output::print(text);
        }
        output::tell(text);
        Ok(())
    }

    /// Prints the answer, and writes the requested files, and the page at `page` if that is given.
    pub fn tell(
        &self,
        (trial, runs): (&Trial, &Runs),
        judgement: &Judgement,
        end: End,
        page: Option<&Path>,
    ) -> Result<()> {
        let mut text = terminal::render(&trial.design, runs, judgement, end);
        if let Some(wanted) = page {
            let place = page::place(wanted, trial);
            let next = "choose another file with --html FILE; the runs are kept: plimsoll try --show";
            let written = std::fs::write(&place, page::render(trial, runs, judgement, end));
            written.map_err(|e| Fault::unwritable(format!("page {}", place.display()), e, next))?;
            let path = std::path::absolute(&place).unwrap_or(place);
            text += &format!("Page: {}\n", machine::shell::path(&path));
        }
        for (format, to) in self.files() {
            let written = to.write(&export::render(format, trial, runs, judgement));
            let next = "choose another file; the runs are kept: plimsoll try --show";
            written.map_err(|fault| Fault::new(fault.subject(), fault.cause(), next))?;
        }
        self.say(&text)
    }
}
