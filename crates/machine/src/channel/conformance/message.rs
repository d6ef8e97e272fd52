//! Numbered messages, and how checks write, read and count them.

use std::time::{Duration, Instant};

use super::super::{Channel, Counted, Delivery, Written};
use super::{SIZE, TIMEOUT};

/// A byte that depends on the message's number and on its position.
fn content(number: u64, place: usize) -> u8 {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8 ^ (place as u8).wrapping_mul(31)
}

/// Lengths around every boundary that a channel may have, in an order that mixes them.
pub(super) fn length(number: u64) -> usize {
    [8, 48, 49, SIZE, 47, 56, 300, 57, 64, 9, SIZE - 1, 65, 16][(number % 13) as usize]
}

/// Writes message `number`, which starts with its number where it has room for it.
pub(super) fn put(channel: &mut dyn Channel, number: u64, length: usize) -> Written {
    let mut filled = 0;
    let written = channel.write_with(length, &mut |into| {
        assert_eq!(into.len(), length, "`fill` gets exactly the length asked for");
        into.iter_mut().enumerate().for_each(|(place, byte)| *byte = content(number, place));
        if let Some(head) = into.first_chunk_mut() {
            *head = number.to_le_bytes();
        }
        filled += 1;
    });
    let written = written.expect("a message of at most the buffers' size, from an end that may write");
    match written {
        Written::Taken => assert_eq!(filled, 1, "`fill` is called once for a message that is taken"),
        Written::Full => assert_eq!(filled, 0, "`fill` is not called where the channel is full"),
        Written::Dropped | Written::Gone | Written::Refused => assert!(filled < 2, "`fill` is called at most once"),
    }
    written
}

pub(super) fn put_now(channel: &mut dyn Channel, number: u64, length: usize) {
    assert_eq!(put(channel, number, length), Written::Taken, "message {number} of {length} B");
}

/// As `put`, but tries again: over a network the writer learns a little later that the reader has room.
pub(super) fn put_soon(channel: &mut dyn Channel, number: u64, length: usize) {
    let until = Instant::now() + TIMEOUT;
    while put(channel, number, length) != Written::Taken {
        assert!(Instant::now() < until, "no room for message {number} of {length} B");
        std::thread::yield_now();
    }
}

/// The number that a message of at least 8 bytes starts with; panics where anything in it was changed.
pub(super) fn number_of(message: &[u8]) -> u64 {
    let head = message.first_chunk().unwrap_or_else(|| panic!("a message of {} B, all have 8 or more", message.len()));
    let number = u64::from_le_bytes(*head);
    check_content(message, number);
    number
}

pub(super) fn check_content(message: &[u8], number: u64) {
    let begin = if message.len() < 8 { 0 } else { 8 };
    if let Some(place) = (begin..message.len()).find(|&place| message[place] != content(number, place)) {
        panic!("message {number} of {} B arrives changed at byte {place}", message.len());
    }
}

/// Repeats `attempt` until it succeeds; false where it does not within the patience.
pub(super) fn comes(mut attempt: impl FnMut() -> bool) -> bool {
    let mut until = None;
    for look in 0u32.. {
        if attempt() {
            return true;
        }
        if look > 100 {
            std::thread::yield_now();
        }
        if look % 64 == 63 && Instant::now() > *until.get_or_insert_with(|| Instant::now() + TIMEOUT) {
            return false;
        }
    }
    false
}

/// Reads one message, which must arrive.
pub(super) fn take<R>(channel: &mut dyn Channel, mut look: impl FnMut(&[u8]) -> R) -> R {
    let mut found = None;
    let came = comes(|| {
        let read = channel.read_with(&mut |message| {
            assert!(found.is_none(), "one read delivers one message");
            found = Some(look(message));
        });
        assert_eq!(read.expect("reading"), found.is_some(), "a read says whether it delivered");
        found.is_some()
    });
    assert!(came, "a message that was written does not arrive");
    found.expect("it came")
}

pub(super) fn expect(channel: &mut dyn Channel, number: u64, length: usize) {
    take(channel, |message| {
        assert_eq!(message.len(), length, "length of message {number}");
        if length >= 8 {
            assert_eq!(number_of(message), number, "messages arrive in order, each once");
        } else {
            check_content(message, number);
        }
    });
}

/// The next message, if there is one now.
pub(super) fn look(channel: &mut dyn Channel) -> Option<u64> {
    let mut number = None;
    let read = channel.read_with(&mut |message| number = Some(number_of(message))).expect("reading");
    assert_eq!(read, number.is_some(), "a read says whether it delivered");
    number
}

pub(super) fn is_empty(channel: &mut dyn Channel) {
    assert!(!channel.poll().expect("polling"), "nothing is there to read, a poll says otherwise");
    assert_eq!(look(channel), None, "nothing is there to read");
}

/// Checks the counters of an unreliable channel after everything was read.
pub(super) fn check_sums(attempts: u64, writer: Counted, reader: Counted, exact: bool) {
    assert_eq!(writer.full, 0, "an unreliable channel is never full");
    assert_eq!(writer.written + writer.dropped, attempts, "{writer:?}: each attempt was written or dropped");
    if exact {
        assert_eq!(
            reader.read + reader.dropped,
            writer.written,
            "{reader:?}: each written message was read or dropped"
        );
    } else {
        assert!(reader.read <= writer.written, "{reader:?} of {writer:?}: more is read than was written");
    }
}

pub(super) const CONCURRENT: u64 = 3_000;

/// Sends [`CONCURRENT`] messages, and repeats each that finds a full channel.
pub(super) fn send_all(writer: &mut dyn Channel) {
    for number in 0..CONCURRENT {
        loop {
            match put(writer, number, length(number)) {
                Written::Taken | Written::Dropped => break,
                Written::Full => std::thread::yield_now(),
                other => panic!("a channel whose readers live says {other:?}"),
            }
        }
        if number % 64 == 0 {
            std::thread::yield_now();
        }
    }
}

/// Reads to the last message, or, where some may be lost, until nothing comes after `done`; returns how many came.
pub(super) fn receive_all(reader: &mut dyn Channel, delivery: Delivery, mut done: impl FnMut() -> bool) -> u64 {
    let (mut next, mut read) = (0, 0);
    let (mut ended, mut heard) = (false, Instant::now());
    while next < CONCURRENT {
        let Some(number) = look(reader) else {
            // Checked before the next read, which then sees what was written before the end.
            if ended && (delivery == Delivery::Unreliable) && heard.elapsed() > Duration::from_millis(100) {
                break;
            }
            ended = done();
            assert!(heard.elapsed() < TIMEOUT, "message {next} does not arrive");
            std::thread::yield_now();
            continue;
        };
        match delivery {
            Delivery::Reliable => assert_eq!(number, next, "messages arrive in order, each once"),
            Delivery::Unreliable => assert!(number >= next, "message {number} comes after {}", next - 1),
        }
        next = number + 1;
        read += 1;
        heard = Instant::now();
    }
    read
}
