//! The findings as text.

use machine::text::Table;
use machine::{count, figure};
use rounds::bound::Bound;
use rounds::estimate::Estimate;
use rounds::statistics::median;

use super::{Findings, MESSAGE_RATIO, Message, TABLES_NANOSECONDS, TIMELINE_NANOSECONDS};

pub fn page(findings: &Findings, width: usize) -> String {
    let verdict =
        |value, most: Option<f64>| most.map_or_else(String::new, |most| Bound::AtMost(most).judge(value).to_string());
    let mut table = Table::new(["MPI_Send to MPI_PROC_NULL", "adds", "95 % interval", "target", ""]).right([1, 2]);
    for call in &findings.calls {
        let mut row = |name: String, value: Option<Estimate>, most: Option<f64>| {
            let (middle, spread) = nanoseconds(value);
            let target = most.map_or(String::new(), |most| format!("at most {most:.0} ns"));
            table.row([name, middle, spread, target, verdict(value, most)]);
        };
        row(format!("{}: a call, bare", call.library), call.bare, None);
        row("  the same by PMPI_Send beside it: adds".into(), call.unloaded, None);
        row("  tables: counters, histograms, call site".into(), call.tables, Some(TABLES_NANOSECONDS));
        row("  tables and timeline".into(), call.timeline, Some(TIMELINE_NANOSECONDS));
        row("  of each: two reads of the clock".into(), call.clock, None);
    }
    if let Some(Message { bare, tables, timeline, .. }) = &findings.message {
        let (middle, spread) = nanoseconds(*bare);
        table.row(["NetPIPE, 8 B, shared memory, half a round trip, bare", &middle, &spread, "", ""]);
        for (name, value, most) in
            [("  tables", tables, Some(MESSAGE_RATIO)), ("  tables and timeline", timeline, None)]
        {
            let middle = value.map_or("-".into(), |value| format!("{:.3}x", value.middle));
            let spread = value.map_or("not measured".into(), |value| value.ends(3));
            let target = most.map_or(String::new(), |most| format!("at most {most:.2}x"));
            table.row([name.to_owned(), middle, spread, target, verdict(*value, most)]);
        }
    }
    let mut page = table.text(width);
    page += &format!(
        "\nnotes\n  at most {}, fewer where the targets are decided, bare and profiled starts in turns; what is added to a call is MPI_Send over PMPI_Send, which is not seen, block by block\n",
        count::of(findings.rounds.into(), "round")
    );
    for call in findings.calls.iter() {
        if let Some(bytes) = call.bytes {
            page += &format!("  {}: {bytes:.2} B of timeline a call\n", call.library);
        }
    }
    let probes = findings.message.iter().flat_map(|message| &message.probes);
    let probes: Vec<f64> = probes.map(|probe| probe.nanoseconds()).collect();
    if let Some(middle) = median(&probes) {
        let (low, high) = probes.iter().fold((f64::INFINITY, 0.0_f64), |(a, b), probe| (a.min(*probe), b.max(*probe)));
        page +=
            &format!("  {middle:.0} ns one way between the cores beside NetPIPE's starts ({low:.0} .. {high:.0})\n");
    }
    if findings.message.is_none() {
        page += "  NetPIPE left out: install netpipe-openmpi and openmpi-bin\n";
    }
    let failures = findings.calls.iter().flat_map(|call| &call.failures);
    for failure in failures.chain(findings.message.iter().flat_map(|message| &message.failures)) {
        page += &format!("  {failure}\n");
    }
    page
}

fn nanoseconds(value: Option<Estimate>) -> (String, String) {
    match value {
        Some(value) => (figure::nanoseconds(value.middle), value.range(figure::nanoseconds)),
        None => ("-".into(), "not measured".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Call;
    use super::*;

    fn at(middle: f64) -> Option<Estimate> {
        Some(Estimate { middle, low: middle - 1.0, high: middle + 1.0, samples: 7 })
    }

    #[test]
    fn what_is_met_missed_and_not_measured_is_said() {
        let call = |library: &str, tables| Call {
            library: library.into(),
            bare: at(9.0),
            unloaded: at(1.0),
            tables,
            timeline: None,
            clock: at(10.0),
            bytes: Some(6.5),
            failures: vec!["no timeline. Next: see".into()],
        };
        let calls = vec![call("MPI A", at(20.0)), call("MPI B", at(30.0)), call("MPI C", at(24.5))];
        let text = page(&Findings { rounds: 7, calls, message: None }, 200);
        for part in [
            "20 ns",
            "at most 25 ns  met\n",
            "missed\n",
            "cannot tell",
            "not measured",
            "6.50 B",
            "no timeline",
            "NetPIPE left out",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
