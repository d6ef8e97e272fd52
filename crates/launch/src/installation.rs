//! The MPIs of this machine: their families, launchers, compilers and communication devices.

use std::env;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use linux::answer;
use machine::{Fault, FaultKind, Result};

use crate::family::Family;
use crate::program::{self, Linkage};

/// Choice of an MPI.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Choice {
    /// The MPI that the program is linked with.
    #[default]
    OfProgram,
    Family(Family),
    /// The MPI whose `bin` folder is in this folder.
    Prefix(PathBuf),
}

impl std::str::FromStr for Choice {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Choice> {
        match text {
            "openmpi" => Ok(Choice::Family(Family::OpenMpi)),
            "mpich" => Ok(Choice::Family(Family::Mpich)),
            prefix if Path::new(prefix).join("bin").is_dir() => Ok(Choice::Prefix(PathBuf::from(prefix))),
            _ => {
                let cause = "it is neither the name of an MPI nor a folder with a bin folder in it";
                Err(Fault::new(format!("mpi '{text}'"), cause, "write openmpi, mpich or the PREFIX of one"))
            }
        }
    }
}

/// An MPI on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installation {
    pub family: Family,
    /// The MPI's version, as its launcher prints it.
    pub version: String,
    pub launcher: PathBuf,
    /// MPICH's communication devices (`ch4:ucx,ofi`), where its launcher prints them.
    pub device: Option<String>,
    /// Folder of its libraries, where the program needs it in `LD_LIBRARY_PATH` (`--mpi PREFIX`).
    pub libraries: Option<PathBuf>,
}

impl fmt::Display for Installation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.family, self.version)
    }
}

impl Installation {
    /// The MPI of `choice`; Open MPI's in PATH for [`Choice::OfProgram`].
    pub fn chosen(choice: &Choice) -> Result<Installation> {
        match choice {
            Choice::OfProgram => Installation::in_path(Family::OpenMpi),
            Choice::Family(family) => Installation::in_path(*family),
            Choice::Prefix(prefix) => Installation::at(prefix),
        }
    }

    /// The MPI that the program at `path` is linked with.
    ///
    /// # Errors
    /// The program is linked with no MPI, or its MPI is not on this machine.
    pub fn of_program(path: &Path) -> Result<Installation> {
        let linkage = program::linkage(path, None)?;
        Installation::choose(&Choice::OfProgram, &path.display().to_string(), &linkage)
    }

    /// Value of the option `--mpi` of plimsoll's commands for this MPI.
    pub fn option(&self) -> String {
        let by_family = Installation::in_path(self.family).is_ok_and(|found| found.launcher == self.launcher);
        let prefix = self.launcher.parent().and_then(Path::parent).filter(|_| !by_family);
        match (prefix, self.family) {
            (Some(prefix), _) => prefix.display().to_string(),
            (None, Family::OpenMpi) => "openmpi".to_owned(),
            (None, Family::Mpich | Family::IntelMpi) => "mpich".to_owned(),
        }
    }

    /// The MPI that starts a program with this `linkage`; `program` is the program's name for faults.
    pub fn choose(choice: &Choice, program: &str, linkage: &Linkage) -> Result<Installation> {
        let subject = || format!("program {program}");
        match (choice, linkage) {
            (Choice::Prefix(prefix), _) => Installation::at(prefix),
            (Choice::Family(family), Linkage::Mpi { family: linked, library }) if !family.is_like(*linked) => {
                Err(Fault::new(
                    subject(),
                    format!("it is linked with {linked} ({})", library.display()),
                    format!("leave --mpi out, or build it with the mpicc of {family}"),
                ))
            }
            (_, Linkage::Mpi { family, library }) => Installation::of_library(*family, library),
            (Choice::Family(family), _) => Installation::in_path(*family),
            (Choice::OfProgram, Linkage::Missing { family, library }) => Err(Fault::new(
                subject(),
                format!("it is linked with {family}, but the loader does not find {library}"),
                "name the folder that it was installed to by --mpi PREFIX",
            )),
            (Choice::OfProgram, Linkage::Static) => Err(Fault::new(
                subject(),
                "it is linked statically: which MPI is in it cannot be seen, and no provider can be loaded into it",
                "build it with a shared MPI library, or start it by its own mpirun",
            )),
            (Choice::OfProgram, Linkage::NoMpi) => Err(Fault::new(
                subject(),
                "it is not linked with an MPI that is known (libmpi.so.40 of Open MPI, libmpi.so.12 of MPICH)",
                "name an MPI program; if it loads or starts one itself, say which MPI by --mpi openmpi, mpich or PREFIX",
            )),
            (Choice::OfProgram, Linkage::Unseen { why }) => Err(Fault::new(
                subject(),
                format!("{why}, so that the MPI behind it cannot be seen"),
                "say which it is by --mpi openmpi, mpich or PREFIX",
            )),
        }
    }

    /// The first MPI of a family in `PATH`.
    pub fn in_path(family: Family) -> Result<Installation> {
        let none = || {
            let next = match family {
                Family::OpenMpi => "install it: `apt-get install openmpi-bin`",
                Family::Mpich => "install it: `apt-get install mpich`",
                Family::IntelMpi => "load its environment: `. PREFIX/env/vars.sh`",
            };
            Fault::new(format!("{family}"), "no folder of PATH has its mpirun", next)
        };
        first_in(&path_folders(), family)?.ok_or_else(none)
    }

    /// The MPIs in `PATH`, one of each family.
    pub fn all_in_path() -> Vec<Installation> {
        [Family::OpenMpi, Family::Mpich].into_iter().filter_map(|family| Installation::in_path(family).ok()).collect()
    }

    /// Every MPI in these folders, in their order.
    pub fn all_in(folders: &[PathBuf]) -> Vec<Installation> {
        let mut found: Vec<Installation> = Vec::new();
        let families = [Family::OpenMpi, Family::Mpich];
        for (folder, family) in folders.iter().flat_map(|folder| families.map(|family| (folder, family))) {
            // A launcher that does not answer is in `silent`.
            let Ok(Some(installation)) = Installation::in_folder(folder, Some(family)) else { continue };
            // An MPI may be found under several names, and /bin may be /usr/bin.
            let home = |launcher: &Path| launcher.canonicalize().unwrap_or_else(|_| launcher.to_owned());
            if !found.iter().any(|known| home(&known.launcher) == home(&installation.launcher)) {
                found.push(installation);
            }
        }
        found
    }

    /// The MPI with its `bin` folder in `prefix`; programs will load its libraries.
    pub fn at(prefix: &Path) -> Result<Installation> {
        let found = Installation::in_folder(&prefix.join("bin"), None)?.ok_or_else(|| {
            let cause = "its bin folder has no mpirun or mpiexec of an MPI that is known";
            Fault::new(format!("mpi {}", prefix.display()), cause, "name the folder that an MPI was installed to")
        })?;
        let folders = ["lib", "lib64", "lib/release", "lib/openmpi/lib"];
        let has_mpi = |folder: &PathBuf| {
            let names = fs::read_dir(folder).into_iter().flatten().flatten();
            names.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with("libmpi.so."))
        };
        Ok(Installation { libraries: folders.map(|folder| prefix.join(folder)).into_iter().find(has_mpi), ..found })
    }

    /// The MPI that `library` belongs to: its launcher is in a `bin` folder above the library, or in `PATH`.
    fn of_library(family: Family, library: &Path) -> Result<Installation> {
        let mut folders: Vec<PathBuf> = Vec::new();
        for place in [Some(library.to_owned()), library.canonicalize().ok()].into_iter().flatten() {
            let bins = place.ancestors().skip(2).take(4).map(|above| above.join("bin"));
            // Where /bin links to /usr/bin, Open MPI finds its parts by the latter alone.
            folders.extend(bins.filter_map(|bin| bin.canonicalize().ok()));
        }
        folders.extend(path_folders());
        first_in(&folders, family)?.ok_or_else(|| {
            let cause = format!("its mpirun is neither in a bin folder above {} nor in PATH", library.display());
            Fault::new(format!("{family}"), cause, "install its launcher, or name its folder by --mpi PREFIX")
        })
    }

    fn in_folder(folder: &Path, wanted: Option<Family>) -> Result<Option<Installation>> {
        let mut names = match wanted {
            Some(family) => family.launchers().to_vec(),
            None => [Family::OpenMpi, Family::Mpich].iter().flat_map(|family| family.launchers()).copied().collect(),
        };
        // Names of one MPI first: Intel's `mpirun` is a script that may answer for the mpiexec.hydra of PATH.
        names.sort_by_key(|name| !name.contains('.'));
        for path in names.into_iter().map(|name| folder.join(name)).filter(|path| path.is_file()) {
            let found = Installation::by_launcher(&path)?;
            let fits = |found: &Installation| wanted.is_none_or(|family| family.is_like(found.family));
            if found.as_ref().is_some_and(fits) {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// The MPI of a launcher, by the output of `--version`; `None` where the launcher is no MPI's.
    ///
    /// # Errors
    /// The launcher neither answers nor ends.
    pub(crate) fn by_launcher(launcher: &Path) -> Result<Option<Installation>> {
        Installation::asked(launcher, answer::TIMEOUT)
    }

    fn asked(launcher: &Path, patience: Duration) -> Result<Option<Installation>> {
        if silent_ones().iter().any(|known| known == launcher) {
            return Err(no_answer(launcher));
        }
        let output = match answer::of(Command::new(launcher).arg("--version"), patience) {
            Err(error) if error.kind() == std::io::ErrorKind::TimedOut => {
                silent_ones().push(launcher.to_owned());
                return Err(no_answer(launcher));
            }
            output => output.ok(),
        };
        let said = output.and_then(|output| ReportedVersion::of(&String::from_utf8_lossy(&output.stdout)));
        Ok(said.map(|said| Installation {
            family: said.family,
            version: said.version,
            launcher: launcher.to_owned(),
            device: said.device,
            libraries: None,
        }))
    }

    /// The MPI's C compiler, beside the launcher.
    pub fn compiler(&self) -> Result<PathBuf> {
        let beside = self.launcher.parent().map(Path::to_owned).into_iter();
        // A bare `mpicc` in PATH may be another MPI's.
        let found = beside.flat_map(|folder| self.family.compilers().iter().map(move |name| folder.join(name)));
        found.into_iter().find(|path| path.is_file()).ok_or_else(|| {
            let next = match self.family {
                Family::OpenMpi => "install it: `apt-get install libopenmpi-dev`",
                Family::Mpich => "install it: `apt-get install libmpich-dev`",
                Family::IntelMpi => "install its development package",
            };
            Fault::new(format!("mpicc of {self}"), format!("there is none beside {}", self.launcher.display()), next)
        })
    }

    /// The first number of the version, 0 where there is none.
    pub fn major(&self) -> u32 {
        self.numbers()[0]
    }

    /// The first three numbers of the version, 0 where there is none: 5.0.7rc1 is 5, 0, 7.
    pub fn numbers(&self) -> [u32; 3] {
        let mut words = self.version.split('.').map(|word| {
            let end = word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len());
            word[..end].parse().unwrap_or(0)
        });
        std::array::from_fn(|_| words.next().unwrap_or(0))
    }
}

/// Launchers that did not answer this process: none is waited for twice.
static SILENT: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn silent_ones() -> MutexGuard<'static, Vec<PathBuf>> {
    SILENT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Launchers that did not answer `--version`.
pub fn silent() -> Vec<PathBuf> {
    silent_ones().clone()
}

/// Fault for one of [`silent`].
pub fn no_answer(launcher: &Path) -> Fault {
    let cause = format!("it gave no answer in {} s", answer::TIMEOUT.as_secs());
    let next = "run it by hand: it may wait for a display (unset DISPLAY), a name server or a file system";
    Fault::new(format!("{} --version", launcher.display()), cause, next).of_kind(FaultKind::Limit)
}

fn first_in(folders: &[PathBuf], family: Family) -> Result<Option<Installation>> {
    for folder in folders {
        if let Some(found) = Installation::in_folder(folder, Some(family))? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn path_folders() -> Vec<PathBuf> {
    env::var_os("PATH").map(|folders| env::split_paths(&folders).collect()).unwrap_or_default()
}

/// Output of `mpirun --version`.
#[derive(Debug, PartialEq)]
struct ReportedVersion {
    family: Family,
    version: String,
    device: Option<String>,
}

impl ReportedVersion {
    fn of(text: &str) -> Option<ReportedVersion> {
        let first = text.lines().next()?;
        if first.contains("OpenRTE") || first.contains("Open MPI") {
            let version = first.split_whitespace().last()?.to_owned();
            return Some(ReportedVersion { family: Family::OpenMpi, version, device: None });
        }
        if first.contains("Intel(R) MPI") {
            let version = first.split_whitespace().skip_while(|word| *word != "Version").nth(1)?.to_owned();
            return Some(ReportedVersion { family: Family::IntelMpi, version, device: None });
        }
        if !first.starts_with("HYDRA") {
            return None;
        }
        let version = text.lines().find_map(|line| line.trim().strip_prefix("Version:"))?.trim().to_owned();
        let device = text.split_once("--with-device=").map(|(_, rest)| {
            rest.split(|c: char| c.is_whitespace() || c == '\'').next().unwrap_or_default().to_owned()
        });
        Some(ReportedVersion { family: Family::Mpich, version, device })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYDRA: &str = "HYDRA build details:\n    Version:                                 4.0.2\n    Release Date: Thu\n    \
                         Configure options:                       '--with-hwloc-prefix=/usr' '--with-device=ch4:ucx' 'FFLAGS=-O2'\n";

    #[test]
    fn launchers_say_what_they_are() {
        let said = |text: &str| ReportedVersion::of(text).map(|said| (said.family, said.version, said.device));
        assert_eq!(said("mpirun.openmpi (OpenRTE) 4.1.4\n\nReport"), Some((Family::OpenMpi, "4.1.4".into(), None)));
        assert_eq!(said("mpirun (Open MPI) 5.0.11\n"), Some((Family::OpenMpi, "5.0.11".into(), None)));
        assert_eq!(said(HYDRA), Some((Family::Mpich, "4.0.2".into(), Some("ch4:ucx".into()))));
        let intel = "Intel(R) MPI Library for Linux* OS, Version 2021.12 Build 20240213 (id: 4f55822)\n";
        assert_eq!(said(intel), Some((Family::IntelMpi, "2021.12".into(), None)));
        assert_eq!(said("slurm 22.05\n"), None);
        assert_eq!(said(""), None);
    }

    #[test]
    fn a_launcher_that_hangs_is_named_and_waited_for_once() {
        let folder = tempfile::tempdir().unwrap();
        let launcher = folder.path().join("mpirun");
        skip::program(&launcher, "#!/bin/sh\nsleep 600\n");
        let fault = Installation::asked(&launcher, Duration::from_millis(50)).unwrap_err();
        assert!(fault.to_string().contains("mpirun --version: it gave no answer in"), "{fault}");
        // A second request by name returns at once, without the whole patience.
        for family in [Family::OpenMpi, Family::Mpich] {
            let fault = Installation::in_folder(folder.path(), Some(family)).unwrap_err();
            assert_eq!(fault.kind(), FaultKind::Limit);
        }
        assert!(silent().contains(&launcher));
        let line = crate::command_line::CommandLine::read(&[launcher.clone().into_os_string(), "true".into()]);
        assert_eq!((&line.launcher, line.silent.as_ref()), (&None, Some(&launcher)));
        assert!(line.answered().is_err());
    }

    /// Intel's `mpirun` without its environment starts the mpiexec.hydra of PATH.
    #[test]
    fn a_launcher_with_a_name_of_its_own_is_asked_first() {
        let folder = tempfile::tempdir().unwrap();
        let bin = folder.path().join("bin");
        fs::create_dir(&bin).unwrap();
        let intel = "Intel(R) MPI Library for Linux* OS, Version 2021.19.0 Build 1";
        for (name, says) in [("mpirun", HYDRA), ("mpiexec", intel), ("mpiexec.hydra", intel)] {
            fs::write(bin.join(format!("{name}.said")), says).unwrap();
            skip::program(&bin.join(name), &format!("#!/bin/sh\ncat {}\n", bin.join(format!("{name}.said")).display()));
        }
        let found = Installation::at(folder.path()).unwrap();
        assert_eq!((found.family, found.launcher), (Family::IntelMpi, bin.join("mpiexec.hydra")));
    }

    #[test]
    fn what_is_asked_for_must_fit_the_program() {
        let choose = |choice: &str, linkage: &Linkage| {
            Installation::choose(&choice.parse().unwrap(), "a.out", linkage).map(|_| ()).unwrap_err().to_string()
        };
        let linked = Linkage::Mpi { family: Family::OpenMpi, library: PathBuf::from("/lib/libmpi.so.40") };
        let fault = choose("mpich", &linked);
        assert!(fault.contains("linked with Open MPI (/lib/libmpi.so.40)"), "{fault}");
        let program = |linkage: Linkage| {
            Installation::choose(&Choice::OfProgram, "a.out", &linkage).map(|_| ()).unwrap_err().to_string()
        };
        assert!(program(Linkage::Static).contains("statically"));
        assert!(program(Linkage::NoMpi).contains("not linked with an MPI"));
        assert!(program(Linkage::Unseen { why: "it is a script".into() }).contains("--mpi openmpi"));
        let missing = Linkage::Missing { family: Family::Mpich, library: "libmpi.so.12".into() };
        assert!(program(missing).contains("does not find libmpi.so.12"));
    }

    #[test]
    fn an_unknown_mpi_is_refused() {
        let fault = "no-such-mpi".parse::<Choice>().unwrap_err();
        assert!(fault.to_string().contains("write openmpi, mpich or the PREFIX"), "{fault}");
    }
}
