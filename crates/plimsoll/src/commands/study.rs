use std::fs::File;
use std::io::Write;
use std::path::{Path as FilePath, PathBuf};
use std::process::ExitCode;

use bench::control::Grant;
use bench::runner::Bench;
use clap::ArgGroup;
use experiment::conduct::conduct;
use experiment::design::{Design, Grounds};
use experiment::designs::Beginning;
use experiment::export::{Format, export};
use experiment::findings::Fact;
use experiment::ledger::Ledger;
use experiment::refine;
use experiment::report::{html, terminal};
use experiment::store::{Store, Study};
use launch::allocation::{self, Allocation};
use linux::lab::{Lab, Options};
use machine::choice::Distance;
use machine::costs::store as costs;
use machine::{CoreId, Cores, CpuSet, Fault, Machine, Nanoseconds, Result, Source, count, here};
use rounds::point::{Path, Stack, StackAt};
use rounds::sample::Runner;
use rounds::sitting::End;

use super::path::{self, Ends, second_host};
use crate::progress::Display;
use linux::output::{self, Destination};

/// Finds where message processing should run on this machine.
///
/// Measures the engine at each placement beside the kernel's TCP and, where installed, Open MPI; stores every block as it
/// is measured; ends with a verdict and a report. A study that was interrupted continues where it stopped.
///
/// The first lines are the choice within this host and the one between hosts, with the most that each loses at any size and
/// the command that uses it; the places by message size come next.
///
/// The store keeps every study: a new one is added to those that are there. --show, --why, --csv and --json measure and
/// change nothing; they read the latest study that finished, also while another runs, or the one that --study names. With
/// --html FILE, --show writes its report again.
///
/// Studies of any program, which a file describes: plimsoll campaign.
#[derive(clap::Args)]
#[command(group = ArgGroup::new("reading").args(["show", "why", "csv", "json"]).multiple(true))]
pub struct Arguments {
    /// Keep the measurements in this file
    #[arg(long, value_name = "FILE", default_value = ".plimsoll/study.sqlite")]
    store: PathBuf,
    /// Write the report to this file [default: report.html; with --show and --why none is written]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["csv", "json"])]
    html: Option<PathBuf>,
    /// Begin a new study, even where an unfinished one could continue
    #[arg(long, conflicts_with = "reading")]
    fresh: bool,
    /// Time for measuring: 90s, 10m
    #[arg(long, value_name = "TIME", default_value = "150s", conflicts_with = "reading")]
    budget: Nanoseconds,
    /// Path between hosts: the HOST[:PORT] at which `plimsoll serve` listens; allocation (this node and the next one of a
    /// Slurm or PBS job); or what stands in for one: lab (two hosts on this machine, needs root) or loopback [default:
    /// allocation where the job has two nodes, else lab where permitted]
    #[arg(long, value_name = "PATH", conflicts_with = "reading")]
    path: Option<Ends>,
    /// File with the word that the server at --path HOST was started with (its --key)
    #[arg(long, value_name = "FILE", conflicts_with = "reading")]
    key: Option<PathBuf>,
    /// Networks of the engine to compare between hosts: udp, afxdp (past the kernel's network stack), xdp (received at the
    /// driver's hook), at the interface of each host that leads to the other; afxdp:IFACE and xdp:IFACE refuse any other
    /// here [default: all that can be had there]
    #[arg(long, value_name = "NETWORK", value_delimiter = ',', value_parser = engine_network, conflicts_with = "reading")]
    network: Option<Vec<StackAt>>,
    /// Cores to use: those of the two applications, then those of their dedicated engines; with a second host first the
    /// application's, then the engine's, and there those that its server may use
    #[arg(long, value_name = "CORES", conflicts_with = "reading")]
    cores: Option<Cores>,
    /// Measure nothing; print a study's verdict
    #[arg(long, conflicts_with_all = ["csv", "json"])]
    show: bool,
    /// Measure nothing; print a study's verdict with the reason why each other place was not taken
    #[arg(long, conflicts_with_all = ["csv", "json"])]
    why: bool,
    /// Measure nothing; write a study's raw samples as CSV [default: to standard output]
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = Destination::STDOUT, conflicts_with = "json")]
    csv: Option<Destination>,
    /// Measure nothing; write a study's raw samples as JSON [default: to standard output]
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = Destination::STDOUT)]
    json: Option<Destination>,
    /// The number of the study to show or export [default: the latest that finished]
    #[arg(long, value_name = "N", requires = "reading")]
    study: Option<i64>,
}

/// The permitted budgets, in seconds.
const BUDGETS: std::ops::RangeInclusive<u64> = 1..=86_400;

/// The default file of the report at the end of a study.
const PAGE: &str = "report.html";

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    for (file, format) in [(&arguments.csv, Format::Csv), (&arguments.json, Format::Json)] {
        if let Some(file) = file {
            return write_samples(&arguments, file, format);
        }
    }
    if arguments.show || arguments.why {
        let (store, study) = stored(&arguments)?;
        report(&store, &study, arguments.html.as_deref(), arguments.why)?;
        return Ok(ExitCode::SUCCESS);
    }
    let source = Source::live();
    let machine = Machine::read(&source)?;
    linux::signal::watch()?;
    let key = path::key(arguments.key.as_deref(), arguments.path.as_ref())?;
    let second = second_host(arguments.path.as_ref())?;
    let asked = match (&arguments.path, &second) {
        (Some(Ends::Path(path)), _) => Some(path.clone()),
        (_, second) => second.as_ref().map(|second| Path::Remote(second.node().to_owned())),
    };
    let program = here::program()?;
    let mut bench = Bench::new(program).with(second).showing(key);
    let (grounds, mut remarks) = grounds(&arguments, &machine, asked, &bench)?;
    let (design, left_out) = with_networks(Design::of(grounds)?, &mut bench, arguments.network.is_some())?;
    remarks.extend(left_out);
    let mut store = Store::open(&arguments.store)?;
    let mut study = open(&mut store, &design, &arguments, &machine)?;
    for remark in &remarks {
        eprintln!("note: {remark}");
    }

    let mut display = Display::of(design.grounds.budget);
    let outcome = conduct(&mut store, &mut study, &mut bench, &mut display, &linux::signal::interrupted);
    display.close();
    bench.close();
    if outcome? == End::Interrupted {
        let blocks: usize = store.contents(&study)?.samples.values().map(Vec::len).sum();
        let blocks = count::of(blocks as u64, "finished block") + count::either(blocks as u64, " is", " are");
        return Ok(super::interrupted(&blocks, &arguments.store));
    }
    store.finish(&mut study, here::now())?;
    // Both are extra: if there is no space for them, the study still shows its result.
    if let Err(fault) = refine(&store, &study) {
        eprintln!("note: costs and ledger are as before: {fault}");
    }
    report(&store, &study, Some(arguments.html.as_deref().unwrap_or(FilePath::new(PAGE))), false)?;
    Ok(ExitCode::SUCCESS)
}

fn engine_network(text: &str) -> Result<StackAt> {
    let named = format!("engine-{text}").parse::<StackAt>().ok().filter(|of| of.stack.network().is_some());
    named.ok_or_else(|| {
        let next = "choose udp, afxdp or xdp, the last two with :IFACE if you like";
        Fault::new(format!("network '{text}'"), "the engine has none of that name", next)
    })
}

/// The design without unavailable networks, and the reasons.
///
/// # Errors
/// A network is unavailable that was `named`.
fn with_networks(mut design: Design, bench: &mut Bench, named: bool) -> Result<(Design, Vec<String>)> {
    let (mut left_out, mut remarks) = (Vec::new(), Vec::new());
    for network in &design.grounds.networks {
        let first = design.points().into_iter().find(|point| point.stack == network.stack);
        let Some(Err(fault)) = first.map(|point| bench.prepare(point)) else { continue };
        let name = network.to_string();
        let name = name.trim_start_matches("engine-");
        if named || linux::signal::interrupted() {
            return Err(fault.within(format!("network {name}")));
        }
        remarks.push(format!("network {name} is left out: {fault}"));
        left_out.push(network.clone());
    }
    if !left_out.is_empty() {
        let mut grounds = design.grounds;
        grounds.networks.retain(|network| !left_out.contains(network));
        design = Design::of(grounds)?;
        design.notes.extend(remarks.iter().cloned());
    }
    Ok((design, remarks))
}

/// The cores and paths for the study, and remarks for the reader.
fn grounds(
    arguments: &Arguments,
    machine: &Machine,
    path: Option<Path>,
    bench: &Bench,
) -> Result<(Grounds, Vec<String>)> {
    let mut remarks = Vec::new();
    let cores = match &arguments.cores {
        Some(Cores(cores)) => {
            for core in cores {
                machine.core(*core)?;
            }
            remarks.extend(siblings(cores, machine));
            cores.clone()
        }
        None => {
            let usable = machine.usable_cores();
            let cores = machine.choice().for_polling(machine.network_node());
            if cores.len() < usable.len() {
                let used: CpuSet = cores.iter().copied().collect();
                remarks.push(format!("one thread of each core is used: {used} of {usable}"));
            }
            cores
        }
    };
    // A hypervisor moves its guest's cores invisibly to the guest.
    let distance = match (machine.processor.hypervisor.is_some(), cores.as_slice()) {
        (false, [one, other, ..]) => Some(machine.topology.distance(*one, *other)),
        _ => None,
    };
    let (mut peer_cores, mut at_app) = (Vec::new(), false);
    let network = match path {
        Some(Path::Lab) => Lab::owned(&Options::default()).map(|_| Path::Lab)?,
        Some(Path::Remote(host)) => {
            let there = bench.host_of(&host)?;
            at_app = !there.allows.contains(&Grant::Cores);
            peer_cores = there.cores;
            Path::Remote(host)
        }
        Some(Path::Loopback) => Path::Loopback,
        None => match Lab::owned(&Options::default()) {
            Ok(_) => Path::Lab,
            Err(fault) => {
                remarks.push(format!("loopback stands in for the network ({fault})"));
                Path::Loopback
            }
        },
    };
    let protocol_core = (network == Path::Lab).then(|| cores.first().copied()).flatten();
    let networks: Vec<StackAt> = match &arguments.network {
        Some(named) => named.iter().filter(|of| of.stack != Stack::EngineUdp).cloned().collect(),
        None if network == Path::Loopback => Vec::new(),
        None => Stack::ALL.into_iter().filter(|stack| stack.attaches()).map(Into::into).collect(),
    };
    let twice = |of: &&StackAt| networks.iter().filter(|other| other.stack == of.stack).count() > 1;
    if let Some(of) = networks.iter().find(twice) {
        let cause = "a study compares one interface of each network";
        return Err(Fault::new(format!("network {of}"), cause, "name it once, and study the other by itself"));
    }
    if !networks.is_empty() && network == Path::Loopback {
        let next = "leave --network out, or choose --path HOST, or lab (as root)";
        return Err(Fault::new("networks of path loopback", "packets pass no interface's driver there", next));
    }
    let grounds = Grounds {
        networks,
        cores,
        peer_cores,
        at_app,
        distance,
        network,
        protocol_core,
        open_mpi: bench::reference::netpipe::is_installed(),
        budget: budget(arguments.budget, &mut remarks)?,
    };
    Ok((grounds, remarks))
}

/// The budget: `asked`, or less where the batch job ends before.
fn budget(asked: Nanoseconds, remarks: &mut Vec<String>) -> Result<Nanoseconds> {
    let seconds = asked.0 / 1_000_000_000;
    if !BUDGETS.contains(&seconds) {
        let cause = "a study measures for 1 s to 24 hours";
        return Err(Fault::new(format!("budget {asked}"), cause, "choose another --budget, like 150s or 10m"));
    }
    let job = allocation::around();
    let left = job.as_ref().and_then(Allocation::usable).map(|left| left.as_secs().max(1));
    if let (Some(job), Some(left)) = (&job, left.filter(|left| *left < seconds)) {
        remarks.push(format!("{left} s for measuring instead of {seconds}: {} ends after that", job.name));
        return Ok(Nanoseconds(left * 1_000_000_000));
    }
    Ok(asked)
}

/// A remark where named cores are threads of one core, which slow each other.
fn siblings(cores: &[CoreId], machine: &Machine) -> Option<String> {
    let pairs = cores.iter().enumerate().flat_map(|(at, one)| cores[..at].iter().map(move |other| (other, one)));
    let mut beside = pairs.filter(|(one, other)| machine.topology.distance(**one, **other) == Distance::Core);
    let (one, other) = beside.next()?;
    Some(format!("{one} and {other} are threads of one core: what runs on the one slows the other"))
}

/// Continues an unfinished study of this design on this boot of this machine, or begins one.
fn open(store: &mut Store, design: &Design, arguments: &Arguments, machine: &Machine) -> Result<Study> {
    // Another boot may be on another machine, or have other neighbours on the host.
    let host = here::boot().unwrap_or_else(|| "unknown boot".into());
    if !arguments.fresh
        && let Some(study) = store.unfinished(design, &host)?
    {
        let blocks: usize = store.contents(&study)?.samples.values().map(Vec::len).sum();
        let blocks = count::of(blocks as u64, "block");
        eprintln!("Going on with the study in {} ({blocks} measured).", arguments.store.display());
        return Ok(study);
    }
    let now = here::now();
    let facts: Vec<Fact> = machine.facts().into_iter().map(|(name, value)| Fact { name, value }).collect();
    store.begin(&Beginning { design, seed: now.0, host: &host, version: env!("CARGO_PKG_VERSION"), facts: &facts, now })
}

/// Gives the measurements to the commands that decide by them, and compares the answers with those of earlier studies.
fn refine(store: &Store, study: &Study) -> Result<()> {
    let findings = experiment::analysis::findings(study, &store.contents(study)?);
    let source = format!("plimsoll study {}", study.id);
    let rows = refine::rows(&findings, &source, here::now());
    if !rows.is_empty() {
        costs::keep(rows, None)?;
    }
    refine::hold(&mut Ledger::open()?, &findings, &source, here::now())
}

/// Writes the page, if one is wanted, and prints the verdict.
fn report(store: &Store, study: &Study, page: Option<&FilePath>, reasons: bool) -> Result<()> {
    let findings = experiment::analysis::findings(study, &store.contents(study)?);
    if let Some(page) = page {
        let next = "choose another: `plimsoll study --show --html FILE`; the measurements are in the store";
        let written = std::fs::write(page, html::render(&findings));
        written.map_err(|e| Fault::unwritable(format!("report {}", page.display()), e, next))?;
    }
    let path = page.map(|page| std::path::absolute(page).unwrap_or_else(|_| page.to_path_buf()));
    let colour = output::colour(&std::io::stdout());
    let screen = terminal::Screen { width: output::width(), colour, reasons };
    output::print(&terminal::render(&findings, screen, path.as_deref()))
}

/// The study to read, and its store. The store's other studies are named on standard error.
fn stored(arguments: &Arguments) -> Result<(Store, Study)> {
    let store = Store::read(&arguments.store)?;
    let study = store.chosen(arguments.study)?;
    let others: Vec<String> = store
        .entries()?
        .iter()
        .rev()
        .filter(|other| other.id != study.id)
        .take(OTHERS)
        .map(|other| other.to_string())
        .collect();
    if !others.is_empty() {
        eprintln!("note: this is study {}; --study N shows another: {}", study.id, others.join("; "));
    }
    Ok((store, study))
}

/// The most other studies that are named.
const OTHERS: usize = 5;

fn write_samples(arguments: &Arguments, to: &Destination, format: Format) -> Result<ExitCode> {
    let Destination::File(path) = to else {
        output::not_to_a_terminal("an export", "--csv=FILE or --json=FILE")?;
        let (store, study) = stored(arguments)?;
        let mut text = Vec::new();
        export(&study, &store.contents(&study)?, format, &mut text)?;
        output::print(&String::from_utf8_lossy(&text))?;
        return Ok(ExitCode::SUCCESS);
    };
    let (store, study) = stored(arguments)?;
    let failed = |e| Fault::unwritable(format!("file {}", path.display()), e, "choose another file");
    let mut file = std::io::BufWriter::new(File::create(path).map_err(failed)?);
    export(&study, &store.contents(&study)?, format, &mut file)?;
    file.flush().map_err(failed)?;
    Ok(ExitCode::SUCCESS)
}
