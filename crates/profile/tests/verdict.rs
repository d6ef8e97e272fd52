//! What the verdict makes of profiles that are not whole: what is missing is not none. And what it makes of programs whose shape is
//! what costs them.

use std::fs;

use crate::synthetic::{Rank, SECOND, job, write};
use profile::profile::Profile;
use profile::summary::Summary;
use profile::verdict::{Answer, Cause, Choice, Evidence, Hindrance, Judgement};
use record::folder;
use record::layout::{Cpu, text};

/// A rank of a program that hardly communicates, on the host `host`, which sends to `peers`.
fn quiet(me: u32, size: u32, host: &str, peers: &[(u64, u64)]) -> Rank {
    let mut rank = Rank::new(me, size, 10 * SECOND);
    rank.image.header.host = text(host);
    rank.image.header.boot = text(&format!("boot of {host}"));
    rank.calls("Send", 0, (0..100).map(|_| (2_000, 64))).calls("Recv", 0, (0..100).map(|_| (2_500, 64)));
    rank.peers(peers);
    rank
}

fn summary(mut ranks: Vec<Rank>, without: &[(&str, u32)]) -> Summary {
    let profile = tempfile::tempdir().unwrap();
    write(profile.path(), &job(), &mut ranks);
    for (host, rank) in without {
        fs::remove_file(folder::rank_file(profile.path(), host, 1000 + rank)).unwrap();
    }
    Summary::of(&Profile::open(profile.path()).unwrap())
}

fn judged(summary: &Summary, choice: Choice) -> Judgement {
    let verdict = summary.verdict.as_ref().unwrap();
    verdict.judgements.iter().find(|judgement| judgement.choice == choice).unwrap().clone()
}

fn cannot_tell_since(judged: &Judgement, reason: &str) {
    assert_eq!(judged.answer, Answer::CannotTell, "{judged:?}");
    assert!(judged.why.iter().any(|why| why.contains(reason)), "{judged:?}");
}

/// To all others of a world of so many ranks.
fn to_others(me: u32, size: u32) -> Vec<(u64, u64)> {
    (0..size).map(|to| if to == me { (0, 0) } else { (100, 6400) }).collect()
}

#[test]
fn where_the_tables_of_a_host_are_missing_messages_may_have_gone_there() {
    let hosts = ["node-a", "node-a", "node-b", "node-b"];
    let ranks = || (0..4).map(|me| quiet(me, 4, hosts[me as usize], &to_others(me, 4))).collect();
    let whole = summary(ranks(), &[]);
    assert!(whole.job.notes.iter().all(|note| !note.contains("no tables")));
    let part = summary(ranks(), &[("node-b", 2), ("node-b", 3)]);
    assert_eq!(part.job.hosts.len(), 1);
    cannot_tell_since(&judged(&part, Choice::Offload), "no tables of 2 of 4 ranks");
}

#[test]
fn messages_that_are_in_no_matrix_may_have_gone_to_another_host() {
    let ranks = (0..2).map(|me| quiet(me, 2, "node-a", &to_others(me, 2))).collect();
    let known = summary(ranks, &[]);
    assert_eq!(judged(&known, Choice::Offload).answer, Answer::DoesNot, "all of them are in the matrix");
    let mut ranks: Vec<Rank> = (0..2).map(|me| quiet(me, 2, "node-a", &[])).collect();
    for rank in &mut ranks {
        rank.unlisted(500);
    }
    cannot_tell_since(&judged(&summary(ranks, &[]), Choice::Offload), "1000 messages went to");
}

#[test]
fn collectives_between_hosts_are_in_no_matrix() {
    let ranks = (0..2).map(|me| {
        let mut rank = quiet(me, 2, if me == 0 { "node-a" } else { "node-b" }, &[]);
        rank.calls("Allreduce", 2, (0..100).map(|_| (30_000, 8)));
        // To itself only.
        rank.peers(&[0, 1].map(|to| if to == me { (5, 40) } else { (0, 0) }));
        rank
    });
    cannot_tell_since(&judged(&summary(ranks.collect(), &[]), Choice::Offload), "collective calls");
}

#[test]
fn without_samples_no_choice_is_refused() {
    let ranks = (0..2).map(|me| quiet(me, 2, if me == 0 { "node-a" } else { "node-b" }, &to_others(me, 2)));
    let summary = summary(ranks.collect(), &[]);
    for choice in [Choice::Offload, Choice::DedicatedCore, Choice::Mapping] {
        cannot_tell_since(&judged(&summary, choice), "nothing was sampled");
    }
}

/// Two ranks on two hosts that hardly leave MPI: what they wait for there, neither held up outside of it.
#[test]
fn a_wait_is_no_longer_than_the_partners_were_outside_of_mpi() {
    let ranks = |size: u32, others: fn(&mut Rank)| {
        let rank = move |me: u32| {
            let mut rank = Rank::new(me, size, SECOND);
            let receives = (0..100).map(|nth| (if nth < 50 { 5_000 } else { 19_000_000 }, 64));
            match me < 2 {
                true => rank.calls("Recv", 0, receives).calls("Send", 0, (0..100).map(|_| (2_000, 64))),
                false => &mut rank,
            };
            let to_other = |to| if me < 2 && to == 1 - me { (100, 6400) } else { (0, 0) };
            rank.image.header.host = text(if me == 0 { "node-a" } else { "node-b" });
            rank.peers(&(0..size).map(to_other).collect::<Vec<_>>());
            others(&mut rank);
            rank
        };
        summary((0..size).map(rank).collect(), &[])
    };
    let most = |summary: &Summary| Evidence::of(summary).ranks[0].away.most;
    let pair = ranks(2, |_| ());
    assert!(pair.ranks[0].split.wait.value().is_some_and(|wait| *wait > 0.9));
    assert!((0.04..0.06).contains(&most(&pair)), "the other was out of MPI for a twentieth: {}", most(&pair));
    // A third rank that computes all the time is nobody's partner, unless messages may have gone to it.
    assert!(most(&ranks(3, |_| ())) < 0.06);
    assert!(most(&ranks(3, |rank| _ = rank.unlisted(1))) > 0.9);
    assert!(most(&ranks(3, |rank| _ = rank.calls("Ibarrier", 3, [(1_000, 0)]))) > 0.9);
}

/// What hinders `size` ranks of which each makes these calls in a run of a second, those of `function` from one place.
fn hindered(size: u32, function: &str, calls: impl Fn(u32, &mut Rank)) -> (Summary, Vec<Hindrance>) {
    let ranks = (0..size).map(|me| {
        let mut rank = Rank::new(me, size, SECOND);
        calls(me, &mut rank);
        rank.sites("/no/such/app", 0x5555_0000_0000, function, &[(0x40, 50, SECOND / 10)]);
        rank
    });
    let summary = summary(ranks.collect(), &[]);
    let found = summary.verdict.as_ref().unwrap().hindrances.clone();
    (summary, found)
}

/// The worst is this, has this share of the run, and is said with the place of its calls.
fn worst(found: &[Hindrance], cause: Cause, cost: f64, words: &[&str]) {
    let first = &found[0];
    assert_eq!(first.cause, cause, "{found:?}");
    assert!((first.cost - cost).abs() < 0.05, "{first:?}");
    for wanted in words {
        assert!(first.words.contains(wanted), "'{wanted}' in {first:?}");
    }
}

#[test]
fn very_many_tiny_messages_are_named() {
    let exchanging = |bytes: u64| {
        move |_: u32, rank: &mut Rank| {
            rank.calls("Send", 0, (0..50_000).map(|_| (3_000, bytes)));
            rank.calls("Recv", 0, (0..50_000).map(|_| (4_000, bytes)));
        }
    };
    let (summary, found) = hindered(4, "Recv", exchanging(8));
    worst(&found, Cause::TinyMessages, 0.35, &["200,000 messages of less than 1 KiB", "most in MPI_Recv at app+0x40"]);
    assert!(found[0].next.contains("send together"), "{found:?}");
    assert!(summary.verdict.unwrap().sentence.starts_with("200,000 messages"));
    let (_, found) = hindered(4, "Recv", exchanging(16 << 10));
    assert!(found.is_empty(), "{found:?}");
}

/// An item goes through four stages of 5 ms before the next begins.
#[test]
fn a_serialised_pipeline_is_named() {
    let stages = |waited: u64| {
        move |_: u32, rank: &mut Rank| {
            rank.calls("Recv", 0, (0..50).map(|_| (waited, 1000))).calls("Send", 0, (0..50).map(|_| (2_000, 1000)));
        }
    };
    let (_, found) = hindered(4, "Recv", stages(15_000_000));
    worst(&found, Cause::Serialised, 0.75, &["one after the other", "for 25.0 % at most", "MPI_Recv at app+0x40"]);
    assert!(found[0].next.contains("smaller pieces"), "{found:?}");
    // Ranks that compute side by side are not.
    let (_, found) = hindered(4, "Recv", stages(2_000_000));
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn large_messages_beside_which_nothing_is_computed_are_named() {
    let (summary, found) = hindered(2, "Send", |_, rank| {
        rank.calls("Send", 0, (0..100).map(|_| (2_000_000, 1 << 20)));
        rank.calls("Recv", 0, (0..100).map(|_| (1_000_000, 1 << 20)));
    });
    worst(
        &found,
        Cause::NoOverlap,
        0.3,
        &["1024 KiB each in the mean", "nothing is computed meanwhile", "MPI_Send at app"],
    );
    assert!(found[0].next.contains("MPI_Isend"), "{found:?}");
    // Whether their receivers were late every time, tables do not show: no gain is certain.
    assert!(Evidence::of(&summary).ranks.iter().all(|rank| rank.posting == 0.0));
    let (small, _) = hindered(2, "Send", |_, rank| {
        rank.calls("Send", 0, (0..100).map(|_| (2_000, 512)));
        rank.calls("Isend", 0, (0..100).map(|_| (3_000, 1 << 20)));
    });
    let posting = Evidence::of(&small).ranks[0].posting;
    assert!((posting - 500e-6).abs() < 50e-6, "{posting}");
}

#[test]
fn an_imbalance_is_named_with_where_the_others_wait() {
    let (_, found) = hindered(4, "Allreduce", |me, rank| {
        let waited = if me == 3 { 10_000 } else { 4_000_000 };
        rank.calls("Allreduce", 4, (0..100).map(|_| (waited, 8)));
    });
    worst(&found, Cause::Late, 0.3, &["rank 3", "computes for 99.9 %", "most in MPI_Allreduce at app+0x40"]);
}

/// Nothing sampled the cores: what each rank noted of its thread at its end is all that tells computing from sleep.
#[test]
fn a_rank_that_neither_used_nor_lacked_a_core_does_not_compute() {
    // Shares of the run on a core and runnable without one.
    let of = |noted: [(f64, f64); 2]| {
        let ranks = noted.into_iter().enumerate().map(|(me, (used, lacked))| {
            let mut rank = quiet(me as u32, 2, "node-a", &to_others(me as u32, 2));
            let [used, lacked] = [used, lacked].map(|share| (share * 10e9) as u64);
            rank.image.header.threads = 1;
            rank.image.header.cpu = Cpu { thread: used, process: used, runnable: lacked + 1 };
            rank
        });
        summary(ranks.collect(), &[])
    };
    let first = |of: &Summary| of.verdict.as_ref().unwrap().hindrances.first().cloned();
    let asleep = of([(0.98, 0.0), (0.04, 0.0)]);
    let seconds = |rank: usize| {
        let rank = &asleep.ranks[rank];
        [rank.computing(), rank.asleep()].map(f64::round)
    };
    assert_eq!([seconds(0), seconds(1)], [[10.0, 0.0], [0.0, 10.0]]);
    let sleeper = first(&asleep).unwrap();
    assert_eq!((sleeper.cause, sleeper.rank), (Cause::Blocked, Some(1)));
    assert!(sleeper.words.contains("was blocked outside MPI for 96"), "{}", sleeper.words);

    let shared = of([(0.98, 0.0), (0.58, 0.4)]);
    let loser = first(&shared).unwrap();
    assert_eq!((loser.cause, loser.rank), (Cause::RunDelay, Some(1)));
    assert!(shared.ranks[1].asleep() < 0.3, "it lacked its core");

    let damaged = of([(1.0, 1e6), (0.5, 0.4)]);
    assert!(damaged.ranks[0].run_delay.value().is_some_and(|delay| *delay <= damaged.ranks[0].thread_seconds));

    let unknown = of([(0.0, 0.0), (0.0, 0.0)]);
    assert!(unknown.ranks.iter().all(|rank| rank.computing() > 9.0 && rank.asleep() == 0.0));
    assert_eq!(first(&unknown), None);
}
