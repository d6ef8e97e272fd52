//! A study file carried out with runs that are made up: what is kept, repeated, left, settled; and stores that are joined.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;

use experiment::axes::Value;
use experiment::campaign::conduct::{Runner, SessionPlan, conduct};
use experiment::campaign::definition::{Campaign, Shard};
use experiment::campaign::file;
use experiment::campaign::merge::merge;
use experiment::campaign::simulated::Simulator;
use experiment::campaign::store::{NewRun, Outcome, Session, Store};
use experiment::cause::{Cause, Failure};
use machine::{Nanoseconds, Result};
use proptest::prelude::*;
use rounds::sitting::End;
use tempfile::TempDir;

use crate::simulated::Notes;

const GRID: &str = "seed = 5\nrepetitions = 3\nblock = [\"card\"]\n[axes]\nsize = [1, 2, 3]\ncard = [\"a\", \"b\"]\n\
    [[program]]\nname = \"p\"\ncommand = \"prog {size} {card}\"\n";

struct Place(TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn campaign(&self, text: &str) -> Campaign {
        let path = self.0.path().join("study.toml");
        std::fs::write(&path, text).unwrap();
        file::read(&path, &[]).unwrap()
    }

    fn store(&self, name: &str, campaign: &Campaign) -> Store {
        Store::open(&self.0.path().join(name), &campaign.identity).unwrap()
    }
}

fn session(host: &str, process: u32) -> Session {
    Session {
        host: host.into(),
        boot: "boot".into(),
        version: "0".into(),
        shard: "1/1".into(),
        nodes: String::new(),
        programs: BTreeMap::new(),
        started: Nanoseconds(u64::from(process)),
        process,
    }
}

type Answer<'a> = &'a mut dyn FnMut(&Campaign, usize) -> Result<f64, Failure>;

/// Runs of a second each.
struct Made<'a> {
    answer: Answer<'a>,
    now: Cell<u64>,
    order: Vec<usize>,
}

impl Runner for Made<'_> {
    fn run(&mut self, campaign: &Campaign, point: usize, _: Nanoseconds) -> Result<Outcome, Failure> {
        self.now.set(self.now.get() + 1_000_000_000);
        self.order.push(point);
        let value = (self.answer)(campaign, point)?;
        Ok(Outcome { elapsed: Nanoseconds(1_000_000_000), values: vec![Some(value)], ..Outcome::default() })
    }

    fn now(&self) -> Nanoseconds {
        Nanoseconds(self.now.get())
    }

    fn wall(&self) -> Nanoseconds {
        Nanoseconds(self.now.get())
    }
}

struct MadeUp;

impl Simulator for MadeUp {
    fn simulate(&self, _: &Campaign, point: usize) -> Result<Vec<Option<f64>>, Failure> {
        match point {
            7 => Err(Failure::new(Cause::ProgramFailed, "seven")),
            point => Ok(vec![Some(point as f64)]),
        }
    }
}

fn order(campaign: &Campaign) -> SessionPlan<'_> {
    let mine = campaign.of_shard(Shard::WHOLE);
    SessionPlan { campaign, mine, budget: None, sitting: None, retry: false, cores: 2 }
}

fn carried_out(
    order: SessionPlan,
    store: &mut Store,
    process: u32,
    answer: Answer,
    stop: &(dyn Fn() -> bool + Sync),
) -> (Result<End>, Vec<usize>, Vec<String>) {
    store.begin(&session("h", process)).unwrap();
    let (mut made, mut notes) = (Made { answer, now: Cell::new(0), order: Vec::new() }, Notes::default());
    let end = conduct(order, store, (&mut made, &MadeUp), &mut notes, stop);
    (end, made.order, notes.0)
}

#[test]
fn each_point_has_its_runs_and_is_skipped_from_then_on() {
    let place = Place::new();
    let campaign = place.campaign(GRID);
    let mut store = place.store("s", &campaign);
    let (end, ran, _) = carried_out(order(&campaign), &mut store, 1, &mut |_, point| Ok(point as f64 + 1.0), &|| false);
    assert_eq!((end.unwrap(), ran.len()), (End::Finished, 18));
    // Rounds of blocks side by side, each second one the reverse of the one before.
    assert_eq!(ran[..6].iter().rev().collect::<Vec<_>>(), ran[6..12].iter().collect::<Vec<_>>());
    assert!(ran.chunks(2).all(|pair| pair[0] / 2 == pair[1] / 2), "{ran:?}");
    let results = store.results().unwrap();
    assert_eq!((results.runs.len(), results.points.len(), results.hosts.as_slice()), (18, 6, &["h".to_owned()][..]));
    let of = |run: &experiment::campaign::results::Run| {
        let axes = &results.points[run.point as usize];
        campaign.points.iter().position(|point| point.axes == *axes).unwrap() as f64 + 1.0
    };
    assert!(results.runs.iter().all(|run| run.values == [Some(of(run))]));
    let (end, ran, _) = carried_out(order(&campaign), &mut store, 2, &mut |_, _| Ok(1.0), &|| false);
    assert_eq!((end.unwrap(), ran.len()), (End::Finished, 0));
    // More repetitions are added to those that are there.
    let more = place.campaign(&GRID.replace("repetitions = 3", "repetitions = 4"));
    let (_, ran, _) = carried_out(order(&more), &mut store, 3, &mut |_, _| Ok(1.0), &|| false);
    assert_eq!(ran.len(), 6);
}

#[test]
fn a_run_that_fails_is_repeated_once_and_its_point_is_left() {
    let place = Place::new();
    let campaign = place.campaign(GRID);
    let mut store = place.store("s", &campaign);
    let mut once = true;
    let mut answer = |_: &Campaign, point: usize| match point {
        0 => Err(Failure::new(Cause::CheckFailed, "wrong")),
        1 if std::mem::take(&mut once) => Err(Failure::of_program("exit code 1", "")),
        _ => Ok(1.0),
    };
    let (end, ran, notes) = carried_out(order(&campaign), &mut store, 1, &mut answer, &|| false);
    assert_eq!((end.unwrap(), ran.iter().filter(|point| **point == 0).count()), (End::Finished, 2));
    assert_eq!(ran.iter().filter(|point| **point == 1).count(), 4);
    assert!(notes.iter().any(|note| note == "card a, size 1: check failed: wrong"), "{notes:?}");
    let results = store.results().unwrap();
    assert_eq!((results.runs.len(), results.failures.len()), (15, 3));
    assert!(results.runs.iter().all(|run| run.values == [Some(1.0)]), "what failed is in no mean");
    let (_, ran, _) = carried_out(order(&campaign), &mut store, 2, &mut |_, _| Ok(2.0), &|| false);
    assert!(ran.is_empty(), "it stays left");
    let again = SessionPlan { retry: true, ..order(&campaign) };
    let (_, ran, _) = carried_out(again, &mut store, 3, &mut |_, _| Ok(2.0), &|| false);
    assert_eq!(ran, [0, 0, 0]);
}

#[test]
fn a_lost_node_and_a_full_disk_end_all_and_blame_no_point() {
    for cause in [Cause::NodeLost, Cause::DiskFull] {
        let place = Place::new();
        let campaign = place.campaign(GRID);
        let mut store = place.store("s", &campaign);
        for process in 1..5 {
            let mut runs = 0;
            let mut answer = |_: &Campaign, _: usize| {
                runs += 1;
                if runs > 2 { Err(Failure::new(cause, "gone")) } else { Ok(1.0) }
            };
            let (end, _, _) = carried_out(order(&campaign), &mut store, process, &mut answer, &|| false);
            let fault = end.unwrap_err().to_string();
            assert!(fault.contains(&cause.to_string()) && fault.contains("goes on where it stopped"), "{fault}");
        }
        let (end, ran, _) = carried_out(order(&campaign), &mut store, 9, &mut |_, _| Ok(1.0), &|| false);
        assert_eq!((end.unwrap(), ran.len()), (End::Finished, 18 - 8));
    }
}

#[test]
fn a_machine_that_keeps_changing_is_tried_six_times() {
    let place = Place::new();
    let campaign = place.campaign(GRID);
    let mut store = place.store("s", &campaign);
    let mut answer = |_: &Campaign, _: usize| Err(Failure::new(Cause::ClockChanged, "3.0 GHz, then 1.2 GHz"));
    let (end, ran, _) = carried_out(order(&campaign), &mut store, 1, &mut answer, &|| false);
    assert_eq!((end.unwrap(), ran.len()), (End::Finished, 36));
    assert!(store.results().unwrap().runs.is_empty());
}

/// Clocks of a virtual machine wander: what counts is how many runs it costs of those that there are.
#[test]
fn a_machine_that_changes_now_and_then_costs_runs_and_no_point() {
    let place = Place::new();
    let campaign = place.campaign(&GRID.replace("repetitions = 3", "repetitions = 40"));
    let mut store = place.store("s", &campaign);
    let mut asked = 0;
    let mut answer = |_: &Campaign, _: usize| {
        asked += 1;
        match asked % 10 {
            0 => Err(Failure::new(Cause::ClockChanged, "3.4 GHz, then 3.7 GHz")),
            _ => Ok(1.0),
        }
    };
    let (end, ..) = carried_out(order(&campaign), &mut store, 1, &mut answer, &|| false);
    assert_eq!(end.unwrap(), End::Finished);
    let results = store.results().unwrap();
    assert_eq!(results.runs.len(), 40 * campaign.points.len());
    assert!(results.failures.len() > 3 * campaign.points.len());
}

#[test]
fn a_run_that_a_signal_cuts_short_is_marked_and_done_again() {
    let place = Place::new();
    let campaign = place.campaign(GRID);
    let mut store = place.store("s", &campaign);
    let told = std::sync::atomic::AtomicU32::new(0);
    let count = || told.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
    let mut answer = |_: &Campaign, _: usize| {
        if count() == 5 { Err(Failure::of_program("exit code 143", "")) } else { Ok(1.0) }
    };
    let stop = || told.load(std::sync::atomic::Ordering::Relaxed) >= 5;
    let (end, ran, _) = carried_out(order(&campaign), &mut store, 1, &mut answer, &stop);
    assert_eq!((end.unwrap(), ran.len()), (End::Interrupted, 5));
    let results = store.results().unwrap();
    assert_eq!(results.runs.len(), 4);
    assert!(results.failures[0].1.starts_with("preempted: "), "{:?}", results.failures);
    let (_, ran, _) = carried_out(order(&campaign), &mut store, 2, &mut |_, _| Ok(1.0), &|| false);
    assert_eq!(ran.len(), 14);
    // Runs of another session are of another round: they did not meet the same machine.
    let results = store.results().unwrap();
    let rounds: std::collections::BTreeSet<u32> = results.runs.iter().map(|run| run.round).collect();
    assert_eq!((results.runs.len(), rounds.len()), (18, 4));
}

#[test]
fn the_budget_is_of_all_sessions() {
    let place = Place::new();
    let campaign = place.campaign(GRID);
    let mut store = place.store("s", &campaign);
    let order = |seconds: u64| SessionPlan { budget: Some(Nanoseconds(seconds * 1_000_000_000)), ..order(&campaign) };
    for (process, budget, ran) in [(1, 7, 7), (2, 7, 0), (3, 10, 3)] {
        let (end, order, _) = carried_out(order(budget), &mut store, process, &mut |_, _| Ok(1.0), &|| false);
        assert_eq!((end.unwrap(), order.len()), (End::OutOfTime, ran), "{budget} s");
    }
}

#[test]
fn points_stop_when_their_interval_is_narrow_and_the_baseline_last() {
    let place = Place::new();
    let text = format!(
        "[stop]\nhalf_width = 0.02\n{}",
        GRID.replace("repetitions = 3\nblock = [\"card\"]\n", "repetitions = 20\n")
    );
    let text = text.replace("seed = 5\nrepetitions = 20\n", "");
    let quiet = |point: usize, nth: usize| 10.0 + point as f64 + 0.001 * (nth % 3) as f64;
    let loud = |nth: usize| if nth.is_multiple_of(2) { 5.0 } else { 15.0 };
    let times = |text: &str| {
        let campaign = place.campaign(text);
        let mut store = Store::open(&place.0.path().join(format!("{}", text.len())), &campaign.identity).unwrap();
        let mut nth = BTreeMap::<usize, usize>::new();
        let mut answer = |_: &Campaign, point: usize| {
            let nth = nth.entry(point).or_default();
            *nth += 1;
            Ok(if point == 3 { loud(*nth) } else { quiet(point, *nth) })
        };
        let (end, _, _) = carried_out(order(&campaign), &mut store, 1, &mut answer, &|| false);
        assert_eq!(end.unwrap(), End::Finished);
        (0..6).map(|point| nth[&point]).collect::<Vec<_>>()
    };
    let whole = format!("seed = 5\nrepetitions = 20\n{text}");
    assert_eq!(times(&whole), [6, 6, 6, 20, 6, 6]);
    // Point 2 is what point 3 is held against.
    let against = whole.replace("half_width = 0.02\n", "half_width = 0.02\nagainst = { card = \"a\" }\n");
    assert_eq!(times(&against), [6, 6, 20, 20, 6, 6]);
}

#[test]
fn what_is_simulated_runs_once_on_all_threads() {
    let place = Place::new();
    let campaign = place.campaign(
        "repetitions = 9\n[axes]\n\"program.bytes\" = [1,2,3,4,5,6,7,8,9,10]\n[[program]]\nname = \"s\"\nkind = \"simulate\"\nfile = \"onload\"\n",
    );
    let mut store = place.store("s", &campaign);
    let (end, _, notes) = carried_out(order(&campaign), &mut store, 1, &mut |_, _| panic!("no process"), &|| false);
    assert_eq!(end.unwrap(), End::Finished);
    let results = store.results().unwrap();
    assert_eq!((results.runs.len(), results.failures.len(), notes.len()), (9, 1, 1));
    assert!(results.points[results.runs[3].point as usize].get("program.bytes").is_some());
}

#[test]
fn a_store_of_another_study_is_refused_with_the_reason() {
    let place = Place::new();
    let campaign = place.campaign(GRID);
    drop(place.store("s", &campaign));
    let path = |name: &str| place.0.path().join(name);
    for (change, why) in [
        (("\"prog ", "\"prog2 "), "the command of its program p is another"),
        (("\"p\"", "\"q\""), "its programs are p, not q"),
        (("seed = 5", "name = \"n\""), "it is of study 'study', not 'n'"),
        (("[axes]", "[[figure]]\nname = \"joules\"\n[axes]"), "figures"),
        (("[axes]", "[set]\nx = 1\n[axes]"), "its [set] x is nothing, not '1'"),
    ] {
        let other = place.campaign(&GRID.replace(change.0, change.1));
        let fault = Store::open(&path("s"), &other.identity).err().unwrap().to_string();
        assert!(fault.contains(why), "{fault}");
        let _ = std::fs::remove_file(path("t"));
        drop(place.store("t", &other));
        let fault = merge(&path("t"), &[path("s")], |_, _| {}).err().unwrap().to_string();
        assert!(fault.contains(why), "{fault}");
    }
}

#[test]
fn a_run_that_differs_between_stores_is_refused() {
    let place = Place::new();
    let campaign = place.campaign(GRID);
    for (name, value) in [("s", 1.0), ("t", 2.0)] {
        let mut store = place.store(name, &campaign);
        fill(&mut store, &campaign, "h", 1, &[(0, 0, Some(value))]);
    }
    let path = |name: &str| place.0.path().join(name);
    let fault = merge(&path("s"), &[path("t")], |_, _| {}).err().unwrap().to_string();
    assert!(fault.contains("a run of round 1 is in both stores and differs"), "{fault}");
    let fault = merge(&path("s"), &[path("s")], |_, _| {}).err().unwrap().to_string();
    assert!(fault.contains("merged into itself"), "{fault}");
}

/// Point, round, and what came of it.
type Made3 = (usize, u32, Option<f64>);

fn fill(store: &mut Store, campaign: &Campaign, host: &str, process: u32, runs: &[Made3]) {
    store.begin(&session(host, process)).unwrap();
    store.add_points(&campaign.points, &vec![true; campaign.points.len()]).unwrap();
    let kept = |&(point, round, value): &Made3| {
        let outcome = match value {
            Some(value) => Ok(Outcome { values: vec![Some(value)], ..Outcome::default() }),
            None => Err(Failure::new(Cause::ProgramFailed, "no")),
        };
        NewRun { point, round, place: point as u32, started: Nanoseconds(round.into()), outcome }
    };
    let kept: Vec<NewRun> = runs.iter().map(kept).collect();
    store.keep(&kept, Nanoseconds(5)).unwrap();
}

fn shards() -> impl Strategy<Value = Vec<Vec<Made3>>> {
    let run = (0..6usize, 0..4u32, prop::option::of(0.5f64..2.0));
    let unlike = prop::collection::vec(run, 0..12).prop_map(|mut runs| {
        runs.sort_by_key(|run| (run.0, run.1));
        runs.dedup_by_key(|run| (run.0, run.1));
        runs
    });
    prop::collection::vec(unlike, 3..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn joining_is_idempotent_commutative_and_associative(shards in shards()) {
        let place = Place::new();
        let campaign = place.campaign(GRID);
        let path = |name: &str| place.0.path().join(name);
        for (nth, runs) in shards.iter().enumerate() {
            // Two shards of one host.
            let host = ["h", "k", "h"][nth];
            fill(&mut place.store(&format!("{nth}"), &campaign), &campaign, host, nth as u32, runs);
        }
        let joined = |out: &str, inputs: &[&str]| {
            let inputs: Vec<_> = inputs.iter().map(|input| path(input)).collect();
            merge(&path(out), &inputs, |_, _| {}).unwrap().results().unwrap()
        };
        let all = joined("a", &["0", "1", "2"]);
        prop_assert_eq!(all.runs.len() + all.failures.len(), shards.iter().map(Vec::len).sum::<usize>());
        prop_assert_eq!(&joined("a", &["2", "0", "1"]), &all);
        prop_assert_eq!(&joined("b", &["2", "1", "0"]), &all);
        joined("c", &["1", "2"]);
        prop_assert_eq!(&joined("d", &["0", "c"]), &all);
        prop_assert_eq!(&joined("d", &["a"]), &all);
        let spent = |name: &str| Store::read(&path(name)).unwrap().spent().unwrap();
        prop_assert_eq!((spent("a"), spent("d")), (Nanoseconds(15), Nanoseconds(15)));
    }
}

#[test]
fn a_store_is_read_while_another_measures_into_it() {
    let place = Place::new();
    let campaign = place.campaign(GRID);
    let mut store = place.store("s", &campaign);
    fill(&mut store, &campaign, "h", 1, &[(0, 0, Some(1.0))]);
    let path: &Path = &place.0.path().join("s");
    assert_eq!(Store::read(path).unwrap().results().unwrap().runs.len(), 1);
    let fault = Store::open(path, &campaign.identity).err().unwrap().to_string();
    assert!(fault.contains(&format!("process {} (", std::process::id())), "{fault}");
    assert!(matches!(campaign.points[0].axes.get("size"), Some(Value::Number(1))));
}
