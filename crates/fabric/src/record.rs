//! An endpoint's report so far, in a file that survives its process: a killed rank reports nothing by itself.
//!
//! The report is written anew while the endpoint is polled, and the file removed once the endpoint has reported.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use endpoint::{Endpoint, Paths};

use crate::account::Sums;
use crate::memory::Memory;
use crate::remote::Begun;
use crate::report;

/// Polls between two looks at the clock.
const POLLS: u32 = 256;
/// Time between two reports: what a killed rank has carried since its last is not counted.
const INTERVAL: Duration = Duration::from_millis(100);

pub struct Record {
    file: PathBuf,
    /// Polls until the next look at the clock.
    polls: u32,
    written: Option<Instant>,
}

impl Record {
    /// The record of a new endpoint; `folder` is that of the job.
    pub fn new(folder: &Path) -> Record {
        static OPENED: AtomicU32 = AtomicU32::new(0);
        let (process, number) = (std::process::id(), OPENED.fetch_add(1, Ordering::Relaxed));
        Record { file: folder.join(format!("{process}-{number}.report")), polls: 0, written: None }
    }

    /// Whether the report is to be written now; asked at each poll.
    #[inline]
    pub fn is_due(&mut self) -> bool {
        match self.polls.checked_sub(1) {
            Some(left) => {
                self.polls = left;
                false
            }
            None => self.look(),
        }
    }

    #[cold]
    #[inline(never)]
    fn look(&mut self) -> bool {
        self.polls = POLLS;
        self.written.is_none_or(|written| written.elapsed() >= INTERVAL)
    }

    /// Writes the report so far. False where there is no place for it, as on hosts without the job's folder.
    #[cold]
    #[inline(never)]
    pub fn write(&mut self, engine: &mut Endpoint<Paths, Memory>, account: Option<Sums>, remote: Begun) -> bool {
        let Ok(report) = engine.report() else { return false };
        let Ok(line) = report::line(report, account, remote) else { return false };
        // A reader finds a whole report, also where this process is killed meanwhile.
        let fresh = self.file.with_extension("fresh");
        let is_written = fs::write(&fresh, line).and_then(|()| fs::rename(&fresh, &self.file)).is_ok();
        self.written = Some(Instant::now());
        is_written
    }

    /// Removes the file: the endpoint has reported.
    pub fn end(&self) {
        let _ = fs::remove_file(&self.file);
    }
}
