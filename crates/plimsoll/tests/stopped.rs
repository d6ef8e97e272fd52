//! A rank that is stopped repeatedly: the verdict names it before any placement.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use launch::family::Family;
use machine::count;
use profile::page;
use profile::profile::Profile;
use profile::summary::Summary;
use profile::terminal::{Screen, render};
use profile::verdict::Cause;
use profile::words::percent;
use record::folder;
use record::live::Live;
use rustix::process::{Pid, Signal, kill_process};
use testbed::recording::{Recording, Recordings};
use testbed::{Mpi, Place};

/// Two ranks compute, swap a halo and agree on the longest step, until rank 0 has seen two seconds pass.
const PROGRAM: &str = r#"
#include <mpi.h>
enum { BYTES = 16384 };
int main(int argc, char **argv)
{
    static char out[BYTES], in[BYTES];
    int rank, ranks, rest = 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    double start = MPI_Wtime();
    while (rest) {
        double begun = MPI_Wtime(), step, longest;
        volatile double sum = 0;
        for (int i = 0; i < 500000; i++) sum += i;
        MPI_Sendrecv(out, BYTES, MPI_CHAR, (rank + 1) % ranks, 5, in, BYTES, MPI_CHAR, (rank + ranks - 1) % ranks, 5,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        step = MPI_Wtime() - begun;
        MPI_Allreduce(&step, &longest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        rest = begun - start < 2;
        MPI_Bcast(&rest, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
"#;

/// The process of rank 1 once it has left MPI_Init.
fn second_rank(profile: &Path) -> Option<Pid> {
    let files = std::fs::read_dir(profile.join(folder::RANKS)).ok()?.flatten();
    let headers = files.filter_map(|file| Live::open(&file.path()).ok()??.header().ok());
    let mut ranks = headers.filter(|header| header.placed != 0 && header.rank == 1 && header.initialized != 0);
    Pid::from_raw(ranks.next()?.pid as i32)
}

/// Stops rank 1 for three quarters of the time, until it has ended or `over` is set. The period differs from the sampler's.
fn keep_stopping(profile: &Path, over: &AtomicBool) {
    let is_over = || over.load(Ordering::Relaxed);
    let process = loop {
        match second_rank(profile) {
            Some(process) => break process,
            None if is_over() => return,
            None => sleep(Duration::from_millis(2)),
        }
    };
    while !is_over() && kill_process(process, Signal::STOP).is_ok() {
        sleep(Duration::from_millis(51));
        let _ = kill_process(process, Signal::CONT);
        sleep(Duration::from_millis(17));
    }
}

fn recorded(place: &Place, change: impl FnOnce(Recording) -> Recording) -> Option<Recordings> {
    let mpi = Mpi::system(Family::OpenMpi)?;
    let program = mpi.compile_text(PROGRAM, &place.path().join("steps"));
    let recording = change(Recording::under(&mpi, 2, program).cores());
    let over = AtomicBool::new(false);
    Some(std::thread::scope(|scope| {
        scope.spawn(|| keep_stopping(&place.path().join("profile"), &over));
        // Set also after a panic, since the scope waits for the other thread.
        let _over = Over(&over);
        recording.run(place, "profile", skip::LIMIT).well(&mpi)
    }))
}

/// Sets the flag when dropped.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Checks that hold with a timeline and without one.
fn names_the_stopped_rank(recordings: &Recordings) -> Summary {
    let summary = Summary::of(&Profile::open(&recordings.folder).unwrap());
    let verdict = summary.verdict.as_ref().unwrap();
    assert!(verdict.sentence.starts_with("Rank 1 (core "), "{}", verdict.sentence);
    assert!(verdict.sentence.contains(" was stopped for "), "{}", verdict.sentence);
    let first = &verdict.hindrances[0];
    assert_eq!((first.cause, first.rank), (Cause::Stopped, Some(1)), "{first:?}");
    assert!(first.share > 0.2 && first.core.is_some(), "{first:?}");
    let text = render(&summary, Screen { width: 4000, colour: false, sites: 3 });
    assert!(text.lines().any(|line| line == verdict.sentence), "{text}");
    let html = page::render(&summary);
    assert!(html.contains("was stopped for") && html.find("was stopped for") < html.find("Would it gain?"), "{html}");

    // Most of the stopped time is neither the rank's work nor that of its calls.
    let rank = &summary.ranks[1];
    let stopped = *rank.stopped.value().unwrap();
    assert!(rank.off_core().unwrap() > 0.4 * stopped, "{rank:?}");
    let transfer = *rank.split.transfer.value().unwrap();
    assert!(transfer < 0.5 * stopped, "transfer {transfer} s of a rank that was stopped for {stopped} s: {rank:?}");
    let totals = &summary.totals;
    let account =
        format!("2 ranks, {}, {} of their time in MPI", count::of(totals.calls, "MPI call"), percent(totals.mpi_share));
    assert!(recordings.account.contains(&account), "{account}, but:\n{}", recordings.account);
    summary
}

#[test]
#[ignore = "make check"]
fn without_a_timeline_it_is_named_and_a_timeline_suggested() {
    let place = Place::new().before_all();
    let Some(recordings) = recorded(&place, |recording| recording) else { return };
    let summary = names_the_stopped_rank(&recordings);
    let first = &summary.verdict.as_ref().unwrap().hindrances[0];
    assert!(first.next.contains("plimsoll profile --trace"), "{}", first.next);
}

/// The sampler, too, gets its turns there.
#[test]
#[ignore = "make check"]
fn beside_other_work_it_is_named_too() {
    let place = Place::new().before_all();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _over = Over(&over);
        for _ in 0..2 * std::thread::available_parallelism().unwrap().get() {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop()
                }
            });
        }
        recorded(&place, |recording| recording.trace(64 << 20)).map(|recordings| names_the_stopped_rank(&recordings))
    });
}

#[test]
fn with_a_timeline_it_is_named_with_what_it_caused() {
    let place = Place::new().before_all();
    let Some(recordings) = recorded(&place, |recording| recording.trace(64 << 20)) else { return };
    let summary = names_the_stopped_rank(&recordings);
    let verdict = summary.verdict.as_ref().unwrap();
    // Where other work took the ranks' cores, the sentence may name that instead.
    let told = verdict.sentence.contains("kept the others waiting for ") || verdict.hindrances.len() > 1;
    assert!(told, "{}", verdict.sentence);
    let [zero, one] = &summary.ranks[..] else { panic!("{:?}", summary.ranks) };
    assert!(one.caused.value().unwrap() > zero.caused.value().unwrap(), "{:?}, {:?}", one.caused, zero.caused);
    let (wait, transfer) = (zero.split.wait.value().unwrap(), zero.split.transfer.value().unwrap());
    assert!(wait > transfer, "rank 0 waits for rank 1, which it does not transfer to meanwhile: {:?}", zero.split);
}
