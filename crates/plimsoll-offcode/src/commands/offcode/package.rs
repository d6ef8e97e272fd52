//! `plimsoll offcode package`: into a depot, as `plimsoll run` takes it.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use linux::output;
use machine::{Fault, Result};
use offcode::depot::Depot;
use runtime::code::libraries_of;

use super::build;

/// Build, and put the package into a depot in place of the one that is there
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    build: build::Arguments,
    /// Folder of packages
    #[arg(long, value_name = "DIR", default_value = "depot")]
    depot: PathBuf,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let built = build::build(&arguments.build)?;
    let depot = &arguments.depot;
    fs::create_dir_all(depot)
        .map_err(|e| Fault::because(format!("depot {}", depot.display()), e, "name a folder that can be written"))?;
    let mut depot = Depot::open(depot)?;
    let stored = depot.update(&built.package.folder)?;
    output::print(&format!("{}: {}\n", stored.odf().display(), super::super::odf::summary(&stored.manifest)))?;
    for library in libraries_of(&stored.manifest) {
        let hash = library.digest;
        output::print(&format!("for agents on {}: plimsoll agent --native {hash}\n", library.target))?;
    }
    Ok(built.exit())
}
