//! The near end of a channel of frames: what a hook redirects into `FRAMES_name` is read here, by an AF_XDP socket of each
//! queue. Frames only come from there, and are lost where they are not read in time.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use linux::netlink::Netlink;
use linux::xdp::Interface;
use machine::{Fault, Nanoseconds, Result};
use offcode::channel::{Counted, Loss, Sleeper};
use offcode::{Channel, Specification, Written};
use ports::afxdp::{Options, Receiver};
use rustix::event::{PollFd, PollFlags, Timespec};

use super::Inner;
use super::channel::may_wait;
use crate::possible::map_name;

pub(super) struct Frames {
    inner: Arc<Inner>,
    specification: Specification,
    receivers: Vec<Receiver>,
    /// The queue that is read next.
    next: usize,
    read: u64,
    too_long: u64,
}

impl Frames {
    /// Opens a socket for each queue and tells the program of it.
    pub fn new(inner: Arc<Inner>, pair: &str, specification: Specification, interface: &Interface) -> Result<Frames> {
        let map = map_name("FRAMES", pair);
        let sockets = inner.object.map(&map)?;
        let subject = || format!("offcode {}: {map} at {}", inner.name, interface.name());
        let buffers = &specification.buffers;
        let room = buffers.count.next_power_of_two().max(64);
        let frame_size = if buffers.size.0 > 2048 { 4096 } else { 2048 };
        let open = || -> Result<Vec<Receiver>> {
            let link = Netlink::open().and_then(|netlink| netlink.link(interface.index()));
            let queues = link.map_err(|e| Fault::because(subject(), e, "check that the interface is there"))?.queues;
            let options = |queue| Options { queue, frame_size, ring: room, receive_frames: room, ..Options::default() };
            (0..queues).map(|queue| Receiver::open(interface.name(), &options(queue))).collect()
        };
        let receivers = interface.inside(open)??;
        for receiver in &receivers {
            let socket = receiver.as_fd().as_raw_fd();
            sockets.put(receiver.queue(), &socket.to_ne_bytes()).map_err(|error| {
                let next = format!("enlarge {map} to the {} queues of the interface", receivers.len());
                Fault::because(subject(), error, next)
            })?;
        }
        Ok(Frames { inner, specification, receivers, next: 0, read: 0, too_long: 0 })
    }

    fn lost(&self) -> u64 {
        let counted = self.receivers.iter().filter_map(|receiver| receiver.statistics().ok());
        counted.map(|lost| lost.dropped + lost.ring_full.unwrap_or(0) + lost.fill_ring_empty.unwrap_or(0)).sum()
    }
}

impl Channel for Frames {
    fn specification(&self) -> &Specification {
        &self.specification
    }

    fn write_with(&mut self, _: usize, _: &mut dyn FnMut(&mut [u8])) -> Result<Written> {
        let subject = format!("channel to offcode {}", self.inner.name);
        Err(Fault::new(subject, "frames come from its hook and go nowhere else", "send over another channel"))
    }

    fn read_with(&mut self, deliver: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let longest = self.specification.buffers.size.0 as usize;
        let queues = self.receivers.len();
        for _ in 0..queues {
            let (mut delivered, mut too_long) = (0, 0);
            self.receivers[self.next].receive(1, |frame| match frame.len() <= longest {
                true => {
                    deliver(frame);
                    delivered = 1;
                }
                false => too_long = 1,
            });
            self.next = (self.next + 1) % queues;
            self.read += delivered;
            self.too_long += too_long;
            if delivered > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn poll(&mut self) -> Result<bool> {
        Ok(self.receivers.iter_mut().any(|receiver| receiver.available() > 0))
    }

    fn wait(&mut self, limit: Nanoseconds) -> Result<bool> {
        may_wait(&self.specification)?;
        // The kernel does not wake the reader for an offcode that is removed: look now and then.
        const POLL_INTERVAL: u64 = 5_000_000;
        let mut left = limit.0;
        while !self.poll()? && left > 0 && !self.is_abandoned() {
            let part = left.min(POLL_INTERVAL);
            let time = Timespec { tv_sec: 0, tv_nsec: part as i64 };
            let mut sockets: Vec<PollFd> = self.receivers.iter().map(|one| PollFd::new(one, PollFlags::IN)).collect();
            match rustix::event::poll(&mut sockets, Some(&time)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => left -= part,
                Err(error) => return Err(Fault::because("channel", error, "check the limits of this process")),
            }
        }
        self.poll()
    }

    fn arm(&mut self, sleeper: &mut dyn Sleeper) -> bool {
        let idle = self.receivers.iter_mut().all(|receiver| receiver.available() == 0);
        idle && self.receivers.iter().all(|receiver| sleeper.watch(receiver.as_fd()))
    }

    fn is_abandoned(&self) -> bool {
        self.inner.gone.load(Ordering::Acquire)
    }

    fn loses(&self) -> Loss {
        Loss::Hook
    }

    fn counted(&self) -> Counted {
        Counted { read: self.read, dropped: self.too_long + self.lost(), ..Counted::default() }
    }
}
