//! Short messages between two processes on one host, each with a descriptor and the sender as the kernel names it.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use machine::{Fault, Result};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

use crate::control_messages::messages;
use crate::credentials::Credentials;
use crate::user;

/// Longest wait for a message.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A message: eight words, of which the first two name protocol and version.
pub type Words = [u64; 8];

/// A message received, with its sender.
pub struct Heard {
    pub words: Words,
    /// The sender, as the kernel names it (`SCM_CREDENTIALS`): right also where a third process made the socket.
    pub sender: Credentials,
    pub fd: Option<OwnedFd>,
}

/// The fault of a peer on this host that misbehaved.
pub fn fault(cause: impl Into<String>) -> Fault {
    Fault::new("peer on this host", cause, "start both ends from the same build, as the same user")
}

fn broken(e: impl std::error::Error + Send + Sync + 'static) -> Fault {
    Fault::because("socket to a peer on this host", e, "look why the other end left")
}

fn short_of_descriptors(error: io::Error) -> Fault {
    Fault::because("descriptor from a peer on this host", error, "raise the limit on open files (ulimit -n)")
}

/// Runs `exchange` with a receive timeout on the stream, and restores the stream's own afterwards.
pub fn patiently<R>(stream: &UnixStream, exchange: impl FnOnce() -> Result<R>) -> Result<R> {
    let before = stream.read_timeout().map_err(broken)?;
    stream.set_nonblocking(false).map_err(broken)?;
    stream.set_read_timeout(Some(TIMEOUT)).map_err(broken)?;
    rustix::net::sockopt::set_socket_passcred(stream, true).map_err(broken)?;
    let result = exchange();
    stream.set_read_timeout(before).map_err(broken)?;
    result
}

/// Sends a message, with a descriptor if given.
///
/// # Errors
/// The other end is gone, or the stream takes no whole message.
pub fn say(stream: &UnixStream, words: &Words, fd: Option<BorrowedFd<'_>>) -> Result<()> {
    let mut bytes = [0; size_of::<Words>()];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    // The kernel attaches the credentials where one end has asked for them by now. Attached here they would be refused in a
    // user namespace in which this process's user has no number.
    rustix::net::sockopt::set_socket_passcred(stream, true).map_err(broken)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds = fd.map(|fd| [fd]);
    let fits = fds.as_ref().is_none_or(|fds| ancillary.push(SendAncillaryMessage::ScmRights(fds)));
    assert!(fits, "the ancillary space is sized for a descriptor");
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
pub fn hear(stream: &UnixStream) -> Result<Heard> {
    receive(stream, RecvFlags::empty())
}

/// The next message, which must have arrived and is not consumed. Without a free descriptor, the fault may pass.
pub fn peek(stream: &UnixStream) -> Result<Heard> {
    receive(stream, RecvFlags::PEEK)
}

/// Consumes the message that [`peek`] has shown, without its descriptor.
pub fn skip(stream: &UnixStream) -> Result<()> {
    match rustix::net::recv(stream, &mut [0u8; size_of::<Words>()][..], RecvFlags::empty()) {
        Ok(_) => Ok(()),
        Err(e) => Err(broken(io::Error::from(e))),
    }
}

fn receive(stream: &UnixStream, flags: RecvFlags) -> Result<Heard> {
    let mut bytes = [0; size_of::<Words>()];
    let (mut sender, mut fd) = (None, None);
    let (length, cut) = loop {
        match receive_some(stream, &mut bytes, flags, &mut sender, &mut fd) {
            Ok(came) => break came,
            Err(e) => match Errno::from_io_error(&e) {
                Some(Errno::INTR) => {}
                Some(Errno::AGAIN) => return Err(fault(format!("it did not answer within {} s", TIMEOUT.as_secs()))),
                _ => return Err(broken(e)),
            },
        }
    };
    // A message is written in one piece, so a partial one is not waited for again and again.
    match length {
        0 => return Err(fault("it closed the socket instead of answering")),
        length if length < bytes.len() => return Err(fault("it sends messages of other lengths")),
        _ => {}
    }
    if cut && fd.is_none() {
        return Err(short_of_descriptors(Errno::MFILE.into()));
    }
    let sender = sender.ok_or_else(|| fault("the kernel does not name its process"))?;
    let me = rustix::process::getuid();
    if !user::is(me, &sender, stream).map_err(short_of_descriptors)? {
        let me = me.as_raw();
        return Err(match sender.user == me {
            true => fault("users have no numbers in this user namespace, and it is in another one"),
            false => fault(format!("it runs as user {}, this end as user {me}", sender.user)),
        });
    }
    let mut words = [0; 8];
    for (word, place) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(place.try_into().expect("chunks of 8"));
    }
    Ok(Heard { words, sender, fd })
}

/// Bytes for a descriptor and credentials, each with a header, padded to whole words.
const CONTROL: usize = 2 * size_of::<libc::cmsghdr>() + 8 + size_of::<libc::ucred>().next_multiple_of(8);

#[repr(C, align(8))]
struct Control([u8; CONTROL]);

/// One `recvmsg`: the sender, the last descriptor, and whether a descriptor found no place. Not rustix's, whose
/// credentials cannot hold a sender without a number here.
fn receive_some(
    stream: &UnixStream,
    into: &mut [u8],
    flags: RecvFlags,
    sender: &mut Option<Credentials>,
    fd: &mut Option<OwnedFd>,
) -> io::Result<(usize, bool)> {
    let mut control = Control([0; CONTROL]);
    let mut place = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    // SAFETY: all-zero is a valid msghdr: null pointers and zero lengths.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    (header.msg_iov, header.msg_iovlen) = (&raw mut place, 1);
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = CONTROL as _;
    let flags = flags.bits() as i32 | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: the vector is `into`, the control area a local array; both are passed with their true lengths.
    let n = unsafe { libc::recvmsg(stream.as_raw_fd(), &raw mut header, flags) };
    let n = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
    let written = header.msg_controllen.min(CONTROL);
    for message in messages(&control.0[..written]).filter(|message| message.level == libc::SOL_SOCKET) {
        match message.kind {
            libc::SCM_RIGHTS => {
                for number in message.data.chunks_exact(size_of::<RawFd>()) {
                    let number = RawFd::from_ne_bytes(number.try_into().expect("chunks of that size"));
                    // SAFETY: the kernel has just made this descriptor for this process and told nobody else of it.
                    *fd = Some(unsafe { OwnedFd::from_raw_fd(number) });
                }
            }
            libc::SCM_CREDENTIALS if message.data.len() == size_of::<libc::ucred>() => {
                // SAFETY: the data is as long as a `ucred`, for which any bits are valid.
                let kernels = unsafe { message.data.as_ptr().cast::<libc::ucred>().read_unaligned() };
                *sender = Credentials::of_message(kernels);
            }
            _ => {}
        }
    }
    Ok((n, header.msg_flags & libc::MSG_CTRUNC != 0))
}

/// A fault unless `heard` begins with `protocol` and `version`.
pub fn speaks(heard: &Heard, protocol: u64, version: u64) -> Result<()> {
    match heard.words {
        [p, v, ..] if (p, v) == (protocol, version) => Ok(()),
        [p, v, ..] if p == protocol => Err(fault(format!("it speaks version {v}, this end version {version}"))),
        _ => Err(fault("it does not speak this protocol")),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_message_that_comes_in_parts_is_not_waited_for() {
        let (mine, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(&[1; 8]).unwrap();
        let fault = patiently(&mine, || hear(&mine)).err().expect("a refusal");
        assert_eq!(fault.cause(), "it sends messages of other lengths");
    }
}
