//! Paper 002's sweep (section 5.1, Figs. 2 and 4) as a page of text: the receiving process on each core in turn,
//! receive processing pinned to one of them.

use std::collections::BTreeSet;

use experiment::findings::{PointFindings, Question, SweepRow};
use experiment::ranges::collect_interval;
use experiment::sweep;
use machine::text::Table;
use machine::{Reading, figure};
use rounds::cost::{cpu_per_message, interrupts_per_message};
use rounds::statistics::median_interval;

use crate::bench_page::{Measured, measure_of, notes, quantity, rounds_done};

/// The page of a sweep of `rounds`: a table for each stack and size, in `width` columns.
pub fn page(measured: &[Measured], rounds: u32, width: usize) -> String {
    let mut page = String::new();
    let mut missing = BTreeSet::new();
    let same = |a: &Measured, b: &Measured| a.spec.size == b.spec.size && a.spec.contender() == b.spec.contender();
    for family in measured.chunk_by(same) {
        let Some(protocol) = family[0].spec.protocol_core else { continue };
        let spec = &family[0].spec;
        page += &format!(
            "{}, {} {}: {}, receive processing on {protocol}, {}, path {}\n",
            spec.contender(),
            spec.size,
            spec.pattern,
            measure_of(spec.pattern.metric()),
            rounds_done(family, rounds),
            spec.path
        );
        let points: Vec<PointFindings> = family.iter().filter_map(findings).collect();
        let header = [
            "receiver",
            "process",
            "sender",
            "median",
            "95 % interval",
            "over the protocol's core",
            "NET_RX/message",
            "interrupts/message",
            "softirq time there",
            "CPU/message",
        ];
        let mut table = Table::new(header).right(3..10);
        for row in sweep::rows(&points) {
            let point = points.iter().find(|point| point.key == row.evidence).expect("each row is of a point");
            table.row(cells(&row, point, &mut missing));
        }
        page += &format!("{}\n", table.text(width));
    }
    page += "notes\n";
    page += "  softirq time there: share of all cores' network softirq time on the core of receive processing; taking packets \
             from the veth and merging them (GRO) stays on the sender's core, whatever RPS says\n";
    for note in missing.into_iter().chain(notes(measured)) {
        page += &format!("  {note}\n");
    }
    page
}

fn findings(point: &Measured) -> Option<PointFindings> {
    let values: Vec<f64> = point.samples.iter().map(|sample| sample.value).collect();
    Some(PointFindings {
        key: point.spec.key(),
        spec: point.spec.clone(),
        questions: vec![Question::ProtocolCore],
        candidate: true,
        value: median_interval(&values)?,
        cpu_per_message: collect_interval(point.samples.iter().map(cpu_per_message)),
        samples: point.samples.clone(),
    })
}

fn cells(row: &SweepRow, point: &PointFindings, missing: &mut BTreeSet<String>) -> [String; 10] {
    let metric = row.pattern.metric();
    let mut known = |what: &str, reading: Reading<f64>, write: &dyn Fn(f64) -> String| match reading {
        Reading::Measured(value) | Reading::Modelled(value) => write(value),
        Reading::Absent { reason } => {
            missing.insert(format!("no {what}: {reason}"));
            "-".to_owned()
        }
        Reading::NotPermitted { reason, next } => {
            missing.insert(format!("no {what}: {reason} (next: {next})"));
            "-".to_owned()
        }
    };
    let interrupts = collect_interval(point.samples.iter().map(interrupts_per_message)).map(|i| i.middle);
    let share = row.softirq_share.iter().find(|(core, _)| *core == row.protocol_core).map(|(_, share)| *share);
    [
        row.receiver.to_string(),
        if row.core == row.protocol_core { format!("{} (protocol)", row.core) } else { row.core.to_string() },
        point.spec.local_core.to_string(),
        quantity(metric, row.value.middle),
        row.value.range(|value| quantity(metric, value)),
        match row.gain {
            Some(gain) => gain.ratio(2, ""),
            None if row.core == row.protocol_core => "1".to_owned(),
            None => "cannot tell".to_owned(),
        },
        known("softirqs", row.softirqs_per_message.clone(), &figure::digits),
        known("interrupts", interrupts, &figure::digits),
        share.map_or("-".to_owned(), |share| format!("{:.0} %", 100.0 * share)),
        known("CPU time", point.cpu_per_message.clone().map(|i| i.middle), &figure::nanoseconds),
    ]
}
