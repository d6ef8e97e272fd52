//! Datagrams received and not yet delivered; merged ones are split into their packets again.

use std::os::fd::{AsRawFd, OwnedFd};

use machine::{Fault, PeerIndex, Result};
use rustix::io::Errno;

use super::UdpCounters;
use super::address::RawAddress;
use super::control;
use super::pages::Pages;
use super::refusals::may_be_earlier;
use super::socket::last_errno;
use super::unknown_senders::UnknownSenders;

const MESSAGES: usize = 32;
const CONTROL: usize = 64;
const PAYLOAD: usize = 65_536;
/// Name and control data precede the payload, so that a small packet touches adjacent lines only.
const CONTROL_AT: usize = RawAddress::SIZE;
const PAYLOAD_AT: usize = 128;
/// An odd number of cache lines, so that slots do not share cache sets.
const STRIDE: usize = PAYLOAD_AT + PAYLOAD + 64;
pub(super) const MEMORY: usize = MESSAGES * STRIDE;
/// Errors of earlier packets that one `receive` skips.
const MOST_ERRORS: u32 = 4;

const _: () = assert!(CONTROL_AT + CONTROL <= PAYLOAD_AT && (STRIDE / 64) % 2 == 1 && STRIDE.is_multiple_of(64));

pub(super) struct ReceiveQueue {
    slots: Pages,
    headers: Vec<libc::mmsghdr>,
    /// Pointed to by `headers`, otherwise unused.
    _vectors: Vec<libc::iovec>,
    filled: usize,
    next: usize,
    /// Whether the last poll found something, so that there may be more. Otherwise one datagram is polled for, which
    /// costs an idle poll and a single packet less than a call for many.
    busy: bool,
    /// The rest of the datagram before `next`: sender, packet size, and its range in `slots`.
    rest: Option<Rest>,
}

#[derive(Debug, Clone, Copy)]
struct Rest {
    from: PeerIndex,
    packet: usize,
    at: usize,
    end: usize,
}

// SAFETY: the raw pointers in `headers` lead to memory that this value owns and are used under `&mut self` only.
unsafe impl Send for ReceiveQueue {}

impl ReceiveQueue {
    pub fn new() -> Result<Self> {
        let slots = Pages::new(MEMORY)?;
        let mut vectors: Vec<libc::iovec> = (0..MESSAGES)
            .map(|i| libc::iovec { iov_base: slots.pointer(i * STRIDE + PAYLOAD_AT, PAYLOAD).cast(), iov_len: PAYLOAD })
            .collect();
        let first = vectors.as_mut_ptr();
        let headers = (0..MESSAGES)
            .map(|i| {
                // SAFETY: all-zero is a valid mmsghdr: null pointers and zero lengths.
                let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
                header.msg_hdr.msg_name = slots.pointer(i * STRIDE, RawAddress::SIZE).cast();
                header.msg_hdr.msg_control = slots.pointer(i * STRIDE + CONTROL_AT, CONTROL).cast();
                // SAFETY: `i` is within the vector.
                header.msg_hdr.msg_iov = unsafe { first.add(i) };
                header.msg_hdr.msg_iovlen = 1;
                header
            })
            .collect();
        let mut queue =
            ReceiveQueue { slots, headers, _vectors: vectors, filled: MESSAGES, next: 0, busy: false, rest: None };
        queue.offer_again();
        Ok(queue)
    }

    /// Delivers up to `budget` packets of senders that `who` knows. The flag says whether errors of earlier packets
    /// wait in the error queue.
    pub fn receive(
        &mut self,
        socket: &OwnedFd,
        budget: usize,
        counters: &mut UdpCounters,
        unknown_senders: &mut UnknownSenders,
        mut who: impl FnMut(&RawAddress) -> Option<PeerIndex>,
        mut deliver: impl FnMut(PeerIndex, &[u8]),
    ) -> Result<(usize, bool)> {
        let (mut delivered, mut errors, mut patience) = (0, false, MOST_ERRORS);
        // Datagrams count against the budget too, so that a flood from unknown senders does not hold the caller.
        let mut datagrams = budget;
        while delivered < budget {
            if let Some(rest) = &mut self.rest {
                let length = rest.packet.min(rest.end - rest.at);
                let (from, at) = (rest.from, rest.at);
                rest.at += length;
                if rest.at == rest.end {
                    self.rest = None;
                }
                counters.packets_received += 1;
                delivered += 1;
                deliver(from, self.slots.slice(at, length));
            } else if self.next < self.filled {
                self.open_next(counters, unknown_senders, &mut who);
            } else if datagrams == 0 {
                break;
            } else {
                self.offer_again();
                let wanted = if self.busy { datagrams.min(budget - delivered).min(MESSAGES) } else { 1 };
                let fetched = self.fetch(socket, wanted, counters);
                self.busy = fetched.is_ok();
                match fetched {
                    Ok(got) if got < wanted || wanted == 1 => datagrams = 0,
                    Ok(got) => datagrams -= got,
                    Err(Errno::AGAIN) => {
                        counters.empty_receives += 1;
                        break;
                    }
                    Err(Errno::INTR) => {}
                    Err(errno) if may_be_earlier(errno) => {
                        errors = true;
                        patience -= 1;
                        if patience == 0 {
                            break;
                        }
                    }
                    Err(Errno::NOBUFS | Errno::NOMEM) => break,
                    Err(other) => return Err(Fault::because("receiving", other, "open the port again")),
                }
            }
        }
        Ok((delivered, errors))
    }

    /// Opens the next datagram, unless its sender is unknown.
    fn open_next(
        &mut self,
        counters: &mut UdpCounters,
        unknown_senders: &mut UnknownSenders,
        who: &mut impl FnMut(&RawAddress) -> Option<PeerIndex>,
    ) {
        let slot = self.next * STRIDE;
        let header = &self.headers[self.next];
        self.next += 1;
        let length = (header.msg_len as usize).min(PAYLOAD);
        let written = header.msg_hdr.msg_controllen.min(CONTROL);
        let packet = control::joined_packet_size(self.slots.slice(slot + CONTROL_AT, written)).unwrap_or(length);
        let packets = length.div_ceil(packet.max(1)).max(1) as u64;
        counters.datagrams_received += 1;
        if header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 {
            counters.truncated += packets;
            return;
        }
        let name = (header.msg_hdr.msg_namelen as usize).min(RawAddress::SIZE);
        let Some(address) = RawAddress::parse(self.slots.slice(slot, name)) else {
            counters.unknown_sender += packets;
            return;
        };
        let at = slot + PAYLOAD_AT;
        let Some(from) = who(&address) else {
            counters.unknown_sender += packets;
            for piece in self.slots.slice(at, length).chunks(packet.max(1)) {
                unknown_senders.keep(&address, piece);
            }
            return;
        };
        counters.joined_received += if packets > 1 { packets } else { 0 };
        self.rest = Some(Rest { from, packet, at, end: at + length });
    }

    fn fetch(&mut self, socket: &OwnedFd, wanted: usize, counters: &mut UdpCounters) -> Result<usize, Errno> {
        counters.receive_calls += 1;
        let (fd, first) = (socket.as_raw_fd(), self.headers.as_mut_ptr());
        if wanted == 1 {
            // SAFETY: the first header points to a name, control and payload area of `slots` with its true length
            // (reset by `offer_again`) and to its own vector; all live as long as `self`.
            let length = unsafe { libc::recvmsg(fd, &raw mut (*first).msg_hdr, libc::MSG_DONTWAIT) };
            self.headers[0].msg_len = u32::try_from(length).map_err(|_| last_errno())?;
            self.filled = 1;
        } else {
            // SAFETY: as above, for each of the first `wanted` headers.
            let got = unsafe { libc::recvmmsg(fd, first, wanted as u32, libc::MSG_DONTWAIT, std::ptr::null_mut()) };
            self.filled = usize::try_from(got).map_err(|_| last_errno())?;
        }
        Ok(self.filled)
    }

    /// Puts back the lengths that the kernel overwrote.
    fn offer_again(&mut self) {
        for header in &mut self.headers[..self.filled] {
            header.msg_hdr.msg_namelen = RawAddress::SIZE as libc::socklen_t;
            header.msg_hdr.msg_controllen = CONTROL as _;
            header.msg_hdr.msg_flags = 0;
        }
        (self.filled, self.next) = (0, 0);
    }
}
