//! `plimsoll campaign submit` on a real Slurm of two nodes, which the test starts and ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use experiment::campaign::results::Results;
use experiment::campaign::store::Store;
use testbed::slurm::Cluster;

/// Six points of two runs each. A run notes that it ended, and where.
const STUDY: &str = r#"
name = "waves of sound"
repetitions = 2
retries = 0
[axes]
n = [1, 2, 3, 4, 5, 6]
[[program]]
name = "wave"
command = ["sh", "-c", "sleep 0.7; echo {n} $SLURMD_NODENAME >> \"$1\"", "sh", "{folder}/ran"]
"#;

/// A study in a folder whose name a script must quote.
struct Study<'a> {
    cluster: &'a Cluster,
    folder: PathBuf,
}

impl<'a> Study<'a> {
    fn new(cluster: &'a Cluster, text: &str) -> Study<'a> {
        let folder = cluster.path().join("50% of 'it'");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("waves.toml"), text).unwrap();
        Study { cluster, folder }
    }

    fn plimsoll(&self, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        command.args(["campaign"]).args(words).current_dir(&self.folder).stdin(Stdio::null());
        // Remains of a lost node are deleted with the folder.
        command.env("XDG_STATE_HOME", &self.folder).env("TMPDIR", &self.folder);
        // A user's variables for other jobs must not matter.
        command.envs([("SQUEUE_STATES", "COMPLETED"), ("SBATCH_ARRAY_INX", "90-99"), ("SBATCH_OUTPUT", "/dev/null")]);
        self.cluster.enter(&mut command).output().unwrap()
    }

    fn submit(&self, words: &[&str]) -> String {
        let output = self.plimsoll(&[&["submit", "waves.toml", "--slurm"], words].concat());
        let (out, said) = texts(&output);
        assert!(output.status.success(), "{out}{said}{}", self.cluster.logs());
        out
    }

    fn chunks(&self) -> PathBuf {
        self.folder.join(".plimsoll/waves.runs.chunks")
    }

    fn ran(&self) -> Vec<String> {
        let text = fs::read_to_string(self.folder.join("ran")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// The array that a chunk was submitted in.
    fn job_of(&self, chunk: u32) -> u32 {
        let record = launch::slurm::record::Record::read(&self.chunks()).unwrap().unwrap();
        record.array_of(chunk).unwrap()
    }

    /// Waits until the runs that ended satisfy `is`.
    fn until(&self, what: &str, is: impl Fn(&[String]) -> bool) {
        let until = Instant::now() + skip::LIMIT;
        while !is(&self.ran()) {
            assert!(Instant::now() < until, "{what} is not there: {:?}{}", self.ran(), self.told());
            sleep(Duration::from_millis(100));
        }
    }

    /// Waits until Slurm has no job left.
    fn over(&self) {
        let until = Instant::now() + skip::LIMIT;
        loop {
            let left = self.cluster.said("squeue", &["--noheader", "--array"]);
            if left.is_empty() {
                return;
            }
            assert!(Instant::now() < until, "still there: {left}{}", self.told());
            sleep(Duration::from_millis(100));
        }
    }

    fn results(&self) -> Results {
        let store = self.folder.join(".plimsoll/waves.runs.sqlite");
        Store::read(&store).unwrap_or_else(|fault| panic!("{fault}{}", self.told())).results().unwrap()
    }

    /// The output of the tasks and the daemons.
    fn told(&self) -> String {
        let logs = fs::read_dir(self.chunks()).into_iter().flatten().flatten().map(|entry| entry.path());
        let logs = logs.filter(|path| path.extension().is_some_and(|of| of == "log"));
        let log = |path: PathBuf| format!("--- {}\n{}", path.display(), fs::read_to_string(&path).unwrap_or_default());
        logs.map(log).collect::<String>() + &self.cluster.logs()
    }

    /// Each point has its two runs, unless this machine's clock changed under so many that it gets no more, and no run is there
    /// twice.
    fn assert_whole(&self) -> Results {
        let results = self.results();
        for point in 0..6 {
            let mut rounds: Vec<u32> =
                results.runs.iter().filter(|run| run.point == point).map(|run| run.round).collect();
            let runs = rounds.len();
            rounds.dedup();
            let changed = |why: &str| why.starts_with("clock changed");
            let disturbed = results.failures.iter().filter(|(of, why)| *of == point && changed(why)).count();
            let whole = runs == 2 || runs < 2 && disturbed >= 6;
            assert!(whole && rounds.len() == runs, "point {point}: {results:?}{}", self.told());
        }
        results
    }

    /// Whether nothing is left to do, or no more than what [`Study::assert_whole`] lets pass.
    fn assert_done(&self) {
        let said = self.submit(&["--run-time", "1s"]);
        assert!(said.contains("it has all of them") || self.results().runs.len() < 12, "{said}");
    }
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

fn stores(folder: &Path) -> usize {
    let files = fs::read_dir(folder).unwrap().flatten();
    files.filter(|file| file.path().extension().is_some_and(|of| of == "sqlite")).count()
}

#[test]
fn a_lost_node_costs_no_finished_point() {
    let Some(cluster) = Cluster::start() else { return };
    let study = Study::new(&cluster, STUDY);
    let submitted = study.submit(&["--chunks", "3", "--run-time", "1s"]);
    assert!(submitted.contains("job 1: chunks 0-2") && submitted.contains("joins them into"), "{submitted}");
    println!("{submitted}");
    // In the middle: the second node has finished something, and is to do more.
    study.until("a run on n2", |ran| ran.iter().any(|line| line.ends_with(" n2")));
    cluster.lose_second();
    // Slurm restarts the node's task by itself, after two minutes unless it is told otherwise.
    for task in ["1_0", "1_1", "1_2"] {
        cluster.said("scontrol", &["update", &format!("jobid={task}"), "starttime=now"]);
    }
    let again = study.submit(&["--run-time", "1s"]);
    assert!(again.contains("Nothing is to be submitted"), "{again}{}", study.told());
    study.over();
    let results = study.assert_whole();
    assert_eq!(results.hosts, ["plimsoll-a", "plimsoll-b"], "{}", study.told());
    // A run that was cut short is no result; each that ended is one, unless the machine's clock changed under it.
    assert!(study.ran().len() <= 13 + results.failures.len(), "{:?}\n{results:?}", study.ran());
    assert_eq!(stores(&study.chunks()), 3);
    study.assert_done();
}

#[test]
#[ignore = "make check"]
fn only_what_is_not_finished_is_submitted_again() {
    let Some(cluster) = Cluster::start() else { return };
    let text = STUDY.replace("n = [1, 2, 3, 4, 5, 6]", "n = [1, 2, 3]\nclock = [\"1.4GHz\", \"1.9GHz\"]");
    // What Slurm is asked for a step's clock; a machine without control of its clock does not set it.
    let text = text.replace("{n} $SLURMD", "{n} $SLURM_CPU_FREQ_REQ $SLURMD");
    let study = Study::new(&cluster, &text);
    let dry = study.submit(&["--chunks", "4", "--run-time", "1s", "--dry-run"]);
    for line in ["--array=0-1", "--array=2-3", "--cpu-freq=1400000", "--cpu-freq=1900000", "--exclusive"] {
        assert!(dry.contains(&format!("#SBATCH {line}\n")), "{dry}");
    }
    assert!(!study.chunks().exists() && cluster.said("squeue", &["--noheader"]).is_empty());

    study.submit(&["--chunks", "4", "--run-time", "1s"]);
    study.until("a first run", |ran| !ran.is_empty());
    // As preemption does: told to end, then killed.
    for signal in ["TERM", "KILL"] {
        cluster.said("scancel", &["--full", &format!("--signal={signal}"), "1_0"]);
    }
    let second = study.job_of(3);
    cluster.said("scancel", &[&format!("{second}_3")]);
    study.over();
    let before = study.ran();
    let again = study.submit(&["--run-time", "1s"]);
    let line = |start: &str| again.lines().find(|line| line.starts_with(start)).unwrap_or_default().to_owned();
    // Slurm reports either, depending on whether the second signal comes before the first has ended the task.
    let ended = ["to come: cancelled, on n", "to come: exit status 137, on n"];
    assert!(ended.iter().any(|ended| line("chunk 0: ").contains(ended)), "{again}{}", study.told());
    // Slurm keeps nothing of a task that never began.
    assert!(line("chunk 3: ").contains("2 runs to come: "), "{again}{}", study.told());
    assert!(again.contains("chunk 1: finished") && again.contains("chunk 2: finished"), "{again}{}", study.told());
    assert!(again.contains("chunks 0\n") && again.contains("chunks 3\n"), "{again}{}", study.told());
    study.over();
    let most = 14 + study.assert_whole().failures.len();
    // A run that was cut short may have noted its end before; all others ended once, or met another clock.
    assert!((12..=most).contains(&study.ran().len()) && study.ran().len() > before.len(), "{:?}", study.ran());
    for clock in [" 1400000 n", " 1900000 n"] {
        assert!(study.ran().iter().filter(|line| line.contains(clock)).count() >= 6, "{:?}", study.ran());
    }
    study.assert_done();
}

#[test]
fn what_cannot_be_submitted_is_told_with_a_next_step() {
    let Some(cluster) = Cluster::start() else { return };
    let study = Study::new(&cluster, STUDY);
    let refused = |words: &[&str]| {
        let output = study.plimsoll(&[&["submit", "waves.toml"], words].concat());
        assert!(!output.status.success());
        texts(&output).1
    };
    assert!(refused(&["--pbs"]).contains("job arrays for it are not written"));
    let said = refused(&["--slurm"]);
    assert!(said.contains("nobody knows how long a run takes") && said.contains("--run-time 30s"), "{said}");
    let said = refused(&["--slurm", "--run-time", "1s", "--partition", "closed"]);
    assert!(said.contains("partition closed: it is DOWN. Next: choose another with --partition: short"), "{said}");
    let said = refused(&["--slurm", "--run-time", "10m", "--chunks", "1"]);
    assert!(said.contains("it ends jobs after 01:00:00") && said.contains("--chunks 6"), "{said}");
    let said = refused(&["--slurm", "--run-time", "40m"]);
    assert!(said.contains("one block alone is longer"), "{said}");
    let said = refused(&["--slurm", "--run-time", "1s", "--", "--qos=none", "--account=x,\"y", "--odd"]);
    assert!(said.starts_with("plimsoll: sbatch: "), "{said}");
    let mut bare = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    bare.args(["campaign", "submit", "waves.toml", "--slurm"]).current_dir(&study.folder).env("PATH", &study.folder);
    let output = study.cluster.enter(&mut bare);
    let said = texts(&output.output().unwrap()).1;
    assert!(said.contains("Slurm's sbatch: no folder of PATH has it. Next: run it on a login node"), "{said}");

    // A folder that the nodes do not see as it was written: what it says is another thing there.
    study.submit(&["--run-time", "1s", "--store", "away.sqlite", "--chunks", "1", "--", "--hold"]);
    fs::write(study.folder.join("away.chunks/probe"), "another\n").unwrap();
    cluster.said("scontrol", &["release", "1"]);
    cluster.said("scancel", &["2"]);
    study.over();
    let told = study.submit(&["--run-time", "1s", "--store", "away.sqlite", "--dry-run"]);
    assert!(told.contains("the node does not see the store's folder"), "{told}");
    assert!(study.ran().is_empty());
}
