//! A process is killed in each state of the protocol, over shared memory and over UDP: its peer's requests end with
//! [`Status::PeerDead`], the peer's other conversations go on, and the link's resources are freed.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use endpoint::{Completion, Endpoint, Name, Paths, Settings, Source, Status, TagSelector};
use linux::accounting::shared;
use linux::shortage::descriptors;
use machine::PeerIndex;

type Joined = Endpoint<Paths, Vec<u8>>;

const STATE: &str = "PLIMSOLL_TEST_STATE";
const CARRIER: &str = "PLIMSOLL_TEST_SHM";
/// Polls enough for every kind of look.
const POLLS: usize = 20_000;
const LONG: usize = 64 << 20;
/// Number of messages of 8000 B: more than a link holds before its receiver polls.
const SHORT: usize = 4_000;
/// Shared memory that the link may leave: a page that both ends had mapped counted half before.
const SLACK: u64 = 64 << 10;

/// Tags of messages that the victim sends; that it receives; that never come; that it does not receive.
const FROM_VICTIM: u64 = 1;
const TO_VICTIM: u64 = 2;
const NEVER: u64 = 3;
const UNRECEIVED: u64 = 4;

/// Actions of the victim before it is killed, and of the survivor meanwhile.
struct Case {
    state: &'static str,
    /// Actions of the victim until it is ready. The value returned lives until it is killed.
    victim: fn(Joined, PeerIndex) -> Option<Joined>,
    /// Whether the victim goes on polling.
    turns: bool,
    /// Actions of the survivor before the victim is ready, and after.
    before: fn(&mut Joined, PeerIndex),
    after: fn(&mut Joined, PeerIndex),
    /// Contexts of the survivor's requests by then.
    asked: &'static [u64],
}

fn nothing(_: &mut Joined, _: PeerIndex) {}

fn tell(end: &mut Joined, to: PeerIndex, length: usize) {
    end.send(to, FROM_VICTIM, vec![7; length], 0).unwrap();
    end.poll().unwrap();
}

fn long_receive(end: &mut Joined, from: PeerIndex) {
    end.receive(Source::Peer(from), TagSelector::exactly(FROM_VICTIM), vec![0; LONG], 10).unwrap();
}

/// Receives what the survivor sent.
fn take(end: &mut Joined, from: PeerIndex) {
    end.receive(Source::Peer(from), TagSelector::exactly(TO_VICTIM), vec![0; 8], 20).unwrap();
    let done = poll_until(end, "the victim's message", |done| done.context == 20);
    assert_eq!(done.status, Status::Done);
}

fn write_short(end: &mut Joined, to: PeerIndex) {
    end.send(to, TO_VICTIM, vec![1; 8], 0).unwrap();
    poll(end, 1_000);
}

fn write_confirmed(end: &mut Joined, to: PeerIndex) {
    write_short(end, to);
    end.send_confirmed(to, UNRECEIVED, vec![1; 8], 12).unwrap();
    poll(end, 1_000);
}

fn write_many(end: &mut Joined, to: PeerIndex) {
    for number in 0..500 {
        end.send(to, UNRECEIVED, vec![1; [8, 500, 3000, 8000][number % 4]], 0).unwrap();
        end.poll().unwrap();
    }
}

/// Polls until a part of the long message is here.
fn read_a_part(end: &mut Joined, _: PeerIndex) {
    let deadline = Instant::now() + skip::LIMIT;
    loop {
        assert!(end.poll().unwrap().is_none(), "nothing ends yet");
        let report = end.report().unwrap();
        if report.ports.iter().map(|port| port.carried.bytes_fetched + port.carried.bytes_received).sum::<u64>()
            > 100_000
        {
            return;
        }
        assert!(Instant::now() < deadline, "the message does not come");
    }
}

fn is_announced(end: &mut Joined, from: PeerIndex) {
    let deadline = Instant::now() + skip::LIMIT;
    while end.probe(Source::Peer(from), TagSelector::exactly(FROM_VICTIM)).unwrap().is_none() {
        end.poll().unwrap();
        assert!(Instant::now() < deadline, "the message is not announced");
    }
}

const CASES: [Case; 9] = [
    Case {
        state: "introducing itself",
        victim: |mut end, peer| {
            tell(&mut end, peer, 8);
            Some(end)
        },
        turns: false,
        before: nothing,
        after: nothing,
        asked: &[],
    },
    Case {
        state: "link offered, not taken",
        victim: |end, _| Some(end),
        turns: false,
        before: nothing,
        after: write_short,
        asked: &[],
    },
    Case {
        state: "link taken, nothing sent",
        victim: |mut end, peer| {
            take(&mut end, peer);
            Some(end)
        },
        turns: false,
        before: write_short,
        after: nothing,
        asked: &[],
    },
    Case {
        state: "short messages half told",
        victim: |mut end, peer| {
            take(&mut end, peer);
            (0..SHORT).for_each(|_| tell(&mut end, peer, 8_000));
            Some(end)
        },
        turns: false,
        before: write_short,
        after: |end, peer| {
            for _ in 0..SHORT {
                end.receive(Source::Peer(peer), TagSelector::exactly(FROM_VICTIM), vec![0; 8_000], 50).unwrap();
            }
        },
        asked: &[50; SHORT],
    },
    Case {
        state: "rendezvous announced",
        victim: |mut end, peer| {
            tell(&mut end, peer, LONG);
            poll(&mut end, 1_000);
            Some(end)
        },
        turns: false,
        before: nothing,
        after: is_announced,
        asked: &[],
    },
    Case {
        state: "long message under way",
        victim: |mut end, peer| {
            tell(&mut end, peer, LONG);
            Some(end)
        },
        turns: true,
        before: long_receive,
        after: read_a_part,
        asked: &[10],
    },
    Case {
        state: "link growing",
        victim: |mut end, peer| {
            take(&mut end, peer);
            Some(end)
        },
        turns: true,
        before: write_short,
        after: write_many,
        asked: &[],
    },
    Case {
        state: "confirmed send outstanding",
        victim: |mut end, peer| {
            take(&mut end, peer);
            poll(&mut end, 1_000);
            Some(end)
        },
        turns: true,
        before: write_confirmed,
        after: nothing,
        asked: &[12],
    },
    Case {
        state: "closing",
        victim: |mut end, peer| {
            take(&mut end, peer);
            tell(&mut end, peer, LONG);
            None
        },
        turns: false,
        before: write_short,
        after: nothing,
        asked: &[],
    },
];

fn join(shm: bool) -> Joined {
    Joined::join(&Settings { address: Some([127, 0, 0, 1].into()), shm, ..Settings::default() }).unwrap()
}

fn poll(end: &mut Joined, times: usize) {
    for _ in 0..times {
        end.poll().unwrap();
    }
}

fn poll_until(end: &mut Joined, what: &str, mut is: impl FnMut(&Completion<Vec<u8>>) -> bool) -> Completion<Vec<u8>> {
    let deadline = Instant::now() + skip::LIMIT;
    loop {
        match end.poll().unwrap() {
            Some(done) if is(&done) => return done,
            // No yield: other work of the machine would have a slice for each of the thousands of polls.
            Some(_) | None => {}
        }
        assert!(Instant::now() < deadline, "{what} does not end");
    }
}

fn written(name: &Name) -> String {
    name.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn read(text: &str) -> Name {
    let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    Name::from_bytes(&(0..text.len()).step_by(2).map(byte).collect::<Vec<_>>()).unwrap()
}

/// The other process's part; not a test by itself.
#[test]
fn a_victim() {
    let Ok(state) = std::env::var(STATE) else { return };
    let case = CASES.iter().find(|case| case.state == state).expect("a state of the table");
    let mut end = join(std::env::var(CARRIER).unwrap() == "true");
    println!("\nname={}", written(&end.name()));
    let peer = end.insert(&read(std::io::stdin().lines().next().unwrap().unwrap().trim()));
    let mut kept = (case.victim)(end, peer.unwrap());
    println!("\nready=");
    loop {
        match kept.as_mut().filter(|_| case.turns) {
            Some(end) => drop(end.poll().unwrap()),
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// The victim's process; killed and reaped on drop.
struct Victim(Child, BufReader<ChildStdout>);

impl Drop for Victim {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Victim {
    fn start(state: &str, shm: bool) -> Victim {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "killed::a_victim", "--nocapture"]).env(STATE, state).env(CARRIER, shm.to_string());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Victim(child, out)
    }

    fn hear(&mut self, key: &str) -> String {
        let mut line = String::new();
        while self.1.read_line(&mut line).unwrap() > 0 {
            if let Some((_, value)) = line.split_once(key) {
                return value.trim().to_owned();
            }
            line.clear();
        }
        panic!("it ended before it said '{key}'");
    }
}

fn kill_in(case: &Case, shm: bool, survivor: &mut Joined, other: &mut Joined) {
    let at = format!("{}, {}", case.state, if shm { "shm" } else { "udp" });
    let before = (*descriptors().value().unwrap(), shared().value().unwrap().0);
    let mut victim = Victim::start(case.state, shm);
    let peer = survivor.insert(&read(&victim.hear("name="))).unwrap();
    (case.before)(survivor, peer);
    writeln!(victim.0.stdin.as_mut().unwrap(), "{}", written(&survivor.name())).unwrap();
    victim.hear("ready=");
    (case.after)(survivor, peer);
    survivor.receive(Source::Peer(peer), TagSelector::exactly(NEVER), vec![0; 8], 30).unwrap();
    drop(victim);
    survivor.send_confirmed(peer, UNRECEIVED, vec![1; 8], 31).unwrap();
    // A part of the messages before the end may be here, or all.
    survivor.receive(Source::Peer(peer), TagSelector::exactly(FROM_VICTIM), vec![0; LONG], 32).unwrap();
    let mut left = [&[30, 31, 32], case.asked].concat();
    let mut lost = 0;
    poll_until(survivor, &at, |done| {
        if let Some(place) = left.iter().position(|context| *context == done.context) {
            left.swap_remove(place);
            let may_be_whole = [32, 50].contains(&done.context) && done.envelope.length < LONG as u64;
            let whole = may_be_whole && done.status == Status::Done;
            assert!(
                whole || done.status == Status::PeerDead,
                "{at}: request {} ended as {:?}",
                done.context,
                done.status
            );
            assert!(
                !whole || done.buffer[..done.envelope.length as usize].iter().all(|byte| *byte == 7),
                "{at}: altered"
            );
            lost += usize::from(done.context == 50 && !whole);
        }
        left.is_empty()
    });
    assert!(lost > 0 || !case.asked.contains(&50), "{at}: all was told");
    // Conversations with others go on.
    let there = survivor.insert(&other.name()).unwrap();
    other.receive(Source::Any, TagSelector::any(), vec![0; 8], 40).unwrap();
    survivor.send(there, 9, vec![9; 8], 41).unwrap();
    let deadline = Instant::now() + skip::LIMIT;
    loop {
        assert!(Instant::now() < deadline, "{at}: another conversation stands still");
        survivor.poll().unwrap();
        if let Some(done) = other.poll().unwrap() {
            assert_eq!((done.status, done.buffer), (Status::Done, vec![9; 8]), "{at}");
            break;
        }
    }
    // The victim's remains are freed when the kernel is next asked about it.
    let deadline = Instant::now() + skip::LIMIT;
    loop {
        poll(survivor, POLLS);
        let after = (*descriptors().value().unwrap(), shared().value().unwrap().0);
        if after.0 == before.0 && after.1 <= before.1 + SLACK {
            break;
        }
        assert!(Instant::now() < deadline, "{at}: descriptors and shared memory {before:?} before, {after:?} after");
    }
}

#[test]
#[ignore = "make check"]
fn who_is_killed_in_any_state_is_given_up_and_others_go_on() {
    if !skip::alone() {
        return;
    }
    if descriptors().value().is_none() || shared().value().is_none() {
        return skip::test("this kernel does not tell what memory a process shares");
    }
    for shm in [true, false] {
        let [mut survivor, mut other] = [join(shm), join(shm)];
        // The link to the other is there from the start.
        let there = survivor.insert(&other.name()).unwrap();
        survivor.send(there, 9, vec![9; 8], 41).unwrap();
        other.receive(Source::Any, TagSelector::any(), vec![0; 8], 40).unwrap();
        let mut came = false;
        for _ in 0..POLLS {
            survivor.poll().unwrap();
            came |= other.poll().unwrap().is_some();
        }
        assert!(came);
        for case in &CASES {
            kill_in(case, shm, &mut survivor, &mut other);
        }
    }
}
