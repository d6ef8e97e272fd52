//! A runtime's end of what other processes ask of it: `plimsoll ps`, `plimsoll stop`, and those that attach to an offcode
//! ([`attach`]).

use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use attach::control::{Answer, Report, Request, WATCHED, hear, prefix, say};
use linux::doorbell::{Doorbell, Sleep};
use linux::rendezvous::Meeting;
use machine::bounds::{CONTROL_ATTACHED, CONTROL_CALLERS};
use machine::budget::Share;
use machine::channel::{Bell, Sleeper};
use machine::{Budget, Fault, Result};
use offcode::channel::Cast;
use offcode::depot::Depot;
use offcode::{Guid, Specification};

use crate::application::Runtime;
use crate::live::OffcodeId;

/// Time between two looks which attached processes are still there. Longer than it takes to see that a channel's end is
/// abandoned, so that its name is free when the runtime says so.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A request and where its answer goes, which counts as a caller until then.
type Asked = (Request, UnixStream, Share);

/// The runtime's end: listens in a thread, answers in the runtime's own.
pub struct Control {
    meeting: Arc<Meeting>,
    asked: Receiver<Asked>,
    thread: Option<JoinHandle<()>>,
    application: String,
    since: Instant,
    attached: Vec<Attached>,
    looked: Instant,
    /// Rung with every request.
    bell: Arc<Doorbell>,
    /// Whether the calls of an offcode are noted.
    watched: bool,
}

/// A channel of another process, which has it as long as it keeps the connection, and sends bytes over that for what it
/// writes while nobody looks at the channel.
struct Attached {
    connection: UnixStream,
    offcode: OffcodeId,
    name: String,
    /// Time at which the process was seen to have left.
    left: Option<Instant>,
}

enum Heard {
    Nothing,
    Bell,
    End,
}

impl Attached {
    fn listen(&self) -> Heard {
        match (&self.connection).read(&mut [0; 64]) {
            Ok(1..) => Heard::Bell,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Heard::Nothing,
            Ok(0) | Err(_) => Heard::End,
        }
    }
}

impl Control {
    /// Makes this process findable by its number.
    pub fn open(application: &str) -> Result<Control> {
        let meeting = Arc::new(Meeting::open(&format!("{}{}", prefix(), std::process::id()))?);
        let bell = Doorbell::new()?;
        let (sender, asked) = mpsc::channel();
        let requests = Requests { sender, bell: bell.clone() };
        let theirs = meeting.clone();
        let thread = std::thread::Builder::new()
            .name("control".into())
            .spawn(move || listen(&theirs, &requests))
            .map_err(|e| Fault::because("control thread", e, "raise the limit on processes (ulimit -u)"))?;
        let (application, now) = (application.into(), Instant::now());
        let attached = Vec::new();
        let thread = Some(thread);
        Ok(Control { meeting, asked, thread, application, since: now, attached, looked: now, bell, watched: false })
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

    /// A sleep of the runtime's thread that ends with what [`Control::serve`] has to do.
    pub fn sleep(&self) -> Sleep {
        let mut sleep = self.bell.sleep();
        if self.watched {
            sleep.at_most(WATCHED);
        }
        for one in &self.attached {
            if one.left.is_some() || !sleep.watch(one.connection.as_fd()) {
                sleep.at_most(POLL_INTERVAL);
            }
        }
        sleep
    }

    /// Answers the requests since the last call, and looks for processes that have left: now and then, and where the
    /// thread `slept`. `true`: the runtime is to end.
    pub fn serve(&mut self, runtime: &mut Runtime, slept: bool) -> bool {
        if slept || self.looked.elapsed() > POLL_INTERVAL {
            self.looked = Instant::now();
            self.listen_to_attached(runtime);
            self.watched = self.watched && runtime.is_watched();
        }
        let mut end = false;
        while let Ok((request, stream, _caller)) = self.asked.try_recv() {
            let outcome = match request {
                Request::Status => Ok(Answer::Status(self.report(runtime))),
                Request::Stop { offcode: None } => {
                    end = true;
                    Ok(Answer::Done)
                }
                Request::Stop { offcode: Some(wanted) } => {
                    runtime.named(&wanted).and_then(|found| runtime.stop(found)).map(|()| Answer::Done)
                }
                Request::Migrate { offcode, site } => {
                    let found = runtime.named(&offcode).and_then(|found| runtime.check_mode(&site).map(|()| found));
                    found.and_then(|found| runtime.migrate(found, &site.site)).map(Answer::Moved)
                }
                Request::Upgrade { offcode, depot } => runtime
                    .named(&offcode)
                    .and_then(|found| runtime.upgrade(found, &Depot::open(&depot)?))
                    .map(Answer::Moved),
                Request::Set { offcode, name, value } => {
                    let set = runtime.named(&offcode).and_then(|found| runtime.set_attribute(found, &name, &value));
                    set.map(Answer::Was)
                }
                Request::Trace { offcode, from } => {
                    self.watched = true;
                    runtime.named(&offcode).and_then(|found| runtime.calls(found, from)).map(Answer::Calls)
                }
                Request::Map { offcode, name } => {
                    let read = runtime.named(&offcode).and_then(|found| runtime.map(found, &name));
                    read.map(|dump| Answer::Map(dump.entries, dump.more))
                }
                Request::Attach { offcode, name, interface, specification } => {
                    match self.attach(runtime, &offcode, name, interface, specification) {
                        Ok((end, found, name)) => {
                            // A caller that has left keeps nothing: the end goes with this scope.
                            drop(say(&stream, &Answer::Done).and_then(|()| end.hand_over(&stream)));
                            let left = stream.set_nonblocking(true).is_err().then(Instant::now);
                            self.attached.push(Attached { connection: stream, offcode: found, name, left });
                            continue;
                        }
                        Err(fault) => Err(fault),
                    }
                }
            };
            let answer = outcome.unwrap_or_else(|fault| Answer::refused(&fault));
            // A caller that has left wants no answer.
            drop(say(&stream, &answer));
        }
        end
    }

    fn attach(
        &self,
        runtime: &mut Runtime,
        offcode: &str,
        name: Option<String>,
        interface: Option<Guid>,
        specification: Specification,
    ) -> Result<(ports::channel::Memory, OffcodeId, String)> {
        let found = runtime.named(offcode)?;
        let subject = || format!("offcode {offcode}");
        if self.attached.len() >= CONTROL_ATTACHED.total.count() {
            let cause = format!("other processes have {} channels to this runtime already", self.attached.len());
            return Err(Fault::new(subject(), cause, "attach once and keep the channel; look which processes do"));
        }
        if specification.cast != Cast::Unicast {
            let cause = "another process can have an end of a unicast channel only";
            return Err(Fault::new(subject(), cause, "ask for cast unicast"));
        }
        if let Some(interface) = interface {
            runtime.serves(found, interface)?;
        }
        let taken = |name: &str| self.attached.iter().any(|one| one.offcode == found && one.name == name);
        let name = name.unwrap_or_else(|| {
            let mut numbers = 1..;
            numbers.find_map(|n| Some(format!("caller-{n}")).filter(|name| !taken(name))).unwrap_or_default()
        });
        let (ours, theirs) = ports::channel::unicast(&specification)?;
        runtime.adopt(found, &name, Box::new(ours))?;
        Ok((theirs, found, name))
    }

    fn listen_to_attached(&mut self, runtime: &mut Runtime) {
        self.attached.retain_mut(|one| {
            match (one.left, one.listen()) {
                (Some(since), _) if since.elapsed() > POLL_INTERVAL => {
                    runtime.free(one.offcode, &one.name);
                    return false;
                }
                (None, Heard::End) => one.left = Some(Instant::now()),
                (None, Heard::Bell) => {}
                _ => return true,
            }
            // The switchboard holds the end of a channel whose offcode shares no memory with the process.
            runtime.switchboard.ring();
            true
        });
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.meeting.end();
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// The queue of requests, with the bell of its consumer.
#[derive(Clone)]
struct Requests {
    sender: Sender<Asked>,
    bell: Arc<Doorbell>,
}

impl Requests {
    fn send(&self, asked: Asked) {
        // Without a receiver the runtime is ending.
        drop(self.sender.send(asked));
        self.bell.ring();
    }
}

fn listen(meeting: &Meeting, requests: &Requests) {
    let callers = Budget::new(CONTROL_CALLERS.total.count() as u64);
    while let Some(stream) = meeting.accept() {
        let Ok(caller) = callers.draw(1) else {
            let cause = format!("{} callers wait for their answers already", callers.total());
            let fault = Fault::new("runtime", cause, "ask again; look which processes of this user call it");
            drop(say(&stream, &Answer::refused(&fault)));
            continue;
        };
        // One slow caller must not keep the others from being heard, so each has a short-lived thread.
        let requests = requests.clone();
        drop(std::thread::Builder::new().name("control-caller".into()).spawn(move || match hear(&stream) {
            Ok(request) => requests.send((request, stream, caller)),
            Err(fault) => drop(say(&stream, &Answer::refused(&fault))),
        }));
    }
}

#[cfg(test)]
mod tests {
    use attach::control::{find, look_at, processes, status};
    use linux::rendezvous;
    use machine::FaultKind;

    use super::*;

    /// A process number that none has, so that tests may hold its name.
    fn nobody(test: u32) -> (u32, String) {
        let process = u32::MAX - 16 * std::process::id() - test;
        (process, format!("{}{process}", prefix()))
    }

    /// Answers the first who asks.
    fn answer(meeting: &Meeting) {
        let report =
            Report { process: 1, application: "\u{1b}[2J\n\u{9b}K".into(), running_ms: 1, offcodes: Vec::new() };
        while let Some(stream) = meeting.accept() {
            if hear::<Request>(&stream).is_ok() {
                return say(&stream, &Answer::Status(report)).unwrap();
            }
        }
    }

    #[test]
    fn what_a_runtime_says_drives_no_terminal() {
        let (process, name) = nobody(0);
        let meeting = Meeting::open(&name).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| answer(&meeting));
            let said = status(process).unwrap();
            assert_eq!((said.process, said.application.as_str()), (process, "\u{FFFD}[2J\u{FFFD}\u{FFFD}K"));
        });
    }

    #[test]
    fn another_users_runtime_is_for_root_to_look_at_alone() {
        let (process, name) = nobody(1);
        let Some(meeting) = skip::another_user(|| Meeting::open(&name).unwrap()) else { return };
        assert_eq!(status(process).unwrap_err().kind(), FaultKind::NotPermitted);
        assert!(!processes().unwrap().contains(&process));
        let found = find().unwrap();
        assert!(found.others[&skip::OTHER_USER].contains(&process) && !found.own.contains(&process), "{found:?}");
        std::thread::scope(|scope| {
            scope.spawn(|| answer(&meeting));
            assert_eq!(look_at(process).unwrap().process, process);
        });
    }

    #[test]
    fn callers_that_say_nothing_are_bounded_and_give_way_when_they_leave() {
        let name = format!("plimsoll-test/control/{}", std::process::id());
        let meeting = Meeting::open(&name).unwrap();
        let (sender, asked) = mpsc::channel();
        let requests = Requests { sender, bell: Doorbell::new().unwrap() };
        std::thread::scope(|scope| {
            scope.spawn(|| listen(&meeting, &requests));
            // Also where this panics: the scope waits for its threads.
            let _end = Ending(&meeting);
            let silent: Vec<UnixStream> =
                (0..CONTROL_CALLERS.total.count()).map(|_| rendezvous::call(&name).unwrap()).collect();
            let Answer::Refused { cause, .. } = hear(&rendezvous::call(&name).unwrap()).unwrap() else { panic!() };
            assert!(cause.contains("callers wait"), "{cause}");
            drop(silent);
            // Their threads end when they see that the callers have left; until then a caller may be turned away before it
            // has said anything.
            loop {
                let caller = rendezvous::call(&name).unwrap();
                drop(say(&caller, &Request::Status));
                if let Ok((Request::Status, ..)) = asked.recv_timeout(Duration::from_millis(50)) {
                    break;
                }
            }
        });
    }

    struct Ending<'a>(&'a Meeting);

    impl Drop for Ending<'_> {
        fn drop(&mut self) {
            self.0.end();
        }
    }
}
