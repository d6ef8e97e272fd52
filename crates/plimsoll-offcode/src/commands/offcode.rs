//! `plimsoll offcode`: from an empty folder to a package, and from a plan to running offcodes.

mod build;
mod new;
mod package;
mod sdk;
mod test;

use std::process::ExitCode;

use machine::{BodyKind, Result};

use super::deployment;

/// Makes an offcode of your own, from its source to its package; plans, runs and moves offcodes
#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    #[command(flatten)]
    Deployment(deployment::Command),
    New(new::Arguments),
    Build(build::Arguments),
    Test(test::Arguments),
    Package(package::Arguments),
    #[command(hide = true)]
    Tell(build::Tell),
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    match arguments.action {
        Action::Deployment(command) => deployment::run(command),
        Action::New(arguments) => new::run(&arguments),
        Action::Build(arguments) => build::run(&arguments),
        Action::Test(arguments) => test::run(&arguments),
        Action::Package(arguments) => package::run(&arguments),
        Action::Tell(arguments) => build::tell(&arguments),
    }
}

/// Parses a kind of body, such as `native`, as manifests spell it.
fn body_kind(word: &str) -> Result<BodyKind, String> {
    let found = BodyKind::ALL.into_iter().find(|kind| kind.to_string() == word);
    found.ok_or_else(|| "a body is native, wasm or bpf".to_owned())
}
