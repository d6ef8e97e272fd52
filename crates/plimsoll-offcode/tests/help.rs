//! The help of each command, as a reader sees it.

use std::path::Path;
use std::process::Command;

use crate::golden;

#[test]
fn help_reads_as_it_did() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/help");
    let program = plimsoll_offcode::command();
    let mut commands = Vec::new();
    for command in program.get_subcommands().filter(|command| !command.is_hide_set()) {
        let name = command.get_name();
        commands.push(name.to_owned());
        for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
            let below = below.get_name();
            match program.find_subcommand(below) {
                // The same command by another name.
                Some(_) => {
                    let by_name = help(&format!("{name} {below}"));
                    assert_eq!(by_name.replace(&format!("plimsoll {name} "), "plimsoll "), help(below));
                }
                None => commands.push(format!("{name} {below}")),
            }
        }
    }
    golden::pages(&folder, &commands, help);
}

fn help(words: &str) -> String {
    let mut plimsoll = Command::new(env!("CARGO_BIN_EXE_plimsoll-offcode"));
    let output = plimsoll.args(words.split(' ')).arg("--help").output().unwrap();
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
