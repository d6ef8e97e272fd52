//! `plimsoll odf` as its users run it.

use crate::golden;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const EXAMPLE: &str = include_str!("../../offcode/tests/odf/example.xml");

fn here(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/odf").join(file)
}

fn odf(folder: &Path, arguments: &[&str]) -> Output {
    let mut plimsoll = Command::new(env!("CARGO_BIN_EXE_plimsoll-offcode"));
    plimsoll.current_dir(folder).arg("odf").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The example's package, with bodies.
fn package(depot: &Path, name: &str, change: impl Fn(String) -> String) {
    let folder = depot.join(name);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("odf.xml"), change(EXAMPLE.to_owned())).unwrap();
    fs::write(folder.join("libfilter.so"), "library").unwrap();
    fs::write(folder.join("filter.wasm"), "wasm").unwrap();
    fs::write(folder.join("filter.o"), "object").unwrap();
}

#[test]
fn mistakes_of_a_file_are_explained_all_at_once() {
    let output = odf(&here(""), &["check", "mistaken.xml"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stdout), "");
    golden::check(&here("mistaken.txt"), &text(&output.stderr));
}

#[test]
fn a_depot_is_checked_whole() {
    let scratch = tempfile::tempdir().unwrap();
    let depot = scratch.path().join("depot");
    package(&depot, "example.filter", |text| text);
    package(&depot, "example.copy", |text| text.replace("example.filter", "example.copy"));
    package(&depot, "example.broken", |text| text.replace("<hardware>", "<hardware speed=\"9\">"));
    package(&depot, "example.half", |text| text.replace("example.filter", "example.half"));
    fs::remove_file(depot.join("example.half/filter.o")).unwrap();
    let output = odf(scratch.path(), &["check", "depot"]);
    assert_eq!(output.status.code(), Some(1));
    golden::check(&here("depot.txt"), &format!("{}--\n{}", text(&output.stdout), text(&output.stderr)));
    let output = odf(scratch.path(), &["check", "depot/example.filter", "depot/example.filter/odf.xml"]);
    assert!(output.status.success() && output.stderr.is_empty());
    assert_eq!(text(&output.stdout).lines().count(), 2);
    let output = odf(scratch.path(), &["check", "nowhere"]);
    assert!(text(&output.stderr).contains("nowhere") && !output.status.success());
}

#[test]
fn packages_are_installed_once() {
    let scratch = tempfile::tempdir().unwrap();
    package(scratch.path(), "example.filter", |text| text);
    fs::create_dir(scratch.path().join("depot")).unwrap();
    let first = odf(scratch.path(), &["install", "depot", "example.filter"]);
    assert!(first.status.success(), "{}", text(&first.stderr));
    assert!(text(&first.stdout).starts_with("depot/example.filter/odf.xml: example.filter 1.2.0"));
    assert!(odf(scratch.path(), &["check", "depot"]).status.success());
    let second = odf(scratch.path(), &["install", "depot", "example.filter"]);
    assert!(text(&second.stderr).contains("installed already"), "{}", text(&second.stderr));
}

#[test]
fn the_schema_is_printed() {
    let output = odf(&here(""), &["schema"]);
    assert!(output.status.success());
    assert_eq!(text(&output.stdout), include_str!("../../offcode/odf.xsd"));
}
