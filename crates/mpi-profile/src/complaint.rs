//! The one line on standard error by which the library says what of a profile is lost.

use std::fmt::Display;
use std::io::{Error, ErrorKind, Write};

/// What helps where a file system is full.
pub const SPACE: &str = "free space there, or profile into a folder with more";

/// Whether what could not be written found no storage.
pub fn is_full(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

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

    /// Of a file or folder that cannot be written: space helps where there is none, else `next`.
    pub fn unwritable(what: impl Display, error: &Error, next: &'static str) -> Complaint {
        Complaint::new(format!("{what}: {error}"), if is_full(error) { SPACE } else { next })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_is_asked_for_where_there_is_none_and_nowhere_else() {
        for (error, next) in [(libc::ENOSPC, SPACE), (libc::EDQUOT, SPACE), (libc::EACCES, "name another folder")] {
            let error = Error::from_raw_os_error(error);
            assert_eq!(Complaint::unwritable("a", &error, "name another folder").next, next, "{error}");
        }
    }
}
