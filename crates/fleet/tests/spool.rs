use std::fs;
use std::path::Path;

use fleet::spool::{self, ASIDE, Added, add, put};
use fleet::store::Store;
use fleet::summary::{Summary, VERSION};
use fleet::totals::{Asked, By, totals};
use proptest::prelude::*;
use rusqlite::Connection;

use super::job;

fn jobs(store: &Path) -> u64 {
    totals(&Store::read(store).unwrap(), Asked::default(), By::Month).unwrap().jobs
}

fn folder() -> (tempfile::TempDir, std::path::PathBuf, std::path::PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let (spool, store) = (home.path().join("spool"), home.path().join("fleet.db"));
    fs::create_dir(&spool).unwrap();
    (home, spool, store)
}

fn add_to(store: &Path, spool: &Path) -> Added {
    add(spool, &mut Store::open(store).unwrap()).unwrap()
}

#[test]
fn a_summary_is_added_once_however_often_it_comes() {
    let (_home, spool, store) = folder();
    for round in 0..3 {
        (0..5).for_each(|number| put(&spool, &job(number, "solver")).unwrap());
        let added = add_to(&store, &spool);
        assert_eq!((added.new, added.known, added.aside_in_all), if round == 0 { (5, 0, 0) } else { (0, 5, 0) });
        assert_eq!(jobs(&store), 5);
    }
    assert_eq!(fs::read_dir(&spool).unwrap().count(), 0, "nothing is left in the spool");
}

/// A store that release 0.1.0 wrote with layout 1 is asked as it is, and converted by the first that adds to it.
#[test]
fn a_store_of_layout_1_knows_its_jobs() {
    let (_home, spool, store) = folder();
    Connection::open(&store).unwrap().execute_batch(include_str!("store-1.sql")).unwrap();
    let layout = || {
        let layout = |c: Connection| c.query_row("PRAGMA user_version", [], |row| row.get::<_, i64>(0));
        Connection::open(&store).and_then(layout).unwrap()
    };
    assert_eq!((jobs(&store), layout()), (6, 1));
    for round in 0..2 {
        (0..7).for_each(|number| put(&spool, &job(number, "solver")).unwrap());
        let added = add_to(&store, &spool);
        assert_eq!((added.new, layout()), (1 - round, 2));
    }
    assert_eq!(jobs(&store), 7);
}

#[test]
fn what_is_no_summary_of_a_known_job_is_kept_aside_with_its_reason() {
    let (_home, spool, store) = folder();
    let write = |name: &str, text: &str| fs::write(spool.join(name), text).unwrap();
    let text = |of: &Summary| serde_json::to_string(of).unwrap();
    write("good.job", &text(&job(1, "solver")));
    write("cut.job", &text(&job(2, "solver"))[..200]);
    write("empty.job", "");
    write("long.job", &" ".repeat(70_000));
    write("newer.job", &text(&Summary { version: VERSION + 1, ..job(3, "solver") }));
    write("word.job", &text(&job(4, &"x".repeat(200))));
    write("line.job", &text(&job(5, "a\nb")));
    write("time.job", &text(&Summary { seconds: -1.0, ..job(6, "solver") }));
    let mut gain = job(7, "solver");
    gain.levers.push(gain.levers[0]);
    write("twice.job", &text(&gain));
    write("ranks.job", &text(&Summary { ranks: 11, ..job(8, "solver") }));
    write("unbound.job", &text(&Summary { unbound: Some(11), ..job(8, "solver") }));
    let mut foreign = job(9, "solver");
    foreign.owner.user += 1;
    write("foreign.job", &text(&foreign));
    std::os::unix::fs::symlink("/dev/zero", spool.join("link.job")).unwrap();
    write("unfinished.123", "");
    let root = rustix::process::getuid().is_root();
    let added = add_to(&store, &spool);
    let mut aside: Vec<String> =
        added.aside.iter().map(|(name, why)| format!("{}: {why}", spool::shown(name))).collect();
    aside.sort();
    let mut expected = vec![
        "cut.job: it is damaged at byte 200",
        "empty.job: it is damaged at byte 0",
        "line.job: its word cannot be",
        "link.job: it is a link",
        "long.job: it is longer than it may be",
        "newer.job: a newer plimsoll wrote it: version 2, and this one knows 1",
        "ranks.job: its number of parts cannot be",
        "time.job: its time or size cannot be",
        "twice.job: its gain cannot be",
        "unbound.job: its number of parts cannot be",
        "word.job: its word cannot be",
    ];
    if !root {
        expected.insert(2, "foreign.job: it tells of another user's job");
    }
    assert_eq!(aside, expected);
    assert_eq!(added.new, if root { 2 } else { 1 });
    for line in &expected {
        let (name, why) = line.split_once(": ").unwrap();
        let aside = spool.join(ASIDE);
        assert!(aside.join(name).symlink_metadata().is_ok());
        assert_eq!(fs::read_to_string(aside.join(format!("{name}.why"))).unwrap(), format!("{why}\n"));
    }
    assert_eq!(fs::read_dir(spool.join(ASIDE)).unwrap().count(), 2 * expected.len());
    assert!(spool.join("unfinished.123").exists(), "what is being written stays");
}

/// A store that knows a summary without them is not contradicted by the same file later.
#[test]
fn fields_that_a_summary_lacks_are_not_known_and_change_nothing() {
    let (_home, spool, store) = folder();
    let text = serde_json::to_string(&job(1, "solver")).unwrap();
    let lacking = text.replace(",\"unbound\":0", "").replace(",\"clocks_apart\":null", "");
    assert!(!lacking.contains("unbound") && !lacking.contains("clocks_apart"), "{lacking}");
    let read = Summary::parse(lacking.as_bytes()).unwrap();
    assert_eq!(read, Summary { unbound: None, ..job(1, "solver") });
    for counts in [(1, 0), (0, 1)] {
        fs::write(spool.join("earlier.job"), &lacking).unwrap();
        let added = add_to(&store, &spool);
        assert_eq!(((added.new, added.known), added.aside_in_all), (counts, 0));
    }
    assert!(!serde_json::to_string(&read).unwrap().contains("unbound"), "what is not known is not written");
}

/// Users choose the names of files, and may have made the folder.
#[test]
fn a_reason_is_written_to_no_file_that_was_there() {
    let (home, spool, store) = folder();
    let (aside, other) = (spool.join(ASIDE), home.path().join("other"));
    fs::create_dir(&aside).unwrap();
    fs::write(&other, "as it was").unwrap();
    std::os::unix::fs::symlink(&other, aside.join("bad.job.why")).unwrap();
    let long = format!("{}.job", "x".repeat(251));
    ["bad.job", &long].into_iter().for_each(|name| fs::write(spool.join(name), "").unwrap());
    assert_eq!(add_to(&store, &spool).aside_in_all, 2);
    assert_eq!(fs::read_to_string(&other).unwrap(), "as it was");
    let why = |name: &str| fs::read_to_string(aside.join(name)).unwrap();
    assert_eq!(why("bad.job.why"), "it is damaged at byte 0\n");
    assert_eq!(why(&format!("{}.why", "x".repeat(251))), "it is damaged at byte 0\n");
}

#[test]
fn two_jobs_of_one_number_are_told_apart_and_two_tales_of_one_are_not_both_believed() {
    let (_home, spool, store) = folder();
    put(&spool, &job(1, "solver")).unwrap();
    let mut others = [job(1, "solver"), job(1, "solver"), job(1, "solver"), job(1, "solver")];
    others[0].job.restart = 1;
    others[1].job.array = Some(3);
    others[2].job.cluster = "other".into();
    others[3].started += 40 * 86_400;
    others.iter().for_each(|other| put(&spool, other).unwrap());
    assert_eq!(add_to(&store, &spool).new, 5);
    put(&spool, &Summary { cores: 20, ..job(1, "solver") }).unwrap();
    let added = add_to(&store, &spool);
    assert_eq!((added.new, &added.aside[0].1[..]), (0, "the store has another summary of this step"));
    assert_eq!(jobs(&store), 5);
}

#[test]
fn two_that_add_one_spool_at_once_count_each_job_once() {
    let (_home, spool, store) = folder();
    (0..4_500).for_each(|number| put(&spool, &job(number, "solver")).unwrap());
    let adding: Vec<_> = (0..3)
        .map(|_| {
            let (spool, store) = (spool.clone(), store.clone());
            std::thread::spawn(move || add_to(&store, &spool))
        })
        .collect();
    let added: Vec<Added> = adding.into_iter().map(|adding| adding.join().unwrap()).collect();
    assert_eq!(added.iter().map(|added| added.new).sum::<u64>(), 4_500);
    assert_eq!(jobs(&store), 4_500);
    assert!(fs::read_dir(&spool).unwrap().next().is_none());
}

#[test]
fn a_full_disk_leaves_the_store_and_the_spool_as_they_were() {
    let (_home, spool, store) = folder();
    add_to(&store, &spool);
    (0..3_000).for_each(|number| put(&spool, &job(number, &format!("program-{number}"))).unwrap());
    let mut full = Store::open(&store).unwrap();
    full.try_to(|c| c.query_row("PRAGMA max_page_count = 40", [], |_| Ok(()))).unwrap();
    let fault = add(&spool, &mut full).unwrap_err().to_string();
    assert!(fault.contains("full") && fault.contains("still in the spool"), "{fault}");
    drop(full);
    assert_eq!(jobs(&store), 0);
    assert_eq!(add_to(&store, &spool).new, 3_000);
}

#[test]
fn a_store_of_another_kind_is_refused_and_left_alone() {
    let (_home, _, store) = folder();
    Connection::open(&store).unwrap().execute_batch("CREATE TABLE t (x);").unwrap();
    let before = fs::read(&store).unwrap();
    let refused = |fault: machine::Fault| fault.to_string();
    assert!(refused(Store::open(&store).err().unwrap()).contains("it is no store of jobs"));
    assert!(refused(Store::read(&store).err().unwrap()).contains("it is no store of jobs"));
    assert_eq!(fs::read(&store).unwrap(), before);
    fs::write(&store, "no database at all, but text that is long enough to be read as a header of one").unwrap();
    assert!(refused(Store::open(&store).err().unwrap()).contains("move it away"));
    assert!(refused(Store::read(Path::new("/nowhere/fleet.db")).err().unwrap()).contains("there is none"));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever bytes a user leaves: no panic, and what is taken can be added and read.
    #[test]
    fn any_bytes_are_read_or_refused(at in 0..900_usize, byte: u8, cut in 0..1_000_usize) {
        let mut text = serde_json::to_vec(&job(1, "solver")).unwrap();
        let place = at % text.len();
        text[place] = byte;
        text.truncate(cut.max(1));
        if let Ok(summary) = Summary::parse(&text) {
            prop_assert!(summary.core_seconds() >= 0.0);
            prop_assert_eq!(Summary::parse(&serde_json::to_vec(&summary).unwrap()), Ok(summary));
        }
    }
}
