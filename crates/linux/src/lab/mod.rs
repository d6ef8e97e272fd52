//! Two hosts on this machine: network namespaces joined by a veth pair.
//!
//! Each host has its own interfaces, routes, port numbers and host name; files, processes and cores are shared. The
//! link is made inside the two namespaces and never shows in the namespace of this machine, so no address of the lab
//! can clash with one of the machine's.
//!
//! A lab lives in one of two ways:
//! - *owned* ([`Lab::owned`]): held by file descriptors of its process. However that process ends, the kernel closes
//!   them and removes hosts and link; a warden ends what was still running in them.
//! - *named* ([`Lab::up`], [`Lab::down`]): kept by `/run/netns/NAME-a` and `/run/netns/NAME-b` until taken down.

mod door;
mod link;
mod named;
mod namespace;
mod residents;
mod steering;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod wire;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Command;
use std::str::FromStr;

use machine::{CoreId, Fault, Result};
use serde::Serialize;

pub use door::Door;
pub use named::{Ended, Raised};
use namespace::Namespace;
pub use steering::Steering;
pub use wire::{Switched, Wire};

use crate::warden::Warden;

/// The interface by which each host reaches the other. Both ends carry the same name, each in its own namespace.
const INTERFACE: &str = "lab0";

/// The next step where namespaces are refused.
const AS_ROOT: &str = "run as root (CAP_NET_ADMIN and CAP_SYS_ADMIN)";

/// One of the two hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Host {
    A,
    B,
}

impl Host {
    pub const BOTH: [Host; 2] = [Host::A, Host::B];

    pub fn other(self) -> Host {
        match self {
            Host::A => Host::B,
            Host::B => Host::A,
        }
    }

    fn letter(self) -> char {
        match self {
            Host::A => 'a',
            Host::B => 'b',
        }
    }

    /// The host's address on a link, from the block that RFC 2544 (appendix C.2.2) reserves for benchmarks.
    fn ipv4(self, link: u8) -> Ipv4Addr {
        Ipv4Addr::new(198, 18, link, 1 + self as u8)
    }

    /// The host's address on a link, from the block that RFC 5180 (section 8) reserves for benchmarks.
    fn ipv6(self, link: u8) -> Ipv6Addr {
        Ipv6Addr::new(0x2001, 2, 0, u16::from(link), 0, 0, 0, 1 + self as u16)
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "host {}", self.letter())
    }
}

impl FromStr for Host {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "a" => Ok(Host::A),
            "b" => Ok(Host::B),
            _ => Err(Fault::new(format!("host '{text}'"), "a lab has two hosts", "write a or b")),
        }
    }
}

/// Setup of the link between the hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Largest packet of the link in bytes, 1280 (the least that IPv6 takes) to 65535.
    pub mtu: u16,
    /// The core that does the receive processing of both hosts; `None` leaves it where the sender runs.
    pub protocol_core: Option<CoreId>,
    /// Whether to receive in a kernel thread of the interface instead of a softirq.
    pub threaded_napi: bool,
    /// Whether to merge received packets (GRO). Without it, a veth also drops the frames that a BPF program sends to it.
    pub gro: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { mtu: 1500, protocol_core: None, threaded_napi: false, gro: true }
    }
}

impl Options {
    /// Refuses impossible options before anything is made.
    fn check(&self) -> Result<()> {
        if self.mtu < 1280 {
            let cause = "IPv6 needs at least 1280 bytes";
            return Err(Fault::new(format!("lab: mtu {}", self.mtu), cause, "choose --mtu from 1280 to 65535"));
        }
        if self.threaded_napi && !self.gro {
            let cause = "a veth has threads to receive in only while it merges packets (GRO)";
            return Err(Fault::new("lab: threaded NAPI", cause, "leave --no-gro or --threaded-napi out"));
        }
        steering::check(self.protocol_core)
    }
}

/// The state of a lab, read back from the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Status {
    pub hosts: [HostStatus; 2],
}

/// The state of one host, read back from the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HostStatus {
    pub host: Host,
    pub addresses: Vec<IpAddr>,
    pub interface: String,
    pub mtu: u32,
    pub gro: bool,
    /// Threaded NAPI; `None` where this kernel lacks it.
    pub threaded_napi: Option<bool>,
    /// The cores that may do its receive processing; empty: the sender's core.
    pub protocol_cores: Vec<CoreId>,
    pub processes: Vec<u32>,
}

/// Two hosts, up and joined.
#[derive(Debug)]
pub struct Lab {
    /// Dropped before the hosts: it looks for processes by their namespaces' inodes.
    warden: Option<Warden>,
    hosts: [Namespace; 2],
}

impl Lab {
    /// Makes a lab that lasts as long as this value, and no longer than this process.
    ///
    /// Any number of them may exist at once. Fails where this process may not make network namespaces, where `ip` is
    /// missing, or where the kernel has no veth.
    pub fn owned(options: &Options) -> Result<Lab> {
        Lab::joined(options, link::make)
    }

    /// As [`Lab::owned`], its hosts joined by `join`.
    fn joined(options: &Options, join: impl FnOnce(&[Namespace; 2]) -> Result<()>) -> Result<Lab> {
        options.check()?;
        let hosts = [Namespace::unnamed(Host::A, "plimsoll-a")?, Namespace::unnamed(Host::B, "plimsoll-b")?];
        let warden =
            Warden::over_networks(hosts.each_ref().map(Namespace::inode), hosts.each_ref().map(Namespace::path))?;
        join(&hosts)?;
        link::configure(&hosts, options)?;
        Ok(Lab { hosts, warden: Some(warden) })
    }

    /// Joins the hosts by one more pair of interfaces, `lab1` or up, with its own addresses and the mtu and merging of
    /// `options`: a program at one pair then does not lengthen the path over another.
    ///
    /// # Errors
    /// There is such a link already; as [`Lab::owned`].
    pub fn add_link(&self, link: u8, options: &Options) -> Result<()> {
        link::add(&self.hosts, link, options)
    }

    /// The address of a host on link 0, which every lab has.
    pub fn address(&self, host: Host) -> IpAddr {
        self.address_on(0, host)
    }

    /// The address of a host on the link of that number.
    pub fn address_on(&self, link: u8, host: Host) -> IpAddr {
        host.ipv4(link).into()
    }

    /// The host's IPv6 address on link 0; `None` where this kernel runs without IPv6.
    pub fn address_v6(&self, host: Host) -> Option<IpAddr> {
        link::has_ipv6().then(|| host.ipv6(0).into())
    }

    /// The interface by which a host reaches the other.
    pub fn interface(&self, _host: Host) -> &str {
        INTERFACE
    }

    /// Makes `command` run in `host`, with its interfaces, host name, and view of `/sys/class/net`.
    pub fn enter<'c>(&self, host: Host, command: &'c mut Command) -> Result<&'c mut Command> {
        self.hosts[host as usize].enter(command)
    }

    /// A way into `host` for processes that others start (see [`Door`]).
    pub fn door(&self, host: Host) -> Door {
        let namespace = &self.hosts[host as usize];
        Door::new(host, namespace.hostname(), namespace.path().into())
    }

    /// Runs `work` on its own thread in `host`. Sockets that it opens stay in the host wherever they are used.
    pub fn inside<T: Send>(&self, host: Host, work: impl FnOnce() -> T + Send) -> Result<T> {
        self.hosts[host as usize].inside(work)
    }

    /// Steers the receive processing of both hosts to `core` (RPS), or back to the sender's core, and reads back the state.
    pub fn steer(&self, core: Option<CoreId>) -> Result<Steering> {
        self.steer_each([core; 2])
    }

    /// As [`Lab::steer`], each host by itself.
    pub fn steer_each(&self, cores: [Option<CoreId>; 2]) -> Result<Steering> {
        for (host, core) in Host::BOTH.into_iter().zip(cores) {
            steering::check(core)?;
            self.inside(host, || steering::write(core))?.map_err(|fault| fault.within(host))?;
        }
        let read = |host: Host| self.inside(host, steering::read)?.map_err(|fault| fault.within(host));
        Ok(Steering { asked: cores, in_force: [read(Host::A)?, read(Host::B)?] })
    }

    /// The state of both hosts, read back from the kernel.
    pub fn status(&self) -> Result<Status> {
        let read = |host: Host| {
            let mut status = self.inside(host, || link::status(host))?.map_err(|fault| fault.within(host))?;
            status.processes = residents::of(&self.hosts[host as usize..=host as usize])?;
            Ok::<_, Fault>(status)
        };
        Ok(Status { hosts: [read(Host::A)?, read(Host::B)?] })
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if self.warden.is_some() {
            // Processes in an owned lab would keep its namespaces. The warden, dropped next, tries again.
            let _ = residents::kill(&self.hosts);
        }
    }
}
