//! Channels whose ends are in different processes, some of which are killed.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use machine::channel::Specification;
use machine::channel::{Buffers, Cast, Channel, Content, Delivery, Policy, Synchronization, Written};
use machine::{Bytes, Nanoseconds};
use ports::channel::{self, Endpoint};

/// Names the part that this program plays when a test starts it again.
const PART: &str = "PLIMSOLL_TEST_PART";
/// Kills and reaps on drop, so that a failing test leaves no process.
struct Other(Child);

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(part: &str) -> (Other, UnixStream) {
    let (mine, theirs) = UnixStream::pair().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "channels_between_processes::play_a_part", "--nocapture"]).env(PART, part);
    command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null());
    (Other(command.spawn().unwrap()), mine)
}

/// Not a test by itself: what the second process runs.
#[test]
fn play_a_part() {
    let Ok(part) = std::env::var(PART) else { return };
    let stream = UnixStream::from(rustix::io::dup(std::io::stdin()).unwrap());
    let mut end = channel::accept(&stream).unwrap().into_channel();
    let until = Instant::now() + skip::LIMIT;
    match part.as_str() {
        // Echoes messages until the other end leaves.
        "echo" => {
            let mut message = Vec::new();
            while (!end.is_abandoned() || end.poll().unwrap()) && Instant::now() < until {
                if !end.read_with(&mut |m| message = m.to_vec()).unwrap() {
                    std::thread::yield_now();
                    continue;
                }
                while end.write(&message).unwrap() == Written::Full {
                    std::thread::yield_now();
                }
            }
        }
        // Echoes, and sleeps whenever no message comes.
        "sleeper" => {
            let mut message = Vec::new();
            while end.wait(Nanoseconds(skip::LIMIT.as_nanos() as u64)).unwrap() {
                end.read_with(&mut |m| message = m.to_vec()).unwrap();
                assert_eq!(end.write(&message).unwrap(), Written::Taken);
            }
            assert!(end.is_abandoned());
        }
        // Reads three messages and hangs.
        "hang" => {
            let mut read = 0;
            while read < 3 && Instant::now() < until {
                read += u64::from(end.read_with(&mut |_| ()).unwrap());
            }
            std::thread::sleep(skip::LIMIT);
        }
        // Writes until it is killed.
        "flood" => {
            let mut number = 0u64;
            while Instant::now() < until {
                let length = [8, 48, 49, 1000][number as usize % 4];
                let written = end.write_with(length, &mut |into| into.fill(number as u8)).unwrap();
                number += u64::from(written == Written::Taken);
            }
        }
        other => panic!("no part '{other}'"),
    }
}

fn asked(cast: Cast, delivery: Delivery, synchronization: Synchronization) -> Specification {
    let buffers = Buffers { count: 16, size: Bytes(1024), policy: Policy::ZeroCopy };
    Specification { cast, delivery, synchronization, content: Content::Messages, buffers }
}

fn until_it_holds(what: &str, mut attempt: impl FnMut() -> bool) {
    let until = Instant::now() + skip::LIMIT;
    while !attempt() {
        assert!(Instant::now() < until, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn messages_go_to_another_process_and_back() {
    for (part, synchronization) in [("echo", Synchronization::Poll), ("sleeper", Synchronization::Blocking)] {
        let (mut mine, theirs) = channel::unicast(&asked(Cast::Unicast, Delivery::Reliable, synchronization)).unwrap();
        let (mut other, stream) = start(part);
        theirs.hand_over(&stream).unwrap();
        for number in 0..300usize {
            let message = vec![number as u8; [0, 8, 48, 49, 1024][number % 5]];
            assert_eq!(mine.write(&message).unwrap(), Written::Taken);
            if synchronization == Synchronization::Blocking {
                assert!(mine.wait(Nanoseconds(skip::LIMIT.as_nanos() as u64)).unwrap());
            }
            let mut came = false;
            until_it_holds("no answer", || {
                came |= mine.read_with(&mut |answer| assert_eq!(answer, message)).unwrap();
                came
            });
        }
        drop(mine);
        assert!(other.0.wait().unwrap().success(), "the other process saw that we left");
    }
}

#[test]
fn a_killed_writer_is_noticed_and_what_it_wrote_is_read() {
    for synchronization in [Synchronization::Poll, Synchronization::Blocking] {
        let (mut mine, theirs) = channel::unicast(&asked(Cast::Unicast, Delivery::Reliable, synchronization)).unwrap();
        let (mut other, stream) = start("flood");
        theirs.hand_over(&stream).unwrap();
        let mut number = 0u64;
        until_it_holds("no messages come", || {
            let read = mine.read_with(&mut |m| assert!(m.iter().all(|byte| *byte == number as u8))).unwrap();
            number += u64::from(read);
            number > 1000
        });
        assert!(!mine.is_abandoned());
        other.0.kill().unwrap();
        if synchronization == Synchronization::Blocking {
            while mine.wait(Nanoseconds(skip::LIMIT.as_nanos() as u64)).unwrap() {
                mine.read_with(&mut |_| ()).unwrap();
            }
        } else {
            until_it_holds("its end is not noticed", || mine.is_abandoned());
        }
        assert!(mine.is_abandoned());
        while mine.read_with(&mut |_| ()).unwrap() {}
        assert_eq!(mine.write(b"to nobody").unwrap(), Written::Gone);
    }
}

#[test]
fn a_killed_reader_does_not_hold_a_unicast_writer_up() {
    let (mut mine, theirs) =
        channel::unicast(&asked(Cast::Unicast, Delivery::Reliable, Synchronization::Poll)).unwrap();
    let (mut other, stream) = start("hang");
    theirs.hand_over(&stream).unwrap();
    until_it_holds("the channel is never full", || mine.write(b"a message").unwrap() == Written::Full);
    other.0.kill().unwrap();
    until_it_holds("its end is not noticed", || mine.write(b"a message").unwrap() == Written::Gone);
}

#[test]
fn a_killed_reader_does_not_hold_a_multicast_writer_up() {
    for delivery in [Delivery::Reliable, Delivery::Unreliable] {
        let (mut writer, mut readers) =
            channel::multicast(&asked(Cast::Multicast, delivery, Synchronization::Poll), 2).unwrap();
        let (mut other, stream) = start("hang");
        readers.pop().unwrap().hand_over(&stream).unwrap();
        let mut stays = readers.pop().unwrap();
        let (mut written, mut read) = (0u64, 0u64);
        let mut go_on = |writer: &mut channel::Writer, most: u64| {
            let before = written;
            for _ in 0..most {
                written += u64::from(writer.write(&written.to_le_bytes()).unwrap() == Written::Taken);
                let mut expect = |m: &[u8]| assert_eq!(m, read.to_le_bytes());
                read += u64::from(stays.read_with(&mut expect).unwrap());
            }
            written - before
        };
        if delivery == Delivery::Reliable {
            until_it_holds("the reader that hangs does not hold the writer up", || go_on(&mut writer, 100) == 0);
        }
        other.0.kill().unwrap();
        until_it_holds("the dead reader holds the writer up", || go_on(&mut writer, 100) == 100);
        until_it_holds("the dead reader still counts", || {
            go_on(&mut writer, 100);
            writer.readers() == 1
        });
        drop(stays);
        until_it_holds("the writer is not told", || writer.is_abandoned());
    }
}

#[test]
fn an_end_that_nobody_takes_is_gone_with_its_socket() {
    let (mine, theirs) = channel::unicast(&asked(Cast::Unicast, Delivery::Reliable, Synchronization::Poll)).unwrap();
    let (one, other) = UnixStream::pair().unwrap();
    theirs.hand_over(&one).unwrap();
    assert!(!mine.is_abandoned());
    drop((one, other));
    until_it_holds("nobody holds the other end, and it counts", || mine.is_abandoned());
}

#[test]
fn an_end_is_known_by_its_kind() {
    let (writer, mut readers) =
        channel::multicast(&asked(Cast::Multicast, Delivery::Reliable, Synchronization::Poll), 1).unwrap();
    let (one, other) = UnixStream::pair().unwrap();
    writer.hand_over(&one).unwrap();
    readers.pop().unwrap().hand_over(&one).unwrap();
    let Ok(Endpoint::Writer(mut writer)) = channel::accept(&other) else { panic!("a writer was passed") };
    let Ok(Endpoint::Reader(mut reader)) = channel::accept(&other) else { panic!("a reader was passed") };
    let mut late = writer.attach().unwrap();
    assert_eq!(writer.write(b"to both").unwrap(), Written::Taken);
    for reader in [&mut reader, &mut late] {
        assert!(reader.read_with(&mut |m| assert_eq!(m, b"to both")).unwrap());
    }
}
