//! Announced messages: the receiver asks for the bytes, reads them out of the sender's memory, or both.
//!
//! Both, where the sender's copies are fast: the receiver asks for packets, which cost each core one copy, and reads
//! what does not come soon, since the sender may be computing. It reads from the end towards the packets. Such a send
//! lasts until its receiver has ended it, as its memory may be read until then; later packets are dropped.

use machine::PeerIndex;
use machine::bounds::ENGINE_OVERTAKEN;

use crate::announced::{Offer, Overtaken, Read};
use crate::buffer::Buffer;
use crate::engine::Engine;
use crate::peer::{Control, MOST_ANSWERS, Violation};
use crate::request::{Delivery, Match, ReceiveKey, ReceiveState, SendKey, Status, to_wire};
use crate::tag::{Envelope, Label};
use crate::unexpected::Unexpected;

/// Bytes of one read from a peer's memory, so that a long message does not hold up the rest.
const READ_AT_ONCE: u64 = 4 << 20;
/// Bytes of one read where packets, which are faster, may still come.
const READ_BESIDE: u64 = 256 << 10;
/// Size of the buffer between two other processes' memories; stays in a second-level cache.
const BOUNCE: usize = 128 << 10;
/// Looks without further packets before a read: about a microsecond, longer than an answer takes.
const POLLS_BEFORE_READ: u8 = 64;
/// Most messages that were read before all of their packets came; beyond it messages are read only.
const MOST_OVERTAKEN: usize = ENGINE_OVERTAKEN.total.count();

impl<B: Buffer> Engine<B> {
    pub(crate) fn request_arrived(
        &mut self,
        peer: PeerIndex,
        label: Label,
        length: u64,
        offer: Offer,
    ) -> Result<(), Violation> {
        // Each matched request is answered: a peer that takes no answers must not go on asking.
        if self.peers[peer.0 as usize].control.len() >= MOST_ANSWERS {
            return Err(Violation);
        }
        match self.posted.take(&mut self.receives, peer, label.space, label.tag) {
            Some(key) => {
                self.free_credit(peer, label.space, 0);
                self.start_rendezvous(key, Envelope::new(peer, label, length), offer);
            }
            None => {
                self.hold(peer, 0)?;
                self.unexpected.push(peer, label, Unexpected::Request { length, offer });
                self.counters.unexpected_most = self.counters.unexpected_most.max(self.unexpected.len() as u64);
                self.relieve_behind_receives(peer, label.space);
            }
        }
        Ok(())
    }

    pub(crate) fn start_rendezvous(&mut self, key: ReceiveKey, envelope: Envelope, offer: Offer) {
        let link = &mut self.peers[envelope.peer.0 as usize];
        let receive = &mut self.receives[key];
        let wanted = envelope.length.min(receive.buffer().length() as u64);
        let readable = offer.address != 0 && !link.remote_read_closed;
        let both = readable
            && offer.fast
            && link.config.eager_near.is_some()
            && wanted == envelope.length
            && self.overtaken.len() < MOST_OVERTAKEN;
        let way = if readable && !both { Delivery::Read } else { offer.packets() };
        receive.state = ReceiveState::matched(envelope, 0, way);
        if envelope.length == 0 {
            link.control.push_back(Control::Done { sender: offer.sender });
            self.finish_receive(key, envelope, Status::Done);
        } else {
            if way != Delivery::Read {
                link.control.push_back(Control::Clear { sender: offer.sender, receiver: to_wire(key) });
            }
            if readable {
                let patience = if both { POLLS_BEFORE_READ } else { 0 };
                self.reads.push_back(Read { peer: envelope.peer, key, offer, upto: wanted, seen: 0, patience });
            }
        }
        self.mark_ready(envelope.peer);
    }

    pub(crate) fn clear_arrived(&mut self, peer: PeerIndex, send: SendKey, receiver: u64) -> Result<(), Violation> {
        let request = self.sends.get_mut(send).ok_or(Violation)?;
        if request.peer != peer || !request.requested || request.receiver != 0 || receiver == 0 {
            return Err(Violation);
        }
        request.receiver = receiver;
        if request.length() == 0 {
            self.finish_send(send, Status::Done);
            return Ok(());
        }
        if request.withdrawn {
            self.peers[peer.0 as usize].control.push_back(Control::Withdrawn { receiver });
            self.finish_send(send, Status::Cancelled);
        } else {
            self.peers[peer.0 as usize].streaming.push_back(send);
        }
        self.mark_ready(peer);
        Ok(())
    }

    pub(crate) fn done_arrived(&mut self, peer: PeerIndex, send: SendKey) -> Result<(), Violation> {
        let Some(request) = self.sends.get(send) else {
            // Its buffer may have been taken back while the receiver read it.
            let may_be = self.peers[peer.0 as usize].config.eager_near.is_some();
            return if may_be { Ok(()) } else { Err(Violation) };
        };
        // A peer may end only a send that was announced to it, and whose bytes it either did not ask for or may also read.
        if request.peer != peer || !request.requested || (request.receiver != 0 && !request.fast) {
            return Err(Violation);
        }
        if request.receiver != 0 && request.written < request.length() {
            self.stop_streaming(peer, send, request.receiver);
        }
        self.finish_send(send, Status::Done);
        Ok(())
    }

    /// Stops the packets of a message whose receiver has asked for them.
    pub(crate) fn stop_streaming(&mut self, peer: PeerIndex, send: SendKey, receiver: u64) {
        let link = &mut self.peers[peer.0 as usize];
        link.streaming.retain(|&streaming| streaming != send);
        link.plan = None;
        link.control.push_back(Control::Withdrawn { receiver });
        self.mark_ready(peer);
    }

    pub(crate) fn data_arrived(&mut self, peer: PeerIndex, key: ReceiveKey, payload: &[u8]) -> Result<(), Violation> {
        let Some(request) = self.receives.get(key) else { return self.late_data(peer, key, payload.len() as u64) };
        let ReceiveState::Matched(matched) = &request.state else {
            return Err(Violation);
        };
        let Match { envelope, got, way } = **matched;
        let total = got + payload.len() as u64;
        if envelope.peer != peer || total > envelope.length || !matches!(way, Delivery::Data | Delivery::Both { .. }) {
            return Err(Violation);
        }
        let whole = total == envelope.length;
        self.add_to_receive(key, got, payload, whole);
        if whole && let Delivery::Both { sender } = way {
            self.peers[peer.0 as usize].control.push_back(Control::Done { sender });
            self.mark_ready(peer);
        }
        Ok(())
    }

    #[cold]
    fn late_data(&mut self, peer: PeerIndex, key: ReceiveKey, length: u64) -> Result<(), Violation> {
        let overtaken = self.overtaken.get_mut(&key).filter(|overtaken| overtaken.peer == peer).ok_or(Violation)?;
        overtaken.left = overtaken.left.checked_sub(length).ok_or(Violation)?;
        if overtaken.left == 0 {
            self.overtaken.remove(&key);
        }
        Ok(())
    }

    pub(crate) fn withdrawn_arrived(&mut self, peer: PeerIndex, key: ReceiveKey) -> Result<(), Violation> {
        match self.receives.get(key).map(|request| &request.state) {
            Some(ReceiveState::Matched(matched))
                if matched.envelope.peer == peer && matches!(matched.way, Delivery::Data | Delivery::Both { .. }) =>
            {
                let envelope = matched.envelope;
                self.finish_receive(key, envelope, Status::Withdrawn);
                Ok(())
            }
            None if self.overtaken.get(&key).is_some_and(|overtaken| overtaken.peer == peer) => {
                self.overtaken.remove(&key);
                Ok(())
            }
            _ => Err(Violation),
        }
    }

    /// Whether messages wait to be fetched from peers' memory.
    #[inline]
    pub fn has_reads(&self) -> bool {
        !self.reads.is_empty()
    }

    /// Fetches rendezvous messages by `read(peer, address, into)` from peers' memory; where that returns false, the
    /// bytes come in packets. Returns how many bytes were fetched.
    pub fn carry_out_reads(&mut self, mut read: impl FnMut(PeerIndex, u64, &mut [u8]) -> bool) -> u64 {
        let mut fetched = 0;
        for _ in 0..self.reads.len() {
            let Some(mut next) = self.reads.pop_front() else { break };
            let link = &mut self.peers[next.peer.0 as usize];
            // Its packets may have ended it.
            let Some(request) = self.receives.get_mut(next.key) else { continue };
            let (ReceiveState::Matched(matched), Some(buffer)) = (&mut request.state, &mut request.buffer) else {
                unreachable!("reads are of matched receives");
            };
            let Match { envelope, got, way } = &mut **matched;
            let alone = *way == Delivery::Read;
            if *got > next.seen && !alone {
                (next.seen, next.patience) = (*got, POLLS_BEFORE_READ);
            }
            if *got < next.upto {
                if next.patience > 0 {
                    next.patience -= 1;
                    self.reads.push_back(next);
                    continue;
                }
                let range = if alone {
                    *got..next.upto.min(*got + READ_AT_ONCE)
                } else {
                    next.upto.saturating_sub(READ_BESIDE).max(*got)..next.upto
                };
                let works = !link.remote_read_closed
                    && next.offer.address.checked_add(range.start).is_some_and(|address| {
                        let range = range.start as usize..range.end as usize;
                        fetch(buffer, range, address, &mut self.bounce, |at, into| read(next.peer, at, into))
                    });
                if !works {
                    link.remote_read_closed = true;
                    self.counters.reads_refused += 1;
                    // The bytes read before are sent again, from the start.
                    if alone {
                        *got = 0;
                        *way = next.offer.packets();
                        let (sender, receiver) = (next.offer.sender, to_wire(next.key));
                        link.control.push_back(Control::Clear { sender, receiver });
                        self.mark_ready(next.peer);
                    }
                    continue;
                }
                fetched += range.end - range.start;
                if alone {
                    *got = range.end;
                } else {
                    next.upto = range.start;
                }
                if *got < next.upto {
                    self.reads.push_back(next);
                    continue;
                }
            }
            let (envelope, left) = (*envelope, envelope.length - *got);
            if !alone {
                self.overtaken.insert(next.key, Overtaken { peer: next.peer, left });
            }
            link.control.push_back(Control::Done { sender: next.offer.sender });
            self.counters.single_copies += 1;
            let status = Status::of(&envelope, self.receives[next.key].buffer());
            self.finish_receive(next.key, envelope, status);
            self.mark_ready(next.peer);
        }
        fetched
    }
}

/// Reads a range of the buffer out of a peer's memory; through `bounce` where the buffer is not in this process.
fn fetch<B: Buffer>(
    buffer: &mut B,
    range: std::ops::Range<usize>,
    address: u64,
    bounce: &mut Vec<u8>,
    mut read: impl FnMut(u64, &mut [u8]) -> bool,
) -> bool {
    let (from, upto) = (range.start, range.end);
    if let Some(bytes) = buffer.as_mut_slice() {
        return read(address, &mut bytes[range]);
    }
    bounce.resize(BOUNCE, 0);
    let mut at = from;
    while at < upto {
        let piece = &mut bounce[..BOUNCE.min(upto - at)];
        if !read(address + (at - from) as u64, piece) {
            return false;
        }
        buffer.write(at, piece);
        at += piece.len();
    }
    true
}
