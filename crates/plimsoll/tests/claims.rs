//! `plimsoll claims` as its users run it.

use crate::golden;
use std::path::Path;
use std::process::{Command, Output};

fn claims(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_plimsoll")).arg("claims").args(arguments).output().expect("plimsoll starts")
}

fn printed(arguments: &[&str]) -> String {
    let output = claims(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn read_as_it_did(name: &str, arguments: &[&str]) {
    let page = printed(arguments);
    assert!(page.lines().all(|line| line.chars().count() <= 120), "{name} is wider than 120 columns");
    golden::check(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/claims").join(format!("{name}.txt")), &page);
}

#[test]
fn the_table_reads_as_it_did() {
    read_as_it_did("table", &[]);
}

#[test]
#[ignore = "make check"]
fn other_pages_read_as_they_did() {
    let pages = [("a16", "A16"), ("b1", "b1"), ("power", "power"), ("open", "open"), ("mappings", "mappings")];
    pages.iter().for_each(|(name, argument)| read_as_it_did(name, &[argument]));
}

#[test]
#[ignore = "make check"]
fn every_row_can_be_explained_and_another_is_refused() {
    let all: serde_json::Value = serde_json::from_str(&printed(&["--json"])).unwrap();
    let judged = all["judged"].as_array().unwrap();
    assert!(judged.iter().all(|one| one["scored"].is_null() == one["prediction"]["says"].is_null()));
    assert_eq!(all["power"][0].as_array().unwrap().iter().filter(|trade| trade["knee"] == true).count(), 1);
    let refused = claims(&["Z9"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("no row has this name") && said.contains("A4"), "{said}");
}
