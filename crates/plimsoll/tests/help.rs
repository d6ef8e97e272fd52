//! The help of each command, as a reader sees it.

use std::path::Path;
use std::process::Command;

use crate::golden;

#[test]
fn help_reads_as_it_did() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/help");
    golden::pages(&folder, &paths(&plimsoll::command(), ""), |words| asked(words, &["--help"]));
}

/// `command` and all below it that are shown, as words behind the program's name.
fn paths(command: &clap::Command, words: &str) -> Vec<String> {
    let shown = command.get_subcommands().filter(|below| !below.is_hide_set());
    let below = shown.flat_map(|below| paths(below, format!("{words} {}", below.get_name()).trim_start()));
    [words.to_owned()].into_iter().chain(below).collect()
}

fn asked(words: &str, more: &[&str]) -> String {
    let output =
        Command::new(env!("CARGO_BIN_EXE_plimsoll")).args(words.split_whitespace()).args(more).output().unwrap();
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn help_of_a_command_is_asked_for_in_either_way() {
    for words in ["bench mpi", "whatif", "machine capability", "campaign run"] {
        assert_eq!(asked(&format!("help {words}"), &[]), asked(words, &["--help"]), "{words}");
    }
    assert_eq!(asked("help", &[]), asked("--help", &[]));
}

#[test]
fn a_command_that_is_misspelt_is_told_what_is_meant() {
    for (words, meant) in [
        ("bench --mpi", "plimsoll bench mpi"),
        ("study run waves.toml", "plimsoll campaign run"),
        ("whatif --goal a.goal", "plimsoll whatif schedule"),
        ("bnech", "'bench'"),
        ("help bnech", "'bench'"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_plimsoll")).args(words.split(' ')).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(meant), "{words}: {said}");
    }
}
