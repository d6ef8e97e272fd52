//! Processes that run out of descriptors: their reports, and that they go on once some are free.

use std::fs::File;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use endpoint::{Completion, Direction, Endpoint, Paths, Settings, Source, Status, TagSelector};
use linux::rendezvous;
use machine::{CoreId, Fault, PeerIndex};
use ports::shm::{Geometry, Role, ShmPort};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

type Joined = Endpoint<Paths, Vec<u8>>;

/// Names the part that this same program plays when a test starts it again.
const PART: &str = "PLIMSOLL_TEST_PART";
const CORE: &str = "PLIMSOLL_TEST_CORE";
/// Descriptor limit of a node that is to run out, neither soft nor hard to be raised.
const FEW: u64 = 64;

/// The other process; killed and reaped on drop, so that a failing test leaves none.
pub struct Other(pub Child);

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(part: &str, core: CoreId) -> Other {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "shortage::play_a_part", "--nocapture"]).env(PART, part).env(CORE, core.0.to_string());
    // Its harness's output would be taken for that of these tests.
    Other(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
}

/// The other process's part; not a test by itself.
#[test]
fn play_a_part() {
    let Ok(part) = std::env::var(PART) else { return };
    // One part is to raise its soft limit by itself.
    let maximum = if part == "raising node" { getrlimit(Resource::Nofile).maximum } else { Some(FEW) };
    setrlimit(Resource::Nofile, Rlimit { current: Some(FEW), maximum }).unwrap();
    match part.as_str() {
        "node" | "raising node" => {
            endpoint::node::serve(CoreId(std::env::var(CORE).unwrap().parse().unwrap())).unwrap()
        }
        "sender" => a_sender_without_descriptors(),
        "receiver" => a_receiver_without_descriptors(),
        "prepared" => a_link_whose_memory_was_made_before(),
        other => panic!("no part '{other}'"),
    }
}

fn settings() -> Settings {
    Settings { address: Some([127, 0, 0, 1].into()), ..Settings::default() }
}

fn pair() -> ([Joined; 2], PeerIndex) {
    let [mut one, mut other] = [(); 2].map(|()| Joined::join(&settings()).unwrap());
    let peer = one.insert(&other.name()).unwrap();
    ([one, other], peer)
}

/// Takes all descriptors that this process may have.
fn all_descriptors() -> Vec<File> {
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}

/// Polls often enough for every kind of look.
fn poll(ends: &mut [Joined]) -> Vec<Completion<Vec<u8>>> {
    let mut ended = Vec::new();
    for _ in 0..20_000 {
        for end in ends.iter_mut() {
            ended.extend(end.poll().expect("an endpoint that goes on"));
        }
    }
    ended
}

fn arrives(ends: &mut [Joined]) {
    let deadline = Instant::now() + skip::LIMIT;
    loop {
        for done in poll(ends) {
            assert_eq!(done.status, Status::Done, "{done:?}");
            if done.direction == Direction::Receive {
                return assert_eq!(done.buffer, b"message");
            }
        }
        assert!(Instant::now() < deadline, "the message does not come");
    }
}

/// Checks that the notes name the cause.
fn assert_noted(end: &mut Joined) {
    let notes = end.report().unwrap().notes;
    assert!(notes.iter().any(|note| note.contains("Too many open files")), "{notes:?}");
}

fn a_sender_without_descriptors() {
    let (mut ends, peer) = pair();
    ends[1].receive(Source::Any, TagSelector::any(), vec![0; 7], 0).unwrap();
    let mut taken = all_descriptors();
    ends[0].send(peer, 1, b"message".to_vec(), 0).unwrap();
    assert!(poll(&mut ends).is_empty(), "the send neither ends nor fails while there is no descriptor");
    // Leaves one for the socket, none for the memory.
    taken.pop();
    assert!(poll(&mut ends).is_empty(), "nor while there are too few");
    drop(taken);
    arrives(&mut ends);
    assert_noted(&mut ends[0]);
}

fn a_receiver_without_descriptors() {
    let (mut ends, peer) = pair();
    ends[0].send(peer, 1, b"message".to_vec(), 0).unwrap();
    ends[1].receive(Source::Any, TagSelector::any(), vec![0; 7], 0).unwrap();
    let taken = all_descriptors();
    arrives(&mut ends);
    drop(taken);
}

fn a_link_whose_memory_was_made_before() {
    let (here, there) = UnixStream::pair().unwrap();
    let mut creating = ShmPort::new(Geometry::default());
    creating.prepare().unwrap();
    let thread = std::thread::spawn(move || ShmPort::new(Geometry::default()).connect(&there, Role::Join).map(|_| ()));
    let mut taken = all_descriptors();
    // Leaves one for the memory that the joining end is passed.
    taken.pop();
    creating.connect(&here, Role::Create).unwrap();
    thread.join().unwrap().unwrap();
}

fn plays(part: &str) {
    let mut other = start(part, CoreId(0));
    assert!(other.0.wait().unwrap().success(), "see above");
}

#[test]
fn a_message_waits_for_its_senders_descriptors() {
    plays("sender");
}

#[test]
fn a_message_needs_no_descriptors_of_its_receiver_beyond_the_reserve() {
    plays("receiver");
}

#[test]
fn a_link_whose_memory_was_made_before_takes_no_descriptor() {
    plays("prepared");
}

#[test]
fn a_peer_that_is_not_there_is_told_of_with_the_cause() {
    let mut one = Joined::join(&settings()).unwrap();
    let gone = Joined::join(&settings()).unwrap().name();
    let peer = one.insert(&gone).unwrap();
    one.send(peer, 1, b"message".to_vec(), 5).unwrap();
    let deadline = Instant::now() + skip::LIMIT;
    let done = loop {
        if let Some(done) = one.poll().unwrap() {
            break done;
        }
        assert!(Instant::now() < deadline);
    };
    assert_eq!((done.context, done.status), (5, Status::PeerDead));
    let (lost, fault) = one.next_lost().expect("a cause");
    assert_eq!((lost, fault.cause()), (peer, "no process of this network namespace holds it"));
    assert!(fault.subject().starts_with("peer 0: socket") && !fault.next().is_empty(), "{fault}");
    assert!(one.next_lost().is_none(), "told once");
    let notes = one.report().unwrap().notes;
    assert!(notes.iter().any(|note| note.contains("no process of this network namespace holds it")), "{notes:?}");
}

/// The engine of a node that may have few descriptors, on a core that no other engine of this user serves.
pub fn node(part: &str, core: CoreId) -> Other {
    let name = format!("plimsoll/engine/{}/{}", rustix::process::geteuid().as_raw(), core.0);
    let deadline = Instant::now() + skip::LIMIT;
    loop {
        let mut node = start(part, core);
        while node.0.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "the engine does not answer");
            let holder =
                rendezvous::call(&name).ok().and_then(|stream| rustix::net::sockopt::socket_peercred(stream).ok());
            if holder.is_some_and(|holder| holder.pid == rustix::process::Pid::from_child(&node.0)) {
                return node;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        // A job of the user's own has an engine there; it lingers for some seconds.
        assert!(Instant::now() < deadline, "another engine holds the name");
    }
}

#[test]
#[ignore = "make check"]
fn a_node_without_descriptors_says_so_and_goes_on_taking_ranks() {
    let _turn = skip::turn();
    let core = *linux::affinity::allowed().unwrap().last().unwrap();
    let node = node("node", core);
    let settings = Settings { placement: machine::Site::Core(core), ..settings() };
    let join = || -> Result<Joined, Fault> { Joined::join(&settings) };
    let mut ranks = vec![];
    let refusal = loop {
        match join() {
            Ok(rank) => ranks.push(rank),
            Err(fault) => break fault,
        }
        assert!(ranks.len() < FEW as usize, "so many ranks take more descriptors than there are");
    };
    if refusal.cause().contains("may not read this rank's memory") {
        return skip::test("the engine's process may not read this one's memory");
    }
    assert!(ranks.len() >= 16, "{} ranks fit; then {refusal}", ranks.len());
    for refusal in [Some(refusal), join().err(), join().err()] {
        let refusal = refusal.expect("there is no room yet").to_string();
        assert!(refusal.contains("Too many open files") && refusal.contains("node's engine on"), "{refusal}");
        assert!(refusal.contains("ulimit -n"), "{refusal}");
    }
    // Descriptors are freed, and the next rank is taken.
    ranks.truncate(8);
    let deadline = Instant::now() + skip::LIMIT;
    loop {
        match join() {
            Ok(rank) => break ranks.push(rank),
            Err(fault) => assert!(Instant::now() < deadline, "{fault}"),
        }
    }
    // All to all: many more links than descriptors.
    let names: Vec<_> = ranks.iter_mut().map(Joined::name).collect();
    for rank in &mut ranks {
        for (from, name) in names.iter().enumerate() {
            let peer = rank.insert(name).unwrap();
            rank.receive(Source::Peer(peer), TagSelector::any(), vec![0; 8], from as u64).unwrap();
            rank.send(peer, 3, vec![7; 8], 99).unwrap();
        }
    }
    let mut left = 2 * ranks.len() * ranks.len();
    let deadline = Instant::now() + skip::LIMIT;
    while left > 0 {
        assert!(Instant::now() < deadline, "{left} requests did not end");
        for rank in &mut ranks {
            while let Some(done) = rank.poll().unwrap() {
                assert_eq!((done.status, &done.buffer[..]), (Status::Done, &[7; 8][..]));
                left -= 1;
            }
        }
    }
    drop((ranks, node));
}

#[test]
fn a_node_raises_its_soft_limit_on_descriptors() {
    let _turn = skip::turn();
    let [core, ..] = linux::affinity::allowed().unwrap()[..] else { unreachable!("a core that runs this") };
    let _node = node("raising node", core);
    let settings = Settings { placement: machine::Site::Core(core), ..settings() };
    let mut ranks = Vec::new();
    while ranks.len() < FEW as usize {
        match Joined::join(&settings) {
            Ok(rank) => ranks.push(rank),
            Err(fault) if fault.cause().contains("may not read this rank's memory") => {
                return skip::test("the engine's process may not read this one's memory");
            }
            Err(fault) => panic!("{} ranks have joined; then {fault}", ranks.len()),
        }
    }
}
