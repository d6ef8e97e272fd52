//! From work completions to messages.

use engine::{Buffer, Envelope, Label, ReceiveKey, Status, from_wire};
use machine::{PeerIndex, Port, Result};

use crate::completion::{Opcode, WorkCompletion, WorkStatus};
use crate::endpoint::{Endpoint, NO_BUFFER, segment};
use crate::header::{Header, Kind};
use crate::request::Unexpected;

impl<P: Port, B: Buffer> Endpoint<P, B> {
    #[inline]
    pub(crate) fn work_ended(&mut self, done: WorkCompletion) -> Result<()> {
        match done.opcode {
            Opcode::Receive if done.status == WorkStatus::Success => self.arrived(done),
            Opcode::Receive => {
                // A buffer of the shared queue is nobody's own: it goes back, whoever's message broke.
                if let Some(key) = self.shared {
                    self.adapter.post_shared_receive(done.id, segment(key, done.id, self.settings.buffer.0))?;
                }
                Ok(())
            }
            Opcode::Send => {
                if done.id != NO_BUFFER {
                    self.send_buffers.free.push(done.id as u32);
                }
                Ok(())
            }
            Opcode::RdmaWrite => {
                if done.status == WorkStatus::Success {
                    self.finish_send(from_wire(done.id), Status::Done);
                }
                Ok(())
            }
        }
    }

    /// Handles a message in a posted buffer, which is posted anew once the message is copied out.
    #[inline]
    fn arrived(&mut self, done: WorkCompletion) -> Result<()> {
        let Some(&peer) = self.by_queue_pair.get(&done.queue_pair) else { return Ok(()) };
        let buffer = segment(self.connections[peer.0 as usize].buffers, done.id, self.settings.buffer.0);
        let mut filled = buffer;
        filled.length = u64::from(done.length);
        let parsed =
            self.adapter.memory(filled).and_then(Header::parse).map(|(header, payload)| (header, payload.len()));
        let kept = match parsed {
            Some((header, length)) if header.source == peer.0 && self.connections[peer.0 as usize].alive => {
                filled.offset += (filled.length as usize - length) as u64;
                filled.length = length as u64;
                self.message(peer, header, filled)?
            }
            _ => false,
        };
        if !kept {
            self.counters.malformed += 1;
            self.adapter.modify(done.queue_pair, crate::State::Error)?;
            self.peer_dead(peer);
        }
        self.adapter.post_receive(done.queue_pair, done.id, buffer)?;
        let counts = self.counts_credit();
        if counts && !matches!(parsed, Some((Header { kind: Kind::Credit, .. }, _))) {
            let connection = &mut self.connections[peer.0 as usize];
            connection.returning += 1;
            if !connection.owing && connection.returning >= self.settings.receive.depth() / 2 {
                connection.owing = true;
                self.owing.push(peer);
            }
        }
        Ok(())
    }

    /// Handles one message; false where the peer broke the protocol.
    #[inline]
    fn message(&mut self, peer: PeerIndex, header: Header, payload: crate::Segment) -> Result<bool> {
        if header.credits > 0 && !self.credited(peer, u32::from(header.credits)) {
            return Ok(false);
        }
        match header.kind {
            Kind::Eager => {
                let envelope = Envelope::new(peer, header.label, payload.length);
                let bytes = self.adapter.memory(payload).expect("read just now");
                match self.posted.take(&mut self.receives, peer, header.label.space, header.label.tag) {
                    Some(key) => {
                        let into = self.receives[key].buffer.as_mut().expect("a posted receive has its buffer");
                        let fits = bytes.len().min(into.length());
                        into.write(0, &bytes[..fits]);
                        let status = if fits == bytes.len() { Status::Done } else { Status::Truncated };
                        self.finish_receive(key, envelope, status);
                    }
                    None => {
                        let bytes = bytes.to_vec();
                        self.unexpected_bytes += bytes.len() as u64;
                        self.keep(peer, header.label, Unexpected::Eager(bytes));
                    }
                }
            }
            Kind::RequestToSend { length, sender } => {
                match self.posted.take(&mut self.receives, peer, header.label.space, header.label.tag) {
                    Some(key) => self.clear_to_send(key, Envelope::new(peer, header.label, length), sender),
                    None => self.keep(peer, header.label, Unexpected::Rendezvous { length, sender }),
                }
            }
            Kind::ClearToSend { sender, receiver, key, length } => {
                return Ok(self.cleared_to_send(peer, from_wire(sender), receiver, key, length));
            }
            // The end of a message that was discarded.
            Kind::Finished { receiver: 0 } => {}
            Kind::Finished { receiver } => return Ok(self.written(peer, from_wire(receiver))),
            Kind::Credit => {}
        }
        Ok(true)
    }

    #[inline]
    fn credited(&mut self, peer: PeerIndex, credits: u32) -> bool {
        let connection = &mut self.connections[peer.0 as usize];
        connection.credits += credits;
        connection.credits <= self.settings.receive.depth()
    }

    fn keep(&mut self, peer: PeerIndex, label: Label, message: Unexpected) {
        self.unexpected.push(peer, label, message);
        let counters = &mut self.counters;
        counters.unexpected_most = counters.unexpected_most.max(self.unexpected.len() as u64);
        counters.unexpected_bytes_most = counters.unexpected_bytes_most.max(self.unexpected_bytes);
    }

    /// Gives a fresh receive a message that came before it.
    pub(crate) fn give(&mut self, key: ReceiveKey, peer: PeerIndex, label: Label, message: Unexpected) -> Result<()> {
        match message {
            Unexpected::Eager(bytes) => {
                self.unexpected_bytes -= bytes.len() as u64;
                let into = self.receives[key].buffer.as_mut().expect("a fresh receive has its buffer");
                let fits = bytes.len().min(into.length());
                into.write(0, &bytes[..fits]);
                let status = if fits == bytes.len() { Status::Done } else { Status::Truncated };
                self.finish_receive(key, Envelope::new(peer, label, bytes.len() as u64), status);
            }
            Unexpected::Rendezvous { .. } if !self.connections[peer.0 as usize].alive => {
                self.finish_receive(key, Envelope::new(peer, label, 0), Status::PeerDead);
            }
            Unexpected::Rendezvous { length, sender } => {
                self.clear_to_send(key, Envelope::new(peer, label, length), sender);
                self.post_waiting(peer)?;
            }
        }
        Ok(())
    }

    /// Ends a connection: everything that waits for the peer ends as [`Status::PeerDead`]. Messages that had arrived whole can
    /// still be received.
    pub(crate) fn peer_dead(&mut self, peer: PeerIndex) {
        let connection = &mut self.connections[peer.0 as usize];
        if !connection.alive {
            return;
        }
        connection.alive = false;
        connection.waiting.clear();
        let sends: Vec<_> = self.sends.iter().filter(|(_, s)| s.envelope.peer == peer).map(|(key, _)| key).collect();
        for key in sends {
            self.finish_send(key, Status::PeerDead);
        }
        let receives = self.receives.iter().filter(|(_, receive)| receive.waits_for(peer)).map(|(key, _)| key);
        for key in receives.collect::<Vec<_>>() {
            self.end_receive(key, Status::PeerDead);
        }
        self.unexpected.drop_from(peer, |message| matches!(message, Unexpected::Rendezvous { .. }));
    }
}
