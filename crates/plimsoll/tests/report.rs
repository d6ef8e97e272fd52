//! `plimsoll report` on folders that are profiles, damaged ones and others.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::synthetic::{Rank, SECOND, job, write};
use profile::summary::Summary;

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
    assert!(page.contains("MPI_Sendrecv") && page.contains("1.95"), "{page}");
    let summary: Summary = serde_json::from_str(&printed(report(&["--json"], folder.path()))).unwrap();
    assert_eq!((summary.totals.calls, summary.totals.messages, summary.totals.bytes), (1000, 1000, 4_096_000));
    let paper = printed(report(&["--paper"], folder.path()));
    assert!(paper.contains("TABLE II") && paper.contains("Sendrecv 100.00%"), "{paper}");
    let tables = folder.path().join("tables");
    let listed = printed(report(&[&format!("--csv={}", tables.display())], folder.path()));
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

/// Ranks whose tables are damaged are left out, each with a sentence; where nothing is left there is nothing to show.
#[test]
fn damaged_tables_are_named_and_no_figures_are_made_of_them() {
    let folder = profile();
    let mut files: Vec<_> =
        fs::read_dir(folder.path().join("ranks")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let damage = |file: &Path| {
        let mut bytes = fs::read(file).unwrap();
        let rows = record::layout::FIRST_REGION + 5000;
        bytes[rows..rows + 3000].iter_mut().enumerate().for_each(|(at, byte)| *byte = at as u8 ^ 0x9b);
        fs::write(file, bytes).unwrap();
    };
    damage(&files[0]);
    let page = printed(report(&[], folder.path()));
    assert!(page.contains("left out: rank 0, ") && page.contains("1 of 2 ranks"), "{page}");
    assert!(!page.contains(|c: char| c.is_control() && c != '\n'), "{page:?}");
    damage(&files[1]);
    for arguments in [&[][..], &["--json"], &["--paper"], &["--csv=tables"]] {
        let nothing = report(arguments, folder.path());
        let said = String::from_utf8(nothing.stderr).unwrap();
        assert_eq!((nothing.status.code(), nothing.stdout.len()), (Some(1), 0), "{arguments:?}: {said}");
        assert!(said.contains("left out: rank 0, ") && said.contains("Next: "), "{arguments:?}: {said}");
        assert!(!said.contains(|c: char| c.is_control() && c != '\n'), "{said:?}");
    }
}

#[test]
fn what_cannot_be_written_is_no_matter_of_space_unless_the_disk_is_full() {
    let folder = profile();
    let file = folder.path().join("a file");
    fs::write(&file, "").unwrap();
    let below = file.join("tables");
    for place in ["/proc/tables", below.to_str().unwrap()] {
        let output = report(&[&format!("--csv={place}")], folder.path());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains("--csv"), "{said}");
        assert!(!said.contains("space"), "{said}");
    }
}

#[test]
fn an_export_floods_no_terminal() {
    let folder = profile();
    let Some(script) = skip::tool("script") else { return };
    let command = format!("{} report {} --export goal", env!("CARGO_BIN_EXE_plimsoll"), folder.path().display());
    let said = |command: &str| {
        let mut script = Command::new(&script);
        let output = script.args(["-qefc", command, "/dev/null"]).stdin(std::process::Stdio::null()).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let refused = said(&command);
    assert!(refused.contains("it is a terminal") && refused.contains("--output FILE"), "{refused}");
    // The next thing that is missing is the timeline.
    assert!(said(&format!("{command} -o timeline.goal")).contains("no timeline was recorded"));
}
