//! Applications, against Open MPI's own counts: its component `pml monitoring` counts the messages of its messaging
//! layer, and separates those of the program itself ("external") from those of collectives.
//!
//! Open MPI's counts differ in two cases: they lack messages of persistent requests (4.1), and they include messages that
//! Open MPI itself sends with the program's tags (at the creation of an intercommunicator, for one-sided operations by
//! `osc pt2pt`). These programs have neither.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use launch::family::Family;
use record::rank::Rank;
use testbed::applications::{self, Gromacs, MELT, installed};
use testbed::recording::Recording;
use testbed::{Mpi, Place};

use super::expectation::{Expectation, consistent};
use super::source;

/// Messages and bytes by sender and receiver.
type Matrix = BTreeMap<(usize, usize), [u64; 2]>;

/// The messages in each rank's file, in lines of `E  from  to  N bytes  N msgs sent  ..`.
fn monitored(place: &Place, ranks: usize) -> Matrix {
    let mut matrix = Matrix::new();
    for rank in 0..ranks {
        let name = format!("monitored.{rank}.prof");
        let text = fs::read_to_string(place.path().join(&name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        for line in text.lines().filter(|line| line.starts_with("E\t")) {
            let mut numbers = line.split_whitespace().filter_map(|word| word.parse::<u64>().ok());
            let [from, to, bytes, messages] = [(); 4].map(|()| numbers.next().unwrap_or_else(|| panic!("{line}")));
            let sums = matrix.entry((from as usize, to as usize)).or_default();
            *sums = [sums[0] + messages, sums[1] + bytes];
        }
    }
    matrix
}

fn profiled(tables: &[Rank]) -> Matrix {
    let of = |rank: &Rank| {
        let from = rank.header.rank as usize;
        let peers: Vec<_> = rank.peers.iter().enumerate().map(|(to, p)| ((from, to), [p.messages, p.bytes])).collect();
        peers
    };
    tables.iter().flat_map(of).filter(|(_, sums)| *sums != [0; 2]).collect()
}

/// Runs a program under both counts, and compares them.
fn compare(place: &Place, mpi: &Mpi, program: &Path, ranks: usize, arguments: &[&str]) -> Vec<Rank> {
    let mut recording = Recording::under(mpi, ranks, program).arguments(arguments).env("OMP_NUM_THREADS", "1");
    for (name, value) in [("enable", "2"), ("enable_output", "3"), ("filename", "monitored")] {
        recording = recording.env(format!("OMPI_MCA_pml_monitoring_{name}"), value);
    }
    let tables = recording.run(place, "profile", skip::LIMIT).well(program.display()).ranks();
    assert_eq!(tables.len(), ranks);
    let theirs = monitored(place, ranks);
    let ours = profiled(&tables);
    let messages: u64 = theirs.values().map(|sums| sums[0]).sum();
    assert!(messages > 100, "{theirs:?}");
    for pair in theirs.keys().chain(ours.keys()) {
        let of = |matrix: &Matrix| matrix.get(pair).copied().unwrap_or_default();
        assert_eq!(of(&ours), of(&theirs), "{}: messages and bytes of {pair:?}", program.display());
    }
    let calls: u64 = tables.iter().flat_map(|rank| Expectation::found(rank).calls).map(|(_, count)| count.calls).sum();
    println!(
        "{}: {calls} calls, {messages} messages, {} bytes agree with Open MPI's count",
        program.display(),
        theirs.values().map(|sums| sums[1]).sum::<u64>()
    );
    tables.iter().for_each(consistent);
    tables
}

#[test]
fn programs_of_ours() {
    let Some(mpi) = Mpi::system(Family::OpenMpi) else { return };
    for (name, ranks, arguments) in [("point.c", 3, &["without"][..]), ("halo.c", 8, &[])] {
        let place = Place::new();
        let program = mpi.compile(&place, &[source(name)], "program");
        compare(&place, &mpi, &program, ranks, arguments);
    }
}

#[test]
fn netpipe() {
    let Some((mpi, netpipe)) = installed("NPopenmpi") else { return };
    let place = Place::new();
    compare(&place, &mpi, &netpipe, 2, &["-u", "100000", "-n", "20", "-o", "np.out"]);
}

#[test]
fn lammps() {
    let Some((mpi, lmp)) = installed("lmp") else { return };
    let place = Place::new();
    let arguments = applications::lammps(&place, MELT);
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let tables = compare(&place, &mpi, &lmp, 4, &words);
    assert!(Expectation::found(&tables[0]).count("Send") > 100);
}

#[test]
fn gromacs() {
    let Some((mpi, gmx)) = installed("gmx_mpi") else { return };
    let place = Place::new();
    let arguments = Gromacs::prepare(&place, &mpi, &gmx).arguments("run");
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let tables = compare(&place, &mpi, &gmx, 2, &words);
    assert!(Expectation::found(&tables[0]).count("Sendrecv") > 50, "{:?}", Expectation::found(&tables[0]).calls);
}
