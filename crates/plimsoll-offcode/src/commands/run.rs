//! `plimsoll run`: starts an application of offcodes and keeps it up.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use experiment::ledger::Ledger;
use machine::{Result, count};
use offcode::{Activity, Registry};
use runtime::app_file::AppFile;
use runtime::assembly::{self, Assembly};
use runtime::control::Control;
use runtime::measured::nothing;
use runtime::objective::Objective;
use runtime::rebalance::Watch;
use runtime::site::core::Protection;
use runtime::site::residents::{Idle, Rest};

use super::{expected, ps};
use linux::output;

/// Time between two looks at requests and limits, while there is something to do.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// The same for an application that ends with a count of uses, which no site announces.
const USES_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Starts the offcodes of an application file where its plan says, and runs them until a limit that the file sets, a
/// signal or `plimsoll stop`
///
/// What each offcode is expected to take for a message goes to the ledger before they start; what came is beside it at the
/// end (plimsoll ledger).
#[derive(clap::Args)]
pub struct Arguments {
    /// Application file
    #[arg(value_name = "APP.toml")]
    file: PathBuf,
    /// Place of an instance that the file creates, such as example.filter=xdp:eth0:native; may be given several times
    #[arg(long, value_name = "INSTANCE=SITE")]
    at: Vec<String>,
    /// Attribute of an instance that the file creates, such as example.filter.LIMIT=64; may be given several times
    #[arg(long, value_name = "INSTANCE.NAME=VALUE")]
    set: Vec<String>,
    /// What keeps other work off dedicated cores: nothing, best, cpuset or deadline
    #[arg(long, default_value = "nothing", value_name = "MEANS")]
    shield: Protection,
    /// What the plan keeps small: host-cpu, latency or spare=SITE [default: what the file says, or host-cpu]
    #[arg(long, value_name = "OBJECTIVE")]
    objective: Option<Objective>,
    /// Moves an offcode that can be moved, and is pulled to no other, to another site of the file where it takes at least 10 %
    /// less of this host's cores: as measured here, and as its manifest states for there
    #[arg(long)]
    rebalance: bool,
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    // This is all that a killed runtime can leave behind; all else ends with its holder.
    let removed = linux::shield::remove_remains()?;
    if removed > 0 {
        let shields = count::of(removed as u64, "shield");
        eprintln!("plimsoll run: removed {shields} that a killed process had left");
    }
    let mut file = AppFile::open(&arguments.file)?;
    arguments.at.iter().try_for_each(|place| file.place(place))?;
    arguments.set.iter().try_for_each(|attribute| file.set(attribute))?;
    linux::signal::watch()?;
    let log: runtime::site::residents::Log = Arc::new(|line| eprintln!("plimsoll run: {line}"));
    // A service user may have no home: the application runs all the same.
    let noted = |fault| eprintln!("plimsoll run: what is expected is not kept: {fault}");
    let ledger = Ledger::open().map_err(noted).ok();
    let told = ledger.as_ref().map(|ledger| expected::told(ledger, &file.name));
    let earlier = |of: &_, quantity: &_| told.as_ref().map_or_else(|| nothing(of, quantity), |told| told(of, quantity));
    let objective = arguments.objective.as_ref().unwrap_or(&file.objective);
    let planned = assembly::plan(&file, Registry::new(), objective, &earlier)?;
    let expected = planned.expected.clone();
    drop(told);
    let kept = ledger.map(|mut ledger| expected::predict(&mut ledger, &file.name, &expected).map(|()| ledger));
    let ledger = kept.and_then(|kept| kept.map_err(noted).ok());
    let mut assembly = assembly::start(planned, arguments.shield, log)?;
    let mut control = Control::open(&file.name)?;
    for note in &assembly.notes {
        eprintln!("plimsoll run: {note}");
    }
    output::print(&ps::page(&control.report(&mut assembly.runtime)))?;
    let watch = arguments.rebalance.then(Watch::default);
    let why = keep_up(&file, &mut assembly, &mut control, watch)?;
    let last = control.report(&mut assembly.runtime);
    let came = ledger.map_or(Ok(Vec::new()), |mut ledger| expected::settle(&mut ledger, &expected, &last));
    let came: String = came.map_err(noted).unwrap_or_default().iter().map(|line| format!("  {line}\n")).collect();
    output::print(&format!("{why}; at the end:\n{}{came}", ps::page(&last)))?;
    // The offcodes go before the name: whoever waits for the name to go finds everything taken back.
    drop(assembly);
    drop(control);
    Ok(linux::signal::exit_status_of_server().map_or(ExitCode::SUCCESS, ExitCode::from))
}

fn keep_up(file: &AppFile, assembly: &mut Assembly, control: &mut Control, mut watch: Option<Watch>) -> Result<String> {
    let start = Instant::now();
    let (mut looked, mut idle, mut slept) = (start, Idle::new(), false);
    loop {
        let (activity, arrived) = (assembly.runtime.turn()?, assembly.arrived);
        assembly.drain()?;
        if activity == Activity::Worked || assembly.arrived > arrived {
            idle = Idle::new();
        } else {
            let left = file.duration.map(|limit| limit.saturating_sub(start.elapsed()));
            let uses = file.count.map(|_| USES_POLL_INTERVAL);
            let window = watch.as_ref().map(Watch::left);
            slept |= rest(idle.rest(), assembly, control, [left, uses, window]);
        }
        if !slept && looked.elapsed() < POLL_INTERVAL {
            continue;
        }
        looked = Instant::now();
        if let Some(watch) = &mut watch {
            for line in watch.look(&mut assembly.runtime)? {
                eprintln!("plimsoll run: {line}");
            }
        }
        if linux::signal::interrupted() {
            return Ok("interrupted".into());
        }
        if control.serve(&mut assembly.runtime, std::mem::take(&mut slept)) {
            return Ok("stopped".into());
        }
        if file.duration.is_some_and(|limit| start.elapsed() >= limit) {
            return Ok(format!("ended after {:.1} s, as the file says", start.elapsed().as_secs_f64()));
        }
        if let Some(count) = file.count
            && assembly.uses() >= count
        {
            return Ok(format!("ended after {count} calls and messages, as the file says"));
        }
    }
}

/// Rests. True where that was a sleep, from which anything may have woken the thread, at the latest one of `limits`.
fn rest(rest: Rest, assembly: &mut Assembly, control: &Control, limits: [Option<Duration>; 3]) -> bool {
    let turn = match rest {
        Rest::Turn => return false,
        Rest::Nap => {
            std::thread::sleep(Idle::NAP);
            return false;
        }
        Rest::Sleep(turn) => turn,
    };
    let mut sleep = control.sleep();
    limits.into_iter().flatten().for_each(|limit| sleep.at_most(limit));
    sleep.until_interrupted();
    match assembly.arm(&mut sleep, turn) {
        true => sleep.begin(),
        false => std::thread::sleep(Idle::NAP),
    }
    true
}
