//! The handshake by which two processes come to share memory, over a connected Unix socket.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use machine::{Fault, Result};

use super::link::{self, Geometry, Incoming, Outgoing};
use super::process::{Memory, Process, identify};
use linux::passing::{Words, fault, hear, patiently, say, speaks};
use linux::region::{self, Mapping};
use linux::remote::Token;

/// The role of a peer: one creates the memory, the other joins it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Create,
    Join,
}

const PROTOCOL: u64 = u64::from_le_bytes(*b"plimshm\0");
/// Raised with every change of the layout or of the handshake.
const VERSION: u64 = 2;

/// The result of the handshake.
pub(super) struct Acquaintance {
    pub outgoing: Outgoing,
    pub incoming: Incoming,
    pub process: Process,
    /// A socket to hold for a peer that does not see this process, and notices its end by the socket.
    pub held: Option<Arc<UnixStream>>,
    pub mtu: usize,
}

/// The memory of a link, made before the peer is met.
pub(super) struct Prepared {
    fd: OwnedFd,
    mapping: Mapping,
}

impl Prepared {
    pub fn new(geometry: &Geometry) -> Result<Prepared> {
        geometry.check()?;
        let fd = region::make("plimsoll-shm", geometry.two_way_length())?;
        let mapping = Mapping::sparse(fd.as_fd(), geometry.two_way_length())?;
        Ok(Prepared { fd, mapping })
    }
}

/// The role in a handshake, with the memory of the one that creates it.
pub(super) enum Part {
    Create(Prepared),
    /// The creator's role, whose offer was sent already.
    Offered(Prepared),
    Join,
}

fn hello(Geometry { slots, bulk, mtu }: Geometry, memory: &Memory) -> Words {
    [PROTOCOL, VERSION, slots as u64, bulk as u64, mtu as u64, memory.address, memory.word, 0]
}

/// Sends the creator's first message. `memory` is this end's.
pub(super) fn offer(stream: &UnixStream, prepared: &Prepared, geometry: Geometry, memory: &Memory) -> Result<()> {
    say(stream, &hello(geometry, memory), Some(prepared.fd.as_fd()))
}

/// Whether both messages of the joining end have arrived, so that [`meet`] does not wait.
pub(super) fn is_answered(stream: &UnixStream) -> Result<bool> {
    let waiting = rustix::io::ioctl_fionread(stream).map_err(|e| fault(e.to_string()))?;
    Ok(waiting >= 2 * size_of::<Words>() as u64)
}

/// Carries the handshake out. `memory` is this end's.
pub(super) fn meet(stream: &UnixStream, part: Part, geometry: Geometry, memory: &Memory) -> Result<Acquaintance> {
    patiently(stream, || exchange(stream, part, geometry, memory))
}

fn exchange(stream: &UnixStream, part: Part, geometry: Geometry, memory: &Memory) -> Result<Acquaintance> {
    let creates = !matches!(part, Part::Join);
    if let Part::Create(prepared) = &part {
        offer(stream, prepared, geometry, memory)?;
    }
    let (geometry, mapping, theirs) = match part {
        Part::Create(Prepared { fd, mapping }) | Part::Offered(Prepared { fd, mapping }) => {
            let theirs = hear(stream)?;
            speaks(&theirs, PROTOCOL, VERSION)?;
            // The peer's process may need the descriptor, if it was the last one.
            drop(fd);
            (geometry, mapping, theirs)
        }
        Part::Join => {
            let theirs = hear(stream)?;
            speaks(&theirs, PROTOCOL, VERSION)?;
            let size = |word: u64| usize::try_from(word).unwrap_or(usize::MAX);
            let [_, _, slots, bulk, mtu, ..] = theirs.words;
            let geometry = Geometry { slots: size(slots), bulk: size(bulk), mtu: size(mtu) };
            geometry.check()?;
            let fd = theirs.fd.as_ref().ok_or_else(|| fault("it passed no shared memory"))?.as_fd();
            region::check(fd, geometry.two_way_length())?;
            let mapping = Mapping::sparse(fd, geometry.two_way_length())?;
            say(stream, &hello(geometry, memory), None)?;
            (geometry, mapping, theirs)
        }
    };
    let socket = || match stream.try_clone() {
        Ok(socket) => Ok(Arc::new(socket)),
        Err(e) => Err(Fault::because("peer on this host", e, "raise the limit on open files (ulimit -n)")),
    };
    let [.., address, word, _] = theirs.words;
    let process = match identify(&theirs.sender, stream)? {
        Some(held) => Process::new(held.clone(), Some(held), Token { address, word }),
        None => Process::unseen(socket()?),
    };
    // The last message is sent after each end has tried the other's memory.
    say(stream, &[PROTOCOL, VERSION, u64::from(!process.is_seen()), 0, 0, 0, 0, 0], None)?;
    let last = hear(stream)?;
    speaks(&last, PROTOCOL, VERSION)?;
    if last.sender != theirs.sender {
        return Err(fault("another process answered in the middle of the handshake"));
    }
    let (outgoing, incoming) = link::ends(mapping, &geometry, creates)?;
    let held = (last.words[2] != 0).then(socket).transpose()?;
    Ok(Acquaintance { outgoing, incoming, process, held, mtu: geometry.mtu })
}
