use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use linux::doorbell::Doorbell;
use machine::channel::Specification;
use machine::channel::conformance::{self, Bench, specification};
use machine::channel::{Buffers, Cast, Channel, Counted, Delivery, Policy, Sleeper, Synchronization, Written};
use machine::{Bytes, Nanoseconds};

use super::*;

/// A bench with both ends in one process.
struct Threads;

impl Bench for Threads {
    fn unicast(&mut self, specification: &Specification) -> Option<(conformance::Endpoint, conformance::Endpoint)> {
        let (one, other) = unicast(specification).unwrap();
        Some((Box::new(one), Box::new(other)))
    }

    fn multicast(
        &mut self,
        specification: &Specification,
        readers: usize,
    ) -> Option<(conformance::Endpoint, Vec<conformance::Endpoint>)> {
        let (writer, readers) = multicast(specification, readers).unwrap();
        Some((Box::new(writer), readers.into_iter().map(|reader| Box::new(reader) as _).collect()))
    }
}

#[test]
fn channels_between_threads_conform() {
    conformance::all(&mut Threads);
}

/// A bench where every end was handed over a socket before use.
struct HandedOver;

fn over_a_socket(hand_over: impl FnOnce(&UnixStream)) -> conformance::Endpoint {
    let (one, other) = UnixStream::pair().unwrap();
    hand_over(&one);
    accept(&other).unwrap().into_channel()
}

impl Bench for HandedOver {
    fn unicast(&mut self, specification: &Specification) -> Option<(conformance::Endpoint, conformance::Endpoint)> {
        let (one, other) = unicast(specification).unwrap();
        let one = over_a_socket(|stream| one.hand_over(stream).unwrap());
        Some((one, over_a_socket(|stream| other.hand_over(stream).unwrap())))
    }

    fn multicast(
        &mut self,
        specification: &Specification,
        readers: usize,
    ) -> Option<(conformance::Endpoint, Vec<conformance::Endpoint>)> {
        let (writer, readers) = multicast(specification, readers).unwrap();
        let writer = over_a_socket(|stream| writer.hand_over(stream).unwrap());
        let reader = |reader: Reader| over_a_socket(|stream| reader.hand_over(stream).unwrap());
        Some((writer, readers.into_iter().map(reader).collect()))
    }
}

#[test]
fn channels_that_were_handed_over_conform() {
    conformance::all(&mut HandedOver);
}

fn number(end: &mut dyn Channel) -> Option<u64> {
    let mut found = None;
    end.read_with(&mut |message| found = Some(u64::from_le_bytes(message[..8].try_into().unwrap()))).unwrap();
    found
}

#[test]
fn an_end_is_handed_over_with_what_lies_in_it() {
    let asked = specification(Cast::Unicast, Delivery::Reliable, Synchronization::Poll);
    let (mut one, mut other) = unicast(&asked).unwrap();
    for n in 0..21u64 {
        assert_eq!(one.write(&n.to_le_bytes()).unwrap(), Written::Taken);
        assert_eq!(other.write(&n.to_le_bytes()).unwrap(), Written::Taken);
        if n < 9 {
            assert_eq!((number(&mut one), number(&mut other)), (Some(n), Some(n)));
        }
    }
    let mut other = over_a_socket(|stream| other.hand_over(stream).unwrap());
    assert_eq!(other.counted(), Counted { written: 21, read: 9, ..Counted::default() });
    for n in 9..21 {
        assert_eq!((number(&mut one), number(&mut *other)), (Some(n), Some(n)));
    }
    assert!(!one.is_abandoned() && !other.is_abandoned());
    drop(other);
    assert!(one.is_abandoned());
}

#[test]
fn readers_come_and_go() {
    for delivery in [Delivery::Reliable, Delivery::Unreliable] {
        let asked = specification(Cast::Multicast, delivery, Synchronization::Poll);
        let (mut writer, none) = multicast(&asked, 0).unwrap();
        assert!(none.is_empty());
        let mut readers = Vec::new();
        assert!(writer.is_abandoned());
        let write = |writer: &mut Writer, n: u64| writer.write(&n.to_le_bytes()).unwrap();
        assert_eq!(write(&mut writer, 0), Written::Gone);
        for n in 0..300u64 {
            if n % 3 == 0 {
                readers.push((n, writer.attach().unwrap()));
            }
            if n % 7 == 0 {
                readers.remove(readers.len() / 2);
            }
            if readers.len() > 20 {
                readers.truncate(3);
            }
            assert_eq!(writer.readers(), readers.len());
            let expected = if readers.is_empty() { Written::Gone } else { Written::Taken };
            assert_eq!(write(&mut writer, n), expected);
            for (since, reader) in &mut readers {
                assert_eq!(number(reader), Some(n), "a reader since {since}");
                assert_eq!(reader.counted().dropped, 0);
            }
        }
        readers.clear();
        readers.extend((1..=MOST_READERS as u64).map(|n| (n, writer.attach().unwrap())));
        assert!(writer.attach().is_err());
        readers.pop();
        assert!(writer.attach().is_ok());
    }
}

#[test]
fn what_cannot_be_is_refused_in_words() {
    let buffers = |count, size, policy| Specification {
        buffers: Buffers { count, size: Bytes(size), policy },
        ..Specification::default()
    };
    let refused = |asked: Specification| unicast(&asked).err().map(|fault| fault.cause().to_string()).unwrap();
    assert_eq!(refused(buffers(12, 64, Policy::ZeroCopy)), "12 buffers");
    assert_eq!(refused(buffers(2, 64, Policy::ZeroCopy)), "2 buffers");
    assert_eq!(refused(buffers(1 << 17, 64, Policy::ZeroCopy)), "131072 buffers");
    assert!(refused(buffers(4, 0, Policy::ZeroCopy)).contains("0 B"));
    assert!(refused(buffers(4, u64::MAX, Policy::ZeroCopy)).contains("buffers of"));
    assert!(refused(buffers(65536, 64 << 10, Policy::ZeroCopy)).contains("65536 buffers of 64 KiB take"));
    assert!(refused(Specification { cast: Cast::Multicast, ..Specification::default() }).contains("Multicast"));
}

/// Anything but an end that a peer sends is a fault, and soon.
#[test]
fn a_peer_that_passes_nonsense_is_refused() {
    use linux::passing::say;
    let protocol = u64::from_le_bytes(*b"plimchan");
    let good = [protocol, 1, 0b01000, 16, 1024, 1, 0, 0];
    let bad = |at: usize, word: u64| {
        let mut words = good;
        words[at] = word;
        words
    };
    let memfd = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&memfd, 1 << 20).unwrap();
    use std::os::fd::AsFd;
    let words = [good, bad(0, 1), bad(1, 2), bad(2, 32), bad(3, 17), bad(4, u64::MAX), bad(5, 2), bad(3, 1 << 40)];
    for words in words {
        for fd in [None, Some(memfd.as_fd())] {
            let (one, other) = UnixStream::pair().unwrap();
            say(&one, &words, fd).unwrap();
            say(&one, &[protocol, 1, 0, 0, 0, 0, 0, 0], None).unwrap();
            assert!(accept(&other).is_err(), "{words:?}");
        }
    }
    // An invalid position, in front of a valid channel.
    let (memory, _) = unicast(&specification(Cast::Unicast, Delivery::Reliable, Synchronization::Poll)).unwrap();
    let (one, other) = UnixStream::pair().unwrap();
    memory.hand_over(&one).unwrap();
    let mut first = [0; 64];
    let _ = std::io::Read::read_exact(&mut &other, &mut first);
    assert!(accept(&other).is_err());
}

/// Both ends sleep and wake in turn: a wake-up that is lost shows as a wait that takes its whole limit.
#[test]
fn sleepers_are_woken() {
    let asked = specification(Cast::Unicast, Delivery::Reliable, Synchronization::Blocking);
    let (mut one, mut other) = unicast(&asked).unwrap();
    let limit = Nanoseconds(30_000_000_000);
    let turns = 2000u64;
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..turns {
                assert!(other.wait(limit).unwrap());
                let n = number(&mut other).unwrap();
                assert_eq!(other.write(&n.to_le_bytes()).unwrap(), Written::Taken);
            }
        });
        for n in 0..turns {
            assert_eq!(one.write(&n.to_le_bytes()).unwrap(), Written::Taken);
            // Long enough that the other end sometimes sleeps, and sometimes is just falling asleep.
            for _ in 0..n % 37 * 40 {
                std::hint::spin_loop();
            }
            assert!(one.wait(limit).unwrap());
            assert_eq!(number(&mut one), Some(n));
        }
    });
    assert!(start.elapsed() < Duration::from_secs(30), "a wake-up was lost");
}

/// Reads messages, and sleeps without a limit where there are none: a lost wake-up hangs the test. Returns the numbers
/// read once the writer has gone.
fn read_asleep(reader: &mut dyn Channel, bell: &Arc<Doorbell>, watched: Option<&UnixStream>) -> Vec<u64> {
    let mut numbers = Vec::new();
    loop {
        while reader.read_with(&mut |message| numbers.push(u64::from_le_bytes(message.try_into().unwrap()))).unwrap() {}
        if reader.is_abandoned() && !reader.poll().unwrap() {
            return numbers;
        }
        let mut sleep = bell.sleep();
        if let Some(mut stream) = watched {
            // Rings before the read above are consumed.
            while matches!(std::io::Read::read(&mut stream, &mut [0; 64]), Ok(1..)) {}
            assert!(sleep.watch(stream.as_fd()));
        }
        if reader.arm(&mut sleep) {
            sleep.begin();
        }
    }
}

fn write_numbers(writer: &mut dyn Channel, count: u64) {
    for number in 0..count {
        while writer.write(&number.to_le_bytes()).unwrap() == Written::Full {
            std::thread::yield_now();
        }
        // The reader falls asleep now and then.
        if number % 16 == 0 {
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_thread_that_sleeps_on_many_things_is_woken_by_each() {
    const COUNT: u64 = 3000;
    for synchronization in [Synchronization::Poll, Synchronization::Blocking] {
        for round in 0..20 {
            let asked = specification(Cast::Unicast, Delivery::Reliable, synchronization);
            let (mut one, mut other) = unicast(&asked).unwrap();
            let writer = std::thread::spawn(move || write_numbers(&mut other, if round % 2 == 0 { COUNT } else { 1 }));
            let read = read_asleep(&mut one, &Doorbell::new().unwrap(), None);
            assert_eq!(read, (0..if round % 2 == 0 { COUNT } else { 1 }).collect::<Vec<_>>());
            writer.join().unwrap();
        }
        for delivery in [Delivery::Reliable, Delivery::Unreliable] {
            let asked = specification(Cast::Multicast, delivery, synchronization);
            let (mut writer, readers) = multicast(&asked, 2).unwrap();
            let readers = readers.into_iter().map(|mut reader| {
                std::thread::spawn(move || {
                    let read = read_asleep(&mut reader, &Doorbell::new().unwrap(), None);
                    (read.len() as u64 + reader.counted().dropped, read)
                })
            });
            let readers: Vec<_> = readers.collect();
            write_numbers(&mut writer, COUNT);
            drop(writer);
            for reader in readers {
                let (seen, read) = reader.join().unwrap();
                assert!(seen == COUNT && read.is_sorted(), "{seen} of {COUNT}");
            }
        }
    }
}

#[test]
fn a_writer_elsewhere_rings_over_the_socket_that_its_end_came_by() {
    const COUNT: u64 = 2000;
    let asked = specification(Cast::Unicast, Delivery::Reliable, Synchronization::Poll);
    let (mut ours, theirs) = unicast(&asked).unwrap();
    let (near, far) = UnixStream::pair().unwrap();
    let writer = std::thread::spawn(move || {
        let mut end = accept(&far).unwrap().into_channel();
        drop(far);
        // The sleeper's bell cannot be rung by another process, which uses the socket alone.
        assert!(!end.arm(&mut Doorbell::new().unwrap().sleep()));
        write_numbers(&mut end, COUNT);
    });
    theirs.hand_over(&near).unwrap();
    near.set_nonblocking(true).unwrap();
    let read = read_asleep(&mut ours, &Doorbell::new().unwrap(), Some(&near));
    assert_eq!(read, (0..COUNT).collect::<Vec<_>>());
    writer.join().unwrap();
}

#[test]
fn one_that_leaves_is_told_of_once() {
    let asked = specification(Cast::Unicast, Delivery::Reliable, Synchronization::Poll);
    let (mut one, other) = unicast(&asked).unwrap();
    let bell = Doorbell::new().unwrap();
    assert!(one.arm(&mut bell.sleep()));
    drop(other);
    // The sleep ends at once.
    bell.sleep().begin();
    assert!(!one.arm(&mut bell.sleep()), "news that the thread has not looked at");
    assert!(one.arm(&mut bell.sleep()), "nothing more comes");
}
