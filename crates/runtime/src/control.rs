//! The way into a running runtime from outside: `plimsoll ps`, `plimsoll stop`, and other processes that want a channel
//! to one of its offcodes.
//!
//! One JSON line each way over an abstract socket that carries the process's number, and the PID namespace in which that
//! counts, and ends with it.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use linux::rendezvous::{self, Meeting};
use machine::bounds::{CONTROL_CALLERS, CONTROL_LINE};
use machine::budget::Share;
use machine::{Budget, Fault, Result};
use offcode::{Channel, Specification};
use serde::{Deserialize, Serialize};

use crate::application::{Running, Runtime};

const PREFIX: &str = "plimsoll/run/";
/// Longest line, either way.
const LINE: usize = CONTROL_LINE.each.bytes().0 as usize;
/// How long a caller may take to say what it wants, and the runtime to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a caller may take to read its answer, for which the runtime's own thread waits: an answer fits a socket's
/// buffer.
const TAKEN: Duration = Duration::from_millis(100);

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

/// A request and where its answer goes, which counts as a caller until then.
type Asked = (Request, UnixStream, Share);

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
        let meeting = Arc::new(Meeting::open(&format!("{}{}", prefix(), std::process::id()))?);
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
        while let Ok((request, stream, _caller)) = self.asked.try_recv() {
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
) -> Result<ports::channel::Memory> {
    let found = runtime.find(offcode).ok_or_else(|| {
        Fault::new(format!("offcode {offcode}"), "it does not run here", "see `plimsoll ps` for what does")
    })?;
    let (ours, theirs) = ports::channel::unicast(&specification)?;
    runtime.adopt(found, name, Box::new(ours))?;
    Ok(theirs)
}

fn broken(e: impl std::error::Error + Send + Sync + 'static) -> Fault {
    Fault::because("control connection", e, "look whether the other end still runs")
}

fn say<T: Serialize>(mut stream: &UnixStream, what: &T) -> Result<()> {
    let mut line = serde_json::to_vec(what)
        .map_err(|e| Fault::because("control connection", e, "report this message as a defect"))?;
    line.push(b'\n');
    stream.set_write_timeout(Some(TAKEN)).map_err(broken)?;
    stream.write_all(&line).map_err(broken)
}

/// One line, and nothing of what follows it; within [`PATIENCE`] as a whole.
fn hear<T: serde::de::DeserializeOwned>(mut stream: &UnixStream) -> Result<T> {
    let until = Instant::now() + PATIENCE;
    let late = || {
        let cause = format!("no whole line came within {} s", PATIENCE.as_secs());
        Fault::new("control connection", cause, "look whether the other end still runs")
    };
    stream.set_read_timeout(Some(PATIENCE)).map_err(broken)?;
    let mut line = Vec::new();
    let mut byte = [0];
    while line.len() < LINE {
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

fn listen(meeting: &Meeting, requests: &Sender<Asked>, stop: &AtomicBool) {
    let callers = Budget::new(CONTROL_CALLERS.total.count() as u64);
    loop {
        let stream = meeting.accept();
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let Ok(caller) = callers.draw(1) else {
            let cause = format!("{} callers wait for their answers already", callers.total());
            let fault = Fault::new("runtime", cause, "ask again; look which processes of this user call it");
            drop(say(&stream, &refused(&fault)));
            continue;
        };
        // One slow caller must not keep the others from being heard, so each has a short-lived thread.
        let requests = requests.clone();
        drop(std::thread::Builder::new().name("control-caller".into()).spawn(move || match hear(&stream) {
            Ok(request) => drop(requests.send((request, stream, caller))),
            Err(fault) => drop(say(&stream, &refused(&fault))),
        }));
    }
}

/// What names of processes begin with that are numbered as this one is: containers may share a network and not their
/// processes.
fn prefix() -> String {
    format!("{PREFIX}{}/", linux::accounting::pid_namespace())
}

/// The processes of this user, or for root of all, that have a runtime, in this PID namespace.
pub fn processes() -> Result<Vec<u32>> {
    let prefix = prefix();
    let names = rendezvous::names(&prefix)?;
    Ok(names.iter().filter_map(|name| name.strip_prefix(&prefix)?.parse().ok()).collect())
}

fn ask(process: u32, request: &Request) -> Result<(Answer, UnixStream)> {
    let outer = |fault: Fault| fault.within(format!("runtime of process {process}"));
    let stream = rendezvous::call(&format!("{}{process}", prefix())).map_err(outer)?;
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
            let end = ports::channel::accept(&stream);
            Ok(end.map_err(|fault| fault.within(format!("runtime of process {process}")))?.into_channel())
        }
        (Answer::Refused { subject, cause, next }, _) => Err(Fault::new(subject, cause, next)),
        (Answer::Status(_), _) => Err(odd()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_that_say_nothing_are_bounded_and_give_way_when_they_leave() {
        let name = format!("plimsoll-test/control/{}", std::process::id());
        let meeting = Meeting::open(&name).unwrap();
        let (requests, asked) = mpsc::channel();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| listen(&meeting, &requests, &stop));
            let silent: Vec<UnixStream> =
                (0..CONTROL_CALLERS.total.count()).map(|_| rendezvous::call(&name).unwrap()).collect();
            let Answer::Refused { cause, .. } = hear(&rendezvous::call(&name).unwrap()).unwrap() else { panic!() };
            assert!(cause.contains("callers wait"), "{cause}");
            drop(silent);
            // Their threads end when they see that the callers have left.
            loop {
                let caller = rendezvous::call(&name).unwrap();
                say(&caller, &Request::Status).unwrap();
                if let Ok((Request::Status, ..)) = asked.recv_timeout(Duration::from_millis(50)) {
                    break;
                }
            }
            stop.store(true, Ordering::Relaxed);
            meeting.nudge();
        });
    }
}
