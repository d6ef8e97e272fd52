//! Reports of profiles whose figures are known, as their readers see them. `make bless` takes the present output.

use std::fs;
use std::path::Path;

use crate::synthetic::{RATE, Rank, SECOND, STARTED, job, write};
use machine::Reading;
use profile::csv_tables;
use profile::job::Job;
use profile::live::Here;
use profile::profile::Profile;
use profile::summary::{State, Summary};
use profile::terminal::{Screen, paper, render};
use record::folder;
use record::functions::named;
use record::layout::{Phase, kind, text};

const SCREEN: Screen = Screen { width: 120, colour: false, sites: 12 };

/// Four ranks exchange halos with their neighbours in a ring; the third computes more, and the others wait for it.
fn halo() -> Vec<Rank> {
    let rank = |me: u32| {
        let late = |step: u64| if me == 2 { 0 } else { 400_000 + step % 5 * 1000 };
        let mut rank = Rank::new(me, 4, 10 * SECOND);
        rank.calls("Irecv", 0, (0..2000).map(|_| (300, 16 << 10)));
        rank.calls("Isend", 0, (0..2000).map(|_| (2_000, 16 << 10)));
        rank.calls("Wait", 0, (0..4000).map(|i| (if i % 2 == 0 { 90 } else { 90 + late(i) }, 16 << 10)));
        rank.calls("Allreduce", 4, (0..1000).map(|i| (7_000 + late(i), 8)));
        rank.calls("Bcast", 4, (0..3).map(|_| (9_000, 100)));
        let peer = |to: u32| if to == (me + 1) % 4 || to == (me + 3) % 4 { (1000, 16_384_000) } else { (0, 0) };
        rank.peers(&[0, 1, 2, 3].map(peer));
        // Each process has the program elsewhere.
        let base = 0x5555_0000_0000 + u64::from(me) * 0x10_0000;
        let wait: u64 = (0..4000).map(|i| if i % 2 == 0 { 90 } else { 90 + late(i) }).sum();
        rank.sites("/no/such/app", base, "Wait", &[(0x1234, 2000, wait / 2), (0x1260, 2000, wait / 2)]);
        rank.image.of_rank(
            kind::PHASES,
            &[1, 2].map(|level: i32| Phase {
                ticks: rank.image.header.initialized + level as u64 * SECOND * RATE,
                level,
                ..Phase::default()
            }),
        );
        rank
    };
    (0..4).map(rank).collect()
}

fn opened(job: &Job, mut ranks: Vec<Rank>, change: impl FnOnce(&Path)) -> Summary {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), job, &mut ranks);
    change(folder.path());
    let mut summary = Summary::of(&Profile::open(folder.path()).unwrap());
    // The folder's name changes from run to run.
    for note in &mut summary.job.notes {
        *note = note.replace(&folder.path().display().to_string(), "DIR");
    }
    summary
}

#[test]
fn a_program_that_waits_for_one_rank() {
    insta::assert_snapshot!(render(&opened(&job(), halo(), |_| ()), SCREEN));
}

#[test]
fn the_tables_of_the_paper() {
    insta::assert_snapshot!(paper::render(&[opened(&job(), halo(), |_| ())]));
}

/// MILC's figures in paper 000: Tables I and II, 15 % of 1382.45 s in MPI, 2901.5 calls a second.
#[test]
fn milc_as_the_paper_has_it() {
    const CALLS: u64 = 4_011_216;
    let shares =
        [("Allreduce", 0.0115, 0.2986), ("Irecv", 0.2471, 0.0171), ("Isend", 0.2471, 0.1399), ("Wait", 0.4943, 0.5444)];
    let seconds = 1382.45;
    let mut rank = Rank::new(0, 1, (seconds * 1e9) as u64);
    rank.image.header.program = text("/home/user/milc");
    let mut left = CALLS;
    for (name, share, time) in shares {
        let calls = if name == "Wait" { left } else { (share * CALLS as f64).round() as u64 };
        left -= calls;
        let nanoseconds = (0.15 * seconds * 1e9 * time / calls as f64) as u64;
        rank.calls(name, u32::from(name == "Allreduce"), (0..calls).map(|_| (nanoseconds, 8)));
    }
    let printed = paper::render(&[opened(&job(), vec![rank], |_| ())]);
    for line in [
        "milc spent 15% of its runtime in MPI. It called MPI 4,011,216 times over its runtime, which ran for 1382.45 seconds.",
        "This equates out to 2901.5 MPI calls per second.",
        "Irecv      24.71%",
        "Wait       49.43%",
        "Waitall    0.00%",
        "Allreduce  29.86%",
        "Isend      13.99%",
    ] {
        assert!(printed.lines().any(|printed| printed == line), "{line}\n{printed}");
    }
}

#[test]
fn ranks_that_did_not_end_well_are_shown_as_far_as_they_came() {
    let mut ranks = halo();
    ranks[0].image.header.finalized = 0;
    ranks[0].image.header.ended = 0;
    // All of its calls are counted somewhere.
    ranks[0].image.header.dropped.sites = 2000 + 2000 + 1000 + 3 + 2;
    ranks[0].thread.inside = u32::from(named("Recv").unwrap().id.0) + 1;
    ranks[0].thread.since = ranks[0].image.header.latest.ticks - 2 * SECOND * RATE;
    ranks[1].image.header.aborted = ranks[1].image.header.finalized;
    ranks[3].image.header.dropped.sites = 12;
    // It was killed at the end of the job, 11 s after its start, and has been in its call since 2 s before.
    let started = ranks[0].image.header.started;
    ranks[0].thread.since = started.ticks + (9 * SECOND - (started.realtime - STARTED)) * RATE;
    let job = Job { exit_code: Some(137), ..job() };
    let summary = opened(&job, ranks, |folder| {
        let tables: Vec<_> = fs::read_dir(folder.join("ranks")).unwrap().map(|entry| entry.unwrap().path()).collect();
        fs::write(tables.iter().find(|path| path.to_string_lossy().contains("1002")).unwrap(), "rubbish").unwrap();
    });
    let states: Vec<State> = summary.ranks.iter().map(|rank| rank.state).collect();
    assert_eq!(states, [State::Killed, State::Aborted, State::Finalized]);
    assert_eq!(summary.ranks[0].inside.as_ref().map(|inside| inside.function.as_str()), Some("MPI_Recv"));
    assert!(!summary.job.complete);
    insta::assert_snapshot!(render(&summary, SCREEN));
}

#[test]
fn worlds_that_were_spawned_stay_apart() {
    let mut ranks = halo();
    for mut child in halo().into_iter().take(2) {
        child.image.header.world = text("world-2");
        child.image.header.pid += 100;
        child.image.header.size = 2;
        child.image.header.started.realtime += SECOND;
        ranks.push(child);
    }
    let summary = opened(&job(), ranks, |_| ());
    let places: Vec<_> = summary.ranks.iter().map(|rank| (rank.world, rank.rank)).collect();
    assert_eq!(places, [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1)]);
    assert_eq!(summary.matrices.iter().map(|matrix| matrix.ranks).collect::<Vec<_>>(), [4, 2]);
    assert!(summary.job.complete && summary.job.expected == 6, "{:?}", summary.job);
}

#[test]
fn programs_that_one_launch_runs_in_turn_are_worlds_with_their_times_added() {
    let mut ranks = halo();
    for mut later in halo() {
        let header = &mut later.image.header;
        header.pid += 100;
        header.program = text("/bin/later");
        for moment in [&mut header.started, &mut header.latest] {
            moment.realtime += 20 * SECOND;
        }
        ranks.push(later);
    }
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &job(), &mut ranks);
    let profile = Profile::open(folder.path()).unwrap();
    let worlds: Vec<_> = profile.worlds.iter().map(|world| (world.program(), world.size)).collect();
    assert_eq!(worlds, [("/bin/app".to_owned(), 4), ("/bin/later".to_owned(), 4)]);
    assert!((profile.seconds() - 20.0).abs() < 1e-6, "{}", profile.seconds());
    profile.whole().unwrap();
    let summary = Summary::of(&profile);
    assert!(summary.job.complete && !summary.job.notes.iter().any(|note| note.contains("tables")), "{:?}", summary.job);
    // What one of the second program left is damaged.
    fs::write(folder::rank_file(folder.path(), "node-a", 1103), "rubbish").unwrap();
    let profile = Profile::open(folder.path()).unwrap();
    let missing = "there are no tables of rank 3 of world 1 of 2 (/bin/later)";
    assert!(profile.notes.iter().any(|note| note.starts_with(missing)), "{:?}", profile.notes);
    assert!(profile.whole().unwrap_err().cause().contains("7 of 8 ranks"));
}

#[test]
fn ranks_of_a_host_with_another_clock_are_in_the_same_seconds() {
    let mut ranks = halo();
    let before = opened(&job(), halo(), |_| ());
    // The same run where node-b counts ticks half as long: its tables hold twice as many.
    let header = &mut ranks[1].image.header;
    header.boot = text("another boot");
    header.host = text("node-b");
    for ticks in [&mut header.started.ticks, &mut header.latest.ticks, &mut header.initialized, &mut header.finalized] {
        *ticks *= 2;
    }
    let after = opened(&job(), ranks, |_| ());
    assert!((after.ranks[1].seconds - before.ranks[1].seconds).abs() < 1e-9, "{}", after.ranks[1].seconds);
    assert!((after.ranks[1].mpi * 2.0 - before.ranks[1].mpi).abs() < 1e-9, "its calls are half as long now");
    assert_eq!(after.job.hosts.len(), 2);
}

#[test]
fn every_table_is_a_csv_file_with_units() {
    let folder = tempfile::tempdir().unwrap();
    let summary = opened(&job(), halo(), |_| ());
    let mut all = String::new();
    for file in csv_tables::write(&summary, folder.path()).unwrap() {
        all += &format!("{}\n{}\n", file.file_name().unwrap().to_string_lossy(), fs::read_to_string(&file).unwrap());
    }
    insta::assert_snapshot!(all);
}

#[test]
fn json_reads_back_as_what_it_was_written_from() {
    let summary = opened(&job(), halo(), |_| ());
    let json = serde_json::to_string(&summary).unwrap();
    let read: Summary = serde_json::from_str(&json).unwrap();
    // Numbers may lose their last bit.
    let close = |a: &str, b: &str| match (a.parse::<f64>(), b.parse::<f64>()) {
        (Ok(a), Ok(b)) => (a - b).abs() <= 1e-12 * a.abs(),
        _ => a == b,
    };
    let again = serde_json::to_string(&read).unwrap();
    let words = |text: &str| text.split([',', ':', '[', ']', '{', '}']).map(str::to_owned).collect::<Vec<_>>();
    let differing = words(&json).into_iter().zip(words(&again)).find(|(a, b)| !close(a, b));
    assert!(differing.is_none() && words(&json).len() == words(&again).len(), "{differing:?}");
    assert!(json.contains(r#""softirq":{"absent":{"reason":"#), "what is missing says why, and is no 0");
    assert!(matches!(summary.ranks[0].split.wait, Reading::Modelled(_)));
}

#[test]
fn ranks_of_a_killed_recorder_run_as_long_as_their_processes_do() {
    let folder = tempfile::tempdir().unwrap();
    let mut ranks = [0, 1].map(|me| Rank::new(me, 2, 10 * SECOND));
    ranks.iter_mut().for_each(|rank| (rank.image.header.finalized, rank.image.header.ended) = (0, 0));
    let unended = Job { ended: None, exit_code: None, boot: "a-boot".into(), pid: 7, pid_namespace: 9, ..job() };
    write(folder.path(), &unended, &mut ranks);
    let seen_from = |boot: &str| {
        let here = Here { boot: boot.into(), monotonic: &|| 0, pid_namespace: 9, is_alive: &|pid| pid == 1000 };
        Summary::of(&Profile::open(folder.path()).unwrap().seen_from(&here))
    };
    let states = |summary: &Summary| summary.ranks.iter().map(|rank| rank.state).collect::<Vec<_>>();
    let is_told = |summary: &Summary| summary.job.notes.iter().any(|note| note.contains("plimsoll profile was killed"));

    let summary = seen_from("a-boot");
    assert_eq!(states(&summary), [State::Running, State::Killed]);
    assert!(is_told(&summary), "{:?}", summary.job.notes);
    let [running, killed] = &summary.ranks[..] else { panic!("{:?}", summary.ranks) };
    assert!(killed.seconds < 11.0 && running.seconds > 1e6, "{} {}", killed.seconds, running.seconds);

    // Elsewhere their numbers mean others.
    let summary = seen_from("b-boot");
    assert_eq!(states(&summary), [State::Running; 2]);
    assert!(!is_told(&summary));
    let an_hour_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    for file in fs::read_dir(folder.path().join("ranks")).unwrap() {
        fs::File::options().write(true).open(file.unwrap().path()).unwrap().set_modified(an_hour_ago).unwrap();
    }
    assert_eq!(states(&seen_from("b-boot")), [State::Killed; 2], "nobody writes there");
}

#[test]
fn a_folder_that_is_no_profile_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let fault = Profile::open(folder.path()).unwrap_err().to_string();
    assert!(fault.contains("job.json") && fault.contains("plimsoll profile"), "{fault}");
    assert_eq!(STARTED % SECOND, 0);
}

/// A word that is longer than the screen stands alone.
#[test]
fn the_report_keeps_to_the_screen_and_breaks_between_words() {
    for summary in [opened(&job(), halo(), |_| ()), crate::fixture::summary(8), crate::fixture::traced(40)] {
        for width in [40, 80, 200] {
            let text = render(&summary, Screen { width, ..SCREEN });
            for line in text.lines() {
                assert!(line.chars().count() <= width || !line.trim().contains(' '), "{width}: {line}");
            }
        }
    }
}
