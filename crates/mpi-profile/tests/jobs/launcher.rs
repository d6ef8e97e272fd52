//! The MPIs that are installed, their compilers, and how programs are started under each.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use launch::installation::{Family, Installation};

use crate::place::{Place, find};

#[derive(Debug, Clone)]
pub struct Mpi {
    pub installation: Installation,
    /// For C.
    pub compiler: PathBuf,
    /// Programs are built for the binary interface that MPI 5 standardises.
    pub standard: bool,
}

/// Folders of further MPIs, each with `bin/mpiexec` and `bin/mpicc`, such as `scripts/mpi-wheels` makes.
const PREFIXES: &str = "PLIMSOLL_MPI_PREFIXES";

/// Time for a job that takes seconds on a machine of its own.
pub const LIMIT: Duration = Duration::from_secs(60);

impl fmt::Display for Mpi {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let with = if self.standard { " with the standard ABI" } else { "" };
        write!(f, "{}{with} ({})", self.installation, self.installation.launcher.display())
    }
}

impl Mpi {
    fn of(installation: Installation) -> Option<Mpi> {
        match installation.compiler() {
            Ok(compiler) => Some(Mpi { installation, compiler, standard: false }),
            Err(fault) => {
                eprintln!("SKIPPED: {fault}");
                None
            }
        }
    }

    /// One of the system's.
    pub fn system(family: Family) -> Option<Mpi> {
        match Installation::in_path(family) {
            Ok(installation) => Mpi::of(installation),
            Err(fault) => {
                eprintln!("SKIPPED: {fault}");
                None
            }
        }
    }

    /// Those in the folders that PLIMSOLL_MPI_PREFIXES names.
    fn elsewhere() -> Vec<Mpi> {
        let Some(prefixes) = std::env::var_os(PREFIXES) else {
            eprintln!("SKIPPED: {PREFIXES} names no folders of further MPIs (scripts/mpi-wheels makes some)");
            return Vec::new();
        };
        let of = |prefix: PathBuf| Installation::at(&prefix).map_err(|fault| eprintln!("SKIPPED: {fault}")).ok();
        let found = std::env::split_paths(&prefixes).filter_map(of).filter_map(Mpi::of);
        found
            .flat_map(|mpi| {
                let compiler = mpi.compiler.with_file_name("mpicc_abi");
                let standard = compiler.is_file().then(|| Mpi { compiler, standard: true, ..mpi.clone() });
                [Some(mpi), standard].into_iter().flatten()
            })
            .collect()
    }

    pub fn all() -> Vec<Mpi> {
        let system = [Family::OpenMpi, Family::Mpich].into_iter().filter_map(Mpi::system);
        system.chain(Mpi::elsewhere()).collect()
    }

    pub fn is_open_mpi(&self) -> bool {
        self.installation.family == Family::OpenMpi
    }

    /// Its compiler of Fortran, where it has one.
    pub fn fortran(&self) -> Option<PathBuf> {
        let name = self.compiler.file_name()?.to_str()?.replace("mpicc", "mpifort");
        let compiler = Some(self.compiler.with_file_name(name)).filter(|path| path.is_file() && !self.standard);
        if compiler.is_none() || find("gfortran").is_none() {
            eprintln!("SKIPPED: {self} has no Fortran, or there is no gfortran (install gfortran)");
            return None;
        }
        compiler
    }

    /// A command that starts `ranks` of a program; its arguments are to be added.
    pub fn launch(&self, place: &Place, ranks: usize, program: impl AsRef<OsStr>) -> Command {
        let mut command = place.command(&self.installation.launcher);
        command.args(["-n", &ranks.to_string()]);
        if self.is_open_mpi() {
            command.args(["--oversubscribe", "--bind-to", "none"]);
            // These fail by themselves: one in queries that find no device, the other in 4.1's shared memory.
            command.env("OMPI_MCA_osc", if self.installation.major() < 5 { "^ucx,rdma" } else { "^ucx" });
        }
        if let Some(libraries) = &self.installation.libraries {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        command.arg(program.as_ref());
        command
    }

    pub fn compile(&self, place: &Place, name: &str) -> PathBuf {
        place.compile(&self.compiler, &crate::place::source(Path::new("programs").join(name).to_str().unwrap()), &[])
    }
}
