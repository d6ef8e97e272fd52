//! The pages of `plimsoll`: alone, the first steps here; with --help, all commands grouped by purpose.

use std::fmt::Write;
use std::path::Path;

use clap::Command;
use machine::text::folded;

/// Purposes, each with its commands.
const STORY: [(&str, &[&str]); 10] = [
    ("All at once", &["tune"]),
    ("Measure", &["study", "campaign", "calibrate", "bench", "serve", "profile", "power", "top"]),
    ("Decide", &["report", "whatif", "map", "try"]),
    ("Place", &["mpirun", "engine", "steer", "clock", "daemon"]),
    ("Verify", &["ledger"]),
    ("All jobs of a centre", &["fleet"]),
    ("Offcodes", &["plan", "run", "ps", "stop", "set", "migrate", "upgrade", "offcode", "odf", "agent", "traffic"]),
    ("This machine", &["doctor", "machine", "lab"]),
    ("The papers", &["claims"]),
    // Commands that only other commands start; not listed.
    ("Inner", &["peer", "profile-sampler", "seat", "host-agent", "steering-keeper", "clock-keeper"]),
];

/// The last line of the page.
const HELP: &str = "`plimsoll help COMMAND` tells more of one.";

/// `command` with its subcommands listed by purpose.
pub fn told(command: Command) -> Command {
    let width = linux::output::width().min(100);
    let mut listed = String::new();
    for (heading, names) in &STORY[..STORY.len() - 1] {
        let _ = writeln!(listed, "{heading}:");
        for name in *names {
            let Some(of) = command.find_subcommand(name) else { continue };
            let about = of.get_about().map(ToString::to_string).unwrap_or_default();
            listed += &folded(&format!("  {name:<9}  "), &about, 13, width);
        }
        listed.push('\n');
    }
    let command = command.subcommand_required(false).arg_required_else_help(false);
    command
        .help_template(format!("{{about}}\n\n{{usage-heading}} {{usage}}\n\n{listed}Options:\n{{options}}\n\n{HELP}"))
}

/// The other commands of the group that this one is in.
pub fn related(name: &str) -> Vec<&'static str> {
    let group = STORY.iter().map(|(_, names)| *names).find(|names| names.contains(&name)).unwrap_or_default();
    group.iter().copied().filter(|one| *one != name).collect()
}

/// The first steps on this machine.
pub fn first() -> String {
    let study = match Path::new(".plimsoll/study.sqlite").exists() {
        true => ("plimsoll study --show", "the study of this folder again: where, for which message sizes"),
        false => ("plimsoll study", "two minutes: where message processing should run, for which sizes"),
    };
    let lines = [
        ("plimsoll doctor", "what of this machine can be used, and what each missing thing costs"),
        study,
        ("plimsoll tune -- mpirun -n 4 PROGRAM", "a faster command line for your program, proven, in ten minutes"),
        ("plimsoll profile -- mpirun -n 4 PROGRAM", "what your program waits for; then plimsoll report DIR"),
        ("plimsoll try -- ./old -- ./new", "whether a change makes it faster, by how much; --vary for settings"),
        ("plimsoll mpirun -n 4 -- PROGRAM", "your program over the engine"),
    ];
    let mut text = "plimsoll finds where network message processing should run, and runs it there.\n\n".to_owned();
    for (command, what) in lines {
        let _ = writeln!(text, "  {command:<41}{what}");
    }
    text + "\nAll commands: plimsoll --help\n"
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_command_has_its_place_in_the_story() {
        let all = crate::offcodes::beside(crate::command());
        let there: BTreeSet<&str> = all.get_subcommands().map(Command::get_name).collect();
        let told: Vec<&str> = STORY.iter().flat_map(|(_, names)| *names).copied().collect();
        assert_eq!(told.iter().copied().collect::<BTreeSet<_>>(), there);
        assert_eq!(told.len(), there.len(), "one is told twice");
    }
}
