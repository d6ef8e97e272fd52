//! Standard output: a full disk is a fault, a closed pipe is not.

use std::io::{ErrorKind, Write};

use machine::{Fault, Result};

/// Prints `text` to standard output.
///
/// # Errors
/// It cannot be written, except when the reader has closed the pipe (`| head`): then the rest is not wanted.
pub fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Fault::because("standard output", error, "free the disk or choose another file"))
        }
        _ => Ok(()),
    }
}
