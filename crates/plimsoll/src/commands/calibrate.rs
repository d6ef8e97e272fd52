use std::fmt::Write;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bench::mpi::costs;
use bench::mpi::request::{self, Paths, Request};
use experiment::statistics::predictive_interval;
use launch::companion::Companion;
use launch::installation::Choice;
use linux::output;
use machine::costs::store;
use machine::costs::{Interval, Item, Row, how};
use machine::{CoreId, Fault, Nanoseconds, Probe, Reading, Result, count};

/// Measures what messages cost on this machine, in under a minute, and keeps it for every command that decides
///
/// mpirun --placement auto, the verdicts of profiles and the plans of offcodes read these costs, and no others. What was not
/// measured is modelled, and its interval is wide. Kept for each host in ~/.local/state/plimsoll (XDG_STATE_HOME); folders
/// in PLIMSOLL_COSTS, of a centre, are read too. As root it also measures between two hosts made for it.
#[derive(clap::Args)]
pub struct Arguments {
    /// Only what takes no MPI: cores, channels and bodies of offcodes (5 s)
    #[arg(long, conflicts_with = "mpi")]
    quick: bool,
    /// The MPI: openmpi, mpich, or the PREFIX that one is installed in
    #[arg(long, default_value = "openmpi", value_parser = mpi)]
    mpi: Choice,
    /// Measure nothing, and show what is kept
    #[arg(long, conflicts_with_all = ["quick", "mpi"])]
    show: bool,
    /// Print the costs as JSON
    #[arg(long)]
    json: bool,
}

fn mpi(text: &str) -> Result<Choice> {
    text.parse()
}

/// Blocks of each carrier.
const ROUNDS: u32 = 5;

/// Probes of each pair of cores, and pairs.
const PROBES: usize = 12;
const PAIRS: usize = 8;

/// What the costs say that they came from.
const SOURCE: &str = "plimsoll calibrate";

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    if !arguments.show {
        measure(&arguments)?;
    }
    let known = store::live()?;
    if arguments.json {
        let text = serde_json::to_string_pretty(known.costs.rows());
        output::print(&(text.map_err(|e| Fault::because("output", e, "report it"))? + "\n"))?;
    } else {
        output::print(&page(known.costs.rows()))?;
    }
    if let Some(note) = known.note {
        eprintln!("plimsoll: {note}");
    }
    Ok(super::exit_code())
}

fn measure(arguments: &Arguments) -> Result<()> {
    linux::signal::watch()?;
    let begun = Instant::now();
    let command = std::env::current_exe()
        .map_err(|e| Fault::because("this program's own file", e, "run it from where it is installed"))?;
    let taken = Nanoseconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64);
    if let Some(others) = others() {
        eprintln!("plimsoll: {others}");
    }
    let mut left_out = Vec::new();
    let mut rows = Vec::new();
    match handover()? {
        Some(cost) => {
            let cost = Reading::Measured(cost);
            rows.push(Row { item: Item::Handover, size: None, cost, source: SOURCE.to_owned(), taken });
        }
        None => left_out.push("handover left out: there is one core".to_owned()),
    }
    offcodes(&command)
        .map_or_else(|fault| left_out.push(format!("offcodes left out: {fault}")), |more| rows.extend(more));
    if !arguments.quick && !linux::signal::interrupted() {
        let request = Request {
            mpi: arguments.mpi.clone(),
            paths: Paths::Both,
            tasks: costs::tasks(),
            targets: false,
            cores: None,
            protocol_core: None,
            rounds: ROUNDS,
            divided: false,
            only: None,
            command,
        };
        let told = |starts| eprintln!("plimsoll: {} of mpirun, a second each", count::of(starts as u64, "start"));
        match request::run(&request, None, told) {
            Ok((findings, end)) => {
                let (more, short) = costs::rows(&findings, SOURCE, taken);
                rows.extend(more);
                if short > 0 {
                    let (costs, fewest) = (count::of(short as u64, "cost"), costs::FEWEST);
                    let stays = "what was kept of them before stays";
                    left_out.push(format!("{costs} left out, of which there are fewer than {fewest} blocks: {stays}"));
                }
                left_out.extend(findings.left_out());
                // What a signal cut short is kept where there are blocks enough.
                end.unwrap_or_else(|fault| left_out.push(fault.to_string()));
            }
            Err(fault) => left_out.push(format!("MPI left out: {fault}")),
        }
    }
    let file = store::keep(rows)?;
    eprintln!("plimsoll: measured in {:.0} s, kept in {}", begun.elapsed().as_secs_f64(), file.display());
    for what in left_out {
        eprintln!("plimsoll: {what}");
    }
    Ok(())
}

/// Whether others use the cores, which makes what is measured wide and slow.
fn others() -> Option<String> {
    let running = || -> Option<f64> {
        let text = std::fs::read_to_string("/proc/loadavg").ok()?;
        let running: f64 = text.split_whitespace().nth(3)?.split('/').next()?.parse().ok()?;
        Some(running - 1.0)
    };
    let looks: Vec<f64> = (0..LOOKS)
        .filter_map(|_| {
            std::thread::sleep(Duration::from_millis(30));
            running()
        })
        .collect();
    let mean = looks.iter().sum::<f64>() / looks.len().max(1) as f64;
    let words = "other programs run here meanwhile: the intervals will be wide; calibrate again when it is quiet";
    (mean > 0.3).then(|| words.to_owned())
}

/// Looks at what else runs.
const LOOKS: usize = 10;

/// One way between two cores, over pairs of them; `None` on one core.
fn handover() -> Result<Option<Interval>> {
    let cores = linux::affinity::allowed()?;
    let Some((first, others)) = cores.split_first() else { return Ok(None) };
    let step = others.len().div_ceil(PAIRS).max(1);
    let mut values = Vec::new();
    for other in others.iter().step_by(step) {
        let probed = (0..PROBES).filter_map(|_| probe(*first, *other));
        values.extend(probed);
    }
    // Near and far pairs are no sample of one distribution: the ends hold them all.
    let predicted = predictive_interval(&values);
    let (least, most) =
        values.iter().fold((f64::MAX, 0.0_f64), |(low, high), value| (low.min(*value), high.max(*value)));
    Ok(predicted.map(|one| Interval { low: one.low.min(least), high: one.high.max(most), ..one }))
}

fn probe(one: CoreId, other: CoreId) -> Option<f64> {
    ports::probe::between(one, other).ok().map(Probe::nanoseconds)
}

/// What the program of the offcodes measures: channels and bodies.
fn offcodes(command: &Path) -> Result<Vec<Row>> {
    let program = Companion::Offcodes.find(command)?;
    let subject = || "costs of offcodes";
    let output = Command::new(&program)
        .arg("costs")
        .output()
        .map_err(|e| Fault::because(subject(), e, "check that it may be executed"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Fault::new(subject(), said.trim().trim_start_matches("plimsoll: "), "run it again"));
    }
    serde_json::from_slice(&output.stdout).map_err(|e| Fault::because(subject(), e, "build both programs anew: `make`"))
}

/// The costs as a table: an item, then its sizes.
fn page(rows: &[Row]) -> String {
    let mut page = String::new();
    let mut last = None;
    for row in rows {
        let cost = match &row.cost {
            Reading::Measured(interval) | Reading::Modelled(interval) => interval.to_string(),
            Reading::Absent { reason } | Reading::NotPermitted { reason, .. } => reason.clone(),
        };
        let how = how(&row.cost);
        let _ = match row.size {
            None => writeln!(page, "{}\n  {:>8}  {cost}, {how}", row.item, ""),
            Some(size) => {
                let heading = last != Some(&row.item);
                let heading = if heading { format!("{}\n", row.item) } else { String::new() };
                writeln!(page, "{heading}  {:>8}  {cost}, {how}", size.to_string())
            }
        };
        last = Some(&row.item);
    }
    page
}
