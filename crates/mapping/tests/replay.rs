//! Recorded runs whose decisions are made again: `plimsoll daemon --record` wrote the observations. `BLESS=1` accepts the
//! present decisions.

use std::fs;
use std::path::Path;

use mapping::decision::{Decider, Observation, Settings};

#[test]
fn recorded_runs_are_decided_as_they_were() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded");
    let mut replayed = 0;
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.extension().is_none_or(|extension| extension != "jsonl") {
            continue;
        }
        let mut decider = Decider::new(Settings::default());
        let mut decided = String::new();
        for (nth, line) in fs::read_to_string(&path).unwrap().lines().enumerate() {
            let seen: Observation = serde_json::from_str(line).unwrap();
            for action in decider.observe(&seen) {
                decided += &format!("window {}: {action:?}\n", nth + 1);
            }
        }
        let golden = path.with_extension("txt");
        if std::env::var_os("BLESS").is_some() {
            fs::write(&golden, &decided).unwrap();
        }
        assert_eq!(decided, fs::read_to_string(&golden).unwrap(), "{}", path.display());
        replayed += 1;
    }
    assert!(replayed > 0, "no recorded run is there");
}
