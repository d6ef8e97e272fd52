//! The MPIs that are installed, and how each is told to go over a libfabric provider.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::place::{Place, find};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    OpenMpi,
    Mpich,
}

#[derive(Debug, Clone)]
pub struct Mpi {
    pub family: Family,
    pub launcher: PathBuf,
    pub compiler: PathBuf,
}

/// What carries the messages.
#[derive(Debug, Clone, Copy)]
pub enum Carrier<'a> {
    /// The provider, with settings of its own (`FI_PLIMSOLL_` is put before each name).
    Plimsoll(&'a [(&'a str, &'a str)]),
    /// The MPI's own way over TCP, also between processes of one host.
    Tcp,
}

/// Folders of further MPIs, each with `bin/mpiexec` and `bin/mpicc`, such as `scripts/mpi-wheels` makes.
const PREFIXES: &str = "PLIMSOLL_MPI_PREFIXES";

impl Mpi {
    fn of(launcher: PathBuf, compiler: PathBuf) -> Option<Mpi> {
        let told = Command::new(&launcher).arg("--version").output().ok()?;
        let told = String::from_utf8_lossy(&told.stdout).into_owned();
        let family = match () {
            _ if ["Open MPI", "OpenRTE"].iter().any(|name| told.contains(name)) => Family::OpenMpi,
            _ if told.contains("HYDRA") => Family::Mpich,
            _ => {
                eprintln!("SKIPPED: {} is neither Open MPI's launcher nor MPICH's", launcher.display());
                return None;
            }
        };
        Some(Mpi { family, launcher, compiler })
    }

    /// Debian's Open MPI.
    pub fn open_mpi() -> Option<Mpi> {
        let found = find("mpirun.openmpi").zip(find("mpicc.openmpi"));
        let Some((launcher, compiler)) = found else {
            eprintln!("SKIPPED: no mpirun.openmpi or no mpicc.openmpi (install openmpi-bin and libopenmpi-dev)");
            return None;
        };
        Mpi::of(launcher, compiler)
    }

    /// Debian's MPICH, if it can use libfabric at all.
    pub fn mpich() -> Option<Mpi> {
        let found = find("mpiexec.hydra").zip(find("mpicc.mpich")).zip(find("mpichversion"));
        let Some(((launcher, compiler), version)) = found else {
            eprintln!("SKIPPED: no mpiexec.hydra, mpicc.mpich or mpichversion (install mpich and libmpich-dev)");
            return None;
        };
        let told = Command::new(version).output().ok()?;
        let told = String::from_utf8_lossy(&told.stdout).into_owned();
        let device = told.lines().find(|line| line.contains("Device:")).unwrap_or_default();
        if !device.contains("ofi") {
            eprintln!(
                "SKIPPED: this MPICH is built without libfabric ({}); install one that has it (scripts/mpi-wheels)",
                device.split_whitespace().collect::<Vec<_>>().join(" ")
            );
            return None;
        }
        Mpi::of(launcher, compiler)
    }

    /// Those in the folders that PLIMSOLL_MPI_PREFIXES names.
    pub fn elsewhere() -> Vec<Mpi> {
        let Some(prefixes) = std::env::var_os(PREFIXES) else {
            eprintln!("SKIPPED: {PREFIXES} names no folders of further MPIs (scripts/mpi-wheels makes some)");
            return Vec::new();
        };
        let of = |prefix: PathBuf| Mpi::of(prefix.join("bin/mpiexec"), prefix.join("bin/mpicc"));
        std::env::split_paths(&prefixes).filter_map(of).collect()
    }

    pub fn all() -> Vec<Mpi> {
        Mpi::open_mpi().into_iter().chain(Mpi::mpich()).chain(Mpi::elsewhere()).collect()
    }

    /// A command that starts `ranks` of a program; its arguments are to be added.
    pub fn launch(&self, place: &Place, ranks: usize, carrier: Carrier, program: &Path) -> Command {
        let mut command = place.command(&self.launcher);
        command.args(["-n", &ranks.to_string()]);
        if let Carrier::Plimsoll(settings) = carrier {
            command.env("FI_PROVIDER", "plimsoll").env("FI_PLIMSOLL_REPORT", "yes");
            command.envs(settings.iter().map(|(name, value)| (format!("FI_PLIMSOLL_{name}"), value)));
        }
        match (self.family, carrier) {
            (Family::OpenMpi, carrier) => {
                command.args(["--oversubscribe", "--bind-to", "none"]);
                for root in ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] {
                    command.env(root, "1");
                }
                let choices: &[[&str; 2]] = match carrier {
                    Carrier::Plimsoll(_) => &[
                        ["pml", "cm"],
                        ["mtl", "ofi"],
                        ["mtl_ofi_provider_include", "plimsoll"],
                        // Otherwise one-sided traffic looks for a transport of its own.
                        ["btl", "^ofi"],
                        ["osc", "^ucx"],
                    ],
                    Carrier::Tcp => &[["pml", "ob1"], ["btl", "self,tcp"], ["osc", "^ucx"]],
                };
                for [name, value] in choices {
                    command.args(["--mca", name, value]);
                }
            }
            (Family::Mpich, carrier) => {
                command.env("MPIR_CVAR_CH4_NETMOD", "ofi");
                // Without it MPICH carries messages of one host in memory of its own.
                command.env("MPIR_CVAR_NOLOCAL", "1");
                if let Carrier::Tcp = carrier {
                    command.env("FI_PROVIDER", "tcp;ofi_rxm");
                }
            }
        }
        command.arg(program);
        command
    }

    pub fn compile(&self, place: &Place, files: &[PathBuf], into: &str) -> PathBuf {
        place.compile(&self.compiler, files, into, &[])
    }
}

/// Time for a job that takes seconds on a machine of its own.
pub const LIMIT: Duration = Duration::from_secs(240);
