use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use launch::carrier::{self, Network};
use launch::carriers::{self, Carrier};
use launch::installation::Choice;
use launch::session::{self, Request};
use machine::{Fault, Result, Site};

/// Runs an MPI program as it is, over the engine, and says what really carried its messages.
///
/// Finds the MPI that the program is linked with (Open MPI, MPICH, Intel MPI) and sets what it needs. The exit status is
/// mpirun's, after Ctrl-C 130; the summary goes to standard error.
#[derive(clap::Args)]
pub struct Arguments {
    /// Number of ranks
    #[arg(short = 'n', long = "ranks", visible_alias = "np", default_value_t = 2)]
    ranks: u32,
    /// Where the engine's work runs: app or core:N
    #[arg(long, default_value = "app", value_parser = carrier::placement)]
    placement: Site,
    /// What carries the messages instead of plimsoll: a transport of the MPI, like vader, ucx or tcp
    #[arg(long, value_name = "NAME", value_parser = carriers::named, conflicts_with_all = ["placement", "network", "report", "oversubscribe", "lab"])]
    carrier: Option<Carrier>,
    /// What carries messages between hosts: udp, afxdp:IFACE or xdp:IFACE
    #[arg(long)]
    network: Option<Network>,
    /// The MPI, where the program does not tell or you want another: openmpi, mpich, or the PREFIX that one is
    /// installed in
    #[arg(long, value_parser = mpi)]
    mpi: Option<Choice>,
    /// Run on two hosts made for this run (network namespaces), half of the ranks on each; needs root
    #[arg(long)]
    lab: bool,
    /// Let ranks share cores with an engine at core:N where there are too few cores
    #[arg(long)]
    oversubscribe: bool,
    /// Print no summary, unless plimsoll did not carry the messages
    #[arg(long, short)]
    quiet: bool,
    /// Write what each rank reported to FILE, as JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Options for mpirun itself, as one argument; they win over what plimsoll sets
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true, value_parser = options)]
    mpirun_args: Option<Options>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    program: Vec<OsString>,
}

#[derive(Clone)]
struct Options(Vec<String>);

fn options(text: &str) -> Result<Options> {
    shlex::split(text).map(Options).ok_or_else(|| {
        let next = "write it as for a shell, like --mpirun-args '--map-by node'";
        Fault::new(format!("options for mpirun: {text}"), "a quote or a backslash is not finished", next)
    })
}

fn mpi(text: &str) -> Result<Choice> {
    text.parse()
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let command = std::env::current_exe()
        .map_err(|e| Fault::because("this program's own file", e, "run it from where it is installed"))?;
    let mut program = arguments.program.into_iter();
    let code = session::run(&Request {
        ranks: arguments.ranks,
        placement: arguments.placement,
        carrier: arguments.carrier,
        network: arguments.network,
        mpi: arguments.mpi.unwrap_or_default(),
        lab: arguments.lab,
        oversubscribe: arguments.oversubscribe,
        quiet: arguments.quiet,
        report: arguments.report,
        options: arguments.mpirun_args.map_or(Vec::new(), |options| options.0),
        variables: Vec::new(),
        program: program.next().unwrap_or_default(),
        arguments: program.collect(),
        command,
    })?;
    Ok(ExitCode::from(code))
}
