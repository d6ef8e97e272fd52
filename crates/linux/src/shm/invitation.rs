//! A one-way link made without the receiver's help: the sender passes the memory over a socket that the receiver looks at
//! when it next has time, and sends from then on. So a rank that computes holds up nobody who writes to it first.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

use machine::{Fault, Result};
use rustix::process::{Pid, PidfdFlags};

use super::Process;
use super::link::{self, Geometry, Incoming, Outgoing};
use crate::passing::{Words, fault, hear, patiently, say, speaks};
use crate::region::Region;
use crate::remote;

const PROTOCOL: u64 = u64::from_le_bytes(*b"plimway\0");
/// Raised with every change of the layout or of the words.
const VERSION: u64 = 1;
const CONFIRMED: u8 = 1;
/// Bytes of an invitation.
const LENGTH: u64 = 2 * size_of::<Words>() as u64;

/// What the inviter says of itself; the port passes it on unread.
pub const INTRODUCTION: usize = size_of::<Words>();

/// The process whose addresses peers are told, and a word of its memory by which they prove that they can read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    pub pid: u32,
    pub address: u64,
    pub word: u64,
}

/// A link that a peer has made towards this process.
pub struct Invitation {
    pub introduction: [u8; INTRODUCTION],
    pub(super) incoming: Incoming,
    /// `None` where the inviter has ended since.
    pub(super) process: Option<Process>,
    pub(super) mtu: usize,
}

/// Makes the memory, passes it over `stream` and waits for nothing.
pub(super) fn invite(
    stream: &UnixStream,
    geometry: &Geometry,
    memory: &Memory,
    introduction: &[u8; INTRODUCTION],
) -> Result<(Outgoing, Process)> {
    geometry.check()?;
    let region = Region::create("plimsoll-way", geometry.one_way_length())?;
    let Geometry { slots, bulk, mtu } = *geometry;
    let Memory { pid, address, word } = *memory;
    let hello = [PROTOCOL, VERSION, slots as u64, bulk as u64, mtu as u64, address, word, u64::from(pid)];
    let mut name: Words = [0; 8];
    for (word, bytes) in name.iter_mut().zip(introduction.chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into().expect("chunks of 8"));
    }
    say(stream, &hello, Some(region.fd()))?;
    say(stream, &name, None)?;
    let listener = rustix::net::sockopt::socket_peercred(stream)
        .map_err(|e| Fault::because("peer on this host", e, "see that it still runs"))?;
    Ok((link::outgoing(region, geometry), Process::open(listener.pid, None)?))
}

impl Invitation {
    /// The invitation that waits on `stream`; `None` where it is not there yet.
    ///
    /// A fault where the sender is another user's process or does not keep to the protocol: drop the stream.
    pub fn take(stream: &UnixStream) -> Result<Option<Invitation>> {
        let waiting = rustix::io::ioctl_fionread(stream).map_err(|e| fault(e.to_string()))?;
        if waiting < LENGTH {
            return Ok(None);
        }
        patiently(stream, || {
            let mut hello = hear(stream)?;
            speaks(&hello, PROTOCOL, VERSION)?;
            let size = |word: u64| usize::try_from(word).unwrap_or(usize::MAX);
            let [_, _, slots, bulk, mtu, address, expected, pid] = hello.words;
            let geometry = Geometry { slots: size(slots), bulk: size(bulk), mtu: size(mtu) };
            geometry.check()?;
            let fd = hello.fd.take().ok_or_else(|| fault("it passed no shared memory"))?;
            let region = Region::adopt(fd, geometry.one_way_length())?;
            let mut introduction = [0; INTRODUCTION];
            for (bytes, word) in introduction.chunks_exact_mut(8).zip(hear(stream)?.words) {
                bytes.copy_from_slice(&word.to_le_bytes());
            }
            // The kernel's number for the sender, unless it says that it works on another's memory.
            let memory = i32::try_from(pid).ok().and_then(Pid::from_raw);
            let mut process = Process::open(hello.sender.pid, memory).ok();
            if let Some(process) = &mut process {
                let mut word = [0; 8];
                process.readable =
                    remote::read(process.memory, address, &mut word).is_ok() && u64::from_ne_bytes(word) == expected;
            }
            let incoming = link::incoming(region, &geometry);
            Ok(Some(Invitation { introduction, incoming, process, mtu: geometry.mtu }))
        })
    }

    /// This process may read the memory that the inviter's requests point to: tried, not assumed.
    pub fn is_readable(&self) -> bool {
        self.process.as_ref().is_some_and(|process| process.readable)
    }
}

/// Tells the inviter that its link is in use.
pub(super) fn confirm(mut stream: &UnixStream) {
    let _ = stream.write_all(&[CONFIRMED]);
}

/// What the invited has made of an invitation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// It has not looked yet.
    None,
    Confirmed,
    /// It has closed the socket, or its endpoint has gone.
    Refused,
}

pub(super) fn answer(mut stream: &UnixStream) -> Answer {
    let mut byte = [0];
    match stream.set_nonblocking(true).and_then(|()| stream.read(&mut byte)) {
        Ok(1) if byte == [CONFIRMED] => Answer::Confirmed,
        Err(e) if e.kind() == ErrorKind::WouldBlock || e.kind() == ErrorKind::Interrupted => Answer::None,
        _ => Answer::Refused,
    }
}

impl Process {
    /// The process `pid`, whose requests point into the memory of `memory` or its own.
    pub(super) fn open(pid: Pid, memory: Option<Pid>) -> Result<Process> {
        let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty())
            .map_err(|e| Fault::because("peer on this host", e, "keep the peer alive while it connects"))?;
        Ok(Process { pid, pidfd, memory: memory.unwrap_or(pid), readable: false })
    }
}
