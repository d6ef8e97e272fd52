//! mpi4py: the interpreter is not linked with MPI, and a module loads the MPI for itself alone.

use std::path::PathBuf;

use testbed::recording::Recording;
use testbed::{Mpi, Place};

use super::expectation::{Expectation, consistent};
use super::source;

/// Names interpreters that can import mpi4py and numpy, each followed by `=PREFIX` of the MPI to start it with, such as
/// `/venv/bin/python=/opt/mpich`.
const PYTHONS: &str = "PLIMSOLL_MPI4PY";

fn pythons() -> Vec<(PathBuf, PathBuf)> {
    let Some(named) = std::env::var_os(PYTHONS) else {
        skip::test(format_args!(
            "{PYTHONS} names no PYTHON=PREFIX (a python with mpi4py and numpy, and its MPI's folder)"
        ));
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
        let mpi = Mpi::at(&prefix).unwrap_or_else(|why| panic!("{why}"));
        let place = Place::new();
        let recording = Recording::under(&mpi, 3, &python).arguments(&[source("through_python.py")]);
        let ended = recording.run(&place, "profile", skip::LIMIT);
        let tables = ended.well(format_args!("{} with {mpi}", python.display())).ranks();
        assert_eq!(tables.len(), 3, "{mpi}");
        for rank in tables {
            let difference = Expectation::of(&place, rank.header.pid).against(&Expectation::found(&rank));
            assert!(difference.is_empty(), "rank {} under {mpi}:\n{difference}", rank.header.rank);
            consistent(&rank);
        }
    }
}

#[test]
#[ignore = "make check"]
fn processes_that_a_rank_starts_are_no_ranks() {
    for (python, prefix) in pythons() {
        let mpi = Mpi::at(&prefix).unwrap_or_else(|why| panic!("{why}"));
        let place = Place::new();
        let recording = Recording::under(&mpi, 2, &python).arguments(&[source("starts_processes.py")]).trace(1 << 20);
        let ended = recording.run(&place, "profile", skip::LIMIT).well(format_args!("{} with {mpi}", python.display()));
        let tables = ended.ranks();
        let places: Vec<_> = tables.iter().map(|rank| (rank.header.rank, rank.header.finalized > 0)).collect();
        assert_eq!(places, [(0, true), (1, true)], "{mpi}");
        tables.iter().for_each(consistent);
    }
}
