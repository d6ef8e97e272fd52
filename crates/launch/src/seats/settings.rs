//! Options of a launcher that seats replace.

use super::dialect::Dialect;
use crate::command_line::LauncherOption;

/// Whether the option gives the number of ranks.
pub(super) fn counts_ranks(by: Dialect, setting: &LauncherOption) -> bool {
    let names: &[&str] = match by {
        Dialect::OpenMpi4 | Dialect::OpenMpi5 => &["n", "np", "c"],
        Dialect::Mpich => &["n", "np"],
        Dialect::Slurm => &["n", "ntasks"],
        Dialect::Plimsoll => &["n", "np", "ranks"],
    };
    names.contains(&setting.name.as_str())
}

/// Whether the option places or binds ranks.
pub(super) fn contradicts(by: Dialect, setting: &LauncherOption) -> bool {
    let name = setting.name.as_str();
    match by {
        Dialect::OpenMpi4 | Dialect::OpenMpi5 => {
            let parameter = setting.value.as_deref().filter(|_| name.ends_with("mca")).unwrap_or_default();
            let steers = ["rmaps_", "hwloc_base_", "hwloc_default_", "orte_rankfile"];
            steers.iter().any(|prefix| parameter.starts_with(prefix)) || OPEN_MPI.contains(&name)
        }
        Dialect::Mpich => ["bind-to", "map-by", "ppn", "perhost", "grr"].contains(&name),
        Dialect::Slurm => SLURM.contains(&name),
        Dialect::Plimsoll => name == "seats",
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

/// Whether the option gives the hosts.
pub(super) fn names_hosts(by: Dialect, setting: &LauncherOption) -> bool {
    let names: &[&str] = match by {
        Dialect::OpenMpi4 | Dialect::OpenMpi5 => &["H", "host", "hostfile", "machinefile", "default-hostfile"],
        Dialect::Mpich => &["host", "hosts", "hostlist", "f", "hostfile", "machinefile"],
        Dialect::Slurm => &["w", "nodelist", "N", "nodes", "F", "nodefile", "r", "relative", "x", "exclude"],
        Dialect::Plimsoll => &[],
    };
    names.contains(&setting.name.as_str())
}

/// Whether the option would hide a trial's output, or leave something behind in the user's name.
pub(super) fn is_not_for_trials(by: Dialect, setting: &LauncherOption) -> bool {
    let names: &[&str] = match by {
        Dialect::OpenMpi4 | Dialect::OpenMpi5 => {
            &["output-filename", "output", "xterm", "report-pid", "report-uri", "preload-files"]
        }
        Dialect::Mpich => &["outfile-pattern", "errfile-pattern"],
        Dialect::Slurm => &["o", "output", "e", "error", "i", "input"],
        Dialect::Plimsoll => &["prove", "report", "profile"],
    };
    let learns = by == Dialect::Plimsoll && setting.name == "placement" && setting.value.as_deref() == Some("auto");
    learns || names.contains(&setting.name.as_str())
}
