//! What a runtime and other processes say to each other: one JSON line each way over an abstract socket that carries the
//! runtime's process number, and the PID namespace in which that counts, and ends with it.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use linux::{credentials, rendezvous};
use machine::bounds::CONTROL_LINE;
use machine::{Fault, FaultKind, Result, Site, SiteInMode, printable};
use offcode::{Guid, Specification};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::evidence::Evidence;
use crate::moved::Moved;
use crate::watched::{Calls, Carried};

const PREFIX: &str = "plimsoll/run/";
/// Bytes of the longest line, either way.
const LINE: usize = CONTROL_LINE.each.bytes().0 as usize;
/// Bytes of the longest answer, which is longer than any request.
const ANSWER: usize = 16 * LINE;
/// How long a caller may take to say what it wants, and the runtime to answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How long a runtime may take to move an offcode: it compiles, and lets messages arrive.
const MOVE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long an offcode is watched after somebody has asked for its calls.
pub const WATCHED: Duration = Duration::from_secs(2);
/// How long a caller may take to read its answer, for which the runtime's own thread waits: most answers fit a
/// socket's buffer.
const TAKEN: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// Asks which offcodes run.
    Status,
    /// Ends one offcode, or the whole runtime. Here and below an offcode is given by its instance's name, or by its package's
    /// name or GUID where that fits one alone.
    Stop { offcode: Option<String> },
    /// Moves an offcode, and those pulled to it. A driver hook has to run in the mode, where one is named.
    Migrate { offcode: String, site: SiteInMode },
    /// Puts another version of an offcode, from a depot, in its place.
    Upgrade { offcode: String, depot: PathBuf },
    /// Sets an attribute.
    Set { offcode: String, name: String, value: String },
    /// Asks for the entries of a map or of a variable of an offcode's object.
    Map { offcode: String, name: String },
    /// The calls that an offcode has got, from this number on. It is watched from the first such request until there was
    /// none for [`WATCHED`]; without a number only the next one's is said.
    Trace { offcode: String, from: Option<u64> },
    /// A channel in shared memory to an offcode, which knows it by `name`.
    Attach {
        offcode: String,
        /// The channel's name at the offcode; `None` for a name that tells its callers apart.
        name: Option<String>,
        /// An interface that the offcode must serve.
        interface: Option<Guid>,
        specification: Specification,
    },
}

/// The state of a runtime.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    pub process: u32,
    pub application: String,
    pub running_ms: u64,
    pub offcodes: Vec<Running>,
}

/// The answer to a request.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    Status(Report),
    /// Keys and values; whether there are more.
    Map(Vec<(String, String)>, bool),
    Done,
    /// The attribute's value before it was set.
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
    /// The instance's name: the package's unless the application gave it one.
    pub instance: String,
    /// The package's name.
    pub offcode: String,
    pub version: String,
    pub site: Site,
    pub attributes: Vec<(String, String)>,
    /// The evidence, or why it could not be had.
    pub evidence: std::result::Result<Evidence, String>,
    /// What its channels carried, the out-of-band channel first; or why that could not be had.
    pub channels: std::result::Result<Vec<Carried>, String>,
}

fn broken(e: impl std::error::Error + Send + Sync + 'static) -> Fault {
    Fault::because("control connection", e, "look whether the other end still runs")
}

/// Sends `what` as one line of JSON.
pub fn say<T: Serialize>(mut stream: &UnixStream, what: &T) -> Result<()> {
    let mut line = serde_json::to_vec(what)
        .map_err(|e| Fault::because("control connection", e, "report this message as a defect"))?;
    line.push(b'\n');
    stream.set_write_timeout(Some(TAKEN)).map_err(broken)?;
    stream.write_all(&line).map_err(broken)
}

/// Reads one line, and nothing of what follows it, within [`TIMEOUT`] as a whole.
pub fn hear<T: serde::de::DeserializeOwned>(stream: &UnixStream) -> Result<T> {
    let line = line_within(stream, TIMEOUT, LINE)?;
    serde_json::from_slice(&line).map_err(|e| unread(&line, &e))
}

/// Reads an answer, in whose text nothing is left that a terminal obeys.
fn hear_answer(stream: &UnixStream, patience: Duration) -> Result<Answer> {
    fn clean(value: &mut Value) {
        match value {
            Value::String(text) => *text = printable(text),
            Value::Array(values) => values.iter_mut().for_each(clean),
            Value::Object(fields) => fields.values_mut().for_each(clean),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    let line = line_within(stream, patience, ANSWER)?;
    let read = serde_json::from_slice(&line).and_then(|mut value: Value| {
        clean(&mut value);
        serde_json::from_value(value)
    });
    read.map_err(|e| unread(&line, &e))
}

fn unread(line: &[u8], error: &serde_json::Error) -> Fault {
    let cause = match line {
        [] => "the other end left without a word".into(),
        _ => printable(&error.to_string()),
    };
    Fault::new("control connection", cause, "use the plimsoll of the same version on both ends")
}

fn line_within(mut stream: &UnixStream, patience: Duration, longest: usize) -> Result<Vec<u8>> {
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
    Ok(line)
}

/// What names of processes begin with that are numbered as this one is: containers may share a network and not their
/// processes.
pub fn prefix() -> String {
    format!("{PREFIX}{}/", linux::accounting::pid_namespace())
}

/// Processes of this PID namespace that have a runtime.
#[derive(Debug, Default)]
pub struct Found {
    /// Processes of this user.
    pub own: Vec<u32>,
    /// Processes of each other user, for root alone.
    pub others: BTreeMap<u32, Vec<u32>>,
    /// Number of sockets that take no more callers, so that their owner is not known.
    pub busy: usize,
}

/// Finds the processes that have a runtime.
pub fn find() -> Result<Found> {
    let prefix = prefix();
    let held = rendezvous::holders(&prefix)?;
    let number = |name: &String| -> Option<u32> { name.strip_prefix(&prefix)?.parse().ok() };
    let own = held.own.iter().filter_map(number).collect();
    let mut found = Found { own, others: BTreeMap::new(), busy: held.busy };
    for (name, user) in &held.others {
        found.others.entry(*user).or_default().extend(number(name));
    }
    Ok(found)
}

/// The processes of this user that have a runtime, in this PID namespace.
pub fn processes() -> Result<Vec<u32>> {
    find().map(|found| found.own)
}

/// Users whose runtimes are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owners {
    /// This user's.
    Own,
    /// Any that this user may look at.
    Any,
}

fn ask(whose: Owners, process: u32, request: &Request) -> Result<(Answer, UnixStream)> {
    ask_within(whose, process, request, TIMEOUT)
}

fn ask_within(whose: Owners, process: u32, request: &Request, patience: Duration) -> Result<(Answer, UnixStream)> {
    let outer = |fault: Fault| fault.within(format!("runtime of process {process}"));
    let name = format!("{}{process}", prefix());
    let stream = match whose {
        Owners::Own => rendezvous::call(&name),
        Owners::Any => rendezvous::look_at(&name),
    };
    let stream = stream.map_err(outer)?;
    say(&stream, request).map_err(outer)?;
    Ok((hear_answer(&stream, patience).map_err(outer)?, stream))
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

/// The state of the runtime in a process of this user.
pub fn status(process: u32) -> Result<Report> {
    report(Owners::Own, process, TIMEOUT)
}

/// The state of the runtime in a process of any user, for root.
pub fn look_at(process: u32) -> Result<Report> {
    report(Owners::Any, process, TIMEOUT)
}

/// The states of several runtimes of another user, within a limited time for all of them.
pub fn look_at_all(user: u32, processes: &[u32]) -> Vec<Result<Report>> {
    let until = Instant::now() + TIMEOUT;
    let mut said = Vec::new();
    for (at, process) in processes.iter().enumerate() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let subject = format!("{} more runtimes of user {user}", processes.len() - at);
            let cause = format!("those before took {} s", TIMEOUT.as_secs());
            said.push(Err(Fault::new(subject, cause, "look at one with --process")));
            break;
        }
        said.push(report(Owners::Any, *process, left));
    }
    said
}

fn report(whose: Owners, process: u32, patience: Duration) -> Result<Report> {
    match ask_within(whose, process, &Request::Status, patience)?.0 {
        // The process number that a runtime states is not trusted.
        Answer::Status(report) => Ok(Report { process, ..report }),
        other => other.done().and_then(|()| Err(odd())),
    }
}

/// Moves an offcode of a process's runtime to another site.
pub fn migrate_at(process: u32, offcode: &str, site: &SiteInMode) -> Result<Moved> {
    moved(process, &Request::Migrate { offcode: offcode.into(), site: site.clone() })
}

/// Puts the version that is in a depot in the place of a running offcode.
pub fn upgrade_at(process: u32, offcode: &str, depot: &Path) -> Result<Moved> {
    moved(process, &Request::Upgrade { offcode: offcode.into(), depot: depot.into() })
}

fn moved(process: u32, request: &Request) -> Result<Moved> {
    match ask_within(Owners::Own, process, request, MOVE_TIMEOUT)?.0 {
        Answer::Moved(moved) => Ok(moved),
        other => other.done().and_then(|()| Err(odd())),
    }
}

/// Sets an attribute of an offcode. Returns what it was before.
pub fn set_at(process: u32, offcode: &str, name: &str, value: &str) -> Result<Option<String>> {
    let request = Request::Set { offcode: offcode.into(), name: name.into(), value: value.into() };
    match ask(Owners::Own, process, &request)?.0 {
        Answer::Was(before) => Ok(before),
        other => other.done().and_then(|()| Err(odd())),
    }
}

/// Keys and values of a map or a variable of an offcode's object, as text, and whether there are more.
pub fn map_of(process: u32, offcode: &str, name: &str) -> Result<(Vec<(String, String)>, bool)> {
    match ask(Owners::Any, process, &Request::Map { offcode: offcode.into(), name: name.into() })?.0 {
        Answer::Map(entries, more) => Ok((entries, more)),
        other => other.done().and_then(|()| Err(odd())),
    }
}

/// The calls that an offcode has got since the one of number `from`; see [`Request::Trace`].
pub fn calls_of(process: u32, offcode: &str, from: Option<u64>) -> Result<Calls> {
    match ask(Owners::Any, process, &Request::Trace { offcode: offcode.into(), from })?.0 {
        Answer::Calls(calls) => Ok(calls),
        other => other.done().and_then(|()| Err(odd())),
    }
}

/// Ends an offcode, or the whole runtime; for root of any user's process. Says whose it is.
pub fn stop_at(process: u32, offcode: Option<&str>) -> Result<u32> {
    let (answer, stream) = ask(Owners::Any, process, &Request::Stop { offcode: offcode.map(Into::into) })?;
    answer.done()?;
    credentials::of_peer(&stream).map(|peer| peer.user).map_err(broken)
}

/// Whether that user's process has its runtime still.
pub fn is_up(process: u32, user: u32) -> bool {
    match rendezvous::look_at(&format!("{}{process}", prefix())) {
        Ok(stream) => credentials::of_peer(&stream).is_ok_and(|peer| peer.user == user),
        Err(fault) => fault.kind() == FaultKind::Busy,
    }
}

/// A channel in shared memory to an offcode of another process, and the connection that says how long it is used.
pub(crate) fn attach_to(process: u32, request: &Request) -> Result<(ports::channel::Endpoint, UnixStream)> {
    let (answer, stream) = ask(Owners::Own, process, request)?;
    answer.done()?;
    let end = ports::channel::accept(&stream);
    Ok((end.map_err(|fault| fault.within(format!("runtime of process {process}")))?, stream))
}
