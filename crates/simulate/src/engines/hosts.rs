//! The host of each rank, and the pace of the cores there.

use machine::fault::{Fault, Result};

/// Placement of the ranks.
#[derive(Debug, Clone, PartialEq)]
pub enum Hosts {
    /// On hosts in order, this number on each, with a core for each `cpu` of a schedule.
    Each(u32),
    /// Each on one core, whatever cpu its schedule names.
    Seated(Seated),
}

/// Ranks on cores that need not be of one clock.
#[derive(Debug, Clone, PartialEq)]
pub struct Seated {
    /// By rank: its host, and the factor by which its core takes longer than the one whose costs are given.
    pub ranks: Vec<(usize, f64)>,
    /// By host: the factor of its engine core.
    pub engines: Vec<f64>,
    /// The share of computing that takes longer by that factor.
    pub clocked: f64,
}

impl Hosts {
    pub(super) fn seated(&self, ranks: usize) -> Result<Seated> {
        match self {
            Hosts::Each(0) => Err(Fault::new("ranks per host", "there are none", "give at least 1")),
            Hosts::Each(each) => {
                let each = *each as usize;
                let host = |rank| (rank / each, 1.0);
                let engines = vec![1.0; ranks.div_ceil(each)];
                Ok(Seated { ranks: (0..ranks).map(host).collect(), engines, clocked: 1.0 })
            }
            Hosts::Seated(seated) if seated.ranks.len() == ranks => {
                match seated.ranks.iter().position(|(host, _)| *host >= seated.engines.len()) {
                    Some(rank) => Err(Fault::new(
                        format!("rank {rank}"),
                        "it is on a host that is not there",
                        "map it to another",
                    )),
                    None => Ok(seated.clone()),
                }
            }
            Hosts::Seated(seated) => {
                let cause = format!("it has {ranks} ranks, and {} are on hosts", seated.ranks.len());
                Err(Fault::new("the program", cause, "put each rank on a host"))
            }
        }
    }
}

impl Seated {
    /// Whether packets go between hosts.
    pub fn is_spread(&self) -> bool {
        self.ranks.iter().any(|(host, _)| *host != self.ranks[0].0)
    }
}

/// Work that takes `pace` times as long.
pub fn paced(work: u64, pace: f64) -> u64 {
    if pace == 1.0 { work } else { (work as f64 * pace).round() as u64 }
}
