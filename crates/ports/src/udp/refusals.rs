//! The socket's error queue (`ip(7)`, IP_RECVERR), which tells which peer's host returned a packet.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;

use super::address::RawAddress;
use super::control;

/// Bytes for an extended error, the address of the host that sent it, and a header.
const CONTROL: usize = 128;
/// Most entries read at a time, so that a flood of ICMP does not hold the caller.
const AT_ONCE: usize = 64;

/// Whether an error may be of an earlier packet: the kernel reports it to whichever call comes next.
pub(super) fn may_be_earlier(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::CONNREFUSED
            | Errno::HOSTUNREACH
            | Errno::NETUNREACH
            | Errno::HOSTDOWN
            | Errno::PROTO
            | Errno::NOPROTOOPT
            | Errno::ACCESS
            | Errno::MSGSIZE
            | Errno::OPNOTSUPP
    )
}

/// Reads the entries of the error queue and calls `refused` with the destination of each refused packet. Returns the
/// number of other entries.
pub(super) fn drain(socket: &OwnedFd, mut refused: impl FnMut(RawAddress)) -> u64 {
    let mut other = 0;
    for _ in 0..AT_ONCE {
        let mut name = [0u8; RawAddress::SIZE];
        let mut area = Aligned([0u8; CONTROL]);
        // SAFETY: all-zero is a valid msghdr: null pointers and zero lengths.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_name = name.as_mut_ptr().cast();
        header.msg_namelen = RawAddress::SIZE as libc::socklen_t;
        header.msg_control = area.0.as_mut_ptr().cast();
        header.msg_controllen = CONTROL as _;
        // SAFETY: name and control point to local arrays with their true lengths; there is no payload vector.
        let rc = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT) };
        if rc < 0 {
            break;
        }
        let written = header.msg_controllen.min(CONTROL);
        let named = (header.msg_namelen as usize).min(RawAddress::SIZE);
        match (control::returned_error(&area.0[..written]), RawAddress::parse(&name[..named])) {
            (Some(e), Some(to)) if e.by_icmp && e.errno == libc::ECONNREFUSED => refused(to),
            _ => other += 1,
        }
    }
    other
}

#[repr(C, align(8))]
struct Aligned([u8; CONTROL]);
