//! The program of the ranks, compiled for an MPI when it is needed.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use launch::installation::Installation;
use machine::{Fault, Result};
use tempfile::TempDir;

const SOURCE: &str = include_str!("patterns.c");

/// Two ranks of it are a measurement. It goes with this value.
#[derive(Debug)]
pub struct Program {
    folder: TempDir,
}

impl Program {
    /// Compiles it with the C compiler of `installation`. Fails where there is none.
    pub fn compile(installation: &Installation) -> Result<Program> {
        let compiler = installation.compiler()?;
        let subject = || format!("compiler {}", compiler.display());
        let folder = tempfile::Builder::new()
            .prefix("plimsoll-mpi-")
            .tempdir()
            .map_err(|e| Fault::because("folder for a program", e, "free space in TMPDIR"))?;
        let source = folder.path().join("patterns.c");
        std::fs::write(&source, SOURCE)
            .map_err(|e| Fault::because("folder for a program", e, "free space in TMPDIR"))?;
        let program = Program { folder };
        let output = Command::new(&compiler)
            .args(["-O2", "-o"])
            .arg(program.path())
            .arg(&source)
            .stdin(Stdio::null())
            .output()
            .map_err(|e| Fault::because(subject(), e, "check that it may be executed"))?;
        if output.status.success() {
            return Ok(program);
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let line =
            said.lines().find(|line| line.contains("error")).or(said.lines().next()).unwrap_or("it said nothing");
        Err(Fault::new(subject(), format!("it failed: {}", line.trim()), "install a C compiler and the MPI's headers"))
    }

    pub fn path(&self) -> PathBuf {
        Path::new(self.folder.path()).join("patterns")
    }
}
