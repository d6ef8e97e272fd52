//! Those who only take up room: service to an authenticated client goes on.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use runtime::agent::{Limits, Reason};
use runtime::site::SiteDriver;

use super::bad_tls::{HELLO, authenticated, frame};
use super::rig::*;

/// Runs `attack` in a thread, again and again, while a client that was there goes on and new ones come.
fn under(agent: &Running, attack: impl Fn() + Sync) {
    let (over, attacks) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                attack();
                attacks.fetch_add(1, Ordering::Relaxed);
            }
        });
        let _over = Over(&over);
        comes("the attack", || attacks.load(Ordering::Relaxed) > 0);
        let mut old = agent.client();
        let slot = launch(&mut old, "old");
        let mut end = old.connect(slot, "fast", specification()).unwrap();
        for n in 0..5u8 {
            echoed(&mut *end, &[n; 100]);
            round_trip(&mut old);
            agent.serves();
        }
    });
}

/// Ends the attack also where the test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_flood_of_connections() {
    let agent = Running::start(Limits { pending: 64, ..Limits::default() });
    let held = std::sync::Mutex::new(Vec::new());
    under(&agent, || {
        let mut held = held.lock().unwrap();
        for _ in 0..50 {
            held.extend(TcpStream::connect(agent.address));
        }
        if held.len() > 300 {
            held.drain(..100);
        }
    });
    drop(held);
    let summary = agent.end();
    assert!(refused(&summary, Reason::Crowded) > 0, "{summary:?}");
}

#[test]
fn slow_loris() {
    // The greeting of a client, one byte at a time, on many connections at once: none ever authenticates.
    let limits = Limits { pending: 64, handshake: Duration::from_millis(300), ..Limits::default() };
    let agent = Running::start(limits);
    let mut hello = Vec::new();
    authenticated(&agent).conn.write_tls(&mut hello).unwrap();
    let held = std::sync::Mutex::new(Vec::<(TcpStream, usize)>::new());
    under(&agent, || {
        let mut held = held.lock().unwrap();
        while held.len() < 30 {
            held.extend(TcpStream::connect(agent.address).map(|stream| (stream, 0)));
        }
        held.retain_mut(|(stream, at)| {
            *at += 1;
            *at < hello.len() && stream.write_all(&hello[*at - 1..*at]).is_ok()
        });
        std::thread::sleep(Duration::from_millis(5));
    });
    agent.logged("refused: no handshake: it did not authenticate within 300ms");
}

#[test]
fn garbage_at_full_speed() {
    let agent = Running::start(Limits::default());
    under(&agent, || {
        if let Ok(mut stream) = TcpStream::connect(agent.address) {
            let _ = stream.write_all(&[0x55; 20_000]);
        }
    });
    assert!(refused(&agent.end(), Reason::NotTls) > 0);
}

#[test]
fn handshakes_that_stop_half_way() {
    // Real greetings, so that each costs the agent a signature, and then silence.
    let agent = Running::start(Limits { pending: 128, ..Limits::default() });
    let held = std::sync::Mutex::new(Vec::new());
    under(&agent, || {
        let mut stream = authenticated(&agent);
        let _ = stream.conn.write_tls(&mut stream.sock);
        let mut held = held.lock().unwrap();
        held.push(stream);
        if held.len() > 200 {
            held.drain(..100);
        }
        std::thread::sleep(Duration::from_millis(1));
    });
    drop(held);
}

#[test]
fn an_authenticated_client_that_is_silent_is_given_up() {
    let agent = Running::start(Limits { idle: Duration::from_millis(500), ..Limits::default() });
    let mut stream = authenticated(&agent);
    stream.write_all(&frame(HELLO)).unwrap();
    stream.flush().unwrap();
    // A byte now and then is no sign of life.
    stream.write_all(&[200]).unwrap();
    stream.flush().unwrap();
    stream.read_to_end(&mut Vec::new()).unwrap();
    agent.logged("refused: silent");
    assert_eq!(refused(&agent.end(), Reason::Idle), 1);
}

#[test]
fn an_authenticated_client_that_does_not_read_is_given_up() {
    let limits = Limits { backlog: machine::Bytes(1 << 16), ..Limits::default() };
    let agent = Running::start(limits);
    let mut stream = authenticated(&agent);
    stream.write_all(&frame(HELLO)).unwrap();
    // Refused requests are answered at length; the answers fill the socket, then the backlog.
    let evidence = frame(&[3, 1, 7, 9]);
    let many: Vec<u8> = (0..1000).flat_map(|_| evidence.clone()).collect();
    stream.sock.set_write_timeout(Some(skip::LIMIT)).unwrap();
    while stream.write_all(&many).and_then(|()| stream.flush()).is_ok() {}
    agent.logged("refused: does not read");
    agent.serves();
    assert_eq!(refused(&agent.end(), Reason::Backlog), 1);
}

#[test]
fn requests_beyond_the_limit_are_refused_and_the_rest_is_served() {
    let agent = Running::start(Limits { requests: 1, ..Limits::default() });
    let mut stream = authenticated(&agent);
    let evidence = frame(&[3, 1, 7, 9]);
    let many: Vec<u8> = std::iter::once(frame(HELLO)).chain((0..500).map(|_| evidence.clone())).flatten().collect();
    stream.write_all(&many).unwrap();
    stream.flush().unwrap();
    agent.logged("beyond a limit: 1 requests wait for their answers");
    drop(stream);
    agent.serves();
}
