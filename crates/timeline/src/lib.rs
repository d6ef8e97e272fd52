//! The calls of every thread of every rank on one clock, and what follows from having all of them.
//!
//! A timeline is never held as a list of calls but as its files, at about five bytes a call, and [`Timeline::walk`]
//! decodes a rank's calls each time. Only the beginnings of messages and collective operations are kept apart
//! ([`matching`]), so that each finds its other half.
#![forbid(unsafe_code)]

mod absence;
mod lanes;
pub mod matching;
mod off_core;
pub mod places;
mod roles;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod waits;
mod walk;

use std::collections::BTreeMap;
use std::path::Path;

use foldhash::{HashMap, HashMapExt};
use machine::{Fault, Result, count};
use record::folder::{self, files, rank_files};
use record::layout::words;
use record::rank::left_out;
use record::samples::Samples;
use record::worlds::{self, World};

use places::Places;

pub use absence::SHORTEST;
pub use lanes::{Clock, Lane};
pub use matching::{ABSENT, Entry, Half, Instance, Matches};
pub use off_core::OffCore;
pub use roles::{Collective, Role};
pub use waits::{FunctionWaits, RankWaits, State, Wait, Waits};
pub use walk::{Kind, Operation, Step, Walk};

/// The traced ranks of a job, and which of their operations belong together.
#[derive(Debug)]
pub struct Timeline {
    /// The MPI_COMM_WORLDs, in the order in which they began.
    pub worlds: Vec<World>,
    /// The ranks, by world, then by rank.
    pub ranks: Vec<Rank>,
    /// The communicators that the ranks use between them.
    pub communicators: Vec<Communicator>,
    pub matches: Matches,
    /// The places in the code where calls were made.
    pub places: Places,
    /// Absences by index in `ranks`.
    absences: Vec<absence::Absences>,
    /// Indices of ranks that were off their cores for long.
    ever_off: Vec<usize>,
    /// The time 0, in nanoseconds since 1970.
    pub origin: u64,
    /// Remarks on missing or uncertain parts.
    pub notes: Vec<String>,
}

#[derive(Debug)]
pub struct Rank {
    /// Index in [`Timeline::worlds`].
    pub world: usize,
    /// The rank in its MPI_COMM_WORLD.
    pub rank: u32,
    pub host: String,
    pub pid: u32,
    pub clock: Clock,
    pub lanes: Vec<Lane>,
    /// Overhead of recording a call, outside of the call, ns.
    pub recording: i64,
    /// Calls left out because the timeline had reached its limit.
    pub lost: u64,
    /// When its threads could not run; `None` where that was not sampled.
    pub off_core: Option<OffCore>,
    /// Indices in [`Timeline::communicators`] by the rank's own numbers.
    communicators: HashMap<u32, u32>,
    /// Source and tag of receives with wildcards, by their order.
    resolved: HashMap<u64, (i32, i32)>,
}

/// A communicator, the same for all of its members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Communicator {
    pub world: usize,
    /// Ranks of the world by rank of the communicator; empty for an intercommunicator, which has two groups.
    pub members: Vec<u32>,
}

impl Communicator {
    pub fn place_of(&self, rank: u32) -> Option<usize> {
        // Most communicators list their members in order, the world's among them.
        if self.members.get(rank as usize) == Some(&rank) {
            return Some(rank as usize);
        }
        self.members.iter().position(|member| *member == rank)
    }
}

impl Timeline {
    /// Opens the timeline of a profile; `None` where nothing was traced. The notes name ranks without a timeline.
    ///
    /// # Errors
    /// No file of the timeline can be read.
    pub fn open(profile: &Path) -> Result<Option<Timeline>> {
        let (mut sources, mut notes) = (Vec::new(), Vec::new());
        for path in rank_files(profile)? {
            match lanes::Source::open(&path, &mut notes) {
                Ok(Some(source)) => sources.push(source),
                Ok(None) => {}
                Err(fault) => notes.push(left_out(&path, &fault)),
            }
        }
        if sources.iter().all(|source| source.lanes.is_empty()) {
            let of = profile.display().to_string();
            return match notes.into_iter().next() {
                Some(note) if !files(profile, folder::TRACE_SUFFIX)?.is_empty() => {
                    Err(Fault::new(of, note, "profile the program again with --trace"))
                }
                _ => Ok(None),
            };
        }
        // Files that cannot be read are reported where samples are joined.
        let samples: Vec<Samples> =
            Samples::files(profile).iter().filter_map(|path| Samples::open(path).ok()).collect();
        Ok(Some(Timeline::of(sources, &samples, notes)))
    }

    fn of(mut sources: Vec<lanes::Source>, samples: &[Samples], mut notes: Vec<String>) -> Timeline {
        let (worlds, of) = worlds::of(sources.iter().map(|source| &source.tables.header));
        sources.iter_mut().zip(of).for_each(|(source, world)| source.world = world);
        sources.sort_by_key(|source| (source.world, source.tables.header.rank, source.tables.header.started.realtime));
        let (origin, clocks) = lanes::clocks(&sources, &mut notes);
        let (communicators, numbers) = communicators(&sources);
        let mut places = Places::default();
        sources.iter_mut().for_each(|source| source.place_sites(&mut places));
        let silent: Vec<_> = sources.iter().filter(|source| source.lanes.is_empty()).collect();
        if !silent.is_empty() {
            let ranks: Vec<_> = silent.iter().map(|source| source.tables.header.rank.to_string()).collect();
            notes.push(format!("there is no timeline of rank {}: what it sent is not seen", ranks.join(", ")));
        }
        let ranks: Vec<_> = sources
            .into_iter()
            .zip(clocks)
            .zip(numbers)
            .map(|((source, clock), communicators)| Rank {
                world: source.world,
                rank: source.tables.header.rank,
                host: words(&source.tables.header.host),
                pid: source.tables.header.pid,
                off_core: OffCore::of(samples, &source.tables.header, &clock),
                recording: (source.tables.header.cost as f64 * clock.tick()).round() as i64,
                clock,
                lanes: source.lanes,
                lost: source.tables.header.dropped.events,
                communicators,
                resolved: HashMap::new(),
            })
            .collect();
        let lost: u64 = ranks.iter().map(|rank| rank.lost).sum();
        if lost > 0 {
            notes.push(format!(
                "{} {} not in the timeline, which had reached its limit: it is complete up to {:.3} s; give it more with \
                 `plimsoll profile --trace=SIZE`",
                count::of(lost, "call"),
                count::either(lost, "is", "are"),
                ranks.iter().map(Rank::end).min().unwrap_or(0) as f64 / 1e9
            ));
        }
        let matches = Matches::default();
        let is_off = |rank: &Rank| rank.off_core.as_ref().is_some_and(OffCore::is_ever);
        let ever_off = (0..ranks.len()).filter(|place| is_off(&ranks[*place])).collect();
        let absences = Vec::new();
        let mut timeline =
            Timeline { worlds, ranks, communicators, matches, places, absences, ever_off, origin, notes };
        timeline.match_all();
        timeline
    }

    /// The calls of all threads of a rank, in the order in which they were entered.
    pub fn walk(&self, place: usize) -> Walk<'_> {
        Walk::new(self, place)
    }

    /// The index of a rank of a world.
    pub fn place(&self, world: usize, rank: u32) -> Option<usize> {
        self.ranks.binary_search_by_key(&(world, rank), |known| (known.world, known.rank)).ok()
    }
}

impl Rank {
    /// The end of its last traced call, as far as its tables tell without decoding the timeline.
    pub fn end(&self) -> i64 {
        self.lanes.iter().map(|lane| self.clock.at(lane.end)).max().unwrap_or(0)
    }
}

/// Each rank numbers its communicators independently. Communicators with equal members are matched in order, since MPI
/// demands that all members create them in the same order. Of intercommunicators only messages are followed, not
/// collective operations, in which each member has two roles.
fn communicators(sources: &[lanes::Source]) -> (Vec<Communicator>, Vec<HashMap<u32, u32>>) {
    let mut known: BTreeMap<(usize, bool, Vec<u32>, usize), u32> = BTreeMap::new();
    let mut all: Vec<Communicator> = Vec::new();
    let mut numbers = Vec::new();
    for source in sources {
        let world = source.world;
        let mut times: BTreeMap<(bool, &[u32]), usize> = BTreeMap::new();
        let mut own = HashMap::new();
        let within = source.tables.members.iter().map(|one| (false, one));
        let between = source.tables.sides.iter().map(|one| (true, one));
        for (is_inter, (number, members)) in within.chain(between) {
            let time = times.entry((is_inter, members.as_slice())).or_default();
            let id = *known.entry((world, is_inter, members.clone(), *time)).or_insert_with(|| {
                let members = if is_inter { Vec::new() } else { members.clone() };
                all.push(Communicator { world, members });
                all.len() as u32 - 1
            });
            *time += 1;
            own.insert(*number, id);
        }
        numbers.push(own);
    }
    (all, numbers)
}
