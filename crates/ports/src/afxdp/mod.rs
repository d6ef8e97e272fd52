//! AF_XDP sockets: frames between an interface's queue and memory of ours, past the kernel's protocol stack.
//!
//! A [`Sender`] writes whole Ethernet frames in place and kicks the kernel; a [`Receiver`] borrows frames that a [`Redirect`]
//! program on the interface redirects to it. Both may share one socket and its memory ([`open`]); each is used by one thread at a
//! time. However a process ends, the kernel closes socket, rings and program with its descriptors, and nothing is left.
//!
//! The mode is asked for and never falls back. In *zero copy* the device reads and writes the frames; in *copy mode*
//! the kernel copies them, and one system call sends at most [`InForce::frames_a_kick`] of them, then says `EAGAIN`
//! with the rest still in the ring. A sender that then waits for completions waits for ever: sending more than 32
//! frames a kick hangs. [`Sender::kick`] repeats the call until the ring is empty or the kernel takes no more.

mod port;
mod receiver;
mod redirect;
mod ring;
mod sender;
mod socket;
mod umem;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use machine::{Fault, Result};
use rustix::net::xdp::{
    XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING,
};

pub use port::{
    AfxdpCounters, AfxdpPort, Datagram, Dropped, Malformed, Nic, NicCounters, NicInForce, NicOptions, Path,
    read_datagram,
};
pub use receiver::{Held, Receiver};
pub use redirect::{Redirect, Redirected, Which};
use ring::{Consumer, Producer};
pub use sender::{Sender, Sent};
pub use socket::{InForce, Statistics};
use socket::{Refused, Sizes, Socket};
use umem::Umem;

machine::named! {
    /// How frames get between our memory and the device.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Mode {
        /// The device reads and writes our memory.
        ZeroCopy = "zero copy",
        /// The kernel copies; every driver supports it.
        Copy = "copy mode",
    }
}

/// System calls drive the device's receive loop instead of its interrupts (Linux 5.11).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BusyPoll {
    pub microseconds: u32,
    /// Most frames of one poll.
    pub budget: u16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    pub queue: u32,
    pub mode: Mode,
    /// Bytes a frame may have, 2048 or 4096.
    pub frame_size: u32,
    /// Entries of the TX ring and of the RX ring: a power of two.
    pub ring: u32,
    /// Frames for sending; 0 for none. There may be more than the ring holds.
    pub transmit_frames: u32,
    /// Frames for receiving; 0 for none.
    pub receive_frames: u32,
    /// Whether the kernel says when it must be woken for new entries; without it every kick is a system call.
    pub need_wakeup: bool,
    /// Whether memory is in pages of 2 MiB, which must have been reserved.
    pub huge_pages: bool,
    pub busy_poll: Option<BusyPoll>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            queue: 0,
            mode: Mode::Copy,
            frame_size: 2048,
            ring: 2048,
            transmit_frames: 4096,
            receive_frames: 4096,
            need_wakeup: true,
            huge_pages: false,
            busy_poll: None,
        }
    }
}

impl Options {
    fn check(&self, interface: &str) -> Result<()> {
        let bad = |cause: String, next: &str| Err(Fault::new(format!("AF_XDP on {interface}"), cause, next));
        if !matches!(self.frame_size, 2048 | 4096) {
            return bad(format!("frames of {} bytes", self.frame_size), "choose 2048 or 4096");
        }
        if !self.ring.is_power_of_two() || !(64..=1 << 16).contains(&self.ring) {
            return bad(format!("rings of {} entries", self.ring), "choose a power of two from 64 to 65536");
        }
        if self.transmit_frames.max(self.receive_frames) > 1 << 20 {
            return bad("more than 1,048,576 frames".into(), "ask for fewer");
        }
        Ok(())
    }
}

/// One socket for both directions, in one memory.
///
/// Like [`Sender::open`] and [`Receiver::open`], works in the network namespace of the calling thread; what it returns
/// may be used anywhere.
pub fn open(interface: &str, options: &Options) -> Result<(Sender, Receiver)> {
    if options.transmit_frames == 0 || options.receive_frames == 0 {
        let subject = format!("AF_XDP on {interface}");
        return Err(Fault::new(subject, "no frames for one direction", "ask for frames, or open the other end alone"));
    }
    both(interface, options).map_err(Fault::from)
}

fn both(interface: &str, options: &Options) -> Result<(Sender, Receiver), Refused> {
    let (sender, receiver) = halves(interface, options)?;
    Ok((sender.expect("frames were asked for"), receiver.expect("frames were asked for")))
}

fn halves(interface: &str, options: &Options) -> Result<(Option<Sender>, Option<Receiver>), Refused> {
    options.check(interface)?;
    let (out, into) = (options.transmit_frames, options.receive_frames);
    let umem = Umem::new(out + into, options.frame_size, options.huge_pages)?;
    // Completion and fill ring hold every frame of their direction, so that neither can be full; the fill ring holds
    // each twice, since the kernel shows a received frame before it says that it has taken the entry.
    let sizes = Sizes {
        transmit: if out > 0 { options.ring } else { 0 },
        completion: if out > 0 { out.next_power_of_two() } else { 0 },
        receive: if into > 0 { options.ring } else { 0 },
        fill: if into > 0 { (2 * into).next_power_of_two() } else { 0 },
    };
    let (mut transmit, mut receive) = (None, None);
    let socket = Socket::open(interface, options, umem, sizes, |fd, offsets| {
        // The kernel needs both of these rings even if one is unused; only the used one is mapped.
        if out > 0 {
            transmit = Some((
                Producer::new(fd, sizes.transmit, &offsets.tx, XDP_PGOFF_TX_RING)?,
                Consumer::new(fd, sizes.completion, &offsets.cr, XDP_UMEM_PGOFF_COMPLETION_RING)?,
            ));
        }
        if into > 0 {
            receive = Some((
                Producer::new(fd, sizes.fill, &offsets.fr, XDP_UMEM_PGOFF_FILL_RING)?,
                Consumer::new(fd, sizes.receive, &offsets.rx, XDP_PGOFF_RX_RING)?,
            ));
        }
        Ok(())
    })?;
    let socket = Arc::new(socket);
    let sender = transmit.map(|(tx, done)| Sender::new(socket.clone(), tx, done, 0..out, options.need_wakeup));
    let receiver = receive.map(|(fill, rx)| Receiver::new(socket, fill, rx, out..out + into, options.queue));
    Ok((sender, receiver))
}
