//! What the daemon costs: a move, to the rank that is moved, and its own share of a core with 64 ranks watched.
//!
//! `cargo run --release -p daemon --example cost`. The ranks are this program again: one that does nothing but read the
//! clock and keeps each gap between two readings, and 64 that sleep.

use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use daemon::jobs::Job;
use daemon::journal::Journal;
use daemon::{Daemon, Settings, mover, process};
use linux::{affinity, clock};
use machine::CpuSet;
use mapping::decision;

const ROLE: &str = "PLIMSOLL_COST_ROLE";
const MOVES: usize = 1000;
const RANKS: u32 = 64;
/// Gaps that are shorter are reads of the clock.
const GAP: u64 = 500;
/// A rank pays for a move until so long after it, ns.
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

/// Reads the clock until its input ends, and prints each gap: when it ended, and how long it was.
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
    let window = Duration::from_secs(1);
    let settings = Settings {
        window,
        dry_run: true,
        only: Some(Job::named(ranks[0].0.id().to_string().as_ref())?),
        record: None,
        metrics: Some(folder.path().join("plimsoll.prom")),
        deciding: decision::Settings::default(),
    };
    let mut daemon = Daemon::start(&folder.path().join("state"), settings, |_| {})?;
    let before = linux::accounting::own_thread_time();
    let began = clock::monotonic();
    for _ in 0..20 {
        daemon.turn()?;
        std::thread::sleep(window);
    }
    let (used, passed) = (linux::accounting::own_thread_time() - before, clock::monotonic() - began);
    let share = used.0 as f64 / passed.0 as f64 * 100.0;
    println!("watching {RANKS} ranks by scheduling data: {share:.3} % of a core");
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    match std::env::var(ROLE).as_deref() {
        Ok("spin") => spin(),
        Ok(_) => std::io::stdin().read(&mut [0]).map(drop).map_err(Into::into),
        Err(_) => moves().and_then(|()| watching()),
    }
}
