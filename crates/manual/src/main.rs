//! Writes manual pages to DIR/man and completions to DIR/completions, from the definitions of the commands' arguments.
#![forbid(unsafe_code)]

mod page;
mod sections;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Command;
use clap_complete::{Shell, generate_to};
use machine::{Fault, Result};

/// The name that users type.
const NAME: &str = "plimsoll";

fn main() -> ExitCode {
    let Some(folder) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: plimsoll-manual DIR");
        return ExitCode::FAILURE;
    };
    match write(&folder) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("plimsoll-manual: {fault}");
            ExitCode::FAILURE
        }
    }
}

fn write(folder: &Path) -> Result<()> {
    let (pages, completions) = (folder.join("man"), folder.join("completions"));
    let written = || {
        fs::create_dir_all(&pages)?;
        fs::create_dir_all(&completions)?;
        let mut built = command();
        built.build();
        page::write(&built, &pages)?;
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            generate_to(shell, &mut command(), NAME, &completions)?;
        }
        Ok::<_, std::io::Error>(())
    };
    written().map_err(|error| {
        Fault::because(folder.display().to_string(), error, "name a folder that you may write, on a disk with room")
    })
}

/// Both programs as one command, without the commands that plimsoll itself calls, which completions would offer.
fn command() -> Command {
    let (own, offcodes) = (plimsoll::command(), plimsoll_offcode::command());
    let shown = own.get_subcommands().chain(offcodes.get_subcommands()).filter(|one| !one.is_hide_set()).cloned();
    // Each program numbers its own commands from 0.
    let shown: Vec<Command> = shown.enumerate().map(|(place, one)| one.display_order(place)).collect();
    let about = own.get_about().cloned().unwrap_or_default();
    Command::new(NAME).about(about).version(env!("CARGO_PKG_VERSION")).disable_help_subcommand(true).subcommands(shown)
}
