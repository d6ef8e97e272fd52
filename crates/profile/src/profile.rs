//! All that one profiled run left behind.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use machine::{Fault, Result};
use record::folder;
use record::layout::{Dropped, words};

use crate::job::Job;
use crate::last_seen;
use crate::tables::Tables;
use crate::timeline::Timeline;

type Count = fn(&Dropped) -> u64;

/// A profile, with what is wrong with it said in `notes`.
#[derive(Debug, Default)]
pub struct Profile {
    pub folder: PathBuf,
    pub job: Job,
    /// What tells each MPI_COMM_WORLD from the others. Programs that MPI_Comm_spawn started have one of their own.
    pub worlds: Vec<World>,
    /// By world, then by rank.
    pub ranks: Vec<Tables>,
    /// `None` where none was recorded.
    pub timeline: Option<Timeline>,
    /// What could not be read, is missing or was dropped, and why.
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct World {
    pub name: String,
    /// Ranks that it has, of which some may not be in the profile.
    pub size: u32,
}

impl Profile {
    /// # Errors
    /// `folder` is none that `plimsoll profile` made. Files in it that are damaged are left out, and named in the notes.
    pub fn open(folder: &Path) -> Result<Profile> {
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
        let mut ranks = Vec::new();
        for file in files {
            match Tables::open(&file) {
                Ok(tables) => ranks.push(tables),
                Err(fault) => notes.push(format!("left out: {fault}")),
            }
        }
        let mut profile = Profile::of(job, ranks);
        profile.folder = folder.to_path_buf();
        profile.notes.extend(notes);
        last_seen::note(&mut profile);
        match Timeline::open(folder) {
            Ok(timeline) => profile.timeline = timeline,
            Err(fault) => profile.notes.push(format!("the timeline is left out: {fault}")),
        }
        Ok(profile)
    }

    /// Of these ranks, in any order.
    pub fn of(job: Job, ranks: Vec<Tables>) -> Profile {
        let mut profile = Profile { notes: job.notes.clone(), job, ranks, ..Profile::default() };
        profile.share_clocks();
        profile.sort_into_worlds();
        profile.note_what_is_missing();
        profile
    }

    /// Whether the run is over, as far as its files say.
    pub fn over(&self) -> bool {
        self.job.ended.is_some() || self.ranks.iter().all(|rank| rank.header.finalized != 0 || rank.header.ended != 0)
    }

    /// Ranks of one host count the same ticks, whose length the one that ran longest knows best.
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

    fn sort_into_worlds(&mut self) {
        let mut found: BTreeMap<String, (u64, u32)> = BTreeMap::new();
        for rank in &self.ranks {
            let (started, size) = found.entry(words(&rank.header.world)).or_insert((u64::MAX, 0));
            *started = (*started).min(rank.header.started.realtime);
            *size = (*size).max(rank.header.size);
        }
        // The world that others were spawned from began first.
        let mut worlds: Vec<_> = found.into_iter().collect();
        worlds.sort_by_key(|(_, (started, _))| *started);
        self.worlds = worlds.into_iter().map(|(name, (_, size))| World { name, size }).collect();
        for rank in &mut self.ranks {
            let name = words(&rank.header.world);
            rank.world = self.worlds.iter().position(|world| world.name == name).unwrap_or(0);
        }
        self.ranks.sort_by_key(|rank| (rank.world, rank.header.rank, rank.header.started.realtime));
    }

    fn note_what_is_missing(&mut self) {
        for (place, world) in self.worlds.iter().enumerate() {
            let mut seen = vec![0u32; world.size.min(1 << 24) as usize];
            for rank in self.ranks.iter().filter(|rank| rank.world == place) {
                if let Some(seen) = seen.get_mut(rank.header.rank as usize) {
                    *seen += 1;
                }
            }
            let which = |wanted: fn(u32) -> bool| {
                ranges(seen.iter().enumerate().filter(|(_, seen)| wanted(**seen)).map(|(rank, _)| rank as u32))
            };
            let of = if self.worlds.len() > 1 { format!(" of world {place}") } else { String::new() };
            let (missing, twice) = (which(|seen| seen == 0), which(|seen| seen > 1));
            if !missing.is_empty() {
                self.notes.push(format!(
                    "there are no tables of rank {missing}{of}: copy {}/ from its host, or see what it printed. If others \
                     waited for it, that passes for transfer",
                    folder::RANKS
                ));
            }
            if !twice.is_empty() {
                self.notes.push(format!("there are several tables of rank {twice}{of}, all counted"));
            }
        }
        let paused = self.ranks.iter().filter(|rank| rank.phases.iter().any(|phase| phase.level == 0)).count();
        if paused > 0 {
            self.notes.push(format!(
                "{paused} ranks paused recording by MPI_Pcontrol(0): what they did then is in no figure, and its time is compute"
            ));
        }
        let dropped = |read: Count| -> (u64, usize) {
            let counts = self.ranks.iter().map(|rank| read(&rank.header.dropped));
            counts.filter(|count| *count > 0).fold((0, 0), |(sum, ranks), count| (count.saturating_add(sum), ranks + 1))
        };
        let lost: [(Count, &str); 9] = [
            (|d| d.calls, "calls of threads beyond those that get tables: they are in no figure here"),
            (|d| d.rows, "calls found no place in the tables of functions: they are in the totals only"),
            (|d| d.sites, "calls found no place in the tables of call sites: they are missing there only"),
            (|d| d.peers, "messages are not in the matrix"),
            (|d| d.requests, "operations were not followed to their completion: their bytes are missing from it"),
            (|d| d.events, "calls are not in the timeline"),
            (
                |d| d.communicators,
                "communicators have members that are not known: their messages are not in the matrix",
            ),
            (|d| d.modules, "files of code are not known: call sites in them have no name"),
            (|d| d.phases, "phases are not known"),
        ];
        for (read, what) in lost {
            let (count, ranks) = dropped(read);
            if count > 0 {
                let more = "give it more memory with `plimsoll profile --memory`";
                let noun = if ranks == 1 { "rank" } else { "ranks" };
                self.notes.push(format!("{count} {what} ({ranks} {noun}); {more}"));
            }
        }
    }
}

/// The files of ranks, in the order of their names.
pub(crate) fn rank_files(profile: &Path) -> Result<Vec<PathBuf>> {
    let ranks = profile.join(folder::RANKS);
    let entries = match fs::read_dir(&ranks) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Fault::because(ranks.display().to_string(), error, "let this user read the folder")),
    };
    let is_rank = |path: &PathBuf| path.extension().is_some_and(|suffix| suffix == folder::RANK_SUFFIX);
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(is_rank).collect();
    files.sort();
    Ok(files)
}

/// `0-3,7`: numbers that rise.
pub fn ranges(numbers: impl IntoIterator<Item = u32>) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let run = |(first, last): (u32, u32)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    runs.into_iter().map(run).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_named_in_runs() {
        assert_eq!(ranges([0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
        assert_eq!(ranges([]), "");
    }
}
