//! Programs with given times, whose waits are known in closed form.

use record::functions::named;
use record::layout::Site;
use record::trace::{Call, Reference, peer, tag};
use tempfile::TempDir;

use super::testing::{Lines, STARTED, Written, profile, sample_stops, write};
use super::*;

fn open(folder: &TempDir) -> Timeline {
    Timeline::open(folder.path()).unwrap().unwrap()
}

fn waits_of(timeline: &Timeline, rank: usize, name: &str) -> FunctionWaits {
    let waits = timeline.waits();
    let of = waits.ranks[rank].functions.iter().filter(|((id, _), _)| *id == named(name).unwrap().id);
    of.fold(FunctionWaits::default(), |mut sum, (_, waits)| {
        sum.add(waits);
        sum
    })
}

impl FunctionWaits {
    fn ns(&self) -> [i64; 4] {
        [self.late_sender, self.late_receiver, self.collective, self.undivided].map(|s| (s * 1e9).round() as i64)
    }
}

const NONE: i32 = peer::NONE;

#[test]
fn a_receive_waits_for_a_late_sender_and_no_longer() {
    let (mut a, mut b) = (Lines::default(), Lines::default());
    a.call("Send", (5000, 5600), (1, 7, 64));
    b.call("Recv", (1000, 6000), (0, 7, 128));
    a.call("Send", (7000, 7100), (1, 7, 64));
    b.call("Recv", (8000, 8100), (0, 7, 128));
    let timeline = open(&profile(vec![a, b]));
    assert_eq!((timeline.matches.messages, timeline.matches.unmatched), (2, 0));
    assert_eq!(waits_of(&timeline, 1, "Recv").ns(), [4000, 0, 0, 0]);
    assert_eq!(waits_of(&timeline, 0, "Send").ns(), [0; 4]);
    let waits = timeline.waits();
    assert_eq!(waits.ranks[1].for_whom.keys().collect::<Vec<_>>(), [&0]);
    assert!((waits.caused()[0] - 4e-6).abs() < 1e-12);
    assert!((waits.ranks[1].total().transfer() - 1.1e-6).abs() < 1e-12);
}

#[test]
fn a_send_waits_for_a_late_receiver_only_if_it_is_held() {
    let (mut a, mut b) = (Lines::default(), Lines::default());
    a.call("Send", (1000, 5200), (1, 7, 1 << 20));
    b.call("Recv", (5000, 5300), (0, 7, 1 << 20));
    a.call("Send", (6000, 6100), (1, 8, 8));
    b.call("Recv", (9000, 9100), (0, 8, 8));
    let timeline = open(&profile(vec![a, b]));
    assert_eq!(waits_of(&timeline, 0, "Send").ns(), [0, 4000, 0, 0]);
    assert_eq!(waits_of(&timeline, 1, "Recv").ns(), [0; 4]);
}

/// The send begins before the receive, then its rank computes: the data comes when the rank is back in MPI.
#[test]
fn a_receive_waits_for_a_partner_that_is_away_if_it_is_not_over_before() {
    let (mut a, mut b) = (Lines::default(), Lines::default());
    let large = a.call("Isend", (1_000, 1_100), (1, 7, 1 << 20));
    b.call("Recv", (4_000, 21_500), (0, 7, 1 << 20));
    a.complete("Wait", (21_000, 22_000), &[large]);
    let small = a.call("Isend", (30_000, 30_100), (1, 8, 8));
    b.call("Recv", (31_000, 31_200), (0, 8, 8));
    a.complete("Wait", (50_000, 50_100), &[small]);
    let timeline = open(&profile(vec![a, b]));
    let waits = waits_of(&timeline, 1, "Recv");
    assert_eq!(((waits.away * 1e9).round() as i64, waits.ns()), (17_000, [0; 4]));
    assert!((timeline.waits().caused()[0] - 17e-6).abs() < 1e-12);
    assert_eq!(waits_of(&timeline, 0, "Wait").away, 0.0);
}

const MS: u64 = 1_000_000;
/// When samples end.
const END: u64 = 500 * MS;

/// Rank 0 comes first, and is stopped for half of the time until rank 1 comes.
#[test]
fn a_rank_that_is_stopped_waits_for_nobody_meanwhile() {
    let (mut a, mut b) = (Lines::default(), Lines::default());
    a.collective("Allreduce", (0, 100 * MS), NONE, 8);
    b.collective("Allreduce", (80 * MS, 100 * MS), NONE, 8);
    let folder = profile(vec![a, b]);
    sample_stops(folder.path(), 2, &[(10 * MS, 50 * MS)], END);
    let waits = open(&folder).waits();
    let total = waits.ranks[0].total();
    assert!((total.wait() - 0.04).abs() < 1e-3 && (total.off_core - 0.04).abs() < 1e-3, "{total:?}");
    assert!((waits.caused()[1] - 0.04).abs() < 1e-3, "{:?}", waits.caused());
    assert!((total.seconds - total.wait() - total.off_core - total.transfer()).abs() < 1e-9, "{total:?}");
}

/// Rank 0 is stopped in a collective operation that both have entered, and in MPI_Wait for a message that rank 1 waits for.
#[test]
fn a_rank_that_is_stopped_inside_mpi_holds_up_the_others_and_does_not_transfer() {
    let (mut a, mut b) = (Lines::default(), Lines::default());
    for lines in [&mut a, &mut b] {
        lines.collective("Allreduce", (0, 100 * MS), NONE, 8);
    }
    let sent = a.call("Isend", (200 * MS, 201 * MS), (1, 7, 1 << 20));
    a.complete("Wait", (201 * MS, 300 * MS), &[sent]);
    b.call("Recv", (205 * MS, 300 * MS), (0, 7, 1 << 20));
    let folder = profile(vec![a, b]);
    let before = open(&folder);
    assert!(before.ranks.iter().all(|rank| rank.off_core.is_none()));
    let transfer = |timeline: &Timeline, rank, name| (waits_of(timeline, rank, name).transfer() * 1e3).round();
    assert_eq!(transfer(&before, 1, "Recv"), 95.0, "without samples nothing is known of it");

    sample_stops(folder.path(), 2, &[(10 * MS, 90 * MS), (210 * MS, 290 * MS)], END);
    let timeline = open(&folder);
    for name in ["Allreduce", "Wait"] {
        let own = waits_of(&timeline, 0, name);
        assert_eq!(((own.off_core * 1e3).round(), own.kept_off), (80.0, 0.0), "{name}");
    }
    for name in ["Allreduce", "Recv"] {
        let other = waits_of(&timeline, 1, name);
        assert_eq!(((other.kept_off * 1e3).round(), other.off_core), (80.0, 0.0), "{name}");
    }
    let left = [(0, "Allreduce"), (0, "Wait"), (1, "Allreduce"), (1, "Recv")];
    assert_eq!(left.map(|(rank, name)| transfer(&timeline, rank, name)), [20.0, 15.0, 20.0, 15.0]);
    let waits = timeline.waits();
    // Rank 0 came to its message 4 ms before rank 1.
    let caused = waits.caused().iter().map(|seconds| (seconds * 1e3).round()).collect::<Vec<_>>();
    assert_eq!(caused, [160.0, 4.0]);
}

/// A partner that is stopped outside of MPI could not have come back, so its absence does not count.
#[test]
fn a_stop_outside_of_mpi_is_no_absence() {
    let (mut a, mut b) = (Lines::default(), Lines::default());
    let sent = a.call("Isend", (0, MS), (1, 7, 1 << 20));
    a.complete("Wait", (101 * MS, 102 * MS), &[sent]);
    b.call("Recv", (MS, 103 * MS), (0, 7, 1 << 20));
    let folder = profile(vec![a, b]);
    sample_stops(folder.path(), 2, &[(20 * MS, 90 * MS)], END);
    let waits = waits_of(&open(&folder), 1, "Recv");
    assert_eq!(((waits.away * 1e3).round(), (waits.kept_off * 1e3).round()), (30.0, 70.0));
}

#[test]
fn a_message_that_is_there_needs_nothing_of_a_sender_that_is_stopped() {
    let (mut a, mut b) = (Lines::default(), Lines::default());
    a.call("Send", (0, MS), (1, 7, 1 << 16));
    b.call("Recv", (40 * MS, 41 * MS), (0, 7, 1 << 16));
    let folder = profile(vec![a, b]);
    sample_stops(folder.path(), 2, &[(20 * MS, 90 * MS)], END);
    let waits = waits_of(&open(&folder), 1, "Recv");
    assert_eq!((waits.wait(), (waits.transfer() * 1e3).round()), (0.0, 1.0));
}

#[test]
fn a_collective_waits_as_its_kind_does() {
    let mut ranks: Vec<Lines> = (0..3).map(|_| Lines::default()).collect();
    for (rank, lines) in ranks.iter_mut().enumerate() {
        let late = 1000 * rank as u64;
        lines.collective("Barrier", (late, 2100), NONE, 0);
        lines.collective("Bcast", (10_000 + late, 13_000), 1, 8);
        lines.collective("Reduce", (20_000 + late, 23_000), 0, 8);
        lines.collective("Scan", (32_000 - late, 33_000), NONE, 8);
    }
    let timeline = open(&profile(ranks));
    let of = |name| [0, 1, 2].map(|rank| waits_of(&timeline, rank, name).ns()[2]);
    assert_eq!(of("Barrier"), [2000, 1000, 0]);
    assert_eq!(of("Bcast"), [1000, 0, 0]);
    assert_eq!(of("Reduce"), [2000, 0, 0]);
    assert_eq!(of("Scan"), [0, 1000, 2000]);
    let group = timeline.waits().ranks[0].functions.keys().map(|key| key.1).collect::<Vec<_>>();
    assert_eq!(group, [3; 4]);
}

#[test]
fn completions_find_what_was_begun_also_from_anywhere_and_restarted() {
    let (mut a, mut b, mut c) = (Lines::default(), Lines::default(), Lines::default());
    // Two receives from any source and one from rank 2 with the same tag match in the order of posting.
    let any = b.call("Irecv", (100, 150), (peer::ANY, tag::ANY, 64));
    let named_one = b.call("Irecv", (200, 250), (2, 5, 64));
    let other = b.call("Irecv", (300, 350), (peer::ANY, 5, 64));
    a.call("Isend", (2000, 2100), (1, 9, 16));
    c.call("Send", (3000, 3100), (1, 5, 24));
    c.call("Send", (4000, 4100), (1, 5, 32));
    b.complete("Waitall", (1000, 4200), &[any, named_one, other]);
    b.got(0, 2, 5, 24);
    b.got(2, 0, 9, 16);
    // A persistent receive: the first start completes late, the second at once.
    let template = b.call("Recv_init", (5000, 5010), (0, 1, 8));
    for (start, sent, until) in [(5100, 6000, 6100), (7000, 6900, 7100)] {
        b.complete("Start", (start, start + 10), &[template]);
        b.complete("Wait", (start + 50, until), &[b.begun - 1]);
        a.call("Send", (sent, sent + 20), (1, 1, 8));
    }
    let timeline = open(&profile(vec![a, b, c]));
    assert_eq!((timeline.matches.messages, timeline.matches.unmatched), (5, 0));
    assert_eq!(waits_of(&timeline, 1, "Wait").ns(), [850, 0, 0, 0]);
    let mut walk = timeline.walk(1);
    let posted: Vec<_> = (0..3).map(|_| walk.step().unwrap().begun[0]).map(|one| (one.peer, one.tag)).collect();
    assert_eq!(posted, [(2, 5), (2, 5), (0, 9)]);
    let waitall = walk.step().unwrap();
    assert_eq!(waitall.completed.iter().map(|one| one.bytes).collect::<Vec<_>>(), [24, 64, 16]);
}

#[test]
fn both_halves_of_an_exchange_are_seen() {
    let (mut a, mut b) = (Lines::default(), Lines::default());
    a.exchange((1000, 4000), (1, 3, 100), (1, 3, 100));
    b.exchange((3000, 4100), (0, 3, 100), (0, 3, 100));
    b.exchange((5000, 5100), (peer::NULL, 3, 100), (peer::NULL, 3, 100));
    let timeline = open(&profile(vec![a, b]));
    assert_eq!(timeline.matches.messages, 2);
    assert_eq!(waits_of(&timeline, 0, "Sendrecv").ns().iter().sum::<i64>(), 2000);
    assert_eq!(waits_of(&timeline, 1, "Sendrecv").ns(), [0; 4]);
}

#[test]
fn what_is_not_in_the_timeline_is_undivided_and_said() {
    let (mut a, mut b) = (Lines::default(), Lines::default());
    a.call("Recv", (1000, 2000), (1, 3, 8));
    a.collective("Barrier", (3000, 5000), NONE, 0);
    a.call("Iprobe", (6000, 6500), (1, 3, 0));
    b.call("Send", (0, 10), (0, 4, 8));
    let folder = profile(vec![a, b]);
    let timeline = open(&folder);
    assert_eq!(timeline.matches.unmatched, 2);
    assert_eq!(waits_of(&timeline, 0, "Recv").ns(), [0, 0, 0, 1000]);
    assert_eq!(waits_of(&timeline, 0, "Barrier").ns(), [0, 0, 0, 2000]);
    assert_eq!(waits_of(&timeline, 0, "Iprobe").ns(), [0, 0, 0, 500]);
    let trace = record::folder::trace_file(folder.path(), "here", 101, 0);
    std::fs::remove_file(trace).unwrap();
    let timeline = open(&folder);
    assert!(timeline.notes[0].contains("no timeline of rank 1"), "{:?}", timeline.notes);
}

#[test]
fn communicators_are_the_same_by_members_and_order() {
    let folder = tempfile::tempdir().unwrap();
    let world = vec![0, 1];
    for rank in 0..2u32 {
        let mut lines = Lines::default();
        // The two ranks number their communicators differently.
        let (first, second) = if rank == 0 { (3, 4) } else { (2, 9) };
        for (communicator, time) in [(first, 1000), (second, 2000)] {
            lines.collective("Barrier", (time + 100 * u64::from(rank), time + 300), NONE, 0);
            lines.calls.last_mut().unwrap().0.communicator = communicator;
        }
        let communicators = [(0, world.clone()), (first, vec![1, 0]), (second, vec![1, 0])];
        write(folder.path(), 2, &Written { rank, threads: vec![lines] }, &communicators);
    }
    let timeline = open(&folder);
    assert_eq!(timeline.communicators.len(), 3);
    assert_eq!(waits_of(&timeline, 0, "Barrier").ns(), [0, 0, 200, 0]);
}

/// Coupled programs: one rank in one group, two in the other.
#[test]
fn messages_between_the_groups_of_an_intercommunicator_find_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let sides = vec![0, record::layout::BETWEEN_SIDES, 1, 2];
    for rank in 0..3u32 {
        let mut lines = Lines::default();
        match rank {
            0 => {
                lines.call("Send", (1000, 1100), (1, 5, 8));
                lines.call("Send", (1200, 1300), (2, 5, 8));
            }
            _ => _ = lines.call("Recv", (500, 1400), (0, 5, 8)),
        }
        // A collective operation between groups is not taken for one within a group.
        lines.collective("Barrier", (2000, 2100), NONE, 0);
        let number = 2 + rank;
        lines.calls.iter_mut().for_each(|(call, ..)| call.communicator = number);
        let own = if rank == 0 { vec![0] } else { vec![1, 2] };
        let communicators = [(9, own), (number, sides.clone())];
        write(folder.path(), 3, &Written { rank, threads: vec![lines] }, &communicators);
    }
    let timeline = open(&folder);
    assert_eq!((timeline.matches.messages, timeline.matches.unmatched, timeline.matches.operations), (2, 0, 0));
    assert_eq!(waits_of(&timeline, 1, "Recv").ns(), [500, 0, 0, 0]);
    assert_eq!(waits_of(&timeline, 2, "Recv").ns(), [700, 0, 0, 0]);
}

#[test]
fn threads_of_a_rank_are_one_sequence() {
    let folder = tempfile::tempdir().unwrap();
    let members = [(0, vec![0, 1])];
    let (mut one, mut two) = (Lines::default(), Lines { thread: 1, ..Lines::default() });
    let posted = one.call("Irecv", (1000, 1100), (1, 1, 8));
    two.calls.push((
        Call::new(named("Wait").unwrap().id, STARTED + 1500, STARTED + 3000),
        vec![Reference { thread: 0, ordinal: posted }],
        Vec::new(),
    ));
    one.call("Send", (2000, 2100), (1, 2, 8));
    write(folder.path(), 2, &Written { rank: 0, threads: vec![one, two] }, &members);
    let mut other = Lines::default();
    other.call("Send", (2900, 2950), (0, 1, 8));
    other.call("Recv", (2960, 2970), (0, 2, 8));
    write(folder.path(), 2, &Written { rank: 1, threads: vec![other] }, &members);
    let timeline = open(&folder);
    assert_eq!(waits_of(&timeline, 0, "Wait").ns(), [1400, 0, 0, 0]);
    let mut walk = timeline.walk(0);
    let mut threads = Vec::new();
    while let Some(step) = walk.step() {
        threads.push(step.thread);
    }
    assert_eq!(threads, [0, 1, 0]);
}

#[test]
fn calls_know_their_sites_or_none() {
    let site = |name: &str, number, address| {
        let function = named(name).unwrap().id.0;
        Site { address, function, number, calls: 1, ..Site::default() }
    };
    // The second rank met the places in another order, with other numbers.
    let rank = |sites: Vec<Site>, numbers: [u16; 4]| {
        let mut lines = Lines { sites, ..Lines::default() };
        for (at, number) in numbers.into_iter().enumerate() {
            lines.call("Send", (1000 * at as u64, 1000 * at as u64 + 100), (peer::NULL, 7, 8));
            lines.at(number);
        }
        lines
    };
    let one = rank(vec![site("Send", 1, 0x10), site("Send", 2, 0x20), site("Recv", 3, 0x30)], [1, 2, 1, 0]);
    // Sites of another function, or in no table, are not known.
    let other = rank(vec![site("Send", 2, 0x20), site("Recv", 3, 0x30), site("Send", 5, 0x10)], [5, 2, 3, 9]);
    let timeline = open(&profile(vec![one, other]));
    let sites = |place| {
        let (mut all, mut walk) = (Vec::new(), timeline.walk(place));
        while let Some(step) = walk.step() {
            all.push(step.site);
        }
        all
    };
    let [first, second, ..] = sites(0)[..] else { panic!("two calls") };
    assert!(first.is_some() && second.is_some() && first != second);
    assert_eq!(sites(0), [first, second, first, None]);
    assert_eq!(sites(1), [first, second, None, None]);
}
