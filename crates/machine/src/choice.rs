//! Which cores to take, by what they share rather than by number.
//!
//! Threads of one core (SMT) share its execution units, so a core is free only while none of its threads is taken.
//! Parties that work together should be near: caches first, then the NUMA node, then the package.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::cpuset::CpuSet;
use crate::fault::Result;
use crate::site::CoreId;
use crate::topology::{Cache, CacheKind, Topology};

/// The nearest resource that two logical CPUs share; nearer ones compare as less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Distance {
    /// The CPU itself: both are one.
    Same,
    /// The core: both are its threads.
    Core,
    /// A cache of this level, and none of a lower one.
    Cache(u32),
    /// The memory of one NUMA node.
    Node,
    /// The package, and no NUMA node.
    Package,
    /// Nothing but the machine: the distance of their nodes by the firmware's table (ACPI SLIT), 0 without one.
    Machine(u32),
}

impl Topology {
    /// The nearest resource that two cores share.
    pub fn distance(&self, one: CoreId, other: CoreId) -> Distance {
        self.distances_of(one)(other)
    }

    /// A function for the distance of others from `one`; its own position is looked up once.
    fn distances_of(&self, one: CoreId) -> impl Fn(CoreId) -> Distance + '_ {
        let reaches = |cache: &&Cache| cache.kind != CacheKind::Instruction && cache.shared_by.contains(one);
        let mut caches: Vec<&Cache> = self.caches.iter().filter(reaches).collect();
        caches.sort_by_key(|cache| cache.level);
        let own = self.cpu(one);
        move |other| {
            if one == other {
                return Distance::Same;
            }
            let (Some(own), Some(its)) = (own, self.cpu(other)) else { return Distance::Machine(0) };
            if own.threads.contains(other) {
                return Distance::Core;
            }
            if let Some(cache) = caches.iter().find(|cache| cache.shared_by.contains(other)) {
                return Distance::Cache(cache.level);
            }
            match (own.node, its.node) {
                (Some(a), Some(b)) if a == b => Distance::Node,
                _ if own.package == its.package => Distance::Package,
                (Some(a), Some(b)) => Distance::Machine(self.between_nodes(a, b).unwrap_or(0)),
                _ => Distance::Machine(0),
            }
        }
    }

    fn between_nodes(&self, one: u32, other: u32) -> Option<u32> {
        let column = self.nodes.iter().position(|node| node.id == other)?;
        self.nodes.iter().find(|node| node.id == one)?.distances.get(column).copied()
    }
}

/// Logical CPUs to choose from. Those that are not a job's to use (its cpuset, its affinity) are not among them.
#[derive(Debug, Clone)]
pub struct Choice<'a> {
    topology: &'a Topology,
    usable: CpuSet,
    taken: BTreeSet<CoreId>,
}

impl<'a> Choice<'a> {
    /// A choice among the cores `usable`, none of which is taken.
    pub fn among(topology: &'a Topology, usable: impl IntoIterator<Item = CoreId>) -> Self {
        Choice { topology, usable: usable.into_iter().collect(), taken: BTreeSet::new() }
    }

    /// Marks `cores` as taken, and with them the other threads of the same physical cores.
    pub fn without(mut self, cores: impl IntoIterator<Item = CoreId>) -> Self {
        self.taken.extend(cores);
        self
    }

    /// The threads of the physical core of `core`; `None` where the topology does not have it.
    fn threads(&self, core: CoreId) -> Option<&CpuSet> {
        self.topology.cpu(core).map(|cpu| &cpu.threads)
    }

    /// Whether `core` may be used and no thread of its physical core is taken.
    pub fn is_free(&self, core: CoreId) -> bool {
        // Few are taken, while a damaged topology may have thousands of threads a core.
        let beside = |taken: &CoreId| self.threads(core).is_some_and(|threads| threads.contains(*taken));
        self.usable.contains(core) && !self.taken.contains(&core) && !self.taken.iter().any(beside)
    }

    /// One thread of each free core: the first that may be used.
    pub fn whole(&self) -> CpuSet {
        let first = |core: &CoreId| {
            let threads = self.threads(*core);
            let first = threads.map_or(Some(*core), |of| of.iter().find(|thread| self.usable.contains(*thread)));
            self.is_free(*core) && first == Some(*core)
        };
        self.usable.iter().filter(first).collect()
    }

    /// All threads that are not taken, in two groups, each sorted by the distance to `from`: one thread of each free core; then
    /// those that share a core with one that is taken or of the first group.
    pub fn free_cores_first(&self, from: CoreId) -> Vec<CoreId> {
        let whole = self.whole();
        let distance = self.topology.distances_of(from);
        let rest = self.usable.iter().filter(|core| !self.taken.contains(core) && !whole.contains(*core));
        let sorted = |mut cores: Vec<CoreId>| {
            cores.sort_by_key(|core| (distance(*core), *core));
            cores
        };
        let mut all = sorted(whole.iter().collect());
        all.extend(sorted(rest.collect()));
        all
    }

    /// The best CPU that is not taken for a party that serves `to`.
    pub fn nearest(&self, to: CoreId) -> Option<CoreId> {
        self.free_cores_first(to).into_iter().find(|core| *core != to)
    }

    /// The core to begin with: on `node`, where it has one that is free.
    pub fn first(&self, node: Option<u32>) -> Option<CoreId> {
        let whole = self.whole();
        let there = |core: &CoreId| node.is_some() && self.topology.cpu(*core).is_some_and(|cpu| cpu.node == node);
        let any = || self.usable.iter().find(|core| !self.taken.contains(core));
        whole.iter().find(there).or(whole.first()).or_else(any)
    }

    /// Cores for parties that poll: a thread of each free core, near ones first, beginning on `node`. Sibling threads
    /// are among them only where there are no two cores.
    pub fn for_polling(&self, node: Option<u32>) -> Vec<CoreId> {
        let Some(first) = self.first(node) else { return Vec::new() };
        let mut cores = self.free_cores_first(first);
        let whole = self.whole().len();
        if whole >= 2 {
            cores.truncate(whole);
        }
        cores
    }
}

/// The cores of this host for parties that poll, of those that a process may use; see [`Choice::for_polling`].
pub fn for_polling_here(usable: &[CoreId]) -> Result<Vec<CoreId>> {
    Ok(Choice::among(Topology::live()?, usable.iter().copied()).for_polling(None))
}
