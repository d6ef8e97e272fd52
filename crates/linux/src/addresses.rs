//! The IP addresses of this host's interfaces in the caller's network namespace.

use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};

use machine::{Fault, Result};
use rustix::net::{AddressFamily, SocketType, netdevice};

/// One address of one interface that is up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceAddress {
    pub interface: String,
    pub address: IpAddr,
    pub loopback: bool,
}

/// All addresses, IPv4 before IPv6, in the kernel's order; without link-local ones.
pub fn list() -> Result<Vec<InterfaceAddress>> {
    let mut found = every()?;
    found.retain(|entry| !is_link_local(entry.address));
    Ok(found)
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

/// All addresses, with link-local ones of IPv6 last.
fn every() -> Result<Vec<InterfaceAddress>> {
    let mut first = std::ptr::null_mut();
    // SAFETY: `first` is a place for the list's head; the list is freed below.
    if unsafe { libc::getifaddrs(&mut first) } != 0 {
        let e = std::io::Error::last_os_error();
        return Err(Fault::because("list of network interfaces", e, "give the address yourself"));
    }
    let mut found = Vec::new();
    let mut at = first;
    while !at.is_null() {
        // SAFETY: a non-null node of the list that getifaddrs made and nobody has freed.
        let node = unsafe { &*at };
        at = node.ifa_next;
        let flags = node.ifa_flags;
        if node.ifa_addr.is_null() || flags & libc::IFF_UP as u32 == 0 {
            continue;
        }
        // SAFETY: the address is not null, and the family says how long it is.
        let address = match i32::from(unsafe { (*node.ifa_addr).sa_family }) {
            libc::AF_INET => {
                // SAFETY: an address of this family is a sockaddr_in; read unaligned, since nothing promises more.
                let raw = unsafe { node.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned() };
                IpAddr::V4(Ipv4Addr::from(u32::from_be(raw.sin_addr.s_addr)))
            }
            libc::AF_INET6 => {
                // SAFETY: as above, of sockaddr_in6.
                let raw = unsafe { node.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned() };
                IpAddr::V6(Ipv6Addr::from(raw.sin6_addr.s6_addr))
            }
            _ => continue,
        };
        // SAFETY: the name is a C string of the same node.
        let interface = unsafe { CStr::from_ptr(node.ifa_name) }.to_string_lossy().into_owned();
        found.push(InterfaceAddress { interface, address, loopback: flags & libc::IFF_LOOPBACK as u32 != 0 });
    }
    // SAFETY: the list's head, once; nothing of it is used after.
    unsafe { libc::freeifaddrs(first) };
    found.sort_by_key(|entry| (entry.address.is_ipv6(), is_link_local(entry.address)));
    Ok(found)
}

/// The source address of packets to `peer`.
///
/// # Errors
/// No route leads there.
pub fn towards(peer: IpAddr) -> Result<IpAddr> {
    let any = if peer.is_ipv4() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) };
    // Connecting sends nothing; any port will do.
    let route = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((peer, 9))?;
        socket.local_addr()
    });
    let route = route.map_err(|e| Fault::because(format!("route to {peer}"), e, "check the address and the route"))?;
    Ok(route.ip())
}

/// The address to bind a socket for `address`, with port number 0. A link-local IPv6 address carries an interface: the
/// named one, else the one that has the address.
///
/// # Errors
/// There is no such interface, or there are several.
pub fn bindable(address: IpAddr, interface: Option<&str>) -> Result<SocketAddr> {
    let IpAddr::V6(v6) = address else { return Ok(SocketAddr::new(address, 0)) };
    if !v6.is_unicast_link_local() {
        return Ok(SocketAddr::new(address, 0));
    }
    let mut having = every()?;
    having.retain(|entry| entry.address == address && interface.is_none_or(|name| entry.interface == name));
    let fault = |cause: &str| Fault::new(format!("address {address}"), cause, "see `ip -6 address`; give another");
    match &having[..] {
        [] => Err(fault("it is one of a link, and no such interface of this host has it")),
        [entry] => {
            let any = rustix::net::socket(AddressFamily::INET6, SocketType::DGRAM, None);
            let index = any.and_then(|any| netdevice::name_to_index(any, &entry.interface));
            let index =
                index.map_err(|e| Fault::because(format!("interface {}", entry.interface), e, "see `ip link`"))?;
            Ok(SocketAddrV6::new(v6, 0, 0, index).into())
        }
        _ => Err(fault("it is one of a link, and several interfaces of this host have it")),
    }
}

/// The interface that has `address`.
///
/// # Errors
/// No interface has it.
pub fn interface_of(address: IpAddr) -> Result<String> {
    let found = list()?.into_iter().find(|entry| entry.address == address);
    found.map(|entry| entry.interface).ok_or_else(|| {
        Fault::new(format!("interface of {address}"), "this host has none", "name an address of this host")
    })
}

/// Whether `interface` has `address`.
///
/// # Errors
/// There is no such interface, or it does not have the address.
pub fn check(interface: &str, address: IpAddr) -> Result<()> {
    let all = list()?;
    if all.iter().any(|entry| entry.interface == interface && entry.address == address) {
        return Ok(());
    }
    let there = all.iter().any(|entry| entry.interface == interface);
    let of = all.into_iter().find(|entry| entry.address == address).map(|entry| entry.interface);
    let cause = match (there, &of) {
        (false, _) => "there is none of that name that is up and has an IP address".to_owned(),
        (true, Some(of)) => format!("packets to the peer come from {address}, which {of} has"),
        (true, None) => format!("packets to the peer come from {address}, which it does not have"),
    };
    let other = of.map_or("leave the name out".to_owned(), |of| format!("name {of}, or leave the name out"));
    let next = format!("see `ip address` and `ip route get PEER`; {other}");
    Err(Fault::new(format!("interface {interface}"), cause, next))
}

/// The address by which other hosts probably reach this one: of `interface` where one is named, else of the first that
/// is no loopback, else the loopback's.
pub fn preferred(interface: Option<&str>) -> Result<IpAddr> {
    let all = if interface.is_some() { every()? } else { list()? };
    let found = match interface {
        Some(name) => all.iter().find(|entry| entry.interface == name),
        None => all.iter().find(|entry| !entry.loopback).or(all.first()),
    };
    found.map(|entry| entry.address).ok_or_else(|| match interface {
        Some(name) => Fault::new(
            format!("interface {name}"),
            "it is not up, or has no IP address",
            "see `ip address`; name another",
        ),
        None => Fault::new("this host", "no interface is up and has an IP address", "bring up at least the loopback"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_is_listed_and_found_by_name() {
        let all = list().unwrap();
        assert!(all.iter().any(|entry| entry.loopback && entry.address == IpAddr::V4(Ipv4Addr::LOCALHOST)), "{all:?}");
        assert!(preferred(Some("lo")).unwrap().is_loopback());
        assert!(preferred(Some("none-such")).unwrap_err().to_string().contains("none-such"));
        preferred(None).unwrap();
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        assert_eq!((towards(here).unwrap(), interface_of(here).unwrap().as_str()), (here, "lo"));
        check("lo", here).unwrap();
        for (interface, address, said) in
            [("none-such", here, "none of that name"), ("lo", [192, 0, 2, 1].into(), "192.0.2.1")]
        {
            assert!(check(interface, address).unwrap_err().to_string().contains(said));
        }
        assert!(interface_of("192.0.2.1".parse().unwrap()).unwrap_err().to_string().contains("this host has none"));
        assert_eq!(bindable(here, None).unwrap(), "127.0.0.1:0".parse().unwrap());
        let of_a_link = "fe80::2001:2:9".parse().unwrap();
        assert!(bindable(of_a_link, Some("lo")).unwrap_err().to_string().contains("no such interface"));
    }
}
