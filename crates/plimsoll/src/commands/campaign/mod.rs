//! `plimsoll campaign`: studies that a file describes, of any program.

mod simulated;
mod study_file;
mod submit;

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use experiment::axes::Axes;
use experiment::campaign::analysis::{self, Analysis, Named as Roles, analyse};
use experiment::campaign::conduct::{self, Runner, SessionPlan, conduct, final_failure};
use experiment::campaign::definition::{Shard, Work};
use experiment::campaign::file;
use experiment::campaign::merge::merge;
use experiment::campaign::plan::Plan;
use experiment::campaign::results::Results;
use experiment::campaign::store::{PointRuns, Session, Store};
use experiment::campaign::terminal;
use experiment::cause::{Cause, Failure};
use experiment::observer::Observer;
use launch::allocation::{self, Allocation};
use launch::campaign::{Jobs, cannot, set_by_instruments};
use launch::instruments::Here;
use launch::slurm::clock::SetByStep;
use linux::clock_setting::restore_remains;
use linux::output;
use linux::power::{self, Kind};
use machine::{Fault, Nanoseconds, Result, count, shell};
use rounds::sitting::End;

use self::simulated::Testbeds;
use self::study_file::{READY, Study, StudyFile, store_of};
use super::outputs::{self, Csv, Json};
use crate::progress::Display;

/// Studies any program, as a file describes it: in shards, on clusters, at several clocks
#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Plan(PlanArguments),
    Run(RunArguments),
    Show(ShowArguments),
    Merge(MergeArguments),
    Submit(submit::Arguments),
}

/// Shows what a study file would run, in which order and for how long, and what cannot run here; runs nothing
#[derive(clap::Args)]
struct PlanArguments {
    #[command(flatten)]
    study: StudyFile,
    /// Only this part of the study: 1/4 to 4/4
    #[arg(long, value_name = "I/N", default_value = "1/1", hide_default_value = true)]
    shard: Shard,
    /// Run each program once of which nothing is known, to say how long all takes; these runs do not count
    #[arg(long)]
    calibrate: bool,
    /// Ask about clocks of the copy of /sys below DIR instead of this host
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
}

/// Runs a study file, each run stored before the next; goes on where it stopped when the same command is given again
#[derive(clap::Args)]
#[command(after_help = EXIT)]
struct RunArguments {
    #[command(flatten)]
    study: StudyFile,
    /// Only this part of the study, 1/4 to 4/4, into a store of its own; `plimsoll campaign merge` joins them
    #[arg(long, value_name = "I/N", default_value = "1/1", hide_default_value = true)]
    shard: Shard,
    /// Only the points whose keys are in this file, one a line; `plimsoll campaign submit` writes such files
    #[arg(long, value_name = "FILE", conflicts_with = "shard")]
    points: Option<PathBuf>,
    /// Most time for all runs of the store: 90s, 10m, 2h [default: as the file says; less where a batch job ends before]
    #[arg(long, value_name = "TIME")]
    budget: Option<Nanoseconds>,
    /// Run again what was left after failures
    #[arg(long)]
    retry: bool,
    /// Threads for simulated points [default: all cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    jobs: Option<u32>,
    /// Rehearse: set clocks in the copy of /sys below DIR, which no core obeys, into a store of its own
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
}

/// Shows what a study came to so far: means with 95 % intervals, failures, watts saved against performance lost by clock, and
/// what one carrier gains over another by nodes and clock
#[derive(clap::Args)]
#[command(after_help = AXES)]
struct ShowArguments {
    /// Study file, ready study, or a store
    #[arg(value_name = "FILE|NAME|STORE")]
    study: PathBuf,
    /// The store, where it is not the file's own
    #[arg(long, value_name = "FILE")]
    store: Option<PathBuf>,
    /// The figure that tells performance [default: the first that is neither watts nor joules]
    #[arg(long, value_name = "NAME")]
    figure: Option<String>,
    /// Which axis is what: clock=AXIS, carrier=AXIS (its values are held against each other), nodes=AXIS; may be repeated
    #[arg(long, value_name = "WHAT=AXIS", value_parser = axis)]
    axis: Vec<(Role, String)>,
    /// The value of the axis of carriers that the others are held against [default: the first of the file]
    #[arg(long, value_name = "VALUE")]
    baseline: Option<String>,
    /// Write a page with figures to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// The comparisons, a row each
    #[command(flatten)]
    csv: Csv,
    #[command(flatten)]
    json: Json,
}

#[derive(Clone, Copy, PartialEq)]
enum Role {
    Clock,
    Carrier,
    Nodes,
}

fn axis(text: &str) -> Result<(Role, String)> {
    let role = |word| match word {
        "clock" => Some(Role::Clock),
        "carrier" => Some(Role::Carrier),
        "nodes" => Some(Role::Nodes),
        _ => None,
    };
    let read = text.split_once('=').and_then(|(word, axis)| Some((role(word)?, axis.to_owned())));
    read.ok_or_else(|| {
        let next = "write clock=AXIS, carrier=AXIS or nodes=AXIS";
        Fault::new(format!("axis '{text}'"), "it does not say what an axis is", next)
    })
}

/// Joins stores of one study file, of several machines or shards, into one. Joining again changes nothing
#[derive(clap::Args)]
struct MergeArguments {
    /// The store to join into; it is made where it is not there
    #[arg(value_name = "OUT")]
    output: PathBuf,
    /// The stores to join, which stay as they are
    #[arg(value_name = "IN", required = true)]
    inputs: Vec<PathBuf>,
}

const EXIT: &str = "Exit status: 0 every point has its runs, 3 the budget ended before, 4 points were left after failures or \
    cannot run here, 1 a fault.";

const AXES: &str = "Axes are known by their names: clock or dilate; carrier, adapter, placement or network; nodes or ranks. \
    --axis names others.";

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    match arguments.command {
        Command::Plan(arguments) => plan(&arguments),
        Command::Run(arguments) => carry_out(&arguments),
        Command::Show(arguments) => show(&arguments),
        Command::Merge(arguments) => join(&arguments),
        Command::Submit(arguments) => submit::run(&arguments),
    }
}

/// The reasons why points cannot run here; for a plan (`planned`) also of simulated ones.
fn refusals(study: &Study, mine: &[bool], planned: bool) -> Result<Vec<Option<String>>> {
    let (campaign, folder) = (&study.campaign, study.folder.display().to_string());
    let (testbeds, instruments) = (Testbeds::new(&study.folder), here(study, planned));
    let allocation = allocation::around();
    let why = |point| {
        let cannot = || cannot(campaign, point, &folder, allocation.as_ref(), &*instruments);
        let in_simulation = || planned.then(|| testbeds.cannot(campaign, point)).flatten();
        mine[point].then(|| cannot().or_else(in_simulation)).flatten()
    };
    Ok((0..campaign.points.len()).map(why).collect())
}

/// The setters of clocks and readers of power for the runs. A plan runs nothing of the file, and takes commands for power
/// to work.
fn here(study: &Study, planned: bool) -> Box<SetByStep<Here>> {
    let is_command = |source: &str| source.parse::<power::Source>().is_ok_and(|of| matches!(of.kind, Kind::Command(_)));
    let sources = study.campaign.power.iter().filter(|source| !(planned && is_command(source)));
    Box::new(SetByStep::around(Here::new(&sources.cloned().collect::<Vec<_>>(), &study.root)))
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn plan(arguments: &PlanArguments) -> Result<ExitCode> {
    let study = arguments.study.open(arguments.shard, arguments.root.as_deref())?;
    let campaign = &study.campaign;
    let known = study.known()?;
    let mine = campaign.of_shard(arguments.shard);
    let cannot = refusals(&study, &mine, true)?;
    let mut calibrated = Vec::new();
    if arguments.calibrate {
        linux::signal::watch()?;
        calibrated = calibrate(&study, &known, &cannot)?;
    }
    let usual = |point: usize| {
        let of_program = |(program, _): &&(usize, Nanoseconds)| *program == campaign.points[point].program;
        let calibrated = || calibrated.iter().find(of_program).map(|(_, takes)| *takes);
        conduct::usual(campaign, &known, point).or_else(calibrated)
    };
    let plan = Plan::of(campaign, arguments.shard, &known, cannot, &usual, cores());
    output::print(&terminal::plan(campaign, &plan))?;
    Ok(ExitCode::SUCCESS)
}

/// Runs each program of unknown duration at its first point that can run; returns the durations.
fn calibrate(study: &Study, known: &[PointRuns], cannot: &[Option<String>]) -> Result<Vec<(usize, Nanoseconds)>> {
    let campaign = &study.campaign;
    let mut found: Vec<(usize, Nanoseconds)> = Vec::new();
    for (point, cannot) in cannot.iter().enumerate() {
        let program = campaign.points[point].program;
        let known = conduct::usual(campaign, known, point).is_some();
        if cannot.is_some() || known || found.iter().any(|(of, _)| *of == program) {
            continue;
        }
        eprintln!("calibrating: {}", campaign.words(point));
        let failed = |failure| {
            let next = "run it alone until it works, then plan again";
            Fault::new(campaign.words(point), format!("{failure}"), next)
        };
        let began = Instant::now();
        if matches!(campaign.program(point).work, Work::Simulate { .. }) {
            use experiment::campaign::simulated::Simulator;
            Testbeds::new(&study.folder).simulate(campaign, point).map_err(failed)?;
        } else {
            let mine: Vec<bool> = (0..campaign.points.len()).map(|other| other == point).collect();
            let mut jobs = Jobs::new(campaign, &mine, &study.folder, &Default::default(), here(study, false))?;
            match jobs.run(campaign, point, conduct::FIRST_PATIENCE) {
                // A run under a changed clock is good enough for a plan.
                Err(Failure { cause: Cause::ClockChanged, .. }) => {}
                ran => drop(ran.map_err(failed)?),
            }
        }
        found.push((program, Nanoseconds(began.elapsed().as_nanos() as u64)));
    }
    Ok(found)
}

const OUT_OF_TIME: u8 = 3;
const INCOMPLETE: u8 = 4;

fn carry_out(arguments: &RunArguments) -> Result<ExitCode> {
    let study = arguments.study.open(arguments.shard, arguments.root.as_deref())?;
    let Study { campaign, folder, store: path, .. } = &study;
    let mut mine = campaign.of_shard(arguments.shard);
    if let Some(points) = &arguments.points {
        let keys = launch::slurm::record::keys(points)?;
        mine = campaign.points.iter().map(|point| keys.contains(&point.axes.key())).collect();
    }
    let cannot = refusals(&study, &mine, false)?;
    mine.iter_mut().zip(&cannot).for_each(|(mine, cannot)| *mine &= cannot.is_none());
    let allocation = allocation::around();
    if let Some(allocation) = &allocation {
        eprintln!("In {} on {}.", allocation.name, allocation.nodes);
    }
    linux::signal::watch()?;
    if (0..mine.len()).any(|point| mine[point] && set_by_instruments(campaign, point).get("clock").is_some()) {
        restore_remains(&study.root)?.iter().for_each(|line| eprintln!("{line}"));
    }
    let mut store = Store::open(path, &campaign.identity)?;
    let host = launch::this_host();
    let mut jobs = Jobs::new(campaign, &mine, folder, &store.programs(&host)?, here(&study, false))?;
    let before: usize = store.known(&campaign.points)?.iter().map(|known| known.done.len()).sum();
    if before > 0 {
        eprintln!("Going on with the study in {} ({}).", path.display(), count::of(before as u64, "finished run"));
    }
    let mut display = Display::spinning(Some(LINE));
    for (point, why) in cannot.iter().enumerate().filter_map(|(point, why)| Some((point, why.as_ref()?))) {
        display.note(&format!("{} cannot run here: {why}", campaign.words(point)));
    }
    store.begin(&session(arguments, &host, allocation.as_ref(), &jobs))?;
    let nanoseconds = |of: Duration| Nanoseconds(of.as_nanos() as u64);
    let order = SessionPlan {
        campaign,
        mine: mine.clone(),
        budget: arguments.budget.or(campaign.stop.budget),
        sitting: allocation.as_ref().and_then(Allocation::usable).map(nanoseconds),
        retry: arguments.retry,
        cores: arguments.jobs.map_or_else(cores, |jobs| jobs as usize),
    };
    let testbeds = Testbeds::new(folder);
    let end = conduct(order, &mut store, (&mut jobs, &testbeds), &mut display, &linux::signal::interrupted);
    display.close();
    let end = end?;
    if end == End::Interrupted {
        return Ok(super::interrupted("finished runs are", path));
    }
    let known = store.known(&campaign.points)?;
    let left = (0..mine.len()).filter(|&point| mine[point] && final_failure(campaign, &known[point]).is_some()).count();
    let refused = cannot.iter().flatten().count();
    let runs: usize = known.iter().map(|known| known.done.len()).sum();
    let summary = format!("{} in {}", count::of(runs as u64, "run"), path.display());
    if campaign.points.len() <= MOST_SHOWN {
        let results = store.results()?;
        let first = campaign.points.first().map(|point| point.axes.clone());
        let roles = Roles { first, ..Roles::default() };
        output::print(&shown(&campaign.identity.name, &results, &analyse(&results, &roles)?))?;
    }
    let (file, told) =
        (shell::path(&arguments.study.file), if end == End::OutOfTime { ", the time is over" } else { "" });
    eprintln!("{summary}{told}. `plimsoll campaign show {file}` shows them.");
    Ok(ExitCode::from(match end {
        End::OutOfTime => OUT_OF_TIME,
        _ if left + refused > 0 => INCOMPLETE,
        _ => 0,
    }))
}

/// Time between two lines of progress, where no terminal shows it.
const LINE: Duration = Duration::from_secs(30);

/// The most points whose table is printed at the end of a study.
const MOST_SHOWN: usize = 40;

fn session(arguments: &RunArguments, host: &str, allocation: Option<&Allocation>, jobs: &Jobs) -> Session {
    let boot = machine::here::boot().unwrap_or_else(|| "unknown boot".into());
    Session {
        host: host.to_owned(),
        boot,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        shard: arguments.shard.to_string(),
        nodes: allocation.map_or(String::new(), |of| of.nodes.clone()),
        programs: jobs.programs().clone(),
        started: machine::here::now(),
        process: std::process::id(),
    }
}

/// The axes of the study file's first point, if the file is named and can be read.
fn first_point(study: &Path, set: &BTreeMap<String, String>) -> Option<Axes> {
    let file = (!is_store(study)).then(|| READY.file(study).ok())??;
    let set: Vec<(String, String)> = set.clone().into_iter().collect();
    file::read(&file, &set).ok()?.points.first().map(|point| point.axes.clone())
}

fn show(arguments: &ShowArguments) -> Result<ExitCode> {
    let path = match &arguments.store {
        Some(store) => store.clone(),
        None if is_store(&arguments.study) => arguments.study.clone(),
        None => store_of(&READY.file(&arguments.study)?, Shard::WHOLE),
    };
    let store = Store::read(&path)?;
    let (name, results) = (&store.identity().name, store.results()?);
    let ShowArguments { figure, axis, baseline, html, csv, json, .. } = arguments;
    let axis_of = |role| axis.iter().rev().find(|(of, _)| *of == role).map(|(_, axis)| axis.clone());
    let roles = Roles {
        clock: axis_of(Role::Clock),
        carrier: axis_of(Role::Carrier),
        baseline: baseline.clone(),
        first: first_point(&arguments.study, &store.identity().set),
        scale: axis_of(Role::Nodes),
        performance: figure.clone(),
    };
    let analysis = analyse(&results, &roles)?;
    if let Some(file) = html {
        let page = analysis::page(&analysis, name, vec!["study".into(), results.hosts.join(", ")]);
        let written = std::fs::write(file, page);
        written.map_err(|e| Fault::unwritable(format!("file {}", file.display()), e, "choose another file"))?;
    }
    let show = || {
        output::print(&shown(name, &results, &analysis))?;
        html.as_ref().map_or(Ok(()), |file| {
            let path = std::path::absolute(file).unwrap_or_else(|_| file.clone());
            output::print(&format!("\nReport: {}\n", shell::path(&path)))
        })
    };
    csv.tell(|| Ok(analysis::csv(&analysis)), || json.tell(|| outputs::json(&analysis), show))?;
    Ok(ExitCode::SUCCESS)
}

/// Means, and the comparisons from them.
fn shown(name: &str, results: &Results, analysis: &Analysis) -> String {
    terminal::show(name, results, analysis) + &analysis::terminal(analysis)
}

fn is_store(path: &Path) -> bool {
    let mut magic = [0; 15];
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic));
    read.is_ok() && magic == *b"SQLite format 3"
}

fn join(arguments: &MergeArguments) -> Result<ExitCode> {
    let store = merge(&arguments.output, &arguments.inputs, |path, joined| {
        let known = if joined.known > 0 { format!(", {} known", count::grouped(joined.known)) } else { String::new() };
        eprintln!("{}: {}{known}", path.display(), count::of(joined.runs, "run"));
    })?;
    for line in store.differing_builds()? {
        eprintln!("note: {line}");
    }
    let results = store.results()?;
    output::print(&format!(
        "{}: {} of {} on {}\n",
        arguments.output.display(),
        count::of(results.runs.len() as u64, "run"),
        count::of(results.points.len() as u64, "point"),
        count::of(results.hosts.len() as u64, "host"),
    ))?;
    Ok(ExitCode::SUCCESS)
}
