//! The one line on standard error about a loss in a profile.

use std::fmt::Display;
use std::io::{Error, ErrorKind, Write};

use record::folder::variable;

/// The remedy where a file system is full.
pub const SPACE: &str = "free space there, or profile into a folder with more";

/// Whether the error is a lack of storage.
pub fn is_full(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// The cause of a loss, and the next step of the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Complaint {
    pub cause: String,
    pub next: &'static str,
}

impl Complaint {
    pub fn new(cause: impl Into<String>, next: &'static str) -> Complaint {
        Complaint { cause: cause.into(), next }
    }

    /// A file or folder that cannot be written: the next step is [`SPACE`] where storage lacks, else `next`.
    pub fn unwritable(what: impl Display, error: &Error, next: &'static str) -> Complaint {
        Complaint::new(format!("{what}: {error}"), if is_full(error) { SPACE } else { next })
    }

    /// Prints that the process is not profiled.
    pub fn say(&self) {
        self.line("is not profiled: ");
    }

    /// Prints that a part of the process's profile is missing.
    pub fn say_lost(&self) {
        self.line("");
    }

    fn line(&self, what: &str) {
        let pid = std::process::id();
        line(&format!("plimsoll: process {pid}: {what}{}. Next: {}\n", self.cause, self.next));
    }
}

/// Prints a line in one write, so that lines of several ranks stay whole. A closed stderr does not end the job. Where a site
/// profiles all jobs, users have not asked for the profile, and are told nothing.
pub fn line(text: &str) {
    if std::env::var_os(variable::SITE).is_some() {
        return;
    }
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
