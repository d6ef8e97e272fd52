//! A one-way link made without the receiver's help: the sender passes the memory over a socket that the receiver reads when it
//! next has time, and sends from then on. So a rank that computes does not hold up peers that write to it first.
//!
//! The socket lives until the receiver has answered; the memory needs no descriptor once both have mapped it.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process;
use std::sync::Arc;

use machine::{Fault, Result};

use super::link::{self, Geometry, Outgoing};
use super::process::{Memory, Process, identify};
use linux::credentials::{self, Credentials};
use linux::identity::Identity;
use linux::loan;
use linux::passing::{Words, fault, hear, patiently, peek, say, skip, speaks};
use linux::region::{self, Mapping};
use linux::remote::Token;
use linux::shortage::{self, Need};

const PROTOCOL: u64 = u64::from_le_bytes(*b"plimway\0");
/// Raised with every change of the layout or of the words.
const VERSION: u64 = 3;
/// First word of the answer to an invitation.
const CONFIRMED: u64 = u64::from_le_bytes(*b"plimyes\0");
/// Flag: the sender of this does not see the other process, which is to hold the socket.
const HOLD: u64 = 1;
/// Flag: the memory is another process's, lent to the sender of this.
const LENT: u64 = 2;
/// Length of an invitation in bytes.
const LENGTH: u64 = 2 * size_of::<Words>() as u64;

/// Length of the inviter's introduction, which the port passes on unread.
pub const INTRODUCTION: usize = size_of::<Words>();

/// A link that a peer has made towards this process.
pub struct Invitation {
    pub introduction: [u8; INTRODUCTION],
    pub(super) mapping: Mapping,
    pub(super) geometry: Geometry,
    /// The inviter's process; `None` where its PID namespace is not visible here.
    pub(super) process: Option<Process>,
    /// Whether the inviter does not see this process, and notices its end by the socket.
    pub(super) hold: bool,
}

/// An end's statement about itself. Its identity comes from the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Announcement {
    /// Token of the memory that its requests point into.
    token: Token,
    lent: bool,
    /// Whether the other end is to hold the socket.
    pub hold: bool,
}

impl Announcement {
    pub fn of(&Memory { pid, address, word }: &Memory, hold: bool) -> Announcement {
        Announcement { token: Token { address, word }, lent: pid != process::id(), hold }
    }

    fn words(&self) -> [u64; 3] {
        let hold = if self.hold { HOLD } else { 0 };
        let lent = if self.lent { LENT } else { 0 };
        [self.token.address, self.token.word, hold | lent]
    }

    fn read([address, word, how]: [u64; 3]) -> Option<Announcement> {
        let (lent, hold) = (how & LENT != 0, how & HOLD != 0);
        (how & !(LENT | HOLD) == 0).then_some(Announcement { token: Token { address, word }, lent, hold })
    }

    /// The process `held`, which made this statement, as this end sees it.
    pub fn process(&self, held: Arc<Identity>) -> Process {
        let owner = if self.lent { loan::lender(&held, self.token.word) } else { Some(held.clone()) };
        Process::new(held, owner, self.token)
    }
}

/// The process at the other end of the socket.
fn other_end(stream: &UnixStream) -> Result<Credentials> {
    credentials::of_peer(stream).map_err(|e| Fault::because("peer on this host", e, "see that it still runs"))
}

/// A peer that was invited and has not answered yet.
pub(super) struct Invited {
    pub stream: UnixStream,
    /// The peer's identity; `None` where its PID namespace is not visible here.
    pub held: Option<Arc<Identity>>,
}

/// Makes the memory and passes it over `stream`, without waiting. `memory` is this end's.
pub(super) fn invite(
    stream: UnixStream,
    geometry: &Geometry,
    memory: &Memory,
    introduction: &[u8; INTRODUCTION],
) -> Result<(Outgoing, Invited)> {
    geometry.check()?;
    let held = identify(&other_end(&stream)?, &stream)?;
    let fd = region::make("plimsoll-way", geometry.one_way_length())?;
    let outgoing = link::outgoing(Mapping::sparse(fd.as_fd(), geometry.one_way_length())?, geometry)?;
    let Geometry { slots, bulk, mtu } = *geometry;
    let [address, word, how] = Announcement::of(memory, held.is_none()).words();
    let hello = [PROTOCOL, VERSION, slots as u64, bulk as u64, mtu as u64, address, word, how];
    let mut name: Words = [0; 8];
    for (word, bytes) in name.iter_mut().zip(introduction.chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into().expect("chunks of 8"));
    }
    say(&stream, &hello, Some(fd.as_fd()))?;
    say(&stream, &name, None)?;
    Ok((outgoing, Invited { stream, held }))
}

impl Invitation {
    /// The invitation that waits on `stream`; `None` where it is not there yet.
    ///
    /// A fault where the sender is another user's process or violates the protocol: drop the stream. Where the fault
    /// may pass ([`linux::shortage::may_pass`]) the invitation still waits.
    pub fn take(stream: &UnixStream) -> Result<Option<Invitation>> {
        let waiting = rustix::io::ioctl_fionread(stream).map_err(|e| fault(e.to_string()))?;
        if waiting < LENGTH {
            return Ok(None);
        }
        patiently(stream, || {
            let hello = match peek(stream) {
                Err(fault) if shortage::may_pass(&fault) && shortage::spend_reserve(Need::Memory) => peek(stream)?,
                other => other?,
            };
            speaks(&hello, PROTOCOL, VERSION)?;
            let size = |word: u64| usize::try_from(word).unwrap_or(usize::MAX);
            let [_, _, slots, bulk, mtu, address, word, how] = hello.words;
            let geometry = Geometry { slots: size(slots), bulk: size(bulk), mtu: size(mtu) };
            geometry.check()?;
            let named = other_end(stream)?;
            if hello.sender.process != named.process {
                return Err(fault("another process speaks than has connected"));
            }
            let said = Announcement::read([address, word, how]).ok_or_else(|| fault("it says what has no meaning"))?;
            let fd = hello.fd.ok_or_else(|| fault("it passed no shared memory"))?;
            region::check(fd.as_fd(), geometry.one_way_length())?;
            let mapping = Mapping::sparse(fd.as_fd(), geometry.one_way_length())?;
            // Frees a descriptor for the one of the process.
            drop(fd);
            let held = identify(&named, stream)?;
            // From here on no shortage can occur.
            skip(stream)?;
            let mut introduction = [0; INTRODUCTION];
            for (bytes, word) in introduction.chunks_exact_mut(8).zip(hear(stream)?.words) {
                bytes.copy_from_slice(&word.to_le_bytes());
            }
            let process = held.map(|held| said.process(held));
            Ok(Some(Invitation { introduction, mapping, geometry, process, hold: said.hold }))
        })
    }

    /// Whether the inviter has a process number here. In an invisible PID namespace it has none, and its memory cannot be read.
    pub fn is_seen(&self) -> bool {
        self.process.is_some()
    }

    /// Whether this process may read the memory that the inviter's requests point to, as tried.
    pub fn is_readable(&self) -> bool {
        self.process.as_ref().is_some_and(Process::is_readable)
    }
}

/// Tells the inviter that its link is in use, with this end's statement. An inviter that has gone does not hear it.
pub(super) fn confirm(mut stream: &UnixStream, said: &Announcement) {
    let [address, word, how] = said.words();
    let _ = stream.write_all(&[CONFIRMED, address, word, how].map(u64::to_le_bytes).concat());
}

/// The invited peer's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// No answer yet.
    None,
    Confirmed(Announcement),
    /// The peer has closed the socket, or its endpoint is gone.
    Refused,
}

impl Invited {
    pub fn answer(&self) -> Answer {
        let (mut stream, mut bytes) = (&self.stream, [0; 32]);
        match stream.set_nonblocking(true).and_then(|()| stream.read(&mut bytes)) {
            Ok(32) => {
                let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[8 * at + i]));
                match (word(0), Announcement::read([word(1), word(2), word(3)])) {
                    (CONFIRMED, Some(said)) => Answer::Confirmed(said),
                    _ => Answer::Refused,
                }
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock || e.kind() == ErrorKind::Interrupted => Answer::None,
            _ => Answer::Refused,
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;

    /// The fault of an invitation that passes `memory` and ends with `how`.
    fn refusal(memory: impl AsFd, how: u64) -> Fault {
        let Geometry { slots, bulk, mtu } = Geometry::default();
        let (mine, theirs) = UnixStream::pair().unwrap();
        let hello = [PROTOCOL, VERSION, slots as u64, bulk as u64, mtu as u64, 0, 0, how];
        for _ in 0..2 {
            say(&theirs, &hello, Some(memory.as_fd())).unwrap();
        }
        Invitation::take(&mine).err().expect("a refusal")
    }

    #[test]
    fn an_invitation_into_memory_that_could_shrink_is_refused() {
        let memory = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&memory, Geometry::default().one_way_length() as u64).unwrap();
        assert_eq!(refusal(memory, 0).cause(), "its size is not sealed");
    }

    #[test]
    fn an_invitation_that_says_more_than_it_may_is_refused() {
        let memory = region::make("test", Geometry::default().one_way_length()).unwrap();
        assert_eq!(refusal(memory, u64::from(process::id()) << 2).cause(), "it says what has no meaning");
    }
}
