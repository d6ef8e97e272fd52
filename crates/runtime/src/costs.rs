//! What channels between offcodes and calls of their bodies cost on this host, measured where that disturbs nobody.

mod entries;

use std::time::Instant;

use linux::affinity;
use machine::costs::store;
use machine::costs::{Interval, Item, Row};
use machine::{BodyKind, Costs, Probe, Reading, Result, SiteKind};
use offcode::{Channel, Specification};
use ports::channel;
use ports::probe;

/// Messages per reading of the clock, so that the reading weighs nothing.
const BATCH: u32 = 64;
const BATCHES: usize = 101;
/// Bytes of a call of a few arguments, with its header.
const MESSAGE: usize = 40;
/// Probes of each pair of cores, and most pairs.
const PROBES: usize = 8;
const PAIRS: usize = 8;

/// The costs that are kept for this host, and a note for the reader. Missing costs of offcodes are measured now, in
/// under a second, and kept.
///
/// # Errors
/// The kept costs are damaged.
pub fn known() -> Result<(Costs, Option<String>)> {
    let known = store::live()?;
    let mut needed = BodyKind::ALL.map(Item::Entry).into_iter().chain([Item::Call]);
    if needed.all(|item| known.costs.rows().iter().any(|row| row.item == item)) {
        return Ok((known.costs, known.note));
    }
    let rows = measure()?;
    let note = store::keep(rows.clone(), None).err().map(|fault| format!("costs are not kept: {fault}"));
    Ok((known.costs.refined(rows), note))
}

/// Measures calls of bodies of each kind, a channel within a thread and, where there are two cores, between two of them.
///
/// # Errors
/// No memory for a channel.
pub fn measure() -> Result<Vec<Row>> {
    let taken = machine::here::now();
    let row = |item, cost, source: &str| Row { item, size: None, cost, source: source.to_owned(), taken };
    let through = format!("a message of {MESSAGE} B through a channel");
    let channel = |item, interval| row(item, Reading::Measured(interval), &through);
    let call = spread(handling()?);
    let mut rows = vec![channel(Item::Call, call)];
    rows.extend(BodyKind::ALL.map(|kind| row(Item::Entry(kind), entries::entry(kind), "a body that does nothing")));
    let cores = affinity::allowed()?;
    if let Some((first, others)) = cores.split_first() {
        let step = others.len().div_ceil(PAIRS).max(1);
        let pairs = others.iter().step_by(step).flat_map(|other| std::iter::repeat_n(other, PROBES));
        let halves = pairs.filter_map(|other| probe::between(*first, *other).ok());
        let halves: Vec<f64> = halves.map(Probe::nanoseconds).collect();
        if !halves.is_empty() {
            let between = call.plus(spread(halves));
            let kinds = [(SiteKind::App, SiteKind::Core), (SiteKind::Core, SiteKind::Core)];
            rows.extend(kinds.map(|(one, other)| channel(Item::crossing(one, other), between)));
        }
    }
    Ok(rows)
}

/// Times of a message written to and read from a channel by one thread, in nanoseconds, batch by batch.
fn handling() -> Result<Vec<f64>> {
    let (mut one, mut other) = channel::unicast(&Specification::default())?;
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
    Ok(times)
}

/// The median, and the range without the outermost twentieth on each side.
fn spread(mut values: Vec<f64>) -> Interval {
    values.sort_by(f64::total_cmp);
    let at = |share: f64| values[((values.len() - 1) as f64 * share).round() as usize];
    Interval { low: at(0.05), middle: at(0.5), high: at(0.95) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_between_cores_costs_more_than_one_within_a_thread() {
        let costs = Costs::of(measure().unwrap());
        let value = |item: &Item| costs.get(item).reading.value().copied().unwrap();
        let (call, crossing) = (value(&Item::Call), value(&Item::crossing(SiteKind::Core, SiteKind::App)));
        assert!(call.low > 0.0 && call.middle < crossing.middle, "{call:?} {crossing:?}");
    }
}
