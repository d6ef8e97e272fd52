//! docs/threat-model.md shows the table of bounds that the crates read, and names tests that exist.

use std::fs;
use std::path::Path;

use machine::bounds;

const FROM: &str = "## What others can make grow\n\n";
const TO: &str = "\n## ";

fn root() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page() -> String {
    fs::read_to_string(root().join("docs/threat-model.md")).unwrap()
}

#[test]
fn the_page_has_every_bound() {
    let page = page();
    let (before, rest) = page.split_once(FROM).expect("a part with the bounds");
    let (shown, after) = rest.split_once(TO).expect("a part after them");
    let table = bounds::table();
    if std::env::var_os("BLESS").is_some_and(|bless| bless == "1") {
        fs::write(root().join("docs/threat-model.md"), format!("{before}{FROM}{table}{TO}{after}")).unwrap();
        return;
    }
    let differing = shown.lines().zip(table.lines()).find(|(shown, row)| shown != row);
    assert!(shown == table, "{differing:?}: run `BLESS=1 cargo test -p machine threat_model`, read the diff");
}

/// Every function of the sources below `folder`.
fn functions(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            functions(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let names = text.lines().filter_map(|line| line.trim_start().strip_prefix("fn ")?.split_once('('));
            found.extend(names.map(|(name, _)| name.to_owned()));
        }
    }
}

/// Test names, `crate::test` in backticks, in the last column of a table.
fn named(page: &str) -> Vec<(&str, &str)> {
    let rows = page.lines().filter(|line| line.starts_with("| ") && line.ends_with(" |"));
    let cells = rows.filter_map(|row| row.trim_end_matches(" |").rsplit_once(" | ").map(|(_, cell)| cell));
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).filter_map(|word| word.split_once("::")).collect()
}

#[test]
fn every_test_that_the_page_names_is_there() {
    let page = page();
    let named = named(&page);
    assert!(named.len() > 20, "{} tests are named", named.len());
    for (of, test) in named {
        let mut found = Vec::new();
        functions(&root().join("crates").join(of), &mut found);
        assert!(found.iter().any(|name| name == test), "{of} has no test {test}");
    }
}
