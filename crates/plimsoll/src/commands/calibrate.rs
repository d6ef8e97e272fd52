use std::fmt::Write;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use bench::mpi::contender::WantedHosts;
use bench::mpi::costs;
use bench::mpi::request::{self, Request};
use launch::companion::Companion;
use launch::installation::Choice;
use linux::output;
use machine::costs::store;
use machine::costs::{Interval, Item, Row, how};
use machine::{Fault, Reading, Result, count};
use rounds::statistics::predictive_interval;

use super::outputs::{self, Json};
use crate::machine_state::{self, MachineState};
use crate::progress::Working;

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
    #[arg(long, value_name = "MPI", default_value = "openmpi", value_parser = mpi)]
    mpi: Choice,
    /// Measure nothing, and show what is kept
    #[arg(long, conflicts_with_all = ["quick", "mpi"])]
    show: bool,
    #[command(flatten)]
    json: Json,
}

fn mpi(text: &str) -> Result<Choice> {
    text.parse()
}

/// The number of blocks of each carrier.
const ROUNDS: u32 = 5;

/// The number of probes of each pair of cores, and time between reads of the running threads.
const PROBES: usize = 12;
const BETWEEN_READS: Duration = Duration::from_millis(30);

/// The source that the costs name.
const SOURCE: &str = "plimsoll calibrate";

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    if !arguments.show && !measure(&arguments)? {
        eprintln!("plimsoll: a signal ended it; nothing of it is kept, and what was known stays");
        return Ok(super::exit_code());
    }
    let known = store::live()?;
    let rows = known.costs.rows();
    let shown = || output::page(&format!("{}{}", heading(rows, &MachineState::of(&known)), page(rows)));
    arguments.json.tell(|| outputs::json(&rows), shown)?;
    if let Some(note) = known.note {
        eprintln!("plimsoll: {note}");
    }
    Ok(super::exit_code())
}

/// Returns false where a signal ended it early: then nothing is kept.
fn measure(arguments: &Arguments) -> Result<bool> {
    linux::signal::watch()?;
    let begun = Instant::now();
    let command = machine::here::program()?;
    let taken = machine::here::now();
    let others = machine_state::others(BETWEEN_READS);
    if machine_state::is_loaded(others) {
        eprintln!(
            "plimsoll: other programs run here meanwhile: the intervals will be wide; calibrate again when it is quiet"
        );
    }
    let working = Working::on("the way between two cores");
    let mut left_out = Vec::new();
    let mut rows = Vec::new();
    match handover()? {
        Some(cost) => {
            let cost = Reading::Measured(cost);
            rows.push(Row { item: Item::Handover, size: None, cost, source: SOURCE.to_owned(), taken });
        }
        None => left_out.push("handover left out: there is one core".to_owned()),
    }
    working.say("channels and bodies of offcodes, 5 s");
    offcodes(&command)
        .map_or_else(|fault| left_out.push(format!("offcodes left out: {fault}")), |more| rows.extend(more));
    if !arguments.quick && !linux::signal::interrupted() {
        let request = Request {
            mpi: arguments.mpi.clone(),
            hosts: WantedHosts::Both,
            tasks: costs::tasks(),
            targets: false,
            cores: None,
            protocol_core: None,
            rounds: ROUNDS,
            divided: false,
            only: None,
            command,
        };
        let told = |starts| working.say(&format!("{} of mpirun, a second each", count::of(starts as u64, "start")));
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
                end.unwrap_or_else(|fault| left_out.push(fault.to_string()));
            }
            Err(fault) => left_out.push(format!("MPI left out: {fault}")),
        }
    }
    drop(working);
    if linux::signal::interrupted() {
        return Ok(false);
    }
    let file = store::keep(rows, others.filter(|_| !arguments.quick))?;
    eprintln!("plimsoll: measured in {:.0} s, kept in {}", begun.elapsed().as_secs_f64(), file.display());
    for what in left_out {
        eprintln!("plimsoll: {what}");
    }
    Ok(true)
}

/// Latency one way between two cores, over pairs of them; `None` on one core.
fn handover() -> Result<Option<Interval>> {
    let values = machine_state::latencies(PROBES)?;
    // Near and far pairs are no sample of one distribution: the interval contains the values of both.
    let predicted = predictive_interval(&values);
    let (least, most) =
        values.iter().fold((f64::MAX, 0.0_f64), |(low, high), value| (low.min(*value), high.max(*value)));
    Ok(predicted.map(|one| Interval { low: one.low.min(least), high: one.high.max(most), ..one }))
}

/// Measurements by the program of the offcodes: channels and bodies.
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

/// Age and completeness of the costs, and what has changed since they were measured.
fn heading(rows: &[Row], state: &MachineState) -> String {
    let Some(age) = state.age() else {
        return "Nothing is measured here: all costs are modelled. Next: plimsoll calibrate\n".to_owned();
    };
    let trip =
        |between: bool| move |item: &Item| matches!(item, Item::HalfTrip(way) if way.network.is_some() == between);
    type Is<'a> = &'a dyn Fn(&Item) -> bool;
    let parts: [(&str, Is); 5] = [
        ("the way between two cores", &|item| *item == Item::Handover),
        ("messages within the host", &trip(false)),
        ("messages between hosts", &trip(true)),
        ("channels of offcodes", &|item| matches!(item, Item::Crossing(..) | Item::Call)),
        ("bodies of offcodes", &|item| matches!(item, Item::Entry(_))),
    ];
    let missing = parts.iter().filter(|(_, is)| !rows.iter().any(|row| is(&row.item)));
    let missing: Vec<&str> = missing.map(|(what, _)| *what).collect();
    let whole = match missing.is_empty() {
        true => "all that plimsoll calibrate measures".to_owned(),
        false => format!("not measured, and modelled: {}", missing.join(", ")),
    };
    let changed = state.changed().map_or_else(String::new, |changed| format!("{changed}\n"));
    format!("{}, measured {age}; {whole}\n{changed}\n", count::of(rows.len() as u64, "cost"))
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

#[cfg(test)]
mod tests {
    use machine::costs::Way;
    use machine::costs::store::Known;
    use machine::{Bytes, Costs, Nanoseconds, SiteKind};

    use super::*;

    #[test]
    fn costs_say_how_old_and_how_complete_they_are() {
        let now = machine::here::now();
        let ago = |hours: u64| Nanoseconds(now.0 - hours * 3_600_000_000_000);
        let row = |item, taken| Row {
            item,
            size: Some(Bytes(8)),
            cost: Reading::Measured(Interval { low: 0.0, middle: 1.0, high: 1e9 }),
            source: SOURCE.to_owned(),
            taken,
        };
        let trip = |network: Option<&str>| {
            Item::HalfTrip(Way {
                carrier: "plimsoll".into(),
                mpi: "MPI".into(),
                placement: SiteKind::App,
                network: network.map(str::to_owned),
            })
        };
        let heading = |rows: &[Row]| {
            let known = Known { costs: Costs::of(rows.to_vec()), ..Known::default() };
            heading(rows, &MachineState::of(&known))
        };
        assert!(heading(&[]).starts_with("Nothing is measured here"));
        let rows = [row(Item::Handover, ago(4)), row(trip(None), ago(97))];
        let missing = "messages between hosts, channels of offcodes, bodies of offcodes";
        let said = heading(&rows);
        let start = format!("2 costs, measured 4 days to 4 hours ago; not measured, and modelled: {missing}\n");
        assert!(said.starts_with(&start), "{said}");
        let body = Item::Entry(machine::BodyKind::Native);
        let all = [row(trip(Some("udp")), ago(97)), row(Item::Call, ago(97)), row(body, ago(97))];
        let said = heading(&[rows.as_slice(), &all].concat());
        let whole = "5 costs, measured 4 days to 4 hours ago; all that plimsoll calibrate measures\n";
        assert!(said.starts_with(whole), "{said}");
    }
}
