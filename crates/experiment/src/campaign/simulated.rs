//! Points that are simulated: each once, since the same file gives the same run, on all cores at once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Instant;

use machine::{Nanoseconds, Result, count};

use super::definition::Campaign;
use super::store::{Kept, Outcome, Store};
use crate::cause::Failure;
use crate::observer::{Observer, Progress};

/// Commits at once as many as came in meanwhile, and no more than this.
const MOST_AT_ONCE: usize = 512;

/// Simulates points. Called by several threads at once.
pub trait Simulator: Sync {
    /// The study's figures at a point.
    ///
    /// # Errors
    /// Why the point cannot be simulated.
    fn simulate(&self, campaign: &Campaign, point: usize) -> Result<Vec<Option<f64>>, Failure>;
}

/// Simulates these points with so many threads, and commits what they give.
///
/// # Errors
/// The store fails: what was committed stays.
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
        let (sender, receiver) = mpsc::sync_channel::<Kept>(2 * MOST_AT_ONCE);
        for _ in 0..cores.clamp(1, due.len().max(1)) {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                while let Some(&point) = due.get(next.fetch_add(1, Ordering::Relaxed)).filter(|_| !stop()) {
                    let from = since();
                    let found = simulator.simulate(campaign, point);
                    let elapsed = Nanoseconds(since().0 - from.0);
                    let outcome = found.map(|values| Outcome { elapsed, values, ..Outcome::default() });
                    let kept = Kept { point, round: 0, place: point as u32, started: wall + from, outcome };
                    // Nobody takes any more where the store failed.
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
            for Kept { point, outcome, .. } in &several {
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
