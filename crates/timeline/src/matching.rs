//! Matching of sends with receives, and of the calls of one collective operation.
//!
//! Messages from one rank to another with the same communicator and tag do not overtake each other, so they match in
//! order. Receives with wildcards record what they got.

use std::collections::BTreeMap;

use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use record::functions::FunctionId;

use super::absence::Absences;
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

/// The messages of one tag from one rank to another: the `k`th of `sends` matches the `k`th of `receives`.
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

/// One rank's part in a collective operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// When it entered, ns; [`ABSENT`] where the timeline does not have it.
    pub posted: i64,
    /// Bytes that it contributes.
    pub bytes: u64,
    pub function: FunctionId,
}

pub const ABSENT: i64 = i64::MIN;

/// A collective operation: its entries by rank of the communicator.
#[derive(Debug, Clone, Copy)]
pub struct Instance<'m> {
    pub entries: &'m [Entry],
    /// Its index among all of the timeline.
    pub number: u64,
}

impl Instance<'_> {
    /// Whether all members are present and call the same function.
    pub fn whole(&self) -> bool {
        let first = self.entries.first().map(|entry| entry.function);
        self.entries.iter().all(|entry| entry.posted != ABSENT && Some(entry.function) == first)
    }

    /// The last of these members to enter, and when. `None` where one of them is absent.
    pub fn last(&self, members: impl Iterator<Item = usize>) -> Option<(usize, i64)> {
        let mut last = None;
        for member in members {
            let entry = self.entries.get(member).map(|entry| entry.posted).filter(|entry| *entry != ABSENT)?;
            if last.is_none_or(|(_, latest)| entry > latest) {
                last = Some((member, entry));
            }
        }
        last
    }
}

/// Communicator, sender, receiver and tag; both ranks are of the communicator's world.
type Key = (u32, i32, i32, i32);

/// Collective operations of one communicator: the entries of all members, operation by operation.
#[derive(Debug, Default)]
struct Sequence {
    entries: Vec<Entry>,
    /// Number of operations in the sequences before it.
    first: u64,
}

#[derive(Debug, Default)]
pub struct Matches {
    places: HashMap<Key, u32>,
    channels: Vec<Channel>,
    /// Sequences by communicator and whether they are of windows.
    collectives: BTreeMap<(u32, bool), Sequence>,
    members: Vec<usize>,
    /// Number of messages in the channels before each.
    firsts: Vec<u64>,
    /// Collective operations.
    pub operations: u64,
    /// Messages with both ends.
    pub messages: u64,
    /// Ends without their other end.
    pub unmatched: u64,
}

impl Matches {
    fn channel_of(&self, sender: i32, receiver: i32, operation: &Operation) -> Option<u32> {
        let communicator = operation.communicator?;
        self.places.get(&(communicator, sender, receiver, operation.tag)).copied()
    }

    /// The index, among all messages, of the message that `operation` of `rank` is an end of, and the bytes sent;
    /// `None` where the other end is missing.
    pub fn number(&self, rank: u32, operation: &Operation) -> Option<(u64, u64)> {
        let (channel, place) = self.message(rank, operation)?;
        let first = *self.firsts.get(channel as usize)?;
        let channel = &self.channels[channel as usize];
        let sent = channel.sends.get(place)?.bytes;
        (place < channel.receives.len()).then_some((first + place as u64, sent))
    }

    /// The channel of an operation of `rank` and its index in it.
    fn message(&self, rank: u32, operation: &Operation) -> Option<(u32, usize)> {
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

    /// The other end of an operation of `rank`.
    pub fn partner(&self, rank: u32, operation: &Operation) -> Option<Half> {
        let (channel, place) = self.message(rank, operation)?;
        let channel = &self.channels[channel as usize];
        match operation.kind {
            Kind::Send => channel.receives.get(place).copied(),
            _ => channel.sends.get(place).copied(),
        }
    }

    /// The send that a probe of `rank` saw: the one that the rank's next such receive gets.
    pub fn probed(&self, rank: u32, operation: &Operation) -> Option<Half> {
        let channel = &self.channels[self.channel_of(operation.peer, rank as i32, operation)? as usize];
        let before = channel.receives.partition_point(|half| half.posted < operation.posted);
        channel.sends.get(before).copied()
    }

    pub fn instance(&self, operation: &Operation) -> Option<Instance<'_>> {
        let Kind::Collective { window, index, .. } = operation.kind else { return None };
        let communicator = operation.communicator?;
        let members = *self.members.get(communicator as usize)?;
        let sequence = self.collectives.get(&(communicator, window))?;
        let start = usize::try_from(index).ok()?.checked_mul(members)?;
        let entries = sequence.entries.get(start..start + members)?;
        Some(Instance { entries, number: sequence.first + index })
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
        let entries = &mut self.collectives.entry((communicator, window)).or_default().entries;
        let start = index as usize * members;
        let function = operation.function;
        if entries.len() < start + members {
            entries.resize(start + members, Entry { posted: ABSENT, bytes: 0, function });
        }
        entries[start + member] = Entry { posted: operation.posted, bytes: operation.bytes, function };
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
            let mut asked = HashSet::new();
            let mut away = Absences::default();
            let mut walk = Walk::new(self, place);
            while let Some(step) = walk.step() {
                away.call(step.entered, step.left);
                for operation in step.begun {
                    match operation.kind {
                        Kind::Send => matches.add(rank, operation),
                        Kind::Receive if operation.peer < 0 || operation.tag < 0 => {
                            asked.insert(operation.order);
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
                    if asked.remove(&operation.order) {
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
            self.absences.push(away);
        }
        for channel in &mut matches.channels {
            channel.receives.sort_unstable_by_key(|half| half.order);
            let (sends, receives) = (channel.sends.len() as u64, channel.receives.len() as u64);
            matches.firsts.push(matches.messages);
            matches.messages += sends.min(receives);
            matches.unmatched += sends.abs_diff(receives);
        }
        for ((communicator, _), sequence) in &mut matches.collectives {
            sequence.first = matches.operations;
            matches.operations += (sequence.entries.len() / matches.members[*communicator as usize].max(1)) as u64;
        }
        if nowhere > 0 {
            self.notes.push(format!("{nowhere} receives from anywhere do not say what they got"));
        }
        self.matches = matches;
    }
}
