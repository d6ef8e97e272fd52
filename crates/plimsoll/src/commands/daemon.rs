use std::path::{Path, PathBuf};
use std::process::ExitCode;

use daemon::jobs::Job;
use daemon::{Counts, Daemon, Decision, JobStatus, RankStatus, Settings, Shown, Status};
use linux::{clock, output};
use machine::text::Table;
use machine::{Fault, Nanoseconds, Result, count};
use mapping::decision;

use super::outputs::{self, Json};

/// Watches the MPI jobs that run here and moves ranks with slack onto cores of which others take a part.
///
/// It moves only ranks that their launcher bound, within their control group and NUMA node, judges each move by what the
/// job gets done, takes back what did not help, and puts every affinity back when the job or the daemon ends, after a
/// kill -9 at the next start. docs/mapping.md has the rules.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_help_heading = "Commands")]
pub struct Arguments {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    run: Run,
}

#[derive(clap::Subcommand)]
enum Action {
    Status(Show),
}

#[derive(clap::Args)]
struct Run {
    /// Only this job, by the folder of its profile or the process number of a rank [default: all that this user may see]
    #[arg(value_name = "JOB")]
    job: Option<PathBuf>,
    #[command(flatten)]
    folder: Folder,
    /// Decide and say so, but move nobody
    #[arg(long)]
    dry_run: bool,
    /// End after so long [default: when interrupted]
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    time: Option<Nanoseconds>,
    /// Time of one observation
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time)]
    window: Nanoseconds,
    /// Windows in a row in each of which a move must promise enough
    #[arg(long, value_name = "N", default_value_t = decision::Settings::default().steady)]
    steady: usize,
    /// What a move must save at least, in percent of the job's time
    #[arg(long, value_name = "PERCENT", default_value_t = decision::Settings::default().minimal_gain * 100.0)]
    least_gain: f64,
    /// Moves within an hour and job, at most
    #[arg(long, value_name = "N", default_value_t = decision::Settings::default().moves_an_hour)]
    moves_an_hour: usize,
    /// Write figures for Prometheus there after each window, as node_exporter's textfile collector reads them
    #[arg(long, value_name = "FILE")]
    metrics: Option<PathBuf>,
    /// Add every observation to a file, a line of JSON each
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

#[derive(clap::Args)]
struct Folder {
    /// The daemon's folder: its lock, journal and decisions [default: /run/plimsoll for root, else
    /// $XDG_RUNTIME_DIR/plimsoll]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

/// Show what the daemon sees, and what it decided last.
#[derive(clap::Args)]
struct Show {
    #[command(flatten)]
    folder: Folder,
    #[command(flatten)]
    json: Json,
    /// Decisions to show, the last ones
    #[arg(long, value_name = "N", default_value_t = 10)]
    decisions: usize,
}

impl Folder {
    fn path(self) -> Result<PathBuf> {
        self.state.map_or_else(daemon::folder, Ok)
    }
}

fn time(text: &str) -> Result<Nanoseconds> {
    Nanoseconds::within(text, Nanoseconds(50_000_000), Nanoseconds::of_seconds(10_000_000))
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    match arguments.action {
        Some(Action::Status(show)) => status(show),
        None => attend(arguments.run),
    }
}

fn attend(run: Run) -> Result<ExitCode> {
    if !(0.0..=100.0).contains(&run.least_gain) {
        return Err(Fault::new("--least-gain", "it is no share of the time", "name percent, from 0 to 100"));
    }
    let window = run.window.duration();
    let deciding = decision::Settings {
        steady: run.steady.max(1),
        minimal_gain: run.least_gain / 100.0,
        moves_an_hour: run.moves_an_hour,
        ..decision::Settings::default()
    };
    let only = run.job.map(|job| Job::named(&job)).transpose()?;
    let settings = Settings { window, dry_run: run.dry_run, only, record: run.record, metrics: run.metrics, deciding };
    linux::signal::watch()?;
    let folder = run.folder.path()?;
    let told = |decision: &Decision| output::tell(&format!("plimsoll daemon: {decision}\n"));
    let mut daemon = Daemon::start(&folder, settings, told)?;
    eprintln!("plimsoll daemon: watches, with its folder at {}", folder.display());
    let began = clock::monotonic();
    let end = run.time.map(|time| Nanoseconds(began.0 + time.0));
    let mut due = began;
    while !linux::signal::interrupted() && end.is_none_or(|end| clock::monotonic() < end) {
        daemon.turn()?;
        // A window that took too long does not make the next ones short.
        due = Nanoseconds((due.0 + window.as_nanos() as u64).max(clock::monotonic().0));
        let until = end.map_or(due, |end| due.min(end));
        linux::signal::sleep_until(until);
    }
    drop(daemon);
    Ok(linux::signal::exit_status_of_server().map_or(ExitCode::SUCCESS, ExitCode::from))
}

fn status(show: Show) -> Result<ExitCode> {
    let folder = show.folder.path()?;
    let shown = Shown::read(&folder, show.decisions)?;
    show.json.tell(|| outputs::json(&shown), || output::page(&told(&shown, &folder, output::width())))?;
    Ok(if shown.running { ExitCode::SUCCESS } else { ExitCode::from(3) })
}

fn told(shown: &Shown, folder: &Path, width: usize) -> String {
    let Shown { running, status, decisions } = shown;
    let mut lines = Vec::new();
    if let Some(Status { pid, window, dry_run, counts, cpu_share, .. }) = status {
        let Counts { windows, moves, confirmed, undone, refused, restored } = counts;
        let state = match (running, dry_run) {
            (true, false) => "runs",
            (true, true) => "runs, and moves nobody (--dry-run)",
            (false, _) => "does not run; its last state",
        };
        lines.push(format!("plimsoll daemon {state}: process {pid}, {windows} windows of {window} s"));
        lines.push(format!(
            "{}, {confirmed} confirmed, {undone} undone, {refused} refused; {} put back; {:.2} % of a core",
            count::of(*moves, "move"),
            count::of(*restored, "process"),
            cpu_share * 100.0
        ));
    } else {
        lines.push(match running {
            true => "plimsoll daemon starts".into(),
            false => format!(
                "plimsoll daemon does not run, and none has used {}; start one with plimsoll daemon, or name its folder with \
                 --state",
                folder.display()
            ),
        });
    }
    for job in status.iter().flat_map(|status| &status.jobs) {
        lines.push(format!("\n{} (seen by {})\n{}", job.name, job.sees, table(job).text(width).trim_end()));
        lines.extend(job.notes.iter().map(|note| format!("  {note}")));
    }
    if !decisions.is_empty() {
        lines.push("\nDecisions, the last ones:".into());
        lines.extend(decisions.iter().map(|decision| format!("  {} {decision}", time_of_day(decision.at))));
    }
    lines.join("\n") + "\n"
}

fn table(job: &JobStatus) -> Table {
    let share = |share: Option<f64>| share.map_or("-".into(), |share| format!("{:.0} %", share * 100.0));
    let mut table = Table::new(["rank", "host", "cores", "taken", "mpi", "wait", ""]);
    for RankStatus { rank, host, cores, taken, mpi, wait, held, .. } in &job.ranks {
        let held = held.clone().unwrap_or_default();
        table.row([rank.to_string(), host.clone(), cores.clone(), share(*taken), share(*mpi), share(*wait), held]);
    }
    table
}

/// The time of day, UTC.
fn time_of_day(milliseconds: u64) -> String {
    let second = milliseconds / 1000 % 86_400;
    format!("{:02}:{:02}:{:02} UTC", second / 3600, second / 60 % 60, second % 60)
}
