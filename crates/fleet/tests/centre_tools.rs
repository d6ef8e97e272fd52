//! What a centre reads the figures with, on the example's year: DuckDB on the exported jobs, promtool on the metrics and alerts.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use fleet::example;
use fleet::export::export;
use fleet::metrics::text;
use fleet::store::Event;
use fleet::totals::{By, Part, totals};

const PACKAGED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/prometheus");

/// A command that no package of `scripts/packages` brings. Where it is missing, the test is left out.
fn fetched(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
    if found.is_none() {
        skip::test(format_args!("no {name} on PATH (scripts/centre-tools DIR fetches it)"));
    }
    found
}

/// What a tool prints that is to succeed.
fn said(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}: {said}{errors}");
    said
}

#[test]
#[ignore = "make check"]
fn duckdb_reads_the_sums_from_the_files_of_all_days() {
    let Some(duckdb) = fetched("duckdb") else { return };
    let store = example::store().unwrap();
    let home = tempfile::tempdir().unwrap();
    export(&store, home.path()).unwrap();
    let ask = |query: &str| -> Vec<Vec<String>> {
        let from = format!("read_parquet('{}/*/*.parquet', hive_partitioning=true)", home.path().display());
        let mut command = Command::new(&duckdb);
        let said = said(command.args(["-csv", "-noheader", "-c", &query.replace("JOBS", &from)]));
        said.lines().map(|line| line.split(',').map(str::to_owned).collect()).collect()
    };
    // The folder's day is a date, and that of the job's beginning.
    let days = ask("SELECT typeof(any_value(day)), count(DISTINCT day), min(day), max(day), \
                    count(*) FILTER (day <> make_timestamp(epoch_us(started))::DATE) FROM JOBS");
    assert_eq!(days, [["DATE", "365", "2025-01-01", "2025-12-31", "0"]]);
    // A gain is kept in 32 bits.
    let near = |found: &str, sum: f64| (found.parse::<f64>().unwrap() / sum - 1.0).abs() < 1e-7;
    let sums_by = |by| totals(&store, Default::default(), by).unwrap();
    for (by, word) in [(By::Month, "strftime(day, '%Y-%m')"), (By::Program, "program"), (By::Group, "\"group\"")] {
        let found = ask(&format!(
            "SELECT {word}, count(*), sum(core_seconds) / 3600, sum(mpi_share * core_seconds) / sum(core_seconds) \
             FROM JOBS GROUP BY 1 ORDER BY 1"
        ));
        let parts = sums_by(by).groups;
        let is_same = |(found, part): (&Vec<String>, &Part)| {
            found[..2] == [part.name.clone(), part.jobs.to_string()]
                && near(&found[2], part.core_hours)
                && near(&found[3], part.mpi)
        };
        assert!(found.len() == parts.len() && found.iter().zip(&parts).all(is_same), "{found:#?}{parts:#?}");
    }
    let sums = sums_by(By::Program);
    assert_eq!((sums.unjudged.len(), sums.programs.len()), (2, 10));
    for lost in &sums.unjudged {
        let why = lost.why.name();
        let found = ask(&format!("SELECT count(*), sum(core_seconds) / 3600 FROM JOBS WHERE unjudged = '{why}'"));
        assert!(found[0][0] == lost.jobs.to_string() && near(&found[0][1], lost.core_hours), "{lost:?}: {found:?}");
    }
    for part in &sums.programs {
        let (lever, (least, most)) = part.best.unwrap();
        let lever = serde_json::to_value(lever).unwrap();
        let lever = lever.as_str().unwrap();
        let share = |end| format!("sum({lever}_saves_{end} * core_seconds) / sum(core_seconds)");
        let (name, ends) = (&part.name, ["least", "most"].map(share).join(", "));
        let found = ask(&format!("SELECT {ends} FROM JOBS WHERE program = '{name}'"));
        assert!(near(&found[0][0], least) && near(&found[0][1], most), "{part:?}: {found:?}");
    }
}

#[test]
#[ignore = "make check"]
fn promtool_takes_the_figures_and_the_alerts() {
    let Some(promtool) = fetched("promtool") else { return };
    let mut store = example::store().unwrap();
    Event::ALL.into_iter().for_each(|event| store.note(event, 1).unwrap());
    let home = tempfile::tempdir().unwrap();
    let figures = home.path().join("plimsoll.prom");
    fs::write(&figures, text(&store).unwrap()).unwrap();
    let ask = |words: &[&str], from| said(Command::new(&promtool).args(words).current_dir(PACKAGED).stdin(from));
    ask(&["check", "metrics"], fs::File::open(figures).unwrap().into());
    ask(&["check", "rules", "plimsoll.rules.yml"], Stdio::null());
    ask(&["test", "rules", "plimsoll.tests.yml"], Stdio::null());
}
