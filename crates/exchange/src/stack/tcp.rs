//! The kernel's TCP through sockets: no delay, non-blocking, one call a message, polled as MPI polls.

use std::collections::VecDeque;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::thread::sleep;
use std::time::{Duration, Instant};

use machine::{Fault, Result};

use super::{Completion, MEETING_TIME, Offer, Stack};
use crate::buffer::Buffer;

/// Most receives taken in one call of `progress`, so that sends are not starved.
const RECEIVES_A_POLL: usize = 16;

/// One end of a TCP connection. Messages need no header: both ends know the lengths, as in NetPIPE's TCP module.
#[derive(Debug)]
pub struct Tcp {
    socket: TcpStream,
    receives: VecDeque<Buffer>,
    /// Bytes of the oldest posted receive that have arrived.
    filled: usize,
    sends: VecDeque<Buffer>,
    /// Bytes of the oldest posted send that have left.
    written: usize,
}

/// A listener that expects one peer.
#[derive(Debug)]
pub struct Waiting {
    listener: TcpListener,
    token: String,
}

impl Waiting {
    pub fn new(address: IpAddr) -> Result<(Waiting, Offer)> {
        let open = || {
            let listener = TcpListener::bind(SocketAddr::new(address, 0))?;
            listener.set_nonblocking(true)?;
            let port = listener.local_addr()?.port();
            Ok::<_, io::Error>((listener, port))
        };
        let (listener, port) = open().map_err(|e| {
            Fault::because(format!("tcp listener on {address}"), e, "give an address that this host has")
        })?;
        let token = token();
        Ok((Waiting { listener, token: token.clone() }, Offer { port, token }))
    }

    /// Accepts the first connection that shows the token; others are closed.
    pub fn accept(self) -> Result<Tcp> {
        let until = Instant::now() + MEETING_TIME;
        while Instant::now() < until {
            match self.listener.accept() {
                Ok((socket, _)) => {
                    if shows(&socket, &self.token, until) {
                        return Tcp::new(socket);
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => sleep(Duration::from_millis(1)),
                Err(e) => return Err(Fault::because("tcp listener", e, "run again")),
            }
        }
        Err(Fault::new(
            "tcp connection of the peer",
            format!("none came within {} s", MEETING_TIME.as_secs()),
            "let the peer reach this host's ports above 1023 (firewall)",
        ))
    }
}

impl Tcp {
    pub fn connect(address: IpAddr, offer: &Offer) -> Result<Tcp> {
        let to = SocketAddr::new(address, offer.port);
        let failed =
            |e: io::Error| Fault::because(format!("tcp connection to {to}"), e, "check the route and firewall");
        let mut socket = TcpStream::connect_timeout(&to, MEETING_TIME).map_err(failed)?;
        socket.write_all(offer.token.as_bytes()).map_err(failed)?;
        Tcp::new(socket)
    }

    fn new(socket: TcpStream) -> Result<Tcp> {
        socket
            .set_nodelay(true)
            .and_then(|()| socket.set_nonblocking(true))
            .map_err(|e| Fault::because("tcp socket", e, "run again"))?;
        Ok(Tcp { socket, receives: VecDeque::new(), filled: 0, sends: VecDeque::new(), written: 0 })
    }

    /// Writes as much of the oldest posted send as the kernel takes; whether all of it has left.
    fn write_oldest(&mut self) -> Result<bool> {
        let Some(message) = self.sends.front() else { return Ok(false) };
        while self.written < message.len() {
            match self.socket.write(&message[self.written..]) {
                Ok(count) => self.written += count,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(gone(&e.to_string())),
            }
        }
        Ok(true)
    }
}

impl Stack for Tcp {
    fn post_receive(&mut self, buffer: Buffer) -> Result<()> {
        self.receives.push_back(buffer);
        Ok(())
    }

    fn post_send(&mut self, buffer: Buffer) -> Result<()> {
        self.sends.push_back(buffer);
        if self.sends.len() == 1 {
            self.write_oldest()?;
        }
        Ok(())
    }

    fn progress(&mut self, done: &mut impl FnMut(Completion)) -> Result<()> {
        while self.write_oldest()? {
            self.written = 0;
            done(Completion::Sent(self.sends.pop_front().expect("it was just written")));
        }
        for _ in 0..RECEIVES_A_POLL {
            let Some(message) = self.receives.front_mut() else { break };
            match self.socket.read(&mut message[self.filled..]) {
                Ok(0) => return Err(gone("it closed the connection")),
                Ok(count) => self.filled += count,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(gone(&e.to_string())),
            }
            if self.filled == message.len() {
                self.filled = 0;
                done(Completion::Received(self.receives.pop_front().expect("it was just filled")));
            }
        }
        Ok(())
    }

    fn begin(&mut self, _job: u64) -> Result<()> {
        Ok(())
    }
}

fn gone(cause: &str) -> Fault {
    Fault::new("tcp connection to the peer", cause, "look at the peer's own message, then run again")
}

fn shows(mut socket: &TcpStream, token: &str, until: Instant) -> bool {
    let mut shown = vec![0; token.len()];
    let left = until.saturating_duration_since(Instant::now()).min(Duration::from_secs(1));
    !left.is_zero()
        && socket.set_nonblocking(false).is_ok()
        && socket.set_read_timeout(Some(left)).is_ok()
        && socket.read_exact(&mut shown).is_ok()
        && shown == token.as_bytes()
}

/// 128 bits that cannot be guessed: the standard library keys its hashers from the system's random source.
pub(super) fn token() -> String {
    let random = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", random(), random())
}
