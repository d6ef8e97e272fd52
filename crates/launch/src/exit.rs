//! How a process ended, as a shell has it.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// 128 and the signal's number, where one ended it.
pub fn exit_code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, Some(signal)) => 128u8.wrapping_add(signal as u8),
        (None, None) => 1,
    }
}
