//! `--path allocation`: the other node is served for one bench. What stands for the batch system's launcher here is a script,
//! so that these tests hold what it is called with and what plimsoll does with its answer; Slurm itself is no part of them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, test_kill_process};
use tempfile::TempDir;

const SOON: Duration = Duration::from_secs(60);

/// A job of two nodes, this one and `localhost`.
struct Job {
    folder: TempDir,
    batch: [(&'static str, String); 3],
}

const SLURM: [&str; 7] =
    ["--nodes=1", "--ntasks=1", "--overlap", "--cpu-bind=none", "--mpi=none", "--input=none", "--nodelist=localhost"];

impl Job {
    fn of(launcher: &str, script: &str, batch: [(&'static str, String); 3]) -> Job {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(launcher);
        let script = format!("#!/bin/sh\ncd {}\nfor word; do echo \"$word\"; done > called\n{script}", here(&folder));
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        Job { folder, batch }
    }

    fn of_slurm(nodes: &str, then: &str) -> Job {
        let batch = [("SLURM_JOB_ID", "17"), ("SLURM_JOB_NODELIST", nodes), ("SLURMD_NODENAME", "here")];
        Job::of("srun", then, batch.map(|(name, value)| (name, value.to_owned())))
    }

    /// Node `host` is where the script starts what it is told.
    fn starting(nodes: &str) -> Job {
        Job::of_slurm(nodes, "shift 7\necho $$ > process\nexec \"$@\"\n")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        for name in ["SLURM_JOB_ID", "SLURM_JOB_END_TIME", "PBS_JOBID"] {
            command.env_remove(name);
        }
        let path = format!("{}:{}", here(&self.folder), std::env::var("PATH").unwrap());
        command.args(arguments).envs(self.batch.clone()).env("PATH", path);
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        command
    }

    fn bench(&self, arguments: &[&str]) -> Output {
        let bench = ["bench", "--cores", "0,0", "--rounds", "1", "--sizes", "8"];
        self.command(&[&bench, arguments].concat()).output().unwrap()
    }

    fn read(&self, file: &str) -> Option<String> {
        fs::read_to_string(self.folder.path().join(file)).ok()
    }

    /// Waits for the end of what the script started.
    fn assert_ended(&self) {
        let process = Pid::from_raw(self.read("process").unwrap().trim().parse().unwrap()).unwrap();
        let until = Instant::now() + SOON;
        while test_kill_process(process).is_ok() && !is_zombie(process) {
            assert!(Instant::now() < until, "what was started on the other node goes on");
            sleep(Duration::from_millis(10));
        }
    }
}

fn here(folder: &TempDir) -> String {
    folder.path().to_str().unwrap().to_owned()
}

/// Nobody waits for what a killed process leaves, where the first process of the namespace does not.
fn is_zombie(process: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).unwrap_or_default();
    status.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z'))
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

fn ended(child: &mut Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_bench_is_between_this_node_and_the_next_and_ends_what_it_started() {
    let job = Job::starting("localhost,here");
    let output = job.bench(&[]);
    let (out, said) = texts(&output);
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("Between here and localhost of Slurm job 17.") && out.contains("remote localhost"),
        "{said}{out}"
    );
    let called = job.read("called").unwrap();
    let called: Vec<&str> = called.lines().collect();
    assert_eq!(called[..7], SLURM);
    assert_eq!(Path::new(called[7]), Path::new(env!("CARGO_BIN_EXE_plimsoll")));
    assert_eq!((called[8], called[9], called[11]), ("serve", "--listen", "--owner"));
    job.assert_ended();
}

#[test]
fn a_job_of_pbs_is_found_too() {
    let nodes = tempfile::NamedTempFile::new().unwrap();
    let name = rustix::system::uname().nodename().to_str().unwrap().to_owned();
    fs::write(nodes.path(), format!("localhost\n{name}\nlocalhost\n{name}\n")).unwrap();
    let file = nodes.path().to_str().unwrap().to_owned();
    let batch = [("PBS_JOBID", "7.server".to_owned()), ("PBS_NODEFILE", file), ("PBS_ENVIRONMENT", String::new())];
    let job = Job::of("pbs_tmrsh", "shift\necho $$ > process\nexec \"$@\"\n", batch);
    let (out, said) = texts(&job.bench(&[]));
    assert!(said.contains(&format!("Between {name} and localhost of PBS job 7.server.")), "{said}{out}");
    assert_eq!(job.read("called").unwrap().lines().next(), Some("localhost"));
    job.assert_ended();
}

#[test]
fn what_was_started_ends_with_a_study_that_is_killed() {
    let job = Job::starting("here,localhost");
    let mut study = job.command(&["study", "--budget", "60"]).stderr(Stdio::null()).spawn().unwrap();
    let until = Instant::now() + SOON;
    let blocks: PathBuf = job.folder.path().join(".plimsoll/study.sqlite");
    while !blocks.exists() {
        assert!(Instant::now() < until, "the study does not begin");
        sleep(Duration::from_millis(10));
    }
    ended(&mut study);
    job.assert_ended();
}

#[test]
fn a_named_path_goes_before_and_a_stack_of_one_host_stays_on_it() {
    let job = Job::starting("here,localhost");
    for arguments in [["--path", "loopback"], ["--stack", "engine-shm"]] {
        let (out, said) = texts(&job.bench(&arguments));
        assert!(out.contains("path loopback"), "{said}{out}");
    }
    let (out, said) = texts(&Job::starting("here").bench(&[]));
    assert!(out.contains("path loopback"), "{said}{out}");
    assert_eq!(job.read("called"), None);
}

#[test]
fn what_keeps_the_second_node_away_is_told() {
    let refused = |job: Job, arguments: &[&str]| {
        let output = job.bench(arguments);
        assert!(!output.status.success());
        texts(&output).1
    };
    let said = refused(Job::of_slurm("here,localhost", "echo 'srun: error: no' >&2\nexit 3\n"), &[]);
    assert!(
        said.contains("plimsoll serve on localhost: ") && said.contains("ended with exit status: 3: srun: error: no"),
        "{said}"
    );
    assert!(said.contains("or choose --path lab or loopback"), "{said}");
    let said = refused(Job::starting("one,other"), &[]);
    assert!(said.contains("this host, here, is none of its nodes one,other"), "{said}");
    let said = refused(Job::starting("here"), &["--path", "allocation"]);
    assert!(said.contains("Slurm job 17: its nodes are 'here'"), "{said}");
    let none = [("A", ""), ("B", ""), ("C", "")].map(|(name, value)| (name, value.to_owned()));
    let said = refused(Job::of("srun", "", none), &["--path", "allocation"]);
    assert!(said.contains("in no job of Slurm or PBS. Next: ask for two nodes"), "{said}");
}

#[test]
fn an_mpi_of_one_host_does_not_spread_over_the_nodes() {
    if skip::tool("mpirun.openmpi").is_none() || skip::tool("mpicc.openmpi").is_none() {
        return;
    }
    if linux::affinity::allowed().unwrap().len() < 2 {
        return skip::test("one core only");
    }
    let job = Job::starting("here,localhost");
    let mut bench = job.command(&["bench", "--mpi", "--hosts", "one", "--tasks", "latency:8", "--rounds", "1"]);
    // What Open MPI reads of a job.
    bench.envs([("SLURM_JOBID", "17"), ("SLURM_NODELIST", "here,localhost"), ("SLURM_TASKS_PER_NODE", "1(x2)")]);
    let (out, said) = texts(&bench.output().unwrap());
    let measured = out.lines().any(|line| line.trim_start().starts_with("vader") && !line.contains("not measured"));
    assert!(measured && job.read("called").is_none(), "{out}{said}");
}
