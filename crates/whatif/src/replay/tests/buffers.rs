//! Finite buffers in closed form.

use machine::Bytes;

use super::*;

fn of(bytes: u64) -> Buffer {
    Buffer::Of(Bytes(bytes))
}

/// The latency of `PRICE`.
const LATENCY: i64 = 400_007 - 70_001 - 90_003;

/// Two messages fit: a sender of eight goes on by two whenever its receiver, which computes 10 us before each receive, is in a
/// call.
#[test]
fn a_producer_waits_for_its_slow_consumer() {
    let (messages, us) = (8, 10);
    let mut builder = Builder::new(vec![0, 0], messages);
    (0..messages).for_each(|message| builder.message(message, KIND));
    builder.lane(0, 0);
    (0..messages).for_each(|message| builder.call(call("Send", 0), &[Step::Send(message), Step::Sent(message)]));
    builder.lane(1, 0);
    builder.call(call("Barrier", 0), &[]);
    (0..messages).for_each(|message| {
        builder.call(call("Recv", us * 1000), &[Step::Post(message), Step::Received(message)]);
    });
    let graph = builder.finish();
    let last = |buffer, progress| {
        let conditions = Conditions { buffer, progress, ..conditions(&graph, PRICE) };
        let replayed = replay(&graph, &conditions, Residuals::None).unwrap();
        assert_eq!(critical(&graph, &conditions, &replayed).parts.total(), replayed.total);
        replayed.exits[messages as usize - 1]
    };
    let entry = |nth: i64| nth * us * 1_000_000 + (nth - 1) * 90_003;
    assert_eq!(last(of(16), Progress::Calls), entry(3) + LATENCY + 70_001);
    assert_eq!(last(of(17), Progress::Calls), entry(3) + LATENCY + 70_001);
    // One by one: each message waits for the entry that takes out the one before.
    assert_eq!(last(of(8), Progress::Calls), entry(7) + LATENCY);
    assert_eq!(last(of(64), Progress::Calls), 8 * 70_001);
    assert_eq!(last(Buffer::Unlimited, Progress::Calls), 8 * 70_001);
    // A core of its own takes them out at once: one message each round trip.
    assert_eq!(last(of(8), Progress::Always), 7 * (400_007 + LATENCY));
}

/// In quarters of the buffer, of which four are on their way at once: one window each round trip.
#[test]
fn a_message_larger_than_the_buffer_passes_as_it_is_taken_out() {
    let mut builder = Builder::new(vec![0, 0], 1);
    builder.message(0, Kind { bytes: 64, ..KIND });
    builder.kind(Kind { bytes: 1, ..KIND });
    for (name, step) in [("Send", [Step::Send(0), Step::Sent(0)]), ("Recv", [Step::Post(0), Step::Received(0)])] {
        builder.lane(u32::from(name == "Recv"), 0);
        builder.call(call(name, 0), &step);
    }
    let graph = builder.finish();
    let trip = |bytes: u64| Price { trip: 1_000_000 + 10_000 * bytes as i64, ..Price::default() };
    let prices = Prices { kinds: graph.kinds.iter().map(|kind| trip(kind.bytes)).collect() };
    let exits = |buffer| {
        let conditions = Conditions { buffer, prices: prices.clone(), ..conditions(&graph, PRICE) };
        let replayed = replay(&graph, &conditions, Residuals::None).unwrap();
        assert_eq!(critical(&graph, &conditions, &replayed).parts.total(), replayed.total);
        replayed.exits
    };
    let (latency, byte) = (1_010_000, 10_000 * 64 - 10_000);
    let parcel = byte / 16;
    let window = 2 * latency + parcel;
    assert_eq!(exits(of(16)), [3 * window + 3 * parcel, 3 * window + 4 * parcel + latency]);
    assert_eq!(exits(of(64)), [0, latency + byte]);
    assert_eq!(exits(Buffer::Unlimited), [0, latency + byte]);
}

/// Blocking sends to each other, each larger than the buffer: both are in calls, in which they take out what comes. Of a
/// rendezvous neither is posted.
#[test]
fn sends_head_to_head_pass_or_are_named() {
    let mut builder = Builder::new(vec![0, 0], 2);
    (0..2).for_each(|message| builder.message(message, Kind { bytes: 1 << 20, ..KIND }));
    for rank in 0..2 {
        builder.lane(rank, 0);
        builder.call(call("Send", 0), &[Step::Send(rank), Step::Sent(rank)]);
        builder.call(call("Recv", 0), &[Step::Post(1 - rank), Step::Received(1 - rank)]);
    }
    let graph = builder.finish();
    let run = |rendezvous| {
        let of = Conditions { buffer: of(4096), ..conditions(&graph, Price { rendezvous, ..PRICE }) };
        replay(&graph, &of, Residuals::None)
    };
    assert!(run(false).unwrap().total > 400_007);
    let fault = run(true).unwrap_err().to_string();
    assert!(fault.contains("rank 0 in MPI_Send, rank 1 in MPI_Send"), "{fault}");
}

/// Paper 002, figure 10. Partners exchange messages larger than the buffer, and rank 0 takes them in slowly. So rank 1 has its
/// message before its own has left, and computes; rank 0 waits for the rest meanwhile, and computes when it has it.
#[test]
fn partners_fall_out_of_phase_where_buffers_are_finite_and_messages_move_in_calls() {
    let (steps, compute) = (10u32, 10_000_000);
    let mut builder = Builder::new(vec![0, 1], 2 * steps);
    // One byte tells the kinds apart.
    let bytes = |message: u32| (1 << 18) + u64::from(message % 2);
    (0..2 * steps).for_each(|message| builder.message(message, Kind { bytes: bytes(message), ..KIND }));
    builder.kind(Kind { bytes: 1, ..KIND });
    for rank in 0..2 {
        builder.lane(rank, 0);
        builder.call(call("Barrier", 0), &[]);
        for step in 0..steps {
            let (own, theirs) = (2 * step + rank, 2 * step + 1 - rank);
            builder.call(call("Irecv", compute), &[Step::Post(theirs)]);
            if step > 0 {
                builder.call(call("Wait", 0), &[Step::Sent(own - 2)]);
            }
            builder.call(call("Isend", 0), &[Step::Send(own)]);
            builder.call(call("Wait", 0), &[Step::Received(theirs)]);
        }
    }
    let graph = builder.finish();
    let trip = |bytes: u64| {
        let byte = if bytes == (1 << 18) + 1 { 1600 } else { 400 };
        Price { trip: 10_000_000 + byte * bytes as i64, ..Price::default() }
    };
    let prices = Prices { kinds: graph.kinds.iter().map(|kind| trip(kind.bytes)).collect() };
    let run = |buffer, progress| {
        let conditions = Conditions { buffer, progress, prices: prices.clone(), ..conditions(&graph, PRICE) };
        replay(&graph, &conditions, Residuals::None).unwrap()
    };
    // The instants between which each computes before its steps.
    let computes = |replayed: &Replayed, rank: u32| -> Vec<(i64, i64)> {
        let lane = graph.lanes[rank as usize];
        let of = (lane.first + 1..lane.end).filter(|call| graph.calls.gap.get(*call) == compute);
        of.map(|call| replayed.exits[call as usize - 1]).map(|left| (left, left + compute * PS)).collect()
    };
    let together = |replayed: &Replayed| -> i64 {
        let (ours, theirs) = (computes(replayed, 0), computes(replayed, 1));
        let both = ours.iter().flat_map(|one| theirs.iter().map(|other| one.1.min(other.1) - one.0.max(other.0)));
        both.filter(|both| *both > 0).sum()
    };
    let all = i64::from(steps) * compute * PS;
    let out = run(of(1 << 16), Progress::Calls);
    // From the second step on nobody computes while the other does.
    assert!(together(&out) <= compute * PS && out.total > all * 19 / 10, "{} {}", together(&out), out.total);
    for (buffer, progress) in [(Buffer::Unlimited, Progress::Calls), (of(1 << 16), Progress::Always)] {
        let near = run(buffer, progress);
        assert!(together(&near) > all * 8 / 10 && near.total < all * 15 / 10, "{} {}", together(&near), near.total);
    }
}

/// The sender goes on once the library keeps the message, which stays there until the sender is in a call again.
#[test]
fn what_the_library_keeps_goes_on_in_calls() {
    let mut builder = Builder::new(vec![0, 0], 2);
    (0..2).for_each(|message| builder.message(message, Kind { bytes: 4096, ..KIND }));
    builder.lane(0, 0);
    builder.call(call("Send", 0), &[Step::Send(0), Step::Sent(0)]);
    builder.call(call("Send", 0), &[Step::Send(1), Step::Sent(1)]);
    builder.call(call("Wait", 1_000_000), &[]);
    builder.lane(1, 0);
    for message in 0..2 {
        builder.call(call("Recv", 0), &[Step::Post(message), Step::Received(message)]);
    }
    let graph = builder.finish();
    let exits = |buffer| {
        let conditions = Conditions { buffer, ..conditions(&graph, PRICE) };
        replay(&graph, &conditions, Residuals::None).unwrap().exits
    };
    let [behind, whole] =
        [4096, 8192].map(|socket| exits(Buffer::Behind { socket: Bytes(socket), library: Bytes(4096) }));
    // The sender leaves its second send at once either way; the second message of a small socket waits for its next call.
    assert!(behind[1] < 1_000_000 * PS && behind[1] <= whole[1] + PRICE.trip);
    assert!(behind[4] > 1_000_000 * PS && whole[4] < 1_000_000 * PS, "{behind:?} {whole:?}");
    assert_eq!(
        "64KiB+1MiB".parse::<Buffer>().unwrap(),
        Buffer::Behind { socket: Bytes(1 << 16), library: Bytes(1 << 20) }
    );
}
