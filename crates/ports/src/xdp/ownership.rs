//! Entitlement to packets: a lane gets those of a socket that its holder can show.

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use machine::{Fault, Result};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, getsockname, sockopt};

/// From `asm-generic/socket.h` (Linux 5.14).
const SO_NETNS_COOKIE: libc::c_int = 71;
const A_SOCKET_THERE: &str = "open the port at an address of the interface";

fn fault(cause: impl ToString) -> Fault {
    Fault::new("the socket of a lane", cause.to_string(), A_SOCKET_THERE)
}

/// The address at which `socket` receives at the interface of index `interface`: one address and port, without a scope,
/// of the namespace with cookie `namespace`.
pub(super) fn endpoint_of(socket: BorrowedFd<'_>, namespace: u64, interface: u32) -> Result<SocketAddr> {
    if sockopt::socket_type(socket).map_err(fault)? != SocketType::DGRAM {
        return Err(fault("it is no UDP socket"));
    }
    if cookie(socket).map_err(fault)? != namespace {
        return Err(fault("it is of another network namespace"));
    }
    let bound = getsockname(socket).and_then(SocketAddr::try_from).map_err(fault)?;
    // An IPv6 socket may be bound to an IPv4 address, whose packets are IPv4.
    let endpoint = SocketAddr::new(bound.ip().to_canonical(), bound.port());
    if endpoint.ip().is_unspecified() || endpoint.port() == 0 {
        return Err(fault("it is not bound to one address and port"));
    }
    match bound {
        SocketAddr::V6(v6) if ![0, interface].contains(&v6.scope_id()) => {
            Err(fault("its address is one of another interface's link"))
        }
        _ => Ok(endpoint),
    }
}

/// The cookie of the calling thread's network namespace.
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
