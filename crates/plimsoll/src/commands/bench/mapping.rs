//! `plimsoll bench mapping`: paper 002 on this machine.

use std::process::ExitCode;

use bench::mapping::{self, Request};
use launch::family::Family;
use launch::installation::Installation;
use machine::{Fault, Result};

use super::measuring::{Measuring, TwoCores, ended};

/// Measures two ranks on two hosts of a lab (root) under three mappings, in turns: both on the cores of their hosts' receive
/// work, both off them, one on and one off. Stream, ping-pong, and an exchange between computing (paper 002)
#[derive(clap::Args)]
pub struct Arguments {
    /// What rank 0 of the exchange computes more than rank 1, of that: a list
    #[arg(long, value_name = "SHARE,..", value_delimiter = ',', default_value = "0,0.3", value_parser = share)]
    imbalance: Vec<f64>,
    #[command(flatten)]
    cores: TwoCores,
    #[command(flatten)]
    measuring: Measuring,
}

fn share(text: &str) -> Result<f64> {
    let number = text.trim().parse::<f64>().ok().filter(|number| (0.0..=100.0).contains(number));
    number.ok_or_else(|| {
        Fault::new(format!("imbalance '{text}'"), "it is no number from 0 to 100", "write 0.3 for 30 % more")
    })
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let Arguments { imbalance: imbalances, cores, measuring } = arguments;
    let cores = cores.chosen()?;
    linux::signal::watch()?;
    let installation = Installation::in_path(Family::OpenMpi)?;
    let request =
        Request { installation, rounds: measuring.rounds, cores, imbalances, command: machine::here::program()? };
    let findings = mapping::measure(&request, |start| eprintln!("plimsoll: {start}"))?;
    measuring.print(&findings, || Ok(mapping::page(&findings, linux::output::width())))?;
    Ok(ended(!linux::signal::interrupted()))
}
