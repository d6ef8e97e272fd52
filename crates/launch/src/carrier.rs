//! Carriers of a job's messages, as the variables that make an MPI use them.

use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

pub use endpoint::Network;
use machine::{Fault, Result, Site};

use crate::installation::{Family, Installation};
use crate::provider::Provider;

/// The engine as a libfabric provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Engine {
    pub placement: Site,
    /// `None` leaves the choice to the provider.
    pub network: Option<Network>,
    /// Measure the time inside the provider's calls.
    pub account: bool,
}

/// What else an MPI can carry its messages by: what the engine is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Peer {
    /// Open MPI's own shared memory (vader, later sm).
    SharedMemory,
    /// UCX: shared memory on one host, TCP between hosts.
    Ucx,
    /// Open MPI's own TCP.
    Tcp,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Peer::SharedMemory => "vader",
            Peer::Ucx => "ucx",
            Peer::Tcp => "tcp",
        })
    }
}

impl FromStr for Peer {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Peer> {
        match text {
            "vader" | "sm" => Ok(Peer::SharedMemory),
            "ucx" => Ok(Peer::Ucx),
            "tcp" => Ok(Peer::Tcp),
            _ => Err(Fault::new(format!("carrier '{text}'"), "there is no such carrier", "choose vader, ucx or tcp")),
        }
    }
}

/// Where placements of the engine can be: in the ranks, or on a core of its own.
pub fn placement(text: &str) -> Result<Site> {
    let next = "write app or core:N; the receive side at a driver hook is --network xdp:IFACE";
    match text.parse::<Site>() {
        Ok(site @ (Site::App | Site::Core(_))) => Ok(site),
        Ok(site) => Err(Fault::new(format!("placement {site}"), "no engine of an MPI rank runs there", next)),
        Err(fault) => Err(Fault::new(format!("placement '{text}'"), fault.cause(), next)),
    }
}

/// Variables of a job's environment.
pub type Variables = Vec<(String, OsString)>;

fn variables<const N: usize>(pairs: [(&str, &str); N]) -> Variables {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect()
}

impl Engine {
    /// What makes `installation` carry its messages by the engine.
    /// `command` is the program that is started as the engine's process where ranks find none.
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
        if let Some(network) = &self.network {
            all.extend(variables([("FI_PLIMSOLL_NETWORK", &network.to_string())]));
        }
        all.extend(match installation.family {
            Family::OpenMpi => variables([
                ("OMPI_MCA_pml", "cm"),
                ("OMPI_MCA_mtl", "ofi"),
                ("OMPI_MCA_mtl_ofi_provider_include", "plimsoll"),
                ("OMPI_MCA_opal_common_ofi_provider_include", "plimsoll"),
                // Where there is a device for it, it carries one-sided operations past the engine; where there is none,
                // that of 5.0 writes an error for every window.
                ("OMPI_MCA_osc", "^ucx"),
            ]),
            // Ranks of one host are to go by the engine too, not by MPICH's own shared memory.
            Family::Mpich => variables([("MPIR_CVAR_CH4_NETMOD", "ofi"), ("MPIR_CVAR_NOLOCAL", "1")]),
            Family::IntelMpi => variables([("I_MPI_FABRICS", "ofi"), ("I_MPI_OFI_PROVIDER", "plimsoll")]),
        });
        all
    }
}

impl Peer {
    /// What makes `installation` carry its messages by this peer, between hosts over `interface`. `None` where this MPI
    /// has no such thing.
    pub fn variables(self, installation: &Installation, interface: Option<&str>) -> Option<Variables> {
        let over = interface.unwrap_or("lo");
        Some(match (installation.family, self) {
            (Family::OpenMpi, Peer::SharedMemory) => {
                let shared = if installation.major() >= 5 { "self,sm" } else { "self,vader" };
                variables([("OMPI_MCA_pml", "ob1"), ("OMPI_MCA_btl", shared)])
            }
            (Family::OpenMpi, Peer::Tcp) => variables([
                ("OMPI_MCA_pml", "ob1"),
                ("OMPI_MCA_btl", "self,tcp"),
                ("OMPI_MCA_btl_tcp_if_include", over),
            ]),
            (Family::OpenMpi, Peer::Ucx) => {
                let mut all = variables([
                    ("OMPI_MCA_pml", "ucx"),
                    ("OMPI_MCA_pml_ucx_tls", "any"),
                    ("OMPI_MCA_pml_ucx_devices", "any"),
                ]);
                if let Some(interface) = interface {
                    all.extend(variables([("UCX_TLS", "tcp,self"), ("UCX_NET_DEVICES", interface)]));
                }
                all
            }
            (Family::Mpich | Family::IntelMpi, _) => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use machine::CoreId;

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
        let engine = Engine { placement: Site::Core(CoreId(1)), network: Some(Network::Udp), account: true };
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
        ] {
            let all = engine.variables(&installation(family, "4.1"), &provider, Path::new("plimsoll"));
            assert!(all.contains(&(name.to_owned(), value.into())), "{family} {name}: {all:?}");
        }
    }

    #[test]
    fn peers_differ_by_version_and_path() {
        let find = |peer: Peer, version, interface, name: &str| {
            let all = peer.variables(&installation(Family::OpenMpi, version), interface).unwrap();
            all.into_iter().find(|(found, _)| found == name).map(|(_, value)| value.into_string().unwrap())
        };
        assert_eq!(find(Peer::SharedMemory, "4.1.4", None, "OMPI_MCA_btl").unwrap(), "self,vader");
        assert_eq!(find(Peer::SharedMemory, "5.0.11", None, "OMPI_MCA_btl").unwrap(), "self,sm");
        assert_eq!(find(Peer::Tcp, "4.1.4", Some("lab0"), "OMPI_MCA_btl_tcp_if_include").unwrap(), "lab0");
        assert_eq!(find(Peer::Ucx, "4.1.4", Some("lab0"), "UCX_TLS").unwrap(), "tcp,self");
        assert_eq!(find(Peer::Ucx, "4.1.4", None, "UCX_TLS"), None);
        assert!(Peer::Tcp.variables(&installation(Family::Mpich, "4.0"), None).is_none());
    }
}
