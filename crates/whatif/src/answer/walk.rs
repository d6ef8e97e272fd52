//! The critical path as recorded, with or without the costs of messages.

use machine::Result;
use timeline::SHORTEST;

use crate::graph::{Graph, Step};
use crate::model::{Price, Prices, Progress};
use crate::path::{Path, critical, entry};
use crate::replay::{Conditions, PS, Replayed, Residuals, replay};

/// The critical path as recorded: under `prices`, or as if messages took no time.
///
/// # Errors
/// The recording contradicts itself.
pub fn walk(graph: &Graph, prices: Option<Prices>, progress: Progress) -> Result<Path> {
    if let Some(prices) = prices {
        return walked(graph, prices, progress).map(|(path, ..)| path);
    }
    let free = Prices { kinds: vec![Price::default(); graph.kinds.len()] };
    let (path, conditions, learned) = walked(graph, free, Progress::Always)?;
    let kinds: Vec<Price> = waiting_sends(graph, &conditions, &learned)
        .into_iter()
        .map(|rendezvous| Price { rendezvous, ..Price::default() })
        .collect();
    if kinds.iter().all(|price| !price.rendezvous) {
        return Ok(path);
    }
    walked(graph, Prices { kinds }, Progress::Always).map(|(path, ..)| path)
}

fn walked(graph: &Graph, prices: Prices, progress: Progress) -> Result<(Path, Conditions, Replayed)> {
    let conditions = Conditions::of(graph, prices, progress);
    let learned = replay(graph, &conditions, Residuals::Learn(&mut Vec::new()))?;
    Ok((critical(graph, &conditions, &learned), conditions, learned))
}

/// By kind: whether its sends waited for their receivers. One that was over before its receive was posted waits for none; what
/// lasted until then by less than the shortest wait is no sign.
fn waiting_sends(graph: &Graph, conditions: &Conditions, learned: &Replayed) -> Vec<bool> {
    let (mut waited, mut sent_at_once) = (vec![false; graph.kinds.len()], vec![false; graph.kinds.len()]);
    for (place, lane) in graph.lanes.iter().enumerate() {
        for call in lane.first..lane.end {
            let (mut entered, left) = (None, learned.exits[call as usize]);
            for step in graph.steps(call) {
                let Step::Sent(message) = step else { continue };
                let of = graph.messages[message as usize];
                let posted = entry(graph, conditions, learned, graph.lane(of.receiver), of.receiver);
                let entered = *entered.get_or_insert_with(|| entry(graph, conditions, learned, place, call));
                sent_at_once[of.kind as usize] |= left < posted;
                waited[of.kind as usize] |= left >= posted && posted - entered >= SHORTEST * PS;
            }
        }
    }
    waited.into_iter().zip(sent_at_once).map(|(waited, at_once)| waited && !at_once).collect()
}
