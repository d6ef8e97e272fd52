//! The checks of a multicast channel.

use std::sync::atomic::{AtomicBool, Ordering};

use super::super::{Channel, Counted, Delivery, Written};
use super::message::{
    CONCURRENT, check_sums, comes, expect, is_empty, length, look, put, put_now, receive_all, send_all,
};
use super::{Endpoint, SIZE};

pub(super) fn each_reader_gets_each((mut writer, mut readers): (Endpoint, Vec<Endpoint>)) {
    for number in 0..200 {
        put_now(&mut *writer, number, length(number));
        for reader in &mut readers {
            expect(&mut **reader, number, length(number));
        }
    }
    assert_eq!(writer.counted(), Counted { written: 200, ..Counted::default() });
    for reader in &mut readers {
        is_empty(&mut **reader);
        assert_eq!(reader.counted(), Counted { read: 200, ..Counted::default() });
    }
}

/// The creator writes, the attached ends read.
pub(super) fn roles((mut writer, mut readers): (Endpoint, Vec<Endpoint>)) {
    put_now(&mut *writer, 0, 8);
    is_empty(&mut *writer);
    for reader in &mut readers {
        let written = reader.write_with(8, &mut |_| panic!("`fill` is called at an end that may not write"));
        assert!(written.is_err(), "a reader of a multicast channel writes");
        expect(&mut **reader, 0, 8);
    }
    let refused = writer.write_with(SIZE + 1, &mut |_| panic!("`fill` is called for a message that is too long"));
    assert!(refused.is_err(), "{} B are taken by buffers of {SIZE} B", SIZE + 1);
}

pub(super) fn readers_in_threads((mut writer, readers): (Endpoint, Vec<Endpoint>), delivery: Delivery) {
    let done = AtomicBool::new(false);
    let is_done = || done.load(Ordering::Acquire);
    std::thread::scope(|scope| {
        let receive = |mut reader: Endpoint| {
            scope.spawn(move || {
                let read = receive_all(&mut *reader, delivery, is_done);
                assert_eq!(reader.counted().read, read);
                reader.counted()
            })
        };
        let receivers: Vec<_> = readers.into_iter().map(receive).collect();
        send_all(&mut *writer);
        done.store(true, Ordering::Release);
        for receiver in receivers {
            let counted = receiver.join().expect("a reader");
            match delivery {
                Delivery::Reliable => assert_eq!((counted.read, counted.dropped), (CONCURRENT, 0)),
                Delivery::Unreliable => assert!(counted.read + counted.dropped <= CONCURRENT, "{counted:?}"),
            }
        }
        assert_eq!(writer.counted().written + writer.counted().dropped, CONCURRENT);
    });
}

fn fill_up(writer: &mut dyn Channel, sent: &mut u64, most: u64) -> u64 {
    let before = *sent;
    while put(writer, *sent, length(*sent)) == Written::Taken {
        *sent += 1;
        assert!(*sent - before <= most, "{} messages are in flight, {most} at most may be", *sent - before);
    }
    *sent - before
}

pub(super) fn the_slowest_reader_decides((mut writer, mut readers): (Endpoint, Vec<Endpoint>), most: u64) {
    let mut sent = 0;
    assert!(fill_up(&mut *writer, &mut sent, most) > 0);
    let (slow, fast) = readers.split_last_mut().expect("three readers");
    for reader in fast.iter_mut() {
        (0..sent).for_each(|number| expect(&mut **reader, number, length(number)));
    }
    assert_eq!(put(&mut *writer, sent, 8), Written::Full, "a reader has read nothing, and room is found");
    (0..sent).for_each(|number| expect(&mut **slow, number, length(number)));
    assert!(comes(|| put(&mut *writer, sent, 8) == Written::Taken), "every reader has read, and there is no room");
    for reader in &mut readers {
        expect(&mut **reader, sent, 8);
    }
}

pub(super) fn a_reader_may_be_lapped((mut writer, mut readers): (Endpoint, Vec<Endpoint>), most: u64) {
    let attempts = 3 * most + 5;
    let (behind, ahead) = readers.split_first_mut().expect("two readers");
    for number in 0..attempts {
        let written = put(&mut *writer, number, length(number));
        assert!(matches!(written, Written::Taken | Written::Dropped), "an unreliable channel says {written:?}");
        if written == Written::Taken {
            expect(&mut *ahead[0], number, length(number));
        }
    }
    let mut next = 0;
    while let Some(number) = look(&mut **behind) {
        assert!(number >= next, "message {number} comes after {}", next - 1);
        next = number + 1;
    }
    check_sums(attempts, writer.counted(), behind.counted(), true);
    check_sums(attempts, writer.counted(), ahead[0].counted(), true);
    assert!(behind.counted().read > 0, "a reader that was lapped gets nothing at all");
    assert!(writer.counted().dropped + behind.counted().dropped >= attempts - most, "more arrives than fits");
}

/// A reader that leaves blocks nobody; without readers the writer is told.
pub(super) fn readers_leave((mut writer, mut readers): (Endpoint, Vec<Endpoint>), most: u64) {
    let stays = readers.pop();
    let mut stays = stays.expect("two readers");
    drop(readers);
    for number in 0..3 * most {
        assert!(
            comes(|| put(&mut *writer, number, length(number)) == Written::Taken),
            "message {number}: a reader that left holds the writer up"
        );
        expect(&mut *stays, number, length(number));
    }
    assert!(!writer.is_abandoned(), "a reader is left");
    drop(stays);
    assert!(comes(|| writer.is_abandoned()), "all readers left, and the writer is not told");
    assert_eq!(put(&mut *writer, 0, 8), Written::Gone);
}

pub(super) fn the_writer_leaves((mut writer, mut readers): (Endpoint, Vec<Endpoint>)) {
    (0..3).for_each(|number| put_now(&mut *writer, number, length(number)));
    drop(writer);
    for reader in &mut readers {
        (0..3).for_each(|number| expect(&mut **reader, number, length(number)));
        assert!(comes(|| reader.is_abandoned()), "the writer left, and a reader is not told");
        is_empty(&mut **reader);
    }
}
