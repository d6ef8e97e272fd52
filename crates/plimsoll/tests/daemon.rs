//! `plimsoll daemon` beside real processes: however the daemon ends, moved processes get their masks back.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use daemon::jobs::{Job, Name};
use daemon::process::{self, Environment};
use daemon::{Daemon, Settings, Shown, What, mover};
use launch::family::Family;
use linux::{affinity, mask};
use machine::{CoreId, CpuSet};
use mapping::decision::{self, Action, Process};
use rustix::process::{Pid, Signal, kill_process};
use testbed::applications::{self, MELT, installed};
use testbed::{Mpi, Place};

/// The number of daemons that are killed; `PLIMSOLL_KILLS` overrides it.
const KILLS: u64 = 200;
/// The number of moves during LAMMPS.
const MOVES: usize = 1000;

/// Environment variable that marks this test's own processes.
const MARK: &str = "PLIMSOLL_TEST_RANK";

fn plimsoll(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// A process that ends with its test.
struct Owned(Child);

impl Drop for Owned {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Not a test: the process of a rank, with several threads, one of which works for some of the time.
#[test]
fn a_rank() {
    let Ok(busy) = std::env::var(MARK) else { return };
    let busy = Duration::from_millis(busy.parse().unwrap());
    for _ in 0..3 {
        std::thread::spawn(|| std::thread::sleep(Duration::from_secs(3600)));
    }
    std::thread::spawn(move || {
        loop {
            let until = Instant::now() + busy;
            while Instant::now() < until {
                std::hint::spin_loop();
            }
            std::thread::sleep(Duration::from_millis(10).saturating_sub(busy));
        }
    });
    // Ends when its parent closes the pipe.
    let _ = std::io::stdin().read(&mut [0]);
    std::process::exit(0);
}

/// A rank on `core` that works for `busy` of every ten milliseconds.
fn rank(job: &str, rank: u32, core: CoreId, busy: u32) -> Owned {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "daemon::a_rank", "--nocapture"]).env(MARK, busy.to_string());
    if !job.is_empty() {
        command.env("PMIX_NAMESPACE", job).env("OMPI_COMM_WORLD_RANK", rank.to_string());
    }
    affinity::pin_child(&mut command, core).unwrap();
    let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    Owned(child)
}

/// Two cores; with fewer, the test is left out.
fn two_cores() -> Option<(CoreId, CoreId)> {
    match affinity::allowed().unwrap()[..] {
        [a, b, ..] => Some((a, b)),
        _ => {
            skip::test("a daemon needs two cores to move ranks between");
            None
        }
    }
}

/// A job with a burdened core: its rank 0 has work and shares its core, its rank 1 has none.
struct Burdened {
    ranks: [Owned; 2],
    _hog: Owned,
    /// The core without a burden, with the time of the start and the core's idle time by then.
    free: (CoreId, Instant, f64),
    _turn: skip::Turn,
}

fn crowded_out(core: CoreId) {
    skip::test(format!("other work takes core {}, so that no rank has a reason to move there", core.0));
}

/// Whether other work takes a part of the core while nothing of the test runs there, so that no move would help; then the test is
/// left out.
pub fn is_taken(core: CoreId) -> bool {
    let (begun, before) = (Instant::now(), idled(core));
    std::thread::sleep(Duration::from_secs(1));
    let taken = idled(core) - before < 0.8 * begun.elapsed().as_secs_f64();
    if taken {
        crowded_out(core);
    }
    taken
}

/// Idle time of a core, s.
fn idled(core: CoreId) -> f64 {
    let text = fs::read_to_string("/proc/stat").unwrap();
    let name = format!("cpu{} ", core.0);
    let fields = text.lines().find(|line| line.starts_with(&name)).unwrap().split_whitespace();
    fields.skip(4).take(2).map(|ticks| ticks.parse::<f64>().unwrap()).sum::<f64>() / 100.0
}

impl Burdened {
    fn start(name: &str) -> Option<Burdened> {
        let (one, two) = two_cores()?;
        let job = format!("{name}-{}", std::process::id());
        let turn = skip::turn().before_all();
        let ranks = [rank(&job, 0, one, 1), rank(&job, 1, two, 0)];
        let burdened =
            Burdened { _hog: rank("", 0, one, 10), ranks, free: (two, Instant::now(), idled(two)), _turn: turn };
        // Waits until all threads of the ranks exist.
        let deadline = Instant::now() + skip::LIMIT;
        while burdened.processes().iter().any(|process| process::threads(*process).len() < 6) {
            assert!(Instant::now() < deadline, "the ranks do not start");
            std::thread::sleep(Duration::from_millis(5));
        }
        Some(burdened)
    }

    fn processes(&self) -> [Process; 2] {
        self.ranks.each_ref().map(|rank| process::identify(rank.0.id()).unwrap())
    }

    /// Whether other work has taken the core that should be free, so that no move would help; then the test is left out.
    fn is_crowded(&self) -> bool {
        let (core, begun, before) = self.free;
        let passed = begun.elapsed().as_secs_f64();
        let crowded = passed > 10.0 && idled(core) - before < passed / 5.0;
        if crowded {
            crowded_out(core);
        }
        crowded
    }

    fn masks(&self) -> BTreeMap<i32, CpuSet> {
        self.processes().into_iter().flat_map(masks).collect()
    }

    /// The job's name for the daemon's option.
    fn word(&self) -> String {
        self.ranks[0].0.id().to_string()
    }
}

fn masks(process: Process) -> BTreeMap<i32, CpuSet> {
    process::threads(process).into_iter().filter_map(|thread| Some((thread, mask::get(thread).ok()?))).collect()
}

/// Options that make a daemon decide at once, as often as possible.
const HASTY: [&str; 8] = ["--window", "0.05", "--steady", "1", "--least-gain", "0", "--moves-an-hour", "100000"];

fn decisions(state: &Path) -> Vec<What> {
    Shown::read(state, usize::MAX).unwrap().decisions.into_iter().map(|decision| decision.what).collect()
}

#[test]
#[ignore = "make check"]
fn a_killed_daemon_leaves_nothing_that_a_start_does_not_put_back() {
    let Some(job) = Burdened::start("killed") else { return };
    let home = tempfile::tempdir().unwrap();
    let state = home.path().join("state");
    let (state_word, word, before) = (state.to_str().unwrap(), job.word(), job.masks());
    let kills = std::env::var("PLIMSOLL_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    let mut left = 0;
    for nth in 0..kills {
        let arguments = [&["daemon", &word, "--state", state_word][..], &HASTY].concat();
        let mut daemon = plimsoll(&arguments).stderr(Stdio::null()).spawn().unwrap();
        // From before the first window until after several moves; sometimes as soon as a rank was moved.
        std::thread::sleep(Duration::from_millis(20 + nth * 37 % 150));
        let deadline = Instant::now() + skip::LIMIT;
        while nth % 50 == 0 && job.masks() == before {
            if job.is_crowded() {
                let _ = daemon.kill();
                let _ = daemon.wait();
                return;
            }
            assert!(Instant::now() < deadline, "it moves nobody: {:?}", decisions(&state));
            std::thread::sleep(Duration::from_millis(1));
        }
        daemon.kill().unwrap();
        assert!(!daemon.wait().unwrap().success());
        left += usize::from(job.masks() != before);
        // The first step of every start, without a process of its own.
        drop(Daemon::start(&state, idle(), |_| {}).unwrap());
        assert_eq!(job.masks(), before, "after kill {nth}");
    }
    assert!(left > 0, "no daemon was killed while it had ranks elsewhere");
    println!("{kills} daemons were killed, {left} of them while ranks were elsewhere");
}

/// Settings of a daemon that watches no job.
fn idle() -> Settings {
    Settings {
        window: Duration::from_secs(1),
        dry_run: true,
        only: Some(Job { user: 0, name: Name::Launcher("none".into()) }),
        record: None,
        metrics: None,
        deciding: decision::Settings::default(),
    }
}

#[test]
fn a_daemon_that_ends_puts_back_what_it_moved() {
    let Some(job) = Burdened::start("ended") else { return };
    let home = tempfile::tempdir().unwrap();
    let (state, before, word) = (home.path().join("state"), job.masks(), job.word());
    for signal in [Signal::TERM, Signal::INT] {
        let arguments = [&["daemon", &word, "--state", state.to_str().unwrap()][..], &HASTY].concat();
        let mut daemon = plimsoll(&arguments).stderr(Stdio::null()).spawn().unwrap();
        let deadline = Instant::now() + skip::LIMIT;
        while job.masks() == before {
            if job.is_crowded() {
                let _ = daemon.kill();
                let _ = daemon.wait();
                return;
            }
            assert!(Instant::now() < deadline, "it moves nobody: {:?}", decisions(&state));
            std::thread::sleep(Duration::from_millis(1));
        }
        let refused = plimsoll(&["daemon", "--state", state.to_str().unwrap(), "--for", "1"]).output().unwrap();
        let holder = format!("process {} (plimsoll) has it", daemon.id());
        assert!(!refused.status.success() && errors(&refused).contains(&holder), "{refused:?}");
        kill_process(Pid::from_child(&daemon), signal).unwrap();
        let code = daemon.wait().unwrap().code();
        assert_eq!(code, Some(if signal == Signal::TERM { 0 } else { 130 }));
        assert_eq!(job.masks(), before);
    }
    // Beside other work it may have judged its moves, and taken them back, before it was told to end.
    let is_back = |what: &What| matches!(what, What::Restored(_) | What::Decided(Action::Undo { .. }));
    assert!(decisions(&state).iter().any(is_back), "{:?}", decisions(&state));
    assert_eq!(status(&state, &[]).status.code(), Some(3), "none runs");
}

#[test]
#[ignore = "make check"]
fn a_dry_run_and_a_program_that_pins_itself_move_nobody() {
    let Some(job) = Burdened::start("dry") else { return };
    let home = tempfile::tempdir().unwrap();
    let (state, before) = (home.path().join("state"), job.masks());
    let run = |more: &[&str]| {
        let words = ["daemon", &job.word(), "--for", "2", "--state", state.to_str().unwrap()];
        let output = plimsoll(&[&words[..], &HASTY, more].concat()).output().unwrap();
        assert!(output.status.success(), "{}", errors(&output));
        errors(&output)
    };
    let deadline = Instant::now() + skip::LIMIT;
    // On an evenly busy machine it may take a while until there is a reason for a move.
    while !run(&["--dry-run"]).contains("this is a dry run") {
        if job.is_crowded() {
            return;
        }
        assert!(Instant::now() < deadline, "it decides to move nobody");
    }
    assert_eq!(job.masks(), before);

    // One thread of each rank gets another mask.
    let all: CpuSet = affinity::allowed().unwrap().into_iter().collect();
    for process in job.processes() {
        mask::set(*process::threads(process).last().unwrap(), &all).unwrap();
    }
    let before = job.masks();
    let said = run(&[]);
    assert_eq!(said.matches("pinned its threads each for itself").count(), 2, "{said}");
    assert_eq!(job.masks(), before);
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn where_no_daemon_ever_ran_the_status_is_that_none_runs() {
    let place = tempfile::tempdir().unwrap();
    let never = place.path().join("never");
    let output = status(&never, &[]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("does not run") && text.contains("never") && text.contains("--state"), "{text}");
    let output = status(&never, &["--json"]);
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &shown["running"]), (Some(3), &serde_json::Value::Bool(false)));
}

fn status(state: &Path, more: &[&str]) -> Output {
    plimsoll(&["daemon", "status", "--state", state.to_str().unwrap()]).args(more).output().unwrap()
}

/// Rank 0 computes three times as long as rank 1, which waits for it.
const PROGRAM: &str = r#"
#include <mpi.h>
int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (;;) {
        double until = MPI_Wtime() + (rank == 0 ? 3e-3 : 1e-3);
        while (MPI_Wtime() < until)
            ;
        MPI_Barrier(MPI_COMM_WORLD);
    }
}
"#;

#[test]
#[ignore = "make check"]
fn a_profiled_job_is_watched_told_of_and_left_as_it_was() {
    let Some(mpi) = Mpi::system(Family::OpenMpi) else { return };
    let Some((one, _)) = two_cores() else { return };
    let _turn = skip::turn().before_all();
    let home = tempfile::tempdir().unwrap();
    let program = mpi.compile_text(PROGRAM, &home.path().join("unequal"));
    let path = |name: &str| home.path().join(name);
    let (folder, state, metrics, record) = (path("profile"), path("state"), path("metrics"), path("record"));
    let mut profiler = plimsoll(&["profile", "-o", folder.to_str().unwrap(), "--"]);
    profiler.args(mpi.words(2, &program)).envs(mpi.environment()).env("OMPI_MCA_hwloc_base_binding_policy", "core");
    let profiler = profiler.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let _profiler = Ended(profiler);
    let _hog = rank("", 0, one, 10);
    let ranks = ranks_of(&folder);
    let before: Vec<_> = ranks.iter().map(|process| masks(*process)).collect();

    let name = |path: &Path| path.to_str().unwrap().to_owned();
    let (folder_word, metrics_word, record_word) = (name(&folder), name(&metrics), name(&record));
    let words = ["daemon", &folder_word, "--for", "8", "--window", "0.25", "--steady", "2", "--state"];
    let more = ["--metrics", &metrics_word, "--record", &record_word];
    let daemon =
        plimsoll(&[&words[..], &[state.to_str().unwrap()], &more].concat()).stderr(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + skip::LIMIT;
    let shown = loop {
        assert!(Instant::now() < deadline, "the daemon does not see the ranks");
        std::thread::sleep(Duration::from_millis(50));
        let output = status(&state, &["--json"]);
        let Ok(shown) = serde_json::from_slice::<serde_json::Value>(&output.stdout) else { continue };
        let of_job = shown["status"]["jobs"][0]["ranks"].as_array().cloned().unwrap_or_default();
        if shown["running"] == true && of_job.len() == 2 && of_job.iter().all(|rank| rank["mpi"].is_number()) {
            break shown;
        }
    };
    assert_eq!(shown["status"]["jobs"][0]["sees"], "its profile");
    let text = String::from_utf8(status(&state, &[]).stdout).unwrap();
    assert!(text.contains("plimsoll daemon runs") && text.contains("seen by its profile"), "{text}");

    let output = daemon.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    let decided = decisions(&state);
    let is_move_or_keep = |what: &What| matches!(what, What::Decided(Action::Move { .. } | Action::Keep { .. }));
    assert!(decided.iter().any(is_move_or_keep), "{}", errors(&output));
    let after: Vec<_> = ranks.iter().map(|process| masks(*process)).collect();
    assert_eq!(after, before, "{}", errors(&output));
    let metrics = fs::read_to_string(metrics).unwrap();
    assert!(
        metrics.contains("\nplimsoll_daemon_windows_total ") && metrics.contains("\nplimsoll_rank_mpi_ratio{"),
        "{metrics}"
    );
    let record = fs::read_to_string(record).unwrap();
    let windows: Vec<decision::Observation> = record.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(windows.len() > 4 && windows.last().unwrap().ranks.len() == 2, "{record}");
}

/// A `plimsoll profile` that is asked to end when dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let deadline = Instant::now() + skip::LIMIT;
        while Instant::now() < deadline && self.0.try_wait().is_ok_and(|status| status.is_none()) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The processes of two ranks that write this profile, once they have left MPI_Init.
fn ranks_of(folder: &Path) -> Vec<Process> {
    let is_there = |pid: u32| {
        let environment = Environment::of(pid)?;
        let is_its = environment.get(record::folder::variable::FOLDER).map(PathBuf::from) == Some(folder.into());
        (is_its && environment.get("OMPI_COMM_WORLD_RANK").is_some()).then(|| process::identify(pid)).flatten()
    };
    let deadline = Instant::now() + skip::LIMIT;
    loop {
        let ranks: Vec<Process> = process::all().filter_map(is_there).collect();
        let files = fs::read_dir(folder.join(record::folder::RANKS)).into_iter().flatten().count();
        if ranks.len() == 2 && files >= 2 {
            // The threads that MPI_Init starts exist by then.
            std::thread::sleep(Duration::from_secs(1));
            return ranks;
        }
        assert!(Instant::now() < deadline, "the ranks do not start");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The memory limit holds the budget of profiles, as much again for reads in progress, and the rest.
#[test]
fn the_daemons_units_bound_its_memory() {
    for name in ["plimsoll-daemon", "plimsoll-daemon-user"] {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../scripts/systemd/{name}.service"));
        let text = fs::read_to_string(source).unwrap();
        let most = text.lines().find_map(|line| line.strip_prefix("MemoryMax=")?.strip_suffix('G')).unwrap();
        let kept = machine::bounds::WATCHED_PROFILES.total.bytes().0;
        assert_eq!(most.parse::<u64>().unwrap() << 30, 2 * kept, "{name}");
    }
}

#[test]
fn systemd_takes_the_units() {
    let Some(analyze) = skip::tool("systemd-analyze") else { return };
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join("bin")).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_plimsoll"), home.path().join("bin/plimsoll")).unwrap();
    for (name, scope) in
        [("plimsoll-daemon", "--system"), ("plimsoll-daemon-user", "--user"), ("plimsoll-agent", "--system")]
    {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../scripts/systemd/{name}.service"));
        let unit = home.path().join(format!("{name}.service"));
        let text = fs::read_to_string(source).unwrap().replace("@PREFIX@", home.path().to_str().unwrap());
        fs::write(&unit, text).unwrap();
        let mut verify = Command::new(&analyze);
        verify.args([scope, "--man=no", "verify"]).arg(&unit).env("XDG_RUNTIME_DIR", home.path());
        let output = verify.output().unwrap();
        // systemd-analyze also complains about other units of this host.
        let ours: Vec<String> = errors(&output).lines().filter(|line| line.contains(name)).map(str::to_owned).collect();
        assert!(ours.is_empty(), "{ours:#?}");
    }
}

#[test]
#[ignore = "make check"]
fn moves_during_lammps_leave_its_results_as_they_are() {
    let Some((mpi, lmp)) = installed("lmp") else { return };
    let Some(_) = two_cores() else { return };
    let place = Place::new();
    let input = MELT.replace("run 200", "run 1000");
    let arguments = applications::lammps(&place, &input);
    let mark = format!("lammps-{}", std::process::id());
    let run = || {
        let out = place.path().join("out");
        let words = mpi.words(2, &lmp);
        let mut command = place.command(&words[0]);
        command.args(&words[1..]).args(&arguments).envs(mpi.environment()).env("OMP_NUM_THREADS", "1");
        command.env(MARK, &mark).stdin(Stdio::null()).stdout(File::create(&out).unwrap());
        (Owned(command.spawn().unwrap()), out)
    };
    let figures = |out: &Path| -> Vec<String> {
        let text = fs::read_to_string(out).unwrap();
        let is_row = |line: &&str| {
            line.split_whitespace().count() > 4 && line.split_whitespace().all(|word| word.parse::<f64>().is_ok())
        };
        // The last column of none is a time: LAMMPS prints those elsewhere.
        text.lines().filter(is_row).map(str::to_owned).collect()
    };
    let (mut alone, out) = run();
    assert!(alone.0.wait().unwrap().success());
    let expected = figures(&out);
    assert!(expected.len() > 40, "{expected:?}");

    let cores = affinity::allowed().unwrap();
    let choices: Vec<CpuSet> =
        cores.iter().map(|core| [*core].into_iter().collect()).chain([cores.iter().copied().collect()]).collect();
    let (mut moved, mut seed) = (0, 1_u64);
    let deadline = Instant::now() + 5 * skip::LIMIT;
    while moved < MOVES {
        let (mut running, out) = run();
        while running.0.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "{moved} moves");
            let is_ours = |pid: &u32| {
                let environment = Environment::of(*pid);
                environment.is_some_and(|of| {
                    of.get(MARK).as_deref() == Some(&mark) && of.get("OMPI_COMM_WORLD_RANK").is_some()
                })
            };
            let ranks: Vec<Process> = process::all().filter(is_ours).filter_map(process::identify).collect();
            for _ in 0..50 {
                for rank in &ranks {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let to = &choices[(seed >> 33) as usize % choices.len()];
                    // The rank may have ended, or be creating threads.
                    if let Ok(Some(from)) = mover::seat(*rank) {
                        moved += usize::from(mover::settle(*rank, &from, to).is_ok());
                    }
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        assert!(running.0.wait().unwrap().success());
        assert_eq!(figures(&out), expected, "after {moved} moves");
    }
}
