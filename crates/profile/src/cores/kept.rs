//! Time in which threads of a rank did not run, inside MPI and outside, by cause.
//!
//! The kernel counts a thread's time on a core and its time runnable without one; in the rest the thread was stopped or
//! blocked. Samples show whether the thread was inside MPI meanwhile:
//! - Stopped time and time without a core are divided between two samples as the thread's time is.
//! - A thread that often gives its core up does so inside MPI, where it waits: its time without a core is inside MPI,
//!   up to the time that it spent there.
//! - Blocked time is outside as often as samples found the thread blocked there. Without such samples it is 0: interrupts
//!   and hypervisors take time that the kernel counts for nobody.

use record::samples::{MISSED, ThreadBlocked, ThreadSamples};

use super::presence::{Presence, grown, sum};
use super::{CLASSES, Span};

/// Mean time on a core, ns, that any scheduler exceeds.
const TURN: f64 = 500_000.0;

/// Seconds, of all threads.
#[derive(Debug, Clone, PartialEq)]
pub struct Kept {
    /// Inside MPI, stopped or without a core that the thread had not given up, by class of function.
    pub inside: [f64; CLASSES],
    /// Inside MPI, without a core that the thread had given up itself.
    pub yielded: f64,
    /// Outside, without a core; `None`: the kernel does not report it.
    pub runnable: Option<f64>,
    /// Outside, stopped; `None`: it could not be seen.
    pub stopped: Option<f64>,
    /// Outside, blocked; `None`: an earlier version of plimsoll sampled.
    pub blocked: Option<Blocked>,
}

/// Blocked time and its parts by cause, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Blocked {
    pub all: f64,
    pub sleep: f64,
    pub lock: f64,
    pub storage: f64,
}

/// ns of one thread.
struct OfThread {
    inside: [f64; CLASSES],
    yielded: f64,
    runnable: Option<f64>,
    stopped: Option<f64>,
    blocked: Option<Blocked>,
}

impl Presence<'_> {
    /// `None` where nothing is known of any thread.
    pub(super) fn kept(&self, span: Span) -> Option<Kept> {
        let threads = self.samples.threads.values().zip(&self.by_class).zip(&self.inside);
        let all = threads.filter_map(|((thread, by_class), inside)| of_thread(thread, by_class, inside, span));
        let all: Vec<OfThread> = all.collect();
        if all.is_empty() {
            return None;
        }
        let seconds = |of: fn(&OfThread) -> Option<f64>| sum(all.iter().map(of)).map(|ns| ns / 1e9);
        let blocked = all.iter().filter_map(|of| of.blocked).reduce(|one, other| Blocked {
            all: one.all + other.all,
            sleep: one.sleep + other.sleep,
            lock: one.lock + other.lock,
            storage: one.storage + other.storage,
        });
        Some(Kept {
            inside: std::array::from_fn(|class| all.iter().map(|of| of.inside[class]).sum::<f64>() / 1e9),
            yielded: all.iter().map(|of| of.yielded).sum::<f64>() / 1e9,
            runnable: seconds(|of| of.runnable),
            stopped: seconds(|of| of.stopped),
            blocked: blocked.map(|of| of.times(1e-9)),
        })
    }
}

impl Blocked {
    fn times(self, factor: f64) -> Blocked {
        let Blocked { all, sleep, lock, storage } = self;
        Blocked { all: factor * all, sleep: factor * sleep, lock: factor * lock, storage: factor * storage }
    }

    /// No more than `most`.
    pub(super) fn within(self, most: f64) -> Blocked {
        if self.all > most { self.times(most / self.all) } else { self }
    }
}

fn of_thread(
    thread: &ThreadSamples,
    by_class: &[(u64, [f64; CLASSES])],
    inside: &[(u64, f64)],
    span: Span,
) -> Option<OfThread> {
    let (first, last) = (by_class.first()?.0, by_class.last()?.0);
    let span = (span.0.max(first), span.1.min(last));
    let (stops, delays, rans) = (thread.stop.first(), thread.delay.first(), thread.ran.first());
    if span.0 >= span.1 || (stops.is_none() && delays.is_none() && rans.is_none()) {
        return None;
    }
    let mut of = OfThread {
        inside: [0.0; CLASSES],
        yielded: 0.0,
        runnable: delays.map(|_| 0.0),
        stopped: stops.map(|_| 0.0),
        blocked: None,
    };
    let [mut stopped_inside, mut delayed_inside] = [[0.0; CLASSES]; 2];
    let [mut stopped, mut delayed] = [0.0; 2];
    let begin = by_class.partition_point(|(at, _)| *at <= span.0).saturating_sub(1);
    for pair in by_class[begin..].windows(2).take_while(|pair| pair[0].0 < span.1) {
        let [(from, before), (to, after)] = pair else { continue };
        let cut = (span.0.max(*from), span.1.min(*to));
        if cut.0 >= cut.1 {
            continue;
        }
        let length = (cut.1 - cut.0) as f64;
        let stop = thread.stop.between(cut.0, cut.1, |stop| stop.stopped).unwrap_or(0.0).min(length);
        let delay = thread.delay.between(cut.0, cut.1, |delay| delay.delayed).unwrap_or(0.0).min(length - stop);
        let grown: [f64; CLASSES] = std::array::from_fn(|class| (after[class] - before[class]).max(0.0));
        let all = grown.iter().sum::<f64>().max((to - from) as f64);
        for (class, grown) in grown.into_iter().enumerate() {
            stopped_inside[class] += stop * grown / all;
            delayed_inside[class] += delay * grown / all;
        }
        (stopped, delayed) = (stopped + stop, delayed + delay);
    }

    let in_mpi = grown(inside, span).unwrap_or(0.0);
    let outside = |all: f64, inside: &[f64; CLASSES]| (all - inside.iter().sum::<f64>()).max(0.0);
    if gives_up(thread, span) {
        of.runnable = of.runnable.map(|_| (delayed - in_mpi).max(0.0));
        of.yielded = delayed - of.runnable.unwrap_or(0.0);
        delayed_inside = [0.0; CLASSES];
    } else {
        of.runnable = of.runnable.map(|_| outside(delayed, &delayed_inside));
    }
    of.stopped = of.stopped.map(|_| outside(stopped, &stopped_inside));
    of.inside = std::array::from_fn(|class| stopped_inside[class] + delayed_inside[class]);
    of.blocked = blocked(thread, inside, span);
    Some(of)
}

/// Whether the thread lost its core far more often than by preemption.
fn gives_up(thread: &ThreadSamples, span: Span) -> bool {
    let ran = thread.ran.between(span.0, span.1, |ran| ran.ran);
    let times = thread.load.between(span.0, span.1, |load| load.involuntary);
    ran.zip(times).is_some_and(|(ran, times)| times * TURN > ran)
}

/// Outside of MPI, ns.
fn blocked(thread: &ThreadSamples, inside: &[(u64, f64)], span: Span) -> Option<Blocked> {
    let (from, to) = (span.0.max(thread.ran.first()?.0), span.1.min(thread.ran.last()?.0));
    let ran = thread.ran.between(from, to, |ran| ran.ran)?;
    let looked = |of: fn(&ThreadBlocked) -> u64| thread.blocked.between(from, to, of);
    let (found, found_inside) = (looked(|of| of.outside)?, looked(|of| of.inside)?);
    let length = (to - from) as f64;
    let stopped = thread.stop.between(from, to, |stop| stop.stopped).unwrap_or(0.0);
    let delayed = thread.delay.between(from, to, |delay| delay.delayed);
    let rest = (length - ran - stopped - delayed.unwrap_or(0.0)).max(0.0);
    // Where the kernel does not report runnable time, samples alone distinguish it from blocked time.
    let missed = if delayed.is_some() { MISSED } else { 1.0 };
    let all = rest.min(missed * (found + found_inside));
    if all <= 0.0 {
        return Some(Blocked::default());
    }
    let in_mpi = grown(inside, (from, to)).unwrap_or(0.0);
    let share = found / (found + found_inside);
    let outside = (all * share).max(all - in_mpi).min(length - in_mpi).clamp(0.0, all);
    let part = |of: fn(&ThreadBlocked) -> u64| {
        let found_for = looked(of).unwrap_or(0.0);
        if found > 0.0 { outside * (found_for / found).min(1.0) } else { 0.0 }
    };
    let (sleep, lock, storage) = (part(|of| of.sleep), part(|of| of.lock), part(|of| of.storage));
    Some(Blocked { all: outside, sleep, lock, storage })
}

#[cfg(test)]
mod tests {
    use record::image::Image;
    use record::layout::{Moment, clock};
    use record::rank::Rank;
    use record::samples::{Head, Origins, Samples, ThreadDelay, ThreadLoad, ThreadRan, ThreadWork, Writer};

    use super::*;
    use crate::tables::Tables;

    const MS: u64 = 1_000_000;
    const BEGUN: u64 = 1_000 * MS;
    /// A step: outside of MPI, then inside.
    const STEP: (u64, u64) = (40 * MS, 60 * MS);

    /// A thread in a step: ms on a core and runnable without one; involuntary switches; time sampled as blocked, outside
    /// and inside.
    struct Did {
        ran: u64,
        delayed: u64,
        involuntary: u64,
        blocked: (u64, u64),
    }

    /// Ten steps, sampled at the beginning and the middle of each.
    fn kept(did: &Did) -> Kept {
        let head = Head {
            host: "h".into(),
            boot: "b".into(),
            pid: 1,
            monotonic: BEGUN,
            realtime: 0,
            interval: MS,
            for_ranks: None,
            cores: vec![(0, 0)],
            origins: Origins::measured("told"),
        };
        let mut file = Vec::new();
        let mut writer = Writer::begin(&mut file, &head).unwrap();
        for step in 0..=10u64 {
            let begun = BEGUN + step * (STEP.0 + STEP.1);
            let look = |writer: &mut Writer<_>, at: u64, inside: u64, found: (u64, u64)| {
                let mut ticks = [0; CLASSES];
                ticks[2] = inside;
                writer.thread_work(7, 0, 7, &ThreadWork { core: 1, ticks, ..ThreadWork::default() }).unwrap();
                let blocked =
                    ThreadBlocked { outside: found.0, inside: found.1, sleep: found.0, ..ThreadBlocked::default() };
                writer.thread_blocked(7, 0, 7, &blocked).unwrap();
                writer.end_work(at).unwrap();
            };
            let (outside, inside) = (step * did.blocked.0 * MS, step * did.blocked.1 * MS);
            look(&mut writer, begun, step * STEP.1, (outside, inside));
            writer.thread_load(7, 0, 7, &ThreadLoad { voluntary: 0, involuntary: step * did.involuntary }).unwrap();
            writer.thread_ran(7, 0, 7, &ThreadRan { ran: step * did.ran * MS }).unwrap();
            writer.thread_delay(7, 0, 7, &ThreadDelay { delayed: step * did.delayed * MS }).unwrap();
            writer.end_load(begun).unwrap();
            if step < 10 {
                look(&mut writer, begun + STEP.0, step * STEP.1, (outside + did.blocked.0 * MS, inside));
            }
        }
        let samples = Samples::read(&file).unwrap();
        let mut image = Image::default();
        let header = &mut image.header;
        (header.pid, header.placed, header.size, header.clock) = (7, 1, 1, clock::COUNTER);
        let end = BEGUN + 10 * (STEP.0 + STEP.1);
        header.started = Moment { ticks: BEGUN, monotonic: BEGUN, realtime: 0 };
        header.latest = Moment { ticks: end, monotonic: end, realtime: end - BEGUN };
        (header.initialized, header.finalized, header.ended) = (BEGUN, end, end);
        let rank = Tables::of(Rank::read(&image.bytes()).unwrap(), "a file".into()).unwrap();
        Presence::of(&samples, &rank).unwrap().kept((BEGUN, end)).unwrap()
    }

    fn near(value: f64, wanted: f64) -> bool {
        (value - wanted).abs() < 0.01
    }

    /// 0.4 of a second are outside MPI.
    #[test]
    fn a_rank_that_sleeps_is_blocked_where_it_was_found_so() {
        let all = |of: Kept| of.blocked.unwrap();
        // A thread that polls inside MPI: nothing is blocked there.
        let sleeps = all(kept(&Did { ran: 63, delayed: 0, involuntary: 0, blocked: (37, 0) }));
        assert!(near(sleeps.all, 0.37) && near(sleeps.sleep, 0.37) && near(sleeps.lock, 0.0), "{sleeps:?}");
        // A thread that computes, and waits inside MPI without polling.
        let waits = all(kept(&Did { ran: 42, delayed: 0, involuntary: 0, blocked: (0, 58) }));
        assert!(near(waits.all, 0.0), "{waits:?}");
        // Both: the blocked time exceeds the time inside MPI.
        let both = all(kept(&Did { ran: 5, delayed: 0, involuntary: 0, blocked: (1, 94) }));
        assert!(near(both.all, 0.35), "{both:?}");
    }

    #[test]
    fn what_no_look_finds_blocked_was_stolen_or_interrupted() {
        let stolen = kept(&Did { ran: 70, delayed: 0, involuntary: 3, blocked: (0, 0) });
        assert!(near(stolen.blocked.unwrap().all, 0.0), "{stolen:?}");
    }

    #[test]
    fn who_gives_its_core_up_does_so_inside_mpi() {
        // A thread that yields: the others have the core meanwhile.
        let yields = kept(&Did { ran: 45, delayed: 55, involuntary: 9000, blocked: (0, 0) });
        assert!(near(yields.runnable.unwrap(), 0.0) && near(yields.yielded, 0.55), "{yields:?}");
        assert!(near(yields.inside.iter().sum(), 0.0), "{yields:?}");
        let more = kept(&Did { ran: 10, delayed: 90, involuntary: 9000, blocked: (0, 0) });
        assert!(near(more.runnable.unwrap(), 0.3) && near(more.yielded, 0.6), "{more:?}");
        // A thread that takes turns with another program.
        let shares = kept(&Did { ran: 50, delayed: 50, involuntary: 12, blocked: (0, 0) });
        assert!(near(shares.runnable.unwrap(), 0.2) && near(shares.inside.iter().sum(), 0.3), "{shares:?}");
        assert!(near(shares.yielded, 0.0), "{shares:?}");
    }
}
