//! One thread of the process that drives channels to other hosts while their owners do something else: lost packets are
//! sent again, and what a closed end still has to say arrives.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, TryLockError, Weak};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use super::engine_end::EngineEnd;

/// Time between two looks while something is on its way: at first, and after many looks.
const BUSY: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(16));
const POLLS: u32 = 200;
/// Time between two looks at a channel whose owner may be busy: its peer must see a sign of life. Where the owner
/// sleeps until something comes, its engine says when.
const CALM: Duration = Duration::from_millis(100);
/// Time for which a closed end goes on sending what it wrote before.
const LINGER: Duration = Duration::from_secs(2);

#[derive(Default)]
struct Pump {
    channels: Mutex<Vec<Weak<Mutex<EngineEnd>>>>,
    lingering: Mutex<Vec<(Instant, Arc<Mutex<EngineEnd>>)>>,
    thread: OnceLock<Option<Thread>>,
}

static PUMP: OnceLock<Pump> = OnceLock::new();

fn pump() -> &'static Pump {
    PUMP.get_or_init(Pump::default)
}

fn started() -> Option<&'static Thread> {
    let thread = pump().thread.get_or_init(|| {
        let made = thread::Builder::new().name("channel pump".into()).spawn(run);
        // Without a thread channels still move whenever their owners use them.
        made.ok().map(|handle| handle.thread().clone())
    });
    thread.as_ref()
}

pub(super) fn add(channel: &Arc<Mutex<EngineEnd>>) {
    pump().channels.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(channel));
    ring();
}

pub(super) fn linger(channel: &Arc<Mutex<EngineEnd>>) {
    let mut lingering = pump().lingering.lock().unwrap_or_else(PoisonError::into_inner);
    lingering.push((Instant::now() + LINGER, channel.clone()));
    drop(lingering);
    ring();
}

/// Wakes the thread: something is on its way.
pub(super) fn ring() {
    if let Some(thread) = started() {
        thread.unpark();
    }
}

fn run() {
    let pump = pump();
    let mut looks = 0;
    loop {
        let mut busy = false;
        let mut calm: Option<Duration> = None;
        let mut channels = pump.channels.lock().unwrap_or_else(PoisonError::into_inner);
        channels.retain(|channel| channel.strong_count() > 0);
        let all: Vec<_> = channels.iter().filter_map(Weak::upgrade).collect();
        drop(channels);
        for channel in all {
            match channel.try_lock() {
                Ok(mut end) => {
                    end.turn_for_owner();
                    busy |= !end.is_quiet();
                    let next = if end.is_watched() { end.next_timeout() } else { Some(CALM) };
                    calm = calm.into_iter().chain(next).min();
                }
                // Its owner polls it.
                Err(TryLockError::WouldBlock) => busy = true,
                Err(TryLockError::Poisoned(_)) => {}
            }
        }
        let mut lingering = pump.lingering.lock().unwrap_or_else(PoisonError::into_inner);
        lingering.retain(|(until, channel)| {
            let quiet = channel.try_lock().is_ok_and(|end| end.is_quiet());
            !quiet && Instant::now() < *until
        });
        busy |= !lingering.is_empty();
        drop(lingering);
        match (busy, calm) {
            (true, _) => {
                thread::sleep(if looks < POLLS { BUSY.0 } else { BUSY.1 });
                looks += 1;
                continue;
            }
            // Due timeouts were handled a moment ago.
            (false, Some(calm)) => thread::park_timeout(calm.max(BUSY.0)),
            (false, None) => thread::park(),
        }
        looks = 0;
    }
}
