//! Launchers, by the form in which they take the places of ranks.

use machine::{Fault, Result};

use crate::command_line::Launcher;
use crate::family::Family;
use crate::installation::Installation;

machine::named! {
    /// Form in which a launcher takes the places of its ranks.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Dialect {
        /// Up to version 4: a rankfile in the kernel's numbers.
        OpenMpi4 = "Open MPI 4",
        /// From version 5 on (PRRTE): a rankfile in hwloc's numbers.
        OpenMpi5 = "Open MPI 5",
        /// hydra: one list of cores for the ranks of every host; where hosts differ, each rank binds itself.
        Mpich = "MPICH",
        /// `srun`: as for hydra, with a file of hosts.
        Slurm = "Slurm",
        /// `plimsoll mpirun`: a file of seats.
        Plimsoll = "plimsoll mpirun",
    }
}

impl Dialect {
    /// # Errors
    /// The launcher takes no places of ranks.
    pub fn of(launcher: &Launcher) -> Result<Dialect> {
        match launcher {
            Launcher::Mpi(installation) => Dialect::of_installation(installation),
            Launcher::Slurm => Ok(Dialect::Slurm),
            Launcher::Plimsoll => Ok(Dialect::Plimsoll),
        }
    }

    /// # Errors
    /// As [`Dialect::of`].
    pub fn of_installation(installation: &Installation) -> Result<Dialect> {
        let cannot = |cause, next| Err(Fault::new(installation.to_string(), cause, next));
        match (installation.family, installation.major()) {
            (Family::OpenMpi, 5..) => Ok(Dialect::OpenMpi5),
            (Family::OpenMpi, 2..) => Ok(Dialect::OpenMpi4),
            (Family::OpenMpi, _) => {
                cannot("its rankfiles are not those of later versions", "start the program with Open MPI 4 or 5")
            }
            (Family::Mpich, _) => Ok(Dialect::Mpich),
            (Family::IntelMpi, _) => cannot(
                "its launcher takes no list of cores",
                "set I_MPI_PIN_DOMAIN=[MASK,MASK,..] by hand, a mask of cores for each rank of a host, or start it by srun",
            ),
        }
    }
}
