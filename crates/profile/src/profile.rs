//! The files of one profiled run.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use machine::{Fault, Result, count};
use record::folder::{self, rank_files};
use record::layout::{Header, clock};
use record::rank::{left_out, placed};
use record::worlds;
pub use record::worlds::World;

use crate::job::Job;
use crate::tables::Tables;
use crate::{impossible, last_seen, lost};
use timeline::Timeline;

/// Seconds by which the clocks of hosts may differ.
const CLOCKS_APART: f64 = 3600.0;

/// A rank whose process cannot be checked is gone after this time without a write by the rank or its host's sampler.
const QUIET: Duration = Duration::from_secs(600);

/// A profile, with its defects in `notes`.
#[derive(Debug, Default)]
pub struct Profile {
    pub folder: PathBuf,
    pub job: Job,
    /// The MPI_COMM_WORLDs; programs that MPI_Comm_spawn started have one of their own.
    pub worlds: Vec<World>,
    /// The ranks, by world, then by rank.
    pub ranks: Vec<Tables>,
    /// `None` where none was recorded.
    pub timeline: Option<Timeline>,
    /// Data that could not be read, is missing or was dropped, with the reason.
    pub notes: Vec<String>,
}

impl Profile {
    /// When the job began, ns since 1970.
    pub fn origin(&self) -> u64 {
        match self.job.started {
            0 => self.ranks.iter().map(|rank| rank.header.started.realtime).min().unwrap_or(0),
            started => started,
        }
    }

    /// # Errors
    /// `folder` is not one that `plimsoll profile` made. Damaged files are no error: the notes name them, whether they are
    /// left out, or shown although their contents disagree.
    pub fn open(folder: &Path) -> Result<Profile> {
        let mut profile = Profile::without_timeline(folder)?;
        match Timeline::open(folder) {
            Ok(timeline) => profile.timeline = timeline,
            Err(fault) => profile.notes.push(format!("the timeline is left out: {fault}")),
        }
        Ok(profile)
    }

    /// As [`Profile::open`], without the timeline, which may be long.
    ///
    /// # Errors
    /// As [`Profile::open`].
    pub fn without_timeline(folder: &Path) -> Result<Profile> {
        let files = rank_files(folder)?;
        let mut notes = Vec::new();
        let job = match Job::read(folder) {
            Ok(job) => job,
            Err(fault) if files.is_empty() => return Err(fault),
            Err(fault) => {
                notes.push(format!("how the program was started is not known: {fault}"));
                Job::default()
            }
        };
        let (mut ranks, mut missing) = (Vec::new(), Vec::new());
        for file in files {
            match Tables::open(&file) {
                Ok(tables) => ranks.push(tables),
                Err(fault) => {
                    missing.extend(placed(&file));
                    notes.push(left_out(&file, &fault));
                }
            }
        }
        let mut profile = Profile::without(job, ranks, missing);
        profile.folder = folder.to_path_buf();
        profile.notes.extend(notes);
        last_seen::set_last_seen(&mut profile);
        Ok(profile)
    }

    /// Adds which ranks are gone, as seen from `here`, where the job's end was not recorded, as after `kill -9` of the
    /// profiler.
    pub fn seen_from(mut self, here: &crate::live::Here) -> Profile {
        let Profile { folder, job, ranks, notes, .. } = &mut self;
        let folder: &Path = folder;
        if job.ended.is_some() {
            return self;
        }
        if here.has(&job.boot, job.pid_namespace, job.pid) == Some(false) {
            notes.push(
                "plimsoll profile was killed: how the command ended is not known, and its host was not sampled from then on"
                    .into(),
            );
        }
        for rank in ranks.iter_mut() {
            let header = &rank.header;
            let there = here.has(&record::layout::words(&header.boot), header.pid_namespace, header.pid);
            let written = || {
                let files = [
                    folder.join(folder::RANKS).join(&rank.file),
                    folder::samples_file(folder, &record::layout::words(&header.host)),
                ];
                files.iter().filter_map(|file| file.metadata().ok()?.modified().ok()?.elapsed().ok()).min()
            };
            rank.gone = there.map_or_else(|| written().is_some_and(|ago| ago > QUIET), |there| !there);
        }
        last_seen::set_last_seen(&mut self);
        self
    }

    /// A profile of these ranks, in any order.
    pub fn of(job: Job, ranks: Vec<Tables>) -> Profile {
        Profile::without(job, ranks, Vec::new())
    }

    /// As [`Profile::of`]. `unread`: headers of ranks whose tables cannot be read.
    fn without(job: Job, ranks: Vec<Tables>, mut unread: Vec<Header>) -> Profile {
        let mut profile = Profile { notes: job.notes.clone(), job, ranks, ..Profile::default() };
        profile.share_clocks();
        profile.note_clocks();
        profile.note_or_drop_damaged_ranks(&mut unread);
        let unread = profile.sort_into_worlds(&unread);
        profile.note_what_is_missing(&unread);
        profile
    }

    /// # Errors
    /// A rank left no tables: sums over all ranks would be too low.
    pub fn whole(&self) -> Result<()> {
        let expected: usize = self.worlds.iter().map(|world| world.size as usize).sum();
        if self.ranks.is_empty() || self.ranks.len() != expected {
            let cause = format!("{} of {expected} ranks left tables", self.ranks.len());
            let next = "run the command under plimsoll profile, and see its report";
            return Err(Fault::new("a run", cause, next));
        }
        Ok(())
    }

    /// Time of the longest rank between MPI_Init and MPI_Finalize, summed over programs that ran one after the other.
    pub fn seconds(&self) -> f64 {
        let mut worlds = vec![(f64::INFINITY, f64::NEG_INFINITY, 0.0f64); self.worlds.len()];
        for rank in &self.ranks {
            let (from, to) = rank.run();
            let (began, ended, longest) = &mut worlds[rank.world];
            *began = began.min(rank.realtime(from));
            *ended = ended.max(rank.realtime(to));
            *longest = longest.max(rank.seconds(to - from));
        }
        worlds.sort_by(|one, other| one.0.total_cmp(&other.0));
        let (mut sum, mut longest, mut until) = (0.0, 0.0f64, f64::NEG_INFINITY);
        for (began, ended, seconds) in worlds {
            if began >= until {
                sum += std::mem::take(&mut longest);
            }
            longest = longest.max(seconds);
            until = until.max(ended);
        }
        sum + longest
    }

    /// Whether the run is over, according to its files.
    pub fn over(&self) -> bool {
        let has_ended = |rank: &Tables| rank.header.finalized != 0 || rank.header.ended != 0 || rank.gone;
        self.job.ended.is_some() || self.ranks.iter().all(has_ended)
    }

    /// Gives ranks of one host and clock the tick length of the rank that ran longest, which is the most accurate.
    fn share_clocks(&mut self) {
        let host = |rank: &Tables| (rank.header.boot, rank.header.clock);
        let mut best: HashMap<_, (u64, f64)> = HashMap::new();
        for rank in &self.ranks {
            let span = rank.header.latest.ticks.saturating_sub(rank.header.started.ticks);
            let known = best.entry(host(rank)).or_default();
            if rank.tick.is_finite() && rank.tick > 0.0 && span >= known.0 {
                *known = (span, rank.tick);
            }
        }
        let notes = &mut self.notes;
        self.ranks.retain_mut(|rank| {
            rank.tick = best.get(&host(rank)).map_or(0.0, |(_, tick)| *tick);
            if rank.tick <= 0.0 {
                notes.push(format!("left out: {}: it ended before its clock's rate was known", rank.file));
            }
            rank.tick > 0.0
        });
    }

    fn note_clocks(&mut self) {
        let ranks = self.ranks.iter().filter(|rank| rank.header.clock == clock::MONOTONIC).count();
        if ranks > 0 {
            self.notes.push(format!(
                "the times of {} were taken by CLOCK_MONOTONIC, which costs more a call than the processor's counter: their \
                 kernel does not trust that",
                count::of(ranks as u64, "rank")
            ));
        }
    }

    /// Notes ranks whose tables disagree, and leaves ranks with impossible figures out.
    fn note_or_drop_damaged_ranks(&mut self, unread: &mut Vec<Header>) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(u64::MAX, |since| since.as_nanos() as u64);
        let (notes, until) = (&mut self.notes, self.job.ended.unwrap_or(now));
        self.ranks.retain(|rank| {
            let header = &rank.header;
            if header.failed != 0 {
                let after = rank.seconds(header.failed.saturating_sub(header.started.ticks));
                notes.push(format!(
                    "rank {}: the profiler failed in it {after:.1} s after its start, and what it did from then on is in no \
                     figure. Next: report this as a defect, with what it printed",
                    header.rank
                ));
            }
            let doubt = rank.doubt.as_deref();
            if let Some(what) = impossible::impossible_figure(rank, lived(header, until)) {
                let damaged = doubt.map_or_else(String::new, |doubt| format!(" ({doubt})"));
                notes.push(format!(
                    "left out: rank {}, {}: its tables are damaged{damaged}, and by them {what}. Next: profile the program \
                     again",
                    header.rank, rank.file
                ));
                unread.push(*header);
                return false;
            }
            let Some(doubt) = doubt else { return true };
            notes.push(format!(
                "rank {}: its figures may be wrong, since its tables disagree ({doubt}): they were being written when they \
                 were read, or are damaged. Next: look again once the job has ended; if this is still said, profile it again",
                header.rank
            ));
            true
        });
    }

    /// Returns world and rank of the `unread` headers. A world without readable tables is left out.
    fn sort_into_worlds(&mut self, unread: &[Header]) -> Vec<(usize, u32)> {
        let (worlds, places) = worlds::of(self.ranks.iter().map(|rank| &rank.header).chain(unread));
        let (own, of_unread) = places.split_at(self.ranks.len());
        let shown: Vec<usize> = (0..worlds.len()).filter(|world| own.contains(world)).collect();
        let place = |world: usize| shown.binary_search(&world).ok();
        for (rank, world) in self.ranks.iter_mut().zip(own) {
            rank.world = place(*world).unwrap_or(0);
        }
        self.worlds = shown.iter().map(|world| worlds[*world].clone()).collect();
        self.ranks.sort_by_key(|rank| (rank.world, rank.header.rank, rank.header.started.realtime));
        unread.iter().zip(of_unread).filter_map(|(header, world)| Some((place(*world)?, header.rank))).collect()
    }

    fn note_what_is_missing(&mut self, unread: &[(usize, u32)]) {
        for (place, world) in self.worlds.iter().enumerate() {
            let without_tables = unread.iter().filter(|(of, _)| *of == place).map(|(_, rank)| *rank);
            let with_tables = self.ranks.iter().filter(|rank| rank.world == place).map(|rank| rank.header.rank);
            let seen: BTreeSet<u32> = without_tables.chain(with_tables).collect();
            let of = if self.worlds.len() > 1 {
                format!(" of {}", worlds::named(&self.worlds, place))
            } else {
                String::new()
            };
            let missing = runs(gaps(seen.into_iter(), world.size));
            if !missing.is_empty() {
                self.notes.push(format!(
                    "there are no tables of rank {missing}{of}: copy {}/ from its host, or see what it printed. If others \
                     waited for it, that passes for transfer",
                    folder::RANKS
                ));
            }
        }
        let paused = self.ranks.iter().filter(|rank| rank.phases.iter().any(|phase| phase.level == 0)).count();
        if paused > 0 {
            self.notes.push(format!(
                "{} paused recording by MPI_Pcontrol(0): what they did then is in no figure, and its time is compute",
                count::of(paused as u64, "rank")
            ));
        }
        let headers = self.ranks.iter().map(|rank| &rank.header);
        self.notes.extend(lost::notes(headers));
    }
}

/// Upper bound of a rank's lifetime, seconds: by its own clock, or by `until`, ns since 1970.
fn lived(header: &Header, until: u64) -> f64 {
    let (from, to) = (header.started, header.latest);
    let own = to.monotonic.saturating_sub(from.monotonic);
    until.saturating_sub(from.realtime).max(own) as f64 / 1e9 + CLOCKS_APART
}

/// Rising numbers as ranges: `0-3,7`.
pub fn ranges(numbers: impl IntoIterator<Item = u32>) -> String {
    let mut found: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match found.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => found.push((number, number)),
        }
    }
    runs(found)
}

/// Runs, each `(first, last)`, as ranges.
fn runs(runs: impl IntoIterator<Item = (u32, u32)>) -> String {
    let run = |(first, last): (u32, u32)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    runs.into_iter().map(run).collect::<Vec<_>>().join(",")
}

/// The runs of numbers below `end` that are missing in `numbers`, which rise. The time depends on the length of `numbers`
/// alone, since `end` may come from a damaged file.
fn gaps(numbers: impl Iterator<Item = u32>, end: u32) -> Vec<(u32, u32)> {
    let mut next = 0;
    let mut gaps = Vec::new();
    for number in numbers.take_while(|number| *number < end).chain([end]) {
        if next < number {
            gaps.push((next, number - 1));
        }
        next = number.saturating_add(1);
    }
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_named_in_runs() {
        assert_eq!(ranges([0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
        assert_eq!(ranges([]), "");
    }

    #[test]
    fn missing_ranks_are_found_without_a_walk_to_the_last() {
        assert_eq!(gaps([1, 2, 5].into_iter(), 8), [(0, 0), (3, 4), (6, 7)]);
        assert_eq!(gaps([0, 1].into_iter(), 2), []);
        assert_eq!(gaps([9].into_iter(), 2), [(0, 1)]);
        // A walk over all numbers would take minutes.
        for _ in 0..1000 {
            assert_eq!(gaps([u32::MAX - 1].into_iter(), u32::MAX), [(0, u32::MAX - 2)]);
        }
    }
}
