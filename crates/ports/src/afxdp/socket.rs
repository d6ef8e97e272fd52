//! Creates, binds and queries an AF_XDP socket.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use machine::privileges::AF_XDP_RIGHTS;
use machine::{Bytes, Fault, Result};
use rustix::io::Errno;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XdpDesc, XdpMmapOffsets, XdpOptionsFlags, XdpStatistics, XdpUmemReg,
    XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use super::umem::Umem;
use super::{BusyPoll, Mode, Options};

/// From `linux/if_xdp.h` of Linux 6.17: the option for the number of frames that one call sends in copy mode; default 32.
const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;
pub(super) const DEFAULT_BUDGET: u32 = 32;

/// The configuration that the kernel reports, beside what was asked for in [`Options`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InForce {
    /// The socket's mode, read back after binding.
    pub mode: Mode,
    /// Most frames that one system call sends in copy mode.
    pub frames_a_kick: u32,
    /// Busy polling: the time is read back from the socket; the kernel does not report the budget.
    pub busy_poll: Option<BusyPoll>,
    /// Most bytes of kernel buffers for frames in flight in copy mode; read back.
    pub send_buffer: Bytes,
}

/// The kernel's counters of a socket (`XDP_STATISTICS`). `None` before Linux 5.9.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statistics {
    /// Received frames lost for other reasons than the next two, such as being longer than a frame of ours.
    pub dropped: u64,
    /// Received frames lost because the RX ring was full.
    pub ring_full: Option<u64>,
    /// Received frames lost because the fill ring was empty.
    pub fill_ring_empty: Option<u64>,
    /// Descriptors in the fill ring that the kernel refused.
    pub invalid_fill: u64,
    /// Descriptors in the TX ring that the kernel refused.
    pub invalid_transmit: u64,
}

impl From<XdpStatistics> for Statistics {
    fn from(s: XdpStatistics) -> Self {
        Statistics {
            dropped: s.rx_dropped,
            ring_full: s.rx_ring_full,
            fill_ring_empty: s.rx_fill_ring_empty_descs,
            invalid_fill: s.rx_invalid_descs,
            invalid_transmit: s.tx_invalid_descs,
        }
    }
}

/// The socket and its memory, shared by a sender and a receiver.
pub(super) struct Socket {
    // Dropped, and so closed, before the memory.
    fd: OwnedFd,
    pub umem: Umem,
    pub in_force: InForce,
    pub subject: String,
}

/// Access to frames that are out of the rings, away from the sender and the receiver.
#[derive(Clone)]
pub(super) struct Memory(pub(super) Arc<Socket>);

/// Why a socket could not be opened, as far as callers act on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    NoZeroCopy,
    /// Another socket has the queue.
    Taken,
    NoSuchQueue,
    Other,
}

/// A fault with its kind.
#[derive(Debug)]
pub(super) struct Refused {
    pub why: Why,
    pub fault: Fault,
}

impl From<Fault> for Refused {
    fn from(fault: Fault) -> Self {
        Refused { why: Why::Other, fault }
    }
}

impl From<Refused> for Fault {
    fn from(refused: Refused) -> Self {
        refused.fault
    }
}

/// Sizes of the rings, 0 for an absent one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub transmit: u32,
    pub completion: u32,
    pub receive: u32,
    pub fill: u32,
}

impl Socket {
    /// A socket with memory and rings, bound and queried. The rings are not mapped yet.
    pub fn open(
        interface: &str,
        options: &Options,
        umem: Umem,
        sizes: Sizes,
        map: impl FnOnce(BorrowedFd<'_>, &XdpMmapOffsets) -> Result<()>,
    ) -> Result<Socket, Refused> {
        let subject = format!("AF_XDP on {interface}, queue {}", options.queue);
        let fail = |e: Errno, doing: &str| refusal(&subject, e, doing, options);
        let fd = rustix::net::socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None)
            .map_err(|e| fail(e, "making the socket"))?;
        // AF_XDP sockets do not answer this query.
        let any = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None);
        let index = any.and_then(|any| rustix::net::netdevice::name_to_index(any, interface)).map_err(|_| {
            Fault::new(&subject, "there is no such interface", "choose one of `ip link`, in this network namespace")
        })?;
        let region = XdpUmemReg {
            addr: umem.address(),
            len: umem.len() / u64::from(umem.frame_size()) * u64::from(umem.frame_size()),
            chunk_size: umem.frame_size(),
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        sockopt::set_xdp_umem_reg(&fd, region).map_err(|e| fail(e, "registering its frames"))?;
        sockopt::set_xdp_umem_fill_ring_size(&fd, sizes.fill.max(2)).map_err(|e| fail(e, "making its fill ring"))?;
        sockopt::set_xdp_umem_completion_ring_size(&fd, sizes.completion.max(2))
            .map_err(|e| fail(e, "making its completion ring"))?;
        if sizes.receive > 0 {
            sockopt::set_xdp_rx_ring_size(&fd, sizes.receive).map_err(|e| fail(e, "making its RX ring"))?;
        }
        if sizes.transmit > 0 {
            sockopt::set_xdp_tx_ring_size(&fd, sizes.transmit).map_err(|e| fail(e, "making its TX ring"))?;
        }
        let offsets = sockopt::xdp_mmap_offsets(&fd).map_err(|e| fail(e, "asking where its rings are"))?;
        map(fd.as_fd(), &offsets)?;

        let mut flags = match options.mode {
            Mode::ZeroCopy => SocketAddrXdpFlags::XDP_ZEROCOPY,
            Mode::Copy => SocketAddrXdpFlags::XDP_COPY,
        };
        flags.set(SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP, options.need_wakeup);
        rustix::net::bind(&fd, &SocketAddrXdp::new(flags, index, options.queue)).map_err(|e| {
            let why = match e {
                Errno::OPNOTSUPP if options.mode == Mode::ZeroCopy => Why::NoZeroCopy,
                Errno::BUSY => Why::Taken,
                Errno::INVAL => Why::NoSuchQueue,
                _ => Why::Other,
            };
            Refused { why, fault: fail(e, "binding to the queue") }
        })?;
        let told = sockopt::xdp_options(&fd).map_err(|e| fail(e, "asking in which mode it runs"))?;
        let mode = if told.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY) { Mode::ZeroCopy } else { Mode::Copy };
        if mode != options.mode {
            let cause = format!("{} was asked for and the kernel runs it in {mode}", options.mode);
            return Err(Fault::new(subject, cause, format!("ask for {mode}")).into());
        }
        let in_force = InForce {
            mode,
            frames_a_kick: budget(&fd, sizes.transmit),
            busy_poll: options.busy_poll.map(|wanted| busy_poll(&fd, wanted, &subject)).transpose()?,
            send_buffer: send_buffer(&fd, options),
        };
        Ok(Socket { fd, umem, in_force, subject })
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Distinguishes it from every other live socket.
    pub fn identity(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    pub fn statistics(&self) -> Result<Statistics> {
        let next = "use a kernel with XDP_STATISTICS (4.18 or newer)";
        sockopt::xdp_statistics(&self.fd).map(Statistics::from).map_err(|e| Fault::because(&self.subject, e, next))
    }
}

/// A descriptor of any ring: an offset into the memory, and a length.
pub(super) fn descriptor(address: u64, length: u32) -> XdpDesc {
    XdpDesc { addr: address, len: length, options: rustix::net::xdp::XdpDescOptions::empty() }
}

fn refusal(subject: &str, error: Errno, doing: &str, options: &Options) -> Fault {
    let (cause, next) = match error {
        Errno::PERM | Errno::ACCESS => ("not permitted".into(), format!("run as root, or grant {AF_XDP_RIGHTS}")),
        Errno::AFNOSUPPORT => {
            ("the kernel has no AF_XDP sockets".into(), "use a kernel with CONFIG_XDP_SOCKETS".into())
        }
        Errno::OPNOTSUPP if options.mode == Mode::ZeroCopy => {
            ("the driver has no zero copy here".into(), "ask for copy mode, or use a driver that has it".into())
        }
        Errno::BUSY => {
            ("another AF_XDP socket has this queue".into(), "end it (`ss --xdp`), or choose another queue".into())
        }
        Errno::INVAL if doing.starts_with("binding") => (
            "the interface has no such queue, or it cannot do this".into(),
            "choose a queue that `ls /sys/class/net/IFACE/queues` shows".to_owned(),
        ),
        Errno::NETDOWN => ("the interface is down".into(), "`ip link set dev IFACE up`".into()),
        Errno::NOBUFS | Errno::NOMEM => (
            format!("{doing}: the limit on locked memory, or memory itself, does not hold its frames"),
            "raise `ulimit -l`, or ask for fewer frames".into(),
        ),
        other => (format!("{doing}: {other}"), "check that the kernel has CONFIG_XDP_SOCKETS".into()),
    };
    Fault::new(subject, cause, next)
}

/// Lets one system call send the whole TX ring in copy mode, where the kernel has the option; returns the number in force.
fn budget(fd: &OwnedFd, transmit: u32) -> u32 {
    if transmit <= DEFAULT_BUDGET {
        return DEFAULT_BUDGET;
    }
    // SAFETY: the option takes a u32, which lives across the call.
    let told = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_XDP,
            XDP_MAX_TX_SKB_BUDGET,
            (&raw const transmit).cast(),
            size_of::<u32>() as libc::socklen_t,
        )
    };
    if told == 0 { transmit } else { DEFAULT_BUDGET }
}

/// Makes room for every frame of ours as a kernel buffer with its own header, since sends stop early otherwise.
fn send_buffer(fd: &OwnedFd, options: &Options) -> Bytes {
    if options.mode == Mode::Copy {
        let wanted = options.transmit_frames as usize * (options.frame_size as usize + 1024);
        // The plain option is capped by net.core.wmem_max. The result is read back.
        let _ = sockopt::set_socket_send_buffer_size_force(fd, wanted)
            .or_else(|_| sockopt::set_socket_send_buffer_size(fd, wanted));
    }
    Bytes(sockopt::socket_send_buffer_size(fd).unwrap_or(0) as u64)
}

fn busy_poll(fd: &OwnedFd, wanted: BusyPoll, subject: &str) -> Result<BusyPoll> {
    let fault = |e| {
        let next = "run as root (CAP_NET_ADMIN) on Linux 5.11 or newer, or leave busy polling out";
        Fault::because(format!("{subject}: busy polling"), e, next)
    };
    set(fd, libc::SO_PREFER_BUSY_POLL, 1).map_err(fault)?;
    set(fd, libc::SO_BUSY_POLL, wanted.microseconds).map_err(fault)?;
    // The kernel refuses an invalid budget, and does not report the one in force.
    set(fd, libc::SO_BUSY_POLL_BUDGET, wanted.budget.into()).map_err(fault)?;
    Ok(BusyPoll { microseconds: get(fd, libc::SO_BUSY_POLL).map_err(fault)?, budget: wanted.budget })
}

fn set(fd: &OwnedFd, option: libc::c_int, value: u32) -> io::Result<()> {
    let length = size_of::<u32>() as libc::socklen_t;
    // SAFETY: the options passed here take an int, which lives across the call.
    match unsafe { libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, option, (&raw const value).cast(), length) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn get(fd: &OwnedFd, option: libc::c_int) -> io::Result<u32> {
    let (mut value, mut length) = (0u32, size_of::<u32>() as libc::socklen_t);
    let to = (&raw mut value).cast();
    // SAFETY: the options passed here give an int; it and its length live across the call.
    match unsafe { libc::getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, option, to, &raw mut length) } {
        0 => Ok(value),
        _ => Err(io::Error::last_os_error()),
    }
}
