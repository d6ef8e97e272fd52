//! What `plimsoll daemon` gains: two profiled ranks, one with slack, beside a hog on the core of the one without. Steps a
//! second as started, under each other mapping, and with the daemon, in turns.

mod job;
mod page;

use std::path::PathBuf;

use launch::installation::Installation;
use machine::{CoreId, Fault, Nanoseconds, Probe, Result};
use rounds::blocks::{self, Blocks, Plan, Series};
use rounds::estimate::Estimate;
use rounds::statistics::{median, median_interval};
use serde::Serialize;

use self::job::{Job, Watched};
use crate::mpi::program::Program;

pub use page::page;

/// A program, and what it shares a core with.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Case {
    /// Computing of rank 0 and of rank 1 in a step, us.
    pub work: [u32; 2],
    /// Whether the ranks give their core away while they wait.
    pub yields: bool,
    /// What the hog wants of the core of rank 0, percent.
    pub hog: u32,
}

/// Steps longer and shorter than the scheduler's slices, and ranks that spin or yield.
pub const CASES: [Case; 4] = [
    Case { work: [10_000, 1_000], yields: false, hog: 50 },
    Case { work: [3_000, 500], yields: true, hog: 50 },
    Case { work: [300, 50], yields: false, hog: 100 },
    Case { work: [300, 50], yields: true, hog: 100 },
];

machine::named! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Arm {
        Started = "as started",
        Exchanged = "exchanged",
        Watched = "with the daemon",
    }
}

#[derive(Debug, Clone)]
pub struct Request {
    /// The Open MPI to measure with.
    pub installation: Installation,
    pub rounds: u32,
    /// The core of rank 0 and of the hog, and that of rank 1.
    pub cores: (CoreId, CoreId),
    pub cases: Vec<Case>,
    /// From a daemon's start to what is compared.
    pub settling: Nanoseconds,
    /// Time of each block.
    pub time: Nanoseconds,
    /// This program.
    pub command: PathBuf,
}

/// Least share of what is to be gained that the daemon gains, and least of today's steps that are left with it.
pub const GAINED: f64 = 0.5;
pub const KEPT: f64 = 0.98;

/// Steps a second in a block.
#[derive(Debug, Clone, Serialize)]
pub struct Block {
    pub rate: f64,
    pub daemon: Option<Watched>,
}

/// A case with the blocks of its arms, in the order of [`Arm::ALL`].
#[derive(Debug, Clone, Serialize)]
pub struct Measured {
    pub case: Case,
    pub arms: Vec<Series<Block>>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Findings {
    pub library: String,
    pub rounds: u32,
    pub cores: [CoreId; 2],
    pub settling: Nanoseconds,
    pub cases: Vec<Measured>,
}

impl Measured {
    /// Values of whole rounds, by the rates of the arms.
    fn by_round(&self, value: impl Fn([&Block; 3]) -> f64) -> Vec<f64> {
        let of = |arm: Arm, round: u32| {
            self.arms[arm as usize].blocks.iter().find(|taken| taken.round == round).map(|taken| &taken.block)
        };
        let rounds = self.arms[0].blocks.iter().map(|taken| taken.round);
        let whole = rounds
            .filter_map(|round| Some([of(Arm::Started, round)?, of(Arm::Exchanged, round)?, of(Arm::Watched, round)?]));
        whole.map(value).collect()
    }

    /// Steps a second of an arm.
    pub fn rate(&self, arm: Arm) -> Option<Estimate> {
        median_interval(&self.arms[arm as usize].values(|block| Some(block.rate)))
    }

    /// The best fixed mapping, of the two that there are.
    pub fn best(&self) -> Arm {
        let rate = |arm| self.rate(arm).map_or(0.0, |rate| rate.middle);
        if rate(Arm::Exchanged) > rate(Arm::Started) { Arm::Exchanged } else { Arm::Started }
    }

    /// The best mapping over the start, round by round.
    pub fn best_over_start(&self) -> Option<Estimate> {
        let best = self.best() as usize;
        median_interval(&self.by_round(|arms| arms[best].rate / arms[0].rate))
    }

    /// The gained share of what was to be gained; `None` where that is nothing.
    pub fn gained(&self) -> Option<Estimate> {
        let best = self.best();
        let is_told = self.best_over_start().is_some_and(|over| over.low > 1.0 + rounds::contrast::EQUALITY);
        let share = |[start, other, daemon]: [&Block; 3]| (daemon.rate - start.rate) / (other.rate - start.rate);
        (best == Arm::Exchanged && is_told).then(|| median_interval(&self.by_round(share))).flatten()
    }

    /// Steps from the daemon's start on, over those without it.
    pub fn kept(&self) -> Option<Estimate> {
        let whole = |block: &Block| block.daemon.as_ref().map_or(block.rate, |daemon| daemon.whole);
        median_interval(&self.by_round(|[start, _, daemon]| whole(daemon) / start.rate))
    }

    /// Seconds to the first move in the median, of the blocks with a move; their number, that of blocks with a move that was
    /// taken back, and of all.
    pub fn moves(&self) -> (Option<f64>, usize, usize, usize) {
        let daemons: Vec<&Watched> =
            self.arms[Arm::Watched as usize].blocks.iter().filter_map(|taken| taken.block.daemon.as_ref()).collect();
        let moved: Vec<f64> = daemons.iter().filter_map(|daemon| daemon.moved).collect();
        (median(&moved), moved.len(), daemons.iter().filter(|daemon| daemon.undone).count(), daemons.len())
    }
}

const SEED: u64 = 0x0051_1A11_0000_000A;

/// Measures all, or as much as a signal leaves time for; `progress` is told of each block.
///
/// # Errors
/// There is no compiler; the ranks do not start; a signal came before anything was measured.
pub fn measure(request: &Request, mut progress: impl FnMut(&str)) -> Result<Findings> {
    let code = include_str!("slack.c");
    let program = Program::compile(&request.installation, "slack", code, &std::env::temp_dir())?;
    let mut cases = Vec::new();
    for case in &request.cases {
        let job = Job::start(request, &program, case);
        // The signal reaches launchers too.
        let mut measuring = match job {
            Err(_) if linux::signal::interrupted() => break,
            job => Measuring { job: job?, request, case, progress: &mut progress },
        };
        let plan = Plan { groups: vec![Arm::ALL.len()], rounds: request.rounds, seed: SEED };
        let (arms, _) = blocks::conduct(&mut measuring, &plan, |_, _| true);
        cases.push(Measured { case: *case, arms });
    }
    if cases.iter().flat_map(|case| &case.arms).all(|arm| arm.blocks.is_empty() && arm.failures.is_empty()) {
        let cause = "a signal ended it before anything was measured";
        return Err(Fault::new("plimsoll bench daemon", cause, "run it again"));
    }
    Ok(Findings {
        library: request.installation.to_string(),
        rounds: request.rounds,
        cores: request.cores.into(),
        settling: request.settling,
        cases,
    })
}

struct Measuring<'a, P> {
    job: Job<'a>,
    request: &'a Request,
    case: &'a Case,
    progress: P,
}

impl<P: FnMut(&str)> Blocks for Measuring<'_, P> {
    type Block = Block;

    fn block(&mut self, arm: usize, round: u32) -> Result<Block> {
        let Request { rounds, cores, settling, time, .. } = self.request;
        let (arm, start) = (Arm::ALL[arm], [cores.0, cores.1]);
        (self.progress)(&format!("{}, {}, round {} of {rounds}", self.case, arm.name(), round + 1));
        self.job.seat(if arm == Arm::Exchanged { [cores.1, cores.0] } else { start })?;
        let (rate, daemon) = match arm {
            Arm::Watched => self.job.watched(*settling, *time, start).map(|(rate, daemon)| (rate, Some(daemon)))?,
            Arm::Started | Arm::Exchanged => (self.job.rate(*time)?, None),
        };
        Ok(Block { rate, daemon })
    }

    // The ranks are on the cores.
    fn probe(&mut self, _: usize) -> Option<Probe> {
        None
    }

    fn stopped(&self) -> bool {
        linux::signal::interrupted()
    }
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [one, other] = self.work.map(|work| f64::from(work) / 1000.0);
        let waiting = if self.yields { "yielding" } else { "spinning" };
        write!(f, "{one} and {other} ms a step, {waiting}, hog of {} %", self.hog)
    }
}
