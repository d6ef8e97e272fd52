//! Families of MPIs: the names of their launchers, compilers and libraries.

machine::named! {
    /// MPIs with the same launcher options and variables.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum Family {
        OpenMpi = "Open MPI",
        /// MPICH and MPIs derived from it with its launcher, hydra.
        Mpich = "MPICH",
        /// An MPICH with variables of its own.
        IntelMpi = "Intel MPI",
    }
}

impl Family {
    /// The family of an MPI library, by the library's name. Open MPI before 2.0 and MPICH share `libmpi.so.12`;
    /// `has_open_mpi_parts` separates them.
    pub(crate) fn of_library(name: &str, has_open_mpi_parts: bool) -> Option<Family> {
        let (stem, version) = name.split_once(".so.")?;
        match (stem, version.split('.').next()?) {
            ("libmpi", "20" | "40") => Some(Family::OpenMpi),
            ("libmpi", "12") if has_open_mpi_parts => Some(Family::OpenMpi),
            ("libmpi" | "libmpich", "12") => Some(Family::Mpich),
            // The standard ABI of MPI 5: so far MPICH's library.
            ("libmpi_abi", _) => Some(Family::Mpich),
            _ => None,
        }
    }

    /// Start of the names of another library of the family.
    pub(crate) fn companion(self) -> &'static str {
        match self {
            Family::OpenMpi => "libopen-pal.so",
            Family::Mpich | Family::IntelMpi => "libmpi.so",
        }
    }

    /// Names of its launcher, the most specific first.
    pub(crate) fn launchers(self) -> &'static [&'static str] {
        match self {
            Family::OpenMpi => &["mpirun.openmpi", "mpirun", "orterun", "mpiexec"],
            Family::Mpich | Family::IntelMpi => &["mpiexec.mpich", "mpiexec.hydra", "mpiexec", "mpirun"],
        }
    }

    pub(crate) fn compilers(self) -> &'static [&'static str] {
        match self {
            Family::OpenMpi => &["mpicc.openmpi", "mpicc"],
            Family::Mpich => &["mpicc.mpich", "mpicc"],
            Family::IntelMpi => &["mpiicx", "mpiicc", "mpicc"],
        }
    }

    /// The next step of a user whose MPI was built without libfabric.
    pub fn to_get_libfabric(self) -> &'static str {
        match self {
            Family::OpenMpi => "build the program with an Open MPI that has libfabric",
            _ => "run it under an MPICH that has libfabric (PREFIX/bin/mpichversion says 'ofi'), by --mpi PREFIX",
        }
    }

    /// Whether either family's launcher starts the other's programs: Intel MPI has MPICH's ABI.
    pub(crate) fn is_like(self, other: Family) -> bool {
        (self == Family::OpenMpi) == (other == Family::OpenMpi)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_name_their_family() {
        let family = |name| Family::of_library(name, false);
        assert_eq!(family("libmpi.so.40"), Some(Family::OpenMpi));
        assert_eq!(family("libmpi.so.40.30.4"), Some(Family::OpenMpi));
        assert_eq!(family("libmpi.so.12"), Some(Family::Mpich));
        assert_eq!(family("libmpich.so.12"), Some(Family::Mpich));
        assert_eq!(family("libmpi_abi.so.1"), Some(Family::Mpich));
        assert_eq!(Family::of_library("libmpi.so.12", true), Some(Family::OpenMpi));
        assert_eq!(family("libmpi_cxx.so.40"), None);
        assert_eq!(family("libmpifort.so.12"), None);
        assert_eq!(family("libc.so.6"), None);
    }
}
