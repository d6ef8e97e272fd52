//! The tables of a process at each kind of its end: all calls until then.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use record::functions::named;
use record::layout::FIRST_REGION;
use record::rank::Rank;

use testbed::recording::{self, Recording};
use testbed::{Mpi, Outcome, Place};

use super::expectation::{Expectation, consistent};
use super::program;

const RANKS: usize = 3;

/// Runs `ends.c` to this end; the tables of all ranks must equal the expectations that the ranks wrote before it.
fn end(mpi: &Mpi, how: &str, launcher_may_fail: bool) -> Vec<Rank> {
    let place = Place::new();
    let recording = Recording::under(mpi, RANKS, program(&place, mpi, "ends.c")).arguments(&[how]);
    let recordings = recording.run(&place, "profile", skip::LIMIT);
    let ended = &recordings.outcome;
    let told = format!("{how} under {mpi}: {:?}\n{}{}", ended.status, ended.out, ended.errors);
    let status = ended.status.unwrap_or_else(|| panic!("it hangs: {told}"));
    assert!(status.success() || launcher_may_fail, "{told}");
    assert!(!ended.errors.contains("plimsoll"), "{told}");
    let tables = recordings.ranks();
    assert_eq!(tables.len(), RANKS, "{told}");
    for (number, rank) in tables.iter().enumerate() {
        assert_eq!((rank.header.rank as usize, rank.header.size as usize), (number, RANKS), "{told}");
        // MPI_Abort may return, and is then counted.
        let found = Expectation::found(rank).without(&["Abort"]);
        let difference = Expectation::of(&place, rank.header.pid).against(&found);
        assert!(difference.is_empty(), "rank {number}, {told}\n{difference}");
        consistent(rank);
        assert!(rank.header.initialized > 0, "{told}");
    }
    tables
}

/// All but the last rank are in MPI_Recv when the last one ends.
fn others_waited(tables: &[Rank]) {
    for rank in &tables[..RANKS - 1] {
        let header = &rank.header;
        assert_eq!((header.finalized, header.aborted), (0, 0));
        let receive = u32::from(named("Recv").unwrap().id.0) + 1;
        assert!(rank.threads.values().any(|thread| thread.inside == receive && thread.since > header.initialized));
    }
}

#[test]
#[ignore = "make check"]
fn an_aborted_job() {
    for mpi in Mpi::all() {
        let tables = end(&mpi, "abort", true);
        others_waited(&tables);
        assert!(tables[RANKS - 1].header.aborted > 0 && tables[RANKS - 1].header.finalized == 0, "{mpi}");
    }
}

#[test]
#[ignore = "make check"]
fn a_killed_rank() {
    for mpi in Mpi::all() {
        let tables = end(&mpi, "kill", true);
        others_waited(&tables);
        let header = &tables[RANKS - 1].header;
        assert_eq!((header.finalized, header.ended, header.aborted), (0, 0, 0), "{mpi}");
    }
}

#[test]
#[ignore = "make check"]
fn a_rank_that_crashes() {
    for mpi in Mpi::all() {
        let tables = end(&mpi, "crash", true);
        others_waited(&tables);
        let header = &tables[RANKS - 1].header;
        assert_eq!((header.finalized, header.ended, header.aborted), (0, 0, 0), "{mpi}");
    }
}

#[test]
#[ignore = "make check"]
fn an_exit_without_finalize() {
    for mpi in Mpi::all() {
        // The MPI's own exit handlers may end the other ranks first.
        for rank in end(&mpi, "exit", true) {
            assert_eq!((rank.header.finalized, rank.header.aborted), (0, 0), "{mpi}");
        }
        for rank in end(&mpi, "_exit", true) {
            assert_eq!((rank.header.finalized, rank.header.ended), (0, 0), "{mpi}");
        }
    }
}

#[test]
#[ignore = "make check"]
fn children_of_a_rank_leave_its_tables_alone() {
    for mpi in Mpi::all() {
        for rank in end(&mpi, "fork", false) {
            assert!(rank.header.finalized > 0 && rank.header.ended >= rank.header.finalized, "{mpi}");
        }
    }
}

/// A program without MPI leaves no tables and prints nothing.
#[test]
fn other_programs_do_not_notice() {
    let place = Place::new();
    let recording = Recording::new(["sh", "-c", "ls / > /dev/null; (exit 3)"].map(Into::into).to_vec());
    let recordings = recording.run(&place, "profile", skip::LIMIT);
    let ended = &recordings.outcome;
    assert_eq!((ended.status.unwrap().code(), &*ended.out, &*ended.errors), (Some(3), "", ""));
    assert!(recordings.ranks().is_empty());
}

/// Without a folder the library passes every call through and prints nothing.
#[test]
fn nothing_is_recorded_where_no_folder_is_named() {
    for mpi in Mpi::all() {
        let place = Place::new();
        let recording = Recording::under(&mpi, 8, program(&place, &mpi, "halo.c")).arguments(&["2"]);
        let ended = recording.env("LD_PRELOAD", recording::library()).run_plainly(&place, skip::LIMIT).well(&mpi);
        assert!(!ended.errors.contains("plimsoll"), "{}", ended.errors);
    }
}

/// Runs `recording` with its folder on a file system of `size`, in a mount namespace of the job; the tables are copied out
/// of it. `None`: the test is left out.
fn on_small_disk(place: &Place, recording: Recording, size: &str) -> Option<Outcome> {
    let unshare = skip::tool("unshare")?;
    if !rustix::process::geteuid().is_root() {
        skip::test("a full disk takes root");
        return None;
    }
    let folder = place.path().join("profile");
    fs::create_dir(place.path().join("copied")).unwrap();
    let script = format!(
        "mount -t tmpfs -o size={size} none {0} && mkdir {0}/ranks && \"$@\"; status=$?; cp -r {0}/ranks copied/; \
         exit $status",
        folder.display()
    );
    let within = [unshare.to_str().unwrap(), "--mount", "--propagation", "private", "sh", "-c", &script, "sh"];
    Some(recording.within(&within).run(place, "profile", skip::LIMIT).outcome)
}

fn complaints(errors: &str) -> Vec<&str> {
    errors.lines().filter(|line| line.contains("plimsoll")).collect()
}

#[test]
fn a_full_disk_ends_recording_and_nothing_else() {
    for mpi in Mpi::all() {
        let place = Place::new();
        let recording = Recording::under(&mpi, 8, program(&place, &mpi, "halo.c")).arguments(&["5"]);
        // The disk is smaller than the first part of one file.
        let Some(ended) = on_small_disk(&place, recording, "128k") else { return };
        let ended = ended.well(&mpi);
        let lines = complaints(&ended.errors);
        assert!((1..=8).contains(&lines.len()), "{mpi}: {}", ended.errors);
        assert!(lines.iter().all(|line| line.contains("Next: ")), "{mpi}: {lines:?}");
    }
}

#[test]
#[ignore = "make check"]
fn a_disk_that_fills_up_loses_what_comes_then() {
    for mpi in Mpi::all() {
        let place = Place::new();
        let recording = Recording::under(&mpi, 2, program(&place, &mpi, "sites.c"));
        let Some(ended) = on_small_disk(&place, recording, "4m") else { return };
        let ended = ended.well(&mpi);
        let lines = complaints(&ended.errors);
        assert!((1..=2).contains(&lines.len()), "{mpi}: {}", ended.errors);
        let tables = recording::ranks(&place.path().join("copied/ranks"));
        assert_eq!(tables.len(), 2, "{mpi}: {}", ended.errors);
        for rank in tables {
            let found = Expectation::found(&rank);
            // A function whose first call comes after the disk is full has no row.
            let rowless: &[&str] = if rank.header.dropped.rows > 0 { &["Finalize"] } else { &[] };
            let difference = Expectation::of(&place, rank.header.pid).without(rowless).against(&found);
            assert!(difference.is_empty(), "{mpi}:\n{difference}");
            assert_eq!(rank.header.dropped.rows, rowless.len() as u64, "{mpi}");
            let kept: u64 = rank.sites.iter().map(|(_, site)| site.calls).sum();
            let all = Expectation::found(&rank).calls.values().map(|count| count.calls).sum::<u64>();
            assert!(rank.header.dropped.sites > 0, "{mpi}");
            assert_eq!(kept + rank.header.dropped.sites, all + rank.header.dropped.rows, "{mpi}");
        }
    }
}

/// Where the folder cannot be made, the program runs, and each rank prints in one line why nothing is recorded.
#[test]
#[ignore = "make check"]
fn a_folder_that_cannot_be_made() {
    for mpi in Mpi::all() {
        let place = Place::new();
        let recording = Recording::under(&mpi, 8, program(&place, &mpi, "halo.c")).arguments(&["2"]);
        let folder = place.path().join("nowhere");
        symlink(Path::new("/proc/1/plimsoll"), &folder).unwrap();
        let recording = recording.env("LD_PRELOAD", recording::library());
        let recording = recording.env(record::folder::variable::FOLDER, &folder);
        let ended = recording.run_plainly(&place, skip::LIMIT).well(&mpi);
        let lines = complaints(&ended.errors);
        assert!((1..=8).contains(&lines.len()), "{mpi}: {}", ended.errors);
        assert!(lines.iter().all(|line| line.contains("Next: ")), "{mpi}: {lines:?}");
    }
}

#[test]
#[ignore = "make check"]
fn two_hundred_thousand_places() {
    let mpis = Mpi::all();
    for mpi in &mpis {
        let place = Place::new();
        let program = program(&place, mpi, "sites.c");
        let run = |memory: u64| {
            let recording = Recording::under(mpi, 2, &program).memory(memory);
            let ended = recording.run(&place, &format!("profile-{memory}"), skip::LIMIT);
            assert!(ended.outcome.succeeded(), "{mpi}: {:?}", ended.outcome);
            (ended.ranks(), ended.folder)
        };
        let (tables, _) = run(64 << 20);
        assert_eq!(tables.len(), 2);
        for rank in tables {
            let difference = Expectation::of(&place, rank.header.pid).against(&Expectation::found(&rank));
            assert!(difference.is_empty(), "{mpi}:\n{difference}");
            consistent(&rank);
            let send = named("Send").unwrap().id.0;
            let mut places: Vec<_> =
                rank.sites.iter().map(|(_, site)| site).filter(|site| site.function == send).collect();
            assert!(places.iter().all(|site| site.calls == 2), "{mpi}");
            places.sort_by_key(|site| site.offset);
            places.dedup_by_key(|site| (site.module, site.offset));
            assert_eq!(places.len(), 200_000, "{mpi}");
        }
        // With less memory the losses are counted, and the rest is exact.
        let memory = 4 << 20;
        let (tables, folder) = run(memory);
        for rank in tables {
            let difference = Expectation::of(&place, rank.header.pid).against(&Expectation::found(&rank));
            assert!(difference.is_empty(), "{mpi}:\n{difference}");
            let kept: u64 = rank.sites.iter().map(|(_, site)| site.calls).sum();
            let all = Expectation::found(&rank).calls.values().map(|count| count.calls).sum::<u64>();
            assert!(rank.header.dropped.sites > 0 && kept > 10_000, "{mpi}: {kept} of {all}");
            assert_eq!(kept + rank.header.dropped.sites, all, "{mpi}");
        }
        for file in fs::read_dir(folder.join("ranks")).unwrap() {
            let bytes = file.unwrap().metadata().unwrap().len();
            assert!((FIRST_REGION as u64..=memory).contains(&bytes), "{mpi}: {bytes}");
        }
    }
}
