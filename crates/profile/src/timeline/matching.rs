//! Which send a receive got, and which calls made one collective operation.
//!
//! Messages from one rank to another with the same communicator and tag do not overtake each other, so the first receive
//! that takes one of them takes the first. Receives from anywhere say what they got.

use std::collections::HashMap;

use super::walk::{Kind, Operation};
use super::{Timeline, Walk};

/// One end of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Half {
    /// [`Operation::order`] in its rank.
    pub order: u64,
    /// When it was begun, ns.
    pub posted: i64,
    pub bytes: u64,
}

/// The messages of one tag from one rank to another: the `k`th of `sends` is got by the `k`th of `receives`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Channel {
    pub sends: Vec<Half>,
    pub receives: Vec<Half>,
}

impl Channel {
    pub fn send(&self, order: u64) -> Option<usize> {
        self.sends.binary_search_by_key(&order, |half| half.order).ok()
    }

    pub fn receive(&self, order: u64) -> Option<usize> {
        self.receives.binary_search_by_key(&order, |half| half.order).ok()
    }
}

/// A collective operation: when each member entered, ns, by rank of the communicator.
#[derive(Debug, Clone, Copy)]
pub struct Instance<'m> {
    pub entries: &'m [i64],
}

/// In [`Instance::entries`]: that member's entry is not in the timeline.
pub const ABSENT: i64 = i64::MIN;

impl Instance<'_> {
    /// The last of some members, and which it was. `None` where one of them is absent.
    pub fn last(&self, members: impl Iterator<Item = usize>) -> Option<(usize, i64)> {
        let mut last = None;
        for member in members {
            let entry = *self.entries.get(member).filter(|entry| **entry != ABSENT)?;
            if last.is_none_or(|(_, latest)| entry > latest) {
                last = Some((member, entry));
            }
        }
        last
    }
}

/// Communicator, sender, receiver, tag: both ranks of the communicator's world.
type Key = (u32, i32, i32, i32);

#[derive(Debug, Default)]
pub struct Matches {
    places: HashMap<Key, u32>,
    channels: Vec<Channel>,
    /// By communicator and whether of windows: the entries of all members, operation by operation.
    collectives: HashMap<(u32, bool), Vec<i64>>,
    members: Vec<usize>,
    /// Messages of which both ends are there.
    pub messages: u64,
    /// Ends without the other one.
    pub unmatched: u64,
}

impl Matches {
    fn channel_of(&self, sender: i32, receiver: i32, operation: &Operation) -> Option<u32> {
        let communicator = operation.communicator?;
        self.places.get(&(communicator, sender, receiver, operation.tag)).copied()
    }

    /// The channel of an operation of `rank` and its place in it, counted from 0. Its number and that place name a message.
    pub fn message(&self, rank: u32, operation: &Operation) -> Option<(u32, usize)> {
        let own = rank as i32;
        match operation.kind {
            Kind::Send => {
                let channel = self.channel_of(own, operation.peer, operation)?;
                Some((channel, self.channels[channel as usize].send(operation.order)?))
            }
            Kind::Receive => {
                let channel = self.channel_of(operation.peer, own, operation)?;
                Some((channel, self.channels[channel as usize].receive(operation.order)?))
            }
            Kind::Collective { .. } => None,
        }
    }

    pub fn channel(&self, channel: u32) -> Option<&Channel> {
        self.channels.get(channel as usize)
    }

    /// The other end of an operation of `rank`.
    pub fn partner(&self, rank: u32, operation: &Operation) -> Option<Half> {
        let (channel, place) = self.message(rank, operation)?;
        let channel = &self.channels[channel as usize];
        match operation.kind {
            Kind::Send => channel.receives.get(place).copied(),
            _ => channel.sends.get(place).copied(),
        }
    }

    /// The send that a probe of `rank` saw: that which the rank's next receive of the kind gets.
    pub fn probed(&self, rank: u32, operation: &Operation) -> Option<Half> {
        let channel = &self.channels[self.channel_of(operation.peer, rank as i32, operation)? as usize];
        let before = channel.receives.partition_point(|half| half.posted < operation.posted);
        channel.sends.get(before).copied()
    }

    pub fn instance(&self, operation: &Operation) -> Option<Instance<'_>> {
        let Kind::Collective { window, index, .. } = operation.kind else { return None };
        let communicator = operation.communicator?;
        let members = *self.members.get(communicator as usize)?;
        let entries = self.collectives.get(&(communicator, window))?;
        let start = usize::try_from(index).ok()?.checked_mul(members)?;
        Some(Instance { entries: entries.get(start..start + members)? })
    }

    fn half(&mut self, sender: i32, receiver: i32, operation: &Operation) -> Option<&mut Channel> {
        let key = (operation.communicator?, sender, receiver, operation.tag);
        if sender < 0 || receiver < 0 || operation.tag < 0 {
            return None;
        }
        let channels = &mut self.channels;
        let place = *self.places.entry(key).or_insert_with(|| {
            channels.push(Channel::default());
            channels.len() as u32 - 1
        });
        channels.get_mut(place as usize)
    }

    fn add(&mut self, rank: u32, operation: &Operation) {
        let half = Half { order: operation.order, posted: operation.posted, bytes: operation.bytes };
        let (own, peer) = (rank as i32, operation.peer);
        match operation.kind {
            Kind::Send => {
                if let Some(channel) = self.half(own, peer, operation) {
                    channel.sends.push(half);
                }
            }
            Kind::Receive => {
                if let Some(channel) = self.half(peer, own, operation) {
                    channel.receives.push(half);
                }
            }
            Kind::Collective { .. } => {}
        }
    }

    fn enter(&mut self, member: usize, members: usize, operation: &Operation) {
        let Kind::Collective { window, index, .. } = operation.kind else { return };
        let Some(communicator) = operation.communicator else { return };
        let entries = self.collectives.entry((communicator, window)).or_default();
        let start = index as usize * members;
        if entries.len() < start + members {
            entries.resize(start + members, ABSENT);
        }
        entries[start + member] = operation.posted;
    }
}

impl Timeline {
    pub(super) fn match_all(&mut self) {
        let mut matches = Matches {
            members: self.communicators.iter().map(|communicator| communicator.members.len()).collect(),
            ..Matches::default()
        };
        let mut nowhere = 0;
        for place in 0..self.ranks.len() {
            let rank = self.ranks[place].rank;
            let mut resolved = HashMap::new();
            let mut asked = HashMap::new();
            let mut walk = Walk::new(self, place);
            while let Some(step) = walk.step() {
                for operation in step.begun {
                    match operation.kind {
                        Kind::Send => matches.add(rank, operation),
                        Kind::Receive if operation.peer < 0 || operation.tag < 0 => {
                            asked.insert(operation.order, ());
                        }
                        Kind::Receive => {}
                        Kind::Collective { .. } => {
                            let communicator = operation.communicator.map(|id| &self.communicators[id as usize]);
                            let members = communicator.map_or(0, |communicator| communicator.members.len());
                            if let Some(member) = communicator.and_then(|communicator| communicator.place_of(rank)) {
                                matches.enter(member, members, operation);
                            }
                        }
                    }
                }
                for operation in step.completed.iter().filter(|operation| operation.kind == Kind::Receive) {
                    if operation.tag < 0 || operation.peer < record::trace::peer::ANY {
                        continue;
                    }
                    if asked.remove(&operation.order).is_some() {
                        if operation.peer < 0 {
                            nowhere += 1;
                            continue;
                        }
                        resolved.insert(operation.order, (operation.peer, operation.tag));
                    }
                    matches.add(rank, operation);
                }
            }
            let open: Vec<_> = walk.open().filter(|operation| operation.kind == Kind::Receive).copied().collect();
            drop(walk);
            for operation in open {
                matches.add(rank, &operation);
            }
            self.ranks[place].resolved = resolved;
        }
        for channel in &mut matches.channels {
            channel.receives.sort_unstable_by_key(|half| half.order);
            let (sends, receives) = (channel.sends.len() as u64, channel.receives.len() as u64);
            matches.messages += sends.min(receives);
            matches.unmatched += sends.abs_diff(receives);
        }
        if nowhere > 0 {
            self.notes.push(format!("{nowhere} receives from anywhere do not say what they got"));
        }
        self.matches = matches;
    }
}
