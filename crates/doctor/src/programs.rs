//! Search and queries of programs.

use std::env;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use linux::answer;
use machine::Result;

/// The most time for an answer; some programs ask a server that may not answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The folders of PATH, and the command that the parts of plimsoll lie around.
#[derive(Debug, Clone)]
pub struct Programs {
    pub folders: Vec<PathBuf>,
    pub command: PathBuf,
}

impl Programs {
    /// The PATH of this process, and its own program.
    ///
    /// # Errors
    /// The system does not tell where this program's own file is.
    pub fn of_this_process() -> Result<Programs> {
        let command = machine::here::program()?;
        let folders = env::var_os("PATH").map(|folders| env::split_paths(&folders).collect()).unwrap_or_default();
        Ok(Programs { folders, command })
    }

    /// The first program of that name in PATH.
    pub fn find(&self, name: &str) -> Option<PathBuf> {
        self.folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file())
    }
}

/// The answer of a program.
pub enum Answer {
    Said(String),
    /// The program failed, or did not start.
    Failed,
    /// The program was killed after this time.
    Silent(Duration),
}

/// Runs a program that prints little and reads no input.
pub fn ask(program: &Path, arguments: &[&str]) -> Answer {
    match answer::of(Command::new(program).args(arguments), TIMEOUT) {
        Err(error) if error.kind() == ErrorKind::TimedOut => Answer::Silent(TIMEOUT),
        Ok(output) if output.status.success() => Answer::Said(String::from_utf8_lossy(&output.stdout).into_owned()),
        _ => Answer::Failed,
    }
}
