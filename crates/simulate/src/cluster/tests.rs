//! Closed forms to the picosecond, conservation, and comparisons with LogGOPS.

use std::collections::BTreeMap;

use proptest::prelude::*;
use whatif::goal;

use super::super::loggops::{self, Parameters};
use super::super::programs::{Bidirectional, Gather, Halo, Lazy, Phases, PingPong, Pipeline, Stream};
use super::super::running::Running;
use super::super::tests::random;
use super::profile::{Cost, Progress, Waiting};
use super::*;

/// A cost in ns a message, and a byte.
fn cost(message: f64, byte: f64) -> Cost {
    Cost { message, byte, fixed: 0.0 }
}

fn named(name: &str) -> Profile {
    Profile::named(name, &BTreeMap::new()).unwrap()
}

/// A profile without costs.
fn plain(place: Place) -> Profile {
    let free = Cost::default();
    Profile {
        progress: Progress::Calls,
        place,
        waiting: Waiting::Sleep,
        unit: u64::MAX,
        eager: u64::MAX,
        library: u64::MAX,
        socket: u64::MAX,
        copy: free,
        hand: free,
        take: free,
        send: cost(300.0, 0.5),
        receive: cost(400.0, 0.25),
        acknowledge: free,
        inside: cost(50.0, 0.1),
        far: [1.0; 2],
        inside_latency: 0.0,
        by_peer: false,
        ..named("psm")
    }
}

/// Hosts of four cores on two sockets, the last of which is an engine where there is one; ranks fill the others in turn.
fn cluster(ranks: u32, each: u32, profile: Profile) -> Cluster {
    let core = |id: u32| Core { id: CoreId(id), package: id % 2, dilation: 1.0 };
    let engines = if profile.place == Place::Engine { vec![3] } else { Vec::new() };
    let host = |at: u32| Host {
        name: format!("host {at}"),
        cores: (0..4).map(core).collect(),
        interrupts: 0,
        engines: engines.clone(),
    };
    let cores = 4 - engines.len() as u32;
    let seat = |rank: u32| Seat { host: (rank / each) as usize, core: (rank % each % cores) as usize };
    Cluster {
        hosts: (0..ranks.div_ceil(each)).map(host).collect(),
        link: Link { latency: 1_000_000, byte: 0.8 },
        profile,
        seats: (0..ranks).map(seat).collect(),
        slice: 3_000_000_000,
        clocked: 1.0,
    }
}

fn run(program: impl Phases, cluster: &Cluster) -> Finished {
    simulate(&mut Lazy::of(program), cluster).unwrap()
}

#[test]
fn ping_pong_takes_its_closed_form() {
    for place in [Place::Rank, Place::Softirq, Place::Engine, Place::Device] {
        for bytes in [1u64, 100, 65_536] {
            let trip = 300_000 + 500 * bytes + 800 * bytes + 1_000_000 + 400_000 + 250 * bytes;
            let finished = run(PingPong { bytes, rounds: 10 }, &cluster(2, 1, plain(place)));
            assert_eq!(finished.total(), 20 * trip, "{place:?}, {bytes} B");
            assert_eq!((finished.messages, finished.sent, finished.received), (20, 20 * bytes, 20 * bytes));
        }
    }
}

#[test]
fn a_rendezvous_takes_three_ways() {
    let bytes = 1000u64;
    let rank = Profile { eager: 999, ..plain(Place::Rank) };
    let control = 300_000 + 1_000_000 + 400_000;
    let data = control + (500 + 800 + 250) * bytes;
    assert_eq!(run(PingPong { bytes, rounds: 3 }, &cluster(2, 1, rank)).total(), 6 * (2 * control + data));
    // A device needs no rank: a receiver that computes does not delay it.
    let device = Profile { eager: 999, progress: Progress::Device, ..plain(Place::Device) };
    assert_eq!(run(PingPong { bytes, rounds: 3 }, &cluster(2, 1, device)).total(), 6 * (2 * control + data));
}

#[test]
fn pieces_of_a_message_overlap() {
    // The slowest stage handles all 16 pieces; each other stage adds the time of one.
    let (pieces, unit) = (16u64, 1000u64);
    let profile = Profile { unit, send: cost(0.0, 0.5), receive: cost(0.0, 2.0), ..plain(Place::Softirq) };
    let finished = run(PingPong { bytes: pieces * unit, rounds: 1 }, &cluster(2, 1, profile));
    assert_eq!(finished.total(), 2 * ((500 + 800) * unit + 1_000_000 + pieces * 2000 * unit));
}

#[test]
fn a_pipeline_goes_at_the_pace_of_its_slowest() {
    let (bytes, messages) = (1000u64, 50u64);
    for place in [Place::Rank, Place::Softirq, Place::Engine, Place::Device] {
        let finished = run(Pipeline { ranks: 2, bytes, messages: messages as u32 }, &cluster(2, 1, plain(place)));
        let (send, wire, receive) = (300_000 + 500 * bytes, 800 * bytes, 400_000 + 250 * bytes);
        let slowest = send.max(wire).max(receive);
        assert_eq!(finished.total(), send + wire + 1_000_000 + receive + (messages - 1) * slowest, "{place:?}");
    }
}

#[test]
fn a_loaded_server_is_never_idle() {
    let (ranks, bytes) = (64, 500u64);
    for place in [Place::Softirq, Place::Engine, Place::Device] {
        // All but rank 0 send at once; the server of rank 0's host receives all messages.
        let free = Profile { send: Cost::default(), inside: Cost::default(), ..plain(place) };
        let finished = run(Gather { ranks, bytes }, &cluster(ranks, 1, free));
        let each = 400_000 + 250 * bytes;
        assert_eq!(finished.total(), 800 * bytes + 1_000_000 + u64::from(ranks - 1) * each, "{place:?}");
    }
}

#[test]
fn ranks_of_a_host_share_its_link() {
    let free = Cost::default();
    let free = Profile { send: free, receive: free, inside: free, ..plain(Place::Rank) };
    let link = |ranks: u32| {
        let mut cluster = cluster(2 * ranks, ranks, free.clone());
        cluster.link.byte = 8.0;
        // Each rank exchanges with a peer on the other host.
        let halo = Halo { extents: vec![ranks, 2], steps: 1, bytes: 1000, ..Halo::default() };
        run(halo, &cluster).total()
    };
    // Two messages of each rank cross: 8 us each.
    assert_eq!((link(1), link(4)), (2 * 8_000_000 + 1_000_000, 8 * 8_000_000 + 1_000_000));
}

#[test]
fn ranks_on_a_core_take_turns() {
    let halo = |ranks| Halo { extents: vec![ranks], steps: 1, computing: 10_000_000, ..Halo::default() };
    let alone = Cluster {
        seats: vec![Seat { host: 0, core: 0 }; 3],
        ..cluster(3, 3, Profile { inside: Cost::default(), ..plain(Place::Rank) })
    };
    let finished = run(halo(3), &alone);
    // 10 ms each, in slices of 3 ms; then borders within the host.
    assert!(finished.total() >= 30_000_000_000, "{finished:?}");
    let ends: Vec<u64> = finished.splits.iter().map(|split| split.computing).collect();
    assert_eq!(ends, [28_000_000_000, 29_000_000_000, 30_000_000_000]);
    assert_eq!(finished.cores[0][0].computing, 30_000_000_000);
}

#[test]
fn interrupts_stop_the_rank_on_their_core() {
    // Rank 1 computes 10 us on the interrupt core while a message arrives for rank 2 of its host.
    let text = "num_ranks 3\nrank 0 {\nsend 1000b to 2\n}\nrank 1 {\ncalc 10000\n}\nrank 2 {\nrecv 1000b from 0\n}\n";
    let schedule = whatif::goal::read(text.as_bytes()).unwrap();
    let mut cluster = cluster(3, 3, plain(Place::Softirq));
    let on = |core| {
        let mut cluster = cluster.clone();
        cluster.hosts.push(cluster.hosts[0].clone());
        cluster.seats = vec![Seat { host: 0, core: 0 }, Seat { host: 1, core }, Seat { host: 1, core: 2 }];
        simulate(&mut crate::running::Running::of(&schedule), &cluster).unwrap().ranks[1]
    };
    assert_eq!((on(0), on(1)), (10_000_000 + 400_000 + 250_000, 10_000_000));
    cluster.seats[1].core = 9;
    assert_eq!(cluster.check(3).unwrap_err().subject(), "rank 1");
}

#[test]
fn bytes_beyond_64_bits_are_counted_as_the_most_there_are() {
    let each = u64::MAX - 1;
    let sends = format!("send {each}b to 1\n").repeat(2);
    let text = format!("num_ranks 2\nrank 0 {{\n{sends}}}\nrank 1 {{\nrecv 1b from 0\nrecv 1b from 0\n}}\n");
    let schedule = goal::read(text.as_bytes()).unwrap();
    for bound in [u64::MAX, u64::MAX - 2] {
        let free = Cost::default();
        let profile = Profile { send: free, receive: free, library: bound, socket: bound, ..plain(Place::Rank) };
        let mut cluster = cluster(2, 1, profile);
        cluster.link.byte = 0.0;
        let finished = simulate(&mut Running::of(&schedule), &cluster).unwrap();
        assert_eq!((finished.sent, finished.received), (u64::MAX, u64::MAX));
    }
}

#[test]
fn clocks_dilate_work_and_what_follows_them_of_computing() {
    let halo = Halo { extents: vec![1], steps: 1, computing: 1000, ..Halo::default() };
    for (clocked, time) in [(0.0, 1_000_000), (0.5, 1_500_000), (1.0, 2_000_000)] {
        let mut cluster = Cluster { clocked, ..cluster(1, 1, plain(Place::Rank)) };
        cluster.hosts[0].cores[0].dilation = 2.0;
        assert_eq!(run(halo.clone(), &cluster).total(), time);
    }
    let mut slow = cluster(2, 1, plain(Place::Rank));
    slow.hosts.iter_mut().for_each(|host| host.cores[0].dilation = 2.0);
    assert_eq!(run(PingPong { bytes: 1, rounds: 1 }, &slow).total(), 2 * (2 * 700_750 + 800 + 1_000_000));
}

#[test]
fn a_rank_on_the_other_socket_pays_more() {
    let profile = Profile { take: cost(100.0, 0.0), far: [1.0, 3.0], ..plain(Place::Softirq) };
    let on = |core| {
        let mut cluster = cluster(2, 1, profile.clone());
        cluster.seats.iter_mut().for_each(|seat| seat.core = core);
        run(PingPong { bytes: 1, rounds: 1 }, &cluster).total()
    };
    assert_eq!(on(1) - on(2), 2 * 200_000);
}

fn loggops_like(p: &Parameters, ranks: u32) -> Cluster {
    let byte = |byte: u64| byte as f64;
    let end = |of: u64| cost(byte(p.overhead) - byte(of), byte(of));
    let profile = Profile {
        hand: end(p.overhead_per_byte),
        take: end(p.overhead_per_byte.max(p.gap_per_byte)),
        eager: p.eager,
        ..named("loggops")
    };
    Cluster { link: Link { latency: 1000 * p.latency, byte: 0.0 }, ..cluster(ranks, 1, profile) }
}

/// Where interfaces are never the bottleneck, and messages are eager.
#[test]
fn the_simplest_profile_has_the_times_of_loggops() {
    fn same(program: impl Phases + Clone, text: &str) {
        let p: Parameters = text.parse().unwrap();
        let theirs = loggops::simulate(&mut Lazy::of(program.clone()), &p).unwrap();
        let ours = run(program.clone(), &loggops_like(&p, program.ranks()));
        let expected: Vec<u64> = theirs.ranks.iter().map(|ns| 1000 * ns).collect();
        assert_eq!(ours.ranks, expected, "{text}");
    }
    for text in ["L=1700,o=300,g=100,G=1,O=1", "L=900,o=40,g=10,G=0,O=0", "L=2500,o=1500,g=1000,G=2,O=3"] {
        same(PingPong { bytes: 4096, rounds: 7 }, text);
        for ranks in [2, 3, 4, 9] {
            same(Pipeline { ranks, bytes: 100, messages: 30 }, text);
        }
        same(Gather { ranks: 20, bytes: 64 }, text);
        same(Stream { bytes: 8, messages: 40 }, text);
        for (ranks, dimensions) in [(2, 1), (6, 1), (12, 2), (16, 4), (54, 4)] {
            let extents = Halo::extents(ranks, dimensions);
            same(Halo { extents, steps: 3, bytes: 999, computing: 20_000, uneven: 5_000, seed: 7, sum: true }, text);
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let halo =
        |seed| Halo { extents: vec![2, 4], steps: 5, bytes: 40_000, computing: 5000, uneven: 3000, seed, sum: true };
    for name in ["mpich-tcp", "verbs", "psm", "loggops"] {
        let cluster = cluster(8, 4, named(name));
        let once = run(halo(1), &cluster);
        assert_eq!(once, run(halo(1), &cluster), "{name}");
        assert_ne!(once.ranks, run(halo(2), &cluster).ranks, "{name}");
    }
}

fn busy(finished: &Finished) -> Time {
    finished.cores.iter().flatten().map(Busy::total).sum::<Time>() + finished.devices.iter().sum::<Time>()
}

fn profiles() -> impl Strategy<Value = Profile> {
    let of_name = prop::sample::select(vec!["mpich-tcp", "verbs", "psm", "loggops"]).prop_map(named);
    let of_place =
        prop::sample::select(vec![Place::Rank, Place::Softirq, Place::Engine, Place::Device]).prop_map(plain);
    let progress = prop::sample::select(vec![Progress::Calls, Progress::Thread]);
    let any = (prop_oneof![of_name, of_place], progress, 1u64..200_000, 1u64..100_000, any::<bool>());
    any.prop_map(|(profile, progress, eager, buffers, spins)| Profile {
        progress: if profile.progress == Progress::Calls { progress } else { profile.progress },
        eager,
        library: buffers,
        socket: buffers * 2,
        waiting: if spins { Waiting::Spin } else { Waiting::Sleep },
        ..profile
    })
}

proptest! {
    /// Operations that are due on several ranks at the same time included, unless a message takes no time at all.
    #[test]
    fn any_schedule_has_the_times_of_loggops(random in random(1, false), which in 0usize..3) {
        let texts = ["L=1200,o=250,g=200,G=1,O=2,S=1000000", "L=0,o=100,g=0,G=0,O=1,S=1000000", "L=100,o=100,g=100,G=0,O=0,S=1000000"];
        let p: Parameters = texts[which].parse().unwrap();
        let schedule = goal::read(random.text().as_bytes()).unwrap();
        let ranks = schedule.ranks();
        let theirs = loggops::simulate(&mut Running::of(&schedule), &p).map(|finished| finished.ranks);
        let ours = simulate(&mut Running::of(&schedule), &loggops_like(&p, ranks)).map(|finished| finished.ranks);
        match (ours, theirs) {
            (Ok(ours), Ok(theirs)) => prop_assert_eq!(ours, theirs.iter().map(|ns| 1000 * ns).collect::<Vec<u64>>()),
            (ours, theirs) => prop_assert_eq!(ours.is_ok(), theirs.is_ok()),
        }
    }

    #[test]
    fn bytes_and_work_are_conserved(
        profile in profiles(), each in 1u32..9, bytes in 1u64..150_000, computing in 0u64..100_000, seed in 0u64..9,
    ) {
        let halo = Halo { extents: vec![2, 4], steps: 3, bytes, computing, uneven: 20_000, seed, sum: true };
        let mut cluster = cluster(8, each, profile);
        cluster.slice = 5_000_000;
        let finished = run(halo, &cluster);
        prop_assert_eq!(finished.sent, finished.received);
        prop_assert_eq!(busy(&finished), finished.charged);
        for (split, end) in finished.splits.iter().zip(&finished.ranks) {
            prop_assert_eq!(split.computing + split.sending + split.waiting, *end);
        }
        let end = finished.total();
        prop_assert!(finished.cores.iter().flatten().all(|core| core.computing + core.messages <= end));
    }

    /// Work that a place takes from one resource appears on another.
    #[test]
    fn placement_moves_work_and_eliminates_none(bytes in 1u64..5000, rounds in 1u32..20) {
        let of = |place| run(Bidirectional { bytes, rounds }, &cluster(2, 1, plain(place)));
        let all = [Place::Rank, Place::Softirq, Place::Engine, Place::Device].map(of);
        prop_assert!(all.windows(2).all(|pair| busy(&pair[0]) == busy(&pair[1])));
        let on_core = |finished: &Finished, core: usize| finished.cores[0][core].total();
        prop_assert_eq!(on_core(&all[2], 0), 0);
        prop_assert_eq!(on_core(&all[2], 3), on_core(&all[0], 0));
        prop_assert_eq!(all[3].devices[0], on_core(&all[0], 0));
        prop_assert_eq!(all[1].cores[0][0].messages + all[1].cores[0][0].protocol, on_core(&all[0], 0));
    }
}

#[test]
fn what_cannot_run_is_refused() {
    let refused =
        |cluster: Cluster| simulate(&mut Lazy::of(PingPong { bytes: 1, rounds: 1 }), &cluster).unwrap_err().to_string();
    let mut none = cluster(2, 1, plain(Place::Engine));
    none.hosts[1].engines.clear();
    assert!(refused(none).starts_with("host 1: no core is free for an engine"));
    let mut taken = cluster(2, 1, plain(Place::Engine));
    taken.seats[0].core = 3;
    assert!(refused(taken).starts_with("rank 0: core 3 of host 0 is an engine's"));
    let few = Cluster { seats: vec![Seat { host: 0, core: 0 }], ..cluster(2, 1, plain(Place::Rank)) };
    assert!(refused(few).starts_with("the program: it has 2 ranks, and the mapping 1"));
}

#[test]
fn ranks_need_less_than_a_page() {
    let halo = Halo {
        extents: Halo::extents(1000, 4),
        steps: 2,
        bytes: 4096,
        computing: 20_000,
        uneven: 5000,
        seed: 1,
        sum: true,
    };
    for name in ["mpich-tcp", "psm"] {
        let finished = run(halo.clone(), &cluster(1000, 4, named(name)));
        assert!(finished.memory < 4096 * 1000, "{name}: {} bytes a rank", finished.memory / 1000);
    }
}

/// A core that computes all the time takes all its watts, one that spins too, one that sleeps the static ones.
#[test]
fn watts_are_those_of_full_use_where_no_core_sleeps() {
    let joules = |waiting, dilation: f64| {
        let mut cluster = cluster(2, 1, Profile { waiting, ..plain(Place::Rank) });
        cluster.hosts.iter_mut().for_each(|host| host.cores.truncate(1));
        cluster.hosts.iter_mut().for_each(|host| host.cores[0].dilation = dilation);
        let finished = run(Bidirectional { bytes: 1000, rounds: 5 }, &cluster);
        let watts = power::Watts { full: 100.0, dynamic: 0.6, exponent: 3.0 };
        let of = power::joules(&cluster, &finished, &[watts; 2])[0];
        (of, of.total() / (finished.total() as f64 * 1e-12))
    };
    let near = |one: f64, other: f64| assert!((one - other).abs() < 1e-9, "{one} {other}");
    near(joules(Waiting::Spin, 1.0).1, 100.0);
    near(joules(Waiting::Spin, 2.0).1, 40.0 + 60.0 / 8.0);
    let (asleep, watts) = joules(Waiting::Sleep, 1.0);
    assert!(asleep.spinning == 0.0 && (40.0..100.0).contains(&watts));
    near(asleep.total(), asleep.fixed + asleep.messages);
}
