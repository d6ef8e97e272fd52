//! Standard output, where a full disk is a fault and a closed pipe is not, and standard error, where neither is.

use std::ffi::OsString;
use std::fs;
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};

use machine::{Fault, Result, text};

use crate::terminal;

/// Refuses to write `what`, which is for a program, to a terminal. `option` names a file instead.
pub fn not_to_a_terminal(what: &str, option: &str) -> Result<()> {
    if !std::io::stdout().is_terminal() {
        return Ok(());
    }
    let next = format!("name a file with {option}, or redirect standard output (> FILE, | less)");
    Err(Fault::new("standard output", format!("it is a terminal, and {what} is for a program to read"), next))
}

/// The reader's number of columns: of the terminal at standard output, or in the variable COLUMNS.
fn asked() -> Option<usize> {
    let variable = || -> Option<usize> { std::env::var("COLUMNS").ok()?.parse().ok() };
    terminal::columns().or_else(variable).map(|columns| columns.clamp(40, 140))
}

/// Columns of a page: the reader's, else 100.
pub fn width() -> usize {
    asked().unwrap_or(100)
}

/// Columns of a page with wide tables: the reader's, else 120.
pub fn wide() -> usize {
    asked().unwrap_or(120)
}

/// Whether `stream` may have bold and colour: a terminal that supports them, unless the reader refused them.
pub fn colour(stream: &impl IsTerminal) -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|refusal| !refusal.is_empty());
    stream.is_terminal() && !refused && std::env::var_os("TERM").is_none_or(|terminal| terminal != "dumb")
}

/// Prints a page to standard output. Lines are broken for a known number of columns; for a program they stay whole.
///
/// # Errors
/// The errors of [`print`].
pub fn page(page: &str) -> Result<()> {
    match asked() {
        Some(width) => print(&text::fitted(page, width)),
        None => print(page),
    }
}

/// Writes a file atomically, also for concurrent readers.
pub fn replace(path: &Path, text: &str) -> Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let written = fs::write(&beside, text).and_then(|()| fs::rename(&beside, path));
    written.map_err(|e| {
        // The partial file would keep a full disk full.
        let _ = fs::remove_file(&beside);
        Fault::unwritable(path.display().to_string(), e, "name another file")
    })
}

/// Prints `text` to standard output.
///
/// # Errors
/// It cannot be written, except when the reader has closed the pipe (`| head`) and wants no more.
pub fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Fault::unwritable("standard output", error, "choose another file"))
        }
        _ => Ok(()),
    }
}

/// Destination of a program's output: the value of `--json[=FILE]` and `--csv[=FILE]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    Stdout,
    File(PathBuf),
}

impl Destination {
    /// The value that stands for standard output.
    pub const STDOUT: &str = "-";

    /// # Errors
    /// It cannot be written.
    pub fn write(&self, text: &str) -> Result<()> {
        match self {
            Destination::Stdout => print(text),
            Destination::File(file) => {
                let written = fs::write(file, text);
                written.map_err(|e| Fault::unwritable(format!("file {}", file.display()), e, "name another file"))
            }
        }
    }
}

impl From<OsString> for Destination {
    fn from(word: OsString) -> Destination {
        if word == Destination::STDOUT { Destination::Stdout } else { Destination::File(word.into()) }
    }
}

/// `line` prefixed by the command's name, but only once, since a fault's subject may begin with it.
pub fn under(name: &str, line: &str) -> String {
    let is_named = ["plimsoll ", "plimsoll: "].iter().any(|named| line.starts_with(named));
    if is_named { line.to_owned() } else { format!("{name}: {line}") }
}

/// Prints `text` to standard error. A reader that has gone (`| head`) is no failure of the command.
pub fn tell(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_named_once() {
        for (line, told) in [
            ("port 7: it is taken", "plimsoll serve: port 7: it is taken"),
            ("plimsoll serve: its key is another", "plimsoll serve: its key is another"),
            ("plimsoll serve on a: no answer", "plimsoll serve on a: no answer"),
        ] {
            assert_eq!(under("plimsoll serve", line), told);
        }
        assert_eq!(under("plimsoll", "plimsoll bench: a signal ended it"), "plimsoll bench: a signal ended it");
    }
}
