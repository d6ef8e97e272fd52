//! Which share of a program's computing follows the clock of its cores, from recordings at two clocks.
//!
//! Of computing `C(f0)` the share `beta` takes `f0 / f` times as long at the clock `f`, and the rest, which waits for memory, as
//! long as before:
//! ```text
//! beta = (C(f) / C(f0) - 1) / (f0 / f - 1)
//! ```

use machine::costs::Interval;
use machine::{Fault, Result};

use crate::graph::Graph;

/// The least difference of clocks that tells more than the variation of computing.
const NEAR: f64 = 0.02;

/// The excess of a share over 0 to 1 that noise can explain; with more, something else changed.
const OUTSIDE: f64 = 0.25;

/// Threads that compute less than this share of the longest computing are left out.
const LITTLE: f64 = 0.05;

/// The share that follows the clock: its middle is that of all computing, its ends are the least and the most of a thread
/// in a recording. `others` are recordings of the program with their clock over that of `graph`.
///
/// # Errors
/// Not as many ranks and threads, clocks that hardly differ, a share that no clock explains.
pub fn follows(graph: &Graph, others: &[(f64, &Graph)]) -> Result<Interval> {
    let fault = |clock: f64, cause: String, next: &str| {
        Err(Fault::new(format!("the recording at {clock} of the clock"), cause, next))
    };
    let full = computing(graph);
    let most = full.iter().copied().fold(0.0, f64::max);
    let mut shares = Vec::new();
    let mut all = 0.0;
    for (clock, other) in others {
        let slower = 1.0 / clock - 1.0;
        if slower.abs() < NEAR {
            return fault(
                *clock,
                "clocks that hardly differ tell nothing".into(),
                "record it at 0.8 of the clock or less",
            );
        }
        let ranks = |graph: &Graph| graph.lanes.iter().map(|lane| lane.rank).collect::<Vec<_>>();
        if ranks(graph) != ranks(other) {
            return fault(
                *clock,
                "its ranks and threads are others".into(),
                "record the same program with as many ranks",
            );
        }
        let then = computing(other);
        let pairs = || full.iter().zip(&then).filter(|(full, _)| **full >= LITTLE * most);
        let (before, after) = (pairs().map(|pair| pair.0).sum::<f64>(), pairs().map(|pair| pair.1).sum::<f64>());
        let share = (after / before.max(1.0) - 1.0) / slower;
        if !(-OUTSIDE..=1.0 + OUTSIDE).contains(&share) {
            let cause = format!(
                "computing takes {:.2}x as long in it, where the clock explains from 1x to {:.2}x",
                after / before.max(1.0),
                1.0 + slower
            );
            return fault(*clock, cause, "record both again: the same input, cores of their own, the clock held");
        }
        all += share / others.len() as f64;
        shares.extend(pairs().map(|(full, then)| (then / full.max(1.0) - 1.0) / slower));
    }
    let low = shares.iter().copied().fold(all, f64::min).clamp(0.0, 1.0);
    let high = shares.iter().copied().fold(all, f64::max).clamp(0.0, 1.0);
    Ok(Interval { low, middle: all.clamp(0.0, 1.0), high })
}

/// The computing of each thread without the overhead of recording, ns.
fn computing(graph: &Graph) -> Vec<f64> {
    let of = |lane: &crate::graph::Lane| {
        let gaps = (lane.first..lane.end).map(|call| (graph.calls.gap.get(call) - lane.recording).max(0));
        gaps.sum::<i64>() as f64
    };
    graph.lanes.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use record::functions::named;

    use super::*;
    use crate::graph::{Adding, Builder};

    /// Threads with these ns of computing in two gaps, each with 10 ns of recording.
    fn computes(threads: &[i64]) -> Graph {
        let mut builder = Builder::new((0..threads.len() as u32).collect(), 0);
        for (rank, ns) in threads.iter().enumerate() {
            builder.lane(rank as u32, 0);
            builder.recorded(10);
            for gap in [ns / 3, ns - ns / 3] {
                let function = named("Barrier").unwrap().id;
                builder.call(Adding { function, gap: gap + 10, inside: 5, opaque: false }, &[]);
            }
        }
        builder.finish()
    }

    #[test]
    fn the_share_is_that_by_which_computing_grew() {
        // At half the clock 0.6 of the one and 0.8 of the other take twice as long.
        let share = follows(&computes(&[10_000, 30_000]), &[(0.5, &computes(&[16_000, 54_000]))]).unwrap();
        assert!((share.low - 0.6).abs() < 1e-9 && (share.high - 0.8).abs() < 1e-9, "{share:?}");
        assert!((share.middle - 30_000.0 / 40_000.0).abs() < 1e-9, "{share:?}");
        // Faster recordings tell as well; threads that hardly compute do not.
        let share = follows(&computes(&[12_000, 30, 12_000]), &[(2.0, &computes(&[9_000, 900, 9_000]))]).unwrap();
        assert!((share.low - 0.5).abs() < 1e-9, "{share:?}");
    }

    #[test]
    fn shares_are_clipped_and_contradictions_refused() {
        let full = computes(&[100_000, 100_000]);
        let share = follows(&full, &[(0.5, &computes(&[199_000, 211_000]))]).unwrap();
        assert_eq!((share.middle, share.high), (1.0, 1.0));
        assert!((share.low - 0.99).abs() < 1e-9);
        let refused = |clock, other: &Graph| follows(&full, &[(clock, other)]).unwrap_err().to_string();
        let twice = refused(0.8, &computes(&[200_000, 200_000]));
        assert!(twice.contains("2.00x as long") && twice.contains("from 1x to 1.25x"), "{twice}");
        assert!(refused(0.5, &computes(&[40_000, 40_000])).contains("0.40x as long"));
        assert!(refused(0.99, &full).contains("hardly differ"));
        assert!(refused(0.5, &computes(&[100_000])).contains("others"));
    }
}
