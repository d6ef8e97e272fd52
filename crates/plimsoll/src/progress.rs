//! Progress of a study, a campaign or a trial: a bar on a terminal, occasional lines elsewhere; and of a command, on a
//! terminal alone.

use std::io::IsTerminal;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use experiment::observer::{Observer, Progress};
use indicatif::{ProgressBar, ProgressStyle};
use machine::Nanoseconds;

/// Time between two lines of a study's progress, where no terminal shows a bar.
const LINE: Duration = Duration::from_secs(10);

/// Shows the progress of measurements on standard error.
pub struct Display {
    /// The bar, on a terminal.
    bar: Option<ProgressBar>,
    /// Elsewhere: time between two lines, if there are any, and the time of the last one.
    every: Option<Duration>,
    last: Option<Instant>,
}

impl Display {
    /// A bar of `budget` on a terminal, lines elsewhere, the first at once.
    pub fn of(budget: Nanoseconds) -> Display {
        let style = ProgressStyle::with_template("{wide_bar} {percent:>3} %  {prefix}\n{wide_msg}");
        let style = style.expect("the template is well formed");
        let bar = || ProgressBar::new(budget.0 / 1_000_000).with_style(style);
        Display { bar: std::io::stderr().is_terminal().then(bar), every: Some(LINE), last: None }
    }

    /// A spinner on a terminal; elsewhere a line each time `every` has passed, if that is given.
    pub fn spinning(every: Option<Duration>) -> Display {
        let bar = std::io::stderr().is_terminal().then(ProgressBar::new_spinner);
        Display { bar, every, last: Some(Instant::now()) }
    }

    pub fn close(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Observer for Display {
    fn progress(&mut self, progress: &Progress) {
        let is_due = |every| self.last.is_none_or(|at| at.elapsed() >= every);
        match &self.bar {
            Some(bar) if let Some(length) = bar.length() => {
                bar.set_position((progress.spent.0 / 1_000_000).min(length));
                bar.set_prefix(progress.state.clone());
                bar.set_message(progress.now.clone().unwrap_or_default());
            }
            Some(bar) => {
                bar.set_message(progress.to_string());
                bar.tick();
            }
            None if self.every.is_some_and(is_due) => {
                self.last = Some(Instant::now());
                eprintln!("{progress}");
            }
            None => {}
        }
    }

    fn note(&mut self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("note: {text}")),
            None => eprintln!("note: {text}"),
        }
    }
}

/// The time after which a command's work is shown.
const SOON: Duration = Duration::from_secs(2);

/// Shows on a terminal, once it takes long, a command's present work and its start; until it is dropped.
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

    /// Sets the present work; prints it as a line where no terminal shows it.
    pub fn say(&self, what: &str) {
        match &self.said {
            // The thread that shows it ends no sooner than this.
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
