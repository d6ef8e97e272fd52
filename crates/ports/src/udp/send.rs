//! Packets taken and not yet sent: equal ones to one peer lie together, to leave as one super-packet.

use std::os::fd::{AsRawFd, OwnedFd};

use machine::{Fault, PeerIndex, Result};
use rustix::io::Errno;
use rustix::net::SendFlags;

use super::address::RawAddress;
use super::control::SegmentControl;
use super::pages::Pages;
use super::socket::last_errno;
use super::{Peer, UdpCounters};

/// UDP_MAX_SEGMENTS up to Linux 6.8; later kernels take 128.
const MAX_SEGMENTS: usize = 64;
const MAX_MESSAGES: usize = 64;
/// Small enough to stay in the second-level cache, large enough for seven of the largest datagrams.
pub(super) const ARENA: usize = 512 << 10;
/// Errors of earlier packets that one message may meet before it is given up itself.
const PATIENCE: u32 = 4;

/// One datagram as handed to the kernel: one packet, or several of `segment` bytes (the last may be shorter).
#[derive(Debug, Clone, Copy)]
struct Message {
    peer: PeerIndex,
    at: usize,
    length: usize,
    segment: usize,
}

impl Message {
    fn packets(&self) -> usize {
        self.length.div_ceil(self.segment.max(1)).max(1)
    }

    /// Another packet of `length` bytes may follow in the same datagram.
    fn takes(&self, length: usize, largest: usize) -> bool {
        length > 0
            && length <= self.segment
            && self.length.is_multiple_of(self.segment)
            && self.length + length <= largest
            && self.packets() < MAX_SEGMENTS
    }
}

/// How far [`SendQueue::transmit`] came.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Transmitted {
    /// The kernel reported errors of earlier packets; the error queue says whose.
    pub errors: bool,
    /// The socket buffer is full and packets are left.
    pub blocked: bool,
}

pub(super) struct SendQueue {
    arena: Pages,
    used: usize,
    messages: Vec<Message>,
    /// Messages before this one are sent.
    head: usize,
    segmentation: bool,
    largest: usize,
    /// The socket is connected to the only peer: the kernel keeps the route, and packets need no name.
    connected: bool,
    headers: Vec<libc::mmsghdr>,
    vectors: Vec<libc::iovec>,
    controls: Vec<SegmentControl>,
}

// SAFETY: the raw pointers in `headers` and `vectors` are written and used within one `transmit`, never kept.
unsafe impl Send for SendQueue {}

impl SendQueue {
    pub fn new(segmentation: bool, largest: usize) -> Result<Self> {
        Ok(SendQueue {
            arena: Pages::new(ARENA)?,
            used: 0,
            messages: Vec::with_capacity(MAX_MESSAGES),
            head: 0,
            segmentation,
            largest,
            connected: false,
            headers: Vec::with_capacity(MAX_MESSAGES),
            vectors: Vec::with_capacity(MAX_MESSAGES),
            controls: Vec::with_capacity(MAX_MESSAGES),
        })
    }

    pub fn set_connected(&mut self, connected: bool) {
        self.connected = connected;
    }

    pub fn is_empty(&self) -> bool {
        self.head == self.messages.len()
    }

    /// Room for a packet of `length` bytes to `peer`, or `None` until [`Self::transmit`] has made some.
    pub fn stage(&mut self, index: PeerIndex, peer: &Peer, length: usize) -> Option<&mut [u8]> {
        if ARENA - self.used < length {
            return None;
        }
        let joins = |last: &Message| {
            self.segmentation
                && last.peer == index
                && last.segment <= peer.segment_limit
                && last.takes(length, self.largest)
        };
        let end = self.messages.len();
        if self.messages[self.head..].last().is_some_and(joins) {
            self.messages[end - 1].length += length;
        } else if end == MAX_MESSAGES {
            return None;
        } else {
            self.messages.push(Message { peer: index, at: self.used, length, segment: length });
        }
        let at = self.used;
        self.used += length;
        Some(self.arena.slice_mut(at, length))
    }

    /// Sends what waits, as far as the socket buffer takes it; what it does not take stays.
    pub fn transmit(
        &mut self,
        socket: &OwnedFd,
        peers: &mut [Peer],
        counters: &mut UdpCounters,
    ) -> Result<Transmitted> {
        let mut outcome = Transmitted::default();
        let mut patience = PATIENCE;
        while !self.is_empty() {
            let sent = match self.messages[self.head] {
                m if m.packets() > 1 && !self.may_segment(&m, peers) => self.send_one_packet(socket, peers, counters),
                _ => self.send_run(socket, peers, counters),
            };
            let Err(errno) = sent else {
                patience = PATIENCE;
                continue;
            };
            let first = self.messages[self.head];
            match errno {
                Errno::INTR => {}
                Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM => {
                    outcome.blocked = true;
                    return Ok(outcome);
                }
                // The device cannot segment (EIO), or the path became narrower than the packets.
                Errno::IO | Errno::INVAL | Errno::MSGSIZE if first.packets() > 1 && self.may_segment(&first, peers) => {
                    peers[first.peer.0 as usize].segment_limit = 0;
                    counters.segmentation_refused += 1;
                }
                // An error of an earlier packet is reported to whichever call comes next: this packet is unhurt.
                Errno::CONNREFUSED
                | Errno::HOSTUNREACH
                | Errno::NETUNREACH
                | Errno::HOSTDOWN
                | Errno::PROTO
                | Errno::NOPROTOOPT
                | Errno::ACCESS
                | Errno::MSGSIZE
                | Errno::OPNOTSUPP
                    if patience > 0 =>
                {
                    patience -= 1;
                    outcome.errors = true;
                }
                // No way to this peer now: lost as on the wire, and the engine's matter. Other peers' packets go on.
                Errno::CONNREFUSED
                | Errno::HOSTUNREACH
                | Errno::NETUNREACH
                | Errno::HOSTDOWN
                | Errno::PROTO
                | Errno::NOPROTOOPT
                | Errno::ACCESS
                | Errno::MSGSIZE
                | Errno::OPNOTSUPP
                | Errno::PERM
                | Errno::NETDOWN
                | Errno::INVAL => {
                    counters.unsendable += first.packets() as u64;
                    self.head += 1;
                    patience = PATIENCE;
                }
                other => {
                    let peer = peers[first.peer.0 as usize].address();
                    return Err(Fault::because(format!("sending to {peer}"), other, "open the port again"));
                }
            }
        }
        self.messages.clear();
        (self.head, self.used) = (0, 0);
        Ok(outcome)
    }

    fn may_segment(&self, message: &Message, peers: &[Peer]) -> bool {
        self.segmentation && message.segment <= peers[message.peer.0 as usize].segment_limit
    }

    /// One system call for all messages up to the next that has to be cut by hand.
    fn send_run(&mut self, socket: &OwnedFd, peers: &[Peer], counters: &mut UdpCounters) -> Result<(), Errno> {
        if let [message] = self.messages[self.head..]
            && message.packets() == 1
            && self.connected
        {
            let packet = self.arena.slice(message.at, message.length);
            rustix::net::send(socket, packet, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
            counters.send_calls += 1;
            counters.datagrams_sent += 1;
            counters.packets_sent += 1;
            self.head += 1;
            return Ok(());
        }
        self.headers.clear();
        self.vectors.clear();
        self.controls.clear();
        for i in self.head..self.messages.len() {
            let message = self.messages[i];
            let segmented = message.packets() > 1;
            if segmented && !self.may_segment(&message, peers) {
                break;
            }
            let to = &peers[message.peer.0 as usize].raw;
            self.push_header(to, message.at, message.length, segmented.then_some(message.segment));
        }
        let sent = self.send_headers(socket)?;
        counters.send_calls += 1;
        for message in &self.messages[self.head..self.head + sent] {
            let packets = message.packets() as u64;
            counters.datagrams_sent += 1;
            counters.packets_sent += packets;
            counters.segmented_sent += if packets > 1 { packets } else { 0 };
        }
        self.head += sent;
        Ok(())
    }

    /// The first packet of the first message by itself, where the kernel cannot cut the message.
    fn send_one_packet(&mut self, socket: &OwnedFd, peers: &[Peer], counters: &mut UdpCounters) -> Result<(), Errno> {
        let message = self.messages[self.head];
        self.headers.clear();
        self.vectors.clear();
        self.controls.clear();
        self.push_header(&peers[message.peer.0 as usize].raw, message.at, message.segment, None);
        self.send_headers(socket)?;
        counters.send_calls += 1;
        counters.datagrams_sent += 1;
        counters.packets_sent += 1;
        let rest = &mut self.messages[self.head];
        rest.at += message.segment;
        rest.length -= message.segment;
        rest.segment = rest.segment.min(rest.length);
        Ok(())
    }

    fn push_header(&mut self, to: &RawAddress, at: usize, length: usize, segment: Option<usize>) {
        // SAFETY: all-zero is a valid mmsghdr: null pointers and zero lengths.
        let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
        if !self.connected {
            header.msg_hdr.msg_name = to.as_ptr().cast_mut().cast();
            header.msg_hdr.msg_namelen = to.length() as libc::socklen_t;
        }
        header.msg_hdr.msg_controllen = if segment.is_some() { SegmentControl::LENGTH as _ } else { 0 };
        self.headers.push(header);
        self.vectors.push(libc::iovec { iov_base: self.arena.pointer(at, length).cast(), iov_len: length });
        self.controls.push(SegmentControl::new(segment.unwrap_or(0) as u16));
    }

    /// Hands all headers over; how many datagrams left.
    fn send_headers(&mut self, socket: &OwnedFd) -> Result<usize, Errno> {
        let (vectors, controls) = (self.vectors.as_mut_ptr(), self.controls.as_mut_ptr());
        for (i, header) in self.headers.iter_mut().enumerate() {
            header.msg_hdr.msg_iov = vectors.wrapping_add(i);
            header.msg_hdr.msg_iovlen = 1;
            if header.msg_hdr.msg_controllen > 0 {
                header.msg_hdr.msg_control = controls.wrapping_add(i).cast();
            }
        }
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        let (fd, first, count) = (socket.as_raw_fd(), self.headers.as_mut_ptr(), self.headers.len());
        let sent = if count == 1 {
            // SAFETY: the header's name, vector and control lie in memory of this queue and its peers, of the lengths
            // given, which nothing moves before the call ends; the kernel only reads them. A result of 0 is a sent
            // datagram of no bytes.
            unsafe { libc::sendmsg(fd, &raw const (*first).msg_hdr, flags).clamp(-1, 0) as i32 + 1 }
        } else {
            // SAFETY: as above, for `count` headers.
            unsafe { libc::sendmmsg(fd, first, count as u32, flags).max(0) }
        };
        if sent > 0 { Ok(sent as usize) } else { Err(last_errno()) }
    }
}
