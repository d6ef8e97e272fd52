//! Measurements before candidates are tried: the machine's costs, and a profile of the program.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use chart::clock;
use launch::installation::Installation;
use machine::{Fault, Nanoseconds, Result, shell};
use rustix::process::{Pid, Signal, kill_process};

/// Measures the costs of messages here under that MPI, in at most `limit`. False where a signal came meanwhile.
///
/// # Errors
/// Nothing was measured.
pub fn calibrate(installation: &Installation, limit: Option<Duration>) -> Result<bool> {
    let mut command = Command::new(machine::here::program()?);
    command.args(["calibrate", "--mpi", &installation.option()]).stdin(Stdio::null()).stdout(Stdio::null());
    let fault = |cause: String| Fault::new("plimsoll calibrate", cause, "run it by itself");
    match run(&mut command, limit)? {
        _ if linux::signal::interrupted() => Ok(false),
        Some(status) if status.success() => Ok(true),
        Some(_) => Err(fault("it failed, as it says above".to_owned())),
        None => {
            let limit = clock::duration(Nanoseconds(limit.unwrap_or_default().as_nanos() as u64));
            Err(fault(format!("it was ended after {limit}, half of the time that is left")))
        }
    }
}

/// Runs the program once and records it with its timeline into `folder`, which is made anew. False where a signal came meanwhile.
///
/// # Errors
/// It cannot be recorded, or does not end well.
pub fn profile(words: &[String], folder: &Path, input: Option<&Path>) -> Result<bool> {
    let unmade = |e| Fault::unwritable(folder.display().to_string(), e, "free space there, or go to another folder");
    match fs::remove_dir_all(folder) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(unmade(e)),
        _ => {}
    }
    fs::create_dir_all(folder.parent().unwrap_or(Path::new("."))).map_err(unmade)?;
    // Output of the program and its profiler.
    let said = folder.with_extension("txt");
    let file = File::create(&said).map_err(unmade)?;
    let stdin = match input {
        Some(input) => Stdio::from(File::open(input).map_err(|e| Fault::because("standard input", e, "name a file"))?),
        None => Stdio::null(),
    };
    let mut command = Command::new(machine::here::program()?);
    command.args(["profile", "--trace", "-o"]).arg(folder).arg("--").args(words).stdin(stdin);
    command.stdout(file.try_clone().map_err(unmade)?).stderr(file);
    let Some(status) = run(&mut command, None)? else { return Ok(false) };
    if linux::signal::interrupted() {
        return Ok(false);
    }
    let text = fs::read(&said).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    if !status.success() {
        let how = match (status.code(), status.signal()) {
            (Some(code), _) => format!("exit code {code}"),
            (None, signal) => format!("signal {}", signal.unwrap_or_default()),
        };
        let next = format!("see {}; give it its arguments and its input (--input FILE)", said.display());
        return Err(Fault::new(shell::words(words), format!("{how} in the recorded run: {}", why(&text)), next));
    }
    Ok(true)
}

/// The line with the reason: the last one before a launcher's frame, else the first in that.
fn why(text: &str) -> &str {
    let is_words = |line: &&str| line.chars().any(char::is_alphanumeric) && !line.starts_with("plimsoll: ");
    let framed = text.lines().position(|line| line.starts_with("-----")).unwrap_or(usize::MAX);
    let own = text.lines().take(framed).filter(is_words).last();
    own.or_else(|| text.lines().find(is_words)).map_or("it said nothing", str::trim)
}

/// Runs a command of plimsoll to its end; a signal to this process goes on to it. `None`: it was ended after `limit`.
fn run(command: &mut Command, limit: Option<Duration>) -> Result<Option<ExitStatus>> {
    let failed = |e| Fault::because("plimsoll", e, "run it again");
    let mut child = command.spawn().map_err(failed)?;
    let (begun, mut told, mut is_late) = (Instant::now(), false, false);
    loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            return Ok((!is_late || status.success()).then_some(status));
        }
        is_late = limit.is_some_and(|limit| begun.elapsed() > limit);
        if (linux::signal::interrupted() || is_late) && !told {
            told = true;
            let _ = kill_process(Pid::from_child(&child), Signal::TERM);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_ended_at_its_limit() {
        let limited = |words: [&str; 2], limit| run(Command::new(words[0]).arg(words[1]), Some(limit)).unwrap();
        assert!(limited(["sleep", "600"], Duration::from_millis(10)).is_none());
        assert!(limited(["true", ""], Duration::from_secs(600)).unwrap().success());
    }

    #[test]
    fn why_a_run_failed_is_in_the_words_of_the_launcher_or_the_program() {
        let launcher = "------\nmpirun has found no slots\nmore\n------\nplimsoll: no rank recorded anything\n";
        assert_eq!(why(launcher), "mpirun has found no slots");
        assert_eq!(why(&format!("say what to do\n{launcher}")), "say what to do");
        assert_eq!(why("reading in.dat\n  no such input\n\nplimsoll: the command ended with 1\n"), "no such input");
        assert_eq!(why("\n"), "it said nothing");
    }
}
