//! Short messages between two processes on one host, with a descriptor in the hand and the kernel's word for the sender.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use machine::{Fault, Result};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, UCred,
};

/// How long a message may take to come.
const PATIENCE: Duration = Duration::from_secs(5);

/// A message: eight words, of which the first two name protocol and version.
pub(crate) type Words = [u64; 8];

/// What came, and from whom.
pub(crate) struct Heard {
    pub words: Words,
    /// By the kernel (`SCM_CREDENTIALS`): right also where a third process made the socket.
    pub sender: UCred,
    pub fd: Option<OwnedFd>,
}

pub(crate) fn fault(cause: impl Into<String>) -> Fault {
    Fault::new("peer on this host", cause, "start both ends from the same build, as the same user")
}

fn broken(e: impl std::error::Error + Send + Sync + 'static) -> Fault {
    Fault::because("socket to a peer on this host", e, "pass a connected Unix stream; look why the other end left")
}

/// Runs `exchange` on a stream that waits for each message, but not for ever; puts the stream's timeout back after.
pub(crate) fn patiently<R>(stream: &UnixStream, exchange: impl FnOnce() -> Result<R>) -> Result<R> {
    let before = stream.read_timeout().map_err(broken)?;
    stream.set_nonblocking(false).map_err(broken)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(broken)?;
    rustix::net::sockopt::set_socket_passcred(stream, true).map_err(broken)?;
    let result = exchange();
    stream.set_read_timeout(before).map_err(broken)?;
    result
}

pub(crate) fn say(stream: &UnixStream, words: &Words, fd: Option<BorrowedFd<'_>>) -> Result<()> {
    let mut bytes = [0; size_of::<Words>()];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    // Attached by the sender, because the kernel does so by itself only if the receiver has asked for it by now.
    let me = UCred { pid: rustix::process::getpid(), uid: rustix::process::getuid(), gid: rustix::process::getgid() };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1), ScmCredentials(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds = fd.map(|fd| [fd]);
    let mut fits = ancillary.push(SendAncillaryMessage::ScmCredentials(me));
    if let Some(fds) = &fds {
        fits &= ancillary.push(SendAncillaryMessage::ScmRights(fds));
    }
    assert!(fits, "the ancillary space is sized for both messages");
    loop {
        match rustix::net::sendmsg(stream, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL) {
            Ok(n) if n == bytes.len() => return Ok(()),
            Ok(_) => return Err(fault("its socket takes only part of a message")),
            Err(Errno::INTR) => {}
            Err(e) => return Err(broken(io::Error::from(e))),
        }
    }
}

/// The next message. A fault unless its sender runs as this process's user.
pub(crate) fn hear(stream: &UnixStream) -> Result<Heard> {
    let mut bytes = [0; size_of::<Words>()];
    let mut filled = 0;
    let (mut sender, mut fd) = (None, None);
    while filled < bytes.len() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1), ScmCredentials(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut into = [IoSliceMut::new(&mut bytes[filled..])];
        match rustix::net::recvmsg(stream, &mut into, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Ok(message) if message.bytes == 0 => return Err(fault("it closed the socket instead of answering")),
            Ok(message) => filled += message.bytes,
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => return Err(fault(format!("it did not answer within {} s", PATIENCE.as_secs()))),
            Err(e) => return Err(broken(io::Error::from(e))),
        }
        for message in ancillary.drain() {
            match message {
                RecvAncillaryMessage::ScmRights(fds) => fd = fds.last().or(fd),
                RecvAncillaryMessage::ScmCredentials(credentials) => sender = Some(credentials),
                _ => {}
            }
        }
    }
    let sender = sender.ok_or_else(|| fault("the kernel does not name its process"))?;
    let me = rustix::process::getuid();
    if sender.uid != me {
        return Err(fault(format!("it runs as user {}, this end as user {}", sender.uid.as_raw(), me.as_raw())));
    }
    let mut words = [0; 8];
    for (word, place) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(place.try_into().expect("chunks of 8"));
    }
    Ok(Heard { words, sender, fd })
}

/// A fault unless `heard` begins with `protocol` and `version`.
pub(crate) fn speaks(heard: &Heard, protocol: u64, version: u64) -> Result<()> {
    match heard.words {
        [p, v, ..] if (p, v) == (protocol, version) => Ok(()),
        [p, v, ..] if p == protocol => Err(fault(format!("it speaks version {v}, this end version {version}"))),
        _ => Err(fault("it does not speak this protocol")),
    }
}
