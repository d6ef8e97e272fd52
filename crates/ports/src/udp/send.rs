//! Packets taken and not yet sent: equal ones to one peer are adjacent, to be sent as one super-packet.

use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};

use machine::port::Shared;
use machine::{Fault, PeerIndex, Result};
use rustix::io::Errno;
use rustix::net::SendFlags;

use super::address::RawAddress;
use super::control::SegmentControl;
use super::pages::Pages;
use super::refusals::may_be_earlier;
use super::socket::last_errno;
use super::{Peer, UdpCounters};

/// UDP_MAX_SEGMENTS up to Linux 6.8; later kernels take 128.
const MAX_SEGMENTS: usize = 64;
const MAX_MESSAGES: usize = 64;
/// Most pieces of all messages; the kernel takes 1,024 vectors a message.
const MAX_PIECES: usize = 1024;
/// Bytes of heads: few enough for the second-level cache, enough for seven of the largest datagrams.
pub(super) const ARENA: usize = 512 << 10;
/// Most bytes that wait to be sent together: the peer receives them while the next are made. Packets whose bodies their maker
/// keeps are long, and two of them go together.
const WAITING_MOST: usize = 64 << 10;
const BODIES_MOST: usize = 128 << 10;
/// Errors of earlier packets that one message may meet before it is given up.
const MOST_ERRORS: u32 = 4;

/// A packet to be sent: a head, and a body that its maker keeps.
pub(super) struct Packet<'a> {
    pub head: usize,
    pub body: Option<&'a Shared>,
}

impl Packet<'_> {
    pub fn length(&self) -> usize {
        self.head + self.body.map_or(0, |body| body.len())
    }
}

/// Bytes to be sent, in one piece.
enum Piece {
    /// A range of the arena.
    Written(Range<usize>),
    Body(Shared),
}

impl Piece {
    fn length(&self) -> usize {
        match self {
            Piece::Written(range) => range.len(),
            Piece::Body(body) => body.len(),
        }
    }
}

/// One datagram as handed to the kernel: one packet, or several of `segment` bytes (the last may be shorter).
#[derive(Debug, Clone, Copy)]
struct Message {
    peer: PeerIndex,
    /// Index of its first piece, and offset in that.
    piece: usize,
    skip: usize,
    length: usize,
    segment: usize,
}

impl Message {
    fn packets(&self) -> usize {
        self.length.div_ceil(self.segment.max(1)).max(1)
    }

    /// Whether another packet of `length` bytes may follow in the same datagram.
    fn takes(&self, length: usize, largest: usize) -> bool {
        length > 0
            && length <= self.segment
            && self.length.is_multiple_of(self.segment)
            && self.length + length <= largest
            && self.packets() < MAX_SEGMENTS
    }
}

/// The result of [`SendQueue::transmit`].
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Transmitted {
    /// Whether the kernel reported errors of earlier packets; the error queue says whose.
    pub errors: bool,
    /// Whether the socket buffer is full and packets are left.
    pub blocked: bool,
}

pub(super) struct SendQueue {
    arena: Pages,
    used: usize,
    /// Number of bytes that wait, bodies included.
    waiting: usize,
    /// Pieces of all messages, one after the other.
    pieces: Vec<Piece>,
    messages: Vec<Message>,
    /// Index of the first message that is not sent.
    head: usize,
    segmentation: bool,
    largest: usize,
    /// Whether the socket is connected to the only peer: the kernel keeps the route, and packets need no name.
    connected: bool,
    headers: Vec<libc::mmsghdr>,
    vectors: Vec<libc::iovec>,
    /// Number of vectors of each header.
    counts: Vec<usize>,
    controls: Vec<SegmentControl>,
}

// SAFETY: the raw pointers in `headers` and `vectors` are written and used within one `transmit`, never kept.
unsafe impl Send for SendQueue {}

impl SendQueue {
    pub fn new(segmentation: bool, largest: usize) -> Result<Self> {
        Ok(SendQueue {
            arena: Pages::new(ARENA)?,
            used: 0,
            waiting: 0,
            pieces: Vec::with_capacity(MAX_MESSAGES),
            messages: Vec::with_capacity(MAX_MESSAGES),
            head: 0,
            segmentation,
            largest,
            connected: false,
            headers: Vec::with_capacity(MAX_MESSAGES),
            vectors: Vec::with_capacity(MAX_MESSAGES),
            counts: Vec::with_capacity(MAX_MESSAGES),
            controls: Vec::with_capacity(MAX_MESSAGES),
        })
    }

    pub fn set_connected(&mut self, connected: bool) {
        self.connected = connected;
    }

    pub fn is_empty(&self) -> bool {
        self.head == self.messages.len()
    }

    /// Room for the head of a packet to `peer`, or `None` until [`Self::transmit`] has made some.
    pub fn stage(&mut self, index: PeerIndex, peer: &Peer, packet: &Packet) -> Option<&mut [u8]> {
        let length = packet.length();
        let most = if packet.body.is_some() { BODIES_MOST } else { WAITING_MOST };
        let much = self.waiting > 0 && self.waiting + length > most;
        if ARENA - self.used < packet.head || self.pieces.len() + 2 > MAX_PIECES || much {
            return None;
        }
        let joins = |last: &Message| {
            self.segmentation
                && last.peer == index
                && last.segment <= peer.segment_limit
                && last.takes(length, self.largest)
        };
        let (at, end) = (self.used, self.messages.len());
        let joined = self.messages[self.head..].last().is_some_and(joins);
        if joined {
            self.messages[end - 1].length += length;
        } else if end == MAX_MESSAGES {
            return None;
        } else {
            let piece = self.pieces.len();
            self.messages.push(Message { peer: index, piece, skip: 0, length, segment: length });
        }
        self.used += packet.head;
        self.waiting += length;
        match self.pieces.last_mut() {
            Some(Piece::Written(range)) if joined => range.end = self.used,
            _ => self.pieces.push(Piece::Written(at..self.used)),
        }
        if let Some(body) = packet.body {
            self.pieces.push(Piece::Body(body.clone()));
        }
        Some(self.arena.slice_mut(at, packet.head))
    }

    /// Sends waiting packets as far as the socket buffer takes them; the rest stays.
    pub fn transmit(
        &mut self,
        socket: &OwnedFd,
        peers: &mut [Peer],
        counters: &mut UdpCounters,
    ) -> Result<Transmitted> {
        let mut outcome = Transmitted::default();
        let mut patience = MOST_ERRORS;
        while !self.is_empty() {
            let sent = match self.messages[self.head] {
                m if m.packets() > 1 && !self.may_segment(&m, peers) => self.send_one_packet(socket, peers, counters),
                _ => self.send_run(socket, peers, counters),
            };
            let Err(errno) = sent else {
                patience = MOST_ERRORS;
                continue;
            };
            let first = self.messages[self.head];
            match errno {
                Errno::INTR => {}
                Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM => {
                    outcome.blocked = true;
                    return Ok(outcome);
                }
                // The device cannot segment (EIO), or the path's mtu has fallen below the packets.
                Errno::IO | Errno::INVAL | Errno::MSGSIZE if first.packets() > 1 && self.may_segment(&first, peers) => {
                    peers[first.peer.0 as usize].segment_limit = 0;
                    counters.segmentation_refused += 1;
                }
                // The error is not of this packet.
                errno if may_be_earlier(errno) && patience > 0 => {
                    patience -= 1;
                    outcome.errors = true;
                }
                // There is no route to this peer now: the packet is lost as on the wire, which the engine handles. Others go on.
                errno if may_be_earlier(errno) || matches!(errno, Errno::PERM | Errno::NETDOWN | Errno::INVAL) => {
                    counters.unsendable += first.packets() as u64;
                    self.head += 1;
                    patience = MOST_ERRORS;
                }
                other => {
                    let peer = peers[first.peer.0 as usize].address();
                    return Err(Fault::because(format!("sending to {peer}"), other, "open the port again"));
                }
            }
        }
        self.messages.clear();
        self.pieces.clear();
        (self.head, self.used, self.waiting) = (0, 0, 0);
        Ok(outcome)
    }

    fn may_segment(&self, message: &Message, peers: &[Peer]) -> bool {
        self.segmentation && message.segment <= peers[message.peer.0 as usize].segment_limit
    }

    /// One system call for all messages up to the next that must be split here.
    fn send_run(&mut self, socket: &OwnedFd, peers: &[Peer], counters: &mut UdpCounters) -> Result<(), Errno> {
        if let [message] = self.messages[self.head..]
            && message.packets() == 1
            && self.connected
            && let Some(Piece::Written(range)) = self.pieces.get(message.piece)
            && range.len() >= message.skip + message.length
        {
            let packet = self.arena.slice(range.start + message.skip, message.length);
            rustix::net::send(socket, packet, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
            counters.send_calls += 1;
            counters.datagrams_sent += 1;
            counters.packets_sent += 1;
            self.head += 1;
            return Ok(());
        }
        self.headers.clear();
        self.vectors.clear();
        self.counts.clear();
        self.controls.clear();
        for i in self.head..self.messages.len() {
            let message = self.messages[i];
            let segmented = message.packets() > 1;
            if segmented && !self.may_segment(&message, peers) {
                break;
            }
            let to = &peers[message.peer.0 as usize].raw;
            self.push_header(to, &message, message.length, segmented.then_some(message.segment));
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

    /// Sends the first packet of the first message alone, where the kernel cannot split the message.
    fn send_one_packet(&mut self, socket: &OwnedFd, peers: &[Peer], counters: &mut UdpCounters) -> Result<(), Errno> {
        let message = self.messages[self.head];
        self.headers.clear();
        self.vectors.clear();
        self.counts.clear();
        self.controls.clear();
        self.push_header(&peers[message.peer.0 as usize].raw, &message, message.segment, None);
        self.send_headers(socket)?;
        counters.send_calls += 1;
        counters.datagrams_sent += 1;
        counters.packets_sent += 1;
        let rest = &mut self.messages[self.head];
        rest.skip += message.segment;
        while self.pieces.get(rest.piece).is_some_and(|piece| rest.skip >= piece.length()) {
            rest.skip -= self.pieces[rest.piece].length();
            rest.piece += 1;
        }
        rest.length -= message.segment;
        rest.segment = rest.segment.min(rest.length);
        Ok(())
    }

    /// Adds the first `length` bytes of a message, as one datagram.
    fn push_header(&mut self, to: &RawAddress, message: &Message, length: usize, segment: Option<usize>) {
        // SAFETY: all-zero is a valid mmsghdr: null pointers and zero lengths.
        let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
        if !self.connected {
            header.msg_hdr.msg_name = to.as_ptr().cast_mut().cast();
            header.msg_hdr.msg_namelen = to.length() as libc::socklen_t;
        }
        header.msg_hdr.msg_controllen = if segment.is_some() { SegmentControl::LENGTH as _ } else { 0 };
        self.headers.push(header);
        let first = self.vectors.len();
        let (mut skip, mut left) = (message.skip, length);
        for piece in &self.pieces[message.piece..] {
            let taken = left.min(piece.length() - skip);
            let iov_base = match piece {
                Piece::Written(range) => self.arena.pointer(range.start + skip, taken).cast(),
                Piece::Body(body) => body[skip..].as_ptr().cast_mut().cast(),
            };
            self.vectors.push(libc::iovec { iov_base, iov_len: taken });
            (skip, left) = (0, left - taken);
            if left == 0 {
                break;
            }
        }
        self.counts.push(self.vectors.len() - first);
        self.controls.push(SegmentControl::new(segment.unwrap_or(0) as u16));
    }

    /// Passes all headers to the kernel; returns the number of datagrams sent.
    fn send_headers(&mut self, socket: &OwnedFd) -> Result<usize, Errno> {
        let (vectors, controls) = (self.vectors.as_mut_ptr(), self.controls.as_mut_ptr());
        let mut first = 0;
        for (i, (header, &count)) in self.headers.iter_mut().zip(&self.counts).enumerate() {
            header.msg_hdr.msg_iov = vectors.wrapping_add(first);
            header.msg_hdr.msg_iovlen = count as _;
            first += count;
            if header.msg_hdr.msg_controllen > 0 {
                header.msg_hdr.msg_control = controls.wrapping_add(i).cast();
            }
        }
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        let (fd, first, count) = (socket.as_raw_fd(), self.headers.as_mut_ptr(), self.headers.len());
        let sent = if count == 1 {
            // SAFETY: the header's name, vectors and control lie in memory of this queue and its peers, and what the vectors
            // lead to in the arena and in bodies that `pieces` holds, of the lengths given; nothing moves before the call
            // ends, and the kernel only reads. A result of 0 is a sent datagram of no bytes.
            unsafe { libc::sendmsg(fd, &raw const (*first).msg_hdr, flags).clamp(-1, 0) as i32 + 1 }
        } else {
            // SAFETY: as above, for `count` headers.
            unsafe { libc::sendmmsg(fd, first, count as u32, flags).max(0) }
        };
        if sent > 0 { Ok(sent as usize) } else { Err(last_errno()) }
    }
}
