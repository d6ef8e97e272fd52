//! The stages of a piece between two ranks: servers, link, interrupts, and its acknowledgement.

use super::super::channel::{Message, Part};
use super::super::matching::Half;
use super::super::profile::{Cost, Place, Progress};
use super::super::resources::{picoseconds, work};
use super::super::{Seat, Time};
use super::{Engine, Event, Piece, put};

impl Engine<'_> {
    /// Sends a piece that its rank has handed, or that needed no rank.
    pub(super) fn transmit(&mut self, piece: Piece) {
        let (from, to) = self.ends(piece);
        let profile = &self.cluster.profile;
        let mut now = self.now;
        if profile.progress == Progress::Between {
            // The first byte leaves when the message's part of the work is done; the rank works on.
            let dilation = self.dilation(self.ranks[from as usize].seat);
            now = now.saturating_add(work(&profile.hand, true, piece.bytes.min(1), dilation, 1.0));
        }
        if self.is_inside(from, to) && profile.progress != Progress::Between {
            return self.at(now.saturating_add(picoseconds(profile.inside_latency)), Event::Delivered(piece));
        }
        let sent = self.serve(from, now, piece, &profile.send);
        match sent {
            Some(done) => self.at(done, Event::Ready(piece)),
            None if now > self.now => self.at(now, Event::Ready(piece)),
            None => self.leave(piece),
        }
    }

    /// Work on a piece by the rank's engine or its host's device: the time of its end. `None`: the protocol has neither.
    pub(super) fn serve(&mut self, rank: u32, now: Time, piece: Piece, cost: &Cost) -> Option<Time> {
        let seat = self.ranks[rank as usize].seat;
        match self.cluster.profile.place {
            Place::Rank | Place::Softirq => None,
            Place::Engine => {
                let core = self.engine_of(rank);
                let dilation = self.dilation(Seat { host: seat.host, core });
                Some(self.protocol(seat.host, core, now, work(cost, piece.first, piece.bytes, dilation, 1.0)))
            }
            Place::Device => {
                let time = work(cost, piece.first, piece.bytes, 1.0, 1.0);
                self.charged = self.charged.saturating_add(time);
                let busy = &mut self.hosts[seat.host].device_busy;
                *busy = busy.saturating_add(time);
                Some(self.hosts[seat.host].device.serve(now, time))
            }
        }
    }

    /// Protocol work on a core, which interrupts the rank there; the time of its end.
    pub(super) fn protocol(&mut self, host: usize, core: usize, now: Time, time: Time) -> Time {
        self.charged = self.charged.saturating_add(time);
        let seats = &mut self.hosts[host].cores[core];
        seats.busy.protocol = seats.busy.protocol.saturating_add(time);
        if let Some(job) = seats.on.and_then(|rank| self.ranks[rank as usize].job.as_mut()).filter(|job| job.running) {
            job.ends = job.ends.saturating_add(time);
        }
        seats.protocol.serve(now, time)
    }

    pub(super) fn interrupt(&mut self, rank: u32, first: bool, bytes: u64, cost: &Cost) -> Time {
        let host = self.ranks[rank as usize].seat.host;
        let core = self.cluster.hosts[host].interrupts;
        let dilation = self.dilation(Seat { host, core });
        self.protocol(host, core, self.now, work(cost, first, bytes, dilation, 1.0))
    }

    pub(super) fn on_the_wire(&self, bytes: u64) -> Time {
        picoseconds(bytes as f64 * self.cluster.link.byte)
    }

    pub(super) fn leave(&mut self, piece: Piece) {
        let host = self.ranks[self.ends(piece).0 as usize].seat.host;
        let time = self.on_the_wire(piece.bytes);
        let sent = self.hosts[host].out.serve(self.now, time);
        self.at(sent.saturating_add(self.cluster.link.latency), Event::Landed(piece));
    }

    pub(super) fn arrived(&mut self, piece: Piece) {
        let to = self.ends(piece).1;
        let cost = self.cluster.profile.receive;
        let done = match self.cluster.profile.place {
            Place::Softirq => Some(self.interrupt(to, piece.first, piece.bytes, &cost)),
            _ => self.serve(to, self.now, piece, &cost),
        };
        match done {
            Some(done) => self.at(done, Event::Delivered(piece)),
            None => self.delivered(piece),
        }
    }

    pub(super) fn delivered(&mut self, piece: Piece) {
        let (from, to) = self.ends(piece);
        let profile = &self.cluster.profile;
        let message = &mut self.messages[piece.slot];
        let waits = piece.part == Part::Data && message.delivered > message.taken;
        if piece.part == Part::Data {
            message.delivered += piece.bytes;
        }
        if profile.progress == Progress::Device && message.rendezvous {
            return self.taken(piece);
        }
        if !waits {
            let key = match () {
                () if profile.by_peer => from,
                () if profile.progress == Progress::Between => message.order,
                () => 0,
            };
            put(&mut self.ranks[to as usize].arrived, (key, piece.slot, piece.part));
        }
        self.wakes.push_back(to);
    }

    /// Handles a piece that its rank or the device has taken.
    pub(super) fn taken(&mut self, piece: Piece) {
        let Piece { slot, part, bytes, .. } = piece;
        let Message { from, to, tag, rendezvous, receive, .. } = self.messages[slot];
        let which = Half { peer: from, tag, which: slot };
        match part {
            Part::Request => {
                if let Some(receive) = self.ranks[to as usize].matching.arrive(which) {
                    self.meet(slot, receive);
                }
            }
            Part::Clear => {
                self.messages[slot].copied = self.messages[slot].bytes;
                if self.cluster.profile.progress == Progress::Device {
                    return self.stream(slot);
                }
                let key = if self.cluster.profile.by_peer { to } else { 0 };
                put(&mut self.ranks[from as usize].sending, (key, slot, Part::Data));
                self.wakes.push_back(from);
            }
            Part::Data => {
                self.messages[slot].taken += bytes;
                self.acknowledge(from, to, bytes);
                if self.messages[slot].taken < self.messages[slot].bytes {
                    return;
                }
                if rendezvous {
                    self.received = self.received.saturating_add(self.messages[slot].bytes);
                    self.messages.give_back(slot);
                    self.over.push_back((to, receive));
                } else if let Some(receive) = self.ranks[to as usize].matching.arrive(which) {
                    self.meet(slot, receive);
                }
            }
        }
    }

    /// Has the device fetch all of a message whose receive is there.
    pub(super) fn stream(&mut self, slot: u32) {
        while self.messages[slot].handed < self.messages[slot].bytes {
            let from = self.messages[slot].from;
            self.handed(from, slot, Part::Data);
        }
    }

    pub(super) fn acknowledge(&mut self, from: u32, to: u32, bytes: u64) {
        let profile = &self.cluster.profile;
        let inside = self.is_inside(from, to);
        if inside && self.bounded {
            self.at(self.now, Event::Opened { from, to, bytes });
        } else if !inside && (self.bounded || !profile.acknowledge.is_free()) {
            self.at(self.now.saturating_add(self.cluster.link.latency), Event::Acknowledged { from, to, bytes });
        }
    }
}
