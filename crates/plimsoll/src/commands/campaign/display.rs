//! How far a study is, on standard error: a line on a terminal, a line now and then elsewhere.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use experiment::campaign::conduct::Observer;
use indicatif::ProgressBar;
use machine::count;

pub struct Display {
    bar: Option<ProgressBar>,
    last: Option<Instant>,
}

/// Time between two lines where no terminal shows a bar.
const BETWEEN: Duration = Duration::from_secs(30);

impl Display {
    pub fn new() -> Display {
        Display { bar: std::io::stderr().is_terminal().then(ProgressBar::new_spinner), last: None }
    }

    pub fn close(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn tell(&mut self, text: String) {
        match &self.bar {
            Some(bar) => {
                bar.set_message(text);
                bar.tick();
            }
            None if self.last.is_some_and(|at| at.elapsed() >= BETWEEN) => {
                self.last = Some(Instant::now());
                eprintln!("{text}");
            }
            None => _ = self.last.get_or_insert_with(Instant::now),
        }
    }
}

impl Observer for Display {
    fn run_starts(&mut self, point: &str, round: u32, left: usize) {
        self.tell(format!("round {}, {} of it left: {point}", round + 1, count::of(left as u64, "run")));
    }

    fn simulated(&mut self, done: usize, of: usize) {
        self.tell(format!("{} of {} simulated", count::grouped(done as u64), count::of(of as u64, "point")));
    }

    fn note(&mut self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("note: {text}")),
            None => eprintln!("note: {text}"),
        }
    }
}
