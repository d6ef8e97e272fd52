//! A core in its own cpuset, and the rest of our group in another.

use std::collections::HashMap;
use std::io;

use machine::lock::Lock;
use machine::topology::Topology;
use machine::{CoreId, CpuSet, Result};

use super::group::{self, CORE, Group, Maker, REST, Version};
use super::keeper::Keeper;
use super::{Means, not_possible};
use crate::accounting::current_thread;
use crate::mask;
use crate::ownership::start_of;

/// The cpusets of a shield; undone when dropped, or by a keeper when the owner is killed.
pub(super) struct Partition {
    parent: Group,
    core: Group,
    rest: Group,
    /// Number of groups, from the parent upwards, in which the controller was enabled for their children.
    given: usize,
    /// Original masks of moved threads, each with the thread's start time: the kernel restores masks by itself only
    /// since Linux 6.2.
    masks: HashMap<i32, (u64, CpuSet)>,
    bound: usize,
    only_within: Option<String>,
    keeper: Keeper,
    /// The lock on making, held until it succeeds or is undone.
    making: Option<Lock>,
}

impl Partition {
    pub fn make(core: CoreId) -> Result<Partition> {
        group::remove_remains()?;
        let parent = group::own()?;
        let failed = |doing: &str, e: io::Error| {
            let next = match e.kind() {
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => "run as root",
                _ => "use deadline scheduling, or `cat` the files of this cpuset to see who has the core",
            };
            not_possible(core, format!("cpuset {}: {doing}: {e}", parent.path.display()), next)
        };
        let lock = group::lock()?;

        let without = parent.without_cpusets().map_err(|e| failed("looking for the controller", e))?;
        let maker = Maker::this_process().map_err(|e| failed("reading /proc/self", e))?;
        let name = |what| parent.child(&maker.group_name(what, core, without.len()));
        let (own, rest) = (name(CORE), name(REST));
        let keeper = Keeper::start(&parent, [&own, &rest], without.len())?;
        // From here on dropping it undoes everything.
        let mut partition = Partition {
            core: own,
            rest,
            given: 0,
            only_within: (!parent.is_top()).then(|| parent.path.display().to_string()),
            parent: parent.clone(),
            masks: HashMap::new(),
            bound: 0,
            keeper,
            making: Some(lock),
        };
        // From the top, since a group can only enable what it has.
        for above in without.iter().rev() {
            partition.given = without.len();
            above.write("cgroup.subtree_control", "+cpuset").map_err(|e| failed("enabling the controller", e))?;
        }

        let cores = parent.cores().map_err(|e| failed("reading its cores", e))?;
        if !cores.contains(core) {
            let next = "choose a core of this cpuset";
            return Err(not_possible(core, format!("cpuset {} does not have it", parent.path.display()), next));
        }
        let others = beside(core, &cores, Topology::live()?);
        if others.is_empty() {
            let cause = format!("it is the only core of cpuset {}, and the rest needs one", parent.path.display());
            return Err(not_possible(core, cause, "give this process another core"));
        }
        for sibling in parent.children().map_err(|e| failed("looking at its groups", e))? {
            if sibling.may_run_on(core) {
                let cause = format!("cpuset {} has threads that may run there", sibling.path.display());
                return Err(not_possible(core, cause, "take the core out of it, or use deadline scheduling"));
            }
        }
        let only: CpuSet = std::iter::once(core).collect();
        for (group, cores) in [(&partition.rest, &others), (&partition.core, &only)] {
            group.make(&parent, cores).map_err(|e| failed("making a group", e))?;
        }
        partition.fill().map_err(|e| failed("moving threads", e))?;
        partition.isolate();
        let now = mask::get(0).map_err(|e| failed("reading this thread's cores", e))?;
        if now != only {
            return Err(failed("moving this thread", io::Error::other("the kernel did not confine it to the core")));
        }
        partition.making = None;
        Ok(partition)
    }

    fn fill(&mut self) -> io::Result<()> {
        let own = current_thread();
        let parents = self.parent.cores()?;
        let Partition { masks, keeper, parent, rest, .. } = self;
        self.bound = parent.move_threads(rest, |thread| {
            if thread == own {
                return Ok(false);
            }
            remember(thread, &parents, masks, keeper)?;
            Ok(true)
        })?;
        remember(own, &parents, &mut self.masks, &mut self.keeper)?;
        // A mask without the core would keep this thread off it.
        self.core.take(own)
    }

    /// Isolates the core from the rest of the machine too, where the kernel allows it: version 2 has partitions for
    /// that, below a group that is one itself.
    fn isolate(&mut self) {
        if self.core.version == Version::One {
            return;
        }
        let file = "cpuset.cpus.partition";
        let _ = self.core.write(file, "isolated");
        // A failed request reads as invalid, with the reason.
        if self.core.read(file).is_ok_and(|state| state == "isolated") {
            self.only_within = None;
        } else {
            let _ = self.core.write(file, "member");
        }
    }

    pub fn means(&self) -> Means {
        Means::Cpuset {
            moved: self.rest.threads().map_or(0, |threads| threads.len()),
            bound: self.bound,
            only_within: self.only_within.clone(),
        }
    }
}

/// The cores of the rest: without the core's threads if that leaves any, else without `core`.
fn beside(core: CoreId, cores: &CpuSet, topology: &Topology) -> CpuSet {
    let threads = topology.cpu(core).map(|cpu| cpu.threads.clone()).unwrap_or_default();
    let apart = cores.difference(&threads);
    if apart.is_empty() { cores.iter().filter(|other| *other != core).collect() } else { apart }
}

/// Stores a mask that moving the thread back to its group, which has `cores`, would not restore.
fn remember(
    thread: i32,
    cores: &CpuSet,
    masks: &mut HashMap<i32, (u64, CpuSet)>,
    keeper: &mut Keeper,
) -> io::Result<()> {
    let (Ok(start), Ok(mask)) = (start_of(thread as u32), mask::get(thread)) else { return Ok(()) };
    if mask == *cores || masks.get(&thread).is_some_and(|(known, _)| *known == start) {
        return Ok(());
    }
    keeper.remember(thread, start, &mask)?;
    masks.insert(thread, (start, mask));
    Ok(())
}

impl Drop for Partition {
    fn drop(&mut self) {
        let _lock = self.making.take().map_or_else(group::lock, Ok);
        // Where this fails, the next shield finds the group by its name.
        for group in [&self.core, &self.rest] {
            let _ = group::dissolve(group, &self.parent);
        }
        group::take_back(&self.parent, self.given);
        for (&thread, (start, mask)) in &self.masks {
            let is_it = start_of(thread as u32).is_ok_and(|now| now == *start);
            if is_it && mask::get(thread).is_ok_and(|now| now != *mask) {
                let _ = mask::set(thread, mask);
            }
        }
        self.keeper.dismiss();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_leave_both_threads_of_a_core_while_they_have_more() {
        let archive = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines/eight-node-job");
        let topology = Topology::read(&machine::Source::open(&archive).unwrap()).unwrap();
        let cores = |text: &str| text.parse::<CpuSet>().unwrap();
        assert_eq!(beside(CoreId(128), &cores("128-130,1152-1154"), &topology), cores("129-130,1153-1154"));
        assert_eq!(beside(CoreId(128), &cores("128,1152"), &topology), cores("1152"));
        assert_eq!(beside(CoreId(128), &cores("128"), &topology), cores(""));
    }
}
