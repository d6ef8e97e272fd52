//! Launcher, options and programs among the words of a command that starts an MPI program.

use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::path::{Path, PathBuf};

use machine::Result;

use crate::family::Family;
use crate::installation::{Installation, no_answer};
use crate::program;

/// A program that starts the ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Launcher {
    Mpi(Installation),
    /// `srun`.
    Slurm,
    /// `plimsoll mpirun`, which passes a profile's variables on by itself.
    Plimsoll,
}

/// One program of the command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    pub path: PathBuf,
    /// Place of its word; after a launcher, the first word that is not the launcher's, such as a wrapper.
    pub at: usize,
    /// Whether every word before it is understood, so that no other word can be the program.
    pub certain: bool,
}

/// One option of a launcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LauncherOption {
    /// Without its dashes.
    pub name: String,
    /// First of its values.
    pub value: Option<String>,
    /// Places of its words.
    pub at: Range<usize>,
}

/// Parts of a command, before it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLine {
    /// The launcher, with the place of its word.
    pub launcher: Option<(usize, Launcher)>,
    /// Several, where `:` separates parts.
    pub programs: Vec<Program>,
    /// The launcher's options in all parts.
    pub settings: Vec<LauncherOption>,
    /// A launcher that does not answer `--version`.
    pub silent: Option<PathBuf>,
}

/// Open MPI's list of variables to pass on, as a variable itself.
const LISTED: &str = "OMPI_MCA_mca_base_env_list";

/// Commands that run another command in the same file system: name, options with a value of their own, and words before
/// that command.
const WRAPPERS: [(&str, &[&str], usize); 16] = [
    ("env", &["-u", "--unset", "-C", "--chdir"], 0),
    ("nice", &["-n", "--adjustment"], 0),
    ("ionice", &["-c", "-n", "--class", "--classdata"], 0),
    ("nohup", &[], 0),
    ("setsid", &[], 0),
    ("stdbuf", &["-i", "-o", "-e"], 0),
    ("time", &["-f", "-o", "--format", "--output"], 0),
    ("timeout", &["-s", "-k", "--signal", "--kill-after"], 1),
    ("numactl", &["-C", "-N", "-m", "-i", "-p", "-w"], 0),
    // A mask, or a list of cores.
    ("taskset", &[], 1),
    ("chrt", &["-T", "-P", "-D", "--sched-runtime", "--sched-period", "--sched-deadline"], 1),
    ("hwloc-bind", &["--membind", "--mempolicy"], 1),
    ("perf", &["-e", "-o", "-r", "-F", "-C", "-c", "--event", "--output", "--repeat", "--freq", "--call-graph"], 0),
    ("strace", &["-e", "-o", "-s", "-p", "-E", "-a", "-b", "-I", "-P", "-S", "-u", "-X"], 0),
    ("ltrace", &["-e", "-o", "-s", "-p", "-a", "-n", "-u", "-l", "-x"], 0),
    ("valgrind", &[], 0),
];

/// Commands that run another command in an image or with other mounts, where the files of this host may be missing.
pub const IMAGES: [&str; 13] = [
    "apptainer",
    "singularity",
    "docker",
    "podman",
    "podman-hpc",
    "enroot",
    "shifter",
    "sarus",
    "ch-run",
    "bwrap",
    "proot",
    "chroot",
    "unshare",
];

/// Options of a launcher by their number of values, without dashes.
struct Options {
    flags: &'static [&'static str],
    one: &'static [&'static str],
    two: &'static [&'static str],
    /// Whether a value may be joined to an option of one letter: `-n4`.
    joined: bool,
}

/// Options of mpirun(1) of 4.1 and prterun(1) of 5.0, with one dash or two.
#[rustfmt::skip]
const OPEN_MPI: Options = Options {
    flags: &[
        "oversubscribe", "nooversubscribe", "allow-run-as-root", "q", "quiet", "v", "verbose", "tag-output",
        "timestamp-output", "report-bindings", "display-map", "display-devel-map", "display-allocation", "nolocal",
        "bynode", "bycore", "byslot", "bind-to-core", "bind-to-none", "bind-to-socket", "use-hwthread-cpus",
        "use-hwthreads-as-cpus", "pernode", "merge-stderr-to-stdout", "d", "debug-devel", "enable-recovery",
        "disable-recovery", "continuous", "get-stack-traces", "report-state-on-timeout", "forward-signals",
    ],
    one: &[
        "n", "np", "c", "N", "npernode", "npersocket", "H", "host", "hostfile", "machinefile", "default-hostfile", "rf",
        "rankfile", "map-by", "bind-to", "rank-by", "x", "wdir", "wd", "path", "prefix", "output-filename", "output",
        "display", "stdin", "timeout", "tune", "am", "app", "cpu-set", "cpu-list", "slot-list", "tmpdir",
        "personality", "runtime-options", "rtos", "dvm", "dvm-uri", "report-pid", "report-uri", "ompi-server",
        "server-wait-time", "xterm", "preload-files", "max-restarts", "launch-agent", "cpus-per-proc", "cpus-per-rank",
    ],
    two: &["mca", "gmca", "omca", "prtemca", "pmixmca", "gpmixmca", "gprtemca"],
    joined: false,
};

#[rustfmt::skip]
const HYDRA: Options = Options {
    flags: &[
        "l", "prepend-rank", "genvall", "genvnone", "envall", "envnone", "v", "verbose", "localonly", "disable-x",
        "enable-x", "print-all-exitcodes", "skip-launch-node", "disable-auto-cleanup", "disable-hostname-propagation",
    ],
    one: &[
        "n", "np", "ppn", "perhost", "grr", "host", "hosts", "hostlist", "f", "hostfile", "machinefile", "genvlist",
        "envlist", "bind-to", "map-by", "membind", "launcher", "launcher-exec", "bootstrap", "bootstrap-exec", "iface",
        "wdir", "rmk", "usize", "configfile", "errfile-pattern", "outfile-pattern", "prepend-pattern", "demux",
        "topolib", "gpus-per-proc", "gpu-subdevs-per-proc", "timeout", "path",
    ],
    two: &["env", "genv"],
    joined: false,
};

#[rustfmt::skip]
const SLURM: Options = Options {
    flags: &[
        "l", "label", "u", "unbuffered", "v", "verbose", "Q", "quiet", "K", "exclusive", "overlap", "exact", "O",
        "overcommit", "s", "oversubscribe", "E", "preserve-env", "H", "hold", "I", "k", "no-kill", "W", "X",
    ],
    one: &[
        "n", "N", "c", "p", "t", "w", "x", "o", "e", "i", "A", "J", "D", "G", "q", "C", "L", "M", "m", "T", "d", "r",
        "B", "ntasks", "nodes", "cpus-per-task", "partition", "time", "nodelist", "exclude", "output", "error",
        "input", "account", "job-name", "chdir", "gpus", "qos", "constraint", "licenses", "clusters", "distribution",
        "dependency", "export", "mpi", "ntasks-per-node", "ntasks-per-core", "ntasks-per-socket", "mem", "mem-per-cpu",
        "cpu-bind", "mem-bind", "reservation", "gres", "hint", "wait", "cpu-freq", "cpus-per-gpu",
    ],
    two: &[],
    joined: true,
};

/// Options of `plimsoll mpirun`.
const PLIMSOLL: Options = Options {
    flags: &["lab", "oversubscribe", "q", "quiet", "prove"],
    one: &["n", "np", "ranks", "placement", "carrier", "network", "profile", "mpi", "report", "mpirun-args", "seats"],
    two: &[],
    joined: false,
};

impl CommandLine {
    /// Reads the words, and the files that they name. Runs a launcher with `--version`, for a limited time, to find its MPI.
    pub fn read(words: &[OsString]) -> CommandLine {
        let first = unwrapped(words);
        let mut line = CommandLine { launcher: None, programs: Vec::new(), settings: Vec::new(), silent: None };
        let Some(word) = words.get(first) else { return line };
        let launcher = match launcher(words, first) {
            Ok(launcher) => launcher,
            Err(silent) => {
                line.silent = Some(silent);
                return line;
            }
        };
        let Some(launcher) = launcher else {
            let program = program::find(word).ok().map(|path| Program { path, at: first, certain: true });
            line.programs.extend(program);
            return line;
        };
        let (options, mut at) = match &launcher {
            Launcher::Mpi(Installation { family: Family::OpenMpi, .. }) => (&OPEN_MPI, first + 1),
            Launcher::Mpi(_) => (&HYDRA, first + 1),
            Launcher::Slurm => (&SLURM, first + 1),
            Launcher::Plimsoll => (&PLIMSOLL, first + 2),
        };
        let has_parts = matches!(launcher, Launcher::Mpi(_));
        for part in words[at..].split(|word| has_parts && word == ":") {
            let program = program_among(part, at, options, &mut line.settings);
            line.programs.extend(program);
            at += part.len() + 1;
        }
        line.launcher = Some((first, launcher));
        line
    }

    /// # Errors
    /// The launcher did not answer, and would not start ranks either.
    pub fn answered(self) -> Result<CommandLine> {
        match &self.silent {
            Some(launcher) => Err(no_answer(launcher)),
            None => Ok(self),
        }
    }

    /// The words, with options that pass `names` of the environment on to ranks on other hosts, where the launcher needs
    /// them. hydra and Slurm pass all variables on.
    pub fn exporting(&self, words: &[OsString], names: &[&str]) -> Vec<OsString> {
        let mut all = words.to_vec();
        let Some((at, Launcher::Mpi(installation))) = &self.launcher else { return all };
        if installation.family != Family::OpenMpi {
            return all;
        }
        // Open MPI refuses a job with both the list and `-x`.
        if std::env::var_os(LISTED).is_some() {
            return all;
        }
        if let Some(listed) = all.iter().position(|word| *word == LISTED["OMPI_MCA_".len()..])
            && let Some(value) = all.get_mut(listed + 1)
        {
            value.push(";");
            value.push(names.join(";"));
            return all;
        }
        let starts = all.iter().enumerate().filter(|(nth, word)| nth == at || nth > at && *word == ":");
        let starts: Vec<usize> = starts.map(|(nth, _)| nth + 1).collect();
        for start in starts.into_iter().rev() {
            let options = names.iter().flat_map(|name| [OsString::from("-x"), OsString::from(name)]);
            all.splice(start..start, options);
        }
        all
    }
}

/// The user's list of variables that Open MPI passes on, with `names` appended; `None` where there is no list.
pub fn listed(names: &[&str]) -> Option<(String, OsString)> {
    let mut list = std::env::var_os(LISTED)?;
    list.push(";");
    list.push(names.join(";"));
    Some((LISTED.to_owned(), list))
}

/// Place of the first word after wrappers and their options.
fn unwrapped(words: &[OsString]) -> usize {
    let mut at = 0;
    while let Some(word) = words.get(at)
        && let Some((name, with_value, before)) = WRAPPERS.iter().find(|(name, ..)| base(word) == *name)
    {
        // `perf stat`, `perf record`.
        at += if *name == "perf" { 2 } else { 1 };
        while let Some(option) = words.get(at).map(|word| word.to_string_lossy()) {
            let is_assignment = *name == "env" && option.contains('=');
            if !option.starts_with('-') && !is_assignment {
                break;
            }
            at += if with_value.contains(&option.as_ref()) { 2 } else { 1 };
        }
        at += before;
        at += usize::from(words.get(at).is_some_and(|word| word == "--"));
    }
    at
}

fn base(word: &OsStr) -> &OsStr {
    Path::new(word).file_name().unwrap_or(word)
}

/// # Errors
/// The launcher does not answer: its file.
fn launcher(words: &[OsString], at: usize) -> Result<Option<Launcher>, PathBuf> {
    let name = base(&words[at]).to_string_lossy();
    if name == "plimsoll" && words.get(at + 1).is_some_and(|word| word == "mpirun") {
        return Ok(Some(Launcher::Plimsoll));
    }
    if name == "srun" {
        return Ok(Some(Launcher::Slurm));
    }
    let stem = name.split('.').next().unwrap_or_default();
    if !matches!(stem, "mpirun" | "mpiexec" | "orterun" | "prterun" | "oshrun") {
        return Ok(None);
    }
    let Ok(path) = program::find(&words[at]) else { return Ok(None) };
    let found = Installation::by_launcher(&path).map_err(|_| path)?;
    Ok(found.map(Launcher::Mpi))
}

/// The program of one part of a command line, which begins at word `first`; options before the program go to `settings`.
fn program_among(
    words: &[OsString],
    first: usize,
    options: &Options,
    settings: &mut Vec<LauncherOption>,
) -> Option<Program> {
    let (mut at, mut certain) = (0, true);
    while let Some(word) = words.get(at) {
        let text = word.to_string_lossy();
        if text == "--" {
            at += 1;
            continue;
        }
        let Some(option) = text.strip_prefix('-') else {
            let started = words.get(at + unwrapped(&words[at..]))?;
            match program::find(started) {
                Ok(path) => return Some(Program { path, at: first + at, certain }),
                // The value of an unknown option.
                Err(_) if !certain => {
                    at += 1;
                    continue;
                }
                Err(_) => return None,
            }
        };
        let one_dash = !option.starts_with('-');
        let option = option.strip_prefix('-').unwrap_or(option);
        let joined = options.joined && one_dash && option.get(1..).is_some_and(|value| !value.is_empty());
        let (name, value, values) = if joined && options.one.contains(&&option[..1]) {
            (&option[..1], Some(option[1..].to_owned()), 0)
        } else if let Some((name, value)) = option.split_once('=') {
            (name, Some(value.to_owned()), 0)
        } else if options.two.contains(&option) {
            (option, None, 2)
        } else if options.one.contains(&option) {
            (option, None, 1)
        } else {
            // The word after an unknown option may be its value.
            certain &= options.flags.contains(&option);
            (option, None, 0)
        };
        let following = || words[at + 1..].first().map(|value| value.to_string_lossy().into_owned());
        let end = (at + 1 + values).min(words.len());
        settings.push(LauncherOption {
            name: name.to_owned(),
            value: value.or_else(|| following().filter(|_| values > 0)),
            at: first + at..first + end,
        });
        at = end;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    fn open_mpi() -> Launcher {
        Launcher::Mpi(Installation {
            family: Family::OpenMpi,
            version: "4.1".into(),
            launcher: PathBuf::from("mpirun"),
            device: None,
            libraries: None,
        })
    }

    #[test]
    fn the_program_is_found_behind_the_launchers_options() {
        let found = |text: &str, options| {
            let program = program_among(&words(text), 0, options, &mut Vec::new())?;
            Some((program.path.file_name()?.to_string_lossy().into_owned(), program.certain))
        };
        let sh = |certain| Some(("sh".to_owned(), certain));
        assert_eq!(found("-n 4 --mca pml ob1 -x sh --map-by node sh -c true", &OPEN_MPI), sh(true));
        assert_eq!(found("-np 4 --oversubscribe sh cat", &OPEN_MPI), sh(true));
        assert_eq!(found("--strange no-such-value -n 2 sh", &OPEN_MPI), sh(false));
        assert_eq!(found("-genv A b -ppn 2 sh", &HYDRA), sh(true));
        assert_eq!(found("--ntasks=4 -N 2 sh", &SLURM), sh(true));
        assert_eq!(found("--lab=yes -n 2 -- sh", &PLIMSOLL), sh(true));
        assert_eq!(found("-n 4 no-such-program-at-all", &OPEN_MPI), None);
        assert_eq!(found("-n", &OPEN_MPI), None);
        assert_eq!(found("-n 2 taskset -c 0 sh cat", &OPEN_MPI), sh(true));
        let program = program_among(&words("-n 2 nice sh"), 1, &OPEN_MPI, &mut Vec::new()).unwrap();
        assert_eq!(program.at, 3, "where the launcher's own words end");
        assert_eq!(found("-n 2 timeout 60", &OPEN_MPI), None);
    }

    #[test]
    fn what_runs_another_command_is_looked_through() {
        for (text, place) in [
            ("sh -c true", 0),
            ("env -u X A=b nice -n 5 sh", 7),
            ("/usr/bin/timeout -k 5 60 sh", 4),
            ("timeout 60", 2),
            ("", 0),
            ("taskset -c 0-3 perf stat -e cycles -- sh", 8),
            ("hwloc-bind core:0 -- sh", 3),
        ] {
            assert_eq!(unwrapped(&words(text)), place, "{text}");
        }
        let line = CommandLine::read(&words("env A=b sh -c true"));
        assert_eq!((line.launcher, line.programs.len(), line.programs[0].certain), (None, 1, true));
        assert!(CommandLine::read(&words("timeout 60")).programs.is_empty());
        let line = CommandLine::read(&words("plimsoll mpirun -n 2 -- sh"));
        assert_eq!((line.launcher, line.programs.len()), (Some((0, Launcher::Plimsoll)), 1));
    }

    #[test]
    fn open_mpi_is_told_what_to_pass_on_in_the_way_that_the_user_chose() {
        let exporting = |text: &str, at, launcher| {
            let line = CommandLine {
                launcher: Some((at, launcher)),
                programs: Vec::new(),
                settings: Vec::new(),
                silent: None,
            };
            let all = line.exporting(&words(text), &["A", "B"]);
            all.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
        };
        let with = |text, at| exporting(text, at, open_mpi());
        assert_eq!(with("mpirun -n 2 ./a", 0), "mpirun -x A -x B -n 2 ./a");
        assert_eq!(with("nice mpirun ./a : ./b", 1), "nice mpirun -x A -x B ./a : -x A -x B ./b");
        assert_eq!(with("mpirun --mca mca_base_env_list X;Y ./a", 0), "mpirun --mca mca_base_env_list X;Y;A;B ./a");
        assert_eq!(exporting("srun ./a", 0, Launcher::Slurm), "srun ./a");
    }
}
