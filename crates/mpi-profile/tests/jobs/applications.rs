//! Applications, against Open MPI's own count: its component `pml monitoring` counts what goes through its messaging
//! layer, and tells what the program itself sent ("external") from what its collectives did.
//!
//! Where the two count differently: Open MPI's does not count messages of persistent requests (4.1), and it takes for
//! the program's what Open MPI itself sends with the program's tags (while it makes an intercommunicator, for one-sided
//! operations by `osc pt2pt`). None of that is in these programs.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use launch::installation::Family;
use record::rank::Rank;

use crate::expectation::{Expectation, consistent};
use crate::launcher::Mpi;
use crate::place::{Place, find};

const LIMIT: Duration = Duration::from_secs(90);

/// Messages and bytes by sender and receiver.
type Matrix = BTreeMap<(usize, usize), [u64; 2]>;

/// A program that is linked with Debian's Open MPI.
fn installed(program: &str, package: &str) -> Option<(Mpi, PathBuf)> {
    let Some(found) = find(program) else {
        eprintln!("SKIPPED: no {program} (install {package})");
        return None;
    };
    let mpi = Mpi::system(Family::OpenMpi)?;
    Some((mpi, found))
}

/// What each rank's file says: `E  from  to  N bytes  N msgs sent  ..`.
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

/// Runs it with both, and compares.
fn compare(place: &Place, mpi: &Mpi, program: &PathBuf, ranks: usize, arguments: &[&str]) -> Vec<Rank> {
    let mut command = mpi.launch(place, ranks, program);
    command.args(arguments).env("OMP_NUM_THREADS", "1");
    for (name, value) in [("enable", "2"), ("enable_output", "3"), ("filename", "monitored")] {
        command.env(format!("OMPI_MCA_pml_monitoring_{name}"), value);
    }
    Place::profiled(&mut command, &place.profile());
    let ended = place.run(&mut command, LIMIT).well(program.display());
    assert!(!ended.errors.contains("plimsoll:"), "{}", ended.errors);
    let tables = place.ranks(&place.profile());
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
        let program = mpi.compile(&place, name);
        compare(&place, &mpi, &program, ranks, arguments);
    }
}

#[test]
fn netpipe() {
    let Some((mpi, netpipe)) = installed("NPopenmpi", "netpipe-openmpi") else { return };
    let place = Place::new();
    compare(&place, &mpi, &netpipe, 2, &["-u", "100000", "-n", "20", "-o", "np.out"]);
}

/// Atoms in a Lennard-Jones liquid that melts.
const MELT: &str = "units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 8 0 8 0 8
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 1.44 87287 loop geom
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
neighbor 0.3 bin
neigh_modify delay 0 every 5 check no
fix 1 all nve
thermo 20
run 100
";

#[test]
fn lammps() {
    let Some((mpi, lmp)) = installed("lmp", "lammps") else { return };
    let place = Place::new();
    fs::write(place.path().join("in.melt"), MELT).unwrap();
    let tables = compare(&place, &mpi, &lmp, 4, &["-in", "in.melt", "-log", "none"]);
    assert!(Expectation::found(&tables[0]).count("Send") > 100);
}

/// A box of water from GROMACS's own tools.
const TOPOLOGY: &str = "#include \"oplsaa.ff/forcefield.itp\"
#include \"oplsaa.ff/spce.itp\"
[ system ]
water
[ molecules ]
";

const PARAMETERS: &str = "integrator = md
dt = 0.001
nsteps = 40
nstenergy = 10
nstcalcenergy = 10
nstlog = 0
cutoff-scheme = Verlet
coulombtype = PME
rcoulomb = 0.8
rvdw = 0.8
gen-vel = yes
gen-temp = 300
gen-seed = 17
";

#[test]
fn gromacs() {
    let Some((mpi, gmx)) = installed("gmx_mpi", "gromacs") else { return };
    let place = Place::new();
    let tool = |arguments: &[&str]| {
        let mut command = place.command(&gmx);
        command.args(["-quiet", "-nobackup"]).args(arguments);
        place.run(&mut command, LIMIT).well("gmx_mpi");
    };
    fs::write(place.path().join("topol.top"), TOPOLOGY).unwrap();
    fs::write(place.path().join("md.mdp"), PARAMETERS).unwrap();
    tool(&["solvate", "-cs", "spc216.gro", "-box", "2.4", "2.4", "2.4", "-p", "topol.top", "-o", "box.gro"]);
    tool(&["grompp", "-f", "md.mdp", "-c", "box.gro", "-p", "topol.top", "-o", "run.tpr", "-maxwarn", "4"]);
    let run = ["-quiet", "-nobackup", "mdrun", "-s", "run.tpr", "-deffnm", "run", "-pin", "off", "-ntomp", "1"];
    let tables = compare(&place, &mpi, &gmx, 2, &[&run[..], &["-nb", "cpu", "-notunepme"]].concat());
    assert!(Expectation::found(&tables[0]).count("Sendrecv") > 50, "{:?}", Expectation::found(&tables[0]).calls);
}
