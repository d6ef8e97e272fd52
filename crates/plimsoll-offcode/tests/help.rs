//! The help of each command, as a reader sees it.

use crate::golden;
use std::path::PathBuf;
use std::process::Command;

#[test]
fn help_reads_as_it_did() {
    for command in [
        "odf",
        "odf check",
        "plan",
        "agent",
        "agent keys",
        "traffic",
        "run",
        "ps",
        "stop",
        "set",
        "migrate",
        "upgrade",
        "offcode",
        "offcode new",
        "offcode build",
        "offcode test",
        "offcode package",
    ] {
        let mut plimsoll = Command::new(env!("CARGO_BIN_EXE_plimsoll-offcode"));
        plimsoll.args(command.split_whitespace()).arg("--help");
        let output = plimsoll.output().unwrap();
        assert!(output.status.success(), "{command}");
        let name = if command.is_empty() { "plimsoll".to_owned() } else { command.replace(' ', "-") };
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/help").join(format!("{name}.txt"));
        golden::check(&path, &String::from_utf8(output.stdout).unwrap());
    }
}
