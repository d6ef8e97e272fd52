//! Companion files of the `plimsoll` command: its other program and its two libraries.

use std::path::{Path, PathBuf};

use machine::{Fault, Result};

/// Folders of companions relative to the command's: beside it after cargo's build, or after `make install`. Libraries that
/// cargo built for another package's tests are in `deps`.
const FOLDERS: [&str; 3] = ["", "../lib/plimsoll", "deps"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Companion {
    /// The program of the offcode commands.
    Offcodes,
    /// The libfabric provider.
    Provider,
    /// The library that records MPI calls.
    Profiler,
}

impl Companion {
    pub const ALL: [Companion; 3] = [Companion::Offcodes, Companion::Provider, Companion::Profiler];

    /// The name after `make install`.
    pub fn file(self) -> &'static str {
        match self {
            Companion::Offcodes => "plimsoll-offcode",
            // libfabric takes files that end in `-fi.so` for providers.
            Companion::Provider => "libplimsoll-fi.so",
            Companion::Profiler => "libplimsoll_profile.so",
        }
    }

    /// The name after cargo's build.
    pub fn built(self) -> &'static str {
        match self {
            Companion::Provider => "libplimsoll_fi.so",
            other => other.file(),
        }
    }

    /// The target of the Makefile.
    pub fn target(self) -> &'static str {
        match self {
            Companion::Offcodes => "offcodes",
            Companion::Provider => "fabric",
            Companion::Profiler => "profile",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Companion::Offcodes => "the program of the offcodes",
            Companion::Provider => "the libfabric provider",
            Companion::Profiler => "the library that records MPI calls",
        }
    }

    /// Finds the companion of the command `program`, under either name.
    pub fn find(self, program: &Path) -> Result<PathBuf> {
        let beside = program.parent().unwrap_or(Path::new("."));
        let folders = FOLDERS.iter().map(|folder| beside.join(folder));
        let files = folders.flat_map(|folder| [folder.join(self.file()), folder.join(self.built())]);
        files.into_iter().find(|file| file.is_file()).ok_or_else(|| {
            Fault::new(
                self.name(),
                format!("{} is neither in {} nor in ../lib/plimsoll from there", self.file(), beside.display()),
                format!("build it: `make {}`", self.target()),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn one_lies_beside_the_command_or_where_an_installation_puts_it() {
        let place = tempfile::tempdir().unwrap();
        let (bin, lib) = (place.path().join("bin"), place.path().join("lib/plimsoll"));
        for folder in [&bin, &lib] {
            fs::create_dir_all(folder).unwrap();
        }
        let command = bin.join("plimsoll");
        for companion in Companion::ALL {
            let fault = companion.find(&command).unwrap_err().to_string();
            assert!(fault.contains(&format!("make {}", companion.target())), "{fault}");
            fs::write(lib.join(companion.file()), "").unwrap();
            let installed = companion.find(&command).unwrap();
            assert_eq!(installed.canonicalize().unwrap(), lib.join(companion.file()).canonicalize().unwrap());
            fs::write(bin.join(companion.built()), "").unwrap();
            assert_eq!(companion.find(&command).unwrap(), bin.join(companion.built()));
        }
    }
}
