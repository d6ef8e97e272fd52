//! A running job and its end: no process or file of the job stays, however the job or this process ends.

use std::fs;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use linux::ending;
use linux::orphans::Awaited;
use linux::relay::Relay;
use linux::warden::Warden;
use machine::{Fault, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tempfile::TempDir;

use crate::exit::exit_code;
use crate::job::{self, Job, MARK};
use crate::report::{self, Reports};
use crate::{sieve, trial};

/// Longest time for which the launcher's standard error stays open after all processes of the job are gone.
const DRAIN: Duration = Duration::from_secs(5);

/// A job's own folder and the mark of its processes, made before the job starts.
#[derive(Debug)]
pub struct Scratch {
    folder: TempDir,
    mark: String,
}

impl Scratch {
    pub fn new() -> Result<Scratch> {
        let folder = job::folder()?;
        let mark = trial::mark(folder.path());
        Ok(Scratch { folder, mark })
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Destinations of a job's standard streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Streams {
    /// The user's own streams: output of the ranks appears as they write it.
    Shared,
    /// Files in the job's folder, which is also the job's working folder: see [`Running::said`] and [`Running::complained`].
    Kept,
    /// Files as for [`Streams::Kept`]; the job works in the folder of this process.
    KeptHere,
}

/// A running launcher, with all processes that it started.
#[derive(Debug)]
pub struct Running {
    launcher: Child,
    _awaited: Awaited,
    /// Ends the processes and removes the folder on drop, which comes before the wait for the launcher.
    warden: Option<Warden>,
    reports: Receiver<Vec<String>>,
    scratch: Scratch,
}

/// Output of a job whose streams were kept: standard output, standard error without reports, and the reports.
#[derive(Debug)]
pub struct Kept {
    pub said: String,
    pub complained: String,
    pub reports: Reports,
}

const OUTPUT: &str = "output";
const ERRORS: &str = "errors";

impl Running {
    /// Starts `job`. A `relay` for its signals must exist before.
    pub fn start(job: &Job, scratch: Scratch, streams: Streams, relay: Option<&Relay>) -> Result<Running> {
        let mut command = job.command(scratch.path(), &scratch.mark)?;
        if let Some(relay) = relay {
            relay.release(&mut command);
        }
        let file = |name: &str| {
            fs::File::create(scratch.path().join(name))
                .map_err(|e| Fault::because("folder of the job", e, "free space in TMPDIR"))
        };
        let errors = match streams {
            Streams::Shared => None,
            Streams::Kept | Streams::KeptHere => {
                command.stdin(Stdio::null()).stdout(file(OUTPUT)?);
                if streams == Streams::Kept {
                    command.current_dir(scratch.path());
                }
                Some(file(ERRORS)?)
            }
        };
        if job.cores.is_none() {
            linux::affinity::inherit_allowed(&mut command)?;
        }
        let warden = Warden::over_marked(MARK, &scratch.mark, scratch.path())?;
        let mut launcher = command.stderr(Stdio::piped()).spawn().map_err(|e| {
            let next = "check that it may be executed, or choose another MPI by --mpi";
            Fault::because(format!("launcher {}", job.installation.launcher.display()), e, next)
        })?;
        let awaited = Awaited::new(&launcher);
        let pipe = launcher.stderr.take().expect("it was asked for");
        let (sender, reports) = channel();
        thread::spawn(move || {
            let found = match errors {
                Some(file) => sieve::run(pipe, file),
                None => sieve::run(pipe, io::stderr()),
            };
            // The receiver is gone where the job was given up.
            let _ = sender.send(found);
        });
        Ok(Running { launcher, _awaited: awaited, warden: Some(warden), reports, scratch })
    }

    pub fn id(&self) -> u32 {
        self.launcher.id()
    }

    pub fn folder(&self) -> &Path {
        self.scratch.path()
    }

    /// Waits for the end, passing signals on. Returns the exit code: the launcher's, or that of the signal where the
    /// launcher failed after one, since launchers' own codes then differ.
    pub fn attend(&mut self, relay: &Relay) -> Result<u8> {
        let mut asked = None;
        loop {
            if let Some(status) = self.ended()? {
                let by_signal = asked.filter(|_| !status.success()).map(|signal| 128 + signal as u8);
                return Ok(by_signal.unwrap_or_else(|| exit_code(status)));
            }
            let received = relay.attend(&self.launcher, Duration::from_secs(1))?;
            self.reap();
            asked = asked.or_else(|| received.iter().find(|signal| signal.ends()).map(|signal| signal.number));
        }
    }

    /// Waits for the end within `limit`. `between` is called whenever `watched` is readable; a fault of `between` ends the
    /// wait.
    pub fn wait(
        &mut self,
        limit: Duration,
        watched: Option<&impl AsFd>,
        mut between: impl FnMut(&mut Running) -> Result<()>,
    ) -> Result<ExitStatus> {
        let failed = |error: io::Error| Fault::because("mpirun", error, "run again");
        let process = ending::of(&self.launcher).map_err(failed)?;
        let until = Instant::now() + limit;
        loop {
            if watched.is_some() {
                between(self)?;
            }
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            if linux::signal::interrupted() {
                return Err(Fault::new("mpirun", "a signal asked to end", "run again"));
            }
            if Instant::now() >= until {
                let cause = format!("it did not end within {} s", limit.as_secs());
                return Err(Fault::new("mpirun", cause, "free the cores it uses and run again"));
            }
            let mut events = vec![PollFd::new(&process, PollFlags::IN)];
            events.extend(watched.map(|watched| PollFd::new(watched, PollFlags::IN)));
            match poll(&mut events, Some(&Timespec { tv_sec: 0, tv_nsec: 200_000_000 })) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(failed(error.into())),
            }
            self.reap();
        }
    }

    fn reap(&self) {
        if let Some(warden) = &self.warden {
            warden.reap();
        }
    }

    fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.launcher.try_wait().map_err(|e| Fault::because("mpirun", e, "run again"))
    }

    /// Standard output of the ranks and the launcher so far, where it is kept.
    pub fn said(&self) -> String {
        fs::read_to_string(self.folder().join(OUTPUT)).unwrap_or_default()
    }

    /// Standard error of the ranks and the launcher so far, without reports, where it is kept.
    pub fn complained(&self) -> String {
        fs::read_to_string(self.folder().join(ERRORS)).unwrap_or_default()
    }

    /// Ends the rest of the job and returns its ranks' reports.
    pub fn finish(mut self) -> Reports {
        let kept = report::kept(self.folder());
        self.end();
        Reports::read(&self.reports.recv_timeout(DRAIN).unwrap_or_default()).with(&kept)
    }

    /// [`Running::finish`] of a job whose streams were kept, with all output.
    pub fn finish_kept(mut self) -> Kept {
        // The ranks' streams are closed here, unless a rank was left behind.
        let lines = self.reports.recv_timeout(DRAIN).ok();
        let (said, complained, kept) = (self.said(), self.complained(), report::kept(self.folder()));
        self.end();
        let lines = lines.or_else(|| self.reports.recv_timeout(DRAIN).ok()).unwrap_or_default();
        Kept { said, complained, reports: Reports::read(&lines).with(&kept) }
    }

    fn end(&mut self) {
        self.warden = None;
        // The warden has ended the launcher, unless the warden itself was killed.
        let _ = self.launcher.kill();
        let _ = self.launcher.wait();
        let _ = io::stderr().flush();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}
