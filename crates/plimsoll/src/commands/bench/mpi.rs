//! `plimsoll bench mpi`: ranks of an MPI program, over plimsoll and over the MPI's own transports.

use std::process::ExitCode;

use bench::mpi::contender::WantedHosts;
use bench::mpi::nodes::Nodes;
use bench::mpi::pattern::Task;
use bench::mpi::request::{self, Request};
use launch::installation::Choice;
use machine::{CoreId, Cores, Result, count};
use serde_json::json;

use super::measuring::{Measuring, two};

/// Measures MPI over plimsoll beside MPI's own transports, for each pair of cores and each placement of the engine, with each
/// rank's CPU time split into application, MPI and protocol
#[derive(clap::Args)]
pub struct Arguments {
    /// Tasks, each with :SIZE, or without for its usual sizes. Of two ranks: latency, bandwidth, cold-bandwidth (through 64 MiB
    /// at either end), rate (window of 64), rate-of-threads (the same by two threads of each rank, at MPI_THREAD_MULTIPLE),
    /// exchange (compute, then swap a border) and overlap (the share of a transfer that rank 0's computing hides); of 4, 8 and
    /// 32 ranks that share two cores: ring, barrier, alltoall and allreduce
    #[arg(long, value_name = "TASK,..", value_delimiter = ',', value_parser = tasks)]
    tasks: Vec<Tasks>,
    /// Measure only the targets of the libfabric provider: ratios to MPI's best own transport, and whether they are met
    #[arg(long, conflicts_with = "tasks")]
    targets: bool,
    /// Hosts of the ranks: one, lab (two, needs root), nodes (this node and the next one of a Slurm or PBS job), or both: one
    /// and two in turns, the two being nodes where the job has them and no target or protocol core is asked for
    #[arg(long, default_value = "both")]
    hosts: WantedHosts,
    /// The MPI: openmpi, mpich, or the PREFIX that one is installed in
    #[arg(long, value_name = "MPI", default_value = "openmpi")]
    library: Choice,
    /// Cores of the two ranks, like 0,1 [default: a near and a far pair]
    #[arg(long, value_name = "CORES")]
    cores: Option<Cores>,
    /// Core that does the kernel's receive processing (lab only)
    #[arg(long, value_name = "CORE")]
    protocol_core: Option<CoreId>,
    #[command(flatten)]
    measuring: Measuring,
}

#[derive(Clone)]
struct Tasks(Vec<Task>);

fn tasks(text: &str) -> Result<Tasks> {
    request::tasks(text).map(Tasks)
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    linux::signal::watch()?;
    let request = Request {
        mpi: arguments.library,
        hosts: arguments.hosts,
        tasks: arguments.tasks.into_iter().flat_map(|tasks| tasks.0).collect(),
        targets: arguments.targets,
        cores: arguments.cores.as_ref().map(two).transpose()?,
        protocol_core: arguments.protocol_core,
        rounds: arguments.measuring.rounds,
        divided: !arguments.targets,
        only: None,
        command: machine::here::program()?,
    };
    let nodes = nodes(&request)?;
    let (findings, end) = request::run(&request, nodes, |starts| {
        eprintln!("plimsoll: {} of mpirun", count::of(starts as u64, "start"));
    })?;
    if !findings.is_empty() {
        let all = json!({ "findings": findings, "targets": findings.judged() });
        arguments.measuring.print(&all, || Ok(findings.page(linux::output::width())))?;
    }
    end.map(|()| ExitCode::SUCCESS)
}

/// The nodes to measure between, if there are any.
fn nodes(request: &Request) -> Result<Option<Nodes>> {
    // Targets and protocol cores need the lab.
    if request.hosts == WantedHosts::Both && (request.targets || request.protocol_core.is_some()) {
        return Ok(None);
    }
    let nodes = Nodes::asked(request.hosts, &request.command)?;
    if let Some(Nodes { pair, .. }) = &nodes {
        eprintln!("Between {} and {} of {}.", pair.names[0], pair.names[1], pair.job);
    }
    Ok(nodes)
}
