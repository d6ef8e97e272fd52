use std::path::{Path, PathBuf};
use std::process::ExitCode;

use linux::output;
use machine::costs::Interval;
use machine::{Fault, Result, count};
use mapping::reason::moves;
use mapping::search::search;
use mapping::simulated::Simulated;
use whatif::simulate::cluster::file::Simulation;

use super::whatif::print;
use crate::map_page::Page;

/// Proposes which rank belongs on which core, with what that gains.
#[derive(clap::Args)]
pub struct Arguments {
    /// Map the simulated program of FILE (docs/simulate.md) in place of a recorded one
    #[arg(long, value_name = "FILE")]
    simulate: Option<PathBuf>,
    /// Let ranks change their hosts
    #[arg(long)]
    across: bool,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    if let Some(file) = &arguments.simulate {
        return simulated(file, &arguments);
    }
    Ok(ExitCode::SUCCESS)
}

/// The best mapping of a simulated program.
fn simulated(file: &Path, arguments: &Arguments) -> Result<ExitCode> {
    let simulation = Simulation::read(file)?;
    let within = |fault: Fault| fault.within(file.display());
    let simulated = Simulated::of(simulation.cluster.clone(), || simulation.start()).map_err(within)?;
    let problem = simulated.problem(arguments.across);
    let found = search(&problem, &simulated)?;
    let subject = format!(
        "{}: {} on {}, {}; modelled",
        simulation.program,
        count::of(problem.ranks.len() as u64, "rank"),
        count::of(problem.hosts.len() as u64, "host"),
        simulation.cluster.profile.name
    );
    let page = Page {
        subject: &subject,
        judged: "simulated",
        problem: &problem,
        found: &found,
        moves: &moves(&problem, &found.seats),
        time: Interval::exactly(found.time),
        steered: &[],
        notes: &[],
    };
    print(arguments.json, || page.terminal(), || page.json())?;
    Ok(ExitCode::SUCCESS)
}
