//! The process at the other end of a socket, as the kernel names it.
//!
//! A process of an invisible PID namespace has no number here: the kernel says 0, which rustix's `Pid` cannot hold and
//! system calls take for the caller itself. It is `None` here.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Pid;

/// The process that made a socket, or sent a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Credentials {
    /// Its number; `None` in a PID namespace that is not visible here.
    pub process: Option<Pid>,
    pub user: u32,
}

impl From<libc::ucred> for Credentials {
    fn from(kernels: libc::ucred) -> Self {
        Credentials { process: Pid::from_raw(kernels.pid.max(0)), user: kernels.uid }
    }
}

impl Credentials {
    /// The credentials of a message; `None` without: the kernel then says process 0 and the user for unknown ones.
    pub fn of_message(kernels: libc::ucred) -> Option<Self> {
        (kernels.pid > 0 || kernels.uid != UNKNOWN_USER).then(|| kernels.into())
    }
}

/// The kernel's default user for unknown ones (`/proc/sys/kernel/overflowuid`).
pub(crate) const UNKNOWN_USER: u32 = 65_534;

/// A generic socket option that libc does not name.
const SO_PEERPIDFD: libc::c_int = 77;

/// Whether the other end has closed; its earlier messages can still be read.
pub fn has_hung_up(socket: impl AsFd) -> bool {
    matches!(poll(&mut [PollFd::new(&socket, PollFlags::RDHUP)], Some(&Timespec::default())), Ok(1))
}

/// The process that connected a Unix socket, or listened at it.
pub fn of_peer(socket: impl AsFd) -> io::Result<Credentials> {
    let kernels = option(socket, libc::SO_PEERCRED, libc::ucred { pid: 0, uid: 0, gid: 0 })?;
    Ok(kernels.into())
}

/// A descriptor of that process, even if its number was reused.
///
/// # Errors
/// `ENOPROTOOPT` before Linux 6.5.
pub(crate) fn descriptor_of_peer(socket: impl AsFd) -> io::Result<OwnedFd> {
    let number: RawFd = option(socket, SO_PEERPIDFD, -1)?;
    // SAFETY: the kernel has just made this descriptor for this process and told nobody else of it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// The value of a socket option, a number or a structure of numbers, written into `into`.
fn option<T>(socket: impl AsFd, name: libc::c_int, mut into: T) -> io::Result<T> {
    let mut length = size_of::<T>() as libc::socklen_t;
    let (socket, value) = (socket.as_fd().as_raw_fd(), (&raw mut into).cast());
    // SAFETY: the kernel writes at most `length` bytes, the size of `into`, of which any bits are a value.
    let outcome = unsafe { libc::getsockopt(socket, libc::SOL_SOCKET, name, value, &raw mut length) };
    if outcome != 0 { Err(io::Error::last_os_error()) } else { Ok(into) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_of_this_process_is_this_process_and_number_0_is_nobody() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let peer = of_peer(&one).unwrap();
        assert_eq!(peer.process, Some(rustix::process::getpid()));
        assert_eq!(peer.user, rustix::process::geteuid().as_raw());
        assert_eq!(Credentials::from(libc::ucred { pid: 0, uid: 7, gid: 7 }).process, None);
    }

    #[test]
    fn a_message_without_credentials_is_nobodys_and_one_of_another_pid_namespace_is_its_users() {
        let of = |pid, uid| Credentials::of_message(libc::ucred { pid, uid, gid: uid });
        assert_eq!(of(0, UNKNOWN_USER), None);
        assert_eq!(of(0, 7), Some(Credentials { process: None, user: 7 }));
        assert_eq!(of(9, UNKNOWN_USER).unwrap().process.unwrap().as_raw_nonzero().get(), 9);
    }
}
