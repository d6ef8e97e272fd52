use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use daemon::jobs::profiled;
use linux::terminal::{self, Key, Screen};
use machine::bounds::WATCHED_PROFILES;
use machine::budget::Budget;
use machine::{Fault, Nanoseconds, Result};
use profile::live::screen::{self, Sort, Window};
use profile::live::{Here, JobState, Look, Watch};
use profile::printable::printable;

use linux::output;

/// Shows what a job under `plimsoll profile` does now: ranks, cores and calls, as `top` shows processes.
///
/// It only reads the files that the job writes, so any user who may read them can run it. Keys: q quits, s sorts by the
/// next column, arrows and page keys scroll.
#[derive(clap::Args)]
pub struct Arguments {
    /// The profile's folder, or the process number of its `plimsoll profile` [default: the one that runs]
    #[arg(value_name = "JOB")]
    job: Option<PathBuf>,
    /// Print once what every rank did within one interval, and end
    #[arg(long)]
    once: bool,
    /// Time from one refresh to the next
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Nanoseconds,
}

fn interval(text: &str) -> Result<Nanoseconds> {
    Nanoseconds::within(text, Nanoseconds(50_000_000), Nanoseconds::of_seconds(3600))
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let (folder, user) = folder(arguments.job)?;
    let mut watch = Watch::open(&folder, user, Budget::new(WATCHED_PROFILES.total.bytes().0))?;
    let here = here();
    let interval = arguments.interval.duration();
    watch.look(&here);
    if arguments.once || !terminal::is_there() {
        std::thread::sleep(interval);
        let look = watch.look(&here);
        if let ([], [first, ..]) = (&look.ranks[..], &look.notes[..]) {
            let next = "see what it printed, or profile the program again";
            return Err(Fault::new(folder.display().to_string(), printable(first), next));
        }
        let columns = terminal::columns().unwrap_or(usize::MAX);
        let colour = output::colour(&std::io::stdout());
        let window = Window { columns, rows: None, sort: Sort::Rank, scroll: 0, colour };
        output::print(&(screen::lines(&look, window).join("\n") + "\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    linux::signal::watch()?;
    attend(watch, &here, interval)
}

/// This host.
pub(super) fn here() -> Here<'static> {
    Here {
        boot: machine::here::boot().unwrap_or_default(),
        monotonic: &|| linux::clock::monotonic().0,
        pid_namespace: linux::accounting::pid_namespace(),
        is_alive: &linux::accounting::is_there,
    }
}

/// Shows the job until the reader quits. The last state of a job that ends stays.
fn attend(mut watch: Watch, here: &Here, interval: Duration) -> Result<ExitCode> {
    let mut screen = Screen::take()?;
    let colour = output::colour(&std::io::stdout());
    let (mut sort, mut scroll) = (Sort::Rank, 0_usize);
    // A short first interval, so that rates appear soon.
    let mut due = Instant::now() + interval.min(Duration::from_millis(250));
    let mut look = watch.look(here);
    loop {
        let (columns, rows) = screen.size();
        scroll = scroll.min(look.ranks.len().saturating_sub(1));
        screen.show(&screen::lines(&look, Window { columns, rows: Some(rows), sort, scroll, colour }))?;
        let page = rows / 2;
        match screen.key(due.saturating_duration_since(Instant::now()))? {
            Some(Key::Letter('q' | 'Q')) => return Ok(ExitCode::SUCCESS),
            // The exit status that the key's signal would have caused.
            Some(Key::Interrupt) => return Ok(ExitCode::from(130)),
            Some(Key::Letter('s')) => sort = sort.next(),
            Some(Key::Up | Key::Letter('k')) => scroll = scroll.saturating_sub(1),
            Some(Key::Down | Key::Letter('j')) => scroll += 1,
            Some(Key::PageUp) => scroll = scroll.saturating_sub(page),
            Some(Key::PageDown | Key::Letter(' ')) => scroll += page,
            Some(Key::Home) => scroll = 0,
            Some(Key::End) => scroll = usize::MAX,
            _ => {}
        }
        if linux::signal::interrupted() {
            return Ok(super::exit_code());
        }
        if Instant::now() >= due {
            due = Instant::now() + interval;
            if !is_over(&look) {
                let next = watch.look(here);
                // The last activity tells more than the end state.
                look = match is_over(&next) {
                    true => ended(look, next),
                    false => next,
                };
            }
        }
    }
}

fn is_over(look: &Look) -> bool {
    matches!(look.job.state, JobState::Ended { .. })
}

/// The last rates, with how the job and its ranks ended.
fn ended(last: Look, end: Look) -> Look {
    let mut ranks = last.ranks;
    for rank in &mut ranks {
        if let Some(now) = end.ranks.iter().find(|now| (&now.host, now.pid) == (&rank.host, rank.pid)) {
            rank.state = now.state.clone();
        }
    }
    Look { job: end.job, ranks, ..last }
}

/// A profile's folder, and the user whose files are read in it; `None` where the user named the folder.
type Named = (PathBuf, Option<u32>);

fn folder(job: Option<PathBuf>) -> Result<Named> {
    match job {
        Some(folder) if folder.is_dir() => Ok((folder, None)),
        Some(word) => match word.to_str().and_then(|word| word.parse().ok()) {
            Some(pid) => of_process(pid).ok_or_else(|| {
                Fault::new(
                    format!("process {pid}"),
                    "it is no plimsoll profile that this user can see",
                    "name the profile's folder, or see the processes with: pgrep -af 'plimsoll profile'",
                )
            }),
            None => Err(Fault::new(
                word.display().to_string(),
                "it is no folder, and no process number",
                "name a folder that plimsoll profile made",
            )),
        },
        None => only_one(),
    }
}

/// The folder of the profile that the children of a `plimsoll profile` write.
fn of_process(pid: u32) -> Option<Named> {
    let running = profiled().into_iter().find(|(profiler, ..)| *profiler == pid);
    running.map(|(_, folder, user)| (folder, Some(user)))
}

fn only_one() -> Result<Named> {
    let running = profiled();
    match running.as_slice() {
        [(_, folder, user)] => Ok((folder.clone(), Some(*user))),
        [] => Err(Fault::new(
            "no job",
            "no plimsoll profile runs here that this user can see",
            "start one with plimsoll profile, or name its folder: plimsoll top DIR",
        )),
        several => {
            let them: Vec<_> = several.iter().map(|(pid, dir, _)| format!("{pid} ({})", dir.display())).collect();
            Err(Fault::new(
                "which job",
                format!("several run: {}", them.join(", ")),
                "name one by its folder or process number",
            ))
        }
    }
}
