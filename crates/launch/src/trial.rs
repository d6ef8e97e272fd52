//! Runs the arms of a trial: whole commands, timed from start to end; none of their processes stays until the next run.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use experiment::cause::{Cause, Failure};
use experiment::ledger::Subject;
use experiment::trial::aside::Stage;
use experiment::trial::conduct::{Commands, Ran};
use experiment::trial::design::{Arm, Design};
use linux::accounting::{effective_clocks, times_of_children};
use linux::ending;
use linux::orphans::Awaited;
use linux::output::tell;
use linux::warden::Warden;
use machine::quota::Watch;
use machine::{CoreId, Dilation, Fault, Nanoseconds, Probe, Result};
use profile::profile::Profile;
use rounds::clocks::Clocks;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::command_line::CommandLine;
use crate::engine::Semantics;
use crate::exit::exit_code;
use crate::report::Reports;

/// Variable that marks every process of a run.
const MARK: &str = "PLIMSOLL_TRIAL";

/// This process's standard input, as a path that can be opened again.
const STDIN: &str = "/proc/self/fd/0";

/// Bytes of a run's output that are read, from its end.
const MOST_OUTPUT: u64 = 64 << 20;

/// Starts processes of this machine, in the working folder of this process.
#[derive(Debug)]
pub struct Starter {
    /// Cores whose distance and clocks are probed before and after each run.
    cores: Option<(CoreId, CoreId)>,
    began: Instant,
    /// This program, where runs are profiled for the time between MPI_Init and MPI_Finalize.
    profiler: Option<PathBuf>,
    /// Command that starts that of a run; empty: none.
    within: Vec<String>,
    /// File that each run reads from its start.
    reads: Option<PathBuf>,
    /// Time stamps and lengths of the files whose digests were checked.
    seen: HashMap<String, (SystemTime, u64)>,
    quota: QuotaNote,
}

/// On drop, prints the effect of a CPU quota on the runs, if there were any.
#[derive(Debug)]
struct QuotaNote {
    watch: Watch,
    has_run: bool,
}

impl Drop for QuotaNote {
    fn drop(&mut self) {
        if let Some(note) = self.watch.note(&machine::Source::live()).filter(|_| self.has_run) {
            tell(&format!("plimsoll: {note}\n"));
        }
    }
}

impl Starter {
    pub fn new() -> Result<Starter> {
        let allowed = linux::affinity::allowed()?;
        let cores = allowed.first().copied().zip(allowed.get(1).copied());
        let quota = QuotaNote { watch: Watch::begin(&machine::Source::live(), allowed.len()), has_run: false };
        let (began, within, seen) = (Instant::now(), Vec::new(), HashMap::new());
        Ok(Starter { cores, began, profiler: None, within, reads: None, seen, quota })
    }

    /// Profiles each run by the program `own`, which is plimsoll, for the time between MPI_Init and MPI_Finalize.
    pub fn profiled(self, own: PathBuf) -> Starter {
        Starter { profiler: Some(own), ..self }
    }

    /// Lets each run read `input` from its start.
    pub fn reading(self, input: &Input) -> Starter {
        Starter { reads: Some(input.opened.clone()), ..self }
    }

    /// Starts further runs by the command `words`; directly where `words` is empty.
    pub fn start_within(&mut self, words: Vec<String>) {
        self.within = words;
    }

    fn clocks(&self) -> Clocks {
        Clocks::of(effective_clocks(self.cores.into_iter().flat_map(|(one, other)| [one, other])))
    }

    /// Description of a change since the file had that digest; `None` without a change.
    pub(crate) fn differs(&mut self, file: &str, digest: &str) -> Option<String> {
        let path = Path::new(file);
        let now = path.metadata().and_then(|file| Ok((file.modified()?, file.len()))).ok();
        if now.is_some() && self.seen.get(file) == now.as_ref() {
            return None;
        }
        if digest_of(path).is_none_or(|found| found != digest) {
            return Some(format!("{file} was changed meanwhile"));
        }
        self.seen.extend(now.map(|now| (file.to_owned(), now)));
        None
    }

    fn probe(&self) -> Option<Probe> {
        let (one, other) = self.cores?;
        ports::probe::between(one, other).ok()
    }
}

/// StartOptions of starting a command.
struct StartOptions<'a> {
    profiler: Option<&'a Path>,
    within: &'a [String],
    reads: Option<&'a Path>,
    /// Whether the cores are probed before and after the command.
    probed: bool,
    /// Ends the command before its limit, once true.
    stop: &'a dyn Fn() -> bool,
}

impl Starter {
    fn start(&self, arm: &Arm, limit: Nanoseconds, manner: &StartOptions) -> Result<Ran> {
        let folder = tempfile::Builder::new().prefix("plimsoll-try-").tempdir().map_err(scratch)?;
        let mark = mark(folder.path());
        // The warden ends leftover processes and removes the folder, even where this process is killed during a probe.
        let warden = Warden::over_marked(MARK, &mark, folder.path())?;
        let mut command = command(arm, manner.within, manner.profiler, &folder)?;
        let file = |name: &str| File::create(folder.path().join(name)).map_err(scratch);
        let input = match manner.reads {
            Some(input) => File::open(input).map(Stdio::from).map_err(unread)?,
            None => Stdio::null(),
        };
        command.env(MARK, &mark).stdin(input).stdout(file("output")?).stderr(file("errors")?);
        let probes = || if manner.probed { (self.probe(), self.clocks()) } else { Default::default() };
        let (before, clocks) = probes();
        let (cpu, started) = (times_of_children(), SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
        let began = Instant::now();
        let mut child = command.spawn().map_err(|e| {
            let next = "name a program that is there and may be executed; for a shell's line add --shell";
            Fault::because(format!("command {}", arm.command[0]), e, next)
        })?;
        let _awaited = Awaited::new(&child);
        let failed = |e| Fault::because(format!("command {}", arm.command[0]), e, "run again");
        let process = ending::of(&child).map_err(failed);
        let until = began + Duration::from_nanos(limit.0);
        let ended = process.and_then(|process| wait_unless(manner.stop, &process, &warden, until));
        let elapsed = began.elapsed();
        if !matches!(ended, Ok(true)) {
            let _ = child.kill();
        }
        let status = child.wait().map_err(failed)?;
        let ended = ended?;
        let [user, system] = times_of_children();
        let (user, system) = (user - cpu[0], system - cpu[1]);
        let read = |name: &str| read(&folder.path().join(name));
        let (said, mut complained) = (read("output")?, read("errors")?);
        if manner.profiler.is_some() {
            complained.truncate(without_account(&complained).len());
        }
        let carried = if arm.proven { not_carried(&folder.path().join("report"), &arm.command) } else { None };
        // Signals, and a shell's codes for a program that it cannot start, are no results.
        let code = status.code().and_then(|code| u8::try_from(code).ok()).filter(|code| (1..=125).contains(code));
        let code = code.filter(|_| ended && carried.is_none() && manner.profiler.is_none());
        let of_program = |what| Failure::of_program(format!("{what}: {}", why(&complained, &said)), &complained);
        let failure = match (ended, status.success()) {
            (false, _) => {
                let words = format!("it did not end within {} s", limit.0.div_ceil(1_000_000_000));
                Some(Failure::new(Cause::TimedOut, words))
            }
            (true, false) => Some(of_program(format!("exit code {}", exit_code(status)))),
            (true, true) => carried.map(of_program),
        };
        let profile = manner.profiler.filter(|_| failure.is_none()).map(|_| folder.path().join(PROFILE));
        let mpi = profile.map(|profile| between_init_and_finalize(&profile)).transpose()?;
        drop(warden);
        let started = Nanoseconds(started.as_nanos() as u64);
        let elapsed = Nanoseconds(elapsed.as_nanos() as u64);
        let (after, clocks_after) = probes();
        let (probes, clocks) = ([before, after], [clocks, clocks_after]);
        let (cpu, system) = (Some(user + system), Some(system));
        Ok(Ran { started, elapsed, mpi, cpu, system, said, complained, failure, status: code, probes, clocks })
    }
}

/// For commands that tidy up: no signal ends them.
fn never() -> bool {
    false
}

impl Starter {
    /// As [`Commands::run`]; once `enough` is true the run is ended, as at its limit.
    ///
    /// # Errors
    /// Those of [`Commands::run`].
    pub fn run_until(&mut self, arm: &Arm, limit: Nanoseconds, enough: &dyn Fn() -> bool) -> Result<Ran> {
        self.quota.has_run = true;
        let manner = StartOptions {
            profiler: self.profiler.as_deref(),
            within: &self.within,
            reads: self.reads.as_deref(),
            probed: true,
            stop: &|| linux::signal::interrupted() || enough(),
        };
        self.start(arm, limit, &manner)
    }
}

impl Commands for Starter {
    fn run(&mut self, arm: &Arm, limit: Nanoseconds) -> Result<Ran> {
        self.run_until(arm, limit, &|| false)
    }

    fn aside(&mut self, arm: &Arm, stage: Stage, words: &[String], limit: Nanoseconds) -> Result<Ran> {
        let stop: &dyn Fn() -> bool = if stage.tidies() { &never } else { &linux::signal::interrupted };
        let manner = StartOptions { profiler: None, within: &[], reads: None, probed: false, stop };
        self.start(&Arm { command: words.to_vec(), proven: false, ..arm.clone() }, limit, &manner)
    }

    fn now(&self) -> Nanoseconds {
        Nanoseconds(self.began.elapsed().as_nanos() as u64)
    }

    fn changed(&mut self, design: &Design) -> Option<String> {
        design.programs.iter().find_map(|(file, digest)| self.differs(file, digest))
    }
}

/// Mark of a run's processes, from its folder's name alone: a line break in TMPDIR would make two patterns for the warden,
/// of which no process has either.
pub fn mark(folder: &Path) -> String {
    let name = folder.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    format!("{}-{name}", std::process::id())
}

fn unread(error: std::io::Error) -> Fault {
    Fault::because("standard input", error, "give a file that may be read, or </dev/null")
}

/// Standard input of runs: a file that each run reads from its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    /// Its name and digest.
    pub file: (String, String),
    /// Path by which it is opened.
    opened: PathBuf,
}

impl Input {
    /// # Errors
    /// The file cannot be read repeatedly.
    pub fn named(file: &Path) -> Result<Input> {
        let subject = || format!("input {}", file.display());
        let next = "name a file that may be read; what a pipe or a device gives is kept in a file first";
        let opened = file.canonicalize().map_err(|e| Fault::because(subject(), e, next))?;
        if !opened.is_file() {
            return Err(Fault::new(subject(), "it is no file that each run can read from its start", next));
        }
        let digest = digest_of(&opened).ok_or_else(|| Fault::new(subject(), "it cannot be read", next))?;
        Ok(Input { file: (opened.display().to_string(), digest), opened })
    }

    /// This process's standard input, where it is a file.
    ///
    /// # Errors
    /// The file cannot be opened again.
    pub fn standard() -> Result<Option<Input>> {
        let Some(file) = fs::metadata(STDIN).ok().filter(fs::Metadata::is_file) else { return Ok(None) };
        File::open(STDIN).map_err(unread)?;
        // A removed file has no name.
        let is_it = |path: &PathBuf| path.metadata().is_ok_and(|of| (of.dev(), of.ino()) == (file.dev(), file.ino()));
        let name = fs::read_link(STDIN).ok().filter(is_it).and_then(|path| path.to_str().map(str::to_owned));
        let opened = PathBuf::from(STDIN);
        let input = |digest| Input { file: (name.unwrap_or_else(|| STDIN.to_owned()), digest), opened };
        Ok(digest_of(Path::new(STDIN)).map(input))
    }
}

/// Whether standard input is a pipe that has data within a time.
pub fn is_piped(within: Duration) -> bool {
    let pipe = fs::metadata(STDIN).is_ok_and(|of| of.file_type().is_fifo());
    let within = Timespec { tv_sec: within.as_secs() as i64, tv_nsec: within.subsec_nanos().into() };
    let stdin = std::io::stdin();
    let mut polled = [PollFd::new(&stdin, PollFlags::IN)];
    pipe && poll(&mut polled, Some(&within)).is_ok() && polled[0].revents().contains(PollFlags::IN)
}

pub(crate) fn scratch(error: std::io::Error) -> Fault {
    Fault::because("folder for a run", error, "free space in TMPDIR")
}

/// Name of a run's profile in its folder.
const PROFILE: &str = "profile";

fn command(arm: &Arm, within: &[String], profiler: Option<&Path>, folder: &TempDir) -> Result<Command> {
    let mut words = arm.command.iter();
    let program = words.next().ok_or_else(|| Fault::new("a command", "it has no words", "name a program"))?;
    let first = profiler.unwrap_or(Path::new(program));
    let mut command = Command::new(within.first().map_or(first, Path::new));
    if !within.is_empty() {
        command.args(&within[1..]).arg(first);
    }
    if profiler.is_some() {
        command.args(["profile", "--no-cores", "-o"]).arg(folder.path().join(PROFILE)).arg("--").arg(program);
    }
    if arm.proven {
        // `plimsoll mpirun`, which reports the carriers of the messages.
        command.args(words.next()).arg(format!("--json={}", folder.path().join("report").display()));
    }
    command.args(words).envs(arm.variables.iter().map(|(name, value)| (name, value)));
    Ok(command)
}

fn between_init_and_finalize(profile: &Path) -> Result<Nanoseconds> {
    let profile = Profile::without_timeline(profile)?;
    profile.whole()?;
    Ok(Nanoseconds((profile.seconds() * 1e9) as u64))
}

/// Whether `process` ended in time; a signal to this process ends the wait. `warden` is over the process's children.
pub(crate) fn wait(process: &impl AsFd, warden: &Warden, until: Instant) -> Result<bool> {
    wait_unless(&linux::signal::interrupted, process, warden, until)
}

fn wait_unless(stop: &dyn Fn() -> bool, process: &impl AsFd, warden: &Warden, until: Instant) -> Result<bool> {
    loop {
        let left = until.saturating_duration_since(Instant::now()).min(Duration::from_millis(200));
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&left)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => warden.reap(),
            Ok(_) => return Ok(true),
            Err(error) => return Err(Fault::because("a run", std::io::Error::from(error), "run again")),
        }
        if Instant::now() >= until || stop() {
            return Ok(false);
        }
    }
}

/// The end of a run's output in a file.
pub(crate) fn read(path: &Path) -> Result<String> {
    use std::io::{Seek, SeekFrom};
    let mut file = File::open(path).map_err(scratch)?;
    let length = file.metadata().map_err(scratch)?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(MOST_OUTPUT))).map_err(scratch)?;
    let mut bytes = Vec::new();
    file.take(MOST_OUTPUT).read_to_end(&mut bytes).map_err(scratch)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The last line with a letter or digit, of errors or else of output.
pub(crate) fn why(complained: &str, said: &str) -> String {
    let last = |text: &str| {
        let line = text.lines().rev().find(|line| line.chars().any(char::is_alphanumeric))?;
        Some(line.trim().trim_start_matches("plimsoll: ").chars().take(300).collect::<String>())
    };
    last(complained).or_else(|| last(said)).unwrap_or_else(|| "it said nothing".to_owned())
}

/// A run's errors without the profiler's account after them.
fn without_account(complained: &str) -> &str {
    let counts = |rest: &str| rest.starts_with("no rank recorded") || rest.starts_with(|c: char| c.is_ascii_digit());
    let is_account = |line: &&str| line.strip_prefix("plimsoll: ").is_some_and(counts);
    let own = complained.split_inclusive('\n').take_while(|line| !is_account(line));
    &complained[..own.map(str::len).sum()]
}

/// Value of `option` of a `plimsoll mpirun` among the words.
fn told<T: FromStr>(words: &[String], option: &str) -> Option<T> {
    let mut own = words.iter().take_while(|word| *word != "--").skip_while(|word| *word != option);
    own.nth(1)?.parse().ok()
}

/// Reason why the engine did not carry the messages as requested, by the ranks' reports.
fn not_carried(report: &Path, words: &[String]) -> Option<String> {
    let dilation = told(words, "--dilate").unwrap_or(Dilation::NONE);
    let semantics: Semantics = told(words, "--semantics").unwrap_or_default();
    let reports: Option<Reports> = fs::read_to_string(report).ok().and_then(|text| serde_json::from_str(&text).ok());
    let Some(reports) = reports else { return Some("no rank reported what carried its messages".to_owned()) };
    let other = reports.endpoints.iter().find(|endpoint| endpoint.ran != endpoint.asked);
    let of = |endpoint: &crate::report::Report| endpoint.dilated.map_or(Dilation::NONE, |dilated| dilated.asked);
    let otherwise = reports.endpoints.iter().find(|endpoint| endpoint.semantics != semantics);
    let undilated = reports.endpoints.iter().find(|endpoint| of(endpoint) != dilation);
    match other {
        _ if reports.endpoints.is_empty() => Some("plimsoll did not carry its messages".to_owned()),
        Some(other) => Some(format!("asked for {}, ran at {}", other.asked, other.ran)),
        None if let Some(other) = otherwise => {
            Some(format!("asked for semantics {semantics}, ran {}", other.semantics))
        }
        None => undilated.map(|other| format!("asked for dilated {dilation}, ran dilated {}", of(other))),
    }
}

/// Executable files among a command's words, with their digests.
///
/// # Errors
/// The program cannot be found, or is a launcher that does not answer.
pub fn programs(command: &[String]) -> Result<Vec<(String, String)>> {
    let words: Vec<OsString> = command.iter().map(OsString::from).collect();
    CommandLine::read(&words).answered()?;
    let mut programs = Vec::new();
    for (nth, word) in command.iter().enumerate() {
        let found = if nth == 0 { Some(crate::program::find(word.as_ref())?) } else { executable(Path::new(word)) };
        if let Some(path) = found
            && let Some(digest) = digest_of(&path)
        {
            programs.push((path.display().to_string(), digest));
        }
    }
    Ok(programs)
}

/// The words that start the program of a command, and the program with its own arguments.
pub fn launcher(command: &[String]) -> (&[String], &[String]) {
    let words: Vec<OsString> = command.iter().map(OsString::from).collect();
    let line = CommandLine::read(&words);
    let is_program = |word: &OsString| {
        crate::program::find(word).is_ok_and(|found| line.programs.iter().any(|program| program.path == found))
    };
    command.split_at(words.iter().position(is_program).unwrap_or(0))
}

/// The program within a command, without its launcher and carrier: the subject of predictions.
///
/// # Errors
/// The program cannot be found.
pub fn subject(command: &[String]) -> Result<Subject> {
    let (_, own) = launcher(command);
    let digests: Vec<String> = programs(own)?.into_iter().map(|(_, digest)| digest).collect();
    Ok(Subject { words: own.join(" "), digest: digests.join(" ") })
}

/// Predicted quantity of a program under another carrier.
pub fn carriers_quantity(from: &str, to: &str) -> String {
    format!("time over {to} against {from}")
}

fn executable(path: &Path) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let file = path.metadata().ok()?;
    (file.is_file() && file.permissions().mode() & 0o111 != 0).then(|| path.to_owned())
}

fn digest_of(path: &Path) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; 1 << 16]);
    loop {
        match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => hash.update(&buffer[..length]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
    Some(hash.finalize().iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profilers_account_is_not_why_a_run_failed() {
        let said =
            "plimsoll: no such carrier\nbad input\nplimsoll: 2 ranks, 7 MPI calls\nplimsoll: now: plimsoll report x\n";
        assert_eq!(why(without_account(said), ""), "bad input");
        assert_eq!(without_account("bad input\nplimsoll: no rank recorded anything\n"), "bad input\n");
        assert_eq!(without_account("bad input\n"), "bad input\n");
    }

    #[test]
    fn a_line_break_in_the_folder_hides_no_process_from_the_warden() {
        let above = tempfile::Builder::new().prefix("two\nlines-").tempdir().unwrap();
        let folder = above.path().join("run");
        fs::create_dir(&folder).unwrap();
        let warden = Warden::over_marked(MARK, &mark(&folder), &folder).unwrap();
        let mut left = Command::new("sleep").arg("60").env(MARK, mark(&folder)).spawn().unwrap();
        drop(warden);
        assert!(!left.wait().unwrap().success() && !folder.exists());
    }
}
