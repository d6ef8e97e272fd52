//! One control connection. Every wait has an end and every line a length; a fault names the peer.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use machine::{Fault, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// JSON lines over a connected stream socket.
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
    peer: String,
    /// Bytes that one line may have.
    longest_line: usize,
    inbox: Vec<u8>,
    /// Start of `inbox` known to hold no line end.
    scanned: usize,
}

impl Connection {
    /// `peer` as a fault names it, `longest_line` in bytes.
    pub fn new(socket: impl Into<OwnedFd>, peer: impl Into<String>, longest_line: usize) -> Result<Connection> {
        let socket = socket.into();
        rustix::io::ioctl_fionbio(&socket, true)
            .map_err(|e| Fault::because("control connection", io::Error::from(e), "run again"))?;
        Ok(Connection { socket, peer: peer.into(), longest_line, inbox: Vec::new(), scanned: 0 })
    }

    pub fn peer(&self) -> &str {
        &self.peer
    }

    pub fn rename_peer(&mut self, peer: impl Into<String>) {
        self.peer = peer.into();
    }

    /// For a message path that passes descriptors to the peer between two lines.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub fn send(&mut self, message: &impl Serialize, within: Duration) -> Result<()> {
        let mut line = serde_json::to_vec(message).map_err(|e| Fault::because("control message", e, "report it"))?;
        line.push(b'\n');
        let until = Instant::now() + within;
        let mut rest = &line[..];
        while !rest.is_empty() {
            match send(&self.socket, rest, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(count) => rest = &rest[count..],
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT, until)?,
                Err(Errno::INTR) => {}
                Err(e) => return Err(self.closed(&format!("the control connection is closed: {}", io::Error::from(e)))),
            }
        }
        Ok(())
    }

    pub fn receive<T: DeserializeOwned>(&mut self, within: Duration) -> Result<T> {
        let until = Instant::now() + within;
        loop {
            if let Some(line) = self.take_line()? {
                return serde_json::from_slice(&line).map_err(|e| self.garbage(&e.to_string()));
            }
            if !self.fill()? {
                self.wait(PollFlags::IN, until)?;
            }
        }
    }

    /// Whether the peer still holds its end; takes in what it said, for the next `receive`. Never waits.
    pub fn check(&mut self) -> Result<()> {
        while self.fill()? {}
        Ok(())
    }

    /// Whether a whole line is waiting.
    pub fn has_line(&mut self) -> bool {
        self.line_end().is_some()
    }

    /// Takes in what has arrived; false where nothing has.
    fn fill(&mut self) -> Result<bool> {
        let mut chunk = [0; 4096];
        match recv(&self.socket, &mut chunk[..], RecvFlags::DONTWAIT) {
            Ok((_, 0)) => Err(self.closed("it closed the control connection")),
            Ok((_, count)) => {
                self.inbox.extend_from_slice(&chunk[..count]);
                if self.inbox.len() > self.longest_line && self.line_end().is_none_or(|end| end > self.longest_line) {
                    return Err(self.garbage(&format!("a line of more than {} bytes", self.longest_line)));
                }
                Ok(true)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(e) => Err(self.closed(&format!("the control connection is closed: {}", io::Error::from(e)))),
        }
    }

    fn line_end(&mut self) -> Option<usize> {
        match self.inbox[self.scanned..].iter().position(|byte| *byte == b'\n') {
            Some(at) => Some(self.scanned + at),
            None => {
                self.scanned = self.inbox.len();
                None
            }
        }
    }

    fn take_line(&mut self) -> Result<Option<Vec<u8>>> {
        Ok(self.line_end().map(|end| {
            let rest = self.inbox.split_off(end + 1);
            let mut line = std::mem::replace(&mut self.inbox, rest);
            line.truncate(end);
            self.scanned = 0;
            line
        }))
    }

    fn wait(&self, events: PollFlags, until: Instant) -> Result<()> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Fault::new(
                    self.peer.clone(),
                    "it did not answer in time",
                    "see whether it still runs and its core is free, then run again",
                ));
            }
            let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
            match poll(&mut [PollFd::new(&self.socket, events)], Some(&left)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(e) => return Err(self.closed(&format!("the control connection is closed: {}", io::Error::from(e)))),
            }
        }
    }

    fn closed(&self, cause: &str) -> Fault {
        Fault::new(self.peer.clone(), cause, "see why it ended (killed, or its own message), then run again")
    }

    fn garbage(&self, cause: &str) -> Fault {
        Fault::new(
            self.peer.clone(),
            format!("it said something that is not a control message ({cause})"),
            "use the same version of plimsoll on both ends",
        )
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// For what is to come.
    const PATIENCE: Duration = Duration::from_secs(30);
    /// For what never comes.
    const SOON: Duration = Duration::from_millis(50);

    fn pair() -> (Connection, UnixStream) {
        let (near, far) = UnixStream::pair().unwrap();
        (Connection::new(near, "peer", 64).unwrap(), far)
    }

    #[test]
    fn messages_arrive_whole_and_in_order_however_they_are_cut() {
        let (mut connection, mut far) = pair();
        for piece in ["\"on", "e\"\n\"two\"", "\n"] {
            far.write_all(piece.as_bytes()).unwrap();
            connection.check().unwrap();
        }
        assert!(connection.has_line());
        assert_eq!(connection.receive::<String>(PATIENCE).unwrap(), "one");
        assert_eq!(connection.receive::<String>(PATIENCE).unwrap(), "two");
        assert!(!connection.has_line());
    }

    #[test]
    fn silence_garbage_length_and_end_are_told_apart() {
        let (mut connection, _far) = pair();
        assert!(connection.receive::<String>(SOON).unwrap_err().cause().contains("in time"));

        let (mut connection, mut far) = pair();
        far.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        assert!(connection.receive::<String>(PATIENCE).unwrap_err().cause().contains("not a control message"));

        let (mut connection, mut far) = pair();
        far.write_all(&[b'x'; 65]).unwrap();
        assert!(connection.receive::<String>(PATIENCE).unwrap_err().cause().contains("more than 64 bytes"));

        let (mut connection, far) = pair();
        drop(far);
        assert!(connection.receive::<String>(PATIENCE).unwrap_err().cause().contains("closed"));
    }

    #[test]
    fn a_peer_that_never_reads_does_not_hold_the_sender() {
        let (mut connection, _far) = pair();
        let long = "x".repeat(1 << 22);
        assert!(connection.send(&long, SOON).unwrap_err().cause().contains("in time"));
    }
}
