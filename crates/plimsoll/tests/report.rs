//! `plimsoll report` on folders that are profiles, damaged ones and others.

#[path = "../../profile/tests/synthetic/mod.rs"]
mod synthetic;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use profile::summary::Summary;
use synthetic::{Rank, SECOND, job, write};

fn report(arguments: &[&str], folder: &Path) -> Output {
    let mut plimsoll = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    plimsoll.arg("report").args(arguments).arg(folder).env("COLUMNS", "120").output().unwrap()
}

fn profile() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let rank = |me: u32| {
        let mut rank = Rank::new(me, 2, 2 * SECOND);
        rank.calls("Sendrecv", 0, (0..500).map(|i| (if me == 0 { 9_000 } else { 200_000 + i }, 4096)));
        rank.peers(&[0, 1].map(|to| if to == me { (0, 0) } else { (500, 2_048_000) }));
        rank
    };
    write(folder.path(), &job(), &mut [rank(0), rank(1)]);
    folder
}

fn printed(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn each_way_of_showing_a_profile_has_its_figures() {
    let folder = profile();
    let page = printed(report(&[], folder.path()));
    assert!(page.contains("MPI_Sendrecv") && page.contains("1.95 MiB"), "{page}");
    let summary: Summary = serde_json::from_str(&printed(report(&["--json"], folder.path()))).unwrap();
    assert_eq!((summary.totals.calls, summary.totals.messages, summary.totals.bytes), (1000, 1000, 4_096_000));
    let paper = printed(report(&["--paper"], folder.path()));
    assert!(paper.contains("TABLE II") && paper.contains("Sendrecv 100.00%"), "{paper}");
    let tables = folder.path().join("tables");
    let listed = printed(report(&["--csv", tables.to_str().unwrap()], folder.path()));
    assert!(listed.contains("matrix.csv"), "{listed}");
    let matrix = fs::read_to_string(tables.join("matrix.csv")).unwrap();
    assert!(matrix.contains("0,0,1,500,2048000,0,0") && matrix.contains("0,1,0,500,2048000,0,0"), "{matrix}");
}

#[test]
fn what_is_no_profile_or_has_no_ranks_says_why_and_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let missing = report(&[], folder.path());
    let said = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(!missing.status.success() && said.contains("job.json") && said.contains("Next:"), "{said}");

    job().write(folder.path()).unwrap();
    fs::create_dir(folder.path().join("ranks")).unwrap();
    fs::write(folder.path().join("ranks/a.1.rank"), "rubbish").unwrap();
    let damaged = report(&[], folder.path());
    let said = String::from_utf8_lossy(&damaged.stderr).into_owned();
    assert!(!damaged.status.success() && said.contains("a.1.rank") && said.contains("too short"), "{said}");
}
