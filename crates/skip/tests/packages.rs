//! Commands that sources call, against the packages that `scripts/packages` lists for them, and the reverse.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use skip::package;

/// Commands that come with Rust.
const OF_RUST: [&str; 2] = ["cargo", "rustc"];

/// Texts before the literal that names a command.
const CALLS: [&str; 5] =
    ["Command::new(\"", "skip::tool(\"", "package::command(\"", "package::file(\"", "installed(\""];

/// Commands that come with a batch system or a device's driver, and are called only where those are.
const OF_A_CLUSTER: [&str; 2] = ["nvidia-smi", "qstat"];

fn collect(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

/// All sources of the workspace's crates but this one, by path.
fn sources() -> BTreeMap<PathBuf, String> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = Vec::new();
    collect(here.parent().unwrap(), &mut paths);
    paths.retain(|path| !path.starts_with(here));
    paths.into_iter().map(|path| (path.clone(), fs::read_to_string(&path).unwrap())).collect()
}

/// Each literal that follows a call, without the folder of a command that is called by its full name.
fn called(source: &str) -> Vec<&str> {
    let literals = CALLS.iter().flat_map(|call| source.split(call).skip(1)).filter_map(|rest| rest.split('"').next());
    let plain = |name: &&str| !name.is_empty() && !name.contains(['{', ' ']);
    literals.filter(plain).map(|name| name.strip_prefix("/bin/").unwrap_or(name)).collect()
}

/// Whether `name` stands in the text as a whole word.
fn is_named(text: &str, name: &str) -> bool {
    let inside = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    text.match_indices(name)
        .any(|(at, _)| !text[..at].ends_with(inside) && !text[at + name.len()..].starts_with(inside))
}

#[test]
fn what_is_called_has_a_package() {
    let sources = sources();
    let calls: Vec<(&PathBuf, &str)> =
        sources.iter().flat_map(|(path, text)| called(text).into_iter().map(move |name| (path, name))).collect();
    assert!(calls.len() > 50, "the calls were not found: {calls:?}");
    let elsewhere = |name: &str| OF_RUST.contains(&name) || OF_A_CLUSTER.contains(&name);
    let unknown: Vec<_> =
        calls.iter().filter(|(_, name)| !elsewhere(name) && package::providing(name).is_none()).collect();
    assert!(unknown.is_empty(), "scripts/packages has no line that provides these: {unknown:?}");
}

#[test]
fn what_a_package_is_wanted_for_is_called() {
    let mut all: String = sources().into_values().collect();
    all.push_str(include_str!("../../../Makefile"));
    for package in package::all() {
        for names in package.wanted() {
            let named = names.iter().any(|name| is_named(&all, name.trim_start_matches("/usr/include/")));
            assert!(named, "scripts/packages: nobody calls {names:?} of {}", package.name);
        }
    }
}

#[test]
fn lines_are_whole_and_each_package_is_there_once() {
    let mut names: Vec<_> = package::all().map(|package| package.name).collect();
    for package in package::all() {
        assert!(["required", "study", "test", "aarch64"].contains(&package.need), "{package:?}");
        assert!(!package.loss.is_empty() && package.wanted().all(|names| !names.contains(&"")), "{package:?}");
    }
    names.sort_unstable();
    assert!(names.windows(2).all(|two| two[0] != two[1]), "{names:?}");
}
