//! A folder in which a job's processes work, and which they do not outlive.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use linux::warden::Warden;
use record::folder;
use record::rank::Rank;
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

/// A source beside these tests.
pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

/// The library that is tested: cargo leaves it beside the test's own executable.
pub fn library() -> PathBuf {
    let built = std::env::current_exe().unwrap().with_file_name("libplimsoll_profile.so");
    assert!(built.exists(), "{} was not built", built.display());
    built
}

impl Place {
    /// Waits until no other test has one.
    pub fn new() -> Place {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = tempfile::Builder::new().prefix("plimsoll-profile-").tempdir().unwrap();
        let warden = Warden::over_folder(folder.path()).unwrap();
        Place { _warden: warden, folder, _turn: turn }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Where what is profiled here is left.
    pub fn profile(&self) -> PathBuf {
        self.path().join("profile")
    }

    /// A command that works here and knows nothing of the settings under which the test was started.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        let ours = ["OMPI_", "OPAL_", "PMIX_", "PRTE_", "MPIR_", "MPICH_", "PMI_", "HYDRA_", "UCX_", "PLIMSOLL_"];
        for (key, _) in std::env::vars_os() {
            if ours.iter().any(|prefix| key.to_string_lossy().starts_with(prefix)) {
                command.env_remove(key);
            }
        }
        for root in ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] {
            command.env(root, "1");
        }
        command.current_dir(self.path()).env("TMPDIR", self.path());
        command
    }

    /// Makes all that the command starts record into `folder`.
    pub fn profiled(command: &mut Command, folder: &Path) {
        fs::create_dir_all(folder.join(folder::RANKS)).unwrap();
        command.env("LD_PRELOAD", library()).env(folder::variable::FOLDER, folder);
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

    /// Compiles a program; fails with what the compiler said.
    pub fn compile(&self, compiler: &Path, source: &Path, extra: &[&str]) -> PathBuf {
        let program = self.path().join(source.file_stem().unwrap());
        let mut command = self.command(compiler);
        command.args(["-O1", "-g"]);
        if source.extension() == Some(OsStr::new("c")) {
            // Some MPIs declare arrays of no size, which gcc warns of.
            command.args(["-Wall", "-Wextra", "-Wno-stringop-overflow", "-Wno-stringop-overread"]);
            command.args(["-D_GNU_SOURCE", "-pthread"]);
        }
        command.arg(source).arg("-o").arg(&program).args(extra);
        let ended = self.run(&mut command, Duration::from_secs(120));
        assert!(ended.succeeded(), "{}", ended.errors);
        program
    }

    /// The tables that a profile has, in the order of their ranks. All of them must be readable.
    pub fn ranks(&self, profile: &Path) -> Vec<Rank> {
        let mut ranks: Vec<Rank> = fs::read_dir(profile.join(folder::RANKS))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension() == Some(OsStr::new(folder::RANK_SUFFIX)))
            .map(|path| Rank::open(&path).unwrap_or_else(|fault| panic!("{fault}")))
            .collect();
        ranks.sort_by_key(|rank| (rank.header.rank, rank.header.pid));
        ranks
    }
}

impl Running {
    pub fn finish(mut self, limit: Duration) -> Ended {
        let deadline = Instant::now() + limit;
        let mut status = self.child.try_wait().unwrap();
        while status.is_none() && Instant::now() < deadline {
            sleep(Duration::from_millis(5));
            status = self.child.try_wait().unwrap();
        }
        if status.is_none() {
            let group = rustix::process::Pid::from_child(&self.child);
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            let _ = self.child.wait();
        }
        let read = |path: &Path| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
        Ended { status, out: read(&self.out), errors: read(&self.errors) }
    }
}

impl Ended {
    pub fn succeeded(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// Fails with what it wrote unless it ended well.
    pub fn well(self, of: impl std::fmt::Display) -> Ended {
        assert!(self.succeeded(), "{of}: {:?}\n{}{}", self.status, self.out, self.errors);
        self
    }
}
