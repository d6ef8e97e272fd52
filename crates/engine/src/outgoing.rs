//! From requests to packets.

use machine::port::Shared;
use machine::{Nanoseconds, PeerIndex};

use crate::buffer::{Buffer, copy};
use crate::engine::Engine;
use crate::peer::{Control, Peer, Plan};
use crate::request::{Completion, Direction, Request, SendKey, SendRequest, Status, to_wire};
use crate::stored::Stored;
use crate::tag::{Envelope, Label};
use crate::wire::{self, Packet, RELIABILITY_HEADER, Sequencing};

use slotmap::SlotMap;

impl Control {
    fn packet(&self) -> Packet<'static> {
        match *self {
            Control::Clear { sender, receiver } => Packet::Clear { sender, receiver },
            Control::Done { sender } => Packet::Done { sender },
            Control::Credit { messages, bytes, announce } => Packet::Credit { messages, bytes, announce },
            Control::Withdrawn { receiver } => Packet::Withdrawn { receiver },
        }
    }
}

/// Least payload for which an eager packet is made once, for the port and the reliability layer. Shorter ones are
/// copied: many leave at a time, and the kernel takes them fastest out of one piece.
const SHARED_LEAST: usize = 8 << 10;

/// Least length of a copy that is timed: shorter ones tell little about the memory.
const TIMED_LEAST: usize = 4 << 10;

/// A packet whose body is made already ([`Engine::apart`]).
pub struct Apart {
    /// Length of the head, bytes.
    pub head: usize,
    /// The payload after the head.
    pub body: Shared,
}

/// The header of an eager message's packet with the bytes from `offset` on.
fn eager_or_more<B: Buffer>(request: &SendRequest<B>, offset: usize) -> Packet<'static> {
    match offset {
        0 => Packet::Eager { label: request.label, length: request.length() as u32, payload: &[] },
        _ => Packet::More { payload: &[] },
    }
}

/// Writes a packet whose payload is the next `payload` bytes of the send.
fn write_with_payload<B: Buffer>(header: &Packet, request: &mut SendRequest<B>, payload: usize, into: &mut [u8]) {
    let (head, room) = into.split_at_mut(header.length());
    header.write(head);
    request.buffer.read(request.written, &mut room[..payload]);
    request.written += payload;
}

/// Writes the next packet of the eager message `send`, with `payload` bytes, into `body`, which may be empty where the
/// packet was made before. Returns what the reliability layer keeps, unless it is a copy of `body`.
fn write_eager<B: Buffer>(
    send: SendKey,
    request: &mut SendRequest<B>,
    payload: usize,
    body: &mut [u8],
) -> Option<Stored> {
    let offset = request.written;
    let Some(made) = request.made.take() else {
        write_with_payload(&eager_or_more(request, offset), request, payload, body);
        // Bytes of another process are read only once, so these packets are kept as copies.
        let stays = payload < request.length() && request.buffer.as_mut_slice().is_some();
        request.stays |= stays;
        return stays.then_some(Stored::Eager { send, offset });
    };
    if !body.is_empty() {
        body.copy_from_slice(&made);
    }
    request.written += payload;
    Some(Stored::Shared(made))
}

/// Writes a packet anew from the buffer of `request`.
pub(crate) fn write_again<B: Buffer>(request: &SendRequest<B>, stored: &Stored, into: &mut [u8]) {
    let (header, offset) = match *stored {
        Stored::Eager { offset, .. } => (eager_or_more(request, offset), offset),
        Stored::Data { offset, .. } => (Packet::Data { receiver: request.receiver, payload: &[] }, offset),
        Stored::Copy(_) | Stored::Shared(_) => unreachable!("its bytes are kept"),
    };
    let (head, room) = into.split_at_mut(header.length());
    header.write(head);
    request.buffer.read(offset, room);
}

/// Does the same as [`Engine::write_short`], from plain bytes.
// Out of line, so that closures that call it are small enough to be compiled into the port.
#[inline(never)]
pub fn write_bytes(label: &Label, payload: &[u8], into: &mut [u8]) {
    let (head, room) = into.split_at_mut(wire::eager_header(label));
    wire::write_eager(label, payload.len() as u32, head);
    copy(room, payload);
}

impl<B: Buffer> Engine<B> {
    /// The next peer that may have something to transmit. Ask [`Engine::plan`] until it returns `None`; after a port
    /// was full, hand the peer back with [`Engine::defer`].
    #[inline]
    pub fn next_ready(&mut self) -> Option<PeerIndex> {
        let peer = self.ready.pop_front()?;
        self.peers[peer as usize].ready = false;
        Some(PeerIndex(peer))
    }

    /// How many peers wait in [`Engine::next_ready`].
    #[inline]
    pub fn ready_peers(&self) -> usize {
        self.ready.len()
    }

    /// Puts a peer whose port was full back among the ready.
    pub fn defer(&mut self, peer: PeerIndex) {
        self.mark_ready(peer);
    }

    /// Plans a send that never queues: the length of the packet that carries `length` bytes to `peer` right now, or
    /// `None` where the message must queue ([`Engine::send`]). Give [`Engine::write_short`] that much of the port's
    /// memory, then tell [`Engine::sent_short`].
    #[inline(always)]
    pub fn plan_short(&self, peer: PeerIndex, label: &Label, length: usize) -> Option<usize> {
        let link = self.peers.get(peer.0 as usize)?;
        let packet = wire::eager_header(label).checked_add(length)?;
        let leaves = link.reliability.is_none()
            && link.alive
            && link.messages.is_empty()
            && link.credit_messages > 0
            && length as u64 <= link.credit_bytes
            && packet as u64 <= link.config.mtu.0
            && link.is_eager(length as u64);
        leaves.then_some(packet)
    }

    /// Writes the packet that [`Engine::plan_short`] planned into the whole of `into`.
    #[inline]
    pub fn write_short(label: &Label, payload: &B, into: &mut [u8]) {
        let (head, room) = into.split_at_mut(wire::eager_header(label));
        wire::write_eager(label, room.len() as u32, head);
        payload.read(0, room);
    }

    /// Tells that the port has taken a packet of `length` bytes for which nothing completes.
    #[inline(always)]
    pub fn injected(&mut self, peer: PeerIndex, length: u64) {
        let link = &mut self.peers[peer.0 as usize];
        link.credit_messages -= 1;
        link.credit_bytes -= length;
        link.favour_streaming = true;
        self.counters.packets_sent += 1;
        self.counters.count_message(length);
    }

    /// Tells that the port has taken the packet: the send has ended.
    #[inline]
    pub fn sent_short(&mut self, peer: PeerIndex, label: Label, buffer: B, context: u64) -> Request {
        let length = buffer.length() as u64;
        self.injected(peer, length);
        self.short_sends += 1;
        let request = Request::Short(self.short_sends);
        self.completions.push_back(Completion {
            request,
            context,
            direction: Direction::Send,
            envelope: Envelope::new(peer, label, length),
            status: Status::Done,
            buffer,
        });
        request
    }

    /// The length of the next packet to `peer`, or `None` if there is nothing to send now. Changes nothing until
    /// [`Engine::write`].
    #[inline]
    pub fn plan(&mut self, now: Nanoseconds, peer: PeerIndex) -> Option<usize> {
        let link = &mut self.peers[peer.0 as usize];
        if !link.alive {
            return None;
        }
        // With nothing to send, the silence of a peer never heard of counts from here.
        if let Some(reliability) = link.reliability.as_mut().filter(|reliability| !reliability.is_engaged()) {
            reliability.engage(now);
            self.watch(peer);
        }
        let link = &mut self.peers[peer.0 as usize];
        let (plan, length) = match &link.reliability {
            None => match plan_packet(link, &self.sends) {
                Some(planned) => planned,
                None => {
                    self.counters.credit_waits += u64::from(link.starves());
                    return None;
                }
            },
            Some(reliability) => {
                let planned = match reliability.to_resend(now) {
                    Some((place, length)) => Some((Plan::Resend { place }, length)),
                    None if reliability.may_send(now) => plan_packet(link, &self.sends),
                    None => None,
                };
                match planned {
                    Some((plan, length)) => (plan, RELIABILITY_HEADER + length),
                    None => {
                        let acknowledges = reliability.must_acknowledge(now);
                        if reliability.may_send(now) {
                            self.counters.credit_waits += u64::from(link.starves());
                        }
                        if !acknowledges {
                            return None;
                        }
                        (Plan::Acknowledge, RELIABILITY_HEADER)
                    }
                }
            }
        };
        link.plan = Some(plan);
        Some(length)
    }

    /// Makes the body of the packet just planned, where the port and the reliability layer can share it;
    /// [`Engine::write`] then needs room for the head only.
    pub fn apart(&mut self, peer: PeerIndex) -> Option<Apart> {
        let link = &self.peers[peer.0 as usize];
        let reliability = link.reliability.as_ref()?;
        let body = match link.plan? {
            Plan::Resend { place } => match reliability.stored(place).0 {
                Stored::Shared(shared) => shared.clone(),
                _ => return None,
            },
            Plan::Eager { send, payload } | Plan::More { send, payload } if payload >= SHARED_LEAST => {
                let request = &mut self.sends[send];
                if request.made.is_none() {
                    let header = eager_or_more(request, request.written);
                    request.made = Some(self.spares.shared(header.length() + payload, |into| {
                        let (head, rest) = into.split_at_mut(header.length());
                        header.write(head);
                        request.buffer.read(request.written, rest);
                    }));
                }
                request.made.clone()?
            }
            _ => return None,
        };
        Some(Apart { head: RELIABILITY_HEADER, body })
    }

    /// Whether the caller should time the writing of the next packet, of `length` bytes, for [`Engine::copied`].
    #[inline]
    pub fn times_copy(&mut self, peer: PeerIndex, length: usize) -> bool {
        length >= TIMED_LEAST && self.times_long_copy(peer)
    }

    #[cold]
    fn times_long_copy(&mut self, peer: PeerIndex) -> bool {
        let link = &mut self.peers[peer.0 as usize];
        link.config.eager_near.is_some() && link.copies.is_timed()
    }

    /// Tells that writing a packet of `length` bytes into the port's memory took `time`.
    pub fn copied(&mut self, peer: PeerIndex, length: usize, time: Nanoseconds) {
        self.peers[peer.0 as usize].copies.took(length, time);
    }

    /// Writes the packet just planned over the whole of `into`, which has the length that [`Engine::plan`] named, or its head
    /// where [`Engine::apart`] gave one.
    #[inline]
    pub fn write(&mut self, now: Nanoseconds, peer: PeerIndex, into: &mut [u8]) {
        let link = &mut self.peers[peer.0 as usize];
        let Some(plan) = link.plan.take() else {
            unreachable!("write follows plan");
        };
        let at = if link.reliability.is_some() { RELIABILITY_HEADER } else { 0 };
        let (header, body) = into.split_at_mut(at);
        self.counters.packets_sent += 1;
        let mut finished = None;
        // What the reliability layer keeps, unless it is a copy.
        let mut kept = None;
        let mut length = body.len();
        match plan {
            Plan::Acknowledge => {
                let reliability = link.reliability.as_mut().expect("acknowledgements are of unreliable ports");
                self.counters.acknowledgements += 1;
                return reliability.acknowledge().write(header, 0);
            }
            Plan::Resend { place } => {
                self.counters.retransmitted += 1;
                resend(link, &self.sends, now, place, header, body);
                return self.watch(peer);
            }
            Plan::Control => {
                let control = link.control.pop_front().expect("planned");
                control.packet().write(body);
            }
            Plan::Eager { send, payload } => {
                let request = &mut self.sends[send];
                let whole = request.length();
                link.credit_messages -= 1;
                link.credit_bytes -= whole as u64;
                length = eager_or_more(request, request.written).length() + payload;
                kept = write_eager(send, request, payload, body);
                link.favour_streaming = true;
                if request.written == whole {
                    link.pop_message(request.label.space);
                    finished = Some(send);
                }
            }
            Plan::More { send, payload } => {
                let request = &mut self.sends[send];
                length = eager_or_more(request, request.written).length() + payload;
                kept = write_eager(send, request, payload, body);
                link.favour_streaming = true;
                if request.written == request.length() {
                    link.pop_message(request.label.space);
                    finished = Some(send);
                }
            }
            Plan::Request { send } => {
                let request = &mut self.sends[send];
                link.credit_messages -= 1;
                link.pop_message(request.label.space);
                self.counters.announced += 1;
                link.favour_streaming = true;
                let address = if link.config.remote_read { request.buffer.address() } else { 0 };
                let length = request.length() as u64;
                if link.config.eager_near.is_some() {
                    request.fast = address != 0 && link.copies.are_fast();
                    link.copies.announced();
                }
                let (sender, fast) = (to_wire(send), request.fast);
                Packet::Request { label: request.label, length, sender, address, fast }.write(body);
                request.requested = true;
            }
            Plan::Data { send, payload } => {
                let request = &mut self.sends[send];
                let offset = request.written;
                let header = Packet::Data { receiver: request.receiver, payload: &[] };
                write_with_payload(&header, request, payload, body);
                let last = request.written == request.length();
                link.favour_streaming = false;
                link.streaming.pop_front();
                if !last {
                    link.streaming.push_back(send);
                }
                if link.reliability.is_some() {
                    kept = Some(Stored::Data { send, offset, last });
                } else if last && !request.fast {
                    finished = Some(send);
                }
            }
        }
        let stays = link.reliability.is_some() && finished.is_some_and(|send| self.sends[send].stays);
        if let Some(reliability) = &mut link.reliability {
            let stored = kept.unwrap_or_else(|| Stored::Copy(self.spares.copy_of(body)));
            reliability.send(now, stored, length).write(header, length);
            self.watch(peer);
        }
        match finished {
            Some(send) if stays => self.departed.push(send),
            Some(send) => self.finish_send(send, Status::Done),
            None => {}
        }
    }

    /// Ends the long sends whose packets were all written, and copies their unacknowledged bytes. Hand the packets to
    /// the wire before, so that the receiver works meanwhile.
    #[inline]
    pub fn end_departed(&mut self) {
        if !self.departed.is_empty() {
            self.copy_departed();
        }
    }

    #[cold]
    fn copy_departed(&mut self) {
        for nth in 0..self.departed.len() {
            let send = self.departed[nth];
            let Some(request) = self.sends.get(send) else { continue };
            if let Some(reliability) = &mut self.peers[request.peer.0 as usize].reliability {
                reliability.keep(send, &mut self.spares, |stored, into| write_again(request, stored, into));
            }
            self.finish_send(send, Status::Done);
        }
        self.departed.clear();
    }
}

/// Chooses the next packet of the message layer and its length.
#[inline]
fn plan_packet<B: Buffer>(link: &Peer, sends: &SlotMap<SendKey, SendRequest<B>>) -> Option<(Plan, usize)> {
    if let Some(control) = link.control.front() {
        return Some((Plan::Control, control.packet().length()));
    }
    // Rendezvous data and other messages alternate, so that neither waits for the other's end.
    if link.favour_streaming {
        plan_data(link, sends).or_else(|| plan_message(link, sends))
    } else {
        plan_message(link, sends).or_else(|| plan_data(link, sends))
    }
}

fn plan_data<B: Buffer>(link: &Peer, sends: &SlotMap<SendKey, SendRequest<B>>) -> Option<(Plan, usize)> {
    let send = *link.streaming.front()?;
    let request = &sends[send];
    let payload = (request.length() - request.written).min(link.room(wire::DATA_HEADER));
    Some((Plan::Data { send, payload }, wire::DATA_HEADER + payload))
}

#[inline]
fn plan_message<B: Buffer>(link: &Peer, sends: &SlotMap<SendKey, SendRequest<B>>) -> Option<(Plan, usize)> {
    let send = *link.messages.front()?;
    let request = &sends[send];
    let left = request.length() - request.written;
    if request.written > 0 {
        let payload = left.min(link.room(wire::MORE_HEADER));
        return Some((Plan::More { send, payload }, wire::MORE_HEADER + payload));
    }
    if link.credit_messages == 0 {
        return None;
    }
    if !request.confirmed && link.is_eager(left as u64) {
        if left as u64 <= link.credit_bytes {
            let header = wire::eager_header(&request.label);
            let payload = left.min(link.room(header));
            return Some((Plan::Eager { send, payload }, header + payload));
        }
        if link.waits_for_bytes(left as u64) {
            return None;
        }
    }
    Some((Plan::Request { send }, wire::REQUEST_HEADER))
}

fn resend<B: Buffer>(
    link: &mut Peer,
    sends: &SlotMap<SendKey, SendRequest<B>>,
    now: Nanoseconds,
    place: usize,
    header: &mut [u8],
    body: &mut [u8],
) {
    let reliability = link.reliability.as_mut().expect("planned on an unreliable port");
    let (stored, length) = reliability.stored(place);
    match stored {
        Stored::Copy(bytes) => body.copy_from_slice(bytes),
        Stored::Shared(shared) => {
            if !body.is_empty() {
                body.copy_from_slice(shared);
            }
        }
        Stored::Eager { send, .. } | Stored::Data { send, .. } => write_again(&sends[*send], stored, body),
    }
    let sequencing: Sequencing = reliability.resend(now, place);
    sequencing.write(header, length);
}
