//! A folder in which a job's processes work, and which they do not outlive.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use linux::warden::Warden;
use serde_json::Value;
use tempfile::TempDir;

static TURN: Mutex<()> = Mutex::new(());

/// Everything that runs in it is ended when it is dropped, or when the test's process ends in whatever way.
pub struct Place {
    // In this order: the warden looks into the folder until it is gone.
    _warden: Warden,
    folder: TempDir,
    _turn: MutexGuard<'static, ()>,
}

/// How a process ended, with what it wrote.
#[derive(Debug)]
pub struct Ended {
    /// `None` when it ran past its limit.
    pub status: Option<ExitStatus>,
    pub out: String,
    pub errors: String,
}

pub struct Running {
    child: Child,
    out: PathBuf,
    errors: PathBuf,
}

/// A program of PATH.
pub fn find(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// The folder of C programs beside this one.
pub fn sources(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder);
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "c"));
    files.sort();
    files
}

impl Place {
    /// Waits until no other test has one.
    pub fn new() -> Place {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = tempfile::Builder::new().prefix("plimsoll-job-").tempdir().unwrap();
        let warden = Warden::over_folder(folder.path()).unwrap();
        // Cargo leaves it beside the test's own executable.
        let built = std::env::current_exe().unwrap().with_file_name("libplimsoll_fi.so");
        assert!(built.exists(), "{} was not built", built.display());
        fs::create_dir(folder.path().join("providers")).unwrap();
        std::os::unix::fs::symlink(built, folder.path().join("providers/libplimsoll-fi.so")).unwrap();
        Place { _warden: warden, folder, _turn: turn }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// What FI_PROVIDER_PATH is to name.
    pub fn providers(&self) -> PathBuf {
        self.path().join("providers")
    }

    /// A command that works here and knows nothing of the settings under which the test was started.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        let ours = ["FI_", "OMPI_", "OPAL_", "PMIX_", "PRTE_", "MPIR_", "MPICH_", "PMI_", "HYDRA_", "UCX_"];
        for (key, _) in std::env::vars_os() {
            if ours.iter().any(|prefix| key.to_string_lossy().starts_with(prefix)) {
                command.env_remove(key);
            }
        }
        command.current_dir(self.path()).env("TMPDIR", self.path()).env("FI_PROVIDER_PATH", self.providers());
        command
    }

    pub fn start(&self, command: &mut Command) -> Running {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let [out, errors] = ["out", "errors"].map(|name| self.path().join(format!("{name}.{number}")));
        command
            .stdin(Stdio::null())
            .stdout(fs::File::create(&out).unwrap())
            .stderr(fs::File::create(&errors).unwrap())
            .process_group(0);
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Running { child, out, errors }
    }

    pub fn run(&self, command: &mut Command, limit: Duration) -> Ended {
        self.start(command).finish(limit)
    }

    /// Compiles C programs; fails with what the compiler said.
    pub fn compile(&self, compiler: &Path, files: &[PathBuf], into: &str, extra: &[&str]) -> PathBuf {
        let program = self.path().join(into);
        let mut command = self.command(compiler);
        // Some MPIs declare MPI_STATUSES_IGNORE such that gcc takes it for an array.
        command.args(["-O1", "-g", "-Wall", "-Wextra", "-Wno-stringop-overflow", "-D_GNU_SOURCE", "-pthread"]);
        command.args(files).arg("-o").arg(&program).args(extra);
        let ended = self.run(&mut command, Duration::from_secs(120));
        assert!(ended.succeeded(), "{}", ended.errors);
        program
    }
}

impl Running {
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has written so far.
    pub fn out(&self) -> String {
        fs::read_to_string(&self.out).unwrap_or_default()
    }

    /// Looks until what it has written satisfies `enough`; fails when it ends first or takes longer than the limit.
    pub fn wait_for_output(&mut self, limit: Duration, enough: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + limit;
        loop {
            let out = self.out();
            if enough(&out) {
                return out;
            }
            let status = self.child.try_wait().unwrap();
            let errors = fs::read_to_string(&self.errors).unwrap_or_default();
            assert!(status.is_none(), "it ended ({status:?}) with {out}{errors}");
            assert!(Instant::now() < deadline, "nothing of what was awaited in {out}{errors}");
            sleep(Duration::from_millis(10));
        }
    }

    pub fn finish(mut self, limit: Duration) -> Ended {
        let deadline = Instant::now() + limit;
        let mut status = self.child.try_wait().unwrap();
        while status.is_none() && Instant::now() < deadline {
            sleep(Duration::from_millis(10));
            status = self.child.try_wait().unwrap();
        }
        if status.is_none() {
            // A launcher that is asked to end takes its ranks along; the place's warden ends those that it left.
            let _ = rustix::process::kill_process(
                rustix::process::Pid::from_child(&self.child),
                rustix::process::Signal::TERM,
            );
            sleep(Duration::from_millis(500));
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        let read = |file: &Path| String::from_utf8_lossy(&fs::read(file).unwrap_or_default()).into_owned();
        Ended { status, out: read(&self.out), errors: read(&self.errors) }
    }
}

impl Ended {
    pub fn succeeded(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// What the provider told of each endpoint (FI_PLIMSOLL_REPORT=yes).
    pub fn reports(&self) -> Vec<Value> {
        let lines = self.errors.lines().filter_map(|line| line.split_once("plimsoll-report ").map(|(_, json)| json));
        lines.map(|json| serde_json::from_str(json).unwrap_or_else(|error| panic!("{error} in {json}"))).collect()
    }

    /// The sum of a number over all reports' ports of this name.
    pub fn carried(&self, port: &str, what: &str) -> u64 {
        let reports = self.reports();
        let ports = reports.iter().filter_map(|report| report["ports"].as_array()).flatten();
        ports.filter(|entry| entry["port"] == port).filter_map(|entry| entry[what].as_u64()).sum()
    }
}
