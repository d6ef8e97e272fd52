//! The use of an interface by its host: facts for those who would send over it, or decide about its frames.

use std::collections::BTreeSet;
use std::net::IpAddr;

use machine::source::Source;
use machine::steering::Steering;
use machine::{Bytes, BytesPerSecond, Fault, Result, interface};
use serde::{Deserialize, Serialize};

use crate::netlink::Netlink;
use crate::{addresses, xdp};

/// An interface, and its dependants.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InterfaceUsage {
    pub name: String,
    pub up: bool,
    pub loopback: bool,
    /// Its hardware address as the kernel writes it; `None` where it has none.
    pub address: Option<String>,
    pub mtu: Option<Bytes>,
    /// Its speed; `None` where the driver does not tell it.
    pub speed: Option<BytesPerSecond>,
    /// Bonds, bridges, VLANs and the like that send over it.
    pub carries: Vec<String>,
    /// Whether the default route goes through it.
    pub default_route: bool,
    /// The peer of an established TCP connection whose packets leave by it.
    pub connection: Option<IpAddr>,
    /// The programs at its driver hook.
    pub programs: Vec<String>,
}

impl InterfaceUsage {
    /// The interface `name` of the caller's network namespace.
    ///
    /// # Errors
    /// There is none, or the kernel does not tell its dependants.
    pub fn live(name: &str) -> Result<InterfaceUsage> {
        let device = xdp::Interface::named(name)?;
        let source = Source::live();
        check_shown(&source)?;
        let unread = |what: &str| {
            Fault::new(format!("interface {name}"), format!("{what} cannot be read"), "mount /proc and /sys here")
        };
        let found = interface::read(&source).into_iter().find(|found| found.name == name);
        let found = found.ok_or_else(|| unread("/sys/class/net"))?;
        let folder = format!("/sys/class/net/{name}");
        let upper = source.names(&folder, |entry| entry.starts_with("upper_")).map_err(|_| unread(&folder))?;
        let steering = Steering::read(&source);
        let ipv4 = steering.of(name).and_then(|of| of.default_route.value().copied());
        let ipv6 = source.network_table("ipv6_route").unwrap_or_default();
        let mut connection = None;
        for table in ["tcp", "tcp6"] {
            // A kernel without IPv6 has no second table.
            let Ok(text) = source.network_table(table) else { continue };
            for (local, peer) in established(&text) {
                if leaves_by(local, peer, &device)? {
                    connection = Some(peer);
                }
            }
        }
        Ok(InterfaceUsage {
            name: name.to_owned(),
            up: found.up,
            loopback: found.loopback,
            address: source.word(&format!("{folder}/address")),
            mtu: found.mtu,
            speed: found.speed.value().copied(),
            carries: upper.iter().map(|entry| entry.trim_start_matches("upper_").to_owned()).collect(),
            default_route: ipv4.ok_or_else(|| unread("/proc/net/route"))? || has_default_route(&ipv6, name),
            connection,
            programs: device.attached()?.into_iter().map(|of| of.name.unwrap_or(format!("id {}", of.id))).collect(),
        })
    }
}

/// Refuses a sysfs of another network namespace than the calling thread's; on this host even if both have interfaces of
/// the same names.
///
/// # Errors
/// The sysfs is of another namespace, or the kernel does not tell of this one.
pub fn check_shown(source: &Source) -> Result<()> {
    if let Some(fault) = interface::foreign(source) {
        return Err(fault);
    }
    if !source.is_live() {
        return Ok(());
    }
    let asked = |error: std::io::Error| Fault::because("network interfaces", error, "allow netlink to this process");
    let netlink = Netlink::open().map_err(asked)?;
    for name in interface::names(source).unwrap_or_default() {
        let file = |attribute: &str| format!("/sys/class/net/{name}/{attribute}");
        // An interface that has just gone is not compared.
        let Some(shown) = source.number::<u32>(&file("ifindex")) else { continue };
        let Ok(own) = netlink.index(&name) else { continue };
        let hardware = netlink.link(own).ok().and_then(|link| link.hardware);
        let hardware = hardware.map(|bytes| bytes.map(|byte| format!("{byte:02x}")).join(":"));
        if shown != own || hardware.is_some_and(|own| source.word(&file("address")).is_some_and(|shown| shown != own)) {
            return Err(interface::of_another_namespace(format!("another {name} than this process has")));
        }
    }
    Ok(())
}

fn leaves_by(local: IpAddr, peer: IpAddr, device: &xdp::Interface) -> Result<bool> {
    match Netlink::open().and_then(|netlink| netlink.route(local, peer, None)) {
        Ok(route) => Ok(route.interface == device.index()),
        // The route has gone; the address may still exist.
        Err(_) => Ok(addresses::list()?.iter().any(|of| of.address == local && of.interface == device.name())),
    }
}

/// Whether the default route of IPv6 goes through it, by the text of `/proc/net/ipv6_route`: destination, its length,
/// six more, and the interface last.
fn has_default_route(text: &str, interface: &str) -> bool {
    text.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.last() == Some(&interface)
            && fields.get(1) == Some(&"00")
            && fields[0].bytes().all(|digit| digit == b'0')
    })
}

/// Both addresses of the established connections in the text of `/proc/net/tcp` or `tcp6`, each pair once.
fn established(text: &str) -> BTreeSet<(IpAddr, IpAddr)> {
    let read = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (local, peer) = (address(fields.get(1)?)?, address(fields.get(2)?)?);
        (fields.get(3) == Some(&"01") && !peer.is_loopback()).then_some((local, peer))
    };
    text.lines().filter_map(read).collect()
}

/// An address such as `0100007F:1F90`: each 32 bits are written as a native number.
fn address(text: &str) -> Option<IpAddr> {
    let (digits, _) = text.split_once(':')?;
    let words = digits.as_bytes().chunks(8).map(|word| u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok());
    let bytes: Vec<u8> = words.collect::<Option<Vec<u32>>>()?.into_iter().flat_map(u32::to_ne_bytes).collect();
    match bytes.len() {
        4 => Some(IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?)),
        16 => Some(IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?).to_canonical()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn connections_are_those_that_are_established_with_other_hosts() {
        let text = "  sl  local_address rem_address   st tx_queue\n\
             0: 0100007F:1F90 00000000:0000 0A 00000000:00000000\n\
             1: 0A0200C0:0016 070200C0:C350 01 00000000:00000000\n\
             2: 0A0200C0:0017 070200C0:C351 06 00000000:00000000\n\
             3: 0100007F:0016 0100007F:C350 01 00000000:00000000\n\
             4: 0000000000000000FFFF00000A0200C0:0016 0000000000000000FFFF0000080200C0:C350 01\n\
             5: zz:0016 070200C0:C350 01";
        let pair = |last| (IpAddr::from([192, 0, 2, 10]), IpAddr::from([192, 0, 2, last]));
        assert_eq!(established(text).into_iter().collect::<Vec<_>>(), [pair(7), pair(8)]);
    }

    #[test]
    fn a_default_route_of_ipv6_has_an_empty_prefix() {
        let (any, next) = ("0".repeat(32), format!("{} 00000400 00000001 00000000 00000003", "f".repeat(32)));
        let text = format!("{any} 00 {any} 00 {next} eth0\n{any} 40 {any} 00 {next} eth1\n");
        assert!(has_default_route(&text, "eth0") && !has_default_route(&text, "eth1"));
    }
}
