//! However a process ends, its tables say what it did until then.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use record::functions::named;
use record::layout::FIRST_REGION;
use record::rank::Rank;

use crate::expectation::{Expectation, consistent};
use crate::launcher::{LIMIT, Mpi};
use crate::place::{Place, find};

const RANKS: usize = 3;

/// Runs `ends.c` to this end; the tables of all ranks must be those that the ranks noted before it.
fn end(mpi: &Mpi, how: &str, launcher_may_fail: bool) -> Vec<Rank> {
    let place = Place::new();
    let program = mpi.compile(&place, "ends.c");
    let mut command = mpi.launch(&place, RANKS, program);
    command.arg(how);
    Place::profiled(&mut command, &place.profile());
    let ended = place.run(&mut command, LIMIT);
    let told = format!("{how} under {mpi}: {:?}\n{}{}", ended.status, ended.out, ended.errors);
    let status = ended.status.unwrap_or_else(|| panic!("it hangs: {told}"));
    assert!(status.success() || launcher_may_fail, "{told}");
    assert!(!ended.errors.contains("plimsoll"), "{told}");
    let tables = place.ranks(&place.profile());
    assert_eq!(tables.len(), RANKS, "{told}");
    for (number, rank) in tables.iter().enumerate() {
        assert_eq!((rank.header.rank as usize, rank.header.size as usize), (number, RANKS), "{told}");
        // MPI_Abort may return, and then has been called.
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
fn an_aborted_job() {
    for mpi in Mpi::all() {
        let tables = end(&mpi, "abort", true);
        others_waited(&tables);
        assert!(tables[RANKS - 1].header.aborted > 0 && tables[RANKS - 1].header.finalized == 0, "{mpi}");
    }
}

#[test]
fn a_killed_rank() {
    for mpi in Mpi::all() {
        let tables = end(&mpi, "kill", true);
        others_waited(&tables);
        let header = &tables[RANKS - 1].header;
        assert_eq!((header.finalized, header.ended, header.aborted), (0, 0, 0), "{mpi}");
    }
}

#[test]
fn a_rank_that_crashes() {
    for mpi in Mpi::all() {
        let tables = end(&mpi, "crash", true);
        others_waited(&tables);
        let header = &tables[RANKS - 1].header;
        assert_eq!((header.finalized, header.ended, header.aborted), (0, 0, 0), "{mpi}");
    }
}

#[test]
fn an_exit_without_finalize() {
    for mpi in Mpi::all() {
        // MPI's own handlers of exit may end the others first.
        for rank in end(&mpi, "exit", true) {
            assert_eq!((rank.header.finalized, rank.header.aborted), (0, 0), "{mpi}");
        }
        for rank in end(&mpi, "_exit", true) {
            assert_eq!((rank.header.finalized, rank.header.ended), (0, 0), "{mpi}");
        }
    }
}

#[test]
fn children_of_a_rank_leave_its_tables_alone() {
    for mpi in Mpi::all() {
        for rank in end(&mpi, "fork", false) {
            assert!(rank.header.finalized > 0 && rank.header.ended >= rank.header.finalized, "{mpi}");
        }
    }
}

/// What is no MPI program leaves nothing and says nothing.
#[test]
fn other_programs_do_not_notice() {
    let place = Place::new();
    let mut command = place.command("sh");
    command.args(["-c", "ls / > /dev/null; (exit 3)"]);
    Place::profiled(&mut command, &place.profile());
    let ended = place.run(&mut command, LIMIT);
    assert_eq!((ended.status.unwrap().code(), ended.out, ended.errors), (Some(3), String::new(), String::new()));
    assert!(place.ranks(&place.profile()).is_empty());
}

/// Without a folder the library lets every call through and says nothing.
#[test]
fn nothing_is_recorded_where_no_folder_is_named() {
    for mpi in Mpi::all() {
        let place = Place::new();
        let program = mpi.compile(&place, "halo.c");
        let mut command = mpi.launch(&place, 8, program);
        command.arg("2").env("LD_PRELOAD", crate::place::library());
        let ended = place.run(&mut command, LIMIT).well(&mpi);
        assert!(!ended.errors.contains("plimsoll"), "{}", ended.errors);
    }
}

/// A folder on a file system of `size`, in a mount namespace of the job's own; what was recorded is copied out of it.
fn on_small_disk(place: &Place, command: Command, size: &str) -> Option<Command> {
    if !rustix::process::geteuid().is_root() || find("unshare").is_none() {
        eprintln!("SKIPPED: a full disk takes root and unshare");
        return None;
    }
    let folder = place.profile();
    fs::create_dir_all(place.path().join("copied")).unwrap();
    let script = format!(
        "mount -t tmpfs -o size={size} none {0} && mkdir {0}/ranks && LD_PRELOAD={1} PLIMSOLL_PROFILE={0} \"$@\"; \
         status=$?; cp -r {0}/ranks copied/; exit $status",
        folder.display(),
        crate::place::library().display()
    );
    fs::create_dir_all(&folder).unwrap();
    let mut wrapped = place.command("unshare");
    wrapped.args(["--mount", "--propagation", "private", "sh", "-c", &script, "sh"]);
    wrapped.arg(command.get_program()).args(command.get_args());
    wrapped.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    Some(wrapped)
}

fn complaints(errors: &str) -> Vec<&str> {
    errors.lines().filter(|line| line.contains("plimsoll")).collect()
}

#[test]
fn a_full_disk_ends_recording_and_nothing_else() {
    for mpi in Mpi::all() {
        let place = Place::new();
        let program = mpi.compile(&place, "halo.c");
        let mut plain = mpi.launch(&place, 8, program);
        plain.arg("5");
        // Less than the beginning of one file.
        let Some(mut command) = on_small_disk(&place, plain, "128k") else { return };
        let ended = place.run(&mut command, LIMIT).well(&mpi);
        let lines = complaints(&ended.errors);
        assert!((1..=8).contains(&lines.len()), "{mpi}: {}", ended.errors);
        assert!(lines.iter().all(|line| line.contains("Next: ")), "{mpi}: {lines:?}");
    }
}

#[test]
fn a_disk_that_fills_up_loses_what_comes_then() {
    for mpi in Mpi::all() {
        let place = Place::new();
        let program = mpi.compile(&place, "sites.c");
        let Some(mut command) = on_small_disk(&place, mpi.launch(&place, 2, program), "4m") else { return };
        let ended = place.run(&mut command, LIMIT).well(&mpi);
        let lines = complaints(&ended.errors);
        assert!((1..=2).contains(&lines.len()), "{mpi}: {}", ended.errors);
        let tables = place.ranks(&place.path().join("copied"));
        assert_eq!(tables.len(), 2, "{mpi}: {}", ended.errors);
        for rank in tables {
            let found = Expectation::found(&rank);
            // What is called for the first time when nothing fits any more has no row.
            let rowless: &[&str] = if rank.header.dropped.rows > 0 { &["Finalize"] } else { &[] };
            let difference = Expectation::of(&place, rank.header.pid).without(rowless).against(&found);
            assert!(difference.is_empty(), "{mpi}:\n{difference}");
            assert_eq!(rank.header.dropped.rows, rowless.len() as u64, "{mpi}");
            let kept: u64 = rank.sites.iter().map(|site| site.calls).sum();
            let all = Expectation::found(&rank).calls.values().map(|count| count.calls).sum::<u64>();
            assert!(rank.header.dropped.sites > 0, "{mpi}");
            assert_eq!(kept + rank.header.dropped.sites, all + rank.header.dropped.rows, "{mpi}");
        }
    }
}

/// A folder that cannot be made: the program runs, one line a rank says why nothing is recorded.
#[test]
fn a_folder_that_cannot_be_made() {
    for mpi in Mpi::all() {
        let place = Place::new();
        let program = mpi.compile(&place, "halo.c");
        let mut command = mpi.launch(&place, 8, program);
        command.arg("2");
        let folder = place.path().join("nowhere");
        symlink(Path::new("/proc/1/plimsoll"), &folder).unwrap();
        command.env("LD_PRELOAD", crate::place::library()).env(record::folder::variable::FOLDER, &folder);
        let ended = place.run(&mut command, LIMIT).well(&mpi);
        let lines = complaints(&ended.errors);
        assert!((1..=8).contains(&lines.len()), "{mpi}: {}", ended.errors);
        assert!(lines.iter().all(|line| line.contains("Next: ")), "{mpi}: {lines:?}");
    }
}

#[test]
fn two_hundred_thousand_places() {
    let mpis = Mpi::all();
    for mpi in &mpis {
        let place = Place::new();
        let program = mpi.compile(&place, "sites.c");
        let run = |memory: u64| {
            let folder = place.path().join(format!("profile-{memory}"));
            let mut command = mpi.launch(&place, 2, &program);
            Place::profiled(&mut command, &folder);
            command.env(record::folder::variable::MEMORY, memory.to_string());
            place.run(&mut command, LIMIT).well(mpi);
            (place.ranks(&folder), folder)
        };
        let (tables, _) = run(64 << 20);
        assert_eq!(tables.len(), 2);
        for rank in tables {
            let difference = Expectation::of(&place, rank.header.pid).against(&Expectation::found(&rank));
            assert!(difference.is_empty(), "{mpi}:\n{difference}");
            consistent(&rank);
            let send = named("Send").unwrap().id.0;
            let mut places: Vec<_> = rank.sites.iter().filter(|site| site.function == send).collect();
            assert!(places.iter().all(|site| site.calls == 2), "{mpi}");
            places.sort_by_key(|site| site.offset);
            places.dedup_by_key(|site| (site.module, site.offset));
            assert_eq!(places.len(), 200_000, "{mpi}");
        }
        // In less memory: what is lost is counted, and the rest is exact.
        let memory = 4 << 20;
        let (tables, folder) = run(memory);
        for rank in tables {
            let difference = Expectation::of(&place, rank.header.pid).against(&Expectation::found(&rank));
            assert!(difference.is_empty(), "{mpi}:\n{difference}");
            let kept: u64 = rank.sites.iter().map(|site| site.calls).sum();
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
