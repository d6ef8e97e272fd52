//! A core in a cpuset of its own, and everything else of our group in another.

use std::collections::HashMap;
use std::fs;
use std::io;

use machine::{CoreId, CpuSet, Result};
use rustix::thread::{Pid, sched_getaffinity, sched_setaffinity};

use super::group::{self, CORE, Group, Maker, REST};
use super::{Means, not_possible};
use crate::accounting::current_thread;

/// Undone when dropped.
pub(super) struct Partition {
    parent: Group,
    core: Group,
    rest: Group,
    /// Masks of the threads that were moved, as they were: the kernel remembers them only since Linux 6.2.
    masks: HashMap<i32, rustix::thread::CpuSet>,
    bound: usize,
    only_within: Option<String>,
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
            not_possible(core, format!("cpuset {}: {doing}: {e}", parent.0.display()), next)
        };
        let _lock = parent.lock().map_err(|e| failed("locking", e))?;

        let cores = parent.cores().map_err(|e| failed("reading its cores", e))?;
        let others: CpuSet = cores.iter().filter(|&other| other != core).collect();
        if !cores.contains(core) {
            let next = "choose a core of this cpuset";
            return Err(not_possible(core, format!("cpuset {} does not have it", parent.0.display()), next));
        }
        if others.is_empty() {
            let cause = format!("it is the only core of cpuset {}, and the rest needs one", parent.0.display());
            return Err(not_possible(core, cause, "give this process another core"));
        }
        for sibling in parent.children().map_err(|e| failed("looking at its groups", e))? {
            let busy = sibling.cores().is_ok_and(|cores| cores.contains(core))
                && sibling.threads().is_ok_and(|threads| !threads.is_empty());
            if busy {
                let cause = format!("cpuset {} has threads that may run there", sibling.0.display());
                return Err(not_possible(core, cause, "take the core out of it, or use deadline scheduling"));
            }
        }
        let maker = Maker::this_process().map_err(|e| failed("reading /proc/self", e))?;
        let top = parent.read("cpuset.sched_relax_domain_level").is_ok() && parent.0.join("release_agent").exists();
        // From here on dropping it undoes what was done.
        let mut partition = Partition {
            core: parent.child(&maker.group_name(CORE, core)),
            rest: parent.child(&maker.group_name(REST, core)),
            only_within: (!top).then(|| parent.0.display().to_string()),
            parent: parent.clone(),
            masks: HashMap::new(),
            bound: 0,
        };
        let only: CpuSet = std::iter::once(core).collect();
        let memory = parent.read("cpuset.mems").map_err(|e| failed("reading its memory nodes", e))?;
        let exclusive = parent.read("cpuset.cpu_exclusive").is_ok_and(|flag| flag == "1");
        for (group, cores) in [(&partition.rest, &others), (&partition.core, &only)] {
            let make = || {
                fs::create_dir(&group.0)?;
                group.write("cpuset.mems", &memory)?;
                group.write("cpuset.cpus", &cores.to_string())?;
                // So that nobody makes another with this core while it is ours.
                if exclusive { group.write("cpuset.cpu_exclusive", "1") } else { Ok(()) }
            };
            make().map_err(|e| failed("making a group", e))?;
        }
        partition.fill().map_err(|e| failed("moving threads", e))?;
        let mask = sched_getaffinity(None).map_err(|e| failed("reading this thread's cores", e.into()))?;
        if mask.count() != 1 || !mask.is_set(core.0 as usize) {
            return Err(failed("moving this thread", io::Error::other("the kernel did not confine it to the core")));
        }
        Ok(partition)
    }

    fn fill(&mut self) -> io::Result<()> {
        let own = current_thread();
        let masks = &mut self.masks;
        self.bound = self.parent.move_threads(&self.rest, |thread| {
            if thread == own {
                return false;
            }
            if let Some(mask) = Pid::from_raw(thread).and_then(|pid| sched_getaffinity(Some(pid)).ok()) {
                masks.entry(thread).or_insert(mask);
            }
            true
        })?;
        self.masks.insert(own, sched_getaffinity(None)?);
        // A mask without the core would keep it out.
        self.core.write("tasks", &own.to_string())
    }

    pub fn means(&self) -> Means {
        Means::Cpuset {
            moved: self.rest.threads().map_or(0, |threads| threads.len()),
            bound: self.bound,
            only_within: self.only_within.clone(),
        }
    }
}

impl Drop for Partition {
    fn drop(&mut self) {
        let _lock = self.parent.lock();
        // What fails here, the next shield finds by its name.
        for group in [&self.core, &self.rest] {
            let _ = group::dissolve(group, &self.parent);
        }
        for (&thread, mask) in &self.masks {
            let Some(pid) = Pid::from_raw(thread) else { continue };
            if sched_getaffinity(Some(pid)).is_ok_and(|now| now != *mask) {
                let _ = sched_setaffinity(Some(pid), mask);
            }
        }
    }
}
