//! An endpoint's memory, into which the receiving program writes packets.

use std::net::SocketAddr;
use std::ops::Add;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use serde::{Deserialize, Serialize};

use super::layout::{self, COUNT, PASSED, PROBES, READ, SESSIONS, SLOT_BYTES};
use linux::xdp::SharedWords;

/// Counters of one endpoint, counted by the program at the driver hook.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneCounters {
    /// Packets written into the endpoint's memory.
    pub placed: u64,
    /// Acknowledgements that the program sent.
    pub acknowledged: u64,
    /// Packets dropped as duplicates.
    pub duplicated: u64,
    /// Packets placed before one that was sent earlier.
    pub ahead: u64,
    /// Packets dropped because the endpoint had left no slot free.
    pub full: u64,
    /// Acknowledgements without news, because a quarter of the slots was waiting.
    pub held_back: u64,
    /// Packets left to the kernel, and so to the socket: of an unregistered session, too far ahead of the first missing
    /// one, longer than a slot or several in one (generic mode), or not of the engine.
    pub unknown: u64,
    pub far: u64,
    pub long: u64,
    pub foreign: u64,
}

impl Add for LaneCounters {
    type Output = LaneCounters;

    fn add(self, other: LaneCounters) -> LaneCounters {
        LaneCounters {
            placed: self.placed + other.placed,
            acknowledged: self.acknowledged + other.acknowledged,
            duplicated: self.duplicated + other.duplicated,
            ahead: self.ahead + other.ahead,
            full: self.full + other.full,
            held_back: self.held_back + other.held_back,
            unknown: self.unknown + other.unknown,
            far: self.far + other.far,
            long: self.long + other.long,
            foreign: self.foreign + other.foreign,
        }
    }
}

/// The consumer's end of a lane.
#[derive(Debug)]
pub(super) struct Lane {
    words: SharedWords,
    /// Number of packets taken.
    position: u64,
}

impl Lane {
    /// A consumer of the memory of a lane that has no other.
    pub fn over(words: SharedWords) -> Lane {
        assert_eq!(words.words().len(), layout::WORDS, "the memory of a lane");
        let position = words.words()[READ].load(Relaxed);
        Lane { words, position }
    }

    /// Registers `session` with `peer`, which sends packet `expected` next, with the program. Returns its place; `None`
    /// where the table has no room near its hash.
    pub fn register(&mut self, peer: SocketAddr, session: u32, expected: u32) -> Option<usize> {
        let words = self.words.words();
        let start = layout::place_of(peer, session);
        let (who, address) = layout::peer_words(peer);
        let both = u64::from(expected) << 32 | u64::from(session);
        let is_ours = |at: usize| {
            let addressed = || (0..2).all(|half| words[at + 2 + half].load(Relaxed) == address[half]);
            words[at].load(Relaxed) == who && words[at + 1].load(Relaxed) as u32 == session && addressed()
        };
        let place = (start..start + PROBES).map(|place| place % SESSIONS).find(|&place| {
            let at = layout::session_at(place);
            is_ours(at) || words[at].load(Relaxed) == 0
        })?;
        let at = layout::session_at(place);
        if !is_ours(at) {
            words[at + 1].store(both, Relaxed);
            (0..2).for_each(|half| words[at + 2 + half].store(address[half], Relaxed));
            words[at].store(who, Release);
        }
        Some(place)
    }

    /// Ends the session at `place`, which stays taken, since others may lie behind it.
    pub fn forget(&mut self, place: usize) {
        // A peer that no packet comes from: IPv4, address and port 0.
        self.words.words()[layout::session_at(place)].store(1, Release);
    }

    /// Tells the program that the peer was told `expected` as the next packet.
    pub fn told(&mut self, place: usize, session: u32, expected: u32) {
        self.words.words()[layout::session_at(place) + 1]
            .store(u64::from(expected) << 32 | u64::from(session), Release);
    }

    /// The next packet and the place of its session. It stays in place until [`Lane::release`].
    pub fn next(&mut self) -> Option<(usize, &[u8])> {
        let at = layout::slot_at(self.position);
        let words = self.words.words();
        if words[at].load(Acquire) != self.position + 1 {
            return None;
        }
        self.position += 1;
        let about = words[at + 1].load(Relaxed);
        let length = ((about >> 32) as usize).min(SLOT_BYTES);
        // SAFETY: `published` was acquired, and the program writes to a slot again only after `read` has passed it,
        // which `release` sees to: it takes `&mut self`, so the slice is gone by then.
        let bytes = unsafe { self.words.published((at + 2) * 8, length) };
        Some((about as u32 as usize, bytes.expect("slots lie within the lane")))
    }

    /// Lets the program overwrite everything taken so far.
    pub fn release(&mut self) {
        self.words.words()[READ].store(self.position, Release);
    }

    /// Number of packets that the program has left to the kernel for this endpoint's socket.
    pub fn passed(&self) -> u64 {
        self.words.words()[PASSED].load(Relaxed)
    }

    pub fn counters(&self) -> LaneCounters {
        let count = |at: usize| self.words.words()[COUNT + at].load(Relaxed);
        LaneCounters {
            placed: count(0),
            acknowledged: count(1),
            duplicated: count(2),
            ahead: count(3),
            full: count(4),
            held_back: count(5),
            unknown: count(6),
            far: count(7),
            long: count(8),
            foreign: count(9),
        }
    }
}
