//! One `plimsoll profile`: a command whose MPI ranks record themselves, and the folder of their records.

mod clocks;
mod new_folder;
mod outcome;
mod past;
mod perturbed;
mod refusal;
mod remote;
mod sampler;
mod watched;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};

use linux::output::tell;
use linux::power::Source;
use linux::relay::Relay;
use machine::here::{boot, now};
use machine::quota::Watch;
use machine::{Fault, Nanoseconds, Result};
use profile::injection::Injection;
use profile::job::Job;
use record::blocks::Schedule;
use record::folder::{self, variable};

pub use outcome::Outcome;
pub use remote::{leave, sample};
pub use sampler::{Account, Sampler, Settings};

use self::new_folder::NewFolder;
use crate::command_line::{self, CommandLine};
use crate::exit::exit_code;
use crate::preload;

/// Settings of a profile.
#[derive(Debug, Clone)]
pub struct Request {
    /// `None`: the first free `plimsoll-profile-N` in the working folder.
    pub folder: Option<PathBuf>,
    /// Bytes of a thread's timeline; 0: none.
    pub trace: u64,
    /// Bytes of a rank's tables; `None`: the library's default.
    pub memory: Option<u64>,
    /// Time between two samples of cores and ranks; `None`: as short as the cost allows.
    pub interval: Option<Nanoseconds>,
    /// Sources of power that the samplers of all hosts read.
    pub power: Vec<Source>,
    /// Whether to sample the cores.
    pub cores: bool,
    /// Injected delays.
    pub perturbation: Option<Schedule>,
    /// A profile of the same job without delays, which has the host of each rank.
    pub hosts_of: Option<PathBuf>,
    /// A launcher's command, or a program.
    pub words: Vec<OsString>,
    /// This program: the recording library lies beside it.
    pub command: PathBuf,
}

/// A command that records itself once it is started, and the folder of its records.
pub struct Recorded<'a> {
    request: &'a Request,
    pub command: Command,
    line: CommandLine,
    library: PathBuf,
    new_folder: NewFolder,
    job: Job,
    quota: Watch,
}

impl<'a> Recorded<'a> {
    /// Makes the folder, which is removed again unless the command is spawned.
    ///
    /// # Errors
    /// The command or the folder cannot be profiled; the fault has the next step.
    pub fn prepare(request: &'a Request) -> Result<Recorded<'a>> {
        let line = CommandLine::read(&request.words).answered()?;
        if let Some(fault) = line.programs.iter().filter(|p| p.certain).find_map(|p| refusal::of_program(&p.path)) {
            return Err(fault);
        }
        if let Some(fault) = refusal::of_place(&line, &request.words, |name| std::env::var(name).ok()) {
            return Err(fault);
        }
        let library = preload::library(&request.command)?;
        let new_folder = NewFolder::make(request.folder.as_deref())?;
        let mut variables = preload::variables(&library, new_folder.path(), request.trace, request.memory);
        if let Some(perturbation) = &request.perturbation {
            perturbed::place(perturbation, request.hosts_of.as_deref(), new_folder.path())?;
            variables.push((variable::PERTURB.to_owned(), perturbation.to_string().into()));
        }
        if request.cores {
            variables.push((variable::SAMPLER.to_owned(), request.command.clone().into()));
        }
        let names: Vec<&str> = variables.iter().map(|(name, _)| name.as_str()).collect();
        let words = line.exporting(&request.words, &names);
        let listed = command_line::listed(&names);
        variables.extend(listed);
        let (name, arguments) = words.split_first().ok_or_else(|| {
            Fault::new("no command", "there would be nothing to run", "name one: plimsoll profile -- mpirun -n 8 ./a")
        })?;
        let mut command = Command::new(name);
        command.args(arguments).envs(variables);
        let job = Job {
            command: request.words.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            host: crate::this_host(),
            boot: boot().unwrap_or_default(),
            pid: std::process::id(),
            pid_namespace: linux::accounting::pid_namespace(),
            started: now().0,
            trace_limit: request.trace,
            interval: request.interval.map(|interval| interval.0),
            power: request.power.iter().map(ToString::to_string).collect(),
            perturbation: request.perturbation.as_ref().map(Schedule::to_string),
            ..Job::default()
        };
        job.write(new_folder.path())?;
        let quota = Watch::begin(&machine::Source::live(), linux::affinity::allowed()?.len());
        Ok(Recorded { request, command, line, library, new_folder, job, quota })
    }

    /// Absolute path of the profile.
    pub fn folder(&self) -> &Path {
        self.new_folder.path()
    }

    /// Starts the command; its folder stays from this call on.
    pub fn spawn(&mut self) -> Result<Child> {
        let child = self.command.spawn().map_err(|e| {
            let name = self.command.get_program().display();
            Fault::because(format!("command {name}"), e, "check its name and that it may run")
        })?;
        self.new_folder.keep();
        Ok(child)
    }

    /// Records how the command ended, and the cost or the fault of sampling. Returns the page at the end of a run. What
    /// cannot be written becomes a note on the page, not a failure of the command.
    pub fn end(mut self, status: ExitStatus, sampling: Option<Result<Account>>) -> String {
        let job = &mut self.job;
        (job.ended, job.exit_code, job.signal) =
            (Some(now().0), status.code(), std::os::unix::process::ExitStatusExt::signal(&status));
        // Readers of the profile from here on must find a job that has ended.
        let unwritten = job.write(self.new_folder.path()).err();
        let mut outcome = Outcome::read(self.new_folder.path());
        match sampling {
            Some(Ok(account)) => outcome.sampling = Some(account),
            Some(Err(fault)) => job.notes.push(format!("the cores were not sampled: {fault}")),
            None => {}
        }
        job.notes.extend(self.quota.note(&machine::Source::live()));
        job.notes.extend(outcome.injection.iter().flat_map(Injection::shortfalls));
        let past = past::notes(self.new_folder.path());
        if outcome.ranks == 0 && outcome.full {
            job.notes.push(format!("ranks found no room for their tables. Next: {}", outcome::FREE));
        } else if outcome.ranks == 0 && past.is_empty() {
            let files = [self.library.as_path(), self.new_folder.path()];
            job.notes.extend(refusal::of_silence(
                &self.request.words,
                &self.line,
                files,
                std::env::var_os(preload::PRELOAD),
                exit_code(status),
            ));
        }
        job.notes.extend(past);
        let unwritten = job.write(self.new_folder.path()).err().or(unwritten);
        let mut notes = job.notes.clone();
        notes.extend(outcome.notes());
        notes.extend(unwritten.map(|fault| fault.to_string()));
        let named = self.new_folder.named();
        if let Some(wanted) = self.request.folder.as_ref().filter(|wanted| *wanted != named) {
            notes.push(format!("{} holds a profile already: this one is in {}", wanted.display(), named.display()));
        }
        outcome.page(named, &notes)
    }
}

/// Runs the command, with plimsoll's own lines on standard error. Returns the command's exit code, on which scripts and
/// batch systems rely: a defect of the profile is printed and does not change the code.
pub fn run(request: &Request) -> Result<u8> {
    let mut recorded = Recorded::prepare(request)?;
    // Signals are held from here on, before any thread or child exists.
    let relay = Relay::open()?;
    // The sensors are open before the command starts, so that its first moments are sampled too.
    let sampling = request.cores.then(|| Sampling::begin(recorded.folder(), request.interval, &request.power));
    relay.release(&mut recorded.command);
    if let Some(perturbation) = &request.perturbation {
        tell(&format!(
            "plimsoll: the program is delayed on purpose ({perturbation}): its figures will not be its own\n"
        ));
    }
    let mut child = recorded.spawn()?;
    let status = relay.wait(&mut child)?;
    tell(&recorded.end(status, sampling.map(Sampling::end)));
    Ok(exit_code(status))
}

/// A sampler in a thread of this process, which ends with the process or earlier.
pub struct Sampling {
    stop: mpsc::Sender<()>,
    thread: JoinHandle<Result<Account>>,
}

impl Sampling {
    /// Starts a sampler of this host for the profile in `folder`. Its sensors are open on return.
    pub fn begin(folder: &Path, interval: Option<Nanoseconds>, power: &[Source]) -> Sampling {
        // By this mark, no rank of this host starts another sampler.
        let _ = std::fs::File::create(folder::sampled_mark(folder, &boot().unwrap_or_default()));
        let settings = Settings { folder: folder.to_owned(), interval, power: power.to_vec() };
        let (opened, is_open) = mpsc::channel();
        let (stop, stopped) = mpsc::channel();
        let thread = thread::spawn(move || {
            let sampler = Sampler::open(&settings);
            let _ = opened.send(());
            sampler?.run(|patience, _| stopped.recv_timeout(patience) != Err(RecvTimeoutError::Timeout))
        });
        let _ = is_open.recv();
        Sampling { stop, thread }
    }

    /// Ends the sampler. Returns its account or its fault.
    pub fn end(self) -> Result<Account> {
        drop(self.stop);
        let died = || Fault::new("the sampler", "it ended with a panic", "report it, and profile with --no-cores");
        self.thread.join().unwrap_or_else(|_| Err(died()))
    }
}
