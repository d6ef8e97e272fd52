//! The engine as the carrier of a job's messages: the variables that make an MPI use it, and the engine's process.

use std::path::Path;
use std::process::{Command, Stdio};

pub use endpoint::{Network, Semantics};
use linux::lab::{Host, Lab};
use machine::{CoreId, Dilation, Fault, Result, Site};

use crate::Variables;
use crate::family::Family;
use crate::installation::Installation;
use crate::provider::Provider;

/// The engine as a libfabric provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Engine {
    pub placement: Site,
    /// `None`: the provider chooses.
    pub network: Option<Network>,
    /// Layer between messages and packets.
    pub semantics: Semantics,
    /// Factor by which the engine's work is stretched.
    pub dilation: Dilation,
    /// Whether to measure the time inside the provider's calls.
    pub account: bool,
}

/// A placement of the engine: in the ranks, or on a core of its own.
pub fn placement(text: &str) -> Result<Site> {
    let next = "write app or core:N; the receive side at a driver hook is --network xdp:IFACE";
    match text.parse::<Site>() {
        Ok(site @ (Site::App | Site::Core(_))) => Ok(site),
        Ok(site) => Err(Fault::new(format!("placement {site}"), "no engine of an MPI rank runs there", next)),
        Err(fault) => Err(Fault::new(format!("placement '{text}'"), fault.cause(), next)),
    }
}

/// Refuses queue pairs on a core of their own or with a dilation: they run in the ranks' calls, without an engine's work.
pub fn check_semantics(semantics: Semantics, placement: &Site, dilation: Dilation) -> Result<()> {
    let refused = |cause, next| Err(Fault::new(format!("semantics {semantics}"), cause, next));
    match semantics {
        Semantics::Matched => Ok(()),
        _ if *placement != Site::App => refused("queue pairs run in the ranks' own calls", "choose placement app"),
        _ if !dilation.is_none() => refused("it is the engine's work that is stretched", "leave the dilation out"),
        _ => Ok(()),
    }
}

fn variables<const N: usize>(pairs: [(&str, &str); N]) -> Variables {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect()
}

impl Engine {
    /// Variables that make `installation` carry its messages by the engine.
    /// `command` is started as the engine's process where ranks find none.
    pub fn variables(&self, installation: &Installation, provider: &Provider, command: &Path) -> Variables {
        let yes = |on: bool| if on { "yes" } else { "no" };
        let mut all = variables([
            ("FI_PROVIDER", "plimsoll"),
            ("FI_PLIMSOLL_PLACEMENT", &self.placement.to_string()),
            ("FI_PLIMSOLL_REPORT", "yes"),
            ("FI_PLIMSOLL_ACCOUNT", yes(self.account)),
        ]);
        all.push(("FI_PROVIDER_PATH".to_owned(), provider.folder.clone().into()));
        all.push(("FI_PLIMSOLL_PROGRAM".to_owned(), command.into()));
        if self.semantics != Semantics::Matched {
            all.extend(variables([("FI_PLIMSOLL_SEMANTICS", self.semantics.name())]));
        }
        if !self.dilation.is_none() {
            all.extend(variables([("FI_PLIMSOLL_DILATE", &self.dilation.to_string())]));
        }
        if let Some(network) = &self.network {
            all.extend(variables([("FI_PLIMSOLL_NETWORK", &network.to_string())]));
        }
        all.extend(match installation.family {
            Family::OpenMpi => variables([
                ("OMPI_MCA_pml", "cm"),
                ("OMPI_MCA_mtl", "ofi"),
                ("OMPI_MCA_mtl_ofi_provider_include", "plimsoll"),
                ("OMPI_MCA_opal_common_ofi_provider_include", "plimsoll"),
                // osc/ucx carries one-sided operations past the engine. Without a device, the osc/ucx of Open MPI 5.0 prints
                // an error for every window.
                ("OMPI_MCA_osc", "^ucx"),
                // Of several receives of a window, osc/pt2pt processes a later one within an earlier one, where that waits:
                // accumulates of one origin are then out of order.
                ("OMPI_MCA_osc_pt2pt_receive_count", "1"),
                // By a BTL's atomics osc/rdma fetches wrong values of 4 bytes, and compares signed numbers as unsigned ones.
                ("OMPI_MCA_osc_rdma_acc_use_amo", "0"),
                // osc/sm (100) has windows of one host before osc/rdma, whose swaps crash there in 4.1.
                ("OMPI_MCA_osc_rdma_priority", "99"),
            ]),
            // Ranks of one host use the engine too, not MPICH's own shared memory.
            Family::Mpich => variables([("MPIR_CVAR_CH4_NETMOD", "ofi"), ("MPIR_CVAR_NOLOCAL", "1")]),
            Family::IntelMpi => variables([
                ("I_MPI_FABRICS", "ofi"),
                ("I_MPI_OFI_PROVIDER", "plimsoll"),
                // Its use of the provider's atomics needs an order that is not offered; without, they are messages.
                ("MPIR_CVAR_CH4_OFI_ENABLE_ATOMICS", "0"),
            ]),
        });
        all
    }
}

/// Starts `command engine --detach --core N`, the process of placement `core:N`, on this host or on both hosts of `lab`.
/// A host that has such a process keeps it.
///
/// A rank that finds no engine would start one itself. That engine would have the rank's cores, which exclude the engine's
/// core, and the job's mark, by which it would be ended while ranks of another job use it.
pub fn start(command: &Path, core: CoreId, lab: Option<&Lab>) -> Result<()> {
    match lab {
        None => once(process(command, core)),
        Some(lab) => Host::BOTH.into_iter().try_for_each(|host| {
            let mut command = process(command, core);
            lab.enter(host, &mut command)?;
            once(command).map_err(|fault| fault.within(host))
        }),
    }
}

fn process(command: &Path, core: CoreId) -> Command {
    let mut engine = Command::new(command);
    engine.args(["engine", "--detach", "--core", &core.0.to_string()]).current_dir("/");
    engine
}

fn once(mut command: Command) -> Result<()> {
    let next = "run `plimsoll engine --core N` to see why, or choose --placement app";
    linux::affinity::inherit_allowed(&mut command)?;
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|e| Fault::because("the engine's process", e, "check that plimsoll may be executed"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let why = said.lines().next().unwrap_or("it said nothing").trim_start_matches("plimsoll: ");
    Err(Fault::new("the engine's process", format!("it did not start: {why}"), next))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn installation(family: Family, version: &str) -> Installation {
        Installation {
            family,
            version: version.to_owned(),
            launcher: PathBuf::from("mpirun"),
            device: None,
            libraries: None,
        }
    }

    #[test]
    fn an_engine_of_a_rank_runs_in_it_or_on_a_core() {
        assert_eq!(placement("core:3").unwrap(), Site::Core(CoreId(3)));
        for text in ["xdp:lab0", "agent:dpu", "nowhere", "core:x", ""] {
            let fault = placement(text).unwrap_err();
            assert!(fault.to_string().contains("write app or core:N"), "{fault}");
        }
    }

    #[test]
    fn each_family_is_told_in_its_own_words() {
        let dilation: Dilation = "1.5".parse().unwrap();
        let engine = Engine {
            placement: Site::Core(CoreId(1)),
            network: Some(Network::Udp),
            semantics: Semantics::QueuePair,
            dilation,
            account: true,
        };
        let provider = Provider { folder: PathBuf::from("/p"), library: PathBuf::from("/p/libplimsoll-fi.so") };
        for (family, name, value) in [
            (Family::OpenMpi, "OMPI_MCA_mtl_ofi_provider_include", "plimsoll"),
            (Family::OpenMpi, "OMPI_MCA_pml", "cm"),
            (Family::OpenMpi, "OMPI_MCA_osc", "^ucx"),
            (Family::Mpich, "MPIR_CVAR_NOLOCAL", "1"),
            (Family::IntelMpi, "I_MPI_OFI_PROVIDER", "plimsoll"),
            (Family::Mpich, "FI_PROVIDER_PATH", "/p"),
            (Family::OpenMpi, "FI_PLIMSOLL_PLACEMENT", "core:1"),
            (Family::OpenMpi, "FI_PLIMSOLL_NETWORK", "udp"),
            (Family::OpenMpi, "FI_PLIMSOLL_ACCOUNT", "yes"),
            (Family::OpenMpi, "FI_PLIMSOLL_DILATE", "1.5"),
            (Family::OpenMpi, "FI_PLIMSOLL_SEMANTICS", "queue-pair"),
        ] {
            let all = engine.variables(&installation(family, "4.1"), &provider, Path::new("plimsoll"));
            assert!(all.contains(&(name.to_owned(), value.into())), "{family} {name}: {all:?}");
        }
    }
}
