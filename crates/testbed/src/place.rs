//! A folder in which one test's processes work, and which they do not outlive.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use launch::provider::{self, Provider};
use linux::warden::Warden;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::compiled;

/// The folder of a test. All processes that run in it are killed when it is dropped, or when the test's process ends in any way.
pub struct Place {
    // The order of the fields matters: the warden watches the folder until it is gone.
    _warden: Warden,
    folder: TempDir,
    _turn: skip::Turn,
}

/// How a process ended, with what it wrote.
#[derive(Debug)]
pub struct Outcome {
    /// `None` when the process ran past its limit.
    pub status: Option<ExitStatus>,
    pub out: String,
    pub errors: String,
}

pub struct Running {
    child: Child,
    out: PathBuf,
    errors: PathBuf,
}

impl Place {
    /// Makes a folder, and waits until no other test has one: the processes of a job spin, and two jobs on one core test the
    /// scheduler.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Place {
        let turn = skip::turn();
        // The name does not contain plimsoll's, which tests look for on standard error.
        let folder = tempfile::Builder::new().prefix("job-test-").tempdir().unwrap();
        let warden = Warden::over_folder(folder.path()).unwrap();
        Place { _warden: warden, folder, _turn: turn }
    }

    /// The same folder, with the priority of [`skip::Turn::before_all`].
    pub fn before_all(self) -> Place {
        Place { _turn: self._turn.before_all(), ..self }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The provider, as `launch` finds it.
    pub fn provider(&self) -> Provider {
        provider::find(&crate::command(), self.path()).unwrap_or_else(|fault| panic!("{fault}"))
    }

    /// A command whose working folder is this one.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.path()).env("TMPDIR", self.path());
        command
    }

    /// A command for a program that is linked with libfabric and opens the provider by name, with settings of the provider.
    pub fn libfabric(&self, program: impl AsRef<OsStr>, settings: &[(&str, &str)]) -> Command {
        let mut command = self.command(program);
        for (key, _) in std::env::vars_os().filter(|(key, _)| key.to_string_lossy().starts_with("FI_")) {
            command.env_remove(key);
        }
        command.env("FI_PROVIDER_PATH", self.provider().folder);
        command.envs(settings.iter().map(|(name, value)| (format!("FI_PLIMSOLL_{name}"), value)));
        command
    }

    /// Redirects the standard streams of `command` to files of this folder.
    pub(crate) fn redirect(&self, command: &mut Command) -> [PathBuf; 2] {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let files = ["out", "errors"].map(|name| self.path().join(format!("{name}.{number}")));
        command
            .stdin(Stdio::null())
            .stdout(fs::File::create(&files[0]).unwrap())
            .stderr(fs::File::create(&files[1]).unwrap())
            .process_group(0);
        files
    }

    pub fn start(&self, command: &mut Command) -> Running {
        let files = self.redirect(command);
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Running::of(child, files)
    }

    pub fn run(&self, command: &mut Command, limit: Duration) -> Outcome {
        self.start(command).finish(limit)
    }

    /// Compiles `sources` into a program named `into`, unless an earlier test has done so; panics with the compiler's messages.
    pub fn compile(&self, compiler: &Path, sources: &[PathBuf], into: &str, extra: &[&str]) -> PathBuf {
        let mut flags = vec!["-O1", "-g"];
        if sources.iter().all(|source| source.extension() == Some(OsStr::new("c"))) {
            // Some MPIs declare arrays of no size, and an MPI_STATUSES_IGNORE that gcc takes for an array.
            flags.extend(["-Wall", "-Wextra", "-Wno-stringop-overflow", "-Wno-stringop-overread"]);
            flags.extend(["-D_GNU_SOURCE", "-pthread"]);
        }
        let program = self.path().join(into);
        let kept =
            compiled::kept(&compiled::Unit { compiler, flags: &flags, sources, into, extra, folder: self.path() });
        skip::copy_program(&kept, &program);
        program
    }

    /// Compiles a program of libfabric's interface; without libfabric's headers the test is left out.
    pub fn compile_for_libfabric(&self, sources: &[PathBuf], into: &str) -> Option<PathBuf> {
        let compiler = skip::tool("cc")?;
        skip::package::file("/usr/include/rdma/fabric.h").map_err(skip::test).ok()?;
        Some(self.compile(&compiler, sources, into, &["-lfabric"]))
    }
}

impl Running {
    pub(crate) fn of(child: Child, [out, errors]: [PathBuf; 2]) -> Running {
        Running { child, out, errors }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the process to end; kills it after `limit`.
    pub fn finish(mut self, limit: Duration) -> Outcome {
        let deadline = Instant::now() + limit;
        let mut status = self.child.try_wait().unwrap();
        while status.is_none() && Instant::now() < deadline {
            sleep(Duration::from_millis(5));
            status = self.child.try_wait().unwrap();
        }
        if status.is_none() {
            // A launcher that gets SIGTERM ends its ranks; the place's warden kills those that it left.
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
            sleep(Duration::from_millis(500));
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        let read = |file: &Path| String::from_utf8_lossy(&fs::read(file).unwrap_or_default()).into_owned();
        Outcome { status, out: read(&self.out), errors: read(&self.errors) }
    }
}

impl Outcome {
    pub fn succeeded(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// Panics with the output unless the process succeeded.
    pub fn well(self, of: impl std::fmt::Display) -> Outcome {
        assert!(self.succeeded(), "{of}: {:?}\n{}{}", self.status, self.out, self.errors);
        self
    }
}
