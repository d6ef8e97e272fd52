//! One `plimsoll mpirun`: from the program's name to the summary.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use linux::lab::{Lab, Options};
use linux::output::{self, Destination, tell};
use linux::relay::Relay;
use machine::quota::Quota;
use machine::seat::Seats;
use machine::{CoreId, Dilation, Fault, Result, Site, Source, count};

use crate::Variables;
use crate::carriers::{Carrier, Reach};
use crate::diagnosis::{self, Silence};
use crate::engine::{self, Engine, Network, Semantics};
use crate::family::Family;
use crate::installation::{Choice, Installation};
use crate::job::{self, Cores, Job, Place};
use crate::one_sided::OneSided;
use crate::program::{self, Linkage};
use crate::provider;
use crate::report::Reports;
use crate::running::{Kept, Running, Scratch, Streams};
use crate::summary::{self, Subject};
use crate::transports;

/// Settings of one `plimsoll mpirun`.
#[derive(Debug, Clone)]
pub struct Request {
    pub ranks: u32,
    pub placement: Site,
    /// A transport of the MPI that carries the messages instead of the engine.
    pub carrier: Option<Carrier>,
    /// Whether the MPI prints the carrier that it used; the program's output is then not shown.
    pub prove: bool,
    pub network: Option<Network>,
    /// Layer between messages and packets.
    pub semantics: Semantics,
    /// Factor by which the engine's work is stretched.
    pub dilation: Dilation,
    /// Whether to measure the CPU time in the provider's calls.
    pub account: bool,
    pub mpi: Choice,
    /// Two hosts made for this run, with half of the ranks on each.
    pub lab: bool,
    /// The seat of each rank.
    pub seats: Option<Seats>,
    /// Whether ranks and the engine may share cores.
    pub oversubscribe: bool,
    /// No summary, unless the engine did not carry the messages.
    pub quiet: bool,
    /// Destination of the ranks' reports, as JSON.
    pub report: Option<Destination>,
    /// The launcher's own options.
    pub options: Vec<String>,
    /// Variables of the ranks' environment besides those of this process.
    pub variables: Variables,
    pub program: OsString,
    pub arguments: Vec<OsString>,
    /// This program, with the hidden command `host-agent`; the provider lies beside it.
    pub command: PathBuf,
}

impl Request {
    /// Whether the engine carries the messages at its own speed, so that run times are the machine's.
    pub fn is_plain(&self) -> bool {
        self.carrier.is_none() && self.semantics == Semantics::Matched && self.dilation.is_none() && !self.account
    }
}

/// A request whose MPI, cores and provider are found; nothing is started yet.
#[derive(Debug)]
pub struct Session<'a> {
    request: &'a Request,
    pub installation: Installation,
    /// Notes for the reader before the ranks start, a sentence each.
    pub notes: Vec<String>,
    program: PathBuf,
    variables: Variables,
    cores: Option<Vec<CoreId>>,
    scratch: Scratch,
}

/// A job of a session, and the hosts that were made for it.
#[derive(Debug)]
pub struct Started {
    pub running: Running,
    // Dropped after `running`, whose ranks are in the lab.
    _lab: Option<Lab>,
}

/// The program of a request, and its MPI.
#[derive(Debug)]
pub struct Target {
    pub program: PathBuf,
    pub installation: Installation,
}

impl Target {
    /// # Errors
    /// There is no such program, or no MPI for it.
    pub fn of(request: &Request) -> Result<Target> {
        let name = request.program.display().to_string();
        if name.starts_with('-') {
            let next = "see --help; options of mpirun itself go into --mpirun-args '...'";
            return Err(Fault::new(format!("option {name}"), "plimsoll does not know it", next));
        }
        let program = program::find(&request.program)?;
        let mut linkage = program::linkage(&program, None)?;
        if let (Choice::Prefix(prefix), Linkage::Mpi { .. } | Linkage::Missing { .. }) = (&request.mpi, &linkage) {
            linkage = of_prefix(&program, prefix)?;
        }
        let installation = Installation::choose(&request.mpi, &name, &linkage)?;
        Ok(Target { program, installation })
    }
}

/// A job that has ended.
#[derive(Debug)]
pub struct Ended {
    /// The exit code: see [`Running::attend`].
    pub code: u8,
    /// Time from start to end.
    pub elapsed: Duration,
    pub reports: Reports,
}

impl<'a> Session<'a> {
    /// # Errors
    /// A part of the request is missing or impossible; the fault has the next step.
    pub fn prepare(request: &'a Request, target: Target) -> Result<Session<'a>> {
        if request.ranks == 0 {
            return Err(Fault::new("0 ranks", "there would be nothing to run", "choose -n 1 or more"));
        }
        let Target { program, installation } = target;
        let cores = match &request.seats {
            Some(seats) => {
                let notes = job::beside_seats(seats, request.ranks, &request.placement, request.oversubscribe)?;
                Cores { of_ranks: None, notes }
            }
            None => {
                let allowed = linux::affinity::allowed()?;
                job::cores(request.ranks, &request.placement, &allowed, request.oversubscribe)?
            }
        };
        let scratch = Scratch::new()?;
        let mut notes = cores.notes;
        if let Some(carrier) = &request.carrier
            && let Some(why) = carrier.missing(&installation)
        {
            return Err(Fault::new(format!("carrier {carrier}"), why, "choose another, or run it where it is there"));
        }
        notes.extend(request.carrier.as_ref().and_then(Carrier::note));
        if let Site::Core(_) = request.placement {
            notes.extend(short_of_time(request.ranks, linux::affinity::allowed()?.len()));
        }
        let mut variables = match &request.carrier {
            // Between hosts, the MPI itself chooses the interface.
            Some(carrier) => carrier.variables(&installation, Reach::Anywhere).ok_or_else(|| {
                let next = "leave --carrier out, or run it under another MPI (--mpi)";
                Fault::new(format!("carrier {carrier}"), format!("{installation} has no such transport"), next)
            })?,
            None => {
                let provider = provider::find(&request.command, scratch.path())?;
                if installation.family == Family::Mpich {
                    let why = transports::without_libfabric(&installation);
                    notes.extend(why.map(|why| format!("{why}: plimsoll will not carry its messages")));
                }
                let (placement, network) = (request.placement.clone(), request.network.clone());
                let (semantics, dilation, account) = (request.semantics, request.dilation, request.account);
                engine::check_semantics(semantics, &placement, dilation)?;
                let engine = Engine { placement, network, semantics, dilation, account };
                let mut variables = engine.variables(&installation, &provider, &request.command);
                variables.extend(OneSided::of(&installation, &program, &request.options).variables());
                variables
            }
        };
        if let Some(carrier) = request.carrier.as_ref().filter(|_| request.prove) {
            let proof = carrier.proof(&installation).ok_or_else(|| {
                let cause = format!("its file does not tell how {installation} can be had to say what it uses");
                Fault::new(format!("carrier {carrier}"), cause, "add `proof` there, or leave --prove out")
            })?;
            variables.extend(proof.variables());
        }
        variables.extend(request.variables.iter().cloned());
        for (name, value) in &variables {
            if let Some(theirs) = std::env::var_os(name).filter(|theirs| theirs != value) {
                notes.push(format!("{name}={} of the environment gives way to {}", theirs.display(), value.display()));
            }
        }
        Ok(Session { request, installation, notes, program, variables, cores: cores.of_ranks, scratch })
    }

    /// Starts the engine's process, where the placement has one, and the ranks. A `relay` for the ranks' signals must exist
    /// before.
    pub fn start(self, streams: Streams, relay: Option<&Relay>) -> Result<Started> {
        let request = self.request;
        let lab = if request.lab { Some(Lab::owned(&Options::default())?) } else { None };
        if let Site::Core(core) = request.placement {
            engine::start(&request.command, core, lab.as_ref())?;
        }
        let job = Job {
            installation: &self.installation,
            ranks: request.ranks,
            program: self.program,
            arguments: request.arguments.clone(),
            options: request.options.clone(),
            variables: self.variables,
            place: match &lab {
                Some(lab) => Place::Lab { lab, agent: &request.command },
                None => Place::Here,
            },
            cores: self.cores,
            seats: request.seats.as_ref(),
            contained: request.lab,
        };
        let running = Running::start(&job, self.scratch, streams, relay)?;
        Ok(Started { running, _lab: lab })
    }
}

/// Runs the request, with plimsoll's own lines on standard error.
///
/// # Errors
/// A part of the request is missing or impossible; the fault has the next step.
pub fn run(request: &Request, target: Target) -> Result<Ended> {
    let session = Session::prepare(request, target)?;
    for note in &session.notes {
        tell(&format!("plimsoll: {note}\n"));
    }
    let installation = session.installation.clone();
    let one_sided = OneSided::of(&installation, &session.program, &request.options);
    let proof = request.carrier.as_ref().filter(|_| request.prove).and_then(|carrier| carrier.proof(&installation));
    // Signals are held from here on, before any thread or child exists.
    let relay = Relay::open()?;
    let streams = if request.prove { Streams::KeptHere } else { Streams::Shared };
    let Started { mut running, _lab } = session.start(streams, Some(&relay))?;
    let begun = Instant::now();
    let code = running.attend(&relay)?;
    let elapsed = begun.elapsed();
    let (said, reports) = if request.prove {
        let Kept { said, complained, reports } = running.finish_kept();
        (said + &complained, reports)
    } else {
        (String::new(), running.finish())
    };
    let subject = Subject {
        mpi: installation.to_string(),
        ranks: request.ranks,
        placement: request.placement.to_string(),
        semantics: request.semantics,
        dilation: request.dilation,
        one_sided,
        code,
    };
    if let Some(to) = &request.report {
        let text = serde_json::to_string_pretty(&reports).map_err(|e| Fault::because("reports", e, "report it"))?;
        to.write(&(text + "\n"))?;
    }
    if let Some(carrier) = &request.carrier {
        if let Some(proof) = proof {
            if code != 0 {
                tell(&said);
            }
            tell(&match proof.among(carrier, &said) {
                Ok(words) => format!("plimsoll: {carrier} carried the messages: '{words}'\n"),
                // The job may have ended before the MPI's proof.
                Err(_) if code != 0 => format!(
                    "plimsoll: whether {carrier} carried the messages is NOT known: the job ended with exit code {code}, and the \
                     MPI did not say what it used. Next: see what it said above\n"
                ),
                Err(fault) => return Err(fault),
            });
        } else if !request.quiet {
            let words = &carrier.words;
            tell(&format!("plimsoll left the messages to {carrier} ({words}), as asked; to prove it: --prove\n"));
        }
        return Ok(Ended { code, elapsed, reports });
    }
    if reports.endpoints.is_empty() {
        let silence =
            Silence { installation: &installation, options: &request.options, code, damaged: reports.damaged };
        tell(&summary::nothing(&subject, silence.is_telling(), &diagnosis::of(&silence)));
    } else if !request.quiet {
        tell(&summary::page(&subject, &reports, output::width()));
    }
    Ok(Ended { code, elapsed, reports })
}

/// Note for ranks and an engine, all of which spin, under a CPU quota that is too small for them.
fn short_of_time(ranks: u32, cores: usize) -> Option<String> {
    let spinning = ranks as usize + 1;
    let quota = Quota::tightest(&Source::live()).filter(|quota| quota.is_short_of(spinning, cores))?;
    Some(format!(
        "{quota}: {} and the engine spin, and are stopped for a part of each period. Next: --placement app, fewer ranks, or no quota",
        count::of(ranks.into(), "rank")
    ))
}

/// MPI of a program with the libraries of `prefix` first.
fn of_prefix(path: &std::path::Path, prefix: &std::path::Path) -> Result<Linkage> {
    let installation = Installation::at(prefix)?;
    let linkage = program::linkage(path, installation.libraries.as_deref())?;
    let Linkage::Mpi { library, .. } = &linkage else { return Ok(linkage) };
    let home = |path: &std::path::Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if home(library).starts_with(home(prefix)) {
        return Ok(linkage);
    }
    Err(Fault::new(
        format!("program {}", path.display()),
        format!(
            "it loads {} whatever --mpi {} says: another name, or a path of its own",
            library.display(),
            prefix.display()
        ),
        "leave --mpi out, or build the program with the mpicc of that MPI",
    ))
}
