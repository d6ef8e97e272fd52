//! How far a study is, a bar on a terminal and a line now and then elsewhere; and that a command works, on a terminal.

use std::io::IsTerminal;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use experiment::conduct::{Observer, Progress};
use indicatif::{ProgressBar, ProgressStyle};
use machine::{Nanoseconds, count};
use rounds::point::PointSpec;
use rounds::sample::Sample;

/// Between two lines where no terminal shows a bar.
const LINE: Duration = Duration::from_secs(10);

/// Shows a study on standard error.
pub enum Display {
    Bar(ProgressBar),
    Lines { last: Option<Instant> },
}

impl Display {
    /// A bar of `budget` on a terminal, lines elsewhere.
    pub fn new(budget: Nanoseconds) -> Self {
        if !std::io::stderr().is_terminal() {
            return Display::Lines { last: None };
        }
        let bar = ProgressBar::new(budget.0 / 1_000_000);
        let style = ProgressStyle::with_template("{wide_bar} {percent:>3} %  {prefix}\n{wide_msg}");
        bar.set_style(style.expect("the template is well formed"));
        Display::Bar(bar)
    }

    pub fn close(&mut self) {
        if let Display::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

fn state(progress: &Progress) -> String {
    let Progress { round, done, left, .. } = progress;
    format!("round {}, {}, at most {} left", round + 1, count::of(*done as u64, "block"), seconds(*left))
}

fn seconds(time: Nanoseconds) -> String {
    match time.0.div_ceil(1_000_000_000) {
        s if s >= 60 => format!("{} min {:02} s", s / 60, s % 60),
        s => format!("{s} s"),
    }
}

impl Observer for Display {
    fn block_starts(&mut self, spec: &PointSpec, progress: &Progress) {
        match self {
            Display::Bar(bar) => {
                bar.set_prefix(state(progress));
                bar.set_message(format!("{}, {} at {}", spec.contender(), spec.pattern, spec.size));
            }
            Display::Lines { last } if last.is_none_or(|at| at.elapsed() >= LINE) => {
                *last = Some(Instant::now());
                eprintln!("{}: {}, {} at {}", state(progress), spec.contender(), spec.pattern, spec.size);
            }
            Display::Lines { .. } => {}
        }
    }

    fn block_done(&mut self, _: &PointSpec, _: &Sample, progress: &Progress) {
        if let Display::Bar(bar) = self {
            let length = bar.length().unwrap_or(0);
            bar.set_position((progress.spent.0 / 1_000_000).min(length));
        }
    }

    fn note(&mut self, text: &str) {
        match self {
            Display::Bar(bar) => bar.suspend(|| eprintln!("note: {text}")),
            Display::Lines { .. } => eprintln!("note: {text}"),
        }
    }
}

/// What takes no longer is not announced.
const SOON: Duration = Duration::from_secs(2);

/// Shows on a terminal, once it takes long, what a command does and since when; until it is dropped.
pub struct Working {
    said: Option<Sender<String>>,
    shower: Option<JoinHandle<()>>,
}

impl Working {
    pub fn on(what: &str) -> Working {
        if !std::io::stderr().is_terminal() {
            return Working { said: None, shower: None };
        }
        let (said, heard) = channel();
        let what = what.to_owned();
        Working { said: Some(said), shower: Some(thread::spawn(move || show(what, &heard))) }
    }

    /// What it does now; where no terminal shows it, a line.
    pub fn say(&self, what: &str) {
        match &self.said {
            // Who shows it ends no sooner than this.
            Some(said) => _ = said.send(what.to_owned()),
            None => eprintln!("plimsoll: {what}"),
        }
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.said = None;
        if let Some(shower) = self.shower.take() {
            let _ = shower.join();
        }
    }
}

fn show(mut what: String, heard: &Receiver<String>) {
    let begun = Instant::now();
    let mut bar: Option<ProgressBar> = None;
    loop {
        let wait = if bar.is_some() { Duration::from_millis(100) } else { SOON.saturating_sub(begun.elapsed()) };
        match heard.recv_timeout(wait) {
            Ok(said) => what = said,
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                let bar = bar.get_or_insert_with(ProgressBar::new_spinner);
                bar.set_message(format!("{what}, {} s", begun.elapsed().as_secs()));
                bar.tick();
            }
        }
    }
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_round_blocks_and_time() {
        let at = |left| Progress { round: 1, done: 240, open: 9, spent: Nanoseconds(0), left: Nanoseconds(left) };
        assert_eq!(state(&at(125_300_000_000)), "round 2, 240 blocks, at most 2 min 06 s left");
        assert_eq!(state(&at(9_000_000_000)), "round 2, 240 blocks, at most 9 s left");
    }
}
