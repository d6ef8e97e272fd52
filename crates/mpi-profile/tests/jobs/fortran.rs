//! Programs in Fortran, with each of the three ways to declare MPI.

use launch::family::Family;
use testbed::recording::Recording;
use testbed::{Mpi, Place};

use super::expectation::{Expectation, consistent};
use super::source;

fn fortran(ways: &[&str]) {
    for mpi in Mpi::all() {
        let Some(compiler) = mpi.fortran() else { continue };
        let place = Place::new();
        let mut flags = ways.to_vec();
        // By default gfortran refuses several types for one argument of mpif.h.
        flags.push("-fallow-argument-mismatch");
        // Counts of 64 bits came with MPI 4.
        if ways == ["-DUSE_F08"] && mpi.installation.family == Family::Mpich && mpi.installation.major() >= 4 {
            flags.push("-DLARGE");
        }
        let program = place.compile(&compiler, &[source("fortran.F90")], "fortran", &flags);
        let tables = Recording::under(&mpi, 3, program).run(&place, "profile", skip::LIMIT).well(&mpi).ranks();
        assert_eq!(tables.len(), 3, "{mpi}");
        for rank in tables {
            let difference = Expectation::of(&place, rank.header.pid).against(&Expectation::found(&rank));
            assert!(difference.is_empty(), "rank {} under {mpi}:\n{difference}", rank.header.rank);
            consistent(&rank);
            let levels: Vec<i32> = rank.phases.iter().map(|phase| phase.level).collect();
            assert_eq!(levels, [5], "{mpi}");
            // The call sites are in the program, not in the library between Fortran and C.
            for (_, site) in &rank.sites {
                let path = record::layout::words(&rank.modules[site.module as usize - 1].path);
                assert!(path.ends_with("/fortran"), "{mpi}: a call from {path}");
            }
        }
    }
}

#[test]
fn by_the_include_file() {
    fortran(&[]);
}

#[test]
#[ignore = "make check"]
fn by_the_module() {
    fortran(&["-DUSE_MPI"]);
}

#[test]
#[ignore = "make check"]
fn by_the_module_of_2008() {
    fortran(&["-DUSE_F08"]);
}
