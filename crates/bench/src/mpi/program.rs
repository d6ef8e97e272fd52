//! Programs of the ranks, compiled for an MPI when they are needed.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use launch::installation::Installation;
use machine::{Fault, Result};

use crate::scratch::Scratch;

/// A compiled program, removed with this value.
#[derive(Debug)]
pub struct Program {
    folder: Scratch,
    name: &'static str,
}

impl Program {
    /// Compiles C code with the compiler of `installation`, in a folder of its own below `within`. Fails where there is none.
    pub fn compile(installation: &Installation, name: &'static str, code: &str, within: &Path) -> Result<Program> {
        let compiler = installation.compiler()?;
        let subject = || format!("compiler {}", compiler.display());
        let folder = Scratch::new("plimsoll-mpi-", within, "a program")?;
        let source = folder.path().join(format!("{name}.c"));
        std::fs::write(&source, code).map_err(|e| Fault::because("folder for a program", e, "free space in TMPDIR"))?;
        let program = Program { folder, name };
        let output = Command::new(&compiler)
            .args(["-O2", "-pthread", "-o"])
            .arg(program.path())
            .arg(&source)
            .stdin(Stdio::null())
            .output()
            .map_err(|e| Fault::because(subject(), e, "check that it may be executed"))?;
        if output.status.success() {
            return Ok(program);
        }
        if linux::signal::interrupted() {
            return Err(Fault::new(subject(), "a signal ended it", "run the command again"));
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let line =
            said.lines().find(|line| line.contains("error")).or(said.lines().next()).unwrap_or("it said nothing");
        Err(Fault::new(subject(), format!("it failed: {}", line.trim()), "install a C compiler and the MPI's headers"))
    }

    pub fn path(&self) -> PathBuf {
        self.folder().join(self.name)
    }

    /// The program's folder, removed with this value.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}
