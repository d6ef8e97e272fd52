//! What the daemon costs: a move, to the rank that is moved, and its own share of a core with 64 ranks watched.
//!
//! `cargo bench -p daemon --bench cost`. The ranks are this program again: one that does nothing but read the
//! clock and keeps each gap between two readings, and 64 that sleep. Where there is an MPI, 64 ranks of a real program
//! follow, under `plimsoll profile`: they mostly sleep, and exchange with their neighbours some dozen times a second.

use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use daemon::jobs::Job;
use daemon::journal::Journal;
use daemon::{Daemon, Settings, Shown, mover, process};
use launch::family::Family;
use linux::{affinity, clock};
use machine::CpuSet;
use mapping::decision;
use testbed::recording::Recording;
use testbed::{Mpi, Place};

const ROLE: &str = "PLIMSOLL_COST_ROLE";
const MOVES: usize = 1000;
const RANKS: u32 = 64;
/// Windows in which the daemon is measured.
const WINDOWS: u32 = 20;
/// A job that takes longer is ended.
const LIMIT: Duration = Duration::from_secs(180);
/// Shorter gaps are mere reads of the clock, ns.
const GAP: u64 = 500;
/// The time after a move in which gaps are charged to it, ns.
const AFTERWARDS: u64 = 200_000;

struct Rank(Child);

impl Drop for Rank {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(role: &str, rank: u32, cores: &CpuSet) -> Result<Rank, Box<dyn Error>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.env(ROLE, role).env("PMIX_NAMESPACE", "cost").env("OMPI_COMM_WORLD_RANK", rank.to_string());
    affinity::confine_child(&mut command, &cores.iter().collect::<Vec<_>>())?;
    Ok(Rank(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?))
}

/// Reads the clock until its input ends, and prints each gap: its end and its length.
fn spin() -> Result<(), Box<dyn Error>> {
    for _ in 0..3 {
        std::thread::spawn(|| std::thread::sleep(Duration::from_secs(3600)));
    }
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || (std::io::stdin().read(&mut [0]), tell.send(())));
    let (mut gaps, mut before) = (Vec::with_capacity(1 << 20), clock::monotonic());
    println!("ready");
    while told.try_recv().is_err() {
        for _ in 0..1000 {
            let now = clock::monotonic();
            if now.0 - before.0 > GAP {
                gaps.push((now.0, now.0 - before.0));
            }
            before = now;
        }
    }
    let mut out = std::io::stdout().lock();
    gaps.into_iter().try_for_each(|(at, gap)| writeln!(out, "{at} {gap}"))?;
    Ok(())
}

fn quantile(sorted: &[u64], share: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * share) as usize] as f64 / 1000.0
}

fn moves() -> Result<(), Box<dyn Error>> {
    let cores = affinity::allowed()?;
    let [one, two, ..] = cores[..] else { return Err("a move needs two cores".into()) };
    let [one, two]: [CpuSet; 2] = [one, two].map(|core| [core].into_iter().collect());
    let folder = tempfile::tempdir()?;
    let mut rank = start("spin", 0, &one)?;
    let mut out = BufReader::new(rank.0.stdout.take().ok_or("no output")?);
    out.read_line(&mut String::new())?;
    let process = process::identify(rank.0.id()).ok_or("it has ended")?;
    let mut journal = Journal::open(folder.path(), "cost")?;
    let (mut from, mut to) = (one, two);
    let mut times = Vec::new();
    for _ in 0..MOVES {
        let began = clock::monotonic().0;
        journal.note(process, &from, &to)?;
        mover::settle(process, &from, &to)?;
        times.push((began, clock::monotonic().0));
        std::mem::swap(&mut from, &mut to);
        std::thread::sleep(Duration::from_millis(2));
    }
    drop(rank.0.stdin.take());
    let mut text = String::new();
    out.read_to_string(&mut text)?;
    let gap = |line: &str| {
        let (at, gap) = line.split_once(' ')?;
        Some((at.parse::<u64>().ok()?, gap.parse::<u64>().ok()?))
    };
    let gaps: Vec<(u64, u64)> = text.lines().filter_map(gap).collect();
    let lost = |(from, to): &(u64, u64)| {
        gaps.iter().filter(|(at, _)| (*from..to + AFTERWARDS).contains(at)).map(|(_, gap)| gap).sum::<u64>()
    };
    let mut lost: Vec<u64> = times.iter().map(lost).collect();
    let mut took: Vec<u64> = times.iter().map(|(from, to)| to - from).collect();
    lost.sort_unstable();
    took.sort_unstable();
    for (what, sorted) in [("the rank loses", &lost), ("the daemon takes", &took)] {
        let (median, most) = (quantile(sorted, 0.5), quantile(sorted, 0.99));
        println!("a move of 5 threads: {what} {median:.1} us in the median, {most:.1} us at p99 ({MOVES} moves)");
    }
    Ok(())
}

fn watching() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let all: CpuSet = affinity::allowed()?.into_iter().collect();
    let ranks: Vec<Rank> = (0..RANKS).map(|rank| start("sleep", rank, &all)).collect::<Result<_, _>>()?;
    let only = Job::named(ranks[0].0.id().to_string().as_ref())?;
    let share = share_of_a_core(folder.path(), only)?;
    println!("watching {RANKS} ranks by scheduling data: {share:.3} % of a core");
    Ok(())
}

/// The daemon's share of a core while it watches this job, in percent, from the window in which all of the job's ranks are rated.
fn share_of_a_core(folder: &Path, only: Job) -> Result<f64, Box<dyn Error>> {
    let window = Duration::from_secs(1);
    let settings = Settings {
        window,
        dry_run: true,
        only: Some(only),
        record: None,
        metrics: Some(folder.join("plimsoll.prom")),
        deciding: decision::Settings::default(),
    };
    let mut daemon = Daemon::start(&folder.join("state"), settings, |_| {})?;
    for _ in 0..2 {
        daemon.turn()?;
        std::thread::sleep(window);
    }
    let used = |daemon: &Daemon| linux::accounting::own_thread_time() + daemon.reading();
    let before = used(&daemon);
    let began = clock::monotonic();
    for _ in 0..WINDOWS {
        daemon.turn()?;
        std::thread::sleep(window);
    }
    let (used, passed) = (used(&daemon) - before, clock::monotonic() - began);
    let shown = Shown::read(&folder.join("state"), 0)?.status;
    let of_job = shown.as_ref().and_then(|status| status.jobs.first()).ok_or("no job was seen")?;
    let known = of_job.ranks.iter().filter(|rank| rank.wait.is_some()).count();
    println!("{}: {} ranks, the waiting of {known} is known", of_job.sees, of_job.ranks.len());
    Ok(used.0 as f64 / passed.0 as f64 * 100.0)
}

/// Ranks that sleep, and exchange with their neighbours and with all until a moment that rank 0 names. They poll for messages and
/// sleep, so that more ranks than cores take little time.
const EXCHANGE: &str = r#"
#include <mpi.h>
#include <stdlib.h>
#include <unistd.h>
static void until(int count, MPI_Request *requests)
{
    int done = 0;
    while (MPI_Testall(count, requests, &done, MPI_STATUSES_IGNORE), !done)
        usleep(5000);
}
int main(int argc, char **argv)
{
    static char out[8192], in[8192];
    int rank, size, on = 1, all = 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    double end = MPI_Wtime() + atof(argv[1]);
    for (int round = 0; all; round++) {
        MPI_Request requests[2], sum;
        usleep(20000 + 500 * rank);
        MPI_Irecv(in, sizeof in, MPI_BYTE, (rank + size - 1) % size, 0, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(out, round % 2 ? 8 : sizeof out, MPI_BYTE, (rank + 1) % size, 0, MPI_COMM_WORLD, &requests[1]);
        until(2, requests);
        on = MPI_Wtime() < end;
        MPI_Iallreduce(&on, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD, &sum);
        until(1, &sum);
    }
    MPI_Finalize();
    return 0;
}
"#;

fn watching_profiled() -> Result<(), Box<dyn Error>> {
    let Some(mpi) = Mpi::system(Family::OpenMpi) else { return Ok(()) };
    let place = Place::new();
    let program = mpi.compile_text(EXCHANGE, &place.path().join("exchange"));
    let folder = place.path().join("profile");
    let ranks = folder.join(record::folder::RANKS);
    std::thread::scope(|scope| {
        let job = scope.spawn(|| {
            // The program runs longer than the measurement, counted from the beginning of its last rank.
            let recording = Recording::under(&mpi, RANKS as usize, &program).arguments(&["45"]).cores();
            // Ranks that begin together wait for each other, and beside others must not spin.
            let recording = recording.env("OMPI_MCA_mpi_yield_when_idle", "1");
            recording.run(&place, "profile", LIMIT).well("the ranks");
        });
        let placed = || {
            let entries = std::fs::read_dir(&ranks).into_iter().flatten().flatten();
            let headers = entries.filter_map(|entry| record::rank::Rank::header(&entry.path()).ok());
            headers.filter(|header| header.initialized != 0).count()
        };
        while placed() < RANKS as usize && !job.is_finished() {
            std::thread::sleep(Duration::from_millis(100));
        }
        let share = share_of_a_core(place.path(), Job::named(&folder)?)?;
        println!("watching {RANKS} profiled ranks: {share:.3} % of a core");
        Ok(())
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    match std::env::var(ROLE).as_deref() {
        Ok("spin") => spin(),
        Ok(_) => std::io::stdin().read(&mut [0]).map(drop).map_err(Into::into),
        Err(_) => moves().and_then(|()| watching()).and_then(|()| watching_profiled()),
    }
}
