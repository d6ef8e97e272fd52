//! Work that waits for room or credit, and messages by request to send, clear to send and RDMA write.

use engine::{Buffer, Envelope, Label, ReceiveKey, SendKey, Status, to_wire};
use machine::{PeerIndex, Port, Result};

use crate::connection::Waiting;
use crate::endpoint::Endpoint;
use crate::header::Kind;
use crate::memory::{MemoryKey, Segment};
use crate::request::ReceiveState;
use crate::send_queue::{SendWork, Transfer};

/// Bytes of one RDMA write: with the shortest possible packets, of 64 B, a quarter of a send queue's span.
const WRITE_MOST: u64 = 64 << 20;

impl<P: Port, B: Buffer> Endpoint<P, B> {
    pub(crate) fn wait(&mut self, peer: PeerIndex, what: Waiting) {
        let connection = &mut self.connections[peer.0 as usize];
        connection.waiting.push_back(what);
        if !connection.listed {
            connection.listed = true;
            self.waiting.push_back(peer);
        }
    }

    /// Posts the work that waits for this peer, as far as room and credit go.
    pub(crate) fn post_waiting(&mut self, peer: PeerIndex) -> Result<()> {
        let connection = &self.connections[peer.0 as usize];
        if !connection.ready && connection.alive {
            return if connection.waiting.is_empty() { Ok(()) } else { self.begin(peer) };
        }
        while let Some(&next) = self.connections[peer.0 as usize].waiting.front() {
            let connection = &self.connections[peer.0 as usize];
            let queue_pair = connection.queue_pair;
            if let Waiting::Write { send, from, key, length, done } = next {
                if self.adapter.send_room(queue_pair) == 0 {
                    break;
                }
                let piece = (length - done).min(WRITE_MOST);
                let last = done + piece == length;
                let from = Segment { key: from, offset: done, length: piece };
                let transfer = Transfer::Write { from, key, offset: done };
                self.post_work(queue_pair, SendWork { id: to_wire(send), signaled: last, transfer })?;
                let waiting = &mut self.connections[peer.0 as usize].waiting;
                match waiting.front_mut() {
                    Some(Waiting::Write { done, .. }) if !last => *done += piece,
                    _ => {
                        waiting.pop_front();
                    }
                }
                continue;
            }
            if !self.may_send(peer) {
                break;
            }
            self.connections[peer.0 as usize].waiting.pop_front();
            match next {
                Waiting::Message(key) => self.post_queued(peer, key)?,
                Waiting::ClearToSend { sender, receiver, key, length } => {
                    self.post_control(peer, Kind::ClearToSend { sender, receiver, key, length })?;
                }
                Waiting::Finished { receiver } => {
                    self.post_control(peer, Kind::Finished { receiver })?;
                }
                Waiting::Write { .. } => unreachable!("posted before"),
            }
        }
        let connection = &mut self.connections[peer.0 as usize];
        if !connection.waiting.is_empty() && !connection.listed {
            connection.listed = true;
            self.waiting.push_back(peer);
        }
        Ok(())
    }

    fn post_queued(&mut self, peer: PeerIndex, key: SendKey) -> Result<()> {
        let Some(send) = self.sends.get_mut(key) else { return Ok(()) };
        let Envelope { space, tag, data, length, .. } = send.envelope;
        let label = Label::new(space, tag, data);
        if !send.by_request {
            let Some(buffer) = send.buffer.take() else { return Ok(()) };
            let posted = self.post_eager(peer, label, buffer.length(), |into| buffer.read(0, into));
            if let Some(send) = self.sends.get_mut(key) {
                send.buffer = Some(buffer);
            }
            self.finish_send(key, Status::Done);
            return posted;
        }
        send.requested = true;
        self.counters.rendezvous += 1;
        let header = self.header(peer, Kind::RequestToSend { length, sender: to_wire(key) }, label);
        self.post_message(peer, header, 0, |_| ())
    }

    /// Registers the buffer of a receive that a request to send has met, and tells the sender.
    pub(crate) fn clear_to_send(&mut self, key: ReceiveKey, envelope: Envelope, sender: u64) {
        let receive = &mut self.receives[key];
        let Some(buffer) = receive.buffer.take() else { return };
        let length = envelope.length.min(buffer.length() as u64);
        let writer = self.connections[envelope.peer.0 as usize].queue_pair;
        let memory = self.adapter.register(buffer, Some(writer));
        receive.state = ReceiveState::Written { envelope, key: memory };
        let receiver = to_wire(key);
        self.wait(envelope.peer, Waiting::ClearToSend { sender, receiver, key: memory.0, length });
    }

    /// Handles a clear to send; false where no such message was requested, or more is asked for than it has.
    pub(crate) fn cleared_to_send(
        &mut self,
        peer: PeerIndex,
        key: SendKey,
        receiver: u64,
        to: u64,
        length: u64,
    ) -> bool {
        let Some(send) = self.sends.get_mut(key) else { return false };
        if send.envelope.peer != peer || !send.requested || send.registered.is_some() || length > send.envelope.length {
            return false;
        }
        let Some(buffer) = send.buffer.take() else { return false };
        let from: MemoryKey = self.adapter.register(buffer, None);
        send.registered = Some(from);
        if length > 0 {
            self.wait(peer, Waiting::Write { send: key, from, key: to, length, done: 0 });
        } else {
            self.finish_send(key, Status::Done);
        }
        self.wait(peer, Waiting::Finished { receiver });
        true
    }

    /// Ends a receive that the peer has written whole; false where it was not asked to write.
    pub(crate) fn written(&mut self, peer: PeerIndex, key: ReceiveKey) -> bool {
        let Some(receive) = self.receives.get(key) else { return false };
        let ReceiveState::Written { envelope, key: memory } = receive.state else { return false };
        if envelope.peer != peer {
            return false;
        }
        let Some(buffer) = self.adapter.deregister(memory) else { return false };
        let status = Status::of(&envelope, &buffer);
        self.receives[key].buffer = Some(buffer);
        self.finish_receive(key, envelope, status);
        true
    }

    /// Tells peers of posted receives that no message has told of.
    pub(crate) fn return_credits(&mut self) -> Result<()> {
        for _ in 0..self.owing.len() {
            let Some(peer) = self.owing.pop() else { break };
            let connection = &mut self.connections[peer.0 as usize];
            let enough = connection.returning >= self.settings.receive.depth() / 2;
            if !connection.alive || !enough {
                connection.owing = false;
            } else if self.adapter.send_room(connection.queue_pair) == 0 {
                self.owing.insert(0, peer);
            } else {
                connection.owing = false;
                self.counters.credit_messages += 1;
                self.post_control(peer, Kind::Credit)?;
            }
        }
        Ok(())
    }
}
