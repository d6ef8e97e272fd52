//! The shared-memory port between two real processes, one of which is killed in the middle of a transfer.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use machine::{Notice, PeerIndex, Port, Sent};
use ports::shm::{Role, ShmPort};

const PEER: PeerIndex = PeerIndex(0);
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

/// Starts this program again as `part`, connected to the stream returned.
fn start(part: &str) -> (Other, UnixStream) {
    start_by(Command::new(std::env::current_exe().unwrap()), part)
}

fn start_by(mut command: Command, part: &str) -> (Other, UnixStream) {
    let (mine, theirs) = UnixStream::pair().unwrap();
    command.args(["--exact", "two_processes::play_a_part", "--nocapture"]).env(PART, part);
    command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null());
    (Other(command.spawn().unwrap()), mine)
}

/// Not a test by itself: what the second process runs.
#[test]
fn play_a_part() {
    let Ok(part) = std::env::var(PART) else { return };
    let stream = UnixStream::from(rustix::io::dup(std::io::stdin()).unwrap());
    let mut port = ShmPort::default();
    port.connect(&stream, Role::Join).unwrap();
    let until = Instant::now() + skip::LIMIT;
    match part.as_str() {
        // Sends numbered packets, small and large, until it is killed.
        "flood" => {
            let mut number = 0u64;
            while Instant::now() < until {
                if port.send(PEER, length(number), |into| into.fill(number as u8)).unwrap() == Sent::Taken {
                    number += 1;
                }
            }
        }
        // Sends one packet with the address of 1 MiB of its memory, and stays until it is told to leave.
        "expose" => {
            let data: Vec<u8> = (0..1 << 20).map(|i: u32| (i % 251) as u8).collect();
            let address = data.as_ptr() as u64;
            port.send(PEER, 8, |into| into.copy_from_slice(&address.to_le_bytes())).unwrap();
            while Instant::now() < until && port.receive(1, |_, _| ()).unwrap() == 0 {
                std::thread::yield_now();
            }
        }
        // Sends packets that make its ring grow again and again, until it is killed.
        "grow" => {
            let mut number = 0u64;
            while Instant::now() < until {
                if port.send(PEER, rising(number), |into| into.fill(number as u8)).unwrap() == Sent::Taken {
                    number += 1;
                }
            }
        }
        // Takes a few packets and no more, until it is killed.
        "sip" => {
            let mut taken = 0;
            while Instant::now() < until {
                taken += if taken < 10 { port.receive(1, |_, _| ()).unwrap() } else { 0 };
            }
        }
        // Leaves without closing its port.
        "exit" => {
            port.send(PEER, 3, |into| into.copy_from_slice(b"bye")).unwrap();
            std::process::exit(0);
        }
        other => panic!("no part '{other}'"),
    }
}

fn length(number: u64) -> usize {
    [8, 56, 57, 9000][number as usize % 4]
}

/// Lengths that rise every four packets, so that each rise needs a larger ring.
fn rising(number: u64) -> usize {
    (57usize << (number / 4).min(8)).min(16_000)
}

/// Receives until `done` says so or time is up.
fn receive_until(port: &mut ShmPort, mut deliver: impl FnMut(&[u8]) -> bool) {
    let until = Instant::now() + skip::LIMIT;
    let mut done = false;
    while !done {
        assert!(Instant::now() < until, "the other process sends nothing");
        if port.receive(1, |_, packet| done = deliver(packet)).unwrap() == 0 {
            std::thread::yield_now();
        }
    }
}

fn await_end(port: &mut ShmPort, mut deliver: impl FnMut(&[u8])) -> Notice {
    let until = Instant::now() + skip::LIMIT;
    let mut end = None;
    while end.is_none() {
        assert!(Instant::now() < until, "the end is not noticed");
        port.receive(64, |_, packet| deliver(packet)).unwrap();
        port.notices(|notice| end = Some(notice)).unwrap();
    }
    end.unwrap()
}

#[test]
fn a_peer_killed_in_mid_transfer_is_told_dead_and_the_port_goes_on() {
    let mut port = ShmPort::default();
    let (mut killed, stream) = start("flood");
    assert_eq!(port.connect(&stream, Role::Create).unwrap(), PEER);
    let mut next = 0u64;
    let mut check = |packet: &[u8]| {
        assert!(packet.len() == length(next) && packet.iter().all(|&b| b == next as u8), "packet {next} is not whole");
        next += 1;
        next
    };
    receive_until(&mut port, |packet| check(packet) >= 5_000);
    killed.0.kill().unwrap();
    // First come its packets, all of them whole; then its end, once.
    let end = await_end(&mut port, |packet| {
        check(packet);
    });
    assert_eq!(end, Notice::Dead(PEER));
    assert_eq!(port.send(PEER, 8, |_| ()).unwrap(), Sent::Gone);
    port.notices(|notice| panic!("{notice:?} again")).unwrap();
    assert!(port.read_remote(PEER, 4096, &mut [0; 8]).is_err());

    let (_second, stream) = start("flood");
    let second = port.connect(&stream, Role::Create).unwrap();
    assert_eq!(second, PeerIndex(1), "a dead peer's number is not given out again");
    receive_until(&mut port, |packet| packet.len() == 9000);
}

#[test]
fn a_peer_that_exits_is_told_after_its_last_packet() {
    let mut port = ShmPort::default();
    let (_other, stream) = start("exit");
    port.connect(&stream, Role::Create).unwrap();
    let mut last = Vec::new();
    let end = await_end(&mut port, |packet| last = packet.to_vec());
    assert_eq!((end, &last[..]), (Notice::Dead(PEER), &b"bye"[..]));
}

#[test]
fn another_processs_memory_is_read_where_permitted() {
    let mut port = ShmPort::default();
    let (mut other, stream) = start("expose");
    port.connect(&stream, Role::Create).unwrap();
    assert_eq!(port.process(PEER), Some(other.0.id()));
    let mut address = 0;
    receive_until(&mut port, |packet| {
        address = u64::from_le_bytes(packet.try_into().unwrap());
        true
    });
    if port.capabilities().remote_read {
        let mut copy = vec![0; 1 << 20];
        port.read_remote(PEER, address, &mut copy).unwrap();
        assert!(copy.iter().enumerate().all(|(i, &b)| b == (i % 251) as u8));
    } else {
        skip::part("this kernel does not let a process read another's memory (ptrace_scope, seccomp)");
    }
    port.send(PEER, 1, |into| into.fill(0)).unwrap();
    assert!(other.0.wait().unwrap().success());
    assert_eq!(await_end(&mut port, |_| ()), Notice::Closed(PEER), "it closed its port before it left");
}

/// Wherever it was killed: an announced size holds, and packets sent arrive whole and in order.
#[test]
fn a_peer_killed_while_its_ring_grows_is_told_dead() {
    for before in [0, 1, 4, 5, 8, 13, 17, 22, 27, 32, 60] {
        let mut port = ShmPort::default();
        let (mut killed, stream) = start("grow");
        port.connect(&stream, Role::Create).unwrap();
        let mut next = 0u64;
        let mut check = |packet: &[u8]| {
            let whole = packet.len() == rising(next) && packet.iter().all(|&b| b == next as u8);
            assert!(whole, "packet {next} of {} B is not whole", packet.len());
            next += 1;
            next
        };
        if before > 0 {
            receive_until(&mut port, |packet| check(packet) >= before);
        }
        killed.0.kill().unwrap();
        let end = await_end(&mut port, |packet| {
            check(packet);
        });
        assert_eq!(end, Notice::Dead(PEER));
        assert_eq!(port.send(PEER, 9000, |_| ()).unwrap(), Sent::Gone);
    }
}

#[test]
fn a_ring_grows_towards_a_peer_that_is_killed() {
    let mut port = ShmPort::default();
    let (mut killed, stream) = start("sip");
    port.connect(&stream, Role::Create).unwrap();
    let until = Instant::now() + skip::LIMIT;
    let (mut number, mut full) = (0, 0);
    while full < 1000 {
        assert!(Instant::now() < until);
        match port.send(PEER, rising(number), |into| into.fill(0)).unwrap() {
            Sent::Taken => number += 1,
            _ => full += 1,
        }
    }
    killed.0.kill().unwrap();
    assert_eq!(await_end(&mut port, |_| ()), Notice::Dead(PEER));
    assert_eq!(port.send(PEER, 8, |_| ()).unwrap(), Sent::Gone);
}
#[test]
fn a_peer_of_another_pid_namespace_is_met_and_its_end_is_noticed() {
    let Some(unshare) = skip::tool("unshare") else { return };
    let namespace = ["--pid", "--fork", "--kill-child", "--mount-proc"];
    if !Command::new(&unshare).args(namespace).arg("true").status().is_ok_and(|status| status.success()) {
        return skip::test("no PID namespace of its own: run as root");
    }
    for (part, words) in [("exit", 3), ("flood", 1000 * 8)] {
        let mut command = Command::new(&unshare);
        command.args(namespace).arg(std::env::current_exe().unwrap());
        let (mut other, stream) = start_by(command, part);
        let mut port = ShmPort::default();
        // This process has no number that the other one sees.
        port.connect(&stream, Role::Create).unwrap();
        let mut came = 0;
        receive_until(&mut port, |packet| {
            came += packet.len();
            came >= words
        });
        other.0.kill().unwrap();
        assert_eq!(await_end(&mut port, |_| ()), Notice::Dead(PEER), "{part}");
    }
}
