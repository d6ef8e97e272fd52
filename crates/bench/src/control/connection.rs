//! One control connection. Every wait is bounded in time and every line in length; a fault names the peer.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use machine::{Bytes, Fault, FaultKind, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Bytes of a peer that are read after the last message to it.
const UNHEEDED: usize = 1 << 20;

/// JSON lines over a connected stream socket.
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
    peer: String,
    /// Bytes read and not taken yet; never more than `most`, the longest line with its end.
    inbox: Vec<u8>,
    most: usize,
    /// Length of the start of `inbox` that is known to hold no line end.
    scanned: usize,
}

impl Connection {
    /// `peer` is its name in faults. At most `inbox` bytes are read ahead, so no line may be longer.
    pub fn new(socket: impl Into<OwnedFd>, peer: impl Into<String>, inbox: Bytes) -> Result<Connection> {
        let socket = socket.into();
        rustix::io::ioctl_fionbio(&socket, true)
            .map_err(|e| Fault::because("control connection", io::Error::from(e), "run again"))?;
        Ok(Connection { socket, peer: peer.into(), inbox: Vec::new(), most: inbox.0 as usize, scanned: 0 })
    }

    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// The socket, for a message path that passes descriptors to the peer between two lines.
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

    /// Sends the last message, and reads a little of what the peer still sends until it has closed or the time is up: unread
    /// bytes would reset the connection before the peer has read why.
    pub fn part(mut self, last: &impl Serialize, within: Duration) {
        let until = Instant::now() + within;
        if self.send(last, within).is_err() || shutdown(&self.socket, Shutdown::Write).is_err() {
            return;
        }
        let mut unheeded = [0; 4096];
        let mut left = UNHEEDED;
        while left > 0 {
            match recv(&self.socket, &mut unheeded[..], RecvFlags::DONTWAIT) {
                Ok((_, 0)) => return,
                Ok((_, count)) => left = left.saturating_sub(count),
                Err(Errno::AGAIN | Errno::INTR) if self.wait(PollFlags::IN, until).is_ok() => {}
                Err(_) => return,
            }
        }
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

    /// Checks that the peer still holds its end; reads what it sent, for the next `receive`. Never waits.
    pub fn check(&mut self) -> Result<()> {
        while self.fill()? {}
        Ok(())
    }

    /// Whether a whole line is waiting.
    pub fn has_line(&mut self) -> bool {
        self.line_end().is_some()
    }

    /// Reads what has arrived, as far as the inbox has room; false if nothing has.
    fn fill(&mut self) -> Result<bool> {
        let mut chunk = [0; 4096];
        let room = chunk.len().min(self.most - self.inbox.len());
        if room == 0 {
            return Err(self.garbage(&format!("{} bytes ahead of the answers", self.most)));
        }
        match recv(&self.socket, &mut chunk[..room], RecvFlags::DONTWAIT) {
            Ok((_, 0)) => Err(self.closed("it closed the control connection")),
            Ok((_, count)) => {
                self.inbox.extend_from_slice(&chunk[..count]);
                if self.inbox.len() == self.most && self.line_end().is_none() {
                    return Err(self.garbage(&format!("a line that does not end within {} bytes", self.most)));
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
            .of_kind(FaultKind::Closed)
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

    /// Time to wait for a message that is to come.
    const TIMEOUT: Duration = Duration::from_secs(30);
    /// Time to wait for one that never comes.
    const SOON: Duration = Duration::from_millis(50);

    fn pair() -> (Connection, UnixStream) {
        let (near, far) = UnixStream::pair().unwrap();
        (Connection::new(near, "peer", Bytes(64)).unwrap(), far)
    }

    #[test]
    fn messages_arrive_whole_and_in_order_however_they_are_cut() {
        let (mut connection, mut far) = pair();
        for piece in ["\"on", "e\"\n\"two\"", "\n"] {
            far.write_all(piece.as_bytes()).unwrap();
            connection.check().unwrap();
        }
        assert!(connection.has_line());
        assert_eq!(connection.receive::<String>(TIMEOUT).unwrap(), "one");
        assert_eq!(connection.receive::<String>(TIMEOUT).unwrap(), "two");
        assert!(!connection.has_line());
    }

    #[test]
    fn silence_garbage_length_and_end_are_told_apart() {
        let (mut connection, _far) = pair();
        assert!(connection.receive::<String>(SOON).unwrap_err().cause().contains("in time"));

        let (mut connection, mut far) = pair();
        far.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        assert!(connection.receive::<String>(TIMEOUT).unwrap_err().cause().contains("not a control message"));

        let (mut connection, mut far) = pair();
        far.write_all(&[b'x'; 65]).unwrap();
        assert!(connection.receive::<String>(TIMEOUT).unwrap_err().cause().contains("end within 64 bytes"));

        let (mut connection, far) = pair();
        drop(far);
        assert!(connection.receive::<String>(TIMEOUT).unwrap_err().kind() == FaultKind::Closed);
    }

    #[test]
    fn a_flood_behind_a_line_fills_the_inbox_and_no_more() {
        for flood in [&b"\n"[..], b"\"line\"\n"] {
            let (mut connection, mut far) = pair();
            far.write_all(&flood.repeat(10_000 / flood.len())).unwrap();
            assert!(connection.check().unwrap_err().cause().contains("64 bytes ahead of the answers"));
            assert_eq!(connection.inbox.len(), 64);
            assert!(connection.inbox.capacity() <= 128);
        }
        let (mut connection, mut far) = pair();
        far.write_all(b"\n").unwrap();
        far.write_all(&[b'x'; 10_000]).unwrap();
        assert!(connection.check().is_err());
        assert_eq!(connection.inbox.len(), 64);
    }

    #[test]
    fn last_words_are_read_by_a_peer_that_talks_on() {
        let (connection, mut far) = pair();
        far.write_all(&[b'x'; 10_000]).unwrap();
        let parting = std::thread::spawn(move || connection.part(&"why", TIMEOUT));
        let mut said = String::new();
        std::io::Read::read_to_string(&mut far, &mut said).unwrap();
        assert_eq!(said, "\"why\"\n");
        drop(far);
        parting.join().unwrap();
    }

    #[test]
    fn a_peer_that_never_reads_does_not_hold_the_sender() {
        let (mut connection, _far) = pair();
        let long = "x".repeat(1 << 22);
        assert!(connection.send(&long, SOON).unwrap_err().cause().contains("in time"));
    }
}
