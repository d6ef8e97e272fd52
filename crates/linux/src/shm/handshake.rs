//! How two processes come to share a region: over a connected Unix socket, once.
//!
//! The kernel vouches for the peer's process and user in every message (`SCM_CREDENTIALS`), so a socket that was made by a
//! third process (a parent that hands both ends out) names the right peers all the same.

use std::hash::{BuildHasher, Hasher};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use machine::{Fault, Result};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, UCred,
};
use rustix::process::{Pid, PidfdFlags};

use super::link::{self, Geometry, Incoming, Outgoing};
use super::remote;
use crate::region::Region;

/// The peer that creates the region and the one that joins it. One of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Create,
    Join,
}

/// How long each message of the handshake may take.
const PATIENCE: Duration = Duration::from_secs(5);
const MAGIC: u64 = u64::from_le_bytes(*b"plimsoll");
/// Raised with every change of the layout or of the handshake.
const VERSION: u64 = 1;
const WORDS: usize = 8;

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

fn fault(cause: impl Into<String>) -> Fault {
    Fault::new("peer over shared memory", cause, "start both ends from the same build, as the same user")
}

pub(super) fn meet(stream: &UnixStream, role: Role, geometry: Geometry) -> Result<Acquaintance> {
    let before = stream.read_timeout().ok().flatten();
    let io = |e: io::Error| Fault::because("socket to a peer", e, "pass a connected Unix stream socket");
    stream.set_nonblocking(false).map_err(io)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(io)?;
    let met = exchange(stream, role, geometry);
    stream.set_read_timeout(before).map_err(io)?;
    met
}

fn exchange(stream: &UnixStream, role: Role, geometry: Geometry) -> Result<Acquaintance> {
    rustix::net::sockopt::set_socket_passcred(stream, true)
        .map_err(|e| Fault::because("socket to a peer", e, "pass a connected Unix stream socket"))?;
    // The peer tries to read this from our memory; what it finds there proves that it read *our* memory.
    let token = Box::new(std::hash::RandomState::new().build_hasher().finish());
    let hello = |geometry: &Geometry| {
        let figures = [geometry.slots as u64, geometry.bulk as u64, geometry.mtu as u64];
        [MAGIC, VERSION, figures[0], figures[1], figures[2], &raw const *token as u64, *token, 0]
    };
    let (geometry, region, theirs) = match role {
        Role::Create => {
            geometry.check()?;
            let region = Region::create("plimsoll-shm", geometry.region_length())?;
            say(stream, &hello(&geometry), Some(&region))?;
            let theirs = hear(stream)?;
            (geometry, region, theirs)
        }
        Role::Join => {
            let mut theirs = hear(stream)?;
            greeting(&theirs)?;
            let size = |word: u64| usize::try_from(word).unwrap_or(usize::MAX);
            let [_, _, slots, bulk, mtu, ..] = theirs.words;
            let geometry = Geometry { slots: size(slots), bulk: size(bulk), mtu: size(mtu) };
            geometry.check()?;
            let fd = theirs.fd.take().ok_or_else(|| fault("it passed no shared memory"))?;
            let region = Region::adopt(fd, geometry.region_length())?;
            say(stream, &hello(&geometry), None)?;
            (geometry, region, theirs)
        }
    };
    greeting(&theirs)?;
    let pid = theirs.sender.pid;
    let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty())
        .map_err(|e| Fault::because("peer over shared memory", e, "keep the peer alive while it connects"))?;
    let mut read = [0; 8];
    let readable = remote::read(pid, theirs.words[5], &mut read).is_ok() && u64::from_ne_bytes(read) == theirs.words[6];
    // The last message also proves that the process behind the pidfd is the one that said hello, not its successor.
    say(stream, &[MAGIC, VERSION, u64::from(readable), 0, 0, 0, 0, 0], None)?;
    let last = hear(stream)?;
    greeting(&last)?;
    if last.sender.pid != pid {
        return Err(fault("another process answered in the middle of the handshake"));
    }
    let (outgoing, incoming) = link::ends(region, &geometry, role == Role::Create);
    Ok(Acquaintance { outgoing, incoming, pid, pidfd, readable, mtu: geometry.mtu })
}

struct Heard {
    words: [u64; WORDS],
    sender: UCred,
    fd: Option<OwnedFd>,
}

fn greeting(heard: &Heard) -> Result<()> {
    match heard.words {
        [MAGIC, VERSION, ..] => Ok(()),
        [MAGIC, version, ..] => Err(fault(format!("it speaks version {version}, this end version {VERSION}"))),
        _ => Err(fault("it does not speak this protocol")),
    }
}

fn say(stream: &UnixStream, words: &[u64; WORDS], region: Option<&Region>) -> Result<()> {
    let mut bytes = [0; 8 * WORDS];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    let me = UCred { pid: rustix::process::getpid(), uid: rustix::process::getuid(), gid: rustix::process::getgid() };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1), ScmCredentials(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds = region.map(|region| [region.fd()]);
    let mut fits = ancillary.push(SendAncillaryMessage::ScmCredentials(me));
    if let Some(fds) = &fds {
        fits &= ancillary.push(SendAncillaryMessage::ScmRights(fds));
    }
    assert!(fits, "the ancillary space is sized for both messages");
    let sent = loop {
        match rustix::net::sendmsg(stream, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => continue,
            other => break other,
        }
    };
    match sent {
        Ok(n) if n == bytes.len() => Ok(()),
        Ok(_) => Err(fault("the socket takes only part of a message")),
        Err(e) => Err(Fault::because("peer over shared memory", e, "look why the other end closed its socket")),
    }
}

fn hear(stream: &UnixStream) -> Result<Heard> {
    let mut bytes = [0; 8 * WORDS];
    let mut filled = 0;
    let (mut sender, mut fd) = (None, None);
    while filled < bytes.len() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1), ScmCredentials(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut into = [IoSliceMut::new(&mut bytes[filled..])];
        match rustix::net::recvmsg(stream.as_fd(), &mut into, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Ok(message) if message.bytes == 0 => {
                return Err(fault("it closed the socket in the middle of the handshake"));
            }
            Ok(message) => filled += message.bytes,
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => return Err(fault(format!("it did not answer within {} s", PATIENCE.as_secs()))),
            Err(e) => {
                return Err(Fault::because("peer over shared memory", e, "look why the other end closed its socket"));
            }
        }
        for message in ancillary.drain() {
            match message {
                RecvAncillaryMessage::ScmRights(fds) => fd = fds.last().or(fd),
                RecvAncillaryMessage::ScmCredentials(credentials) => sender = Some(credentials),
                _ => {}
            }
        }
    }
    let sender = sender.ok_or_else(|| fault("the kernel does not name it"))?;
    let me = rustix::process::getuid();
    if sender.uid != me {
        return Err(fault(format!("it runs as user {}, this end as user {}", sender.uid.as_raw(), me.as_raw())));
    }
    let mut words = [0; WORDS];
    for (word, place) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(place.try_into().expect("chunks of 8"));
    }
    Ok(Heard { words, sender, fd })
}
