//! Exit code of a process in a shell's numbering.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// The exit code, or 128 plus the number of the signal that ended the process.
pub fn exit_code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, Some(signal)) => 128u8.wrapping_add(signal as u8),
        (None, None) => 1,
    }
}
