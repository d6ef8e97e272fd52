//! The commands that another program, `plimsoll-offcode`, carries out, as with the subcommands of git and cargo.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;

use clap::{Arg, Command};
use launch::companion::Companion;
use machine::Fault;

/// Name and help of each command; the program itself has their arguments.
pub const COMMANDS: [(&str, &str); 11] = [
    ("plan", "Says where the offcodes of an application would go, and why; creates nothing"),
    ("run", "Starts the offcodes of an application where its plan says"),
    ("ps", "Lists the offcodes that run on this host, with the counters that prove where each works"),
    ("stop", "Ends a runtime that `plimsoll run` started, or one of its offcodes"),
    ("set", "Sets an attribute of a running offcode"),
    ("migrate", "Moves a running offcode to another site, with its state and its channels"),
    ("upgrade", "Puts another version of a running offcode in its place"),
    ("odf", "Checks manifests of offcodes and the depots that hold them"),
    ("offcode", "Makes an offcode of your own, from its source to its package; plans, runs and moves offcodes"),
    ("agent", "Gives this host's cores to offcodes of authenticated clients elsewhere"),
    ("traffic", "Sends traffic from a site of your choice to a receiver that counts and times it"),
];

/// `command` with these commands added, each of which passes every word after its name on to the program.
pub fn beside(command: Command) -> Command {
    let rest = || Arg::new("rest").num_args(0..).trailing_var_arg(true).allow_hyphen_values(true);
    let rest = || rest().value_parser(clap::value_parser!(OsString)).hide(true);
    command
        .subcommands(COMMANDS.map(|(name, about)| Command::new(name).about(about).disable_help_flag(true).arg(rest())))
}

pub fn has(name: &str) -> bool {
    COMMANDS.iter().any(|(command, _)| *command == name)
}

/// Replaces this process by that program, with `words`, the program's name first. Returns only where that fails.
pub fn become_it(words: &[OsString]) -> Fault {
    let found = machine::here::program().and_then(|command| Companion::Offcodes.find(&command));
    match found {
        Ok(program) => {
            let error = std::process::Command::new(&program).args(words.iter().skip(1)).exec();
            Fault::because(
                program.display().to_string(),
                error,
                "see whether it may be started; else build it anew: `make offcodes`",
            )
        }
        Err(fault) => fault,
    }
}
