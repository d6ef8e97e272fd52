//! The results of a bench as a page of text.

use std::collections::{BTreeMap, BTreeSet};

use machine::text::Table;
use machine::{Reading, count, figure};
use rounds::clocks;
use rounds::comparison::Paired;
use rounds::cost::cpu_per_message;
use rounds::nearness;
use rounds::point::{Metric, PointSpec};
use rounds::sample::Sample;
use rounds::statistics::median_interval;
use serde::Serialize;

/// A point and its blocks so far.
#[derive(Serialize)]
pub struct Measured {
    pub spec: PointSpec,
    pub samples: Vec<Sample>,
}

/// The page of a bench that was to have `rounds`: `compared` points beside each other at each size, in `width` columns.
pub fn page(measured: &[Measured], compared: usize, rounds: u32, width: usize) -> String {
    let mut header = vec!["size", "stack", "median", "95 % interval", "CPU/message"];
    if compared > 1 {
        header.push("over the first");
    }
    let mut table = Table::new(header).right([0, 2, 3, 4, 5]);
    for points in measured.chunks(compared.max(1)) {
        for point in points {
            let mut row = vec![point.spec.size.to_string(), point.spec.contender().to_string()];
            row.extend(in_words(point));
            if compared > 1 {
                row.push(against(point, &points[0]));
            }
            table.row(row);
        }
    }
    let pattern = measured[0].spec.pattern;
    let what = measure_of(pattern.metric());
    let rounds = rounds_done(measured, rounds);
    let mut page = format!("{pattern}: {what}, {rounds}, path {}\n{}", measured[0].spec.path, table.text(width));
    for (title, lines) in [("threads", threads(measured)), ("cores", cores_at_work(measured))] {
        if !lines.is_empty() {
            page += &format!("\n{title}\n{}\n", lines.join("\n"));
        }
    }
    page += "\nnotes\n";
    let at: BTreeSet<_> =
        measured.iter().filter_map(|point| Some((point.spec.stack, point.spec.interface.as_ref()?))).collect();
    for (stack, interface) in at {
        page += &format!("  {stack} is at {interface} of this end, as asked\n");
    }
    let engines: BTreeSet<_> = measured.iter().filter_map(|point| point.spec.peer_engine).collect();
    for core in engines {
        page += &format!("  the peer's engine has {core}\n");
    }
    for note in notes(measured) {
        page += &format!("  {note}\n");
    }
    page
}

pub fn measure_of(metric: Metric) -> &'static str {
    match metric {
        Metric::HalfRoundTrip => "half a round trip",
        Metric::BytesPerSecond => "bandwidth",
        Metric::MessagesPerSecond => "messages a second",
    }
}

/// The rounds that the points have had, of at most `asked`.
pub fn rounds_done(measured: &[Measured], asked: u32) -> String {
    let done = || measured.iter().map(|point| point.samples.len());
    let (least, most) = (done().min().unwrap_or(0), done().max().unwrap_or(0));
    let rounds = count::of(asked.into(), "round");
    match least == most {
        true if least == asked as usize => rounds,
        true => format!("{least} of {rounds}"),
        false => format!("{least} to {most} of {rounds}"),
    }
}

/// Median, interval and CPU cost.
fn in_words(point: &Measured) -> [String; 3] {
    let metric = point.spec.pattern.metric();
    let values: Vec<f64> = point.samples.iter().map(|sample| sample.value).collect();
    let (median, interval) = match median_interval(&values) {
        Some(i) => (quantity(metric, i.middle), i.range(|value| quantity(metric, value))),
        None => ("-".to_owned(), "-".to_owned()),
    };
    let costs: Vec<f64> = point.samples.iter().filter_map(|s| cpu_per_message(s).value().copied()).collect();
    let cost = median_interval(&costs).map_or("-".to_owned(), |i| figure::nanoseconds(i.middle));
    [median, interval, cost]
}

pub fn quantity(metric: Metric, value: f64) -> String {
    match metric {
        Metric::HalfRoundTrip => figure::nanoseconds(value),
        Metric::BytesPerSecond => machine::BytesPerSecond(value).to_string(),
        Metric::MessagesPerSecond => bench::mpi::pattern::rate(value),
    }
}

/// The ratio of paired rounds, above 1 where `point` is better.
fn against(point: &Measured, first: &Measured) -> String {
    if point.spec == first.spec {
        return "1".to_owned();
    }
    let paired = Paired::performance(&point.samples, &first.samples, point.spec.pattern.metric());
    match paired.interval() {
        Some(i) => i.ratio(2, ""),
        None => "cannot tell".to_owned(),
    }
}

/// CPU time per message by end and role: medians over all blocks of a stack and size.
fn threads(measured: &[Measured]) -> Vec<String> {
    let mut lines = Vec::new();
    for point in measured {
        let mut roles: BTreeMap<(&str, &str), Vec<f64>> = BTreeMap::new();
        for sample in &point.samples {
            let Some(accounting) = &sample.accounting else { continue };
            for thread in &accounting.threads {
                if let Some(cpu) = thread.cpu.value() {
                    let share = cpu.0 as f64 / sample.messages.max(1) as f64;
                    roles.entry((&thread.end, &thread.role)).or_default().push(share);
                }
            }
        }
        let parts: Vec<_> = roles
            .into_iter()
            .filter_map(|((end, role), costs)| {
                Some(format!("{end} {role} {}", figure::nanoseconds(median_interval(&costs)?.middle)))
            })
            .collect();
        if !parts.is_empty() {
            lines.push(format!("  {} {}: {} a message", point.spec.size, point.spec.contender(), parts.join(", ")));
        }
    }
    lines
}

/// Network softirqs and interrupts by core, per 1000 messages.
fn cores_at_work(measured: &[Measured]) -> Vec<String> {
    let mut lines = Vec::new();
    for point in measured {
        let messages: u64 = point.samples.iter().map(|sample| sample.messages).sum();
        let mut cores: BTreeMap<(bool, u32), [u64; 4]> = BTreeMap::new();
        let mut why_not = None;
        let accounts = || point.samples.iter().filter_map(|s| s.accounting.as_ref());
        let here = accounts().flat_map(|a| &a.cores).map(|core| (false, core));
        let there = accounts().flat_map(|a| a.remote_cores.iter().flatten()).map(|core| (true, core));
        for (away, core) in here.chain(there) {
            let sums = cores.entry((away, core.core.0)).or_default();
            for (reading, at) in [(&core.net_rx, 0), (&core.net_tx, 2)] {
                match reading {
                    Reading::Measured(s) | Reading::Modelled(s) => {
                        sums[at] += s.count;
                        sums[1] += s.time.0;
                    }
                    Reading::Absent { reason } => why_not = Some(reason.clone()),
                    Reading::NotPermitted { reason, next } => why_not = Some(format!("{reason} (next: {next})")),
                }
            }
            sums[3] += core.interrupts.value().copied().unwrap_or(0);
        }
        let scale = 1000.0 / messages.max(1) as f64;
        let parts: Vec<_> = cores
            .iter()
            .filter(|(_, sums)| sums.iter().any(|sum| *sum > 0))
            .map(|((away, core), [rx, time, tx, interrupts])| {
                let whose = if *away { "the peer's " } else { "" };
                let per = |count: u64| count as f64 * scale;
                format!(
                    "{whose}core {core}: {} rx and {} tx softirqs taking {}, {} interrupts",
                    figure::digits(per(*rx)),
                    figure::digits(per(*tx)),
                    figure::nanoseconds(per(*time)),
                    figure::digits(per(*interrupts))
                )
            })
            .collect();
        if let Some(why) = why_not {
            lines.push(format!("  {} {}: softirqs not known: {why}", point.spec.size, point.spec.contender()));
        } else if !parts.is_empty() {
            let per = "per 1000 messages";
            lines.push(format!("  {} {} {per}: {}", point.spec.size, point.spec.contender(), parts.join("; ")));
        }
    }
    lines
}

/// Remarks on the figures, each once.
pub fn notes(measured: &[Measured]) -> Vec<String> {
    let mut notes = Vec::new();
    let of = |point: &Measured| {
        let cores = (point.spec.local_core, point.spec.remote_core);
        point.samples.iter().filter_map(move |sample| Some((cores, sample.probe?))).collect::<Vec<_>>()
    };
    let sentences = nearness::said(measured.iter().flat_map(of));
    notes.extend(sentences.into_iter().map(|said| format!("probe beside each block: {said}")));
    notes.extend(clocks::said(measured.iter().flat_map(|point| &point.samples).map(|sample| &sample.clocks)));
    let overheads: Vec<f64> = measured
        .iter()
        .flat_map(|point| &point.samples)
        .filter_map(|sample| sample.accounting.as_ref().map(|accounting| accounting.overhead.0 as f64))
        .collect();
    if let Some(i) = median_interval(&overheads) {
        let took = figure::nanoseconds(i.middle);
        notes.push(format!("accounting itself took {took} a block, outside its measured time"));
    }
    for point in measured {
        let lost: u64 = point.samples.iter().map(|sample| sample.lost).sum();
        if lost > 0 {
            let arrived: u64 = point.samples.iter().map(|sample| sample.messages).sum();
            let share = 100.0 * lost as f64 / (lost + arrived) as f64;
            let lost = count::of(lost, "message");
            notes.push(format!("{} {}: {lost} lost ({share:.2} %)", point.spec.size, point.spec.contender()));
        }
        for note in point.samples.iter().flat_map(|sample| &sample.notes) {
            let line = format!("{}: {note}", point.spec.contender());
            if !notes.contains(&line) {
                notes.push(line);
            }
        }
    }
    notes
}
