//! Simulated points. Each is simulated once, since a simulation is deterministic, and all cores take part.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Instant;

use machine::{Nanoseconds, Result, count};

use super::definition::Campaign;
use super::store::{NewRun, Outcome, Store};
use crate::cause::Failure;
use crate::observer::{Observer, Progress};

/// Most outcomes in one commit.
const MOST_AT_ONCE: usize = 512;

/// Simulates points. Called by several threads at once.
pub trait Simulator: Sync {
    /// The study's figures at a point.
    ///
    /// # Errors
    /// The reason why the point cannot be simulated.
    fn simulate(&self, campaign: &Campaign, point: usize) -> Result<Vec<Option<f64>>, Failure>;
}

/// Simulates the points `due` on `cores` threads and commits their outcomes.
///
/// # Errors
/// The store fails. Committed outcomes stay.
pub(super) fn run(
    campaign: &Campaign,
    due: &[usize],
    store: &mut Store,
    (simulator, cores): (&dyn Simulator, usize),
    wall: Nanoseconds,
    observer: &mut dyn Observer,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<()> {
    let (next, began) = (AtomicUsize::new(0), Instant::now());
    let since = || Nanoseconds(began.elapsed().as_nanos() as u64);
    std::thread::scope(|scope| {
        let (sender, receiver) = mpsc::sync_channel::<NewRun>(2 * MOST_AT_ONCE);
        for _ in 0..cores.clamp(1, due.len().max(1)) {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                while let Some(&point) = due.get(next.fetch_add(1, Ordering::Relaxed)).filter(|_| !stop()) {
                    let from = since();
                    let found = simulator.simulate(campaign, point);
                    let elapsed = Nanoseconds(since().0 - from.0);
                    let outcome = found.map(|values| Outcome { elapsed, values, ..Outcome::default() });
                    let kept = NewRun { point, round: 0, place: point as u32, started: wall + from, outcome };
                    // The receiver is gone: the store has failed.
                    if sender.send(kept).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let (mut done, mut charged) = (0, Nanoseconds(0));
        while let Ok(first) = receiver.recv() {
            let mut several = vec![first];
            several.extend(receiver.try_iter().take(MOST_AT_ONCE - 1));
            let now = since();
            store.keep(&several, Nanoseconds(now.0 - charged.0))?;
            (charged, done) = (now, done + several.len());
            for NewRun { point, outcome, .. } in &several {
                if let Err(failure) = outcome {
                    observer.note(&format!("{}: {failure}", campaign.words(*point)));
                }
            }
            let of = count::of(due.len() as u64, "point");
            let state = format!("{} of {of} simulated", count::grouped(done as u64));
            observer.progress(&Progress { state, now: None, spent: now });
        }
        Ok(())
    })
}
