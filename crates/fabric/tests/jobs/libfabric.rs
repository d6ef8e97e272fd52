//! The provider against the API's documentation, by two processes that talk to each other.

use std::path::PathBuf;
use std::time::{Duration, Instant};

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

/// An endpoint whose peer's last acknowledgement was lost, be it because the peer has closed, waits for it for seconds when
/// it closes; dozens of them run past the limit of a case.
const LINGERS: [&str; 2] = ["--except", "load/many_endpoints"];

#[test]
fn the_api_in_shared_memory() {
    conformance(&[], &[]);
}

#[test]
fn the_api_over_udp() {
    conformance(&[("SHM", "no"), ("ADDRESS", "127.0.0.1")], &LINGERS);
}

#[test]
fn the_api_over_a_bad_wire() {
    let wire = "loss=1%,duplicate=1%,reorder=1%,seed=11";
    // Opening and closing many times without a message says nothing about the wire.
    let without = [&LINGERS[..], &["--except", "object"]].concat();
    conformance(&[("SHM", "no"), ("ADDRESS", "127.0.0.1"), ("WIRE", wire)], &without);
}

#[test]
fn the_api_with_the_engine_on_a_core_of_its_own() {
    let cores = std::thread::available_parallelism().unwrap().get();
    if cores < 2 {
        eprintln!("SKIPPED: an engine's core and a process's core are two, and this machine has one");
        return;
    }
    // The command is built beside this test's folder where the whole workspace is.
    let command = std::env::current_exe().unwrap().parent().unwrap().with_file_name("plimsoll");
    if !command.exists() {
        eprintln!("SKIPPED: no {} to start the node's engine (cargo build -p plimsoll)", command.display());
        return;
    }
    let place = Place::new();
    let Some(program) = program(&place, "conformance") else { return };
    let core = (cores - 1).to_string();
    let name = format!("plimsoll/engine/{}/{core}", rustix::process::geteuid().as_raw());
    if !linux::rendezvous::names(&name).unwrap().is_empty() {
        eprintln!("SKIPPED: an engine works on core {core} already");
        return;
    }
    let _engine = place.start(place.command(command).args(["engine", "--core", &core]));
    let deadline = Instant::now() + Duration::from_secs(20);
    while linux::rendezvous::names(&name).unwrap().is_empty() {
        assert!(Instant::now() < deadline, "the engine does not answer");
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut command = place.command(program);
    // Floods are left to processes with a core each.
    command.arg("plimsoll").args(["--except", "load"]).env("FI_PLIMSOLL_PLACEMENT", format!("core:{core}"));
    let ended = place.run(&mut command, Duration::from_secs(300));
    assert!(ended.succeeded(), "{:?}\n{}{}", ended.status, ended.out, ended.errors);
}
