//! The expectation of a profile that a program writes, and its comparison with the profile.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;

use record::functions::{function, named};
use record::layout::{Dropped, Peer};
use record::rank::Rank;
use record::scale::size_class;

use testbed::Place;

/// Calls by name of the function, size of the group and class of size.
type Calls = BTreeMap<(String, u32, usize), Count>;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    pub calls: u64,
    pub bytes: u64,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Expectation {
    pub calls: Calls,
    /// By rank in MPI_COMM_WORLD.
    pub peers: BTreeMap<usize, [u64; 4]>,
    /// Messages to others than ranks of MPI_COMM_WORLD.
    pub outside: u64,
}

impl Expectation {
    /// The expectation that the process with this pid wrote (`programs/expect.h`).
    pub fn of(place: &Place, pid: u32) -> Expectation {
        let name = format!("expected.{pid}");
        let text = fs::read_to_string(place.path().join(&name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut expectation = Expectation::default();
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |at: usize| words[at].parse::<u64>().unwrap_or_else(|error| panic!("{line}: {error}"));
            match words[..] {
                ["calls", function, _, _, _] => expectation.called(function, number(2) as u32, number(3), number(4)),
                ["messages", ..] => expectation.moved(number(1), [number(2), number(3), 0, 0]),
                ["operations", ..] => expectation.moved(number(1), [0, 0, number(2), number(3)]),
                ["outside", _] => expectation.outside += number(1),
                _ => panic!("{line}"),
            }
        }
        expectation
    }

    fn called(&mut self, function: &str, group: u32, calls: u64, bytes: u64) {
        assert!(named(function).is_some(), "{function}");
        if calls > 0 {
            let count = self.calls.entry((function.into(), group, size_class(bytes))).or_default();
            count.calls += calls;
            count.bytes += calls * bytes;
        }
    }

    fn moved(&mut self, peer: u64, what: [u64; 4]) {
        let sums = self.peers.entry(peer as usize).or_default();
        sums.iter_mut().zip(what).for_each(|(sum, more)| *sum += more);
        self.peers.retain(|_, sums| *sums != [0; 4]);
    }

    /// The contents of a rank's tables.
    pub fn found(rank: &Rank) -> Expectation {
        let mut found = Expectation::default();
        for row in &rank.rows {
            let name = function(row.function).unwrap().name;
            for (class, cell) in row.cells.iter().enumerate().filter(|(_, cell)| cell.calls > 0) {
                let count = found.calls.entry((name.into(), row.group, class)).or_default();
                count.calls += cell.calls;
                count.bytes += cell.bytes;
            }
        }
        for (peer, sums) in rank.peers.iter().enumerate().filter(|(_, sums)| **sums != Peer::default()) {
            found.peers.insert(peer, [sums.messages, sums.bytes, sums.operations, sums.operation_bytes]);
        }
        found.outside = rank.header.dropped.outside;
        found
    }

    /// The expectation without calls of these functions.
    pub fn without(mut self, functions: &[&str]) -> Expectation {
        self.calls.retain(|(name, _, _), _| !functions.contains(&name.as_str()));
        self
    }

    /// The number of calls of a function.
    pub fn count(&self, function: &str) -> u64 {
        self.calls.iter().filter(|((name, _, _), _)| name == function).map(|(_, count)| count.calls).sum()
    }

    /// The differences between the expectation and the tables, in words; empty where there are none.
    pub fn against(&self, found: &Expectation) -> String {
        let mut text = String::new();
        let keys = self.calls.keys().chain(found.calls.keys()).collect::<std::collections::BTreeSet<_>>();
        for key in keys {
            let [wanted, got] = [self, found].map(|side| side.calls.get(key).copied().unwrap_or_default());
            if wanted != got {
                let (name, group, class) = key;
                let _ = writeln!(text, "  {name} of {group}, size class {class}: {wanted:?} expected, {got:?} found");
            }
        }
        let peers = self.peers.keys().chain(found.peers.keys()).collect::<std::collections::BTreeSet<_>>();
        for peer in peers {
            let [wanted, got] = [self, found].map(|side| side.peers.get(peer).copied().unwrap_or_default());
            if wanted != got {
                let _ = writeln!(text, "  to {peer}: [messages, bytes, operations, bytes] {wanted:?}, found {got:?}");
            }
        }
        if self.outside != found.outside {
            let _ =
                writeln!(text, "  to processes outside the world: {} messages, found {}", self.outside, found.outside);
        }
        text
    }
}

/// Invariants of the tables of every rank without losses, for every program.
pub fn consistent(rank: &Rank) {
    let told = || format!("rank {} of {}", rank.header.rank, rank.header.size);
    // Messages to processes outside the world are in no matrix.
    assert_eq!(rank.header.dropped.peers, rank.header.dropped.outside, "{}", told());
    let dropped = Dropped { peers: 0, outside: 0, ..rank.header.dropped };
    assert_eq!(dropped, Dropped::default(), "{}", told());
    let mut of_rows: BTreeMap<u16, [u64; 2]> = BTreeMap::new();
    let mut of_threads: BTreeMap<u16, u64> = BTreeMap::new();
    for row in &rank.rows {
        for cell in row.cells.iter().filter(|cell| cell.calls > 0) {
            let told = || format!("{}: {row:?}", told());
            assert_eq!(cell.histogram.iter().sum::<u64>(), cell.calls, "{}", told());
            let least = cell.least().unwrap();
            assert!(least <= cell.most && cell.most <= cell.ticks && least * cell.calls <= cell.ticks, "{}", told());
            let sums = of_rows.entry(row.function.0).or_default();
            sums[0] += cell.calls;
            sums[1] += cell.bytes;
            *of_threads.entry(row.thread).or_default() += cell.calls;
        }
    }
    let mut of_sites: BTreeMap<u16, [u64; 2]> = BTreeMap::new();
    for (_, site) in &rank.sites {
        let sums = of_sites.entry(site.function).or_default();
        sums[0] += site.calls;
        sums[1] += site.bytes;
        assert!(site.module > 0 && (site.module as usize) <= rank.modules.len(), "{}: {site:?}", told());
    }
    of_sites.retain(|_, sums| *sums != [0; 2]);
    assert_eq!(of_sites, of_rows, "{}: calls by site and by row", told());
    for (number, thread) in &rank.threads {
        assert_eq!(thread.calls, of_threads.get(number).copied().unwrap_or(0), "{}: thread {number}", told());
    }
    let messages: [u64; 2] = rank.threads.values().fold([0; 2], |sum, t| [sum[0] + t.messages, sum[1] + t.bytes]);
    let peers: [u64; 2] = rank.peers.iter().fold([0; 2], |sum, p| [sum[0] + p.messages, sum[1] + p.bytes]);
    assert!(messages >= peers, "{}: {messages:?} messages of threads, {peers:?} to peers", told());
}
