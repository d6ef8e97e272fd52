//! The list of licences and the SBOM name each crate that is linked, by the paths that programs hold of their crates.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::documents::root;

/// Crates as 'name-version' whose sources a program names, for the place of a panic.
fn named(program: &[u8]) -> BTreeSet<String> {
    const BEFORE: &[u8] = b"/registry/src/";
    let starts = program.windows(BEFORE.len()).enumerate().filter(|(_, window)| *window == BEFORE);
    let folders = starts.filter_map(|(at, _)| program[at + BEFORE.len()..].split(|byte| *byte == b'/').nth(1));
    // Where a folder's name ends its text, the next text follows.
    let ours = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.+".contains(byte);
    folders.map(|of| of.iter().take_while(|byte| ours(byte)).map(|byte| char::from(*byte)).collect()).collect()
}

#[test]
fn each_crate_that_a_program_names_is_listed_with_its_licence() {
    let Some(python) = skip::tool("python3") else { return };
    let place = tempfile::tempdir().unwrap();
    let output = Command::new(python).arg(root().join("scripts/licences")).arg(place.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let list = fs::read_to_string(place.path().join("LICENCES")).unwrap();
    let bill: serde_json::Value =
        serde_json::from_slice(&fs::read(place.path().join("plimsoll.cdx.json")).unwrap()).unwrap();
    let mut listed = BTreeSet::new();
    for of in bill["components"].as_array().unwrap() {
        let [name, version] = ["name", "version"].map(|key| of[key].as_str().unwrap());
        let licence = of["licenses"][0]["expression"].as_str().unwrap();
        assert!(list.contains(&format!("\n{name} {version}: {licence}\n")), "{name}");
        listed.insert(format!("{name}-{version}"));
    }
    assert!(listed.iter().any(|one| one.starts_with("sqlite-3.")), "the SQLite that is built in");

    let artefacts = Path::new(env!("CARGO_BIN_EXE_plimsoll-manual")).parent().unwrap();
    let mut seen = 0;
    for file in ["plimsoll", "plimsoll-offcode", "libplimsoll_fi.so", "libplimsoll_profile.so"] {
        let path = [artefacts.join(file), artefacts.join("deps").join(file)].into_iter().find(|path| path.is_file());
        let path = path.unwrap_or_else(|| panic!("{file} is not built. Next: cargo test --workspace"));
        let named = named(&fs::read(path).unwrap());
        let missing: Vec<_> = named.difference(&listed).collect();
        assert!(missing.is_empty(), "{file} has crates that LICENCES lacks: {missing:?}");
        seen += named.len();
    }
    if seen == 0 {
        skip::part("the crates were built from no registry, so that programs do not name them");
    }
}

/// `scripts/licences` refuses what its list does not allow, and reads expressions as SPDX does.
#[test]
fn a_licence_that_is_not_allowed_is_refused() {
    let Some(python) = skip::tool("python3") else { return };
    let program = r#"
import sys
source = open(sys.argv[1]).read().removesuffix("main()\n")
exec(source.replace("__file__", "sys.argv[1]"))
for expression in sys.argv[2:]:
    print("yes" if is_allowed(expression) else "no")
"#;
    let cases = [
        ("MIT OR Apache-2.0", "yes"),
        ("GPL-3.0-only", "no"),
        ("GPL-2.0-only OR MIT", "yes"),
        ("MIT AND MPL-2.0", "no"),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", "yes"),
        ("(GPL-3.0-only OR LGPL-2.1-only) AND MIT", "no"),
        ("Apache-2.0 WITH LLVM-exception", "yes"),
        ("none", "no"),
    ];
    let mut command = Command::new(python);
    command.args(["-c", program]).arg(root().join("scripts/licences")).args(cases.map(|(expression, _)| expression));
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let wanted = cases.map(|(_, answer)| answer);
    assert_eq!(said.lines().collect::<Vec<_>>(), wanted, "{}", String::from_utf8_lossy(&output.stderr));
}
