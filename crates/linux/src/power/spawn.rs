//! Running a command for what it prints, for a limited time.

use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::answer;

/// More than any sensor prints.
const MOST: usize = 64 << 10;

/// What `command` prints, or why that is nothing: it could not be started, ended with another status than 0, or did not end
/// in `limit` or before `end` was set, and was then killed with all that it had started in its group. It prints numbers as with
/// LC_ALL=C, whatever the user's locale.
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
