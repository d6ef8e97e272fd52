//! The provider against the API's documentation, by two processes that exchange messages.

use std::path::PathBuf;
use std::process::Command;

use testbed::Place;
use testbed::conformance::judge;

use super::sources;

/// The compiled program; the test is skipped where it cannot be built.
pub fn program(place: &Place, folder: &str) -> Option<PathBuf> {
    place.compile_for_libfabric(&sources(folder), folder)
}

fn conformance(settings: &[(&str, &str)], arguments: &[&str]) {
    let place = Place::new();
    let Some(program) = program(&place, "conformance") else { return };
    let mut command = place.libfabric(program, settings);
    let ended = place.run(command.arg("plimsoll").args(arguments), skip::LIMIT).well("conformance");
    judge(&ended.out, &ended.out);
}

/// An endpoint whose peer's last acknowledgement was lost, perhaps because the peer has closed, waits for it for seconds in
/// its close; dozens of endpoints exceed the limit of a case, which is set for four.
const LINGERS: [&str; 4] = ["--except", "load/many_endpoints", "--limit", "90"];

/// Over queue pairs and a network, an endpoint learns neither of the end of a listener that it has not reached nor, without
/// sending, of a peer's.
const UNSEEN: [&str; 4] = ["--except", "connection/listener_closes", "--except", "connection/killed_peer"];

#[test]
fn the_api_in_shared_memory() {
    conformance(&[], &[]);
}

/// Calls that ask for what is not served say at libfabric's log level `warn` why, and what to do instead.
#[test]
fn refusals_say_why() {
    let place = Place::new();
    let Some(program) = program(&place, "conformance") else { return };
    let mut command = place.libfabric(program, &[]);
    command.args(["plimsoll", "--only", "refusal"]).env("FI_LOG_LEVEL", "warn");
    let ended = place.run(&mut command, skip::LIMIT).well("conformance");
    judge(&ended.out, &ended.errors);
    for call in ["fi_getinfo():", "fi_mr_regattr():", "fi_scalable_ep():", "fi_tx_context():", "fi_rx_context():"] {
        let mut lines =
            ended.errors.lines().filter(|line| line.contains("plimsoll:") && line.contains(call)).peekable();
        assert!(lines.peek().is_some(), "{call}: {}", ended.errors);
        assert!(lines.all(|line| line.contains(" Next: ")), "{call}: {}", ended.errors);
    }
}

/// In a user namespace without users the kernel names all users alike, and refuses their numbers.
#[test]
fn users_without_numbers() {
    let place = Place::new();
    let (Some(unshare), Some(program)) = (skip::tool("unshare"), program(&place, "conformance")) else { return };
    let tried = Command::new(&unshare).args(["--user", "true"]).status();
    if !tried.is_ok_and(|status| status.success()) {
        return skip::test("no user namespace may be made here");
    }
    let mut command = place.libfabric(&unshare, &[("REPORT", "yes")]);
    command.arg("--user").arg(program).args(["plimsoll", "--only", "multi_receive"]);
    let ended = place.run(&mut command, skip::LIMIT).well("conformance");
    judge(&ended.out, &ended.out);
    assert!(ended.errors.contains(r#""port":"shm","#), "{}", ended.errors);
}

#[test]
#[ignore = "make check"]
fn the_api_over_queue_pairs() {
    // Dozens of endpoints take longer with queue pairs.
    conformance(&[("SEMANTICS", "queue-pair")], &["--limit", "90"]);
    let shared = ("SEMANTICS", "queue-pair-shared");
    conformance(&[shared, ("SHM", "no"), ("ADDRESS", "127.0.0.1")], &[&LINGERS[..], &UNSEEN].concat());
}

#[test]
#[ignore = "make check"]
fn queue_pairs_over_a_bad_wire() {
    let wire = ("WIRE", "loss=1%,duplicate=1%,reorder=1%,seed=11");
    let without = [&LINGERS[..], &UNSEEN, &["--except", "object", "--except", "load"]].concat();
    conformance(&[("SEMANTICS", "queue-pair"), ("SHM", "no"), ("ADDRESS", "127.0.0.1"), wire], &without);
}

#[test]
#[ignore = "make check"]
fn the_api_over_udp() {
    conformance(&[("SHM", "no"), ("ADDRESS", "127.0.0.1")], &LINGERS);
}

#[test]
#[ignore = "make check"]
fn the_api_over_a_bad_wire() {
    let wire = "loss=1%,duplicate=1%,reorder=1%,seed=11";
    // Opening and closing without messages says nothing about the wire.
    let without = [&LINGERS[..], &["--except", "object"]].concat();
    conformance(&[("SHM", "no"), ("ADDRESS", "127.0.0.1"), ("WIRE", wire)], &without);
}
