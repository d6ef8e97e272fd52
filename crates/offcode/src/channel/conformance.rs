//! The suite that every kind of channel passes (feature `conformance`).
//!
//! A check panics with what was broken. A kind of channel says of itself how it is made, and what it cannot do, by
//! implementing [`Bench`]; `all` then runs what applies.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use machine::{Bytes, Nanoseconds};

use super::{Buffers, Cast, Channel, Content, Counted, Delivery, Policy, Specification, Synchronization, Written};

pub type Endpoint = Box<dyn Channel>;

/// Makes channels of one kind.
pub trait Bench {
    /// The two ends of a unicast channel; the first is the creator's. `None` where this kind has no such channel: then
    /// its checks are left out.
    fn unicast(&mut self, specification: &Specification) -> Option<(Endpoint, Endpoint)>;

    /// The writer and the readers of a multicast channel. `None` where this kind has no such channel.
    fn multicast(&mut self, _specification: &Specification, _readers: usize) -> Option<(Endpoint, Vec<Endpoint>)> {
        None
    }

    /// Whether the second end of a unicast channel may write and the first read.
    fn both_ways(&self) -> bool {
        true
    }

    /// Most messages that a channel takes before any is read. More than the buffers where a kernel or a network adds
    /// its own.
    fn most_in_flight(&self, specification: &Specification) -> u64 {
        u64::from(specification.buffers.count)
    }

    /// Whether an end comes to know that the others went.
    fn notices_ends(&self) -> bool {
        true
    }

    /// Whether every message that an unreliable channel loses is counted at one of its ends.
    fn counts_each_drop(&self) -> bool {
        true
    }
}

/// How long an expected message or notice is looked for before a check fails; long, because hosts may be busy.
const PATIENCE: Duration = Duration::from_secs(20);

const SIZE: usize = 1024;

/// Runs every check, with both kinds of delivery and of synchronization where they matter.
///
/// # Panics
/// With what was broken, or where `bench` makes no channel at all.
pub fn all(bench: &mut impl Bench) {
    let mut made = false;
    for delivery in [Delivery::Reliable, Delivery::Unreliable] {
        for synchronization in [Synchronization::Poll, Synchronization::Blocking] {
            let specification = specification(Cast::Unicast, delivery, synchronization);
            if bench.unicast(&specification).is_some() {
                made = true;
                unicast(bench, &specification);
            }
            let specification = Specification { cast: Cast::Multicast, ..specification };
            if bench.multicast(&specification, 1).is_some() {
                made = true;
                multicast(bench, &specification);
            }
        }
    }
    assert!(made, "this kind makes none of the channels that the suite asks for");
}

/// What the suite asks for: 16 buffers of 1 KiB.
pub fn specification(cast: Cast, delivery: Delivery, synchronization: Synchronization) -> Specification {
    let buffers = Buffers { count: 16, size: Bytes(SIZE as u64), policy: Policy::ZeroCopy };
    Specification { cast, delivery, synchronization, content: Content::Messages, buffers }
}

/// The checks of one unicast specification.
pub fn unicast(bench: &mut impl Bench, specification: &Specification) {
    let (most, exact) = (bench.most_in_flight(specification), bench.counts_each_drop());
    let mut pair = || bench.unicast(specification).expect("made before");
    states_what_was_asked(&mut pair(), specification);
    sizes(&mut pair());
    over_size(&mut pair());
    polls(&mut pair());
    waits(&mut pair(), specification.synchronization);
    mixed_sizes_in_order(&mut pair());
    two_threads(pair(), specification.delivery, exact);
    match specification.delivery {
        Delivery::Reliable => full_and_recovery(&mut pair(), most),
        Delivery::Unreliable => drops(&mut pair(), most, exact),
    }
    if bench.both_ways() {
        let (first, second) = bench.unicast(specification).expect("made before");
        let mut turned = (second, first);
        sizes(&mut turned);
        mixed_sizes_in_order(&mut turned);
        both_directions(&mut bench.unicast(specification).expect("made before"));
    }
    if bench.notices_ends() {
        abandoned(bench.unicast(specification).expect("made before"));
        if bench.both_ways() {
            let (first, second) = bench.unicast(specification).expect("made before");
            abandoned((second, first));
        }
        if specification.synchronization == Synchronization::Blocking {
            a_sleeper_learns_of_the_end(bench.unicast(specification).expect("made before"));
        }
    }
}

/// The checks of one multicast specification.
pub fn multicast(bench: &mut impl Bench, specification: &Specification) {
    let most = bench.most_in_flight(specification);
    let mut star = |readers| bench.multicast(specification, readers).expect("made before");
    each_reader_gets_each(star(3));
    roles(star(2));
    readers_in_threads(star(3), specification.delivery);
    match specification.delivery {
        Delivery::Reliable => the_slowest_reader_decides(star(3), most),
        Delivery::Unreliable => a_reader_may_be_lapped(star(2), most),
    }
    if bench.notices_ends() {
        readers_leave(bench.multicast(specification, 2).expect("made before"), most);
        the_writer_leaves(bench.multicast(specification, 2).expect("made before"));
    }
}

/// A byte that depends on the message's number and the place in it.
fn content(number: u64, place: usize) -> u8 {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8 ^ (place as u8).wrapping_mul(31)
}

/// Lengths around every boundary that a channel may have, in an order that mixes them.
fn length(number: u64) -> usize {
    [8, 48, 49, SIZE, 47, 56, 300, 57, 64, 9, SIZE - 1, 65, 16][(number % 13) as usize]
}

/// Writes message `number`, which starts with its number where it has room for it.
fn put(channel: &mut dyn Channel, number: u64, length: usize) -> Written {
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

fn put_now(channel: &mut dyn Channel, number: u64, length: usize) {
    assert_eq!(put(channel, number, length), Written::Taken, "message {number} of {length} B");
}

/// The number that a message of at least 8 bytes starts with; panics where anything in it was changed.
fn number_of(message: &[u8]) -> u64 {
    let head = message.first_chunk().unwrap_or_else(|| panic!("a message of {} B, all have 8 or more", message.len()));
    let number = u64::from_le_bytes(*head);
    check_content(message, number);
    number
}

fn check_content(message: &[u8], number: u64) {
    let begin = if message.len() < 8 { 0 } else { 8 };
    if let Some(place) = (begin..message.len()).find(|&place| message[place] != content(number, place)) {
        panic!("message {number} of {} B arrives changed at byte {place}", message.len());
    }
}

/// Repeats `attempt` until it says so; false where it does not within the patience.
fn comes(mut attempt: impl FnMut() -> bool) -> bool {
    let mut until = None;
    for look in 0u32.. {
        if attempt() {
            return true;
        }
        if look > 100 {
            std::thread::yield_now();
        }
        if look % 64 == 63 && Instant::now() > *until.get_or_insert_with(|| Instant::now() + PATIENCE) {
            return false;
        }
    }
    false
}

/// Reads one message, which must come.
fn take<R>(channel: &mut dyn Channel, mut look: impl FnMut(&[u8]) -> R) -> R {
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

fn expect(channel: &mut dyn Channel, number: u64, length: usize) {
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
fn look(channel: &mut dyn Channel) -> Option<u64> {
    let mut number = None;
    let read = channel.read_with(&mut |message| number = Some(number_of(message))).expect("reading");
    assert_eq!(read, number.is_some(), "a read says whether it delivered");
    number
}

fn is_empty(channel: &mut dyn Channel) {
    assert!(!channel.poll().expect("polling"), "nothing is there to read, a poll says otherwise");
    assert_eq!(look(channel), None, "nothing is there to read");
}

fn states_what_was_asked((first, second): &mut (Endpoint, Endpoint), specification: &Specification) {
    for end in [first, second] {
        assert_eq!(end.specification(), specification);
        assert_eq!(end.counted(), Counted::default());
        assert!(!end.is_abandoned(), "both ends are there");
        is_empty(&mut **end);
    }
}

/// Messages of every size class arrive whole, empty ones too, and are counted.
fn sizes((writer, reader): &mut (Endpoint, Endpoint)) {
    let sizes = [0, 1, 2, 7, 8, 15, 16, 17, 31, 32, 47, 48, 49, 55, 56, 57, 63, 64, 65, 128, 500, SIZE - 1, SIZE];
    let mut number = 0;
    for length in sizes {
        // More than once round the buffers with each.
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

fn over_size((writer, reader): &mut (Endpoint, Endpoint)) {
    for length in [SIZE + 1, 1 << 20, usize::MAX] {
        let refused = writer.write_with(length, &mut |_| panic!("`fill` is called for a message that is too long"));
        assert!(refused.is_err(), "{length} B are taken by buffers of {SIZE} B");
    }
    assert_eq!(writer.counted().written, 0);
    is_empty(&mut **reader);
    put_now(&mut **writer, 0, SIZE);
    expect(&mut **reader, 0, SIZE);
}

/// A poll tells the truth and takes nothing.
fn polls((writer, reader): &mut (Endpoint, Endpoint)) {
    for number in 0..40 {
        is_empty(&mut **reader);
        put_now(&mut **writer, number, 8);
        assert!(comes(|| reader.poll().expect("polling")), "a message was written, a poll does not say so");
        assert!(reader.poll().expect("polling"), "a poll takes nothing");
        expect(&mut **reader, number, 8);
    }
}

fn waits((writer, reader): &mut (Endpoint, Endpoint), synchronization: Synchronization) {
    let short = Nanoseconds(1_000_000);
    if synchronization == Synchronization::Poll {
        assert!(reader.wait(short).is_err(), "a polled channel sleeps");
        return;
    }
    assert!(!reader.wait(short).expect("waiting"), "a wait ends without a message, by its limit");
    assert!(!reader.wait(Nanoseconds(0)).expect("waiting"), "a wait of no time ends");
    put_now(&mut **writer, 0, 8);
    let limit = Nanoseconds(PATIENCE.as_nanos() as u64);
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

/// Bursts of changing length, so that the buffers are met empty, full and in between.
fn mixed_sizes_in_order((writer, reader): &mut (Endpoint, Endpoint)) {
    let (mut sent, mut came) = (0u64, 0u64);
    while came < 500 {
        for _ in 0..1 + sent % 11 {
            if sent < 500 && sent - came < 8 {
                put_now(&mut **writer, sent, length(sent));
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
fn both_directions((one, other): &mut (Endpoint, Endpoint)) {
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

fn full_and_recovery((writer, reader): &mut (Endpoint, Endpoint), most: u64) {
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
        // Progress may take its time to the writer.
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

/// The sums of an unreliable channel after everything was read.
fn check_sums(attempts: u64, writer: Counted, reader: Counted, exact: bool) {
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

/// Whether everything was read that can be: for a channel that does not count each loss, whether nothing came for long.
fn is_drained(writer: &dyn Channel, reader: &dyn Channel, exact: bool, quiet: Duration) -> bool {
    let (written, counted) = (writer.counted().written, reader.counted());
    written == counted.read + counted.dropped || (!exact && quiet > Duration::from_millis(200))
}

fn drops((writer, reader): &mut (Endpoint, Endpoint), most: u64, exact: bool) {
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

/// What one end wrote before it left can be read; then the channel is empty, abandoned, and refuses.
fn abandoned((mut writer, mut reader): (Endpoint, Endpoint)) {
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
        let limit = Nanoseconds(PATIENCE.as_nanos() as u64);
        assert!(!reader.wait(limit).expect("waiting"), "nothing will come any more");
    }
    if let Ok(written) = reader.write_with(8, &mut |into| into.fill(1)) {
        assert_eq!(written, Written::Gone, "a write to nobody");
    }
    assert_eq!(reader.counted().read, 5);
}

fn a_sleeper_learns_of_the_end((writer, mut reader): (Endpoint, Endpoint)) {
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(move || {
            let said = reader.wait(Nanoseconds(PATIENCE.as_nanos() as u64)).expect("waiting");
            (said, reader.is_abandoned())
        });
        std::thread::sleep(Duration::from_millis(5));
        drop(writer);
        assert_eq!(sleeper.join().expect("the sleeper"), (false, true), "(would deliver, is abandoned)");
    });
}

const CONCURRENT: u64 = 3_000;

/// Sends [`CONCURRENT`] messages, then one that says where the end is, again and again until it was taken.
fn send_all(writer: &mut dyn Channel) {
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

/// Reads until the last message came, or `done` says that no more will; all in order and unchanged. How many.
fn receive_all(reader: &mut dyn Channel, delivery: Delivery, mut done: impl FnMut() -> bool) -> u64 {
    let (mut next, mut read) = (0, 0);
    let (mut ended, mut heard) = (false, Instant::now());
    while next < CONCURRENT {
        let Some(number) = look(reader) else {
            // Looked at before the next read: what was written before the end is seen then.
            if ended && (delivery == Delivery::Unreliable) && heard.elapsed() > Duration::from_millis(100) {
                break;
            }
            ended = done();
            assert!(heard.elapsed() < PATIENCE, "message {next} does not arrive");
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

fn two_threads((mut writer, mut reader): (Endpoint, Endpoint), delivery: Delivery, exact: bool) {
    let (counted, reader_counted, read) = std::thread::scope(|scope| {
        let sender = scope.spawn(move || {
            send_all(&mut *writer);
            writer
        });
        let read = receive_all(&mut *reader, delivery, || sender.is_finished());
        // The writer is kept until here, so that nothing on its way ends with it.
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

fn each_reader_gets_each((mut writer, mut readers): (Endpoint, Vec<Endpoint>)) {
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

/// The creator writes, the attached read.
fn roles((mut writer, mut readers): (Endpoint, Vec<Endpoint>)) {
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

fn readers_in_threads((mut writer, readers): (Endpoint, Vec<Endpoint>), delivery: Delivery) {
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

fn the_slowest_reader_decides((mut writer, mut readers): (Endpoint, Vec<Endpoint>), most: u64) {
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

fn a_reader_may_be_lapped((mut writer, mut readers): (Endpoint, Vec<Endpoint>), most: u64) {
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

/// A reader that leaves holds nobody up; without any the writer is told.
fn readers_leave((mut writer, mut readers): (Endpoint, Vec<Endpoint>), most: u64) {
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

fn the_writer_leaves((mut writer, mut readers): (Endpoint, Vec<Endpoint>)) {
    (0..3).for_each(|number| put_now(&mut *writer, number, length(number)));
    drop(writer);
    for reader in &mut readers {
        (0..3).for_each(|number| expect(&mut **reader, number, length(number)));
        assert!(comes(|| reader.is_abandoned()), "the writer left, and a reader is not told");
        is_empty(&mut **reader);
    }
}
