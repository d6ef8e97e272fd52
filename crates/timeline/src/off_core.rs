//! Times when the threads of a rank were off their cores: stopped, or runnable while others had them. They come from
//! the samples of the rank's host, since a timeline does not show them.

use std::collections::BTreeMap;

use record::layout::{Header, words};
use record::samples::{Samples, Series, ThreadDelay, ThreadSamples, ThreadStop};

use super::absence::SHORTEST;
use super::lanes::Clock;

/// Share of the sampled time below which a thread is ignored: the host's own threads take that much.
const PASSED_BY: f64 = 0.01;

#[derive(Debug, Clone, Default)]
pub struct OffCore {
    /// Offset from the timeline's time to CLOCK_MONOTONIC of the rank's host, ns.
    offset: i64,
    /// Threads that were off for long, by index in the tables.
    threads: BTreeMap<u16, (Series<ThreadStop>, Series<ThreadDelay>)>,
    /// Whether some thread was hardly ever off, and could move the rank's messages at any time.
    has_other: bool,
}

impl OffCore {
    /// `None` where the samples have neither for the rank.
    pub(super) fn of(samples: &[Samples], header: &Header, clock: &Clock) -> Option<OffCore> {
        let boot = words(&header.boot);
        let mut of_host = samples.iter().filter(|samples| samples.head.boot == boot);
        let rank = of_host.find_map(|samples| samples.ranks.get(&header.pid))?;
        let known = |thread: &ThreadSamples| thread.stop.first().is_some() || thread.delay.first().is_some();
        if !rank.threads.values().any(known) {
            return None;
        }
        let mut off = OffCore {
            offset: (header.started.monotonic as i64).saturating_sub(clock.at(header.started.ticks)),
            ..OffCore::default()
        };
        for (index, thread) in &rank.threads {
            let stopped = thread.stop.between(0, u64::MAX, |stop| stop.stopped);
            let delayed = thread.delay.between(0, u64::MAX, |delay| delay.delayed);
            let sampled = [span(&thread.stop), span(&thread.delay)].into_iter().flatten().max();
            let seconds = stopped.into_iter().chain(delayed).sum::<f64>();
            match sampled.is_some_and(|sampled| seconds > PASSED_BY * sampled as f64) {
                true => _ = off.threads.insert(*index, (thread.stop.clone(), thread.delay.clone())),
                false => off.has_other = true,
            }
        }
        Some(off)
    }

    /// Whether the rank could ever be kept from moving messages.
    pub fn is_ever(&self) -> bool {
        !self.threads.is_empty() && !self.has_other
    }

    /// How long a thread was off its core between two moments of the timeline, ns; evenly spread between two samples.
    pub fn of_thread(&self, thread: u16, from: i64, to: i64) -> i64 {
        self.threads.get(&thread).map_or(0, |known| self.within(known, from, to))
    }

    /// How long a thread was stopped, likewise.
    pub fn stopped(&self, thread: u16, from: i64, to: i64) -> i64 {
        if to - from < SHORTEST {
            return 0;
        }
        let stopped = self
            .threads
            .get(&thread)
            .and_then(|(stop, _)| stop.between(self.at(from), self.at(to), |stop| stop.stopped));
        (stopped.unwrap_or(0.0) as i64).min(to - from)
    }

    /// How long all threads of the rank were off at once, ns, estimated as the least of them.
    pub fn of_rank(&self, from: i64, to: i64) -> i64 {
        if !self.is_ever() {
            return 0;
        }
        self.threads.values().map(|known| self.within(known, from, to)).min().unwrap_or(0)
    }

    fn within(&self, (stop, delay): &(Series<ThreadStop>, Series<ThreadDelay>), from: i64, to: i64) -> i64 {
        if to - from < SHORTEST {
            return 0;
        }
        let stopped = stop.between(self.at(from), self.at(to), |stop| stop.stopped);
        let delayed = delay.between(self.at(from), self.at(to), |delay| delay.delayed);
        (stopped.into_iter().chain(delayed).sum::<f64>() as i64).min(to - from)
    }

    /// The time on CLOCK_MONOTONIC of the rank's host, ns.
    fn at(&self, time: i64) -> u64 {
        time.saturating_add(self.offset).max(0) as u64
    }
}

/// Time from the first point to the last.
fn span<T: record::samples::Totals>(series: &Series<T>) -> Option<u64> {
    Some(series.last()?.0 - series.first()?.0)
}
