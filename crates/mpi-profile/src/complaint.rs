//! The one line on standard error by which the library says what of a profile is lost.

use std::io::Write;

/// Why something cannot be recorded, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Complaint {
    pub cause: String,
    pub next: &'static str,
}

impl Complaint {
    pub fn new(cause: impl Into<String>, next: &'static str) -> Complaint {
        Complaint { cause: cause.into(), next }
    }

    /// That the process is not profiled.
    pub fn say(&self) {
        self.line("is not profiled: ");
    }

    /// That something of its profile is missing.
    pub fn say_lost(&self) {
        self.line("");
    }

    fn line(&self, what: &str) {
        let pid = std::process::id();
        line(&format!("plimsoll: process {pid}: {what}{}. Next: {}\n", self.cause, self.next));
    }
}

/// One write, so that lines of several ranks stay whole. A closed stderr is no reason to end the job.
pub fn line(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}
