//! Threads that others of their rank wait for.
//!
//! Such waits are not recorded. A thread whose last call ends while the one that calls MPI_Finalize is in no call is taken to be
//! joined by it there, as `pthread_join` does: that time is a wait and not computing. One that also began there is taken to
//! have been started by it. Gatherings that take no time order the lanes so ([`ORDER`]).

use std::collections::BTreeMap;

use timeline::Collective;

use super::Thread;
use crate::graph::{Adding, Builder, ORDER, Step};

impl Thread {
    /// Entry and exit of each call as a replay has them, ns.
    fn instants(&self, begun: i64) -> Vec<(i64, i64)> {
        let instant = |now: &mut i64, (adding, ..): &(Adding, u32, Vec<Step>)| {
            let entered = *now + adding.gap;
            *now = entered + adding.inside;
            Some((entered, *now))
        };
        self.calls.iter().scan(begun, instant).collect()
    }

    /// Inserts an entry that is no call of the program, without computing; its site is that of the call `like`.
    fn put(&mut self, place: usize, like: usize, inside: i64, steps: Vec<Step>) {
        let (Adding { function, .. }, site, _) = self.calls[like];
        self.calls.insert(place, (Adding { function, gap: 0, inside, opaque: false }, site, steps));
    }
}

/// Makes the `main` thread wait for threads that end while it is in no call; returns their number.
pub(super) fn join(threads: &mut BTreeMap<u16, Thread>, main: u16, begun: i64, builder: &mut Builder) -> u64 {
    let of_main = threads.get(&main).map(|thread| thread.instants(begun)).unwrap_or_default();
    // By the call of the main thread before which they end: numbers, beginnings and ends of threads.
    let mut joined: BTreeMap<usize, Vec<(u16, i64, i64)>> = BTreeMap::new();
    for (number, thread) in threads.iter().filter(|(number, _)| **number != main) {
        let calls = thread.instants(begun);
        let (Some((first, _)), Some((_, ended))) = (calls.first(), calls.last()) else { continue };
        let next = of_main.partition_point(|(entered, _)| entered < ended);
        if next < of_main.len() && *ended > left_before(&of_main, next, begun) {
            joined.entry(next).or_default().push((*number, *first, *ended));
        }
    }
    let mut order = || {
        let root = builder.gathering(2, Collective::FromRoot, 0, ORDER);
        (Step::Enter(root), [Step::Enter(root + 1), Step::Leave(root + 1)])
    };
    let mut count = 0;
    // From the last one on: an insertion moves only the calls behind it.
    for (next, ended) in joined.into_iter().rev() {
        let left = left_before(&of_main, next, begun);
        let (mut enters, mut leaves, mut starts) = (Vec::new(), Vec::new(), Vec::new());
        let mut last = left;
        for (number, first, end) in ended {
            let Some(thread) = threads.get_mut(&number) else { continue };
            let (ends, [enter, leave]) = order();
            let calls = thread.calls.len();
            thread.put(calls, calls - 1, 0, vec![ends]);
            enters.push(enter);
            leaves.push(leave);
            if next > 0 && first >= left {
                let (begins, waits) = order();
                thread.calls[0].0.gap = first - left;
                thread.put(0, 0, left - begun, waits.to_vec());
                starts.push(begins);
            }
            last = last.max(end);
            count += 1;
        }
        let Some(thread) = threads.get_mut(&main) else { continue };
        thread.calls[next].0.gap = of_main[next].0 - last;
        enters.append(&mut leaves);
        thread.put(next, next, last - left, enters);
        if !starts.is_empty() {
            thread.put(next, next - 1, 0, starts);
        }
    }
    count
}

/// The end of the main thread's call before a given one, ns.
fn left_before(of_main: &[(i64, i64)], next: usize, begun: i64) -> i64 {
    next.checked_sub(1).map_or(begun, |before| of_main[before].1)
}
