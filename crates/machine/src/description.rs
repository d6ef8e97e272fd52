//! The description of a machine: its hardware, sites, ports, controls and sensors.

use serde::{Deserialize, Serialize};

use crate::availability::Feature;
use crate::choice::Choice;
use crate::control::{self, Ground};
use crate::count;
use crate::cpuset::CpuSet;
use crate::fault::{Fault, Result};
use crate::frequency::Clock;
use crate::interface::{self, Interface};
use crate::place;
use crate::privileges::Privileges;
use crate::processor::Processor;
use crate::quantity::Bytes;
use crate::reading::Reading;
use crate::sensor;
use crate::site::CoreId;
use crate::source::Source;
use crate::topology::{Cache, CacheKind, Cpu, Topology};

/// Everything that can be told about a machine without measuring it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor, its kernel and its hypervisor.
    pub processor: Processor,
    /// CPUs, caches and NUMA nodes.
    pub topology: Topology,
    /// Control of the cores' clocks.
    pub clock: Clock,
    /// Network interfaces.
    pub interfaces: Vec<Interface>,
    /// Why no interface is listed, where sysfs shows those of another network namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interfaces_hidden: Option<String>,
    /// The rights of this process.
    pub privileges: Privileges,
    /// Sites that could run code: `app`, `core:N`, `xdp:IFACE`; tc hooks are not listed, the kernel is asked on use.
    pub sites: Vec<Feature>,
    /// Ports that could move packets: `shm`, `udp`, `afxdp:IFACE` and others.
    pub ports: Vec<Feature>,
    /// Settings that can be changed, such as affinities, clocks and receive steering.
    pub controls: Vec<Feature>,
    /// Quantities that can be measured, such as hardware counters and energy.
    pub sensors: Vec<Feature>,
}

impl Machine {
    /// # Errors
    /// The source shows no CPU. Everything else that is missing or refused is part of the description.
    pub fn read(source: &Source) -> Result<Machine> {
        let processor = Processor::read(source);
        let topology = Topology::read(source)?;
        let clock = Clock::read(source);
        let interfaces = interface::read(source);
        let interfaces_hidden = interface::foreign(source).map(|fault| fault.to_string());
        let privileges = Privileges::read(source);
        let ground = Ground {
            source,
            topology: &topology,
            clock: &clock,
            interfaces: &interfaces,
            interfaces_hidden: interfaces_hidden.is_some(),
            privileges: &privileges,
            virtual_machine: processor.hypervisor.is_some(),
        };
        let usable = usable(&topology, &privileges);
        let sites = place::sites(&ground, &processor, &usable);
        let ports = place::ports(&ground);
        let controls = control::read(&ground);
        let sensors = sensor::read(&ground);
        Ok(Machine {
            processor,
            topology,
            clock,
            interfaces,
            interfaces_hidden,
            privileges,
            sites,
            ports,
            controls,
            sensors,
        })
    }

    /// Cores that are online and that this process may run on.
    pub fn usable_cores(&self) -> CpuSet {
        usable(&self.topology, &self.privileges)
    }

    /// The NUMA node of the fastest interface that is up, where the firmware says it.
    pub fn network_node(&self) -> Option<u32> {
        let up = self.interfaces.iter().filter(|interface| interface.up && !interface.loopback);
        let speed = |interface: &Interface| interface.speed.value().map_or(0.0, |speed| speed.0);
        let known = up.filter_map(|interface| Some((speed(interface), interface.node?)));
        known.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, node)| node)
    }

    /// Its cores to choose from: those that this process may use.
    pub fn choice(&self) -> Choice<'_> {
        Choice::among(&self.topology, self.usable_cores().iter())
    }

    /// The size of the largest last-level cache.
    pub fn last_level_cache(&self) -> Reading<Bytes> {
        match self.topology.last_level_cache_size() {
            Some(size) => Reading::Measured(size),
            None => Reading::absent("sysfs shows no cache sizes on this machine"),
        }
    }

    /// The core of that number, if code may run there.
    ///
    /// # Errors
    /// There is no such core, it is offline, or this process may not use it; the fault names the usable cores.
    pub fn core(&self, core: CoreId) -> Result<&Cpu> {
        let usable = self.usable_cores();
        let next = format!("choose one of {usable}");
        match self.topology.cpu(core) {
            Some(cpu) if usable.contains(core) => Ok(cpu),
            Some(_) => Err(Fault::new(
                core.to_string(),
                format!("this process may only run on cores {usable}"),
                format!("{next}, or widen its affinity or cpuset"),
            )),
            None if self.topology.offline.contains(core) => {
                Err(Fault::new(core.to_string(), "it is offline", format!("{next}, or switch it on")))
            }
            None => Err(Fault::new(core.to_string(), format!("this machine has cores {}", self.topology.online), next)),
        }
    }

    /// Facts about the machine with their labels, for a report.
    pub fn facts(&self) -> Vec<(String, String)> {
        let mut facts = Vec::new();
        let mut fact = |name: &str, value: String| facts.push((name.to_owned(), value));
        let unknown = || "unknown".to_owned();
        fact("processor", self.processor.model.clone().unwrap_or_else(unknown));
        fact("cores", self.core_summary());
        fact("caches", self.cache_summary());
        fact("memory", self.memory_summary());
        let kernel = self.processor.kernel.clone().unwrap_or_else(unknown);
        let architecture = self.processor.architecture.clone().unwrap_or_else(unknown);
        fact("kernel", format!("Linux {kernel}, {architecture}"));
        fact(
            "virtual",
            match &self.processor.hypervisor {
                Some(name) if name == "unnamed" => "yes".into(),
                Some(name) => format!("yes: {name}"),
                None => "no sign of a hypervisor".into(),
            },
        );
        fact("clock", self.clock.summary().unwrap_or_else(|| "no control from here".into()));
        for (name, label) in [("counters", "counters"), ("energy", "energy")] {
            if let Some(feature) = self.sensors.iter().find(|sensor| sensor.name == name) {
                fact(label, feature.availability.summary());
            }
        }
        fact("network", self.network_summary());
        facts
    }

    /// `2 packages, 48 cores, 96 threads`.
    pub fn core_summary(&self) -> String {
        let counted = |n: usize, noun: &str| count::of(n as u64, noun);
        let t = &self.topology;
        let mut parts = vec![counted(t.packages.len(), "package")];
        if t.dies.len() > t.packages.len() {
            parts.push(counted(t.dies.len(), "die"));
        }
        parts.push(counted(t.core_count(), "core"));
        parts.push(counted(t.cpus.len(), "thread"));
        let mut kinds: Vec<_> = t.cpus.iter().filter_map(|cpu| cpu.kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        for kind in kinds {
            let cores: CpuSet = t.cpus.iter().filter(|cpu| cpu.kind == Some(kind)).map(|cpu| cpu.id).collect();
            parts.push(format!("{}s {cores}", kind.name()));
        }
        if !t.offline.is_empty() {
            parts.push(format!("{} offline", t.offline));
        }
        parts.join(", ")
    }

    /// `L1d 32 KiB, L2 1 MiB, L3 32 MiB shared by 2 threads`; caches of one level that differ stand side by side.
    pub fn cache_summary(&self) -> String {
        let describe = |cache: &Cache| {
            let suffix = match cache.kind {
                CacheKind::Data => "d",
                CacheKind::Instruction => "i",
                CacheKind::Unified => "",
            };
            let size = cache.size.map_or_else(|| "of unknown size".into(), |size| size.to_string());
            let shared = match cache.shared_by.len() {
                1 => String::new(),
                n => format!(" shared by {n} threads"),
            };
            format!("L{}{suffix} {size}{shared}", cache.level)
        };
        let mut parts: Vec<(String, usize)> = Vec::new();
        for cache in self.topology.caches.iter().filter(|cache| cache.kind != CacheKind::Instruction) {
            let text = describe(cache);
            match parts.iter_mut().find(|(known, _)| *known == text) {
                Some((_, count)) => *count += 1,
                None => parts.push((text, 1)),
            }
        }
        let counted = |(text, count): (String, usize)| if count == 1 { text } else { format!("{count} x {text}") };
        match parts.is_empty() {
            true => "hidden by the hypervisor or the firmware".into(),
            false => parts.into_iter().map(counted).collect::<Vec<_>>().join(", "),
        }
    }

    /// `2 NUMA nodes: 0 (cores 0-23, 256 GiB), ...`.
    pub fn memory_summary(&self) -> String {
        let nodes = &self.topology.nodes;
        let node = |node: &crate::topology::NumaNode| {
            let cores = if node.cpus.is_empty() { "no cores".into() } else { format!("cores {}", node.cpus) };
            let memory = node.memory.map_or_else(|| "memory unknown".into(), gibibytes);
            format!("{} ({cores}, {memory})", node.id)
        };
        let list = nodes.iter().map(node).collect::<Vec<_>>().join(", ");
        match nodes.len() {
            0 => "NUMA hidden".into(),
            1 => format!("1 NUMA node: {list}"),
            n => format!("{n} NUMA nodes: {list}"),
        }
    }

    fn network_summary(&self) -> String {
        let describe = |interface: &Interface| {
            let speed = interface.speed.value().map(|speed| format!(" {}", bits(speed.0 * 8.0)));
            format!("{} ({}{})", interface.name, interface.kind(), speed.unwrap_or_default())
        };
        let up: Vec<_> = self.interfaces.iter().filter(|i| i.up && !i.loopback).map(describe).collect();
        match (up.is_empty(), &self.interfaces_hidden) {
            (true, Some(_)) => "unknown: /sys is of another network namespace".into(),
            (true, None) => "loopback only".into(),
            (false, _) => up.join(", "),
        }
    }
}

fn usable(topology: &Topology, privileges: &Privileges) -> CpuSet {
    match &privileges.allowed {
        Some(allowed) => allowed.intersection(&topology.online),
        None => topology.online.clone(),
    }
}

/// A link's speed in decimal bits a second.
pub fn bits(per_second: f64) -> String {
    match per_second {
        b if b >= 1e9 => format!("{} Gbit/s", b / 1e9),
        b => format!("{} Mbit/s", b / 1e6),
    }
}

fn gibibytes(memory: Bytes) -> String {
    format!("{:.1} GiB", memory.0 as f64 / (1u64 << 30) as f64)
}
