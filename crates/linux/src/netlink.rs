//! Queries of the kernel's network by routing netlink (`rtnetlink(7)`): links, routes, neighbours.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

pub type HardwareAddress = [u8; 6];

// From `linux/rtnetlink.h`, `linux/netlink.h`, `linux/neighbour.h`.
const ERROR: u16 = 2;
const NEW_LINK: u16 = 16;
const GET_LINK: u16 = 18;
const NEW_ROUTE: u16 = 24;
const GET_ROUTE: u16 = 26;
const NEW_NEIGHBOUR: u16 = 28;
const DELETED_NEIGHBOUR: u16 = 29;
const GET_NEIGHBOUR: u16 = 30;
const REQUEST: u16 = 1;
const NEIGHBOUR_NEWS: u32 = 1 << 2;

const HEADER: usize = 16;
const ANSWER: usize = 32 << 10;

/// A netlink socket of the network namespace in which it was opened.
#[derive(Debug)]
pub struct Netlink(OwnedFd);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    pub mtu: u32,
    /// The Ethernet address; `None` for links of other kinds.
    pub hardware: Option<HardwareAddress>,
    /// Number of receive queues that the driver allocated.
    pub queues: u32,
}

/// The kernel's route to an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    pub interface: u32,
    /// The router on the way; `None` where the address is on the link itself.
    pub gateway: Option<IpAddr>,
    /// Whether the address is this host's own.
    pub local: bool,
}

/// The kernel's entry of a neighbour on a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Neighbour {
    pub interface: u32,
    pub address: IpAddr,
    /// Its hardware address; `None` while it is being resolved, and where nobody answered.
    pub hardware: Option<HardwareAddress>,
    /// Whether the kernel has had no confirmation of it for a while.
    pub stale: bool,
    /// Whether its resolution failed.
    pub failed: bool,
}

impl Netlink {
    pub fn open() -> io::Result<Netlink> {
        Netlink::listening(0)
    }

    /// A socket that receives every change of a neighbour.
    pub fn of_neighbours() -> io::Result<Netlink> {
        Netlink::listening(NEIGHBOUR_NEWS)
    }

    fn listening(groups: u32) -> io::Result<Netlink> {
        let flags = SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        if groups != 0 {
            rustix::net::bind(&socket, &SocketAddrNetlink::new(0, groups))?;
        }
        Ok(Netlink(socket))
    }

    /// The index of the interface of this name.
    pub fn index(&self, name: &str) -> io::Result<u32> {
        Ok(rustix::net::netdevice::name_to_index(&self.0, name)?)
    }

    pub fn link(&self, interface: u32) -> io::Result<Link> {
        // ifinfomsg: family, type, index, flags, change
        let mut body = [0u8; 16];
        body[4..8].copy_from_slice(&interface.to_ne_bytes());
        let mut found = None;
        self.ask(GET_LINK, &body, |kind, message| {
            if kind == NEW_LINK {
                found = read_link(message);
            }
        })?;
        found.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// The route to `to` for packets from the address `from`, of the same family; by `interface` where one is given, as
    /// link-local addresses need.
    pub fn route(&self, from: IpAddr, to: IpAddr, interface: Option<u32>) -> io::Result<Route> {
        // rtmsg: family, destination and source length, tos, table, protocol, scope, type, flags
        let mut body = vec![0u8; 12];
        body[0] = family(to);
        body[1] = bits(to);
        body[2] = bits(from);
        push_address(&mut body, 1, to);
        push_address(&mut body, 2, from);
        if let Some(interface) = interface {
            push(&mut body, 4, &interface.to_ne_bytes());
        }
        let mut found = None;
        self.ask(GET_ROUTE, &body, |kind, message| {
            if kind == NEW_ROUTE {
                found = read_route(message);
            }
        })?;
        found.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// The entry of an address; `None` where the kernel does not know it.
    pub fn neighbour(&self, interface: u32, address: IpAddr) -> io::Result<Option<Neighbour>> {
        // ndmsg: family, padding, interface, state, flags, type
        let mut body = vec![0u8; 12];
        body[0] = family(address);
        body[4..8].copy_from_slice(&interface.to_ne_bytes());
        push_address(&mut body, 1, address);
        let mut found = None;
        let asked = self.ask(GET_NEIGHBOUR, &body, |kind, message| {
            if kind == NEW_NEIGHBOUR {
                found = read_neighbour(message, false);
            }
        });
        match asked {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            asked => asked.map(|()| found),
        }
    }

    /// Passes on the changes since the last call. `false` where the kernel had to drop some.
    pub fn changes(&self, mut each: impl FnMut(Neighbour)) -> io::Result<bool> {
        let mut answer = [0u8; 8 << 10];
        loop {
            match rustix::net::recv(&self.0, &mut answer[..], RecvFlags::DONTWAIT) {
                Ok((length, _)) => messages(&answer[..length], |kind, message| {
                    if matches!(kind, NEW_NEIGHBOUR | DELETED_NEIGHBOUR)
                        && let Some(neighbour) = read_neighbour(message, kind == DELETED_NEIGHBOUR)
                    {
                        each(neighbour);
                    }
                }),
                Err(Errno::AGAIN) => return Ok(true),
                Err(Errno::NOBUFS) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn ask(&self, kind: u16, body: &[u8], mut each: impl FnMut(u16, &[u8])) -> io::Result<()> {
        let mut request = Vec::with_capacity(HEADER + body.len());
        request.extend(((HEADER + body.len()) as u32).to_ne_bytes());
        request.extend(kind.to_ne_bytes());
        request.extend(REQUEST.to_ne_bytes());
        request.extend([0; 8]);
        request.extend(body);
        rustix::net::send(&self.0, &request, SendFlags::empty())?;
        let mut answer = vec![0u8; ANSWER];
        let mut outcome = Ok(());
        // One request has one answer.
        let (length, _) =
            rustix::io::retry_on_intr(|| rustix::net::recv(&self.0, &mut answer[..], RecvFlags::empty()))?;
        messages(&answer[..length], |kind, message| match kind {
            ERROR => {
                let error =
                    message.first_chunk().map_or(libc::EBADMSG, |error| i32::from_ne_bytes(*error).wrapping_neg());
                if error != 0 {
                    outcome = Err(io::Error::from_raw_os_error(error));
                }
            }
            kind => each(kind, message),
        });
        outcome
    }
}

fn family(address: IpAddr) -> u8 {
    if address.is_ipv4() { libc::AF_INET as u8 } else { libc::AF_INET6 as u8 }
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// Adds an attribute; `content` must be whole words.
fn push(body: &mut Vec<u8>, kind: u16, content: &[u8]) {
    body.extend((4 + content.len() as u16).to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(content);
}

fn push_address(body: &mut Vec<u8>, kind: u16, address: IpAddr) {
    match address {
        IpAddr::V4(v4) => push(body, kind, &v4.octets()),
        IpAddr::V6(v6) => push(body, kind, &v6.octets()),
    }
}

/// `(type, body)` of each message in an answer; ends at the first that is cut short.
fn messages(mut bytes: &[u8], mut each: impl FnMut(u16, &[u8])) {
    while let Some(head) = bytes.first_chunk::<HEADER>() {
        let length = u32::from_ne_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let Some(body) = bytes.get(HEADER..length) else { return };
        each(u16::from_ne_bytes([head[4], head[5]]), body);
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
}

/// `(type, content)` of each attribute; ends at the first that is cut short.
pub(crate) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let head = bytes.get(..4)?;
        let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let content = bytes.get(4..length)?;
        // The two high bits are flags.
        let kind = u16::from_ne_bytes([head[2], head[3]]) & 0x3fff;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, content))
    })
}

fn number(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => bytes.first_chunk::<4>().map(|octets| Ipv4Addr::from(*octets).into()),
        16 => bytes.first_chunk::<16>().map(|octets| Ipv6Addr::from(*octets).into()),
        _ => None,
    }
}

fn read_link(message: &[u8]) -> Option<Link> {
    const ADDRESS: u16 = 1;
    const MTU: u16 = 4;
    const RECEIVE_QUEUES: u16 = 32;
    /// From `linux/if_arp.h`.
    const ETHERNET: u16 = 1;
    let kind = u16::from_ne_bytes([*message.get(2)?, *message.get(3)?]);
    let mut link = Link { mtu: 0, hardware: None, queues: 1 };
    for (attribute, content) in attributes(message.get(16..)?) {
        match attribute {
            ADDRESS if kind == ETHERNET => link.hardware = content.try_into().ok(),
            MTU => link.mtu = number(content)?,
            RECEIVE_QUEUES => link.queues = number(content)?,
            _ => {}
        }
    }
    Some(link)
}

fn read_route(message: &[u8]) -> Option<Route> {
    const INTERFACE: u16 = 4;
    const GATEWAY: u16 = 5;
    const VIA: u16 = 18;
    const LOCAL: u8 = 2;
    let mut route = Route { interface: 0, gateway: None, local: *message.get(7)? == LOCAL };
    for (kind, content) in attributes(message.get(12..)?) {
        match kind {
            INTERFACE => route.interface = number(content)?,
            GATEWAY => route.gateway = address(content),
            // A router of the other family: that family, then its address.
            VIA => route.gateway = address(content.get(2..)?),
            _ => {}
        }
    }
    Some(route).filter(|route| route.interface != 0)
}

fn read_neighbour(message: &[u8], deleted: bool) -> Option<Neighbour> {
    const ADDRESS: u16 = 1;
    const HARDWARE: u16 = 2;
    const STALE: u16 = 4;
    const FAILED: u16 = 32;
    /// Reachable, stale, delay, probe, no ARP, permanent.
    const USABLE: u16 = 2 | 4 | 8 | 16 | 64 | 128;
    let interface = number(message.get(4..)?)?;
    let state = u16::from_ne_bytes([*message.get(8)?, *message.get(9)?]);
    let state = if deleted { 0 } else { state };
    let of = |wanted: u16| attributes(message.get(12..)?).find(|(kind, _)| *kind == wanted).map(|(_, content)| content);
    let hardware = of(HARDWARE).and_then(|content| content.try_into().ok()).filter(|_| state & USABLE != 0);
    Some(Neighbour {
        interface,
        address: of(ADDRESS).and_then(address)?,
        hardware,
        stale: state & STALE != 0,
        failed: state & FAILED != 0,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn loopback_is_known() {
        let netlink = Netlink::open().unwrap();
        let any = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
        let index = rustix::net::netdevice::name_to_index(any, "lo").unwrap();
        assert_eq!(netlink.link(index).unwrap().hardware, None);
        assert!(netlink.link(index).unwrap().mtu > 0);
        let here: IpAddr = "127.0.0.1".parse().unwrap();
        let route = netlink.route(here, "127.0.0.2".parse().unwrap(), None).unwrap();
        assert_eq!(route, Route { interface: index, gateway: None, local: true });
        assert_eq!(netlink.neighbour(index, "127.0.0.9".parse().unwrap()).unwrap(), None);
        assert_eq!(netlink.link(0x7fff_ffff).unwrap_err().raw_os_error(), Some(libc::ENODEV));
    }

    #[test]
    fn a_route_is_read() {
        let mut message = vec![2, 32, 0, 0, 254, 0, 0, 1, 0, 0, 0, 0];
        message.extend([8, 0, 4, 0, 7, 0, 0, 0, 8, 0, 5, 0, 10, 0, 0, 1]);
        let gateway = Some("10.0.0.1".parse().unwrap());
        assert_eq!(read_route(&message), Some(Route { interface: 7, gateway, local: false }));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), length: u8) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_chunk_mut::<4>() {
                *first = u32::from(length).to_ne_bytes();
            }
            let mut total = 0;
            messages(&bytes, |_, body| total += body.len() + HEADER);
            prop_assert!(total <= bytes.len());
            let _ = (read_link(&bytes), read_route(&bytes), read_neighbour(&bytes, false));
        }
    }
}
