use std::process::ExitCode;

use machine::Result;

/// What a program would gain or lose by a change, before it is made.
///
/// With --measure the program itself is delayed by known amounts, in whole runs, interleaved: what it loses bounds what it gains
/// where its messages cost less. The command stands after `--`.
#[derive(clap::Args)]
#[command(after_help = super::measure::EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    measure: super::measure::Arguments,
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    super::measure::run(arguments.measure)
}
