//! Network softirqs by core: the number and time of the kernel's softirqs for the network on each core.

use std::collections::BTreeMap;

use chart::{Absences, Axis, BarChart, Cell, Figure, Frame, Group, Mark, Scale, entry, number};
use machine::accounting::{CoreCost, Softirq};
use machine::{CoreId, Reading};
use rounds::point::Pattern;

use super::figures::{Line, lines};
use super::look::Looks;
use crate::findings::{Findings, PointFindings, Question};

/// Cores on a chart, at most: the busiest; a note gives the number of the others.
const CORES: usize = 8;

/// A quantity per message, of one core at one point.
struct Measure {
    id: &'static str,
    title: &'static str,
    axis: Axis,
    kind: fn(&CoreCost) -> &Reading<Softirq>,
    amount: fn(&Softirq) -> f64,
    write: fn(f64) -> String,
}

const MEASURES: [Measure; 4] = [
    Measure {
        id: "rx-count",
        title: "NET_RX runs a message",
        axis: Axis { label: "NET_RX runs a message", scale: Scale::Linear, write: number::digits },
        kind: |core| &core.net_rx,
        amount: |s| s.count as f64,
        write: number::digits,
    },
    Measure {
        id: "rx-time",
        title: "NET_RX time a message",
        axis: Axis { label: "NET_RX time a message", scale: Scale::Linear, write: number::nanoseconds },
        kind: |core| &core.net_rx,
        amount: |s| s.time.0 as f64,
        write: number::nanoseconds,
    },
    Measure {
        id: "tx-count",
        title: "NET_TX runs a message",
        axis: Axis { label: "NET_TX runs a message", scale: Scale::Linear, write: number::digits },
        kind: |core| &core.net_tx,
        amount: |s| s.count as f64,
        write: number::digits,
    },
    Measure {
        id: "tx-time",
        title: "NET_TX time a message",
        axis: Axis { label: "NET_TX time a message", scale: Scale::Linear, write: number::nanoseconds },
        kind: |core| &core.net_tx,
        amount: |s| s.time.0 as f64,
        write: number::nanoseconds,
    },
];

/// The charts of one question: for the pattern that moves the most data, at the smallest and the largest size that most
/// contenders share.
pub fn figures(findings: &Findings, looks: &Looks, question: Question, id: &str) -> Vec<Figure> {
    let order = [
        Pattern::Window,
        Pattern::Stream,
        Pattern::Bidirectional,
        Pattern::StreamNoCache,
        Pattern::MessageRate,
        Pattern::PingPong,
    ];
    let Some((pattern, lines)) =
        order.into_iter().map(|p| (p, lines(findings, question, p))).find(|(_, l)| !l.is_empty())
    else {
        return vec![];
    };
    let mut shared = BTreeMap::new();
    for size in lines.iter().flat_map(|l| l.points.iter().map(|p| p.spec.size)) {
        *shared.entry(size).or_insert(0_usize) += 1;
    }
    let most = shared.values().max().copied().unwrap_or(0);
    let sizes: Vec<_> = shared.iter().filter(|(_, n)| **n == most).map(|(size, _)| *size).collect();
    let mut chosen: Vec<_> = sizes.first().into_iter().chain(sizes.last()).copied().collect();
    chosen.dedup();
    let mut figures = Vec::new();
    for (i, size) in chosen.into_iter().enumerate() {
        for measure in &MEASURES {
            let points: Vec<_> = lines.iter().filter_map(|line| Some((line, line.at(size)?))).collect();
            let suffix = format!("{size}, {}", pattern.name());
            figures.extend(figure(measure, &points, looks, &format!("{id}-{}-{i}", measure.id), &suffix));
        }
    }
    figures
}

fn figure(
    measure: &Measure,
    points: &[(&Line<'_>, &PointFindings)],
    looks: &Looks,
    id: &str,
    suffix: &str,
) -> Option<Figure> {
    let mut busy = BTreeMap::<CoreId, f64>::new();
    let mut missing = Absences::default();
    for (line, point) in points {
        let accounts: Vec<_> = point.samples.iter().filter_map(|s| s.accounting.as_ref()).collect();
        if accounts.is_empty() {
            missing.add(&line.name, "no accounting was taken".into());
        }
        for core in accounts.iter().flat_map(|a| &a.cores) {
            let amount = (measure.kind)(core).value().map_or(0.0, measure.amount);
            *busy.entry(core.core).or_default() += amount;
            if let Some(why) = number::why_missing((measure.kind)(core)) {
                missing.add(&line.name, why);
            }
        }
    }
    let mut by_load: Vec<_> = busy.iter().map(|(core, load)| (*core, *load)).collect();
    by_load.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let mut cores: Vec<_> = by_load.iter().take(CORES).map(|(core, _)| *core).collect();
    cores.sort();
    if by_load.len() > CORES {
        missing.add("left out", format!("{} less busy cores", by_load.len() - CORES));
    }
    let groups: Vec<_> = points
        .iter()
        .map(|(line, point)| Group {
            name: line.name.clone(),
            look: looks.get(&line.contender),
            cells: cores.iter().map(|core| cell(measure, point, *core, &line.name)).collect(),
        })
        .collect();
    let categories: Vec<_> = cores.iter().map(ToString::to_string).collect();
    let title = format!("{}, {suffix}", measure.title);
    let chart = BarChart { id, title: &title, categories: &categories, label: "", y: measure.axis, groups: &groups };
    let missing = missing.lines();
    let Some(drawing) = Frame::both(|frame| chart.svg(frame)) else {
        return (!missing.is_empty()).then(|| Figure { title, missing, ..Figure::default() });
    };
    let legend = groups.iter().map(|g| entry(g.look, &g.name)).collect();
    Some(Figure { title, legend, drawing, missing, ..Figure::default() })
}

/// The measure on one core, per message, over all blocks; low and high are the least and the greatest of a block.
fn cell(measure: &Measure, point: &PointFindings, core: CoreId, name: &str) -> Cell {
    let mut blocks = Vec::new();
    let (mut amount, mut messages) = (0.0, 0);
    let mut why = None;
    for sample in &point.samples {
        let Some(cost) = sample.accounting.as_ref().and_then(|a| a.cores.iter().find(|c| c.core == core)) else {
            continue;
        };
        match (measure.kind)(cost).value() {
            Some(softirq) if sample.messages > 0 => {
                amount += (measure.amount)(softirq);
                messages += sample.messages;
                blocks.push((measure.amount)(softirq) / sample.messages as f64);
            }
            Some(_) => {}
            None => why = number::why_missing((measure.kind)(cost)),
        }
    }
    if messages == 0 {
        return Cell::Missing(format!("{name}, {core}: {}", why.unwrap_or_else(|| "not measured".into())));
    }
    let y = amount / messages as f64;
    let low = blocks.iter().copied().fold(f64::INFINITY, f64::min);
    let high = blocks.iter().copied().fold(0.0, f64::max);
    let title = format!(
        "{name}, {core}: {} (blocks from {} to {})",
        (measure.write)(y),
        (measure.write)(low),
        (measure.write)(high)
    );
    Cell::Value(Mark { x: 0.0, y, low, high, title })
}
