use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use launch::profiled::{self, Request};
use machine::{Bytes, Nanoseconds, Result};
use record::blocks::Schedule;

/// Records what an MPI program does, and what the cores do meanwhile. The program need not be changed.
///
/// The command's streams and exit status are its own; a short account goes to standard error at the end. `plimsoll report
/// DIR` shows the profile.
#[derive(clap::Args)]
pub struct Arguments {
    /// Folder to make for the profile; with several hosts it must be in a file system that they share [default:
    /// plimsoll-profile-N]
    #[arg(short = 'o', long = "output", value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Record also the timeline, which has every call, in at most LIMIT bytes a thread
    #[arg(long, value_name = "LIMIT", num_args = 0..=1, require_equals = true, default_missing_value = "1GiB")]
    trace: Option<Bytes>,
    /// Interval of sampling cores and ranks, like 20ms [default: 20ms, or longer where that would take half a percent
    /// of a core]
    #[arg(long, value_name = "TIME", value_parser = interval)]
    interval: Option<Nanoseconds>,
    /// Most bytes that a rank's tables may take
    #[arg(long, value_name = "SIZE")]
    memory: Option<Bytes>,
    /// Record also what this source of power tells, on every host: all, rapl, hwmon, cray, nvidia, slurm, 'command: WORDS',
    /// csv:FILE, as `plimsoll power` has them
    #[arg(long, value_name = "SOURCE", conflicts_with = "no_cores")]
    power: Vec<linux::power::Source>,
    /// Do not sample what the cores do
    #[arg(long)]
    no_cores: bool,
    /// Delay the program on purpose, to learn what its messages' cost is worth: send=TIME before each message, receive=TIME after
    /// each, byte=TIME for each byte, compute=PERCENT of the time between calls; peers=same-host or other-host, core=N, rank=N
    #[arg(long, value_name = "SPEC")]
    perturb: Option<Schedule>,
    /// With peers=: an earlier profile of the job, which says which rank is on which host
    #[arg(long, value_name = "DIR", requires = "perturb")]
    hosts_of: Option<PathBuf>,
    /// The command: a launcher with its program, or a program
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// A time of at least a millisecond, like `20ms` or `1s`.
fn interval(text: &str) -> Result<Nanoseconds> {
    Nanoseconds::within(text, Nanoseconds(1_000_000), Nanoseconds::of_seconds(60))
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let command = machine::here::program()?;
    let code = profiled::run(&Request {
        folder: arguments.folder,
        trace: arguments.trace.map_or(0, |limit| limit.0),
        memory: arguments.memory.map(|bytes| bytes.0),
        interval: arguments.interval,
        power: arguments.power,
        cores: !arguments.no_cores,
        perturbation: arguments.perturb,
        hosts_of: arguments.hosts_of,
        words: arguments.command,
        command,
    })?;
    Ok(ExitCode::from(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_have_a_unit() {
        assert_eq!(interval("20ms").unwrap(), Nanoseconds(20_000_000));
        assert_eq!(interval("0.5s").unwrap(), Nanoseconds(500_000_000));
        for text in ["", "90", "ms", "-1s", "0.1ms", "90s", "1.2.3s", "1 hour"] {
            assert!(interval(text).is_err(), "{text}");
        }
    }
}
