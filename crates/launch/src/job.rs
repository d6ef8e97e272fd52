//! One run of an MPI program: the launcher's command, on this host or spread over two hosts of a lab or two nodes.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use linux::lab::{Host, Lab};
use machine::choice::Choice;
use machine::seat::Seats;
use machine::topology::Topology;
use machine::{CoreId, Fault, Machine, Result, Site, Source, count};
use tempfile::TempDir;

use crate::Variables;
use crate::agent::Entrance;
use crate::allocation;
use crate::family::Family;
use crate::installation::Installation;
use crate::preload;
use crate::program::library_path;
use crate::seats::{self, LauncherInput};

/// Variable that marks every process of a job.
pub(crate) const MARK: &str = "PLIMSOLL_JOB";

/// Variable by which the provider keeps its reports in the job's folder.
const RECORD: &str = "FI_PLIMSOLL_RECORD";

/// Hosts of the ranks.
#[derive(Clone, Copy)]
pub enum Place<'a> {
    /// By the launcher's choice: this host, unless the launcher's own options differ.
    Here,
    /// The first half on host a, the rest on host b. `agent` is the program with the hidden command that enters the hosts.
    Lab { lab: &'a Lab, agent: &'a Path },
    /// The first half on this node of the allocation around this process, the first of `nodes`; the rest on the other, by
    /// `interface`. `agent` is as above. All ranks work in `folder`, which both nodes see.
    Nodes { nodes: &'a [String; 2], interface: &'a str, folder: &'a Path, agent: &'a Path },
}

/// A run: its program, its ranks and their environment.
pub struct Job<'a> {
    pub installation: &'a Installation,
    pub ranks: u32,
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
    /// The launcher's own options, after those set here, which they override.
    pub options: Vec<String>,
    pub variables: Variables,
    pub place: Place<'a>,
    /// Cores for the ranks; `None`: all, with the launcher's binding.
    pub cores: Option<Vec<CoreId>>,
    /// A seat for each rank, in place of `cores`.
    pub seats: Option<&'a Seats>,
    /// Whether ranks stay on this machine, whatever nodes a batch system gave. Files that launcher and MPI share are then
    /// in the job's own folder, which is removed however the job ends.
    pub contained: bool,
}

impl Job<'_> {
    /// The launcher's command. `folder` is the job's own; `mark` marks its processes.
    pub(crate) fn command(&self, folder: &Path, mark: &str) -> Result<Command> {
        let mut command = Command::new(&self.installation.launcher);
        if self.contained || matches!(self.place, Place::Nodes { .. }) || allocation::is_over() {
            allocation::leave(&mut command);
        }
        command.arg("-n").arg(self.ranks.to_string()).env(MARK, mark);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        let mut names: Vec<&str> = self.variables.iter().map(|(name, _)| name.as_str()).collect();
        if let Some(libraries) = &self.installation.libraries {
            command.env("LD_LIBRARY_PATH", library_path(libraries));
            names.push("LD_LIBRARY_PATH");
        }
        names.push(MARK);
        command.env(RECORD, folder);
        names.push(RECORD);
        // Variables by which ranks record themselves, where `plimsoll profile` runs this process.
        names.extend(preload::NAMES.into_iter().filter(|name| std::env::var_os(name).is_some()));
        match self.installation.family {
            Family::OpenMpi => self.open_mpi(&mut command, folder, &names),
            Family::Mpich | Family::IntelMpi => self.hydra(&mut command),
        }
        let seated = self.seats.map(|seats| self.seated(&mut command, seats, folder)).transpose()?;
        let (seats, of_program) = seated.unzip();
        let spread = |hosts: &[String; 2]| seats.as_ref().map_or_else(|| self.halves(hosts), seats::by_host);
        match self.place {
            Place::Here => {}
            Place::Lab { lab, agent } => {
                let entrances =
                    Host::BOTH.map(|host| Entrance { address: lab.address(host).to_string(), door: lab.door(host) });
                let words = entrances.each_ref().map(|entrance| format!("--entrance '{entrance}'")).join(" ");
                let agent = write_agent(folder, &[], agent, &words)?;
                let interface = lab.interface(Host::A);
                self.spread(&mut command, &spread(&entrances.map(|entrance| entrance.address)), interface, &agent);
                self.confine(&mut command, interface);
                lab.enter(Host::A, &mut command)?;
            }
            Place::Nodes { nodes, interface, folder: shared, agent } => {
                let agent = write_agent(folder, &allocation::enter(), agent, "")?;
                self.spread(&mut command, &spread(nodes), interface, &agent);
                command.current_dir(shared);
            }
        }
        command.args(&self.options).args(of_program.unwrap_or_default()).arg(&self.program).args(&self.arguments);
        if let Some(cores) = &self.cores {
            linux::affinity::confine_child(&mut command, cores)?;
        }
        Ok(command)
    }

    fn open_mpi(&self, command: &mut Command, folder: &Path, names: &[&str]) {
        if rustix::process::geteuid().is_root() {
            for name in ["OMPI_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT"] {
                command.env(name, "1").env(format!("{name}_CONFIRM"), "1");
            }
        }
        // A launcher called by its full path would use that path on other hosts too.
        if self.installation.libraries.is_none()
            && let Some(name) = self.installation.launcher.file_name()
        {
            command.arg0(name);
        }
        let binding: &[&str] = match self.place {
            _ if self.seats.is_some() => &[],
            // Slots are the allowed cores; `cores` has already checked the number of ranks.
            Place::Here => &["--oversubscribe"],
            // Two hosts of a lab share the cores; each would bind its first rank to the first core.
            Place::Lab { .. } | Place::Nodes { .. } => &["--bind-to", "none"],
        };
        command.args(binding);
        if self.cores.is_some() && matches!(self.place, Place::Here) {
            command.args(["--bind-to", "none"]);
        }
        // Open MPI passes its own parameters on to other hosts, but no other variable.
        for name in names.iter().filter(|name| !name.starts_with("OMPI_MCA_")) {
            command.args(["-x", name]);
        }
        if self.contained {
            for name in [
                "OMPI_MCA_orte_tmpdir_base",
                "PRTE_MCA_prte_tmpdir_base",
                "OMPI_MCA_btl_vader_backing_directory",
                "OMPI_MCA_btl_sm_backing_directory",
                "OMPI_MCA_osc_sm_backing_directory",
                "OMPI_MCA_osc_rdma_backing_directory",
            ] {
                command.env(name, folder);
            }
        }
    }

    fn hydra(&self, command: &mut Command) {
        if self.cores.is_some() {
            command.args(["-bind-to", "none"]);
        }
    }

    /// Adds options that put each rank in its seat. Returns the seats under the launcher's names for the hosts, and the
    /// words that start the program.
    fn seated(&self, command: &mut Command, seats: &Seats, folder: &Path) -> Result<(Seats, Vec<String>)> {
        let own = |name: &str| match self.place {
            Place::Here => Some(name.to_owned()),
            Place::Lab { lab, .. } => Host::BOTH.into_iter().find_map(|host| {
                let address = lab.address(host).to_string();
                (name == address || name == lab.door(host).hostname()).then_some(address)
            }),
            Place::Nodes { nodes, .. } => nodes.iter().find(|node| allocation::is_host(node, name)).cloned(),
        };
        let seats = seats::renamed(seats, own)?;
        let is_spread = matches!(self.place, Place::Here) && !seats::is_here_alone(&seats);
        let told = LauncherInput::new(seats::Dialect::of_installation(self.installation)?, &seats, is_spread, folder)?;
        seats::write(&told.files)?;
        command.args(told.options).args(told.of_each).envs(told.variables);
        Ok((seats, told.of_program))
    }

    /// `a:2,b:1`: the first half of the ranks on the first host, the rest on the other.
    fn halves(&self, hosts: &[String; 2]) -> String {
        let here = self.ranks.div_ceil(2);
        let ranks = hosts.iter().zip([here, self.ranks - here]).filter(|(_, ranks)| *ranks > 0);
        ranks.map(|(host, ranks)| format!("{host}:{ranks}")).collect::<Vec<_>>().join(",")
    }

    /// Options for two hosts: the launcher runs on the first and reaches the other by the agent.
    fn spread(&self, command: &mut Command, hosts: &str, interface: &str, agent: &Path) {
        match self.installation.family {
            Family::OpenMpi => {
                command.args(["--host", hosts]);
                command.env("OMPI_MCA_plm_rsh_agent", agent).env("PRTE_MCA_plm_ssh_agent", agent);
                // Processes that the agent started on a node end with the agent, so a daemon must not leave it.
                command.env("OMPI_MCA_orte_leave_session_attached", "1");
                command.env("PRTE_MCA_prte_leave_session_attached", "1");
            }
            Family::Mpich | Family::IntelMpi => {
                command.args(["-hosts", hosts, "-launcher", "ssh", "-launcher-exec"]).arg(agent);
                command.args(["-iface", interface]);
            }
        }
    }

    /// Options for the one interface of a lab's host.
    fn confine(&self, command: &mut Command, interface: &str) {
        if self.installation.family != Family::OpenMpi {
            return;
        }
        command.env("OMPI_MCA_oob_tcp_if_include", interface).env("PRTE_MCA_prte_if_include", interface);
        command.env("PMIX_MCA_ptl_tcp_if_include", format!("{interface},lo"));
        if std::env::var_os("OMPI_MCA_btl_tcp_if_include").is_none() {
            command.env("OMPI_MCA_btl_tcp_if_include", interface);
        }
    }
}

/// Writes the script that launchers call instead of ssh: `before`, then the hidden command of `program` with `words`.
fn write_agent(folder: &Path, before: &[OsString], program: &Path, words: &str) -> Result<PathBuf> {
    let path = folder.join("agent");
    let mut script = OsString::from("#!/bin/sh\n");
    for line in before {
        script.push(line);
        script.push("\n");
    }
    script.push("exec ");
    // NUL alone cannot be quoted, and no path has one.
    script.push(OsStr::from_bytes(&shlex::bytes::try_quote(program.as_os_str().as_bytes()).unwrap_or_default()));
    script.push(format!(" host-agent {words} -- \"$@\"\n"));
    fs::write(&path, script.as_bytes())
        .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o700)))
        .map_err(|e| Fault::because("folder of the job", e, "free space in TMPDIR"))?;
    Ok(path)
}

/// A folder for the shared files of a job: in /dev/shm, where it exists.
pub(crate) fn folder() -> Result<TempDir> {
    let mut builder = tempfile::Builder::new();
    let folder = builder.prefix("plimsoll-job-");
    folder
        .tempdir_in("/dev/shm")
        .or_else(|_| folder.tempdir())
        .map_err(|e| Fault::because("folder of the job", e, "free space in TMPDIR"))
}

/// Cores that remain for ranks beside an engine on a core of its own, and notes on shared cores.
#[derive(Debug, PartialEq, Eq)]
pub struct Cores {
    /// `None`: all.
    pub of_ranks: Option<Vec<CoreId>>,
    pub notes: Vec<String>,
}

/// Divides `allowed` between ranks and engine. Shared cores are refused unless `shared` permits them: an engine that spins
/// on a rank's core costs the rank most of its speed.
pub fn cores(ranks: u32, placement: &Site, allowed: &[CoreId], shared: bool) -> Result<Cores> {
    let mut notes = Vec::new();
    let cores = allowed.len();
    let Site::Core(core) = placement else {
        if ranks as usize > cores {
            notes.push(format!(
                "{} on {}: each waits while the other runs; figures of speed mean little",
                count::of(ranks.into(), "rank"),
                count::of(cores as u64, "core")
            ));
        }
        return Ok(Cores { of_ranks: None, notes });
    };
    linux::affinity::check(*core)?;
    let machine = Machine::read(&Source::live())?;
    let mut settled = beside_engine(&machine.topology, ranks, *core, allowed, shared)?;
    let node = machine.network_node();
    let choice = Choice::among(&machine.topology, allowed.iter().copied());
    let nearer = choice.first(node).filter(|best| node.is_some() && node_of(&machine, *best) == node);
    if let Some(nearer) = nearer.filter(|_| node_of(&machine, *core) != node) {
        settled.notes.push(format!(
            "{core} is not on the NUMA node of the fastest interface; core:{} is, for ranks on several hosts",
            nearer.0
        ));
    }
    Ok(settled)
}

/// Notes on ranks in given seats beside an engine.
pub(crate) fn beside_seats(seats: &Seats, ranks: u32, placement: &Site, shared: bool) -> Result<Vec<String>> {
    seats::check(seats)?;
    if seats.0.len() != ranks as usize {
        let cause =
            format!("there are {} for {}", count::of(seats.0.len() as u64, "seat"), count::of(ranks.into(), "rank"));
        return Err(Fault::new("seats", cause, format!("choose -n {}", seats.0.len())));
    }
    let Site::Core(core) = placement else { return Ok(Vec::new()) };
    linux::affinity::check(*core)?;
    let Some(rank) = seats.0.iter().position(|seat| seats::is_here(&seat.host) && seat.cores.contains(*core)) else {
        return Ok(Vec::new());
    };
    let cause = format!("rank {rank} has a seat on the engine's {core}");
    if !shared {
        let next = "choose another core for one of them, or let them share it with --oversubscribe";
        return Err(Fault::new(format!("placement {}", Site::Core(*core)), cause, next));
    }
    Ok(vec![format!("{cause}: the engine yields whenever it is idle")])
}

fn node_of(machine: &Machine, core: CoreId) -> Option<u32> {
    machine.topology.cpu(core)?.node
}

/// Cores of `allowed` that remain beside an engine on `core`: without its core's other threads, which would slow it, as
/// long as the rest suffices.
fn beside_engine(topology: &Topology, ranks: u32, core: CoreId, allowed: &[CoreId], shared: bool) -> Result<Cores> {
    let engine = Choice::among(topology, allowed.iter().copied()).without([core]);
    let apart: Vec<CoreId> = allowed.iter().copied().filter(|other| engine.is_free(*other)).collect();
    if apart.len() >= ranks as usize {
        return Ok(Cores { of_ranks: Some(apart), notes: Vec::new() });
    }
    let rest: Vec<CoreId> = allowed.iter().copied().filter(|other| *other != core).collect();
    if rest.len() >= ranks as usize {
        let cause = format!(
            "{} and {} beside the engine's: a rank may have the other thread of {core}, and each slows the other",
            count::of(ranks.into(), "rank"),
            count::of(apart.len() as u64, "core")
        );
        return Ok(Cores { of_ranks: Some(rest), notes: vec![cause] });
    }
    let cause = format!(
        "{} and the engine on {core} need {} of {}",
        count::of(ranks.into(), "rank"),
        count::of(u64::from(ranks) + 1, "core"),
        allowed.len()
    );
    if !shared {
        let next = "choose --placement app or fewer ranks, or let them share cores with --oversubscribe";
        return Err(Fault::new(format!("placement {}", Site::Core(core)), cause, next));
    }
    // Unbound: a rank that is bound to the engine's core could not leave it.
    Ok(Cores {
        of_ranks: Some(allowed.to_vec()),
        notes: vec![format!("{cause}: the engine shares cores with ranks and yields whenever it is idle")],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_nodes_are_reached_by_the_agent_and_the_first_rank_is_here() {
        let (folder, shared) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let nodes = ["n3".to_owned(), "n1".to_owned()];
        let words = |family| {
            let launcher = PathBuf::from("mpirun");
            let version = "4.1".to_owned();
            let installation = Installation { family, version, launcher, device: None, libraries: None };
            let place = Place::Nodes {
                nodes: &nodes,
                interface: "ib0",
                folder: shared.path(),
                agent: Path::new("/opt/plimsoll"),
            };
            let (program, arguments, options, variables) = (PathBuf::from("p"), vec![], vec![], vec![]);
            let (cores, contained, installation) = (None, false, &installation);
            let seats = None;
            let job =
                Job { installation, ranks: 2, program, arguments, options, variables, place, cores, seats, contained };
            let command = job.command(folder.path(), "mark").unwrap();
            assert_eq!(command.get_current_dir(), Some(shared.path()));
            let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
            let agent = command.get_envs().find(|(name, _)| *name == "OMPI_MCA_plm_rsh_agent");
            (words.join(" "), agent.map(|(_, value)| PathBuf::from(value.unwrap())))
        };
        let agent = folder.path().join("agent");
        let (of_open_mpi, named) = words(Family::OpenMpi);
        assert!(of_open_mpi.contains("--bind-to none") && of_open_mpi.contains("--host n3:1,n1:1"), "{of_open_mpi}");
        assert_eq!(named.as_ref(), Some(&agent));
        let (of_mpich, _) = words(Family::Mpich);
        let expected = format!("-hosts n3:1,n1:1 -launcher ssh -launcher-exec {} -iface ib0", agent.display());
        assert!(of_mpich.contains(&expected), "{of_mpich}");
        let script = fs::read_to_string(agent).unwrap();
        assert!(script.ends_with("exec /opt/plimsoll host-agent  -- \"$@\"\n"), "{script}");
    }

    #[test]
    fn the_agent_starts_its_program_whatever_that_is_called() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join(OsStr::from_bytes(b"it's `x` $(y)\n\"z\" \xff"));
        std::os::unix::fs::symlink(crate::program::find("echo".as_ref()).unwrap(), &program).unwrap();
        let agent = write_agent(folder.path(), &[], &program, "").unwrap();
        let output = Command::new("sh").arg(agent).args(["n2", "a  b"]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "host-agent -- n2 a  b\n", "{output:?}");
    }

    const FOUR: [CoreId; 4] = [CoreId(0), CoreId(1), CoreId(2), CoreId(3)];

    #[test]
    fn ranks_beyond_the_cores_are_told_of() {
        assert_eq!(cores(4, &Site::App, &FOUR, false).unwrap(), Cores { of_ranks: None, notes: vec![] });
        assert!(cores(5, &Site::App, &FOUR, false).unwrap().notes[0].starts_with("5 ranks on 4 cores"));
    }

    #[test]
    fn an_engine_that_would_share_a_core_is_refused_unless_it_is_wanted() {
        let site = Site::Core(linux::affinity::allowed().unwrap()[0]);
        let Site::Core(core) = site else { unreachable!() };
        let others = [CoreId(100), CoreId(101)];
        let allowed = [&[core][..], &others].concat();
        assert_eq!(cores(2, &site, &allowed, false).unwrap().of_ranks.unwrap(), others);
        let fault = cores(3, &site, &allowed, false).unwrap_err();
        assert!(fault.to_string().contains("3 ranks and the engine on"), "{fault}");
        let shared = cores(3, &site, &allowed, true).unwrap();
        assert!(shared.of_ranks.unwrap() == allowed && shared.notes[0].contains("yields"));
        assert!(cores(1, &Site::Core(CoreId(9_999)), &allowed, true).is_err());
    }

    #[test]
    fn ranks_stay_off_the_other_thread_of_the_engines_core_while_others_suffice() {
        let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines/eight-node-job");
        let machine = Machine::read(&Source::open(&archive).unwrap()).unwrap();
        let allowed: Vec<CoreId> = machine.usable_cores().iter().collect();
        let beside = |ranks| beside_engine(&machine.topology, ranks, CoreId(640), &allowed, false).unwrap();
        let few = beside(9);
        assert!(few.notes.is_empty() && few.of_ranks.unwrap().iter().all(|core| ![640, 1664].contains(&core.0)));
        let many = beside(10);
        assert!(many.notes[0].contains("other thread of core 640") && many.of_ranks.unwrap().contains(&CoreId(1664)));
        assert!(beside_engine(&machine.topology, 11, CoreId(640), &allowed, false).is_err());
    }
}
