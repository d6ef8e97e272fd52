//! The versions of formats that `docs/versions.md` states are those of the sources.

use std::fs;

use crate::documents::root;

/// Formats by their names in the table, each with the line of its source that sets its version.
const FORMATS: [(&str, &str, &str); 15] = [
    ("Profile: tables of a rank", "record/src/layout.rs", "pub const VERSION: u32 = "),
    ("Profile: timeline", "record/src/trace.rs", "pub const VERSION: u32 = "),
    ("Profile: samples", "record/src/samples.rs", "pub const VERSION: u32 = "),
    ("JSON of a profile", "profile/src/summary.rs", "pub const SCHEMA: u32 = "),
    ("Store of studies", "experiment/src/store.rs", "    number: "),
    ("Store of trials", "experiment/src/trial/store.rs", "    number: "),
    ("Store of a campaign", "experiment/src/campaign/store.rs", "    number: "),
    ("Costs", "machine/src/costs/store.rs", "const FORMAT: u32 = "),
    ("Summaries of jobs", "fleet/src/summary.rs", "pub const VERSION: u32 = "),
    ("Store of jobs", "fleet/src/store.rs", "const LAYOUT: i64 = "),
    ("wasm bodies", "offcode/src/abi.rs", "pub const VERSION: u32 = "),
    ("Native bodies", "native/src/lib.rs", "pub const VERSION: u32 = "),
    ("Agents", "runtime/src/agent/protocol.rs", "pub(crate) const VERSION: u16 = "),
    ("`plimsoll serve`", "bench/src/control/message.rs", "pub const VERSION: u32 = "),
    ("Node's engine", "endpoint/src/node/greeting.rs", "pub(super) const VERSION: u32 = "),
];

/// The number that a line of a source sets; the line must be there once.
fn set(path: &str, line: &str) -> String {
    let text = fs::read_to_string(root().join("crates").join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut numbers = text.lines().filter_map(|of| of.strip_prefix(line));
    let number = numbers.next().unwrap_or_else(|| panic!("{path} has no line '{line}'"));
    assert_eq!(numbers.next(), None, "{path} has several lines '{line}'");
    number.trim_end_matches([';', ',']).to_owned()
}

#[test]
fn the_page_states_the_versions_that_the_sources_set() {
    let page = fs::read_to_string(root().join("docs/versions.md")).unwrap();
    let cells = |line: &str| line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let rows: Vec<_> = page.lines().filter(|line| line.starts_with("| ")).map(cells).collect();
    for (name, path, line) in FORMATS {
        let row = rows.iter().find(|row| row[0] == name).unwrap_or_else(|| panic!("docs/versions.md has no {name}"));
        assert_eq!(row[1], set(path, line), "docs/versions.md: {name}, by crates/{path}");
    }
    let oldest = |path: &str| set(path, "pub const OLDEST: u32 = ");
    for (name, path) in [("wasm bodies", "offcode/src/abi.rs"), ("Native bodies", "native/src/lib.rs")] {
        let row = rows.iter().find(|row| row[0] == name).unwrap();
        assert!(row[2].starts_with(&format!("those from {} on", oldest(path))), "{row:?}");
    }
    let of_sources = rows.iter().filter(|row| row[1].parse::<u32>().is_ok()).count();
    assert_eq!(of_sources, FORMATS.len(), "a number of docs/versions.md is compared with no source");
}

/// Tests and files that the page names are there.
#[test]
fn samples_of_versions_are_there_and_read_by_tests() {
    let page = fs::read_to_string(root().join("docs/versions.md")).unwrap();
    let samples: Vec<&str> = page.split('`').skip(1).step_by(2).filter(|code| code.starts_with("crates/")).collect();
    assert!(samples.len() >= 5, "{samples:?}");
    let missing: Vec<_> = samples.iter().filter(|path| !root().join(path).exists()).collect();
    assert!(missing.is_empty(), "docs/versions.md names what is not there: {missing:?}");
}
