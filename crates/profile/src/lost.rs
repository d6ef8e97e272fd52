//! Data that ranks could not record, in words, each kind with its remedy.

use std::collections::BTreeMap;

use machine::count;
use record::layout::{Dropped, Header, THREADS};

type Count = fn(&Dropped) -> u64;

/// The limit that keeps data out of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Limit {
    Memory,
    Threads,
    Timeline,
    /// A limit that no option moves.
    Fixed,
}

const LOST: [(Count, Limit, &str); 10] = [
    (|d| d.calls, Limit::Threads, "calls of threads beyond those that get tables: they are in no figure here"),
    (|d| d.rows, Limit::Memory, "calls found no place in the tables of functions: they are in the totals only"),
    (|d| d.sites, Limit::Memory, "calls found no place in the tables of call sites: they are missing there only"),
    (|d| d.peers.saturating_sub(d.outside), Limit::Memory, "messages are not in the matrix"),
    (
        |d| d.outside,
        Limit::Fixed,
        "messages went to processes outside of the sender's MPI_COMM_WORLD, as MPI_Comm_spawn starts them: they are in no matrix, \
         which has one world, and in every other figure",
    ),
    (
        |d| d.requests,
        Limit::Fixed,
        "operations were not followed to their completion, since too many were under way at once: their bytes are missing \
         from it",
    ),
    (|d| d.events, Limit::Timeline, "calls are not in the timeline"),
    (
        |d| d.communicators,
        Limit::Memory,
        "communicators have members that are not known: their messages are not in the matrix",
    ),
    (|d| d.modules, Limit::Memory, "files of code are not known: call sites in them have no name"),
    (|d| d.phases, Limit::Memory, "phases are not known"),
];

/// All counts of lost data.
pub fn counts(dropped: &Dropped) -> impl Iterator<Item = u64> {
    LOST.iter().map(|(count, ..)| count(dropped)).chain([dropped.peers, dropped.storage])
}

/// The remedy for a rank with this header; empty where there is none.
fn remedy(limit: Limit, header: &Header) -> &'static str {
    match limit {
        Limit::Fixed => "",
        Limit::Threads if header.threads as usize >= THREADS => {
            "let no more than 256 threads of a rank call MPI at the same time"
        }
        _ if header.dropped.storage > 0 => {
            "the file system of the profile was full: free space there, or name another folder with -o"
        }
        Limit::Timeline => "give timelines more room with `plimsoll profile --trace=LIMIT`",
        Limit::Memory | Limit::Threads => "give it more memory with `plimsoll profile --memory`",
    }
}

/// A sentence for each kind of loss and its remedy, summed over all ranks.
pub fn notes<'a>(ranks: impl IntoIterator<Item = &'a Header>) -> Vec<String> {
    let ranks: Vec<&Header> = ranks.into_iter().collect();
    let mut notes = Vec::new();
    for (count, limit, what) in LOST {
        let mut sums: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for header in &ranks {
            let lost = count(&header.dropped);
            if lost > 0 {
                let (sum, ranks) = sums.entry(remedy(limit, header)).or_default();
                (*sum, *ranks) = (sum.saturating_add(lost), *ranks + 1);
            }
        }
        notes.extend(sums.into_iter().map(|(remedy, (sum, ranks))| {
            let remedy = if remedy.is_empty() { String::new() } else { format!("; {remedy}") };
            format!("{} {what} ({}){remedy}", count::grouped(sum), count::of(ranks, "rank"))
        }));
    }
    notes
}

#[cfg(test)]
mod tests {
    use record::image::Image;

    use super::*;

    fn header(dropped: Dropped, threads: u32) -> Header {
        let mut header = Image::default().header;
        (header.dropped, header.threads) = (dropped, threads);
        header
    }

    #[test]
    fn each_loss_has_the_remedy_that_helps_against_it() {
        assert_eq!(THREADS, 256);
        let said = |dropped, threads| notes([&header(dropped, threads)]).join("\n");
        let sites = Dropped { sites: 5, ..Dropped::default() };
        assert!(said(sites, 1).ends_with("(1 rank); give it more memory with `plimsoll profile --memory`"));
        let full = said(Dropped { storage: 1, events: 3, ..sites }, 1);
        assert!(!full.contains("--memory") && !full.contains("--trace") && full.matches("free space").count() == 2);
        assert!(said(Dropped { events: 3, ..Dropped::default() }, 1).contains("--trace=LIMIT"));
        let threads = Dropped { calls: 9, ..Dropped::default() };
        assert!(said(threads, 256).contains("256 threads") && said(threads, 3).contains("--memory"));
        // Children that MPI_Comm_spawn started have a world, and a matrix, of their own.
        let spawned = said(Dropped { peers: 7, outside: 7, ..Dropped::default() }, 1);
        assert!(
            spawned.starts_with("7 messages went to processes outside") && !spawned.contains("--memory"),
            "{spawned}"
        );
        assert_eq!(said(Dropped { peers: 9, outside: 7, ..Dropped::default() }, 1).lines().count(), 2);
        let all = notes([&header(sites, 1), &header(sites, 1)]);
        assert!(all[0].starts_with("10 calls") && all[0].contains("(2 ranks)"), "{all:?}");
    }
}
