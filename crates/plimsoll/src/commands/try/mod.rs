//! `plimsoll try`: commands in turn until it can be told which does better.

pub(super) mod arms;
mod earlier;
pub(super) mod judging;
mod outputs;
pub(super) mod settled;
mod varied;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use experiment::designs::Beginning;
use experiment::trial::Runs;
use experiment::trial::conditions::Ignored;
use experiment::trial::conduct::conduct;
use experiment::trial::design::{Arm, Design, letter};
use experiment::trial::judgement::{Best, judge};
use experiment::trial::store::{Store, Trial};
use launch::allocation::{self, Allocation};
use launch::trial::{Input, Starter, is_piped};
use machine::{Fault, Nanoseconds, Result, here};
use rounds::contrast::Verdict;
use rounds::sitting::End;

use crate::progress::Display;
use judging::Judging;
use outputs::Outputs;

/// Runs commands in turn until it can be told which does better, by how much, and whether that is more than noise.
///
/// Each round runs every command once, without a shell; the first is what is used today. Commands stand after `--` each, or
/// one command is run with several values. A trial that was interrupted goes on when the same command is given again.
///
/// Exit status: 0 answered, 3 cannot tell in the time given, 4 results differ, 5 slower (--fail-if slower), 1 a fault.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, override_usage = USAGE)]
pub struct Arguments {
    /// Vary a value: {NAME} in the words of the command; placement, network, carrier, semantics or dilate (with -n); else a
    /// variable of the environment, env.NAME any
    #[arg(long, value_name = "NAME=A,B,..")]
    vary: Vec<String>,
    /// The same as --vary NAME=A,B,..
    #[arg(short = 'L', long = "parameter-list", num_args = 2, value_names = ["NAME", "A,B,.."])]
    lists: Vec<String>,
    /// Ranks of an MPI program, which is then started by `plimsoll mpirun`
    #[arg(short = 'n', long = "ranks", visible_alias = "np", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    ranks: Option<u32>,
    /// With -n: more options of `plimsoll mpirun`, like '--lab' or '--profile DIR'
    #[arg(long, value_name = "OPTIONS", requires = "ranks", allow_hyphen_values = true, value_parser = super::mpirun::options)]
    mpirun: Option<super::mpirun::Options>,
    #[command(flatten)]
    judging: Judging,
    /// Count runs that end with another exit status than 0: any up to 125, or these
    #[arg(long, value_name = "1,2,..", num_args = 0..=1, require_equals = true, default_missing_value = "all")]
    ignore_failure: Option<Ignored>,
    /// With -n: first run each arm that has a carrier once more, with the MPI saying what it uses; one that uses something else
    /// ends the trial
    #[arg(long, requires = "ranks")]
    prove: bool,
    /// Most time for all runs, with what is run beside them [default: 10m, less where a batch job ends before]
    #[arg(long, value_name = "TIME")]
    budget: Option<Nanoseconds>,
    /// Differences within this do not count, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 2.0, value_parser = percent)]
    margin: f64,
    /// Runs of each command before those that count
    #[arg(long, value_name = "RUNS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=100))]
    warmup: u32,
    /// Exit with 5 where a command is slower than the first
    #[arg(long, value_name = "WHAT", value_parser = ["slower"])]
    fail_if: Option<String>,
    /// The word between commands
    #[arg(long, value_name = "WORD", default_value = "--")]
    sep: String,
    /// Begin a new trial, even where an unfinished one could go on
    #[arg(long)]
    fresh: bool,
    /// Keep the runs in this file
    #[arg(long, value_name = "FILE", default_value = ".plimsoll/try.sqlite")]
    store: PathBuf,
    /// List the trials that the store holds
    #[arg(long, conflicts_with_all = ["show", "commands"])]
    list: bool,
    /// Print a trial of the store again
    #[arg(long, conflicts_with = "commands")]
    show: bool,
    /// The number of the trial to show [default: the latest]
    #[arg(long, value_name = "N", requires = "show")]
    trial: Option<i64>,
    /// Run this before the first run of each arm; the time of such a command never counts, and one that fails ends the trial
    #[arg(long, value_name = "CMD", help_heading = BESIDE)]
    setup: Option<String>,
    /// Run this before each run
    #[arg(long, value_name = "CMD", help_heading = BESIDE)]
    prepare: Option<String>,
    /// Run this after each run
    #[arg(long, value_name = "CMD", help_heading = BESIDE)]
    conclude: Option<String>,
    /// Run this for each arm after the last run
    #[arg(long, value_name = "CMD", help_heading = BESIDE)]
    cleanup: Option<String>,
    /// The file that each run reads as its standard input [default: this command's, where that is a file]
    #[arg(long, value_name = "FILE", help_heading = BESIDE)]
    input: Option<PathBuf>,
    /// Give the words of each command, joined, to a shell: sh -c, or SH -c
    #[arg(long, value_name = "SH", num_args = 0..=1, require_equals = true, default_missing_value = "sh", conflicts_with = "ranks", help_heading = BESIDE)]
    shell: Option<String>,
    /// The commands
    #[arg(required_unless_present_any = ["list", "show"], trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    commands: Vec<String>,
    #[command(flatten)]
    outputs: Outputs,
}

const BESIDE: &str = "Around the runs";

const USAGE: &str = "plimsoll try [OPTIONS] -- COMMAND.. -- COMMAND..
       plimsoll try [OPTIONS] --vary NAME=A,B,.. -- COMMAND..
       plimsoll try --list | --show [--trial N]";

const EXAMPLES: &str = "Examples:
  plimsoll try -- ./old in.dat -- ./new in.dat
  plimsoll try --vary threads=1,2,4 --prepare ./clean -- ./program -t {threads}
  plimsoll try -n 4 --vary placement=app,core:3 -- lmp -in in.melt
  plimsoll try -n 4 --mpirun=--lab --vary network=udp,afxdp:lab0 -- lmp -in in.melt
  plimsoll try -n 4 --vary carrier=vader,ucx,plimsoll --metric 'Loop time of ([0-9.]+)' -- lmp -in in.melt
  plimsoll try -n 2 --vary semantics=matched,queue-pair,queue-pair-shared -- lmp -in in.melt
  plimsoll try -n 2 --vary network=afxdp:lab0,udp --mpirun=--lab --metric mpi -- ./program
  plimsoll try --vary 'OMPI_MCA_btl=self,vader|self,tcp' -- mpirun -n 2 ./program
  plimsoll try --vary OMP_PROC_BIND=close,spread --check 'Energy: (\\S+)~1e-9' -- srun -n 64 ./md";

/// The default time for runs.
const BUDGET: Nanoseconds = Nanoseconds(600_000_000_000);

/// The default file of the page.
const PAGE: &str = "try.html";

/// Time within which input appears on a pipe with a writer.
const SOON: Duration = Duration::from_millis(50);

pub(super) const CANNOT_TELL: u8 = 3;
const WRONG: u8 = 4;
const SLOWER: u8 = 5;

fn percent(text: &str) -> Result<f64> {
    let number = text.trim_end_matches('%').trim().parse::<f64>().ok().filter(|number| (0.0..=100.0).contains(number));
    number.ok_or_else(|| Fault::new(format!("margin '{text}'"), "it is no share in percent", "write it like 2 or 0.5"))
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let outputs = &arguments.outputs;
    outputs.checked()?;
    if arguments.list {
        return earlier::list(&arguments.store);
    }
    if arguments.show {
        return earlier::show(&arguments.store, arguments.trial, outputs);
    }
    let (budget, nodes) = budget(arguments.budget);
    let input = input(arguments.input.as_deref())?;
    let unread = |within| {
        let piped = is_piped(within);
        if piped {
            eprintln!("note: no run reads what comes by the pipe; keep it in a file: plimsoll try --input FILE ..");
        }
        piped
    };
    let told = arguments.input.is_some() || unread(SOON);
    let design = arms::design(&arguments, nodes, input.as_ref())?;
    linux::signal::watch()?;
    if arguments.prove {
        design.arms.iter().enumerate().try_for_each(|(nth, arm)| prove(nth, arm))?;
    }
    let place = Kept { store: &arguments.store, fresh: arguments.fresh };
    let compared = compare(&place, design, input.as_ref(), budget, &mut |_| Ok(()));
    if !told {
        unread(Duration::ZERO);
    }
    let Compared { trial, runs, end } = compared?;
    if end == End::Interrupted {
        return Ok(super::interrupted("finished runs are", &arguments.store));
    }
    let judgement = judge(&trial.design, &runs);
    let page = outputs.html.as_deref().unwrap_or(Path::new(PAGE));
    outputs.tell((&trial, &runs), &judgement, end, Some(page))?;
    for settled in super::kept(settled::settle(&trial.design, &judgement)) {
        outputs.say(&format!("{}\n", settled.words()))?;
    }
    let slower = judgement.arms.iter().any(|arm| arm.says == Verdict::Worse);
    Ok(ExitCode::from(if runs.wrong.iter().any(Option::is_some) {
        WRONG
    } else if judgement.arms[0].left_out.is_some() {
        1
    } else if arguments.fail_if.is_some() && slower {
        SLOWER
    } else if !judgement.is_settled() || matches!(judgement.best, Best::CannotTell(_)) {
        CANNOT_TELL
    } else {
        0
    }))
}

/// The time for runs: `said`, or the default within the time left of a batch job; and the nodes of that job.
pub(super) fn budget(said: Option<Nanoseconds>) -> (Nanoseconds, String) {
    let allocation = allocation::around();
    let left = allocation.as_ref().and_then(Allocation::usable);
    let left = left.map_or(BUDGET, |left| BUDGET.min(Nanoseconds(left.as_nanos() as u64)));
    if let Some(allocation) = &allocation {
        eprintln!("In {} on {}.", allocation.name, allocation.nodes);
    }
    (said.unwrap_or(left), allocation.map_or(String::new(), |allocation| allocation.nodes))
}

/// The standard input of each run: the named file, or the one that is this process's standard input.
pub(super) fn input(named: Option<&Path>) -> Result<Option<Input>> {
    let input = match named {
        Some(file) => Some(Input::named(file)?),
        None => Input::standard()?,
    };
    if let Some(input) = &input {
        eprintln!("Each run reads {} from its start.", input.file.0);
    }
    Ok(input)
}

/// The store of a trial.
pub(super) struct Kept<'a> {
    pub store: &'a Path,
    /// Begin anew, even where an unfinished trial could go on.
    pub fresh: bool,
}

/// A trial with its results so far.
pub(super) struct Compared {
    pub trial: Trial,
    pub runs: Runs,
    pub end: End,
}

/// Runs the arms of `design` in turn until it can be told which does better, `budget` is spent or a signal comes, which must be
/// watched for. `began` is told the number of the trial before its first run.
///
/// # Errors
/// The store fails, or an arm cannot be run.
pub(super) fn compare(
    kept: &Kept,
    design: Design,
    input: Option<&Input>,
    budget: Nanoseconds,
    began: &mut dyn FnMut(i64) -> Result<()>,
) -> Result<Compared> {
    let mut store = Store::open(kept.store)?;
    let host = here::boot().unwrap_or_else(|| "unknown boot".into());
    let unfinished = if kept.fresh { None } else { store.unfinished(&design, &host)? };
    let mut trial = match unfinished {
        Some(trial) => {
            eprintln!("Going on with the trial in {} (--fresh begins anew).", kept.store.display());
            trial
        }
        None => {
            let (now, version) = (here::now(), env!("CARGO_PKG_VERSION"));
            store.begin(&Beginning { design: &design, seed: now.0, host: &host, version, facts: &[], now })?
        }
    };
    began(trial.id)?;
    let mut display = Display::spinning(None);
    let mut starter = Starter::new()?;
    if trial.design.merit.mpi {
        starter = starter.profiled(here::program()?);
    }
    if let Some(input) = input {
        starter = starter.reading(input);
    }
    let conducted = conduct(&mut store, &trial, &mut starter, &mut display, budget, &linux::signal::interrupted);
    display.close();
    let (runs, end) = conducted?;
    if end == End::Finished {
        store.finish(&mut trial, here::now())?;
    }
    Ok(Compared { trial, runs, end })
}

/// Runs an arm that has a carrier of the MPI with `plimsoll mpirun --prove`, and prints the result.
fn prove(nth: usize, arm: &Arm) -> Result<()> {
    let Some(at) = arm.command.iter().take_while(|word| *word != "--").position(|word| word == "--carrier") else {
        return Ok(());
    };
    let (start, rest) = arm.command.split_at(at);
    let mut command = Command::new(&start[0]);
    command.args(&start[1..]).arg("--prove").args(rest).stdin(Stdio::null());
    let output = command.envs(arm.variables.iter().map(|(name, value)| (name, value))).output();
    let subject = || format!("{}, {}", letter(nth), arm.name);
    let output = output.map_err(|e| Fault::because(subject(), e, "run it from where plimsoll is installed"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    if !output.status.success() {
        return Err(Fault::new(subject(), last.trim_start_matches("plimsoll: "), "leave that carrier out"));
    }
    eprintln!("{}: {}", subject(), last.trim_start_matches("plimsoll: "));
    Ok(())
}
