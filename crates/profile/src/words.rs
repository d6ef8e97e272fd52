//! Figures of a profile in words: the same on a page, on a terminal and in `plimsoll top`.

use chart::number;
use machine::{Joules, Reading, Watts, count};

use crate::report::Unit;
use crate::summary::{Frame, RankSummary, Summary};

pub fn seconds(value: f64) -> String {
    match value.is_finite() && value.abs() >= 999.5 {
        true => format!("{} s", count::grouped(value.round() as u64)),
        false => number::nanoseconds(value * 1e9),
    }
}

/// Seconds as the label of an axis.
pub fn tick(value: f64) -> String {
    if value == 0.0 { "0".into() } else { seconds(value) }
}

/// A share of 1 as a percentage; a share above 0 never reads 0.
pub fn percent(share: f64) -> String {
    match share * 100.0 {
        p if !p.is_finite() => "no value".into(),
        0.0 => "0 %".into(),
        p if p.abs() < 0.05 => "<0.1 %".into(),
        p => format!("{p:.1} %"),
    }
}

/// A rate or a large number: `1.3 M`.
pub fn amount(value: f64) -> String {
    number::scaled(value, &[(1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T")]).trim_end().to_string()
}

pub fn bytes(value: f64) -> String {
    const UNITS: [(f64, &str); 6] = [
        (1.0, "B"),
        (1024.0, "KiB"),
        (1048576.0, "MiB"),
        (1073741824.0, "GiB"),
        (1099511627776.0, "TiB"),
        (1125899906842624.0, "PiB"),
    ];
    number::scaled(value, &UNITS)
}

pub fn quantity(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Seconds | Unit::Part(_) => seconds(value),
        Unit::Share => percent(value),
        Unit::Count => count::grouped(value.round() as u64),
        Unit::Joules => Joules(value).to_string(),
        Unit::Watts => Watts(value).to_string(),
    }
}

/// The sizes of a class that begins at `floor`.
pub fn size_class(floor: u64) -> String {
    match floor {
        0 => "no bytes".into(),
        1 => "1 B".into(),
        _ => format!("{} to under {}", bytes(floor as f64), bytes(2.0 * floor as f64)),
    }
}

/// The name of a rank, with its world only where there are several worlds.
pub fn rank(summary: &Summary, place: usize) -> String {
    match summary.ranks.get(place) {
        Some(rank) => rank_of(summary, rank),
        None => format!("rank at place {place}"),
    }
}

pub fn rank_of(summary: &Summary, rank: &RankSummary) -> String {
    match summary.job.worlds > 1 {
        true => format!("world {}, rank {}", rank.world, rank.rank),
        false => format!("rank {}", rank.rank),
    }
}

/// Numbers, in any order, as ranges: `0-3, 8`.
pub fn runs(numbers: impl IntoIterator<Item = u32>) -> String {
    let mut numbers: Vec<u32> = numbers.into_iter().collect();
    numbers.sort_unstable();
    numbers.dedup();
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, end)) if *end + 1 == number => *end = number,
            _ => runs.push((number, number)),
        }
    }
    let text = |(from, to): (u32, u32)| if from == to { from.to_string() } else { format!("{from}-{to}") };
    runs.into_iter().map(text).collect::<Vec<_>>().join(", ")
}

/// The text of a cell, and its hover title: the origin of a value, or the reason of a missing one.
pub fn cell<T>(of: &Reading<T>, write: impl Fn(&T) -> String) -> (String, Option<String>) {
    match of {
        Reading::Measured(value) => (write(value), Some("measured".into())),
        Reading::Modelled(value) => (write(value), Some("modelled".into())),
        Reading::Absent { .. } => ("absent".into(), number::why_missing(of)),
        Reading::NotPermitted { .. } => ("not permitted".into(), number::why_missing(of)),
    }
}

/// The place of a site, as far as known: `exchange (halo.c:120)`.
pub fn place(frame: &Frame) -> String {
    let line = match (&frame.file, frame.line) {
        (Some(file), Some(line)) => format!("{}:{line}", file.rsplit('/').next().unwrap_or(file)),
        (Some(file), None) => file.clone(),
        _ => String::new(),
    };
    match (&frame.name, line.is_empty()) {
        (Some(name), true) => name.clone(),
        (Some(name), false) => format!("{name} ({line})"),
        (None, _) => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_as_an_engineer_writes_them() {
        assert_eq!([0.0, 0.0001, 0.0312, 0.9999, 1.0].map(percent), ["0 %", "<0.1 %", "3.1 %", "100.0 %", "100.0 %"]);
        assert_eq!([0.0, 1.0, 1023.0, 65536.0, 1.5e9].map(bytes), ["0 B", "1 B", "1023 B", "64 KiB", "1.397 GiB"]);
        assert_eq!([2.4e-6, 1.5, 1382.45].map(seconds), ["2.4 us", "1.5 s", "1,382 s"]);
        assert_eq!(runs([3, 0, 1, 2, 8, 8]), "0-3, 8");
        assert_eq!([1.0, 2.5, 2901.6].map(amount), ["1", "2.5", "2.902 k"]);
    }
}
