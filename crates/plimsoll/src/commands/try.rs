use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use experiment::axes::{Axes, Value};
use experiment::contrast::Says;
use experiment::ledger::{Ledger, Outcome};
use experiment::trial::check::Check;
use experiment::trial::conduct::{End, Observer, conduct};
use experiment::trial::design::{Arm, Design, letter};
use experiment::trial::judgement::{Best, Judgement, judge};
use experiment::trial::merit::Merit;
use experiment::trial::store::Store;
use experiment::trial::{page, terminal};
use indicatif::ProgressBar;
use launch::allocation::{self, Allocation};
use launch::carrier::{Network, Semantics, placement};
use launch::carriers;
use launch::trial::{Starter, carriers_quantity, input, is_piped, programs, subject};
use linux::output;
use machine::{Dilation, Fault, Nanoseconds, Result, Source};

/// Runs commands in turn until it can be told which does better, by how much, and whether that is more than noise.
///
/// Each round runs every command once, without a shell; the first is what is used today. Commands stand after `--` each, or
/// one command is run under several settings. Where standard input is a file, each run reads it from its start. A trial that
/// was interrupted goes on when the same command is given again.
///
/// Exit status: 0 answered, 3 cannot tell in the time given, 4 results differ, 5 slower (--fail-if slower), 1 a fault.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, override_usage = USAGE)]
pub struct Arguments {
    /// Vary a setting: placement, network, carrier, semantics or dilate (with -n), or a variable of the environment; env.NAME names any
    #[arg(long, value_name = "NAME=A,B,..")]
    vary: Vec<String>,
    /// Ranks of an MPI program, which is then started by `plimsoll mpirun`
    #[arg(short = 'n', long = "ranks", visible_alias = "np", value_parser = clap::value_parser!(u32).range(1..))]
    ranks: Option<u32>,
    /// With -n: more options of `plimsoll mpirun`, like '--lab' or '--profile DIR'
    #[arg(long, value_name = "OPTIONS", requires = "ranks", allow_hyphen_values = true, value_parser = super::mpirun::options)]
    mpirun: Option<super::mpirun::Options>,
    /// Go by the last number that the group of this pattern finds in what is printed, or by the time between MPI_Init and
    /// MPI_Finalize: mpi [default: the time of a run]
    #[arg(long, value_name = "REGEX|mpi")]
    metric: Option<String>,
    /// More of the metric is better
    #[arg(long)]
    more: bool,
    /// Hold results against the first command's: stdout, status (the exit status, which then need not be 0), a FILE that each
    /// run writes, or 'REGEX' with a group, numbers within 'REGEX~SHARE'
    #[arg(long, value_name = "WHAT")]
    check: Option<String>,
    /// With -n: first run each arm that has a carrier once more, with the MPI saying what it uses; one that uses something else
    /// ends the trial
    #[arg(long, requires = "ranks")]
    prove: bool,
    /// Most time for all runs: 90s, 10m, 2h [default: 10m, less where a batch job ends before]
    #[arg(long, value_name = "TIME", value_parser = chart::clock::length)]
    budget: Option<Duration>,
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
    /// Write the page to this file
    #[arg(long, value_name = "FILE", default_value = "try.html")]
    report: PathBuf,
    /// The commands
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    commands: Vec<String>,
}

const USAGE: &str =
    "plimsoll try [OPTIONS] -- COMMAND.. -- COMMAND..\n       plimsoll try [OPTIONS] --vary NAME=A,B,.. -- COMMAND..";

const EXAMPLES: &str = "Examples:
  plimsoll try -- ./old in.dat -- ./new in.dat
  plimsoll try -n 4 --vary placement=app,core:3 -- lmp -in in.melt
  plimsoll try -n 4 --mpirun=--lab --vary network=udp,afxdp:lab0 -- lmp -in in.melt
  plimsoll try -n 4 --vary carrier=vader,ucx,plimsoll --metric 'Loop time of ([0-9.]+)' -- lmp -in in.melt
  plimsoll try -n 2 --vary dilate=1,2,4 -- ./program
  plimsoll try -n 2 --vary semantics=matched,queue-pair,queue-pair-shared -- lmp -in in.melt
  plimsoll try -n 2 --vary network=afxdp:lab0,udp --mpirun=--lab --metric mpi -- ./program
  plimsoll try --vary 'OMPI_MCA_btl=self,vader|self,tcp' -- mpirun -n 2 ./program
  plimsoll try --vary OMP_PROC_BIND=close,spread --check 'Energy: (\\S+)~1e-9' -- srun -n 64 ./md";

/// Where no other time is given.
const BUDGET: Duration = Duration::from_secs(600);

/// Within this a pipe has something, where something is written to it.
const SOON: Duration = Duration::from_millis(50);

const CANNOT_TELL: u8 = 3;
const WRONG: u8 = 4;
const SLOWER: u8 = 5;

fn percent(text: &str) -> Result<f64> {
    let number = text.trim_end_matches('%').trim().parse::<f64>().ok().filter(|number| (0.0..=100.0).contains(number));
    number.ok_or_else(|| Fault::new(format!("margin '{text}'"), "it is no share in percent", "write it like 2 or 0.5"))
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let allocation = allocation::around();
    let left = allocation.as_ref().and_then(Allocation::usable);
    let budget = match (arguments.budget, left) {
        (Some(asked), _) => asked,
        (None, Some(left)) => left.min(BUDGET),
        (None, None) => BUDGET,
    };
    if let Some(allocation) = &allocation {
        eprintln!("In {} on {}.", allocation.name, allocation.nodes);
    }
    let input = input()?;
    if let Some((file, _)) = &input {
        eprintln!("Each run reads {file} from its start.");
    }
    let unread = |within| {
        let piped = is_piped(within);
        if piped {
            eprintln!("note: no run reads what comes by the pipe; keep it in a file: plimsoll try .. < FILE");
        }
        piped
    };
    let told = unread(SOON);
    let reads = input.is_some();
    let nodes = allocation.map_or(String::new(), |allocation| allocation.nodes);
    let design = design(&arguments, nodes, input)?;
    let mut store = Store::open(&arguments.store)?;
    let host = Source::live().word("/proc/sys/kernel/random/boot_id").unwrap_or_else(|| "unknown boot".into());
    let unfinished = if arguments.fresh { None } else { store.unfinished(&design, &host)? };
    let trial = match unfinished {
        Some(trial) => {
            eprintln!("Going on with the trial in {} (--fresh begins anew).", arguments.store.display());
            trial
        }
        None => store.begin(design, now().0, &host, env!("CARGO_PKG_VERSION"), now())?,
    };
    linux::signal::watch()?;
    if arguments.prove {
        trial.design.arms.iter().enumerate().try_for_each(|(nth, arm)| prove(nth, arm))?;
    }
    let mut display = Display::new(&trial.design);
    let budget = Nanoseconds(budget.as_nanos() as u64);
    let mut starter = Starter::new()?;
    if trial.design.merit.mpi {
        starter = starter.profiled(own()?);
    }
    if reads {
        starter = starter.reading();
    }
    let conducted = conduct(&mut store, &trial, &mut starter, &mut display, budget, &linux::signal::interrupted);
    display.close();
    if !told {
        unread(Duration::ZERO);
    }
    let (runs, end) = conducted?;
    if end == End::Interrupted {
        eprintln!("Interrupted; finished runs are in {}. Run the same command to go on.", arguments.store.display());
        return Ok(super::exit_code());
    }
    if end == End::Settled {
        store.finish(&trial, now())?;
    }
    let judgement = judge(&trial.design, &runs);
    let written = std::fs::write(&arguments.report, page::render(&trial, &runs, &judgement, end));
    written.map_err(|e| {
        Fault::unwritable(format!("page {}", arguments.report.display()), e, "choose another file with --report FILE")
    })?;
    let path = std::path::absolute(&arguments.report).unwrap_or_else(|_| arguments.report.clone());
    let text = terminal::render(&trial.design, &runs, &judgement, end);
    output::print(&format!("{text}Report: {}\n", machine::shell::path(&path)))?;
    for line in super::kept(settle(&trial.design, &judgement)) {
        output::print(&format!("{line}\n"))?;
    }
    let slower = judgement.arms.iter().any(|arm| arm.says == Says::Worse);
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

/// Holds what came against what `plimsoll whatif` predicted: what came of each prediction, a sentence.
///
/// A replay predicts the time of a command; delays (`--predict`) predict the time that the program prints, or that it has between
/// MPI_Init and MPI_Finalize, over another network or carrier.
fn settle(design: &Design, judgement: &Judgement) -> Result<Vec<String>> {
    let of_times = design.merit.pattern.is_none() && !design.merit.mpi;
    if !of_times && design.merit.more_is_better {
        return Ok(Vec::new());
    }
    let carrier = |arm: &Arm| {
        let value = ["network ", "carrier "].iter().find_map(|axis| arm.name.strip_prefix(axis))?;
        value.split([':', ',']).next().map(str::to_owned)
    };
    let first = &design.arms[0];
    let mut ledger = Ledger::open()?;
    let mut said = Vec::new();
    for (arm, standing) in design.arms.iter().zip(&judgement.arms).skip(1) {
        let Some(found) = standing.over_first else { continue };
        let value = (-found.middle).exp();
        let interval = Some(((-found.high).exp(), (-found.low).exp()));
        let outcome = Outcome { id: 0, came: now(), value, interval, source: "plimsoll try".to_owned() };
        let (of, quantity) = if of_times {
            (super::whatif::subject(&first.line), super::whatif::over(&arm.line, &first.line))
        } else {
            let (Some(from), Some(to)) = (carrier(first), carrier(arm)) else { continue };
            (subject(&arm.command)?, carriers_quantity(&from, &to))
        };
        said.extend(ledger.settle(&of, &quantity, &outcome)?.iter().map(|prediction| prediction.against(value)));
    }
    Ok(said)
}

/// Runs an arm that has a carrier of the MPI with `plimsoll mpirun --prove`, and says what it says.
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

fn now() -> Nanoseconds {
    Nanoseconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64)
}

fn design(arguments: &Arguments, nodes: String, input: Option<(String, String)>) -> Result<Design> {
    let mut commands: Vec<Vec<String>> = vec![Vec::new()];
    for word in &arguments.commands {
        match *word == arguments.sep {
            true => commands.push(Vec::new()),
            false => commands.last_mut().expect("there is one").push(word.clone()),
        }
    }
    commands.retain(|command| !command.is_empty());
    if commands.len() > 1 && !arguments.vary.is_empty() {
        let next = "give one command with --vary, or write each variant out as a command of its own";
        return Err(Fault::new("--vary", "there are several commands already", next));
    }
    let varied = arguments.vary.iter().map(|text| Varied::read(text, arguments.ranks)).collect::<Result<Vec<_>>>()?;
    let folder = std::env::current_dir().map_err(|e| Fault::because("this folder", e, "go to one that is there"))?;
    let mut arms = Vec::new();
    for command in &commands {
        let mut settings: Vec<Vec<(&Varied, &str)>> = vec![Vec::new()];
        for varied in &varied {
            let with = |others: &Vec<(_, _)>, value| [others.clone(), vec![(varied, value)]].concat();
            settings = settings.iter().flat_map(|of| varied.values.iter().map(|v| with(of, v.as_str()))).collect();
        }
        for settings in settings {
            arms.push(arm(command, &settings, arguments)?);
        }
    }
    let mut of_arms = Vec::from_iter(input);
    for arm in &arms {
        of_arms.extend(programs(&arm.command)?);
    }
    of_arms.sort();
    of_arms.dedup();
    let design = Design {
        arms,
        merit: Merit::new(arguments.metric.as_deref(), arguments.more)?,
        check: arguments.check.as_deref().map(Check::parse).transpose()?,
        margin: arguments.margin / 100.0,
        warmup: arguments.warmup,
        folder: folder.display().to_string(),
        programs: of_arms,
        nodes,
    };
    design.checked()
}

/// A setting and the values that it is tried with.
struct Varied {
    axis: Axis,
    name: String,
    values: Vec<String>,
}

#[derive(PartialEq)]
enum Axis {
    Placement,
    Network,
    Carrier,
    Semantics,
    Dilation,
    Variable,
}

impl Varied {
    fn read(text: &str, ranks: Option<u32>) -> Result<Varied> {
        let refused = |cause: &str, next: &str| Fault::new(format!("--vary {text}"), cause, next);
        let Some((name, values)) = text.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            return Err(refused("it names no values", "write it like --vary placement=app,core:3"));
        };
        let between = if values.contains('|') { '|' } else { ',' };
        let values: Vec<String> = values.split(between).map(str::to_owned).collect();
        let axis = match name {
            "placement" => Axis::Placement,
            "network" => Axis::Network,
            "carrier" => Axis::Carrier,
            "semantics" => Axis::Semantics,
            "dilate" => Axis::Dilation,
            name if name.starts_with("env.") || !name.starts_with(char::is_lowercase) => Axis::Variable,
            _ => {
                let next = "choose placement, network, carrier, semantics or dilate; a variable of the environment that begins with a small letter is env.NAME";
                return Err(refused("there is no such setting", next));
            }
        };
        for value in &values {
            match axis {
                Axis::Placement if value != "auto" => _ = placement(value)?,
                Axis::Network => _ = value.parse::<Network>()?,
                Axis::Carrier if value != "plimsoll" => _ = carriers::named(value)?,
                Axis::Semantics => _ = value.parse::<Semantics>()?,
                Axis::Dilation => _ = value.parse::<Dilation>()?,
                _ => {}
            }
        }
        if axis != Axis::Variable && ranks.is_none() {
            let next = "name the ranks with -n and leave mpirun out of the command: plimsoll starts it";
            return Err(refused("plimsoll does not start the ranks", next));
        }
        Ok(Varied { axis, name: name.trim_start_matches("env.").to_owned(), values })
    }
}

fn arm(command: &[String], settings: &[(&Varied, &str)], arguments: &Arguments) -> Result<Arm> {
    let ranks = arguments.ranks;
    let mut axes = Axes::default().with("command", Value::List(command.to_vec()));
    let mut variables = Vec::new();
    let mut options = arguments.mpirun.as_ref().map_or(Vec::new(), |options| options.0.clone());
    if !options.is_empty() {
        axes = axes.with("mpirun", Value::List(options.clone()));
    }
    let mut proven = ranks.is_some();
    for (varied, value) in settings {
        let text = Value::Text((*value).to_owned());
        match varied.axis {
            Axis::Placement | Axis::Network | Axis::Semantics | Axis::Dilation => {
                options.extend([format!("--{}", varied.name), (*value).to_owned()])
            }
            Axis::Carrier if *value == "plimsoll" => {}
            Axis::Carrier => {
                proven = false;
                options.extend(["--carrier".to_owned(), (*value).to_owned()]);
            }
            Axis::Variable => variables.push((varied.name.clone(), (*value).to_owned())),
        }
        axes = match varied.axis {
            Axis::Variable => axes.with(&format!("env.{}", varied.name), text),
            _ => axes.with(&varied.name, text),
        };
    }
    let mut words = Vec::new();
    let mut shown =
        variables.iter().map(|(name, value)| Ok(format!("{name}={}", quoted(value)?))).collect::<Result<Vec<_>>>()?;
    if let Some(ranks) = ranks {
        axes = axes.with("ranks", Value::Number(ranks.into()));
        let own = own()?;
        let start = ["mpirun".to_owned(), "--quiet".to_owned(), "-n".to_owned(), ranks.to_string()];
        words.push(own.display().to_string());
        words.extend(start.iter().chain(&options).cloned());
        words.push("--".to_owned());
        shown.push("plimsoll mpirun".to_owned());
        shown.extend(["-n".to_owned(), ranks.to_string()]);
        shown.extend(options.iter().map(|option| quoted(option)).collect::<Result<Vec<_>>>()?);
        shown.push("--".to_owned());
    }
    words.extend(command.iter().cloned());
    for word in command {
        shown.push(quoted(word)?);
    }
    let line = shown.join(" ");
    let named: Vec<String> = settings.iter().map(|(varied, value)| format!("{} {value}", varied.name)).collect();
    let name = if named.is_empty() { line.clone() } else { named.join(", ") };
    Ok(Arm { name, axes, command: words, variables, proven, line })
}

fn own() -> Result<PathBuf> {
    std::env::current_exe()
        .map_err(|e| Fault::because("this program's own file", e, "run it from where it is installed"))
}

fn quoted(word: &str) -> Result<String> {
    shlex::try_quote(word)
        .map(|word| word.into_owned())
        .map_err(|error| Fault::because(format!("word '{}'", word.escape_debug()), error, "leave the character 0 out"))
}

/// How far a trial is, on standard error: a line on a terminal, a line now and then elsewhere.
struct Display {
    bar: Option<ProgressBar>,
    names: Vec<String>,
}

impl Display {
    fn new(design: &Design) -> Display {
        let bar = std::io::stderr().is_terminal().then(ProgressBar::new_spinner);
        let names = design.arms.iter().enumerate().map(|(nth, arm)| format!("{}, {}", letter(nth), arm.name)).collect();
        Display { bar, names }
    }

    fn close(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Observer for Display {
    fn run_starts(&mut self, arm: usize, round: Option<u32>, left: Nanoseconds) {
        let round = round.map_or("warming up".to_owned(), |round| format!("round {}", round + 1));
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{round}, at most {} s left: {}", left.0 / 1_000_000_000, self.names[arm]));
            bar.tick();
        }
    }

    fn note(&mut self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("note: {text}")),
            None => eprintln!("note: {text}"),
        }
    }
}
