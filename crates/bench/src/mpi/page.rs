//! The measurements as a page of text.

use std::collections::BTreeMap;

use machine::text::Table;
use machine::{CoreId, Probe, Reading, count};
use rounds::blocks::Taken;
use rounds::clocks;
use rounds::estimate::Estimate;
use rounds::nearness;
use rounds::statistics::median;

use super::block::{Block, Measured, Outcome};
use super::comparison::{best, difference, ratio, threads_over_one, value};
use super::contender::{Hosts, Seats};
use super::pattern::{Pattern, Task};
use super::split::{self, Split};
use super::targets::Judged;

/// Tables of `all` for `tasks`, place by place, in so many columns, with notes for the reader.
pub fn page(heading: &str, all: &[Measured], tasks: &[Task], notes: &[String], width: usize) -> String {
    let mut page = format!("{heading}\n");
    for seats in seats_of(all) {
        let here: Vec<&Measured> = all.iter().filter(|measured| measured.seats == seats).collect();
        page += &format!("\n{seats}\n");
        // A task with values only at other seats was not asked for here, or failed, which the notes tell.
        let elsewhere = |task: &Task| {
            all.iter().any(|measured| value(measured, task).is_some())
                && here.iter().all(|measured| value(measured, task).is_none())
        };
        let tasks: Vec<Task> = tasks.iter().copied().filter(|task| seats.hosts.can(task) && !elsewhere(task)).collect();
        page += &values(&here, &tasks, width);
        page += &threads(&here, &tasks);
        let split = splits(&here, &tasks, width);
        if !split.is_empty() {
            page += &format!("\nCPU of each rank in ns a message, MPI calls timed\n{split}");
        }
        let softirqs = softirqs(&here, &tasks);
        if !softirqs.is_empty() {
            page += &format!("\nnetwork softirqs by core, in ns a message\n{softirqs}");
        }
    }
    let mut all_notes = notes.to_vec();
    all_notes.extend(nearness(all));
    all_notes.extend(carried(all));
    if all.iter().any(|measured| !measured.accounted.is_empty()) {
        all_notes.push(LEGEND.to_owned());
        all_notes.push(slowdown(all));
    }
    page += "\nnotes\n";
    for note in all_notes.iter().filter(|note| !note.is_empty()) {
        page += &format!("  {note}\n");
    }
    page
}

const LEGEND: &str = "CPU, application, kernel and softirq are measured; a value after ~ is modelled: the provider's share of \
                      the whole run's MPI time, applied to the timed part; - is absent, the reason is below. Polling for a \
                      message counts where it is done";

/// The result for each target.
pub fn targets(judged: &[Judged], width: usize) -> String {
    let mut table = Table::new([
        "target",
        "pattern",
        "measured",
        "95 % interval",
        "verdict",
        "near, far",
        "best of plimsoll",
        "best peer",
    ])
    .right([2, 3]);
    for target in judged {
        let place = match target.hosts {
            Hosts::One => "one host".to_owned(),
            Hosts::Crowd(ranks) => format!("{ranks} ranks on two cores"),
            Hosts::Lab | Hosts::Nodes => "two hosts".to_owned(),
        };
        let name =
            |contender: Option<&super::contender::Contender>| contender.map_or("-".to_owned(), |c| c.to_string());
        table.row([
            target.bound.to_string(),
            format!("{place}, {}", target.task),
            target.ratio.map_or("-".to_owned(), |interval| format!("{:.2}x", interval.middle)),
            target.ratio.map_or("-".to_owned(), |interval| interval.ends(2)),
            target.verdict.to_string(),
            target.places.map_or("-".to_owned(), |places| places.map(in_place).join(", ")),
            name(target.engine),
            name(target.peer),
        ]);
    }
    let heading = "ratios to the best peer, of the same or neighbouring rounds, on cores as near; near, far: medians where the cores moved (pairs)";
    format!("{heading}\n{}", table.text(width))
}

fn in_place(ratio: Option<Estimate>) -> String {
    ratio.map_or("-".to_owned(), |interval| format!("{:.2}x ({})", interval.middle, interval.samples))
}

fn seats_of(all: &[Measured]) -> Vec<Seats> {
    let mut seats: Vec<Seats> = Vec::new();
    for measured in all {
        if !seats.contains(&measured.seats) {
            seats.push(measured.seats);
        }
    }
    seats
}

fn values(here: &[&Measured], tasks: &[Task], width: usize) -> String {
    let header = ["pattern", "contender", "median", "95 % interval", "over the best peer"];
    let mut table = Table::new(header).right([2, 3, 4]);
    for task in tasks {
        let peer = best(here.iter().copied(), task, |measured| !measured.contender.is_engine());
        let mut title = task.to_string();
        for measured in here {
            let pattern = task.pattern;
            let (median, interval) = match value(measured, task) {
                Some(of) => (pattern.quantity(of.middle), of.range(|value| pattern.quantity(value))),
                None => ("-".to_owned(), "not measured".to_owned()),
            };
            let over = match peer {
                Some(peer) if peer.contender == measured.contender => "the best peer".to_owned(),
                Some(peer) => against(measured, peer, task).unwrap_or("-".to_owned()),
                None => "-".to_owned(),
            };
            table.row([std::mem::take(&mut title), measured.contender.to_string(), median, interval, over]);
        }
    }
    table.text(width)
}

/// What a second thread of each rank gains, both rates at MPI_THREAD_MULTIPLE.
fn threads(here: &[&Measured], tasks: &[Task]) -> String {
    let mut text = String::new();
    for task in tasks.iter().filter(|task| task.pattern == Pattern::RateOfThreads) {
        let over = |of: &&Measured| Some(format!("{} {}", of.contender, threads_over_one(of, task)?.ratio(2, "x")));
        let all: Vec<String> = here.iter().filter_map(over).collect();
        if !all.is_empty() {
            text += &format!("{} rate of two threads a rank over that of one: {}\n", task.size, all.join(", "));
        }
    }
    text
}

/// Comparison with `peer`: the ratio, or the difference of shares.
fn against(measured: &Measured, peer: &Measured, task: &Task) -> Option<String> {
    if task.pattern == Pattern::Overlap {
        let points = |share: f64| share.clamp(-1.0, 1.0) * 100.0;
        let of = difference(measured, peer, task)?;
        return Some(format!("{:+.0} points ({})", points(of.middle), of.range(|end| format!("{:.0}", points(end)))));
    }
    Some(ratio(measured, peer, task)?.ratio(2, "x"))
}

fn splits(here: &[&Measured], tasks: &[Task], width: usize) -> String {
    let header = ["pattern", "contender", "rank", "CPU", "application", "MPI", "protocol", "of it kernel", "softirqs"];
    let mut table = Table::new(header).right(2..9);
    let mut reasons: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for task in tasks {
        let mut title = task.to_string();
        for measured in here {
            let Some(both) = split::of(measured, task) else { continue };
            for Split { rank, cpu, application, mpi, protocol, kernel, softirq } in &both {
                let name = if *rank == 0 { measured.contender.to_string() } else { String::new() };
                let mut row = vec![std::mem::take(&mut title), name, rank.to_string()];
                for reading in [cpu, application, mpi, protocol, kernel, softirq] {
                    row.push(in_short(reading));
                    if let Reading::Absent { reason } | Reading::NotPermitted { reason, .. } = reading {
                        let who = reasons.entry(reason.clone()).or_default();
                        if !who.contains(&measured.contender.to_string()) {
                            who.push(measured.contender.to_string());
                        }
                    }
                }
                table.row(row);
            }
        }
    }
    if table.is_empty() {
        return String::new();
    }
    let mut text = table.text(width);
    for (reason, who) in reasons {
        text += &format!("  - absent for {}: {reason}\n", who.join(", "));
    }
    text
}

fn in_short(reading: &Reading<f64>) -> String {
    match reading {
        Reading::Measured(value) => format!("{value:.0}"),
        Reading::Modelled(value) => format!("~{value:.0}"),
        Reading::Absent { .. } | Reading::NotPermitted { .. } => "-".to_owned(),
    }
}

/// Cores that bore the kernel's receive and transmit work: medians over the rounds.
fn softirqs(here: &[&Measured], tasks: &[Task]) -> String {
    let mut text = String::new();
    for task in tasks {
        for measured in here {
            // Cores of a second machine last.
            let mut cores: BTreeMap<(bool, CoreId), Vec<f64>> = BTreeMap::new();
            for outcome in measured.series.blocks.iter().filter_map(|taken| taken.block.of(task)) {
                let there = outcome.remote_cores.iter().filter_map(Reading::value).flatten();
                for (far, core) in outcome.cores.iter().map(|core| (false, core)).chain(there.map(|core| (true, core)))
                {
                    let time = |reading: &Reading<machine::accounting::Softirq>| {
                        reading.value().map_or(0.0, |softirq| softirq.time.0 as f64)
                    };
                    let sum = (time(&core.net_rx) + time(&core.net_tx)) / outcome.messages.max(1) as f64;
                    cores.entry((far, core.core)).or_default().push(sum);
                }
            }
            let parts: Vec<String> = cores
                .into_iter()
                .filter_map(|(core, values)| Some((core, median(&values)?)))
                .filter(|(_, value)| *value >= 0.5)
                .map(|((far, core), value)| format!("{core}{} {value:.0}", if far { " of the other node" } else { "" }))
                .collect();
            if !parts.is_empty() {
                text += &format!("  {task}, {}: {}\n", measured.contender, parts.join(", "));
            }
        }
    }
    text
}

/// The probes around the blocks.
fn nearness(all: &[Measured]) -> Vec<String> {
    let blocks = |measured: &Measured| -> Vec<[Option<Probe>; 2]> {
        measured.series.blocks.iter().chain(&measured.accounted).map(|taken| taken.probes).collect()
    };
    let of = |measured: &Measured| -> Vec<_> {
        let cores = measured.seats.cores;
        blocks(measured).into_iter().flatten().flatten().map(|probe| (cores, probe)).collect()
    };
    let sentences = nearness::said(all.iter().flat_map(of));
    let mut notes: Vec<String> =
        sentences.into_iter().map(|said| format!("probe before and after each start: {said}")).collect();
    let taken = all.iter().flat_map(|measured| measured.series.blocks.iter().chain(&measured.accounted));
    notes.extend(clocks::said(taken.flat_map(|taken| &taken.clocks)));
    if notes.is_empty() && all.iter().all(|measured| measured.seats.hosts == Hosts::Nodes) {
        return notes;
    }
    if notes.is_empty() {
        return vec!["no probe between the cores: they are one, or others kept them busy".to_owned()];
    }
    let moved = |taken: &Taken<Block>| {
        let of = |outcome: &&Outcome| !nearness::at_one_place(outcome.probes(taken.probes).into_iter().flatten());
        taken.block.outcomes.iter().filter(of).count()
    };
    let taken = all.iter().flat_map(|measured| measured.series.blocks.iter().chain(&measured.accounted));
    let moved: usize = taken.map(moved).sum();
    if moved > 0 {
        let values = count::of(moved as u64, "value");
        notes.push(format!("the cores moved between near and far during {values}, which are not compared"));
    }
    notes
}

/// What the engine's ranks reported beyond what was asked, and why contenders are missing.
fn carried(all: &[Measured]) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    // Notes that differ only in numbers are one note; the first stands for all.
    let mut seen: Vec<String> = Vec::new();
    let mut add = |note: String| {
        let shape = note.chars().filter(|c| !c.is_ascii_digit()).collect();
        if !seen.contains(&shape) {
            seen.push(shape);
            notes.push(note);
        }
    };
    for measured in all {
        let name = &measured.contender;
        for failure in &measured.series.failures {
            add(failure.clone());
        }
        if !name.is_engine() {
            continue;
        }
        let mut packets: BTreeMap<&str, u64> = BTreeMap::new();
        for Taken { round, block, .. } in measured.series.blocks.iter().chain(&measured.accounted) {
            if block.reports.ranks() < 2 {
                add(format!("{name}: {} of 2 ranks reported in round {round}", block.reports.ranks()));
            }
            for (port, sum) in block.reports.sums() {
                *packets.entry(port).or_default() += sum.packets_received;
            }
            for report in &block.reports.endpoints {
                for note in &report.notes {
                    add(format!("{name}: {note}"));
                }
                if report.ran != report.asked {
                    add(format!("{name}: asked for {}, ran at {}", report.asked, report.ran));
                }
            }
        }
        let carried: Vec<String> = packets
            .into_iter()
            .filter(|(_, packets)| *packets > 0)
            .map(|(port, packets)| format!("{} over {port}", count::of(packets, "packet")))
            .collect();
        if !carried.is_empty() {
            add(format!("{name}: its engines received {} in all", carried.join(", ")));
        }
    }
    notes
}

/// The cost of timing the calls.
fn slowdown(all: &[Measured]) -> String {
    let mut ratios = Vec::new();
    for measured in all {
        for outcome in measured.accounted.iter().flat_map(|taken| &taken.block.outcomes) {
            if let Some(plain) = value(measured, &outcome.task) {
                let slower = outcome.value / plain.middle;
                ratios.push(if outcome.task.pattern.more_is_better() { 1.0 / slower } else { slower });
            }
        }
    }
    match median(&ratios) {
        Some(middle) => {
            let most = ratios.iter().copied().fold(0.0, f64::max);
            format!(
                "timing the calls made these blocks {middle:.2}x slower (median), {most:.2}x at most; the medians above are without"
            )
        }
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use launch::carriers::named;

    use super::super::comparison::tests::{LATENCY, engine, measured};
    use super::super::contender::Contender;
    use super::super::targets;
    use super::*;

    #[test]
    fn a_page_says_what_was_compared_and_what_failed() {
        let mut lost = measured(Contender::Peer(named("ucx").unwrap()), LATENCY, &[]);
        lost.series.failures.push("ucx under Open MPI: exit code 1. Next: see".to_owned());
        let all = [
            measured(engine(), LATENCY, &[100.0, 110.0, 120.0]),
            measured(Contender::Peer(named("vader").unwrap()), LATENCY, &[200.0, 220.0, 240.0]),
            lost,
        ];
        let text = page("Open MPI", &all, &[LATENCY], &["note of the caller".to_owned()], 200);
        for part in [
            "one host, ranks on cores 0 and 1",
            "0.50x (cannot tell: 3 of 6 rounds)",
            "the best peer",
            "not measured",
            "ucx under Open MPI: exit code 1",
            "note of the caller",
            "50 ns one way between cores 0 and 1 (median), at one distance in all 6",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let judged = super::targets(&targets::judge(&all), 200);
        assert!(
            judged.contains("at most 1.0x") && judged.contains("cannot tell") && judged.contains("vader"),
            "{judged}"
        );
        // Tasks asked for two hosts only have no empty rows among those of one host.
        let rate = Task { pattern: Pattern::Rate, ..LATENCY };
        let mut apart = measured(engine(), rate, &[1.0]);
        apart.seats.hosts = Hosts::Lab;
        let text = page("", &[all.into(), vec![apart]].concat(), &[LATENCY, rate], &[], 200);
        assert_eq!((text.matches("8 B latency").count(), text.matches("8 B rate").count()), (1, 1), "{text}");
    }
}
