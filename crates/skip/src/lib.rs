//! What tests leave out: each skip is said on standard error and, where `PLIMSOLL_SKIPS` names a file, noted there as one
//! line `EXTENT CRATE PROGRAM TEST REASON`, separated by tabs. `crates/suite` counts them, and refuses those of which
//! `scripts/skips-allowed` does not know.
//!
//! A tool is looked for by [`tool`] and nothing else, so that its package is known: see [`package`].
#![forbid(unsafe_code)]

pub mod disk;
pub mod package;

use std::env;
use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{
    DumpableBehavior, Gid, Uid, geteuid, getpriority_process, set_dumpable_behavior, setpriority_process,
};
use rustix::thread::{
    CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity, set_thread_groups, set_thread_res_gid,
    set_thread_res_uid,
};

/// Environment variable that names the file in which skips are noted.
pub const FILE: &str = "PLIMSOLL_SKIPS";

/// The time after which a test takes what it waits for to hang, however loaded the machine is.
pub const LIMIT: Duration = Duration::from_secs(600);

/// Notes that the whole test is left out; the caller returns after it.
pub fn test(reason: impl Display) {
    record("test", &reason.to_string());
}

/// Notes that a part of the test is left out; the rest of it runs.
pub fn part(reason: impl Display) {
    record("part", &reason.to_string());
}

/// Writes an executable file of this text. A child writes it: a concurrent fork would inherit a descriptor that this process
/// has open for writing, and `exec` would then fail with 'Text file busy'.
pub fn program(path: &Path, text: &str) {
    write_by("cat > \"$0\" && chmod 755 \"$0\"", path, text);
}

/// Copies the program `of` to `path`.
pub fn copy_program(of: &Path, path: &Path) {
    write_by("read -r of; cp \"$of\" \"$0\"", path, &format!("{}\n", of.display()));
}

fn write_by(script: &str, path: &Path, text: &str) {
    let mut shell = Command::new("sh").args(["-c", script]).arg(path).stdin(Stdio::piped()).spawn().unwrap();
    shell.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(shell.wait().unwrap().success(), "{}", path.display());
}

/// The path of a command that `scripts/packages` lists. Where the command is missing, the test is left out.
pub fn tool(name: &str) -> Option<PathBuf> {
    package::command(name).map_err(test).ok()
}

/// The exclusive use of the machine for one test, such as of a job whose processes spin; one test has it at a time, among all
/// programs of this build.
#[derive(Debug)]
pub struct Turn {
    /// The lock file; closing it ends the turn, also where the process is killed.
    _file: File,
    /// The thread's niceness before it was changed.
    was: Option<i32>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(was) = self.was {
            let _ = setpriority_process(None, was);
        }
    }
}

impl Turn {
    /// Raises the priority of the calling thread and of what it starts above all other work, where this user may, for tests that
    /// look at how processes share their cores.
    pub fn before_all(mut self) -> Turn {
        self.was = getpriority_process(None).ok();
        let _ = setpriority_process(None, -10);
        self
    }
}

/// Waits until no other test has a turn.
pub fn turn() -> Turn {
    let beside = env::current_exe().expect("a process has a program").with_file_name("turn");
    let file = OpenOptions::new().create(true).append(true).open(&beside);
    let file = file.unwrap_or_else(|error| panic!("{}: {error}", beside.display()));
    file.lock().unwrap_or_else(|error| panic!("{}: {error}", beside.display()));
    Turn { _file: file, was: None }
}

/// The calling thread, and what it starts, on one core.
#[derive(Debug)]
pub struct OneCore {
    before: CpuSet,
}

impl Drop for OneCore {
    fn drop(&mut self) {
        let _ = sched_setaffinity(None, &self.before);
    }
}

/// Keeps the calling thread, and what it starts, to the core that it is on, for a test that links. The shield of another test
/// takes a core from all threads and gives it back, and lld (of Rust 1.95) ends by a signal where it gets cores while it links.
pub fn one_core() -> OneCore {
    let before = sched_getaffinity(None).expect("a thread has cores");
    // The core may be taken between the two calls.
    let settled = (0..100).any(|_| {
        let mut one = CpuSet::new();
        one.set(sched_getcpu());
        sched_setaffinity(None, &one).is_ok()
    });
    assert!(settled, "a thread may stay where it is");
    OneCore { before }
}

/// Environment variable with the name of the test that a process was started for.
const ALONE: &str = "PLIMSOLL_TEST_ALONE";

/// For a test that counts what its process holds: runs the test once more in a process of its own, fails with it, and returns
/// `false`; in that process, returns `true`.
pub fn alone() -> bool {
    let own = env::current_exe().expect("a process has a program");
    is_again() || {
        passed(again(Command::new(own)));
        false
    }
}

/// Whether this process was started for the calling test.
fn is_again() -> bool {
    env::var(ALONE).is_ok_and(|alone| alone == test_name())
}

/// Runs the calling test once more: `command` is this program, or ends with it.
fn again(mut command: Command) -> Output {
    let test = test_name();
    command.args(["--exact", &test, "--include-ignored", "--nocapture", "--test-threads=2"]).env(ALONE, &test);
    command.stdin(Stdio::null()).output().expect("a program starts again")
}

/// Panics if the test failed in the other process.
fn passed(output: Output) {
    let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

/// Another user of this host: `nobody`.
pub const OTHER_USER: u32 = 65_534;

/// Runs `act` on a thread of [`OTHER_USER`], whose sockets and open files stay that user's. Only root can change users; without
/// root, the test is left out.
pub fn another_user<R: Send>(act: impl FnOnce() -> R + Send) -> Option<R> {
    if !geteuid().is_root() {
        test("needs root, to play another user");
        return None;
    }
    let become_other = || {
        let (user, group) = (Uid::from_raw(OTHER_USER), Gid::from_raw(OTHER_USER));
        set_thread_groups(&[])?;
        set_thread_res_gid(group, group, group)?;
        set_thread_res_uid(user, user, user)?;
        // The kernel makes a process undumpable, which closes its /proc files, when one of its threads changes its user.
        set_dumpable_behavior(DumpableBehavior::Dumpable)
    };
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            become_other().expect("root may be anybody");
            act()
        });
        Some(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

fn record(extent: &str, reason: &str) {
    let reason = one_line(reason);
    let (package, test) = (package_name(), test_name());
    eprintln!("SKIPPED {package}::{test}: {reason}");
    let Some(file) = env::var_os(FILE) else { return };
    let line = format!("{extent}\t{package}\t{}\t{test}\t{reason}\n", program_name());
    // One write in append mode: lines of tests that run at once do not mix.
    let noted = OpenOptions::new().append(true).create(true).open(&file).and_then(|mut to| to.write(line.as_bytes()));
    match noted {
        Ok(length) if length == line.len() => {}
        other => panic!("{FILE}={}: a skip was not noted: {other:?}", file.display()),
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The name of the package, which cargo tells what it runs.
fn package_name() -> String {
    env::var("CARGO_PKG_NAME").unwrap_or_else(|_| program_name())
}

/// The name of the test, after which libtest names its thread. A bench has none: its program's name stands in.
fn test_name() -> String {
    match thread::current().name() {
        Some(name) if name != "main" => name.to_owned(),
        _ => program_name(),
    }
}

/// The program's name without the hash that cargo appends.
fn program_name() -> String {
    let program = env::current_exe().unwrap_or_default();
    let stem = program.file_stem().unwrap_or_default().to_string_lossy();
    match stem.rsplit_once('-') {
        Some((name, hash)) if hash.len() == 16 && hash.chars().all(|c| c.is_ascii_hexdigit()) => name.to_owned(),
        _ => stem.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROLE: &str = "SKIP_TEST_ROLE";

    /// Not a test by itself: leaves out what its environment says, in a process whose skips are noted apart.
    #[test]
    fn play_a_part() {
        match env::var(ROLE).as_deref() {
            Ok("test") => test("first line\n\tsecond"),
            Ok("part") => part(format_args!("{} of {}", 1, 2)),
            _ => {}
        }
    }

    #[test]
    fn a_skip_is_one_line_with_who_and_why() {
        let file = env::temp_dir().join(format!("plimsoll-skips-{}", std::process::id()));
        for role in ["test", "part"] {
            let mut player = Command::new(env::current_exe().unwrap());
            player.args(["--exact", "tests::play_a_part", "--test-threads=2"]);
            let played = player.env(ROLE, role).env(FILE, &file).env("CARGO_PKG_NAME", "its-crate").output().unwrap();
            assert!(played.status.success(), "{played:?}");
        }
        let noted = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        let line = |extent, reason| format!("{extent}\tits-crate\tskip\ttests::play_a_part\t{reason}\n");
        assert_eq!(noted, line("test", "first line second") + &line("part", "1 of 2"));
    }

    #[test]
    fn a_test_runs_alone_and_fails_with_it() {
        if alone() {
            assert!(env::var_os(ROLE).is_none(), "as it is to");
        }
    }

    #[test]
    fn a_failure_alone_is_a_failure() {
        let mut player = Command::new(env::current_exe().unwrap());
        player.args(["--exact", "tests::a_test_runs_alone_and_fails_with_it", "--test-threads=2"]).env(ROLE, "any");
        let said = player.output().unwrap();
        assert!(!said.status.success() && String::from_utf8_lossy(&said.stdout).contains("as it is to"), "{said:?}");
    }

    #[test]
    fn one_core_is_what_children_have_until_its_end() {
        let cores = || String::from_utf8(Command::new("nproc").output().unwrap().stdout).unwrap();
        let before = sched_getaffinity(None).unwrap();
        let one = one_core();
        assert_eq!(cores(), "1\n");
        drop(one);
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }

    #[test]
    fn a_skip_that_cannot_be_noted_fails_the_test() {
        let mut player = Command::new(env::current_exe().unwrap());
        player.args(["--exact", "tests::play_a_part"]).env(ROLE, "test").env(FILE, "/nowhere/at/all");
        assert!(!player.output().unwrap().status.success());
    }

    #[test]
    fn what_is_missing_is_said_with_its_package() {
        assert!(package::command("sh").is_ok());
        let (package, names) = package::providing("chromium-browser").unwrap();
        assert_eq!((package.name, names[0]), ("chromium", "chromium"));
    }
}
