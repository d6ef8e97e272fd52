//! `plimsoll engine`, the process of placement `core:N`, under programs of libfabric's interface.

use std::path::Path;
use std::time::{Duration, Instant};

use machine::Site;
use testbed::Place;
use testbed::conformance::judge;

#[test]
#[ignore = "make check"]
fn the_api_with_the_engine_on_a_core_of_its_own() {
    let cores = linux::affinity::allowed().unwrap();
    let [_, .., core] = cores[..] else {
        return skip::test("an engine's core and a process's core are two, and this machine has one");
    };
    let place = Place::new();
    let sources = testbed::sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../fabric/tests/conformance"));
    let Some(program) = place.compile_for_libfabric(&sources, "conformance") else { return };
    let name = format!("plimsoll/engine/{}/{}", rustix::process::geteuid().as_raw(), core.0);
    if !linux::rendezvous::names(&name).unwrap().is_empty() {
        return skip::test(format_args!("an engine works on {core} already"));
    }
    let mut engine = place.command(env!("CARGO_BIN_EXE_plimsoll"));
    let _engine = place.start(engine.args(["engine", "--core", &core.0.to_string()]));
    let deadline = Instant::now() + skip::LIMIT;
    while linux::rendezvous::names(&name).unwrap().is_empty() {
        assert!(Instant::now() < deadline, "the engine does not answer");
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut command = place.libfabric(program, &[("PLACEMENT", &Site::Core(core).to_string())]);
    // Load tests need a core for each process.
    command.args(["plimsoll", "--except", "load"]);
    let ended = place.run(&mut command, skip::LIMIT).well("conformance");
    judge(&ended.out, &ended.out);
}
