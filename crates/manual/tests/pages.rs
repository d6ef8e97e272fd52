//! Every manual page has its further sections, and the names in the tables behind them exist.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::documents::{commands, root, unknown};
use crate::sections::{DOCUMENTS, ENVIRONMENT, EXAMPLES, FILES, parted};

/// All pages by name, without the escapes of roff.
fn pages() -> BTreeMap<String, String> {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_plimsoll-manual")).arg(folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let written = fs::read_dir(folder.path().join("man")).unwrap().map(|entry| entry.unwrap());
    written
        .map(|entry| {
            let text = fs::read_to_string(entry.path()).unwrap().replace("\\-", "-").replace("\\*(Aq", "'");
            (entry.file_name().into_string().unwrap(), text)
        })
        .collect()
}

/// Names of the commands that users type.
fn names() -> Vec<String> {
    let commands = commands();
    let shown = commands.iter().flat_map(|program| program.get_subcommands()).filter(|one| !one.is_hide_set());
    shown.map(|one| one.get_name().to_owned()).filter(|name| name != "help").collect()
}

#[test]
fn every_command_has_examples_and_what_to_read_on() {
    let pages = pages();
    let commands = commands();
    for name in names() {
        let page = &pages[&format!("plimsoll-{name}.1")];
        let (_, shown) =
            page.split_once(".SH EXAMPLES\n.nf\n").unwrap_or_else(|| panic!("{name}: no examples: {page}"));
        let (shown, _) = shown.split_once(".fi").unwrap();
        assert!(shown.lines().any(|line| line.starts_with(&format!("plimsoll {name}"))), "{name}: {shown}");
        for line in shown.lines() {
            assert_eq!(unknown(&commands, &format!("    {line}")), Vec::<String>::new(), "{name}");
        }
        let (_, related) = page.split_once(".SH \"SEE ALSO\"\n").unwrap_or_else(|| panic!("{name}: {page}"));
        for other in related.split(['\n', ' ', ',']).filter_map(|word| word.strip_suffix("(1)")) {
            assert!(pages.contains_key(&format!("{other}.1")), "{name}: {other}");
        }
    }
    let page = &pages["plimsoll-calibrate.1"];
    for part in [".SH FILES\n", "costs-HOST.json", ".SH ENVIRONMENT\n", "PLIMSOLL_COSTS", "plimsoll-study(1)"] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

#[test]
fn pages_are_named_as_an_installation_has_them() {
    let pages = pages();
    let named: Vec<(&String, &str, usize)> = pages
        .iter()
        .flat_map(|(name, page)| page.match_indices("docs/").map(move |(at, _)| (name, page.as_str(), at)))
        .collect();
    assert!(named.len() > pages.len(), "{} pages are named", named.len());
    for (name, page, at) in named {
        assert!(page[..at].ends_with("share/doc/plimsoll/"), "{name}: {}", &page[at..page.len().min(at + 30)]);
    }
}

#[test]
fn the_tables_name_commands_documents_and_variables_that_there_are() {
    let names = names();
    let of_entries = FILES.iter().chain(ENVIRONMENT).flat_map(|entry| entry.commands);
    let of_documents = DOCUMENTS.iter().flat_map(|(_, commands)| *commands);
    for command in EXAMPLES.iter().map(|(name, _)| name).chain(of_entries).chain(of_documents) {
        assert!(names.iter().any(|name| name == command), "{command}");
    }
    for name in &names {
        let documents = DOCUMENTS.iter().filter(|(_, commands)| commands.contains(&name.as_str())).count();
        assert_eq!(documents, 1, "documents of {name}");
    }
    for (document, _) in DOCUMENTS {
        assert!(root().join("docs").join(document).exists(), "{document}");
    }
    let mut sources = String::new();
    read(&root().join("crates"), &mut sources);
    for variable in ENVIRONMENT {
        assert!(sources.contains(&format!("(\"{}\")", variable.name)), "nobody reads {}", variable.name);
    }
}

/// Reads all sources of all crates but this one.
fn read(folder: &Path, into: &mut String) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() && !path.ends_with("manual") {
            read(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push_str(&fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn a_helps_end_is_parted_into_examples_and_the_rest() {
    let after = "Examples:\n  plimsoll power\n  plimsoll power -- ./a\n\nOptions of files:\n  at   the column";
    let (examples, others) = parted(after);
    assert_eq!(examples, ["plimsoll power", "plimsoll power -- ./a"]);
    assert_eq!(others, ["Options of files:", "  at   the column"]);
    assert_eq!(parted("Nothing to show"), (vec![], vec!["Nothing to show"]));
}
