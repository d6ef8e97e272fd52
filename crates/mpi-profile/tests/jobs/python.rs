//! mpi4py: the interpreter knows no MPI, and a module loads one for itself alone.

use launch::installation::Installation;
use std::path::{Path, PathBuf};

use crate::expectation::{Expectation, consistent};
use crate::launcher::LIMIT;
use crate::place::{Place, source};

/// Names interpreters that can import mpi4py and numpy, each followed by `=PREFIX` of the MPI to start it with, such as
/// `/venv/bin/python=/opt/mpich`.
const PYTHONS: &str = "PLIMSOLL_MPI4PY";

fn pythons() -> Vec<(PathBuf, PathBuf)> {
    let Some(named) = std::env::var_os(PYTHONS) else {
        eprintln!("SKIPPED: {PYTHONS} names no PYTHON=PREFIX (a python with mpi4py and numpy, and its MPI's folder)");
        return Vec::new();
    };
    let named = named.into_string().unwrap();
    let pair = |entry: &str| {
        let (python, prefix) = entry.split_once('=').unwrap_or_else(|| panic!("{PYTHONS}: no PYTHON=PREFIX: {entry}"));
        (PathBuf::from(python), PathBuf::from(prefix))
    };
    named.split(':').map(pair).collect()
}

#[test]
fn mpi4py_is_counted_exactly() {
    for (python, prefix) in pythons() {
        let mpi = launched(&prefix);
        let place = Place::new();
        let mut command = mpi.launch(&place, 3, &python);
        command.arg(source("programs/through_python.py"));
        Place::profiled(&mut command, &place.profile());
        let ended = place.run(&mut command, LIMIT).well(format_args!("{} with {mpi}", python.display()));
        assert!(!ended.errors.contains("plimsoll"), "{mpi}: {}", ended.errors);
        let tables = place.ranks(&place.profile());
        assert_eq!(tables.len(), 3, "{mpi}");
        for rank in tables {
            let difference = Expectation::of(&place, rank.header.pid).against(&Expectation::found(&rank));
            assert!(difference.is_empty(), "rank {} under {mpi}:\n{difference}", rank.header.rank);
            consistent(&rank);
        }
    }
}

fn launched(prefix: &Path) -> crate::launcher::Mpi {
    let installation = Installation::at(prefix).unwrap_or_else(|fault| panic!("{fault}"));
    crate::launcher::Mpi { compiler: prefix.join("bin/mpicc"), installation, standard: false }
}
