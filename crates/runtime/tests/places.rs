//! The example that compares places runs the pipeline at each of them, and says of each what was predicted and measured.

#[allow(dead_code)]
#[path = "../benches/places.rs"]
mod example;

use std::process::Command;
use std::time::Duration;

/// Set in a process of its own, whose costs are kept apart from the user's.
const ALONE: &str = "PLIMSOLL_PLACES_TEST";

#[test]
fn every_place_of_the_pipeline_is_predicted_and_measured() {
    if linux::affinity::allowed().unwrap().len() < 2 {
        return skip::test("it needs two cores");
    }
    if std::env::var_os(ALONE).is_some() {
        let settings = example::Settings { rate: 2000, time: Duration::from_millis(40), alone: 20, rounds: 1 };
        return print!("{}", example::run(&settings).unwrap().0);
    }
    let state = tempfile::tempdir().unwrap();
    let mut alone = Command::new(std::env::current_exe().unwrap());
    alone.args(["--exact", "places::every_place_of_the_pipeline_is_predicted_and_measured", "--nocapture"]);
    let output = alone.env(ALONE, "1").env("XDG_STATE_HOME", state.path()).output().unwrap();
    let page = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{page}{}", String::from_utf8_lossy(&output.stderr));
    for objective in ["host-cpu", "latency", "spare=app"] {
        assert!(page.lines().any(|line| line.starts_with(objective)), "{page}");
    }
    let places = page.lines().filter(|line| line.starts_with("  app ") || line.starts_with("  core:"));
    assert_eq!(places.count(), 3 * 8, "{page}");
    assert_eq!(page.matches(" chosen\n").count(), 3, "{page}");
}
