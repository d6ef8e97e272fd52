//! Many worlds, one per thread and a thread per core: their totals, and the seeds that fail.

use std::panic::catch_unwind;
use std::sync::Mutex;
use std::thread::{available_parallelism, scope};
use std::time::{Duration, Instant};

use super::world::{Outcome, World};

const EVERY: Duration = Duration::from_secs(10);

#[derive(Default)]
pub struct Totals {
    pub outcome: Outcome,
    pub worlds: u64,
    pub failed: Vec<u64>,
    next: u64,
    printed: Duration,
}

/// Runs the worlds of `first` and the seeds after it until they have moved so many messages, or so many minutes are over. A seed
/// that fails is printed with what replays it, and the others go on.
pub fn run(first: u64, messages: u64, minutes: Option<u64>) -> Totals {
    let start = Instant::now();
    let threads = available_parallelism().map_or(1, usize::from);
    let totals = Mutex::new(Totals { next: first, ..Totals::default() });
    let next = || {
        let over = minutes.is_some_and(|minutes| start.elapsed() >= Duration::from_secs(60 * minutes));
        totals.lock().unwrap().seed(messages).filter(|_| !over)
    };
    let work = || {
        while let Some(seed) = next() {
            let ended = catch_unwind(|| World::new(seed).run());
            let mut totals = totals.lock().unwrap();
            totals.worlds += 1;
            match ended {
                Ok(outcome) => totals.outcome.add(&outcome),
                Err(_) => {
                    eprintln!("replay with PLIMSOLL_SEED={seed} cargo test -p engine simulation");
                    totals.failed.push(seed);
                }
            }
            totals.print_progress(messages, start.elapsed());
        }
    };
    scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let totals = totals.into_inner().unwrap();
    let Totals { outcome, worlds, failed, .. } = &totals;
    eprintln!("{outcome:?}");
    eprintln!(
        "totals: {} messages, {:.1} h of virtual time, {worlds} worlds of seeds from {first}, {} failed {failed:?}, \
         {:.0} s on {threads} threads",
        outcome.messages,
        outcome.virtual_time as f64 / 3.6e12,
        failed.len(),
        start.elapsed().as_secs_f64()
    );
    totals
}

impl Totals {
    fn seed(&mut self, messages: u64) -> Option<u64> {
        let seed = self.next;
        (self.outcome.messages < messages).then(|| {
            self.next += 1;
            seed
        })
    }

    fn print_progress(&mut self, messages: u64, elapsed: Duration) {
        if elapsed < self.printed + EVERY {
            return;
        }
        self.printed = elapsed;
        let moved = self.outcome.messages;
        let rate = moved as f64 / elapsed.as_secs_f64();
        let left = messages.saturating_sub(moved) as f64 / rate / 60.0;
        eprintln!(
            "simulation: {moved} of {messages} messages, {} worlds, {} failed, {:.0} messages/s, {left:.0} min left",
            self.worlds,
            self.failed.len(),
            rate
        );
    }
}
