//! Resources left when an endpoint closes or its process is killed: none.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use testbed::Place;
use testbed::remains::Remains;

use super::libfabric;

/// The abstract sockets on which endpoints of this process's descendants in `place` are found.
fn meetings(place: &Place) -> BTreeSet<String> {
    super::hostile::sockets_of(place.path()).into_iter().collect()
}

fn cycles(settings: &[(&str, &str)], count: &str) {
    let before = Remains::before();
    let place = Place::new();
    let Some(program) = libfabric::program(&place, "cycles") else { return };
    let mut command = place.libfabric(program, settings);
    let ended = place.run(command.args(["plimsoll", count]), skip::LIMIT).well("cycles");
    assert_eq!(ended.out.matches("cycles: ").count(), 2, "{}", ended.out);
    eprintln!("{}", ended.out);
    before.none_since();
}

#[test]
#[ignore = "make check"]
fn a_thousand_starts_and_stops_in_shared_memory_leave_nothing() {
    cycles(&[], "1000");
}

#[test]
fn starts_and_stops_over_udp_leave_nothing() {
    cycles(&[("SHM", "no"), ("ADDRESS", "127.0.0.1")], "300");
}

#[test]
#[ignore = "make check"]
fn killed_processes_leave_nothing() {
    let before = Remains::before();
    let place = Place::new();
    let Some(program) = libfabric::program(&place, "cycles") else { return };
    let job = place.start(place.libfabric(program, &[]).args(["plimsoll", "1000000"]));
    let deadline = Instant::now() + skip::LIMIT;
    let sockets = loop {
        let sockets = meetings(&place);
        if !sockets.is_empty() {
            break sockets;
        }
        assert!(Instant::now() < deadline, "no endpoint was opened");
    };
    let group = rustix::process::Pid::from_raw(job.id() as i32).unwrap();
    rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap();
    let ended = job.finish(skip::LIMIT);
    assert!(ended.status.is_some());
    let deadline = Instant::now() + skip::LIMIT;
    loop {
        let listed = linux::rendezvous::names("plimsoll/endpoint/").unwrap();
        let left: Vec<_> = listed.iter().filter(|name| sockets.contains(*name)).collect();
        if left.is_empty() && meetings(&place).is_empty() {
            break;
        }
        assert!(Instant::now() < deadline, "{left:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    before.none_since();
}
