//! This process: its program's file, the boot of its host, the present time.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::fault::{Fault, Result};
use crate::quantity::Nanoseconds;
use crate::source::Source;

/// The file of this process's program.
///
/// # Errors
/// The file was removed, or there is no /proc.
pub fn program() -> Result<PathBuf> {
    std::env::current_exe()
        .map_err(|error| Fault::because("this program's own file", error, "run it from where it is installed"))
}

/// The kernel's identifier of this boot; another boot may be another machine.
pub fn boot() -> Option<String> {
    Source::live().word("/proc/sys/kernel/random/boot_id")
}

/// Time since 1970; 0 where the clock is before that.
pub fn now() -> Nanoseconds {
    Nanoseconds(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64))
}
