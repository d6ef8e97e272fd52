//! Time of all ranks in each function, and sizes of their messages.

use std::collections::BTreeMap;

use machine::Reading;
use record::functions::{Class, Function, FunctionId, counted, function};
use record::scale::{SIZE_CLASSES, TIME_CLASSES, size_floor, time_class, time_floor};

use crate::sites::name;
use crate::split::{Model, Parts, Rule, middle};
use crate::summary::{FunctionSize, FunctionSummary, SizeSummary, TimeClass, Totals, ratio};
use crate::tables::Tables;

/// Sums over the calls of one function in groups of one size.
#[derive(Clone)]
struct Sum {
    ranks: usize,
    /// The last rank counted, plus 1.
    last: usize,
    calls: u64,
    seconds: f64,
    least: f64,
    most: f64,
    parts: Parts,
    sizes: BTreeMap<usize, (u64, u64, f64)>,
    histogram: [u64; TIME_CLASSES],
}

const NOTHING: Sum = Sum {
    ranks: 0,
    last: 0,
    calls: 0,
    seconds: 0.0,
    least: f64::INFINITY,
    most: 0.0,
    parts: Parts { transfer: 0.0, wait: 0.0, undivided: 0.0 },
    sizes: BTreeMap::new(),
    histogram: [0; TIME_CLASSES],
};

/// The functions, those with the most time first.
pub fn functions(ranks: &[Tables], model: &Model, totals: &Totals) -> Vec<FunctionSummary> {
    // Ticks differ in length between hosts; histograms are in ticks of the first rank.
    let shown = ranks.first().map_or(1e-9, |rank| rank.tick);
    let mut sums: BTreeMap<(FunctionId, u32), Sum> = BTreeMap::new();
    for (number, rank) in ranks.iter().enumerate() {
        for row in &rank.calls {
            let cell = &row.cell;
            let sum = sums.entry((row.function, row.group)).or_insert(NOTHING);
            sum.ranks += usize::from(sum.last != number + 1);
            sum.last = number + 1;
            sum.calls = sum.calls.saturating_add(cell.calls);
            sum.seconds += rank.seconds(cell.ticks);
            sum.least = sum.least.min(rank.seconds(cell.least().unwrap_or(u64::MAX)));
            sum.most = sum.most.max(rank.seconds(cell.most));
            if counted(row.function) {
                sum.parts.add(model.divide(rank.tick, row));
            }
            let size = sum.sizes.entry(row.size_class).or_default();
            size.0 = size.0.saturating_add(cell.calls);
            size.1 = size.1.saturating_add(cell.bytes);
            size.2 += rank.seconds(cell.ticks);
            for (class, calls) in cell.histogram.iter().enumerate().filter(|(_, calls)| **calls > 0) {
                let class =
                    if rank.tick == shown { class } else { time_class((middle(class) * rank.tick / shown) as u64) };
                sum.histogram[class] = sum.histogram[class].saturating_add(*calls);
            }
        }
    }
    let mut all: Vec<_> = sums.into_iter().map(|(kind, sum)| summary(kind, sum, model, totals, shown)).collect();
    all.sort_by(|a, b| b.counted.cmp(&a.counted).then(b.seconds.total_cmp(&a.seconds)));
    all
}

fn summary((id, group): (FunctionId, u32), sum: Sum, model: &Model, totals: &Totals, tick: f64) -> FunctionSummary {
    let counted = counted(id);
    let share = |part: f64, whole: f64| if counted { ratio(part, whole) } else { 0.0 };
    let bound = |seconds: f64| seconds.clamp(sum.least.min(sum.most), sum.most);
    let size = |(class, (calls, bytes, seconds)): (&usize, &(u64, u64, f64))| FunctionSize {
        floor: size_floor(*class),
        calls: *calls,
        bytes: *bytes,
        seconds: *seconds,
        unhindered: match model.rule((id, group, *class)) {
            Some(Rule::Beyond(unhindered)) => Reading::Modelled(unhindered.mean),
            Some(Rule::AllTransfer) => Reading::Modelled(ratio(*seconds, *calls as f64)),
            Some(Rule::AllWait) => Reading::absent("it moves nothing: all of it is wait"),
            Some(Rule::CannotTell(why)) => Reading::absent(format!("cannot tell: {why}")),
            None => Reading::absent("there was no such call"),
        },
    };
    FunctionSummary {
        name: name(id),
        class: function(id).map_or("unknown", |function| function.class.name()).into(),
        group,
        counted,
        ranks: sum.ranks,
        calls: sum.calls,
        calls_share: share(sum.calls as f64, totals.calls as f64),
        seconds: sum.seconds,
        time_share: share(sum.seconds, totals.mpi),
        mean: ratio(sum.seconds, sum.calls as f64),
        least: sum.least.min(sum.most),
        most: sum.most,
        p50: bound(quantile(&sum.histogram, 0.5) * tick),
        p99: bound(quantile(&sum.histogram, 0.99) * tick),
        bytes: sum.sizes.values().map(|(_, bytes, _)| *bytes).fold(0, u64::saturating_add),
        split: sum.parts.split(),
        sizes: sum.sizes.iter().map(size).collect(),
        times: sum
            .histogram
            .iter()
            .enumerate()
            .filter(|(_, calls)| **calls > 0)
            .map(|(class, calls)| TimeClass { floor: time_floor(class) as f64 * tick, calls: *calls })
            .collect(),
    }
}

/// The quantile `of`, ticks: the middle of its histogram class.
fn quantile(histogram: &[u64; TIME_CLASSES], of: f64) -> f64 {
    let below = histogram.iter().map(|calls| *calls as f64).sum::<f64>() * of;
    let mut seen = 0.0;
    let class = histogram.iter().position(|calls| {
        seen += *calls as f64;
        *calls > 0 && seen >= below
    });
    class.map_or(0.0, middle)
}

pub fn sizes(ranks: &[Tables]) -> Vec<SizeSummary> {
    let mut classes = [[0u64; 4]; SIZE_CLASSES];
    for row in ranks.iter().flat_map(|rank| &rank.calls) {
        let Some(function) = function(row.function) else { continue };
        let place = match function.class {
            _ if sends(function) => 0,
            Class::Collective | Class::Neighbour => 2,
            _ => continue,
        };
        let class = &mut classes[row.size_class];
        class[place] = class[place].saturating_add(row.cell.calls);
        class[place + 1] = class[place + 1].saturating_add(row.cell.bytes);
    }
    let used = classes.into_iter().enumerate().filter(|(_, counts)| *counts != [0; 4]);
    used.map(|(class, [messages, bytes, collectives, collective_bytes])| SizeSummary {
        floor: size_floor(class),
        messages,
        bytes,
        collectives,
        collective_bytes,
    })
    .collect()
}

/// Whether a call sends one message of the call's size. The size of a started request is not known here.
fn sends(function: &Function) -> bool {
    match function.class {
        Class::Send | Class::Exchange => true,
        Class::Post => function.argument("dest").is_some(),
        _ => false,
    }
}
