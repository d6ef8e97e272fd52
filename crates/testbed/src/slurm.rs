//! A Slurm cluster for one test: the controller and one node on host a of a lab, another node on host b, all with munge. All
//! daemons are real; only the nodes' cores are those of one machine.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use linux::lab::{Host, Lab, Options};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// A cluster of two nodes, `n1` and `n2`, which ends when it is dropped.
pub struct Cluster {
    /// The order matters: daemons are dropped before the lab, and the folder last.
    munge: Child,
    controller: Child,
    nodes: [Child; 2],
    lab: Lab,
    folder: TempDir,
}

/// The nodes' names.
pub const NODES: [&str; 2] = ["n1", "n2"];

const HOSTS: [Host; 2] = [Host::A, Host::B];

impl Cluster {
    /// Starts a cluster. Without Slurm or root on this machine, notes a skip and returns `None`.
    pub fn start() -> Option<Cluster> {
        Cluster::with_plugins(|_| Some(String::new()))
    }

    /// Starts a cluster whose daemons load the plugins of this plugstack.conf; `plugins` is given the cluster's folder, and puts
    /// there what they need.
    pub fn with_plugins(plugins: impl FnOnce(&Path) -> Option<String>) -> Option<Cluster> {
        if !rustix::process::geteuid().is_root() {
            skip::test("two nodes of Slurm need root");
            return None;
        }
        let [munged, slurmctld, slurmd] = [skip::tool("munged")?, skip::tool("slurmctld")?, skip::tool("slurmd")?];
        let setpriv = skip::tool("setpriv")?;
        for command in ["sbatch", "squeue", "scontrol", "srun", "scancel"] {
            skip::tool(command)?;
        }
        let lab = Lab::owned(&Options::default()).unwrap_or_else(|fault| panic!("{fault}"));
        let folder = tempfile::Builder::new().prefix("slurm-test-").tempdir().unwrap();
        // Daemons of several users read the folder.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let of_munge = keys(folder.path());
        for name in ["state", "n1", "n2"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        fs::write(folder.path().join("slurm.conf"), configuration(folder.path(), &lab)).unwrap();
        fs::write(folder.path().join("plugstack.conf"), plugins(folder.path())?).unwrap();
        let start = |host: Host, command: &mut Command| daemon(&lab, host, folder.path(), command);
        let file =
            |option: &str, name: &str| format!("--{option}={}", folder.path().join("munge").join(name).display());
        let options = [
            ("socket", "socket"),
            ("key-file", "key"),
            ("pid-file", "pid"),
            ("log-file", "log"),
            ("seed-file", "seed"),
        ];
        // munge runs as a user of its own, in the lab, which only root can enter.
        let (user, group) = (format!("--reuid={}", of_munge.0), format!("--regid={}", of_munge.1));
        let mut munge = Command::new(setpriv);
        munge.args([&user, &group, "--clear-groups"]).arg(munged).args(["--foreground", "--num-threads=2"]);
        let munge = start(Host::A, munge.args(options.map(|(option, name)| file(option, name))));
        let socket = folder.path().join("munge/socket");
        within(skip::LIMIT, "munged", || socket.exists().then_some(()));
        let controller = start(Host::A, Command::new(slurmctld).arg("-D"));
        let nodes = [0, 1].map(|at| start(HOSTS[at], Command::new(&slurmd).args(["-D", "-N", NODES[at]])));
        let cluster = Cluster { munge, controller, nodes, lab, folder };
        within(skip::LIMIT, "both nodes", || (cluster.states() == ["idle", "idle"]).then_some(()));
        Some(cluster)
    }

    /// The folder of the cluster's files and of the test's, which both nodes see.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Makes a command run in the network namespace where users of the cluster log in.
    pub fn enter<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command.env("SLURM_CONF", self.path().join("slurm.conf"));
        for name in ["SLURM_JOB_ID", "PBS_JOBID"] {
            command.env_remove(name);
        }
        self.lab.enter(Host::A, command).unwrap_or_else(|fault| panic!("{fault}"))
    }

    /// The output of a Slurm command.
    pub fn said(&self, name: &str, words: &[&str]) -> String {
        let program = skip::package::command(name).unwrap();
        let output = self.enter(Command::new(program).args(words).stdin(Stdio::null())).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    }

    /// The state of each node in words of `scontrol`, lower case.
    pub fn states(&self) -> [String; 2] {
        NODES.map(|node| {
            let text = self.said("scontrol", &["--oneliner", "show", "node", node]);
            let state = text.split_whitespace().find_map(|word| word.strip_prefix("State="));
            state.unwrap_or_default().to_lowercase()
        })
    }

    /// Kills node `n2`, its daemon and all that it started, at once, and has the controller notice.
    pub fn lose_second(&self) {
        let processes = self.processes(Host::B);
        for signal in [Signal::STOP, Signal::KILL] {
            processes.iter().for_each(|process| kill(*process, signal));
        }
        self.said("scontrol", &["update", "nodename=n2", "state=down", "reason=lost"]);
    }

    fn processes(&self, host: Host) -> Vec<u32> {
        let status = self.lab.status().unwrap_or_else(|fault| panic!("{fault}"));
        status.hosts[host as usize].processes.clone()
    }

    /// The daemons' logs, for the message of a failed test.
    pub fn logs(&self) -> String {
        let file = |name: &str| fs::read_to_string(self.path().join(name)).unwrap_or_default();
        ["controller.log", "n1.log", "n2.log"].map(|name| format!("--- {name}\n{}", file(name))).concat()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let steps = self.processes(Host::A).into_iter().chain(self.processes(Host::B));
        for process in steps.collect::<Vec<_>>() {
            kill(process, Signal::KILL);
        }
        for daemon in [&mut self.munge, &mut self.controller].into_iter().chain(&mut self.nodes) {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

fn kill(process: u32, signal: Signal) {
    if let Some(process) = Pid::from_raw(process as i32) {
        let _ = kill_process(process, signal);
    }
}

/// Makes munge's folder with a key, owned by munge's user where there is one; returns that user and group.
fn keys(folder: &Path) -> (u32, u32) {
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let of = users.lines().find_map(|line| line.strip_prefix("munge:")).map(|line| line.split(':').skip(1));
    let mut numbers = of.into_iter().flatten().filter_map(|part| part.parse().ok());
    let of = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let place = folder.join("munge");
    fs::create_dir(&place).unwrap();
    let mut key = vec![0u8; 128];
    std::io::Read::read_exact(&mut fs::File::open("/dev/urandom").unwrap(), &mut key).unwrap();
    fs::write(place.join("key"), key).unwrap();
    fs::set_permissions(place.join("key"), fs::Permissions::from_mode(0o400)).unwrap();
    fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).unwrap();
    for path in [place.join("key"), place] {
        chown(path, Some(of.0), Some(of.1)).unwrap();
    }
    of
}

/// Writes Slurm's configuration, without an accounting database and cgroups, so that nothing is left on the machine. Nodes
/// have a TmpFS each: PMIx makes a folder there, whose name is the same on all nodes.
fn configuration(folder: &Path, lab: &Lab) -> String {
    let place = folder.display();
    let [a, b] = HOSTS.map(|host| lab.address(host));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!(
        "ClusterName=testbed
SlurmctldHost=plimsoll-a({a})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={place}/munge/socket
SlurmctldPidFile={place}/controller.pid
SlurmctldLogFile={place}/controller.log
StateSaveLocation={place}/state
SlurmdPidFile={place}/%n.pid
SlurmdLogFile={place}/%n.log
SlurmdSpoolDir={place}/%n
TmpFS={place}/%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/builtin
SchedulerParameters=sched_min_interval=200000
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobRequeue=1
ReturnToService=2
SlurmdTimeout=30
KillWait=2
SlurmdParameters=config_overrides
PlugStackConfig={place}/plugstack.conf
NodeName=n1 NodeHostname=plimsoll-a NodeAddr={a} Port=6818 CPUs={cores} State=UNKNOWN
NodeName=n2 NodeHostname=plimsoll-b NodeAddr={b} Port=6818 CPUs={cores} State=UNKNOWN
PartitionName=short Nodes=n[1-2] Default=YES MaxTime=01:00:00 State=UP
PartitionName=closed Nodes=n2 MaxTime=01:00:00 State=DOWN
"
    )
}

fn daemon(lab: &Lab, host: Host, folder: &Path, command: &mut Command) -> Child {
    let said: PathBuf = folder.join("daemons.log");
    let into = || fs::File::options().append(true).create(true).open(&said).unwrap();
    command.env("SLURM_CONF", folder.join("slurm.conf")).current_dir(folder);
    command.stdin(Stdio::null()).stdout(into()).stderr(into());
    let command = lab.enter(host, command).unwrap_or_else(|fault| panic!("{fault}"));
    command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// Calls `look` until it finds something, for at most `limit`.
pub fn within<T>(limit: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + limit;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "{what} is not there after {limit:?}");
        sleep(Duration::from_millis(100));
    }
}
