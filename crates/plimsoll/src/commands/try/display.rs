//! How far a trial is, on standard error.

use std::io::IsTerminal;

use experiment::trial::conduct::Observer;
use experiment::trial::design::{Design, letter};
use indicatif::ProgressBar;
use machine::Nanoseconds;

/// A line on a terminal; elsewhere notes alone.
pub struct Display {
    bar: Option<ProgressBar>,
    names: Vec<String>,
}

impl Display {
    pub fn new(design: &Design) -> Display {
        let bar = std::io::stderr().is_terminal().then(ProgressBar::new_spinner);
        let names = design.arms.iter().enumerate().map(|(nth, arm)| format!("{}, {}", letter(nth), arm.name)).collect();
        Display { bar, names }
    }

    pub fn close(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Observer for Display {
    fn run_starts(&mut self, arm: usize, round: Option<u32>, left: Nanoseconds) {
        let round = round.map_or("warming up".to_owned(), |round| format!("round {}", round + 1));
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{round}, at most {} s left: {}", left.0 / 1_000_000_000, self.names[arm]));
            bar.tick();
        }
    }

    fn note(&mut self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("note: {text}")),
            None => eprintln!("note: {text}"),
        }
    }
}
