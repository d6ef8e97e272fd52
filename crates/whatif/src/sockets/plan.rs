//! Facts about a graph that all of its runs need.

use std::collections::HashMap;

use crate::graph::{Graph, NO_CALL};

/// The lane of an end that was not recorded.
pub(super) const UNRECORDED: u32 = u32::MAX;

#[derive(Debug)]
pub(super) struct Plan {
    /// By message: the lanes of its sender and its receiver.
    pub ends: Vec<[u32; 2]>,
    /// By message: its connection, an ordered pair of ranks.
    pub connection: Vec<u32>,
    pub connections: usize,
    /// By rank: its lanes.
    pub lanes: Vec<Vec<u32>>,
}

impl Plan {
    pub(super) fn of(graph: &Graph) -> Plan {
        let lane = |call| if call == NO_CALL { UNRECORDED } else { graph.lane(call) as u32 };
        let ends: Vec<[u32; 2]> = graph.messages.iter().map(|of| [of.sender, of.receiver].map(lane)).collect();
        let mut places: HashMap<[u32; 2], u32> = HashMap::new();
        let rank = |lane: u32| graph.lanes.get(lane as usize).map_or(UNRECORDED, |lane| lane.rank);
        let mut connection = |ends: &[u32; 2]| {
            let next = places.len() as u32;
            *places.entry(ends.map(rank)).or_insert(next)
        };
        let connection: Vec<u32> = ends.iter().map(&mut connection).collect();
        let mut lanes = vec![Vec::new(); graph.hosts.len()];
        (0u32..).zip(&graph.lanes).for_each(|(place, lane)| lanes[lane.rank as usize].push(place));
        Plan { ends, connection, connections: places.len(), lanes }
    }

    /// A number from 0 to 1 by which a message's connection chooses among cores.
    pub(super) fn place(&self, message: u32) -> f64 {
        const GOLDEN: f64 = 0.618_033_988_749_894_9;
        (f64::from(self.connection[message as usize]) * GOLDEN).fract()
    }
}
