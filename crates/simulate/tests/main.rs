//! Exported schedules of recorded programs equal what the simulator reads.

use std::collections::BTreeMap;
use std::path::Path;

use profile::export::goal;
use proptest::prelude::*;
use record::functions::named;
use record::image::Image;
use record::layout::{Moment, Thread, WHOLE_RANK, clock, kind, text};
use record::trace::{Call, Encoder, Header, block, peer, tag};
use simulate::loggops::Parameters;
use simulate::{Kind, Operation, run};
use timeline::Timeline;
use whatif::goal::read;
use whatif::graph::Graph;

/// The time of the start; ticks are nanoseconds here.
const STARTED: u64 = 1_000_000_000;

/// The next action of all ranks: compute and then swap with both neighbours of a ring, or a collective operation.
#[derive(Debug, Clone, Copy)]
enum Step {
    Ring { bytes: u64, tag: i32, computing: u64 },
    Collective { name: &'static str, root: i32, bytes: u64 },
}

fn calls(ranks: u32, rank: u32, steps: &[Step]) -> Vec<Call> {
    let mut now = STARTED + 100 * u64::from(rank);
    let mut call = |name: &str, gap: u64| {
        now += gap + 400;
        let mut call = Call::new(named(name).unwrap().id, now - 400, now);
        call.communicator = 0;
        call
    };
    let mut calls = vec![call("Init", 0)];
    for step in steps {
        calls.push(match *step {
            Step::Ring { bytes, tag, computing } => {
                let mut call = call("Sendrecv", computing + 7 * u64::from(rank));
                (call.peer, call.tag, call.bytes) = (((rank + 1) % ranks) as i32, tag, bytes);
                (call.source, call.source_tag, call.source_bytes) = (((rank + ranks - 1) % ranks) as i32, tag, bytes);
                call
            }
            Step::Collective { name, root, bytes } => {
                let rooted = ["Bcast", "Reduce", "Gather"].contains(&name);
                let mut call = call(name, 50);
                call.peer = if rooted { root % ranks as i32 } else { peer::NONE };
                (call.tag, call.bytes) = (tag::NONE, bytes);
                call
            }
        });
    }
    calls
}

/// A profile of these ranks on one host.
fn record(ranks: u32, steps: &[Step]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join(record::folder::RANKS)).unwrap();
    run_in(folder.path(), 0, ranks, steps);
    folder
}

/// The ranks of the `nth` launch of the job.
fn run_in(folder: &Path, nth: u32, ranks: u32, steps: &[Step]) {
    for rank in 0..ranks {
        let calls = calls(ranks, rank, steps);
        let trace = Header::new(0, STARTED, 1, 0);
        let (mut encoder, mut file) = (Encoder::new(&trace), Vec::new());
        for call in &calls {
            let mut out = vec![0; Encoder::room(0, 0)];
            let length = encoder.encode(call, &[], &[], &mut out).unwrap();
            file.extend_from_slice(&out[..length]);
        }
        let file = block::file(&trace, &file);
        let mut image = Image::default();
        let (header, pid) = (&mut image.header, 100 * (nth + 1) + rank);
        (header.placed, header.rank, header.size, header.pid) = (1, rank, ranks, pid);
        (header.clock, header.threads) = (clock::COUNTER, 1);
        header.started = Moment { ticks: STARTED, monotonic: 5_000, realtime: 7_000_000_000 };
        header.latest = Moment { ticks: STARTED + 1_000_000, monotonic: 1_005_000, realtime: 7_001_000_000 };
        header.started.realtime += u64::from(nth);
        (header.host, header.world, header.boot) = (text("here"), text(&format!("w{nth}")), text("b"));
        image.region::<u32>(kind::MEMBERS, WHOLE_RANK, (0, 0), &(0..ranks).collect::<Vec<_>>());
        image.region(kind::THREAD, 0, (0, 0), &[Thread { traced: file.len() as u64, ..Thread::default() }]);
        let mut rows: BTreeMap<_, Vec<(u64, u64)>> = BTreeMap::new();
        for call in &calls {
            rows.entry(call.function).or_default().push((call.left - call.entered, call.bytes));
        }
        for (id, calls) in rows {
            image.row(0, id, 0, calls);
        }
        std::fs::write(record::folder::trace_file(folder, "here", pid, 0), &file).unwrap();
        image.write(&record::folder::rank_file(folder, "here", pid)).unwrap();
    }
}

fn line(operation: &Operation) -> String {
    let Operation { kind, amount, peer, tag, .. } = operation;
    match kind {
        Kind::Send => format!("send {amount}b to {peer} tag {tag}"),
        Kind::Receive => format!("recv {amount}b from {peer} tag {tag}"),
        Kind::Compute => format!("calc {amount}"),
    }
}

fn step() -> impl Strategy<Value = Step> {
    let names = ["Allreduce", "Allgather", "Alltoall", "Scan", "Barrier", "Bcast", "Reduce", "Gather"];
    prop_oneof![
        (1u64..100_000, 0i32..3, 0u64..5_000).prop_map(|(bytes, tag, computing)| Step::Ring { bytes, tag, computing }),
        (prop::sample::select(names.to_vec()), 0i32..9, 1u64..5_000).prop_map(|(name, root, bytes)| Step::Collective {
            name,
            root,
            bytes
        }),
    ]
}

#[test]
fn each_world_of_a_profile_has_a_schedule_and_a_graph_of_its_own() {
    let ring = |bytes| Step::Ring { bytes, tag: 0, computing: 10 };
    let folder = record(2, &[ring(8)]);
    run_in(folder.path(), 1, 3, &[ring(16), ring(16)]);
    let timeline = Timeline::open(folder.path()).unwrap().unwrap();
    for (world, ranks, messages) in [(0, 2, 2), (1, 3, 6)] {
        let exported = goal(&timeline, world, &mut Vec::<u8>::new()).unwrap();
        assert_eq!((exported.ranks, exported.messages), (ranks, messages));
        let graph = Graph::of(&timeline, world).unwrap();
        assert_eq!((graph.hosts.len(), graph.lanes.len()), (ranks, ranks));
        let which = format!("this is world {world} of 2");
        assert!([&exported.notes, &graph.notes].iter().all(|notes| notes.iter().any(|note| note.starts_with(&which))));
    }
    assert!(Graph::of(&timeline, 2).unwrap_err().cause().contains("2 worlds"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_exported_program_is_read_and_runs_to_its_end(ranks in 2u32..7, steps in prop::collection::vec(step(), 1..12)) {
        let folder = record(ranks, &steps);
        let timeline = Timeline::open(folder.path()).unwrap().unwrap();
        let mut text = Vec::new();
        let exported = goal(&timeline, 0, &mut text).unwrap();
        prop_assert_eq!((exported.unmatched, exported.opaque), (0, 0));
        let schedule = read(&text).unwrap();
        let written = String::from_utf8(text).unwrap();
        let written: Vec<&str> = written.lines().filter_map(|line| Some(line.split_once(": ")?.1)).collect();
        let known: Vec<String> = (0..ranks).flat_map(|rank| schedule.of(rank)).map(|one| line(&one)).collect();
        prop_assert_eq!(known, written);
        let rings = steps.iter().filter(|step| matches!(step, Step::Ring { .. })).count() as u64;
        prop_assert_eq!(exported.messages, rings * u64::from(ranks));

        let finished = run(&schedule, &Parameters::default()).unwrap();
        prop_assert_eq!((finished.messages, finished.sent), (schedule.messages(), finished.received));
        for rank in 0..ranks {
            let computing: u64 = schedule.of(rank).filter(|one| one.kind == Kind::Compute).map(|one| one.amount).sum();
            prop_assert!(finished.ranks[rank as usize] >= computing);
        }
    }
}
