//! MPI jobs as `plimsoll mpirun` starts them, and the same over another carrier to compare with.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use launch::Variables;
use launch::carriers::{self, Reach};
use launch::engine::Semantics;
use launch::job::{self, Place as Spread};
use launch::report::{Port, Reports};
use launch::running::{Running, Scratch, Streams};
use launch::session::{Request, Session, Target};
use machine::{Dilation, Site};

use crate::mpi::Mpi;
use crate::place::Place;

/// What carries the messages.
#[derive(Debug, Clone, Copy)]
pub enum Carrier<'a> {
    /// The engine in the ranks, with settings of the provider (`FI_PLIMSOLL_` is put before each name).
    Engine(&'a [(&'a str, &'a str)]),
    /// Another transport of the MPI's own.
    Other(&'a str),
}

/// A job to run.
#[derive(Debug, Clone)]
pub struct Job<'a> {
    pub mpi: &'a Mpi,
    pub ranks: u32,
    pub carrier: Carrier<'a>,
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
}

/// How a job ended, what it wrote, and what its ranks reported.
#[derive(Debug)]
pub struct Ended {
    /// `None` when the job ran past its limit.
    pub status: Option<ExitStatus>,
    pub out: String,
    pub errors: String,
    pub reports: Reports,
}

/// A running job, in a folder of its own; it ends when this is dropped.
pub struct Started(Running);

impl<'a> Job<'a> {
    pub fn new(mpi: &'a Mpi, ranks: u32, carrier: Carrier<'a>, program: impl Into<PathBuf>) -> Job<'a> {
        Job { mpi, ranks, carrier, program: program.into(), arguments: Vec::new() }
    }

    pub fn arguments(mut self, arguments: &[&str]) -> Job<'a> {
        self.arguments.extend(arguments.iter().map(OsString::from));
        self
    }

    /// Starts the job. MPI's session files go into `place`.
    pub fn start(&self, place: &Place) -> Started {
        // One thread a rank: some libraries would otherwise start a thread for each core.
        let mut variables: Variables = vec![("OMP_NUM_THREADS".to_owned(), "1".into())];
        variables.push(("TMPDIR".to_owned(), place.path().into()));
        let started = match self.carrier {
            Carrier::Engine(settings) => {
                variables.extend(settings.iter().map(|(name, value)| (format!("FI_PLIMSOLL_{name}"), value.into())));
                let request = Request {
                    ranks: self.ranks,
                    placement: Site::App,
                    carrier: None,
                    prove: false,
                    seats: None,
                    network: None,
                    semantics: Semantics::Matched,
                    dilation: Dilation::NONE,
                    account: false,
                    mpi: self.mpi.choice(),
                    lab: false,
                    oversubscribe: false,
                    quiet: true,
                    report: None,
                    options: Vec::new(),
                    variables,
                    program: self.program.clone().into(),
                    arguments: self.arguments.clone(),
                    command: crate::command(),
                };
                let session = Target::of(&request).and_then(|target| Session::prepare(&request, target));
                session.and_then(|session| session.start(Streams::Kept, None)).map(|started| started.running)
            }
            Carrier::Other(name) => {
                let mpi = &self.mpi.installation;
                let carrier = carriers::named(name).unwrap();
                variables.extend(carrier.variables(mpi, Reach::Host).unwrap_or_else(|| panic!("{mpi} has no {name}")));
                let job = job::Job {
                    installation: mpi,
                    ranks: self.ranks,
                    program: self.program.clone(),
                    arguments: self.arguments.clone(),
                    options: Vec::new(),
                    variables,
                    place: Spread::Here,
                    cores: None,
                    seats: None,
                    contained: true,
                };
                Scratch::new().and_then(|scratch| Running::start(&job, scratch, Streams::Kept, None))
            }
        };
        Started(started.unwrap_or_else(|fault| panic!("{fault}")))
    }

    pub fn run(&self, place: &Place, limit: Duration) -> Ended {
        self.start(place).finish(limit)
    }
}

impl Started {
    /// The job's working folder.
    pub fn folder(&self) -> &Path {
        self.0.folder()
    }

    /// The output so far.
    pub fn said(&self) -> String {
        self.0.said()
    }

    /// Waits until the output satisfies `enough`; panics when the job ends first or takes longer than the limit.
    pub fn wait_for_output(&mut self, limit: Duration, enough: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + limit;
        loop {
            let out = self.said();
            if enough(&out) {
                return out;
            }
            let ended = self.wait(Duration::from_millis(10));
            assert!(ended.is_none(), "it ended ({ended:?}) with {out}{}", self.0.complained());
            assert!(Instant::now() < deadline, "nothing of what was awaited in {out}{}", self.0.complained());
        }
    }

    fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        self.0.wait(limit, None::<&OwnedFd>, |_| Ok(())).ok()
    }

    /// Waits for the job to end, and kills it after `limit`.
    pub fn finish(mut self, limit: Duration) -> Ended {
        let status = self.wait(limit);
        let kept = self.0.finish_kept();
        Ended { status, out: kept.said, errors: kept.complained, reports: kept.reports }
    }
}

impl Ended {
    pub fn succeeded(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// Panics with the output unless the job succeeded.
    pub fn well(self, of: impl std::fmt::Display) -> Ended {
        assert!(self.succeeded(), "{of}: {}", self.told());
        self
    }

    /// All that is known of the job, for a panic's message.
    pub fn told(&self) -> String {
        format!("{:?}\n{}{}\n{:?}", self.status, self.out, self.errors, self.reports.sums())
    }

    /// The counters of a port, over all ranks.
    pub fn port(&self, name: &str) -> Port {
        self.reports.sums().remove(name).unwrap_or_default()
    }
}
