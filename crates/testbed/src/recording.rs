//! MPI programs as `plimsoll profile` starts them.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use launch::Variables;
use launch::preload;
use launch::profiled::{Recorded, Request, Sampling};
use linux::power::Source;
use record::blocks::Schedule;
use record::folder;
use record::rank::Rank;

use crate::mpi::Mpi;
use crate::place::{Outcome, Place, Running};

/// The library that records, as `launch` finds it.
pub fn library() -> PathBuf {
    preload::library(&crate::command()).unwrap_or_else(|fault| panic!("{fault}"))
}

/// A command to profile, run in the test's folder.
#[derive(Debug, Clone)]
pub struct Recording {
    words: Vec<OsString>,
    environment: Variables,
    trace: u64,
    memory: Option<u64>,
    cores: bool,
    power: Vec<Source>,
    perturbation: Option<Schedule>,
    hosts_of: Option<PathBuf>,
}

/// How the command ended, and the profile that it left.
#[derive(Debug)]
pub struct Recordings {
    pub outcome: Outcome,
    pub folder: PathBuf,
    /// The account that `plimsoll profile` prints at the end; empty where the command ran past its limit.
    pub account: String,
}

impl Recording {
    pub fn new(words: Vec<OsString>) -> Recording {
        Recording {
            words,
            environment: Vec::new(),
            trace: 0,
            memory: None,
            cores: false,
            power: Vec::new(),
            perturbation: None,
            hosts_of: None,
        }
    }

    /// A recording of `ranks` of a program under `mpi`.
    pub fn under(mpi: &Mpi, ranks: usize, program: impl AsRef<OsStr>) -> Recording {
        Recording { environment: mpi.environment(), ..Recording::new(mpi.words(ranks, program)) }
    }

    pub fn arguments<S: AsRef<OsStr>>(mut self, arguments: &[S]) -> Recording {
        self.words.extend(arguments.iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    /// Records also timelines of at most `bytes` a thread.
    pub fn trace(self, bytes: u64) -> Recording {
        Recording { trace: bytes, ..self }
    }

    /// Samples the cores of this host.
    pub fn cores(self) -> Recording {
        Recording { cores: true, ..self }
    }

    /// Samples the cores of this host and a source of power.
    pub fn power(self, source: &str) -> Recording {
        let source = source.parse().unwrap_or_else(|fault| panic!("{fault}"));
        Recording { cores: true, power: vec![source], ..self }
    }

    /// Delays the program on purpose; an earlier profile tells the hosts of the ranks, where that matters.
    pub fn perturb(self, what: &str, hosts_of: Option<&Path>) -> Recording {
        let perturbation = what.parse().unwrap_or_else(|fault| panic!("{fault}"));
        Recording { perturbation: Some(perturbation), hosts_of: hosts_of.map(Path::to_owned), ..self }
    }

    /// Limits a rank's tables to `bytes`.
    pub fn memory(self, bytes: u64) -> Recording {
        Recording { memory: Some(bytes), ..self }
    }

    /// Prefixes the command with another one, which runs it.
    pub fn within<S: AsRef<OsStr>>(mut self, words: &[S]) -> Recording {
        self.words.splice(0..0, words.iter().map(|word| word.as_ref().to_owned()));
        self
    }

    pub fn env(mut self, name: impl Into<String>, value: impl AsRef<OsStr>) -> Recording {
        self.environment.push((name.into(), value.as_ref().to_owned()));
        self
    }

    /// Runs the command with its profile in the folder `name` of the place.
    pub fn run(&self, place: &Place, name: &str, limit: Duration) -> Recordings {
        let request = Request {
            folder: Some(place.path().join(name)),
            trace: self.trace,
            memory: self.memory,
            interval: None,
            power: self.power.clone(),
            cores: self.cores,
            perturbation: self.perturbation.clone(),
            hosts_of: self.hosts_of.clone(),
            words: self.words.clone(),
            command: crate::command(),
        };
        let mut recorded = Recorded::prepare(&request).unwrap_or_else(|fault| panic!("{fault}"));
        recorded.command.current_dir(place.path()).env("TMPDIR", place.path());
        recorded.command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        let files = place.redirect(&mut recorded.command);
        let sampling = self.cores.then(|| Sampling::begin(recorded.folder(), None, &self.power));
        let child = recorded.spawn().unwrap_or_else(|fault| panic!("{fault}"));
        let outcome = Running::of(child, files).finish(limit);
        let folder = recorded.folder().to_owned();
        let ended = outcome.status.map(|status| recorded.end(status, sampling.map(Sampling::end)));
        Recordings { outcome, folder, account: ended.unwrap_or_default() }
    }

    /// Runs the command without a profile, as a user would.
    pub fn run_plainly(&self, place: &Place, limit: Duration) -> Outcome {
        let mut command = place.command(&self.words[0]);
        command.args(&self.words[1..]).envs(self.environment.iter().map(|(name, value)| (name, value)));
        place.run(&mut command, limit)
    }
}

impl Recordings {
    /// Panics with the output unless the command succeeded and the library printed nothing.
    pub fn well(self, of: impl std::fmt::Display) -> Recordings {
        let outcome = self.outcome.well(&of);
        assert!(!outcome.errors.contains("plimsoll"), "{of}: {}", outcome.errors);
        Recordings { outcome, ..self }
    }

    /// The tables of all ranks in rank order, all of which must be readable.
    pub fn ranks(&self) -> Vec<Rank> {
        ranks(&self.folder.join(folder::RANKS))
    }
}

/// The tables in a folder.
pub fn ranks(folder: &Path) -> Vec<Rank> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut ranks: Vec<Rank> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension() == Some(OsStr::new(folder::RANK_SUFFIX)))
        .map(|path| Rank::open(&path).unwrap_or_else(|fault| panic!("{fault}")))
        .collect();
    ranks.sort_by_key(|rank| (rank.header.rank, rank.header.pid));
    // However a rank ended, its tables must be consistent.
    let doubted: Vec<_> = ranks.iter().filter_map(|rank| Some((rank.header.pid, rank.doubt.as_ref()?))).collect();
    assert!(doubted.is_empty(), "{doubted:?}");
    ranks
}
