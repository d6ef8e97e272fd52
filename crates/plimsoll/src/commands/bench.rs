//! `plimsoll bench`: what is measured, a subcommand each.

use std::process::ExitCode;

use linux::output;
use machine::choice::for_polling_here;
use machine::{CoreId, Cores, Fault, Result};

use super::bench_congestion;
use super::bench_cores;
use super::bench_dilate;
use super::bench_mapping;
use super::bench_mpi;
use super::bench_profiler;
use super::bench_semantics;
use super::bench_sweep;
use super::outputs::{self, Json};

/// Measures message paths, MPI's messages, semantics, and what the profiler, a mapping or slower protocol work costs
#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    Sweep(bench_sweep::Arguments),
    Mpi(bench_mpi::Arguments),
    Semantics(bench_semantics::Arguments),
    Congestion(bench_congestion::Arguments),
    Profiler(bench_profiler::Arguments),
    Mapping(bench_mapping::Arguments),
    Dilate(bench_dilate::Arguments),
    Cores(bench_cores::Arguments),
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    match arguments.what {
        What::Sweep(arguments) => bench_sweep::run(arguments),
        What::Mpi(arguments) => bench_mpi::run(arguments),
        What::Semantics(arguments) => bench_semantics::run(arguments),
        What::Congestion(arguments) => bench_congestion::run(arguments),
        What::Profiler(arguments) => bench_profiler::run(arguments),
        What::Mapping(arguments) => bench_mapping::run(arguments),
        What::Dilate(arguments) => bench_dilate::run(arguments),
        What::Cores(arguments) => bench_cores::run(arguments),
    }
}

/// How often, and what becomes of it.
#[derive(clap::Args)]
pub struct Measuring {
    /// Most rounds; what is decided before gets no more
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub rounds: u32,
    #[command(flatten)]
    json: Json,
}

impl Measuring {
    /// What was found, to standard output.
    pub fn print(&self, found: &impl serde::Serialize, page: impl FnOnce() -> Result<String>) -> Result<()> {
        self.json.tell(|| outputs::json(found), || output::page(&page()?))
    }
}

/// Where the two ends run.
#[derive(clap::Args)]
pub struct TwoCores {
    /// Cores of both ends, like 0,1 [default: two that are near each other]
    #[arg(long, value_name = "CORES")]
    cores: Option<Cores>,
}

impl TwoCores {
    /// Whether this machine has the cores shows later: the remote one may be another's.
    ///
    /// # Errors
    /// They are not two.
    pub fn named(&self) -> Result<Option<(CoreId, CoreId)>> {
        self.cores.as_ref().map(two).transpose()
    }

    /// Those that were named, or two that are near each other and no threads of one core.
    pub fn chosen(&self) -> Result<(CoreId, CoreId)> {
        if let Some(cores) = self.named()? {
            return Ok(cores);
        }
        match for_polling_here(&linux::affinity::allowed()?)?.as_slice() {
            [one, other, ..] => Ok((*one, *other)),
            _ => Err(Fault::new(
                "cores",
                "both ends poll, and this process may use one core",
                "give it more cores (taskset, cpuset), or name the one twice with --cores",
            )),
        }
    }
}

/// # Errors
/// They are not two.
pub fn two(cores: &Cores) -> Result<(CoreId, CoreId)> {
    let bad = |cause: &str| Fault::new(format!("cores '{cores}'"), cause, "write two like 0,1, or 0,0 for both on one");
    match cores.0[..] {
        [local, remote] => Ok((local, remote)),
        [one] => {
            linux::affinity::check(one)?;
            Err(bad("one core, where the two ends of a path need one each"))
        }
        _ => Err(bad("the two ends of a path need one each")),
    }
}
