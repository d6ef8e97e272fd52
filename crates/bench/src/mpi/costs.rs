//! What was measured of two ranks, as rows of the machine's costs.

use machine::costs::{ENGINE, Item, Row, Way};
use machine::{Bytes, Nanoseconds, Reading, Site, SiteKind};

use experiment::point::Receiver;
use experiment::statistics::predictive_interval;

use super::block::Outcome;
use super::contender::{Contender, Hosts, Seats};
use super::pattern::{Pattern, Task};
use super::request::Findings;

/// Sizes that costs are taken at; between them they are linear.
const SIZES: [u64; 6] = [8, 512, 4 << 10, 16 << 10, 64 << 10, 1 << 20];

/// What is to be measured for costs: a message that is waited for, and a stream of them.
pub fn tasks() -> Vec<Task> {
    let of = |pattern| SIZES.map(|size| Task { pattern, size: Bytes(size), receiver: Receiver::Reads });
    [of(Pattern::Latency), of(Pattern::Rate)].concat()
}

/// A row for each way, quantity and size of which there are two blocks.
pub fn rows(findings: &Findings, source: &str, taken: Nanoseconds) -> Vec<Row> {
    let mut rows = Vec::new();
    for measured in &findings.measured {
        let way = way(&measured.contender, &measured.seats, &findings.mpi);
        for task in &findings.tasks {
            let of = |value: &dyn Fn(&Outcome) -> Option<f64>| measured.series.values(|block| value(block.of(task)?));
            let row = |item, values: Vec<f64>| {
                let cost = Reading::Measured(predictive_interval(&values)?);
                Some(Row { item, size: Some(task.size), cost, source: source.to_owned(), taken })
            };
            rows.extend(match task.pattern {
                Pattern::Latency => row(Item::HalfTrip(way.clone()), of(&|outcome| Some(outcome.value))),
                Pattern::Rate => row(Item::Message(way.clone()), of(&|outcome| Some(1e9 / outcome.value))),
                _ => None,
            });
            if task.pattern == Pattern::Rate && way.network.is_some() {
                rows.extend(row(Item::Softirq(way.clone()), of(&|outcome| outcome.softirqs().value().copied())));
            }
        }
    }
    rows
}

fn way(contender: &Contender, seats: &Seats, mpi: &str) -> Way {
    let between = match seats.hosts {
        Hosts::One | Hosts::Crowd(_) => None,
        Hosts::Lab => Some("lab".to_owned()),
        Hosts::Nodes => Some("nodes".to_owned()),
    };
    let (carrier, placement, network) = match contender {
        Contender::Engine { placement, network } => {
            let kind = if matches!(placement, Site::Core(_)) { SiteKind::Core } else { SiteKind::App };
            (ENGINE.to_owned(), kind, network.as_ref().map(|network| network.kind().to_owned()))
        }
        Contender::Peer(carrier) => (carrier.name.clone(), SiteKind::App, between),
    };
    Way { carrier, mpi: mpi.to_owned(), placement, network }
}
