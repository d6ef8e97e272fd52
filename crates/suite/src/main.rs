//! Runs parts of `make test` and `make check` and says what came of them.
//!
//! - `suite parts MAKE PART...`: each part is a target of that make; all run, also after one that failed; one account for all.
//! - `suite programs [--ignored] [--under COMMAND] CARGO TEST ...`: what that `cargo test` would run, side by side.
//! - `suite command COMMAND...`: a command whose output holds libtest's results.
//!
//! The last line is 'N passed, N failed, N skipped'. A test that was left out (`crates/skip`) counts as skipped, not as passed; a
//! part that fails without a failed test, by a mistake of the compiler or a signal, as one failed. With `PLIMSOLL_STRICT=1` a skip
//! that `scripts/skips-allowed` does not list fails the run. No test is repeated.
#![forbid(unsafe_code)]

mod account;
mod collected;
mod programs;
mod record;

use std::env;
use std::ffi::OsString;
use std::fs;
use std::process::{Command, ExitCode};

use programs::Results;
use record::Record;

const USAGE: &str =
    "usage: suite parts MAKE PART... | programs [--ignored] [--under COMMAND] CARGO TEST ... | command COMMAND...";

fn main() -> ExitCode {
    let mut words: Vec<OsString> = env::args_os().skip(1).collect();
    let mode = if words.is_empty() { String::new() } else { words.remove(0).to_string_lossy().into_owned() };
    let outcome = match mode.as_str() {
        // What cargo calls in place of each program; see `programs`.
        collected::MODE => return collected::note(&words),
        "parts" if words.len() > 1 => with_account("parts", |record| parts(record, &words[0], &words[1..])),
        "programs" if !words.is_empty() => with_account("tests", |record| programs::run(record, &words)),
        "command" if !words.is_empty() => with_account("command", |record| command(record, &words)),
        _ => Err(USAGE.to_owned()),
    };
    outcome.unwrap_or_else(|why| {
        eprintln!("suite: {why}");
        ExitCode::from(2)
    })
}

/// Runs a part and prints the account; a part of another run leaves that to the other.
fn with_account(part: &str, run: impl FnOnce(&Record) -> Result<bool, String>) -> Result<ExitCode, String> {
    let record = Record::open()?;
    let well = if record.is_of_another() {
        run(&record)?
    } else {
        record.run(part, || run(&record))?;
        account::print(&record)?
    };
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn parts(record: &Record, make: &OsString, parts: &[OsString]) -> Result<bool, String> {
    for part in parts {
        let name = part.to_string_lossy();
        let mut command = Command::new(make);
        command.arg("--no-print-directory").arg(part).envs(record.environment(&name));
        record.run(&name, || well(&mut command))?;
    }
    Ok(record.parts().iter().all(|part| part.failed == 0))
}

fn command(record: &Record, words: &[OsString]) -> Result<bool, String> {
    let output = record.scratch("output");
    let mut command = Command::new("sh");
    // The status of a pipeline is that of its last command, `tee`; so it is written to a file.
    command.args(["-c", r#"o=$1; shift; { "$@"; echo $? >"$o.status"; } | tee "$o"; exit "$(cat "$o.status")""#, "sh"]);
    let well = well(command.arg(&output).args(words).envs(record.environment("command")))?;
    let said = fs::read(&output).map_err(|e| e.to_string())?;
    let said = String::from_utf8_lossy(&said);
    let results = Results::of(&said);
    record.results("command", results.passed, results.failed);
    if !well {
        programs::failures(&said, &[])
            .iter()
            .for_each(|(test, line)| record.note("failures", &format!("{test}\t{line}")));
    }
    Ok(well)
}

fn well(command: &mut Command) -> Result<bool, String> {
    let status = command.status().map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    Ok(status.success())
}
