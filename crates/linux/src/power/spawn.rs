//! Runs a command for its output, within a time limit.

use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::answer;

/// Most bytes of output, above those of any sensor.
const MOST: usize = 64 << 10;

/// Output of `command`, run with LC_ALL=C for its numbers, or why there is none: it could not be started, failed, or
/// did not end within `limit` or before `end` was set, and was then killed with its process group.
pub fn output(mut command: Command, limit: Duration, end: &AtomicBool) -> Result<String, String> {
    command.env("LC_ALL", "C");
    let (mut child, _awaited) =
        answer::start(&mut command).map_err(|error| format!("it cannot be started: {error}"))?;
    let output = answer::gather(&mut child, limit, MOST, end).map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let problem = String::from_utf8_lossy(&output.stderr);
    let said = problem.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("it said nothing of why");
    Err(format!("it ended with {}: {said}", output.status))
}
