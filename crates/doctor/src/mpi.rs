//! Checks of the MPIs in PATH, with the transports of each, and of the batch system.

use launch::family::Family;
use launch::installation::{self, Installation};
use launch::transports::{self, Transport};

use crate::check::{Check, State, Worth};
use crate::programs::{Answer, Programs, ask};

const NONE: Worth = Worth {
    name: "MPI",
    gives: "mpirun, profile and bench mpi",
    cost: "no MPI program can be run, profiled or compared with",
};
const SLURM: Worth =
    Worth { name: "Slurm", gives: "`plimsoll profile -- srun ...`", cost: "jobs are started by mpirun alone" };

pub fn checks(programs: &Programs) -> Vec<Check> {
    let installations = Installation::all_in(&programs.folders);
    let mut checks: Vec<Check> = installations.iter().flat_map(of).collect();
    checks.extend(installation::silent().iter().map(|launcher| {
        let fault = installation::no_answer(launcher);
        NONE.no(format!("{}: {}", fault.subject(), fault.cause()), fault.next())
    }));
    if checks.is_empty() {
        checks.push(NONE.no(
            "PATH has no mpirun that is known",
            "`apt-get install openmpi-bin`, load its module, or write --mpi PREFIX",
        ));
    }
    checks.push(slurm(programs));
    checks
}

fn of(installation: &Installation) -> Vec<Check> {
    let transports = transports::of(installation);
    vec![
        found(installation, transports.as_deref()),
        carried(installation, transports.as_deref()),
        compiler(installation),
    ]
}

fn found(installation: &Installation, transports: Option<&[Transport]>) -> Check {
    let list = |off: bool, all: &[Transport]| {
        let names = all.iter().filter(|transport| transport.switched_off == off).map(|transport| &*transport.name);
        names.collect::<Vec<_>>().join(", ")
    };
    let mut found = installation.launcher.display().to_string();
    match transports {
        Some(all) => {
            found += &format!("; carries by {}", list(false, all));
            let off = list(true, all);
            if !off.is_empty() {
                found += &format!("; off in its configuration: {off}");
            }
        }
        None => found += "; it does not tell its transports",
    }
    Check {
        name: installation.to_string(),
        state: State::Yes,
        found,
        gives: "profile".into(),
        cost: NONE.cost.into(),
        next: None,
    }
}

/// Whether `plimsoll mpirun` can have the engine carry the MPI's messages.
fn carried(installation: &Installation, transports: Option<&[Transport]>) -> Check {
    const WORTH: Worth = Worth {
        name: "  over the engine",
        gives: "mpirun",
        cost: "mpirun starts its programs and leaves their messages to it",
    };
    if let Some(why) = transports::without_libfabric(installation) {
        return WORTH.no(why, installation.family.to_get_libfabric());
    }
    let Some(all) = transports else {
        return WORTH
            .unknown("it does not tell whether it has libfabric", "try `plimsoll mpirun`: it says what carried");
    };
    match all.iter().any(|transport| transport.name == "ofi" && transport.switched_off) {
        true => WORTH.yes("which switches ofi on for its job"),
        false => WORTH.yes("by ofi"),
    }
}

fn compiler(installation: &Installation) -> Check {
    const WORTH: Worth = Worth { name: "  compiler", gives: "bench mpi", cost: "no `plimsoll bench mpi`" };
    match installation.compiler() {
        Ok(path) => WORTH.yes(path.display().to_string()),
        Err(fault) => WORTH.no("no mpicc beside its launcher", fault.next()),
    }
}

fn slurm(programs: &Programs) -> Check {
    let next = "nothing, unless this is a cluster";
    let Some(srun) = programs.find("srun") else { return SLURM.no("PATH has no srun", next) };
    let Answer::Said(version) = ask(&srun, &["--version"]) else {
        let found = format!("{} has no cluster's configuration, or is damaged", srun.display());
        return SLURM.no(found, "run it on a node of the cluster; `srun --version` says more");
    };
    let version = version.trim();
    let Some(sinfo) = programs.find("sinfo") else {
        return SLURM.unknown(format!("{version}; there is no sinfo"), "try `srun hostname`");
    };
    match ask(&sinfo, &["--noheader", "--format=%P %D"]) {
        Answer::Said(partitions) => SLURM.yes(format!("{version}; {} partitions", partitions.lines().count())),
        Answer::Failed => SLURM.no(format!("{version}; its controller does not answer"), "see what `sinfo` says"),
        Answer::Silent(patience) => {
            SLURM.unknown(format!("{version}; sinfo said nothing within {} s", patience.as_secs()), "run `sinfo`")
        }
    }
}

/// Whether PATH has the launcher of Open MPI, the study's outside reference.
pub fn has_open_mpi(programs: &Programs) -> bool {
    Installation::all_in(&programs.folders).iter().any(|installation| installation.family == Family::OpenMpi)
}
