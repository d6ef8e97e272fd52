//! The kernel's network work on each core against the wait of the ranks on it (paper 002, Figures 4, 7 and 11).

use chart::{Absences, Figure, number};
use machine::{Reading, count};

use super::part::{Part, WAIT};
use super::rows::{self, Bar, Row};
use crate::summary::{CoreSummary, Summary};
use crate::words;

/// Cores that are drawn; the table has all.
const ROWS: usize = 24;

const RECEIVING: Part = Part { class: "fill s5", name: "receiving (NET_RX)" };
const SENDING: Part = Part { class: "fill s4", name: "sending (NET_TX)" };

pub fn softirq_seconds(core: &CoreSummary) -> f64 {
    let value = |reading: &Reading<f64>| reading.value().copied().unwrap_or(0.0);
    value(&core.softirq_rx_seconds) + value(&core.softirq_tx_seconds)
}

fn softirqs(core: &CoreSummary) -> f64 {
    let value = |reading: &Reading<f64>| reading.value().copied().unwrap_or(0.0);
    value(&core.softirq_rx) + value(&core.softirq_tx)
}

pub fn name(summary: &Summary, core: &CoreSummary) -> String {
    match summary.job.hosts.len() > 1 {
        true => format!("{}, core {}", core.host, core.core),
        false => format!("core {}", core.core),
    }
}

/// The ranks on a core.
pub fn ranks(summary: &Summary, core: &CoreSummary) -> String {
    match summary.job.worlds > 1 {
        true => core.ranks.iter().map(|place| words::rank(summary, *place)).collect::<Vec<_>>().join(", "),
        false => words::runs(core.ranks.iter().filter_map(|place| Some(summary.ranks.get(*place)?.rank))),
    }
}

pub fn figures(summary: &Summary) -> Vec<Figure> {
    let mut cores: Vec<&CoreSummary> =
        summary.cores.iter().filter(|core| !core.ranks.is_empty() || softirqs(core) > 0.0).collect();
    if cores.is_empty() {
        return vec![];
    }
    let timed = cores.iter().any(|core| core.softirq_rx_seconds.value().is_some());
    let left_out = cores.len().saturating_sub(ROWS);
    if left_out > 0 {
        cores.sort_by(|a, b| {
            let by_time = softirq_seconds(b).total_cmp(&softirq_seconds(a));
            by_time.then(softirqs(b).total_cmp(&softirqs(a)))
        });
        cores.truncate(ROWS);
        cores.sort_by(|a, b| (&a.host, a.core).cmp(&(&b.host, b.core)));
    }
    let mut absences = Absences::default();
    for core in &summary.cores {
        for (what, reading) in [("softirqs", &core.softirq_rx), ("softirq time", &core.softirq_rx_seconds)] {
            if let Some(why) = number::why_missing(reading) {
                absences.add(what, why);
            }
        }
    }
    let rows: Vec<Row> = cores.iter().map(|core| row(summary, core, timed)).collect();
    let head = if timed { "network softirq time" } else { "network softirqs" };
    let mut missing = absences.lines();
    if left_out > 0 {
        let more = count::of(left_out as u64, "core");
        missing.push(format!("the table of cores has {more} more, with less network work"));
    }
    let legend = vec![RECEIVING.key(), SENDING.key(), WAIT.key()];
    vec![Figure {
        title: "Network softirqs by core, and the wait of the ranks there".into(),
        legend,
        drawing: rows::html("Network softirqs by core", &[(head, None), ("wait of its ranks", Some(1.0))], &rows),
        caption: "A core that the network keeps busy holds up the rank on it; the ranks that wait for that one are \
                  elsewhere (paper 002, Figures 4, 7 and 11). Softirqs on a core are the host's, not the job's alone."
            .into(),
        missing,
        wide: true,
        ..Figure::default()
    }]
}

fn row(summary: &Summary, core: &CoreSummary, timed: bool) -> Row {
    let seconds = summary.job.seconds.unwrap_or(summary.totals.seconds);
    let (rx, tx) = match timed {
        true => (&core.softirq_rx_seconds, &core.softirq_tx_seconds),
        false => (&core.softirq_rx, &core.softirq_tx),
    };
    let value = |reading: &Reading<f64>| reading.value().copied().unwrap_or(0.0);
    let network = match number::why_missing(rx) {
        Some(why) => Bar { parts: vec![], text: "not known".into(), title: why, missing: true },
        None => Bar {
            parts: vec![(RECEIVING, value(rx)), (SENDING, value(tx))],
            text: match timed {
                true => format!("{} ({})", words::seconds(softirq_seconds(core)), {
                    words::percent(if seconds > 0.0 { softirq_seconds(core) / seconds } else { 0.0 })
                }),
                false => words::amount(softirqs(core)),
            },
            title: format!(
                "NET_RX {} times, {}; NET_TX {} times, {}",
                number::reading(&core.softirq_rx, |n| words::amount(*n)),
                number::reading(&core.softirq_rx_seconds, |s| words::seconds(*s)),
                number::reading(&core.softirq_tx, |n| words::amount(*n)),
                number::reading(&core.softirq_tx_seconds, |s| words::seconds(*s)),
            ),
            missing: false,
        },
    };
    let wait = match (core.ranks.is_empty(), core.wait_share.value()) {
        (true, _) => Bar { parts: vec![], text: "no rank".into(), title: String::new(), missing: true },
        (_, None) => {
            let why = number::why_missing(&core.wait_share).unwrap_or_default();
            Bar { parts: vec![], text: "not known".into(), title: why, missing: true }
        }
        (_, Some(share)) => Bar {
            parts: vec![(WAIT, *share)],
            text: words::percent(*share),
            title: number::reading(&core.wait_share, |share| format!("{} of their time", words::percent(*share))),
            missing: false,
        },
    };
    let note = match core.ranks.len() {
        0 => String::new(),
        1 => format!("rank {}", ranks(summary, core)),
        _ => format!("ranks {}", ranks(summary, core)),
    };
    Row { name: name(summary, core), note, bars: vec![network, wait] }
}
