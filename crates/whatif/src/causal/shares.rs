//! The parts of a run that costs have on its critical path, by slopes, beside those that they have in the ranks' time.
//!
//! A run's time is of degree 1 in all its costs, so that these parts of all costs together are 1 (Euler). They are elasticities: a
//! cost that is 1 % higher makes a run 1 % of its part longer.

use machine::costs::Interval;
use machine::{Bytes, Costs, Result};
use rounds::estimate::Estimate;
use serde::Serialize;

use super::{Amounts, Factor, Shown, Slope};
use crate::graph::{Kind, Reach};
use crate::model::{Draw, Ways, price};

/// What a cost has of the critical path, by its slope, and of the ranks' time. Parts of the run's time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Share {
    pub on_path: Estimate,
    /// Of the ranks that are delayed: the mean, and the most.
    pub mean: f64,
    pub most: f64,
    /// Of all ranks: the mean.
    pub of_all: f64,
}

/// The work of a core for messages at one end, by the machine's costs, ns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Work {
    /// For a message without bytes.
    pub message: Interval,
    /// For a byte more.
    pub byte: Interval,
}

impl Work {
    /// The work for messages of these sizes and numbers. `between`: of a job on several hosts, of whose messages it is not known which
    /// stay within one.
    ///
    /// # Errors
    /// The costs of what carried them were never measured.
    pub fn of(sizes: &[(Bytes, u64)], costs: &Costs, ways: &Ways, between: bool) -> Result<Work> {
        let reaches: &[Reach] = if between { &[Reach::Host, Reach::Between] } else { &[Reach::Host] };
        let mut all = Vec::new();
        for reach in reaches {
            for place in [-1.0, 0.0, 1.0] {
                let draw = Draw { trip: [place; 2], work: [place; 2] };
                let of =
                    |bytes| Ok(price(Kind { bytes, reach: *reach, trips: 1 }, costs, ways, &draw)?.send as f64 / 1e3);
                let (least, mut more, mut bytes) = (of(1)?, 0.0, 0.0);
                for (size, messages) in sizes {
                    more += *messages as f64 * (of(size.0.max(1))? - least).max(0.0);
                    bytes += *messages as f64 * size.0 as f64;
                }
                all.push((least, if bytes > 0.0 { more / bytes } else { 0.0 }));
            }
        }
        let interval = |of: fn(&(f64, f64)) -> f64| {
            let values = all.iter().map(of);
            let (low, high) = (values.clone().fold(f64::INFINITY, f64::min), values.clone().fold(0.0, f64::max));
            // The draws of each reach have its middle in their middle.
            let middle = values.skip(1).step_by(3).sum::<f64>() / reaches.len() as f64;
            Interval { low, middle, high }
        };
        Ok(Work { message: interval(|of| of.0), byte: interval(|of| of.1) })
    }
}

impl Shown {
    /// The share of the cost whose slope this is; `None` where the slope, or the work of messages, is not known.
    fn share(&self, slope: &Slope, work: Option<&Work>) -> Option<Share> {
        let (target, of) = (slope.target, slope.possible()?);
        let mean_size = self.bytes as f64 / self.messages.max(1) as f64;
        // What there is of it in a rank, and what each takes.
        let (amount, each): (fn(&Amounts) -> f64, Interval) = match (target.factor, work) {
            (Factor::Compute, _) => (|rank| rank.computing, Interval::exactly(1.0)),
            (Factor::Send, Some(work)) => (|rank| rank.delays[Factor::Send.kind()] as f64, work.message),
            (Factor::Byte, Some(work)) => (|rank| rank.bytes as f64, work.byte),
            (Factor::Receive, Some(work)) => {
                (|rank| rank.delays[Factor::Receive.kind()] as f64, work.message.plus(work.byte.times(mean_size)))
            }
            (_, None) => return None,
        };
        let in_ranks = self.of_target(target).map(amount);
        let (ranks, all, most) =
            in_ranks.fold((0, 0.0, 0.0), |(ranks, all, most), of| (ranks + 1, all + of, f64::max(most, of)));
        let of_run = |amount: f64, each: f64| amount * each / self.elapsed;
        let on_path = Estimate {
            middle: of.middle * of_run(all, each.middle),
            low: of.low * of_run(all, each.low),
            high: of.high * of_run(all, each.high),
            samples: of.samples,
        };
        let mean = of_run(all, each.middle) / f64::from(ranks.max(1));
        let of_all = of_run(all, each.middle) / self.ranks.len() as f64;
        Some(Share { on_path, mean, most: of_run(most, each.middle), of_all })
    }
}

impl super::Findings {
    /// Adds the shares of all slopes. `first`: the run that counted; `work`: that of its messages, if it is known.
    pub fn weigh(&mut self, first: &Shown, work: Option<&Work>) {
        self.slopes.iter_mut().for_each(|slope| slope.share = first.share(slope, work));
    }
}

#[cfg(test)]
mod tests {
    use machine::costs::{Item, Row, Way};
    use machine::{Nanoseconds, Reading, SiteKind};

    use super::*;
    use crate::causal::{Place, Target};

    /// 100 ns a message and half a nanosecond a byte.
    fn work() -> Work {
        let way = Way { carrier: "vader".into(), mpi: "Open MPI 4".into(), placement: SiteKind::App, network: None };
        let row = |item: fn(Way) -> Item, size: u64, ns: f64| Row {
            item: item(way.clone()),
            size: Some(Bytes(size)),
            cost: Reading::Measured(Interval { low: 0.9 * ns, middle: ns, high: 1.1 * ns }),
            source: "test".into(),
            taken: Nanoseconds(1),
        };
        let rows = [1, 1001].map(|size| row(Item::Message, size, 100.0 + 0.5 * (size - 1) as f64));
        let trips = [1, 1001].map(|size| row(Item::HalfTrip, size, 5000.0));
        let costs = Costs::of(rows.into_iter().chain(trips).collect());
        let ways = Ways { within: way.clone(), between: way, shared_links: false, eager: None };
        Work::of(&[(Bytes(1001), 10)], &costs, &ways, false).unwrap()
    }

    #[test]
    fn shares_are_slopes_times_costs_over_the_run() {
        let work = work();
        assert!(
            (work.message.middle - 100.0).abs() < 0.1 && (work.byte.middle - 500.0 / 1001.0).abs() < 1e-3,
            "{work:?}"
        );
        let rank = Amounts { delays: [1000, 2000, 0], bytes: 1_001_000, computing: 1e7 };
        let first = Shown {
            elapsed: 2e7,
            given: [(0, 0.0); 3],
            ranks: vec![rank.clone(), Amounts { computing: 0.5e7, ..rank }],
            messages: 2000,
            bytes: 2_002_000,
            sizes: Vec::new(),
            marks: 0,
        };
        let half = Estimate { middle: 0.5, low: 0.5, high: 0.5, samples: 8 };
        let share = |factor, place, work| {
            let target = Target { factor, place };
            first.share(
                &Slope {
                    target,
                    interval: Some(half),
                    count: 0.0,
                    bytes: 0.0,
                    doses: vec![],
                    near_after: None,
                    share: None,
                },
                work,
            )
        };
        let near = |share: Option<Share>, path: f64, mean: f64, most: f64| {
            let of = share.unwrap();
            let all = [(of.on_path.middle, path), (of.mean, mean), (of.most, most)];
            assert!(all.iter().all(|(is, should)| (is - should).abs() < 1e-3 * should), "{of:?}");
            assert!(of.on_path.low <= of.on_path.middle && of.on_path.middle <= of.on_path.high);
        };
        near(share(Factor::Compute, Place::Everywhere, None), 0.375, 0.375, 0.5);
        near(share(Factor::Compute, Place::Rank(1), None), 0.125, 0.25, 0.25);
        // 2000 sends of 100 ns, 2 MB of half a nanosecond, and 4000 receives of both.
        near(share(Factor::Send, Place::Everywhere, Some(&work)), 0.005, 0.005, 0.005);
        near(share(Factor::Byte, Place::Everywhere, Some(&work)), 0.025, 0.025, 0.025);
        near(share(Factor::Receive, Place::Everywhere, Some(&work)), 0.06, 0.06, 0.06);
        assert_eq!(share(Factor::Send, Place::Everywhere, None), None);
    }
}
