use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use experiment::ledger::Ledger;
use launch::auto;
use launch::carriers::{self, Carrier};
use launch::engine::{self, Network, Semantics};
use launch::installation::Choice;
use launch::session::{self, Request, Target};
use linux::output::{Destination, tell};
use machine::seat::Seats;
use machine::{Dilation, Fault, Result, Site};

/// Runs an MPI program as it is, over the engine, and says what really carried its messages.
///
/// Finds the MPI that the program is linked with (Open MPI, MPICH, Intel MPI) and sets what it needs. The exit status is
/// mpirun's, after Ctrl-C 130; the summary goes to standard error.
#[derive(clap::Args)]
pub struct Arguments {
    /// Number of ranks
    #[arg(short = 'n', long = "ranks", visible_alias = "np", value_name = "N", default_value_t = 2)]
    ranks: u32,
    /// Where the engine's work runs: app, core:N, or auto: chosen by this machine's costs (plimsoll calibrate) and what
    /// the program sends, by --profile or an earlier run; what is expected of it goes to the ledger
    #[arg(long, value_name = "SITE", default_value = "app", value_parser = placement)]
    placement: Placement,
    /// With --placement auto: what the program sends, as `plimsoll profile -o DIR` recorded it
    #[arg(long, value_name = "DIR")]
    profile: Option<PathBuf>,
    /// What carries the messages instead of plimsoll: a transport of the MPI, like vader, ucx or tcp
    #[arg(long, value_name = "NAME", value_parser = carriers::named, conflicts_with_all = ["placement", "network", "json", "oversubscribe", "lab"])]
    carrier: Option<Carrier>,
    /// With --carrier: run once with the MPI saying what it uses, and fail where that is something else; what the program
    /// writes is not shown
    #[arg(long, requires = "carrier")]
    prove: bool,
    /// What carries messages between hosts: udp, afxdp:IFACE or xdp:IFACE
    #[arg(long, value_name = "NETWORK")]
    network: Option<Network>,
    /// What stands between messages and packets: matched (the engine), or queue-pair or queue-pair-shared: Verbs, with an
    /// emulated adapter (docs/claims.md)
    #[arg(long, value_name = "NAME", default_value = "matched", conflicts_with = "carrier")]
    semantics: Semantics,
    /// How many times as long protocol work takes, 1 to 100: the engine spins after each piece of it. Shows how much slower it
    /// may run before the program notices; it is no clock
    #[arg(long, value_name = "K", default_value = "1", conflicts_with = "carrier")]
    dilate: Dilation,
    /// The MPI, where the program does not tell or you want another: openmpi, mpich, or the PREFIX that one is
    /// installed in
    #[arg(long, value_name = "MPI", value_parser = mpi)]
    mpi: Option<Choice>,
    /// Run on two hosts made for this run (network namespaces), half of the ranks on each; needs root
    #[arg(long)]
    lab: bool,
    /// Where each rank runs: a line RANK HOST CORES for each, like '3 node1 0-3'
    #[arg(long, value_name = "FILE", value_parser = seats)]
    seats: Option<Seats>,
    /// Let ranks share cores with an engine at core:N where there are too few cores
    #[arg(long)]
    oversubscribe: bool,
    /// Count the CPU time of the ranks: in the application, in protocol work, in polls that find nothing. It costs each call
    /// of the provider some 20 ns
    #[arg(long, conflicts_with = "carrier")]
    account: bool,
    /// Print no summary, unless plimsoll did not carry the messages
    #[arg(long, short)]
    quiet: bool,
    /// Print what each rank reported as JSON, or write it to FILE
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = Destination::STDOUT)]
    json: Option<Destination>,
    /// Options for mpirun itself, as one argument; they win over what plimsoll sets
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true, value_parser = options)]
    mpirun_args: Option<Options>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    program: Vec<OsString>,
}

#[derive(Clone, PartialEq)]
enum Placement {
    At(Site),
    Auto,
}

fn placement(text: &str) -> Result<Placement> {
    if text == "auto" { Ok(Placement::Auto) } else { engine::placement(text).map(Placement::At) }
}

#[derive(Clone)]
pub(super) struct Options(pub(super) Vec<String>);

pub(super) fn options(text: &str) -> Result<Options> {
    shlex::split(text).map(Options).ok_or_else(|| {
        let next = "write it as for a shell, like '--map-by node'";
        Fault::new(format!("options for mpirun: {text}"), "a quote or a backslash is not finished", next)
    })
}

fn mpi(text: &str) -> Result<Choice> {
    text.parse()
}

fn seats(path: &str) -> Result<Seats> {
    let text = fs::read_to_string(path).map_err(|e| Fault::because(format!("file {path}"), e, "check its name"))?;
    text.parse::<Seats>().map_err(|fault| fault.within(format!("file {path}")))
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let command = machine::here::program()?;
    let auto = arguments.placement == Placement::Auto;
    if arguments.profile.is_some() && !auto {
        let next = "add --placement auto, or leave --profile out";
        return Err(Fault::new("--profile", "only --placement auto reads a profile", next));
    }
    if auto && !arguments.dilate.is_none() {
        let cause = "the costs by which --placement auto chooses are of protocol work as it is";
        return Err(Fault::new("--dilate", cause, "name the placement: app or core:N"));
    }
    let mut program = arguments.program.into_iter();
    let mut request = Request {
        ranks: arguments.ranks,
        placement: match arguments.placement {
            Placement::At(site) => site,
            Placement::Auto => Site::App,
        },
        carrier: arguments.carrier,
        prove: arguments.prove,
        network: arguments.network,
        semantics: arguments.semantics,
        dilation: arguments.dilate,
        account: arguments.account,
        mpi: arguments.mpi.unwrap_or_default(),
        lab: arguments.lab,
        seats: arguments.seats,
        oversubscribe: arguments.oversubscribe,
        quiet: arguments.quiet,
        report: arguments.json,
        options: arguments.mpirun_args.map_or(Vec::new(), |options| options.0),
        variables: Vec::new(),
        program: program.next().unwrap_or_default(),
        arguments: program.collect(),
        command,
    };
    let target = Target::of(&request)?;
    // A job needs no ledger: without one, auto knows of no earlier run.
    let plain = request.is_plain();
    let ledger = Ledger::open().map(Some);
    let ledger = if auto && plain { super::kept(ledger) } else { ledger.unwrap_or_default() };
    let mut ledger = ledger.filter(|_| plain);
    if auto && plain {
        let none = Ledger::default();
        let known = ledger.as_ref().unwrap_or(&none);
        let chosen = auto::choose(&mut request, &target, arguments.profile.as_deref(), known)?;
        tell(&format!("plimsoll: {}\n", chosen.words()));
        if let Some(ledger) = &mut ledger {
            super::kept(auto::subject(&request, &target).and_then(|subject| chosen.predict(ledger, &subject)));
        }
    }
    // The outcome is also compared with an earlier prediction, for a run that was not left to auto.
    let subject = auto::subject(&request, &target);
    let ended = session::run(&request, target)?;
    let settled = match (ledger, subject) {
        (Some(mut ledger), Ok(subject)) => auto::settle(&mut ledger, &subject, &request, &ended),
        _ => Ok(Vec::new()),
    };
    match settled {
        Ok(said) if !request.quiet => said.iter().for_each(|what| tell(&format!("plimsoll: {what}\n"))),
        Err(fault) if auto => tell(&format!("plimsoll: {fault}\n")),
        _ => {}
    }
    Ok(ExitCode::from(ended.code))
}
