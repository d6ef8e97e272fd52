//! The output options that all commands share.

use linux::output::{self, Destination};
use machine::{Fault, Result};
use serde_json::Value;

#[derive(clap::Args)]
#[group(skip)]
pub struct Json {
    /// Print JSON instead, or write it to FILE as well
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = Destination::STDOUT)]
    json: Option<Destination>,
}

impl Json {
    /// Whether standard output has data for a program, not the page.
    pub fn is_printed(&self) -> bool {
        self.json == Some(Destination::Stdout)
    }

    /// Writes `found` where it was asked for, and shows the page, unless standard output has the data.
    pub fn tell(&self, found: impl FnOnce() -> Result<String>, page: impl FnOnce() -> Result<()>) -> Result<()> {
        tell(self.json.as_ref(), found, page)
    }

    /// Prints an answer to standard output, as text or as JSON.
    pub fn print(&self, terminal: impl FnOnce() -> String, answer: impl FnOnce() -> Value) -> Result<()> {
        self.tell(|| json(&answer()), || output::page(&terminal()))
    }
}

#[derive(clap::Args)]
#[group(skip)]
pub struct Csv {
    /// Print CSV instead, or write it to FILE as well
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = Destination::STDOUT)]
    pub csv: Option<Destination>,
}

impl Csv {
    /// Writes `found` where it was asked for, and shows the page, unless standard output has the data.
    pub fn tell(&self, found: impl FnOnce() -> Result<String>, page: impl FnOnce() -> Result<()>) -> Result<()> {
        tell(self.csv.as_ref(), found, page)
    }
}

fn tell(
    to: Option<&Destination>,
    found: impl FnOnce() -> Result<String>,
    page: impl FnOnce() -> Result<()>,
) -> Result<()> {
    if let Some(to) = to {
        to.write(&found()?)?;
    }
    if to == Some(&Destination::Stdout) { Ok(()) } else { page() }
}

/// `of` as JSON for readers' programs.
pub fn json(of: &impl serde::Serialize) -> Result<String> {
    let text = serde_json::to_string_pretty(of);
    Ok(text.map_err(|error| Fault::because("output", error, "report this as a defect"))? + "\n")
}
