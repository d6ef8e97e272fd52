//! Applications as their users run them: the same physics over the provider as over TCP.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::launcher::{Carrier, Family, Mpi};
use crate::place::{Ended, Place, find};

const LIMIT: Duration = Duration::from_secs(120);
const BAD_WIRE: &[(&str, &str)] =
    &[("SHM", "no"), ("ADDRESS", "127.0.0.1"), ("WIRE", "loss=1%,duplicate=1%,reorder=1%,seed=3")];

/// A program that is linked with Debian's Open MPI.
fn installed(program: &str, package: &str) -> Option<(Mpi, PathBuf)> {
    let Some(found) = find(program) else {
        eprintln!("SKIPPED: no {program} (install {package})");
        return None;
    };
    let mpi = Mpi::open_mpi()?;
    assert_eq!(mpi.family, Family::OpenMpi);
    Some((mpi, found))
}

fn succeeded(ended: Ended) -> Ended {
    assert!(ended.succeeded(), "{:?}\n{}{}", ended.status, ended.out, ended.errors);
    ended
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
thermo_modify format float %20.15g
run 200
";

/// Charged molecules of three atoms with long-range forces, so that transforms go between all ranks.
const WATER: &str = "units real
atom_style full
region box block 0 12.4 0 12.4 0 12.4
create_box 2 box bond/types 1 angle/types 1 extra/bond/per/atom 2 extra/angle/per/atom 1 extra/special/per/atom 2
mass 1 15.9994
mass 2 1.008
pair_style lj/cut/coul/long 6.0
pair_coeff 1 1 0.1553 3.166
pair_coeff * 2 0.0 0.0
kspace_style pppm 1.0e-4
bond_style harmonic
bond_coeff 1 1000 1.0
angle_style harmonic
angle_coeff 1 100 109.47
molecule water water.txt
lattice sc 3.1
create_atoms 0 box mol water 4711
fix 1 all nve/limit 0.05
timestep 0.5
thermo 10
thermo_modify format float %20.12g
run 60
";

const WATER_MOLECULE: &str = "one molecule of water

3 atoms
2 bonds
1 angles

Coords

1 0.0 0.0 0.0
2 0.8164904 0.5773590 0.0
3 -0.8164904 0.5773590 0.0

Types

1 1
2 2
3 2

Charges

1 -0.8476
2 0.4238
3 0.4238

Bonds

1 1 1 2
2 1 1 3

Angles

1 1 2 1 3
";

/// The table of energies, without the lines that tell times.
fn thermodynamics(out: &str) -> Vec<Vec<f64>> {
    let lines = out.lines().skip_while(|line| !line.trim_start().starts_with("Step"));
    let rows = lines.skip(1).take_while(|line| !line.starts_with("Loop time"));
    let row = |line: &str| line.split_whitespace().map(str::parse).collect::<Result<Vec<f64>, _>>();
    rows.map(|line| row(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

/// Sums of forces depend on the order in which neighbours' atoms came, which transports do not promise to repeat.
fn agree(one: &[Vec<f64>], other: &[Vec<f64>], share: f64) {
    assert!(one.len() >= 7, "{one:?}");
    assert_eq!(one.len(), other.len());
    for (left, right) in one.iter().zip(other) {
        assert_eq!(left.len(), right.len());
        for (a, b) in left.iter().zip(right) {
            assert!((a - b).abs() <= share * a.abs().max(b.abs()).max(1e-3), "{left:?} and {right:?}");
        }
    }
}

fn lammps(input: &str) {
    let Some((mpi, lmp)) = installed("lmp", "lammps") else { return };
    let place = Place::new();
    fs::write(place.path().join("in.study"), input).unwrap();
    fs::write(place.path().join("water.txt"), WATER_MOLECULE).unwrap();
    let run = |carrier| {
        let mut command = mpi.launch(&place, 2, carrier, &lmp);
        command.args(["-in", "in.study", "-log", "none"]).env("OMP_NUM_THREADS", "1");
        succeeded(place.run(&mut command, LIMIT))
    };
    let reference = thermodynamics(&run(Carrier::Tcp).out);
    for (settings, port) in [(&[][..], "shm"), (BAD_WIRE, "udp")] {
        let ended = run(Carrier::Plimsoll(settings));
        assert!(ended.carried(port, "packets_received") > 1000, "{}", ended.errors);
        agree(&thermodynamics(&ended.out), &reference, 1e-6);
    }
}

#[test]
fn lammps_melts_alike() {
    lammps(MELT);
}

#[test]
fn lammps_with_charges_and_bonds_alike() {
    lammps(WATER);
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
fn gromacs_moves_water_alike() {
    let Some((mpi, gmx)) = installed("gmx_mpi", "gromacs") else { return };
    let place = Place::new();
    let tool = |arguments: &[&str]| {
        let mut command = place.command(&gmx);
        command.args(["-quiet", "-nobackup"]).args(arguments);
        command.env("OMPI_MCA_btl", "self").env("OMPI_MCA_pml", "ob1");
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        succeeded(place.run(&mut command, LIMIT))
    };
    fs::write(place.path().join("topol.top"), TOPOLOGY).unwrap();
    fs::write(place.path().join("md.mdp"), PARAMETERS).unwrap();
    tool(&["solvate", "-cs", "spc216.gro", "-box", "2.4", "2.4", "2.4", "-p", "topol.top", "-o", "box.gro"]);
    tool(&["grompp", "-f", "md.mdp", "-c", "box.gro", "-p", "topol.top", "-o", "run.tpr", "-maxwarn", "4"]);
    let run = |carrier, name: &str| {
        let mut command = mpi.launch(&place, 2, carrier, &gmx);
        command.args(["-quiet", "-nobackup", "mdrun", "-s", "run.tpr", "-deffnm", name, "-reprod", "-pin", "off"]);
        command.args(["-ntomp", "1", "-nb", "cpu", "-notunepme"]);
        let ended = succeeded(place.run(&mut command, LIMIT));
        let energies = tool(&["dump", "-e", &format!("{name}.edr")]).out;
        (ended, energies.lines().skip(1).map(str::to_string).collect::<Vec<_>>())
    };
    let (_, reference) = run(Carrier::Tcp, "tcp");
    assert!(reference.iter().any(|line| line.contains("Total Energy")), "{reference:?}");
    for (settings, port) in [(&[][..], "shm"), (BAD_WIRE, "udp")] {
        let (ended, energies) = run(Carrier::Plimsoll(settings), port);
        assert!(ended.carried(port, "packets_received") > 100, "{}", ended.errors);
        // -reprod: bit by bit.
        assert_eq!(energies, reference);
    }
}

#[test]
fn netpipe_checks_its_bytes() {
    let Some((mpi, netpipe)) = installed("NPopenmpi", "netpipe-openmpi") else { return };
    let place = Place::new();
    for settings in [&[][..], BAD_WIRE] {
        let mut command = mpi.launch(&place, 2, Carrier::Plimsoll(settings), &netpipe);
        // -i: every byte is compared instead of timed.
        command.args(["-i", "-u", "300000", "-p", "3", "-o", "np.out"]);
        let ended = succeeded(place.run(&mut command, LIMIT));
        let told = ended.out + &ended.errors;
        assert!(told.contains("Integrity check passed"), "{told}");
        assert!(!told.contains("Integrity check failed"), "{told}");
    }
}
