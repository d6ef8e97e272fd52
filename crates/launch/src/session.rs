//! One `plimsoll mpirun`: from the program's name to the summary.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use linux::lab::{Lab, Options};
use linux::relay::Relay;
use machine::{Fault, Result, Site};

use crate::carrier::{Engine, Network};
use crate::diagnosis::{self, Silence};
use crate::engine;
use crate::installation::{Choice, Family, Installation};
use crate::job::{self, Job, Place};
use crate::program::{self, Linkage};
use crate::provider;
use crate::running::{Running, Scratch, Streams, exit_code};
use crate::summary::{self, Subject};

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Request {
    pub ranks: u32,
    pub placement: Site,
    pub network: Option<Network>,
    pub mpi: Choice,
    /// Two hosts made for this run, with half of the ranks on each.
    pub lab: bool,
    /// Ranks and the engine's core may share cores.
    pub oversubscribe: bool,
    /// No summary, unless the engine did not carry the messages.
    pub quiet: bool,
    /// Where to write what the ranks reported, as JSON.
    pub report: Option<PathBuf>,
    /// The launcher's own options.
    pub options: Vec<String>,
    pub program: OsString,
    pub arguments: Vec<OsString>,
    /// The program that this code runs in: the provider lies beside it, and it has the hidden command `lab-agent`.
    pub command: PathBuf,
}

/// Runs it; what it has to say goes to standard error. Returns the exit code of the launcher.
pub fn run(request: &Request) -> Result<u8> {
    if request.ranks == 0 {
        return Err(Fault::new("0 ranks", "there would be nothing to run", "choose -n 1 or more"));
    }
    let name = request.program.display().to_string();
    let path = program::find(&request.program)?;
    let mut linkage = program::linkage(&path, None)?;
    if let (Choice::Prefix(prefix), Linkage::Mpi { .. } | Linkage::Missing { .. }) = (&request.mpi, &linkage) {
        linkage = of_prefix(&path, prefix)?;
    }
    let installation = Installation::choose(&request.mpi, &name, &linkage)?;
    let cores = job::cores(request.ranks, &request.placement, &linux::affinity::allowed()?, request.oversubscribe)?;
    let scratch = Scratch::new()?;
    let provider = provider::find(&request.command, scratch.path())?;
    let mut notes = cores.notes;
    if installation.family == Family::Mpich {
        notes
            .extend(installation.without_libfabric().map(|why| format!("{why}: plimsoll will not carry its messages")));
    }
    // Signals are kept from here on, before any thread or child is there.
    let relay = Relay::open()?;
    let lab = if request.lab { Some(Lab::owned(&Options::default())?) } else { None };
    let place = match &lab {
        Some(lab) => Place::Lab { lab, agent: &request.command },
        None => Place::Here,
    };
    let carrier = Engine { placement: request.placement.clone(), network: request.network.clone(), account: false };
    let variables = carrier.variables(&installation, &provider, &request.command);
    for (name, value) in &variables {
        if let Some(theirs) = std::env::var_os(name).filter(|theirs| theirs != value) {
            notes.push(format!("{name}={} of the environment gives way to {}", theirs.display(), value.display()));
        }
    }
    for note in &notes {
        eprintln!("plimsoll: {note}");
    }
    if let Site::Core(core) = request.placement {
        engine::start(&request.command, core, lab.as_ref())?;
    }
    let job = Job {
        installation: &installation,
        ranks: request.ranks,
        program: path,
        arguments: request.arguments.clone(),
        options: request.options.clone(),
        variables,
        place,
        cores: cores.of_ranks,
        contained: request.lab,
    };
    let mut running = Running::start(&job, scratch, Streams::Shared, Some(&relay))?;
    let status = running.attend(&relay)?;
    let reports = running.finish();
    let code = exit_code(status);
    let subject =
        Subject { mpi: installation.to_string(), ranks: request.ranks, placement: request.placement.to_string() };
    if let Some(file) = &request.report {
        let text = serde_json::to_string_pretty(&reports).map_err(|e| Fault::because("reports", e, "report it"))?;
        let written = fs::write(file, text + "\n");
        written.map_err(|e| Fault::because(format!("file {}", file.display()), e, "choose another --report"))?;
    }
    if reports.endpoints.is_empty() {
        let silence =
            Silence { installation: &installation, options: &request.options, code, damaged: reports.damaged };
        eprint!("{}", summary::nothing(&subject, &diagnosis::of(&silence)));
    } else if !request.quiet {
        eprint!("{}", summary::page(&subject, &reports));
    }
    Ok(code)
}

/// What a program loads once the libraries of `prefix` come first.
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
