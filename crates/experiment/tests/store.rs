//! What is finished stays: killed, full, damaged, locked.

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path as FilePath, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use experiment::conduct::conduct;
use experiment::design::Design;
use experiment::designs::Beginning;
use experiment::store::{Contents, Store, Study};
use rounds::point::PointKey;
use rounds::sitting::End;

use crate::simulated::{Notes, Simulated, duel, grounds, plausible};
use machine::{Fault, Nanoseconds};

/// Tells a child of this test binary where its store is.
const STORE: &str = "PLIMSOLL_TEST_STORE";

fn beginning(design: &Design) -> Beginning<'_, Design> {
    Beginning { design, seed: 9, host: "simulated boot 1", version: "0", facts: &[], now: Nanoseconds(1) }
}

fn take_up(store: &mut Store, design: &Design) -> Study {
    match store.unfinished(design, "simulated boot 1").unwrap() {
        Some(study) => study,
        None => store.begin(&beginning(design)).unwrap(),
    }
}

fn blocks(contents: &Contents) -> BTreeSet<(PointKey, u32)> {
    contents.samples.iter().flat_map(|(key, s)| s.iter().map(|s| (key.clone(), s.round))).collect()
}

/// Runs the ignored test `name` of this binary in a process of its own.
fn child(name: &str, store: &FilePath) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("store::{name}"), "--nocapture"]).env(STORE, store).stdout(Stdio::null());
    command
}

fn store_of_child() -> Option<PathBuf> {
    std::env::var_os(STORE).map(PathBuf::from)
}

/// A child that must not outlive its test.
struct Reaped(Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Not a test by itself: run by those that kill it.
#[test]
fn child_measures_slowly() {
    let Some(path) = store_of_child() else { return };
    let mut store = Store::open(&path).unwrap();
    let design = Design::of(grounds()).unwrap();
    let mut study = take_up(&mut store, &design);
    let mut runner = Simulated::new(plausible, 1);
    runner.before = |_| std::thread::sleep(Duration::from_millis(1));
    conduct(&mut store, &mut study, &mut runner, &mut Notes::default(), &|| false).unwrap();
}

#[test]
fn a_study_killed_in_the_middle_loses_nothing_and_doubles_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("study.sqlite");
    let design = Design::of(grounds()).unwrap();
    let mut known = BTreeSet::new();
    for kill in 0..3 {
        let mut running = Reaped(child("child_measures_slowly", &path).stderr(Stdio::null()).spawn().unwrap());
        // The log grows with every commit: killed while it does, at a moment that nothing chooses.
        let log = folder.path().join("study.sqlite-wal");
        let length = || std::fs::metadata(&log).map_or(0, |m| m.len());
        let (start, deadline) = (length(), Instant::now() + skip::LIMIT);
        while length() <= start.max(200_000) && Instant::now() < deadline && running.0.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(2));
        }
        assert!(running.0.try_wait().unwrap().is_none(), "the child ended before it could be killed");
        running.0.kill().unwrap();
        assert_eq!(running.0.wait().unwrap().signal(), Some(9));

        let store = Store::open(&path).unwrap();
        let study = store.unfinished(&design, "simulated boot 1").unwrap().expect("it can go on");
        let now = blocks(&store.contents(&study).unwrap());
        assert!(now.is_superset(&known) && now.len() > known.len(), "kill {kill}: {} then {}", known.len(), now.len());
        known = now;
    }
    let mut store = Store::open(&path).unwrap();
    let mut study = store.unfinished(&design, "simulated boot 1").unwrap().unwrap();
    assert_eq!(study.id, 1, "it was the same study all along");
    let mut runner = Simulated::new(plausible, 2);
    assert_eq!(conduct(&mut store, &mut study, &mut runner, &mut Notes::default(), &|| false).unwrap(), End::Finished);
    let contents = store.contents(&study).unwrap();
    let all = blocks(&contents);
    assert!(all.is_superset(&known));
    assert_eq!(all.len() - known.len(), runner.blocks, "what was stored is not measured again");
    let stored: usize = contents.samples.values().map(Vec::len).sum();
    assert_eq!(stored, all.len(), "no block is there twice");
    assert!(design.points().iter().all(|p| contents.samples[&p.key()].len() >= 5));
}

#[test]
fn a_resumed_study_draws_the_order_of_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let design = Design::of(grounds()).unwrap();
    let whole = {
        let mut store = Store::open(&folder.path().join("whole.sqlite")).unwrap();
        let mut study = take_up(&mut store, &design);
        conduct(&mut store, &mut study, &mut Simulated::new(plausible, 1), &mut Notes::default(), &|| false).unwrap();
        store.contents(&study).unwrap()
    };
    let path = folder.path().join("parts.sqlite");
    for part in 0.. {
        let mut store = Store::open(&path).unwrap();
        let mut study = take_up(&mut store, &design);
        let asked = std::cell::Cell::new(0);
        let stop = || asked.replace(asked.get() + 1) == 301;
        let mut runner = Simulated::new(plausible, 1);
        if conduct(&mut store, &mut study, &mut runner, &mut Notes::default(), &stop).unwrap() == End::Finished {
            assert!(part > 0, "it was interrupted at least once");
            break;
        }
    }
    let store = Store::open(&path).unwrap();
    let parts = store.contents(&store.chosen(None).unwrap()).unwrap();
    let order = |contents: &Contents| -> BTreeSet<(PointKey, u32, u32)> {
        let samples = contents.samples.iter();
        samples.flat_map(|(k, s)| s.iter().filter(|s| s.round < 5).map(|s| (k.clone(), s.round, s.order))).collect()
    };
    assert_eq!(order(&whole), order(&parts));
}

#[test]
fn another_design_or_another_boot_is_not_gone_on_with() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::open(&folder.path().join("study.sqlite")).unwrap();
    let (design, other) = (duel(), Design::of(grounds()).unwrap());
    let mut study = store.begin(&beginning(&design)).unwrap();
    assert_eq!(store.unfinished(&design, "simulated boot 1").unwrap().unwrap(), study);
    assert_eq!(store.unfinished(&other, "simulated boot 1").unwrap(), None);
    assert_eq!(store.unfinished(&design, "simulated boot 2").unwrap(), None);
    store.finish(&mut study, Nanoseconds(2)).unwrap();
    assert_eq!(store.unfinished(&design, "simulated boot 1").unwrap(), None);
    assert_eq!(store.chosen(None).unwrap(), study);
}

#[test]
fn a_finished_study_is_kept_and_shown_while_the_next_one_runs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("study.sqlite");
    let design = Design::of(grounds()).unwrap();
    let finished = {
        let mut store = Store::open(&path).unwrap();
        let mut study = store.begin(&beginning(&design)).unwrap();
        conduct(&mut store, &mut study, &mut Simulated::new(plausible, 1), &mut Notes::default(), &|| false).unwrap();
        store.finish(&mut study, Nanoseconds(2)).unwrap();
        study
    };
    let whole = blocks(&Store::read(&path).unwrap().contents(&finished).unwrap());
    let _running = Reaped(child("child_measures_slowly", &path).stderr(Stdio::null()).spawn().unwrap());
    let deadline = Instant::now() + skip::LIMIT;
    let store = loop {
        // The child may be in the midst of opening it.
        match Store::read(&path) {
            Ok(store) if store.entries().unwrap().get(1).is_some_and(|next| next.blocks > 0) => break store,
            _ => assert!(Instant::now() < deadline, "the second study was not seen"),
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(store.chosen(None).unwrap(), finished, "the latest that finished");
    assert_eq!(blocks(&store.contents(&finished).unwrap()), whole);
    let next = store.chosen(Some(2)).unwrap();
    assert_eq!((next.id, next.finished), (2, None));
    let fault = store.chosen(Some(7)).unwrap_err();
    assert_eq!((fault.cause(), fault.next()), ("it holds no study 7", "name one from 1 to 2"));
}

#[test]
fn who_reads_changes_nothing_and_needs_no_place_to_write() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    // A name that SQLite would read something into.
    let place = folder.path().join("a?b#c%41");
    let path = place.join("study.sqlite");
    let design = duel();
    let mut study = Store::open(&path).unwrap().begin(&beginning(&design)).unwrap();
    Store::open(&path).unwrap().finish(&mut study, Nanoseconds(2)).unwrap();
    let listed = || -> Vec<_> {
        let entries = std::fs::read_dir(&place).unwrap().map(|entry| entry.unwrap());
        entries.map(|entry| (entry.file_name(), std::fs::read(entry.path()).unwrap())).collect()
    };
    let before = listed();
    std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o555)).unwrap();
    let shown = Store::read(&path).and_then(|store| store.chosen(None));
    std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(shown.unwrap(), study);
    assert_eq!(listed(), before);
    let mut reader = Store::read(&path).unwrap();
    assert!(reader.begin(&beginning(&design)).is_err(), "a reader writes");
}

fn refusal(path: &FilePath) -> Fault {
    Store::open(path).err().expect("the store must be refused")
}

#[test]
fn a_damaged_store_is_named_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("study.sqlite");
    {
        let mut store = Store::open(&path).unwrap();
        let design = Design::of(grounds()).unwrap();
        let mut study = store.begin(&beginning(&design)).unwrap();
        conduct(&mut store, &mut study, &mut Simulated::new(plausible, 1), &mut Notes::default(), &|| false).unwrap();
    }
    let whole = std::fs::read(&path).unwrap();
    let mut garbled = whole.clone();
    let middle = garbled.len() / 2;
    garbled[middle..middle + 8192].fill(0xA5);
    let mut text = whole.clone();
    text[..16].copy_from_slice(b"not a database!!");
    for damage in [garbled, text, whole[..whole.len() / 2].to_vec(), b"garbage".repeat(1000)] {
        std::fs::write(&path, &damage).unwrap();
        let fault = refusal(&path);
        assert_eq!(fault.subject(), format!("store {}", path.display()));
        assert!(fault.cause().contains("damaged") && fault.cause().contains("nothing was deleted"), "{fault}");
        assert!(fault.next().contains("move it away"), "{fault}");
        assert!(std::fs::read(&path).unwrap() == damage, "it was changed");
    }
}

/// A child of this process has the lock too between its start and its own program.
#[test]
fn a_lock_that_is_let_go_at_once_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("study.sqlite");
    drop(Store::open(&path).unwrap());
    let held = std::fs::File::open(machine::lock::beside(&path)).unwrap();
    held.try_lock().unwrap();
    std::thread::scope(|scope| {
        let opened = scope.spawn(|| Store::open(&path).map(drop));
        std::thread::sleep(std::time::Duration::from_millis(20));
        drop(held);
        opened.join().unwrap().unwrap();
    });
}

#[test]
fn a_foreign_store_and_one_of_another_layout_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let foreign = folder.path().join("foreign.sqlite");
    rusqlite::Connection::open(&foreign).unwrap().execute_batch("CREATE TABLE a (b)").unwrap();
    assert!(refusal(&foreign).cause().contains("another program"));
    let other = folder.path().join("other.sqlite");
    drop(Store::open(&other).unwrap());
    for layout in [1, 99] {
        rusqlite::Connection::open(&other).unwrap().pragma_update(None, "user_version", layout).unwrap();
        assert!(refusal(&other).cause().contains(&format!("layout {layout}; this version knows layout ")));
    }
}

#[test]
fn a_store_in_use_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("study.sqlite");
    let held = Store::open(&path).unwrap();
    let fault = refusal(&path);
    assert_eq!(fault.subject(), format!("store {}", path.display()));
    assert!(fault.cause().starts_with(&format!("process {} (", std::process::id())), "{fault}");
    drop(held);
    Store::open(&path).unwrap();
}

#[test]
fn another_users_lock_on_a_store_that_it_may_read_keeps_nobody_from_measuring() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = folder.path().join("study.sqlite");
    drop(Store::open(&path).unwrap());
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let theirs = skip::another_user(|| {
        assert!(std::fs::File::open(machine::lock::beside(&path)).is_err());
        let store = std::fs::File::open(&path).unwrap();
        store.try_lock().unwrap();
        store
    });
    if theirs.is_some() {
        Store::open(&path).unwrap();
    }
}

#[test]
fn a_place_that_cannot_be_written_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let fault = refusal(&file.join("study.sqlite"));
    assert!(fault.next().contains("--store"), "{fault}");
    assert!(Store::read(&folder.path().join("none")).err().unwrap().cause().contains("No such file"));
}

/// Not a test by itself: run by the one that gives it a small disk.
#[test]
fn child_fills_the_disk() {
    let Some(path) = store_of_child() else { return };
    let mut store = Store::open(&path).unwrap();
    let design = Design::of(grounds()).unwrap();
    let mut study = store.begin(&beginning(&design)).unwrap();
    let fault = conduct(&mut store, &mut study, &mut Simulated::new(plausible, 1), &mut Notes::default(), &|| false)
        .unwrap_err();
    eprintln!("FAULT {fault}");
    drop(store);
    let store = Store::open(&path).unwrap();
    let study = store.unfinished(&design, "simulated boot 1").unwrap().expect("it can go on");
    let kept = blocks(&store.contents(&study).unwrap()).len();
    eprintln!("KEPT {kept}");
}

#[test]
fn a_full_disk_is_a_fault_and_everything_finished_stays() {
    let folder = tempfile::tempdir().unwrap();
    // A file system of half a megabyte in a mount namespace of the child's own: it goes when the child does.
    let child = child("child_fills_the_disk", &folder.path().join("study.sqlite"));
    let script = "mount -t tmpfs -o size=512k plimsoll-test \"$1\" || exit 77; shift; exec \"$@\"";
    let Some(unshare) = skip::tool("unshare") else { return };
    let mut command = Command::new(unshare);
    let user: &[&str] = if run_as_root() { &[] } else { &["--map-root-user"] };
    command.args(user).args(["--mount", "sh", "-c", script, "sh"]).arg(folder.path());
    command.arg(child.get_program()).args(child.get_args()).env(STORE, folder.path().join("study.sqlite"));
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(77) || said.contains("unshare failed") || said.contains("Operation not permitted") {
        return skip::test(format_args!("no mount namespace may be made here: {said}"));
    }
    assert!(output.status.success(), "{said}");
    assert!(said.contains("the disk is full; everything finished is kept"), "{said}");
    let kept: usize = said.split("KEPT ").nth(1).and_then(|n| n.lines().next()?.parse().ok()).expect("a count");
    assert!(kept > 10, "{said}");
}

fn run_as_root() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|s| s.contains("\nUid:\t0\t0\t"))
}
