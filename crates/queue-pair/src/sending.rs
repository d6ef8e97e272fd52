//! Sends: eager messages into work requests, and sends that have to wait.

use engine::{Buffer, Completion, Direction, Envelope, Label, Request, Status, unknown_peer};
use machine::{PeerIndex, Port, Result};

use crate::address::QueuePairNumber;
use crate::connection::Waiting;
use crate::endpoint::{BUFFERS_AT_ONCE, Endpoint, NO_BUFFER};
use crate::header::{Header, Kind};
use crate::memory::Segment;
use crate::meter::Meter;
use crate::request::SendRequest;
use crate::send_queue::{SendWork, Transfer};
use crate::settings::ReceiveQueues;

impl<P: Port, B: Buffer> Endpoint<P, B> {
    /// Sends the whole of `buffer`. An eager message is copied, so that the request ends at once.
    #[inline]
    pub fn send(&mut self, peer: PeerIndex, label: impl Into<Label>, buffer: B, context: u64) -> Result<Request> {
        let label = label.into();
        let length = buffer.length();
        if self.post_at_once(peer, label, length, |into| buffer.read(0, into))? {
            self.short_sends += 1;
            let request = Request::Short(self.short_sends);
            let (direction, status) = (Direction::Send, Status::Done);
            let envelope = Envelope::new(peer, label, length as u64);
            self.completions.push_back(Completion { request, context, direction, envelope, status, buffer });
            return Ok(request);
        }
        self.send_later(peer, label, buffer, context, false)
    }

    /// Sends by rendezvous whatever the length, so that the completion proves that the receiver has matched the message.
    pub fn send_confirmed(&mut self, peer: PeerIndex, label: Label, buffer: B, context: u64) -> Result<Request> {
        self.send_later(peer, label, buffer, context, true)
    }

    /// Sends `bytes` if they can leave at once; nothing completes then. False otherwise.
    #[inline]
    pub fn inject(&mut self, peer: PeerIndex, label: &Label, bytes: &[u8]) -> Result<bool> {
        self.post_at_once(peer, *label, bytes.len(), |into| into.copy_from_slice(bytes))
    }

    /// Posts an eager message if nothing is before it and the peer has a receive for it. False if it has to wait.
    #[inline]
    fn post_at_once(
        &mut self,
        peer: PeerIndex,
        label: Label,
        length: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<bool> {
        let connection = self.connections.get(peer.0 as usize).ok_or_else(|| unknown_peer(peer))?;
        let goes =
            connection.alive && self.is_eager(&label, length) && connection.waiting.is_empty() && self.may_send(peer);
        if goes {
            self.counters.messages.count_message(length as u64);
            self.post_eager(peer, label, length, fill)?;
        }
        Ok(goes)
    }

    #[inline]
    pub(crate) fn is_eager(&self, label: &Label, length: usize) -> bool {
        length <= self.settings.buffer.0 as usize - Header::before(label)
    }

    fn send_later(
        &mut self,
        peer: PeerIndex,
        label: Label,
        buffer: B,
        context: u64,
        confirmed: bool,
    ) -> Result<Request> {
        let connection = self.connections.get(peer.0 as usize).ok_or_else(|| unknown_peer(peer))?;
        let (alive, length) = (connection.alive, buffer.length());
        let by_request = confirmed || !self.is_eager(&label, length);
        let envelope = Envelope::new(peer, label, length as u64);
        let (buffer, requested, registered) = (Some(buffer), false, None);
        let key = self.sends.insert(SendRequest { context, envelope, buffer, by_request, requested, registered });
        if alive {
            self.counters.messages.count_message(length as u64);
            self.counters.held_back += u64::from(!by_request);
            self.wait(peer, Waiting::Message(key));
            self.post_waiting(peer)?;
        } else {
            self.finish_send(key, Status::PeerDead);
        }
        Ok(Request::Send(key))
    }

    /// Whether the peer has a receive for one more message, and the send queue room.
    #[inline]
    pub(crate) fn may_send(&self, peer: PeerIndex) -> bool {
        let connection = &self.connections[peer.0 as usize];
        let credit = connection.credits > 0 || !self.counts_credit();
        credit && connection.ready && self.adapter.send_room(connection.queue_pair) > 0
    }

    #[inline]
    pub(crate) fn counts_credit(&self) -> bool {
        self.settings.honour_credits && matches!(self.settings.receive, ReceiveQueues::PerPeer { .. })
    }

    /// The header of the next message to a peer, with the credits to be returned.
    #[inline]
    pub(crate) fn header(&mut self, peer: PeerIndex, kind: Kind, label: Label) -> Header {
        let counts = self.counts_credit();
        let connection = &mut self.connections[peer.0 as usize];
        if counts && kind != Kind::Credit {
            connection.credits -= 1;
        }
        let credits = connection.returning.min(u32::from(u16::MAX));
        connection.returning -= credits;
        Header { kind, credits: credits as u16, source: connection.source, label }
    }

    #[inline]
    pub(crate) fn post_eager(
        &mut self,
        peer: PeerIndex,
        label: Label,
        length: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<()> {
        let header = self.header(peer, Kind::Eager, label);
        self.counters.eager += 1;
        self.post_message(peer, header, length, fill)
    }

    /// Posts a message without payload.
    pub(crate) fn post_control(&mut self, peer: PeerIndex, kind: Kind) -> Result<()> {
        let header = self.header(peer, kind, Label::from(0));
        self.post_message(peer, header, 0, |_| ())
    }

    /// Posts a header and `payload_length` bytes that `fill` writes: inline where both fit, else from a registered buffer,
    /// which they must fit.
    ///
    /// An inline send holds no buffer, so only one of `signal_every` is signaled; the completion of any other frees its buffer.
    #[inline]
    pub(crate) fn post_message(
        &mut self,
        peer: PeerIndex,
        header: Header,
        payload_length: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<()> {
        let connection = &mut self.connections[peer.0 as usize];
        let queue_pair = connection.queue_pair;
        let header_length = header.length();
        let length = header_length + payload_length;
        if length <= self.settings.inline as usize {
            connection.unsignaled += 1;
            let signaled = connection.unsignaled >= self.settings.signal_every;
            if signaled {
                connection.unsignaled = 0;
            }
            let Endpoint { adapter, meter, .. } = self;
            return Meter::posts(meter, || {
                adapter.post_inline(queue_pair, NO_BUFFER, signaled, length, |into| {
                    header.write(into);
                    fill(&mut into[header_length..]);
                })
            });
        }
        let buffer = match self.send_buffers.free.pop() {
            Some(buffer) => buffer,
            None => self.more_buffers(),
        };
        let slab = self.send_buffers.slabs[(buffer / BUFFERS_AT_ONCE) as usize];
        let size = self.settings.buffer.0;
        let place = u64::from(buffer % BUFFERS_AT_ONCE) * size;
        let from = Segment { key: slab, offset: place, length: length as u64 };
        let into = self.adapter.memory_mut(from).expect("send buffers stay registered");
        header.write(into);
        fill(&mut into[header_length..]);
        let work = SendWork { id: u64::from(buffer), signaled: true, transfer: Transfer::Send(from) };
        self.post_work(queue_pair, work)
    }

    #[inline]
    pub(crate) fn post_work(&mut self, queue_pair: QueuePairNumber, work: SendWork) -> Result<()> {
        let Endpoint { adapter, meter, .. } = self;
        Meter::posts(meter, || adapter.post_send(queue_pair, work))
    }

    #[cold]
    fn more_buffers(&mut self) -> u32 {
        let key = self.adapter.register_pool(BUFFERS_AT_ONCE as usize * self.settings.buffer.0 as usize);
        let first = self.send_buffers.slabs.len() as u32 * BUFFERS_AT_ONCE;
        self.send_buffers.slabs.push(key);
        self.send_buffers.free.extend(first + 1..first + BUFFERS_AT_ONCE);
        first
    }
}
