//! Checks of programs of others that plimsoll runs.

use crate::check::{Check, Worth};
use crate::mpi;
use crate::programs::Programs;

const REFERENCE: Worth = Worth {
    name: "reference",
    gives: "Open MPI beside each figure of the study",
    cost: "the study has no outside reference",
};

pub fn checks(programs: &Programs) -> Vec<Check> {
    vec![reference(programs)]
}

fn reference(programs: &Programs) -> Check {
    let mut missing = Vec::new();
    let mut packages = Vec::new();
    let mut lack = |there: bool, program: &'static str, package: &'static str| {
        if !there {
            missing.push(program);
            packages.push(package);
        }
    };
    lack(mpi::has_open_mpi(programs), "mpirun of Open MPI", "openmpi-bin");
    lack(programs.find("NPopenmpi").is_some(), "NPopenmpi", "netpipe-openmpi");
    lack(programs.find("taskset").is_some(), "taskset", "util-linux");
    match missing.is_empty() {
        true => REFERENCE.yes("NPopenmpi, taskset"),
        false => REFERENCE
            .no(format!("missing: {}", missing.join(", ")), format!("`apt-get install {}`", packages.join(" "))),
    }
}
