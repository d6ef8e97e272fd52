//! Limits of a peer for one session, and for all of them together.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;

use bench::admission::Admission;
use bench::control::{Connection, Reply, Request, VERSION};
use bench::key::Key;
use bench::peer::{Limits, respond};
use bench::session::Session;
use exchange::endpoint::Job;
use exchange::path::Prepare;
use machine::{Budget, Bytes, Reading, Result, Site};
use rounds::point::{Pattern, Receiver, Stack};

/// A session with a peer in a thread, which may use `buffers`.
fn session(sessions: &Arc<Budget>, buffers: Arc<Budget>) -> (Result<Session>, JoinHandle<Result<()>>) {
    let (near, far) = UnixStream::pair().unwrap();
    let connection = |end, name| Connection::new(end, name, Bytes(1 << 16)).unwrap();
    let limits = Limits { sessions: sessions.clone(), buffers, ..Limits::trusted() };
    let far = connection(far, "initiator");
    let peer = std::thread::spawn(move || respond(far, &limits));
    let prepare = Prepare {
        stack: Stack::Tcp,
        placement: Site::App,
        core: None,
        address: None,
        interface: None,
        dilation: None,
        polite: true,
    };
    let open = Session::open(connection(near, "peer"), &prepare, &prepare, Some(IpAddr::V4(Ipv4Addr::LOCALHOST)));
    (open, peer)
}

fn job(pattern: Pattern, size: usize) -> Job {
    Job { pattern, size, messages: 2, receiver: Receiver::Reads, verify: true }
}

fn refused<T>(outcome: Result<T>) -> String {
    outcome.map(drop).unwrap_err().to_string()
}

#[test]
fn sessions_stay_within_their_buffers_alone_and_together() {
    let (sessions, all) = (Budget::new(9), Budget::new(300 << 10));
    let window = [job(Pattern::Window, 4096)];
    let (one, first) = session(&sessions, all.part(1 << 20));
    let mut one = one.unwrap();
    one.run(&window).unwrap();
    assert!(all.drawn() >= 64 * 4096, "{} bytes", all.drawn());

    let (two, _) = session(&sessions, all.part(1 << 20));
    let said = refused(two.unwrap().run(&window));
    assert!(said.contains("other sessions hold what this end grants"), "{said}");
    let (three, _) = session(&sessions, all.part(100 << 10));
    let said = refused(three.unwrap().run(&window));
    assert!(said.contains("buffers of") && said.contains("grants a session 100 KiB"), "{said}");

    // The first session goes on, and memory that it had is there for the next.
    one.run(&window).unwrap();
    one.close().unwrap();
    first.join().unwrap().unwrap();
    let (four, _) = session(&sessions, all.part(1 << 20));
    four.unwrap().run(&window).unwrap();
}

#[test]
fn sessions_are_counted_from_the_agreement_on_a_version() {
    let sessions = Budget::new(1);
    let (one, first) = session(&sessions, Budget::new(1 << 20));
    let said = refused(session(&sessions, Budget::new(1 << 20)).0);
    assert!(said.contains("1 sessions are open already"), "{said}");
    one.unwrap().close().unwrap();
    first.join().unwrap().unwrap();
    session(&sessions, Budget::new(1 << 20)).0.unwrap();
}

#[test]
fn a_peer_counts_its_cores_for_whoever_shows_its_key() {
    let patience = skip::LIMIT;
    let greeted = |admission: Admission| {
        let (near, far) = UnixStream::pair().unwrap();
        let connection = |end, name| Connection::new(end, name, Bytes(1 << 18)).unwrap();
        let (mut near, far) = (connection(near, "peer"), connection(far, "initiator"));
        let key = if let Admission::Key(key) = &admission { Some(key.clone()) } else { None };
        let limits = Limits { admission: Arc::new(admission), ..Limits::trusted() };
        let peer = std::thread::spawn(move || respond(far, &limits));
        key.map_or(Ok(()), |key| key.present(&mut near)).unwrap();
        near.send(&Request::Hello { plimsoll: VERSION }, patience).unwrap();
        assert!(matches!(near.receive(patience).unwrap(), Reply::Welcome { .. }));
        (near, peer)
    };
    let (mut near, peer) = greeted(Admission::Anybody);
    near.send(&Request::Count, patience).unwrap();
    assert!(matches!(near.receive(patience).unwrap(), Reply::Failed { .. }));
    peer.join().unwrap().unwrap_err();

    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "the word of both ends").unwrap();
    let (mut near, peer) = greeted(Admission::Key(Key::read(file.path()).unwrap()));
    let mut ask = |request| {
        near.send(&request, patience).unwrap();
        near.receive::<Reply>(patience).unwrap()
    };
    for datagrams in [0, 1000] {
        assert_eq!(ask(Request::Count), Reply::Counting);
        for _ in 0..datagrams {
            let to = UdpSocket::bind("127.0.0.1:0").unwrap();
            to.send_to(&[1], to.local_addr().unwrap()).unwrap();
        }
        let Reply::Counted(Reading::Measured(cores)) = ask(Request::Tell) else { panic!("no cores") };
        let received: Option<u64> = cores.iter().map(|core| Some(core.net_rx.value()?.count)).sum();
        // Without the right to see the times, each core says so.
        assert!(received.is_none_or(|received| datagrams == 0 || received > 0) && !cores.is_empty(), "{cores:?}");
    }
    let Reply::Failed { cause, .. } = ask(Request::Hold) else { panic!("it goes on") };
    assert!(cause.contains("a count or a goodbye"), "{cause}");
    peer.join().unwrap().unwrap_err();
}

#[test]
fn a_block_of_several_patterns_is_refused() {
    let (open, peer) = session(&Budget::new(1), Budget::new(1 << 30));
    let mut session = open.unwrap();
    session.run(&[job(Pattern::PingPong, 8)]).unwrap();
    // Buffers are made for the first job's pattern; those of the second would be too short.
    let jobs = [job(Pattern::StreamNoCache, 8), job(Pattern::Bidirectional, 4096)];
    let said = refused(session.run(&jobs));
    assert!(said.contains("several patterns"), "{said}");
    assert!(peer.join().unwrap().is_err(), "it ended with a fault, and not by a panic");
}
