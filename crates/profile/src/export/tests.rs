//! Exports of programs in closed form, read back by their formats' rules.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::process::Command;

use record::trace::peer;
use serde_json::Value;

use super::*;
use crate::summary::{CoreSeries, Series};
use timeline::Timeline;
use timeline::testing::{Lines, profile};

const RANKS: usize = 5;
const NONE: i32 = peer::NONE;

/// All kinds of operations that an export handles: `steps` rounds of a ring, a halo, receives from anywhere and most
/// collective operations.
fn program(steps: u64) -> Timeline {
    let mut ranks: Vec<Lines> = (0..RANKS).map(|_| Lines::default()).collect();
    for (own, lines) in ranks.iter_mut().enumerate() {
        let (right, left) = ((own + 1) % RANKS, (own + RANKS - 1) % RANKS);
        let (right, left) = (right as i32, left as i32);
        lines.call("Init", (0, 10), (NONE, record::trace::tag::NONE, 0));
        for step in 0..steps {
            let mut now = 1000 + step * 100_000 + 17 * own as u64;
            let mut next = || {
                now += 1000;
                (now, now + 700)
            };
            lines.exchange(next(), (right, 3, 4096), (left, 3, 4096));
            let got = lines.call("Irecv", next(), (left, 5, 100));
            let sent = lines.call("Isend", next(), (right, 5, 64));
            lines.complete("Waitall", next(), &[got, sent]);
            let any = lines.call("Irecv", next(), (peer::ANY, -1, 1 << 20));
            lines.call("Send", next(), (right, 9, 100_000));
            let barrier = lines.collective("Ibarrier", next(), NONE, 0);
            lines.complete("Wait", next(), &[any]);
            lines.got(0, left, 9, 100_000);
            lines.complete("Wait", next(), &[barrier]);
            lines.call("Send", next(), (peer::NULL, 9, 0));
            for name in ["Allreduce", "Allgather", "Alltoall", "Scan", "Barrier"] {
                lines.collective(name, next(), NONE, 400);
            }
            for name in ["Bcast", "Reduce", "Gather", "Scatter"] {
                lines.collective(name, next(), 2, 400);
            }
        }
    }
    let folder = profile(ranks);
    Timeline::open(folder.path()).unwrap().unwrap()
}

fn exported(timeline: &Timeline) -> (String, Goal) {
    let mut text = Vec::new();
    let done = goal(timeline, 0, &mut text).unwrap();
    (String::from_utf8(text).unwrap(), done)
}

/// Checks every event by the format's rules, and that arrows lie within the slices that they bind to.
fn check(text: &str) -> Vec<Value> {
    let file: Value = serde_json::from_str(text).unwrap();
    let events = file["traceEvents"].as_array().unwrap().clone();
    let mut slices: HashMap<(u64, u64), Vec<(f64, f64)>> = HashMap::new();
    let track = |event: &Value| (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
    for event in &events {
        assert!(event["name"].is_string() && event["pid"].is_u64(), "{event}");
        match event["ph"].as_str().unwrap() {
            "X" => {
                let (at, took) = (event["ts"].as_f64().unwrap(), event["dur"].as_f64().unwrap());
                assert!(took >= 0.0 && event["cat"].is_string() && event["args"].is_object(), "{event}");
                slices.entry(track(event)).or_default().push((at, at + took));
            }
            "M" => assert!(event["args"].is_object(), "{event}"),
            "s" | "f" => assert!(event["id"].is_u64() && event["ts"].is_number(), "{event}"),
            "C" => {
                assert!(event["args"].as_object().unwrap().values().all(Value::is_number) && event["ts"].is_number());
            }
            other => panic!("{other} is no phase that is written"),
        }
    }
    let (mut begun, mut ended) = (HashMap::new(), HashSet::new());
    for event in &events {
        let (phase, at) = (event["ph"].as_str().unwrap(), event["ts"].as_f64().unwrap_or(0.0));
        if matches!(phase, "s" | "f") {
            let within = slices[&track(event)].iter().any(|(from, to)| (*from..=*to).contains(&at));
            assert!(within, "{event} lies in no slice");
            let id = event["id"].as_u64().unwrap();
            let fresh = if phase == "s" { begun.insert(id, at).is_none() } else { ended.insert(id) };
            assert!(fresh, "{event} is there twice");
        }
    }
    assert_eq!(begun.keys().copied().collect::<HashSet<_>>(), ended);
    events
}

#[test]
fn a_trace_event_file_has_every_call_and_an_arrow_for_each_message() {
    let timeline = program(3);
    let series = Series {
        step: 0.5,
        columns: 2,
        cores: vec![CoreSeries { core: 1, softirq: vec![Some(0.25), None], ..CoreSeries::default() }],
        ..Series::default()
    };
    let mut text = Vec::new();
    let done = perfetto(&timeline, Some((&series, 7_000_000_000)), &mut text).unwrap();
    let events = check(std::str::from_utf8(&text).unwrap());
    let of = |phase: &str| events.iter().filter(|event| event["ph"] == phase).count() as u64;
    let calls = 5 * (1 + 3 * 19);
    assert_eq!(done, Perfetto { calls, arrows: 3 * 5 * 3, samples: 1 });
    assert_eq!((of("X"), of("s"), of("f"), of("C")), (calls, 45, 45, 1));
    let irecv = events.iter().find(|event| event["name"] == "MPI_Irecv" && event["args"]["tag"] == -1).unwrap();
    assert_eq!(irecv["args"]["peer"], "any");
    let names: Vec<_> = events.iter().filter(|event| event["name"] == "process_name").collect();
    assert_eq!(names[0]["args"]["name"], "rank 0 (here, pid 100)");
}

/// The sender of the first receive begins in time and then computes; the sender of the second begins late.
#[test]
fn a_partner_that_is_away_is_not_called_late() {
    let (mut a, mut b) = (Lines::default(), Lines::default());
    let sent = a.call("Isend", (1_000, 1_100), (1, 7, 1 << 20));
    b.call("Recv", (4_000, 21_500), (0, 7, 1 << 20));
    a.complete("Wait", (21_000, 22_000), &[sent]);
    b.call("Recv", (30_000, 36_000), (0, 8, 8));
    a.call("Send", (34_000, 34_500), (1, 8, 8));
    let folder = profile(vec![a, b]);
    let timeline = Timeline::open(folder.path()).unwrap().unwrap();
    let mut text = Vec::new();
    perfetto(&timeline, None, &mut text).unwrap();
    let events = check(std::str::from_utf8(&text).unwrap());
    let receives: Vec<&Value> = events.iter().filter(|e| e["name"] == "MPI_Recv").map(|e| &e["args"]).collect();
    let told =
        |nth: usize| (&receives[nth]["wait"], receives[nth]["waited_us"].as_f64(), receives[nth]["away_us"].as_f64());
    assert_eq!(told(0), (&Value::Null, None, Some(17.0)));
    assert_eq!(told(1), (&Value::from("late sender"), Some(4.0), None));
    assert!(receives.iter().all(|arguments| arguments["waited_for"] == 0));
}

/// A schedule as the simulator reads it.
#[derive(Default)]
struct Schedule {
    /// `(word, number, peer, tag)` by label.
    operations: Vec<(String, u64, usize, u64)>,
    requires: Vec<Vec<usize>>,
}

fn parse(text: &str) -> Vec<Schedule> {
    let mut lines = text.lines().filter(|line| !line.is_empty());
    let ranks: usize = lines.next().unwrap().strip_prefix("num_ranks ").unwrap().parse().unwrap();
    let mut all: Vec<Schedule> = Vec::new();
    let label = |word: &str| word.strip_prefix('l').unwrap().trim_end_matches(':').parse::<usize>().unwrap();
    for line in lines {
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            ["rank", rank, "{"] => {
                assert_eq!(rank.parse::<usize>().unwrap(), all.len());
                all.push(Schedule::default());
            }
            ["}"] => {}
            [own, "requires" | "irequires", before] => {
                let schedule = all.last_mut().unwrap();
                // A label is defined before its use.
                assert!(label(own) < schedule.operations.len() && label(before) < label(own), "{line}");
                if words[1] == "requires" {
                    schedule.requires[label(own)].push(label(before));
                }
            }
            [own, word, ref rest @ ..] => {
                let schedule = all.last_mut().unwrap();
                assert_eq!(label(own), schedule.operations.len());
                let number = rest[0].trim_end_matches('b').parse().unwrap();
                let (peer, tag) = match rest {
                    [_, "to" | "from", peer, "tag", tag, ..] => (peer.parse().unwrap(), tag.parse().unwrap()),
                    _ => (0, 0),
                };
                schedule.operations.push((word.to_owned(), number, peer, tag));
                schedule.requires.push(Vec::new());
            }
            _ => panic!("{line}"),
        }
    }
    assert_eq!(all.len(), ranks);
    all
}

/// Runs schedules without times: every operation must become ready, and no message be left.
fn run(all: &[Schedule]) {
    type Wire = (usize, usize, u64);
    let mut wires: BTreeMap<Wire, VecDeque<u64>> = BTreeMap::new();
    let mut over: Vec<Vec<bool>> = all.iter().map(|one| vec![false; one.operations.len()]).collect();
    loop {
        let mut moved = false;
        for (rank, schedule) in all.iter().enumerate() {
            for (at, (word, number, peer, tag)) in schedule.operations.iter().enumerate() {
                if over[rank][at] || !schedule.requires[at].iter().all(|before| over[rank][*before]) {
                    continue;
                }
                match word.as_str() {
                    "send" => wires.entry((rank, *peer, *tag)).or_default().push_back(*number),
                    "recv" => match wires.entry((*peer, rank, *tag)).or_default().pop_front() {
                        Some(sent) => assert_eq!(sent, *number),
                        None => continue,
                    },
                    "calc" => {}
                    other => panic!("{other}"),
                }
                (over[rank][at], moved) = (true, true);
            }
        }
        if !moved {
            break;
        }
    }
    assert!(over.iter().flatten().all(|over| *over), "something waits for ever");
    assert!(wires.values().all(VecDeque::is_empty), "a message is left");
}

#[test]
fn a_schedule_runs_to_its_end_and_matches_every_message() {
    let timeline = program(2);
    let (text, done) = exported(&timeline);
    assert_eq!((done.ranks, done.messages, done.collectives), (5, 2 * 5 * 3, 2 * 5 * 10));
    assert_eq!((done.unmatched, done.opaque), (0, 0));
    let all = parse(&text);
    run(&all);
    // All time outside MPI is computing.
    let computed: u64 = all[0].operations.iter().filter(|one| one.0 == "calc").map(|one| one.1).sum();
    let outside = (2 * 19 - 2) * 300 + (2000 - 10) + (100_000 - 18 * 1000 - 700);
    assert_eq!(computed, outside);
}

#[test]
fn what_cannot_be_expressed_is_said_and_computed() {
    let (mut a, mut b) = (Lines::default(), Lines::default());
    a.call("Put", (100, 400), (1, record::trace::tag::NONE, 8));
    a.call("Send", (500, 600), (1, 4, 8));
    b.call("Recv", (500, 600), (0, 5, 8));
    b.collective("Barrier", (700, 900), NONE, 0);
    let folder = profile(vec![a, b]);
    let (text, done) = exported(&Timeline::open(folder.path()).unwrap().unwrap());
    assert_eq!((done.messages, done.unmatched, done.opaque), (0, 2, 2));
    assert!(done.notes.len() >= 2, "{:?}", done.notes);
    let all = parse(&text);
    run(&all);
    let computed = |rank: usize| all[rank].operations.iter().map(|one| one.1).sum::<u64>();
    assert_eq!((computed(0), computed(1)), (300 + 100, 100 + 200));
}

/// The simulator itself, where `PLIMSOLL_LOGGOPSIM` names the folder of its `txt2bin` and `LogGOPSim`.
#[test]
fn the_simulator_reads_a_schedule_and_ends_it() {
    let Some(tools) = std::env::var_os("PLIMSOLL_LOGGOPSIM").map(std::path::PathBuf::from) else {
        skip::test("PLIMSOLL_LOGGOPSIM does not name the folder of txt2bin and LogGOPSim");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let (text, _) = exported(&program(20));
    let (source, binary) = (folder.path().join("a.goal"), folder.path().join("a.bin"));
    std::fs::write(&source, text).unwrap();
    let made = Command::new(tools.join("txt2bin")).arg("-i").arg(&source).arg("-o").arg(&binary).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let ran = Command::new(tools.join("LogGOPSim")).arg("-f").arg(&binary).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{ran:?}");
    assert_eq!(said.lines().filter(|line| line.trim_start().starts_with("Host ")).count(), RANKS, "{said}");
    assert!(!said.to_lowercase().contains("queue"), "{said}");
}
