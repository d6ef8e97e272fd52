use std::collections::{BTreeMap, BTreeSet};

use fleet::metrics::text;
use fleet::spool::{add, put};
use fleet::store::{Event, Store};
use fleet::summary::{Gain, Hindrance, Lever, Summary, Unjudged};
use machine::bounds::FLEET_PARTITIONS;
use profile::verdict::Cause;
use rusqlite::Connection;

use super::{job, store_of};

const DASHBOARD: &str = include_str!("../../../packaging/grafana/plimsoll.json");
const ALERTS: &str = include_str!("../../../packaging/prometheus/plimsoll.rules.yml");

/// The samples of a store, each by its name and labels.
fn samples(store: &Store) -> BTreeMap<String, f64> {
    let text = text(store).unwrap();
    let mut found = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(found.insert(name.to_owned(), value.parse().unwrap()).is_none(), "{line} is there twice");
    }
    found
}

#[test]
fn figures_are_the_sums_of_each_partition() {
    let mut jobs: Vec<Summary> = (0..5).map(|number| job(number, "solver")).collect();
    jobs[1].started += 40 * 86_400;
    jobs[1].unbound = Some(4);
    jobs[2].unbound = None;
    jobs[2].levers.clear();
    jobs[2].unjudged = Some(Unjudged::LostRanks);
    jobs[3].partition = "a \"b\"\\".into();
    jobs[3].levers = vec![Gain { lever: Lever::DedicatedCore, share: (-0.5, 0.5) }];
    let hindered = |cause: &str, share| Hindrance { cause: cause.into(), share };
    jobs[3].hindrances = vec![hindered("stolen", 0.25), hindered("stolen", 0.25), hindered("a user's word", 0.5)];
    jobs[4].hindrances = vec![hindered("late", 0.75), hindered("late", 0.75)];
    let (_home, store) = store_of(&jobs);
    let found = samples(&store);
    // Each has ten cores for an hour.
    for (name, value) in [
        (r#"jobs_total{partition="small",judgement="judged"}"#, 3.0),
        (r#"jobs_total{partition="small",judgement="lost_ranks"}"#, 1.0),
        (r#"jobs_total{partition="small",judgement="too_short"}"#, 0.0),
        (r#"jobs_total{partition="a \"b\"\\",judgement="judged"}"#, 1.0),
        (r#"core_seconds_total{partition="small"}"#, 144_000.0),
        (r#"mpi_core_seconds_total{partition="small"}"#, 72_000.0),
        (r#"wait_core_seconds_total{partition="small"}"#, 36_000.0),
        (r#"hindered_jobs_total{partition="small",cause="late"}"#, 4.0),
        (r#"hindered_core_seconds_total{partition="small",cause="late"}"#, 3.0 * 3_600.0 + 36_000.0),
        (r#"hindered_jobs_total{partition="a \"b\"\\",cause="stolen"}"#, 1.0),
        (r#"hindered_core_seconds_total{partition="a \"b\"\\",cause="stolen"}"#, 18_000.0),
        (r#"hindered_core_seconds_total{partition="a \"b\"\\",cause="other"}"#, 18_000.0),
        (r#"binding_jobs_total{partition="small",binding="bound"}"#, 2.0),
        (r#"binding_jobs_total{partition="small",binding="unbound"}"#, 1.0),
        (r#"saving_core_seconds{partition="small",lever="offload",bound="least"}"#, 10_800.0),
        (r#"saving_core_seconds{partition="small",lever="offload",bound="most"}"#, 21_600.0),
        (r#"saving_core_seconds{partition="a \"b\"\\",lever="dedicated_core",bound="least"}"#, -18_000.0),
        (r#"summaries_total{outcome="new"}"#, 5.0),
    ] {
        let value_found = found.get(&format!("plimsoll_fleet_{name}"));
        assert!(value_found.is_some_and(|found| (found - value).abs() < 1e-6), "{name}: {value_found:?} in {found:#?}");
    }
    let words = ["solver", "physics", "1000", "a user's word"];
    assert!(!found.keys().any(|name| words.iter().any(|word| name.contains(word))), "{found:#?}");
}

#[test]
fn what_became_of_summaries_and_when_is_counted() {
    let home = tempfile::tempdir().unwrap();
    let (spool, path) = (home.path().join("spool"), home.path().join("fleet.db"));
    std::fs::create_dir(&spool).unwrap();
    let mut store = Store::open(&path).unwrap();
    let began = machine::here::now().0 / 1_000_000_000;
    add(&spool, &mut store).unwrap();
    let of = |store: &Store, name: &str| samples(store).get(&format!("plimsoll_fleet_{name}")).copied();
    assert!(of(&store, "taken_time_seconds").unwrap() >= began as f64);
    assert_eq!(of(&store, "new_time_seconds"), None, "none has come");
    for _ in 0..2 {
        (0..3).for_each(|number| put(&spool, &job(number, "solver")).unwrap());
        std::fs::write(spool.join("bad.job"), "").unwrap();
        add(&spool, &mut store).unwrap();
    }
    let outcomes = ["new", "known", "aside"].map(|what| of(&store, &format!("summaries_total{{outcome=\"{what}\"}}")));
    assert_eq!(outcomes, [Some(3.0), Some(3.0), Some(2.0)]);
    assert!(of(&store, "new_time_seconds").unwrap() >= began as f64);
    let taken = store.events().unwrap().unwrap()[&Event::Added];
    // A store that cannot be written is seen by the moment at which a spool was last taken whole.
    store.try_to(|c| c.pragma_update(None, "query_only", true)).unwrap();
    put(&spool, &job(9, "solver")).unwrap();
    add(&spool, &mut store).unwrap_err();
    assert_eq!(store.events().unwrap().unwrap()[&Event::Added], taken);
}

/// Users write summaries: they may name partitions without end, and the names of the first ones stay.
#[test]
fn partitions_are_bounded_and_no_total_shrinks() {
    let most = FLEET_PARTITIONS.total.count() as u64;
    let of = |number: u64| {
        let mut job = job(number, "solver");
        // A group of the name of a partition to come makes its word known early.
        job.owner.group = format!("p{}", 3 * most - number);
        job.partition = format!("p{number}");
        job
    };
    let (_home, mut store) = store_of(&[]);
    let mut before = BTreeMap::new();
    for batch in 0..8 {
        store.add(&(batch * most / 4..(batch + 1) * most / 4).map(of).collect::<Vec<_>>()).unwrap();
        let after = samples(&store);
        for (name, value) in &before {
            assert!(after.get(name).is_some_and(|now| now >= value), "{name}: {value}, then {:?}", after.get(name));
        }
        before = after;
    }
    let name = |partition: &str| format!("plimsoll_fleet_core_seconds_total{{partition=\"{partition}\"}}");
    assert_eq!(before.keys().filter(|of| of.starts_with(&name("")[..40])).count() as u64, most + 1);
    assert_eq!(before[&name("other")], most as f64 * 36_000.0);
    assert!(before.contains_key(&name("p0")) && !before.contains_key(&name(&format!("p{most}"))));
    let series = before.keys().filter(|name| name.contains("partition=\"p0\"")).count();
    assert_eq!(series, 5 + 3 + 2 * (Cause::ALL.len() + 1) + 2 + 2 * Lever::ALL.len(), "docs/centre.md states it");
}

/// A store of layout 1 has no events, until it is added to.
#[test]
fn a_store_without_events_is_read_and_added_to() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("fleet.db");
    Connection::open(&path).unwrap().execute_batch(include_str!("store-1.sql")).unwrap();
    let found = samples(&Store::read(&path).unwrap());
    assert_eq!(found[r#"plimsoll_fleet_jobs_total{partition="small",judgement="judged"}"#], 6.0);
    assert!(!found.keys().any(|name| name.contains("summaries") || name.contains("time_seconds")), "{found:#?}");
    Store::open(&path).unwrap().add(&[job(7, "solver")]).unwrap();
    assert_eq!(samples(&Store::read(&path).unwrap())[r#"plimsoll_fleet_summaries_total{outcome="new"}"#], 1.0);
}

/// Each word of letters and underscores that begins with `plimsoll_`.
fn names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("plimsoll_")).collect()
}

#[test]
fn the_dashboard_and_the_alerts_ask_for_what_is_written() {
    let mut store = fleet::example::store().unwrap();
    Event::ALL.into_iter().for_each(|event| store.note(event, 1).unwrap());
    let text = text(&store).unwrap();
    let written: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let expressions = |panel: &serde_json::Value| -> Vec<String> {
        let targets = panel["targets"].as_array().unwrap();
        targets.iter().map(|target| target["expr"].as_str().unwrap().to_owned()).collect()
    };
    let queries: Vec<String> = panels.iter().flat_map(expressions).collect();
    let asked = queries.join("\n") + ALERTS;
    assert_eq!(names(&asked), written, "asked and written");
    // Labels are asked for by words that there are, as `label="a"` and `label=~"a|b"`.
    let mut matched = 0;
    for (label, rest) in asked.split('"').collect::<Vec<_>>().windows(2).map(|two| (two[0], two[1])) {
        let Some(label) = label.trim_end_matches('~').strip_suffix('=') else { continue };
        let label = label.rsplit(['{', ',']).next().unwrap();
        for word in rest.split('|').filter(|word| *word != "$partition") {
            matched += 1;
            assert!(text.contains(&format!("{label}=\"{word}\"")), "{label}={word}");
        }
    }
    assert!(matched >= 4, "{matched} words");
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len());
    // No panel lies over another, or beyond the 24 columns.
    let mut cells = BTreeSet::new();
    for panel in panels {
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().unwrap());
        assert!(x + w <= 24, "{panel}");
        (x..x + w).for_each(|x| (y..y + h).for_each(|y| assert!(cells.insert((x, y)), "{panel}")));
    }
}
