//! What a manual page says beyond the definitions of its command: examples, files, variables, and the document to read on.

/// A file or a variable, its purpose, and the commands whose pages list it.
pub struct Entry {
    pub name: &'static str,
    pub what: &'static str,
    pub commands: &'static [&'static str],
}

const fn entry(name: &'static str, what: &'static str, commands: &'static [&'static str]) -> Entry {
    Entry { name, what, commands }
}

/// Examples for commands whose help has none.
pub const EXAMPLES: &[(&str, &[&str])] = &[
    ("study", &["plimsoll study", "plimsoll study --show"]),
    ("campaign", &["plimsoll campaign plan clocks.toml", "plimsoll campaign run clocks.toml"]),
    ("calibrate", &["plimsoll calibrate", "plimsoll calibrate --show"]),
    ("bench", &["plimsoll bench sweep --stack tcp,engine-udp", "plimsoll bench mpi --targets"]),
    ("serve", &["plimsoll serve --listen 192.0.2.7", "plimsoll serve --listen 192.0.2.7 --key word --allow cores"]),
    ("profile", &["plimsoll profile -- mpirun -n 4 ./prog", "plimsoll profile --trace -o run -- mpirun -n 4 ./prog"]),
    ("top", &["plimsoll top", "plimsoll top run --once"]),
    ("report", &["plimsoll report run", "plimsoll report run --export perfetto -o run.json"]),
    ("mpirun", &["plimsoll mpirun -n 4 -- ./prog", "plimsoll mpirun -n 4 --placement auto -- ./prog"]),
    ("engine", &["plimsoll engine --core 3 --detach"]),
    ("steer", &["plimsoll steer", "plimsoll steer eth1 --receive 0 -- mpirun -n 4 ./prog"]),
    ("clock", &["plimsoll clock", "plimsoll clock 1.9GHz --cores 2-3 -- ./prog"]),
    ("daemon", &["plimsoll daemon --dry-run", "plimsoll daemon status"]),
    ("ledger", &["plimsoll ledger", "plimsoll ledger --json"]),
    ("fleet", &["plimsoll fleet add /var/spool/plimsoll", "plimsoll fleet --example --program molecules"]),
    ("claims", &["plimsoll claims", "plimsoll claims open"]),
    ("plan", &["plimsoll plan APP.toml --explain"]),
    ("run", &["plimsoll run APP.toml", "plimsoll run APP.toml --at left=xdp:eth0:native --set left.LIMIT=64"]),
    ("ps", &["plimsoll ps", "plimsoll ps --calls example.filter --for 10"]),
    ("stop", &["plimsoll stop", "plimsoll stop left"]),
    ("set", &["plimsoll set left LIMIT=128"]),
    ("migrate", &["plimsoll migrate example.sums core:3"]),
    ("upgrade", &["plimsoll upgrade example.sums --depot depot"]),
    ("offcode", &["plimsoll offcode new packet-counter --bodies native,wasm,bpf", "plimsoll offcode test"]),
    ("odf", &["plimsoll odf check odf.xml", "plimsoll odf schema"]),
    ("agent", &["plimsoll agent keys --host dpu-1", "plimsoll agent --listen 192.0.2.7 --cores 3,4"]),
    ("traffic", &["plimsoll traffic --site xdp --gap 100us", "plimsoll traffic --paper"]),
    ("doctor", &["plimsoll doctor"]),
    ("machine", &["plimsoll machine", "plimsoll machine capability"]),
    ("lab", &["plimsoll lab up", "plimsoll lab exec a -- ip address", "plimsoll lab down"]),
];

/// Commands that use the costs of messages on this machine.
const COSTED: &[&str] = &["calibrate", "report", "whatif", "map", "mpirun", "plan", "run", "tune"];
/// Commands that store or show predictions.
const PREDICTING: &[&str] = &["ledger", "whatif", "map", "try", "tune", "mpirun", "run"];
/// Commands that know carriers besides the engine.
const CARRYING: &[&str] = &["mpirun", "bench", "try", "tune"];
/// Commands of offcodes that show or read certificates.
const KEYED: &[&str] = &["agent", "plan", "run"];
/// Commands that use the nodes of a batch system's job.
const ALLOCATED: &[&str] = &["mpirun", "bench", "machine"];

pub const FILES: &[Entry] = &[
    entry(".plimsoll/study.sqlite", "The measurements of this folder's study", &["study"]),
    entry(".plimsoll/try.sqlite", "The runs of this folder's trials", &["try"]),
    entry(".plimsoll/tune.json", "What was found last in this folder", &["tune"]),
    entry(".plimsoll/tune.sqlite", "The runs of its trial", &["tune"]),
    entry(".plimsoll/tune-profile", "The profile of the program", &["tune"]),
    entry(".plimsoll/NAME.runs.sqlite", "The runs of the campaign in NAME.toml", &["campaign"]),
    entry("plimsoll-profile-N", "The folder of a profile where -o names none", &["profile", "report", "top"]),
    entry("~/.local/state/plimsoll/costs-HOST.json", "What messages cost on a host", COSTED),
    entry("~/.local/state/plimsoll/ledger-HOST.jsonl", "What was predicted on a host, and what came", PREDICTING),
    entry("~/.config/plimsoll/carriers.toml", "Carriers that this user added", CARRYING),
    entry("/etc/plimsoll/carriers.toml", "Carriers that the centre added", CARRYING),
    entry("~/.config/plimsoll", "The authority, the client's certificate, and those of agents", KEYED),
    entry("/var/lib/plimsoll/fleet.db", "The store of a centre's jobs", &["fleet"]),
    entry("/run/plimsoll", "The lock, journal and decisions of root's daemon", &["daemon"]),
    entry("share/plimsoll/studies", "Ready campaigns, below the prefix of the installation", &["campaign"]),
    entry("share/plimsoll/testbeds", "Testbeds to simulate, below the prefix of the installation", &["whatif", "map"]),
    entry("share/plimsoll/sdk", "What offcodes are built with, below the prefix of the installation", &["offcode"]),
    entry("share/plimsoll/applications", "Ready applications, below the prefix of the installation", &["run"]),
];

pub const ENVIRONMENT: &[Entry] = &[
    entry("XDG_STATE_HOME", "The folder that stands for ~/.local/state", COSTED),
    entry("PLIMSOLL_COSTS", "Folders of a centre's costs, separated by colons", COSTED),
    entry("XDG_CONFIG_HOME", "The folder that stands for ~/.config", &["mpirun", "bench", "agent", "plan", "run"]),
    entry("PLIMSOLL_CARRIERS", "A file of carriers, read before the others", CARRYING),
    entry("OMP_NUM_THREADS", "Threads of a rank, which --placement auto leaves cores to", &["mpirun"]),
    entry("SLURM_JOB_ID", "The Slurm job whose nodes are used", ALLOCATED),
    entry("PBS_JOBID", "The PBS job whose nodes are used", ALLOCATED),
    entry("SBATCH_PARTITION", "The partition, where no option names one", &["campaign"]),
    entry("XDG_RUNTIME_DIR", "The session's folder, where the daemon of a user keeps its own", &["daemon"]),
    entry("NO_COLOR", "Where it is set, output has no colours", &["study", "report", "top", "odf"]),
    entry("COLUMNS", "The width of tables", &["study", "report"]),
    entry("CARGO", "The cargo that builds bodies", &["offcode"]),
    entry("CLANG", "The clang that builds bodies for hooks", &["offcode"]),
];

/// The document of each command, below share/doc/plimsoll/docs.
pub const DOCUMENTS: &[(&str, &[&str])] = &[
    ("recipes.md", &["study", "doctor", "calibrate", "machine", "lab", "serve", "bench"]),
    ("tune.md", &["tune"]),
    ("profiling.md", &["profile", "report", "top"]),
    ("centre.md", &["fleet"]),
    ("try.md", &["try"]),
    ("mapping.md", &["map", "steer", "daemon"]),
    ("whatif.md", &["whatif", "ledger"]),
    ("mpirun.md", &["mpirun", "engine"]),
    ("campaigns.md", &["campaign"]),
    ("power.md", &["power", "clock"]),
    ("claims.md", &["claims"]),
    ("applications.md", &["plan", "run", "ps", "stop", "set", "migrate", "upgrade", "odf"]),
    ("first-offcode.md", &["offcode"]),
    ("agent.md", &["agent"]),
    ("performance.md", &["traffic"]),
];

/// The values of a table for a command.
pub fn of<'a>(table: &'a [Entry], command: &str) -> Vec<&'a Entry> {
    table.iter().filter(|entry| entry.commands.contains(&command)).collect()
}

/// The command lines at the end of a help, and its other lines.
pub fn parted(after: &str) -> (Vec<&str>, Vec<&str>) {
    let (mut examples, mut others) = (Vec::new(), Vec::new());
    let mut within = false;
    for line in after.lines() {
        if line.trim_end() == "Examples:" {
            within = true;
        } else if within && line.starts_with("  ") {
            examples.push(line.trim());
        } else {
            within = false;
            if !line.is_empty() || !others.is_empty() {
                others.push(line);
            }
        }
    }
    (examples, others)
}
