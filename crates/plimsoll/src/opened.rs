//! A program to replay: from a profile with a timeline, or from a schedule.

use std::path::Path;

use machine::{Fault, Result};
use profile::profile::Profile;
use profile::summary::Summary;
use timeline::places::Places;
use whatif::candidate::Recorded;
use whatif::graph::{Graph, Reach};

use crate::critical::{self, Names};

/// The graph, and what is known of its job.
pub struct Opened {
    pub folder: String,
    pub graph: Graph,
    /// Of the whole job; `None`: not known.
    pub seconds: Option<f64>,
    /// `None` of a schedule.
    pub summary: Option<Summary>,
    /// Which MPI_COMM_WORLD of the profile the graph is of.
    pub world: usize,
    places: Places,
}

impl Opened {
    /// One MPI_COMM_WORLD of a profile.
    ///
    /// # Errors
    /// It cannot be read, has no timeline with calls in it, or no such world.
    pub fn profile(path: &Path, world: usize) -> Result<Opened> {
        let folder = path.display().to_string();
        let mut profile = Profile::open(path)?;
        let mut summary = Summary::of(&profile);
        profile::cores::fill(&profile, &mut summary);
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
    /// It cannot be read, or its operations require each other.
    pub fn schedule(file: &Path, per_host: Option<u32>) -> Result<Opened> {
        let folder = file.display().to_string();
        let graph = Graph::of_schedule(&crate::commands::schedule::read(file)?, per_host.unwrap_or(u32::MAX));
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
