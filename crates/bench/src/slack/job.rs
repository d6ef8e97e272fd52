//! The profiled ranks, the hog beside one of them, and the daemon over them.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use linux::warden::Warden;
use linux::{clock, mask};
use machine::{CoreId, Fault, Nanoseconds, Result};
use rustix::process::{Pid, Signal, kill_process};

use super::{Case, Request};
use crate::mpi::program::Program;
use crate::scratch::Scratch;

/// Marks all processes of a job.
const MARK: &str = "PLIMSOLL_BENCH_DAEMON";
/// The hog beside the command that its first four words are followed by, in one session: the scheduler weighs sessions.
const BESIDE: &str = r#""$0" hog "$1" "$2" "$3" & hog=$!; shift 3; "$@"; kill $hog"#;
/// Time in which the hog works once, us.
const PERIOD: u32 = 10_000;
/// A start, a step or an end that takes longer has failed.
const LIMIT: Duration = Duration::from_secs(60);
const LOOK: Nanoseconds = Nanoseconds(20_000_000);

fn failed(subject: &str, cause: impl std::fmt::Display) -> Fault {
    Fault::new(subject, cause.to_string(), "run it again; plimsoll doctor tells what is missing")
}

/// Ranks that run, with all that was started for them; ended when dropped.
pub struct Job<'a> {
    request: &'a Request,
    state: File,
    pids: [u32; 2],
    profile: PathBuf,
    /// The hog and the profiler, and a daemon.
    children: Vec<Child>,
    /// Daemons so far.
    daemons: usize,
    // Dropped after the children were asked to end, before the folder.
    _warden: Warden,
    folder: Scratch,
    mark: String,
}

/// What a daemon did in a block.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize)]
pub struct Watched {
    /// Steps a second from its start on.
    pub whole: f64,
    /// Seconds to its first move.
    pub moved: Option<f64>,
    /// Whether it took a move back.
    pub undone: bool,
}

impl<'a> Job<'a> {
    pub fn start(request: &'a Request, program: &Program, case: &Case) -> Result<Job<'a>> {
        let folder = Scratch::new("plimsoll-slack-", &std::env::temp_dir(), "a job")?;
        let mark = folder.path().display().to_string();
        let fault = |e| Fault::because("folder of a job", e, "free space in TMPDIR");
        let shared = folder.path().join("state");
        fs::write(&shared, [0; 32]).map_err(fault)?;
        let state = File::options().read(true).write(true).open(&shared).map_err(fault)?;
        let inside = folder.path().join("job");
        fs::create_dir(&inside).map_err(fault)?;
        let profile = folder.path().join("profile");
        let mut job = Job {
            request,
            state,
            pids: [0; 2],
            profile,
            children: vec![],
            daemons: 0,
            // It removes the folder again once the processes have ended, which write there.
            _warden: Warden::over_marked(MARK, &mark, folder.path())?,
            folder,
            mark,
        };
        let mut profiler = job.command(Path::new("sh"));
        profiler.args(["-c", BESIDE]).arg(program.path());
        profiler.args([request.cores.0.0, PERIOD / 100 * case.hog, PERIOD].map(|word| word.to_string()));
        profiler
            .arg(&request.command)
            .arg("profile")
            .arg("-o")
            .arg(&job.profile)
            .arg("--")
            .arg(&request.installation.launcher);
        profiler.args(["-n", "2", "--oversubscribe", "--bind-to", "none"]).arg(program.path()).arg(&shared);
        profiler.args(case.work.map(|work| work.to_string()));
        profiler.env("OMPI_MCA_mpi_yield_when_idle", if case.yields { "1" } else { "0" });
        profiler.env("OMPI_MCA_btl_vader_backing_directory", &inside).env("OMPI_MCA_orte_tmpdir_base", &inside);
        if rustix::process::geteuid().is_root() {
            profiler.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        }
        if let Some(libraries) = &request.installation.libraries {
            profiler.env("LD_LIBRARY_PATH", libraries);
        }
        job.begin(profiler, "profiler")?;
        let deadline = clock::monotonic().0 + LIMIT.as_nanos() as u64;
        while job.words()?[2..].contains(&0) {
            if clock::monotonic().0 > deadline
                || linux::signal::interrupted()
                || job.children[0].try_wait().is_ok_and(|end| end.is_some())
            {
                let said = fs::read_to_string(job.folder.path().join("profiler")).unwrap_or_default();
                return Err(failed("ranks", said.lines().next().unwrap_or("they did not start")));
            }
            clock::sleep_for(LOOK);
        }
        job.pids = [job.words()?[2] as u32, job.words()?[3] as u32];
        Ok(job)
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env(MARK, &self.mark).stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    fn begin(&mut self, mut command: Command, name: &str) -> Result<u32> {
        let fault = |e| Fault::because(name.to_owned(), e, "check that it may be executed");
        let errors = File::create(self.folder.path().join(name)).map_err(fault)?;
        let child = command.stderr(errors).spawn().map_err(fault)?;
        let pid = child.id();
        self.children.push(child);
        Ok(pid)
    }

    fn words(&self) -> Result<[u64; 4]> {
        let mut bytes = [0; 32];
        self.state.read_exact_at(&mut bytes, 0).map_err(|e| Fault::because("state of the ranks", e, "run it again"))?;
        let mut words = [0; 4];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
        }
        Ok(words)
    }

    fn threads(&self, rank: usize) -> impl Iterator<Item = i32> {
        let entries = fs::read_dir(format!("/proc/{}/task", self.pids[rank])).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
    }

    /// Puts each rank on its core.
    pub fn seat(&self, cores: [CoreId; 2]) -> Result<()> {
        for (rank, core) in cores.into_iter().enumerate() {
            let seat = [core].into_iter().collect();
            // A thread inherits the mask of the one that begins it.
            for _ in 0..2 {
                for thread in self.threads(rank) {
                    mask::set(thread, &seat).map_err(|e| failed(&format!("rank {rank}"), e))?;
                }
            }
        }
        Ok(())
    }

    /// Whether every thread of the ranks is on its rank's core.
    fn is_seated(&self, cores: [CoreId; 2]) -> bool {
        cores.into_iter().enumerate().all(|(rank, core)| {
            self.threads(rank).all(|thread| mask::get(thread).is_ok_and(|mask| mask == [core].into_iter().collect()))
        })
    }

    /// Steps a second over `time` from now on, or until there is one: beside other work a step can take longer.
    pub fn rate(&self, time: Nanoseconds) -> Result<f64> {
        let (began, before) = (clock::monotonic(), self.words()?[0]);
        let mut end = began + time;
        loop {
            linux::signal::sleep_until(end);
            let (passed, steps) = (clock::monotonic() - began, self.words()?[0] - before);
            if steps > 0 {
                return Ok(steps as f64 / passed.0 as f64 * 1e9);
            }
            if passed.0 > time.0 + LIMIT.as_nanos() as u64 {
                return Err(failed("ranks", "they made no step"));
            }
            end = end + time;
        }
    }

    /// Steps a second in the `time` after `settling`, beside a daemon, whose ranks are then as before.
    pub fn watched(&mut self, settling: Nanoseconds, time: Nanoseconds, seats: [CoreId; 2]) -> Result<(f64, Watched)> {
        self.daemons += 1;
        let name = format!("daemon-{}", self.daemons);
        let state = self.folder.path().join(format!("{name}.state"));
        let mut daemon = self.command(&self.request.command);
        daemon.arg("daemon").arg(&self.profile).arg("--state").arg(&state);
        let since = std::time::SystemTime::now();
        let (began, before) = (clock::monotonic(), self.words()?[0]);
        let pid = self.begin(daemon, &name)?;
        linux::signal::sleep_until(began + settling);
        let rate = self.rate(time);
        let (passed, steps) = (clock::monotonic() - began, self.words()?[0] - before);
        let mut child = self.children.pop().expect("it was begun");
        let _ = kill_process(Pid::from_raw(pid as i32).expect("a process"), Signal::TERM);
        let status = child.wait().map_err(|e| failed("daemon", e))?;
        let said = fs::read_to_string(self.folder.path().join(&name)).unwrap_or_default();
        if !status.success() && !linux::signal::interrupted() {
            return Err(failed("daemon", format!("{status}: {}", said.lines().next_back().unwrap_or_default())));
        }
        if !self.is_seated(seats) {
            return Err(failed("daemon", "it left ranks elsewhere"));
        }
        let decided = fs::read_to_string(state.join("decisions.jsonl")).unwrap_or_default();
        let lines: Vec<serde_json::Value> =
            decided.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let since = since.duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_millis() as f64;
        let moved = lines.iter().find(|line| line["decided"]["move"].is_object());
        let moved = moved.and_then(|line| Some((line["at"].as_f64()? - since) / 1000.0));
        let undone = lines.iter().any(|line| line["decided"]["undo"].is_object());
        Ok((rate?, Watched { whole: steps as f64 / passed.0 as f64 * 1e9, moved, undone }))
    }
}

impl Drop for Job<'_> {
    fn drop(&mut self) {
        // Ranks end by themselves, the rest is ended.
        let _ = self.state.write_all_at(&1_u64.to_ne_bytes(), 8);
        let deadline = clock::monotonic().0 + 5_000_000_000;
        for (nth, mut child) in self.children.drain(..).enumerate() {
            while nth == 0 && clock::monotonic().0 < deadline && child.try_wait().is_ok_and(|end| end.is_none()) {
                clock::sleep_for(LOOK);
            }
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
