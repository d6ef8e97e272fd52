use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::{Path as FilePath, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use bench::runner::Bench;
use linux::lab::{Lab, Options};
use machine::{CoreId, Fault, Machine, Nanoseconds, Result, Source};
use study::conduct::{Outcome, conduct};
use study::design::{Design, Grounds};
use study::export::{Format, export};
use study::findings::Fact;
use study::point::Path;
use study::report::{html, terminal};
use study::store::{Beginning, Store, Study};

use crate::output;
use crate::progress::Display;

/// Finds where message processing should run on this machine.
///
/// Measures the engine at each placement beside the kernel's TCP and, where installed, Open MPI; stores every block as it
/// is measured; ends with a verdict and a report. A study that was cut short goes on where it stopped.
#[derive(clap::Args)]
pub struct Arguments {
    /// Keep the measurements in this file
    #[arg(long, value_name = "FILE", default_value = ".plimsoll/study.sqlite")]
    store: PathBuf,
    /// Write the report to this file
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    report: PathBuf,
    /// Begin anew, even where an unfinished study could go on
    #[arg(long)]
    fresh: bool,
    /// Time for measuring, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 150, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    budget: u64,
    /// What stands for the network: lab (needs root) or loopback; by default the lab where permitted
    #[arg(long, value_name = "PATH", value_parser = network)]
    path: Option<Path>,
    /// Cores to use: the two applications', then the dedicated engine's
    #[arg(long, value_name = "A,B,...", value_delimiter = ',', value_parser = core)]
    cores: Option<Vec<CoreId>>,
    /// Measure nothing; print the last study's verdict and write its report again
    #[arg(long, conflicts_with = "export")]
    show: bool,
    /// Say why each other place was not taken
    #[arg(long)]
    why: bool,
    /// Measure nothing; write the raw samples of the last study as csv or json
    #[arg(long, value_name = "FORMAT")]
    export: Option<Format>,
    /// Where the export goes, instead of standard output
    #[arg(long, value_name = "FILE", requires = "export")]
    output: Option<PathBuf>,
}

fn network(text: &str) -> Result<Path> {
    match text {
        "lab" => Ok(Path::Lab),
        "loopback" => Ok(Path::Loopback),
        _ => Err(Fault::new(format!("path '{text}'"), "a study has no such path", "choose lab or loopback")),
    }
}

fn core(text: &str) -> Result<CoreId> {
    let number = text.trim().parse();
    number.map(CoreId).map_err(|_| Fault::new(format!("core '{text}'"), "not a core number", "write cores like 0,1,2"))
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    if let Some(format) = arguments.export {
        return export_last(&arguments.store, format, arguments.output.as_deref());
    }
    if arguments.show {
        let (store, study) = last(&arguments.store)?;
        report(&store, &study, &arguments)?;
        return Ok(ExitCode::SUCCESS);
    }
    let source = Source::live();
    let machine = Machine::read(&source)?;
    let (grounds, remarks) = grounds(&arguments, &machine)?;
    let design = Design::of(grounds)?;
    make_room(&arguments.store)?;
    let mut store = Store::open(&arguments.store)?;
    let mut study = open(&mut store, &design, &arguments, &machine, &source)?;
    for remark in &remarks {
        eprintln!("note: {remark}");
    }

    linux::signal::watch()?;
    let program = std::env::current_exe()
        .map_err(|e| Fault::because("this program's own file", e, "run it from where it is installed"))?;
    let mut bench = Bench::new(program);
    let mut display = Display::new(design.grounds.budget);
    let outcome = conduct(&mut store, &mut study, &mut bench, &mut display, &linux::signal::interrupted);
    display.close();
    bench.close();
    if outcome? == Outcome::Interrupted {
        let blocks: usize = store.contents(&study)?.samples.values().map(Vec::len).sum();
        eprintln!(
            "Interrupted; {blocks} finished blocks are in {}. Run the same command to go on.",
            arguments.store.display()
        );
        return Ok(ExitCode::from(super::INTERRUPTED));
    }
    store.finish(&mut study, now())?;
    report(&store, &study, &arguments)?;
    Ok(ExitCode::SUCCESS)
}

/// What the study can use here, and what the reader should know about it.
fn grounds(arguments: &Arguments, machine: &Machine) -> Result<(Grounds, Vec<String>)> {
    let mut remarks = Vec::new();
    let cores = match &arguments.cores {
        Some(cores) => {
            for core in cores {
                machine.core(*core)?;
            }
            cores.clone()
        }
        None => machine.usable_cores().iter().collect(),
    };
    let network = match arguments.path {
        Some(Path::Lab) => Lab::owned(&Options::default()).map(|_| Path::Lab)?,
        Some(_) => Path::Loopback,
        None => match Lab::owned(&Options::default()) {
            Ok(_) => Path::Lab,
            Err(fault) => {
                remarks.push(format!("loopback stands in for the network ({fault})"));
                Path::Loopback
            }
        },
    };
    let protocol_core = (network == Path::Lab).then(|| cores.first().copied()).flatten();
    let grounds = Grounds {
        cores,
        network,
        protocol_core,
        open_mpi: bench::reference::netpipe::is_installed(),
        budget: Nanoseconds(arguments.budget * 1_000_000_000),
    };
    Ok((grounds, remarks))
}

/// Goes on with an unfinished study of this design on this boot of this machine, or begins one.
fn open(
    store: &mut Store,
    design: &Design,
    arguments: &Arguments,
    machine: &Machine,
    source: &Source,
) -> Result<Study> {
    // Another boot may be another machine: other memory, other neighbours on the host.
    let host = source.word("/proc/sys/kernel/random/boot_id").unwrap_or_else(|| "unknown boot".into());
    if !arguments.fresh
        && let Some(study) = store.unfinished(design, &host)?
    {
        let blocks: usize = store.contents(&study)?.samples.values().map(Vec::len).sum();
        eprintln!("Going on with the study in {} ({blocks} blocks measured).", arguments.store.display());
        return Ok(study);
    }
    let now = now();
    let facts: Vec<Fact> = machine.facts().into_iter().map(|(name, value)| Fact { name, value }).collect();
    store.begin(&Beginning { design, seed: now.0, host: &host, version: env!("CARGO_PKG_VERSION"), facts: &facts, now })
}

fn now() -> Nanoseconds {
    Nanoseconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64)
}

fn make_room(file: &FilePath) -> Result<()> {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => std::fs::create_dir_all(folder).map_err(|e| {
            Fault::because(format!("folder {}", folder.display()), e, "choose another place with --store")
        }),
        _ => Ok(()),
    }
}

/// Writes the page, prints the verdict.
fn report(store: &Store, study: &Study, arguments: &Arguments) -> Result<()> {
    let page = arguments.report.as_path();
    let findings = study::analysis::findings(study, &store.contents(study)?);
    let next = "free the disk or choose another file with --report; the measurements are safe, `plimsoll study --show` \
                writes the report again";
    let text = html::render(&findings)?;
    std::fs::write(page, text).map_err(|e| Fault::because(format!("report {}", page.display()), e, next))?;
    let path = std::path::absolute(page).unwrap_or_else(|_| page.to_path_buf());
    let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let screen = terminal::Screen { width: width(), colour, reasons: arguments.why };
    output::print(&terminal::render(&findings, screen, Some(&path)))
}

/// Columns to wrap at.
fn width() -> usize {
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    columns.unwrap_or(100).clamp(40, 140)
}

fn last(store: &FilePath) -> Result<(Store, Study)> {
    let store = Store::open_existing(store)?;
    let study = store.last()?.ok_or_else(|| {
        Fault::new(format!("store {}", store.path().display()), "it holds no study", "run `plimsoll study` first")
    })?;
    Ok((store, study))
}

fn export_last(store: &FilePath, format: Format, output: Option<&FilePath>) -> Result<ExitCode> {
    let (store, study) = last(store)?;
    let contents = store.contents(&study)?;
    match output {
        Some(path) => {
            let failed = |e| Fault::because(format!("file {}", path.display()), e, "choose another file");
            let mut file = std::io::BufWriter::new(File::create(path).map_err(failed)?);
            export(&study, &contents, format, &mut file)?;
            file.flush().map_err(failed)?;
        }
        None => {
            let mut text = Vec::new();
            export(&study, &contents, format, &mut text)?;
            output::print(&String::from_utf8_lossy(&text))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
