//! A specialized channel to another host: the message engine over UDP, each packet sealed.
//!
//! The engine orders, repeats what was lost and cuts large messages; on top of it lie credits, so that the channel has
//! the buffers that were asked for, and as many messages again may be on the way. A reliable channel without credit says
//! `Full`; an unreliable one drops and counts. What was taken arrives, in order, unless an end goes.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use endpoint::udp_links;
use machine::{Bytes, Fault, Nanoseconds, Port, Result};
use offcode::channel::{Counted, Loss, Sleeper, Synchronization};
use offcode::{Cast, Channel, Specification, Written};
use ports::udp::UdpPort;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::engine_end::{self, EngineEnd, Link};
use super::limits::Shares;
use super::out_of_band::{not_blocking, too_long};
use super::pump;
use super::sealed::SealedPort;

/// Longest sleep between looks, in case the other process has ended without a word.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Parameters that both hosts must agree on, sent over TLS.
#[derive(Clone)]
pub(crate) struct Agreement {
    /// Identifies the engine's conversation.
    pub session: u32,
    /// Key of the packets that this end sends.
    pub outward: [u8; 32],
    /// Key of the packets that this end receives.
    pub inward: [u8; 32],
}

/// The UDP port of one end, open before the other is known.
pub(crate) struct Prepared {
    port: UdpPort,
}

impl Prepared {
    /// Opens a socket at the address by which the control connection reaches this host, and a free port.
    pub fn open(mut address: SocketAddr) -> Result<Prepared> {
        address.set_port(0);
        Ok(Prepared { port: UdpPort::open(address)? })
    }

    pub fn port(&self) -> u16 {
        self.port.local_address().port()
    }

    /// Joins the other end at `peer`. `near`: this is the creator's end, the one that writes where the channel is multicast.
    /// `grant` is asked before memory is taken whether the end may have so much; the end keeps what it gives.
    pub fn join(
        mut self,
        peer: SocketAddr,
        agreement: &Agreement,
        specification: Specification,
        near: bool,
        link: Arc<Link>,
        grant: impl FnOnce(Bytes) -> Result<Shares>,
    ) -> Result<EngineChannel> {
        self.port.add_peer(peer)?;
        let wake = self.port.as_fd().try_clone_to_owned();
        let wake = wake.map_err(|e| Fault::because("socket", e, "raise the limit on open files (ulimit -n)"))?;
        let mut links = udp_links(&self.port, &[agreement.session]);
        let port = SealedPort::new(self.port, &agreement.outward, &agreement.inward);
        for link in &mut links {
            link.mtu = port.capabilities().mtu;
        }
        let shares = grant(engine_end::memory(&specification, &links[0]))?;
        let end = EngineEnd::new(port, &links, &specification, shares)?;
        let shared = Arc::new(Mutex::new(end));
        pump::add(&shared);
        let may_write = near || specification.cast == Cast::Unicast;
        Ok(EngineChannel { shared, specification, link, may_write, wake })
    }
}

fn lock(shared: &Mutex<EngineEnd>) -> MutexGuard<'_, EngineEnd> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One end of a channel. See the module's documentation.
pub(crate) struct EngineChannel {
    shared: Arc<Mutex<EngineEnd>>,
    specification: Specification,
    link: Arc<Link>,
    may_write: bool,
    /// The port's socket, to sleep on.
    wake: OwnedFd,
}

impl EngineChannel {
    /// A reference that lives as long as the channel's socket.
    pub fn life(&self) -> Weak<Mutex<EngineEnd>> {
        Arc::downgrade(&self.shared)
    }
}

impl Channel for EngineChannel {
    fn specification(&self) -> &Specification {
        &self.specification
    }

    fn write_with(&mut self, length: usize, fill: &mut dyn FnMut(&mut [u8])) -> Result<Written> {
        if length as u64 > self.specification.buffers.size.0 {
            return Err(too_long(length, &self.specification));
        }
        if !self.may_write {
            let cause = "this end of a multicast channel reads";
            return Err(Fault::new("channel to another host", cause, "answer over the out-of-band channel"));
        }
        let written = lock(&self.shared).write(length, fill, self.specification.delivery, &self.link)?;
        if written == Written::Taken {
            pump::ring();
        }
        Ok(written)
    }

    fn read_with(&mut self, deliver: &mut dyn FnMut(&[u8])) -> Result<bool> {
        lock(&self.shared).read(deliver)
    }

    fn poll(&mut self) -> Result<bool> {
        lock(&self.shared).poll()
    }

    fn wait(&mut self, limit: Nanoseconds) -> Result<bool> {
        if self.specification.synchronization != Synchronization::Blocking {
            return Err(not_blocking());
        }
        let start = Instant::now();
        let limit = Duration::from_nanos(limit.0);
        loop {
            {
                let mut end = lock(&self.shared);
                end.set_waiting(false);
                if end.poll()? {
                    return Ok(true);
                }
                if end.is_gone() || self.link.is_lost() || start.elapsed() >= limit {
                    return Ok(false);
                }
                end.set_waiting(true);
            }
            // The engine repeats what was lost, so it must not be left alone for long.
            let left = (limit - start.elapsed().min(limit)).min(POLL_INTERVAL);
            let pause = Timespec { tv_sec: 0, tv_nsec: i64::from(left.subsec_nanos()) };
            match poll(&mut [PollFd::new(&self.wake, PollFlags::IN)], Some(&pause)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => {
                    lock(&self.shared).set_waiting(false);
                    return Err(Fault::because("channel to another host", io::Error::from(e), "make the channel anew"));
                }
            }
        }
    }

    fn arm(&mut self, sleeper: &mut dyn Sleeper) -> bool {
        // Packets that the pump takes ring the bell; packets that nobody has taken yet are seen on the socket.
        let calm = lock(&self.shared).arm(sleeper.bell());
        self.link.arm(sleeper);
        calm && sleeper.watch(self.wake.as_fd())
    }

    fn is_abandoned(&self) -> bool {
        let mut end = lock(&self.shared);
        end.turn_for_owner();
        end.is_gone() || self.link.is_lost()
    }

    fn loses(&self) -> Loss {
        Loss::Agent
    }

    fn counted(&self) -> Counted {
        lock(&self.shared).counted()
    }
}

impl Drop for EngineChannel {
    fn drop(&mut self) {
        let mut end = lock(&self.shared);
        if !end.is_gone() && !self.link.is_lost() && end.say_goodbye().is_ok() {
            // The farewell has to arrive, and what was written before it.
            pump::linger(&self.shared);
        }
    }
}
