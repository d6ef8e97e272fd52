//! Who is at the other end of a socket, by the kernel's word.
//!
//! A process of a PID namespace that is not seen from here has no number here: the kernel says 0, which rustix's `Pid`
//! cannot hold and system calls take for the caller itself. It is `None` here.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::process::Pid;

/// The process that made a socket, or sent a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Credentials {
    /// `None`: it is in a PID namespace that is not seen from here.
    pub process: Option<Pid>,
    pub user: u32,
}

impl From<libc::ucred> for Credentials {
    fn from(kernels: libc::ucred) -> Self {
        Credentials { process: Pid::from_raw(kernels.pid.max(0)), user: kernels.uid }
    }
}

impl Credentials {
    /// `None` where a message came without: the kernel then says process 0 and the user that stands for unknown ones.
    pub fn of_message(kernels: libc::ucred) -> Option<Self> {
        (kernels.pid > 0 || kernels.uid != UNKNOWN_USER).then(|| kernels.into())
    }
}

/// As the kernel has it unless told otherwise (`/proc/sys/kernel/overflowuid`).
const UNKNOWN_USER: u32 = 65_534;

/// Who connected a Unix socket, or listened at it.
pub fn of_peer(socket: impl AsFd) -> io::Result<Credentials> {
    let mut kernels = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    let socket = socket.as_fd().as_raw_fd();
    let into = (&raw mut kernels).cast();
    // SAFETY: the kernel writes at most `length` bytes, which is the size of what `into` points to; any bits are a `ucred`.
    let outcome = unsafe { libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, into, &raw mut length) };
    if outcome != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(kernels.into())
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
