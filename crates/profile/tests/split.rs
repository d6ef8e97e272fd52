//! The split of MPI time against programs whose waits are known.

use crate::synthetic::{Rank, SECOND, job, write};
use profile::profile::Profile;
use profile::summary::{Split, Summary};
use proptest::prelude::*;

fn summary(mut ranks: Vec<Rank>) -> Summary {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &job(), &mut ranks);
    Summary::of(&Profile::open(folder.path()).unwrap())
}

fn wait(split: &Split) -> f64 {
    *split.wait.value().unwrap()
}

fn transfer(split: &Split) -> f64 {
    *split.transfer.value().unwrap()
}

/// Every collective takes `work` from the last arrival on; `late(rank, step)` is when a rank arrives. Returns the ranks and
/// the seconds that each truly waited.
fn program(size: u32, steps: u64, work: u64, late: impl Fn(u32, u64) -> u64) -> (Vec<Rank>, Vec<f64>) {
    let mut ranks = Vec::new();
    let mut truth = Vec::new();
    for rank in 0..size {
        let waits: Vec<u64> =
            (0..steps).map(|step| (0..size).map(|r| late(r, step)).max().unwrap() - late(rank, step)).collect();
        truth.push(waits.iter().sum::<u64>() as f64 / 1e9);
        let mut tables = Rank::new(rank, size, 10 * SECOND);
        // Work differs by a tenth from call to call.
        let calls = waits.iter().zip(0..).map(|(wait, step): (_, u64)| (wait + work + step % 7 * work / 70, 8));
        tables.calls("Allreduce", size, calls);
        ranks.push(tables);
    }
    (ranks, truth)
}

/// The model may be wrong by the width of a class of durations, of work and of wait.
fn near(modelled: f64, truth: f64, work: f64) -> bool {
    (modelled - truth).abs() <= 0.15 * truth + 0.15 * work
}

#[test]
fn one_rank_that_is_always_late_waits_for_nobody_and_all_others_for_it() {
    for size in [2, 8, 64] {
        let (ranks, truth) = program(size, 500, 5_000, |rank, _| if rank == size - 1 { 300_000 } else { 0 });
        let summary = summary(ranks);
        for (rank, truth) in summary.ranks.iter().zip(truth) {
            let (wait, transfer) = (wait(&rank.split), transfer(&rank.split));
            assert!(near(wait, truth, 500.0 * 5e-6), "{size} ranks, rank {}: {wait} for {truth}", rank.rank);
            assert!(near(transfer, 500.0 * 5.2e-6, 500.0 * 5e-6), "{size} ranks, rank {}: {transfer}", rank.rank);
        }
    }
}

#[test]
fn imbalance_that_moves_from_rank_to_rank_is_wait_of_the_others() {
    let (ranks, truth) = program(6, 900, 20_000, |rank, step| (u64::from(rank) * 37 + step * 13) % 101 * 10_000);
    let summary = summary(ranks);
    for (rank, truth) in summary.ranks.iter().zip(truth) {
        assert!(near(wait(&rank.split), truth, 900.0 * 2e-5), "{} for {truth}", wait(&rank.split));
    }
}

#[test]
fn balanced_ranks_hardly_wait() {
    let summary = summary(program(4, 400, 30_000, |_, _| 0).0);
    assert!(wait(&summary.totals.split) < 0.01 * summary.totals.mpi, "{:?}", summary.totals.split);
}

#[test]
fn contention_is_wait_of_the_calls_that_it_slows() {
    // A tenth of the messages find the network busy with others for ten times their own time.
    let ranks = (0..4).map(|rank| {
        let mut tables = Rank::new(rank, 4, 10 * SECOND);
        tables.calls("Sendrecv", 0, (0..1000).map(|i| (if i % 10 == 0 { 440_000 } else { 40_000 }, 32_768)));
        tables
    });
    let summary = summary(ranks.collect());
    let truth = 4.0 * 100.0 * 400e-6;
    assert!(near(wait(&summary.totals.split), truth, 0.0), "{:?} for {truth}", summary.totals.split);
}

#[test]
fn what_can_be_told_by_its_kind_needs_no_model() {
    let mut rank = Rank::new(0, 2, SECOND);
    rank.calls("Isend", 0, [(900, 8), (50_000, 8)]).calls("Iallreduce", 2, [(700, 8)]).calls("Put", 0, [(300, 8)]);
    rank.calls("Iprobe", 0, [(400, 0)]).calls("Test", 0, [(250, 0)]).calls("Barrier", 1, [(100, 0)]);
    let summary = summary(vec![rank, Rank::new(1, 2, SECOND)]);
    let split = &summary.ranks[0].split;
    assert!((transfer(split) - 52_000e-9).abs() < 1e-12 && (wait(split) - 650e-9).abs() < 1e-12, "{split:?}");
    assert_eq!(split.undivided, 0.0);
}

#[test]
fn few_calls_are_not_divided_and_say_so() {
    let summary = summary(program(8, 7, 5_000, |rank, _| u64::from(rank) * 1000).0);
    let allreduce = &summary.functions[0];
    assert_eq!(allreduce.name, "MPI_Allreduce");
    let why = format!("{:?}", allreduce.sizes[0].unhindered);
    assert!(why.contains("56 calls at 8 ranks; it takes 64 to tell"), "{why}");
    assert!(allreduce.split.wait.value().is_none() && allreduce.split.undivided == allreduce.seconds);
    assert!(summary.ranks[0].split.wait.value().is_none());
}

#[test]
fn a_message_that_takes_longer_since_it_is_larger_does_not_wait() {
    // Sizes of one class: 64 to 127 KiB.
    let ranks = (0..2).map(|rank| {
        let mut tables = Rank::new(rank, 2, 10 * SECOND);
        tables.calls("Recv", 0, (0..200).map(|i| (1000 * (32 + i % 32), 1024 * (64 + 2 * (i % 32)))));
        tables
    });
    let summary = summary(ranks.collect());
    assert!(wait(&summary.totals.split) < 0.1 * summary.totals.mpi, "{:?}", summary.totals.split);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn the_parts_are_never_negative_and_sum_to_the_whole(
        calls in prop::collection::vec((0u32..4, 0usize..6, prop::sample::select(vec![0u32, 1, 4]), 1u64..1 << 40, 0u64..1 << 30), 0..200),
    ) {
        let functions = ["Send", "Recv", "Isend", "Wait", "Allreduce", "Test"];
        let ranks = (0..4).map(|rank| {
            let mut tables = Rank::new(rank, 4, 5000 * SECOND);
            for (of, function, group, ns, bytes) in &calls {
                if *of == rank {
                    tables.calls(functions[*function], *group, [(*ns, *bytes)]);
                }
            }
            tables
        });
        let summary = summary(ranks.collect());
        let mut whole = 0.0;
        for rank in &summary.ranks {
            let parts = [rank.split.transfer.value(), rank.split.wait.value()].map(|part| part.copied().unwrap_or(0.0));
            prop_assert!(parts.iter().all(|part| *part >= 0.0) && rank.split.undivided >= 0.0 && rank.compute >= 0.0);
            let sum = parts.iter().sum::<f64>() + rank.split.undivided;
            prop_assert!((sum - rank.mpi).abs() <= 1e-9 * rank.mpi.max(1.0), "{sum} {}", rank.mpi);
            prop_assert!((rank.mpi + rank.compute - rank.thread_seconds).abs() <= 1e-9 * rank.thread_seconds);
            whole += rank.mpi;
        }
        prop_assert!((whole - summary.totals.mpi).abs() <= 1e-9 * whole.max(1.0));
        let by_function: f64 = summary.functions.iter().filter(|f| f.counted).map(|f| f.seconds).sum();
        prop_assert!((whole - by_function).abs() <= 1e-9 * whole.max(1.0), "{whole} {by_function}");
    }
}
