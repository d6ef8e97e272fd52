//! Closed forms, conservation, and comparisons with LogGOPSim itself.

use std::collections::HashMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::Command;

use proptest::prelude::*;
use whatif::goal::read;

use super::loggops::simulate;
use super::programs::{Gather, Halo, Lazy, Phases, PingPong, Pipeline, write};
use super::*;

fn parameters(text: &str) -> Parameters {
    text.parse().unwrap()
}

fn lazily(program: impl Phases, parameters: &Parameters) -> Finished {
    simulate(&mut Lazy::of(program), parameters).unwrap()
}

fn written(program: &impl Phases) -> String {
    let mut text = Vec::new();
    write(program, &mut text).unwrap();
    String::from_utf8(text).unwrap()
}

fn halo(ranks: u32, dimensions: usize) -> Halo {
    let extents = Halo::extents(ranks, dimensions);
    Halo { extents, steps: 3, bytes: 4096, computing: 20_000, uneven: 5_000, seed: 7, sum: true }
}

/// The time that a message of `bytes` takes of the receiving cpu.
fn receiving(p: &Parameters, bytes: u64) -> u64 {
    p.overhead + (bytes - 1) * p.gap_per_byte.max(p.overhead_per_byte)
}

#[test]
fn ping_pong_takes_its_closed_form() {
    for bytes in [1, 8, 4096, 65_535, 65_536, 1 << 20] {
        let p = parameters("L=1700,o=300,g=100,G=3,O=1");
        let trip = p.overhead + p.latency + receiving(&p, bytes);
        let finished = lazily(PingPong { bytes, rounds: 10 }, &p);
        let last = if bytes <= p.eager { p.overhead + bytes - 1 } else { p.overhead + p.latency };
        assert_eq!(finished.ranks, [20 * trip, 19 * trip + last.max(p.overhead + bytes - 1)], "{bytes}");
        assert_eq!((finished.messages, finished.sent), (20, 20 * bytes));
    }
}

#[test]
fn a_pipeline_takes_its_closed_form() {
    let (bytes, messages) = (100, 50);
    // With two ranks, the slowest of sender, receiver and their interfaces decides.
    for text in ["L=900,o=40,g=10,G=2,O=0", "L=900,o=40,g=500,G=2,O=0", "L=900,o=40,g=10,G=2,O=7"] {
        let p = parameters(text);
        let more = bytes - 1;
        let sending = p.overhead + more * p.overhead_per_byte;
        let receiving = receiving(&p, bytes);
        let slowest = sending.max(receiving).max(p.gap + more * p.gap_per_byte);
        let finished = lazily(Pipeline { ranks: 2, bytes, messages: messages as u32 }, &p);
        assert_eq!(finished.ranks[1], p.overhead + p.latency + (messages - 1) * slowest + receiving, "{text}");
    }
    // With three, the middle one receives and sends all messages, and is never idle.
    let p = parameters("L=900,o=40,g=10,G=2,O=7");
    let (sending, receiving) = (p.overhead + 99 * 7, receiving(&p, bytes));
    let finished = lazily(Pipeline { ranks: 3, bytes, messages: messages as u32 }, &p);
    let middle = p.overhead + p.latency + messages * (sending + receiving);
    assert_eq!(finished.ranks[1..], [middle, middle - sending + p.overhead + p.latency + receiving]);
}

#[test]
fn a_loaded_receiver_takes_one_message_after_the_other() {
    for (text, ranks, bytes) in [("L=900,o=40,g=10,G=2,O=0", 200, 64), ("L=900,o=40,g=700,G=2,O=0", 200, 64)] {
        let p = parameters(text);
        let each = receiving(&p, bytes).max(p.gap + (bytes - 1) * p.gap_per_byte);
        let finished = lazily(Gather { ranks, bytes }, &p);
        let last = p.overhead + p.latency + u64::from(ranks - 2) * each;
        assert_eq!(finished.ranks[0], last + receiving(&p, bytes), "{text}");
        assert!(finished.ranks[1..].iter().all(|end| *end == p.overhead));
    }
}

#[test]
fn a_rendezvous_ends_when_the_receive_comes() {
    let text = "num_ranks 2\nrank 0 {\na: send 101b to 1\nb: calc 7\nb requires a\n}\n\
                rank 1 {\na: calc 5000\nb: recv 101b from 0\nb requires a\n}\n";
    let schedule = read(text.as_bytes()).unwrap();
    let eager = run(&schedule, &parameters("L=100,o=10,g=0,G=2,O=0,S=101")).unwrap();
    assert_eq!(eager.ranks, [17, 5000 + 10 + 200]);
    let rendezvous = run(&schedule, &parameters("L=100,o=10,g=0,G=2,O=0,S=100")).unwrap();
    assert_eq!(rendezvous.ranks, [5007, 5000 + 10 + 200]);
}

#[test]
fn irequires_waits_for_the_start_alone() {
    let text = "num_ranks 2\nrank 0 {\na: recv 1b from 1\nb: calc 50\nb irequires a\n}\nrank 1 {\na: send 1b to 0\n}\n";
    let p = parameters("L=1000,o=10,g=0,G=1,O=0");
    let started = run(&read(text.as_bytes()).unwrap(), &p).unwrap();
    assert_eq!(started.ranks[0], 10 + 1000 + 10);
    let over = run(&read(text.replace("irequires", "requires").as_bytes()).unwrap(), &p).unwrap();
    assert_eq!(over.ranks[0], 10 + 1000 + 10 + 50);
}

#[test]
fn what_can_never_end_is_named() {
    let refused = |text: &str| run(&read(text.as_bytes()).unwrap(), &Parameters::default()).unwrap_err().to_string();
    let lost = "num_ranks 2\nrank 0 {\nrecv 9b from 1 tag 4\n}\nrank 1 {\n}\n";
    assert!(refused(lost).starts_with("rank 0: its receive of 9 B from rank 1 gets no message"));
    let left = "num_ranks 2\nrank 0 {\n}\nrank 1 {\nsend 9b to 0\n}\n";
    assert!(refused(left).starts_with("rank 0: nothing receives the message of 9 B from rank 1"));
    let circle =
        "num_ranks 3\nrank 0 {\n}\nrank 1 {\na: calc 1\nb: calc 1\na requires b\nb requires a\n}\nrank 2 {\n}\n";
    assert!(refused(circle).starts_with("rank 1: an operation never begins"));
    let long = "num_ranks 1\nrank 0 {\na: calc 18446744073709551600\nb: calc 16\nb requires a\n}\n";
    assert!(refused(long).contains("584 years"), "{}", refused(long));
}

#[test]
fn order_blanks_and_numbers_of_cpus_are_the_writers() {
    let plain = "num_ranks 3\nrank 0 {\na: calc 5 cpu 1\nb: send 8b to 2 tag 7 cpu 2 nic 1\nb requires a\nc: calc 9\n\
                 c irequires b\n}\nrank 1 {\n}\nrank 2 {\nrecv 8b from 0 tag 7 cpu 2 nic 1\n}\n";
    let plain = read(plain.as_bytes()).unwrap();
    let other = "\u{feff}num_ranks\t3\r\n\r\nrank 2 {\r\n\trecv 8b\tfrom 0 tag 7 cpu 4000000000 nic 70000\r\n}\r\nrank 0 {\r\n\
                 b requires a\r\na: calc 5 cpu 300\r\nb: send 8b to 2 tag 7 cpu 4000000000 nic 70000\r\n\
                 c irequires b\r\nc: calc 9\r\n}\r\nrank 1 {\r\n}\r\n";
    assert_eq!(read(other.as_bytes()).unwrap(), plain);
    let p = Parameters::default();
    assert_eq!(run(&plain, &p).unwrap().ranks.len(), 3);
}

#[test]
fn a_rank_may_have_hundreds_of_cpus() {
    let calls: String = (0..300).map(|cpu| format!("calc 100 cpu {}\n", 1000 + 7 * cpu)).collect();
    let text = format!("num_ranks 1\nrank 0 {{\n{calls}}}\n");
    let finished = run(&read(text.as_bytes()).unwrap(), &Parameters::default()).unwrap();
    assert_eq!((finished.ranks[0], finished.busy.iter().sum::<u64>()), (100, 30_000), "all at the same time");

    let nics: String = (0..257).map(|nic| format!("send 1b to 0 nic {nic}\n")).collect();
    let refused = read(format!("num_ranks 1\nrank 0 {{\n{nics}}}\n").as_bytes()).unwrap_err();
    assert!(refused.to_string().contains("line 259, column 14: this is the 257th"), "{refused}");
}

#[test]
fn mistakes_have_line_and_column() {
    let at = |text: &str| read(text.as_bytes()).unwrap_err().subject().replace("the schedule, ", "");
    assert_eq!(at(""), "line 1, column 1");
    assert_eq!(at("num_ranks 0\n"), "line 1, column 11");
    assert_eq!(at("num_ranks 1\nrank 0 {\nl1: calc 5\n\tl1 requires l2\n}\n"), "line 4, column 14");
    assert_eq!(at("num_ranks 2\nrank 0 {\nsend 8b to 2\n}\nrank 1 {\n}\n"), "line 3, column 12");
    assert_eq!(at("num_ranks 1 /* a\nb */ // c\n\nrank 0 { x: calc 1\nx: calc 2\n}"), "line 5, column 1");
    assert_eq!(at("num_ranks 2\nrank 1 {\n}\n"), "line 4, column 1");
    assert_eq!(at("num_ranks 2\nrank 1 {\n}\nrank 1 {\n}\n"), "line 4, column 6");
    assert_eq!(at("num_ranks 1\nrank 0 {\ncalc 1 cpu 4294967296\n}\n"), "line 3, column 12");
    assert_eq!(at("num_ranks 1\nrank 0 {\ncalc 1 nic 1\n}\n"), "line 3, column 8");
    assert_eq!(at("num_ranks 1\nrank 0 {\ncalc 1\n/* }\n"), "line 4, column 1");
    assert_eq!(at("num_ranks 1\nrank 0 {\n}\nrank 1 {\n}\n"), "line 4, column 1");
    assert_eq!(at("num_ranks 1\nrank 0 {\nl1 /*\n*/ requires l0\n}\n"), "line 3, column 1");
}

#[test]
fn the_same_seed_gives_the_same_times_and_written_out_the_same() {
    for (ranks, dimensions) in [(1, 1), (2, 1), (6, 1), (12, 2), (16, 4), (54, 4), (100, 3)] {
        let halo = halo(ranks, dimensions);
        let p = parameters("L=2000,o=500,g=300,G=1,O=0,S=2048");
        let lazy = lazily(halo.clone(), &p);
        assert_eq!(lazy, lazily(halo.clone(), &p));
        let schedule = read(written(&halo).as_bytes()).unwrap();
        let whole = run(&schedule, &p).unwrap();
        assert_eq!(
            (&lazy.ranks, &lazy.busy, lazy.messages),
            (&whole.ranks, &whole.busy, schedule.messages()),
            "{ranks}"
        );
        let other = lazily(Halo { seed: 8, ..halo }, &p);
        assert_ne!(lazy.ranks, other.ranks);
    }
}

#[test]
fn ranks_need_less_than_a_page() {
    let finished = lazily(halo(1000, 4), &Parameters::default());
    assert!(finished.memory < 1000 * 4096, "{} bytes a rank", finished.memory / 1000);
}

#[test]
fn extents_are_near_to_each_other() {
    let of = |ranks| Halo::extents(ranks, 4).into_iter().product::<u32>();
    assert!((1..500).all(|ranks| of(ranks) == ranks));
    assert_eq!(Halo::extents(8000, 4), [10, 10, 10, 8]);
}

/// Sender, receiver, bytes, cpus, what each end requires, and whether it is received from any rank.
type Message = (u32, u32, u64, [u8; 2], [(u8, u8); 2], bool);

/// A schedule without a cycle: messages one after the other, each end after some earlier operation of its rank.
#[derive(Debug, Clone)]
pub(super) struct Random {
    ranks: u32,
    messages: Vec<Message>,
}

/// With `selves`, ranks may send to themselves.
pub(super) fn random(cpus: u8, selves: bool) -> impl Strategy<Value = Random> {
    (2u32..7).prop_flat_map(move |ranks| {
        let bytes = prop_oneof![1u64..300, 60_000u64..70_000];
        let requires = || (0u8..5, any::<u8>());
        let message = (0..ranks, 0..ranks, bytes, [0..cpus, 0..cpus], [requires(), requires()], any::<bool>());
        prop::collection::vec(message, 1..40).prop_map(move |mut messages| {
            for (from, to, ..) in messages.iter_mut().filter(|(from, to, ..)| from == to && !selves) {
                *to = (*from + 1) % ranks;
            }
            Random { ranks, messages }
        })
    })
}

impl Random {
    pub(super) fn text(&self) -> String {
        let mut ranks = vec![String::new(); self.ranks as usize];
        let mut counts = vec![0u32; self.ranks as usize];
        let mut put = |rank: u32, what: String, (how, which): (u8, u8)| {
            let (out, own) = (&mut ranks[rank as usize], &mut counts[rank as usize]);
            writeln!(out, "l{own}: {what}").unwrap();
            if let Some(last) = own.checked_sub(1) {
                let earlier = last - u32::from(which) % last.clamp(1, 5);
                let word = if how < 2 { "irequires" } else { "requires" };
                if how > 0 || last > 3 {
                    writeln!(out, "l{own} {word} l{earlier}").unwrap();
                }
                if how == 4 {
                    writeln!(out, "l{own} irequires l{last}").unwrap();
                }
            }
            *own += 1;
        };
        for (tag, (from, to, bytes, cpus, requires, anywhere)) in self.messages.iter().enumerate() {
            let nic = bytes % 2;
            if bytes % 3 == 0 {
                put(*from, format!("calc {} cpu {}", bytes * 7, cpus[1]), requires[1]);
            }
            put(*from, format!("send {bytes}b to {to} tag {tag} cpu {} nic {nic}", cpus[0]), requires[0]);
            let source = if *anywhere { "-1".to_owned() } else { from.to_string() };
            put(*to, format!("recv {bytes}b from {source} tag {tag} cpu {} nic {nic}", cpus[1]), requires[1]);
        }
        let ranks = ranks.iter().enumerate().map(|(rank, text)| format!("rank {rank} {{\n{text}}}\n"));
        format!("num_ranks {}\n{}", self.ranks, ranks.collect::<String>())
    }
}

const ANYHOW: &str = "L=1200,o=250,g=400,G=2,O=1,S=65535";

proptest! {
    #[test]
    fn bytes_and_time_are_conserved(random in random(3, false)) {
        let p = parameters(ANYHOW);
        let schedule = read(random.text().as_bytes()).unwrap();
        let finished = run(&schedule, &p).unwrap();
        prop_assert_eq!(finished.sent, finished.received);
        prop_assert_eq!(finished.sent, random.messages.iter().map(|message| message.2).sum::<u64>());
        let cpus = finished.busy.len() / random.ranks as usize;
        let mut busy = vec![0; finished.busy.len()];
        for rank in 0..random.ranks {
            for Operation { kind, amount, peer, cpu, .. } in schedule.of(rank) {
                let cpu = usize::from(cpu);
                match kind {
                    Kind::Compute => busy[rank as usize * cpus + cpu] += amount,
                    Kind::Send => {
                        busy[rank as usize * cpus + cpu] += p.overhead + (amount - 1) * p.overhead_per_byte;
                        busy[peer as usize * cpus + cpu] += receiving(&p, amount);
                    }
                    Kind::Receive => {}
                }
            }
        }
        prop_assert_eq!(&finished.busy, &busy);
        for (rank, end) in finished.ranks.iter().enumerate() {
            prop_assert!(busy[rank * cpus..][..cpus].iter().all(|busy| busy <= end));
        }
    }

    #[test]
    fn anything_is_read_or_refused(text in "(num_ranks|rank|send|recv|calc|requires|l[0-3]|[0-9 \n:{}b/*-]){0,60}") {
        if let Err(fault) = read(text.as_bytes()) {
            prop_assert!(fault.subject().starts_with("the schedule, line "));
        }
    }
}

/// The times of LogGOPSim; `tools` is the folder of txt2bin and LogGOPSim, from `PLIMSOLL_LOGGOPSIM`.
fn theirs(tools: &std::path::Path, text: &str, p: &Parameters) -> HashMap<usize, u64> {
    let folder = tempfile::tempdir().unwrap();
    let (source, binary) = (folder.path().join("a.goal"), folder.path().join("a.bin"));
    std::fs::write(&source, text).unwrap();
    let made = Command::new(tools.join("txt2bin")).arg("-i").arg(&source).arg("-o").arg(&binary).output().unwrap();
    assert!(made.status.success(), "{made:?}\n{text}");
    let mut command = Command::new(tools.join("LogGOPSim"));
    command.arg("-f").arg(&binary);
    for (flag, value) in [("-L", p.latency), ("-o", p.overhead), ("-g", p.gap), ("-G", p.gap_per_byte)] {
        command.arg(flag).arg(value.to_string());
    }
    let ran = command.args(["-O", &p.overhead_per_byte.to_string(), "-S", &p.eager.to_string()]).output().unwrap();
    let said = String::from_utf8(ran.stdout).unwrap();
    let host = |line: &str| {
        let (rank, end) = line.trim().strip_prefix("Host ")?.split_once(": ")?;
        Some((rank.parse().ok()?, end.parse().ok()?))
    };
    said.lines().filter_map(host).collect()
}

/// Equal finishing times rank by rank, to the nanosecond. At most 16 ranks: of more, LogGOPSim prints the last alone.
#[test]
fn finishing_times_are_those_of_loggopsim() {
    let Some(tools) = std::env::var_os("PLIMSOLL_LOGGOPSIM").map(PathBuf::from) else {
        skip::test("PLIMSOLL_LOGGOPSIM does not name the folder of txt2bin and LogGOPSim");
        return;
    };
    let same = |text: &str, p: &Parameters| {
        let ours = run(&read(text.as_bytes()).unwrap(), p);
        let theirs = theirs(&tools, text, p);
        match ours {
            Ok(ours) => {
                let ours: HashMap<usize, u64> = ours.ranks.into_iter().enumerate().collect();
                assert_eq!(ours, theirs, "{p:?}\n{text}");
            }
            // LogGOPSim prints no times where messages are left.
            Err(fault) => assert!(theirs.is_empty(), "{fault}\n{text}"),
        }
    };
    let all = ["L=2500,o=1500,g=1000,G=6,O=0", "L=2000,o=500,g=700,G=1,O=2,S=2048", "L=0,o=0,g=0,G=0,O=0"];
    for p in all.map(parameters) {
        for (ranks, dimensions) in [(2, 1), (6, 1), (12, 2), (16, 4), (16, 2)] {
            same(&written(&halo(ranks, dimensions)), &p);
        }
        same(&written(&PingPong { bytes: 4096, rounds: 5 }), &p);
        same(&written(&Pipeline { ranks: 7, bytes: 333, messages: 20 }), &p);
        same(&written(&Gather { ranks: 14, bytes: 3000 }), &p);
    }
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(random in random(3, true))| same(&random.text(), &parameters(ANYHOW)));
}
