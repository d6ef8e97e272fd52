//! How two processes come to share a region: over a connected Unix socket, once.

use std::hash::{BuildHasher, Hasher};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use machine::{Fault, Result};
use rustix::process::{Pid, PidfdFlags};

use super::link::{self, Geometry, Incoming, Outgoing};
use crate::passing::{fault, hear, patiently, say, speaks};
use crate::region::Region;
use crate::remote;

/// The peer that creates the region and the one that joins it. One of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Create,
    Join,
}

const PROTOCOL: u64 = u64::from_le_bytes(*b"plimshm\0");
/// Raised with every change of the layout or of the handshake.
const VERSION: u64 = 1;

/// What the handshake yields.
pub(super) struct Acquaintance {
    pub outgoing: Outgoing,
    pub incoming: Incoming,
    pub pid: Pid,
    pub pidfd: OwnedFd,
    /// This process may read the peer's memory: tried, not assumed.
    pub readable: bool,
    pub mtu: usize,
}

pub(super) fn meet(stream: &UnixStream, role: Role, geometry: Geometry) -> Result<Acquaintance> {
    patiently(stream, || exchange(stream, role, geometry))
}

fn exchange(stream: &UnixStream, role: Role, geometry: Geometry) -> Result<Acquaintance> {
    // The peer tries to read this from our memory; what it finds there proves that it read *our* memory.
    let token = Box::new(std::hash::RandomState::new().build_hasher().finish());
    let hello = |Geometry { slots, bulk, mtu }: Geometry| {
        [PROTOCOL, VERSION, slots as u64, bulk as u64, mtu as u64, &raw const *token as u64, *token, 0]
    };
    let (geometry, region, theirs) = match role {
        Role::Create => {
            geometry.check()?;
            let region = Region::create("plimsoll-shm", geometry.region_length())?;
            say(stream, &hello(geometry), Some(region.fd()))?;
            let theirs = hear(stream)?;
            speaks(&theirs, PROTOCOL, VERSION)?;
            (geometry, region, theirs)
        }
        Role::Join => {
            let mut theirs = hear(stream)?;
            speaks(&theirs, PROTOCOL, VERSION)?;
            let size = |word: u64| usize::try_from(word).unwrap_or(usize::MAX);
            let [_, _, slots, bulk, mtu, ..] = theirs.words;
            let geometry = Geometry { slots: size(slots), bulk: size(bulk), mtu: size(mtu) };
            geometry.check()?;
            let fd = theirs.fd.take().ok_or_else(|| fault("it passed no shared memory"))?;
            let region = Region::adopt(fd, geometry.region_length())?;
            say(stream, &hello(geometry), None)?;
            (geometry, region, theirs)
        }
    };
    let pid = theirs.sender.pid;
    let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty())
        .map_err(|e| Fault::because("peer on this host", e, "keep the peer alive while it connects"))?;
    let [.., address, expected, _] = theirs.words;
    let mut read = [0; 8];
    let readable = remote::read(pid, address, &mut read).is_ok() && u64::from_ne_bytes(read) == expected;
    // The last message also proves that the process behind the pidfd is the one that said hello, not its successor.
    say(stream, &[PROTOCOL, VERSION, 0, 0, 0, 0, 0, 0], None)?;
    let last = hear(stream)?;
    speaks(&last, PROTOCOL, VERSION)?;
    if last.sender.pid != pid {
        return Err(fault("another process answered in the middle of the handshake"));
    }
    let (outgoing, incoming) = link::ends(region, &geometry, role == Role::Create);
    Ok(Acquaintance { outgoing, incoming, pid, pidfd, readable, mtu: geometry.mtu })
}
