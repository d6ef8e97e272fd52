//! The progress point of a program: the call that all ranks make equally often, which cuts a run into blocks.

use std::collections::BTreeMap;
use std::path::Path;

use machine::{Fault, Result, count, figure};
use profile::profile::Profile;
use profile::sites;
use profile::tables::Tables;
use record::blocks::{Blocks, Mark, Progress, Schedule};
use record::functions::{Class, FunctionId, function};
use record::layout::{Site, perturbed, words};
use record::perturbation::Perturbation;
use serde::Serialize;
use std::time::Duration;

use super::Target;

/// Passes between two marks of a run that counts.
const COUNTED: u32 = 8;

/// Fewest passes in a run.
const FEWEST: u64 = 400;

/// The least time of a run, s, after which it is ended once its period is known.
const EARLIEST: f64 = 5.0;

/// How far the ranks' passes may be apart in a run that was ended: marks, and a part of all passes.
const APART: (u64, u64) = (2, 100);

/// The longest time without a pass, and the least time from the first to the last, over the time of a run.
const LONGEST_GAP: f64 = 0.2;
const LEAST_SPAN: f64 = 0.5;

/// The least time of a block, ns; the least number of passes in it; and its least length over the ranks' distance.
const LEAST_BLOCK: f64 = 20e6;
const LEAST_PASSES: f64 = 10.0;
const OVER_SKEW: f64 = 10.0;

/// The least number of repetitions in a block, where one has several passes; how far their passes may be from a whole number; and
/// the most of them.
const LEAST_REPETITIONS: f64 = 4.0;
const ROUGHLY: f64 = 0.03;
const MOST_REPEATS: f64 = 64.0;

const NEXT: &str = "name another one (--progress SITE), or delay whole runs (--whole)";

/// A progress point as it was in a run without delays.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Period {
    #[serde(skip)]
    pub progress: Progress,
    /// The program's words for it.
    pub name: String,
    /// Passes of each rank in a run.
    pub passes: u64,
    /// Mean time between two passes, ns.
    pub period: f64,
    /// Passes after which the program repeats itself, where it tells: blocks are whole repetitions.
    pub repeats: u32,
    /// The time between the first and the last rank of a host at a pass, in nine of ten passes, ns.
    pub skew: f64,
}

/// A run of delays without length, whose marks show how the program passes the point.
pub fn counting(progress: Progress, ends: Perturbation) -> Schedule {
    Schedule { blocks: Some(Blocks { progress, every: COUNTED, guard: 0, seed: 0 }), columns: vec![ends] }
}

impl Period {
    /// The period of a progress point by the marks of a run under [`counting`]. Where the run was ended, ranks may be some passes
    /// apart.
    ///
    /// # Errors
    /// The ranks pass it unequally often, too seldom, or in a part of the run alone.
    pub fn of(profile: &Profile, progress: Progress, name: String) -> Result<Period> {
        let refused = |cause: String| Fault::new(format!("progress point '{name}'"), cause, NEXT);
        let passes = |marks: &[Mark]| marks.last().map_or(0, |mark| mark.count);
        let counts = profile.ranks.iter().map(|rank| passes(&rank.marks));
        let (least, most) = (counts.clone().min().unwrap_or(0), counts.max().unwrap_or(0));
        let apart = if is_part(profile) { (APART.0 * u64::from(COUNTED)).max(most / APART.1) } else { 0 };
        if most - least > apart {
            return Err(refused(format!("ranks pass it unequally often: {least} to {most} times")));
        }
        if least < FEWEST {
            return Err(refused(format!("{} in a run are too few: {FEWEST} are needed", count::of(least, "pass"))));
        }
        let (mut span, mut gap, mut run) = (0.0, 0.0f64, 0.0f64);
        for rank in &profile.ranks {
            let times = |pair: &[Mark]| rank.seconds(pair[1].ticks.saturating_sub(pair[0].ticks));
            gap = rank.marks.windows(2).map(times).fold(gap, f64::max);
            span += rank.marks.windows(2).map(times).sum::<f64>() / profile.ranks.len() as f64;
            let (from, to) = rank.run();
            let to = rank.marks.last().filter(|_| is_full(rank)).map_or(to, |mark| mark.ticks);
            run = run.max(rank.seconds(to.saturating_sub(from)));
        }
        if gap > LONGEST_GAP * run || span < LEAST_SPAN * run {
            let part = format!("{:.0} % of a run pass between the first and the last", 100.0 * span / run);
            return Err(refused(format!("{part}, and {:.0} % between two", 100.0 * gap / run)));
        }
        let period = 1e9 * span / (least - u64::from(COUNTED)) as f64;
        let repeats = if progress == Progress::Collectives { repeats(profile, least) } else { 1 };
        Ok(Period { progress, name, passes: least, period, repeats, skew: skew(profile) })
    }

    /// The blocks of a run; of one with `columns` there is at least a round.
    ///
    /// # Errors
    /// The run is too short.
    pub fn blocks(&self, columns: usize, seed: u64) -> Result<Blocks> {
        let passes = |time: f64| (time / self.period).ceil();
        let whole = |passes: f64| (passes.ceil() as u32).next_multiple_of(self.repeats);
        let least = LEAST_PASSES.max(LEAST_REPETITIONS * f64::from(self.repeats - 1));
        let every = whole(passes(LEAST_BLOCK).max(least).max(passes(OVER_SKEW * self.skew)));
        let guard = whole(passes(2.0 * self.skew).max(2.0).max(f64::from(every) / 10.0));
        let round = record::blocks::round(columns);
        let blocks = (self.passes / u64::from(every)).saturating_sub(1);
        if blocks < round {
            let cause = format!("a run has {}, and a round of its delays needs {round}", count::of(blocks, "block"));
            return Err(Fault::new(
                "a causal experiment",
                cause,
                "measure fewer factors, a longer part of the work, or whole runs (--whole)",
            ));
        }
        Ok(Blocks { progress: self.progress, every, guard, seed })
    }

    /// What it is, in a line.
    pub fn words(&self) -> String {
        let skew = match self.skew {
            skew if skew > 0.0 => format!("; ranks are {} apart", figure::nanoseconds(skew)),
            _ => String::new(),
        };
        let passes = count::of(self.passes, "time");
        format!("progress: {}, {passes} in a run, every {}{skew}", self.name, figure::nanoseconds(self.period))
    }
}

/// Whether there was no room for further marks: what comes after them is not known.
fn is_full(rank: &Tables) -> bool {
    rank.header.perturbed & perturbed::FULL != 0
}

/// The profile of a run that is not over, up to the last mark of each rank.
///
/// # Errors
/// It cannot be read, or a rank is not yet there.
pub fn part(folder: &Path) -> Result<Profile> {
    let mut profile = Profile::without_timeline(folder)?;
    profile.whole()?;
    for rank in &mut profile.ranks {
        rank.header.failed = rank.marks.last().map_or(rank.header.initialized, |mark| mark.ticks);
    }
    Ok(profile)
}

/// Whether it is a [`part`] of a run.
pub fn is_part(profile: &Profile) -> bool {
    profile.ranks.iter().any(|rank| rank.header.failed != 0)
}

/// Whether a run that goes on has told its period, and had blocks enough for a round of delays of these targets.
pub fn is_told(folder: &Path, progress: Progress, targets: &[Target]) -> bool {
    let long_enough = |rank: &Tables| {
        let (from, to) = rank.run();
        rank.header.finalized == 0 && (rank.seconds(to - from) >= EARLIEST || is_full(rank))
    };
    part(folder).is_ok_and(|profile| {
        let columns = 1 + targets.iter().map(|target| target.each(profile.ranks.len()).len()).sum::<usize>();
        let period = || Period::of(&profile, progress, String::new());
        profile.ranks.iter().all(long_enough) && period().is_ok_and(|period| period.blocks(columns, 0).is_ok())
    })
}

/// Passes of all collectives between two of the call site that has most of them; 1 where that is no whole number, or a large one.
fn repeats(profile: &Profile, passes: u64) -> u32 {
    let is_collective =
        |site: &&Site| function(FunctionId(site.function)).is_some_and(|of| of.class == Class::Collective);
    let of_rank = |rank: &Tables| rank.sites.iter().filter(is_collective).map(|site| site.calls).max();
    let most = profile.ranks.first().and_then(of_rank).unwrap_or(0);
    let ratio = passes as f64 / most.max(1) as f64;
    let is_whole = (ratio - ratio.round()).abs() <= ROUGHLY * ratio && ratio.round() <= MOST_REPEATS;
    if is_whole { ratio.round().max(1.0) as u32 } else { 1 }
}

/// The ninth decile of the time between the first and the last rank of a host at a mark, ns.
fn skew(profile: &Profile) -> f64 {
    let mut hosts = BTreeMap::<_, Vec<_>>::new();
    profile.ranks.iter().for_each(|rank| hosts.entry((rank.header.boot, rank.header.clock)).or_default().push(rank));
    let mut apart = Vec::new();
    for ranks in hosts.values() {
        for place in 0..ranks.iter().map(|rank| rank.marks.len()).min().unwrap_or(0) {
            let ticks = ranks.iter().map(|rank| rank.marks[place].ticks);
            let (first, last) = (ticks.clone().min().unwrap_or(0), ticks.max().unwrap_or(0));
            apart.push(1e9 * ranks[0].seconds(last - first));
        }
    }
    apart.sort_unstable_by(f64::total_cmp);
    apart.get(apart.len() * 9 / 10).copied().unwrap_or(0.0)
}

/// A call site that all ranks pass equally often.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    pub progress: Progress,
    /// Calls of each rank.
    pub calls: u64,
    /// Function and place, as words.
    pub name: String,
    /// Further names that users give it.
    names: Vec<String>,
}

/// The call sites that all ranks pass equally often, most calls first.
pub fn candidates(profile: &Profile) -> Vec<Candidate> {
    let mut found = BTreeMap::<(u16, u64, u64), Vec<u64>>::new();
    let mut paths = BTreeMap::new();
    for (place, rank) in profile.ranks.iter().enumerate() {
        for site in &rank.sites {
            let Some(module) = (site.module as usize).checked_sub(1).and_then(|at| rank.modules.get(at)) else {
                continue;
            };
            paths.insert(module.identity(), words(&module.path));
            let calls = found.entry((site.function, site.offset, module.identity())).or_default();
            calls.resize(profile.ranks.len(), 0);
            calls[place] += site.calls;
        }
    }
    let named = sites::sites(&profile.ranks, 0.0, Duration::from_nanos(profile.job.started));
    let candidate = |((id, offset, module), calls): ((u16, u64, u64), Vec<u64>)| {
        let id = FunctionId(id);
        let function = function(id)?.name;
        let path = &paths[&module];
        let of = named
            .iter()
            .find(|site| site.offset == offset && site.module == *path && site.function.ends_with(function));
        let line = of.and_then(|site| site.frames.iter().find_map(|frame| Some((frame.file.as_ref()?, frame.line?))));
        let base = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
        let at = format!("{}+{offset:#x}", base(path));
        let line = line.map(|(file, line)| format!("{}:{line}", base(file)));
        let name = format!("MPI_{function} at {}", line.as_ref().unwrap_or(&at));
        let names = [Some(function.to_owned()), Some(format!("MPI_{function}")), line, Some(at)];
        let progress = Progress::Site { function: id, offset, module };
        let names = names.into_iter().flatten().collect();
        (calls.iter().all(|of| *of == calls[0])).then(|| Candidate { progress, calls: calls[0], name, names })
    };
    let mut all: Vec<Candidate> = found.into_iter().filter_map(candidate).collect();
    all.sort_by_key(|candidate| std::cmp::Reverse(candidate.calls));
    all
}

/// The candidate that the user names: a function, a line, or a module with an offset.
///
/// # Errors
/// There is none.
pub fn named<'c>(candidates: &'c [Candidate], name: &str) -> Result<&'c Candidate> {
    let found = candidates.iter().find(|candidate| candidate.names.iter().any(|of| of == name));
    found.ok_or_else(|| {
        let known: Vec<&str> = candidates.iter().take(5).filter_map(|of| Some(of.names.last()?.as_str())).collect();
        let next = match known[..] {
            [] => "delay whole runs (--whole)".to_owned(),
            _ => format!("choose collectives, a function, a line like file.c:120, or of {}", known.join(", ")),
        };
        let subject = format!("progress point '{}'", name.escape_debug());
        Fault::new(subject, "no call site of that name is passed equally often by all ranks", next)
    })
}

#[cfg(test)]
mod tests;
