//! `PLIMSOLL_VERSION`: the version, and the commit that a program was built from where that is known: '0.1.0 (5d3f78a8 2026-11-29)'.
//! `PLIMSOLL_SOURCE`: the folder of the source, in which a program looks for what is not installed; a set one stands for it in packages,
//! which are the same wherever they were built.
//! Packagers who build without git set `PLIMSOLL_COMMIT` to what stands in the parentheses.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    let here = env::current_dir().expect("cargo starts it in the package's folder");
    println!("cargo::rerun-if-env-changed=PLIMSOLL_COMMIT");
    for file in moved(&here) {
        println!("cargo::rerun-if-changed={file}");
    }
    println!("cargo::rerun-if-env-changed=PLIMSOLL_SOURCE");
    let source = env::var("PLIMSOLL_SOURCE").unwrap_or_else(|_| here.join("../..").display().to_string());
    println!("cargo::rustc-env=PLIMSOLL_SOURCE={source}");
    let named = env::var("PLIMSOLL_COMMIT").ok().filter(|name| !name.is_empty());
    let commit = named.or_else(|| commit(&here)).map(|commit| format!(" ({commit})")).unwrap_or_default();
    println!("cargo::rustc-env=PLIMSOLL_VERSION={}{commit}", env::var("CARGO_PKG_VERSION").expect("cargo sets it"));
}

/// The commit of the source and its date; nothing where the folder is in no repository, or in one of something else.
pub fn commit(package: &Path) -> Option<String> {
    let below = git(package, &["rev-parse", "--show-prefix"])?;
    let ours = Path::new(&below).parent() == Some(Path::new("crates"));
    // The length of git's own short names depends on what else the repository holds.
    let said = git(package, &["log", "-1", "--format=%H %cs"]).filter(|_| ours)?;
    let (hash, date) = said.split_once(' ')?;
    Some(format!("{} {date}", hash.get(..8)?))
}

/// Files that are written when another commit becomes the present one.
pub fn moved(package: &Path) -> Vec<String> {
    let path = |name: &str| git(package, &["rev-parse", "--git-path", name]);
    let branch = git(package, &["symbolic-ref", "HEAD"]);
    let names = ["HEAD", "logs/HEAD"].into_iter().chain(branch.as_deref());
    // Cargo runs it each time where a file is missing.
    names.filter_map(path).filter(|file| package.join(file).exists()).collect()
}

fn git(folder: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(folder).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
