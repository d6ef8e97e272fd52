//! The MPIs of this machine: those of PATH, and those that `PLIMSOLL_MPI_PREFIXES` names.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use launch::Variables;
use launch::family::Family;
use launch::installation::{Choice, Installation};
use launch::program::library_path;
use launch::transports;

use crate::place::Place;

/// Folders of further MPIs, each with `bin/mpiexec` and `bin/mpicc`, such as `scripts/mpi-wheels` makes.
const PREFIXES: &str = "PLIMSOLL_MPI_PREFIXES";

#[derive(Debug, Clone)]
pub struct Mpi {
    pub installation: Installation,
    /// The C compiler wrapper.
    pub compiler: PathBuf,
    /// Whether programs are built for the binary interface that MPI 5 standardises.
    pub standard: bool,
    prefix: Option<PathBuf>,
}

impl fmt::Display for Mpi {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let with = if self.standard { " with the standard ABI" } else { "" };
        write!(f, "{}{with} ({})", self.installation, self.installation.launcher.display())
    }
}

impl Mpi {
    fn of(installation: Installation, prefix: Option<PathBuf>) -> Result<Mpi, String> {
        let compiler = installation.compiler().map_err(|fault| fault.to_string())?;
        Ok(Mpi { installation, compiler, standard: false, prefix })
    }

    fn found(family: Family) -> Result<Mpi, String> {
        Mpi::of(Installation::in_path(family).map_err(|fault| fault.to_string())?, None)
    }

    /// The MPI with this prefix.
    pub fn at(prefix: &Path) -> Result<Mpi, String> {
        Mpi::of(Installation::at(prefix).map_err(|fault| fault.to_string())?, Some(prefix.to_owned()))
    }

    fn with_libfabric(self) -> Result<Mpi, String> {
        match transports::without_libfabric(&self.installation) {
            Some(why) => Err(format!("{why}; install one that has it (scripts/mpi-wheels)")),
            None => Ok(self),
        }
    }

    /// An MPI of the system; the test is left out where it is missing.
    pub fn system(family: Family) -> Option<Mpi> {
        Mpi::found(family).map_err(skip::test).ok()
    }

    /// An MPI of the system that the provider can carry; the test is left out where there is none.
    pub fn carried(family: Family) -> Option<Mpi> {
        Mpi::found(family).and_then(Mpi::with_libfabric).map_err(skip::test).ok()
    }

    /// The MPIs in the folders that `PLIMSOLL_MPI_PREFIXES` names, or why one is left out.
    fn elsewhere() -> Vec<Result<Mpi, String>> {
        match std::env::var_os(PREFIXES) {
            Some(prefixes) => std::env::split_paths(&prefixes).map(|prefix| Mpi::at(&prefix)).collect(),
            None => vec![Err(format!("{PREFIXES} names no folders of further MPIs (scripts/mpi-wheels makes some)"))],
        }
    }

    fn those(found: impl IntoIterator<Item = Result<Mpi, String>>) -> Vec<Mpi> {
        let (mut all, mut missing) = (Vec::new(), Vec::new());
        for one in found {
            match one {
                Ok(mpi) => all.push(mpi),
                Err(why) => missing.push(why),
            }
        }
        match all.is_empty() {
            true => skip::test(missing.join("; ")),
            false => missing.iter().for_each(skip::part),
        }
        all
    }

    /// All MPIs of this machine, each with both of its binary interfaces; a skip is noted for each that is missing.
    pub fn all() -> Vec<Mpi> {
        let found = [Family::OpenMpi, Family::Mpich].map(Mpi::found);
        Mpi::those(found.into_iter().chain(Mpi::elsewhere()).flat_map(|found| match found {
            Ok(mpi) => {
                let compiler = mpi.compiler.with_file_name("mpicc_abi");
                let standard = compiler.is_file().then(|| Mpi { compiler, standard: true, ..mpi.clone() });
                [Some(Ok(mpi)), standard.map(Ok)].into_iter().flatten().collect()
            }
            missing => vec![missing],
        }))
    }

    /// All MPIs that the provider can carry.
    pub fn all_carried() -> Vec<Mpi> {
        let found = [Family::OpenMpi, Family::Mpich].map(Mpi::found);
        Mpi::those(found.into_iter().chain(Mpi::elsewhere()).map(|found| found.and_then(Mpi::with_libfabric)))
    }

    /// Those of [`Mpi::all_carried`] that are not the system's.
    pub fn carried_elsewhere() -> Vec<Mpi> {
        Mpi::those(Mpi::elsewhere().into_iter().map(|found| found.and_then(Mpi::with_libfabric)))
    }

    pub fn is_open_mpi(&self) -> bool {
        self.installation.family == Family::OpenMpi
    }

    /// The value of `--mpi` that chooses this MPI for a program that is linked with it.
    pub fn choice(&self) -> Choice {
        self.prefix.clone().map_or(Choice::OfProgram, Choice::Prefix)
    }

    /// The Fortran compiler wrapper; where there is none, a part of the test is left out.
    pub fn fortran(&self) -> Option<PathBuf> {
        let name = self.compiler.file_name()?.to_str()?.replace("mpicc", "mpifort");
        let compiler = Some(self.compiler.with_file_name(name)).filter(|path| path.is_file() && !self.standard);
        match skip::package::command("gfortran").and(compiler.ok_or_else(|| format!("{self} has no mpifort"))) {
            Ok(compiler) => Some(compiler),
            Err(why) => {
                skip::part(why);
                None
            }
        }
    }

    /// Compiles C sources into a program named `into`; panics with the compiler's messages.
    pub fn compile(&self, place: &Place, sources: &[PathBuf], into: &str) -> PathBuf {
        place.compile(&self.compiler, sources, into, &[])
    }

    /// Compiles a C program whose source is `text`.
    pub fn compile_text(&self, text: &str, program: &Path) -> PathBuf {
        let folder = program.parent().expect("a file is in a folder");
        let source = program.with_extension("c");
        // Another test may build or run the same program, so the file is renamed into place when it is complete.
        let new = program.with_extension(format!("{}-{:?}", std::process::id(), std::thread::current().id()));
        fs::create_dir_all(folder)
            .and_then(|()| fs::write(&new, text))
            .and_then(|()| fs::rename(&new, &source))
            .unwrap();
        let compiled = Command::new(&self.compiler).args(["-g", "-o"]).arg(&new).arg(&source).output().unwrap();
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        fs::rename(&new, program).unwrap();
        program.to_owned()
    }

    /// The command line by which a user starts `ranks` of a program.
    pub fn words(&self, ranks: usize, program: impl AsRef<OsStr>) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec![self.installation.launcher.clone().into(), "-n".into()];
        words.push(ranks.to_string().into());
        if self.is_open_mpi() {
            words.push("--oversubscribe".into());
        }
        words.push(program.as_ref().to_owned());
        words
    }

    /// The environment variables that a user's shell sets for this MPI.
    pub fn environment(&self) -> Variables {
        let mut all: Variables = Vec::new();
        if self.is_open_mpi() {
            for name in ["OMPI_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT"] {
                all.extend([name.to_owned(), format!("{name}_CONFIRM")].map(|name| (name, "1".into())));
            }
        }
        all.extend(
            self.installation.libraries.iter().map(|folder| ("LD_LIBRARY_PATH".to_owned(), library_path(folder))),
        );
        all
    }
}
