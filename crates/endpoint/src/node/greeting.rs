//! Messages of a rank and the engine's process before the rings exist: one line of text each, over a Unix socket.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use machine::bounds::NODE_WISHES;
use machine::{Dilation, Fault, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Raised with every change of these messages or of the rings' protocol.
pub(super) const VERSION: u32 = 4;
/// Time within which an engine must answer: it may be greeting others.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
const LONGEST: usize = NODE_WISHES.each.bytes().0 as usize;

/// The rank's settings, as text, and a word of its memory by which the engine proves that it may read it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct JoinRequest {
    pub version: u32,
    pub network: String,
    pub address: Option<String>,
    pub shm: bool,
    pub wire: Option<String>,
    pub dilation: Dilation,
    pub word_at: u64,
    pub word: u64,
    /// Cores that the rank may run on.
    pub cores: Vec<u32>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Welcome {
        /// The endpoint's name, its 64 bytes.
        name: Vec<u8>,
        process: u32,
        yields: bool,
        notes: Vec<String>,
    },
    Refused {
        subject: String,
        cause: String,
        next: String,
    },
}

fn broken(e: impl std::error::Error + Send + Sync + 'static) -> Fault {
    Fault::because("socket to the node's engine", e, "see that the engine's process still runs")
}

fn wrong(cause: impl Into<String>) -> Fault {
    Fault::new("socket to the node's engine", cause, "see that the process at its other end still runs")
}

/// Writes a line without waiting: it fits the buffer of a socket whose other end listens.
pub(super) fn say(mut stream: &UnixStream, what: &impl Serialize) -> Result<()> {
    let mut line = serde_json::to_vec(what).map_err(broken)?;
    line.push(b'\n');
    stream.set_nonblocking(true).map_err(broken)?;
    stream.write_all(&line).map_err(broken)
}

/// The part of a line that has come.
#[derive(Debug, Default)]
pub(super) struct Line(Vec<u8>);

impl Line {
    /// Reads what is there of the line, and nothing beyond it; `None` before its end. The stream does not block.
    pub fn hear<T: DeserializeOwned>(&mut self, mut stream: &UnixStream) -> Result<Option<T>> {
        let mut byte = [0];
        loop {
            // A byte at a time: the bytes after the line are for others.
            match stream.read(&mut byte) {
                Ok(0) => return Err(wrong("its other end has closed it")),
                Ok(_) if byte == *b"\n" => return serde_json::from_slice(&self.0).map(Some).map_err(broken),
                Ok(_) if self.0.len() == LONGEST => return Err(wrong("a line on it has no end")),
                Ok(_) => self.0.push(byte[0]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(broken(e)),
            }
        }
    }
}

/// Waits for the engine's answer.
pub(super) fn hear(stream: &UnixStream) -> Result<Answer> {
    stream.set_nonblocking(true).map_err(broken)?;
    let until = Instant::now() + ANSWER_WITHIN;
    let mut line = Line::default();
    loop {
        if let Some(answer) = line.hear(stream)? {
            return Ok(answer);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(wrong(format!("no answer within {} s", ANSWER_WITHIN.as_secs())));
        }
        let _ = poll(&mut [PollFd::new(stream, PollFlags::IN)], Timespec::try_from(left).ok().as_ref());
    }
}
