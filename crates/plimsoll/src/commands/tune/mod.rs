//! `plimsoll tune`: from the command that is used today to a faster one, or the proof that there is none.

mod answer;
mod candidates;
mod recording;
mod today;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use chart::clock;
use experiment::ledger::Ledger;
use experiment::trial::conditions::Conditions;
use experiment::trial::design::{Design, MOST_ARMS};
use experiment::trial::judgement::judge;
use experiment::trial::merit::Merit;
use launch::trial::programs;
use linux::output;
use machine::costs::store::{self, Known};
use machine::{Fault, Nanoseconds, Result, shell};
use profile::job::Job;
use profile::verdict::{Evidence, Verdict};
use rounds::contrast::FIRST_LOOK;
use rounds::sitting::End;

use super::expectation::{expectation, over, over_in_mpi, widening};
use super::r#try::judging::Judging;
use super::r#try::{self, CANNOT_TELL, Compared, settled};
use crate::opened::Opened;
use answer::{Decision, Found, STORE, Tried};
use candidates::{Candidate, Candidates};
use today::Today;

/// Finds a faster command line for an MPI program, or proves that there is none.
///
/// It measures what messages cost here where that is not known, records the program once, asks for each carrier, setting and
/// mapping of ranks what a replay expects, and runs the most promising in turn with today's command until the fastest is told.
///
/// Exit status: 0 answered, 3 cannot tell in the time given, 1 a fault.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, override_usage = USAGE)]
pub struct Arguments {
    /// Most time for all runs of the program [default: 10m, less where a batch job ends before]
    #[arg(long, value_name = "TIME", value_parser = str::parse::<Nanoseconds>)]
    budget: Option<Nanoseconds>,
    /// Print what would be done
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    judging: Judging,
    /// Take this profile of the program, made with --trace, in place of a run to record it
    #[arg(long, value_name = "DIR")]
    profile: Option<PathBuf>,
    /// The file that each run reads as its standard input [default: this command's, where that is a file]
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Try also what a replay predicts to be slower
    #[arg(long)]
    all: bool,
    /// Begin a new trial, even where an unfinished one could go on
    #[arg(long)]
    fresh: bool,
    /// Print what was found last in this folder
    #[arg(long, conflicts_with_all = ["command", "profile", "dry_run"])]
    show: bool,
    /// The command as it is used today: a launcher with its program [default: the command of --profile]
    #[arg(required_unless_present_any = ["show", "profile"], trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

const USAGE: &str = "plimsoll tune [OPTIONS] -- mpirun -n 4 PROGRAM..\n       plimsoll tune --show";

const EXAMPLES: &str = "Examples:
  plimsoll tune -- mpirun -n 4 lmp -in in.melt
  plimsoll tune --budget 30m --check 'Energy: (\\S+)~1e-9' -- srun -n 64 ./md
  plimsoll tune --dry-run -- mpirun -n 4 ./program
  plimsoll tune --profile run --budget 4h";

/// The folder of the program's profile.
const PROFILE: &str = ".plimsoll/tune-profile";

/// The margin within which differences do not count.
const MARGIN: f64 = 0.02;

/// Seconds below which a job is judged by the time between MPI_Init and MPI_Finalize: most of its time is its start.
const SHORT: f64 = 1.0;

/// Seconds above which no run is made only to warm up or to verify.
const LONG: f64 = 30.0;

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    if arguments.show {
        answer::show()?;
        return Ok(ExitCode::SUCCESS);
    }
    linux::signal::watch()?;
    let mut begun = Instant::now();
    let (budget, nodes) = r#try::budget(arguments.budget);
    let words = match (&arguments.command[..], &arguments.profile) {
        ([], Some(folder)) => Job::read(folder)?.command,
        (words, _) => words.to_vec(),
    };
    let today = Today::of(words)?;
    let mut known = store::live()?;
    let plan = plan(&arguments, &today, &known, budget);
    if arguments.dry_run {
        output::page(&plan)?;
        return Ok(ExitCode::SUCCESS);
    }
    output::tell(&plan);
    let input = r#try::input(arguments.input.as_deref())?;
    let file = input.as_ref().map(|input| Path::new(&input.file.0));
    if let (Ok(installation), true) = (&today.installation, arguments.profile.is_none() && is_due(&today, &known)) {
        // Calibration serves all programs, and takes none of the budget unless a batch job ends.
        let limit = (!nodes.is_empty()).then(|| Duration::from_nanos(budget.0 / 2));
        match recording::calibrate(installation, limit) {
            Ok(true) => {
                known = store::live()?;
                begun = if nodes.is_empty() { Instant::now() } else { begun };
            }
            Ok(false) => return Ok(super::exit_code()),
            Err(fault) => eprintln!("note: nothing is predicted: {fault}"),
        }
    }
    let folder = arguments.profile.as_deref().unwrap_or(Path::new(PROFILE));
    if arguments.profile.is_none() && !recording::profile(&today.words, folder, file)? {
        return Ok(super::exit_code());
    }
    let opened = Opened::profile(folder, 0).map_err(|fault| unrecorded(fault, folder))?;
    let whole = opened.seconds.unwrap_or_default();
    let Candidates { mut tried, left_out, notes } = Candidates::of(&today, &opened, &known, folder, arguments.all)?;
    let mut found = Found {
        today: shell::words(&today.words),
        trial: None,
        profile: folder.to_owned(),
        limits: limits(&opened, &known),
        predicted: Vec::new(),
        levels: Vec::new(),
        left_out,
        notes,
        verified: None,
    };
    if tried.is_empty() {
        found.keep()?;
        output::page(&answer::render(&found, None, output::width()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let left = budget.0.saturating_sub(begun.elapsed().as_nanos() as u64);
    let beyond = tried.split_off(affordable(whole, Nanoseconds(left), folder)?.min(tried.len()));
    let expected = |of: &Candidate| of.replayed.map_or(1.0, |time| time.middle);
    found.left_out.extend(beyond.iter().map(|of| {
        let why =
            format!("the budget does not reach for it; it is expected to take {:.2}x of today's time", expected(of));
        candidates::LeftOut { name: of.arm.name.clone(), why }
    }));
    let merit = match arguments.judging.is_chosen() || whole >= SHORT {
        true => arguments.judging.merit()?,
        false => {
            let start = "most of the job is its start: it is judged by the time between MPI_Init and MPI_Finalize";
            found.notes.push(start.to_owned());
            Merit::new(Some("mpi"), false)?
        }
    };
    let design = design(&today, &tried, merit, &arguments, nodes, whole, input.as_ref())?;
    predict(&design, &tried, &mut found);
    found.levels = std::iter::once(None).chain(tried.iter().map(|of| of.level)).collect();
    let left = Nanoseconds(budget.0.saturating_sub(begun.elapsed().as_nanos() as u64));
    let names: Vec<&str> = tried.iter().map(|of| of.arm.name.as_str()).collect();
    output::tell(&format!("Trying {}, at most {}\n", names.join(", "), clock::duration(left)));
    let place = r#try::Kept { store: Path::new(STORE), fresh: arguments.fresh };
    let mut began = |number| {
        found.trial = Some(number);
        found.keep()
    };
    let Compared { trial, runs, end } = r#try::compare(&place, design, input.as_ref(), left, &mut began)?;
    let judgement = judge(&trial.design, &runs);
    let decision = Decision::of(&judgement, MARGIN);
    if let (Decision::Take(arm, _), true) = (&decision, whole <= LONG && end != End::Interrupted) {
        match tried[arm - 1].verify(file) {
            Ok(verified) => found.verified = verified,
            Err(fault) => found.notes.push(format!("the chosen command is not verified: {fault}")),
        }
        found.keep()?;
    }
    let told = Tried { trial: &trial, runs: &runs, judgement: &judgement, end };
    output::page(&answer::render(&found, Some(&told), output::width()))?;
    if end == End::Interrupted {
        return Ok(super::exit_code());
    }
    let settled = super::kept(settled::settle(&trial.design, &judgement));
    if !settled.is_empty() {
        let held = settled.iter().filter(|of| of.prediction.expected.holds(of.value)).count();
        output::print(&format!("Of the predictions {held} of {} held: plimsoll ledger\n", settled.len()))?;
    }
    Ok(match decision {
        Decision::Take(..) | Decision::Keep(_) => ExitCode::SUCCESS,
        Decision::CannotTell => ExitCode::from(CANNOT_TELL),
        Decision::Nothing(_) => ExitCode::FAILURE,
    })
}

/// Whether costs under the MPI of the program were never measured here, or long ago.
fn is_due(today: &Today, known: &Known) -> bool {
    let Ok(installation) = &today.installation else { return false };
    known.old || !known.costs.ways().any(|way| way.mpi == installation.to_string())
}

/// The steps to come, and their times.
fn plan(arguments: &Arguments, today: &Today, known: &Known, budget: Nanoseconds) -> String {
    let mut steps = Vec::new();
    match &today.installation {
        Ok(installation) if arguments.profile.is_none() && is_due(today, known) => {
            let why = if known.old { "are old" } else { "are not known" };
            steps.push(format!(
                "measure what messages cost here: costs under {installation} {why} (calibrate, once, about a minute)"
            ));
        }
        _ => {}
    }
    steps.push(match &arguments.profile {
        Some(folder) => format!("read the profile {}", folder.display()),
        None => "run the program once, and record it (profile --trace)".to_owned(),
    });
    steps.push("predict what each carrier, setting and mapping of its ranks would bring (whatif, map)".to_owned());
    steps.push("run the most promising in turn with today's command (try), and verify the fastest".to_owned());
    let steps: String = steps.iter().enumerate().map(|(nth, step)| format!("  {}. {step}\n", nth + 1)).collect();
    format!("Tuning {}\nWithin {}:\n{steps}", shell::words(&today.words), clock::duration(budget))
}

/// The fault for a program without a recording, from the profiler's messages.
fn unrecorded(fault: Fault, folder: &Path) -> Fault {
    let notes = Job::read(folder).map(|job| job.notes).unwrap_or_default();
    match notes.first() {
        Some(note) => Fault::new(fault.subject(), note, "tune an MPI program; plimsoll try compares any commands"),
        None => fault,
    }
}

/// The limits of the program, in words.
fn limits(opened: &Opened, known: &Known) -> String {
    let verdict = opened.summary.as_ref().map(|summary| Verdict::of(&Evidence::of(summary), &known.costs));
    verdict.map_or_else(|| "not known".to_owned(), |verdict| verdict.sentence)
}

/// The number of candidates that can be tried in the time `left`, where a run takes `whole` seconds.
///
/// # Errors
/// There is no time for a single one.
fn affordable(whole: f64, left: Nanoseconds, folder: &Path) -> Result<usize> {
    let each = whole.max(0.05) * f64::from(FIRST_LOOK + warmup(whole));
    let arms = (left.0 as f64 / 1e9 / each) as usize;
    if arms >= 2 {
        return Ok((arms - 1).min(MOST_ARMS - 1));
    }
    let minutes = |candidates: f64| clock::duration(Nanoseconds((1.05e9 * each * (1.0 + candidates)) as u64));
    let cause = format!(
        "a run takes {}: one candidate beside today's command takes {}, four take {}",
        clock::duration(Nanoseconds((whole * 1e9) as u64)),
        minutes(1.0),
        minutes(4.0)
    );
    let folder = shell::path(folder);
    let next = format!("give it a shorter input, or more time: plimsoll tune --profile {folder} --budget TIME");
    Err(Fault::new("the budget", cause, next))
}

fn warmup(whole: f64) -> u32 {
    u32::from(whole <= LONG)
}

fn design(
    today: &Today,
    tried: &[Candidate],
    merit: Merit,
    arguments: &Arguments,
    nodes: String,
    whole: f64,
    input: Option<&launch::trial::Input>,
) -> Result<Design> {
    let folder = std::env::current_dir().map_err(|e| Fault::because("this folder", e, "go to one that is there"))?;
    let arms: Vec<_> = std::iter::once(today.arm()).chain(tried.iter().map(|of| of.arm.clone())).collect();
    let mut files: Vec<(String, String)> = input.map(|input| input.file.clone()).into_iter().collect();
    for arm in &arms {
        files.extend(programs(&arm.command)?);
    }
    files.sort();
    files.dedup();
    let design = Design {
        arms,
        merit,
        check: arguments.judging.check()?,
        margin: MARGIN,
        warmup: warmup(whole),
        folder: folder.display().to_string(),
        programs: files,
        nodes,
        conditions: Conditions {
            input: input.map(|input| input.file.0.clone()),
            proposed: true,
            ..Conditions::default()
        },
    };
    design.checked()
}

/// A prediction for each candidate of which a replay can tell, stored in the ledger before its runs.
///
/// What a pattern finds in the output need not be a time: its predictions are shown, and not stored.
fn predict(design: &Design, tried: &[Candidate], found: &mut Found) {
    let (folder, now) = (found.profile.display().to_string(), &design.arms[0].line);
    let mut ledger = super::kept(Ledger::open().map(Some));
    let mut predicted = vec![None];
    for of in tried {
        let (time, quantity) = match design.merit.mpi {
            true => (of.replayed, over_in_mpi(&of.arm.line, now)),
            false => (of.predicted, over(&of.arm.line, now)),
        };
        let by = widening(ledger.as_ref(), of.changes);
        let note = by.filter(|_| time.is_some()).map(|by| format!("predictions for a {} are {by}", of.changes));
        found.notes.extend(note.filter(|note| !found.notes.contains(note)));
        let of = time.map(|time| expectation(&folder, quantity, now, of.changes, time, of.level).widened(by));
        predicted.push(of.as_ref().map(|of| of.expected));
        if let (Some(of), Some(ledger), None) = (of, &mut ledger, &design.merit.pattern) {
            super::kept(ledger.predict(of).map(drop));
        }
    }
    found.predicted = predicted;
}
