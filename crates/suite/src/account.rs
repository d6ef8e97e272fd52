//! The account of a run, printed at its end.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::record::{Record, target};

/// Skips that a strict run takes: `crate::test` and the reason as patterns, and why, by tabs.
const ALLOWED: &str = include_str!("../../../scripts/skips-allowed");

/// The number of slowest tests in the account.
const SLOWEST: usize = 30;

/// A test, or a part of one, that was left out.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Skip {
    reason: String,
    test: String,
    whole: bool,
}

/// Prints the account; whether all is well.
pub fn print(record: &Record) -> Result<bool, String> {
    let parts = record.parts();
    println!("\npart              wall s    CPU s");
    for part in &parts {
        let state = if part.failed > 0 { "failed" } else { "passed" };
        println!("{:14} {:9.1} {:8.1}  {state}", part.name, part.wall, part.processor);
    }
    let skips = skips(record);
    print!("{}", by_reason(&skips));
    times(record)?;
    let strict = std::env::var_os("PLIMSOLL_STRICT").is_some_and(|value| value == "1");
    let refused: Vec<&Skip> = skips.iter().filter(|skip| strict && !allowed(skip, ALLOWED)).collect();
    if !refused.is_empty() {
        println!("\nrefused, since scripts/skips-allowed does not list them:");
        refused.iter().for_each(|skip| println!("  {}: {}", skip.test, skip.reason));
    }
    let waiting: u32 = record.lines("waiting").iter().filter_map(|row| row[0].parse::<u32>().ok()).sum();
    if waiting > 0 && !parts.iter().any(|part| part.name == "matrices") {
        println!("\n{waiting} more tests run in `make check`");
    }
    print!("{}", failures(&record.lines("failures")));
    let skipped = skips.iter().filter(|skip| skip.whole).count() as u32;
    let passed: u32 = parts.iter().map(|part| part.passed).sum();
    let failed: u32 = parts.iter().map(|part| part.failed).sum();
    println!("\n{} passed, {failed} failed, {skipped} skipped", passed.saturating_sub(skipped));
    Ok(failed == 0 && refused.is_empty())
}

/// What failed tests printed, repeated where it is found without a search.
fn failures(rows: &[Vec<String>]) -> String {
    let mut text = String::new();
    let mut last = None;
    for row in rows {
        if last != Some(&row[0]) {
            text += &format!("\nfailed: {}\n", row[0]);
        }
        last = Some(&row[0]);
        text += &format!("    {}\n", row[1..].join("\t"));
    }
    text
}

fn skips(record: &Record) -> BTreeSet<Skip> {
    let rows = record.lines("skips").into_iter().filter(|row| row.len() == 5);
    rows.map(|row| {
        let [extent, package, _, test, reason] = <[String; 5]>::try_from(row).expect("five fields");
        Skip { reason, test: format!("{package}::{test}"), whole: extent == "test" }
    })
    .collect()
}

fn by_reason(skips: &BTreeSet<Skip>) -> String {
    let mut reasons = BTreeMap::<&str, Vec<&Skip>>::new();
    skips.iter().for_each(|skip| reasons.entry(&skip.reason).or_default().push(skip));
    let mut text = String::new();
    if !reasons.is_empty() {
        text += "\nleft out, by reason (a part of a test in brackets):\n";
    }
    for (reason, of) in reasons {
        text += &format!("  {reason}\n");
        for Skip { test, whole, .. } in of {
            text += &if *whole { format!("      {test}\n") } else { format!("      ({test})\n") };
        }
    }
    text
}

/// Whether a line of `list` allows the skip.
fn allowed(skip: &Skip, list: &str) -> bool {
    let lines = list.lines().filter(|line| !line.starts_with('#')).map(|line| line.split('\t').collect::<Vec<_>>());
    lines.filter(|line| line.len() == 3).any(|line| matches(&skip.test, line[0]) && matches(&skip.reason, line[1]))
}

/// Whether `text` matches a pattern in which `*` stands for anything.
fn matches(text: &str, pattern: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return text == pattern };
    let Some(text) = text.strip_prefix(start) else { return false };
    (0..=text.len()).filter(|at| text.is_char_boundary(*at)).any(|at| matches(&text[at..], rest))
}

/// Keeps the times of programs and of the slowest tests in `target/tests.txt`, and says where.
fn times(record: &Record) -> Result<(), String> {
    let slowest = |list: &str| {
        let mut rows = record.lines(list);
        let seconds = |row: &Vec<String>| row[0].parse::<f64>().unwrap_or(0.0);
        rows.sort_by(|a, b| seconds(b).total_cmp(&seconds(a)));
        rows
    };
    let (programs, tests) = (slowest("programs"), slowest("times"));
    if programs.is_empty() {
        return Ok(());
    }
    let mut text = "wall s    CPU s  tests  program\n".to_owned();
    programs.iter().for_each(|row| text += &format!("{:>6} {:>8} {:>6}  {}\n", row[0], row[1], row[3], row[2]));
    text += &format!("\nwall s  the {SLOWEST} slowest tests\n");
    tests.iter().take(SLOWEST).for_each(|row| text += &format!("{:>6}  {}\n", row[0], row[1]));
    let file = target().join("tests.txt");
    fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
    println!("\ntimes of programs and of the {SLOWEST} slowest tests: {}", file.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_list_takes_what_its_patterns_have() {
        let skip = |test: &str, reason: &str| Skip { reason: reason.into(), test: test.into(), whole: true };
        let list = "# a comment\nfabric::*\tthis MPICH * was built without libfabric*\twhy\n";
        assert!(allowed(&skip("fabric::a::b", "this MPICH 4 was built without libfabric; install one"), list));
        assert!(!allowed(&skip("linux::a", "this MPICH 4 was built without libfabric"), list));
        assert!(!allowed(&skip("fabric::a", "no mpirun"), list));
        assert!(!allowed(&skip("# a comment", ""), list));
    }

    #[test]
    fn every_line_of_the_list_says_why() {
        for line in ALLOWED.lines().filter(|line| !line.starts_with('#')) {
            assert_eq!(line.split('\t').filter(|field| !field.is_empty()).count(), 3, "{line}");
        }
    }

    #[test]
    fn skips_are_told_by_reason() {
        let skip = |test: &str, whole| Skip { reason: "no tool".into(), test: test.into(), whole };
        let told = by_reason(&[skip("a::b", true), skip("a::c", false)].into());
        assert_eq!(told.lines().skip(2).collect::<Vec<_>>(), ["  no tool", "      a::b", "      (a::c)"]);
    }
}
