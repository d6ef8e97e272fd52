use std::collections::BTreeMap;

use machine::{CoreId, CpuSet, Nanoseconds};
use proptest::prelude::*;

use super::seating::{Seating, Waiting};
use super::simulated::Job;
use super::*;

/// Paper 002, Table 1: mapping A of GROMACS, whose ranks 6 and 7 wait more than 40 % of the time.
const GROMACS_A: [[u32; 4]; 2] = [[0, 4, 2, 6], [7, 3, 5, 1]];
const GROMACS: [f64; 8] = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.55, 0.55];
/// The share of core 0 that protocol processing takes.
const TAKEN: f64 = 0.4;

fn decider() -> Decider {
    Decider::new(Settings::default())
}

fn moves(actions: &[Action]) -> Vec<&Step> {
    actions.iter().filter_map(|action| if let Action::Move { step, .. } = action { Some(step) } else { None }).collect()
}

fn is_undo(action: &Action) -> bool {
    matches!(action, Action::Undo { .. })
}

#[test]
fn the_papers_job_gets_the_papers_mapping() {
    let mut job = Job::of(GROMACS_A, GROMACS, TAKEN);
    job.noise = 0.01;
    let before = job.iteration();
    let actions = job.run(&mut decider(), 60);
    let moved: Vec<Vec<u32>> =
        moves(&actions).iter().map(|step| step.iter().map(|change| change.rank).collect()).collect();
    assert_eq!(moved, [[0, 6]], "Table 1, A': {actions:?}");
    assert!(actions.iter().any(|action| matches!(action, Action::Confirm { .. })) && !actions.iter().any(is_undo));
    assert!(job.iteration() < 0.7 * before);
}

#[test]
fn what_a_rank_sleeps_it_sleeps_on_any_core() {
    let mut seen = Job::of(GROMACS_A, GROMACS, TAKEN).window();
    let rank = seen.ranks.iter().position(|rank| rank.cores.contains(CoreId(0))).unwrap();
    let busy =
        |seen: &Observation| Seating::of(seen, Waiting::Keeps).busy(rank, &[CoreId(1)].into_iter().collect()).unwrap();
    seen.ranks[rank].wait = Some(0.0);
    assert!(busy(&seen) < 0.9, "core 0 is burdened: {}", busy(&seen));
    seen.ranks[rank].blocked = Some(1.0);
    assert_eq!(busy(&seen), 1.0);
}

#[test]
fn every_host_with_a_slow_rank_gets_its_move() {
    // Ranks 0 and 7 set the pace on both hosts; ranks 6 and 5 have slack.
    let mut work = [1.0; 8];
    (work[6], work[5]) = (0.55, 0.5);
    let mut job = Job::of(GROMACS_A, work, TAKEN);
    let actions = job.run(&mut decider(), 60);
    let mut pairs: Vec<Vec<u32>> =
        moves(&actions).iter().map(|step| step.iter().map(|change| change.rank).collect()).collect();
    pairs.iter_mut().for_each(|pair| pair.sort_unstable());
    pairs.sort();
    assert_eq!(pairs, [[0, 6], [5, 7]], "{actions:?}");
    assert_eq!(job.iteration(), 1.0);
}

#[test]
fn a_free_core_comes_before_a_swap() {
    let mut job = Job::of(GROMACS_A, GROMACS, TAKEN);
    job.ranks[6].host = "two";
    job.ranks[6].core = 4;
    job.cores.push(("two", 4, 0.0));
    let actions = job.run(&mut decider(), 30);
    let moved = moves(&actions);
    assert_eq!(moved.len(), 1, "{actions:?}");
    assert_eq!((moved[0].len(), moved[0][0].rank, moved[0][0].to.to_string()), (1, 0, "3".into()));
}

#[test]
fn partners_come_to_cores_of_equal_capability() {
    // Paper 002, Table 2: ranks 2 and 1 are on core 0, and their partners are not.
    let mut job = Job::of([[2, 0, 4, 6], [1, 3, 5, 7]], [0.5, 0.5, 0.5, 0.5, 1.0, 1.0, 1.0, 1.0], TAKEN);
    for (a, b) in [(0, 1), (2, 3), (4, 5), (6, 7)] {
        (job.ranks[a].partner, job.ranks[b].partner) = (Some(b as u32), Some(a as u32));
    }
    job.noise = 0.005;
    let before = job.iteration();
    job.run(&mut decider(), 120);
    let core = |rank: usize| job.ranks[rank].core;
    let on_core_0: Vec<usize> = (0..8).filter(|rank| core(*rank) == 0).collect();
    assert!([[0, 1], [2, 3]].contains(&[on_core_0[0], on_core_0[1]]), "{on_core_0:?}");
    assert!(job.iteration() < before);
}

#[test]
fn a_bad_move_is_undone_by_the_next_decision_and_never_tried_again() {
    let mut job = Job::of(GROMACS_A, GROMACS, TAKEN);
    job.noise = 0.01;
    // Rank 0 is slower away from core 0, whatever the cores promise: its memory or a device is near core 0.
    job.hidden = |rank, core| if rank == 0 && core != 0 { 2.0 } else { 1.0 };
    let before = job.iteration();
    let decisions = job.run(&mut decider(), 3600);
    let mut tried = proposal::Barred::new();
    for (nth, decision) in decisions.iter().enumerate() {
        if let Action::Move { step, .. } = decision {
            let later = &decisions[nth + 1..];
            assert!(later.iter().take(3).any(is_undo), "{decision:?}, then {later:?}");
            assert!(step.iter().all(|change| tried.insert((change.rank, change.to.clone()))), "{step:?} again");
        }
    }
    assert!(!tried.is_empty());
    assert_eq!(job.iteration(), before);
}

#[test]
#[ignore = "make check"]
fn noise_around_balance_moves_nobody() {
    let mut all = 0;
    for seed in 0..1000 {
        let mut job = Job::of(GROMACS_A, [1.0; 8], 0.02);
        (job.noise, job.seed) = (0.05, seed);
        let actions = job.run(&mut decider(), 120);
        let moved = moves(&actions).len();
        assert!(moved <= 1, "seed {seed}: {actions:?}");
        all += moved;
    }
    assert!(all <= 10, "{all} moves in 1,000 jobs of two minutes");
}

#[test]
fn after_a_good_move_noise_moves_nobody_back() {
    for seed in 0..100 {
        let mut job = Job::of(GROMACS_A, GROMACS, TAKEN);
        (job.noise, job.seed) = (0.03, seed);
        let actions = job.run(&mut decider(), 600);
        assert!((1..=2).contains(&moves(&actions).len()), "seed {seed}: {actions:?}");
        assert_ne!(job.ranks[0].core, 0, "seed {seed}");
    }
}

#[test]
fn what_is_not_known_moves_nobody() {
    type Forget = fn(&mut Observation);
    let cases: [(Forget, &str); 4] = [
        (|seen| seen.ranks.iter_mut().for_each(|rank| rank.wait = None), "no move would help"),
        (|seen| seen.cores.iter_mut().for_each(|core| core.taken = None), "no move would help"),
        (|seen| seen.ranks.iter_mut().for_each(|rank| rank.progress = None), "nothing would tell whether it helped"),
        (|seen| seen.ranks[0].held = Some("its program pinned it".into()), "no move would help"),
    ];
    for (forget, why) in cases {
        let (mut job, mut decider, mut all) = (Job::of(GROMACS_A, GROMACS, TAKEN), decider(), vec![]);
        for _ in 0..30 {
            let mut seen = job.window();
            forget(&mut seen);
            all.extend(decider.observe(&seen));
        }
        let [Action::Keep { reason }] = &all[..] else { panic!("{why}: {all:?}") };
        assert!(reason.starts_with(why), "{reason}");
    }
}

#[test]
fn a_refused_move_is_not_asked_for_again() {
    let (mut job, mut decider) = (Job::of(GROMACS_A, GROMACS, TAKEN), decider());
    let mut asked = 0;
    for _ in 0..60 {
        let seen = job.window();
        for action in decider.observe(&seen) {
            if let Action::Move { step, .. } = action
                && step.iter().any(|change| change.rank == 6)
            {
                asked += 1;
                assert_eq!(decider.refused(&step), []);
            }
        }
    }
    assert_eq!(asked, 1);
}

#[test]
fn an_observation_is_read_as_it_was_written() {
    let mut job = Job::of(GROMACS_A, GROMACS, TAKEN);
    job.noise = 0.05;
    let seen = job.window();
    let line = serde_json::to_string(&seen).unwrap();
    let read: Observation = serde_json::from_str(&line).unwrap();
    assert!(read.is_alike(&seen) && read.time == seen.time);
    let near = |a: Option<f64>, b: Option<f64>| (a.unwrap() - b.unwrap()).abs() < 1e-9;
    let ranks = || read.ranks.iter().zip(&seen.ranks);
    assert!(ranks().all(|(a, b)| near(a.wait, b.wait) && near(a.mpi, b.mpi) && near(a.progress, b.progress)));
    assert!(read.cores.iter().zip(&seen.cores).all(|(a, b)| near(a.taken, b.taken) && a.node == b.node));
}

/// A host of some cores on two NUMA nodes with some ranks, and the levels of its windows.
fn worlds() -> impl Strategy<Value = (Observation, Vec<Vec<f64>>)> {
    let rank = (0_usize..8, 1_u32..256, prop::option::weighted(0.1, Just("held".to_owned())), any::<bool>());
    (prop::collection::vec(rank, 1..7), prop::collection::vec(prop::bool::weighted(0.1), 8)).prop_flat_map(
        |(ranks, occupied)| {
            let rank = |(place, (core, allowed, held, bound)): (usize, (usize, u32, Option<String>, bool))| {
                let allowed: CpuSet = (0..8).filter(|bit| allowed >> bit & 1 == 1).map(CoreId).collect();
                RankSeen {
                    rank: place as u32,
                    host: "here".into(),
                    process: Process { pid: 100 + place as u32, started: 7 },
                    cores: [CoreId(core as u32)].into_iter().collect(),
                    node: bound.then_some(core as u32 / 4),
                    allowed: allowed.iter().chain([CoreId(core as u32)]).collect(),
                    held,
                    partner: None,
                    ..RankSeen::default()
                }
            };
            let cores = occupied.into_iter().enumerate().map(|(core, occupied)| CoreSeen {
                host: "here".into(),
                core: CoreId(core as u32),
                node: Some(core as u32 / 4),
                taken: None,
                stretch: None,
                occupied,
            });
            let seen = Observation {
                time: Nanoseconds(0),
                ranks: ranks.into_iter().enumerate().map(rank).collect(),
                cores: cores.collect(),
            };
            let shares = seen.ranks.len() + seen.cores.len();
            // A level that stays for long makes proposals, windows that change make undone moves.
            let levels = prop::collection::vec(prop::collection::vec(0.0..1.0_f64, shares), 1..6);
            (Just(seen), levels)
        },
    )
}

proptest! {
    #[test]
    fn no_move_breaks_a_rule((mut seen, levels) in worlds(), refuse in any::<u8>()) {
        let mut decider = Decider::new(Settings { cooling: 1, ..Settings::default() });
        let started: BTreeMap<Process, RankSeen> = seen.ranks.iter().map(|rank| (rank.process, rank.clone())).collect();
        let alone = |seen: &Observation, rank: &RankSeen| {
            !seen.ranks.iter().any(|other| other.process != rank.process && other.cores == rank.cores)
        };
        let was_alone: Vec<Process> =
            seen.ranks.iter().filter(|rank| alone(&seen, rank)).map(|rank| rank.process).collect();
        let mut moved_within_hour = 0;
        for window in 0..120_u64 {
            seen.time = Nanoseconds(window * 1_000_000_000);
            let level = &levels[(window / 24) as usize % levels.len()];
            let (of_ranks, of_cores) = level.split_at(seen.ranks.len());
            for (rank, share) in seen.ranks.iter_mut().zip(of_ranks) {
                (rank.wait, rank.mpi, rank.progress) = (Some(*share), Some(*share), Some(1.0 + *share));
                rank.pause = Some(1e-3 * *share);
            }
            for (core, share) in seen.cores.iter_mut().zip(of_cores) {
                (core.taken, core.stretch) = (Some(*share), Some(1e-3 * (1.0 - *share)));
            }
            for action in decider.observe(&seen.clone()) {
                let (Action::Move { step, .. } | Action::Undo { step, .. }) = &action else { continue };
                let is_move = matches!(action, Action::Move { .. });
                moved_within_hour += usize::from(is_move);
                let is_occupied = |core: CoreId| seen.cores.iter().any(|seen| seen.core == core && seen.occupied);
                if let ([change], true) = (&step[..], is_move) {
                    prop_assert!(!change.to.iter().any(is_occupied), "{:?}", action);
                }
                for change in step {
                    let rank = seen.ranks.iter().find(|rank| rank.process == change.process).unwrap();
                    prop_assert_eq!(&rank.cores, &change.from);
                    prop_assert!(rank.held.is_none(), "{:?}", action);
                    prop_assert!(change.to.difference(&rank.allowed).is_empty(), "{:?}", action);
                    prop_assert_eq!(change.to.len(), change.from.len());
                    let first = &started[&rank.process];
                    if let Some(node) = first.node {
                        prop_assert!(change.to.iter().all(|core| core.0 / 4 == node), "{:?}", action);
                    }
                }
                if is_move && refuse & 1 << (window % 8) != 0 {
                    let undone = decider.refused(step);
                    prop_assert!(undone.iter().all(is_undo) || undone.is_empty());
                    for change in undone.iter().flat_map(|action| match action { Action::Undo { step, .. } => step.clone(), _ => vec![] }) {
                        seen.ranks.iter_mut().find(|rank| rank.process == change.process).unwrap().cores = change.to;
                    }
                    continue;
                }
                for change in step {
                    seen.ranks.iter_mut().find(|rank| rank.process == change.process).unwrap().cores = change.to.clone();
                }
                for rank in seen.ranks.iter().filter(|rank| was_alone.contains(&rank.process)) {
                    prop_assert!(alone(&seen, rank), "rank {} is not alone any longer: {:?}", rank.rank, action);
                }
            }
        }
        prop_assert!(moved_within_hour <= Settings::default().moves_an_hour);
    }
}
