//! Packages, dies, cores, threads, caches and NUMA nodes, from `/sys/devices/system`.
//!
//! The layout is that of the kernel's `Documentation/admin-guide/cputopology.rst` and
//! `Documentation/ABI/stable/sysfs-devices-node`. Masks are read rather than lists, because hwloc reads them too: an
//! archive is also input for `lstopo`, the outside check.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::cpuset::{CpuSet, cache_size};
use crate::fault::{Fault, Result};
use crate::quantity::Bytes;
use crate::site::CoreId;
use crate::source::Source;

const CPU: &str = "/sys/devices/system/cpu";
const NODE: &str = "/sys/devices/system/node";

crate::named! {
    /// The kind of a core, on machines that mix kinds.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum CoreKind {
        /// The faster kind.
        Performance = "performance core",
        /// The kind that takes less power.
        Efficient = "efficient core",
        /// The kind that takes least, on machines with three.
        LowPower = "low-power efficient core",
    }
}

/// One logical CPU that is online.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    /// The kernel's number.
    pub id: CoreId,
    /// The package's number, dense from 0 in order of its first CPU.
    pub package: u32,
    /// The kernel's `core_id`; unique within a package only. Absent on some virtual machines.
    pub core_number: Option<u32>,
    /// All logical CPUs of the same physical core, this one included.
    pub threads: CpuSet,
    /// Number of its NUMA node.
    pub node: Option<u32>,
    /// The kind of core, on machines that mix kinds.
    pub kind: Option<CoreKind>,
}

/// The content of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheKind {
    /// Data only.
    Data,
    /// Instructions only.
    Instruction,
    /// Both.
    Unified,
}

/// One cache and the CPUs that share it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Cache {
    /// Its level: 1 is nearest the core.
    pub level: u32,
    /// Its content.
    pub kind: CacheKind,
    /// CPUs that share it.
    pub shared_by: CpuSet,
    /// Its size; absent where a hypervisor or firmware hides it.
    pub size: Option<Bytes>,
    /// Length of a line.
    pub line: Option<Bytes>,
}

/// One NUMA node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumaNode {
    /// The kernel's number.
    pub id: u32,
    /// Its CPUs; empty for memory without CPUs.
    pub cpus: CpuSet,
    /// Memory of the node.
    pub memory: Option<Bytes>,
    /// Distances to all nodes in order of number; 10 is local (ACPI SLIT).
    pub distances: Vec<u32>,
}

/// The CPUs that are online, with their packages, caches and nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    /// The CPUs that are online, in ascending order.
    pub cpus: Vec<Cpu>,
    /// Logical CPUs of each package, in order of number.
    pub packages: Vec<CpuSet>,
    /// Logical CPUs of each die; as many as packages where a package is one die.
    pub dies: Vec<CpuSet>,
    /// The caches, in order of level, kind and first CPU.
    pub caches: Vec<Cache>,
    /// The NUMA nodes, in order of number.
    pub nodes: Vec<NumaNode>,
    /// CPUs that are online.
    pub online: CpuSet,
    /// CPUs that are present, but switched off.
    pub offline: CpuSet,
    /// CPUs that the boot parameter `isolcpus` keeps free of the scheduler's balancing.
    pub isolated: CpuSet,
}

impl Topology {
    /// The topology of this host, read once.
    ///
    /// # Errors
    /// As [`Topology::read`].
    pub fn live() -> Result<&'static Topology> {
        static LIVE: OnceLock<Topology> = OnceLock::new();
        match LIVE.get() {
            Some(topology) => Ok(topology),
            None => Topology::read(&Source::live()).map(|topology| LIVE.get_or_init(|| topology)),
        }
    }

    /// # Errors
    /// No CPU is visible.
    pub fn read(source: &Source) -> Result<Topology> {
        let online = source.cpu_list(&format!("{CPU}/online")).filter(|set| !set.is_empty());
        let on = |core: &CoreId| source.number::<u8>(&format!("{CPU}/cpu{}/online", core.0)) != Some(0);
        let listed = || numbered(source, CPU, "cpu").map(|all| all.iter().filter(on).collect::<CpuSet>());
        let online = online.or_else(listed).filter(|set| !set.is_empty()).ok_or_else(|| {
            Fault::new(
                "topology",
                format!("{CPU} shows no CPU"),
                "mount sysfs (`mount -t sysfs sysfs /sys`), or name an archive that holds it",
            )
        })?;
        let online = with_own(source, online);
        let nodes = read_nodes(source, &online);
        let kinds = read_kinds(source, &online);

        let (mut packages, mut dies) = (Claims::default(), Claims::default());
        let mut cpus = Vec::with_capacity(online.len());
        for id in online.iter() {
            let topology = format!("{CPU}/cpu{}/topology", id.0);
            // The first name of each pair is that of Linux 5.3 and later, the second its older synonym.
            let mask = |names: [&str; 2]| {
                let found = names.iter().find_map(|name| source.cpu_mask(&format!("{topology}/{name}")));
                found.map(|set| set.intersection(&online)).filter(|set| set.contains(id))
            };
            let package = mask(["package_cpus", "core_siblings"]).unwrap_or_else(|| online.clone());
            let die = mask(["die_cpus", "die_cpus"]).unwrap_or_else(|| package.clone());
            *dies.entry(die).or_default() += 1;
            *packages.entry(package).or_default() += 1;
            cpus.push(Cpu {
                id,
                package: 0,
                core_number: source.number(&format!("{topology}/core_id")),
                threads: mask(["core_cpus", "thread_siblings"]).unwrap_or_else(|| [id].into_iter().collect()),
                node: nodes.iter().find(|node| node.cpus.contains(id)).map(|node| node.id),
                kind: kinds.get(&id).copied(),
            });
        }
        part_compute_units(&mut cpus);
        let packages = disjoint(packages, &online);
        for cpu in &mut cpus {
            cpu.package = packages.iter().position(|set| set.contains(cpu.id)).unwrap_or(0) as u32;
        }
        Ok(Topology {
            caches: read_caches(source, &online, &cpus),
            offline: source.cpu_list(&format!("{CPU}/offline")).unwrap_or_default().difference(&online),
            isolated: source.cpu_list(&format!("{CPU}/isolated")).unwrap_or_default(),
            dies: disjoint(dies, &online),
            cpus,
            packages,
            nodes,
            online,
        })
    }

    /// The CPU of this number, if it is online.
    pub fn cpu(&self, id: CoreId) -> Option<&Cpu> {
        self.cpus.binary_search_by_key(&id, |cpu| cpu.id).ok().map(|at| &self.cpus[at])
    }

    /// The number of physical cores.
    pub fn core_count(&self) -> usize {
        self.cpus.iter().map(|cpu| &cpu.threads).collect::<BTreeSet<_>>().len()
    }

    /// The last-level cache of `core`.
    pub fn last_level_cache(&self, core: CoreId) -> Option<&Cache> {
        let reaches = |cache: &&Cache| cache.kind != CacheKind::Instruction && cache.shared_by.contains(core);
        self.caches.iter().filter(reaches).max_by_key(|cache| cache.level)
    }

    /// The size of the largest last-level cache.
    pub fn last_level_cache_size(&self) -> Option<Bytes> {
        self.online.iter().filter_map(|core| self.last_level_cache(core)?.size).max()
    }
}

/// `online`, and other online CPUs that this process may use, where a container mounts another list over the kernel's (lxcfs).
fn with_own(source: &Source, online: CpuSet) -> CpuSet {
    let status = source.text("/proc/self/status").unwrap_or_default();
    let allowed = status.lines().find_map(|line| CpuSet::from_list(line.strip_prefix("Cpus_allowed_list:")?));
    let unlisted = allowed.unwrap_or_default().difference(&online);
    let on = |core: &CoreId| source.number::<u8>(&format!("{CPU}/cpu{}/online", core.0)) == Some(1);
    let more: CpuSet = unlisted.iter().filter(on).collect();
    if more.is_empty() { online } else { online.iter().chain(more.iter()).collect() }
}

/// Directories named `prefix` and a number.
fn numbered(source: &Source, directory: &str, prefix: &str) -> Option<CpuSet> {
    let number = |name: &str| name.strip_prefix(prefix).and_then(|n| n.parse().ok()).map(CoreId);
    let names = source.names(directory, |name| number(name).is_some_and(|n| n.0 < 1 << 16)).ok()?;
    Some(names.iter().filter_map(|name| number(name)).collect())
}

/// Sets of CPUs, each with the number of CPUs that claim to be in it.
type Claims = BTreeMap<CpuSet, usize>;

/// The disjoint sets that most CPUs agree on, in order of their first CPU; the CPUs of no such set form one.
fn disjoint(claims: Claims, online: &CpuSet) -> Vec<CpuSet> {
    let mut claims: Vec<(CpuSet, usize)> = claims.into_iter().collect();
    claims.sort_by_key(|(_, agree)| std::cmp::Reverse(*agree));
    let mut taken = BTreeSet::new();
    let mut sets = Vec::new();
    for (set, _) in claims {
        if set.iter().all(|core| !taken.contains(&core)) {
            taken.extend(set.iter());
            sets.push(set);
        }
    }
    let rest: CpuSet = online.iter().filter(|core| !taken.contains(core)).collect();
    sets.extend((!rest.is_empty()).then_some(rest));
    sets.sort_by_key(CpuSet::first);
    sets
}

/// Siblings with different core numbers are cores: those of AMD's compute units (family 15h).
fn part_compute_units(cpus: &mut [Cpu]) {
    let numbers: BTreeMap<CoreId, u32> = cpus.iter().filter_map(|cpu| Some((cpu.id, cpu.core_number?))).collect();
    for cpu in cpus.iter_mut().filter(|cpu| cpu.threads.len() > 1) {
        let own = numbers.get(&cpu.id);
        let other = |core: &CoreId| own.is_some() && numbers.get(core).is_some_and(|number| Some(number) != own);
        cpu.threads = cpu.threads.iter().filter(|core| !other(core)).collect();
    }
}

fn read_nodes(source: &Source, online: &CpuSet) -> Vec<NumaNode> {
    let ids = source.cpu_list(&format!("{NODE}/online")).or_else(|| numbered(source, NODE, "node"));
    let node = |CoreId(id)| {
        let meminfo = source.text(&format!("{NODE}/node{id}/meminfo")).unwrap_or_default();
        let total = meminfo.lines().find_map(|line| line.split_once("MemTotal:")?.1.split_whitespace().next());
        let kib: Option<u64> = total.and_then(|kib| kib.parse().ok());
        let distance = source.word(&format!("{NODE}/node{id}/distance")).unwrap_or_default();
        NumaNode {
            id,
            cpus: source.cpu_mask(&format!("{NODE}/node{id}/cpumap")).unwrap_or_default().intersection(online),
            memory: kib.and_then(|kib| kib.checked_mul(1024)).map(Bytes),
            distances: distance.split_whitespace().map_while(|d| d.parse().ok()).collect(),
        }
    };
    ids.unwrap_or_default().iter().map(node).collect()
}

/// Kinds by the hybrid PMUs of x86 (`cpu_core`, `cpu_atom`, `cpu_lowpower`), else by gaps in `cpu_capacity`.
fn read_kinds(source: &Source, online: &CpuSet) -> BTreeMap<CoreId, CoreKind> {
    let pmus =
        [("cpu_core", CoreKind::Performance), ("cpu_atom", CoreKind::Efficient), ("cpu_lowpower", CoreKind::LowPower)];
    let mut kinds = BTreeMap::new();
    for (pmu, kind) in pmus {
        let cpus = source.cpu_list(&format!("/sys/bus/event_source/devices/{pmu}/cpus")).unwrap_or_default();
        kinds.extend(cpus.intersection(online).iter().map(|core| (core, kind)));
    }
    if !kinds.is_empty() {
        return kinds;
    }
    let capacity = |core: CoreId| Some((core, source.number::<u32>(&format!("{CPU}/cpu{}/cpu_capacity", core.0))?));
    let capacities: Vec<_> = online.iter().map_while(capacity).collect();
    let mut steps: Vec<u32> = capacities.iter().map(|(_, capacity)| *capacity).collect();
    steps.sort_unstable_by(|a, b| b.cmp(a));
    // Favoured cores of a kind are a few percent faster; kinds differ by a tenth at least.
    let apart = |pair: &&[u32]| u64::from(pair[1]) * 10 < u64::from(pair[0]) * 9;
    let slower: Vec<u32> = steps.windows(2).filter(apart).map(|pair| pair[1]).collect();
    if slower.is_empty() || capacities.len() < online.len() {
        return kinds;
    }
    let kind = |capacity: u32| match slower.iter().filter(|most| capacity <= **most).count() {
        0 => CoreKind::Performance,
        1 => CoreKind::Efficient,
        _ => CoreKind::LowPower,
    };
    capacities.into_iter().map(|(core, capacity)| (core, kind(capacity))).collect()
}

fn read_caches(source: &Source, online: &CpuSet, cpus: &[Cpu]) -> Vec<Cache> {
    let mut caches = BTreeMap::new();
    for cpu in cpus {
        let CoreId(id) = cpu.id;
        let directory = format!("{CPU}/cpu{id}/cache");
        let is_index = |name: &str| name.strip_prefix("index").is_some_and(|n| n.parse::<u8>().is_ok());
        for index in source.names(&directory, is_index).unwrap_or_default() {
            let file = |name: &str| format!("{directory}/{index}/{name}");
            let kind = match source.word(&file("type")).as_deref() {
                Some("Data") => CacheKind::Data,
                Some("Instruction") => CacheKind::Instruction,
                Some("Unified") => CacheKind::Unified,
                _ => continue,
            };
            let Some(level) = source.number::<u32>(&file("level")) else { continue };
            let shared = source.cpu_mask(&file("shared_cpu_map")).unwrap_or_default().intersection(online);
            let shared_by = if shared.is_empty() { cpu.threads.clone() } else { shared };
            let size = source.text(&file("size")).ok().and_then(|text| cache_size(&text));
            let line = source.number(&file("coherency_line_size")).map(Bytes);
            let first = shared_by.first();
            caches.entry((level, kind, first)).or_insert(Cache { level, kind, shared_by, size, line });
        }
    }
    caches.into_values().collect()
}
