//! An interface's queue in one process: socket, memory and program, shared by all its ports.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use machine::{Bytes, Fault, Result, XdpMode};

use super::frame::{self, ETHERNET, HardwareAddress, Malformed};
use super::holder::{self, Holder};
use super::neighbours::Neighbours;
use crate::afxdp::receiver::{Held, Receiver};
use crate::afxdp::sender::Sender;
use crate::afxdp::socket::{Memory, Refused, Why};
use crate::afxdp::{self, BusyPoll, Mode, Options, Sent, Statistics};
use linux::netlink::Netlink;
use linux::xdp::{self, Attachment, Interface, Object, SharedWords};

/// Room that the kernel reserves before a received frame for programs.
const HEADROOM: usize = 256;
/// Most frames that wait for one port while another receives.
const INBOX: usize = 512;
/// How long a queue may still be busy with a closed socket.
const LINGERING: Duration = Duration::from_millis(1500);
/// Number of queues that the program has room for.
const QUEUES: u32 = 64;

/// Options of an interface. For `None` the best that the driver has is chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NicOptions {
    /// The queue; `None`: the first free one.
    pub queue: Option<u32>,
    pub mode: Option<Mode>,
    /// The hook of the program: in the driver, or behind it (generic).
    pub hook: Option<XdpMode>,
    pub busy_poll: Option<BusyPoll>,
    pub transmit_frames: u32,
    pub receive_frames: u32,
}

impl Default for NicOptions {
    fn default() -> Self {
        NicOptions { queue: None, mode: None, hook: None, busy_poll: None, transmit_frames: 2048, receive_frames: 4096 }
    }
}

/// The configuration in force, beside what was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NicInForce {
    pub interface: String,
    pub queue: u32,
    /// The socket's mode, as read back from it.
    pub mode: Mode,
    /// The program's mode, as read back from the interface.
    pub hook: XdpMode,
    pub busy_poll: Option<BusyPoll>,
    /// Most frames that one system call sends in copy mode.
    pub frames_a_kick: u32,
    pub frame_size: Bytes,
    /// Attempts that were refused, with the reason.
    pub notes: Vec<String>,
}

/// Counters of an interface's socket and program since they were opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NicCounters {
    pub sent: Sent,
    pub received: u64,
    /// The program's counters: frames for the socket, frames for the kernel, and those of the latter that were for our ports.
    pub redirected: u64,
    pub passed: u64,
    pub passed_of_ours: u64,
    pub dropped: Dropped,
    pub kernel: Statistics,
}

/// Frames that reached the socket but no port, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Dropped {
    pub truncated: u64,
    pub foreign: u64,
    pub lengths: u64,
    pub checksum: u64,
    /// No port here has the address.
    pub no_port: u64,
    /// The port of the frame did not receive for too long.
    pub inbox_full: u64,
}

/// A received datagram in its frame.
pub(super) struct Arrived {
    pub held: Held,
    pub from: SocketAddr,
    pub at: usize,
    pub length: usize,
}

pub(super) struct Rings {
    pub sender: Sender,
    receiver: Receiver,
    inboxes: HashMap<SocketAddr, VecDeque<Arrived>>,
    /// Number of frames in all inboxes.
    waiting: usize,
    waiting_most: usize,
    dropped: Dropped,
}

/// An interface's queue; see the module.
pub struct Nic {
    interface: Interface,
    hardware: HardwareAddress,
    mtu: usize,
    longest: usize,
    memory: Memory,
    rings: Mutex<Rings>,
    neighbours: Mutex<Neighbours>,
    /// Incremented at every change of a neighbour.
    generation: AtomicU64,
    counters: SharedWords,
    /// Number of counters in use.
    queues: usize,
    in_force: NicInForce,
    // Dropped in this order, so that no frame is redirected to a socket that is being closed.
    _attachment: Attachment,
    object: Object,
    holder: Holder,
}

/// Device and inode of the network namespace, and the interface's index.
type Key = (u64, u64, u32);

static OPEN: Mutex<Vec<(Key, Weak<Nic>)>> = Mutex::new(Vec::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Nic {
    /// The interface as this process has it open already, else opened with `options`. It belongs to the network
    /// namespace of the calling thread.
    pub fn shared(interface: &str, options: &NicOptions) -> Result<Arc<Nic>> {
        let interface = Interface::named(interface)?;
        let key = interface.identity()?;
        let mut open = lock(&OPEN);
        open.retain(|(_, nic)| nic.strong_count() > 0);
        if let Some(nic) = open.iter().find(|(of, _)| *of == key).and_then(|(_, nic)| nic.upgrade()) {
            return Ok(nic);
        }
        let nic = Arc::new(Nic::open(interface, options)?);
        open.push((key, Arc::downgrade(&nic)));
        Ok(nic)
    }

    fn open(interface: Interface, options: &NicOptions) -> Result<Nic> {
        let subject = format!("port afxdp:{}", interface.name());
        let link = Netlink::open()
            .and_then(|netlink| netlink.link(interface.index()))
            .map_err(|e| Fault::because(&subject, e, "check the interface with `ip link`"))?;
        let Some(hardware) = link.hardware else {
            return Err(Fault::new(&subject, "it is no Ethernet link", "name one of `ip link` that is, or use udp"));
        };
        let mut notes = Vec::new();
        let longest_of = |frame_size: u32| frame_size as usize - HEADROOM;
        let frame_size = if link.mtu as usize + ETHERNET <= longest_of(2048) { 2048 } else { 4096 };
        let longest = longest_of(frame_size).min(link.mtu as usize + ETHERNET);
        let socket = Options {
            frame_size,
            // Twice the frames, for the same reason as in the fill ring.
            ring: (2 * options.transmit_frames).max(options.receive_frames).next_power_of_two(),
            transmit_frames: options.transmit_frames,
            receive_frames: options.receive_frames,
            busy_poll: options.busy_poll,
            ..Options::default()
        };
        let (sender, receiver) = bind(&interface, &socket, options, &mut notes)?;
        let holder = Holder::take(interface.index(), receiver.queue());

        let code = xdp::built(&subject, bpf::NETWORK)?;
        let attach = |hook| -> Result<(Object, Attachment)> {
            let loader = xdp::loader_for("network", code, &interface, hook);
            let object = loader.variable("LONGEST", &(longest as u32).to_ne_bytes()).load()?;
            let socket = receiver.as_fd().as_raw_fd();
            object.map("SOCKETS")?.put(receiver.queue(), &socket.to_ne_bytes()).map_err(|e| {
                let next = format!("bind to a queue below {QUEUES}");
                Fault::because(format!("{subject}, queue {}", receiver.queue()), e, next)
            })?;
            let attachment = Attachment::new(object.program("network")?, &interface, hook)?;
            Ok((object, attachment))
        };
        // The frames of a veth are kernel buffers already. Its driver hook would convert each to a frame and those that
        // pass back, one by one, and make the other end split merged packets.
        let virtual_wire = interface.driver().is_some_and(|driver| driver == "veth");
        // Another queue is probably used by another process of ours; the program is the same for all queues.
        let others = (0..QUEUES).filter(|queue| *queue != receiver.queue());
        if xdp::check_vacant(&interface).is_err()
            && let Some(holder) = others.into_iter().find_map(|queue| holder::of(interface.index(), queue))
        {
            return Err(taken(interface.name(), &format!("the program of {}", interface.name()), &holder.words));
        }
        let (object, attachment) = match options.hook {
            Some(hook) => attach(hook)?,
            None if virtual_wire => {
                notes.push("generic mode: on a veth it is the faster one".into());
                attach(XdpMode::Generic)?
            }
            None => match attach(XdpMode::Native) {
                Ok(attached) => attached,
                Err(fault) => {
                    xdp::check_vacant(&interface)?;
                    notes.push(format!("native mode: {}", fault.cause()));
                    attach(XdpMode::Generic)?
                }
            },
        };
        let found = sender.in_force();
        let in_force = NicInForce {
            interface: interface.name().into(),
            queue: receiver.queue(),
            mode: found.mode,
            hook: attachment.mode(),
            busy_poll: found.busy_poll,
            frames_a_kick: found.frames_a_kick,
            frame_size: sender.frame_size(),
            notes,
        };
        Ok(Nic {
            hardware,
            mtu: link.mtu as usize,
            longest,
            memory: sender.memory(),
            neighbours: Mutex::new(Neighbours::open(interface.index(), interface.name())?),
            generation: AtomicU64::new(0),
            counters: object.shared("COUNTERS")?,
            queues: link.queues.clamp(1, QUEUES) as usize,
            rings: Mutex::new(Rings {
                sender,
                receiver,
                inboxes: HashMap::new(),
                waiting: 0,
                waiting_most: options.receive_frames as usize / 2,
                dropped: Dropped::default(),
            }),
            interface,
            in_force,
            _attachment: attachment,
            object,
            holder,
        })
    }

    pub fn in_force(&self) -> &NicInForce {
        &self.in_force
    }

    pub fn counters(&self) -> Result<NicCounters> {
        let of = |word: usize| (0..self.queues).map(|q| self.counters.value(q)[word].load(Ordering::Relaxed)).sum();
        let rings = self.rings();
        Ok(NicCounters {
            sent: rings.sender.sent(),
            received: rings.receiver.received(),
            redirected: of(0),
            passed: of(1),
            passed_of_ours: of(2),
            dropped: rings.dropped,
            kernel: rings.receiver.statistics()?,
        })
    }

    /// Frames that can wait here, for all ports together.
    pub fn receive_frames(&self) -> u64 {
        self.rings().waiting_most as u64 * 2
    }

    pub(super) fn interface(&self) -> &Interface {
        &self.interface
    }

    pub(super) fn hardware(&self) -> HardwareAddress {
        self.hardware
    }

    /// Length of the longest IP packet, header included.
    pub(super) fn mtu(&self) -> usize {
        self.mtu
    }

    /// Length of our longest frame, which also fits into the memory of a peer whose link has the same mtu.
    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    pub(super) fn memory(&self) -> Memory {
        self.memory.clone()
    }

    pub(super) fn rings(&self) -> MutexGuard<'_, Rings> {
        lock(&self.rings)
    }

    pub(super) fn neighbours(&self) -> MutexGuard<'_, Neighbours> {
        lock(&self.neighbours)
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Periodic work: changes of neighbours, and callers of the holder's name.
    pub(super) fn tend(&self, now: Instant) -> Result<()> {
        if self.neighbours().listen(now)? {
            self.generation.fetch_add(1, Ordering::Release);
            self.holder.tend();
        }
        Ok(())
    }

    /// Number of datagrams to our ports that the program left to the kernel; read from shared memory.
    #[inline]
    pub(super) fn passed_of_ours(&self) -> u64 {
        (0..self.queues).map(|queue| self.counters.value(queue)[2].load(Ordering::Relaxed)).sum()
    }

    /// Lets datagrams to `address` come to [`Rings::receive`] from now on.
    pub(super) fn register(&self, address: SocketAddr) -> Result<()> {
        let put = self.object.map("PORTS")?.put_at(&key_of(address), &1u32.to_ne_bytes());
        put.map_err(|e| Fault::because(format!("port afxdp at {address}"), e, "close ports that are not needed"))?;
        self.rings().inboxes.insert(address, VecDeque::new());
        Ok(())
    }

    pub(super) fn unregister(&self, address: SocketAddr) {
        if let Ok(ports) = self.object.map("PORTS") {
            let _ = ports.remove(&key_of(address));
        }
        let mut rings = self.rings();
        let left = rings.inboxes.remove(&address).unwrap_or_default();
        rings.waiting -= left.len();
        rings.receiver.release_many(left.into_iter().map(|arrived| arrived.held));
    }
}

impl Rings {
    /// Gives `done` back to the kernel, then moves up to `budget` datagrams for `address` to `into`.
    pub fn receive(
        &mut self,
        memory: &Memory,
        address: SocketAddr,
        budget: usize,
        done: impl Iterator<Item = Held>,
        into: &mut Vec<Arrived>,
    ) {
        self.receiver.release_many(done);
        if self.waiting > 0
            && let Some(inbox) = self.inboxes.get_mut(&address)
        {
            let count = inbox.len().min(budget);
            into.extend(inbox.drain(..count));
            self.waiting -= count;
        }
        let (wanted, mut useless) = (budget - into.len(), Vec::new());
        let Rings { receiver, inboxes, waiting, waiting_most, dropped, .. } = self;
        receiver.take_many(wanted, |held| {
            let datagram = match frame::read(memory.held(&held)) {
                Ok(datagram) => datagram,
                Err(why) => {
                    dropped.count(why);
                    useless.push(held);
                    return;
                }
            };
            let arrived = Arrived { held, from: datagram.from, at: datagram.at, length: datagram.length };
            if datagram.to == address {
                into.push(arrived);
                return;
            }
            match inboxes.get_mut(&datagram.to) {
                Some(inbox) if inbox.len() < INBOX && *waiting < *waiting_most => {
                    *waiting += 1;
                    inbox.push_back(arrived);
                }
                other => {
                    *(if other.is_some() { &mut dropped.inbox_full } else { &mut dropped.no_port }) += 1;
                    useless.push(arrived.held);
                }
            }
        });
        if !useless.is_empty() {
            receiver.release_many(useless.into_iter());
        }
    }

    pub fn release(&mut self, done: impl Iterator<Item = Held>) {
        self.receiver.release_many(done);
    }

    /// Whether no frame is in use: all of them can be taken at once.
    #[cfg(test)]
    pub fn is_whole(&mut self, receive_frames: u32, transmit_frames: usize) -> bool {
        let (mut blanks, mut held) = (Vec::new(), Vec::new());
        self.receiver.take_many(usize::MAX, |frame| held.push(frame));
        self.receiver.release_many(held.into_iter());
        let lent = self.sender.lend(usize::MAX, &mut blanks);
        blanks.into_iter().for_each(|blank| self.sender.restore(blank));
        (self.receiver.unused(), lent) == (receive_frames, transmit_frames)
    }
}

impl Dropped {
    fn count(&mut self, why: Malformed) {
        *match why {
            Malformed::Truncated => &mut self.truncated,
            Malformed::Foreign => &mut self.foreign,
            Malformed::Lengths => &mut self.lengths,
            Malformed::Checksum => &mut self.checksum,
        } += 1;
    }
}

/// The key of the program's map: address, port number, padding.
fn key_of(address: SocketAddr) -> [u8; 20] {
    let mut key = [0; 20];
    let ip = match address.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    key[..16].copy_from_slice(&ip.octets());
    key[16..18].copy_from_slice(&address.port().to_be_bytes());
    key
}

fn taken(interface: &str, what: &str, who: &str) -> Fault {
    Fault::new(
        format!("port afxdp:{interface}: {what}"),
        format!("it is taken by {who}"),
        "run the node's engine on core:N, which serves all ranks, or use udp",
    )
}

/// Binds a socket to the first free queue in the best mode of the driver, or to the queue and in the mode of `options`.
fn bind(
    interface: &Interface,
    socket: &Options,
    options: &NicOptions,
    notes: &mut Vec<String>,
) -> Result<(Sender, Receiver)> {
    let queues = options.queue.map_or(0..QUEUES, |queue| queue..queue + 1);
    let mut modes = match options.mode {
        Some(mode) => vec![mode],
        None => vec![Mode::ZeroCopy, Mode::Copy],
    };
    let mut first: Option<Fault> = None;
    for queue in queues {
        let started = Instant::now();
        loop {
            let attempt = Options { queue, mode: modes[0], ..socket.clone() };
            let Refused { why, fault } = match afxdp::both(interface.name(), &attempt) {
                Ok(both) => return Ok(both),
                Err(refused) => refused,
            };
            match why {
                Why::NoZeroCopy if modes.len() > 1 => {
                    notes.push(format!("zero copy: {}", fault.cause()));
                    modes.remove(0);
                }
                Why::Taken => {
                    let holder = holder::of(interface.index(), queue);
                    // No port of this process has the queue, or it would be shared. A child has this process's descriptors from
                    // the fork to its exec, and the kernel takes a moment to free the queue of a closed socket.
                    if holder.as_ref().is_none_or(|holder| holder.is_ours) && started.elapsed() < LINGERING {
                        std::thread::sleep(Duration::from_millis(2));
                        continue;
                    }
                    let who = holder.map_or("a process that `ss --xdp -p` shows".into(), |holder| holder.words);
                    let what = format!("queue {queue} of {}", interface.name());
                    first.get_or_insert_with(|| taken(interface.name(), &what, &who));
                    break;
                }
                Why::NoSuchQueue => return Err(first.unwrap_or(fault)),
                _ => return Err(fault),
            }
        }
    }
    Err(first.unwrap_or_else(|| Fault::new(format!("port afxdp:{}", interface.name()), "no queue is free", "use udp")))
}
