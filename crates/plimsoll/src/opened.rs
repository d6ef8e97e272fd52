//! A program to replay: from a profile with a timeline, or from a schedule.

use std::collections::BTreeSet;
use std::path::Path;

use machine::{Costs, Fault, Result};
use profile::profile::Profile;
use profile::summary::Summary;
use record::folder;
use record::layout::words;
use timeline::places::Places;
use whatif::candidate::Recorded;
use whatif::goal;
use whatif::graph::{Graph, Reach};

use crate::critical::{self, Names};

/// A graph, with the facts known of its job.
pub struct Opened {
    pub folder: String,
    pub graph: Graph,
    /// Time of the whole job; `None`: not known.
    pub seconds: Option<f64>,
    /// The profile's summary; `None` for a schedule.
    pub summary: Option<Summary>,
    /// The MPI_COMM_WORLD of the graph, by number.
    pub world: usize,
    places: Places,
}

/// # Errors
/// The file cannot be read, or is no schedule.
pub fn read_schedule(file: &Path) -> Result<goal::Schedule> {
    let name = file.display().to_string();
    let text = std::fs::read(file)
        .map_err(|e| Fault::because(name.clone(), e, "write one with `plimsoll report DIR --export goal -o FILE`"))?;
    goal::read(&text).map_err(|fault| fault.within(name))
}

/// Refuses a schedule before it is read, if no measured costs can carry its messages.
///
/// # Errors
/// No such cost is known.
pub fn priced_schedule(costs: &Costs, named: Option<&str>) -> Result<()> {
    priced(Recorded { command: &[], library: "", between: false }, costs, named, true)
}

/// `apart`: messages may also go between hosts.
fn priced(recorded: Recorded, costs: &Costs, named: Option<&str>, apart: bool) -> Result<()> {
    let ways = |between| Recorded { between, ..recorded }.ways(costs, named).map(drop);
    match ways(apart) {
        Err(fault) if apart => ways(false).map_err(|_| fault),
        found => found,
    }
}

impl Opened {
    /// One MPI_COMM_WORLD of a profile, as [`Opened::profile`], refused before its timeline is read, which takes long.
    ///
    /// # Errors
    /// No cost is known of what carried its messages, or it cannot be read, or has no timeline with calls in it.
    pub fn priced(path: &Path, world: usize, costs: &Costs, named: Option<&str>) -> Result<Opened> {
        if folder::files(path, folder::TRACE_SUFFIX)?.is_empty() {
            return Opened::profile(path, world);
        }
        let profile = Profile::without_timeline(path)?;
        let library = profile.ranks.iter().map(|rank| words(&rank.header.library)).min().unwrap_or_default();
        let hosts: BTreeSet<String> = profile.ranks.iter().map(|rank| words(&rank.header.host)).collect();
        let recorded = Recorded { command: &profile.job.command, library: &library, between: false };
        priced(recorded, costs, named, hosts.len() > 1)?;
        Opened::profile(path, world)
    }

    /// One MPI_COMM_WORLD of a profile.
    ///
    /// # Errors
    /// It cannot be read, has no timeline with calls in it, or no such world.
    pub fn profile(path: &Path, world: usize) -> Result<Opened> {
        let folder = path.display().to_string();
        let mut profile = Profile::open(path)?;
        let summary = Summary::of(&profile);
        let Some(timeline) = profile.timeline.take() else {
            let next = "profile the program again: plimsoll profile --trace -- mpirun ..";
            return Err(Fault::new(folder, "it has no timeline, which a replay needs", next));
        };
        let graph = Graph::of(&timeline, world).map_err(|fault| fault.within(&folder))?;
        if graph.is_empty() {
            let cause = "no call between MPI_Init and MPI_Finalize was recorded";
            return Err(Fault::new(folder, cause, "see plimsoll report DIR"));
        }
        let (seconds, places) = (summary.job.seconds, timeline.places);
        Ok(Opened { folder, graph, seconds, summary: Some(summary), world, places })
    }

    /// # Errors
    /// The file cannot be read, or its operations require each other.
    pub fn schedule(file: &Path, per_host: Option<u32>) -> Result<Opened> {
        let folder = file.display().to_string();
        let graph = Graph::of_schedule(&read_schedule(file)?, per_host.unwrap_or(u32::MAX));
        let graph = graph.map_err(|fault| fault.within(&folder))?;
        Ok(Opened { folder, graph, seconds: None, summary: None, world: 0, places: Places::default() })
    }

    pub fn recorded(&self) -> Recorded<'_> {
        match &self.summary {
            Some(summary) => critical::recorded(summary, &self.graph).0,
            None => {
                let between = self.graph.kinds.iter().any(|kind| kind.reach == Reach::Between);
                Recorded { command: &[], library: "", between }
            }
        }
    }

    pub fn names(&self) -> Names<'_> {
        Names::of(self.summary.as_ref(), self.world, &self.places)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The damaged timeline would cause a fault if it were read.
    #[test]
    fn without_costs_no_timeline_is_read() {
        let place = tempfile::tempdir().unwrap();
        let ranks = place.path().join(folder::RANKS);
        std::fs::create_dir(&ranks).unwrap();
        for suffix in [folder::RANK_SUFFIX, folder::TRACE_SUFFIX] {
            std::fs::write(ranks.join(format!("here.1.0.{suffix}")), "nothing of the kind").unwrap();
        }
        let refused = |named| Opened::priced(place.path(), 0, &Costs::modelled(), named).err().map(|of| of.to_string());
        for named in [None, Some("ucx")] {
            let fault = refused(named).unwrap();
            assert!(fault.contains("no cost of this machine was ever measured"), "{fault}");
        }
        let fault = priced_schedule(&Costs::modelled(), Some("ucx")).unwrap_err().to_string();
        assert!(fault.starts_with("carrier ucx: ") && fault.contains("plimsoll calibrate"), "{fault}");
        assert!(Opened::profile(place.path(), 0).is_err_and(|of| !of.to_string().contains("no cost")));
    }
}
