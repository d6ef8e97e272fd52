//! From packets to completions.

use machine::{Nanoseconds, PeerIndex};

use crate::announced::Offer;
use crate::buffer::Buffer;
use crate::engine::Engine;
use crate::peer::{MOST_MESSAGES, Partial, Target, Violation};
use crate::reliability::Arrival;
use crate::request::{Delivery, Match, ReceiveKey, ReceiveState, SendKey, Status, from_wire};
use crate::stored::Stored;
use crate::tag::{Envelope, Label};
use crate::unexpected::Unexpected;
use crate::wire::{self, Packet, Sequencing};

/// Takes messages as they come. A trait, since inlining cannot be forced on a closure.
pub trait Take<B> {
    /// Told of a receive that ends: its context, the message and its buffer. If it returns true, that is all: nothing
    /// completes, and the buffer is dropped.
    fn take(&mut self, context: u64, envelope: &Envelope, buffer: &B) -> bool;
}

/// Takes nothing: every receive completes.
pub struct TakeNothing;

impl<B> Take<B> for TakeNothing {
    #[inline(always)]
    fn take(&mut self, _: u64, _: &Envelope, _: &B) -> bool {
        false
    }
}

impl<B: Buffer> Engine<B> {
    /// As [`Engine::handle_packet`]. Where the packet is a whole message and ends a receive, `taker` is told.
    #[inline(always)]
    pub fn handle_packet_with(&mut self, now: Nanoseconds, peer: PeerIndex, bytes: &[u8], taker: &mut impl Take<B>) {
        if self.handle_short(peer, bytes, taker).is_none() {
            self.handle_packet(now, peer, bytes);
        }
    }

    /// The common case: a whole message for a receive that waits and has room, over a reliable port. `None`, with
    /// nothing changed, in any other.
    #[inline(always)]
    fn handle_short(&mut self, peer: PeerIndex, bytes: &[u8], taker: &mut impl Take<B>) -> Option<()> {
        let link = self.peers.get(peer.0 as usize)?;
        if !link.alive || link.reliability.is_some() || link.partial.is_some() {
            return None;
        }
        let (label, payload) = wire::short(bytes)?;
        let length = payload.len() as u64;
        let envelope = Envelope::new(peer, label, length);
        let node = self.posted.find(&mut self.receives, peer, label.space, label.tag)?;
        let request = &mut self.receives.nodes()[node as usize].value;
        let buffer = request.buffer.as_mut().filter(|buffer| payload.len() <= buffer.length())?;
        buffer.write(0, payload);
        self.counters.packets_received += 1;
        self.posted.pop(&request.place);
        if taker.take(request.context, &envelope, buffer) {
            request.buffer = None;
            self.receives.vacate(node);
        } else {
            self.complete(node, envelope);
        }
        self.free_credit(peer, label.space, length);
        Some(())
    }

    /// Ends a receive that has all of its message.
    #[inline(never)]
    fn complete(&mut self, node: u32, envelope: Envelope) {
        self.finish_receive(self.receives.key(node), envelope, Status::Done);
    }

    /// Takes in one packet from `peer`, with whatever bytes: malformed packets are counted and dropped, and a peer that
    /// breaks the protocol on a reliable port counts as dead.
    #[inline]
    pub fn handle_packet(&mut self, now: Nanoseconds, peer: PeerIndex, bytes: &[u8]) {
        let Some(link) = self.peers.get_mut(peer.0 as usize) else {
            self.counters.malformed += 1;
            return;
        };
        if !link.alive {
            return;
        }
        self.counters.packets_received += 1;
        if link.reliability.is_none() {
            self.handle_in_order(peer, bytes);
        } else {
            self.handle_sequenced(now, peer, bytes);
        }
    }

    fn handle_sequenced(&mut self, now: Nanoseconds, peer: PeerIndex, bytes: &[u8]) {
        let Some((header, body)) = Sequencing::parse(bytes) else {
            self.counters.malformed += 1;
            return;
        };
        let link = &mut self.peers[peer.0 as usize];
        let reliability = link.reliability.as_mut().expect("sequenced");
        if header.session != reliability.session() {
            self.counters.other_session += 1;
            return;
        }
        let mut ended: Vec<SendKey> = Vec::new();
        reliability.acknowledged(now, &header, |stored| match stored {
            Stored::Data { send, last, .. } => {
                if last {
                    ended.push(send);
                }
            }
            Stored::Eager { .. } => {}
            Stored::Copy(buffer) => self.spares.put(buffer),
            Stored::Shared(shared) => self.spares.put_shared(shared),
        });
        let arrival = header.carries.then(|| reliability.arrived(now, &header, body, &mut self.spares));
        for send in ended {
            self.finish_send(send, Status::Done);
        }
        if let Some(arrival) = arrival {
            match arrival {
                Arrival::InOrder => {
                    self.handle_in_order(peer, body);
                    while let Some(held) =
                        self.peers[peer.0 as usize].reliability.as_mut().and_then(|r| r.next_waiting())
                    {
                        self.handle_in_order(peer, &held);
                        self.spares.put(held);
                    }
                }
                Arrival::Held => self.counters.out_of_order += 1,
                Arrival::Dropped => self.counters.duplicates += 1,
            }
        }
        self.mark_ready(peer);
        self.watch(peer);
    }

    #[inline]
    fn handle_in_order(&mut self, peer: PeerIndex, bytes: &[u8]) {
        if !self.peers[peer.0 as usize].alive {
            return;
        }
        let handled = match Packet::parse(bytes) {
            Some(packet) => self.handle_message_packet(peer, packet),
            None => Err(Violation),
        };
        if handled.is_err() {
            self.counters.malformed += 1;
            self.peer_dead(peer);
        }
    }

    #[inline]
    fn handle_message_packet(&mut self, peer: PeerIndex, packet: Packet) -> Result<(), Violation> {
        match packet {
            Packet::Eager { label, length, payload } => self.eager_arrived(peer, label, u64::from(length), payload),
            Packet::More { payload } => self.more_arrived(peer, payload),
            Packet::Request { label, length, sender, address, fast } => {
                self.request_arrived(peer, label, length, Offer { sender, address, fast })
            }
            Packet::Clear { sender, receiver } => self.clear_arrived(peer, from_wire(sender), receiver),
            Packet::Data { receiver, payload } => self.data_arrived(peer, from_wire(receiver), payload),
            Packet::Done { sender } => self.done_arrived(peer, from_wire(sender)),
            Packet::Credit { messages, bytes, announce } => {
                let link = &mut self.peers[peer.0 as usize];
                let messages = link.credit_messages.checked_add(messages).ok_or(Violation)?;
                let bytes = link.credit_bytes.checked_add(bytes).ok_or(Violation)?;
                if messages > MOST_MESSAGES || bytes > link.config.credit_bytes.0 {
                    return Err(Violation);
                }
                link.credit_messages = messages;
                link.credit_bytes = bytes;
                link.announce = announce;
                link.starved = false;
                self.mark_ready(peer);
                Ok(())
            }
            Packet::Withdrawn { receiver } => self.withdrawn_arrived(peer, from_wire(receiver)),
        }
    }

    #[inline]
    fn eager_arrived(&mut self, peer: PeerIndex, label: Label, length: u64, payload: &[u8]) -> Result<(), Violation> {
        let envelope = Envelope::new(peer, label, length);
        let whole = payload.len() as u64 == length;
        if self.peers[peer.0 as usize].partial.is_some() {
            return Err(Violation);
        }
        let target = match self.posted.take(&mut self.receives, peer, label.space, label.tag) {
            Some(key) if whole => {
                let Some(mut request) = self.receives.remove(key) else { return Ok(()) };
                copy_into(request.buffer(), 0, payload);
                self.free_credit(peer, label.space, length);
                let status = Status::of(&envelope, request.buffer());
                self.received(key, request, envelope, status);
                return Ok(());
            }
            Some(key) => {
                copy_into(self.receives[key].buffer(), 0, payload);
                self.free_credit(peer, label.space, length);
                let got = payload.len() as u64;
                self.receives[key].state = ReceiveState::matched(envelope, got, Delivery::Eager);
                Target::Receive(key)
            }
            None => {
                self.hold(peer, length)?;
                let mut data = Vec::with_capacity(length as usize);
                data.extend_from_slice(payload);
                let node = self.unexpected.push(peer, label, Unexpected::Eager { length, data });
                self.counters.unexpected_most = self.counters.unexpected_most.max(self.unexpected.len() as u64);
                self.relieve_behind_receives(peer, label.space);
                Target::Unexpected(node)
            }
        };
        if !whole {
            self.peers[peer.0 as usize].partial = Some(Partial { target, length, got: payload.len() as u64 });
        }
        Ok(())
    }

    fn more_arrived(&mut self, peer: PeerIndex, payload: &[u8]) -> Result<(), Violation> {
        let link = &mut self.peers[peer.0 as usize];
        let partial = link.partial.as_mut().ok_or(Violation)?;
        let (target, offset) = (partial.target, partial.got);
        let got = offset + payload.len() as u64;
        if got > partial.length {
            return Err(Violation);
        }
        let whole = got == partial.length;
        partial.got = got;
        if whole {
            link.partial = None;
        }
        match target {
            Target::Receive(key) => self.add_to_receive(key, offset, payload, whole),
            Target::Unexpected(node) => {
                let Unexpected::Eager { data, .. } = self.unexpected.get_mut(node) else {
                    return Err(Violation);
                };
                data.extend_from_slice(payload);
            }
            Target::Claimed(key) => {
                let Some(Unexpected::Eager { data, .. }) =
                    self.claimed.get_mut(key).map(|claimed| &mut claimed.message)
                else {
                    return Err(Violation);
                };
                data.extend_from_slice(payload);
            }
            Target::Nowhere => {}
        }
        Ok(())
    }

    /// Copies a part of a message, which begins at `offset` of it, into the buffer of the matched receive; what does not fit is
    /// dropped. Parts come in order. After the last the receive is finished.
    pub(crate) fn add_to_receive(&mut self, key: ReceiveKey, offset: u64, payload: &[u8], is_last: bool) {
        let request = &mut self.receives[key];
        copy_into(request.buffer(), offset, payload);
        let ReceiveState::Matched(matched) = &mut request.state else {
            unreachable!("bytes come for matched receives only");
        };
        let Match { envelope, got, .. } = &mut **matched;
        *got = offset + payload.len() as u64;
        if is_last {
            let envelope = *envelope;
            let status = Status::of(&envelope, request.buffer());
            self.finish_receive(key, envelope, status);
        }
    }

    /// Gives a fresh receive the unexpected message at `node`.
    pub(crate) fn take_unexpected(&mut self, key: ReceiveKey, node: u32) {
        let (peer, label, message) = self.unexpected.remove(node);
        if let Some(partial) = &mut self.peers[peer.0 as usize].partial
            && matches!(partial.target, Target::Unexpected(at) if at == node)
        {
            partial.target = Target::Receive(key);
        }
        self.give(key, peer, label, message);
    }

    /// Gives a fresh receive a message that is in no queue any more.
    pub(crate) fn give(&mut self, key: ReceiveKey, peer: PeerIndex, label: Label, message: Unexpected) {
        self.release_held(peer, label.space, &message);
        match message {
            Unexpected::Eager { length, data } => {
                let envelope = Envelope::new(peer, label, length);
                let whole = data.len() as u64 == length;
                self.receives[key].state = ReceiveState::matched(envelope, 0, Delivery::Eager);
                self.add_to_receive(key, 0, &data, whole);
            }
            Unexpected::Request { length, offer } => {
                self.start_rendezvous(key, Envelope::new(peer, label, length), offer);
            }
            Unexpected::Lost { length } => {
                self.finish_receive(key, Envelope::new(peer, label, length), Status::PeerDead);
            }
        }
    }
}

/// Copies as much of `payload` as fits.
#[inline]
fn copy_into<B: Buffer>(buffer: &mut B, offset: u64, payload: &[u8]) {
    let length = buffer.length();
    if offset >= length as u64 {
        return;
    }
    let offset = offset as usize;
    buffer.write(offset, &payload[..payload.len().min(length - offset)]);
}
