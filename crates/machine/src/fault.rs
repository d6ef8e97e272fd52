//! The one error type: what failed, why, and what to do next.

use std::error::Error;
use std::fmt;
use std::io::{self, ErrorKind};

/// A failure as its reader needs it: subject, cause, next step.
///
/// Displayed as `subject: cause. Next: next step`.
// Boxed, so that the results of what a message passes fit in registers.
#[derive(Debug)]
pub struct Fault(Box<Parts>);

#[derive(Debug)]
struct Parts {
    subject: String,
    cause: String,
    next: String,
    kind: FaultKind,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// The kind of a failure, for code that acts on it; its words are for readers alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FaultKind {
    /// Any other.
    #[default]
    Other,
    /// The kernel refused it to this user.
    NotPermitted,
    /// Something is not on this machine: a program, a module, a profile, a part of this build.
    Missing,
    /// A bound was reached.
    Limit,
    /// Another party holds it now.
    Busy,
    /// The other end is gone.
    Closed,
}

/// Shorthand used across the workspace.
pub type Result<T, E = Fault> = std::result::Result<T, E>;

impl Fault {
    /// `subject` is the thing that failed ("core 7"), `cause` why, `next` what the reader can do.
    pub fn new(subject: impl Into<String>, cause: impl Into<String>, next: impl Into<String>) -> Self {
        Fault::of(subject.into(), cause.into(), next.into(), FaultKind::Other, None)
    }

    /// A fault caused by another error; an [`io::Error`] gives the kind.
    pub fn because(
        subject: impl Into<String>,
        source: impl Error + Send + Sync + 'static,
        next: impl Into<String>,
    ) -> Self {
        let kind = match (&source as &dyn Error).downcast_ref::<io::Error>().map(io::Error::kind) {
            Some(ErrorKind::PermissionDenied) => FaultKind::NotPermitted,
            Some(ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => FaultKind::Closed,
            _ => FaultKind::Other,
        };
        let (subject, cause, next) = (subject.into(), source.to_string(), next.into());
        Fault::of(subject, cause, next, kind, Some(Box::new(source)))
    }

    fn of(
        subject: String,
        cause: String,
        next: String,
        kind: FaultKind,
        source: Option<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Fault(Box::new(Parts { subject, cause, next, kind, source }))
    }

    /// A fault of writing `subject`. `elsewhere` says how to choose another place; freeing space is suggested only
    /// where the disk is full.
    pub fn unwritable(subject: impl Into<String>, error: io::Error, elsewhere: &str) -> Self {
        let full = matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded);
        let next = if full { format!("free space there, or {elsewhere}") } else { elsewhere.to_owned() };
        Fault::because(subject, error, next)
    }

    /// The same fault, of another kind.
    #[must_use]
    pub fn of_kind(mut self, kind: FaultKind) -> Self {
        self.0.kind = kind;
        self
    }

    /// The kind of failure.
    pub fn kind(&self) -> FaultKind {
        self.0.kind
    }

    /// The thing that failed.
    pub fn subject(&self) -> &str {
        &self.0.subject
    }

    /// Why it failed.
    pub fn cause(&self) -> &str {
        &self.0.cause
    }

    /// The next step.
    pub fn next(&self) -> &str {
        &self.0.next
    }

    /// The same fault seen from further up: `outer` is put before the subject.
    pub fn within(mut self, outer: impl fmt::Display) -> Self {
        self.0.subject = format!("{outer}: {}", self.0.subject);
        self
    }
}

impl fmt::Display for Fault {
    /// Control characters become U+FFFD: names in it may come from an untrusted file, and must not drive the terminal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Parts { subject, cause, next, .. } = &*self.0;
        let text = format!("{subject}: {}. Next: {next}", cause.trim_end_matches('.'));
        f.write_str(&text.replace(|c: char| c.is_control() && c != '\n' && c != '\t', "\u{FFFD}"))
    }
}

impl Error for Fault {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source.as_deref().map(|e| e as _)
    }
}

/// The line and the column in characters, both from 1, of a byte offset in a text. An offset inside a character counts
/// as that character, one beyond the end as the end.
pub fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let before = &text[..text.floor_char_boundary(offset)];
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[start..].chars().count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_counted_in_lines_and_characters() {
        let text = "añb\n\ncd";
        let places =
            [(0, (1, 1)), (1, (1, 2)), (2, (1, 2)), (3, (1, 3)), (4, (1, 4)), (5, (2, 1)), (7, (3, 2)), (99, (3, 3))];
        for (offset, place) in places {
            assert_eq!(line_and_column(text, offset), place, "{offset}");
        }
        assert_eq!(line_and_column("", 0), (1, 1));
    }

    #[test]
    fn a_name_in_it_cannot_drive_a_terminal() {
        let fault = Fault::new("axis '\u{1b}]0;x\u{7}'", "it\nstands\r twice", "leave\tone \u{9b}31m out");
        let said = "axis '\u{FFFD}]0;x\u{FFFD}': it\nstands\u{FFFD} twice. Next: leave\tone \u{FFFD}31m out";
        assert_eq!(fault.to_string(), said);
    }

    #[test]
    fn says_subject_cause_and_next_step() {
        let fault = Fault::new("core 7", "this machine has cores 0-1.", "choose one of 0-1").within("placement");
        assert_eq!(fault.to_string(), "placement: core 7: this machine has cores 0-1. Next: choose one of 0-1");
    }

    #[test]
    fn only_a_full_disk_is_to_be_freed() {
        let next = |kind: ErrorKind| Fault::unwritable("a", kind.into(), "name another file").next().to_owned();
        assert_eq!(next(ErrorKind::StorageFull), "free space there, or name another file");
        for kind in [ErrorKind::NotFound, ErrorKind::PermissionDenied, ErrorKind::ReadOnlyFilesystem] {
            assert_eq!(next(kind), "name another file");
        }
    }
}
