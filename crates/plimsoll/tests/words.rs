//! Pages of text: as wide as requested, and plain where no terminal shows them.

use std::process::Command;

/// Pages that need neither a store nor rights, of archived machines where they would differ from host to host.
const PAGES: [&[&str]; 4] = [
    &[],
    &["doctor", "--root", concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines/xeon-two-socket")],
    &["machine", "--root", concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines/bluefield-dpu")],
    &["calibrate", "--show"],
];

/// The output of a command with this many columns requested; its state is empty.
fn said(arguments: &[&str], columns: usize) -> String {
    let state = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args(arguments).env("COLUMNS", columns.to_string()).env("XDG_STATE_HOME", state.path());
    command.env_remove("PLIMSOLL_COSTS").env_remove("NO_COLOR");
    let output = command.env("TERM", "xterm-256color").output().expect("plimsoll starts");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn pages_have_the_width_that_is_asked_and_break_between_words() {
    let words = |page: &str| page.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    for arguments in PAGES {
        let whole = words(&said(arguments, 200));
        for width in [40, 80] {
            let page = said(arguments, width);
            for line in page.lines() {
                let is_one_word = line.split_whitespace().count() == 1;
                assert!(line.chars().count() <= width || is_one_word, "{arguments:?} at {width}: {line}");
            }
            assert_eq!(words(&page), whole, "{arguments:?} at {width} cuts or loses a word");
        }
    }
}

#[test]
fn no_escape_code_reaches_what_is_no_terminal() {
    for arguments in PAGES.into_iter().chain([&["--help"][..], &["ledger"]]) {
        let page = said(arguments, 80);
        assert!(!page.contains('\x1b'), "{arguments:?}: {page:?}");
    }
}
