use machine::Reading;
use proptest::prelude::*;

use super::*;

/// Paper 000, IV.B.2: text, Tables I and II. Only sums over ranks are given, so that one rank stands for all.
fn from_tables(runtime: f64, mpi_share: f64, calls: f64, posts: f64, sends: f64, posting_of_mpi: f64) -> Evidence {
    let mpi = runtime * mpi_share;
    let rank = RankEvidence {
        rank: 0,
        host: 0,
        core: None,
        runtime,
        mpi,
        calls: calls as u64,
        messages: (calls * sends) as u64,
        bytes: 0,
        posting: mpi * posting_of_mpi,
        transfer: Reading::absent("mpiP sums times"),
        wait: Reading::absent("mpiP sums times"),
        away: Reading::absent("mpiP sums times"),
        protocol: Reading::absent("not part of the study"),
    };
    assert!(posts > sends);
    let host = HostEvidence { name: "a node".into(), cores: None };
    Evidence { ranks: vec![rank], hosts: vec![host], between_hosts: Reading::absent("not told") }
}

fn judgement(verdict: &Verdict, choice: Choice) -> &Judgement {
    verdict.judgements.iter().find(|judgement| judgement.choice == choice).unwrap()
}

/// Claims A15-A17, A19-A24.
#[test]
fn milc_gains_from_offload_and_lulesh_does_not() {
    let milc = Verdict::of(&from_tables(1382.45, 0.15, 4_011_216.0, 0.4942, 0.2471, 0.1399 + 0.0171));
    let judged = judgement(&milc, Choice::Offload);
    assert_eq!(judged.answer, Answer::Gains);
    let (least, most) = judged.gain.unwrap();
    assert!(least <= 0.077 && 0.077 <= most, "A17 at 3.8 GHz, 7.7 %, is not in {least}..{most}");
    assert!(milc.sentence.starts_with("This program gains from offload"), "{}", milc.sentence);

    let lulesh = Verdict::of(&from_tables(81.64, 0.12, 42_904.0, 0.6068, 0.3034, 0.002));
    let judged = judgement(&lulesh, Choice::Offload);
    assert_eq!(judged.answer, Answer::DoesNot, "A19: within 0.6 % either way");
    assert!(judged.gain.unwrap().1 < 0.006);
}

fn rank(rank: u32, core: u32, mpi: f64, wait: f64, protocol: f64) -> RankEvidence {
    RankEvidence {
        rank,
        host: 0,
        core: Some(core),
        runtime: 100.0,
        mpi,
        calls: 1000,
        messages: 500,
        bytes: 500_000,
        posting: 0.05,
        transfer: Reading::Modelled(mpi - wait),
        wait: Reading::Modelled(wait),
        away: Reading::absent("no timeline"),
        protocol: Reading::Measured(protocol),
    }
}

fn one_host(ranks: Vec<RankEvidence>, cores: u32) -> Evidence {
    let hosts = vec![HostEvidence { name: "a".into(), cores: Some(cores) }];
    Evidence { ranks, hosts, between_hosts: Reading::Measured(0.5) }
}

/// Paper 002, 6.1: process 0 computes on the interrupts' core, process 6 waits 40 % of its time: exchange them.
#[test]
fn an_idle_rank_gets_the_core_of_the_protocol() {
    let ranks = vec![
        rank(0, 0, 12.0, 11.0, 15.0),
        rank(4, 1, 27.0, 25.0, 0.1),
        rank(2, 2, 27.0, 25.0, 0.1),
        rank(6, 3, 42.0, 41.0, 0.1),
    ];
    let verdict = Verdict::of(&one_host(ranks, 4));
    let judged = judgement(&verdict, Choice::Mapping);
    assert_eq!(judged.answer, Answer::Gains, "{judged:?}");
    assert_eq!(judged.next.as_deref(), Some("exchange the cores of ranks 0 and 6"));
    // The paper's 11 % (B5) cannot be checked, since it does not tell the load of the core: what is gained is at most that.
    let (least, most) = judged.gain.unwrap();
    assert!(least > 0.1 && most <= 0.15, "{least}..{most}");
}

#[test]
fn a_loaded_rank_that_waits_most_is_left_where_it_is() {
    let ranks = vec![rank(0, 0, 42.0, 41.0, 15.0), rank(1, 1, 12.0, 10.0, 0.1)];
    assert_eq!(judgement(&Verdict::of(&one_host(ranks, 2)), Choice::Mapping).answer, Answer::DoesNot);
}

#[test]
fn without_a_sensor_the_mapping_cannot_be_judged() {
    let mut ranks = vec![rank(0, 0, 12.0, 11.0, 15.0), rank(1, 1, 42.0, 41.0, 0.1)];
    ranks[1].protocol = Reading::not_permitted("softirq time: only root may trace it", "run as root");
    let judged = judgement(&Verdict::of(&one_host(ranks, 2)), Choice::Mapping).clone();
    assert_eq!((judged.answer, judged.gain), (Answer::CannotTell, None));
    assert!(judged.why[0].contains("only root may trace it"));
}

#[test]
fn a_program_that_computes_gains_nothing() {
    let verdict = Verdict::of(&one_host(vec![rank(0, 0, 0.4, 0.1, 0.1), rank(1, 1, 0.4, 0.1, 0.1)], 2));
    assert!(verdict.judgements.iter().all(|judgement| judgement.answer == Answer::DoesNot), "{verdict:?}");
    assert!(verdict.sentence.starts_with("None of them gains"), "{}", verdict.sentence);
}

#[test]
fn messages_within_a_host_leave_a_device_nothing() {
    let mut evidence = one_host(vec![rank(0, 0, 50.0, 1.0, 0.0), rank(1, 1, 50.0, 1.0, 0.0)], 2);
    evidence.between_hosts = Reading::Measured(0.0);
    assert_eq!(judgement(&Verdict::of(&evidence), Choice::Offload).answer, Answer::DoesNot);
}

/// Waits for data that nobody moves are what a device may save, and no more than may.
#[test]
fn partners_that_are_away_make_offload_a_question() {
    let mut evidence = one_host(vec![rank(0, 0, 40.0, 39.9, 0.0), rank(1, 1, 40.0, 39.9, 0.0)], 2);
    assert_eq!(judgement(&Verdict::of(&evidence), Choice::Offload).answer, Answer::DoesNot);
    for rank in &mut evidence.ranks {
        rank.away = Reading::Measured(30.0);
    }
    let verdict = Verdict::of(&evidence);
    let judged = judgement(&verdict, Choice::Offload);
    assert_eq!(judged.answer, Answer::CannotTell, "{judged:?}");
    assert!(judged.gain.unwrap().1 > 0.14 && judged.why.iter().any(|why| why.contains("outside of MPI")), "{judged:?}");
}

#[test]
fn a_free_core_costs_nothing_and_a_busy_one_a_share_of_the_computing() {
    let mut ranks = vec![rank(0, 0, 30.0, 1.0, 0.0), rank(1, 1, 30.0, 1.0, 0.0)];
    for rank in &mut ranks {
        rank.posting = 20.0;
    }
    let free = Verdict::of(&one_host(ranks.clone(), 4));
    assert_eq!(judgement(&free, Choice::DedicatedCore).answer, Answer::Gains);
    let full = Verdict::of(&one_host(ranks, 2));
    assert_eq!(judgement(&full, Choice::DedicatedCore).answer, Answer::DoesNot);
}

#[test]
fn nothing_profiled_is_no_verdict() {
    let verdict = Verdict::of(&one_host(Vec::new(), 2));
    assert!(verdict.sentence.starts_with("Nothing can be said"));
}

proptest! {
    #[test]
    fn bounds_are_in_order_and_answers_follow_them(
        ranks in proptest::collection::vec((0.0..1.0f64, 0.0..1.0f64, 0.0..1.0f64, 0.0..1.0f64, 0u64..1_000_000), 1..20),
        cores in 1u32..32, between in 0.0..1.0f64,
    ) {
        let ranks = ranks.iter().enumerate().map(|(index, &(mpi, wait, posting, protocol, messages))| RankEvidence {
            messages,
            posting: posting * mpi,
            ..rank(index as u32, index as u32 % cores, 100.0 * mpi, 100.0 * mpi * wait, 100.0 * protocol)
        }).collect();
        let mut evidence = one_host(ranks, cores);
        evidence.between_hosts = Reading::Measured(between);
        for judged in Verdict::of(&evidence).judgements {
            prop_assert!(!judged.why.is_empty());
            if let Some((least, most)) = judged.gain {
                prop_assert!(least <= most && most <= 2.0, "{judged:?}");
                prop_assert_eq!(judged.answer, answer((least, most)));
            }
        }
    }
}
