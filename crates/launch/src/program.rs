//! A program to run, and the MPI that it is linked with.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use linux::answer;
use machine::{Fault, Result};

use crate::elf;
use crate::family::Family;

/// MPI library of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Linkage {
    /// The program loads this library, from this path.
    Mpi { family: Family, library: PathBuf },
    /// The program loads a library that the loader does not find.
    Missing { family: Family, library: String },
    /// The program is static: its MPI, if any, is invisible, and no provider can be loaded into it.
    Static,
    /// The program loads no known MPI.
    NoMpi,
    /// The file is a script, or for another machine: its libraries are invisible.
    Unseen { why: String },
}

/// The file of `program`: by its path, or in `PATH`.
pub fn find(program: &OsStr) -> Result<PathBuf> {
    let path = Path::new(program);
    let subject = || format!("program {}", path.display());
    if path.components().count() > 1 {
        return match path.is_file() {
            true => Ok(path.to_owned()),
            false => Err(Fault::new(subject(), "there is no such file", "check its name")),
        };
    }
    let found = env::var_os("PATH")
        .and_then(|folders| env::split_paths(&folders).map(|folder| folder.join(path)).find(|path| path.is_file()));
    found.ok_or_else(|| {
        let next = if path.is_file() { format!("write ./{}", path.display()) } else { "check its name".to_owned() };
        Fault::new(subject(), "no folder of PATH has it", next)
    })
}

/// Finds the MPI that the program at `path` loads, by its headers and by its loader.
///
/// `libraries` is put before `LD_LIBRARY_PATH` for the loader, as for the run.
pub fn linkage(path: &Path, libraries: Option<&Path>) -> Result<Linkage> {
    let subject = || format!("program {}", path.display());
    let file = fs::read(path).map_err(|e| Fault::because(subject(), e, "check its name and its permissions"))?;
    if !elf::is_elf(&file) {
        let why = if file.starts_with(b"#!") { "it is a script" } else { "it is no ELF file" };
        return Ok(Linkage::Unseen { why: why.to_owned() });
    }
    if elf::is_32_bit(&file) {
        return Ok(Linkage::Unseen { why: "it is for a 32-bit machine".to_owned() });
    }
    let Some(elf) = elf::read(&file) else {
        return Err(Fault::new(subject(), "its headers are broken or of another machine", "build it again"));
    };
    if !elf.is_dynamic || elf.interpreter.is_none() && elf.needed.is_empty() {
        return Ok(Linkage::Static);
    }
    let loaded = match &elf.interpreter {
        Some(loader) => loaded(loader, path, libraries).map_err(|e| {
            Fault::because(
                format!("{loader} --list {}", path.display()),
                e,
                "run it by hand: a file system may not answer",
            )
        })?,
        None => None,
    };
    // Without the loader's list: the libraries that the program itself names.
    let loaded = loaded.unwrap_or_else(|| elf.needed.into_iter().map(|name| (name, None)).collect());
    let own = |family: Family| loaded.iter().any(|(name, _)| name.starts_with(family.companion()));
    let mpi =
        loaded.iter().find_map(|(name, path)| Some((Family::of_library(name, own(Family::OpenMpi))?, name, path)));
    Ok(match mpi {
        Some((family, _, Some(library))) => Linkage::Mpi { family, library: library.clone() },
        Some((family, name, None)) => Linkage::Missing { family, library: name.clone() },
        None => Linkage::NoMpi,
    })
}

type Libraries = Vec<(String, Option<PathBuf>)>;

/// Libraries that `loader` would load for `program`, with their paths; `None` where the loader gives no list. Fails where
/// the loader does not end.
fn loaded(loader: &str, program: &Path, libraries: Option<&Path>) -> io::Result<Option<Libraries>> {
    let mut command = Command::new(loader);
    // The loader would search for a bare name.
    let Ok(program) = program.canonicalize() else { return Ok(None) };
    command.arg("--list").arg(program);
    if let Some(folder) = libraries {
        command.env("LD_LIBRARY_PATH", library_path(folder));
    }
    let output = match answer::of(&mut command, answer::TIMEOUT) {
        Ok(output) => output,
        Err(error) if error.kind() == io::ErrorKind::TimedOut => return Err(error),
        Err(_) => return Ok(None),
    };
    // The loader fails where a library is missing, but still lists it.
    let text = String::from_utf8_lossy(&output.stdout);
    let found: Libraries = text.lines().filter_map(listed).collect();
    Ok((!found.is_empty()).then_some(found))
}

/// One line of the loader's list: `libmpi.so.40 => /usr/lib/libmpi.so.40 (0x7f..)` or `libmpi.so.40 => not found`.
fn listed(line: &str) -> Option<(String, Option<PathBuf>)> {
    let (name, place) = line.trim().split_once(" => ")?;
    let path = place.rsplit_once(" (0x").map(|(path, _)| PathBuf::from(path));
    Some((name.rsplit('/').next()?.to_owned(), path.filter(|path| path.is_absolute())))
}

/// `LD_LIBRARY_PATH` with `folder` before its present value.
pub fn library_path(folder: &Path) -> std::ffi::OsString {
    let mut value = folder.as_os_str().to_owned();
    if let Some(before) = env::var_os("LD_LIBRARY_PATH").filter(|before| !before.is_empty()) {
        value.push(":");
        value.push(before);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_loader() {
        let some = |name: &str, path: &str| Some((name.to_owned(), Some(PathBuf::from(path))));
        assert_eq!(
            listed("\tlibmpi.so.40 => /lib/x/libmpi.so.40 (0x00007f61756c1000)"),
            some("libmpi.so.40", "/lib/x/libmpi.so.40")
        );
        assert_eq!(listed("\tlibmpi.so.12 => not found"), Some(("libmpi.so.12".to_owned(), None)));
        assert_eq!(listed("\tlinux-vdso.so.1 (0x00007ffd)"), None);
        assert_eq!(listed("\t/lib64/ld-linux-x86-64.so.2 (0x00007f)"), None);
    }

    #[test]
    fn this_test_is_no_mpi_program_and_a_script_hides_what_it_runs() {
        assert_eq!(linkage(&env::current_exe().unwrap(), None).unwrap(), Linkage::NoMpi);
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("run");
        fs::write(&script, "#!/bin/sh\n").unwrap();
        assert!(matches!(linkage(&script, None).unwrap(), Linkage::Unseen { why } if why.contains("script")));
        fs::write(&script, b"\x7fELF\x02\x01").unwrap();
        assert!(linkage(&script, None).unwrap_err().to_string().contains("broken"));
    }

    #[test]
    fn programs_are_found_as_a_shell_finds_them() {
        assert!(find("sh".as_ref()).unwrap().is_absolute());
        let fault = find("no-such-program-at-all".as_ref()).unwrap_err();
        assert_eq!(fault.cause(), "no folder of PATH has it");
        assert!(find("./no-such".as_ref()).unwrap_err().to_string().contains("no such file"));
    }
}
