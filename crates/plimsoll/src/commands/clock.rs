use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use launch::exit::exit_code;
use launch::srun_clock::{self, Setter};
use linux::accounting::{ActualClock, clock_under_load, core_clock};
use linux::clock_setting::{ClockSet, Request, Verified, no_cpufreq, not_held, restore_remains};
use linux::output;
use linux::relay::Relay;
use machine::frequency::{Clock, ClockPolicy};
use machine::topology::Topology;
use machine::{Cores, CpuSet, Fault, Hertz, Reading, Result, Source};
use serde::Serialize;

use super::outputs::{self, Json};

/// Sets the clock of cores while a command runs, and verifies it under load; alone, shows the clocks of this host.
///
/// By cpufreq's limits as root, by srun inside a Slurm job. Everything that is changed is restored when the command ends, also
/// after kill -9. Where neither can set a clock, protocol work can be stretched instead: bench dilate, mpirun --dilate.
#[derive(clap::Args)]
pub struct Arguments {
    /// The clock, such as 1.9GHz; without it, clocks are shown.
    clock: Option<Hertz>,
    /// The cores, such as 0 or 2-3,8 [default: all of this host].
    #[arg(long, value_name = "CORES")]
    cores: Option<Cores>,
    /// Set nothing: only say whether cores have that clock under load, then run the command.
    #[arg(long, requires = "clock")]
    verify: bool,
    /// Run the command only where the cores have that clock under load; else end with status 1
    #[arg(long, requires = "clock")]
    held: bool,
    #[command(flatten)]
    json: Json,
    /// Show, or set, the copy of /sys below DIR instead of this host's: no core obeys it.
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// The command, after which everything is as it was; the exit status is the command's.
    #[arg(last = true)]
    command: Vec<OsString>,
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let root = match &arguments.root {
        None => PathBuf::from("/"),
        Some(root) => root.canonicalize().map_err(|error| {
            Fault::because(format!("--root {}", root.display()), error, "name a folder with a copy of /sys")
        })?,
    };
    let form = "write plimsoll clock 1.9GHz -- COMMAND";
    let cores = arguments.cores.as_ref().map(Cores::set);
    match (arguments.clock, &arguments.command[..]) {
        (None, []) => show(&root, cores.as_ref(), &arguments.json),
        (None, _) => Err(Fault::new("clock", "it is not said which", form)),
        (Some(_), []) if !arguments.verify => {
            Err(Fault::new("clock", "say for which command; nothing stays changed", form))
        }
        (Some(clock), words) if arguments.verify => verify(clock, cores.as_ref(), arguments.held, words),
        (Some(clock), words) => set(&root, Request { clock, cores }, arguments.held, words),
    }
}

fn say(lines: &[String]) {
    lines.iter().for_each(|line| eprintln!("plimsoll: {line}"));
}

fn source(root: &Path) -> Result<Source> {
    if root == Path::new("/") { Ok(Source::live()) } else { Source::open(root) }
}

fn set(root: &Path, request: Request, held: bool, words: &[OsString]) -> Result<ExitCode> {
    let plimsoll = machine::here::program()?;
    if let Setter::Step { job } = srun_clock::setter(root)? {
        if let Some(cores) = &request.cores {
            let cause = "a step of Slurm has one clock on all of its cores";
            return Err(Fault::new(format!("--cores {cores}"), cause, "leave --cores out"));
        }
        say(&[format!("by srun --cpu-freq in job {job}, since cpufreq may not be written here")]);
        say(&srun_clock::limits());
        return run_command(Relay::open()?, srun_clock::step(request.clock, &plimsoll, held, words));
    }
    let mut keeper = Command::new(plimsoll);
    keeper.arg("clock-keeper");
    say(&restore_remains(root)?);
    // Signals are blocked from here on, before there is any thread or child.
    let relay = Relay::open()?;
    let set = ClockSet::below(root, &request, keeper)?;
    say(&[format!("clock {} by cpufreq", request.clock)]);
    say(&set.settings().iter().map(|setting| format!("  {setting}")).collect::<Vec<_>>());
    say(&set.verified().iter().filter_map(told).collect::<Vec<_>>());
    if held && set.holds() == Some(false) {
        return Err(not_held(request.clock, set.verified()));
    }
    say(&set.notes().iter().map(|note| format!("  note: {note}")).collect::<Vec<_>>());
    let ended = run_command(relay, command(words));
    let left = set.end();
    say(&left.iter().map(|line| format!("  {line}")).collect::<Vec<_>>());
    ended
}

fn told(of: &Verified) -> Option<String> {
    Some(format!(
        "  {}: verified under load, effective clock {}",
        of.core,
        of.effective.value().filter(|_| of.holds() == Some(true))?
    ))
}

fn verify(clock: Hertz, cores: Option<&CpuSet>, held: bool, words: &[OsString]) -> Result<ExitCode> {
    let relay = Relay::open()?;
    let allowed: CpuSet = linux::affinity::allowed()?.into_iter().collect();
    let probed = Verified::here(cores.unwrap_or(&allowed).iter(), clock);
    say(&probed.iter().filter_map(|of| told(of).or_else(|| of.departure())).collect::<Vec<_>>());
    if held && probed.iter().any(|of| of.holds() == Some(false)) {
        return Err(not_held(clock, &probed));
    }
    if !words.is_empty() {
        return run_command(relay, command(words));
    }
    Ok(if probed.iter().all(|of| of.holds() == Some(true)) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn command(words: &[OsString]) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command
}

fn run_command(relay: Relay, mut command: Command) -> Result<ExitCode> {
    relay.release(&mut command);
    let mut child = command.spawn().map_err(|error| {
        let subject = format!("command {}", command.get_program().display());
        Fault::because(subject, error, "check its name and that it may be executed")
    })?;
    Ok(ExitCode::from(exit_code(relay.wait(&mut child)?)))
}

/// The clocks of a core.
#[derive(Serialize)]
struct Core {
    core: u32,
    /// The clock under load, by timed additions.
    effective: Reading<Hertz>,
    /// The clock that cpufreq reports.
    told: Reading<Hertz>,
    /// The clock during the additions, by APERF and MPERF.
    counted: Reading<Hertz>,
}

#[derive(Serialize)]
struct Shown {
    policies: Vec<ClockPolicy>,
    mode: Option<String>,
    boost: Option<bool>,
    cores: Vec<Core>,
    slurm: Vec<String>,
}

fn show(root: &Path, cores: Option<&CpuSet>, json: &Json) -> Result<ExitCode> {
    let live = root == Path::new("/");
    say(&restore_remains(root).unwrap_or_else(|fault| vec![fault.to_string()]));
    let source = source(root)?;
    let Clock { policies, mode, boost } = Clock::read(&source);
    let online = Topology::read(&source)?.online;
    let cores: Vec<Core> = cores
        .unwrap_or(&online)
        .iter()
        .map(|core| {
            let mut counters = if live { ActualClock::open(core) } else { Reading::absent("a copy has no counters") };
            let effective = match live {
                true => clock_under_load(core, None),
                false => Reading::absent("these files are a copy: no core obeys them"),
            };
            let counted = match &mut counters {
                Reading::Measured(counters) | Reading::Modelled(counters) => counters.since(),
                Reading::Absent { reason } => Reading::absent(reason.clone()),
                Reading::NotPermitted { reason, next } => Reading::not_permitted(reason.clone(), next.clone()),
            };
            Core { core: core.0, effective, told: core_clock(&source, core), counted }
        })
        .collect();
    let slurm = if srun_clock::job().is_some() { srun_clock::limits() } else { Vec::new() };
    let shown = Shown { policies, mode, boost, cores, slurm };
    json.tell(|| outputs::json(&shown), || output::page(&page(&shown)))?;
    Ok(ExitCode::SUCCESS)
}

fn page(shown: &Shown) -> String {
    let mut page = "policies of cpufreq\n".to_owned();
    if shown.policies.is_empty() {
        let none = no_cpufreq();
        page += &format!("  none: {}\n    next: {}\n", none.cause(), none.next());
    }
    for policy in &shown.policies {
        let word = |word: &Option<String>| word.clone().unwrap_or_else(|| "unnamed".into());
        let range = |low: Option<Hertz>, high: Option<Hertz>| {
            low.zip(high).map_or("not told".into(), |(low, high)| format!("{low} to {high}"))
        };
        page += &format!(
            "  cores {}: driver {}, governor {}, {} of the hardware's {}",
            policy.cores,
            word(&policy.driver),
            word(&policy.governor),
            range(policy.low, policy.high),
            range(policy.hardware_low, policy.hardware_high)
        );
        page += &policy.base.map_or_else(String::new, |base| format!(", base {base}"));
        page.push('\n');
    }
    let boost = shown.boost.map(|on| if on { "boost on" } else { "boost off" }.to_owned());
    let both: Vec<String> = shown.mode.iter().map(|mode| format!("{mode} mode")).chain(boost).collect();
    if !both.is_empty() {
        page += &format!("  {}\n", both.join(", "));
    }
    page += "\nclocks by core, under load\n";
    // Adjacent cores with the same reason for a missing value show it once.
    let mut last = String::new();
    for core in &shown.cores {
        let value = |reading: &Reading<Hertz>| reading.value().map_or("absent".to_owned(), Hertz::to_string);
        page += &format!(
            "  core {:<4} effective {:<10} cpufreq {:<10} APERF/MPERF {}\n",
            core.core,
            value(&core.effective),
            value(&core.told),
            value(&core.counted)
        );
        let missing = [("effective", &core.effective), ("cpufreq", &core.told), ("APERF/MPERF", &core.counted)];
        let why = missing.iter().filter_map(|(name, reading)| match reading {
            Reading::Absent { reason } => Some(format!("    {name}: {reason}\n")),
            Reading::NotPermitted { reason, next } => Some(format!("    {name}: {reason}. Next: {next}\n")),
            _ => None,
        });
        let why: String = why.collect();
        if why != last {
            page += &why;
            last = why;
        }
    }
    for line in &shown.slurm {
        page += &format!("{line}\n");
    }
    page
}
