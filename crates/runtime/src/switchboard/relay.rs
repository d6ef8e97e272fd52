//! Two ends between which the switchboard hands messages on: for sites that share no memory with this process.

use std::collections::VecDeque;

use offcode::{Channel, Written};

use super::PartyId;
use crate::site::end::End;

/// Messages handed on one way before the other way gets its turn.
const RELAYED: usize = 64;

/// Two ends between which messages are handed on.
pub(super) struct Relay {
    pub ends: [Box<dyn Channel>; 2],
    /// Messages read from the end of this number, and not yet taken by the other.
    pub held: [VecDeque<Vec<u8>>; 2],
    /// Whether reading from the end of this number is stopped.
    pub fenced: [bool; 2],
    /// The end that a moved offcode had where memory is shared; the other is its site's.
    pub bridge: Option<(BridgeId, End)>,
    /// A party whose channel the relay is part of, and the party's name for the channel.
    pub of: Option<(PartyId, String)>,
}

impl Relay {
    pub fn turn(&mut self) -> bool {
        let mut moved = false;
        for from in [0, 1] {
            for _ in 0..RELAYED {
                if self.held[from].is_empty() {
                    let (end, held) = (&mut self.ends[from], &mut self.held[from]);
                    let mut read =
                        |end: &mut dyn Channel| end.read_with(&mut |message| held.push_back(message.to_vec()));
                    if self.fenced[from] || !matches!(read(end), Ok(true)) {
                        break;
                    }
                }
                if let Some(message) = self.held[from].front() {
                    if let Ok(Written::Full) = self.ends[1 - from].write(message) {
                        break;
                    }
                    self.held[from].pop_front();
                    moved = true;
                }
            }
        }
        moved
    }

    /// Takes what has come from the site, whether or not its peer has room: it is about to move, so that little follows.
    pub fn drain(&mut self) {
        let most = 4 * self.ends[1].specification().buffers.count as usize;
        let Relay { ends, held, fenced, .. } = self;
        while !fenced[1] && held[1].len() < most {
            if !matches!(ends[1].read_with(&mut |message| held[1].push_back(message.to_vec())), Ok(true)) {
                break;
            }
        }
    }

    pub fn holds(&self) -> bool {
        self.held.iter().any(|held| !held.is_empty())
    }

    /// A bridge stays, as an end stays with its offcode when its peer has gone: with its channels the offcode moves on.
    pub fn is_over(&mut self) -> bool {
        let drained = |end: &mut Box<dyn Channel>| end.is_abandoned() && !matches!(end.poll(), Ok(true));
        self.bridge.is_none() && self.ends.iter_mut().any(drained) && !self.holds()
    }
}

/// A relay that stands for the end of an offcode that has moved to where memory is not shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BridgeId(pub(super) u64);

/// The traffic of a bridge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Passed {
    /// Messages written to the site, and read from it.
    pub written: u64,
    pub read: u64,
    /// Messages read from the peer and not written to the site yet.
    pub held: usize,
    /// Whether more has come from the site than was read.
    pub more: bool,
}
