//! The work of a rank's core in a call: which piece it moves next, for how long, and what follows.

use super::{Event, Job, Run};
use crate::graph::Reach;

impl Run<'_> {
    /// Returns from sends that are with the library entirely, while the sockets have no room for more.
    pub(super) fn return_from_sends(&mut self, at: usize) {
        let mut place = 0;
        while let Some(message) = self.lanes[at].posting.get(place).copied() {
            let passed = self.messages[message as usize];
            let stays = passed.copied < self.of.pieces.bytes(message)
                || passed.halves > 1 && self.is_rendezvous(message)
                || self.handable(at, Some(self.peer(message))).is_some();
            if stays {
                place += 1;
                continue;
            }
            self.lanes[at].posting.remove(place);
            if !self.of.stages.waits {
                self.messages[message as usize].sent = true;
            }
        }
    }

    fn is_rendezvous(&self, message: u32) -> bool {
        self.of.prices.kinds[self.of.graph.messages[message as usize].kind as usize].rendezvous
    }

    fn peer(&self, message: u32) -> u32 {
        self.of.graph.lanes[self.of.plan.ends[message as usize][1] as usize].rank
    }

    fn held(&self, message: u32) -> [u64; 2] {
        self.held[self.of.plan.connection[message as usize] as usize]
    }

    fn has_room(&self, message: u32, from: u64) -> bool {
        let held = self.held(message)[1];
        held == 0 || held.saturating_add(self.of.pieces.next(message, from)) <= self.socket
    }

    /// The first message of which a piece can be handed to its socket, to `peer` if that is given.
    fn handable(&self, at: usize, peer: Option<u32>) -> Option<u32> {
        let mut blocked = None;
        let of = self.lanes[at].sending.iter().filter(|(to, _)| peer.is_none_or(|peer| peer == *to));
        for (to, message) in of {
            if blocked == Some(*to) {
                continue;
            }
            let passed = &self.messages[*message as usize];
            if passed.handed < passed.copied && self.has_room(*message, passed.handed) {
                return Some(*message);
            }
            blocked = Some(*to);
        }
        None
    }

    /// The next work of a lane in a call.
    pub(super) fn select(&self, at: usize) -> Option<Job> {
        let lane = &self.lanes[at];
        for message in lane.posting.iter().copied() {
            if let Some(first) = self.handable(at, Some(self.peer(message))) {
                return Some(Job::Hand(first));
            }
            let passed = &self.messages[message as usize];
            if passed.copied < self.of.pieces.bytes(message) {
                let next = self.of.pieces.next(message, passed.copied);
                let held = self.held(message)[0];
                let placed = passed.handed == passed.copied && self.is_next(at, message);
                if placed && self.has_room(message, passed.copied) {
                    return Some(Job::Place(message));
                }
                if self.of.stages.waits || held == 0 || held.saturating_add(next) <= self.library {
                    return Some(Job::Copy(message));
                }
            }
        }
        let handed = self.handable(at, None).map(Job::Hand);
        handed.or_else(|| lane.arrived.first().map(|(_, message)| Job::Take(*message)))
    }

    /// Whether no message to the same rank is before this one.
    fn is_next(&self, at: usize, message: u32) -> bool {
        let peer = self.peer(message);
        self.lanes[at].sending.iter().find(|(to, _)| *to == peer).is_none_or(|(_, first)| *first == message)
    }

    pub(super) fn start(&mut self, at: usize, job: Job) {
        let rank = self.of.graph.lanes[at].rank as usize;
        let far = self.of.seats.far.get(rank).copied().unwrap_or(false);
        let length = |message: u32, place: u64, parts: [bool; 3]| {
            let next = self.of.pieces.next(message, place);
            self.of.stages.own(self.reach(message), parts, far) * self.of.pieces.work(message, next)
        };
        let passed = |message: u32| self.messages[message as usize];
        let time = match job {
            Job::Compute => 0.0,
            Job::Copy(message) => length(message, passed(message).copied, [true, false, false]),
            Job::Place(message) => length(message, passed(message).copied, [true, true, false]),
            Job::Hand(message) => length(message, passed(message).handed, [false, true, false]),
            Job::Take(message) => length(message, passed(message).taken, [false, false, true]),
        };
        let ends = self.cores[rank].free.max(self.now) + time as i64;
        self.lanes[at].job = Some((job, ends));
        self.at(ends, Event::Done(at as u32));
    }

    /// The consequences of a lane's finished work.
    pub(super) fn worked(&mut self, at: usize, job: Job) {
        match job {
            Job::Compute => self.enter(at),
            Job::Copy(message) => {
                let bytes = self.copied(message);
                self.held[self.of.plan.connection[message as usize] as usize][0] += bytes;
            }
            Job::Place(message) => {
                self.copied(message);
                self.handed(at, message);
            }
            Job::Hand(message) => {
                let bytes = self.handed(at, message);
                if !self.is_rendezvous(message) {
                    self.held[self.of.plan.connection[message as usize] as usize][0] -= bytes;
                }
            }
            Job::Take(message) => self.taken(at, message),
        }
    }

    fn copied(&mut self, message: u32) -> u64 {
        let passed = &mut self.messages[message as usize];
        let bytes = self.of.pieces.next(message, passed.copied);
        passed.copied += bytes;
        bytes
    }

    fn handed(&mut self, at: usize, message: u32) -> u64 {
        let passed = &mut self.messages[message as usize];
        let bytes = self.of.pieces.next(message, passed.handed);
        passed.handed += bytes;
        if passed.handed == self.of.pieces.bytes(message) {
            passed.sent = true;
            let lane = &mut self.lanes[at];
            lane.sending.retain(|(_, of)| *of != message);
            lane.posting.retain(|of| *of != message);
            self.wakes.extend(&self.of.plan.lanes[self.of.graph.lanes[at].rank as usize]);
        }
        self.held[self.of.plan.connection[message as usize] as usize][1] += bytes;
        if self.reach(message) == Reach::Host {
            self.at(self.now + self.of.stages.latency[0], Event::Delivered(message, bytes));
            return bytes;
        }
        let [from, _] = self.hosts(message);
        let link = &mut self.links[from][0];
        *link = (*link).max(self.now) + (self.of.stages.link * self.of.pieces.work(message, bytes)) as i64;
        let landed = *link + self.of.stages.latency[1];
        self.at(landed, Event::Landed(message, bytes));
        bytes
    }

    fn taken(&mut self, at: usize, message: u32) {
        let passed = &mut self.messages[message as usize];
        let bytes = self.of.pieces.next(message, passed.taken);
        passed.taken += bytes;
        if passed.taken == passed.delivered {
            self.lanes[at].arrived.retain(|(_, of)| *of != message);
        }
        if passed.taken == self.of.pieces.bytes(message) {
            passed.received = true;
            self.wakes.extend(&self.of.plan.lanes[self.of.graph.lanes[at].rank as usize]);
        }
        match self.reach(message) {
            Reach::Host => self.opened(message, bytes),
            Reach::Between => self.at(self.now + self.of.stages.latency[1], Event::Acknowledged(message, bytes)),
        }
    }
}
