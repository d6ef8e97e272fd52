//! A recorded command, changed so that each rank is in its seat.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use machine::seat::Seats;
use machine::{Fault, Result, count};

use super::dialect::Dialect;
use super::form::{self, LauncherInput};
use super::hosts::{check, is_here_alone};
use super::settings;
use crate::allocation;
use crate::command_line::{CommandLine, LauncherOption, Program};
use crate::installation::Installation;

/// A command with each rank in its seat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeatedCommand {
    pub dialect: Dialect,
    pub words: Vec<String>,
    /// Variables besides those of the caller's environment.
    pub variables: Vec<(String, String)>,
    /// Files that the words name: [`SeatedCommand::write`] writes them.
    pub files: Vec<(PathBuf, String)>,
    /// The user's options that contradict the seats and were left out.
    pub replaced: Vec<String>,
    /// Words of a trial: without programs and without options unfit for a trial; and the places of programs among the words.
    trial: (Vec<String>, Vec<usize>),
}

/// One of the parts of a command that are separated by `:`, as places among its words.
struct Part<'a> {
    program: &'a Program,
    start: usize,
    end: usize,
    ranks: Option<usize>,
}

impl SeatedCommand {
    /// `recorded` with each rank in its seat of `seats`. The command's files will lie in `folder`, an absolute path.
    ///
    /// # Errors
    /// The command starts another number of ranks, its launcher cannot place them so, or a seat does not exist.
    pub fn new(recorded: &[String], seats: &Seats, folder: &Path) -> Result<SeatedCommand> {
        let words: Vec<OsString> = recorded.iter().map(OsString::from).collect();
        let read = CommandLine::read(&words).answered()?;
        let subject = || format!("command {}", recorded.join(" "));
        let (at, launcher) = read.launcher.as_ref().ok_or_else(|| {
            let cause = "it begins with no launcher that is known here";
            Fault::new(subject(), cause, "start it by mpirun, mpiexec, srun or plimsoll mpirun")
        })?;
        check(seats)?;
        let by = Dialect::of(launcher)?;
        let first = at + if by == Dialect::Plimsoll { 2 } else { 1 };
        let parts = parts(&read, by, recorded, first);
        if parts.is_empty() || parts.iter().any(Option::is_none) {
            let next = "name a program that is there and may be executed";
            return Err(Fault::new(subject(), "no program was found behind its launcher's options", next));
        }
        let parts: Vec<Part> = parts.into_iter().flatten().collect();
        check_number(&parts, seats)?;

        let lists_hosts = read.settings.iter().any(|setting| settings::names_hosts(by, setting));
        let with_hosts =
            lists_hosts || !is_here_alone(seats) || allocation::around().is_some_and(|job| job.hosts().len() > 1);
        let told = LauncherInput::new(by, seats, with_hosts, folder)?;
        let gives_way = |setting: &&LauncherOption| {
            settings::contradicts(by, setting) || with_hosts && settings::names_hosts(by, setting)
        };
        let given_way: Vec<&LauncherOption> = read.settings.iter().filter(gives_way).collect();
        let untried: Vec<&LauncherOption> =
            read.settings.iter().filter(|setting| settings::is_not_for_trials(by, setting)).collect();

        let assembled = |dropped: &[&LauncherOption], programs: bool| {
            let mut all = recorded[..first].to_vec();
            let mut slots = Vec::new();
            for (nth, part) in parts.iter().enumerate() {
                if nth == 0 {
                    all.extend(told.options.iter().cloned());
                } else {
                    all.push(":".to_owned());
                }
                all.extend(told.of_each.iter().cloned());
                if part.ranks.is_none() {
                    all.extend(["-n".to_owned(), seats.0.len().to_string()]);
                }
                let kept = (part.start..part.program.at).filter(|at| !dropped.iter().any(|one| one.at.contains(at)));
                all.extend(kept.map(|at| recorded[at].clone()));
                all.extend(told.of_program.iter().cloned());
                slots.push(all.len());
                if programs {
                    all.extend_from_slice(&recorded[part.program.at..part.end]);
                }
            }
            (all, slots)
        };
        let mut trial = assembled(&[&given_way[..], &untried[..]].concat(), false);
        if by == Dialect::Plimsoll && !read.settings.iter().any(|setting| setting.name == "mpi") {
            let mpi = mpi_of(&parts[0].program.path)?;
            trial.0.splice(first..first, ["--mpi".to_owned(), mpi]);
            trial.1.iter_mut().for_each(|slot| *slot += 2);
        }
        Ok(SeatedCommand {
            dialect: by,
            words: assembled(&given_way, true).0,
            variables: told.variables,
            files: told.files,
            replaced: given_way.iter().map(|setting| recorded[setting.at.clone()].join(" ")).collect(),
            trial,
        })
    }

    /// Writes the command's files, and the folder for them.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(&self) -> Result<()> {
        form::write(&self.files)
    }

    /// The command, ready to start once its files are written.
    pub fn command(&self) -> Command {
        command(&self.words, &self.variables)
    }

    /// The command with `program` in place of the user's.
    pub(super) fn with(&self, program: &[String]) -> Command {
        let (mut words, slots) = self.trial.clone();
        for slot in slots.into_iter().rev() {
            words.splice(slot..slot, program.iter().cloned());
        }
        command(&words, &self.variables)
    }
}

impl fmt::Display for SeatedCommand {
    /// Words quoted for a shell.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=/.,:+@%".contains(c);
        let quoted = |word: &str| match shlex::try_quote(word) {
            Ok(quoted) if word.is_empty() || !word.chars().all(is_plain) => quoted.into_owned(),
            _ => word.to_owned(),
        };
        let variables = self.variables.iter().map(|(name, value)| format!("{name}={}", quoted(value)));
        let all: Vec<String> = variables.chain(self.words.iter().map(|word| quoted(word))).collect();
        f.write_str(&all.join(" "))
    }
}

fn command(words: &[String], variables: &[(String, String)]) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).envs(variables.iter().map(|(name, value)| (name, value)));
    command
}

/// The parts of a command after its launcher; `None` for a part without a program.
fn parts<'a>(read: &'a CommandLine, by: Dialect, recorded: &[String], first: usize) -> Vec<Option<Part<'a>>> {
    let has_parts = !matches!(by, Dialect::Slurm | Dialect::Plimsoll);
    let mut start = first;
    let mut parts = Vec::new();
    for part in recorded[first..].split(|word| has_parts && word == ":") {
        let end = start + part.len();
        let program = read.programs.iter().find(|program| (start..end).contains(&program.at));
        parts.push(program.map(|program| {
            let mut options = read.settings.iter().filter(|setting| (start..program.at).contains(&setting.at.start));
            let number = options.find(|setting| settings::counts_ranks(by, setting));
            let ranks = number.and_then(|setting| setting.value.as_deref()?.parse().ok());
            Part { program, start, end, ranks }
        }));
        start = end + 1;
    }
    parts
}

fn check_number(parts: &[Part], seats: &Seats) -> Result<()> {
    let known: usize = parts.iter().filter_map(|part| part.ranks).sum();
    let unknown = parts.iter().any(|part| part.ranks.is_none());
    let cause = match (unknown, parts.len()) {
        (true, 1) => return Ok(()),
        (true, _) => "a part of the command does not say how many ranks it starts".to_owned(),
        (false, _) if known == seats.0.len() => return Ok(()),
        (false, _) => format!("the command starts {}", count::of(known as u64, "rank")),
    };
    Err(Fault::new(count::of(seats.0.len() as u64, "seat"), cause, "give each rank one seat, and each part its -n"))
}

/// The value of `plimsoll mpirun --mpi` for the MPI of `program`.
fn mpi_of(program: &Path) -> Result<String> {
    Ok(Installation::of_program(program)?.option())
}
