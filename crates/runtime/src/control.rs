//! The way into a running runtime from outside: `plimsoll ps`, `plimsoll stop`, and other processes that want a channel
//! to one of its offcodes.
//!
//! One JSON line each way over an abstract socket that carries the process's number and ends with it.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use linux::rendezvous::{self, Meeting};
use machine::{Fault, Result};
use offcode::{Channel, Specification};
use serde::{Deserialize, Serialize};

use crate::application::{Running, Runtime};

const PREFIX: &str = "plimsoll/run/";
/// Longest line of a request.
const LINE: u64 = 64 << 10;
/// How long a caller may take to say what it wants, and the runtime to answer.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// What runs.
    Status,
    /// Ends one offcode by name or GUID, or the whole runtime.
    Stop { offcode: Option<String> },
    /// A channel in shared memory to an offcode, which knows it by `name`.
    Attach { offcode: String, name: String, specification: Specification },
}

/// What a runtime says of itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    pub process: u32,
    pub application: String,
    pub running_ms: u64,
    pub offcodes: Vec<Running>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Answer {
    Status(Report),
    Done,
    Refused { subject: String, cause: String, next: String },
}

/// A request and where its answer goes.
type Asked = (Request, UnixStream);

/// The runtime's end: listens in a thread, answers in the runtime's own.
pub struct Control {
    meeting: Arc<Meeting>,
    asked: Receiver<Asked>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    application: String,
    since: std::time::Instant,
}

impl Control {
    /// Makes this process findable under its number.
    pub fn open(application: &str) -> Result<Control> {
        let meeting = Arc::new(Meeting::open(&format!("{PREFIX}{}", std::process::id()))?);
        let stop = Arc::new(AtomicBool::new(false));
        let (requests, asked) = mpsc::channel();
        let (theirs, ended) = (meeting.clone(), stop.clone());
        let thread = std::thread::Builder::new()
            .name("control".into())
            .spawn(move || listen(&theirs, &requests, &ended))
            .map_err(|e| Fault::because("control thread", e, "raise the limit on processes (ulimit -u)"))?;
        let since = std::time::Instant::now();
        Ok(Control { meeting, asked, stop, thread: Some(thread), application: application.into(), since })
    }

    /// What `plimsoll ps` shows of this process.
    pub fn report(&self, runtime: &mut Runtime) -> Report {
        Report {
            process: std::process::id(),
            application: self.application.clone(),
            running_ms: self.since.elapsed().as_millis() as u64,
            offcodes: runtime.status(),
        }
    }

    /// Answers what was asked since the last call. `true`: the runtime is to end.
    pub fn serve(&self, runtime: &mut Runtime) -> bool {
        let mut end = false;
        while let Ok((request, stream)) = self.asked.try_recv() {
            let outcome = match request {
                Request::Status => Ok(Answer::Status(self.report(runtime))),
                Request::Stop { offcode: None } => {
                    end = true;
                    Ok(Answer::Done)
                }
                Request::Stop { offcode: Some(wanted) } => stop(runtime, &wanted),
                Request::Attach { offcode, name, specification } => {
                    match attach(runtime, &offcode, &name, specification) {
                        Ok(end) => {
                            // A caller that has left keeps nothing: the end goes with this scope.
                            drop(say(&stream, &Answer::Done).and_then(|()| end.hand_over(&stream)));
                            continue;
                        }
                        Err(fault) => Err(fault),
                    }
                }
            };
            let answer = outcome.unwrap_or_else(|fault| refused(&fault));
            // A caller that has left wants no answer.
            drop(say(&stream, &answer));
        }
        end
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.meeting.nudge();
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn refused(fault: &Fault) -> Answer {
    let (subject, cause, next) = (fault.subject().into(), fault.cause().into(), fault.next().into());
    Answer::Refused { subject, cause, next }
}

fn stop(runtime: &mut Runtime, wanted: &str) -> Result<Answer> {
    let found = runtime.find(wanted).ok_or_else(|| {
        Fault::new(format!("offcode {wanted}"), "it does not run here", "see `plimsoll ps` for what does")
    })?;
    runtime.stop(found).map(|()| Answer::Done)
}

fn attach(
    runtime: &mut Runtime,
    offcode: &str,
    name: &str,
    specification: Specification,
) -> Result<linux::channel::Memory> {
    let found = runtime.find(offcode).ok_or_else(|| {
        Fault::new(format!("offcode {offcode}"), "it does not run here", "see `plimsoll ps` for what does")
    })?;
    let (ours, theirs) = linux::channel::unicast(&specification)?;
    runtime.adopt(found, name, Box::new(ours))?;
    Ok(theirs)
}

fn say<T: Serialize>(mut stream: &UnixStream, what: &T) -> Result<()> {
    let broken = |e: std::io::Error| Fault::because("control connection", e, "look whether the other end still runs");
    let mut line = serde_json::to_vec(what)
        .map_err(|e| Fault::because("control connection", e, "report this message as a defect"))?;
    line.push(b'\n');
    stream.write_all(&line).map_err(broken)
}

fn hear<T: serde::de::DeserializeOwned>(stream: &UnixStream) -> Result<T> {
    let broken = |e: std::io::Error| Fault::because("control connection", e, "look whether the other end still runs");
    stream.set_read_timeout(Some(PATIENCE)).map_err(broken)?;
    let mut line = String::new();
    BufReader::with_capacity(1, stream.take(LINE)).read_line(&mut line).map_err(broken)?;
    serde_json::from_str(&line).map_err(|e| {
        let cause = if line.is_empty() { "the other end left without a word".into() } else { e.to_string() };
        Fault::new("control connection", cause, "use the plimsoll of the same version on both ends")
    })
}

fn listen(meeting: &Meeting, requests: &Sender<Asked>, stop: &AtomicBool) {
    while let Ok(stream) = meeting.accept() {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        // One slow caller must not keep the others from being heard, so each has a short-lived thread.
        let requests = requests.clone();
        drop(std::thread::Builder::new().name("control-caller".into()).spawn(move || match hear(&stream) {
            Ok(request) => drop(requests.send((request, stream))),
            Err(fault) => drop(say(&stream, &refused(&fault))),
        }));
    }
}

/// The processes of this user, or for root of all, that have a runtime.
pub fn processes() -> Result<Vec<u32>> {
    let numbers = rendezvous::names(PREFIX)?;
    Ok(numbers.iter().filter_map(|name| name.strip_prefix(PREFIX)?.parse().ok()).collect())
}

fn ask(process: u32, request: &Request) -> Result<(Answer, UnixStream)> {
    let outer = |fault: Fault| fault.within(format!("runtime of process {process}"));
    let stream = rendezvous::call(&format!("{PREFIX}{process}")).map_err(outer)?;
    say(&stream, request).map_err(outer)?;
    Ok((hear(&stream).map_err(outer)?, stream))
}

fn odd() -> Fault {
    Fault::new("control connection", "the answer is to another question", "use the plimsoll of the same version")
}

/// What runs in a process's runtime.
pub fn status(process: u32) -> Result<Report> {
    match ask(process, &Request::Status)?.0 {
        Answer::Status(report) => Ok(report),
        Answer::Refused { subject, cause, next } => Err(Fault::new(subject, cause, next)),
        Answer::Done => Err(odd()),
    }
}

/// Ends an offcode, or the whole runtime.
pub fn stop_at(process: u32, offcode: Option<&str>) -> Result<()> {
    match ask(process, &Request::Stop { offcode: offcode.map(Into::into) })?.0 {
        Answer::Done => Ok(()),
        Answer::Refused { subject, cause, next } => Err(Fault::new(subject, cause, next)),
        Answer::Status(_) => Err(odd()),
    }
}

/// A channel in shared memory to an offcode of another process.
pub fn attach_to(process: u32, offcode: &str, name: &str, specification: Specification) -> Result<Box<dyn Channel>> {
    let (offcode, name) = (offcode.to_string(), name.to_string());
    match ask(process, &Request::Attach { offcode, name, specification })? {
        (Answer::Done, stream) => {
            let end = linux::channel::accept(&stream);
            Ok(end.map_err(|fault| fault.within(format!("runtime of process {process}")))?.into_channel())
        }
        (Answer::Refused { subject, cause, next }, _) => Err(Fault::new(subject, cause, next)),
        (Answer::Status(_), _) => Err(odd()),
    }
}
