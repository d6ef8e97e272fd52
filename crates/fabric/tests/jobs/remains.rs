//! What is left when an endpoint closes or its process is killed: nothing.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use crate::libfabric;
use crate::place::Place;

/// Where what a process leaves behind would be: files in shared memory, named sockets, network namespaces.
fn named_things() -> BTreeSet<String> {
    let mut things = BTreeSet::new();
    for folder in ["/dev/shm", "/run/netns"] {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.contains("plimsoll") {
                things.insert(format!("{folder}/{name}"));
            }
        }
    }
    things
}

/// The abstract sockets on which endpoints of this process's descendants in `place` are found.
fn meetings(place: &Place) -> BTreeSet<String> {
    crate::strangers::sockets_of(place).into_iter().collect()
}

fn cycles(settings: &[(&str, &str)], count: &str) {
    let before = named_things();
    let place = Place::new();
    let Some(program) = libfabric::program(&place, "cycles") else { return };
    let mut command = place.command(program);
    command.args(["plimsoll", count]);
    command.envs(settings.iter().map(|(name, value)| (format!("FI_PLIMSOLL_{name}"), value)));
    let ended = place.run(&mut command, Duration::from_secs(240));
    assert!(ended.succeeded(), "{:?}\n{}{}", ended.status, ended.out, ended.errors);
    assert_eq!(ended.out.matches("cycles: ").count(), 2, "{}", ended.out);
    eprintln!("{}", ended.out);
    let left: Vec<_> = named_things().difference(&before).cloned().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_thousand_starts_and_stops_in_shared_memory_leave_nothing() {
    cycles(&[], "1000");
}

#[test]
fn starts_and_stops_over_udp_leave_nothing() {
    cycles(&[("SHM", "no"), ("ADDRESS", "127.0.0.1")], "300");
}

#[test]
fn killed_processes_leave_nothing() {
    let before = named_things();
    let place = Place::new();
    let Some(program) = libfabric::program(&place, "cycles") else { return };
    let mut command = place.command(program);
    command.args(["plimsoll", "1000000"]);
    let job = place.start(&mut command);
    let deadline = Instant::now() + Duration::from_secs(30);
    let sockets = loop {
        let sockets = meetings(&place);
        if !sockets.is_empty() {
            break sockets;
        }
        assert!(Instant::now() < deadline, "no endpoint was opened");
    };
    let group = rustix::process::Pid::from_raw(job.id() as i32).unwrap();
    rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap();
    let ended = job.finish(Duration::from_secs(10));
    assert!(ended.status.is_some());
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let listed = linux::rendezvous::names("plimsoll/endpoint/").unwrap();
        let left: Vec<_> = listed.iter().filter(|name| sockets.contains(*name)).collect();
        if left.is_empty() && meetings(&place).is_empty() {
            break;
        }
        assert!(Instant::now() < deadline, "{left:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    let left: Vec<_> = named_things().difference(&before).cloned().collect();
    assert!(left.is_empty(), "{left:?}");
}
