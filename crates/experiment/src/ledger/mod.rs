//! The ledger: predictions, stored before their outcomes were known, and these outcomes.
//!
//! A file a host, `ledger-HOST.jsonl`, beside the machine's costs: a line of JSON for each prediction, outcome and run, only
//! ever added to. A line is one write under the file's lock, which is beside it, so that writers do not mix; a line that a
//! full disk cut is counted and left out.

mod page;
mod score;
mod tally;
mod terminal;
mod widening;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use machine::costs::{Interval, store};
use machine::lock::{Lock, beside};
use machine::{Bytes, Fault, Nanoseconds, Result, optional};
use serde::{Deserialize, Serialize};

pub use page::render as page;
pub use score::{Pair, Score, Scores, pairs, score};
pub use tally::{Settled, Tally, tallies};
pub use terminal::render as terminal;
pub use widening::{Widened, Widening};

/// A program's run, or an offcode, by all that makes two the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Subject {
    /// The command, the number of ranks, their hosts and the MPI; name and version.
    pub words: String,
    /// Digest of the file of its code: a new build is another subject.
    pub digest: String,
}

/// The kind of quantity that is predicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The time of a run at one placement over that at another.
    Placement,
    /// The time of a run.
    Elapsed,
    /// The messages that the ranks send, collective calls as their messages.
    Messages,
    /// The time of a command over that of another, by a replay of what was recorded.
    WhatIf,
    /// The time of a run over another carrier over that at today's, by what delays cost it.
    Causal,
    /// How much faster one contender of a study is than another.
    Study,
    /// The core time of an offcode for a call, message or packet, in nanoseconds.
    Offcode,
    /// Messages a second that an offcode is given.
    Rate,
}

impl Kind {
    pub fn words(self) -> &'static str {
        match self {
            Kind::Placement => "gain of a placement",
            Kind::Elapsed => "time of a run",
            Kind::Messages => "messages of a run",
            Kind::WhatIf => "what if",
            Kind::Causal => "loss by another carrier",
            Kind::Study => "gain in a study",
            Kind::Offcode => "time of an offcode for a message",
            Kind::Rate => "messages of an offcode",
        }
    }
}

/// An interval that was stored before its outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// Number of the prediction, unique in the file.
    pub id: u64,
    /// Time of the prediction, since the Unix epoch.
    pub made: Nanoseconds,
    pub kind: Kind,
    pub subject: Subject,
    /// "time at core:3 over app".
    pub quantity: String,
    /// The change, "carrier", where predictions of the kind are judged apart by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lever: Option<String>,
    /// A positive value.
    pub expected: Interval,
    /// Share of outcomes that are expected in the interval, 0 to 1.
    #[serde(default = "default_level")]
    pub level: f64,
    /// The widening of the interval, if it is wider than its model's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub widened: Option<Widened>,
    /// Grounds of the prediction, in words.
    pub because: String,
    /// The choice that it led to, if any.
    pub choice: Option<String>,
    pub version: String,
}

/// The level of all predictions of earlier versions.
fn default_level() -> f64 {
    0.95
}

impl Prediction {
    /// A prediction that is made now, at a level of 0.95.
    pub fn new(
        kind: Kind,
        subject: Subject,
        quantity: String,
        expected: Interval,
        because: impl Into<String>,
    ) -> Prediction {
        Prediction {
            id: 0,
            made: machine::here::now(),
            kind,
            subject,
            quantity,
            lever: None,
            expected,
            level: default_level(),
            widened: None,
            because: because.into(),
            choice: None,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    /// A sentence that compares the outcome with the expectation.
    pub fn against(&self, value: f64) -> String {
        let held = if self.expected.holds(value) { "held" } else { "MISSED" };
        let value = terminal::value(self.kind, value);
        format!("{}: {value}, expected {}: {held}", self.quantity, terminal::expected(self))
    }

    /// Grounds and widening, in words.
    pub fn grounds(&self) -> String {
        let widened = self.widened.map(|widened| format!("; {}", widened.by));
        self.because.clone() + &widened.unwrap_or_default()
    }

    /// A key that is the same where the prediction is made again for another run.
    pub fn key(&self) -> (&Subject, &str, [u64; 3]) {
        let Interval { low, middle, high } = self.unwidened();
        (&self.subject, &self.quantity, [low, middle, high].map(f64::to_bits))
    }
}

/// The outcome of a prediction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The prediction's `id`.
    pub id: u64,
    pub came: Nanoseconds,
    pub value: f64,
    /// Interval of the value, where it was measured as one.
    pub interval: Option<(f64, f64)>,
    /// The command that gave it.
    pub source: String,
}

/// A run of a program, as its carrier counted it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub subject: Subject,
    pub at: Nanoseconds,
    /// "core:3", or with a network between hosts "app, udp".
    pub placement: String,
    pub ranks: u32,
    pub elapsed: Nanoseconds,
    /// Messages of all ranks, by size.
    pub messages: Vec<(Bytes, u64)>,
    /// The part of the packets that went to another host.
    pub crossing: f64,
}

impl Run {
    /// Messages of all sizes.
    pub fn count(&self) -> u64 {
        self.messages.iter().map(|(_, count)| count).sum()
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Line {
    Prediction(Prediction),
    Outcome(Outcome),
    Run(Run),
}

/// Longest wait for the file's lock: longer than it takes to write some lines.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The contents of a host's ledger.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ledger {
    pub predictions: Vec<Prediction>,
    pub outcomes: Vec<Outcome>,
    pub runs: Vec<Run>,
    /// Lines that could not be read: cut, or of a newer plimsoll.
    pub damaged: usize,
    /// The reason why an older one is not seen, where this user may not look for it.
    pub note: Option<String>,
    path: PathBuf,
}

impl Ledger {
    /// Opens this host's ledger.
    ///
    /// # Errors
    /// There is no folder for it, or it is there and may not be read.
    pub fn open() -> Result<Ledger> {
        Ledger::at(&file(&store::folder()?))
    }

    /// Opens the ledger in this file, which need not exist yet.
    ///
    /// # Errors
    /// It is there, and may not be read.
    pub fn at(path: &Path) -> Result<Ledger> {
        let mut unseen = Vec::new();
        let text = optional::read(path, &mut unseen)
            .map_err(|e| Fault::because(path.display().to_string(), e, "grant yourself read access to it"))?
            .unwrap_or_default();
        let mut ledger = Ledger { path: path.to_owned(), note: unseen.pop(), ..Ledger::default() };
        for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            match serde_json::from_slice(line) {
                Ok(line) => ledger.take(line),
                Err(_) => ledger.damaged += 1,
            }
        }
        Ok(ledger)
    }

    fn take(&mut self, line: Line) {
        match line {
            Line::Prediction(prediction) => self.predictions.push(prediction),
            Line::Outcome(outcome) => self.outcomes.push(outcome),
            Line::Run(run) => self.runs.push(run),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Stores a prediction, on the disk before this returns. Its `id` is given here.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn predict(&mut self, mut prediction: Prediction) -> Result<u64> {
        prediction.id = prediction.made.0 ^ u64::from(std::process::id()).rotate_left(40);
        while self.predictions.iter().any(|other| other.id == prediction.id) {
            prediction.id += 1;
        }
        let id = prediction.id;
        self.add(Line::Prediction(prediction)).map(|()| id)
    }

    /// Stores the outcome of every open prediction of this subject and quantity. Returns these predictions.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn settle(&mut self, subject: &Subject, quantity: &str, outcome: &Outcome) -> Result<Vec<Prediction>> {
        let matches = |of: &&Prediction| of.subject == *subject && of.quantity == quantity && of.made < outcome.came;
        let open: Vec<Prediction> = self.open_predictions().filter(matches).cloned().collect();
        for prediction in &open {
            self.add(Line::Outcome(Outcome { id: prediction.id, ..outcome.clone() }))?;
        }
        Ok(open)
    }

    /// Predictions without an outcome.
    pub fn open_predictions(&self) -> impl Iterator<Item = &Prediction> {
        let settled: std::collections::HashSet<u64> = self.outcomes.iter().map(|outcome| outcome.id).collect();
        self.predictions.iter().filter(move |prediction| !settled.contains(&prediction.id))
    }

    /// Adds a run.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn record(&mut self, run: Run) -> Result<()> {
        self.add(Line::Run(run))
    }

    /// Runs of this subject, the latest last.
    pub fn runs_of<'a>(&'a self, subject: &'a Subject) -> impl DoubleEndedIterator<Item = &'a Run> {
        self.runs.iter().filter(move |run| run.subject == *subject)
    }

    fn add(&mut self, line: Line) -> Result<()> {
        let next = "set XDG_STATE_HOME to a folder that can be written";
        let failed = |e: io::Error| Fault::unwritable(self.path.display().to_string(), e, next);
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        let mut text = serde_json::to_vec(&line).map_err(|e| Fault::because("ledger", e, "report it"))?;
        let subject = self.path.display().to_string();
        let _lock = Lock::take(&beside(&self.path), &subject, TIMEOUT, "wait until that has written")?;
        let mut file = OpenOptions::new().create(true).append(true).read(true).open(&self.path).map_err(failed)?;
        if ends_within_a_line(&file).map_err(failed)? {
            text.insert(0, b'\n');
        }
        text.push(b'\n');
        file.write_all(&text).and_then(|()| file.sync_data()).map_err(failed)?;
        self.take(line);
        Ok(())
    }
}

/// Whether the last line is cut, as by a full disk.
fn ends_within_a_line(file: &File) -> io::Result<bool> {
    use std::os::unix::fs::FileExt;
    let length = file.metadata()?.len();
    let mut last = [b'\n'];
    if length > 0 {
        file.read_exact_at(&mut last, length - 1)?;
    }
    Ok(last[0] != b'\n')
}

/// The ledger of this host in a folder; the host's name is one component of the path, whatever its kernel says.
pub fn file(folder: &Path) -> PathBuf {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_') { c } else { '_' };
    let host: String = store::Key::live().host.chars().map(plain).collect();
    folder.join(format!("ledger-{host}.jsonl"))
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn prediction(kind: Kind, quantity: &str, low: f64, high: f64) -> Prediction {
        let subject = Subject { words: "lmp, 4 ranks".into(), digest: "1".into() };
        Prediction {
            made: Nanoseconds(1),
            ..Prediction::new(kind, subject, quantity.to_owned(), Interval::between(low, high), "costs")
        }
    }

    pub(super) fn outcome(value: f64, interval: Option<(f64, f64)>) -> Outcome {
        Outcome { id: 0, came: Nanoseconds(2), value, interval, source: "plimsoll try".into() }
    }

    #[test]
    fn what_is_stored_reads_back_and_each_prediction_is_settled_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/ledger.jsonl");
        let mut ledger = Ledger::at(&path).unwrap();
        let one = prediction(Kind::Placement, "time at core:3 over app", 0.9, 0.95);
        let first = ledger.predict(one.clone()).unwrap();
        let second = ledger.predict(Prediction { quantity: "seconds".into(), ..one.clone() }).unwrap();
        assert_ne!(first, second);
        let settled = ledger.settle(&one.subject, &one.quantity, &outcome(0.93, None)).unwrap();
        let again = ledger.settle(&one.subject, &one.quantity, &outcome(0.5, None)).unwrap();
        assert_eq!((settled.len(), again.len(), ledger.open_predictions().count()), (1, 0, 1));
        let read = Ledger::at(&path).unwrap();
        assert_eq!((read.predictions.len(), read.outcomes.len(), read.damaged), (2, 1, 0));
        assert_eq!(read.open_predictions().map(|of| of.id).collect::<Vec<_>>(), [second]);
        let rebuilt = Subject { digest: "2".into(), ..one.subject };
        assert_eq!(ledger.settle(&rebuilt, "seconds", &outcome(1.0, None)).unwrap(), []);
    }

    #[test]
    fn a_ledger_of_release_0_1_is_read_and_its_predictions_without_a_level_claim_95_of_100() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("l");
        let newer = "{\"forecast\":{\"id\":9}}\n";
        fs::write(&path, [include_str!("release-0.1.jsonl"), newer].concat()).unwrap();
        let ledger = Ledger::at(&path).unwrap();
        let ([old, new], [outcome], [run]) = (&ledger.predictions[..], &ledger.outcomes[..], &ledger.runs[..]) else {
            panic!("{} lines cannot be read", ledger.damaged)
        };
        assert_eq!((old.level, &old.lever, &old.widened), (0.95, &None, &None));
        assert_eq!((new.level, new.lever.as_deref()), (0.9, Some("carrier")));
        assert_eq!((outcome.id, run.count(), ledger.damaged), (old.id, 1020, 1));
    }

    #[test]
    fn another_users_lock_on_a_ledger_that_it_may_read_holds_nobody_up() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let path = folder.path().join("l");
        let mut ledger = Ledger::at(&path).unwrap();
        ledger.predict(prediction(Kind::Elapsed, "seconds", 1.0, 2.0)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let theirs = skip::another_user(|| {
            let ledger = File::open(&path).unwrap();
            ledger.try_lock().unwrap();
            ledger
        });
        let Some(_theirs) = theirs else { return };
        let (send, receive) = std::sync::mpsc::channel();
        std::thread::spawn(move || send.send(ledger.predict(prediction(Kind::Elapsed, "more", 1.0, 2.0))));
        receive.recv_timeout(6 * TIMEOUT).expect("nobody is waited for").unwrap();
    }

    #[test]
    fn a_ledger_that_may_not_be_looked_for_is_empty_with_a_note_and_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let no_folder = folder.path().join("home");
        fs::write(&no_folder, "").unwrap();
        let mut ledger = Ledger::at(&no_folder.join("ledger.jsonl")).unwrap();
        let note = ledger.note.clone().unwrap();
        assert!(note.contains("home/ledger.jsonl may not be looked for"), "{note}");
        let fault = ledger.predict(prediction(Kind::Elapsed, "seconds", 1.0, 2.0)).unwrap_err().to_string();
        assert!(fault.contains("set XDG_STATE_HOME"), "{fault}");
        assert_eq!(Ledger::at(&folder.path().join("none")).unwrap().note, None);
    }

    #[test]
    fn an_outcome_from_before_the_prediction_settles_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::at(&folder.path().join("l")).unwrap();
        let late = Prediction { made: Nanoseconds(3), ..prediction(Kind::Elapsed, "seconds", 1.0, 2.0) };
        ledger.predict(late.clone()).unwrap();
        assert_eq!(ledger.settle(&late.subject, "seconds", &outcome(1.5, None)).unwrap(), []);
    }

    #[test]
    fn a_line_that_was_cut_costs_itself_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("l");
        let mut ledger = Ledger::at(&path).unwrap();
        ledger.predict(prediction(Kind::Elapsed, "seconds", 1.0, 2.0)).unwrap();
        let whole = fs::read(&path).unwrap();
        fs::write(&path, [&whole[..], &whole[..whole.len() / 2]].concat()).unwrap();
        let mut ledger = Ledger::at(&path).unwrap();
        assert_eq!((ledger.predictions.len(), ledger.damaged), (1, 1));
        ledger.predict(prediction(Kind::Elapsed, "more", 1.0, 2.0)).unwrap();
        let ledger = Ledger::at(&path).unwrap();
        assert_eq!((ledger.predictions.len(), ledger.damaged), (2, 1));
    }
}
