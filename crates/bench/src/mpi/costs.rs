//! Measurements of two ranks as rows of the machine's costs.

use machine::costs::{ENGINE, Interval, Item, Row, Way};
use machine::{Bytes, Nanoseconds, Reading, Site, SiteKind};

use rounds::point::Receiver;
use rounds::statistics::predictive_interval;

use super::block::Outcome;
use super::contender::{Contender, Hosts, Seats};
use super::pattern::{Pattern, Task};
use super::request::Findings;

/// Sizes of measured costs; between them costs are linear.
const SIZES: [u64; 6] = [8, 512, 4 << 10, 16 << 10, 64 << 10, 1 << 20];

/// Tasks for costs: a message that is waited for, and a stream of messages.
pub fn tasks() -> Vec<Task> {
    let of = |pattern| SIZES.map(|size| Task { pattern, size: Bytes(size), receiver: Receiver::Reads });
    [of(Pattern::Latency), of(Pattern::Rate)].concat()
}

/// Fewest blocks that predict the next one: by Student's t the interval of two blocks is thirteen deviations wide to each
/// side, that of three four.
pub const FEWEST: usize = 4;

/// A row for each way, quantity and size with enough blocks; and the number of those with some, but too few.
pub fn rows(findings: &Findings, source: &str, taken: Nanoseconds) -> (Vec<Row>, usize) {
    let (mut rows, mut short) = (Vec::new(), 0);
    for measured in &findings.measured {
        let way = way_of(&measured.contender, &measured.seats, &findings.mpi);
        for task in &findings.tasks {
            let of = |value: &dyn Fn(&Outcome) -> Option<f64>| measured.series.values(|block| value(block.of(task)?));
            let mut row = |item, values: Vec<f64>| {
                short += usize::from((1..FEWEST).contains(&values.len()));
                let cost = Reading::Measured(cost(&values)?);
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
    (rows, short)
}

/// Interval of the next such value; `None` of too few.
fn cost(values: &[f64]) -> Option<Interval> {
    predictive_interval(values).filter(|_| values.len() >= FEWEST)
}

/// The way under which a contender's costs are stored.
fn way_of(contender: &Contender, seats: &Seats, mpi: &str) -> Way {
    let (carrier, placement, network) = match contender {
        Contender::Engine { placement, network } => {
            let kind = if matches!(placement, Site::Core(_)) { SiteKind::Core } else { SiteKind::App };
            (ENGINE.to_owned(), kind, network.as_ref().map(|network| network.kind().to_string()))
        }
        Contender::Peer(carrier) => {
            // The carrier chooses its network itself: only its hosts are known.
            let network = match seats.hosts {
                Hosts::One | Hosts::Crowd(_) => None,
                Hosts::Lab => Some("lab".to_owned()),
                Hosts::Nodes => Some("nodes".to_owned()),
            };
            (carrier.name.clone(), SiteKind::App, network)
        }
    };
    Way { carrier, mpi: mpi.to_owned(), placement, network }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_cut_short_is_no_cost() {
        let values = [300.0, 310.0, 290.0, 305.0, 295.0];
        let known = |blocks: usize| cost(&values[..blocks]).is_some();
        assert_eq!([0, 1, 2, 3, 4, 5].map(known), [false, false, false, false, true, true]);
        let wide = cost(&values).unwrap();
        assert!(wide.high / wide.low < 1.5, "{wide:?}");
    }
}
