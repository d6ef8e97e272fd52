//! The same application over every port at every placement.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use endpoint::{
    Completion, Dilated, Direction, Endpoint, LinkConfig, Source, Status, TagSelector, shm_links, udp_links,
};
use machine::{Capabilities, Dilation, Fault, Notice, PeerIndex, Port, Result, Sent, Site};
use ports::shm::{Role, ShmPort};
use ports::udp::UdpPort;

const OTHER: PeerIndex = PeerIndex(0);
const SESSION: u32 = 77;
type End<P> = (P, Vec<LinkConfig>);

fn shm_ends() -> [End<ShmPort>; 2] {
    let (here, there) = UnixStream::pair().unwrap();
    let join = std::thread::spawn(move || {
        let mut port = ShmPort::default();
        port.connect(&there, Role::Join).unwrap();
        port
    });
    let mut port = ShmPort::default();
    port.connect(&here, Role::Create).unwrap();
    [port, join.join().unwrap()].map(|port| {
        let links = shm_links(&port, 1);
        (port, links)
    })
}

fn udp_ends() -> [End<UdpPort>; 2] {
    let open = || UdpPort::open(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let mut ports = [open(), open()];
    let addresses = [ports[0].local_address(), ports[1].local_address()];
    ports[0].add_peer(addresses[1]).unwrap();
    ports[1].add_peer(addresses[0]).unwrap();
    ports.map(|port| {
        let links = udp_links(&port, &[SESSION]);
        (port, links)
    })
}

fn content(length: usize, salt: usize) -> Vec<u8> {
    let repeated: Vec<u8> = (0..256).map(|i| (i * 7 + length + salt) as u8).collect();
    let mut content = repeated.repeat(length / 256 + 1);
    content.truncate(length);
    content
}

fn sites() -> Vec<Site> {
    let last = *linux::affinity::allowed().unwrap().last().unwrap();
    vec![Site::App, Site::Core(last)]
}

fn wait<P: Port + Send + 'static>(endpoint: &mut Endpoint<P, Vec<u8>>) -> Completion<Vec<u8>> {
    let deadline = Instant::now() + skip::LIMIT;
    loop {
        if let Some(done) = endpoint.poll().unwrap() {
            return done;
        }
        assert!(Instant::now() < deadline, "nothing completed");
        std::thread::yield_now();
    }
}

/// Both ends send each other messages of many sizes, some receives posted late; everything arrives in order.
fn converse<P: Port + Send + 'static>(
    end: End<P>,
    (site, dilation): (&Site, Dilation),
    salt: usize,
    settled: &AtomicUsize,
) {
    let mut endpoint = Endpoint::open_dilated(end.0, &end.1, site, &[], dilation).unwrap();
    let lengths = [0, 1, 8, 40, 41, 1000, 9000, 70_000, 1 << 20];
    let rounds = 20;
    let mut expected = VecDeque::new();
    for round in 0..rounds {
        for length in lengths {
            if round % 2 == 0 {
                endpoint.receive(Source::Peer(OTHER), TagSelector::exactly(5), vec![0; length], 0).unwrap();
            }
            endpoint.send(OTHER, 5, content(length, salt + round), 1).unwrap();
            if round % 2 == 1 {
                endpoint.receive(Source::Any, TagSelector::any(), vec![0; length], 0).unwrap();
            }
            expected.push_back(content(length, 1 - salt + round));
        }
    }
    let mut sent = 0;
    while sent < rounds * lengths.len() || !expected.is_empty() {
        let done = wait(&mut endpoint);
        assert_eq!(done.status, Status::Done);
        match done.direction {
            Direction::Send => sent += 1,
            Direction::Receive => {
                // Long messages may end after short ones posted later.
                let at = expected.iter().position(|content| *content == done.buffer).expect("a message that was sent");
                expected.remove(at);
            }
        }
    }
    endpoint.settle(skip::LIMIT).unwrap();
    settled.fetch_add(1, Ordering::SeqCst);
    if let Site::Core(_) = site {
        assert!(endpoint.engine_turns().unwrap() > 0);
    }
    assert_eq!(endpoint.counters().unwrap().malformed, 0);
    stretched(endpoint.dilated().unwrap(), dilation);
    // The other end may still need acknowledgements.
    let deadline = Instant::now() + skip::LIMIT;
    while settled.load(Ordering::SeqCst) < 2 {
        assert!(Instant::now() < deadline, "the other end does not settle");
        assert!(endpoint.poll().unwrap().is_none_or(|done| done.status == Status::PeerDead));
        std::thread::yield_now();
    }
}

/// Checks that all the spinning owed was done. A spin whose thread is preempted spins longer, by as much as the scheduler
/// likes: that no spin is asked for too much is what the tests of `dilation` hold by a simulated counter.
fn stretched(dilated: Option<Dilated>, dilation: Dilation) {
    assert_eq!(dilated.is_some(), !dilation.is_none());
    let Some(Dilated { asked, worked, busy, spun }) = dilated else { return };
    assert_eq!(asked, dilation);
    let owed = (dilation.factor() - 1.0) * worked as f64;
    assert!(0 < busy && busy <= worked, "{dilated:?}");
    assert!(owed <= spun as f64 + 1.0, "{dilated:?}");
}

fn converse_everywhere<P: Port + Send + 'static>(ends: fn() -> [End<P>; 2], dilation: Dilation) {
    for site in sites() {
        let [a, b] = ends();
        let settled = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| converse(b, (&site, dilation), 1, &settled));
            converse(a, (&site, dilation), 0, &settled);
        });
    }
}

#[test]
fn shared_memory_carries_everything_at_every_placement() {
    converse_everywhere(shm_ends, Dilation::NONE);
}

#[test]
fn udp_carries_everything_at_every_placement() {
    converse_everywhere(udp_ends, Dilation::NONE);
}

#[test]
#[ignore = "make check"]
fn protocol_work_that_is_stretched_carries_everything_and_spins_what_was_asked() {
    let three: Dilation = "3".parse().unwrap();
    converse_everywhere(shm_ends, three);
}

#[test]
#[ignore = "make check"]
fn protocol_work_that_is_stretched_carries_everything_over_udp() {
    converse_everywhere(udp_ends, "3".parse().unwrap());
}

#[test]
fn probe_and_cancel_work_at_every_placement() {
    for site in sites() {
        let [a, b] = shm_ends();
        let mut a = Endpoint::open(a.0, &a.1, &site, &[]).unwrap();
        let mut b = Endpoint::open(b.0, &b.1, &site, &[]).unwrap();
        let withdrawn = b.receive(Source::Any, TagSelector::exactly(1), vec![0; 4], 42).unwrap();
        assert!(b.cancel(withdrawn).unwrap());
        let done = wait(&mut b);
        assert_eq!((done.status, done.context, done.request), (Status::Cancelled, 42, withdrawn));
        assert!(!b.cancel(withdrawn).unwrap());
        a.send(OTHER, 2, vec![1, 2, 3], 0).unwrap();
        let deadline = Instant::now() + skip::LIMIT;
        let envelope = loop {
            if let Some(envelope) = b.probe(Source::Any, TagSelector::any()).unwrap() {
                break envelope;
            }
            assert!(Instant::now() < deadline);
        };
        assert_eq!((envelope.peer, envelope.tag, envelope.length), (OTHER, 2, 3));
    }
}

#[test]
fn a_core_that_does_not_exist_is_refused_by_name() {
    let [a, _b] = shm_ends();
    let fault = Endpoint::<_, Vec<u8>>::open(a.0, &a.1, &"core:9999".parse().unwrap(), &[]).err().unwrap();
    assert!(fault.to_string().contains("core:9999") && fault.to_string().contains("Next:"), "{fault}");
}

#[test]
fn a_core_that_the_application_cannot_leave_is_shared_and_said_so() {
    let core = *linux::affinity::allowed().unwrap().last().unwrap();
    let _pinned = linux::affinity::pin(core).unwrap();
    let [a, _b] = shm_ends();
    let endpoint = Endpoint::<_, Vec<u8>>::open(a.0, &a.1, &Site::Core(core), &[]).unwrap();
    assert!(endpoint.placed().yields);
    assert!(endpoint.placed().notes.iter().any(|note| note.contains("yields")), "{:?}", endpoint.placed());
}

#[test]
fn an_application_that_can_leave_the_engines_core_is_moved_off_it() {
    let allowed = linux::affinity::allowed().unwrap();
    let Some(&core) = allowed.last().filter(|_| allowed.len() > 1) else {
        skip::test("this host has one core");
        return;
    };
    let [a, _b] = shm_ends();
    let endpoint = Endpoint::<_, Vec<u8>>::open(a.0, &a.1, &Site::Core(core), &[]).unwrap();
    assert!(!linux::affinity::current().unwrap().contains(&core));
    drop(endpoint);
    assert!(linux::affinity::current().unwrap().contains(&core));
}

#[test]
fn what_was_sent_before_the_end_arrives_from_every_placement() {
    for site in sites() {
        let [a, b] = shm_ends();
        let mut a = Endpoint::open(a.0, &a.1, &site, &[]).unwrap();
        let mut b = Endpoint::<_, Vec<u8>>::open(b.0, &b.1, &Site::App, &[]).unwrap();
        let sent = a.send(OTHER, 1, vec![1, 2, 3], 0).unwrap();
        let waits = a.receive(Source::Any, TagSelector::any(), vec![0; 1], 0).unwrap();
        assert_ne!(sent, waits);
        assert!(!a.cancel(sent).unwrap(), "it has ended");
        a.pause();
        for tag in 2..9 {
            a.send(OTHER, tag, vec![tag as u8; 3], 0).unwrap();
        }
        let thread = a.engine_thread();
        drop(a);
        assert!(thread.is_none_or(|thread| !std::path::Path::new(&format!("/proc/self/task/{thread}")).exists()));
        for tag in 1..9 {
            b.receive(Source::Any, TagSelector::exactly(tag), vec![0; 3], 0).unwrap();
            assert_eq!(wait(&mut b).status, Status::Done);
        }
    }
}

/// A port that fails at the first poll.
struct Broken;

fn broken<T>() -> Result<T> {
    Err(Fault::new("the port", "it is broken", "take another"))
}

impl Port for Broken {
    fn capabilities(&self) -> Capabilities {
        ShmPort::default().capabilities()
    }

    fn send(&mut self, _: PeerIndex, _: usize, _: impl FnOnce(&mut [u8])) -> Result<Sent> {
        broken()
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    fn receive(&mut self, _: usize, _: impl FnMut(PeerIndex, &[u8])) -> Result<usize> {
        broken()
    }

    fn notices(&mut self, _: impl FnMut(Notice)) -> Result<()> {
        Ok(())
    }

    fn read_remote(&mut self, _: PeerIndex, _: u64, _: &mut [u8]) -> Result<()> {
        broken()
    }
}

#[test]
fn what_the_engine_fails_at_is_told_at_every_placement() {
    for site in sites() {
        let mut endpoint = Endpoint::<_, Vec<u8>>::open(Broken, &[], &site, &[]).unwrap();
        let deadline = Instant::now() + skip::LIMIT;
        let mut fault = || loop {
            match endpoint.poll() {
                Ok(_) => assert!(Instant::now() < deadline, "nothing is told"),
                Err(fault) => break fault.to_string(),
            }
        };
        let told = fault();
        assert!(told.contains("the port: it is broken. Next: take another"), "{told}");
        assert!(site == Site::App || fault().contains("has ended"));
    }
}
