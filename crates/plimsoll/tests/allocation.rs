//! `--path allocation` and `--hosts nodes`: the other node is served for one bench. What stands for the batch system's launcher here is a script,
//! so that these tests hold what it is called with and what plimsoll does with its answer; Slurm itself is no part of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use launch::agent::Entrance;
use linux::lab::{Host, Lab, Options};
use machine::CoreCapability;
use machine::capability::CapabilityMap;
use rustix::process::{Pid, test_kill_process};
use serde_json::Value;
use tempfile::TempDir;

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
        let script = format!("cd {}\nfor word; do echo \"$word\"; done > called\n{script}", here(&folder));
        let job = Job { folder, batch };
        job.add(launcher, &script);
        job
    }

    /// Adds a command of the batch system.
    fn add(&self, name: &str, script: &str) {
        let path = self.folder.path().join(name);
        skip::program(&path, &format!("#!/bin/sh\n{script}"));
    }

    /// A job of the two hosts of `lab`. Processes on host b take it for another machine, which has another boot.
    fn of_lab(lab: &Lab) -> Job {
        let b = Entrance { address: "plimsoll-b".to_owned(), door: lab.door(Host::B) };
        let script = format!(
            r#"shift 6
node=${{1#--nodelist=}}
shift
for word; do
    words="$words '$(printf %s "$word" | sed "s/'/'\\\\''/g")'"
done
export node words
exec unshare --mount --propagation private sh -c 'mount --bind boot /proc/sys/kernel/random/boot_id &&
    exec {} host-agent --entrance {b} -- "$node" exec "$words"'
"#,
            env!("CARGO_BIN_EXE_plimsoll")
        );
        let mut job = Job::of_slurm("plimsoll-a,plimsoll-b", &script);
        job.batch[2].1 = "plimsoll-a".to_owned();
        job.add("scontrol", &format!("echo NodeAddr={}\n", lab.address(Host::B)));
        fs::write(job.folder.path().join("boot"), "another\n").unwrap();
        job
    }

    fn of_slurm(nodes: &str, then: &str) -> Job {
        let batch = [("SLURM_JOB_ID", "17"), ("SLURM_JOB_NODELIST", nodes), ("SLURMD_NODENAME", "here")];
        Job::of("srun", then, batch.map(|(name, value)| (name, value.to_owned())))
    }

    /// A job of `nodes`, whose `srun` starts commands on this host.
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
        command.env("XDG_STATE_HOME", self.folder.path().join("state"));
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        command
    }

    fn bench(&self, arguments: &[&str]) -> Output {
        let bench = ["bench", "sweep", "--cores", "0,0", "--rounds", "1", "--sizes", "8"];
        self.command(&[&bench, arguments].concat()).output().unwrap()
    }

    fn read(&self, file: &str) -> Option<String> {
        fs::read_to_string(self.folder.path().join(file)).ok()
    }

    /// Waits until what the script started has ended.
    fn assert_ended(&self) {
        let process = Pid::from_raw(self.read("process").unwrap().trim().parse().unwrap()).unwrap();
        let until = Instant::now() + skip::LIMIT;
        while test_kill_process(process).is_ok() && !is_zombie(process) {
            assert!(Instant::now() < until, "what was started on the other node goes on");
            sleep(Duration::from_millis(10));
        }
    }
}

fn here(folder: &TempDir) -> String {
    folder.path().to_str().unwrap().to_owned()
}

/// Whether a process is a zombie: in a namespace whose first process reaps none, killed processes remain as such.
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
fn the_capability_of_all_nodes_is_one_map_and_a_node_without_answer_has_its_reason() {
    let script = "case $7 in *gone) echo 'srun: error: node gone is down' >&2; exit 1;; esac\nshift 7\nexec \"$@\"\n";
    let job = Job::of_slurm("here,localhost,gone", script);
    let machine = |arguments: &[&str]| {
        job.command(&[&["machine", "capability", "--for", "0.2"], arguments].concat()).output().unwrap()
    };
    let output = machine(&["--json"]);
    let (out, said) = texts(&output);
    assert!(output.status.success(), "{said}");
    let map: CapabilityMap = serde_json::from_str(&out).unwrap();
    // The other node is this host too, and reports the same cores.
    let once = map.cores.len() / 2;
    let cores = |of: &[CoreCapability]| of.iter().map(|core| core.core).collect::<Vec<_>>();
    assert!(once > 0 && cores(&map.cores[..once]) == cores(&map.cores[once..]), "{out}");
    assert_eq!((map.silent.len(), map.silent[0].host.as_str()), (1, "gone"));
    assert!(map.silent[0].reason.contains("node gone is down"), "{}", map.silent[0].reason);
    let (page, _) = texts(&machine(&["--nodes", "gone,here"]));
    assert!(page.lines().any(|line| line.starts_with("gone  not looked at: ") && line.contains("is down")), "{page}");

    let refused = texts(&machine(&["--of", "1"])).1;
    assert!(refused.contains("a number is that of a process of one host") && refused.contains("--here"), "{refused}");
    let refused = texts(&machine(&["--nodes", "other"])).1;
    assert!(refused.contains("it is no node of Slurm job 17"), "{refused}");
    let alone: CapabilityMap = serde_json::from_str(&texts(&machine(&["--json", "--here"])).0).unwrap();
    assert_eq!((alone.cores.len(), alone.silent.len()), (once, 0));
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
    let until = Instant::now() + skip::LIMIT;
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
    let outside = Job::of("srun", "", none);
    let (_, ranks) = texts(&outside.command(&["bench", "mpi", "--hosts", "nodes"]).output().unwrap());
    let said = refused(outside, &["--path", "allocation"]);
    for said in [said, ranks] {
        assert!(said.contains("in no job of Slurm or PBS. Next: ask for two nodes"), "{said}");
    }
}

/// Whether ranks can be started here on two cores.
fn has_mpi() -> bool {
    if skip::tool("mpirun.openmpi").is_none() || skip::tool("mpicc.openmpi").is_none() {
        return false;
    }
    let enough = linux::affinity::allowed().unwrap().len() > 1;
    if !enough {
        skip::test("one core only");
    }
    enough
}

const RANKS: [&str; 6] = ["bench", "mpi", "--tasks", "latency:8", "--rounds", "1"];

#[test]
#[ignore = "make check"]
fn ranks_are_on_both_nodes_and_both_count_their_cores() {
    if !rustix::process::geteuid().is_root() {
        return skip::test("a lab needs root");
    }
    if !has_mpi() {
        return;
    }
    let lab = Lab::owned(&Options::default()).unwrap();
    let job = Job::of_lab(&lab);
    let core = linux::affinity::allowed().unwrap()[0].0;
    let cores = format!("{core},{core}");
    let mut bench = job.command(&[&RANKS[..], &["--json", "--hosts", "nodes", "--cores", &cores]].concat());
    let output = lab.enter(Host::A, &mut bench).unwrap().output().unwrap();
    let (out, said) = texts(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("Between plimsoll-a and plimsoll-b of Slurm job 17."), "{said}");
    let found: Value = serde_json::from_str(&out).unwrap();
    let notes = found["findings"]["notes"].as_array().unwrap();
    assert!(
        notes.iter().any(|note| note == "two nodes, plimsoll-a and plimsoll-b of Slurm job 17, over lab0"),
        "{out}"
    );
    let measured = found["findings"]["measured"].as_array().unwrap();
    let block = |contender: &str| {
        let of = |found: &&Value| found["contender"].as_str().unwrap().starts_with(contender);
        let found = measured.iter().find(of).unwrap_or_else(|| panic!("no {contender}: {out}"));
        assert_eq!(found["seats"]["hosts"], "nodes");
        found["blocks"].get(0).unwrap_or_else(|| panic!("{contender} was not measured: {}", found["failures"]))
    };
    for contender in ["plimsoll at app, udp", "plimsoll at core:", "tcp"] {
        let block = block(contender);
        let outcome = &block["outcomes"][0];
        assert!(outcome["value"].as_f64().unwrap() > 0.0, "{contender}: {outcome}");
        for counted in [&outcome["cores"], &outcome["remote_cores"]["measured"]] {
            assert!(!counted.as_array().unwrap().is_empty(), "{contender}: {outcome}");
        }
        if contender != "tcp" {
            let endpoints = block["reports"]["endpoints"].as_array().unwrap();
            let mut of = endpoints
                .iter()
                .map(|of| (of["rank"].as_u64().unwrap(), of["host"].as_str().unwrap()))
                .collect::<Vec<_>>();
            of.sort_unstable();
            assert_eq!(of, [(0, "plimsoll-a"), (1, "plimsoll-b")], "{contender}");
        }
    }
    let left = |of: &str| fs::read_dir(job.folder.path().join(of)).unwrap().count();
    assert_eq!(left("state/plimsoll"), 1, "more than the lock is left");
    let until = Instant::now() + skip::LIMIT;
    while lab.status().unwrap().hosts.iter().any(|host| !host.processes.is_empty()) {
        assert!(Instant::now() < until, "what ran on the nodes goes on: {:?}", lab.status());
        sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_folder_that_the_other_node_does_not_see_is_told() {
    if !has_mpi() {
        return;
    }
    let job = Job::of_slurm("here,localhost", "shift 7\n[ \"$1\" != test ] || exit 1\nexec \"$@\"\n");
    let (_, said) = texts(&job.command(&[&RANKS[..], &["--hosts", "nodes"]].concat()).output().unwrap());
    assert!(said.contains("state/plimsoll: it is not seen on localhost. Next: set XDG_STATE_HOME"), "{said}");
}

#[test]
#[ignore = "make check"]
fn an_mpi_of_one_host_does_not_spread_over_the_nodes() {
    if !has_mpi() {
        return;
    }
    let job = Job::starting("here,localhost");
    let mut bench = job.command(&[&RANKS[..], &["--hosts", "one"]].concat());
    // Variables by which Open MPI recognises a job.
    bench.envs([("SLURM_JOBID", "17"), ("SLURM_NODELIST", "here,localhost"), ("SLURM_TASKS_PER_NODE", "1(x2)")]);
    let (out, said) = texts(&bench.output().unwrap());
    let measured = out.lines().any(|line| line.trim_start().starts_with("vader") && !line.contains("not measured"));
    assert!(measured && job.read("called").is_none(), "{out}{said}");
}

#[test]
fn a_job_that_is_over_is_passed_over_and_one_with_more_time_is_not() {
    let job = Job::of_slurm("here,localhost", "exit 9\n");
    let said = |job: &Job| {
        let mut command = job.command(&["machine", "capability", "--for", "0.1"]);
        let output = command.env("SLURM_JOB_END_TIME", "1000").output().unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    let errors = said(&job);
    assert!(errors.contains("Slurm job 17 ended") && errors.contains("Next: unset SLURM_JOB_ID"), "{errors}");
    assert_eq!(job.read("called"), None, "a node of it was asked for");
    job.add("squeue", "echo RUNNING\n");
    let errors = said(&job);
    assert!(!errors.contains("job 17 ended") && job.read("called").is_some(), "{errors}");
}
