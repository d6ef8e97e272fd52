use machine::Reading;
use proptest::prelude::*;

use super::*;
use crate::summary::Stall;

/// All work of a message on both sides is at most this many times the sender's: MILC's gain of 7.7 % at full clock is 3.3
/// times its time in Isend and Irecv (claims A17, A20, A24).
const BOTH_SIDES: f64 = 4.0;

/// Paper 000, IV.B.2: text, Tables I and II. Only sums over ranks are given, so that one rank stands for all. The paper argues
/// from the time of posting alone: its networks leave nothing to the kernel, and its waits are taken to be for late ranks.
fn from_tables(runtime: f64, mpi_share: f64, calls: f64, posts: f64, sends: f64, posting_of_mpi: f64) -> Evidence {
    let mpi = runtime * mpi_share;
    let posting = mpi * posting_of_mpi;
    let rank = RankEvidence {
        rank: 0,
        core: None,
        runtime,
        compute: runtime - mpi,
        calls: calls as u64,
        messages: (calls * sends) as u64,
        bytes: 0,
        posting,
        transfer: Bounds::between(posting, BOTH_SIDES * posting, "mpiP sums times"),
        wait: Bounds::between(0.0, mpi, "mpiP sums times"),
        ..rank(0, 0, mpi, 0.0, 0.0)
    };
    assert!(posts > sends);
    let host = HostEvidence { name: "a node".into(), cores: Reading::absent("not told") };
    Evidence { between_hosts: Bounds::exactly(1.0), hosts: vec![host], ..one_host(vec![rank], 1) }
}

fn judge(evidence: &Evidence) -> Verdict {
    Verdict::of(evidence, &Costs::modelled())
}

fn judgement(verdict: &Verdict, choice: Choice) -> &Judgement {
    verdict.judgements.iter().find(|judgement| judgement.choice == choice).unwrap()
}

/// Claims A17, A20 to A24. LULESH's outcome only judges, so that it is held to the rule alone: what it posts bounds its gain.
#[test]
fn milc_gains_from_offload_and_what_posts_less_gains_less() {
    let milc = judge(&from_tables(1382.45, 0.15, 4_011_216.0, 0.4942, 0.2471, 0.1399 + 0.0171));
    let judged = judgement(&milc, Choice::Offload);
    assert_eq!(judged.answer, Answer::Gains);
    let (least, most) = judged.gain.unwrap();
    assert!(least <= 0.077 && 0.077 <= most, "A17 at 3.8 GHz, 7.7 %, is not in {least}..{most}");
    assert!(
        milc.sentence.starts_with("A network device that does the work of messages would save"),
        "{}",
        milc.sentence
    );

    let lulesh = judge(&from_tables(81.64, 0.12, 42_904.0, 0.6068, 0.3034, 0.002));
    let most = judgement(&lulesh, Choice::Offload).gain.unwrap().1;
    assert!(most < least && most <= BOTH_SIDES * 0.12 * 0.002 + 1e-9, "{most}");
}

fn rank(rank: u32, core: u32, mpi: f64, wait: f64, protocol: f64) -> RankEvidence {
    RankEvidence {
        rank,
        host: 0,
        core: Some(core),
        moved: false,
        runtime: 100.0,
        mpi,
        compute: 100.0 - mpi,
        calls: 1000,
        messages: 500,
        bytes: 500_000,
        posting: 0.05,
        transfer: Bounds::exactly(mpi - wait),
        wait: Bounds::exactly(wait),
        away: Bounds::exactly(0.0),
        protocol: Bounds::exactly(protocol),
        stall: None,
        stopped: Reading::Measured(0.0),
        run_delay: Reading::Measured(0.0),
        yielded: Reading::Measured(0.0),
        stolen: Reading::Measured(0.0),
        caused: Reading::absent("no timeline"),
    }
}

fn one_host(ranks: Vec<RankEvidence>, cores: u32) -> Evidence {
    let hosts = vec![HostEvidence { name: "a".into(), cores: Reading::Measured(cores) }];
    let (spent, sizes, sites) = (100.0 * ranks.len() as f64, Vec::new(), Vec::new());
    Evidence { ranks, hosts, missing: 0, between_hosts: Bounds::exactly(0.5), spent, sizes, sites }
}

#[test]
fn a_rank_that_sleeps_is_said_to_and_is_no_candidate_for_a_core() {
    let mut ranks = vec![rank(0, 0, 2.0, 0.0, 0.0), rank(1, 1, 97.0, 96.0, 0.0)];
    (ranks[0].compute, ranks[0].stall) = (1.0, Some((97.0, Stall::Sleep)));
    let verdict = judge(&one_host(ranks, 2));
    let first = &verdict.hindrances[0];
    assert_eq!((first.cause, first.rank), (Cause::Blocked, Some(0)));
    assert!(first.words.contains("was asleep outside MPI for 97.0 % of its time"), "{}", first.words);
    assert!(first.words.contains("the others wait for 96.0 % more") && first.next.contains("no core"), "{first:?}");
}

/// A rank that computes on the interrupts' core changes places with the one that waits most (the rule of paper 002, 6.1).
#[test]
fn an_idle_rank_gets_the_core_of_the_protocol() {
    let ranks = vec![
        rank(0, 0, 12.0, 11.0, 15.0),
        rank(4, 1, 27.0, 25.0, 0.1),
        rank(2, 2, 27.0, 25.0, 0.1),
        rank(6, 3, 42.0, 41.0, 0.1),
    ];
    let verdict = judge(&one_host(ranks, 4));
    let judged = judgement(&verdict, Choice::Mapping);
    assert_eq!(judged.answer, Answer::Gains, "{judged:?}");
    assert_eq!(judged.next.as_deref(), Some("exchange the cores of ranks 0 and 6"));
    // What is gained is at most the load of the core.
    let (least, most) = judged.gain.unwrap();
    assert!(least > 0.1 && most <= 0.15, "{least}..{most}");
}

#[test]
fn a_loaded_rank_that_waits_most_is_left_where_it_is() {
    let ranks = vec![rank(0, 0, 42.0, 41.0, 15.0), rank(1, 1, 12.0, 10.0, 0.1)];
    assert_eq!(judgement(&judge(&one_host(ranks, 2)), Choice::Mapping).answer, Answer::DoesNot);
}

#[test]
fn without_a_sensor_the_mapping_cannot_be_judged() {
    let mut ranks = vec![rank(0, 0, 12.0, 11.0, 15.0), rank(1, 1, 42.0, 41.0, 0.1)];
    let refused = Reading::not_permitted("softirq time: only root may trace it", "run as root");
    ranks.iter_mut().for_each(|rank| rank.protocol = Bounds::of(&refused, 100.0));
    let judged = judgement(&judge(&one_host(ranks, 2)), Choice::Mapping).clone();
    assert_eq!((judged.answer, judged.gain), (Answer::CannotTell, None));
    assert!(judged.why[0].contains("only root may trace it"));
}

#[test]
fn what_ranks_lacked_a_core_for_bounds_what_other_cores_save() {
    let judged = |lacked: Option<f64>, softirqs: f64| {
        let mut ranks = vec![rank(0, 0, 12.0, 11.0, 0.0), rank(1, 1, 42.0, 41.0, 0.0)];
        for rank in &mut ranks {
            rank.protocol = Bounds::between(0.0, softirqs, "softirqs of all kinds were counted");
        }
        ranks[1].run_delay = lacked.map_or(Reading::absent("an old kernel"), Reading::Measured);
        let judged = judgement(&judge(&one_host(ranks, 2)), Choice::Mapping).clone();
        (judged.answer, judged.gain.map(|gain| [gain.0, gain.1].map(|share| (1_000.0 * share).round())))
    };
    assert_eq!(judged(Some(20.0), 3.0), (Answer::CannotTell, None), "13.0 % at most");
    assert_eq!(judged(Some(0.2), 0.5), (Answer::DoesNot, Some([0.0, 6.0])));
    assert_eq!(judged(None, 50.0), (Answer::CannotTell, None));
}

#[test]
fn a_program_that_computes_gains_nothing() {
    let verdict = judge(&one_host(vec![rank(0, 0, 0.4, 0.1, 0.1), rank(1, 1, 0.4, 0.1, 0.1)], 2));
    assert!(verdict.judgements.iter().all(|judgement| judgement.answer == Answer::DoesNot), "{verdict:?}");
    assert!(verdict.sentence.starts_with("No other place would make this program faster: "), "{}", verdict.sentence);
}

#[test]
fn messages_within_a_host_leave_a_device_nothing() {
    let mut evidence = one_host(vec![rank(0, 0, 50.0, 1.0, 0.0), rank(1, 1, 50.0, 1.0, 0.0)], 2);
    evidence.between_hosts = Bounds::exactly(0.0);
    assert_eq!(judgement(&judge(&evidence), Choice::Offload).answer, Answer::DoesNot);
}

/// Softirqs on the core of a rank without messages are for other programs, so that no core of its own takes them.
#[test]
fn a_program_that_sends_nothing_has_nothing_that_another_core_could_do() {
    let mut evidence = one_host(vec![rank(0, 0, 0.0, 0.0, 9.0), rank(1, 1, 0.0, 0.0, 9.0)], 4);
    assert!(judgement(&judge(&evidence), Choice::DedicatedCore).gain.unwrap().1 > 0.08);
    for rank in &mut evidence.ranks {
        (rank.messages, rank.posting) = (0, 0.0);
        rank.protocol = Bounds::between(0.0, 9.0, "softirqs of all kinds");
    }
    assert_eq!(judgement(&judge(&evidence), Choice::DedicatedCore).gain, Some((0.0, 0.0)));
}

/// Waits for data that nobody moves are what a device may save, and no more than may.
#[test]
fn partners_that_are_away_make_offload_a_question() {
    let mut evidence = one_host(vec![rank(0, 0, 40.0, 39.9, 0.0), rank(1, 1, 40.0, 39.9, 0.0)], 2);
    assert_eq!(judgement(&judge(&evidence), Choice::Offload).answer, Answer::DoesNot);
    for rank in &mut evidence.ranks {
        rank.away = Bounds::exactly(30.0);
    }
    let verdict = judge(&evidence);
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
    let free = judge(&one_host(ranks.clone(), 4));
    assert_eq!(judgement(&free, Choice::DedicatedCore).answer, Answer::Gains);
    let full = judge(&one_host(ranks, 2));
    assert_eq!(judgement(&full, Choice::DedicatedCore).answer, Answer::DoesNot);
}

/// Ranks that hardly send: with every sensor there, none of the three gains.
fn quiet() -> Evidence {
    one_host(vec![rank(0, 0, 0.4, 0.1, 0.1), rank(1, 1, 0.4, 0.1, 0.1)], 3)
}

/// That no choice is said not to gain, and that each says why it is not known.
fn leaves_open(evidence: &Evidence, choices: &[Choice], reason: &str) {
    let verdict = judge(evidence);
    for choice in choices {
        let judged = judgement(&verdict, *choice);
        assert_eq!(judged.answer, Answer::CannotTell, "{judged:?}");
        assert!(judged.why.iter().any(|why| why.contains(reason)), "{judged:?}");
    }
    assert!(!verdict.sentence.contains("No other place"), "{}", verdict.sentence);
}

#[test]
fn network_work_that_was_not_measured_is_not_none() {
    let mut evidence = quiet();
    assert!(judge(&evidence).judgements.iter().all(|judgement| judgement.answer == Answer::DoesNot));
    for rank in &mut evidence.ranks {
        rank.protocol = Bounds::of(&Reading::absent("nobody sampled"), rank.runtime);
    }
    leaves_open(&evidence, &[Choice::Offload, Choice::DedicatedCore, Choice::Mapping], "nobody sampled");
    // Nothing bounds it, rather than a figure.
    assert_eq!(judgement(&judge(&evidence), Choice::Offload).gain, None);
    evidence.ranks[0].protocol = Bounds::exactly(0.1);
    leaves_open(&evidence, &[Choice::Offload, Choice::DedicatedCore], "nobody sampled (rank 1)");
}

#[test]
fn waits_that_may_be_for_data_in_flight_leave_it_open_whether_a_device_helps() {
    let mut evidence = one_host(vec![rank(0, 0, 40.0, 39.9, 0.0), rank(1, 1, 40.0, 39.9, 0.0)], 2);
    for rank in &mut evidence.ranks {
        rank.away = Bounds::of(&Reading::absent("only a timeline tells"), 39.9);
    }
    leaves_open(&evidence, &[Choice::Offload], "only a timeline tells");
    let judged = judgement(&judge(&evidence), Choice::Offload).clone();
    assert!(judged.gain.unwrap().1 > 0.19 && judged.next.unwrap().contains("--trace"));
}

#[test]
fn calls_that_could_not_be_divided_may_all_be_transfer() {
    let mut evidence = one_host(vec![rank(0, 0, 40.0, 39.9, 0.0), rank(1, 1, 40.0, 39.9, 0.0)], 2);
    for rank in &mut evidence.ranks {
        rank.transfer = Bounds::between(0.1, 10.0, "too few calls");
    }
    leaves_open(&evidence, &[Choice::Offload], "too few calls");
}

#[test]
fn cores_that_were_not_counted_may_be_free() {
    let ranks = || vec![rank(0, 0, 30.0, 1.0, 0.0), rank(1, 1, 30.0, 1.0, 0.0)];
    let mut evidence = one_host(ranks(), 2);
    evidence.ranks.iter_mut().for_each(|rank| rank.posting = 20.0);
    assert_eq!(judgement(&judge(&evidence), Choice::DedicatedCore).answer, Answer::DoesNot);
    evidence.hosts[0].cores = Reading::absent("nobody counted");
    leaves_open(&evidence, &[Choice::DedicatedCore], "nobody counted");
    // And a core that looks free may be that of a rank without tables.
    let mut evidence = Evidence { missing: 1, ..one_host(ranks(), 3) };
    evidence.ranks.iter_mut().for_each(|rank| rank.posting = 20.0);
    leaves_open(&evidence, &[Choice::DedicatedCore], "no tables of 1 rank");
}

#[test]
fn without_waits_nobody_can_be_told_to_take_the_loaded_core() {
    let mut evidence = one_host(vec![rank(0, 0, 12.0, 11.0, 15.0), rank(1, 1, 42.0, 41.0, 0.1)], 2);
    for rank in &mut evidence.ranks {
        rank.wait = Bounds::between(0.0, rank.mpi, "too few calls");
    }
    leaves_open(&evidence, &[Choice::Mapping], "too few calls");
}

#[test]
fn a_rank_that_was_stopped_comes_before_any_placement() {
    let mut evidence = quiet();
    evidence.ranks[1].stopped = Reading::Measured(74.9);
    let verdict = judge(&evidence);
    let said = "Rank 1 (core 1 of a) was stopped for 74.9 % of its time. Find what stops it before trusting the rest.";
    assert!(verdict.sentence.starts_with(said), "{}", verdict.sentence);
    let [found] = &verdict.hindrances[..] else { panic!("{:?}", verdict.hindrances) };
    assert_eq!((found.cause, found.rank, found.core), (Cause::Stopped, Some(1), Some(1)));
    assert!(found.next.contains("plimsoll profile --trace"), "{}", found.next);
    // With a timeline it also says whom that held up.
    evidence.ranks[0].caused = Reading::Measured(0.5);
    evidence.ranks[1].caused = Reading::Measured(68.9);
    let verdict = judge(&evidence);
    assert!(
        verdict.sentence.contains("for 74.9 % of its time and kept the others waiting for 68.9 s, 68.9 %"),
        "{}",
        verdict.sentence
    );
    assert!(!verdict.hindrances[0].next.contains("--trace"));
}

#[test]
fn ranks_that_take_turns_on_too_few_cores_are_one_finding_of_their_host() {
    let mut evidence = one_host((0..4).map(|at| rank(at, at % 2, 1.0, 0.5, 0.0)).collect(), 2);
    for (place, rank) in evidence.ranks.iter_mut().enumerate() {
        rank.run_delay = Reading::Measured(40.0 + 5.0 * place as f64);
    }
    evidence.ranks[0].stolen = Reading::Measured(30.0);
    let verdict = judge(&evidence);
    let said = "Host a has 2 cores for 4 ranks, which waited for a core for 47.5 % of their time (rank 3 for 55.0 %) (1 more \
                below). Start fewer ranks there";
    assert!(verdict.sentence.starts_with(said), "{}", verdict.sentence);
    let causes: Vec<Cause> = verdict.hindrances.iter().map(|found| found.cause).collect();
    assert_eq!(causes, [Cause::TooFewCores, Cause::Stolen]);
    evidence.ranks[2].run_delay = Reading::absent("no such statistics");
    let verdict = judge(&evidence);
    assert!(verdict.hindrances[0].words.ends_with("how long they had none is not known"), "{:?}", verdict.hindrances);
}

#[test]
fn a_rank_that_shares_its_core_is_named_with_who_is_there() {
    let mut evidence = one_host(vec![rank(0, 1, 0.4, 0.1, 0.0), rank(1, 1, 0.4, 0.1, 0.0)], 2);
    evidence.ranks[0].run_delay = Reading::Measured(48.0);
    let verdict = judge(&evidence);
    let said = "Rank 0 (core 1 of a) lost 48.0 % of its time to other programs on its core (rank 1 is there too). Free that core";
    assert!(verdict.sentence.starts_with(said), "{}", verdict.sentence);
}

#[test]
fn a_rank_that_computes_most_while_the_others_wait_is_named_as_what_they_may_wait_for() {
    let mut evidence = one_host((0..3).map(|at| rank(at, at, 30.0, 29.0, 0.0)).collect(), 4);
    evidence.ranks[2] = rank(2, 2, 1.0, 0.5, 0.0);
    let verdict = judge(&evidence);
    assert!(verdict.sentence.starts_with("Rank 2 (core 2 of a) computes for 99.0 %"), "{}", verdict.sentence);
    assert_eq!((verdict.hindrances[0].cause, verdict.hindrances[0].rank), (Cause::Late, Some(2)));
    assert!(verdict.hindrances[0].next.contains("--trace"));
    // Where they may not wait at all, nobody is accused.
    evidence.ranks[0].wait = Bounds::between(0.0, 29.0, "too few calls");
    evidence.ranks[1].wait = Bounds::between(0.0, 29.0, "too few calls");
    assert!(judge(&evidence).hindrances.is_empty());
}

/// What the others wait for counts, with a timeline and without one.
#[test]
fn what_costs_the_run_most_comes_first() {
    let mut evidence = one_host((0..4).map(|at| rank(at, at, 98.5, 98.0, 0.0)).collect(), 4);
    evidence.ranks[3] = rank(3, 3, 1.0, 0.5, 0.0);
    evidence.ranks[0].run_delay = Reading::Measured(17.0);
    let order = |evidence: &Evidence| {
        let found = judge(evidence).hindrances;
        assert!(found.windows(2).all(|two| two[0].cost >= two[1].cost), "{found:?}");
        assert!(found.iter().all(|one| (0.0..=1.0).contains(&one.cost)), "{found:?}");
        found.iter().map(|found| (found.cause, found.rank)).collect::<Vec<_>>()
    };
    assert_eq!(order(&evidence), [(Cause::Late, Some(3)), (Cause::RunDelay, Some(0))]);
    for (rank, caused) in evidence.ranks.iter_mut().zip([3.0, 0.0, 0.0, 290.0]) {
        rank.caused = Reading::Measured(caused);
    }
    assert_eq!(order(&evidence), [(Cause::Late, Some(3)), (Cause::RunDelay, Some(0))]);
    // A stop that costs less comes later too.
    evidence.ranks[1].stopped = Reading::Measured(6.0);
    assert_eq!(order(&evidence)[2], (Cause::Stopped, Some(1)));
}

#[test]
fn a_rank_that_was_bound_is_not_told_to_be() {
    let mut evidence = one_host(vec![rank(0, 0, 0.4, 0.1, 0.0), rank(1, 1, 0.4, 0.1, 0.0)], 2);
    evidence.ranks[0].run_delay = Reading::Measured(48.0);
    let next = |evidence: &Evidence| judge(evidence).hindrances[0].next.clone();
    assert!(next(&evidence).contains("kept to that core") && !next(&evidence).contains("bind"), "{}", next(&evidence));
    evidence.ranks[0].moved = true;
    assert!(next(&evidence).contains("bind each rank"));
    // Two that are bound to one core are to be bound to two.
    (evidence.ranks[0].moved, evidence.ranks[1].core) = (false, Some(0));
    assert!(next(&evidence).contains("bind each rank"));
}

#[test]
fn a_stall_is_named_as_what_it_is() {
    let mut evidence = one_host((0..3).map(|at| rank(at, at, 96.0, 95.0, 0.0)).collect(), 4);
    evidence.ranks[1] = RankEvidence { compute: 2.0, ..rank(1, 1, 1.0, 0.5, 0.0) };
    evidence.ranks[1].stall = Some((97.0, Stall::Sleep));
    let verdict = judge(&evidence);
    let said = "Rank 1 (core 1 of a) was asleep outside MPI for 97.0 % of its time and the others wait for 94.5 % more than it";
    assert!(verdict.sentence.starts_with(said), "{}", verdict.sentence);
    let [found] = &verdict.hindrances[..] else { panic!("{:?}", verdict.hindrances) };
    assert!(
        found.cause == Cause::Blocked && found.cost > 0.9 && found.next.contains("what it sleeps for"),
        "{found:?}"
    );
    evidence.ranks[1].stall = Some((97.0, Stall::Storage));
    let found = judge(&evidence).hindrances;
    assert!(found[0].words.contains("waiting for storage") && found[0].next.contains("faster storage"), "{found:?}");
}

#[test]
fn nothing_profiled_is_no_verdict() {
    let verdict = judge(&one_host(Vec::new(), 2));
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
        evidence.between_hosts = Bounds::exactly(between);
        for judged in judge(&evidence).judgements {
            prop_assert!(!judged.why.is_empty());
            if let Some((least, most)) = judged.gain {
                prop_assert!(least <= most && most <= 2.0, "{judged:?}");
                prop_assert_eq!(judged.answer, answer((least, most)));
            }
        }
    }
}
