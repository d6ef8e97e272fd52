//! The capability of cores for ranks, as a table.

use chart::{Absences, number};
use machine::text::Table;
use machine::{CoreCapability, Reading};

use crate::words::percent;

const HEADER: [&str; 7] = ["host", "core", "for ranks", "taken", "softirqs", "clock", "sibling busy"];

const MODELLED: &str = "~ is modelled: softirqs as the kernel's ticks hit them, or what of them interrupted the job";

/// The table and its remarks.
pub fn table(cores: &[CoreCapability]) -> (Table, Vec<String>) {
    let mut absences = Absences::default();
    for core in cores {
        for (what, reading) in HEADER[3..].iter().zip(readings(core)) {
            if let Some(why) = number::why_missing(reading) {
                absences.add(what, why);
            }
        }
    }
    let is_modelled = |core: &CoreCapability| readings(core).iter().any(|of| matches!(of, Reading::Modelled(_)));
    let mut remarks = absences.lines();
    remarks.extend(cores.iter().any(is_modelled).then(|| MODELLED.to_owned()));
    (super::table(&HEADER, &[0], cores.iter().map(row)), remarks)
}

fn readings(core: &CoreCapability) -> [&Reading<f64>; 4] {
    [&core.taken, &core.softirq, &core.clock, &core.sibling]
}

fn row(core: &CoreCapability) -> Vec<String> {
    let shown = |reading: &Reading<f64>| match reading {
        Reading::Measured(share) => percent(*share),
        Reading::Modelled(share) => format!("~{}", percent(*share)),
        Reading::Absent { .. } | Reading::NotPermitted { .. } => "-".to_owned(),
    };
    let mut row = vec![core.host.clone(), core.core.0.to_string(), range(core)];
    row.extend(readings(core).map(shown));
    row
}

/// `75.0 %`, or `37.5 to 75.0 %`.
fn range(core: &CoreCapability) -> String {
    let (low, high) = core.range();
    match high - low < 0.001 {
        true => percent(high),
        false => format!("{:.1} to {}", 100.0 * low, percent(high)),
    }
}

#[cfg(test)]
mod tests {
    use machine::CoreId;

    use super::*;

    #[test]
    fn what_is_missing_is_a_dash_with_its_reason_below() {
        let core = CoreCapability {
            host: "h\x1b".into(),
            core: CoreId(3),
            taken: Reading::Measured(0.25),
            softirq: Reading::not_permitted("not you", "be root"),
            clock: Reading::absent("no cpufreq"),
            sibling: Reading::Modelled(1.0),
        };
        let (table, remarks) = table(&[core]);
        let lines: Vec<String> =
            table.text(100).lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(lines[1], "h\u{fffd} 3 37.5 to 75.0 % 25.0 % - - ~100.0 %");
        assert_eq!(remarks[0], "clock: absent: no cpufreq");
        assert_eq!(remarks[1], "softirqs: not permitted: not you. Next: be root");
        assert!(remarks[2].starts_with("~ is modelled"));
    }
}
