//! How far a study is: a bar on a terminal, a line now and then elsewhere.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use experiment::conduct::{Observer, Progress};
use experiment::point::PointSpec;
use experiment::sample::Sample;
use indicatif::{ProgressBar, ProgressStyle};
use machine::{Nanoseconds, count};

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
