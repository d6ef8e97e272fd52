//! Paper 002's sweep (§5.1, Figs. 2 and 4): the process on each core in turn, the kernel's receive processing pinned to
//! one core, with a receiver that only reads and one that works on its data.

use std::collections::{BTreeMap, BTreeSet};

use chart::{Absences, Axis, BarChart, Cell, Figure, Frame, Group, Look, Mark, Scale, entry, number};
use machine::{Bytes, CoreId, Reading};
use rounds::cost::interrupts_per_message;
use rounds::point::{Contender, Metric, Pattern, Receiver};

use super::figures::sentence;
use super::look::Looks;
use super::wording;
use crate::findings::{Findings, PointFindings, SweepRow};

/// Key of rows that differ only in the process's core and in the receiver's work.
type Family = (Pattern, Bytes, CoreId, Option<Contender>);

/// Height of a bar: value, lower and upper end of its interval; or the reason for its absence.
type Height = Result<(f64, f64, f64), String>;

/// The charts of every family; none where receive processing could not be steered.
pub fn figures(findings: &Findings, looks: &Looks) -> Vec<Figure> {
    let points: BTreeMap<_, _> = findings.points.iter().map(|p| (&p.key, p)).collect();
    let mut families = BTreeMap::<Family, Vec<&SweepRow>>::new();
    for row in &findings.verdict.sweep {
        let contender = points.get(&row.evidence).map(|p| p.spec.contender());
        families.entry((row.pattern, row.size, row.protocol_core, contender)).or_default().push(row);
    }
    let mut figures = Vec::new();
    for (nth, ((pattern, size, protocol, contender), rows)) in families.into_iter().enumerate() {
        let look = contender.as_ref().map_or(Look::PLAIN, |c| looks.get(c));
        let what = contender.map(|c| format!("{c}, ")).unwrap_or_default() + &format!("{size} {}", pattern.name());
        let sweep = Sweep { rows: &rows, protocol, look };
        let pinned = format!("The kernel's receive processing is pinned to {protocol}.");
        let metric = pattern.metric();
        let id = |chart: &str| format!("sweep-{nth}-{chart}");
        figures.extend(sweep.figure(
            &id("value"),
            &format!("By the process's core: {what}"),
            format!("{pinned} {}", sentence(wording::quantity(metric))),
            value_axis(metric),
            |row| Ok((row.value.middle, row.value.low, row.value.high)),
        ));
        figures.extend(sweep.figure(
            &id("softirqs"),
            &format!("NET_RX softirqs a message: {what}"),
            format!("{pinned} Runs of the handler on all cores."),
            Axis { label: "NET_RX runs a message", scale: Scale::Linear, write: number::digits },
            |row| match row.softirqs_per_message.value() {
                Some(n) => Ok((*n, *n, *n)),
                None => Err(number::why_missing(&row.softirqs_per_message).unwrap_or_default()),
            },
        ));
        figures.extend(sweep.figure(
            &id("interrupts"),
            &format!("Interrupts a message: {what}"),
            format!("{pinned} Of all cores; bars from the least to the most of a block."),
            Axis { label: "interrupts a message", scale: Scale::Linear, write: number::digits },
            |row| points.get(&row.evidence).map_or(Err("its point is not in this report".into()), |p| interrupts(p)),
        ));
        figures.extend(sweep.figure(
            &id("share"),
            &format!("Softirq time on the protocol's core: {what}"),
            format!("{pinned} Its share of the network softirq time of all cores."),
            Axis { label: "share of softirq time", scale: Scale::Linear, write: |v| format!("{:.0} %", v * 100.0) },
            |row| match row.softirq_share.iter().find(|(core, _)| *core == protocol) {
                Some((_, share)) => Ok((*share, *share, *share)),
                None => Err("no softirq time was read".into()),
            },
        ));
    }
    figures
}

fn value_axis(metric: Metric) -> Axis {
    let (label, write): (_, fn(f64) -> String) = match metric {
        Metric::HalfRoundTrip => ("half round trip", number::nanoseconds),
        Metric::BytesPerSecond => ("bandwidth", |v| wording::value(Metric::BytesPerSecond, v)),
        Metric::MessagesPerSecond => ("messages", |v| wording::value(Metric::MessagesPerSecond, v)),
    };
    Axis { label, scale: Scale::Linear, write }
}

struct Sweep<'a> {
    rows: &'a [&'a SweepRow],
    protocol: CoreId,
    look: Look,
}

impl Sweep<'_> {
    fn figure(
        &self,
        id: &str,
        title: &str,
        caption: String,
        y: Axis,
        height: impl Fn(&SweepRow) -> Height,
    ) -> Option<Figure> {
        let cores: Vec<_> = self.rows.iter().map(|row| row.core).collect::<BTreeSet<_>>().into_iter().collect();
        let mut missing = Absences::default();
        let mut groups = Vec::new();
        for (line, receiver) in (0..).zip(Receiver::ALL) {
            let name = wording::receiver(receiver);
            let of = |core| self.rows.iter().find(|row| row.receiver == receiver && row.core == core);
            if !cores.iter().any(|core| of(*core).is_some()) {
                continue;
            }
            let mut cells = Vec::new();
            for core in &cores {
                cells.push(match of(*core).map(|row| height(row)) {
                    Some(Ok((median, low, high))) => {
                        let interval = if low < high {
                            format!(" ({} to {})", (y.write)(low), (y.write)(high))
                        } else {
                            "".into()
                        };
                        let title = format!("{name}, process on {core}: {}{interval}", (y.write)(median));
                        Cell::Value(Mark { x: 0.0, y: median, low, high, title })
                    }
                    Some(Err(why)) => {
                        missing.add(&format!("{name}, process on {core}"), why.clone());
                        Cell::Missing(why)
                    }
                    None => Cell::Missing(format!("{name}, process on {core}: not measured")),
                });
            }
            groups.push(Group { name: name.into(), look: Look { line, ..self.look }, cells });
        }
        let protocol = |core: &CoreId| if *core == self.protocol { " (protocol)" } else { "" };
        let categories: Vec<_> = cores.iter().map(|core| format!("{core}{}", protocol(core))).collect();
        let chart = BarChart { id, title, categories: &categories, label: "core of the process", y, groups: &groups };
        let (title, missing) = (title.to_owned(), missing.lines());
        let Some(drawing) = Frame::both(|frame| chart.svg(frame)) else {
            return (!missing.is_empty()).then(|| Figure { title, missing, ..Figure::default() });
        };
        let legend = groups.iter().map(|g| entry(g.look, &g.name)).collect();
        Some(Figure { title, caption, legend, drawing, missing, ..Figure::default() })
    }
}

/// Interrupts of all cores for one message: over all blocks, with the least and the greatest of a block.
fn interrupts(point: &PointFindings) -> Height {
    let (mut total, mut messages, mut blocks) = (0.0, 0, Vec::new());
    for sample in point.samples.iter().filter(|s| s.messages > 0 && s.accounting.is_some()) {
        match interrupts_per_message(sample) {
            Reading::Measured(n) | Reading::Modelled(n) => blocks.push(n),
            missing => return Err(number::why_missing(&missing).unwrap_or_default()),
        }
        total += blocks[blocks.len() - 1] * sample.messages as f64;
        messages += sample.messages;
    }
    if messages == 0 {
        return Err("no accounting was taken".into());
    }
    let low = blocks.iter().copied().fold(f64::INFINITY, f64::min);
    let high = blocks.iter().copied().fold(0.0, f64::max);
    Ok((total / messages as f64, low, high))
}
