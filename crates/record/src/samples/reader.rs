//! Reads samples, also while they are written.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use machine::{Fault, Result};

use super::frame::{Cursor, Damaged, kind};
use super::power::{self, PowerSamples};
use super::series::{MOST, Series, Totals};
use super::{
    Accounting, CoreClock, CoreDeferred, CoreLoad, CoreWork, Energy, Head, MAGIC, Origins, RankLoad, SamplerCost,
    ThreadBlocked, ThreadDelay, ThreadLoad, ThreadRan, ThreadStop, ThreadWork, VERSION,
};
use crate::{folder, untrusted};

/// Most points kept of a file; of a longer file only every n-th moment is kept.
const MOST_POINTS: u64 = 1 << 20;

#[derive(Debug, Clone)]
pub struct Samples {
    pub head: Head,
    pub cores: BTreeMap<u32, CoreSamples>,
    /// Samples of ranks, by process number.
    pub ranks: BTreeMap<u32, RankSamples>,
    /// Zones of energy by name.
    pub zones: Vec<(String, Series<Energy>)>,
    /// Sensors of power that were requested.
    pub power: Vec<PowerSamples>,
    pub cost: Series<SamplerCost>,
    /// Accounting of the kernel; `None` in files of earlier versions.
    pub accounting: Option<Accounting>,
    pub notes: Vec<String>,
    /// Times of the first and the last moment.
    pub span: Option<(u64, u64)>,
    /// When sampling ended in order; `None`: it is still running, was killed, or the file was cut off.
    pub ended: Option<u64>,
    /// One in this number of moments was kept.
    pub stride: u64,
}

#[derive(Debug, Clone, Default)]
pub struct CoreSamples {
    pub work: Series<CoreWork>,
    pub load: Series<CoreLoad>,
    pub deferred: Series<CoreDeferred>,
    pub clock: Series<CoreClock>,
}

#[derive(Debug, Clone, Default)]
pub struct RankSamples {
    pub load: Series<RankLoad>,
    /// Samples of threads, by index in the rank's tables.
    pub threads: BTreeMap<u16, ThreadSamples>,
}

#[derive(Debug, Clone, Default)]
pub struct ThreadSamples {
    pub tid: u32,
    pub work: Series<ThreadWork>,
    pub load: Series<ThreadLoad>,
    pub stop: Series<ThreadStop>,
    pub delay: Series<ThreadDelay>,
    pub ran: Series<ThreadRan>,
    pub blocked: Series<ThreadBlocked>,
}

/// Greatest factor between a thread's time off its core and the part that looks found; no account has the time of
/// hypervisors and interrupts.
pub const MISSED: f64 = 2.0;

impl ThreadSamples {
    /// Corrects stopped times. The kernel counts the time for which a thread ran or was runnable; in the rest it was
    /// stopped or blocked. Looks distinguish these two, but miss time while the sampler waits for a core. So stops are
    /// scaled by the rest over the time that looks found.
    fn correct_stops(&mut self) {
        let (Some((from, _)), Some((to, _))) = (self.ran.first(), self.ran.last()) else { return };
        let (from, to) = (*from, *to);
        let found = |of: fn(&ThreadBlocked) -> u64| self.blocked.between(from, to, of);
        let found = || {
            Some(self.stop.between(from, to, |stop| stop.stopped)? + found(|of| of.outside)? + found(|of| of.inside)?)
        };
        let counted = || {
            let ran = self.ran.between(from, to, |ran| ran.ran)?;
            Some((to - from) as f64 - ran - self.delay.between(from, to, |delay| delay.delayed)?)
        };
        let (Some(found), Some(rest)) = (found(), counted()) else { return };
        if found > 0.0 {
            let missed = (rest.max(0.0) / found).min(MISSED);
            self.stop.change(|stop| stop.stopped = (stop.stopped as f64 * missed) as u64);
        }
    }
}

impl Samples {
    /// The files of samples of a profile, by name; empty where the cores were not sampled.
    pub fn files(profile: &Path) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(profile.join(folder::HOSTS)).into_iter().flatten().flatten();
        let is_samples = |path: &PathBuf| path.extension().is_some_and(|suffix| suffix == folder::SAMPLES_SUFFIX);
        let mut files: Vec<_> = entries.map(|entry| entry.path()).filter(is_samples).collect();
        files.sort();
        files
    }

    /// Reads a file of samples of this version, refusing others; a file that was cut off is read up to its last whole frame.
    pub fn open(path: &Path) -> Result<Samples> {
        let subject = || path.display().to_string();
        let bytes = untrusted::read(path).map_err(|e| Fault::because(subject(), e, "profile the program again"))?;
        Samples::read(&bytes).map_err(|fault| fault.within(subject()))
    }

    pub fn read(file: &[u8]) -> Result<Samples> {
        Samples::read_within(file, MOST_POINTS)
    }

    pub(super) fn read_within(file: &[u8], most: u64) -> Result<Samples> {
        let refused = |cause: &str| Fault::new("samples", cause, "profile the program again");
        let rest = file.strip_prefix(&MAGIC).ok_or_else(|| refused("the file does not begin as samples do"))?;
        let mut cursor = Cursor(rest);
        let version = cursor.take(4).and_then(|bytes| Some(u32::from_le_bytes(bytes.try_into().ok()?)));
        match version {
            Some(VERSION) => {}
            Some(_) => {
                let next = "read them with the plimsoll that profiled the program";
                return Err(Fault::new("samples", "another version of plimsoll wrote them", next));
            }
            None => return Err(refused("the file ends within its start")),
        }
        let head = match cursor.frame() {
            Ok(Some((kind::HEAD, contents))) => head(contents),
            Ok(None) => return Err(refused("the file ends before their head")),
            _ => None,
        };
        let head = head.ok_or_else(|| refused("their head is damaged"))?;
        let changes = changes(cursor);
        let stride = changes.div_ceil(most.max(1)).max(1);
        let mut progress = Progress::new(head, stride);
        loop {
            let at = file.len() - cursor.0.len();
            let taken = match cursor.frame() {
                Ok(None) => break,
                Ok(Some((kind, contents))) => progress.take(kind, contents).ok_or(Damaged),
                Err(damaged) => Err(damaged),
            };
            // Later frames build on it.
            if taken.is_err() {
                let bytes = file.len();
                progress
                    .samples
                    .notes
                    .push(format!("they are damaged from byte {at} of {bytes} on, and left out from there"));
                break;
            }
        }
        Ok(progress.finish())
    }
}

/// Approximate number of points that the frames have.
fn changes(mut cursor: Cursor) -> u64 {
    let mut bytes = 0;
    while let Ok(Some((kind, contents))) = cursor.frame() {
        if matches!(kind, kind::WORK | kind::LOAD) {
            bytes += contents.0.len() as u64;
        }
    }
    // A change takes three bytes at least.
    bytes / 3
}

pub(super) fn head(mut contents: Cursor) -> Option<Head> {
    let (host, boot) = (contents.text()?, contents.text()?);
    let pid = contents.small()?;
    let (monotonic, realtime, interval) = (contents.number()?, contents.number()?, contents.number()?);
    let count = contents.number()?;
    let cores = (0..count).map(|_| Some((contents.small()?, contents.small()?))).collect::<Option<_>>()?;
    let origins = Origins {
        softirq_counts: contents.reading()?,
        softirq_times: contents.reading()?,
        softirq_all: contents.reading()?,
        interrupts: contents.reading()?,
        load: contents.reading()?,
        energy: contents.reading()?,
        ranks: contents.reading()?,
    };
    // Heads of earlier versions end here.
    let for_ranks = contents.small();
    Some(Head { host, boot, pid, monotonic, realtime, interval, for_ranks, cores, origins })
}

fn accounting(mut contents: Cursor) -> Option<Accounting> {
    let (softirqs_charged, stolen_charged) = (contents.known()?, contents.known()?);
    let mut threads = Vec::new();
    while !contents.is_at_end() {
        threads.push((contents.small()?, contents.small()?));
    }
    Some(Accounting { softirqs_charged, stolen_charged, threads })
}

/// A subject, with its values so far.
#[derive(Debug)]
struct Track {
    kind: u8,
    numbers: [u32; 3],
    /// Index in the zones.
    zone: usize,
    values: [u64; MOST],
    /// Values when they were last kept.
    kept: [u64; MOST],
    /// Whether the subject changed since then.
    is_changed: bool,
    /// Whether the subject has a point.
    is_begun: bool,
    /// Whether its changes come with work (0) or load (1); `None` before the first.
    class: Option<usize>,
}

struct Progress {
    samples: Samples,
    tracks: Vec<Track>,
    stride: u64,
    time: u64,
    /// For work and for load: number of moments seen, time of the last, time of the last kept, and tracks changed since.
    moments: [u64; 2],
    last: [u64; 2],
    last_kept: [Option<u64>; 2],
    changed: [Vec<usize>; 2],
    /// The present track of a thread's place, by kind, process and index.
    latest: HashMap<(u8, u32, u32), usize>,
}

impl Progress {
    fn new(head: Head, stride: u64) -> Progress {
        let time = head.monotonic;
        let samples = Samples {
            head,
            cores: BTreeMap::new(),
            ranks: BTreeMap::new(),
            zones: Vec::new(),
            power: Vec::new(),
            cost: Series::default(),
            accounting: None,
            notes: Vec::new(),
            span: None,
            ended: None,
            stride,
        };
        Progress {
            samples,
            tracks: Vec::new(),
            stride,
            time,
            moments: [0; 2],
            last: [0; 2],
            last_kept: [None; 2],
            changed: [Vec::new(), Vec::new()],
            latest: HashMap::new(),
        }
    }

    /// Reads a frame; `None` where it is invalid.
    fn take(&mut self, kind: u8, mut contents: Cursor) -> Option<()> {
        match kind {
            kind::TRACK => {
                let kind = contents.byte()?;
                let numbers = [contents.small()?, contents.small()?, contents.small()?];
                let name = contents.text()?;
                let zone = self.samples.zones.len();
                if kind == Energy::KIND {
                    self.samples.zones.push((name, Series::default()));
                }
                let (values, kept) = ([0; MOST], [0; MOST]);
                let (is_changed, is_begun) = (false, false);
                self.supersede(kind, numbers);
                self.tracks.push(Track { kind, numbers, zone, values, kept, is_changed, is_begun, class: None });
            }
            kind::WORK => self.moment(0, contents)?,
            kind::LOAD => self.moment(1, contents)?,
            kind::NOTE => self.samples.notes.push(String::from_utf8_lossy(contents.0).into_owned()),
            kind::ACCOUNTING => self.samples.accounting = Some(accounting(contents)?),
            kind::SENSOR => power::take_sensor(&mut self.samples.power, contents)?,
            kind::POWER => power::take_samples(&mut self.samples.power, contents)?,
            kind::STOPPED => power::take_stop(&mut self.samples.power, contents)?,
            kind::END => self.samples.ended = Some(contents.number()?),
            _ => {}
        }
        Some(())
    }

    /// Ends the track of a thread whose place was reused; the series goes on with the new track.
    fn supersede(&mut self, kind: u8, [pid, index, _]: [u32; 3]) {
        let of_threads = [
            ThreadWork::KIND,
            ThreadLoad::KIND,
            ThreadStop::KIND,
            ThreadDelay::KIND,
            ThreadRan::KIND,
            ThreadBlocked::KIND,
        ];
        if !of_threads.contains(&kind) {
            return;
        }
        if let Some(before) = self.latest.insert((kind, pid, index), self.tracks.len()) {
            // The new track's totals include the old one's.
            (self.tracks[before].class, self.tracks[before].is_changed) = (None, false);
            self.changed.iter_mut().for_each(|changed| changed.retain(|place| *place != before));
        }
    }

    fn moment(&mut self, class: usize, mut contents: Cursor) -> Option<()> {
        self.time = self.time.checked_add(contents.number()?)?;
        self.last[class] = self.time;
        while !contents.is_at_end() {
            let place = usize::try_from(contents.number()?).ok()?;
            let mask = contents.number()?;
            let track = self.tracks.get_mut(place)?;
            let (fields, absolute) = shape(track.kind)?;
            if mask >> fields != 0 {
                return None;
            }
            for field in (0..fields).filter(|field| mask >> field & 1 == 1) {
                let number = contents.number()?;
                let value = &mut track.values[field];
                *value = if absolute >> field & 1 == 1 { number } else { value.wrapping_add(number) };
            }
            if !track.is_changed {
                (track.is_changed, track.class) = (true, Some(class));
                self.changed[class].push(place);
            }
        }
        let (first, _) = self.samples.span.unwrap_or((self.time, self.time));
        self.samples.span = Some((first, self.time));
        self.moments[class] += 1;
        if (self.moments[class] - 1).is_multiple_of(self.stride) {
            self.keep(class);
        }
        Some(())
    }

    /// Adds points to the tracks that changed since the last kept moment.
    fn keep(&mut self, class: usize) {
        for place in std::mem::take(&mut self.changed[class]) {
            let track = &mut self.tracks[place];
            track.is_changed = false;
            // The subject was unchanged up to the moment before: a point there keeps earlier growth at 0.
            if let Some(before) = self.last_kept[class].filter(|_| track.is_begun) {
                push(&mut self.samples, track, before, &track.kept);
            }
            (track.kept, track.is_begun) = (track.values, true);
            push(&mut self.samples, track, self.last[class], &track.values);
        }
        self.last_kept[class] = Some(self.last[class]);
    }

    fn finish(mut self) -> Samples {
        for class in 0..2 {
            self.keep(class);
        }
        // Tracks without a change since their last point get a point at the end.
        for track in &self.tracks {
            if let Some(class) = track.class {
                push(&mut self.samples, track, self.last[class], &track.values);
            }
        }
        let ranks = self.samples.ranks.values_mut();
        ranks.flat_map(|rank| rank.threads.values_mut()).for_each(ThreadSamples::correct_stops);
        self.samples
    }
}

/// Number of fields of a kind of totals, and the mask of absolute ones.
pub(super) fn shape(kind: u8) -> Option<(usize, u32)> {
    fn of<T: Totals>() -> (u8, usize, u32) {
        (T::KIND, T::FIELDS, T::ABSOLUTE)
    }
    let kinds = [
        of::<CoreWork>(),
        of::<CoreLoad>(),
        of::<ThreadWork>(),
        of::<ThreadLoad>(),
        of::<RankLoad>(),
        of::<Energy>(),
        of::<SamplerCost>(),
        of::<ThreadStop>(),
        of::<ThreadDelay>(),
        of::<CoreDeferred>(),
        of::<CoreClock>(),
        of::<ThreadRan>(),
        of::<ThreadBlocked>(),
    ];
    kinds.into_iter().find(|(known, ..)| *known == kind).map(|(_, fields, absolute)| (fields, absolute))
}

fn push(samples: &mut Samples, track: &Track, at: u64, values: &[u64; MOST]) {
    with_series(samples, track, Push { at, values });
}

struct Push<'a> {
    at: u64,
    values: &'a [u64; MOST],
}

impl Push<'_> {
    fn onto<T: Totals>(&self, series: &mut Series<T>) {
        series.push(self.at, T::of(self.values));
    }
}

fn with_series(samples: &mut Samples, track: &Track, push: Push) {
    let [first, index, tid] = track.numbers;
    let thread = |samples: &mut Samples, then: &dyn Fn(&mut ThreadSamples)| {
        let threads = &mut samples.ranks.entry(first).or_default().threads;
        let thread = threads.entry(index as u16).or_default();
        thread.tid = tid;
        then(thread);
    };
    match track.kind {
        CoreWork::KIND => push.onto(&mut samples.cores.entry(first).or_default().work),
        CoreLoad::KIND => push.onto(&mut samples.cores.entry(first).or_default().load),
        CoreDeferred::KIND => push.onto(&mut samples.cores.entry(first).or_default().deferred),
        CoreClock::KIND => push.onto(&mut samples.cores.entry(first).or_default().clock),
        ThreadWork::KIND => thread(samples, &|thread| push.onto(&mut thread.work)),
        ThreadLoad::KIND => thread(samples, &|thread| push.onto(&mut thread.load)),
        ThreadStop::KIND => thread(samples, &|thread| push.onto(&mut thread.stop)),
        ThreadDelay::KIND => thread(samples, &|thread| push.onto(&mut thread.delay)),
        ThreadRan::KIND => thread(samples, &|thread| push.onto(&mut thread.ran)),
        ThreadBlocked::KIND => thread(samples, &|thread| push.onto(&mut thread.blocked)),
        RankLoad::KIND => push.onto(&mut samples.ranks.entry(first).or_default().load),
        Energy::KIND => push.onto(&mut samples.zones[track.zone].1),
        SamplerCost::KIND => push.onto(&mut samples.cost),
        _ => {}
    }
}
