//! Cores and states of the threads of one rank, over time.

use std::borrow::Cow;
use std::collections::BTreeMap;

use record::functions::{FunctionId, function};
use record::samples::{RankSamples, Samples, ThreadSamples, ThreadWork};

use super::{CLASSES, Span};
use crate::tables::Tables;

/// One rank in the samples of its host. Times are of the host's CLOCK_MONOTONIC, ns.
#[derive(Debug, Clone)]
pub struct Presence<'a> {
    /// A core, and a span in which at least one of the rank's threads was there.
    stays: Vec<(u32, Span)>,
    /// For each thread: ns inside MPI so far, at the moments of the samples.
    pub(super) inside: Vec<Vec<(u64, f64)>>,
    /// The same by class of function.
    pub(super) by_class: Vec<Vec<(u64, [f64; CLASSES])>>,
    /// Empty where the run was over before the first sample.
    pub(super) samples: Cow<'a, RankSamples>,
}

impl<'a> Presence<'a> {
    /// `None` where the rank is not in the samples, and was not bound to one core.
    pub(super) fn of(samples: &'a Samples, rank: &Tables) -> Option<Presence<'a>> {
        let bound = rank.header.bound.checked_sub(1).filter(|_| rank.threads.len() == 1);
        let of_rank = match (samples.ranks.get(&rank.header.pid), bound) {
            (Some(of_rank), _) => Cow::Borrowed(of_rank),
            (None, bound) => Cow::Owned(bound.map(|_| RankSamples::default())?),
        };
        let (begun, ended) = rank.run();
        let run = (moment(rank, begun), moment(rank, ended));
        let last = samples.span?.1.min(run.1);
        let mut stays: BTreeMap<u32, Vec<Span>> = BTreeMap::new();
        match bound {
            Some(core) => drop(stays.insert(core, vec![run])),
            None => {
                of_rank.threads.values().flat_map(|thread| stays_of(thread, run.0, last)).for_each(|(core, stay)| {
                    stays.entry(core).or_default().push(stay);
                })
            }
        }
        let stays = stays.into_iter().flat_map(|(core, spans)| union(spans).into_iter().map(move |span| (core, span)));
        Some(Presence {
            stays: stays.collect(),
            inside: of_rank.threads.values().map(|thread| inside(thread, rank)).collect(),
            by_class: of_rank.threads.values().map(|thread| by_class(thread, rank)).collect(),
            samples: of_rank,
        })
    }

    /// Cores and times there that fall into `span`.
    pub fn stays_within(&self, span: Span) -> impl Iterator<Item = (u32, Span)> + '_ {
        let cut = move |(core, (from, to)): &(u32, Span)| (*core, (span.0.max(*from), span.1.min(*to)));
        self.stays.iter().map(cut).filter(|(_, (from, to))| from < to)
    }

    /// Seconds on each core, the longest first.
    pub fn cores(&self, span: Span) -> Vec<(u32, f64)> {
        let mut sums: BTreeMap<u32, u64> = BTreeMap::new();
        self.stays_within(span).for_each(|(core, (from, to))| *sums.entry(core).or_default() += to - from);
        let mut cores: Vec<_> = sums.into_iter().map(|(core, ns)| (core, ns as f64 / 1e9)).collect();
        cores.sort_by(|a, b| b.1.total_cmp(&a.1));
        cores
    }

    /// Threads that were sampled, at least 1.
    pub(super) fn threads(&self) -> usize {
        self.inside.len().max(1)
    }

    /// Whether a thread was sampled twice, so that growth is known.
    pub(super) fn is_sampled(&self) -> bool {
        self.samples.threads.values().any(|thread| thread.work.points().len() > 1)
    }

    pub(super) fn involuntary(&self, span: Span) -> Option<f64> {
        let threads = self.samples.threads.values();
        sum(threads.map(|thread| thread.load.between(span.0, span.1, |load| load.involuntary)))
    }

    /// Seconds, of all threads.
    pub(super) fn stopped(&self, span: Span) -> Option<f64> {
        let threads = self.samples.threads.values();
        sum(threads.map(|thread| thread.stop.between(span.0, span.1, |stop| stop.stopped))).map(|ns| ns / 1e9)
    }

    /// Seconds, of all threads.
    pub(super) fn run_delay(&self, span: Span) -> Option<f64> {
        let threads = self.samples.threads.values();
        sum(threads.map(|thread| thread.delay.between(span.0, span.1, |delay| delay.delayed))).map(|ns| ns / 1e9)
    }

    pub(super) fn calls(&self, span: Span) -> Option<f64> {
        let threads = self.samples.threads.values();
        sum(threads.map(|thread| thread.work.between(span.0, span.1, |work| work.calls)))
    }

    pub(super) fn cpu(&self, span: Span) -> Option<f64> {
        self.samples.load.between(span.0, span.1, |load| load.cpu).map(|ns| ns / 1e9)
    }

    /// ns of processor time on each core, and ns used beyond the time of the cores where its threads were seen: threads that
    /// call no MPI are not sampled.
    pub(super) fn cpu_by_core(&self, span: Span) -> (BTreeMap<u32, f64>, f64) {
        let stays: Vec<(u32, Span)> = self.stays_within(span).collect();
        let mut moments: Vec<u64> = stays.iter().flat_map(|(_, (from, to))| [*from, *to]).collect();
        moments.sort_unstable();
        moments.dedup();
        let (mut by_core, mut elsewhere) = (BTreeMap::new(), 0.0);
        let mut coming = stays.iter().collect::<Vec<_>>();
        coming.sort_unstable_by_key(|(_, (from, _))| std::cmp::Reverse(*from));
        let mut there: Vec<&(u32, Span)> = Vec::new();
        for (from, to) in moments.windows(2).map(|pair| (pair[0], pair[1])) {
            there.retain(|(_, stay)| stay.1 > from);
            while let Some(stay) = coming.pop_if(|(_, stay)| stay.0 <= from) {
                there.push(stay);
            }
            let Some(used) = self.samples.load.between(from, to, |load| load.cpu).filter(|_| !there.is_empty()) else {
                continue;
            };
            let each = (used / there.len() as f64).min((to - from) as f64);
            there.iter().for_each(|(core, _)| *by_core.entry(*core).or_insert(0.0) += each);
            elsewhere += used - each * there.len() as f64;
        }
        (by_core, elsewhere)
    }

    /// Seconds inside MPI, of all threads.
    pub(super) fn mpi(&self, span: Span) -> Option<f64> {
        sum(self.inside.iter().map(|points| grown(points, span))).map(|ns| ns / 1e9)
    }
}

/// The sum of the known values; `None` where none is known.
pub(super) fn sum(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    values.flatten().reduce(|sum, value| sum + value)
}

/// CLOCK_MONOTONIC of a rank's host, ns.
fn moment(rank: &Tables, ticks: u64) -> u64 {
    let since = ticks as f64 - rank.header.started.ticks as f64;
    rank.header.started.monotonic.saturating_add_signed((since * rank.tick * 1e9) as i64)
}

/// A thread is taken to stay on a core until it is sampled on another. Samples before MPI_Init's return do not count for
/// the run: hwloc, which MPI libraries call there, binds the thread to every core in turn.
fn stays_of(thread: &ThreadSamples, begun: u64, last: u64) -> Vec<(u32, Span)> {
    let points = thread.work.points();
    let points = &points[points.partition_point(|(at, _)| *at < begun)..];
    let begins = std::iter::once(begun).chain(points.iter().skip(1).map(|(at, _)| *at));
    let ends = points.iter().skip(1).map(|(at, _)| *at).chain([last]);
    let spans = begins.zip(ends).map(|(from, to)| (from, to.min(last)));
    let stays = points.iter().zip(spans).filter_map(|((_, work), span)| Some((work.on()?, span)));
    stays.filter(|(_, (from, to))| from < to).collect()
}

/// The union of spans, without overlaps.
fn union(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_unstable();
    let mut all: Vec<Span> = Vec::new();
    for (from, to) in spans {
        match all.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => all.push((from, to)),
        }
    }
    all
}

/// Time inside MPI up to each moment, including the unfinished call: a long wait counts while it lasts.
fn inside(thread: &ThreadSamples, rank: &Tables) -> Vec<(u64, f64)> {
    let mut points: Vec<(u64, f64)> = Vec::with_capacity(thread.work.points().len());
    for (at, work) in thread.work.points() {
        let over = work.ticks.iter().fold(0u64, |sum, ticks| sum.saturating_add(*ticks)) as f64 * rank.tick * 1e9;
        let now = match work.inside {
            0 => 0.0,
            _ => at.saturating_sub(moment(rank, work.since)) as f64,
        };
        let total = match points.last() {
            // The tables are read while they are written: a call may be seen neither as over nor as begun, or twice.
            Some((before, least)) => (over + now).clamp(*least, least + (at - before) as f64),
            None => over + now,
        };
        points.push((*at, total));
    }
    points
}

/// The same by class of function, as it was read.
fn by_class(thread: &ThreadSamples, rank: &Tables) -> Vec<(u64, [f64; CLASSES])> {
    let at_moment = |(at, work): &(u64, ThreadWork)| {
        let mut inside = work.ticks.map(|ticks| ticks as f64 * rank.tick * 1e9);
        let id = work.inside.checked_sub(1).and_then(|id| u16::try_from(id).ok());
        if let Some(function) = id.and_then(|id| function(FunctionId(id))) {
            inside[function.class as usize] += at.saturating_sub(moment(rank, work.since)) as f64;
        }
        (*at, inside)
    };
    thread.work.points().iter().map(at_moment).collect()
}

/// Growth of a total, interpolated; `None` where the span does not overlap the time from the first point to the last.
pub(super) fn grown(points: &[(u64, f64)], span: Span) -> Option<f64> {
    let (first, last) = (points.first()?.0, points.last()?.0);
    let (from, to) = (span.0.max(first), span.1.min(last));
    let value = |time: u64| {
        let after = points.partition_point(|(at, _)| *at <= time);
        let (at, before) = points[after - 1];
        match points.get(after) {
            Some((next, then)) => before + (then - before) * (time - at) as f64 / (next - at) as f64,
            None => before,
        }
    };
    (from < to).then(|| value(to) - value(from))
}
