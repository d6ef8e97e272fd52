//! The provider against the API's documentation, by two processes that talk to each other.

use std::path::PathBuf;
use std::time::Duration;

use crate::place::{Place, find, sources};

/// The program, or the reason why there is none.
pub fn program(place: &Place, folder: &str) -> Option<PathBuf> {
    let compiler = find("cc");
    let headers = ["/usr/include", "/usr/local/include"].map(|folder| PathBuf::from(folder).join("rdma/fabric.h"));
    let Some(compiler) = compiler.filter(|_| headers.iter().any(|header| header.exists())) else {
        eprintln!("SKIPPED: no cc or no rdma/fabric.h (install gcc and libfabric-dev)");
        return None;
    };
    Some(place.compile(&compiler, &sources(folder), folder, &["-lfabric"]))
}

fn conformance(settings: &[(&str, &str)], arguments: &[&str]) {
    let place = Place::new();
    let Some(program) = program(&place, "conformance") else { return };
    let mut command = place.command(program);
    command.arg("plimsoll").args(arguments);
    for (name, value) in settings {
        command.env(format!("FI_PLIMSOLL_{name}"), value);
    }
    let ended = place.run(&mut command, Duration::from_secs(300));
    for skipped in ended.out.lines().filter(|line| line.starts_with("SKIPPED")) {
        eprintln!("{skipped}");
    }
    assert!(ended.succeeded(), "{:?}\n{}{}", ended.status, ended.out, ended.errors);
}

#[test]
fn the_api_in_shared_memory() {
    conformance(&[], &[]);
}

#[test]
fn the_api_over_udp() {
    conformance(&[("SHM", "no"), ("ADDRESS", "127.0.0.1")], &[]);
}

#[test]
fn the_api_over_a_bad_wire() {
    let wire = "loss=1%,duplicate=1%,reorder=1%,seed=11";
    // Opening and closing many times without a message says nothing about the wire. An endpoint whose peer's last
    // acknowledgement was lost waits for it for seconds when it closes; dozens of them run past the limit of a case.
    let without = ["--except", "object", "--except", "load/many_endpoints"];
    conformance(&[("SHM", "no"), ("ADDRESS", "127.0.0.1"), ("WIRE", wire)], &without);
}

#[test]
fn the_api_with_the_engine_on_a_core_of_its_own() {
    let cores = std::thread::available_parallelism().unwrap().get();
    if cores < 2 {
        eprintln!("SKIPPED: an engine's core and a process's core are two, and this machine has one");
        return;
    }
    let core = format!("core:{}", cores - 1);
    conformance(&[("PLACEMENT", &core)], &["--except", "load"]);
}
