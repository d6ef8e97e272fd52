//! Options that the subcommands share: rounds, outputs and cores.

use std::process::ExitCode;

use linux::output;
use machine::choice::for_polling_here;
use machine::{CoreId, Cores, Fault, Result};

use crate::commands::exit_code;
use crate::commands::outputs::{self, Json};

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
    /// Prints the result to standard output.
    pub fn print(&self, found: &impl serde::Serialize, page: impl FnOnce() -> Result<String>) -> Result<()> {
        self.json.tell(|| outputs::json(found), || output::page(&page()?))
    }
}

/// The exit status of a bench, with a note if not the `whole` of it was measured.
pub fn ended(whole: bool) -> ExitCode {
    if !whole {
        eprintln!("plimsoll: a signal ended it before all rounds were measured");
    }
    exit_code()
}

/// Where the two ends run.
#[derive(clap::Args)]
pub struct TwoCores {
    /// Cores of both ends, like 0,1 [default: two that are near each other]
    #[arg(long, value_name = "CORES")]
    cores: Option<Cores>,
}

impl TwoCores {
    /// The named cores. They are checked later: the remote one may be of another host.
    ///
    /// # Errors
    /// They are not two.
    pub fn named(&self) -> Result<Option<(CoreId, CoreId)>> {
        self.cores.as_ref().map(two).transpose()
    }

    /// Two cores: those that were named, or near ones that are no threads of one core.
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
