//! The receiving end: frames are borrowed in place and given back.

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use machine::{Fault, Nanoseconds, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::net::xdp::XdpDesc;

use super::Options;
use super::ring::{Consumer, Producer};
use super::socket::{InForce, Memory, Socket, Statistics};

/// A received frame that its holder keeps for a while. A frame that is never released is lost to its receiver.
#[derive(Debug)]
#[must_use = "release it, or the receiver has a frame less"]
pub struct Held {
    address: u64,
    length: u32,
    /// The socket whose memory it is in.
    owner: usize,
}

/// Frames that the kernel has at first. The kernel fills its frames in turn: the fewer it has, the sooner each comes again,
/// while it is in the caches.
const OFFERED: u32 = 512;

/// Receives Ethernet frames into memory of its own.
pub struct Receiver {
    fill: Producer<u64>,
    receive: Consumer<XdpDesc>,
    /// Frames that nobody uses, the last used last.
    spare: Vec<u64>,
    /// Number of frames in the kernel's rings, and how many there should be: grows to all of them by bursts.
    offered: u32,
    offer: u32,
    frames: u32,
    queue: u32,
    received: u64,
    // Last, so that rings are unmapped before the socket closes.
    socket: Arc<Socket>,
}

impl Receiver {
    /// A receiver with a socket of its own; `options.transmit_frames` is ignored. See [`super::open`].
    pub fn open(interface: &str, options: &Options) -> Result<Receiver> {
        let options = Options { transmit_frames: 0, ..options.clone() };
        if options.receive_frames == 0 {
            return Err(Fault::new(format!("AF_XDP on {interface}"), "no frames to receive into", "ask for some"));
        }
        let (_, receiver) = super::halves(interface, &options)?;
        Ok(receiver.expect("frames were asked for"))
    }

    pub(super) fn new(
        socket: Arc<Socket>,
        fill: Producer<u64>,
        receive: Consumer<XdpDesc>,
        frames: Range<u32>,
        queue: u32,
    ) -> Receiver {
        let size = u64::from(socket.umem.frame_size());
        let count = frames.len() as u32;
        let spare = frames.rev().map(|frame| u64::from(frame) * size).collect();
        let (offered, offer) = (0, count.min(OFFERED));
        let mut receiver = Receiver { fill, receive, spare, offered, offer, frames: count, queue, received: 0, socket };
        receiver.offer();
        receiver
    }

    /// Passes up to `limit` frames in place to `deliver`, and gives them back to the kernel. Returns their number.
    #[inline]
    pub fn receive(&mut self, limit: usize, mut deliver: impl FnMut(&[u8])) -> usize {
        let mut count = 0;
        while count < limit {
            let Some(descriptor) = self.receive.peek() else { break };
            // SAFETY: the kernel gave this frame to us, and gets it back only below.
            deliver(unsafe { self.socket.umem.bytes(descriptor.addr, descriptor.len) });
            self.give_back(descriptor.addr);
            self.receive.advance();
            count += 1;
        }
        if count > 0 {
            self.taken(count);
            self.offer();
        }
        self.wake(count == 0);
        count
    }

    /// Takes the next frame, to be kept until [`Receiver::release`]. The kernel lacks frames that are held.
    #[inline]
    pub fn take(&mut self) -> Option<Held> {
        let descriptor = self.receive.peek()?;
        self.receive.advance();
        self.taken(1);
        Some(Held { address: descriptor.addr, length: descriptor.len, owner: self.identity() })
    }

    /// As [`Receiver::take`], for up to `limit` frames; returns their number.
    pub(super) fn take_many(&mut self, limit: usize, mut each: impl FnMut(Held)) -> usize {
        let owner = self.identity();
        let mut count = 0;
        while count < limit
            && let Some(descriptor) = self.receive.peek()
        {
            self.receive.advance();
            each(Held { address: descriptor.addr, length: descriptor.len, owner });
            count += 1;
        }
        if count > 0 {
            self.taken(count);
        }
        count
    }

    /// Counts frames that left the ring. Where half of those that the kernel has came at once, it gets twice as many.
    #[inline]
    fn taken(&mut self, count: usize) {
        self.received += count as u64;
        self.receive.release();
        self.offered -= count as u32;
        if count as u32 + self.receive.known() >= self.offer / 2 && self.offer < self.frames {
            self.offer = (2 * self.offer).min(self.frames);
        }
    }

    /// As [`Receiver::release`], for many. To be called even without frames, since it wakes a driver that waits for
    /// frames, and busy-polls the device where that is on.
    #[inline]
    pub(super) fn release_many(&mut self, held: impl Iterator<Item = Held>) {
        let mut any = false;
        for held in held {
            assert_eq!(held.owner, self.identity(), "the frame of another receiver");
            self.give_back(held.address);
            any = true;
        }
        if any {
            self.offer();
        }
        self.wake(!any);
    }

    #[inline]
    pub fn bytes<'a>(&'a self, held: &'a Held) -> &'a [u8] {
        assert_eq!(held.owner, self.identity(), "the frame of another receiver");
        // SAFETY: the frame is out of all rings while `held` exists; it is written by nobody.
        unsafe { self.socket.umem.bytes(held.address, held.length) }
    }

    #[inline]
    pub fn release(&mut self, held: Held) {
        assert_eq!(held.owner, self.identity(), "the frame of another receiver");
        self.give_back(held.address);
        self.offer();
    }

    /// Number of frames to receive into, with the kernel or spare.
    #[cfg(test)]
    pub(super) fn unused(&mut self) -> u32 {
        self.fill.waiting() + self.spare.len() as u32
    }

    fn identity(&self) -> usize {
        self.socket.identity()
    }

    #[inline]
    fn give_back(&mut self, address: u64) {
        self.spare.push(address - address % u64::from(self.socket.umem.frame_size()));
    }

    /// Gives the kernel the frames that were used last.
    #[inline]
    fn offer(&mut self) {
        let before = self.offered;
        while self.offered < self.offer
            && let Some(frame) = self.spare.pop()
        {
            // There is always room, since the ring holds every frame twice; the call updates the ring's view of the kernel.
            self.fill.room(1);
            self.fill.push(frame);
            self.offered += 1;
        }
        if self.offered > before {
            self.fill.publish();
        }
    }

    /// Wakes zero-copy drivers that ran out of frames; with busy polling this call polls the device.
    #[inline]
    fn wake(&mut self, idle: bool) {
        if self.fill.needs_wakeup() || (idle && self.socket.in_force.busy_poll.is_some()) {
            let mut nothing = [0u8; 0];
            let _ = rustix::net::recv(self.socket.fd(), &mut nothing[..], RecvFlags::DONTWAIT);
        }
    }

    /// Number of frames that can be received now.
    #[inline]
    pub fn available(&mut self) -> usize {
        self.receive.available() as usize
    }

    /// Sleeps until a frame is there or `limit` has passed; says whether one is.
    pub fn wait(&mut self, limit: Nanoseconds) -> Result<bool> {
        if self.receive.available() > 0 {
            return Ok(true);
        }
        let limit = Timespec { tv_sec: (limit.0 / 1_000_000_000) as i64, tv_nsec: (limit.0 % 1_000_000_000) as i64 };
        match poll(&mut [PollFd::new(&self.socket.fd(), PollFlags::IN)], Some(&limit)) {
            Ok(_) | Err(Errno::INTR) => Ok(self.receive.available() > 0),
            Err(e) => Err(Fault::because(format!("{}: waiting", self.socket.subject), e, "open it again")),
        }
    }

    /// Number of frames delivered so far.
    pub fn received(&self) -> u64 {
        self.received
    }

    pub fn in_force(&self) -> &InForce {
        &self.socket.in_force
    }

    /// The kernel's counters, losses included.
    pub fn statistics(&self) -> Result<Statistics> {
        self.socket.statistics()
    }

    pub fn queue(&self) -> u32 {
        self.queue
    }
}

impl AsFd for Receiver {
    /// The socket, for poll or for a map of sockets.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.fd()
    }
}

impl Memory {
    #[inline]
    pub(super) fn held<'a>(&'a self, held: &'a Held) -> &'a [u8] {
        assert_eq!(held.owner, self.0.identity(), "the frame of another receiver");
        // SAFETY: the frame is out of all rings while `held` exists; it is written by nobody.
        unsafe { self.0.umem.bytes(held.address, held.length) }
    }
}
