//! Applications as their users run them, linked with Debian's Open MPI.

use std::fs;
use std::path::PathBuf;

use launch::family::Family;

use crate::mpi::Mpi;
use crate::place::{Outcome, Place};

/// A program and its MPI; the test is left out where one is missing.
pub fn installed(program: &str) -> Option<(Mpi, PathBuf)> {
    let program = skip::tool(program)?;
    Some((Mpi::system(Family::OpenMpi)?, program))
}

/// LAMMPS input: atoms in a Lennard-Jones liquid that melts.
pub const MELT: &str = "units lj
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

/// LAMMPS input: charged molecules of three atoms with long-range forces, whose transforms send between all ranks.
pub const WATER: &str = "units real
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
molecule water ${folder}/water.txt
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

/// Arguments that have LAMMPS run `input`.
pub fn lammps(place: &Place, input: &str) -> Vec<String> {
    let [script, molecule] = ["in.study", "water.txt"].map(|name| place.path().join(name));
    fs::write(&script, input).unwrap();
    fs::write(molecule, WATER_MOLECULE).unwrap();
    let words = ["-in", script.to_str().unwrap(), "-var", "folder", place.path().to_str().unwrap(), "-log", "none"];
    words.map(str::to_owned).to_vec()
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

/// A GROMACS run that is prepared in a test's folder.
pub struct Gromacs<'a> {
    place: &'a Place,
    mpi: &'a Mpi,
    program: &'a PathBuf,
}

impl<'a> Gromacs<'a> {
    pub fn prepare(place: &'a Place, mpi: &'a Mpi, program: &'a PathBuf) -> Gromacs<'a> {
        let gromacs = Gromacs { place, mpi, program };
        fs::write(place.path().join("topol.top"), TOPOLOGY).unwrap();
        fs::write(place.path().join("md.mdp"), PARAMETERS).unwrap();
        gromacs.tool(&[
            "solvate",
            "-cs",
            "spc216.gro",
            "-box",
            "2.4",
            "2.4",
            "2.4",
            "-p",
            "topol.top",
            "-o",
            "box.gro",
        ]);
        let files = ["-f", "md.mdp", "-c", "box.gro", "-p", "topol.top", "-o", "run.tpr"];
        gromacs.tool(&[&["grompp"][..], &files, &["-maxwarn", "4"]].concat());
        gromacs
    }

    /// Arguments of a run whose output files are named `name`.
    pub fn arguments(&self, name: &str) -> Vec<String> {
        let file = |name: &str| self.place.path().join(name).to_str().unwrap().to_owned();
        let mut words = ["-quiet", "-nobackup", "mdrun", "-s"].map(str::to_owned).to_vec();
        words.extend([file("run.tpr"), "-deffnm".to_owned(), file(name)]);
        words.extend(["-reprod", "-pin", "off", "-ntomp", "1", "-nb", "cpu", "-notunepme"].map(str::to_owned));
        words
    }

    /// The energies of the run `name`.
    pub fn energies(&self, name: &str) -> Vec<String> {
        let dump = self.tool(&["dump", "-e", &format!("{name}.edr")]).out;
        dump.lines().skip(1).map(str::to_owned).collect()
    }

    fn tool(&self, arguments: &[&str]) -> Outcome {
        let mut command = self.place.command(self.program);
        command.args(["-quiet", "-nobackup"]).args(arguments).envs(self.mpi.environment());
        self.place.run(&mut command, skip::LIMIT).well(arguments[0])
    }
}
