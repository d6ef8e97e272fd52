//! The files of a timeline, and their clocks.

use std::collections::HashMap;
use std::path::Path;

use machine::{Fault, Result};
use record::folder;
use record::layout::Moment;
use record::rank::Rank as Tables;
use record::trace::{Decoder, site};
use record::untrusted;

use crate::places::Places;

/// The calls of one thread, as they were written.
#[derive(Debug)]
pub struct Lane {
    pub thread: u16,
    /// The file, up to its last complete part.
    pub file: Vec<u8>,
    /// Ticks when its last call ended.
    pub end: u64,
    /// Indices into [`super::Timeline::places`] by the numbers of the thread's sites; [`NOWHERE`]: not known.
    pub(super) sites: Vec<u32>,
    /// Why calls that were written are missing; `None`: none are.
    pub damage: Option<Fault>,
}

/// The index of a site that is not known.
const NOWHERE: u32 = u32::MAX;

/// Converts ticks of a rank into nanoseconds since the time 0 of the timeline.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    ticks: u64,
    nanoseconds: f64,
    tick: f64,
}

impl Clock {
    /// Nanoseconds of one tick.
    pub fn tick(&self) -> f64 {
        self.tick
    }

    pub fn at(&self, ticks: u64) -> i64 {
        let since = ticks.wrapping_sub(self.ticks) as i64;
        (self.nanoseconds + since as f64 * self.tick).round() as i64
    }
}

pub(super) struct Source {
    pub tables: Tables,
    /// Index in [`super::Timeline::worlds`].
    pub world: usize,
    pub lanes: Vec<Lane>,
}

impl Source {
    /// Translates each lane's sites to the places of the job.
    pub fn place_sites(&mut self, places: &mut Places) {
        let own = places.add(&self.tables.modules, self.tables.sites.iter().map(|(_, site)| site));
        for ((thread, site), place) in self.tables.sites.iter().zip(own) {
            let Some(lane) = self.lanes.iter_mut().find(|lane| lane.thread == *thread) else { continue };
            let number = usize::from(site.number);
            if site.number != site::ABSENT {
                lane.sites.resize(lane.sites.len().max(number + 1), NOWHERE);
                lane.sites[number] = place;
            }
        }
    }

    /// `None` where the process is not a rank yet.
    pub fn open(path: &Path, notes: &mut Vec<String>) -> Result<Option<Source>> {
        let tables = Tables::open(path)?;
        if tables.header.placed == 0 {
            return Ok(None);
        }
        let mut lanes = Vec::new();
        let ranks = path.parent().unwrap_or(Path::new("."));
        let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        for (thread, state) in &tables.threads {
            let path = ranks.join(format!("{stem}.{thread}.{}", folder::TRACE_SUFFIX));
            if state.traced == 0 || !path.exists() {
                continue;
            }
            let rank = tables.header.rank;
            match Lane::open(&path, *thread, state.traced) {
                Ok(lane) => {
                    notes.extend(lane.damage.as_ref().map(|fault| {
                        let (cause, next) = (fault.cause(), fault.next());
                        format!(
                            "rank {rank}, thread {thread}: its timeline ends before its calls do: {cause}. Next: {next}"
                        )
                    }));
                    lanes.push(lane);
                }
                Err(fault) => notes.push(format!("rank {rank}, thread {thread}: its timeline is left out: {fault}")),
            }
        }
        Ok(Some(Source { tables, world: 0, lanes }))
    }
}

impl Lane {
    fn open(path: &Path, thread: u16, complete: u64) -> Result<Lane> {
        let named = |fault: Fault| fault.within(path.display());
        let mut file = untrusted::read(path)
            .map_err(|error| Fault::because(path.display().to_string(), error, "profile the program again"))?;
        let complete = usize::try_from(complete).unwrap_or(usize::MAX);
        let mut decoder = Decoder::up_to(&file, complete).map_err(named)?;
        let mut end = decoder.header().started;
        let damage = loop {
            match decoder.next_event() {
                Ok(Some(event)) => end = event.call.left,
                Ok(None) => break None,
                Err(fault) => break Some(fault),
            }
        };
        let good = decoder.position();
        let is_short = || format!("of its {complete} bytes {good} can be read");
        let damage = damage
            .or_else(|| (good < complete).then(|| Fault::new("a timeline", is_short(), "profile the program again")));
        if good == size_of::<record::trace::Header>()
            && let Some(fault) = damage
        {
            return Err(named(fault));
        }
        file.truncate(good);
        file.shrink_to_fit();
        Ok(Lane { thread, file, end, sites: Vec::new(), damage })
    }
}

/// Time 0, ns since 1970, and the clock of each rank.
///
/// Ranks of one host share a tick counter, so that one moment places all of them. Hosts are joined by CLOCK_REALTIME.
pub(super) fn clocks(sources: &[Source], notes: &mut Vec<String>) -> (u64, Vec<Clock>) {
    type Host = ([u8; 40], u32);
    let host = |source: &Source| -> Host { (source.tables.header.boot, source.tables.header.clock) };
    let mut best: HashMap<Host, (u64, Moment, f64)> = HashMap::new();
    for source in sources {
        let header = &source.tables.header;
        let span = header.latest.ticks.saturating_sub(header.started.ticks);
        let tick = source.tables.tick().filter(|tick| tick.is_finite() && *tick > 0.0);
        let known = best.entry(host(source)).or_insert((0, header.started, tick.unwrap_or(1.0)));
        if let Some(tick) = tick.filter(|_| span > known.0) {
            *known = (span, header.started, tick);
        }
    }
    if best.len() > 1 {
        notes.push(format!(
            "the ranks are on {} hosts, joined by CLOCK_REALTIME: times between hosts are as exact as these clocks agree",
            best.len()
        ));
    }
    let first = |source: &Source| {
        let (_, moment, tick) = best[&host(source)];
        let before = moment.ticks.saturating_sub(source.tables.header.started.ticks);
        moment.realtime.saturating_sub((before as f64 * tick) as u64)
    };
    let origin = sources.iter().map(first).min().unwrap_or(0);
    let clock = |source: &Source| {
        let (_, moment, tick) = best[&host(source)];
        Clock { ticks: moment.ticks, nanoseconds: moment.realtime.wrapping_sub(origin) as i64 as f64, tick }
    };
    (origin, sources.iter().map(clock).collect())
}
