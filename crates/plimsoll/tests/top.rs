//! `plimsoll top` on a job, one rank of which waits for a message that does not come.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use launch::family::Family;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use testbed::Mpi;

/// Rank 0 sends to nobody as fast as it can, rank 1 waits in MPI_Recv.
const PROGRAM: &str = r#"
#include <mpi.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    int rank, word = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1)
        MPI_Recv(&word, 1, MPI_INT, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (;;) {
        MPI_Send(&word, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD);
        usleep(1000);
    }
}
"#;

struct Job {
    profiler: Child,
    folder: PathBuf,
    _home: TempDir,
}

impl Drop for Job {
    fn drop(&mut self) {
        if let Some(pid) = Pid::from_raw(self.profiler.id() as i32) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let deadline = Instant::now() + skip::LIMIT;
        while Instant::now() < deadline && self.profiler.try_wait().is_ok_and(|status| status.is_none()) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.profiler.kill();
        let _ = self.profiler.wait();
    }
}

/// The job, once both ranks are in their final state.
fn start() -> Option<Job> {
    let home = tempfile::tempdir().unwrap();
    let program = Mpi::system(Family::OpenMpi)?.compile_text(PROGRAM, &home.path().join("hang"));
    let folder = home.path().join("profile");
    let profiler = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["profile", "-o"])
        .arg(&folder)
        .args(["--", "mpirun.openmpi", "-n", "2", "--oversubscribe"])
        .arg(&program)
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut job = Job { profiler, folder, _home: home };
    let deadline = Instant::now() + skip::LIMIT;
    loop {
        assert!(job.profiler.try_wait().unwrap().is_none(), "the job ended before its time");
        assert!(Instant::now() < deadline, "the ranks did not come to where they stay");
        let output = top(&[job.folder.to_str().unwrap(), "--once", "--interval", "0.3"]);
        if text(&output).contains("in MPI_Recv for") {
            return Some(job);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn top(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_plimsoll")).arg("top").args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn who_waits_is_seen_while_the_job_runs_and_after_it() {
    let Some(job) = start() else { return };
    let pid = job.profiler.id().to_string();
    let output = top(&[&pid, "--once", "--interval", "0.5"]);
    let said = text(&output);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("2 ranks") && said.contains("running") && said.contains("MPI_Send"), "{said}");
    let waiter = said.lines().find(|line| line.contains("in MPI_Recv for")).unwrap_or_else(|| panic!("{said}"));
    assert!(waiter.trim_start().starts_with('1'), "{said}");
    assert_eq!(
        waiter.matches("100.0 %").count() + waiter.matches("99.").count(),
        2,
        "all of it in MPI, waiting: {said}"
    );
    assert!(!said.contains('\x1b'), "no codes in a file: {said}");

    on_a_terminal(&job.folder, &["s", "\x1b[B", "\x1b[A", "q"], 0);
    on_a_terminal(&job.folder, &["s", "\x03"], 130);

    let home = tempfile::tempdir().unwrap();
    let copied = home.path().join("profile");
    end(job, &copied);
    let said = text(&top(&[copied.to_str().unwrap(), "--once", "--interval", "0.1"]));
    assert!(said.contains("last state") && said.contains("killed"), "{said}");
}

/// Ends the job after copying its folder, which is deleted with it.
fn end(mut job: Job, copy: &Path) {
    kill_process(Pid::from_raw(job.profiler.id() as i32).unwrap(), Signal::TERM).unwrap();
    let deadline = Instant::now() + skip::LIMIT;
    while job.profiler.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "the profiler did not end");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(Command::new("cp").arg("-a").arg(&job.folder).arg(copy).status().unwrap().success());
}

/// In a pseudo-terminal: keys work, what was there before comes back, and the exit status tells Ctrl-C from q.
fn on_a_terminal(folder: &Path, keystrokes: &[&str], status: i32) {
    let command = format!("{} top '{}' --interval 0.2", env!("CARGO_BIN_EXE_plimsoll"), folder.display());
    let script = match skip::package::command("script") {
        Ok(script) => script,
        Err(why) => return skip::part(why),
    };
    let mut terminal = Command::new(script)
        .args(["-qfec", &format!("stty rows 12 cols 100; {command}; echo ended with $?; stty -a"), "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut keys = terminal.stdin.take().unwrap();
    std::thread::sleep(Duration::from_millis(700));
    for key in keystrokes {
        keys.write_all(key.as_bytes()).unwrap();
        keys.flush().unwrap();
        std::thread::sleep(Duration::from_millis(50));
    }
    let deadline = Instant::now() + skip::LIMIT;
    while terminal.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            let _ = terminal.kill();
            panic!("{keystrokes:?} does not end it");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let said = text(&terminal.wait_with_output().unwrap());
    assert!(said.contains("\x1b[?1049h") && said.contains("\x1b[?1049l"), "{said:?}");
    assert!(
        said.contains("in MPI_Recv") && said.contains("sorted by rank") && said.contains("sorted by wait"),
        "{said:?}"
    );
    let after = said.rsplit("\x1b[?1049l").next().unwrap();
    assert!(after.contains(&format!("ended with {status}\r")), "{after:?}");
    let settings: Vec<&str> = after.split_whitespace().collect();
    assert!(["icanon", "echo", "isig"].iter().all(|setting| settings.contains(setting)), "restored: {after:?}");
}

#[test]
fn what_is_no_job_is_said() {
    let folder = tempfile::tempdir().unwrap();
    for (argument, cause) in [
        (folder.path().to_str().unwrap(), "job.json"),
        ("4294967295", "no plimsoll profile"),
        ("nothing-here", "no folder"),
    ] {
        let output = top(&[argument, "--once"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(cause) && said.contains("Next:"), "{said}");
    }
    assert!(!top(&["--interval", "0"]).status.success());
}
