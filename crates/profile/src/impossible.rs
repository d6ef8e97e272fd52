//! Counts and times that no rank can reach in its lifetime: those of damaged tables, which no sum may include.

use record::layout::{Dropped, Peer, Site, Thread};

use crate::lost;
use crate::tables::{Calls, Tables};

/// Recording a call takes a thread longer than a nanosecond.
const CALLS_A_SECOND: f64 = 1e9;

/// More than the memory bandwidth of any host.
const BYTES_A_SECOND: f64 = 1e13;

/// The end of a sentence that begins 'by its tables'; `None` where all is possible. `lived`: greatest lifetime, seconds.
pub fn impossible_figure(rank: &Tables, lived: f64) -> Option<&'static str> {
    let (mut calls, mut bytes, mut ticks) = (most_lost(&rank.header.dropped), 0, 0);
    let mut hold = |counts: &[u64], sizes: &[u64], times: &[u64]| {
        let most = |of: &[u64], before: u64| of.iter().copied().fold(before, u64::max);
        (calls, bytes, ticks) = (most(counts, calls), most(sizes, bytes), most(times, ticks));
    };
    for (_, thread) in &rank.threads {
        let Thread { calls, messages, bytes, ticks, injected, .. } = thread;
        hold(&[*calls, *messages], &[*bytes], &[ticks.iter().copied().fold(0, u64::saturating_add)]);
        injected.iter().for_each(|delays| hold(&[delays.count], &[], &[delays.ticks]));
    }
    for Calls { cell, .. } in &rank.calls {
        hold(&[cell.calls], &[cell.bytes], &[cell.ticks, cell.most]);
        hold(&cell.histogram, &[], &[]);
    }
    for Site { calls, ticks, most, bytes, .. } in &rank.sites {
        hold(&[*calls], &[*bytes], &[*ticks, *most]);
    }
    for Peer { messages, bytes, operations, operation_bytes } in &rank.peers {
        hold(&[*messages, *operations], &[*bytes, *operation_bytes], &[]);
    }
    let (from, to) = rank.run();
    // A rank's sums include all of its threads.
    let most = |a_second: f64| a_second * lived * rank.threads.len().max(1) as f64;
    match () {
        () if rank.seconds(ticks) > lived => Some("it was in MPI for longer than the job ran"),
        () if rank.seconds(to - from) > lived => Some("it ran for longer than the job"),
        () if calls as f64 > most(CALLS_A_SECOND) => Some("it made more calls than its time can hold"),
        () if bytes as f64 > most(BYTES_A_SECOND) => Some("it sent more bytes than its time can hold"),
        () => None,
    }
}

fn most_lost(dropped: &Dropped) -> u64 {
    lost::counts(dropped).fold(0, u64::max)
}
