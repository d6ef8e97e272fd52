//! What the verdict makes of profiles that are not whole: what is missing is not none.

use std::fs;

use crate::synthetic::{Rank, SECOND, job, write};
use profile::profile::Profile;
use profile::summary::Summary;
use profile::verdict::{Answer, Choice, Judgement};
use record::folder;
use record::layout::text;

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
