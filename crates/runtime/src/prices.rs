//! What a message between two sites costs: measured where that is cheap and disturbs nobody, else from a model, and
//! each says which.

use std::time::{Duration, Instant};

use linux::{affinity, channel, probe};
use machine::choice::Choice;
use machine::topology::Topology;
use machine::{CoreId, Reading, Result, Site, SiteKind};
use offcode::channel::{Buffers, Policy};
use offcode::{Channel, Specification};
use serde::{Deserialize, Serialize};

use crate::layout::{Costs, Ground};

/// Measuring ends after this; what is left comes from the model.
const BUDGET: Duration = Duration::from_millis(300);
/// Messages timed together, so that reading the clock weighs nothing.
const BATCH: u32 = 64;
const BATCHES: usize = 101;
/// With its header a call of a few arguments.
const MESSAGE: usize = 40;

/// Core time of one message between two sites, both ends together, either way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Price {
    pub between: [Site; 2],
    /// The price in nanoseconds.
    pub ns: Reading<f64>,
    /// The measurement that gave it, or the model.
    pub how: String,
}

/// One price for each two sites, and for each site with itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Prices(pub Vec<Price>);

impl Prices {
    /// Measures between the grounds of this host that share memory. Takes a few milliseconds for each two cores, 300 ms at
    /// most. To be done before their sites are opened: a polling thread on a core keeps the probe off it.
    pub fn measure(grounds: &[Ground]) -> Prices {
        let begun = Instant::now();
        let handling = handling().map_err(|fault| fault.to_string());
        let mut prices = Vec::new();
        for (n, one) in grounds.iter().enumerate() {
            for other in &grounds[n..] {
                let between = [one.site.clone(), other.site.clone()];
                let kinds = [one.site.kind(), other.site.kind()];
                let beyond = kinds.iter().any(|kind| matches!(kind, SiteKind::Xdp | SiteKind::Agent));
                let closed = one.closed.is_some() || other.closed.is_some();
                prices.push(if beyond || closed {
                    modelled(between)
                } else if begun.elapsed() > BUDGET {
                    not_measured(between, "the time for measuring was used up")
                } else {
                    match handling.clone().and_then(|handling| measured(&between, handling, grounds)) {
                        Ok(price) => price,
                        Err(why) => not_measured(between, &why),
                    }
                });
            }
        }
        Prices(prices)
    }

    pub fn modelled(grounds: &[Ground]) -> Prices {
        let pairs = grounds.iter().enumerate().flat_map(|(n, one)| grounds[n..].iter().map(move |other| (one, other)));
        Prices(pairs.map(|(one, other)| modelled([one.site.clone(), other.site.clone()])).collect())
    }

    /// Costs for a layout over `grounds`; a crossing without a price gets the model's.
    pub fn costs(&self, grounds: &[Ground]) -> Costs {
        let mut costs = Costs::modelled(grounds);
        let place = |site: &Site| grounds.iter().position(|ground| ground.site == *site);
        for price in &self.0 {
            if let (Some(one), Some(other), Some(ns)) =
                (place(&price.between[0]), place(&price.between[1]), price.ns.value())
            {
                costs.crossing_ns[one][other] = *ns;
                costs.crossing_ns[other][one] = *ns;
            }
        }
        costs
    }
}

/// A message written to and read from a channel by one thread, in nanoseconds: the median of batches.
fn handling() -> Result<f64> {
    let buffers = Buffers { policy: Policy::ZeroCopy, ..Specification::default().buffers };
    let (mut one, mut other) = channel::unicast(&Specification { buffers, ..Specification::default() })?;
    let message = [7; MESSAGE];
    let mut times = Vec::with_capacity(BATCHES);
    for _ in 0..BATCHES {
        let before = Instant::now();
        for _ in 0..BATCH {
            let _ = one.write(&message)?;
            other.read_with(&mut |arrived| {
                std::hint::black_box(arrived);
            })?;
        }
        times.push(before.elapsed().as_nanos() as f64 / f64::from(BATCH));
    }
    times.sort_by(f64::total_cmp);
    Ok(times[BATCHES / 2])
}

/// Only between `app` and cores. The reason where others keep the cores too busy.
fn measured(between: &[Site; 2], handling: f64, grounds: &[Ground]) -> Result<Price, String> {
    let core = |site: &Site| match site {
        Site::Core(core) => Some(*core),
        _ => app_core(grounds, between),
    };
    if between[0] == between[1] {
        let how = format!("a message of {MESSAGE} B through a channel within one thread");
        return Ok(Price { between: between.clone(), ns: Reading::Measured(handling), how });
    }
    let (Some(one), Some(other)) = (core(&between[0]), core(&between[1])) else {
        return Err("the application has no core beside the dedicated one".to_owned());
    };
    let half =
        probe::between(one, other).or_else(|_| probe::between(one, other)).map_err(|fault| fault.cause().to_owned())?;
    let ns = handling + half.picoseconds as f64 / 1e3;
    let how = format!("the same, and half a round trip of a cache line between {one} and {other}");
    Ok(Price { between: between.clone(), ns: Reading::Measured(ns), how })
}

fn not_measured(between: [Site; 2], why: &str) -> Price {
    let price = modelled(between);
    Price { how: format!("{}; not measured: {why}", price.how), ..price }
}

/// Where the application's thread probably is: on a core that is not dedicated, if there is one.
fn app_core(grounds: &[Ground], between: &[Site; 2]) -> Option<CoreId> {
    let core = |site: &Site| if let Site::Core(core) = site { Some(*core) } else { None };
    let allowed = Choice::among(Topology::live().ok()?, affinity::allowed().ok()?);
    let dedicated = allowed.clone().without(grounds.iter().filter_map(|ground| core(&ground.site)));
    let taken = allowed.without(between.iter().filter_map(core));
    dedicated.first(None).or_else(|| taken.first(None))
}

fn modelled(between: [Site; 2]) -> Price {
    let kinds = [between[0].kind(), between[1].kind()];
    let how = match kinds {
        _ if between[0] == between[1] => "a message within one thread",
        _ if kinds.contains(&SiteKind::Agent) => "the message engine over UDP, both hosts together",
        _ if kinds.contains(&SiteKind::Xdp) => "an array that both map, and a program that polls it",
        _ => "a cache line between two cores",
    };
    let ns = crate::layout::modelled_ns(&between[0], &between[1]);
    Price { between, ns: Reading::Modelled(ns), how: how.to_owned() }
}
