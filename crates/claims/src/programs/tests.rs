use simulate::programs::Stream;
use simulate::{Kind, Operation};

use super::*;
use crate::draws;

/// Figure 10: X on an interrupt core, Y on another, exchanging and computing alike. Y's host has no rank that takes interrupts.
#[derive(Clone, Copy)]
struct Partners;

impl Phases for Partners {
    fn ranks(&self) -> u32 {
        2
    }

    fn phase(&self, rank: u32, number: u32, operations: &mut Vec<Operation>) -> bool {
        let kind = [Kind::Compute, Kind::Send, Kind::Receive][number as usize % 3];
        let (amount, peer) = if kind == Kind::Compute { (4_000_000, 0) } else { (MESSAGE, 1 - rank) };
        let more = number < 3 * 40;
        operations.extend(more.then_some(Operation { kind, amount, peer, tag: 0, number: 0, cpu: 0, nic: 0 }));
        more
    }
}

fn partners(profile: &Profile) -> Vec<Stay> {
    let seats = vec![Seat { host: 0, core: 0 }, Seat { host: 1, core: 2 }];
    stays(Partners, &cluster(seats, profile)).unwrap()
}

/// The solution of B1 with a slow interrupt core, and with less room than a message needs.
fn small_buffers() -> Profile {
    let rows = Calibration::of_papers();
    let profiles = draws::swept(16, |draw| profile(&rows, draw)).unwrap();
    let profile = profiles.into_iter().find(|profile| profile.receive.byte > profile.take.byte).unwrap();
    Profile { library: MESSAGE / 2, socket: 64 * 1024, ..profile }
}

/// The share of the run in which `rank` is blocked in `doing` while the other computes.
fn blocked_while_other_computes(stays: &[Stay], rank: u32, doing: Doing) -> f64 {
    let of = |rank: u32, doing: Doing| {
        stays.iter().filter(move |stay| stay.rank == rank && stay.doing == doing).map(|stay| (stay.from, stay.to))
    };
    let overlap = |(from, to): (u64, u64)| {
        of(1 - rank, Doing::Computing).map(|other| to.min(other.1).saturating_sub(from.max(other.0))).sum::<u64>()
    };
    let end = stays.iter().map(|stay| stay.to).max().unwrap();
    of(rank, doing).map(overlap).sum::<u64>() as f64 / end as f64
}

#[test]
fn partners_run_out_of_phase_with_finite_buffers() {
    let stays = partners(&small_buffers());
    let (x_waits, y_sends) = (
        blocked_while_other_computes(&stays, 0, Doing::Waiting),
        blocked_while_other_computes(&stays, 1, Doing::Sending),
    );
    assert!(x_waits > 0.25, "X waits {x_waits:.3} of the run while Y computes");
    assert!(y_sends > 0.25, "Y is blocked in sends {y_sends:.3} of the run while X computes");
}

#[test]
fn they_do_not_with_infinite_buffers_or_a_thread() {
    let small = small_buffers();
    let without = [
        ("infinite buffers", Profile { library: u64::MAX, socket: u64::MAX, ..small.clone() }),
        ("a thread", Profile { progress: Progress::Thread, ..small }),
    ];
    for (what, profile) in without {
        let stays = partners(&profile);
        let y_sends = blocked_while_other_computes(&stays, 1, Doing::Sending);
        let x_waits = blocked_while_other_computes(&stays, 0, Doing::Waiting);
        assert!(y_sends < 0.08, "{what}: Y is blocked in sends {y_sends:.3} of the run while X computes");
        assert!(x_waits < 0.08, "{what}: X waits {x_waits:.3} of the run while Y computes");
    }
}

/// All eight ranks under Table 2: as long as Y computes, X waits, so that communication takes as long as computing.
#[test]
fn lammps_runs_out_of_phase_with_full_sockets_and_progress_in_calls_alone() {
    let small = small_buffers();
    let figures = |profile: &Profile| lammps_figures(even(300_000_000), profile).unwrap();
    let [ratio, .., sends] = figures(&small);
    assert!(ratio > 3.0 && sends > 40.0, "{ratio} {sends}");
    // Ranks wait for as long, and in `MPI_Wait`.
    let [ratio, .., sends] = figures(&Profile { library: u64::MAX, ..small.clone() });
    assert!(ratio > 3.0 && sends < 10.0, "a library that keeps all: {ratio} {sends}");
    let without = [
        ("infinite sockets", Profile { socket: u64::MAX, ..small.clone() }),
        ("a thread", Profile { progress: Progress::Thread, ..small }),
    ];
    for (what, profile) in without {
        let [ratio, ..] = figures(&profile);
        assert!(ratio < 1.25, "{what}: {ratio}");
    }
}

fn even(computing: u64) -> Lammps {
    Lammps { steps: STEPS, computing, uneven: 0, bytes: MESSAGE }
}

/// No stay ends before it begins, and no rank computes faster than its core.
#[test]
fn stays_cover_the_run() {
    let rows = Calibration::of_papers();
    for profile in draws::swept(4, |draw| profile(&rows, draw)).unwrap() {
        let stays = stays(
            Lammps { steps: STEPS, computing: 5_000_000, uneven: 0, bytes: MESSAGE },
            &cluster(seats(&LAMMPS[0]), &profile),
        )
        .unwrap();
        for rank in 0..RANKS as u32 {
            let own: Vec<&Stay> = stays.iter().filter(|stay| stay.rank == rank).collect();
            assert!(own.windows(2).all(|pair| pair[0].to == pair[1].from && pair[0].from <= pair[0].to));
            let computing = own.iter().filter(|stay| stay.doing == Doing::Computing);
            assert_eq!(computing.clone().count(), STEPS as usize);
            assert!(computing.clone().all(|stay| stay.to - stay.from >= 5_000_000_000));
            assert_eq!(own[0].from, 0);
        }
    }
}

/// A stream from one host to the other gives B1's bandwidth back, on each kind of core: the simulation spends what the closed form does.
#[test]
fn a_stream_has_the_bandwidth_that_its_costs_were_fitted_to() {
    let rows = Calibration::of_papers();
    for profile in draws::swept(8, |draw| profile(&rows, draw)).unwrap() {
        // The receiving end is the bottleneck.
        let hand = Cost { byte: profile.take.byte / 2.0, ..Cost::default() };
        let profile = Profile { hand, acknowledge: Cost::default(), library: u64::MAX, socket: 1 << 20, ..profile };
        for (core, name) in [(0, "interrupt"), (1, "other-socket"), (2, "same-socket")] {
            let messages = 100;
            let seats = [0, 1].map(|host| Seat { host, core }).to_vec();
            let stays = stays(Stream { bytes: MESSAGE, messages }, &cluster(seats, &profile)).unwrap();
            let end = stays.iter().map(|stay| stay.to).max().unwrap() as f64;
            let gigabits = 8e3 * (u64::from(messages) * MESSAGE) as f64 / end;
            let published = rows.range(&format!("tcp/bandwidth/{name}")).unwrap();
            let within = 0.97 * published.low..=1.03 * published.high;
            assert!(within.contains(&gigabits), "{name}: {gigabits:.2} Gb/s of {published:?}, {profile:?}");
        }
    }
}

/// Mappings differ by what delays a rank on the interrupt core; with a device they differ less.
#[test]
fn figures_have_all_of_a_ranks_time_and_a_device_levels_mappings() {
    let all = figures::figures(&Calibration::of_papers(), Sweep { closed: 1, replays: 4 }).unwrap();
    for figures::Application { name, tcp, device, .. } in &all {
        for shares in tcp.mappings.iter().chain(&device.mappings).flat_map(|mapped| &mapped.ranks) {
            assert!((shares.computing + shares.sending + shares.waiting - 100.0).abs() < 1e-6, "{name}: {shares:?}");
        }
        assert!(device.deviation.high < tcp.deviation.high, "{name}: {:?} {:?}", device.deviation, tcp.deviation);
        assert_eq!(tcp.gains.iter().map(|gain| (gain.from, gain.to)).collect::<Vec<_>>(), [("A", "A'"), ("B", "B'")]);
    }
    let computing = |mapping: usize, rank: usize| all[0].tcp.mappings[mapping].ranks[rank].computing;
    assert!(computing(0, 0) > computing(1, 0) && computing(0, 6) < computing(1, 6));
}
