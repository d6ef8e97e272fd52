//! The sending half of the reliable connected transport: work requests into packets, and the peer's verdicts on them.

use engine::Buffer;
use machine::{Nanoseconds, PeerIndex};

use crate::adapter::Card;
use crate::completion::{Opcode, WorkCompletion, WorkStatus};
use crate::memory::Segment;
use crate::send_queue::Bytes;
use crate::state::State;
use crate::wire::{Header, Kind, Nak, Place, Target, Verdict, advanced};

/// Value of a retry counter for unlimited retries.
const FOR_EVER: u8 = 7;

/// A packet to be transmitted.
pub(crate) struct Planned {
    pub peer: PeerIndex,
    pub header: Header,
    /// Offset and length of the message's bytes in it.
    pub from: usize,
    pub length: usize,
}

impl<B: Buffer> Card<B> {
    /// The next packet of a queue pair, if it may leave now.
    #[inline]
    pub fn plan(&mut self, index: usize) -> Option<Planned> {
        let pair = &mut self.queue_pairs[index];
        if pair.state != State::ReadyToSend || pair.rnr_until.is_some() {
            return None;
        }
        let chunk = pair.chunk;
        let window = pair.link.window;
        let half = window.min(self.settings.send_depth) / 2;
        let (element, packet, psn) = pair.send.next_packet(window)?;
        let from = packet as usize * chunk;
        let length = (element.length as usize - from).min(chunk);
        let place = Place { first: packet == 0, last: packet + 1 == element.packets };
        let kind = match element.opcode {
            Opcode::RdmaWrite => {
                let target = || Target { offset: element.offset, key: element.key, length: element.length as u32 };
                Kind::Write(place, place.first.then(target))
            }
            _ => Kind::Send(place),
        };
        let waited_for = element.signaled && place.last && element.opcode == Opcode::RdmaWrite;
        let ask = waited_for || pair.unasked + 1 >= half;
        Some(Planned { peer: pair.peer, header: Header { destination: pair.remote, psn, ask, kind }, from, length })
    }

    /// Writes a planned packet over the whole of `into`.
    #[inline]
    pub fn write(&mut self, index: usize, planned: &Planned, into: &mut [u8]) {
        planned.header.write(into);
        let into = &mut into[planned.header.length()..];
        let pair = &mut self.queue_pairs[index];
        let (element, ..) = pair.send.next_packet(u32::MAX >> 1).expect("planned");
        match element.bytes {
            Bytes::Inline => into.copy_from_slice(&element.inline[planned.from..planned.from + planned.length]),
            Bytes::Registered(Segment { key, offset, .. }) => {
                // The region may have been deregistered under a request that is sent again.
                if !self.registered.read(key, offset + planned.from as u64, into) {
                    into.fill(0);
                }
            }
        }
    }

    #[inline]
    pub fn sent(&mut self, index: usize, planned: &Planned, now: Option<Nanoseconds>) {
        let pair = &mut self.queue_pairs[index];
        pair.send.sent(planned.header.psn);
        pair.unasked = if planned.header.ask { 0 } else { pair.unasked + 1 };
        self.counters.packets_sent += 1;
        if let Some(now) = now
            && pair.deadline.is_none()
        {
            let at = now + self.settings.timeout;
            pair.deadline = Some(at);
            self.watch(at);
        }
    }

    pub fn acknowledged(&mut self, index: usize, psn: u32, verdict: Verdict) {
        let Card { queue_pairs, completions, settings, counters, .. } = self;
        let pair = &mut queue_pairs[index];
        // The verdict is a duplicate or late: the packet has got through since.
        if verdict != Verdict::Acknowledged && pair.send.has_arrived(psn) {
            counters.duplicates += 1;
            return;
        }
        let number = pair.number;
        let before = if verdict == Verdict::Acknowledged { advanced(psn, 1) } else { psn };
        let mut progress = false;
        let possible = pair.send.arrived_before(before, |element| {
            progress = true;
            if element.signaled {
                completions.add(WorkCompletion {
                    id: element.id,
                    queue_pair: number,
                    opcode: element.opcode,
                    status: WorkStatus::Success,
                    length: 0,
                });
            }
        });
        if !possible {
            counters.malformed += 1;
            return;
        }
        if progress {
            pair.rnr_left = settings.rnr_retry;
            pair.retries_left = settings.retry;
        }
        // The timeout of packets in flight starts anew at each sign of life.
        pair.deadline = None;
        match verdict {
            Verdict::Acknowledged => self.mark_ready(index),
            Verdict::NotReady => self.not_ready(index),
            Verdict::Refused(Nak::Sequence) => {
                self.go_back(index);
                self.mark_ready(index);
            }
            Verdict::Refused(Nak::InvalidRequest) => {
                self.broke(index, WorkStatus::RemoteInvalidRequest, Opcode::Send);
            }
            Verdict::Refused(Nak::RemoteAccess) => self.broke(index, WorkStatus::RemoteAccess, Opcode::Send),
        }
        self.rearm(index);
    }

    fn not_ready(&mut self, index: usize) {
        self.counters.not_ready_received += 1;
        let until = self.now() + self.settings.rnr_timer;
        let pair = &mut self.queue_pairs[index];
        if pair.rnr_left == 0 {
            return self.broke(index, WorkStatus::RnrRetryExceeded, Opcode::Send);
        }
        if pair.rnr_left < FOR_EVER {
            pair.rnr_left -= 1;
        }
        if pair.rnr_until.is_none() {
            self.waiting += 1;
        }
        pair.rnr_until = Some(until);
        self.watch(until);
        self.go_back(index);
    }

    fn go_back(&mut self, index: usize) {
        let pair = &mut self.queue_pairs[index];
        self.counters.retransmitted += u64::from(pair.send.in_flight());
        pair.send.rewind();
        pair.unasked = pair.link.window;
    }

    /// Starts the timeout of packets in flight, on ports that lose packets.
    fn rearm(&mut self, index: usize) {
        if self.queue_pairs[index].link.reliable {
            return;
        }
        let at = self.now() + self.settings.timeout;
        let pair = &mut self.queue_pairs[index];
        if pair.send.in_flight() > 0 && pair.state == State::ReadyToSend {
            pair.deadline = Some(at);
            self.watch(at);
        }
    }

    /// Handles the timeouts of all queue pairs that are due.
    #[cold]
    pub fn handle_timeout(&mut self, now: Nanoseconds) {
        self.next_timeout = None;
        for index in 0..self.queue_pairs.len() {
            let pair = &mut self.queue_pairs[index];
            if let Some(until) = pair.rnr_until {
                if until <= now {
                    pair.rnr_until = None;
                    self.waiting -= 1;
                    self.mark_ready(index);
                } else {
                    self.watch(until);
                }
            }
            let pair = &mut self.queue_pairs[index];
            match pair.deadline {
                Some(at) if at > now => self.watch(at),
                Some(_) if pair.send.in_flight() == 0 => pair.deadline = None,
                Some(_) if pair.retries_left == 0 => self.broke(index, WorkStatus::RetryExceeded, Opcode::Send),
                Some(_) => {
                    pair.retries_left -= 1;
                    pair.deadline = None;
                    self.go_back(index);
                    self.mark_ready(index);
                    self.rearm(index);
                }
                None => {}
            }
        }
    }
}
