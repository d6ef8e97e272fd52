//! `plimsoll --version`: the version, and the commit of the source.

use std::fs;
use std::path::Path;
use std::process::Command;

#[allow(dead_code)]
#[path = "../build.rs"]
mod build;

fn git(folder: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("git");
    command.arg("-C").arg(folder).args(["-c", "user.name=nobody", "-c", "user.email=nobody@example.org"]);
    for (name, value) in [("AUTHOR", "2026-03-01T12:00:00Z"), ("COMMITTER", "2026-03-02T12:00:00Z")] {
        command.env(format!("GIT_{name}_DATE"), value);
    }
    let output = command.args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn the_commit_is_that_of_the_source_and_of_no_repository_around_it() {
    if skip::tool("git").is_none() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let package = place.path().join("crates/plimsoll");
    fs::create_dir_all(&package).unwrap();
    assert_eq!(build::commit(&package), None);
    assert_eq!(build::moved(&package), Vec::<String>::new());
    git(place.path(), &["init", "--quiet"]);
    git(place.path(), &["commit", "--quiet", "--allow-empty", "--message", "one"]);
    let hash = git(place.path(), &["rev-parse", "HEAD"]);
    assert_eq!(build::commit(&package), Some(format!("{} 2026-03-02", &hash[..8])));
    let inside = place.path().join("unpacked/crates/plimsoll");
    fs::create_dir_all(&inside).unwrap();
    assert_eq!(build::commit(&inside), None);

    let watched = || -> Vec<_> {
        build::moved(&package).iter().map(|file| (file.clone(), fs::read(package.join(file)).unwrap())).collect()
    };
    let before = watched();
    assert_eq!(watched(), before);
    git(place.path(), &["commit", "--quiet", "--allow-empty", "--message", "two"]);
    assert_ne!(watched(), before, "a commit changes none of these");
}

#[test]
fn a_program_says_its_version_and_its_commit() {
    let output = Command::new(env!("CARGO_BIN_EXE_plimsoll")).arg("--version").output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), concat!("plimsoll ", env!("PLIMSOLL_VERSION")));
    let rest = env!("PLIMSOLL_VERSION").strip_prefix(env!("CARGO_PKG_VERSION")).unwrap();
    assert!(rest.is_empty() || rest.starts_with(" (") && rest.ends_with(')'), "{rest}");
}
