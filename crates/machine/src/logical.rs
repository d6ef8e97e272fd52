//! hwloc's order of CPUs; some launchers take its numbers for the kernel's.

use crate::cpuset::CpuSet;
use crate::site::CoreId;
use crate::topology::Topology;

impl Topology {
    /// The CPUs that are online, by hwloc's logical number: siblings in its tree are ordered by their first CPUs.
    pub fn in_hwloc_order(&self) -> Vec<CoreId> {
        let nodes = self.nodes.iter().map(|node| &node.cpus);
        let shared = self.caches.iter().map(|cache| &cache.shared_by);
        let cores = self.cpus.iter().map(|cpu| &cpu.threads);
        let groups: Vec<&CpuSet> =
            self.packages.iter().chain(&self.dies).chain(nodes).chain(shared).chain(cores).collect();
        let path = |core: CoreId| {
            let mut around: Vec<&CpuSet> = groups.iter().copied().filter(|group| group.contains(core)).collect();
            around.sort_by_key(|group| std::cmp::Reverse(group.len()));
            around.dedup();
            around.iter().filter_map(|group| group.first()).chain([core]).collect::<Vec<_>>()
        };
        let mut order: Vec<CoreId> = self.cpus.iter().map(|cpu| cpu.id).collect();
        order.sort_by_cached_key(|core| path(*core));
        order
    }
}
