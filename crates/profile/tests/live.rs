//! A job looked at while it runs: ranks whose every call is known, between two moments that are known too.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::path::Path;

use crate::synthetic::{RATE, Rank, SECOND, head, job};
use machine::budget::Budget;
use profile::job::Job;
use profile::live::screen::{Sort, Window, lines};
use profile::live::{Here, JobState, RankState, Watch};
use profile::summary::Stall;
use record::folder;
use record::functions::{Class, named};
use record::layout::{Thread, kind, words};
use record::samples::{ThreadBlocked, ThreadWork, Writer};

const MS: u64 = 1_000_000;

/// What rank 0 and rank 1 of two have done after so many ms: the one sends and computes, the other came to MPI_Wait at
/// 2 s and is there still.
fn write(profile: &Path, after: u64) {
    let ns = after * MS;
    for number in 0..2 {
        let mut rank = Rank::new(number, 2, 10 * SECOND);
        let header = &mut rank.image.header;
        (header.finalized, header.ended) = (0, 0);
        header.pid_namespace = 9;
        header.latest.ticks = header.started.ticks + ns * RATE;
        header.latest.monotonic = header.started.monotonic + ns;
        let start = header.started.ticks;
        let mut thread = Thread { tid: 1, ..Thread::default() };
        if number == 0 {
            // One of 100 µs each ms.
            let sends = after;
            rank.calls("Send", 0, (0..sends).map(|_| (MS / 10, 1000)));
            thread.calls = sends;
            (thread.messages, thread.bytes) = (sends, 1000 * sends);
            thread.ticks[Class::Send as usize] = sends * MS / 10 * RATE;
        } else {
            rank.calls("Wait", 0, (0..50).map(|_| (MS / 10, 0)));
            thread.calls = 50;
            thread.ticks[Class::Completion as usize] = 50 * MS / 10 * RATE;
            thread.inside = u32::from(named("Wait").unwrap().id.0) + 1;
            thread.since = start + 2 * SECOND * RATE;
        }
        rank.image.region(kind::THREAD, 0, (0, 0), &[thread]);
        let header = &rank.image.header;
        let file = folder::rank_file(profile, &words(&header.host), header.pid);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        rank.image.write(&file).unwrap();
    }
}

fn about(value: Option<f64>, wanted: f64) -> bool {
    value.is_some_and(|value| (value - wanted).abs() <= 0.02 * wanted.max(1.0))
}

#[test]
fn rates_states_and_ends_are_those_of_the_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let running = Job { ended: None, exit_code: None, boot: "a-boot".into(), pid: 7, pid_namespace: 9, ..job() };
    running.write(folder.path()).unwrap();
    let clock = Cell::new(0);
    let gone = std::cell::RefCell::new(BTreeSet::new());
    let (monotonic, is_alive) = (|| clock.get(), |pid| !gone.borrow().contains(&pid));
    let seen_from =
        |pid_namespace| Here { boot: "a-boot".into(), monotonic: &monotonic, pid_namespace, is_alive: &is_alive };
    let here = seen_from(9);
    let mut watch = Watch::open(folder.path(), None, Budget::new(1 << 30)).unwrap();
    assert!(watch.look(&here).ranks.is_empty(), "no rank is there yet");

    // The ranks' clocks began at 5 s.
    let moment = |after: u64| {
        write(folder.path(), after);
        clock.set(5 * SECOND + after * MS);
    };
    moment(4000);
    let first = watch.look(&here);
    assert_eq!(first.ranks.iter().map(|rank| rank.rank).collect::<Vec<_>>(), [Some(0), Some(1)]);
    assert!(first.ranks.iter().all(|rank| rank.calls.is_none()), "one look tells no rate");

    moment(5000);
    let look = watch.look(&here);
    assert_eq!(look.job.state, JobState::Running);
    assert_eq!(look.seconds, Some(1.0));
    let [sender, waiter] = look.ranks.as_slice() else { panic!("{look:?}") };
    assert_eq!(sender.state, RankState::Computing);
    assert!(about(sender.calls, 1000.0) && about(sender.bytes, 1e6) && about(sender.mpi, 0.1), "{sender:?}");
    assert!(about(sender.wait, 0.0), "sends that are all as short wait for nobody: {sender:?}");
    let RankState::Inside { function, seconds } = &waiter.state else { panic!("{waiter:?}") };
    assert_eq!(function, "MPI_Wait");
    assert!(about(*seconds, 3.0), "{seconds:?}");
    assert!(about(waiter.mpi, 1.0) && about(waiter.wait, 1.0) && about(waiter.calls, 0.0), "{waiter:?}");
    assert_eq!(look.functions.iter().map(|f| f.name.as_str()).collect::<Vec<_>>(), ["MPI_Wait", "MPI_Send"]);
    let [waits, sends] = look.functions.as_slice() else { panic!("{:?}", look.functions) };
    assert!(about(Some(sends.calls), 1000.0) && about(Some(sends.share), 0.1 / 1.1), "{sends:?}");
    assert!(waits.calls == 0.0 && about(waits.wait, 1.0), "{waits:?}");
    assert_eq!((sender.core, sender.involuntary), (None, None), "nobody samples the cores");

    // Their numbers mean others here.
    gone.borrow_mut().extend([7, 1001]);
    let look = watch.look(&seen_from(8));
    assert_eq!(look.job.state, JobState::Running);
    assert_ne!(look.ranks[1].state, RankState::Killed);
    let look = watch.look(&here);
    assert_eq!(look.job.state, JobState::Orphaned);
    assert_eq!(look.ranks[1].state, RankState::Killed);

    Job { ended: Some(1), signal: Some(9), ..running }.write(folder.path()).unwrap();
    let look = watch.look(&here);
    assert_eq!(look.job.state, JobState::Ended { exit_code: None, signal: Some(9) });
    assert!(look.ranks.iter().all(|rank| rank.state == RankState::Killed), "none was finalized");
}

/// Samples until so many ms, by which rank 0 sleeps for 80 % of its time outside of MPI.
fn sample(profile: &Path, after: u64) {
    let mut file = Vec::new();
    let mut writer = Writer::begin(&mut file, &head()).unwrap();
    for moment in (0..=after).step_by(20) {
        let slept = moment * MS / 10 * 8;
        let blocked = ThreadBlocked { outside: slept, sleep: slept, ..ThreadBlocked::default() };
        writer.thread_work(1000, 0, 1, &ThreadWork { core: 1, ..ThreadWork::default() }).unwrap();
        writer.thread_blocked(1000, 0, 1, &blocked).unwrap();
        writer.end_work(5 * SECOND + moment * MS).unwrap();
        writer.end_load(5 * SECOND + moment * MS).unwrap();
    }
    let path = folder::samples_file(profile, "node-a");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, file).unwrap();
}

#[test]
fn a_rank_that_sleeps_is_not_computing() {
    let folder = tempfile::tempdir().unwrap();
    Job { ended: None, exit_code: None, boot: "a-boot".into(), ..job() }.write(folder.path()).unwrap();
    let clock = Cell::new(0);
    let monotonic = || clock.get();
    let here = Here { boot: "a-boot".into(), monotonic: &monotonic, pid_namespace: 0, is_alive: &|_| true };
    let mut watch = Watch::open(folder.path(), None, Budget::new(1 << 30)).unwrap();
    let mut look = |after| {
        write(folder.path(), after);
        sample(folder.path(), after);
        clock.set(5 * SECOND + after * MS);
        watch.look(&here)
    };
    look(4000);
    let look = look(5000);
    let [sleeper, waiter] = look.ranks.as_slice() else { panic!("{look:?}") };
    assert!(sleeper.blocked.is_some_and(|share| (share - 0.8).abs() < 0.05), "{sleeper:?}");
    assert_eq!((sleeper.stall, waiter.stall), (Some(Stall::Sleep), None));
    let window = Window { columns: 300, rows: None, sort: Sort::Rank, scroll: 0, colour: false };
    let text = lines(&look, window).join("\n");
    assert!(text.contains("asleep outside MPI") && !text.contains("computing"), "{text}");
}

#[test]
fn a_folder_of_something_else_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    assert!(Watch::open(folder.path(), None, Budget::new(1 << 30)).is_err());
}

#[test]
fn ranks_that_need_more_memory_than_there_is_are_left_out_and_named() {
    let folder = tempfile::tempdir().unwrap();
    job().write(folder.path()).unwrap();
    write(folder.path(), 1000);
    let here = Here { boot: "a-boot".into(), monotonic: &|| SECOND, pid_namespace: 9, is_alive: &|_| true };
    let look = |bytes| Watch::open(folder.path(), None, Budget::new(bytes)).unwrap().look(&here);
    // From that for the job on, until there is some for one of its two ranks.
    let look = (100 << 10..10 << 20).step_by(32 << 10).map(look).find(|look| !look.ranks.is_empty()).unwrap();
    let left: Vec<_> = look.notes.iter().filter(|note| note.contains("more memory than is left")).collect();
    assert!(look.ranks.len() == 1 && left.len() == 1 && left[0].contains(".rank: "), "{look:?}");
    assert!(Watch::open(folder.path(), None, Budget::new(1000)).is_err());
}

#[test]
fn a_profile_that_is_removed_is_over() {
    let folder = tempfile::tempdir().unwrap();
    Job { ended: None, ..job() }.write(folder.path()).unwrap();
    let here = Here { boot: "b".into(), monotonic: &|| SECOND, pid_namespace: 9, is_alive: &|_| true };
    let mut watch = Watch::open(folder.path(), None, Budget::new(1 << 30)).unwrap();
    assert_eq!(watch.look(&here).job.state, JobState::Running);
    drop(folder);
    assert_eq!(watch.look(&here).job.state, JobState::Orphaned);
}
