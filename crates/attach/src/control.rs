//! What a runtime and other processes say to each other: one JSON line each way over an abstract socket that carries the
//! runtime's process number, and the PID namespace in which that counts, and ends with it.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use linux::rendezvous;
use machine::bounds::CONTROL_LINE;
use machine::{Fault, Result, Site};
use offcode::{Guid, Specification};
use serde::{Deserialize, Serialize};

use crate::evidence::Evidence;
use crate::moved::Moved;
use crate::watched::{Calls, Carried};

const PREFIX: &str = "plimsoll/run/";
/// Longest line, either way.
const LINE: usize = CONTROL_LINE.each.bytes().0 as usize;
/// Longest answer: a runtime has more to say than it is asked.
const ANSWER: usize = 16 * LINE;
/// How long a caller may take to say what it wants, and the runtime to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a runtime may take to move an offcode: it compiles, and lets messages arrive.
const OF_A_MOVE: Duration = Duration::from_secs(60);
/// How long an offcode is watched after somebody has asked for its calls.
pub const WATCHED: Duration = Duration::from_secs(2);
/// How long a caller may take to read its answer, for which the runtime's own thread waits: most answers fit a
/// socket's buffer.
const TAKEN: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// What runs.
    Status,
    /// Ends one offcode, or the whole runtime. Here and below an offcode is given by its instance's name, or by its package's
    /// name or GUID where that fits one alone.
    Stop { offcode: Option<String> },
    /// Moves an offcode, and those pulled to it.
    Migrate { offcode: String, site: Site },
    /// Puts another version of an offcode, from a depot, in its place.
    Upgrade { offcode: String, depot: PathBuf },
    /// Sets an attribute.
    Set { offcode: String, name: String, value: String },
    /// What a map or a variable of an offcode's object holds.
    Map { offcode: String, name: String },
    /// The calls that an offcode has got, from this number on. It is watched from the first such request until there was
    /// none for [`WATCHED`]; without a number only the next one's is said.
    Trace { offcode: String, from: Option<u64> },
    /// A channel in shared memory to an offcode, which knows it by `name`.
    Attach {
        offcode: String,
        /// `None`: one that tells the callers of an offcode apart.
        name: Option<String>,
        /// Which the offcode must serve.
        interface: Option<Guid>,
        specification: Specification,
    },
}

/// What a runtime says of itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    pub process: u32,
    pub application: String,
    pub running_ms: u64,
    pub offcodes: Vec<Running>,
}

/// What comes of a request.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    Status(Report),
    /// Keys and values; whether there are more.
    Map(Vec<(String, String)>, bool),
    Done,
    /// What an attribute was before it was set.
    Was(Option<String>),
    Moved(Moved),
    Calls(Calls),
    Refused {
        subject: String,
        cause: String,
        next: String,
    },
}

/// A line of `plimsoll ps`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// Its name: the package's unless the application gave it one.
    pub instance: String,
    /// The package's name.
    pub offcode: String,
    pub version: String,
    pub site: Site,
    pub attributes: Vec<(String, String)>,
    /// Or why it could not be had.
    pub evidence: std::result::Result<Evidence, String>,
    /// What its channels carried; the first is out of band. Or why that could not be had.
    pub channels: std::result::Result<Vec<Carried>, String>,
}

fn broken(e: impl std::error::Error + Send + Sync + 'static) -> Fault {
    Fault::because("control connection", e, "look whether the other end still runs")
}

/// One line.
pub fn say<T: Serialize>(mut stream: &UnixStream, what: &T) -> Result<()> {
    let mut line = serde_json::to_vec(what)
        .map_err(|e| Fault::because("control connection", e, "report this message as a defect"))?;
    line.push(b'\n');
    stream.set_write_timeout(Some(TAKEN)).map_err(broken)?;
    stream.write_all(&line).map_err(broken)
}

/// One line, and nothing of what follows it; within [`PATIENCE`] as a whole.
pub fn hear<T: serde::de::DeserializeOwned>(stream: &UnixStream) -> Result<T> {
    hear_within(stream, PATIENCE, LINE)
}

fn hear_within<T: serde::de::DeserializeOwned>(
    mut stream: &UnixStream,
    patience: Duration,
    longest: usize,
) -> Result<T> {
    let until = Instant::now() + patience;
    let late = || {
        let cause = format!("no whole line came within {} s", patience.as_secs());
        Fault::new("control connection", cause, "look whether the other end still runs")
    };
    stream.set_read_timeout(Some(patience)).map_err(broken)?;
    let mut line = Vec::new();
    let mut byte = [0];
    while line.len() < longest {
        match stream.read(&mut byte) {
            Ok(0) => break,
            Ok(_) if byte == [b'\n'] => break,
            Ok(_) if Instant::now() < until => line.extend(byte),
            Err(e) if e.kind() == ErrorKind::Interrupted && Instant::now() < until => {}
            Err(e) if !matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => return Err(broken(e)),
            _ => return Err(late()),
        }
    }
    serde_json::from_slice(&line).map_err(|e| {
        let cause = if line.is_empty() { "the other end left without a word".into() } else { e.to_string() };
        Fault::new("control connection", cause, "use the plimsoll of the same version on both ends")
    })
}

/// What names of processes begin with that are numbered as this one is: containers may share a network and not their
/// processes.
pub fn prefix() -> String {
    format!("{PREFIX}{}/", linux::accounting::pid_namespace())
}

/// The processes of this user, or for root of all, that have a runtime, in this PID namespace.
pub fn processes() -> Result<Vec<u32>> {
    let prefix = prefix();
    let names = rendezvous::names(&prefix)?;
    Ok(names.iter().filter_map(|name| name.strip_prefix(&prefix)?.parse().ok()).collect())
}

fn ask(process: u32, request: &Request) -> Result<(Answer, UnixStream)> {
    let patience = match request {
        Request::Migrate { .. } | Request::Upgrade { .. } => OF_A_MOVE,
        _ => PATIENCE,
    };
    let outer = |fault: Fault| fault.within(format!("runtime of process {process}"));
    let stream = rendezvous::call(&format!("{}{process}", prefix())).map_err(outer)?;
    say(&stream, request).map_err(outer)?;
    Ok((hear_within(&stream, patience, ANSWER).map_err(outer)?, stream))
}

fn odd() -> Fault {
    Fault::new("control connection", "the answer is to another question", "use the plimsoll of the same version")
}

impl Answer {
    pub fn refused(fault: &Fault) -> Answer {
        let (subject, cause, next) = (fault.subject().into(), fault.cause().into(), fault.next().into());
        Answer::Refused { subject, cause, next }
    }

    fn done(self) -> Result<()> {
        match self {
            Answer::Done => Ok(()),
            Answer::Refused { subject, cause, next } => Err(Fault::new(subject, cause, next)),
            _ => Err(odd()),
        }
    }
}

/// What runs in a process's runtime.
pub fn status(process: u32) -> Result<Report> {
    match ask(process, &Request::Status)?.0 {
        Answer::Status(report) => Ok(report),
        other => other.done().and_then(|()| Err(odd())),
    }
}

/// Moves an offcode of a process's runtime to another site.
pub fn migrate_at(process: u32, offcode: &str, site: &Site) -> Result<Moved> {
    moved(process, &Request::Migrate { offcode: offcode.into(), site: site.clone() })
}

/// Puts the version that is in a depot in the place of a running offcode.
pub fn upgrade_at(process: u32, offcode: &str, depot: &Path) -> Result<Moved> {
    moved(process, &Request::Upgrade { offcode: offcode.into(), depot: depot.into() })
}

fn moved(process: u32, request: &Request) -> Result<Moved> {
    match ask(process, request)?.0 {
        Answer::Moved(moved) => Ok(moved),
        other => other.done().and_then(|()| Err(odd())),
    }
}

/// Sets an attribute of an offcode. Returns what it was before.
pub fn set_at(process: u32, offcode: &str, name: &str, value: &str) -> Result<Option<String>> {
    match ask(process, &Request::Set { offcode: offcode.into(), name: name.into(), value: value.into() })?.0 {
        Answer::Was(before) => Ok(before),
        other => other.done().and_then(|()| Err(odd())),
    }
}

/// Keys and values of a map or a variable of an offcode's object, as text, and whether there are more.
pub fn map_of(process: u32, offcode: &str, name: &str) -> Result<(Vec<(String, String)>, bool)> {
    match ask(process, &Request::Map { offcode: offcode.into(), name: name.into() })?.0 {
        Answer::Map(entries, more) => Ok((entries, more)),
        other => other.done().and_then(|()| Err(odd())),
    }
}

/// The calls that an offcode has got since the one of number `from`; see [`Request::Trace`].
pub fn calls_of(process: u32, offcode: &str, from: Option<u64>) -> Result<Calls> {
    match ask(process, &Request::Trace { offcode: offcode.into(), from })?.0 {
        Answer::Calls(calls) => Ok(calls),
        other => other.done().and_then(|()| Err(odd())),
    }
}

/// Ends an offcode, or the whole runtime.
pub fn stop_at(process: u32, offcode: Option<&str>) -> Result<()> {
    ask(process, &Request::Stop { offcode: offcode.map(Into::into) })?.0.done()
}

/// A channel in shared memory to an offcode of another process, and the connection that says how long it is used.
pub(crate) fn attach_to(process: u32, request: &Request) -> Result<(ports::channel::Endpoint, UnixStream)> {
    let (answer, stream) = ask(process, request)?;
    answer.done()?;
    let end = ports::channel::accept(&stream);
    Ok((end.map_err(|fault| fault.within(format!("runtime of process {process}")))?, stream))
}
