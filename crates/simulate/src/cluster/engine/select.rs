//! The next work of a rank, and its time on the core.

use super::super::channel::{Message, Part};
use super::super::profile::{Cost, Place, Progress};
use super::super::resources::work;
use super::super::{Cluster, Seat, Time};
use super::{Engine, Rank, Work};

impl Engine<'_> {
    pub(super) fn copies(&self, message: &Message) -> bool {
        !self.cluster.profile.copy.is_free() && !message.rendezvous
    }

    /// Whether a piece of the message can be handed now.
    pub(super) fn can_hand(&self, slot: u32, part: Part) -> bool {
        if part != Part::Data {
            return true;
        }
        let Cluster { profile, .. } = self.cluster;
        let message = &self.messages[slot];
        if message.handed == message.copied {
            return false;
        }
        let held = if self.bounded { self.connections.of(message.from, message.to).socket } else { 0 };
        held == 0 || held.saturating_add(message.piece(message.handed, profile.unit)) <= profile.socket
    }

    /// The first piece that a rank can hand, to `peer` if that is given.
    pub(super) fn handable(&self, rank: &Rank, peer: Option<u32>) -> Option<Work> {
        let mut blocked = None;
        let peer_of =
            |slot: u32, part| if part == Part::Clear { self.messages[slot].from } else { self.messages[slot].to };
        let mut of =
            rank.sending.iter().filter(|(_, slot, part)| peer.is_none_or(|peer| peer_of(*slot, *part) == peer));
        let found = of.find(|(_, slot, part)| {
            let to = peer_of(*slot, *part);
            let can = blocked != Some(to) && self.can_hand(*slot, *part);
            blocked = (!can).then_some(to).or(blocked);
            can
        });
        found.map(|(_, slot, part)| Work::Hand(*slot, *part))
    }

    pub(super) fn movable(&self, rank: &Rank) -> Option<Work> {
        let taken = rank.arrived.first().map(|(_, slot, part)| Work::Take(*slot, *part));
        self.handable(rank, None).or(taken)
    }

    /// The next work of a rank on its core.
    pub(super) fn select(&self, rank: &Rank) -> Option<Work> {
        let profile = &self.cluster.profile;
        let compute = rank.computes.front().map(|_| Work::Compute);
        if profile.progress == Progress::Between {
            return self.first_in_order(rank).map(|(_, work)| work);
        }
        let posting = rank.posting.iter().find_map(|slot| {
            let message = &self.messages[*slot];
            self.handable(rank, Some(message.to)).or_else(|| {
                let held = self.connections.of(message.from, message.to).library;
                let more = message.piece(message.copied, profile.unit);
                let fits = held == 0 || held.saturating_add(more) <= profile.library;
                let room = message.copied < message.bytes && !message.rendezvous && (self.unbuffered || fits);
                room.then_some(Work::Copy(*slot))
            })
        });
        let moved = || self.movable(rank);
        match posting {
            Some(work) => Some(work),
            None if profile.progress == Progress::Thread => moved().or(compute),
            None => compute.or_else(moved),
        }
    }

    pub(super) fn dilation(&self, seat: Seat) -> f64 {
        self.cluster.hosts[seat.host].cores[seat.core].dilation
    }

    /// Whether a rank is on another socket than the core or engine that does the protocol's work for it.
    pub(super) fn is_far(&self, rank: u32) -> bool {
        let seat = self.ranks[rank as usize].seat;
        let host = &self.cluster.hosts[seat.host];
        let other = match self.cluster.profile.place {
            Place::Softirq => host.interrupts,
            Place::Engine => self.engine_of(rank),
            Place::Rank | Place::Device => return false,
        };
        host.cores[seat.core].package != host.cores[other].package
    }

    pub(super) fn engine_of(&self, rank: u32) -> usize {
        let engines = &self.cluster.hosts[self.ranks[rank as usize].seat.host].engines;
        engines[rank as usize % engines.len()]
    }

    /// The time of the rank's own work on a piece.
    pub(super) fn length(&self, rank: u32, what: Work) -> Time {
        let profile = &self.cluster.profile;
        let dilation = self.dilation(self.ranks[rank as usize].seat);
        let far = |costs: [f64; 2], which: usize| if self.is_far(rank) { costs[which] } else { 1.0 };
        let piece = |slot: u32, part, place: u64| match part {
            Part::Data => (place == 0, self.messages[slot].piece(place, profile.unit)),
            _ => (true, 0),
        };
        match what {
            Work::Compute => self.ranks[rank as usize].computes.front().map_or(0, |(_, left, _)| *left),
            Work::Copy(slot) => {
                let (first, bytes) = piece(slot, Part::Data, self.messages[slot].copied);
                work(&profile.copy, first, bytes, dilation, 1.0)
            }
            Work::Hand(slot, part) => {
                let message = &self.messages[slot];
                let (first, bytes) = piece(slot, part, message.handed);
                let own = work(&profile.hand, first, bytes, dilation, far(profile.far, 0));
                let protocol = match profile.place {
                    _ if self.is_inside(message.from, message.to) => profile.inside,
                    Place::Rank | Place::Softirq => profile.send,
                    Place::Engine | Place::Device => Cost::default(),
                };
                own.saturating_add(work(&protocol, first, bytes, dilation, 1.0))
            }
            Work::Take(slot, part) => {
                let message = &self.messages[slot];
                let (first, bytes) = piece(slot, part, message.taken);
                let own = work(&profile.take, first, bytes, dilation, far(profile.far, 1));
                let rank_receives = profile.place == Place::Rank && !self.is_inside(message.from, message.to);
                let protocol = if rank_receives { profile.receive } else { Cost::default() };
                own.saturating_add(work(&protocol, first, bytes, dilation, 1.0))
            }
        }
    }
}
