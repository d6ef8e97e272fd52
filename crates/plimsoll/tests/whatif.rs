//! `plimsoll whatif` on programs of Open MPI, recorded and replayed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use launch::family::Family;
use machine::costs::{ENGINE, Interval, Item, Row, Way, store};
use machine::{Bytes, Nanoseconds, Reading, SiteKind};
use profile::summary::{SiteSummary, Summary};
use record::folder::{RANK_SUFFIX, RANKS};
use record::layout::{COPY, Header, text};
use serde_json::Value;
use testbed::Mpi;
use testbed::programs::KINDS;
use whatif::graph::Graph;
use whatif::model::{Price, Prices, Progress};
use whatif::replay::{Conditions, PS, Residuals, replay};
use zerocopy::{FromBytes, IntoBytes};

/// Two ranks compute in turn. Rank 0 sends twice: the receiver waits for the first message; the second comes early.
const TURNS: &str = r#"
#include <mpi.h>
static void compute(void) { for (volatile int k = 0; k < 400000; k++) { } }
int main(int argc, char **argv)
{
    int rank, note = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm world = MPI_COMM_WORLD;
    MPI_Comm_rank(world, &rank);
    for (int i = 0; i < 100; i++) {
        if (rank == 0) {
            compute();
            MPI_Send(&note, 1, MPI_INT, 1, 1, world); /* awaited */
            MPI_Send(&note, 1, MPI_INT, 1, 2, world); /* early */
            MPI_Recv(&note, 1, MPI_INT, 1, 3, world, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(&note, 1, MPI_INT, 0, 1, world, MPI_STATUS_IGNORE);
            compute();
            MPI_Recv(&note, 1, MPI_INT, 0, 2, world, MPI_STATUS_IGNORE);
            MPI_Send(&note, 1, MPI_INT, 0, 3, world); /* answer */
        }
    }
    MPI_Finalize();
    return 0;
}
"#;

fn program() -> Option<&'static Path> {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let mpi = Mpi::system(Family::OpenMpi)?;
    Some(BUILT.get_or_init(|| mpi.compile_text(KINDS, &built("all-kinds"))))
}

fn built(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("whatif").join(name)
}

fn plimsoll(place: &Path, words: &[&str]) -> (i32, String, String) {
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "100", env!("CARGO_BIN_EXE_plimsoll")]).args(words).current_dir(place);
    command.env("XDG_STATE_HOME", place).stdin(Stdio::null());
    command.envs(["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"].map(|name| (name, "1")));
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

/// Writes costs of three carriers, as `plimsoll calibrate` would.
fn keep_costs(place: &Path) {
    let mpi = Mpi::system(Family::OpenMpi).unwrap().installation.to_string();
    let way =
        |carrier: &str| Way { carrier: carrier.into(), mpi: mpi.clone(), placement: SiteKind::App, network: None };
    keep(place, &[(way("vader"), 400.0), (way("ucx"), 600.0), (way("tcp"), 9_000.0)]);
}

fn keep(place: &Path, ways: &[(Way, f64)]) {
    let rows = ways.iter().flat_map(|(way, latency)| {
        [8u64, 65_536].into_iter().flat_map(move |size| {
            let trip = latency + size as f64 * 0.2;
            let row = |item, ns: f64| Row {
                item,
                size: Some(Bytes(size)),
                cost: Reading::Measured(Interval::between(ns * 0.9, ns * 1.1)),
                source: "test".into(),
                taken: Nanoseconds(now()),
            };
            [row(Item::HalfTrip(way.clone()), trip), row(Item::Message(way.clone()), trip / 3.0)]
        })
    });
    store::keep_below(&place.join("plimsoll"), rows.collect()).unwrap();
}

fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64
}

#[test]
#[ignore = "make check"]
fn a_recorded_program_comes_back() {
    let Some(program) = program() else { return };
    let place = tempfile::tempdir().unwrap();
    let (place, program) = (place.path(), program.to_str().unwrap());
    let (code, _, errors) = plimsoll(place, &["profile", "--trace", "-o", "run", "--", "mpirun", "-n", "2", program]);
    assert_eq!(code, 0, "{errors}");
    // Without costs the next step is named.
    let (code, _, errors) = plimsoll(place, &["whatif", "run"]);
    assert!(
        code != 0 && errors.contains("no cost of this machine") && errors.contains("plimsoll calibrate"),
        "{errors}"
    );
    keep_costs(place);
    let (code, said, errors) = plimsoll(place, &["whatif", "run", "--json"]);
    assert_eq!(code, 0, "{errors}");
    let all: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(all["replayed_with_own_residuals"], 1.0, "the recorded run comes back");
    let parts = ["computing_ns", "work_ns", "messages_ns", "opaque_ns", "unexplained_ns", "overexplained_ns"];
    let sum: f64 = parts.iter().map(|part| all["path"][part].as_f64().unwrap()).sum();
    assert!((sum - all["recorded_ns"].as_f64().unwrap()).abs() < 1.0, "{said}");
    let asked = all["asked"].as_array().unwrap();
    let time = |what: &str| asked.iter().find(|of| of["what"] == what).unwrap()["time"]["middle"].as_f64().unwrap();
    let (tcp, ucx, half) = (time("carried by tcp"), time("carried by ucx"), time("half the latency"));
    // A receive from any source may match another message.
    assert!(tcp > ucx && half < 1.01, "tcp {tcp}, ucx {ucx}, half the latency {half}\n{said}");
    // Predicted from itself: all its calls are known, and the time is its own.
    let (code, said, errors) = plimsoll(place, &["whatif", "against", "run", "run", "--latency", "x1", "--json"]);
    assert_eq!(code, 0, "{errors}");
    let itself: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&itself["unchanged"], &itself["unseen_calls"]), (&Value::from(1.0), &Value::from(0.0)), "{said}");
    assert_eq!((&itself["recorded_ns"], itself["carried"][0] == itself["carried"][1]), (&all["recorded_ns"], true));
    let (code, said, _) = plimsoll(place, &["whatif", "against", "run", "run", "--carried", "tcp"]);
    assert!(code == 0 && said.contains("Predicted") && said.contains("carried by tcp"), "{said}");
    // The same recording as one at half the clock: no part of its computing followed that.
    let (code, said, errors) = plimsoll(place, &["whatif", "run", "--clock", "0.8", "--recorded-at", "0.5=run"]);
    assert!(code == 0 && said.contains("of the computing 0 % follow the clock (0 .. 0 %)"), "{said} {errors}");
    let (code, said, _) = plimsoll(place, &["whatif", "run", "--best", "1"]);
    assert!(code == 0 && said.contains(&format!("plimsoll try -- mpirun -n 2 {program} -- plimsoll mpirun")), "{said}");
    // No prediction is kept for a job that is mostly its start and end, as it may be on a crowded machine.
    let kept = fs::read_dir(place.join("plimsoll")).unwrap().flatten();
    let kept = kept.filter(|entry| entry.file_name().to_string_lossy().starts_with("ledger")).count() > 0;
    assert_eq!(said.contains("Nothing is kept in the ledger"), !kept, "{said}");
    // If the ledger cannot be written, the answer stands.
    let ledger = experiment::ledger::file(&place.join("plimsoll"));
    _ = fs::remove_file(&ledger);
    fs::create_dir(&ledger).unwrap();
    let (code, said, errors) = plimsoll(place, &["whatif", "run", "--best", "1"]);
    assert!(code == 0 && said.contains("plimsoll try -- mpirun"), "{said} {errors}");
    assert_eq!(said.contains("Nothing is kept in the ledger"), !errors.contains("note: not in the ledger"), "{errors}");
    fs::remove_dir(&ledger).unwrap();
    let asked = |words: &[&str]| {
        let (code, said, errors) = plimsoll(place, &[&["whatif", "run", "--json"], words].concat());
        assert_eq!(code, 0, "{words:?}: {errors}");
        serde_json::from_str::<Value>(&said).unwrap()["asked"][0].clone()
    };
    assert_eq!(asked(&["--map", "0,1"])["time"]["middle"], 1.0, "where it was");
    assert_eq!(asked(&["--buffer", "1GiB"])["time"]["high"], 1.0, "all finds room");
    let held = asked(&["--buffer", "16", "--recorded-buffer", "64"]);
    assert!(held["what"] == "buffer of 16 B" && held["time"]["low"].as_f64().unwrap() > 0.0, "{held}");
    let slower = asked(&["--rank-capability", "0=0.5,1=0.5"]);
    // However long a crowded machine keeps the ranks waiting.
    assert!(slower["time"]["low"].as_f64().unwrap() > 1.0, "{slower}");
    let refused = |words: &[&str], expected: &str| {
        let (code, _, errors) = plimsoll(place, &[&["whatif", "run"], words].concat());
        assert!(code != 0 && errors.contains(expected), "{words:?}: {errors}");
    };
    refused(&["--map", "0/1"], "what messages between hosts cost was never measured");
    refused(&["--map", "0"], "rank 1: the mapping has no host for it");
    refused(&["--swap", "0,2"], "rank 2: there are 2 ranks");
    refused(&["--buffer", "unlimited"], "--recorded-buffer");
    // The same as a schedule: without costs of this machine, by LogGOPS.
    let (code, _, errors) = plimsoll(place, &["report", "run", "--export", "goal", "-o", "run.goal"]);
    assert_eq!(code, 0, "{errors}");
    let simulated = |latency: &str| {
        let (code, said, errors) = plimsoll(place, &["whatif", "schedule", "run.goal", "--loggops", latency, "--json"]);
        assert_eq!(code, 0, "{errors}");
        serde_json::from_str::<Value>(&said).unwrap()["total_ns"].as_u64().unwrap()
    };
    assert!(simulated("L=100000") > simulated("L=100"));
    // Under the machine's costs it becomes a graph of its own.
    let (code, said, errors) = plimsoll(place, &["whatif", "schedule", "run.goal", "--carried", "vader", "--json"]);
    assert_eq!(code, 0, "{errors}");
    let replayed: Value = serde_json::from_str(&said).unwrap();
    let asked = replayed["asked"].as_array().unwrap();
    let time = |what: &str| asked.iter().find(|of| of["what"] == what).unwrap()["time"]["middle"].as_f64().unwrap();
    assert!(time("carried by tcp") > 1.0 && time("half the latency") < 1.01, "{said}");
    assert!(replayed["gradients"][0]["right"]["trips"].as_u64() > Some(0), "{said}");
    let (code, _, errors) = plimsoll(place, &["whatif", "schedule", "run.goal", "--latency", "+1us"]);
    assert!(code != 0 && errors.contains("--carried"), "{errors}");
}

/// Messages alone, blocking and not, whose graph and schedule must be the same.
const MESSAGES: &str = r#"
#include <mpi.h>
static char out[64], in[64];
int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm world = MPI_COMM_WORLD;
    MPI_Comm_rank(world, &rank);
    MPI_Request request[2];
    for (int i = 0; i < 100; i++) {
        MPI_Irecv(in, 64, MPI_CHAR, 1 - rank, 1, world, &request[0]);
        MPI_Isend(out, 64, MPI_CHAR, 1 - rank, 1, world, &request[1]);
        for (volatile int k = 0; k < 5000 * (rank + 1); k++) { }
        MPI_Waitall(2, request, MPI_STATUSES_IGNORE);
        if (rank)
            MPI_Send(out, 8, MPI_CHAR, 0, 2, world);
        else
            MPI_Recv(in, 8, MPI_CHAR, 1, 2, world, MPI_STATUS_IGNORE);
    }
    MPI_Finalize();
    return 0;
}
"#;

/// A profile of [`MESSAGES`] on this host.
fn recorded_messages(place: &Path) -> Option<()> {
    let mpi = Mpi::system(Family::OpenMpi)?;
    let program = mpi.compile_text(MESSAGES, &Path::new(env!("CARGO_TARGET_TMPDIR")).join("whatif").join("messages"));
    let program = program.to_str().unwrap();
    let (code, _, errors) = plimsoll(place, &["profile", "--trace", "-o", "run", "--", "mpirun", "-n", "2", program]);
    assert_eq!(code, 0, "{errors}");
    Some(())
}

fn graph(place: &Path) -> Graph {
    Graph::of(&profile::profile::Profile::open(&place.join("run")).unwrap().timeline.unwrap(), 0).unwrap()
}

fn conditions(graph: &Graph, price: Price) -> Conditions {
    Conditions::of(graph, Prices { kinds: vec![price; graph.kinds.len()] }, Progress::Calls)
}

#[test]
fn an_exported_schedule_replays_as_its_recording() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    let Some(()) = recorded_messages(place) else { return };
    let (code, _, errors) = plimsoll(place, &["report", "run", "--export", "goal", "-o", "run.goal"]);
    assert_eq!(code, 0, "{errors}");
    let schedule = whatif::goal::read(&fs::read(place.join("run.goal")).unwrap()).unwrap();
    let graphs = [graph(place), Graph::of_schedule(&schedule, u32::MAX).unwrap()];
    let begun = graphs[0].lanes.iter().map(|lane| lane.begun);
    let apart = (begun.clone().max().unwrap() - begun.min().unwrap()) * PS;
    let total = graphs.map(|graph| {
        let price = Price { send: 300_000, receive: 200_000, trip: 900_000, engine: 0, link: 0, rendezvous: false };
        let conditions = conditions(&graph, price);
        replay(&graph, &conditions, Residuals::None).unwrap().total
    });
    // A schedule does not tell that one rank left MPI_Init later; that is all by which they can differ.
    assert!((total[0] - total[1]).abs() <= apart, "{total:?} {apart}");
}

#[test]
fn the_critical_path_names_the_line_that_is_waited_for() {
    let Some(mpi) = Mpi::system(Family::OpenMpi) else { return };
    let program = mpi.compile_text(TURNS, &built("turns"));
    let place = tempfile::tempdir().unwrap();
    let (place, program) = (place.path(), program.to_str().unwrap());
    let run = |words: &[&str]| {
        let (code, said, errors) = plimsoll(place, words);
        assert_eq!(code, 0, "{errors}");
        said
    };
    run(&["profile", "--trace", "-o", "run", "--", "mpirun", "-n", "2", program]);
    let line = |mark: &str| TURNS.lines().position(|line| line.contains(mark)).unwrap() as u64 + 1;
    let [awaited, early, answer] = ["/* awaited */", "/* early */", "/* answer */"].map(line);

    // Without costs there is a path, on which the time of messages counts for the call that waits.
    let report = || serde_json::from_str::<Summary>(&run(&["report", "run", "--json"])).unwrap();
    let on_path = |summary: &Summary, line: u64| {
        let is_there = |site: &&SiteSummary| site.frames.first().and_then(|frame| frame.line) == Some(line as u32);
        summary.sites.iter().find(is_there).unwrap().critical.clone().unwrap()
    };
    let summary = report();
    let critical = summary.critical.as_ref().unwrap();
    assert_eq!((critical.costs.as_deref(), critical.elsewhere), (None, 0.0));
    let [first, second, third] = [awaited, early, answer].map(|line| on_path(&summary, line));
    // A rank may lose its core occasionally.
    assert!(first.trips >= 80 && third.trips >= 80 && second.trips <= 20, "{first:?} {second:?} {third:?}");
    let parts: f64 =
        summary.sites.iter().filter_map(|site| site.critical.as_ref()).map(|of| of.seconds + of.compute).sum();
    // The delay of a rank that left MPI_Init later than the first belongs to no line.
    assert!(parts > 0.0 && parts <= critical.seconds * 1.001, "{parts} of {critical:?}");
    run(&["report", "run"]);
    let page = fs::read_to_string(place.join("run/report.html")).unwrap();
    assert!(page.contains("On the path") && page.contains("plimsoll calibrate measures it"));

    keep_costs(place);
    let priced = report();
    assert!(priced.critical.as_ref().unwrap().costs.as_ref().is_some_and(|costs| costs.starts_with("vader")));
    assert!(on_path(&priced, awaited).seconds >= 80.0 * 400e-9, "its messages are on their way");
    let all: Value = serde_json::from_str(&run(&["whatif", "run", "--json"])).unwrap();
    let list = |name: &str| all["path"][name].as_array().unwrap().clone();
    let trips = |line: u64| {
        let found = list("sites").into_iter().find(|of| of["function"] == "MPI_Send" && of["line"] == line);
        found.map_or(0, |of| of["trips"].as_u64().unwrap())
    };
    assert!(trips(awaited) >= 80 && trips(answer) >= 80 && trips(early) <= 20, "{all:#}");
    let ranks: Vec<u64> = list("ranks").iter().map(|of| of["trips"].as_u64().unwrap()).collect();
    assert!(ranks.len() == 2 && ranks.iter().all(|trips| *trips >= 80), "{ranks:?}");
    // Each rank computes half of the time: its computing may grow by twice the share of the whole.
    let slack = all["slack"].as_array().unwrap();
    assert_eq!(slack.len(), 2);
    assert!(slack.iter().all(|of| of["longer"].as_f64().is_some_and(|longer| longer >= 0.0099)), "{slack:?}");
    let said = run(&["whatif", "run"]);
    assert!(said.contains("By source line") && said.contains(&format!("MPI_Send turns.c:{awaited} main")), "{said}");
    assert!(said.contains("Slack           for 1 % more time"), "{said}");
}

/// The same program on one host and on two; each recording is predicted from the other.
#[test]
#[ignore = "make check"]
fn a_recording_on_other_hosts_is_predicted_by_its_mapping() {
    let Some(mpi) = Mpi::system(Family::OpenMpi) else { return };
    if !rustix::process::geteuid().is_root() {
        return skip::test("two hosts need root");
    }
    let program = mpi.compile_text(MESSAGES, &built("messages-mapped"));
    let place = tempfile::tempdir().unwrap();
    let (place, program) = (place.path(), program.to_str().unwrap());
    for (folder, options) in [("one", &["-q"][..]), ("two", &["-q", "--lab", "--network", "udp"])] {
        let profile = ["profile", "--trace", "-o", folder, "--", env!("CARGO_BIN_EXE_plimsoll"), "mpirun", "-n", "2"];
        let (code, _, errors) = plimsoll(place, &[&profile[..], options, &["--", program]].concat());
        assert_eq!(code, 0, "{errors}");
    }
    let mpi = mpi.installation.to_string();
    let way = |network: Option<&str>| Way {
        carrier: ENGINE.into(),
        mpi: mpi.clone(),
        placement: SiteKind::App,
        network: network.map(str::to_owned),
    };
    keep(place, &[(way(None), 400.0), (way(Some("udp")), 9_000.0)]);
    for (from, to, hosts) in [("one", "two", "0,1, of two at 0/1"), ("two", "one", "0/1, of one at 0,1")] {
        let (code, said, errors) = plimsoll(place, &["whatif", "against", to, from, "--json"]);
        assert_eq!(code, 0, "{errors}");
        let all: Value = serde_json::from_str(&said).unwrap();
        assert!(said.contains(&format!("ranks were at {hosts}: mapped so")), "{said}");
        assert!(
            all["unseen_calls"].as_f64().unwrap() < 0.1,
            "calls are of the reach that they are predicted for: {said}"
        );
        for times in [&all["predicted"], &all["whole_mapped"]] {
            assert!(times["low"].as_f64() > Some(0.0) && times["high"].as_f64() >= times["low"].as_f64(), "{said}");
        }
    }
    let (code, said, _) = plimsoll(place, &["whatif", "against", "two", "one", "--rank-capability", "1=0.5"]);
    assert!(code == 0 && said.contains("Mapped          ") && said.contains("computing too as in one"), "{said}");
    let (code, _, errors) = plimsoll(place, &["whatif", "against", "two", "one", "--map", "0,1"]);
    assert!(code != 0 && errors.contains("its ranks were at 0/1, and not at 0,1"), "{errors}");
    let (code, said, _) = plimsoll(place, &["whatif", "against", "one", "one"]);
    assert!(code == 0 && !said.contains("mapped so") && !said.contains("Mapped"), "{said}");
}

#[test]
fn what_cannot_be_asked_is_refused() {
    let Some(program) = program() else { return };
    let place = tempfile::tempdir().unwrap();
    let (place, program) = (place.path(), program.to_str().unwrap());
    let (code, _, errors) = plimsoll(place, &["profile", "-o", "run", "--", "mpirun", "-n", "2", program]);
    assert_eq!(code, 0, "{errors}");
    let refused = |words: &[&str], expected: &[&str]| {
        let (code, _, errors) = plimsoll(place, &[&["whatif"], words].concat());
        assert!(code != 0 && expected.iter().all(|word| errors.contains(word)), "{words:?}: {errors}");
    };
    refused(&["run"], &["no timeline", "plimsoll profile", "--trace"]);
    refused(&["nowhere"], &["nowhere/job.json", "plimsoll profile"]);
    refused(&["schedule", "nowhere"], &["nowhere", "--export goal"]);
    refused(&["schedule", "run/job.json"], &["run/job.json", "line 1"]);
    refused(&["schedule", "x", "--loggops", "K=1"], &["LogGOPS has L, o, g, G, O and S"]);
    refused(&["run", "--clock", "0"], &["factor '0'", "write it like 0.8"]);
    refused(&["run", "--buffer", "0"], &["buffer 0", "unlimited"]);
    refused(&["run", "--map", "0;1"], &["mapping '0;1'", "0-3/4-7"]);
    refused(&["run", "--rank-capability", "2"], &["capability '2'", "2=0.8"]);
    refused(&["run", "--clock", "0.8", "--recorded-at", "run"], &["recording 'run'", "0.7=DIR"]);
    refused(&["run", "--latency", "5"], &["change '5'", "+2us"]);
}

#[test]
fn a_schedule_runs_over_the_engine_itself() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    let schedule = "num_ranks 2\nrank 0 {\nsend 200000b to 1\ncalc 5000000\n}\nrank 1 {\nrecv 200000b from 0\n}\n";
    fs::write(place.join("a.goal"), schedule).unwrap();
    let run = |words: &[&str]| plimsoll(place, &[&["whatif", "schedule", "a.goal", "--engine"], words].concat());
    let (code, _, errors) = run(&["app"]);
    assert!(code != 0 && errors.contains("never measured here") && errors.contains("plimsoll calibrate"), "{errors}");
    let way = |network: Option<&str>| Way {
        carrier: ENGINE.into(),
        mpi: "an MPI".into(),
        placement: SiteKind::App,
        network: network.map(str::to_owned),
    };
    keep(place, &[(way(None), 300.0), (way(Some("udp")), 5_000.0)]);
    let (code, said, errors) = run(&["app"]);
    assert!(
        code == 0 && said.contains("2 ranks on 1 host, 1 message, over plimsoll's engine at app"),
        "{said}{errors}"
    );
    let all = |words: &[&str]| {
        let (code, said, errors) = run(&[words, &["--ranks-per-host", "1", "--json"]].concat());
        assert_eq!(code, 0, "{errors}");
        serde_json::from_str::<Value>(&said).unwrap()
    };
    let (whole, lossy) = (all(&["core:1"]), all(&["core:1", "--loss", "0.1"]));
    let of = |all: &Value, what: &str| all[what].as_f64().unwrap();
    // A cluster file without constants takes the same costs; over a link that adds nothing it takes the same time.
    let machine = "[[machine]]\nname = \"node\"\ncount = 2\nsockets = [[0, 1]]\nfull_clock_ghz = 2.0\nengines = [1]\n";
    let link = "[link]\nlatency_us = 0.0\ngigabits_a_second = 0.0\n";
    let rest = "[protocol]\nprofile = \"plimsoll\"\nplace = \"engine\"\n[mapping]\nranks_a_host = 1\n[program]\nname = \"goal\"\nfile = \"a.goal\"\n";
    fs::write(place.join("a.toml"), [machine, link, rest].concat()).unwrap();
    let (code, said, errors) = plimsoll(place, &["whatif", "simulate", "a.toml", "--json"]);
    assert_eq!(code, 0, "{errors}");
    let on_cluster: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(of(&on_cluster, "total_ps") / 1e3, of(&whole, "total_ns"));
    assert_eq!(on_cluster["engines"]["packets"], whole["packets"]);
    assert!(said.contains("plimsoll calibrate"), "{said}");
    assert_eq!((of(&whole, "bytes"), of(&whole, "retransmitted")), (200_000.0, 0.0));
    assert!(of(&lossy, "retransmitted") > 0.0 && of(&lossy, "bytes") == 200_000.0, "{lossy}");
    assert!(
        of(&whole, "total_low_ns") <= of(&whole, "total_ns") && of(&whole, "total_ns") <= of(&whole, "total_high_ns")
    );
    for (words, cause) in [
        (&["xdp:lo"][..], "the message engine runs at app or core:N only"),
        (&["app", "--ranks-per-host", "1", "--loss", "1"], "loss below 1"),
        (&["app", "--loss", "0.1"], "--ranks-per-host"),
    ] {
        let (code, _, errors) = run(words);
        assert!(code != 0 && errors.contains(cause), "{errors}");
    }
}

/// Rank 1 of a recording becomes one of another host, whose clock nobody set.
#[test]
fn clocks_of_hosts_are_aligned_before_a_replay() {
    const AHEAD: u64 = 10_000_000_000;
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    let Some(()) = recorded_messages(place) else { return };
    let before = graph(place);
    let files = fs::read_dir(place.join("run").join(RANKS)).unwrap().map(|entry| entry.unwrap().path());
    for path in files.filter(|path| path.extension().is_some_and(|of| of == RANK_SUFFIX)) {
        let mut file = fs::read(&path).unwrap();
        let mut header = Header::read_from_bytes(&file[..size_of::<Header>()]).unwrap();
        if header.rank == 1 {
            (header.host, header.boot) = (text("elsewhere"), text("another start"));
            header.started.realtime += AHEAD;
            header.latest.realtime += AHEAD;
            header.seal = header.own_seal();
            let sealed = &header.as_bytes()[..Header::SEALED + size_of::<u64>()];
            [0, COPY].into_iter().for_each(|at| file[at..at + sealed.len()].copy_from_slice(sealed));
            fs::write(&path, file).unwrap();
        }
    }
    let after = graph(place);
    assert_eq!(after.hosts, [0, 1]);
    assert!(after.notes.iter().any(|note| note.contains("clocks of 2 hosts are aligned")), "{:?}", after.notes);
    let apart = |graph: &Graph| graph.lanes[1].begun - graph.lanes[0].begun;
    assert!((apart(&after) - apart(&before)).unsigned_abs() < AHEAD / 10, "{} {}", apart(&after), apart(&before));
    let mut residuals = Vec::new();
    let conditions = conditions(&after, Price::default());
    let learned = replay(&after, &conditions, Residuals::Learn(&mut residuals)).unwrap();
    assert_eq!(learned.backwards, (0, 0));
}
