//! The sending end: writes frames, submits them, kicks the kernel, and reclaims completed ones.

use std::ops::Range;
use std::sync::Arc;

use machine::{Bytes, Fault, Result};
use rustix::io::Errno;
use rustix::net::SendFlags;
use rustix::net::xdp::XdpDesc;

use super::ring::{Consumer, Producer};
use super::socket::{InForce, Memory, Socket, Statistics, descriptor};
use super::{Mode, Options};

/// Counters of a sender.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sent {
    /// Frames that the kernel took out of the ring and handed to the device or driver.
    pub taken: u64,
    /// Frames whose memory came back, whether they arrived or not.
    pub completed: u64,
    /// Taken frames that the driver reported as dropped: on a veth because the peer's ring was full.
    pub dropped: u64,
    /// System calls made for sending.
    pub kicks: u64,
    /// Kicks that left frames in the ring.
    pub stopped: u64,
}

/// A sender's frame that is written elsewhere. A frame that never comes back is lost to the sender.
#[derive(Debug)]
#[must_use = "push or restore it, or the sender has a frame less"]
pub(super) struct Blank {
    address: u64,
    owner: usize,
}

/// Completed frames are reclaimed once this many are in use: few frames are used again and again, and stay in the caches.
const OUT: usize = 256;

/// Sends Ethernet frames from memory of its own.
pub struct Sender {
    transmit: Producer<XdpDesc>,
    done: Consumer<u64>,
    /// Offsets of free frames.
    free: Vec<u64>,
    frames: u32,
    /// Number of frames placed and not yet submitted.
    placed: u32,
    need_wakeup: bool,
    sent: Sent,
    // Last, so that rings are unmapped before the socket closes.
    socket: Arc<Socket>,
}

impl Sender {
    /// A sender with a socket of its own; `options.receive_frames` is ignored. See [`super::open`].
    pub fn open(interface: &str, options: &Options) -> Result<Sender> {
        let options = Options { receive_frames: 0, ..options.clone() };
        if options.transmit_frames == 0 {
            return Err(Fault::new(format!("AF_XDP on {interface}"), "no frames to send from", "ask for some"));
        }
        let (sender, _) = super::halves(interface, &options)?;
        Ok(sender.expect("frames were asked for"))
    }

    pub(super) fn new(
        socket: Arc<Socket>,
        transmit: Producer<XdpDesc>,
        done: Consumer<u64>,
        frames: Range<u32>,
        need_wakeup: bool,
    ) -> Sender {
        let size = u64::from(socket.umem.frame_size());
        Sender {
            transmit,
            done,
            frames: frames.len() as u32,
            // Popped from the end, so that the first frame is used first.
            free: frames.rev().map(|frame| u64::from(frame) * size).collect(),
            placed: 0,
            need_wakeup,
            sent: Sent::default(),
            socket,
        }
    }

    /// Number of frames that can be placed now, up to `wanted`; reclaims completed ones where fewer are known.
    #[inline]
    pub fn room(&mut self, wanted: usize) -> usize {
        if self.free.len() < wanted {
            self.reap();
        }
        self.free.len().min(self.transmit.room(wanted as u32) as usize).min(wanted)
    }

    /// Writes one frame of `length` bytes in place: `fill` gets the bytes, which hold whatever an earlier frame left.
    /// Says whether there was room. Nothing is sent before [`Sender::submit`].
    ///
    /// A fault where `length` exceeds a frame.
    #[inline]
    pub fn place(&mut self, length: usize, fill: impl FnOnce(&mut [u8])) -> Result<bool> {
        if length > self.socket.umem.frame_size() as usize {
            return Err(self.too_long(length));
        }
        if self.room(1) == 0 {
            return Ok(false);
        }
        let address = *self.free.last().expect("room was found");
        // SAFETY: its number is in our list of free frames and in no ring, and is looked at nowhere else meanwhile.
        fill(unsafe { self.socket.umem.bytes_mut(address, length as u32) });
        self.free.pop();
        self.transmit.push(descriptor(address, length as u32));
        self.placed += 1;
        Ok(true)
    }

    #[cold]
    fn too_long(&self, length: usize) -> Fault {
        let cause = format!("a frame of {length} bytes; the memory was made for {}", self.frame_size());
        Fault::new(&self.socket.subject, cause, "open it with larger frames, or send smaller ones")
    }

    /// Publishes the placed frames to the kernel; a kick sends them.
    #[inline]
    pub fn submit(&mut self) {
        if self.placed > 0 {
            self.transmit.publish();
            self.placed = 0;
        }
    }

    /// Makes the kernel send submitted frames, with as many system calls as that takes, and reclaims completed ones. Returns the
    /// number of frames left in the ring because the kernel takes no more now; kick again later. Never waits.
    ///
    /// No system call where `need_wakeup` was asked for and a zero-copy driver is at work already.
    #[inline]
    pub fn kick(&mut self) -> Result<usize> {
        self.try_kick().map_err(|error| self.refused(error))
    }

    /// As [`Sender::flush`]; an interface that is down keeps its frames until it is up again.
    #[inline]
    pub(super) fn flush_if_up(&mut self) -> Result<usize> {
        self.submit();
        match self.try_kick() {
            Err(Errno::NETDOWN) => {
                self.sent.stopped += 1;
                Ok(self.transmit.waiting() as usize)
            }
            outcome => outcome.map_err(|error| self.refused(error)),
        }
    }

    #[inline]
    fn try_kick(&mut self) -> std::result::Result<usize, Errno> {
        let mut waiting = self.transmit.waiting();
        // A driver in zero copy takes frames without a call; copy mode never does.
        while waiting > 0 && (!self.need_wakeup || self.transmit.needs_wakeup()) {
            let outcome = rustix::net::send(self.socket.fd(), &[], SendFlags::DONTWAIT);
            self.sent.kicks += 1;
            let left = self.transmit.waiting();
            self.sent.taken += u64::from(waiting - left);
            let progress = left < waiting;
            waiting = left;
            match outcome {
                Ok(_) if self.socket.in_force.mode == Mode::ZeroCopy => break,
                Ok(_) if progress => {}
                // The budget of one call is used up, or too many frames are in flight.
                Err(Errno::AGAIN | Errno::NOBUFS) => {
                    self.sent.stopped += 1;
                    if !progress && self.reap() == 0 {
                        break;
                    }
                }
                // In copy mode the driver dropped the frame at which the call ended; else the device is polled elsewhere.
                Err(Errno::BUSY) if self.socket.in_force.mode == Mode::Copy && progress => self.sent.dropped += 1,
                Ok(_) | Err(Errno::BUSY) => break,
                Err(error) => return Err(error),
            }
        }
        self.reap();
        Ok(waiting as usize)
    }

    /// [`Sender::submit`], then [`Sender::kick`].
    #[inline]
    pub fn flush(&mut self) -> Result<usize> {
        self.submit();
        self.kick()
    }

    /// Reclaims frames that the kernel has completed; returns their number.
    #[inline]
    pub fn reap(&mut self) -> usize {
        let before = self.free.len();
        let size = u64::from(self.socket.umem.frame_size());
        while let Some(address) = self.done.peek() {
            self.done.advance();
            // The frame's content may start behind its beginning.
            self.free.push(address - address % size);
        }
        let reaped = self.free.len() - before;
        if reaped > 0 {
            self.done.release();
            self.sent.completed += reaped as u64;
        }
        reaped
    }

    /// Lends up to `count` free frames to `into`, to be written elsewhere ([`Memory::blank`]); returns their number.
    pub(super) fn lend(&mut self, count: usize, into: &mut Vec<Blank>) -> usize {
        if self.free.len() < count || self.in_flight() >= OUT {
            self.reap();
        }
        let owner = self.socket.identity();
        let rest = self.free.len().saturating_sub(count);
        let before = into.len();
        into.extend(self.free.drain(rest..).map(|address| Blank { address, owner }));
        into.len() - before
    }

    pub(super) fn restore(&mut self, blank: Blank) {
        assert_eq!(blank.owner, self.socket.identity(), "the frame of another sender");
        self.free.push(blank.address);
    }

    /// As [`Sender::place`], for `length` bytes at `at` of a lent frame. Returns the frame where the ring is full.
    #[inline]
    pub(super) fn push(&mut self, blank: Blank, at: usize, length: usize) -> std::result::Result<(), Blank> {
        assert_eq!(blank.owner, self.socket.identity(), "the frame of another sender");
        assert!(at + length <= self.socket.umem.frame_size() as usize, "inside one frame");
        if self.transmit.room(1) == 0 {
            return Err(blank);
        }
        self.transmit.push(descriptor(blank.address + at as u64, length as u32));
        self.placed += 1;
        Ok(())
    }

    pub(super) fn memory(&self) -> Memory {
        Memory(self.socket.clone())
    }

    #[cold]
    fn refused(&self, error: Errno) -> Fault {
        let next = match error {
            Errno::NETDOWN | Errno::NXIO | Errno::NODEV => "bring the interface up again and open a new sender",
            _ => "check the interface with `ip -s link`",
        };
        Fault::because(format!("{}: sending", self.socket.subject), error, next)
    }

    /// Number of frames placed and not yet completed.
    pub fn in_flight(&self) -> usize {
        self.frames as usize - self.free.len()
    }

    /// Longest frame, in bytes.
    pub fn frame_size(&self) -> Bytes {
        Bytes(self.socket.umem.frame_size().into())
    }

    pub fn sent(&self) -> Sent {
        self.sent
    }

    pub fn in_force(&self) -> &InForce {
        &self.socket.in_force
    }

    pub fn statistics(&self) -> Result<Statistics> {
        self.socket.statistics()
    }
}

impl Memory {
    /// `length` bytes at `at` of a lent frame; they hold whatever an earlier frame left.
    #[inline]
    pub(super) fn blank<'a>(&'a self, blank: &'a mut Blank, at: usize, length: usize) -> &'a mut [u8] {
        assert_eq!(blank.owner, self.0.identity(), "the frame of another sender");
        // SAFETY: its number is in no list and in no ring while `blank` exists, of which there is one and it is borrowed.
        unsafe { self.0.umem.bytes_mut(blank.address + at as u64, length as u32) }
    }
}
