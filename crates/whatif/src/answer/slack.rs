//! Slack: how much longer a rank may compute before the run takes longer.

use machine::Result;

use super::{Program, in_parallel, reach};
use crate::path::critical;
use crate::replay::{Conditions, PS, Residuals, replay};

/// The most calls to replay for slack; each rank takes about [`REPLAYS`] replays.
const MOST_CALLS: usize = 400_000_000;
const REPLAYS: usize = 8;

/// How much longer all of a rank's computing may take for a given increase of the run's time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slack {
    pub rank: u32,
    /// The rank's computing, ns.
    pub computing: f64,
    /// The share by which it may take longer, 0.01 for 1 %; `None`: no computing of the rank slows the run as much.
    pub longer: Option<f64>,
}

impl Program<'_> {
    /// The slack of ranks for `more` time (0.01 for 1 %): of all ranks, or, for a program of many calls, of some, evenly spread.
    ///
    /// # Errors
    /// The errors of [`Program::ask`].
    pub fn slack(&self, more: f64) -> Result<Vec<Slack>> {
        let graph = self.graph;
        let before = self.conditions(&self.draws[0])?;
        let (residuals, learned) = self.learn(&before)?;
        let ranks = graph.hosts.len();
        let able = (MOST_CALLS / REPLAYS / graph.len().max(1)).clamp(1, ranks.max(1));
        let asked: Vec<u32> = (0..able.min(ranks)).map(|nth| (nth * ranks / able) as u32).collect();
        in_parallel(&asked, |rank| {
            let lanes = || graph.lanes.iter().enumerate().filter(|(_, lane)| lane.rank == *rank);
            let gaps = |place: usize| {
                let lane = graph.lanes[place];
                (lane.first..lane.end).map(|call| before.gap(graph, place, call)).sum::<i64>()
            };
            let computing = lanes().map(|(place, _)| gaps(place)).max().unwrap_or(0);
            let at = |longer: f64| -> Result<(f64, f64)> {
                let mut slower = before.computing.clone();
                lanes().for_each(|(place, _)| slower[place] = 1.0 + longer);
                let after = Conditions { computing: slower, ..before.clone() };
                let replayed = replay(graph, &after, Residuals::Own(&residuals))?;
                let path = critical(graph, &after, &replayed);
                let on_path = path.by(|spot| spot.rank == *rank).get(&true).map_or(0, |of| of.computing);
                Ok((replayed.total as f64 / 1e3, on_path as f64 / 1e3 / (1.0 + longer)))
            };
            let recorded = learned.total as f64 / 1e3;
            // The run gets longer by no more than the additional computing.
            let least = more * learned.total as f64 / computing.max(PS) as f64;
            let longer = if computing == 0 { None } else { reach(recorded, more, least, at)? };
            Ok(Slack { rank: *rank, computing: computing as f64 / 1e3, longer })
        })
    }
}
