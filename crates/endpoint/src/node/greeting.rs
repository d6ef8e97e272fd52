//! What a rank and the engine's process say before the rings are there: text of one line each, over a Unix socket.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use machine::{Dilation, Fault, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Raised with every change of what follows it.
pub(super) const VERSION: u32 = 4;
const PATIENCE: Duration = Duration::from_secs(5);
const LONGEST: u64 = 16 << 10;

/// The rank's wishes, as its settings write them, and a word of its memory by which the engine proves that it may read it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Wishes {
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

pub(super) fn say(mut stream: &UnixStream, what: &impl Serialize) -> Result<()> {
    let mut line = serde_json::to_vec(what).map_err(broken)?;
    line.push(b'\n');
    stream.set_write_timeout(Some(PATIENCE)).map_err(broken)?;
    stream.write_all(&line).map_err(broken)
}

/// Reads one line and nothing beyond it.
pub(super) fn hear<T: DeserializeOwned>(stream: &UnixStream) -> Result<T> {
    stream.set_read_timeout(Some(PATIENCE)).map_err(broken)?;
    let mut line = Vec::new();
    // A byte at a time: what follows the line is not ours to read.
    let mut reader = BufReader::with_capacity(1, stream).take(LONGEST);
    reader.read_until(b'\n', &mut line).map_err(broken)?;
    serde_json::from_slice(&line).map_err(broken)
}
