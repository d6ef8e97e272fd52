//! Closed forms to the picosecond, conservation, and what only the production engine does.

use engine::LinkConfig;
use machine::costs::{ENGINE, Interval, Item, Row, Way};
use machine::{Bytes, Capabilities, Costs, Nanoseconds, Reading, SiteKind};
use whatif::goal::read;

use super::settings::packets;
use super::*;
use crate::programs::{Gather, Halo, Lazy, Phases, PingPong};
use crate::running::Running;

const MESSAGE: u64 = 300_000;
const PACKET: u64 = 100_000;
const BYTE: u64 = 30;
const READ: u64 = 2_000_000;
const FETCHED: u64 = 20;
const LATENCY: u64 = 1_000_000;
const WIRE: u64 = 80;
const HANDOVER: u64 = 50_000;
const COPIED: u64 = 10;

fn exactly(value: u64) -> Reading<f64> {
    Reading::Modelled(value as f64)
}

fn carrier(reliable: bool) -> Carrier {
    let mtu = Bytes(if reliable { 16_448 } else { 1472 });
    let work = Work {
        message: exactly(MESSAGE),
        packet: exactly(PACKET),
        byte: exactly(BYTE),
        read: exactly(READ),
        fetched: exactly(FETCHED),
    };
    Carrier {
        link: LinkConfig::for_port(&Capabilities { ordered: reliable, reliable, mtu, remote_read: reliable }, 0),
        slots: 64,
        loss: 0.0,
        latency: exactly(LATENCY),
        wire: exactly(WIRE),
        work,
    }
}

fn settings(placement: Placement, ranks_per_host: u32) -> Settings {
    Settings {
        placement,
        hosts: Hosts::Each(ranks_per_host),
        within: carrier(true),
        between: carrier(false),
        handover: exactly(HANDOVER),
        copied: exactly(COPIED),
        turn: exactly(0),
        seed: 1,
    }
}

const BOTH: [Placement; 2] = [Placement::App, Placement::Core];

fn lazily(program: impl Phases, settings: &Settings) -> Outcome {
    simulate(&mut Lazy::of(program), settings).unwrap()
}

fn of_goal(text: &str, settings: &Settings) -> Result<Outcome> {
    simulate(&mut Running::of(&read(text.as_bytes())?), settings)
}

fn halo(ranks: u32, bytes: u64) -> Halo {
    let extents = Halo::extents(ranks, 2);
    Halo { extents, steps: 5, bytes, computing: 20_000, uneven: 5_000, seed: 7, sum: true }
}

/// A packet of a message of `bytes`: the message layer's header, and between hosts the reliability layer's.
fn packet_bytes(bytes: u64, between: bool) -> u64 {
    bytes + 16 + if between { 24 } else { 0 }
}

fn own(n: u64) -> u64 {
    MESSAGE + PACKET + BYTE * n
}

#[test]
fn ping_pong_takes_its_closed_form() {
    for (placement, between, bytes) in BOTH.into_iter().flat_map(|placement| {
        [false, true].into_iter().flat_map(move |between| [0, 1, 8, 1000].map(|bytes| (placement, between, bytes)))
    }) {
        let n = packet_bytes(bytes, between);
        let handed = if placement == Placement::Core { HANDOVER + COPIED * bytes } else { 0 };
        let half = 2 * handed + 2 * own(n) + LATENCY + WIRE * n;
        let rounds = 50;
        let outcome = lazily(PingPong { bytes, rounds }, &settings(placement, if between { 1 } else { 2 }));
        assert_eq!(outcome.ranks[0], 2 * u64::from(rounds) * half, "{placement:?} {between} {bytes}");
        assert_eq!((outcome.messages, outcome.unexpected), (100, 0));
    }
}

#[test]
fn a_look_at_an_engine_takes_a_turn() {
    let (bytes, rounds) = (8, 50);
    let of = |turn: u64| {
        let settings = Settings { turn: exactly(turn), ..settings(Placement::Core, 1) };
        lazily(PingPong { bytes, rounds }, &settings)
    };
    let (without, with) = (of(0), of(7000));
    // One handover at either end of each message; what is waited for is no work.
    assert_eq!(with.ranks[0] - without.ranks[0], 2 * 2 * u64::from(rounds) * 7000);
    assert_eq!(with.engines, without.engines);
}

#[test]
fn a_cpu_that_waits_moves_messages_while_another_computes() {
    let text = |cpu| {
        let receiver = format!("recv 300000b from 0 cpu 0\ncalc 9000000 cpu {cpu}");
        format!("num_ranks 2\nrank 0 {{\nsend 300000b to 1\n}}\nrank 1 {{\n{receiver}\n}}\n")
    };
    let ended = |cpu| of_goal(&text(cpu), &settings(Placement::App, 1)).unwrap().ranks;
    assert!(ended(0)[0] > 9_000_000_000 && ended(1)[0] < 9_000_000_000, "{:?} {:?}", ended(0), ended(1));
}

#[test]
fn a_loaded_core_serves_one_message_after_the_other() {
    for (placement, ranks) in BOTH.into_iter().flat_map(|placement| [10, 300].map(|ranks| (placement, ranks))) {
        let bytes = 64;
        let mut settings = settings(placement, 1);
        // No acknowledgements; and all receives are posted before a message comes.
        settings.between.link.reliability = None;
        settings.between.latency = exactly(1_000_000_000);
        let n = packet_bytes(bytes, false);
        let handed = if placement == Placement::Core { HANDOVER + COPIED * bytes } else { 0 };
        let first = handed + own(n) + 1_000_000_000 + WIRE * n;
        let outcome = lazily(Gather { ranks, bytes }, &settings);
        let messages = u64::from(ranks - 1);
        assert_eq!(outcome.ranks[0], first + messages * own(n) + handed, "{placement:?} {ranks}");
        let busy = if placement == Placement::Core { outcome.engines[0] } else { outcome.busy[0] };
        assert_eq!(busy, messages * own(n));
    }
}

#[test]
fn bytes_and_work_are_conserved() {
    for (placement, per_host, bytes) in BOTH
        .into_iter()
        .flat_map(|placement| [1, 3, 12].into_iter().flat_map(move |k| [8, 5000, 300_000].map(|b| (placement, k, b))))
    {
        let outcome = lazily(halo(12, bytes), &settings(placement, per_host));
        // Four borders a rank and step, and the sum of 12 ranks: 8 in three rounds, 4 with their partners.
        let sums = 5 * (8 * 3 + 4 * 2);
        assert_eq!((outcome.messages, outcome.sent), (12 * 4 * 5 + sums, 12 * 4 * 5 * bytes + sums * 8));
        assert_eq!(outcome.received, outcome.sent, "{placement:?} {per_host} {bytes}");
        let packets = outcome.count(|counters| counters.packets_sent + counters.packets_received);
        let work = 2 * outcome.messages * MESSAGE
            + packets * PACKET
            + (outcome.written + outcome.taken + outcome.copied) * BYTE
            + outcome.count(|counters| counters.single_copies) * READ
            + outcome.fetched * FETCHED;
        let handed = outcome.handovers * HANDOVER + outcome.inlined * COPIED;
        let (ranks, engines): (u64, u64) = (outcome.busy.iter().sum(), outcome.engines.iter().sum());
        // Work of the engine's core is work taken from the ranks' cores.
        match placement {
            Placement::App => assert_eq!((ranks, engines), (outcome.computing + work, 0)),
            Placement::Core => assert_eq!((ranks, engines), (outcome.computing + handed, work)),
        }
        assert!(outcome.busy.iter().all(|busy| *busy <= outcome.total()));
        assert_eq!(outcome.count(|counters| counters.malformed + counters.retransmitted), 0);
        assert_eq!(outcome.fetched > 0, per_host > 1 && bytes > 8192, "memory is read within hosts");
    }
}

#[test]
fn the_same_seed_gives_the_same_bits_and_loss_costs_retransmissions() {
    for placement in BOTH {
        let lossy = |loss, seed| {
            let mut settings = settings(placement, 2);
            (settings.between.loss, settings.seed) = (loss, seed);
            lazily(halo(8, 20_000), &settings)
        };
        let again = |outcome: &Outcome| outcome.count(|counters| counters.retransmitted);
        let (none, some, many) = (lossy(0.0, 1), lossy(0.02, 1), lossy(0.2, 1));
        assert_eq!(many, lossy(0.2, 1));
        assert_ne!(many, lossy(0.2, 2));
        assert_eq!((again(&none), none.lost), (0, 0));
        assert!(again(&some) > 0 && again(&many) > again(&some), "{} {}", again(&some), again(&many));
        assert!(many.total() > none.total() && many.received == none.received);
    }
}

#[test]
fn an_engines_core_moves_messages_while_ranks_compute() {
    let text = "num_ranks 2\nrank 0 {\nsend 1048576b to 1\ncalc 5000000\n}\nrank 1 {\nrecv 1048576b from 0\n}\n";
    let [app, core] = BOTH.map(|placement| of_goal(text, &settings(placement, 1)).unwrap());
    let computing = 5_000_000_000;
    assert!(core.ranks[1] < computing && app.ranks[1] > computing, "{app:?} {core:?}");
    assert!(app.ranks[0] > core.ranks[0]);
    for outcome in [&app, &core] {
        assert_eq!(outcome.count(|counters| counters.announced), 1);
    }
}

#[test]
fn a_rank_that_computes_uses_up_its_senders_credit() {
    // 400 messages of 4 KiB, with credit for 1 MiB of unmatched ones.
    let sends = "send 4096b to 1\n".repeat(400);
    let receives: String = (0..400).map(|at| format!("l{at}: recv 4096b from 0\nl{at} requires c\n")).collect();
    let text = format!("num_ranks 2\nrank 0 {{\n{sends}}}\nrank 1 {{\nc: calc 20000000\n{receives}}}\n");
    let counted = |credit: u64| {
        let mut settings = settings(Placement::Core, 1);
        settings.between.link.credit_bytes = Bytes(credit);
        let outcome = of_goal(&text, &settings).unwrap();
        assert_eq!((outcome.messages, outcome.received), (400, 400 * 4096));
        (outcome.count(|counters| counters.credit_waits) > 0, outcome.count(|counters| counters.announced) > 0)
    };
    assert_eq!(counted(4 << 20), (false, false));
    assert_eq!(counted(1 << 20), (true, false));
    // Beyond a part of the credit, messages are announced instead (`engine::credit`).
    assert_eq!(counted(256 << 10), (false, true));
}

#[test]
fn anybody_any_tag_and_oneself_are_matched() {
    let text = "num_ranks 3\nrank 0 {\nrecv 8b from -1 tag 1\nrecv 90000b from 1 tag -1\nsend 8b to 0 tag 1\n}\n\
                rank 1 {\nsend 90000b to 0 tag 5\n}\nrank 2 {\n}\n";
    for (placement, per_host) in [(Placement::App, 1), (Placement::App, 3), (Placement::Core, 1), (Placement::Core, 3)]
    {
        let outcome = of_goal(text, &settings(placement, per_host)).unwrap();
        assert_eq!((outcome.messages, outcome.received, outcome.ranks[2]), (2, 90_008, 0));
    }
}

#[test]
fn what_can_never_end_is_named() {
    let lost = "num_ranks 2\nrank 0 {\nrecv 9b from 1 tag 4\n}\nrank 1 {\n}\n";
    let left = "num_ranks 2\nrank 0 {\n}\nrank 1 {\nsend 9b to 0\n}\n";
    let long = "num_ranks 2\nrank 0 {\n}\nrank 1 {\nsend 900000b to 0\n}\n";
    let circle = "num_ranks 2\nrank 0 {\n}\nrank 1 {\na: calc 1\nb: calc 1\na requires b\nb requires a\n}\n";
    for (placement, per_host) in [(Placement::App, 1), (Placement::App, 2), (Placement::Core, 1), (Placement::Core, 2)]
    {
        let refused = |text| of_goal(text, &settings(placement, per_host)).unwrap_err().to_string();
        assert!(refused(lost).starts_with("rank 0: a receive of it gets no message"), "{}", refused(lost));
        assert!(refused(left).starts_with("rank 0: nothing receives the message of 9 B from rank 1"));
        assert!(refused(long).starts_with("rank 0: nothing receives the message of 900,000 B from rank 1"));
        assert!(refused(circle).starts_with("rank 1: an operation never begins"));
    }
    let forever = "num_ranks 1\nrank 0 {\ncalc 10000000000000000000\n}\n";
    let refused = of_goal(forever, &settings(Placement::App, 1)).unwrap_err().to_string();
    assert!(refused.contains("106 days"), "{refused}");
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let refused = |change: fn(&mut Settings)| {
        let mut settings = settings(Placement::App, 1);
        change(&mut settings);
        simulate(&mut Lazy::of(PingPong { bytes: 8, rounds: 1 }), &settings).unwrap_err().to_string()
    };
    assert!(refused(|settings| settings.hosts = Hosts::Each(0)).contains("at least 1"));
    assert!(refused(|settings| settings.within.loss = 0.1).contains("need not be reliable"));
    assert!(refused(|settings| settings.between.loss = 1.0).contains("a loss below 1"));
    assert!(refused(|settings| settings.between.link.mtu = Bytes(40)).contains("headers"));
    assert!(refused(|settings| settings.between.link.remote_read = true).contains("memory of another host"));
    assert!(refused(|settings| settings.between.latency = Reading::absent("nobody looked")).contains("nobody looked"));
}

/// Rows as `plimsoll calibrate` would measure them where messages cost exactly this.
fn measured(network: Option<&str>, link: &LinkConfig) -> Vec<Row> {
    let way = Way {
        carrier: ENGINE.into(),
        mpi: "an MPI".into(),
        placement: SiteKind::App,
        network: network.map(str::to_owned),
    };
    let rows = [8, 512, 4096, 16_384, 65_536].into_iter().flat_map(|size| {
        let (work, way_of_all) = if size > link.eager_limit.0 {
            (MESSAGE + 2 * PACKET + READ + FETCHED * size, LATENCY)
        } else {
            let (packets, n) = packets(link, size as usize);
            (MESSAGE + PACKET * packets as u64 + BYTE * n as u64, LATENCY + WIRE * n as u64)
        };
        let row = |item, ps: u64| Row {
            item,
            size: Some(Bytes(size)),
            cost: Reading::Measured(Interval::exactly(ps as f64 / 1e3)),
            source: "test".into(),
            taken: Nanoseconds(1),
        };
        [row(Item::Message(way.clone()), work), row(Item::HalfTrip(way.clone()), 2 * work + way_of_all)]
    });
    rows.collect()
}

#[test]
fn costs_are_solved_for_what_was_measured() {
    let truth = settings(Placement::App, 1);
    let mut rows = measured(None, &truth.within.link);
    rows.extend(measured(Some("udp"), &truth.between.link));
    let solved = Settings::of(&Costs::of(rows.clone()), Placement::App, 1, "udp", 0.0);
    let near =
        |reading: &Reading<f64>, value: u64| (reading.value().unwrap() - value as f64).abs() < 1e-3 * value as f64;
    let Work { message, packet, byte, .. } = &solved.between.work;
    assert!(near(message, MESSAGE) && near(packet, PACKET) && near(byte, BYTE), "{solved:#?}");
    assert!(near(&solved.between.latency, LATENCY) && near(&solved.between.wire, WIRE), "{solved:#?}");
    // Within a host no eager message has several packets, so only the sum of both costs is known.
    let Work { message, packet, byte, read, fetched } = &solved.within.work;
    let [message, packet] = [message, packet].map(|reading| *reading.value().unwrap());
    assert!((message + packet - (MESSAGE + PACKET) as f64).abs() < 1.0 && near(byte, BYTE), "{solved:#?}");
    // The sum also contains the part of a rendezvous for its read.
    let rendezvous = MESSAGE + 2 * PACKET + READ;
    assert!((read.value().unwrap() + message + 2.0 * packet - rendezvous as f64).abs() < 1.0, "{solved:#?}");
    assert!(near(fetched, FETCHED), "{solved:#?}");
    // Predictions reproduce the measured rows.
    for (ranks_per_host, bytes) in [(1, 8), (1, 512), (2, 8), (2, 4096)] {
        let outcome =
            lazily(PingPong { bytes, rounds: 10 }, &Settings { hosts: Hosts::Each(ranks_per_host), ..solved.clone() });
        let n = packet_bytes(bytes, ranks_per_host == 1);
        let half = 2 * own(n) + LATENCY + WIRE * n;
        assert!(outcome.ranks[0].abs_diff(20 * half) <= 200, "{bytes}: {} {}", outcome.ranks[0], 20 * half);
    }
    // At the ends of the intervals all costs are multiplied alike.
    let wide = |row: Row| Row {
        cost: row.cost.map(|cost| Interval { low: cost.low / 2.0, high: cost.high * 3.0, ..cost }),
        ..row
    };
    let wide = Costs::of(rows.into_iter().map(wide).collect());
    for (place, times) in [(-1.0, 0.5), (0.0, 1.0), (1.0, 3.0)] {
        let at = Settings::of(&wide, Placement::App, 1, "udp", place).between;
        assert!(
            near(&at.latency, (LATENCY as f64 * times) as u64) && near(&at.work.byte, (BYTE as f64 * times) as u64)
        );
    }
    let absent = Settings::of(&Costs::modelled(), Placement::App, 1, "udp", 0.0);
    let fault = simulate(&mut Lazy::of(PingPong { bytes: 8, rounds: 1 }), &absent).unwrap_err().to_string();
    assert!(fault.contains("never measured") && fault.contains("plimsoll calibrate"), "{fault}");
}

#[test]
fn an_idle_rank_needs_less_than_a_page() {
    let (idle, peer) = (Outcome::IDLE_RANK, Outcome::PEER);
    assert!(idle < 4096, "{idle} bytes a rank, {peer} a peer");
    let outcome = lazily(halo(100, 8), &settings(Placement::App, 4));
    assert!(outcome.memory > 100 * idle && outcome.memory < 100 * (4096 + 16 * peer), "{}", outcome.memory);
}
