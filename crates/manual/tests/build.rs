//! Messages of `scripts/build` where the machine lacks something.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/build");

/// Runs a command that must fail; returns its messages.
fn refused(command: &mut Command) -> String {
    let Output { status, stderr, .. } = command.output().unwrap();
    let said = String::from_utf8(stderr).unwrap();
    assert!(!status.success(), "{said}");
    said
}

#[test]
fn a_registry_that_cannot_be_reached_is_named_with_the_ways_around_it() {
    let home = tempfile::tempdir().unwrap();
    // No server listens at port 1.
    let settings = "[net]\nretry = 0\n[source.crates-io]\nreplace-with = \"none\"\n\
                    [source.none]\nregistry = \"sparse+http://127.0.0.1:1/\"\n";
    fs::write(home.path().join("config.toml"), settings).unwrap();
    let said = refused(
        Command::new(SCRIPT)
            .args(["build", "--package", "skip"])
            .env("CARGO_HOME", home.path())
            .env("CARGO_TARGET_DIR", home.path().join("target")),
    );
    assert!(said.contains("cargo could not download the crates"), "{said}");
    assert!(said.contains("HTTPS_PROXY") && said.contains("cargo vendor"), "{said}");
}

#[test]
fn a_full_disk_is_named_before_and_after() {
    let place = tempfile::tempdir().unwrap();
    let target = place.path().join("target");
    fs::create_dir(&target).unwrap();
    if !Command::new("unshare").args(["-m", "true"]).status().is_ok_and(|status| status.success()) {
        return skip::test("no mount namespace of its own: run as root");
    }
    let script = r#"mount -t tmpfs -o size=64k none "$1" && CARGO_TARGET_DIR="$1" exec "$2" build --package skip"#;
    let said = refused(Command::new("unshare").args(["-m", "sh", "-c", script, "sh"]).arg(&target).arg(SCRIPT));
    assert!(said.contains("MiB are free, and a build from nothing takes about"), "{said}");
    assert!(said.contains("is on a full disk. Next: free some"), "{said}");
    assert!(fs::read_dir(&target).unwrap().next().is_none(), "the disk was the test's own");
}

#[test]
fn a_folder_for_temporary_files_that_is_not_there_is_named() {
    let said = refused(Command::new(SCRIPT).arg("--version").env("TMPDIR", Path::new("/nonexistent")));
    assert!(said.contains("no temporary file can be made. Next: "), "{said}");
}
