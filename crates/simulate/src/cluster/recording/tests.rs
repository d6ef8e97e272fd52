use proptest::prelude::*;
use whatif::answer::Program;
use whatif::model::{Draw, Prices};
use whatif::replay::{Buffer, Conditions, Residuals, replay};
use whatif::sockets::Softirqs;

use super::super::Seat;
use super::super::costs::{self, Carried};
use super::super::random::Case;
use super::*;

fn gap(graph: &Graph, rank: usize) -> i64 {
    (graph.lanes[rank].first..graph.lanes[rank].end).map(|call| graph.calls.gap.get(call)).sum()
}

fn inside(graph: &Graph, rank: usize) -> i64 {
    (graph.lanes[rank].first..graph.lanes[rank].end).map(|call| graph.calls.inside.get(call)).sum()
}

/// None of the simulated time is lost, and the replay reproduces it.
fn times_come_back(seed: u64) -> Result<(), TestCaseError> {
    let case = Case::of(seed).unwrap();
    let Recording { graph, softirqs, capability, finished } = case.record().unwrap();
    for (rank, end) in finished.ranks.iter().enumerate() {
        prop_assert_eq!(gap(&graph, rank) + inside(&graph, rank), (end / 1000) as i64);
        let computing: u64 = phases(&case.program, rank as u32)
            .flatten()
            .filter(|operation| operation.kind == Sort::Compute)
            .map(|operation| operation.amount)
            .sum();
        // Computing takes at least as long as requested, and its core was busy all the time.
        let seat = case.cluster.seats[rank];
        let busy = finished.cores[seat.host][seat.core].total() / 1000 + graph.len() as u64;
        let computed = gap(&graph, rank);
        prop_assert!((computing as i64..=busy as i64).contains(&computed), "{computed} of {computing}, {busy}");
    }
    prop_assert_eq!(graph.messages.len() as u64, finished.messages);
    let named = |call| call != whatif::graph::NO_CALL;
    prop_assert!(graph.messages.iter().all(|message| named(message.sender) && named(message.receiver)));
    let total = finished.total() as f64 / 1e3;
    let taken: f64 = capability.iter().map(|core| core.taken.value().unwrap() * total).sum();
    let sampled: f64 = softirqs.iter().sum();
    prop_assert!((taken - sampled).abs() < 1e-6 * total, "each core has a rank: {taken} {sampled}");

    let Carried { costs, ways, buffer } = costs::measure(&case.cluster).unwrap();
    let prices = Prices::of(&graph, &costs, &ways, &Draw::default()).unwrap();
    for buffer in [Buffer::Unlimited, buffer] {
        let conditions = Conditions { buffer, ..Conditions::of(&graph, prices.clone(), ways.progress()) };
        let mut residuals = Vec::new();
        let learned = replay(&graph, &conditions, Residuals::Learn(&mut residuals)).unwrap();
        prop_assert_eq!(learned.backwards, (0, 0));
        let own = replay(&graph, &conditions, Residuals::Own(&residuals)).unwrap();
        prop_assert_eq!(own.total / 1000, (finished.total() / 1000) as i64);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn a_recording_has_the_times_of_the_simulation(seed in any::<u64>()) {
        times_come_back(seed)?;
    }
}

/// A message that was sent by a call whose earlier sends cost less than in a stream arrives before the model sends it.
#[test]
fn messages_that_leave_sooner_than_the_model_has_it_contradict_no_clock() {
    for seed in [9_914_466_537_364_755_538, 5_199_228_384_316_826_010] {
        times_come_back(seed).unwrap();
    }
}

/// Rank 1 computes on the interrupt core while a message arrives for rank 2 of its host: its gap has the interrupt.
#[test]
fn interrupts_are_in_the_gaps_of_the_rank_on_their_core() {
    let mut case = (0..).map_while(|seed| Case::of(seed).ok()).find(|case| case.cluster.seats.len() == 6).unwrap();
    let of = |kind, amount, peer| Operation { kind, amount, peer, tag: 0, number: 0, cpu: 0, nic: 0 };
    let idle = || vec![vec![of(Sort::Compute, 1, 0)]];
    case.program.phases = vec![
        vec![vec![of(Sort::Send, 16_384, 2)]],
        vec![vec![of(Sort::Compute, 1_000_000, 0)]],
        vec![vec![of(Sort::Receive, 16_384, 0)]],
        idle(),
        idle(),
        idle(),
    ];
    (case.program.steps, case.cluster.profile.place) = (1, Place::Softirq);
    case.cluster.seats =
        [(0, 0), (1, 0), (1, 2), (0, 1), (0, 2), (1, 1)].map(|(host, core)| Seat { host, core }).into();
    let recording = case.record().unwrap();
    let interrupt = 16_384.0 * case.cluster.profile.receive.byte;
    assert!((recording.softirqs[1] - interrupt).abs() < 1.0 && recording.softirqs[2] == 0.0);
    assert!((gap(&recording.graph, 1) as f64 - 1e6 - interrupt).abs() <= 2.0);
    let taken = |core: usize| *recording.capability[core].taken.value().unwrap();
    assert!(taken(3) > 0.0 && taken(4) == 0.0);
}

#[test]
fn what_has_no_recording_is_refused() {
    let mut case = Case::of(1).unwrap();
    let of = |kind, peer| Operation { kind, amount: 8, peer, tag: 0, number: 0, cpu: 0, nic: 0 };
    let anywhere = super::super::super::ANY;
    let ranks = case.program.phases.len();
    case.program.phases = vec![vec![vec![of(Sort::Compute, 0)]]; ranks];
    case.program.phases[0] = vec![vec![of(Sort::Send, 1)]];
    case.program.phases[1] = vec![vec![of(Sort::Receive, anywhere)]];
    assert!(case.record().unwrap_err().to_string().starts_with("rank 1: it receives from anywhere"));
    case.program.phases[1] = vec![vec![of(Sort::Receive, 0), of(Sort::Compute, 0)]];
    assert!(case.record().unwrap_err().to_string().starts_with("rank 1: it computes beside its messages"));
    case.cluster.profile.progress = Progress::Between;
    assert!(case.record().unwrap_err().to_string().contains("over when it begins"));
}

/// The page of `plimsoll whatif` of such a recording: all questions have answers.
#[test]
fn a_recording_is_a_program_to_ask() {
    let case = Case::of(4).unwrap();
    let recording = case.record().unwrap();
    let Carried { costs, ways, buffer } = costs::measure(&case.cluster).unwrap();
    let program = Program::over(&recording.graph, &costs, ways, buffer).unwrap();
    let check = program.check().unwrap();
    assert!((check.identity - 1.0).abs() < 1e-9 && check.backwards == (0, 0), "{}", check.identity);
}

/// Where pieces, softirqs and far cores are what makes calls long, a fit explains most recordings nearly wholly.
#[test]
fn calls_end_by_a_replay_beside_their_softirqs_when_they_ended() {
    let mut misfits = Vec::new();
    for seed in 0..16 {
        let case = Case::of(seed).unwrap();
        if case.cluster.profile.place != Place::Softirq {
            continue;
        }
        let recording = case.record().unwrap();
        let Carried { costs, ways, buffer } = costs::measure(&case.cluster).unwrap();
        let host = |seat: &Seat| seat.host;
        let mut softirqs = Softirqs { hosts: vec![0.0; 2], ..Softirqs::default() };
        for (seat, ns) in case.cluster.seats.iter().zip(&recording.softirqs) {
            softirqs.hosts[host(seat)] += ns;
        }
        let share = |(seat, ns): (&Seat, &f64)| ns / softirqs.hosts[host(seat)].max(1.0);
        softirqs.shares = case.cluster.seats.iter().zip(&recording.softirqs).map(share).collect();
        softirqs.far = case.cluster.seats.iter().map(|seat| seat.core % 2 == 1).collect();
        let program = Program::beside(&recording.graph, &costs, ways, buffer, Some(softirqs)).unwrap();
        misfits.push(program.misfit);
    }
    misfits.sort_by(f64::total_cmp);
    assert!(misfits[misfits.len() / 2] < 0.005, "{misfits:?}");
    assert!(misfits.iter().all(|misfit| *misfit < 0.2), "{misfits:?}");
}
