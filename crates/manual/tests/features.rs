//! No crate is built twice because two targets of the Makefile ask for other features of it.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// What the Makefile builds together, `make study` first.
const TARGETS: [&[&str]; 5] = [
    &["plimsoll"],
    &["plimsoll", "fabric"],
    &["plimsoll", "mpi-profile"],
    &["plimsoll", "plimsoll-offcode"],
    &["plimsoll", "plimsoll-offcode", "fabric", "mpi-profile", "manual"],
];

/// By crate and version, the sets of features that it is built with.
fn features(packages: &[&str]) -> BTreeMap<String, BTreeSet<String>> {
    let mut tree = Command::new(env!("CARGO"));
    tree.current_dir(env!("CARGO_MANIFEST_DIR")).args(["tree", "--offline", "--locked", "--edges", "normal,build"]);
    tree.args(["--prefix", "none", "--no-dedupe", "--format", "{p}\t{f}"]);
    tree.args(packages.iter().flat_map(|package| ["--package", package]));
    let output = tree.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut found = BTreeMap::<String, BTreeSet<String>>::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let Some((package, features)) = line.split_once('\t') else { continue };
        let name = package.split(' ').take(2).collect::<Vec<_>>().join(" ");
        found.entry(name).or_default().insert(features.to_owned());
    }
    found
}

#[test]
fn what_one_target_builds_serves_the_others() {
    let first = features(TARGETS[0]);
    assert!(first.len() > 100, "cargo tree lists {} crates", first.len());
    for packages in &TARGETS[1..] {
        let more = features(packages);
        let again: Vec<_> = first.iter().filter(|(name, sets)| !sets.is_subset(&more[*name])).collect();
        assert!(again.is_empty(), "{packages:?}: other features of {again:?}: name them in crates/plimsoll/Cargo.toml");
    }
}
