//! Which of a launcher's options a seat makes void.

use super::Launcher;
use crate::profiled::Setting;

/// Whether it says how many ranks there are.
pub(super) fn counts_ranks(by: Launcher, setting: &Setting) -> bool {
    let names: &[&str] = match by {
        Launcher::OpenMpi4 | Launcher::OpenMpi5 => &["n", "np", "c"],
        Launcher::Mpich => &["n", "np"],
        Launcher::Slurm => &["n", "ntasks"],
        Launcher::Plimsoll => &["n", "np", "ranks"],
    };
    names.contains(&setting.name.as_str())
}

/// Whether it says where ranks go, or how they are bound.
pub(super) fn contradicts(by: Launcher, setting: &Setting) -> bool {
    let name = setting.name.as_str();
    match by {
        Launcher::OpenMpi4 | Launcher::OpenMpi5 => {
            let parameter = setting.value.as_deref().filter(|_| name.ends_with("mca")).unwrap_or_default();
            let steers = ["rmaps_", "hwloc_base_", "hwloc_default_", "orte_rankfile"];
            steers.iter().any(|prefix| parameter.starts_with(prefix)) || OPEN_MPI.contains(&name)
        }
        Launcher::Mpich => ["bind-to", "map-by", "ppn", "perhost", "grr"].contains(&name),
        Launcher::Slurm => SLURM.contains(&name),
        Launcher::Plimsoll => name == "seats",
    }
}

#[rustfmt::skip]
const OPEN_MPI: [&str; 26] = [
    "map-by", "bind-to", "rank-by", "rf", "rankfile", "cpu-set", "cpu-list", "slot-list", "ppr", "N", "npernode",
    "npersocket", "pernode", "bynode", "bycore", "byslot", "bind-to-core", "bind-to-none", "bind-to-socket",
    "cpus-per-proc", "cpus-per-rank", "oversubscribe", "nooversubscribe", "nolocal", "use-hwthread-cpus",
    "use-hwthreads-as-cpus",
];

#[rustfmt::skip]
const SLURM: [&str; 18] = [
    "cpu-bind", "cpu_bind", "m", "distribution", "hint", "B", "extra-node-info", "sockets-per-node", "cores-per-socket",
    "threads-per-core", "ntasks-per-node", "ntasks-per-core", "ntasks-per-socket", "O", "overcommit", "c",
    "cpus-per-task", "exact",
];

/// Whether it says which hosts there are.
pub(super) fn names_hosts(by: Launcher, setting: &Setting) -> bool {
    let names: &[&str] = match by {
        Launcher::OpenMpi4 | Launcher::OpenMpi5 => &["H", "host", "hostfile", "machinefile", "default-hostfile"],
        Launcher::Mpich => &["host", "hosts", "hostlist", "f", "hostfile", "machinefile"],
        Launcher::Slurm => &["w", "nodelist", "N", "nodes", "F", "nodefile", "r", "relative", "x", "exclude"],
        Launcher::Plimsoll => &[],
    };
    names.contains(&setting.name.as_str())
}

/// Whether it would take away what a trial prints, or leave something behind in the user's name.
pub(super) fn is_not_for_trials(by: Launcher, setting: &Setting) -> bool {
    let names: &[&str] = match by {
        Launcher::OpenMpi4 | Launcher::OpenMpi5 => {
            &["output-filename", "output", "xterm", "report-pid", "report-uri", "preload-files"]
        }
        Launcher::Mpich => &["outfile-pattern", "errfile-pattern"],
        Launcher::Slurm => &["o", "output", "e", "error", "i", "input"],
        Launcher::Plimsoll => &["prove", "report", "profile"],
    };
    let learns = by == Launcher::Plimsoll && setting.name == "placement" && setting.value.as_deref() == Some("auto");
    learns || names.contains(&setting.name.as_str())
}
