//! Network interfaces as sysfs shows them.
//!
//! Files are those of the kernel's `Documentation/ABI/testing/sysfs-class-net` and `sysfs-class-net-queues`. What sysfs
//! cannot tell (the driver of a virtual interface, whether a driver takes XDP programs) is reported as unknown, or
//! taken from a list of drivers, never guessed.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::cpuset::CpuSet;
use crate::fault::Fault;
use crate::quantity::{Bytes, BytesPerSecond};
use crate::reading::Reading;
use crate::source::{Source, resolve};

const NET: &str = "/sys/class/net";

/// The role of an interface on a switch inside a NIC (`phys_port_name` in switchdev mode).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Not a port of an embedded switch, or the NIC does not say so.
    Plain,
    /// The wire: `p0`.
    Uplink,
    /// The host's physical function as a DPU sees it: `pf0hpf`, `c1pf0`.
    HostFunction,
    /// A virtual or sub function: `pf0vf1`, `pf0sf2`.
    Representor,
}

/// Whether XDP programs run in the interface's driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "snake_case")]
pub enum Xdp {
    /// Yes, going by a list made from the kernel's sources; not tried.
    Native {
        /// Whether AF_XDP works there without copying.
        zero_copy: bool,
    },
    /// Only in the generic hook, after the kernel has built a packet buffer, which costs most of the gain.
    Generic {
        /// Why not in the driver.
        reason: String,
    },
    /// In the generic hook at least; sysfs cannot tell about native.
    Unknown {
        /// Why native mode is not known.
        reason: String,
        /// The step to find out.
        next: String,
    },
}

/// One interrupt line of an interface's device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Irq {
    /// The kernel's number of the interrupt.
    pub number: u32,
    /// The interrupt's name, as in /proc/interrupts: `virtio2-input.0`.
    pub name: Option<String>,
    /// Cores that may take it.
    pub cores: Option<CpuSet>,
}

/// A network interface.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Interface {
    /// The kernel's name for it, such as `eth0`.
    pub name: String,
    /// Whether it is switched on and has a carrier.
    pub up: bool,
    /// Whether it is a loopback interface.
    pub loopback: bool,
    /// Driver of the device, or `tun`, `bridge`, `bond`, `vlan` and the like; `None` where sysfs does not say.
    pub driver: Option<String>,
    /// Bus address of the device; `None` for a virtual interface.
    pub device: Option<String>,
    /// Its role on an embedded switch.
    pub role: Role,
    /// Speed of the link.
    pub speed: Reading<BytesPerSecond>,
    /// Largest packet, without the link's own header.
    pub mtu: Option<Bytes>,
    /// NUMA node of the device.
    pub node: Option<u32>,
    /// Cores that receive processing is steered to (RPS), a set for each receive queue.
    pub rps: Vec<CpuSet>,
    /// Cores that choose each transmit queue (XPS); `None` where there is nothing to choose.
    pub xps: Vec<Option<CpuSet>>,
    /// Interrupt lines of the device.
    pub irqs: Vec<Irq>,
    /// Whether receive processing runs in a kernel thread instead of softirqs.
    pub threaded_napi: Option<bool>,
    /// Interrupts skipped while polling, and the timeout in nanoseconds after which polling resumes.
    pub deferral: Option<(u32, u64)>,
    /// Whether XDP programs run in the driver.
    pub xdp: Xdp,
    /// The DPU that the device belongs to.
    pub dpu: Option<String>,
}

/// Drivers that take XDP programs, and whether AF_XDP works without copying. From the kernel's sources
/// (`XDP_SETUP_PROG` and `XDP_SETUP_XSK_POOL` in `ndo_bpf`), Linux 6.12.
const NATIVE_XDP: [(&str, bool); 26] = [
    ("atlantic", false),
    ("bnxt_en", false),
    ("ena", false),
    ("fec", false),
    ("fsl_dpaa2_eth", true),
    ("gve", true),
    ("hv_netvsc", false),
    ("i40e", true),
    ("ice", true),
    ("igb", false),
    ("igc", true),
    ("intel-eth-pci", true),
    ("ionic", false),
    ("ixgbe", true),
    ("ixgbevf", false),
    ("mana", false),
    ("mlx4_core", false),
    ("mlx5_core", true),
    ("mvneta", false),
    ("mvpp2", false),
    ("nfp", true),
    ("qede", false),
    ("sfc", false),
    ("tun", false),
    ("virtio_net", true),
    ("vmxnet3", false),
];

/// PCI vendor and device numbers of the functions that DPUs show to host and DPU (pci.ids).
const DPU_FUNCTIONS: [(&str, &str, &str); 6] = [
    ("0x15b3", "0xa2d2", "BlueField"),
    ("0x15b3", "0xa2d6", "BlueField-2"),
    ("0x15b3", "0xa2dc", "BlueField-3"),
    ("0x1dd8", "0x1002", "Pensando DSC"),
    ("0x1dd8", "0x1003", "Pensando DSC"),
    ("0x8086", "0x1452", "Intel IPU"),
];

/// All interfaces, in order of name; none where sysfs shows those of another network namespace ([`foreign`]).
pub fn read(source: &Source) -> Vec<Interface> {
    if foreign(source).is_some() {
        return Vec::new();
    }
    let interrupts = source.text("/proc/interrupts").unwrap_or_default();
    let names = names(source).unwrap_or_default();
    names.into_iter().map(|name| Interface::read(source, name, &interrupts)).collect()
}

/// Names of the interfaces that sysfs shows, in order; `None` where there is no list.
pub fn names(source: &Source) -> Option<Vec<String>> {
    source.names(NET, |name| name != "bonding_masters").ok()
}

/// The fault of a sysfs that shows the interfaces of another network namespace; `None` where it shows this thread's.
///
/// A mount of sysfs shows the interfaces of the namespace in which it was mounted, whoever reads it.
pub fn foreign(source: &Source) -> Option<Fault> {
    // An interface may come or go between reading the two lists.
    let tries = if source.is_live() { 3 } else { 1 };
    let mut found = None;
    for _ in 0..tries {
        let table = source.network_table("dev").ok()?;
        let named = table.lines().filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned()));
        let (own, shown): (BTreeSet<String>, BTreeSet<String>) =
            (named.collect(), names(source).unwrap_or_default().into_iter().collect());
        if own == shown {
            return None;
        }
        found = Some((own, shown));
    }
    let (own, shown) = found?;
    let listed = |names: &BTreeSet<String>| match names.is_empty() {
        true => "none".to_owned(),
        false => names.iter().map(String::as_str).collect::<Vec<_>>().join(", "),
    };
    if shown.is_empty() {
        let cause = format!("it shows no interface, and this process has {}", listed(&own));
        return Some(Fault::new(NET, cause, "mount sysfs: `mount -t sysfs sysfs /sys`"));
    }
    Some(of_another_namespace(format!("interfaces {}, and this process has {}", listed(&shown), listed(&own))))
}

/// The fault of a sysfs in which `what` belongs to another network namespace.
pub fn of_another_namespace(what: impl Into<String>) -> Fault {
    Fault::new(
        NET,
        format!("it is of another network namespace than this process: it shows {}", what.into()),
        "mount this one's in a mount namespace of its own: `unshare -m sh -c 'mount -t sysfs sysfs /sys; exec COMMAND'`",
    )
}

impl Interface {
    fn read(source: &Source, name: String, interrupts: &str) -> Interface {
        let file = |attribute: &str| format!("{NET}/{name}/{attribute}");
        let hex = |text: String| u32::from_str_radix(text.trim_start_matches("0x"), 16).ok();
        let state = source.word(&file("operstate")).unwrap_or_default();
        let on = source.word(&file("flags")).and_then(hex).is_some_and(|flags| flags & 1 != 0);
        let loopback = source.number::<u32>(&file("type")) == Some(772);
        let device = device_directory(source, &name);
        let driver = match &device {
            Some(_) => source.link_name(&file("device/driver")),
            None => virtual_kind(source, &name),
        };
        let role = role(source, &name);
        let queues = |direction: &str| {
            let keep = |queue: &str| queue.strip_prefix(direction).is_some_and(|rest| rest.starts_with('-'));
            source.names(&file("queues"), keep).unwrap_or_default()
        };
        let mask = |queue: &String, which: &str| source.cpu_mask(&file(&format!("queues/{queue}/{which}")));
        let deferral = source.number(&file("napi_defer_hard_irqs")).zip(source.number(&file("gro_flush_timeout")));
        Interface {
            up: on && !["down", "notpresent", "lowerlayerdown"].contains(&state.as_str()),
            speed: speed(source, &file("speed")),
            mtu: source.number(&file("mtu")).map(Bytes),
            node: source.number::<i64>(&file("device/numa_node")).and_then(|node| u32::try_from(node).ok()),
            rps: queues("rx").iter().map(|queue| mask(queue, "rps_cpus").unwrap_or_default()).collect(),
            xps: queues("tx").iter().map(|queue| mask(queue, "xps_cpus")).collect(),
            irqs: device.as_deref().map(|device| irqs(source, device, interrupts)).unwrap_or_default(),
            threaded_napi: source.number::<u8>(&file("threaded")).map(|threaded| threaded != 0),
            deferral,
            xdp: xdp(&name, loopback, device.is_some(), driver.as_deref(), role),
            dpu: device.as_ref().and_then(|_| dpu(source, &name)),
            device: device.and_then(|path| path.rsplit('/').next().map(String::from)),
            loopback,
            driver,
            role,
            name,
        }
    }

    /// The driver, or the kind of a virtual interface.
    pub fn kind(&self) -> &str {
        match (&self.driver, self.loopback, &self.device) {
            (_, true, _) => "loopback",
            (Some(driver), ..) => driver,
            (None, _, Some(_)) => "no driver",
            (None, _, None) => "virtual",
        }
    }

    /// Whether it is worth listing: it works, or is hardware that could.
    pub fn counts(&self) -> bool {
        self.up || self.device.is_some()
    }
}

/// The device under `/sys/devices`, without its symbolic links.
fn device_directory(source: &Source, name: &str) -> Option<String> {
    let net = resolve(NET, &source.link(&format!("{NET}/{name}")).ok()?);
    let device = net.strip_suffix(&format!("/net/{name}"))?;
    (!device.starts_with("/sys/devices/virtual")).then(|| device.to_owned())
}

/// `DEVTYPE` of the uevent, or the file by which tun shows itself; veth leaves nothing.
fn virtual_kind(source: &Source, name: &str) -> Option<String> {
    if source.text(&format!("{NET}/{name}/tun_flags")).is_ok() {
        return Some("tun".into());
    }
    let uevent = source.text(&format!("{NET}/{name}/uevent")).ok()?;
    uevent.lines().find_map(|line| line.strip_prefix("DEVTYPE=")).map(String::from)
}

fn speed(source: &Source, path: &str) -> Reading<BytesPerSecond> {
    match source.text(path) {
        Ok(text) => match text.trim().parse::<f64>() {
            Ok(megabits) if megabits > 0.0 && megabits.is_finite() => {
                Reading::Measured(BytesPerSecond(megabits * 1e6 / 8.0))
            }
            _ => Reading::absent("the driver does not know it"),
        },
        Err(refusal) if refusal.not_permitted() => Reading::not_permitted(format!("{path}: {refusal}"), "run as root"),
        Err(_) => Reading::absent("the interface has none, or is down"),
    }
}

fn role(source: &Source, name: &str) -> Role {
    if source.word(&format!("{NET}/{name}/phys_switch_id")).is_none() {
        return Role::Plain;
    }
    let port = source.word(&format!("{NET}/{name}/phys_port_name")).unwrap_or_default();
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    // A prefix `c1` names another controller: the host, seen from its DPU.
    let (controller, function) = match port.strip_prefix('c').and_then(|rest| rest.split_once("pf")) {
        Some((number, function)) if digits(number) => (true, Some(function)),
        _ => (false, port.strip_prefix("pf")),
    };
    match function {
        Some(function) if function.ends_with("hpf") || (controller && digits(function)) => Role::HostFunction,
        Some(_) => Role::Representor,
        None if port.strip_prefix('p').is_some_and(digits) => Role::Uplink,
        None => Role::Plain,
    }
}

/// The device's message-signalled interrupts; those of its parent where the device sits on a virtio or auxiliary bus.
fn irqs(source: &Source, device: &str, interrupts: &str) -> Vec<Irq> {
    let parent = device.rsplit_once('/').map_or("", |(parent, _)| parent);
    let is_number = |name: &str| name.parse::<u32>().is_ok();
    let listed = |directory: &str| source.names(&format!("{directory}/msi_irqs"), is_number).ok();
    let numbers = listed(device).or_else(|| listed(parent)).unwrap_or_default();
    let irq = |number: u32| {
        let row = interrupts.lines().find_map(|line| line.trim_start().strip_prefix(&format!("{number}:")));
        Irq {
            number,
            name: row.and_then(|row| row.split_whitespace().last()).map(String::from),
            cores: source.cpu_list(&format!("/proc/irq/{number}/smp_affinity_list")),
        }
    };
    numbers.iter().filter_map(|number| number.parse().ok()).map(irq).collect()
}

fn xdp(name: &str, loopback: bool, physical: bool, driver: Option<&str>, role: Role) -> Xdp {
    let generic = |reason: &str| Xdp::Generic { reason: reason.into() };
    match driver {
        _ if loopback => generic("loopback has no driver hook"),
        _ if matches!(role, Role::HostFunction | Role::Representor) => generic("a representor has no driver hook"),
        Some(driver) => match NATIVE_XDP.iter().find(|(known, _)| *known == driver) {
            Some((_, zero_copy)) => Xdp::Native { zero_copy: *zero_copy },
            None if ["bridge", "vlan", "vxlan", "geneve"].contains(&driver) => {
                Xdp::Generic { reason: format!("a {driver} has no driver hook") }
            }
            None => Xdp::Unknown {
                reason: format!("driver {driver} is not in the list of drivers known to take programs"),
                next: format!("try `ip link set dev {name} xdpdrv object FILE`, which fails where it does not"),
            },
        },
        None => Xdp::Unknown {
            reason: match physical {
                true => "the device has no driver".into(),
                false => "sysfs does not name the driver of a virtual interface".into(),
            },
            next: format!("`ethtool -i {name}` names it; veth takes programs"),
        },
    }
}

fn dpu(source: &Source, name: &str) -> Option<String> {
    let id = |which: &str| source.word(&format!("{NET}/{name}/device/{which}"));
    let (vendor, device) = (id("vendor")?, id("device")?);
    let known = DPU_FUNCTIONS.iter().find(|(v, d, _)| *v == vendor && *d == device);
    known.map(|(_, _, product)| (*product).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::Archive;

    /// Sysfs lists eth0 and lo; the process's own table lists `own`.
    fn seen_by(table: &str, own: &[&str]) -> Source {
        let rows: String = own.iter().map(|name| format!("|{name:>6}: 1 2 3\n")).collect();
        let text = format!(
            "# plimsoll machine archive 1\n{NET} [] eth0/lo\n{table} <<\n|Inter-|   Receive\n| face |bytes\n{rows}"
        );
        Source::from_archive(Archive::from_text(&text).unwrap())
    }

    #[test]
    fn interfaces_of_another_network_namespace_are_not_told() {
        for table in ["/proc/thread-self/net/dev", "/proc/self/net/dev"] {
            let own = seen_by(table, &["lo", "eth0"]);
            assert!(foreign(&own).is_none());
            assert_eq!(read(&own).len(), 2);
            for names in [&["lo", "v0"][..], &["lo"], &["lo", "eth0", "v0"], &[]] {
                let other = seen_by(table, names);
                let fault = foreign(&other).unwrap();
                assert!(fault.cause().contains("it shows interfaces eth0, lo, and this process has"), "{fault}");
                assert!(names.iter().all(|name| fault.cause().contains(name)), "{fault}");
                assert_eq!(read(&other), []);
            }
        }
        let table = "# plimsoll machine archive 1\n/proc/self/net/dev <<\n|Inter-|   Receive\n|    lo: 1 2 3\n";
        let fault = foreign(&Source::from_archive(Archive::from_text(table).unwrap())).unwrap();
        assert!(fault.cause().contains("it shows no interface, and this process has lo"), "{fault}");
        let without = Source::from_archive(Archive::from_text("# plimsoll machine archive 1\n").unwrap());
        assert!(foreign(&without).is_none(), "an archive without the table");
    }
}
