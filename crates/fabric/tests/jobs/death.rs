//! A process is killed in the middle of traffic: its peers learn of it within seconds.

use std::time::{Duration, Instant};

use launch::report::{self, Report, Reports};
use testbed::{Carrier, Job, Mpi, Place};

use super::{libfabric, sources};

fn operations_end_with_an_error(settings: &[(&str, &str)]) {
    let place = Place::new();
    let Some(program) = libfabric::program(&place, "survivor") else { return };
    let ended = place.run(place.libfabric(program, settings).arg("plimsoll"), skip::LIMIT).well("survivor");
    assert_eq!(ended.out.matches("survived: ").count(), 4, "{}", ended.out);
}

#[test]
#[ignore = "make check"]
fn operations_with_a_killed_process_end_in_shared_memory() {
    operations_end_with_an_error(&[]);
}

#[test]
fn operations_with_a_killed_process_end_over_udp() {
    operations_end_with_an_error(&[("SHM", "no"), ("ADDRESS", "127.0.0.1")]);
}

/// The process numbers that ranks 0 and 1 have printed.
fn ranks(out: &str) -> Option<[i32; 2]> {
    let of = |rank: usize| {
        let start = format!("rank {rank} is process ");
        out.lines().find_map(|line| line.strip_prefix(&start)?.trim().parse().ok())
    };
    Some([of(0)?, of(1)?])
}

fn jobs_end(mpi: &Mpi, settings: &[(&str, &str)]) {
    let place = Place::new();
    let program = mpi.compile(&place, &sources("mpi-talk"), "talk");
    let mut job = Job::new(mpi, 2, Carrier::Engine(settings), program).start(&place);
    let out = job.wait_for_output(skip::LIMIT, |out| ranks(out).is_some());
    let [survivor, victim] = ranks(&out).unwrap();
    let victim = rustix::process::Pid::from_raw(victim).unwrap();
    rustix::process::kill_process(victim, rustix::process::Signal::KILL).unwrap();
    let ended = job.finish(skip::LIMIT);
    let told = format!("{mpi}: {}", ended.told());
    assert!(ended.status.is_some_and(|status| !status.success()), "{told}");
    // By an error of MPI or by the launcher, the other rank has ended too.
    let survivor = rustix::process::Pid::from_raw(survivor).unwrap();
    let deadline = Instant::now() + skip::LIMIT;
    while rustix::process::test_kill_process(survivor).is_ok() {
        assert!(Instant::now() < deadline, "the other rank still runs; {told}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
#[ignore = "make check"]
fn a_job_ends_with_its_killed_rank() {
    for mpi in Mpi::all_carried() {
        jobs_end(&mpi, &[]);
        jobs_end(&mpi, &[("SHM", "no"), ("ADDRESS", "127.0.0.1")]);
    }
}

#[test]
fn what_killed_ranks_had_carried_is_told() {
    let Some(mpi) = Mpi::all_carried().into_iter().next() else { return };
    let place = Place::new();
    let program = mpi.compile(&place, &sources("mpi-talk"), "talk");
    let job = Job::new(&mpi, 2, Carrier::Engine(&[]), program).start(&place);
    let carried = |reports: &Reports| reports.sums().get("shm").map_or(0, |port| port.bytes_sent + port.bytes_fetched);
    let deadline = Instant::now() + skip::LIMIT;
    let before = loop {
        let kept = Reports::read(&report::kept(job.folder()));
        if kept.ranks() == 2 && carried(&kept) > 10 << 20 {
            break kept;
        }
        assert!(Instant::now() < deadline, "{:?}", kept.sums());
        std::thread::sleep(Duration::from_millis(20));
    };
    let process = |report: &Report| rustix::process::Pid::from_raw(report.process as i32).unwrap();
    for victim in before.endpoints.iter().map(process) {
        let _ = rustix::process::kill_process(victim, rustix::process::Signal::KILL);
    }
    let ended = job.finish(skip::LIMIT);
    let told = format!("{mpi}: {}", ended.told());
    assert!(ended.status.is_some_and(|status| !status.success()), "{told}");
    assert!(ended.reports.ranks() == 2 && ended.reports.endpoints.iter().all(|report| report.cut), "{told}");
    assert!(carried(&ended.reports) >= carried(&before), "{told}");
}
