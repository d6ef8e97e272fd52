//! The help of each command, as a reader sees it.

use crate::golden;
use std::path::PathBuf;
use std::process::Command;

#[test]
fn help_reads_as_it_did() {
    for command in [
        "",
        "machine",
        "doctor",
        "lab",
        "steer",
        "map",
        "bench",
        "mpirun",
        "power",
        "profile",
        "report",
        "claims",
        "top",
        "daemon",
        "daemon status",
        "serve",
        "study",
        "study plan",
        "study run",
        "study show",
        "study merge",
        "study submit",
        "try",
        "whatif",
    ] {
        let mut plimsoll = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        plimsoll.args(command.split_whitespace()).arg("--help");
        let output = plimsoll.output().unwrap();
        assert!(output.status.success(), "{command}");
        let name = if command.is_empty() { "plimsoll".to_owned() } else { command.replace(' ', "-") };
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/help").join(format!("{name}.txt"));
        golden::check(&path, &String::from_utf8(output.stdout).unwrap());
    }
}
