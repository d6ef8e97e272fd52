//! The socket of a UDP port: opens it, grows its buffers, probes its features.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use machine::{Bytes, Fault, Result};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, connect, connect_unspec, getsockname, socket_with, sockopt,
};
use serde::{Deserialize, Serialize};

/// Buffer size asked for in each direction; the kernel grants it to root, and `net.core.?mem_max` to others.
const WANTED_BUFFER: usize = 16 << 20;

/// The largest datagram: 65,535 less the headers that its 16-bit length fields count.
const LARGEST_V4: usize = 65_535 - 20 - 8;
/// The largest datagram over IPv6: it could be 40 bytes larger, but not if segmented.
const LARGEST_V6: usize = 65_535 - 40 - 8;

/// Features of the kernel that a UDP port uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UdpFeatures {
    /// UDP_SEGMENT (Linux 4.18): one send carries up to 64 equal packets.
    pub segmentation: bool,
    /// UDP_GRO (Linux 5.0): packets that arrive together are received as one.
    pub joining: bool,
    /// IP_RECVERR: the port learns which peer's host refused a packet.
    pub refusals: bool,
}

/// The socket's buffers as granted. The kernel charges a packet's memory (at least about 800 B, on some drivers a
/// page), not its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UdpBuffers {
    pub receive: Bytes,
    pub send: Bytes,
    /// Whether they exceed the system's limit, which takes CAP_NET_ADMIN.
    pub forced: bool,
}

impl UdpBuffers {
    /// Number of packets of `payload` bytes that certainly fit in the receive buffer at once: the limit of all peers' windows
    /// together. Modelled: each packet is charged its payload rounded up to pages plus 1 KiB for its descriptors.
    pub fn receive_window(&self, payload: Bytes) -> u64 {
        let charge = payload.0.max(1).next_multiple_of(4096) + 1024;
        self.receive.0 / charge
    }
}

pub(super) fn open(local: SocketAddr) -> Result<(OwnedFd, SocketAddr)> {
    let subject = || format!("UDP port at {local}");
    let family = if local.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::DGRAM, flags, None)
        .map_err(|e| Fault::because(subject(), e, "check that the kernel has this address family"))?;
    if local.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)
            .map_err(|e| Fault::because(subject(), e, "use an IPv4 address on this kernel"))?;
    }
    bind(&socket, &local).map_err(|e| {
        let next = match e {
            Errno::ADDRINUSE => "choose another port number, or 0 for any",
            Errno::ADDRNOTAVAIL => "choose an address of this host; `ip address` lists them",
            Errno::ACCESS => "choose a port number over 1023",
            _ => "choose another address",
        };
        Fault::because(subject(), e, next)
    })?;
    let bound = getsockname(&socket)
        .and_then(SocketAddr::try_from)
        .map_err(|e| Fault::because(subject(), e, "report this: the socket has no address"))?;
    Ok((socket, bound))
}

/// Grows both buffers as far as this user may, and reads back what was granted.
pub(super) fn grow_buffers(socket: &OwnedFd) -> Result<UdpBuffers> {
    let forced = sockopt::set_socket_recv_buffer_size_force(socket, WANTED_BUFFER).is_ok()
        && sockopt::set_socket_send_buffer_size_force(socket, WANTED_BUFFER).is_ok();
    let granted = || -> rustix::io::Result<UdpBuffers> {
        if !forced {
            sockopt::set_socket_recv_buffer_size(socket, WANTED_BUFFER)?;
            sockopt::set_socket_send_buffer_size(socket, WANTED_BUFFER)?;
        }
        let receive = Bytes(sockopt::socket_recv_buffer_size(socket)? as u64);
        let send = Bytes(sockopt::socket_send_buffer_size(socket)? as u64);
        Ok(UdpBuffers { receive, send, forced })
    };
    granted().map_err(|e| Fault::because("socket buffers", e, "raise net.core.rmem_max and net.core.wmem_max"))
}

/// Connects the socket to `peer`: packets of others are refused, and sends need no route lookup.
pub(super) fn connect_to(socket: &OwnedFd, peer: SocketAddr) -> rustix::io::Result<()> {
    connect(socket, &peer)
}

/// Undoes [`connect_to`] for a socket bound to `local`.
pub(super) fn disconnect(socket: &OwnedFd, local: SocketAddr) -> Result<()> {
    let port_of = |socket| getsockname(socket).and_then(SocketAddr::try_from).map(|address| address.port());
    // The kernel frees a port number that it chose itself when it disconnects.
    connect_unspec(socket)
        .and_then(|()| if port_of(socket)? == local.port() { Ok(()) } else { bind(socket, &local) })
        .map_err(|e| Fault::because(format!("UDP port at {local}"), e, "add all peers before the first packet"))
}

/// Turns on the features that the kernel has.
pub(super) fn probe(socket: &OwnedFd, v6: bool) -> UdpFeatures {
    let (level, errors) = if v6 { (libc::SOL_IPV6, libc::IPV6_RECVERR) } else { (libc::SOL_IP, libc::IP_RECVERR) };
    UdpFeatures {
        // Segmentation is requested per send; setting 0 here changes nothing, but tells whether the kernel knows the option.
        segmentation: set_option(socket, libc::SOL_UDP, libc::UDP_SEGMENT, 0).is_ok(),
        joining: set_option(socket, libc::SOL_UDP, libc::UDP_GRO, 1).is_ok(),
        refusals: set_option(socket, level, errors, 1).is_ok(),
    }
}

/// A second socket for route queries. It is opened with the port's own, since a socket belongs to the network namespace
/// in which it was opened, which a thread may have left since.
pub(super) struct RouteProbe(OwnedFd);

impl RouteProbe {
    pub fn open(local: SocketAddr) -> Result<Self> {
        let family = if local.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let mut own = local;
        own.set_port(0);
        socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
            .and_then(|probe| bind(&probe, &own).map(|()| RouteProbe(probe)))
            .map_err(|e| Fault::because(format!("route probe at {own}"), e, "close descriptors that are not needed"))
    }

    /// Length of the largest payload that the route to `peer` carries in one piece, as the kernel knows it now.
    pub fn payload(&self, peer: SocketAddr) -> Result<usize> {
        connect(&self.0, &peer)
            .and_then(|()| if peer.is_ipv4() { sockopt::ip_mtu(&self.0) } else { sockopt::ipv6_mtu(&self.0) })
            .map(|mtu| payload_of_mtu(mtu as usize, peer.ip()))
            .map_err(|e| Fault::because(format!("peer {peer}"), e, "check `ip route get` for its address"))
    }
}

/// The payload before any peer is known: by loopback's own MTU, else by Ethernet's.
pub(super) fn default_payload(local: SocketAddr) -> usize {
    payload_of_mtu(if local.ip().is_loopback() { 65_536 } else { 1_500 }, local.ip())
}

fn payload_of_mtu(mtu: usize, ip: IpAddr) -> usize {
    if ip.is_ipv4() { mtu.saturating_sub(28).min(LARGEST_V4) } else { mtu.saturating_sub(48).min(LARGEST_V6) }
}

pub(super) fn largest_datagram(ip: IpAddr) -> usize {
    if ip.is_ipv4() { LARGEST_V4 } else { LARGEST_V6 }
}

fn set_option(socket: &impl AsFd, level: i32, name: i32, value: i32) -> std::result::Result<(), Errno> {
    let length = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the option's value is an int that lives across the call, with its true length.
    let rc = unsafe { libc::setsockopt(socket.as_fd().as_raw_fd(), level, name, (&raw const value).cast(), length) };
    if rc == 0 { Ok(()) } else { Err(last_errno()) }
}

/// Number of datagrams dropped by the kernel since the socket was opened, because the receive buffer was full.
pub(super) fn receive_drops(socket: &impl AsFd) -> Result<u64> {
    const DROPS: usize = libc::SK_MEMINFO_DROPS as usize;
    let mut values = [0u32; DROPS + 1];
    let mut length = size_of_val(&values) as libc::socklen_t;
    // SAFETY: `values` and `length` live across the call and `length` is the size of `values`.
    let rc = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            values.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if rc != 0 || (length as usize) < size_of_val(&values) {
        return Err(Fault::because("socket memory", last_errno(), "use Linux 4.12 or newer to see kernel drops"));
    }
    Ok(u64::from(values[DROPS]))
}

#[cfg(test)]
pub(super) fn without_joining(socket: &OwnedFd) {
    set_option(socket, libc::SOL_UDP, libc::UDP_GRO, 0).expect("joining can be turned off again");
}

pub(super) fn last_errno() -> Errno {
    Errno::from_raw_os_error(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_leaves_room_for_the_headers() {
        let v4: IpAddr = "10.0.0.1".parse().unwrap();
        let v6: IpAddr = "fd00::1".parse().unwrap();
        assert_eq!((payload_of_mtu(1500, v4), payload_of_mtu(1500, v6)), (1472, 1452));
        assert_eq!((payload_of_mtu(9000, v4), payload_of_mtu(65_536, v4)), (8972, 65_507));
        assert_eq!((payload_of_mtu(65_536, v6), payload_of_mtu(20, v4)), (65_487, 0));
    }

    #[test]
    fn a_window_of_large_packets_counts_their_pages() {
        let buffers = UdpBuffers { receive: Bytes(1 << 20), send: Bytes(0), forced: false };
        assert_eq!(buffers.receive_window(Bytes(8)), (1 << 20) / 5120);
        assert_eq!(buffers.receive_window(Bytes(4097)), (1 << 20) / 9216);
    }
}
