//! `plimsoll bench daemon`: what the daemon gains.

use std::process::ExitCode;

use bench::slack::{self, CASES, Request};
use launch::family::Family;
use launch::installation::Installation;
use machine::{Nanoseconds, Result};

use super::measuring::{Measuring, TwoCores, ended};

/// Measures two ranks, one with slack, beside a hog on the other's core: steps a second as started, exchanged, and with
/// `plimsoll daemon`, in turns. Long and short steps, ranks that spin and ranks that yield while they wait
#[derive(clap::Args)]
pub struct Arguments {
    /// From the daemon's start to what is compared
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    settling: Nanoseconds,
    /// Time of each block
    #[arg(long = "for", value_name = "TIME", default_value = "3s", value_parser = time)]
    time: Nanoseconds,
    #[command(flatten)]
    cores: TwoCores,
    #[command(flatten)]
    measuring: Measuring,
}

fn time(text: &str) -> Result<Nanoseconds> {
    Nanoseconds::within(text, Nanoseconds(100_000_000), Nanoseconds::of_seconds(3600))
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let Arguments { settling, time, cores, measuring } = arguments;
    let cores = cores.chosen()?;
    linux::signal::watch()?;
    let request = Request {
        installation: Installation::in_path(Family::OpenMpi)?,
        rounds: measuring.rounds,
        cores,
        cases: CASES.to_vec(),
        settling,
        time,
        command: machine::here::program()?,
    };
    let findings = slack::measure(&request, |block| eprintln!("plimsoll: {block}"))?;
    measuring.print(&findings, || Ok(slack::page(&findings, linux::output::width())))?;
    Ok(ended(!linux::signal::interrupted()))
}
