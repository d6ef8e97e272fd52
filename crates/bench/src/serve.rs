//! `plimsoll serve`: answers benches of other hosts, as iperf3's server does, and trusts none of them.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use machine::{Bytes, Fault, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::control::{Connection, Reply};
use crate::peer::{Limits, respond};

/// Largest message of any bench.
pub const LARGEST: Bytes = Bytes(64 << 20);

/// Connections at once, greeted or not.
const MOST_CONNECTIONS: usize = 32;

/// Longest request: a block of eight jobs has less than 2 KiB.
const LONGEST_REQUEST: usize = 16 << 10;

/// How often the server looks whether it should end, in nanoseconds.
const LOOK: i64 = 100_000_000;

/// Listens for benches of other hosts.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
}

impl Server {
    pub fn bind(address: SocketAddr) -> Result<Server> {
        let failed = |e| Fault::because(format!("address {address}"), e, "choose another --listen ADDRESS:PORT");
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(Server { listener })
    }

    pub fn address(&self) -> Result<SocketAddr> {
        self.listener.local_addr().map_err(|e| Fault::because("listener", e, "run again"))
    }

    /// Answers until `stop` says so. `log` gets one line a session that failed.
    pub fn run(&self, stop: impl Fn() -> bool, log: impl Fn(&str) + Clone + Send + 'static) -> Result<()> {
        let open = Arc::new(AtomicUsize::new(0));
        while !stop() {
            let pause = Timespec { tv_sec: 0, tv_nsec: LOOK };
            match poll(&mut [PollFd::new(&self.listener, PollFlags::IN)], Some(&pause)) {
                Ok(0) | Err(Errno::INTR) => continue,
                Ok(_) => {}
                Err(e) => return Err(Fault::because("listener", std::io::Error::from(e), "run again")),
            }
            let Ok((stream, from)) = self.listener.accept() else {
                // The client has gone again, or descriptors are short: others still get their turn.
                thread::sleep(Duration::from_millis(1));
                continue;
            };
            let seat = Seat::take(&open);
            if open.load(Ordering::Relaxed) > MOST_CONNECTIONS {
                turn_away(stream, from);
                continue;
            }
            let log = log.clone();
            let answer = move || {
                let _seat = seat;
                if let Err(fault) = answer(stream, from) {
                    log(&fault.to_string());
                }
            };
            // Where no thread can be had the stream is dropped with the closure, which the client sees at once.
            let _ = thread::Builder::new().name(format!("bench {from}")).spawn(answer);
        }
        Ok(())
    }
}

/// Counts one open connection while it lives.
struct Seat(Arc<AtomicUsize>);

impl Seat {
    fn take(open: &Arc<AtomicUsize>) -> Seat {
        open.fetch_add(1, Ordering::Relaxed);
        Seat(open.clone())
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a stranger gets.
fn limits(address: SocketAddr, from: SocketAddr) -> Limits {
    Limits {
        handshake: Duration::from_secs(3),
        between_blocks: Duration::from_secs(600),
        run: Duration::from_secs(20),
        size: Bytes(LARGEST.0 + 64),
        messages: 1 << 22,
        memory: Bytes(512 << 20),
        same_host: false,
        address: Some(address.ip()),
        initiator: Some(from.ip()),
    }
}

fn answer(stream: TcpStream, from: SocketAddr) -> Result<()> {
    let failed = |e| Fault::because(format!("bench at {from}"), e, "let it connect again");
    stream.set_nodelay(true).map_err(failed)?;
    let here = stream.local_addr().map_err(failed)?;
    let mut connection = Connection::new(stream, format!("bench at {from}"), LONGEST_REQUEST)?;
    respond(&mut connection, &limits(here, from))
}

fn turn_away(stream: TcpStream, from: SocketAddr) {
    let busy = Fault::new(
        "plimsoll serve",
        format!("{MOST_CONNECTIONS} connections are open already"),
        "wait until another bench has ended",
    );
    if let Ok(mut connection) = Connection::new(stream, from.to_string(), LONGEST_REQUEST) {
        let _ = connection.send(&Reply::failed(&busy), Duration::from_millis(10));
    }
}
