//! Launch lines: the command that starts a program with each rank where it shall be, and the proof that it does.
//!
//! A command as it was recorded, with [`Seats`], becomes a [`Line`] of the same launcher. All options stay that do not
//! contradict the seats. [`verify`] starts the line with a small program in place of the user's, which reads back where the
//! launcher has put it.
//!
//! ```no_run
//! # fn main() -> machine::Result<()> {
//! use launch::seats::{self, Line};
//! use machine::seat::Seats;
//!
//! let recorded = ["mpirun", "-n", "2", "--bind-to", "core", "./a.out"].map(str::to_owned);
//! let seats: Seats = "0 node1 1\n1 node1 0".parse()?;
//! let line = Line::new(&recorded, &seats, std::path::Path::new("/home/me/seats"))?;
//! println!("{line}"); // mpirun --oversubscribe ... --rankfile /home/me/seats/rankfile -n 2 ./a.out
//! assert_eq!(line.replaced, ["--bind-to core"]);
//! let verified = seats::verify(&line, &seats, std::path::Path::new("/usr/bin/plimsoll"), seats::PATIENCE)?;
//! assert_eq!(verified, seats);
//! # Ok(())
//! # }
//! ```

mod form;
mod settings;
mod verified;

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use machine::seat::{Seats, is_host_name};
use machine::{Fault, Result, count};

use crate::allocation;
use crate::installation::{Family, Installation};
use crate::profiled::{self, Program};

pub(crate) use form::{Told, by_host, renamed, write};
pub use verified::{PATIENCE, of_this_process, threads_elsewhere, verify};

machine::named! {
    /// What starts ranks, by how it is told where.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Launcher {
        /// Up to version 4: a rankfile in the kernel's numbers.
        OpenMpi4 = "Open MPI 4",
        /// From version 5 on (PRRTE): a rankfile in hwloc's numbers.
        OpenMpi5 = "Open MPI 5",
        /// hydra: a list of cores for the ranks of every host; where hosts differ, each rank binds itself.
        Mpich = "MPICH",
        /// `srun`: the same, with a file of hosts.
        Slurm = "Slurm",
        /// `plimsoll mpirun`: a file of seats.
        Plimsoll = "plimsoll mpirun",
    }
}

impl Launcher {
    /// # Errors
    /// It cannot be told where ranks shall be.
    pub fn of(launcher: &profiled::Launcher) -> Result<Launcher> {
        match launcher {
            profiled::Launcher::Mpi(installation) => Launcher::of_installation(installation),
            profiled::Launcher::Slurm => Ok(Launcher::Slurm),
            profiled::Launcher::Plimsoll => Ok(Launcher::Plimsoll),
        }
    }

    /// # Errors
    /// As [`Launcher::of`].
    pub fn of_installation(installation: &Installation) -> Result<Launcher> {
        let cannot = |cause, next| Err(Fault::new(installation.to_string(), cause, next));
        match (installation.family, installation.major()) {
            (Family::OpenMpi, 5..) => Ok(Launcher::OpenMpi5),
            (Family::OpenMpi, 2..) => Ok(Launcher::OpenMpi4),
            (Family::OpenMpi, _) => {
                cannot("its rankfiles are not those of later versions", "start the program with Open MPI 4 or 5")
            }
            (Family::Mpich, _) => Ok(Launcher::Mpich),
            (Family::IntelMpi, _) => cannot(
                "its launcher takes no list of cores",
                "set I_MPI_PIN_DOMAIN=[MASK,MASK,..] by hand, a mask of cores for each rank of a host, or start it by srun",
            ),
        }
    }
}

/// A command with each rank in its seat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub launcher: Launcher,
    pub words: Vec<String>,
    /// Of the environment, beside those that the caller has.
    pub variables: Vec<(String, String)>,
    /// What the words name: [`Line::write`] writes them.
    pub files: Vec<(PathBuf, String)>,
    /// The user's options that gave way to the seats.
    pub replaced: Vec<String>,
    /// The words without programs, and without what a trial must not do, and where programs go among them.
    trial: (Vec<String>, Vec<usize>),
}

/// The words between two `:` of a command, without these.
struct Part<'a> {
    program: &'a Program,
    start: usize,
    end: usize,
    ranks: Option<usize>,
}

impl Line {
    /// `recorded` with each rank where `seats` say. Its files will lie in `folder`, an absolute path.
    ///
    /// # Errors
    /// The command starts another number of ranks, its launcher cannot place them so, or a seat is none that there is.
    pub fn new(recorded: &[String], seats: &Seats, folder: &Path) -> Result<Line> {
        let words: Vec<OsString> = recorded.iter().map(OsString::from).collect();
        let read = profiled::Line::read(&words).answered()?;
        let subject = || format!("command {}", recorded.join(" "));
        let (at, launcher) = read.launcher.as_ref().ok_or_else(|| {
            let cause = "it begins with no launcher that is known here";
            Fault::new(subject(), cause, "start it by mpirun, mpiexec, srun or plimsoll mpirun")
        })?;
        check(seats)?;
        let by = Launcher::of(launcher)?;
        let first = at + if by == Launcher::Plimsoll { 2 } else { 1 };
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
        let told = Told::new(by, seats, with_hosts, folder)?;
        let gives_way = |setting: &&profiled::Setting| {
            settings::contradicts(by, setting) || with_hosts && settings::names_hosts(by, setting)
        };
        let given_way: Vec<&profiled::Setting> = read.settings.iter().filter(gives_way).collect();
        let untried: Vec<&profiled::Setting> =
            read.settings.iter().filter(|setting| settings::is_not_for_trials(by, setting)).collect();

        let assembled = |dropped: &[&profiled::Setting], programs: bool| {
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
        if by == Launcher::Plimsoll && !read.settings.iter().any(|setting| setting.name == "mpi") {
            let mpi = mpi_of(&parts[0].program.path)?;
            trial.0.splice(first..first, ["--mpi".to_owned(), mpi]);
            trial.1.iter_mut().for_each(|slot| *slot += 2);
        }
        Ok(Line {
            launcher: by,
            words: assembled(&given_way, true).0,
            variables: told.variables,
            files: told.files,
            replaced: given_way.iter().map(|setting| recorded[setting.at.clone()].join(" ")).collect(),
            trial,
        })
    }

    /// Writes its files, and the folder for them.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn write(&self) -> Result<()> {
        write(&self.files)
    }

    /// The command, whose files must be there when it is started.
    pub fn command(&self) -> Command {
        command(&self.words, &self.variables)
    }

    /// The same with `program` in place of the user's.
    fn with(&self, program: &[String]) -> Command {
        let (mut words, slots) = self.trial.clone();
        for slot in slots.into_iter().rev() {
            words.splice(slot..slot, program.iter().cloned());
        }
        command(&words, &self.variables)
    }
}

impl fmt::Display for Line {
    /// As for a shell.
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

/// The parts of a command behind its launcher; `None` for one without a program.
fn parts<'a>(read: &'a profiled::Line, by: Launcher, recorded: &[String], first: usize) -> Vec<Option<Part<'a>>> {
    let has_parts = !matches!(by, Launcher::Slurm | Launcher::Plimsoll);
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

/// Every seat is one that there is, as far as can be seen from here.
pub(crate) fn check(seats: &Seats) -> Result<()> {
    if seats.0.is_empty() {
        return Err(Fault::new("seats", "there are none", "give one to each rank"));
    }
    let of_cpuset = linux::affinity::reachable()?;
    for (rank, seat) in seats.0.iter().enumerate() {
        // Hosts of a profile have whatever names they gave themselves.
        if !is_host_name(&seat.host) {
            let cause = format!("its seat is on '{}', which is no name of a host", seat.host);
            return Err(Fault::new(format!("rank {rank}"), cause, "name hosts as their launcher knows them"));
        }
        if seat.cores.is_empty() {
            return Err(Fault::new(
                format!("rank {rank}"),
                format!("its seat on {} has no core", seat.host),
                "name one",
            ));
        }
        let beyond = seat.cores.difference(&of_cpuset);
        if is_here(&seat.host) && !beyond.is_empty() {
            let cause = format!("core {beyond} is not among the cores {of_cpuset} that this job has on {}", seat.host);
            return Err(Fault::new(format!("rank {rank}"), cause, "choose among these, or ask for more cores"));
        }
    }
    Ok(())
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

/// Whether a launcher's name for a host is this one's.
pub(crate) fn is_here(host: &str) -> bool {
    host == "localhost" || allocation::is_host(host, &crate::this_host())
}

pub(crate) fn is_here_alone(seats: &Seats) -> bool {
    matches!(seats.hosts()[..], [host] if is_here(host))
}

/// What `plimsoll mpirun --mpi` calls the MPI of `program`.
fn mpi_of(program: &Path) -> Result<String> {
    Ok(Installation::of_program(program)?.option())
}

#[cfg(test)]
mod tests;
