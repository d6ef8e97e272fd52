//! Whose packets a lane may get: those of a socket that its holder can show.

use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use machine::{Fault, Result};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, getsockname, sockopt};

/// From `asm-generic/socket.h` (Linux 5.14).
const SO_NETNS_COOKIE: libc::c_int = 71;
const AN_IPV4_SOCKET: &str = "open the port at an IPv4 address of the interface";

fn fault(cause: impl ToString) -> Fault {
    Fault::new("the socket of a lane", cause.to_string(), AN_IPV4_SOCKET)
}

/// Where `socket` receives: one address and port of the namespace whose cookie is `namespace`.
pub(super) fn endpoint_of(socket: BorrowedFd<'_>, namespace: u64) -> Result<SocketAddrV4> {
    if sockopt::socket_type(socket).map_err(fault)? != SocketType::DGRAM {
        return Err(fault("it is no UDP socket"));
    }
    if cookie(socket).map_err(fault)? != namespace {
        return Err(fault("it is of another network namespace"));
    }
    match getsockname(socket).and_then(SocketAddr::try_from).map_err(fault)? {
        SocketAddr::V4(v4) if IpAddr::V4(*v4.ip()).is_unspecified() || v4.port() == 0 => {
            Err(fault("it is not bound to one address and port"))
        }
        SocketAddr::V4(v4) => Ok(v4),
        SocketAddr::V6(_) => Err(fault("the receiving program reads IPv4 only")),
    }
}

/// What tells the calling thread's network namespace from others.
pub(super) fn namespace_here() -> Result<u64> {
    rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
        .and_then(|socket| cookie(socket.as_fd()))
        .map_err(|e| Fault::because("the number of this network namespace", e, "use Linux 5.14 or newer"))
}

fn cookie(socket: BorrowedFd<'_>) -> std::result::Result<u64, Errno> {
    let mut value = 0u64;
    let mut length = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the option's value is 8 bytes; both pointers live across the call, and `length` is the size of `value`.
    let rc = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_NETNS_COOKIE,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    match rc {
        0 => Ok(value),
        _ => Err(Errno::from_raw_os_error(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))),
    }
}
