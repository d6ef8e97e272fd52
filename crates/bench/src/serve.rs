//! `plimsoll serve`: answers benches of other hosts, like iperf3's server, and grants them no more than it is told to.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use machine::bounds::{SERVE_BUFFERS, SERVE_CONNECTIONS, SERVE_INBOX, SERVE_SESSIONS};
use machine::{Budget, Bytes, Fault, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::admission::Admission;
use crate::control::{Connection, Grant, Reply};
use crate::peer::{Limits, respond};

/// Largest message that any bench may send.
pub const LARGEST: Bytes = Bytes(64 << 20);

/// Interval of checks whether the server should end, in nanoseconds.
const POLL_INTERVAL: i64 = 100_000_000;

/// Listens for benches of other hosts.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    admission: Arc<Admission>,
    allows: Vec<Grant>,
}

impl Server {
    /// Listens for clients that `admission` lets in, with the grants `allows` beside patterns over sockets.
    pub fn bind(address: SocketAddr, admission: Admission, allows: Vec<Grant>) -> Result<Server> {
        let failed = |e| Fault::because(format!("address {address}"), e, "choose another --listen ADDRESS:PORT");
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(Server { listener, admission: Arc::new(admission), allows })
    }

    pub fn address(&self) -> Result<SocketAddr> {
        self.listener.local_addr().map_err(|e| Fault::because("listener", e, "run again"))
    }

    /// Answers until `stop` returns true or the owner has gone. `log` gets one line per failed session.
    pub fn run(&self, stop: impl Fn() -> bool, log: impl Fn(&str) + Clone + Send + 'static) -> Result<()> {
        let slots = Arc::new(Slots::default());
        let sessions = Budget::new(SERVE_SESSIONS.total.count() as u64);
        let buffers = Budget::new(SERVE_BUFFERS.total.bytes().0);
        while !stop() && !self.admission.is_over() {
            let pause = Timespec { tv_sec: 0, tv_nsec: POLL_INTERVAL };
            match poll(&mut [PollFd::new(&self.listener, PollFlags::IN)], Some(&pause)) {
                Ok(0) | Err(Errno::INTR) => continue,
                Ok(_) => {}
                Err(e) => return Err(Fault::because("listener", std::io::Error::from(e), "run again")),
            }
            let Ok((stream, from)) = self.listener.accept() else {
                // The client has gone, or descriptors are short: others still get their turn.
                thread::sleep(Duration::from_millis(1));
                continue;
            };
            let slot = match slots.take(from.ip()) {
                Ok(slot) => slot,
                Err(why) => {
                    turn_away(stream, from, why);
                    continue;
                }
            };
            let limits = self.limits(sessions.clone(), buffers.part(SERVE_BUFFERS.each.bytes().0));
            let log = log.clone();
            let answer = move || {
                let _slot = slot;
                if let Err(fault) = answer(stream, from, limits) {
                    log(&fault.to_string());
                }
            };
            // Failure to start a thread drops the stream, which the client sees at once.
            let _ = thread::Builder::new().name(format!("bench {from}")).spawn(answer);
        }
        Ok(())
    }

    /// Limits of a bench, the same wherever it is.
    fn limits(&self, sessions: Arc<Budget>, buffers: Arc<Budget>) -> Limits {
        Limits {
            handshake: Duration::from_secs(3),
            between_blocks: Duration::from_secs(600),
            run: Duration::from_secs(20),
            size: Bytes(LARGEST.0 + 64),
            messages: 1 << 22,
            sessions,
            buffers,
            same_host: false,
            address: None,
            initiator: None,
            admission: self.admission.clone(),
            allows: self.allows.clone(),
        }
    }
}

/// Open connections by the address they come from, so that one address does not keep out the others.
#[derive(Debug, Default)]
struct Slots(Mutex<HashMap<IpAddr, usize>>);

/// One open connection.
struct Slot {
    of: Arc<Slots>,
    address: IpAddr,
}

impl Slots {
    fn take(self: &Arc<Self>, address: IpAddr) -> Result<Slot, String> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (each, most) = (SERVE_CONNECTIONS.each.count(), SERVE_CONNECTIONS.total.count());
        if open.values().sum::<usize>() >= most {
            return Err(format!("{most} connections are open already"));
        }
        if open.get(&address).is_some_and(|theirs| *theirs >= each) {
            return Err(format!("{each} connections are open already from {address}"));
        }
        *open.entry(address).or_default() += 1;
        Ok(Slot { of: self.clone(), address })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut open = self.of.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(theirs) = open.get_mut(&self.address) {
            *theirs -= 1;
            if *theirs == 0 {
                open.remove(&self.address);
            }
        }
    }
}

fn answer(stream: TcpStream, from: SocketAddr, limits: Limits) -> Result<()> {
    let failed = |e| Fault::because(format!("bench at {from}"), e, "let it connect again");
    stream.set_nodelay(true).map_err(failed)?;
    let here = stream.local_addr().map_err(failed)?;
    let connection = Connection::new(stream, format!("bench at {from}"), SERVE_INBOX.each.bytes())?;
    // A listener at [::] sees IPv4 addresses as mapped ones, which no interface has.
    let [address, initiator] = [here, from].map(|end| Some(end.ip().to_canonical()));
    respond(connection, &Limits { address, initiator, ..limits })
}

fn turn_away(stream: TcpStream, from: SocketAddr, why: String) {
    let busy = Fault::new("plimsoll serve", why, "wait until another bench has ended");
    if let Ok(mut connection) = Connection::new(stream, from.to_string(), SERVE_INBOX.each.bytes()) {
        let _ = connection.send(&Reply::failed(&busy), Duration::from_millis(10));
    }
}
