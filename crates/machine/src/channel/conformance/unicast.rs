//! The checks of a unicast channel.

use std::time::{Duration, Instant};

use crate::Nanoseconds;

use super::super::{Channel, Counted, Delivery, Specification, Synchronization, Written};
use super::message::{
    CONCURRENT, check_sums, comes, expect, is_empty, length, look, put, put_now, put_soon, receive_all, send_all, take,
};
use super::{Endpoint, SIZE, TIMEOUT};

pub(super) fn states_what_was_asked((first, second): &mut (Endpoint, Endpoint), specification: &Specification) {
    for end in [first, second] {
        assert_eq!(end.specification(), specification);
        assert_eq!(end.counted(), Counted::default());
        assert!(!end.is_abandoned(), "both ends are there");
        is_empty(&mut **end);
    }
}

/// Messages of every size class arrive whole, empty ones too, and are counted.
pub(super) fn sizes((writer, reader): &mut (Endpoint, Endpoint)) {
    let sizes = [0, 1, 2, 7, 8, 15, 16, 17, 31, 32, 47, 48, 49, 55, 56, 57, 63, 64, 65, 128, 500, SIZE - 1, SIZE];
    let mut number = 0;
    for length in sizes {
        // Each length goes round the buffers more than once.
        for _ in 0..20 {
            put_now(&mut **writer, number, length);
            expect(&mut **reader, number, length);
            number += 1;
        }
    }
    put_now_copied(&mut **writer, b"copied in");
    take(&mut **reader, |message| assert_eq!(message, b"copied in"));
    assert_eq!(writer.counted(), Counted { written: number + 1, ..Counted::default() });
    assert_eq!(reader.counted(), Counted { read: number + 1, ..Counted::default() });
    is_empty(&mut **reader);
}

fn put_now_copied(channel: &mut dyn Channel, message: &[u8]) {
    assert_eq!(channel.write(message).expect("writing"), Written::Taken);
}

pub(super) fn over_size((writer, reader): &mut (Endpoint, Endpoint)) {
    for length in [SIZE + 1, 1 << 20, usize::MAX] {
        let refused = writer.write_with(length, &mut |_| panic!("`fill` is called for a message that is too long"));
        assert!(refused.is_err(), "{length} B are taken by buffers of {SIZE} B");
    }
    assert_eq!(writer.counted().written, 0);
    is_empty(&mut **reader);
    put_now(&mut **writer, 0, SIZE);
    expect(&mut **reader, 0, SIZE);
}

/// A poll is right and takes nothing.
pub(super) fn polls((writer, reader): &mut (Endpoint, Endpoint)) {
    for number in 0..40 {
        is_empty(&mut **reader);
        put_now(&mut **writer, number, 8);
        assert!(comes(|| reader.poll().expect("polling")), "a message was written, a poll does not say so");
        assert!(reader.poll().expect("polling"), "a poll takes nothing");
        expect(&mut **reader, number, 8);
    }
}

pub(super) fn waits((writer, reader): &mut (Endpoint, Endpoint), synchronization: Synchronization) {
    let short = Nanoseconds(1_000_000);
    if synchronization == Synchronization::Poll {
        assert!(reader.wait(short).is_err(), "a polled channel sleeps");
        return;
    }
    assert!(!reader.wait(short).expect("waiting"), "a wait ends without a message, by its limit");
    assert!(!reader.wait(Nanoseconds(0)).expect("waiting"), "a wait of no time ends");
    put_now(&mut **writer, 0, 8);
    let limit = Nanoseconds(TIMEOUT.as_nanos() as u64);
    assert!(reader.wait(limit).expect("waiting"), "a wait ends at once where a message is there");
    expect(&mut **reader, 0, 8);
    // Each message may find the reader asleep, about to sleep or awake.
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for number in 1..300 {
                match number % 50 {
                    0 => std::thread::sleep(Duration::from_millis(2)),
                    n if n % 2 == 0 => (0..n * 40).for_each(|_| std::hint::spin_loop()),
                    _ => {}
                }
                assert!(comes(|| put(&mut **writer, number, 8) == Written::Taken), "no room for message {number}");
            }
        });
        let mut next = 1;
        while next < 300 {
            let said = reader.wait(limit).expect("waiting");
            assert!(said, "a sleeper is not woken by message {next}");
            while let Some(number) = look(&mut **reader) {
                assert!(number >= next, "message {number} comes after {}", next - 1);
                next = number + 1;
            }
        }
    });
}

/// Bursts of changing length, so that the buffers are empty, full and in between.
pub(super) fn mixed_sizes_in_order((writer, reader): &mut (Endpoint, Endpoint)) {
    let (mut sent, mut came) = (0u64, 0u64);
    while came < 500 {
        for _ in 0..1 + sent % 11 {
            if sent < 500 && sent - came < 8 {
                put_soon(&mut **writer, sent, length(sent));
                sent += 1;
            }
        }
        for _ in 0..1 + came % 7 {
            if came < sent {
                expect(&mut **reader, came, length(came));
                came += 1;
            }
        }
    }
    is_empty(&mut **reader);
}

/// A question and its answer, again and again: neither direction disturbs the other.
pub(super) fn both_directions((one, other): &mut (Endpoint, Endpoint)) {
    for number in 0..200 {
        put_now(&mut **one, number, length(number));
        put_now(&mut **other, number + 1000, length(number + 5));
        expect(&mut **other, number, length(number));
        expect(&mut **one, number + 1000, length(number + 5));
    }
    for end in [one, other] {
        assert_eq!(end.counted(), Counted { written: 200, read: 200, ..Counted::default() });
    }
}

pub(super) fn full_and_recovery((writer, reader): &mut (Endpoint, Endpoint), most: u64) {
    let (mut sent, mut came) = (0, 0);
    let mut refused = 0;
    for round in 0..3 {
        let mut taken = 0;
        loop {
            match put(&mut **writer, sent, length(sent)) {
                Written::Taken => (taken, sent) = (taken + 1, sent + 1),
                Written::Full => break,
                other => panic!("a reliable channel whose reader lives says {other:?}"),
            }
            assert!(sent - came <= most, "{} messages are in flight, {most} at most may be", sent - came);
        }
        assert!(taken > 0, "round {round}: everything was read, and the channel is full");
        assert_eq!(put(&mut **writer, sent, 8), Written::Full, "a full channel that nobody reads stays full");
        refused += 2;
        assert_eq!(writer.counted(), Counted { written: sent, full: refused, ..Counted::default() });
        while came < sent {
            expect(&mut **reader, came, length(came));
            came += 1;
        }
        // The writer may learn of room late.
        assert!(
            comes(|| {
                let written = put(&mut **writer, sent, 8);
                refused += u64::from(written == Written::Full);
                written == Written::Taken
            }),
            "everything was read, and the channel stays full"
        );
        expect(&mut **reader, sent, 8);
        (sent, came) = (sent + 1, came + 1);
    }
    is_empty(&mut **reader);
    assert_eq!(reader.counted().read, sent);
}

/// Whether everything that can be read was read; where not each loss is counted: whether nothing came for `quiet`.
fn is_drained(writer: &dyn Channel, reader: &dyn Channel, exact: bool, quiet: Duration) -> bool {
    let (written, counted) = (writer.counted().written, reader.counted());
    written == counted.read + counted.dropped || (!exact && quiet > Duration::from_millis(200))
}

pub(super) fn drops((writer, reader): &mut (Endpoint, Endpoint), most: u64, exact: bool) {
    let attempts = 2 * most + 10;
    let mut next = 0;
    for round in 0..3 {
        for number in round * attempts..(round + 1) * attempts {
            let written = put(&mut **writer, number, length(number));
            assert!(matches!(written, Written::Taken | Written::Dropped), "an unreliable channel says {written:?}");
        }
        let mut heard = Instant::now();
        let drained = comes(|| {
            if let Some(number) = look(&mut **reader) {
                assert!(number >= next, "message {number} comes after {}", next - 1);
                next = number + 1;
                heard = Instant::now();
            }
            is_drained(&**writer, &**reader, exact, heard.elapsed())
        });
        assert!(drained, "{:?} were written, {:?} arrive", writer.counted(), reader.counted());
        check_sums((round + 1) * attempts, writer.counted(), reader.counted(), exact);
        assert!(reader.counted().read > round, "round {round}: nothing arrives at all");
    }
    if exact {
        let lost = writer.counted().dropped + reader.counted().dropped;
        assert!(lost >= 3 * (attempts - most), "{lost} of {} are lost, only {most} fit", 3 * attempts);
    }
}

/// Messages written before one end left can be read; then the channel is empty, abandoned, and refuses.
pub(super) fn abandoned((mut writer, mut reader): (Endpoint, Endpoint)) {
    for number in 0..5 {
        put_now(&mut *writer, number, length(number));
    }
    assert!(!reader.is_abandoned(), "the writer lives");
    drop(writer);
    for number in 0..5 {
        expect(&mut *reader, number, length(number));
    }
    assert!(comes(|| reader.is_abandoned()), "the other end left, and this one is not told");
    is_empty(&mut *reader);
    if reader.specification().synchronization == Synchronization::Blocking {
        let limit = Nanoseconds(TIMEOUT.as_nanos() as u64);
        assert!(!reader.wait(limit).expect("waiting"), "nothing will come any more");
    }
    if let Ok(written) = reader.write_with(8, &mut |into| into.fill(1)) {
        assert_eq!(written, Written::Gone, "a write to nobody");
    }
    assert_eq!(reader.counted().read, 5);
}

pub(super) fn a_sleeper_learns_of_the_end((writer, mut reader): (Endpoint, Endpoint)) {
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(move || {
            let said = reader.wait(Nanoseconds(TIMEOUT.as_nanos() as u64)).expect("waiting");
            (said, reader.is_abandoned())
        });
        std::thread::sleep(Duration::from_millis(5));
        drop(writer);
        assert_eq!(sleeper.join().expect("the sleeper"), (false, true), "(would deliver, is abandoned)");
    });
}

pub(super) fn two_threads((mut writer, mut reader): (Endpoint, Endpoint), delivery: Delivery, exact: bool) {
    let (counted, reader_counted, read) = std::thread::scope(|scope| {
        let sender = scope.spawn(move || {
            send_all(&mut *writer);
            writer
        });
        let read = receive_all(&mut *reader, delivery, || sender.is_finished());
        // The writer lives until here, so that nothing on its way is lost with it.
        let writer = sender.join().expect("the writer");
        (writer.counted(), reader.counted(), read)
    });
    assert_eq!(reader_counted.read, read);
    assert!(read > 0, "nothing arrives at all");
    match delivery {
        Delivery::Reliable => assert_eq!((counted.written, read, counted.dropped), (CONCURRENT, CONCURRENT, 0)),
        Delivery::Unreliable => check_sums(CONCURRENT, counted, reader_counted, exact),
    }
}
