//! The memory that a peer names: its own, or that of a process which has lent it, whatever its invitation says.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use linux::identity::Identity;
use linux::loan::Loan;
use linux::rendezvous::{self, Meeting};
use machine::{Notice, Port};
use ports::shm::{Geometry, INTRODUCTION, Invitation, Memory, ShmPort};

/// Names the part that this program plays when a test starts it again.
const PART: &str = "PLIMSOLL_TEST_IDENTITY";
/// The content of memory that is read.
const SECRET: u64 = 0x5ec4_e75e_c4e7_0001;

/// Another process, commanded by lines; it is killed and reaped on drop.
struct Other {
    child: Child,
    says: BufReader<ChildStdout>,
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Other {
    fn start(part: &str) -> Other {
        Other::start_with(part, Stdio::piped())
    }

    fn start_with(part: &str, input: Stdio) -> Other {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "identities::play_a_part", "--nocapture"]).env(PART, part);
        let mut child = command.stdin(input).stdout(Stdio::piped()).spawn().unwrap();
        let says = BufReader::new(child.stdout.take().unwrap());
        Other { child, says }
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// The text behind `key` on the next line that has it; other lines are the test harness's.
    fn hear(&mut self, key: &str) -> String {
        let mut line = String::new();
        while self.says.read_line(&mut line).unwrap() > 0 {
            if let Some((_, value)) = line.split_once(key) {
                return value.trim().to_owned();
            }
            line.clear();
        }
        panic!("it ended before it said '{key}'");
    }

    /// Makes it invite the receiver at `meeting`, for requests that point into `memory`.
    fn invite(&mut self, meeting: &Meeting, memory: &Memory) -> (Invitation, UnixStream) {
        self.tell(&format!("{} {} {} {}", meeting.name(), memory.pid, memory.address, memory.word));
        let until = Instant::now() + skip::LIMIT;
        let mut caller = None;
        loop {
            assert!(Instant::now() < until, "nobody invites");
            caller = caller.or_else(|| meeting.try_accept().unwrap());
            if let Some(stream) = &caller
                && let Some(invitation) = Invitation::take(stream).unwrap()
            {
                return (invitation, caller.unwrap());
            }
            std::thread::yield_now();
        }
    }
}

/// Not a test by itself: what the other processes run.
#[test]
fn play_a_part() {
    let Ok(part) = std::env::var(PART) else { return };
    let mut lines = std::io::stdin().lines().map(Result::unwrap);
    let mut inviters = Vec::new();
    match part.as_str() {
        // Invites as commanded, naming the memory of the command.
        "names" => {
            let meeting = Meeting::open(&format!("plimsoll-test/names/{}", std::process::id())).unwrap();
            println!("\nopen={}", meeting.name());
            for line in lines {
                let [at, pid, address, word] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("'{line}'") };
                let [pid, address, word] = [pid, address, word].map(|number| number.parse::<u64>().unwrap());
                // 0 stands for its own number.
                let pid = if pid == 0 { std::process::id() } else { pid as u32 };
                let mut port = ShmPort::on_behalf(Geometry::default(), Memory { pid, address, word });
                let peer = port.add_peer();
                port.invite(peer, rendezvous::call_at_once(at).unwrap(), &[0; INTRODUCTION]).unwrap();
                inviters.push((port, peer));
            }
        }
        // Lends memory to the process of the command, until it is killed.
        "lends" => {
            let (port, secret) = (ShmPort::default(), Box::new(SECRET));
            let Memory { pid, address, word } = *port.memory();
            let stream = rendezvous::call(&lines.next().unwrap()).unwrap();
            let _loan = Loan::to(&Identity::of_peer(&stream).unwrap().unwrap(), word).unwrap();
            println!("\nmemory={pid} {address} {word} {}", &raw const *secret as u64);
            while lines.next().is_some() {}
        }
        // Invites over a connection that another process has made.
        "speaks" => {
            let (stream, mut port) = (rustix::io::dup(std::io::stdin()).unwrap(), ShmPort::default());
            let peer = port.add_peer();
            port.invite(peer, UnixStream::from(stream), &[0; INTRODUCTION]).unwrap();
            while port.send(peer, 1, |into| into.fill(0)).is_ok() {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        other => panic!("no part '{other}'"),
    }
}

/// The memory and the secret that a lender prints.
fn lent(said: &str) -> (Memory, u64) {
    let numbers: Vec<u64> = said.split(' ').map(|number| number.parse().unwrap()).collect();
    let [pid, address, word, secret] = numbers[..] else { panic!("'{said}'") };
    (Memory { pid: pid as u32, address, word }, secret)
}

fn meeting(name: &str) -> Meeting {
    Meeting::open(&format!("plimsoll-test/{name}/{}", std::process::id())).unwrap()
}

#[test]
fn an_invitation_names_no_memory_but_its_senders() {
    let meeting = meeting("names");
    let mut port = ShmPort::default();
    let mut engine = Other::start("names");
    let mut third = Other::start("lends");
    third.tell(&engine.hear("open="));
    let (others, secret) = lent(&third.hear("memory="));
    let mut hostile = Other::start("names");
    let own = Box::new(SECRET);
    let receivers = *port.memory();
    for (memory, secret) in [(receivers, &raw const *own as u64), (others, secret)] {
        // Named by its number, or as if it were the sender's own.
        for pid in [memory.pid, 0] {
            let (invitation, stream) = hostile.invite(&meeting, &Memory { pid, ..memory });
            assert!(invitation.is_seen() && !invitation.is_readable(), "{memory:?} by {pid}");
            let peer = port.add_peer();
            port.accept(peer, invitation, stream).unwrap();
            assert_eq!(port.process(peer), Some(hostile.child.id()));
            let mut got = [0; 8];
            port.read_remote(peer, secret, &mut got).unwrap_err();
            assert_eq!(got, [0; 8]);
        }
    }
}

#[test]
fn an_invitation_over_the_connection_of_another_process_is_refused() {
    let (mine, theirs) = UnixStream::pair().unwrap();
    let _other = Other::start_with("speaks", Stdio::from(OwnedFd::from(theirs)));
    let until = Instant::now() + skip::LIMIT;
    let fault = loop {
        match Invitation::take(&mine) {
            Ok(invitation) => assert!(invitation.is_none() && Instant::now() < until, "it is taken, or does not come"),
            Err(fault) => break fault,
        }
        std::thread::yield_now();
    };
    assert_eq!(fault.cause(), "another process speaks than has connected");
}

#[test]
fn lent_memory_is_read_until_its_owner_ends() {
    let meeting = meeting("lent");
    let mut engine = Other::start("names");
    let mut owner = Other::start("lends");
    owner.tell(&engine.hear("open="));
    let (memory, secret) = lent(&owner.hear("memory="));
    let (invitation, stream) = engine.invite(&meeting, &memory);
    if !invitation.is_readable() {
        return skip::test("this kernel does not let a process read another's memory (ptrace_scope, seccomp)");
    }
    let mut port = ShmPort::default();
    let peer = port.add_peer();
    port.accept(peer, invitation, stream).unwrap();
    // The process that drives the rings is watched, and the owner of the memory is read.
    assert_eq!(port.process(peer), Some(engine.child.id()));
    let mut got = [0; 8];
    port.read_remote(peer, secret, &mut got).unwrap();
    assert_eq!(u64::from_ne_bytes(got), SECRET);
    drop(owner);
    let ended = port.read_remote(peer, secret, &mut got).unwrap_err();
    assert!(ended.cause().contains("its process has ended"), "{ended}");
    port.notices(|notice| panic!("{notice:?}: its engine lives")).unwrap();
    drop(engine);
    let until = Instant::now() + skip::LIMIT;
    let mut end = None;
    while end.is_none() {
        assert!(Instant::now() < until, "the end is not noticed");
        port.notices(|notice| end = Some(notice)).unwrap();
    }
    assert_eq!(end, Some(Notice::Dead(peer)));
}
