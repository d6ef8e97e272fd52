//! Busy shares of the cores of this host, window by window.

use std::collections::BTreeMap;

use linux::accounting::CoresSensor;
use linux::clock;
use machine::topology::Topology;
use machine::{CoreId, CpuSet, Nanoseconds, Result};

pub struct Cores {
    sensor: CoresSensor,
    topology: &'static Topology,
    /// Time of the last reading, and the idle time of each core since it came on line.
    before: Option<(Nanoseconds, BTreeMap<CoreId, u64>)>,
    busy: BTreeMap<CoreId, f64>,
}

impl Cores {
    pub fn open() -> Result<Cores> {
        let sensor = CoresSensor::without_bpf("softirqs are told by the profiles of jobs")?;
        Ok(Cores { sensor, topology: Topology::live()?, before: None, busy: BTreeMap::new() })
    }

    /// Ends a window.
    pub fn look(&mut self) -> Result<()> {
        let idle: BTreeMap<CoreId, u64> =
            self.sensor.load()?.into_iter().map(|(core, load)| (core, load.idle)).collect();
        let now = clock::monotonic();
        if let Some((then, before)) = &self.before {
            let passed = now.0.saturating_sub(then.0).max(1) as f64;
            let busy = |(core, idle): (&CoreId, &u64)| {
                let idle = idle.saturating_sub(*before.get(core)?) as f64;
                Some((*core, (1.0 - idle / passed).clamp(0.0, 1.0)))
            };
            self.busy = idle.iter().filter_map(busy).collect();
        }
        self.before = Some((now, idle));
        Ok(())
    }

    /// Share of the last window in which a core was busy; `None` before the first window.
    pub fn busy(&self, core: CoreId) -> Option<f64> {
        self.busy.get(&core).copied()
    }

    pub fn online(&self) -> &CpuSet {
        &self.topology.online
    }

    pub fn node(&self, core: CoreId) -> Option<u32> {
        self.topology.cpus.iter().find(|cpu| cpu.id == core)?.node
    }

    /// The NUMA node of all these cores; `None` where they have several.
    pub fn node_of(&self, cores: &CpuSet) -> Option<u32> {
        let node = self.node(cores.first()?)?;
        cores.iter().all(|core| self.node(core) == Some(node)).then_some(node)
    }
}
