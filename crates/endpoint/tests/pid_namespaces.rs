//! Endpoints in different PID namespaces of one host, as in containers that share its network: to one of them, or to
//! both, the other has no process number. They exchange a mebibyte over shared memory, and one hears of the other's end.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use endpoint::{Completion, Endpoint, Name, Paths, Settings, Source, Status, TagSelector};
use machine::PeerIndex;

type Joined = Endpoint<Paths, Vec<u8>>;

const ROLE: &str = "ENDPOINT_TEST_ROLE";
const SIZE: usize = 1 << 20;

fn pattern(seed: usize) -> Vec<u8> {
    (0..SIZE).map(|i| (i * 31 + seed * 7 + i / 251) as u8).collect()
}

/// PID namespace of an end's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Space {
    /// The test's own, from which the other end's is visible.
    Outer,
    /// A new one with its own `/proc`.
    Own,
}

/// An end's process, and the pipes by which the test tells it what to do.
struct End {
    process: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl End {
    fn start(space: Space, role: &str) -> End {
        let test = std::env::current_exe().unwrap();
        let mut command = match space {
            Space::Outer => Command::new(test),
            Space::Own => {
                let mut command = Command::new("unshare");
                command.args(["--pid", "--fork", "--kill-child", "--mount-proc", "--"]).arg(test);
                command
            }
        };
        command.args(["--exact", "pid_namespaces::an_end", "--nocapture"]).env(ROLE, role);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (to, from) = (process.stdin.take(), BufReader::new(process.stdout.take().unwrap()));
        End { process, to, from }
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.to.as_mut().unwrap(), "{line}").unwrap();
    }

    /// The rest of the next line with `key`; other lines are the test harness's.
    fn hear(&mut self, key: &str) -> String {
        let mut line = String::new();
        while self.from.read_line(&mut line).unwrap() > 0 {
            if let Some((_, value)) = line.split_once(key) {
                return value.trim().to_owned();
            }
            line.clear();
        }
        panic!("it ended before it said '{key}'");
    }
}

impl Drop for End {
    fn drop(&mut self) {
        // The namespace ends with `unshare`.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn until(end: &mut Joined, context: u64) -> Completion<Vec<u8>> {
    let deadline = Instant::now() + skip::LIMIT;
    loop {
        match end.poll().unwrap() {
            Some(done) if done.context == context => return done,
            Some(_) => {}
            None => std::thread::yield_now(),
        }
        assert!(Instant::now() < deadline, "request {context} has not ended");
    }
}

/// Sends the message and stops polling once it is announced, so that its receiver reads it where it can.
fn announce(end: &mut Joined, peer: PeerIndex, tag: u64) {
    end.send_confirmed(peer, tag, pattern(tag as usize), 10).unwrap();
    while end.report().unwrap().counters.announced == 0 {
        assert!(end.poll().unwrap().is_none());
    }
    std::thread::sleep(Duration::from_millis(200));
}

/// One end, in the process that the tests below start; not a test by itself.
#[test]
fn an_end() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let first = role == "first";
    let settings = Settings::read(|key| (key == "ADDRESS").then(|| "127.0.0.1".to_owned())).unwrap();
    let mut end = Joined::join(&settings).unwrap();
    let hexadecimal: String = end.name().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    println!("\nname={hexadecimal}");
    let mut lines = std::io::stdin().lines();
    let mut next = || lines.next().expect("the test says what to do").unwrap();
    let other = next();
    let bytes: Vec<u8> =
        (0..other.len()).step_by(2).map(|at| u8::from_str_radix(&other[at..at + 2], 16).unwrap()).collect();
    let peer = end.insert(&Name::from_bytes(&bytes).unwrap()).unwrap();

    // One writes, the other answers: each direction's link is made by its writer.
    let (mine, theirs) = if first { (1, 2) } else { (2, 1) };
    end.receive(Source::Peer(peer), TagSelector::exactly(theirs), vec![0; SIZE], 20).unwrap();
    if first {
        announce(&mut end, peer, mine);
    }
    let got = until(&mut end, 20);
    assert_eq!(got.status, Status::Done);
    assert!(got.buffer == pattern(theirs as usize), "the message came otherwise than it was sent");
    if !first {
        announce(&mut end, peer, mine);
    }
    // The first end has its own message back by now.
    if !first {
        assert_eq!(until(&mut end, 10).status, Status::Done);
    }
    let report = end.report().unwrap();
    println!("\nnotes={}", report.notes.join("; "));
    let shm = &report.ports[0].carried;
    println!("\nshm={} {}", shm.bytes_received >= SIZE as u64, shm.bytes_fetched);
    let _killed = next();
    end.send_confirmed(peer, 3, pattern(3), 30).unwrap();
    println!("\nstatus={:?}", until(&mut end, 30).status);
}

/// Has ends in these namespaces exchange messages; then the first writer is killed.
fn talk(first: Space, second: Space) {
    let mut ends = [End::start(first, "first"), End::start(second, "second")];
    let names = [0, 1].map(|at| ends[at].hear("name="));
    ends[0].tell(&names[1]);
    ends[1].tell(&names[0]);
    for (at, (own, other)) in [(first, second), (second, first)].into_iter().enumerate() {
        let notes = ends[at].hear("notes=");
        let unseen = own == Space::Own;
        assert_eq!(
            notes.contains("1 peers on this host are in a PID namespace"),
            unseen,
            "{own:?} of {other:?}: {notes}"
        );
        let carried = ends[at].hear("shm=");
        let (by_packets, fetched) = carried.split_once(' ').unwrap();
        let (by_packets, fetched) = (by_packets == "true", fetched != "0");
        // An end that sees its sender reads its memory, unless the link has found copies to be faster.
        assert!(if unseen { by_packets && !fetched } else { by_packets != fetched }, "{own:?} of {other:?}: {carried}");
    }
    let [one, other] = &mut ends;
    one.process.kill().unwrap();
    one.process.wait().unwrap();
    other.tell("killed");
    assert_eq!(other.hear("status="), "PeerDead");
}

fn possible() -> bool {
    let Some(unshare) = skip::tool("unshare") else { return false };
    let tried = Command::new(unshare).args(["--pid", "--fork", "--mount-proc", "true"]).status();
    let possible = tried.is_ok_and(|status| status.success());
    if !possible {
        skip::test("no PID namespace of its own: run as root");
    }
    possible
}

#[test]
fn two_ends_of_which_neither_sees_the_other() {
    if possible() {
        talk(Space::Own, Space::Own);
    }
}

#[test]
fn an_end_that_sees_the_other_and_is_not_seen_writes_first() {
    if possible() {
        talk(Space::Outer, Space::Own);
    }
}

#[test]
fn an_end_that_is_seen_and_does_not_see_writes_first() {
    if possible() {
        talk(Space::Own, Space::Outer);
    }
}
