//! The batch allocation around this process: its nodes, its remaining time, and the start of programs on another of its
//! nodes.

use std::env;
use std::ffi::{OsStr, OsString};
use std::net::{IpAddr, ToSocketAddrs};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use linux::answer;
use machine::seat::is_host_name;
use machine::{Fault, Result, count};

use crate::program;
use crate::slurm::as_told;
use crate::slurm::output::{field, time};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Batch {
    Slurm,
    Pbs,
}

/// A batch system's job and its nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocation {
    batch: Batch,
    /// `Slurm job 17`.
    pub name: String,
    pub nodes: String,
    job: String,
}

/// The allocation around this process, if any. Variables of a job that is over do not count; a warning names the job.
pub fn around() -> Option<Allocation> {
    let job = |name: &str| env::var(name).ok().filter(|job| !job.is_empty());
    let nodes = |name: &str| env::var(name).unwrap_or_default();
    if let Some(job) = slurm_job() {
        let (batch, nodes) = (Batch::Slurm, nodes("SLURM_JOB_NODELIST"));
        return Some(Allocation { batch, name: format!("Slurm job {job}"), nodes, job });
    }
    let job = job("PBS_JOBID")?;
    let file = nodes("PBS_NODEFILE");
    let listed = std::fs::read_to_string(file).unwrap_or_default();
    let mut nodes: Vec<&str> = Vec::new();
    // The file has a line for each slot, not necessarily sorted by node.
    listed.lines().filter(|line| !line.is_empty()).for_each(|node| {
        if !nodes.contains(&node) {
            nodes.push(node);
        }
    });
    Some(Allocation { batch: Batch::Pbs, name: format!("PBS job {job}"), nodes: nodes.join(","), job })
}

/// The Slurm job around this process.
pub(crate) fn slurm_job() -> Option<String> {
    named_job().filter(|job| !is_left_over(job))
}

/// The Slurm job that the environment names.
fn named_job() -> Option<String> {
    env::var("SLURM_JOB_ID").ok().filter(|job| !job.is_empty())
}

/// Whether Slurm's variables are of a job that is over, as in a terminal multiplexer that was started in it.
fn is_left_over(job: &str) -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    *KNOWN.get_or_init(|| {
        let is_known = || {
            said(Command::new("squeue").args(["--noheader", "--jobs", job, "--format", "%T"]))
                .is_some_and(|state| !state.trim().is_empty())
        };
        let Some(ago) = ended(slurm_end(), since_epoch(), is_known) else { return false };
        let minutes = ago.as_secs() / 60;
        let ago = match minutes {
            0..120 => count::of(minutes, "minute"),
            120..2880 => count::of(minutes / 60, "hour"),
            _ => count::of(minutes / 1440, "day"),
        };
        eprintln!(
            "plimsoll: Slurm job {job} ended {ago} ago: it is passed over. Next: unset SLURM_JOB_ID, or start a new job"
        );
        true
    })
}

/// Time since the planned end of a job; `None` before, and for a job that Slurm still knows, as after an extension.
fn ended(end: Option<Duration>, now: Duration, is_known: impl FnOnce() -> bool) -> Option<Duration> {
    let ago = now.checked_sub(end?).filter(|ago| !ago.is_zero())?;
    (!is_known()).then_some(ago)
}

fn slurm_end() -> Option<Duration> {
    env::var("SLURM_JOB_END_TIME").ok().and_then(|end| end.parse().ok()).map(Duration::from_secs)
}

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Share of a job's remaining time that is kept for the work after a measurement.
const KEPT: f64 = 0.05;

impl Allocation {
    /// Remaining time, if need be from the batch system's commands; `None` where it is unlimited or unknown.
    fn left(&self) -> Option<Duration> {
        if self.batch == Batch::Pbs {
            return said(Command::new("qstat").args(["-f", &self.job])).and_then(|text| left_of_qstat(&text));
        }
        slurm_end().and_then(|end| end.checked_sub(since_epoch())).or_else(|| {
            time(said(Command::new("squeue").args(["--noheader", "--jobs", &self.job, "--format", "%L"]))?.trim())
        })
    }

    /// Share of the remaining time for a measurement.
    pub fn usable(&self) -> Option<Duration> {
        self.left().map(|left| left.mul_f64(1.0 - KEPT))
    }

    /// The nodes by name, in the batch system's order; empty where their list cannot be read.
    pub fn hosts(&self) -> Vec<String> {
        expand(&self.nodes).unwrap_or_default()
    }

    /// This process's node by its name in the batch system; the host's own name where it is none of the nodes.
    pub fn here(&self) -> String {
        env::var("SLURMD_NODENAME").unwrap_or_else(|_| {
            let name = crate::this_host();
            self.hosts().into_iter().find(|host| is_host(host, &name)).unwrap_or(name)
        })
    }

    /// This process's node, and the node after it.
    ///
    /// # Errors
    /// There is no second node, or this process runs on none of the nodes.
    pub fn pair(&self) -> Result<(String, String)> {
        let hosts = self.hosts();
        let refused = |cause: String, next: &str| Fault::new(self.name.clone(), cause, next);
        if hosts.len() < 2 {
            let next = "ask for two: `salloc --nodes=2`, `qsub -l select=2`";
            return Err(refused(format!("its nodes are '{}', and two are needed", self.nodes), next));
        }
        let here = self.here();
        let at = hosts.iter().position(|host| *host == here).ok_or_else(|| {
            let next = match self.batch {
                Batch::Slurm => "start it on one of them: `srun --nodes=1 --ntasks=1 --overlap plimsoll ...`",
                Batch::Pbs => "start it in the job's script",
            };
            refused(format!("this host, {here}, is none of its nodes {}", self.nodes), next)
        })?;
        Ok((here, hosts[(at + 1) % hosts.len()].clone()))
    }

    /// The address by which nodes of the job reach `node`.
    ///
    /// # Errors
    /// The node's name has no address.
    pub fn address(&self, node: &str) -> Result<IpAddr> {
        let known = match self.batch {
            Batch::Slurm => said(Command::new("scontrol").args(["--oneliner", "show", "node", node])),
            Batch::Pbs => None,
        };
        let known = known.as_deref().and_then(|text| field(text, "NodeAddr")).unwrap_or(node);
        let next = "name the host by its address, with `plimsoll serve --listen ADDRESS` on it: --path ADDRESS";
        let found = (known, 0).to_socket_addrs().map_err(|e| Fault::because(format!("node {node}"), e, next))?;
        // IPv4 first, as elsewhere: the kernel's order may begin with an address that no interface serves.
        let found = found.min_by_key(|address| address.is_ipv6());
        found
            .map(|address| address.ip())
            .ok_or_else(|| Fault::new(format!("node {node}"), "its name has no address", next))
    }

    /// A command that runs `program`, at the same path there, with `arguments` on `node`.
    ///
    /// # Errors
    /// The batch system's launcher is not in PATH.
    pub fn on(&self, node: &str, program: &Path, arguments: &[OsString]) -> Result<Command> {
        let found = |launcher: &str| program::find(launcher.as_ref());
        let launcher = match self.batch {
            Batch::Slurm => found("srun"),
            // OpenPBS has pbs_tmrsh, Torque has pbsdsh.
            Batch::Pbs => found("pbs_tmrsh").or_else(|_| found("pbsdsh")),
        };
        let launcher = launcher.map_err(|fault| {
            let next = "add the batch system's commands to PATH, or serve there by hand: `plimsoll serve`, --path HOST";
            Fault::new(
                fault.subject(),
                format!("{}; it starts programs on nodes of {}", fault.cause(), self.name),
                next,
            )
        })?;
        let mut command = Command::new(&launcher);
        match self.batch {
            // All cores of the job there: the program chooses among them.
            Batch::Slurm => command
                .args(["--nodes=1", "--ntasks=1", "--overlap", "--cpu-bind=none", "--mpi=none", "--input=none"])
                .arg(format!("--nodelist={node}")),
            Batch::Pbs if launcher.ends_with("pbsdsh") => command.args(["-h", node]),
            Batch::Pbs => command.arg(node),
        };
        command.arg(program).args(arguments).stdin(Stdio::null());
        Ok(command)
    }
}

/// Whether `host` of a list is the host named `name`: either may be the short form of the other.
pub(crate) fn is_host(host: &str, name: &str) -> bool {
    let short = |of: &str| of.split('.').next().unwrap_or_default().to_owned();
    host == name || ((!host.contains('.') || !name.contains('.')) && short(host) == short(name))
}

/// Most nodes of a job; the largest machines have a tenth of that.
const MOST_NODES: usize = 100_000;

/// Most ranges in one name, and most digits of a number.
const MOST_RANGES: usize = 8;
const MOST_DIGITS: usize = 20;

/// The nodes of a list in Slurm's form, `n[01-03,7],m2`. `None` where the text is no such list, has too many names, or a
/// name that a launcher could take for an option.
fn expand(list: &str) -> Option<Vec<String>> {
    let mut depth = 0;
    let apart = list.split(|letter| {
        depth += i32::from(letter == '[') - i32::from(letter == ']');
        letter == ',' && depth == 0
    });
    let mut all = Vec::new();
    for name in apart.map(str::trim).filter(|name| !name.is_empty()) {
        if name.matches('[').count() > MOST_RANGES {
            return None;
        }
        all.extend(expand_one(name)?);
        if all.len() > MOST_NODES {
            return None;
        }
    }
    all.iter().all(|name| is_host_name(name)).then_some(all)
}

fn expand_one(name: &str) -> Option<Vec<String>> {
    let Some((head, rest)) = name.split_once('[') else { return Some(vec![name.to_owned()]) };
    let (ranges, tail) = rest.split_once(']')?;
    // Text between ranges is in every name.
    if head.len() > 255 || tail.split('[').next().is_some_and(|last| last.len() > 255) {
        return None;
    }
    let tails = expand_one(tail)?;
    let mut all = Vec::new();
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (width, first, last) = (first.len(), first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        let count = last.checked_sub(first)?;
        if width > MOST_DIGITS || count > MOST_NODES / tails.len().max(1) || all.len() > MOST_NODES {
            return None;
        }
        all.extend(
            (first..=last).flat_map(|number| tails.iter().map(move |tail| format!("{head}{number:0width$}{tail}"))),
        );
    }
    Some(all)
}

/// Variables that a batch system sets for a job's processes.
fn told() -> impl Iterator<Item = (String, OsString)> {
    let named = env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
    named.filter(|(name, _)| ["SLURM_", "PBS_"].iter().any(|of| name.starts_with(of)))
}

/// Whether the environment names a job that is over, whose nodes an MPI's launcher would request.
pub(crate) fn is_over() -> bool {
    named_job().is_some_and(|job| is_left_over(&job))
}

/// Hides the allocation from an MPI's `launcher`, which would spread its ranks over its nodes.
pub(crate) fn leave(launcher: &mut Command) {
    for (name, _) in told() {
        launcher.env_remove(name);
    }
}

/// Lines of a shell by which a launcher's process returns to the allocation that was hidden from the launcher.
pub(crate) fn enter() -> Vec<OsString> {
    told().filter(|(name, _)| is_variable(name)).map(|(name, value)| export(&name, &value)).collect()
}

/// Whether `name` is a shell variable's: in a script, another name of the environment would be a command.
fn is_variable(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Line of a shell that sets a variable and exports it.
pub(crate) fn export(name: &str, value: &OsStr) -> OsString {
    let mut line = OsString::from(format!("export {name}="));
    // NUL alone cannot be quoted, and no variable has one.
    line.push(OsStr::from_bytes(&shlex::bytes::try_quote(value.as_bytes()).unwrap_or_default()));
    line
}

fn said(command: &mut Command) -> Option<String> {
    let output = answer::of(as_told(command), answer::TIMEOUT);
    if let Err(error) = &output
        && error.kind() == std::io::ErrorKind::TimedOut
    {
        eprintln!("plimsoll: {}: {error}: it is done without its answer", command.get_program().display());
    }
    let output = output.ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Requested less used time, from `qstat -f`.
fn left_of_qstat(text: &str) -> Option<Duration> {
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(name)?.trim_start().strip_prefix('='))?;
        time(line.trim())
    };
    Some(field("Resource_List.walltime")?.saturating_sub(field("resources_used.walltime").unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_nodes_are_read_as_slurm_writes_them() {
        let names = |list| expand(list).map(|names| names.join(" "));
        for (list, expected) in [
            ("node1", "node1"),
            ("node[1-2]", "node1 node2"),
            ("n[08-10,7],m2,k[1,3]-ib", "n08 n09 n10 n7 m2 k1-ib k3-ib"),
            ("r[1-2]n[0-1]", "r1n0 r1n1 r2n0 r2n1"),
            ("a.b.c,d", "a.b.c d"),
            ("", ""),
        ] {
            assert_eq!(names(list).as_deref(), Some(expected), "{list}");
        }
        for none in ["n[1-2", "n[a-b]", "n[2-1]", "n[1-9999999999]", "n[1-400]m[1-400]", "n[]", "n[1-2]m[-]"] {
            assert_eq!(names(none), None, "{none}");
        }
    }

    #[test]
    fn a_list_of_nodes_takes_no_memory_beyond_its_names_and_names_no_options() {
        // Each list would take 10 GB, or recurse once for each of its letters.
        let long = "0".repeat(100_000);
        for list in [format!("n[{long}1-100000]"), format!("{long}[1-100000]"), format!("n[1-100000]{long}")] {
            assert_eq!(expand(&list), None);
        }
        assert_eq!(expand(&"a[1]".repeat(30_000)), None);
        for list in ["-oProxyCommand=x", "n1,-w", "n1;id", "/etc/passwd"] {
            assert_eq!(expand(list), None, "{list}");
        }
    }

    #[test]
    fn only_variables_of_a_shell_are_exported_to_one() {
        assert!(is_variable("SLURM_JOB_ID") && is_variable("PBS_O_PATH2"));
        for name in ["SLURM_X;id", "SLURM_A-B", "PBS_%x", "SLURM_\nid", "PBS_ä"] {
            assert!(!is_variable(name), "{name:?}");
        }
    }

    #[test]
    fn a_node_is_known_by_its_short_name_too() {
        assert!(is_host("n1", "n1.cluster") && is_host("n1.cluster", "n1") && is_host("n1", "n1"));
        assert!(!is_host("n1.a", "n1.b") && !is_host("n1", "n10"));
    }

    #[test]
    fn a_shell_reads_variables_back_as_they_were() {
        for value in ["n[1-2],m", "it's `x` $HOME \"y\"", "", "two\nlines"] {
            let mut script = export("PLIMSOLL_VALUE", value.as_ref());
            script.push("; printf %s \"$PLIMSOLL_VALUE\"");
            let output = Command::new("sh").arg("-c").arg(script).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), value);
        }
    }

    #[test]
    fn a_job_is_over_after_its_end_unless_slurm_still_knows_it() {
        let (end, now) = (Some(Duration::from_secs(1000)), Duration::from_secs(1600));
        assert_eq!(ended(end, now, || false), Some(Duration::from_secs(600)));
        assert_eq!(ended(end, now, || true), None);
        let unasked = || -> bool { panic!("nobody needs to be asked") };
        assert_eq!(ended(end, Duration::from_secs(999), unasked), None);
        assert_eq!(ended(None, now, unasked), None);
    }

    #[test]
    fn what_is_left_of_a_pbs_job() {
        let text = "Job Id: 7.pbs\n    resources_used.walltime = 00:10:00\n    Resource_List.walltime = 01:00:00\n";
        assert_eq!(left_of_qstat(text), Some(Duration::from_secs(3000)));
        assert_eq!(left_of_qstat("Resource_List.walltime = 60"), Some(Duration::from_secs(60)));
        assert_eq!(left_of_qstat("nothing"), None);
    }
}
