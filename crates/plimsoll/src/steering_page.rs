//! The steering of receive work as a page of text.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};

use machine::steering::{InterfaceSteering, Line};
use machine::{CoreId, CpuSet, Reading, Steering};

/// Interrupt lines of an interface that are named one by one, at most.
const MOST_LINES: usize = 4;

/// The page: each interface with its steering and what would undo a change, then the next step.
pub fn page(host: &Steering, rss_entries: &BTreeMap<String, Reading<usize>>) -> String {
    let mut page = String::new();
    for of in &host.interfaces {
        let mut row = |what: &str, text: String| {
            let _ = writeln!(page, "  {what:<16}{text}");
        };
        row("receive work", work(of));
        if !of.lines.is_empty() {
            row("irq", lines(of));
        }
        let rps: CpuSet = of.receive.iter().filter_map(|queue| queue.rps.value()).flat_map(CpuSet::iter).collect();
        row(
            "rps",
            over(
                &of.receive,
                |queue| &queue.rps,
                |_| if rps.is_empty() { "off".into() } else { format!("cores {rps}") },
            ),
        );
        row(
            "rfs",
            over(
                &of.receive,
                |queue| &queue.flows,
                |flows| match flows.iter().copied().sum::<u32>() {
                    0 => "off".into(),
                    flows => format!("{flows} flows"),
                },
            ),
        );
        let xps: CpuSet = of.transmit.iter().filter_map(|queue| queue.xps.value()).flat_map(CpuSet::iter).collect();
        row(
            "xps",
            over(
                &of.transmit,
                |queue| &queue.xps,
                |_| if xps.is_empty() { "off".into() } else { format!("cores {xps}") },
            ),
        );
        if let Some(entries) = rss_entries.get(&of.interface) {
            row("rss", said(entries, |entries| format!("a table of {entries} entries")));
        }
        for undoing in &of.undone_by {
            row("undone by", format!("{undoing}. Next: {}", undoing.next()));
        }
        let state = if of.up { "up" } else { "down" };
        let route = if of.default_route.value() == Some(&true) { ", has the default route" } else { "" };
        let heading = format!("{} ({state}{route})\n", of.interface);
        let at = page.rfind("  receive work").unwrap_or_default();
        page.insert_str(at, &heading);
    }
    let irqbalance = said(&host.irqbalance, |process| match process {
        Some(process) => format!("process {process}"),
        None => "no process of this name is visible".into(),
    });
    let entries = said(&host.flow_entries, |entries| match entries {
        0 => "none: RFS is off".into(),
        entries => format!("{entries} entries"),
    });
    let _ = writeln!(page, "irqbalance        {irqbalance}\ntable of flows    {entries}");
    let _ = writeln!(
        page,
        "next              plimsoll steer IFACE --receive CORES -- COMMAND steers for as long as COMMAND runs"
    );
    page
}

fn work(of: &InterfaceSteering) -> String {
    match of.work.cores.value() {
        Some(cores) => format!("cores {cores}, by {}", of.work.by),
        None => format!("by {}: {}", of.work.by, said(&of.work.cores, |_| "")),
    }
}

/// The interrupt lines for received packets, each with its name if they are few.
fn lines(of: &InterfaceSteering) -> String {
    let lines = of.receive_lines();
    let on = |line: &Line| line.effective.value().or(line.asked.value()).cloned();
    let cores =
        |cores: Option<CpuSet>| cores.map_or_else(|| "unknown cores".to_owned(), |cores| format!("cores {cores}"));
    let one = |line: &&Line| {
        let name = line.name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
        format!("{}{name} on {}", line.number, cores(on(line)))
    };
    if lines.len() <= MOST_LINES {
        return lines.iter().map(one).collect::<Vec<_>>().join(", ");
    }
    // Numbers of lines are written as those of cores are: 241-248.
    let numbers: CpuSet = lines.iter().map(|line| CoreId(line.number)).collect();
    let all: Vec<CpuSet> = lines.iter().filter_map(|line| on(line)).collect();
    format!("{numbers} on {}", cores((!all.is_empty()).then(|| all.iter().flat_map(CpuSet::iter).collect())))
}

/// The common value of all queues, or the reason why none has one.
fn over<Q, T: Clone>(queues: &[Q], reading: impl Fn(&Q) -> &Reading<T>, all: impl Fn(&[T]) -> String) -> String {
    let values: Vec<T> = queues.iter().filter_map(|queue| reading(queue).value().cloned()).collect();
    match (values.is_empty(), queues.first()) {
        (false, _) => all(&values),
        (true, Some(first)) => said(reading(first), |_| String::new()),
        (true, None) => "absent: sysfs shows no such queues".into(),
    }
}

fn said<T, D: Display>(reading: &Reading<T>, value: impl Fn(&T) -> D) -> String {
    match reading {
        Reading::Measured(v) | Reading::Modelled(v) => value(v).to_string(),
        Reading::Absent { reason } => format!("absent: {reason}"),
        Reading::NotPermitted { reason, next } => format!("not permitted: {reason}. Next: {next}"),
    }
}
