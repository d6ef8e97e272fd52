//! The receiving half of the reliable connected transport: packets into posted receives and registered memory.

use engine::Buffer;
use machine::PeerIndex;

use crate::adapter::Card;
use crate::address::{ConnectRequest, MANAGEMENT, QueuePairNumber};
use crate::completion::{Opcode, WorkCompletion, WorkStatus};
use crate::memory::{MemoryKey, Segment};
use crate::queue_pair::Arriving;
use crate::wire::{Header, Kind, Nak, Place, Target, Verdict, advanced, distance};

/// Most datagrams for connecting that are kept per poll; peers repeat the others.
const HELLOS_MOST: usize = 4096;

/// The reason to refuse a packet in sequence.
enum Refusal {
    NotReady,
    Error(Nak, WorkStatus),
}

const INVALID: Refusal = Refusal::Error(Nak::InvalidRequest, WorkStatus::Flushed);

impl<B: Buffer> Card<B> {
    /// Handles one packet. Whatever it holds, at most its own connection breaks.
    #[inline]
    pub fn handle(&mut self, peer: PeerIndex, packet: &[u8]) {
        let Some((header, payload)) = Header::parse(packet) else {
            self.counters.malformed += 1;
            return;
        };
        if header.kind == Kind::Management {
            match ConnectRequest::parse(payload) {
                Some(hello) if header.destination == MANAGEMENT && self.hellos.len() < HELLOS_MOST => {
                    self.hellos.push_back((peer, hello));
                }
                _ => self.counters.malformed += 1,
            }
            return;
        }
        let index = QueuePairNumber(header.destination).index();
        match self.queue_pairs.get(index) {
            Some(pair) if pair.peer == peer && pair.state.receives_packets() => {}
            _ => {
                self.counters.malformed += 1;
                return;
            }
        }
        self.counters.packets_received += 1;
        self.queue_pairs[index].refusals = 0;
        if let Kind::Acknowledge(verdict) = header.kind {
            self.acknowledged(index, header.psn, verdict);
        } else {
            self.request_arrived(index, header, payload);
        }
    }

    #[inline]
    fn request_arrived(&mut self, index: usize, header: Header, payload: &[u8]) {
        let pair = &mut self.queue_pairs[index];
        match distance(header.psn, pair.expected) {
            0 => {}
            ahead if ahead > 0 => {
                self.counters.out_of_sequence += 1;
                if !pair.refused {
                    pair.refused = true;
                    self.answer(index, Verdict::Refused(Nak::Sequence));
                }
                return;
            }
            _ => {
                self.counters.duplicates += 1;
                return self.answer(index, Verdict::Acknowledged);
            }
        }
        let taken = match header.kind {
            Kind::Send(place) => self.send_arrived(index, place, payload),
            Kind::Write(place, target) => self.write_arrived(index, place, target, payload),
            Kind::Acknowledge(_) | Kind::Management => unreachable!("told apart before"),
        };
        let pair = &mut self.queue_pairs[index];
        match taken {
            Ok(()) => {
                pair.expected = advanced(pair.expected, 1);
                pair.refused = false;
                pair.unacknowledged += 1;
                if header.ask || pair.unacknowledged >= self.settings.acknowledge_every {
                    self.answer(index, Verdict::Acknowledged);
                } else if !pair.lazy {
                    pair.lazy = true;
                    self.lazy.push(index as u32);
                }
            }
            Err(Refusal::NotReady) => {
                self.counters.not_ready_sent += 1;
                pair.refused = true;
                self.answer(index, Verdict::NotReady);
            }
            Err(Refusal::Error(nak, status)) => {
                self.answer(index, Verdict::Refused(nak));
                self.broke(index, status, Opcode::Receive);
            }
        }
    }

    #[inline]
    fn send_arrived(&mut self, index: usize, place: Place, payload: &[u8]) -> Result<(), Refusal> {
        let pair = &mut self.queue_pairs[index];
        let (work, got) = match (place.first, pair.arriving) {
            (true, Arriving::Nothing) => {
                let queue = pair.receive.as_mut().or(self.shared.as_mut());
                (queue.and_then(|queue| queue.take()).ok_or(Refusal::NotReady)?, 0)
            }
            (false, Arriving::Message { work, got }) => (work, got),
            _ => return Err(INVALID),
        };
        pair.arriving = Arriving::Message { work, got };
        let length = payload.len() as u64;
        if got + length > work.into.length {
            return Err(Refusal::Error(Nak::InvalidRequest, WorkStatus::LocalLength));
        }
        let into = Segment { key: work.into.key, offset: work.into.offset + got, length };
        let Some(into) = self.registered.pooled_mut(into) else { return Err(INVALID) };
        into.copy_from_slice(payload);
        let got = got + length;
        if place.last {
            pair.arriving = Arriving::Nothing;
            self.completions.add(WorkCompletion {
                id: work.id,
                queue_pair: pair.number,
                opcode: Opcode::Receive,
                status: WorkStatus::Success,
                length: got as u32,
            });
        } else {
            pair.arriving = Arriving::Message { work, got };
        }
        Ok(())
    }

    fn write_arrived(
        &mut self,
        index: usize,
        place: Place,
        target: Option<Target>,
        payload: &[u8],
    ) -> Result<(), Refusal> {
        let pair = &mut self.queue_pairs[index];
        let length = payload.len() as u64;
        let (key, offset, left) = match (target, pair.arriving) {
            (Some(target), Arriving::Nothing) => (target.key, target.offset, u64::from(target.length)),
            (None, Arriving::Write { key, offset, left }) => (key, offset, left),
            _ => return Err(INVALID),
        };
        if length > left || place.last != (length == left) {
            return Err(INVALID);
        }
        if !self.registered.write_for_peer(pair.number, MemoryKey(key), offset, payload) {
            return Err(Refusal::Error(Nak::RemoteAccess, WorkStatus::Flushed));
        }
        pair.arriving = if place.last {
            Arriving::Nothing
        } else {
            Arriving::Write { key, offset: offset + length, left: left - length }
        };
        Ok(())
    }

    #[inline]
    fn answer(&mut self, index: usize, verdict: Verdict) {
        let pair = &mut self.queue_pairs[index];
        // A plain acknowledgement does not replace a refusal, which implies it.
        if pair.answer.is_none() || verdict != Verdict::Acknowledged {
            pair.answer = Some(verdict);
        }
        if !pair.answering {
            pair.answering = true;
            self.answers.push_back(index as u32);
        }
    }

    /// Sends the late acknowledgements; called when there is nothing else to do.
    pub fn answer_lazy(&mut self) {
        while let Some(index) = self.lazy.pop() {
            let pair = &mut self.queue_pairs[index as usize];
            pair.lazy = false;
            if pair.unacknowledged > 0 {
                self.answer(index as usize, Verdict::Acknowledged);
            }
        }
    }

    /// The next acknowledgement to transmit, with its queue pair and peer.
    #[inline]
    pub fn next_answer(&mut self) -> Option<(usize, PeerIndex, Header)> {
        let index = *self.answers.front()? as usize;
        let pair = &self.queue_pairs[index];
        let verdict = pair.answer.unwrap_or(Verdict::Acknowledged);
        // An acknowledgement names the last packet that arrived, a refusal the first that did not.
        let psn = if verdict == Verdict::Acknowledged { advanced(pair.expected, u32::MAX) } else { pair.expected };
        Some((index, pair.peer, Header { destination: pair.remote, psn, ask: false, kind: Kind::Acknowledge(verdict) }))
    }

    #[inline]
    pub fn answered(&mut self, index: usize) {
        self.answers.pop_front();
        let pair = &mut self.queue_pairs[index];
        pair.answer = None;
        pair.answering = false;
        pair.unacknowledged = 0;
        self.counters.acknowledgements += 1;
    }
}
