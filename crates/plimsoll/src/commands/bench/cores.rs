//! `plimsoll bench cores`: paper 002's sweep, which shows which core bears the interrupts.

use std::process::ExitCode;

use bench::runner::Bench;
use experiment::sweep::sender;
use machine::choice::Choice;
use machine::topology::Topology;
use machine::{CoreId, Result};
use rounds::point::{Path, Receiver};

use super::measuring::Measuring;
use super::sweep::{Between, Messages, measure, show};
use crate::sweep_page;

/// Puts the receiving process on each core in turn, on two hosts of a lab (root): interrupts a message, and which core bears
/// them (Narayanaswamy, Balaji and Feng, 2007)
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    messages: Messages,
    /// Core that does the kernel's receive processing
    #[arg(long, value_name = "CORE")]
    protocol_core: CoreId,
    /// What the receiver does with each message, in turns: reads, works (computes on its data)
    #[arg(long, value_delimiter = ',', default_value = "reads")]
    receiver: Vec<Receiver>,
    #[command(flatten)]
    measuring: Measuring,
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let Arguments { messages, receiver, measuring, .. } = &arguments;
    messages.check()?;
    linux::signal::watch()?;
    let protocol = arguments.protocol_core;
    let between = Between { path: &Path::Lab, protocol_core: Some(protocol), far: &[] };
    let mut measured = messages.points(&between, receiver, &stops(protocol)?)?;
    let mut bench = Bench::new(machine::here::program()?);
    let end = measure(&mut bench, &mut measured, 1, measuring.rounds);
    bench.close();
    show(&measured, measuring, || sweep_page::page(&measured, measuring.rounds, linux::output::width()))?;
    end.map(|()| ExitCode::SUCCESS)
}

/// The cores of sender and receiver in each step; the receiver is on each core in turn.
fn stops(protocol: CoreId) -> Result<Vec<(CoreId, CoreId)>> {
    let cores = linux::affinity::allowed()?;
    let choice = Choice::among(Topology::live()?, cores.iter().copied());
    let beside = |process| choice.clone().without([process, protocol]).nearest(process);
    let sender = |process| beside(process).unwrap_or_else(|| sender(&cores, process, protocol));
    Ok(cores.iter().map(|&process| (sender(process), process)).collect())
}
