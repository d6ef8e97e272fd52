//! What really carried a job's messages, as a page of text for standard error.

use std::collections::BTreeMap;

use comfy_table::{CellAlignment, Table, presets};
use machine::Bytes;

use crate::report::{Port, Report, Reports, Traffic};

/// Ranks beyond this are summed up, not listed.
const LISTED: usize = 32;

/// What a job was, beside what its ranks reported.
pub struct Subject {
    /// The MPI, by name and version.
    pub mpi: String,
    pub ranks: u32,
    /// The placement that was asked for.
    pub placement: String,
}

/// The page where at least one rank reported.
pub fn page(subject: &Subject, reports: &Reports) -> String {
    let reported = reports.ranks();
    let mut page = match reported >= subject.ranks as usize {
        true => format!("plimsoll carried it: {} ranks under {}\n", subject.ranks, subject.mpi),
        false => format!("plimsoll: {reported} of {} ranks under {} REPORTED\n", subject.ranks, subject.mpi),
    };
    page += &table(reports);
    let mut notes = Vec::new();
    if reported < subject.ranks as usize {
        notes.push("ranks that did not report were killed, or did not end MPI by MPI_Finalize".to_owned());
    }
    if reports.messages() == 0 {
        notes.push("no message was received: the ranks did not talk to each other".to_owned());
    }
    if reports.damaged > 0 {
        notes.push(format!("{} report lines came mixed or cut: sums are too small", reports.damaged));
    }
    notes.extend(evidence(reports));
    notes.extend(departures(subject, reports));
    for note in notes {
        page += &format!("  {note}\n");
    }
    page
}

/// The page where no rank did: `causes` as [`crate::diagnosis::of`] found them.
pub fn nothing(subject: &Subject, causes: &[String]) -> String {
    let mut page = format!(
        "plimsoll did NOT carry it: no rank of {} under {} reported. Its messages went another way, or nowhere\n",
        subject.ranks, subject.mpi
    );
    for cause in causes {
        page += &format!("  {cause}\n");
    }
    page
}

fn table(reports: &Reports) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(["rank", "host", "placement", "port", "peers", "sent", "", "received", ""]);
    let ranks: Vec<&Report> = reports.endpoints.iter().collect();
    for report in ranks.iter().take(LISTED) {
        let rank = report.rank.map_or_else(|| format!("pid {}", report.pid), |rank| rank.to_string());
        let placement = report.ran.placement.clone().unwrap_or_else(|| "unknown".to_owned());
        let mut first = [rank, report.host.clone(), placement];
        for port in used(report) {
            row(&mut table, std::mem::take(&mut first), port);
        }
        if !first[0].is_empty() {
            table.add_row(first);
        }
    }
    let mut sums: BTreeMap<&str, Port> = BTreeMap::new();
    for port in ranks.iter().flat_map(|report| used(report)) {
        let sum = sums.entry(&port.port).or_insert_with(|| Port { port: port.port.clone(), ..Port::default() });
        sum.peers += port.peers;
        add(&mut sum.sent, &port.sent);
        add(&mut sum.received, &port.received);
    }
    if ranks.len() > 1 {
        let name = if ranks.len() > LISTED { format!("all {}", ranks.len()) } else { "sum".to_owned() };
        let mut first = [name, String::new(), String::new()];
        for sum in sums.values() {
            row(&mut table, std::mem::take(&mut first), sum);
        }
    }
    for column in 4..9 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// Ports that carried something; a rank that talked to nobody has none.
fn used(report: &Report) -> impl Iterator<Item = &Port> {
    let idle = |port: &&Port| port.sent == Traffic::default() && port.received == Traffic::default();
    report.ports.iter().filter(move |port| !idle(port))
}

fn add(sum: &mut Traffic, more: &Traffic) {
    sum.messages += more.messages;
    sum.bytes += more.bytes;
    sum.packets += more.packets;
}

fn row(table: &mut Table, first: [String; 3], port: &Port) {
    let messages = |traffic: &Traffic| format!("{} messages", grouped(traffic.messages));
    let mut row = first.to_vec();
    row.push(port.port.clone());
    row.push(port.peers.to_string());
    for traffic in [&port.sent, &port.received] {
        row.push(messages(traffic));
        row.push(rounded(traffic.bytes));
    }
    table.add_row(row);
}

/// 1234567 as 1,234,567.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (nth, digit) in digits.chars().enumerate() {
        if nth > 0 && (digits.len() - nth).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Bytes to three digits.
fn rounded(bytes: u64) -> String {
    let scaled = [("GiB", 30), ("MiB", 20), ("KiB", 10)].into_iter().find(|(_, shift)| bytes >= 1 << shift);
    match scaled {
        Some((unit, shift)) => format!("{:.1} {unit}", bytes as f64 / f64::from(1u32 << shift)),
        None => Bytes(bytes).to_string(),
    }
}

/// Counters of all ranks together.
fn evidence(reports: &Reports) -> Vec<String> {
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for (name, count) in reports.endpoints.iter().flat_map(|report| &report.evidence) {
        *sums.entry(name).or_default() += count;
    }
    let parts: Vec<String> = sums.into_iter().map(|(name, count)| format!("{name} {}", grouped(count))).collect();
    if parts.is_empty() { Vec::new() } else { vec![format!("evidence: {}", parts.join(", "))] }
}

/// What did not run as it was asked, each once with the ranks that it holds for.
fn departures(subject: &Subject, reports: &Reports) -> Vec<String> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for report in &reports.endpoints {
        let rank = report.rank.map_or_else(|| format!("pid {}", report.pid), |rank| rank.to_string());
        let mut add = |note: String| {
            let ranks = found.entry(note).or_default();
            if !ranks.contains(&rank) {
                ranks.push(rank.clone());
            }
        };
        if let Some(ran) = report.ran.placement.as_ref().filter(|ran| **ran != subject.placement) {
            add(format!("asked for {}, ran at {ran}", subject.placement));
        }
        if let (Some(asked), Some(ran)) = (&report.asked.network, &report.ran.network)
            && asked != ran
        {
            add(format!("asked for {asked} between hosts, ran {ran}"));
        }
        for note in &report.notes {
            add(note.clone());
        }
    }
    let all = reports.endpoints.len();
    found
        .into_iter()
        .map(|(note, ranks)| match ranks.len() {
            n if n == all && all > 1 => format!("all ranks: {note}"),
            1 => format!("rank {}: {note}", ranks[0]),
            n if n > 8 => format!("{n} ranks: {note}"),
            _ => format!("ranks {}: {note}", ranks.join(", ")),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_readers() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([0, 1023, 1536, 5 << 30].map(rounded), ["0 B", "1023 B", "1.5 KiB", "5.0 GiB"]);
    }
}
