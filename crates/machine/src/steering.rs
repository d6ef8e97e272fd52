//! Steering of the receive work of interfaces to cores, and what would undo a change of it.
//!
//! Files are those of the kernel's `Documentation/networking/scaling.rst` and `core-api/irq/irq-affinity.rst`. The work of a
//! packet is done on the core that takes the interface's interrupt, unless RPS or RFS hands it on to another.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::cpuset::CpuSet;
use crate::interface::{self, Interface, Irq};
use crate::reading::Reading;
use crate::site::CoreId;
use crate::source::Source;

/// The steering of a host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Steering {
    /// The process named irqbalance that is visible from here.
    pub irqbalance: Reading<Option<u32>>,
    /// Entries of RFS's table of flows; 0: RFS is off on every interface.
    pub flow_entries: Reading<u32>,
    /// The interfaces, in order of name.
    pub interfaces: Vec<InterfaceSteering>,
}

/// The steering of an interface.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InterfaceSteering {
    /// The interface, by its name.
    pub interface: String,
    /// Whether it is switched on and has a carrier.
    pub up: bool,
    /// Whether the default route goes through it (IPv4).
    pub default_route: Reading<bool>,
    /// The interrupt lines of its device.
    pub lines: Vec<Line>,
    /// Its receive queues.
    pub receive: Vec<ReceiveQueue>,
    /// Its transmit queues.
    pub transmit: Vec<TransmitQueue>,
    /// Whether receive work runs in a kernel thread (threaded NAPI).
    pub threaded: Reading<bool>,
    /// The place of receive work.
    pub work: Work,
    /// Causes that would undo a change of it.
    pub undone_by: Vec<Undoing>,
}

/// An interrupt line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// The kernel's number for it.
    pub number: u32,
    /// Its name in /proc/interrupts.
    pub name: Option<String>,
    /// Whether it signals received packets, going by its name; all lines do where no name tells.
    pub receives: bool,
    /// Cores that it may go to, as set.
    pub asked: Reading<CpuSet>,
    /// Cores that it goes to in fact.
    pub effective: Reading<CpuSet>,
    /// Whether the kernel alone places it (managed interrupts).
    pub managed: Reading<bool>,
}

/// A receive queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReceiveQueue {
    /// Its number: 3 of `rx-3`.
    pub number: u32,
    /// Cores that RPS hands packets to; where empty, the core of the interrupt keeps them.
    pub rps: Reading<CpuSet>,
    /// Flows of the queue that RFS remembers; 0: RFS is off for the queue.
    pub flows: Reading<u32>,
}

/// A transmit queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TransmitQueue {
    /// Its number: 3 of `tx-3`.
    pub number: u32,
    /// Cores that choose it.
    pub xps: Reading<CpuSet>,
}

/// The place of receive work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// The mechanism that decides it.
    pub by: By,
    /// The cores.
    pub cores: Reading<CpuSet>,
}

crate::named! {
    /// The mechanism that decides which core works on received packets.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum By {
        /// The mask of each receive queue (RPS).
        Rps = "RPS",
        /// The affinity of the device's interrupts.
        Interrupts = "interrupts",
        /// The scheduler, which places the interface's kernel threads (threaded NAPI).
        Threads = "kernel threads",
        /// The side that hands packets over: the sender for loopback and veth, the lower interface for bridges, bonds and VLANs.
        Handover = "handover",
    }
}

/// A cause that would undo a change of steering.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case")]
pub enum Undoing {
    /// A daemon that moves interrupts between cores.
    Irqbalance {
        /// Its process.
        process: u32,
    },
    /// RFS: packets go to the core of the thread that reads them.
    Flows {
        /// The receive queues that it works on.
        queues: Vec<u32>,
    },
    /// The kernel places these lines and refuses every other placement.
    Managed {
        /// Their numbers.
        lines: Vec<u32>,
    },
}

impl Undoing {
    /// The next step against it.
    pub fn next(&self) -> &'static str {
        match self {
            Undoing::Irqbalance { .. } => {
                "stop it meanwhile (`systemctl stop irqbalance`), or steer --by rps, which it leaves alone"
            }
            Undoing::Flows { .. } => "switch it off meanwhile: --rfs off",
            Undoing::Managed { .. } => "steer --by rps",
        }
    }
}

impl fmt::Display for Undoing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Undoing::Irqbalance { process } => {
                write!(f, "irqbalance (process {process}) moves interrupts every few seconds")
            }
            Undoing::Flows { queues } => {
                write!(f, "RFS is on for receive queues {}: packets go to the core that reads them", ranges(queues))
            }
            Undoing::Managed { lines } => write!(f, "the kernel places lines {} itself", ranges(lines)),
        }
    }
}

/// Numbers of lines and queues, displayed like cores: 0-7.
fn ranges(numbers: &[u32]) -> CpuSet {
    numbers.iter().copied().map(CoreId).collect()
}

const NET: &str = "/sys/class/net";
const FLOW_ENTRIES: &str = "/proc/sys/net/core/rps_sock_flow_entries";

impl Steering {
    /// Reads the steering of a host. Missing and refused values are part of it.
    pub fn read(source: &Source) -> Steering {
        let irqbalance = irqbalance(source);
        let flow_entries = reading(source, FLOW_ENTRIES, number);
        let routes = source.network_table("route");
        let read = |interface| {
            let mut steered = InterfaceSteering::read(source, interface);
            steered.default_route = match &routes {
                Ok(text) => Reading::Measured(has_default_route(text, &steered.interface)),
                Err(refusal) => Reading::absent(format!("/proc/self/net/route: {refusal}")),
            };
            // Only the initial network namespace shows the table, though others use it too.
            let flows = flow_entries.value() != Some(&0);
            let on = |queue: &&ReceiveQueue| flows && queue.flows.value().is_some_and(|flows| *flows > 0);
            let queues: Vec<u32> = steered.receive.iter().filter(on).map(|queue| queue.number).collect();
            let managed = |line: &&Line| line.receives && line.managed.value() == Some(&true);
            let lines: Vec<u32> = steered.lines.iter().filter(managed).map(|line| line.number).collect();
            let balanced = irqbalance.value().copied().flatten().filter(|_| !steered.lines.is_empty());
            steered.undone_by.extend(balanced.map(|process| Undoing::Irqbalance { process }));
            steered.undone_by.extend((!queues.is_empty()).then_some(Undoing::Flows { queues }));
            steered.undone_by.extend((!lines.is_empty()).then_some(Undoing::Managed { lines }));
            steered
        };
        let interfaces = interface::read(source).into_iter().map(read).collect();
        Steering { irqbalance, flow_entries, interfaces }
    }

    /// Steering of one interface.
    pub fn of(&self, interface: &str) -> Option<&InterfaceSteering> {
        self.interfaces.iter().find(|steered| steered.interface == interface)
    }
}

impl InterfaceSteering {
    fn read(source: &Source, interface: Interface) -> InterfaceSteering {
        let folder = format!("{NET}/{}", interface.name);
        let queues = |direction: &str| -> Vec<u32> {
            let number = |name: &str| name.strip_prefix(direction)?.strip_prefix('-')?.parse().ok();
            let names = source.names(&format!("{folder}/queues"), |name| number(name).is_some());
            names.unwrap_or_default().iter().filter_map(|name| number(name)).collect()
        };
        let file = |queue: String, name: &str| format!("{folder}/queues/{queue}/{name}");
        let receive: Vec<ReceiveQueue> = queues("rx")
            .into_iter()
            .map(|number| ReceiveQueue {
                number,
                rps: reading(source, &file(format!("rx-{number}"), "rps_cpus"), CpuSet::from_mask),
                flows: reading(source, &file(format!("rx-{number}"), "rps_flow_cnt"), self::number),
            })
            .collect();
        let numbers = queues("tx");
        let xps = |number: u32| match numbers.len() {
            1 => Reading::absent("one transmit queue leaves nothing to choose"),
            _ => reading(source, &file(format!("tx-{number}"), "xps_cpus"), CpuSet::from_mask),
        };
        let transmit = numbers.iter().map(|&number| TransmitQueue { number, xps: xps(number) }).collect();
        let threaded = reading(source, &format!("{folder}/threaded"), number::<u32>).map(|threaded| threaded != 0);
        let lines = lines(source, &interface.irqs);
        let work = work(&lines, &receive, threaded.value() == Some(&true), interface.device.is_some());
        InterfaceSteering {
            up: interface.up,
            default_route: Reading::absent("not looked for"),
            lines,
            receive,
            transmit,
            threaded,
            work,
            undone_by: Vec::new(),
            interface: interface.name,
        }
    }

    /// The lines that signal received packets, in the order of the queues, by the numbers in their names.
    pub fn receive_lines(&self) -> Vec<&Line> {
        let mut lines: Vec<&Line> = self.lines.iter().filter(|line| line.receives).collect();
        lines.sort_by_key(|line| (line.name.as_deref().and_then(queue_number), line.number));
        lines
    }
}

/// The last number of a name, without the device: 3 of `mlx5_comp3@pci:0000:3b:00.0`.
fn queue_number(name: &str) -> Option<u32> {
    let name = name.split('@').next()?;
    name.rsplit(|c: char| !c.is_ascii_digit()).find(|digits| !digits.is_empty())?.parse().ok()
}

fn lines(source: &Source, irqs: &[Irq]) -> Vec<Line> {
    let receives = |irq: &Irq| {
        let name = irq.name.as_deref().unwrap_or_default().to_ascii_lowercase();
        ["rx", "input", "comp"].iter().any(|word| name.contains(word))
    };
    let told = irqs.iter().any(receives);
    let line = |irq: &Irq| {
        let number = irq.number;
        let list = |file: &str| reading(source, &format!("/proc/irq/{number}/{file}"), CpuSet::from_list);
        Line {
            number,
            name: irq.name.clone(),
            receives: !told || receives(irq),
            asked: list("smp_affinity_list"),
            effective: list("effective_affinity_list"),
            managed: reading(source, &format!("/sys/kernel/debug/irq/irqs/{number}"), |text| {
                Some(text.contains("IRQD_AFFINITY_MANAGED"))
            }),
        }
    };
    irqs.iter().map(line).collect()
}

fn work(lines: &[Line], receive: &[ReceiveQueue], threaded: bool, device: bool) -> Work {
    let by_rps: CpuSet = receive.iter().filter_map(|queue| queue.rps.value()).flat_map(CpuSet::iter).collect();
    let on = |line: &Line| line.effective.value().or(line.asked.value()).cloned();
    let by_lines: CpuSet = lines
        .iter()
        .filter(|line| line.receives)
        .filter_map(on)
        .collect::<Vec<_>>()
        .iter()
        .flat_map(CpuSet::iter)
        .collect();
    if !by_rps.is_empty() {
        // Packets of a queue without a mask stay on the core of the interrupt.
        let partly = receive.iter().any(|queue| queue.rps.value().is_none_or(CpuSet::is_empty));
        let rest = by_lines.iter().filter(|_| partly);
        return Work { by: By::Rps, cores: Reading::Measured(by_rps.iter().chain(rest).collect()) };
    }
    if threaded {
        return Work { by: By::Threads, cores: Reading::absent("the scheduler places the threads napi/IFACE-N") };
    }
    match (by_lines.is_empty(), device) {
        (false, _) => Work { by: By::Interrupts, cores: Reading::Measured(by_lines) },
        (true, true) => Work {
            by: By::Interrupts,
            cores: Reading::absent("sysfs lists no interrupt lines of its device, or they cannot be read"),
        },
        (true, false) => Work {
            by: By::Handover,
            cores: Reading::absent("the sender's core for lo and veth, else that of the interface beneath"),
        },
    }
}

fn irqbalance(source: &Source) -> Reading<Option<u32>> {
    match source.names("/proc", |name| name.parse::<u32>().is_ok()) {
        Ok(processes) => {
            let is_it =
                |process: &&String| source.word(&format!("/proc/{process}/comm")).as_deref() == Some("irqbalance");
            Reading::Measured(processes.iter().find(is_it).and_then(|process| process.parse().ok()))
        }
        Err(refusal) => Reading::absent(format!("/proc lists no processes: {refusal}")),
    }
}

/// Whether the default route goes through `interface`, by the text of `/proc/net/route`: interface, destination,
/// gateway, flags, three counts, mask.
fn has_default_route(text: &str, interface: &str) -> bool {
    text.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.first() == Some(&interface) && fields.get(1) == Some(&"00000000") && fields.get(7) == Some(&"00000000")
    })
}

fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.trim().parse().ok()
}

fn reading<T>(source: &Source, path: &str, parse: impl Fn(&str) -> Option<T>) -> Reading<T> {
    match source.text(path) {
        Ok(text) => parse(&text).map_or_else(
            || {
                Reading::absent(format!(
                    "{path}: '{}' is not what kernels write",
                    text.trim().chars().take(40).collect::<String>()
                ))
            },
            Reading::Measured,
        ),
        Err(refusal) if refusal.not_permitted() => Reading::not_permitted(format!("{path}: {refusal}"), "run as root"),
        Err(refusal) => Reading::absent(format!("{path}: {refusal}")),
    }
}

#[cfg(test)]
mod tests;
