//! The raw latency between two cores: round trips of one cache line, the floor of everything over shared memory.
//!
//! On virtual machines it can jump within seconds, so it is measured beside each block, in less than a millisecond.

use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use machine::{CoreId, Fault, Probe, Result};

use linux::affinity;
use linux::passing::{fault, hear, patiently, say, speaks};
use linux::region::Region;

/// Round trips timed together, so that reading the clock does not matter.
const BATCH: u64 = 64;
const BATCHES: usize = 16;
/// Time after which no batch starts.
const BUDGET: Duration = Duration::from_micros(500);
/// How long one end waits for the other to come to the probe.
const ARRIVAL: Duration = Duration::from_millis(100);
/// How long one end waits once the other has come: a few time slices.
const ANSWER: Duration = Duration::from_millis(20);
/// Flag of the last ping of a probe.
const LAST: u64 = 1 << 63;
/// Polls of a line between reads of the clock.
const POLLS: u32 = 2048;
const LENGTH: usize = 4096;

const PROTOCOL: u64 = u64::from_le_bytes(*b"plimprob");
const VERSION: u64 = 1;

/// Two cache lines shared by two threads or processes: one is written by the leading end, one by the following.
pub struct ProbeLines {
    region: Region,
}

#[repr(C)]
struct Lines {
    ping: Line,
    pong: Line,
}

#[repr(align(128))]
struct Line(AtomicU64);

impl ProbeLines {
    pub fn create() -> Result<ProbeLines> {
        Ok(ProbeLines { region: Region::create("plimsoll-probe", LENGTH)? })
    }

    /// Creates lines and passes them to the process at the other end of `stream`, which calls [`ProbeLines::join`].
    pub fn share(stream: &UnixStream) -> Result<ProbeLines> {
        let lines = Self::create()?;
        patiently(stream, || {
            say(stream, &[PROTOCOL, VERSION, 0, 0, 0, 0, 0, 0], Some(lines.region.fd()))?;
            speaks(&hear(stream)?, PROTOCOL, VERSION)
        })?;
        Ok(lines)
    }

    /// Takes the lines that the other end shares.
    pub fn join(stream: &UnixStream) -> Result<ProbeLines> {
        patiently(stream, || {
            let heard = hear(stream)?;
            speaks(&heard, PROTOCOL, VERSION)?;
            let region = Region::adopt(heard.fd.ok_or_else(|| fault("it passed no probe lines"))?, LENGTH)?;
            say(stream, &[PROTOCOL, VERSION, 0, 0, 0, 0, 0, 0], None)?;
            Ok(ProbeLines { region })
        })
    }

    fn lines(&self) -> &Lines {
        // SAFETY: the region is a page, page aligned; `Lines` is atomics only, valid whatever bits a peer writes.
        unsafe { self.region.base().cast().as_ref() }
    }

    /// Measures, while the other end is in [`ProbeLines::follow`]. Both should be pinned. Takes less than a millisecond;
    /// `None` where the other end does not come within 100 ms, or stops answering.
    pub fn lead(&self) -> Option<Probe> {
        let Lines { ping, pong } = self.lines();
        let mut number = (ping.0.load(Ordering::Relaxed) & !LAST).max(pong.0.load(Ordering::Relaxed) & !LAST);
        let mut rounds = |count: u64, patience: Duration, flag: u64| {
            for _ in 0..count {
                number = (number + 1) & !LAST;
                ping.0.store(number | flag, Ordering::Release);
                wait_for(&pong.0, patience, |answer| answer == number | flag)?;
            }
            Some(())
        };
        let mut measure = || {
            rounds(1, ARRIVAL, 0)?;
            rounds(BATCH, ANSWER, 0)?;
            let start = Instant::now();
            let mut batches = Vec::with_capacity(BATCHES);
            // At least one batch, however long this thread was off its core.
            while batches.is_empty() || (batches.len() < BATCHES && start.elapsed() < BUDGET) {
                let before = Instant::now();
                rounds(BATCH, ANSWER, 0)?;
                batches.push(before.elapsed().as_nanos() as u64 * 1000 / (2 * BATCH));
            }
            rounds(1, ANSWER, LAST)?;
            let middle = batches.len() / 2;
            Some(Probe { half_round_trip_ps: *batches.select_nth_unstable(middle).1 })
        };
        let measured = measure();
        if measured.is_none() {
            // A follower that comes late finds no ping to answer.
            ping.0.store(pong.0.load(Ordering::Relaxed), Ordering::Release);
        }
        measured
    }

    /// Answers the other end's [`ProbeLines::lead`] until it has measured. False where it did not come within 100 ms,
    /// or stopped in the middle.
    pub fn follow(&self) -> bool {
        let Lines { ping, pong } = self.lines();
        let mut last = pong.0.load(Ordering::Relaxed);
        let mut patience = ARRIVAL;
        loop {
            let Some(number) = wait_for(&ping.0, patience, |number| number != last) else { return false };
            last = number;
            pong.0.store(number, Ordering::Release);
            if number & LAST != 0 {
                return true;
            }
            patience = ANSWER;
        }
    }
}

/// Spins until `line` has a value that `is_it` accepts.
#[inline(always)]
fn wait_for(line: &AtomicU64, patience: Duration, is_it: impl Fn(u64) -> bool) -> Option<u64> {
    let mut since = None;
    loop {
        for _ in 0..POLLS {
            let value = line.load(Ordering::Acquire);
            if is_it(value) {
                return Some(value);
            }
        }
        let since = *since.get_or_insert_with(Instant::now);
        if since.elapsed() > patience {
            return None;
        }
    }
}

/// The latency between two cores of this machine, measured by two threads pinned to them.
///
/// A fault where a core is not allowed, both are the same, or other work keeps them so busy that no answer comes.
pub fn between(one: CoreId, other: CoreId) -> Result<Probe> {
    if one == other {
        return Err(Fault::new(one.to_string(), "it cannot be probed against itself", "name two cores"));
    }
    let lines = &ProbeLines::create()?;
    std::thread::scope(|scope| {
        let follower = scope.spawn(move || affinity::pin(other).map(|_pinned| lines.follow()));
        let leader = scope.spawn(move || affinity::pin(one).map(|_pinned| lines.lead()));
        let ended = "the probe does not panic";
        let (measured, _) = (leader.join().expect(ended)?, follower.join().expect(ended)?);
        measured.ok_or_else(|| {
            let cores = format!("latency of {one} to {other}");
            Fault::new(cores, "one of them did not answer in time", "free these cores of other work")
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Retries for a minute, as other work may hold the cores so that a probe gives up.
    fn sooner_or_later<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(found) = attempt() {
                return found;
            }
            assert!(Instant::now() < until, "no probe came to its end within a minute");
        }
    }

    #[test]
    fn two_cores_have_a_latency() {
        let cores = affinity::allowed().unwrap();
        let &[one, other, ..] = &cores[..] else {
            return skip::test("one core only");
        };
        let found = sooner_or_later(|| between(one, other).ok());
        assert!(found.half_round_trip_ps > 0);
        assert!(between(one, one).is_err());
        assert!(between(one, CoreId(9_999)).unwrap_err().to_string().contains("core 9999"));
    }

    #[test]
    fn an_end_that_stays_alone_gives_up_and_the_next_probe_works() {
        let lines = ProbeLines::create().unwrap();
        assert!(lines.lead().is_none());
        assert!(!lines.follow());
        assert!(lines.lead().is_none());
        sooner_or_later(|| {
            std::thread::scope(|scope| {
                let follower = scope.spawn(|| lines.follow());
                (lines.lead().is_some() & follower.join().unwrap()).then_some(())
            })
        });
    }

    #[test]
    fn lines_are_passed_over_a_socket() {
        let (one, other) = UnixStream::pair().unwrap();
        let (mine, theirs) = std::thread::scope(|scope| {
            let theirs = scope.spawn(|| ProbeLines::join(&other).unwrap());
            (ProbeLines::share(&one).unwrap(), theirs.join().unwrap())
        });
        mine.lines().ping.0.store(5, Ordering::Release);
        assert_eq!(theirs.lines().ping.0.load(Ordering::Acquire), 5);
    }
}
