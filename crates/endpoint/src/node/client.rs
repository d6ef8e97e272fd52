//! The rank's side of a node's engine.

use std::collections::VecDeque;
use std::mem::{replace, take};
use std::path::Path;
use std::time::{Duration, Instant};

use engine::{Claim, Completion, Direction, Envelope, Label, Request, Source, StandIn, Status, TagSelector};
use linux::identity::Identity;
use linux::loan::Loan;
use machine::{CoreId, Fault, FaultKind, Notice, PeerIndex, Port, Result, Sent, Site};
use ports::shm::{Role, ShmPort};
use slotmap::{Key, KeyData, SlotMap};

use super::greeting::{self, Answer, JoinRequest, VERSION};
use super::memory::RankMemory;
use super::protocol::{Command, EVENTS, Event, INLINE, OTHER, Place, Record, fault_of, no_event};
use super::remains::{Leaving, Remains, give_back, keep};
use super::thread::{self, EngineThread};
use super::waiting::{Ticket, Waiting};
use super::{launch, rings};
use crate::dilated::DilatedPort;
use crate::driver::{Buffer, Driver, TURNS_PER_NOTICE};
use crate::introduction;
use crate::name::Name;
use crate::report::Report;
use crate::settings::Settings;
use crate::settle::Placed;

/// Time within which the engine must answer a question.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// An answer to a question.
enum Answered {
    Cancelled(bool),
    Found(Option<(Envelope, Option<Claim>)>),
    Inserted(PeerIndex),
    Report(Vec<u8>),
    IsQuiet(bool),
}

pub(crate) struct NodeClient<B> {
    rings: ShmPort,
    /// The engine's thread, if it is in this process: it ends once the rings are closed, and before the memory that it works
    /// on is freed.
    thread: Option<EngineThread>,
    name: Option<Name>,
    /// The engine's process.
    process: u32,
    waiting: SlotMap<Ticket, Waiting<B>>,
    ended: VecDeque<Completion<B>>,
    answer: Option<Answered>,
    /// Whether the last question was given up: its answer may still come.
    overdue: bool,
    failed: Option<Fault>,
    lost: VecDeque<(PeerIndex, Fault)>,
    polls: u32,
    yields: bool,
    /// Number of the last send that ended at once.
    short: u64,
    /// Vouches for the engine's process to peers.
    loan: Option<Loan>,
    word: Option<Box<u64>>,
    leaving: Leaving,
    /// Keeps memory that the engine has not let go of.
    keep: fn(Remains<B>),
}

impl<B: Buffer> NodeClient<B> {
    /// Joins the engine's process on `core`; starts one if there is none.
    pub fn join(core: CoreId, settings: &Settings, program: Option<&Path>) -> Result<(Self, Placed)> {
        give_back();
        // Whether this rank may use the core says nothing: launchers bind ranks elsewhere. The engine's starter checks it.
        let stream = launch::call(core, program)?;
        // Where Yama restricts access, only the engine may read and write this process's memory. An engine without a process
        // number here (another PID namespace) gets no permission, and refuses where it needs it.
        let engine = Identity::of_peer(&stream)
            .map_err(|e| Fault::because("node's engine", e, "permit pidfd_open; raise the limit on open files"))?;
        if let Some(Ok(engine)) = engine.as_ref().map(|engine| engine.living()) {
            let _ = rustix::process::set_ptracer(rustix::process::PTracer::ProcessID(engine));
        }
        let word = Box::new(introduction::random()?);
        let loan = engine.map(|engine| Loan::to(&engine, *word)).transpose()?;
        let cores = linux::affinity::current()?;
        greeting::say(
            &stream,
            &JoinRequest {
                version: VERSION,
                network: settings.network.to_string(),
                address: settings.address.map(|address| address.to_string()),
                shm: settings.shm,
                wire: settings.faults.map(|faults| faults.to_string()),
                dilation: settings.dilation,
                word_at: &raw const *word as u64,
                word: *word,
                cores: cores.iter().map(|core| core.0).collect(),
            },
        )?;
        let (name, process, yields, notes) = match greeting::hear(&stream)? {
            Answer::Welcome { name, process, yields, notes } => (Name::from_bytes(&name)?, process, yields, notes),
            Answer::Refused { subject, cause, next } => return Err(Fault::new(subject, cause, next)),
        };
        let mut rings = rings();
        rings.connect(&stream, Role::Join)?;
        let site = Site::Core(core);
        let mut placed = Placed { asked: site.clone(), ran: site, yields, notes };
        placed.notes.push(format!("the node's engine is process {process}"));
        let mut client = NodeClient::over(rings, process, yields);
        (client.name, client.loan, client.word) = (Some(name), loan, Some(word));
        Ok((client, placed))
    }

    /// Runs `driver` on a thread of this process.
    pub fn start<P: Port + Send + 'static>(
        driver: Driver<DilatedPort<P>, RankMemory>,
        core: CoreId,
        placed: &Placed,
    ) -> Result<Self> {
        let (thread, rings) = EngineThread::start(driver, core, placed)?;
        let mut client = NodeClient::over(rings, std::process::id(), placed.yields);
        client.thread = Some(thread);
        Ok(client)
    }

    fn over(rings: ShmPort, process: u32, yields: bool) -> Self {
        NodeClient {
            rings,
            thread: None,
            name: None,
            process,
            waiting: SlotMap::with_key(),
            ended: VecDeque::new(),
            answer: None,
            overdue: false,
            failed: None,
            lost: VecDeque::new(),
            polls: 0,
            yields,
            short: 0,
            loan: None,
            word: None,
            leaving: Leaving::No,
            keep: keep::<B>,
        }
    }

    /// The endpoint's name; `None` where the port came with its peers.
    pub fn name(&self) -> Option<Name> {
        self.name
    }

    /// The engine's thread, if it is in this process.
    pub fn thread(&self) -> Option<&EngineThread> {
        self.thread.as_ref()
    }

    #[cold]
    fn gone(&mut self) -> Fault {
        self.failed.take().unwrap_or_else(|| match &self.thread {
            Some(_) => thread::ended(),
            None => Fault::new("node's engine", "its process has ended", "start the job again; see who ended it"),
        })
    }

    /// Sends a command; waits while the engine has no room.
    #[inline]
    fn push(&mut self, command: &Command) -> Result<()> {
        self.push_with(command, 0, |_| (), None)
    }

    /// Sends a command and `payload` bytes that `fill` writes; a fault if there is no room until `deadline`.
    #[inline]
    fn push_with(
        &mut self,
        command: &Command,
        payload: usize,
        fill: impl Fn(&mut [u8]),
        deadline: Option<Instant>,
    ) -> Result<()> {
        let header = command.length();
        loop {
            let sent = self.rings.send(OTHER, header + payload, |into| {
                let (head, room) = into.split_at_mut(header);
                command.write(head);
                fill(room);
            })?;
            match sent {
                Sent::Taken => return Ok(()),
                Sent::Gone => return Err(self.gone()),
                Sent::Full => {
                    if !self.take_events()? {
                        self.rest()?;
                        if deadline.is_some_and(|deadline| self.is_past(deadline)) {
                            return Err(self.silent());
                        }
                    }
                }
            }
        }
    }

    /// Yields to an engine that may wait for this core; checks now and then that it lives.
    fn rest(&mut self) -> Result<()> {
        self.polls = self.polls.wrapping_add(1);
        if self.yields {
            std::thread::yield_now();
        }
        if self.polls.is_multiple_of(if self.yields { 64 } else { TURNS_PER_NOTICE }) {
            if let Some(loan) = &self.loan {
                loan.tend();
            }
            let mut dead = false;
            self.rings.notices(|notice| dead |= matches!(notice, Notice::Dead(_) | Notice::Closed(_)))?;
            if dead {
                self.leaving = Leaving::Done;
                return Err(self.gone());
            }
        }
        Ok(())
    }

    /// Whether the deadline is past; reads the clock now and then, while the engine says nothing.
    fn is_past(&self, deadline: Instant) -> bool {
        self.polls.is_multiple_of(1024) && Instant::now() > deadline
    }

    /// Takes in the engine's events; whether there were any.
    #[inline]
    fn take_events(&mut self) -> Result<bool> {
        let NodeClient { rings, waiting, ended, answer, overdue, failed, lost, .. } = self;
        let came = rings.receive(EVENTS, |_, bytes| {
            let Some(event) = Event::parse(bytes) else {
                *failed = Some(no_event());
                return;
            };
            let answered = match event {
                Event::Completed { ticket, direction, envelope, status, payload } => {
                    let ticket = Ticket::from(KeyData::from_ffi(ticket));
                    let Some(Waiting { context, mut buffer, staging }) = waiting.remove(ticket) else { return };
                    if direction == Direction::Receive
                        && let Some(bytes) = payload.or(staging.as_deref())
                    {
                        // A staged message shorter than the buffer leaves the rest of the buffer alone.
                        let got = bytes.len().min(buffer.length()).min(envelope.length as usize);
                        buffer.write(0, &bytes[..got]);
                    }
                    let request = ticket.request(direction);
                    return ended.push_back(Completion { request, context, direction, envelope, status, buffer });
                }
                Event::Failed(fault) => {
                    *failed = Some(fault_of(fault).within("the engine"));
                    return;
                }
                Event::Lost { peer, fault } => return lost.push_back((peer, fault_of(fault))),
                Event::Cancelled(done) => Answered::Cancelled(done),
                Event::Found(found) => Answered::Found(found),
                Event::Inserted(peer) => Answered::Inserted(peer),
                Event::Report(json) => Answered::Report(json.to_vec()),
                Event::IsQuiet(quiet) => Answered::IsQuiet(quiet),
            };
            // The answer to a question that was given up is dropped.
            if !take(overdue) {
                *answer = Some(answered);
            }
        })?;
        if came == 0 {
            return Ok(false);
        }
        match self.failed.take() {
            Some(fault) => Err(fault),
            None => Ok(true),
        }
    }

    #[inline]
    pub fn send(&mut self, peer: PeerIndex, label: Label, buffer: B, context: u64) -> Result<Request> {
        let length = buffer.length();
        if length > INLINE {
            return self.send_there(peer, label, buffer, context, false);
        }
        let command = Command::Send { peer, label, confirmed: false, ticket: 0, place: Place::Here(&[]) };
        self.push_with(&command, length, |room| buffer.read(0, room), None)?;
        // The engine has the bytes: the application's send has ended.
        self.short += 1;
        let (request, direction, status) = (Request::Short(self.short), Direction::Send, Status::Done);
        let envelope = Envelope::new(peer, label, length as u64);
        self.ended.push_back(Completion { request, context, direction, envelope, status, buffer });
        Ok(request)
    }

    pub fn send_confirmed(&mut self, peer: PeerIndex, label: Label, buffer: B, context: u64) -> Result<Request> {
        self.send_there(peer, label, buffer, context, true)
    }

    #[inline]
    fn send_there(
        &mut self,
        peer: PeerIndex,
        label: Label,
        buffer: B,
        context: u64,
        confirmed: bool,
    ) -> Result<Request> {
        let waiting = Waiting::new(context, buffer, true);
        let place = Place::There { address: waiting.address(), length: waiting.buffer.length() as u64 };
        let ticket = self.waiting.insert(waiting);
        self.push(&Command::Send { peer, label, confirmed, ticket: ticket.data().as_ffi(), place })?;
        Ok(ticket.request(Direction::Send))
    }

    /// Sends as a short send does; nothing completes. False where `bytes` do not fit a command.
    #[inline]
    pub fn inject(&mut self, peer: PeerIndex, label: &Label, bytes: &[u8]) -> Result<bool> {
        if bytes.len() > INLINE {
            return Ok(false);
        }
        self.push(&Command::Send { peer, label: *label, confirmed: false, ticket: 0, place: Place::Here(bytes) })?;
        Ok(true)
    }

    #[inline]
    pub fn receive(&mut self, source: Source, selector: TagSelector, buffer: B, context: u64) -> Result<Request> {
        let waiting = Waiting::new(context, buffer, false);
        let (address, length) = (waiting.address(), waiting.buffer.length() as u64);
        let ticket = self.waiting.insert(waiting);
        let selector = selector.into();
        self.push(&Command::Receive { source, selector, ticket: ticket.data().as_ffi(), address, length })?;
        Ok(ticket.request(Direction::Receive))
    }

    pub fn receive_claimed(&mut self, claim: Claim, buffer: B, context: u64) -> Result<Request> {
        let waiting = Waiting::new(context, buffer, false);
        let (address, length) = (waiting.address(), waiting.buffer.length() as u64);
        let ticket = self.waiting.insert(waiting);
        self.push(&Command::ReceiveClaimed { claim, ticket: ticket.data().as_ffi(), address, length })?;
        Ok(ticket.request(Direction::Receive))
    }

    pub fn discard(&mut self, claim: Claim) -> Result<()> {
        self.push(&Command::Discard { claim })
    }

    fn ask(&mut self, command: &Command) -> Result<Answered> {
        // An engine that owes an answer is not waited for again.
        if self.overdue {
            while self.take_events()? {}
            if self.overdue {
                return Err(self.silent());
            }
        }
        // Waits for room as long as it takes, as sends do; but not in commands that end an endpoint or a part of one.
        let ends = matches!(command, Command::IsQuiet | Command::IsFlushed | Command::TakeBack { .. });
        self.push_with(command, 0, |_| (), ends.then(|| Instant::now() + ANSWER_WITHIN))?;
        let deadline = Instant::now() + ANSWER_WITHIN;
        loop {
            if let Some(answer) = self.answer.take() {
                return Ok(answer);
            }
            if !self.take_events()? {
                self.rest()?;
                if self.is_past(deadline) {
                    self.overdue = true;
                    return Err(self.silent());
                }
            }
        }
    }

    pub fn cancel(&mut self, request: Request) -> Result<bool> {
        self.cancel_ticket(Ticket::of(request))
    }

    fn cancel_ticket(&mut self, ticket: Ticket) -> Result<bool> {
        if !self.waiting.contains_key(ticket) {
            return Ok(false);
        }
        match self.ask(&Command::Cancel { ticket: ticket.data().as_ffi() })? {
            Answered::Cancelled(done) => Ok(done),
            _ => Err(astray()),
        }
    }

    /// See [`crate::Endpoint::take_back`].
    pub fn take_back(&mut self, request: Request, stand_in: StandIn<B>) -> Result<bool> {
        let ticket = Ticket::of(request);
        if !self.waiting.contains_key(ticket) {
            return Ok(false);
        }
        let Answered::Cancelled(done) = self.ask(&Command::TakeBack { ticket: ticket.data().as_ffi() })? else {
            return Err(astray());
        };
        // The end of the request may bring a short message, which is written into the buffer here.
        if let Some(waiting) = self.waiting.get_mut(ticket) {
            waiting.buffer = stand_in(&waiting.buffer, false);
        }
        Ok(done)
    }

    /// Cancels as [`NodeClient::cancel`] does, by the context; walks all requests.
    pub fn cancel_context(&mut self, context: u64) -> Result<bool> {
        let found = self.waiting.iter().find(|(_, waiting)| waiting.context == context).map(|(ticket, _)| ticket);
        found.map_or(Ok(false), |ticket| self.cancel_ticket(ticket))
    }

    pub fn probe(&mut self, source: Source, selector: TagSelector) -> Result<Option<Envelope>> {
        match self.ask(&Command::Probe { source, selector: selector.into() })? {
            Answered::Found(found) => Ok(found.map(|(envelope, _)| envelope)),
            _ => Err(astray()),
        }
    }

    pub fn claim(&mut self, source: Source, selector: TagSelector) -> Result<Option<(Envelope, Claim)>> {
        match self.ask(&Command::Claim { source, selector: selector.into() })? {
            Answered::Found(found) => Ok(found.and_then(|(envelope, claim)| Some((envelope, claim?)))),
            _ => Err(astray()),
        }
    }

    pub fn insert(&mut self, name: &Name) -> Result<PeerIndex> {
        match self.ask(&Command::Insert { name: *name })? {
            Answered::Inserted(peer) => Ok(peer),
            _ => Err(astray()),
        }
    }

    pub fn next_lost(&mut self) -> Option<(PeerIndex, Fault)> {
        self.lost.pop_front()
    }

    pub fn report(&mut self) -> Result<Report> {
        match self.ask(&Command::Report)? {
            Answered::Report(json) => serde_json::from_slice(&json)
                .map_err(|e| Fault::because("report of the node's engine", e, "start both from the same build")),
            _ => Err(astray()),
        }
    }

    pub fn is_quiet(&mut self) -> Result<bool> {
        self.ask_quiet(&Command::IsQuiet)
    }

    pub fn is_flushed(&mut self) -> Result<bool> {
        self.ask_quiet(&Command::IsFlushed)
    }

    fn ask_quiet(&mut self, command: &Command) -> Result<bool> {
        match self.ask(command)? {
            Answered::IsQuiet(quiet) => Ok(quiet),
            _ => Err(astray()),
        }
    }

    #[inline]
    pub fn poll(&mut self) -> Result<Option<Completion<B>>> {
        if self.ended.is_empty() {
            self.turn()?;
        }
        Ok(self.ended.pop_front())
    }

    /// Takes in the engine's events.
    #[inline]
    pub fn turn(&mut self) -> Result<()> {
        if self.take_events()? { Ok(()) } else { self.rest() }
    }

    #[inline]
    pub fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    pub fn take_ended(&mut self) -> Option<Completion<B>> {
        self.ended.pop_front()
    }
}

impl<B> NodeClient<B> {
    /// See [`crate::Endpoint::release`].
    pub fn release(&mut self, within: Duration) -> Result<()> {
        if let Some(thread) = &self.thread {
            thread.resume();
        }
        let deadline = Instant::now() + within;
        while self.leaving != Leaving::Done {
            self.leaving.go_on(&mut self.rings)?;
            if self.leaving != Leaving::Done {
                if Instant::now() >= deadline {
                    return Err(self.silent());
                }
                std::thread::yield_now();
            }
        }
        Ok(())
    }

    #[cold]
    fn silent(&self) -> Fault {
        let process = self.process;
        let fault = match &self.thread {
            Some(_) => Fault::new("engine core", "the engine's thread does not answer", "see what has its core"),
            None => Fault::new(
                "node's engine",
                format!("process {process} does not answer"),
                format!("let it go on (kill -CONT {process}) or end it, then try again"),
            ),
        };
        fault.of_kind(FaultKind::Busy)
    }
}

impl<B> Drop for NodeClient<B> {
    /// Waits for a thread before its memory is freed; a process that does not answer may go on later.
    fn drop(&mut self) {
        // An engine that was told before is not waited for again.
        let within = if self.leaving == Leaving::No { ANSWER_WITHIN } else { Duration::ZERO };
        if self.release(within).is_err() && self.thread.is_none() {
            (self.keep)(Remains {
                leaving: self.leaving,
                rings: replace(&mut self.rings, rings()),
                _waiting: take(&mut self.waiting),
                _word: self.word.take(),
            });
        }
    }
}

fn astray() -> Fault {
    Fault::new("node's engine", "it answered another question", "start both from the same build")
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    use super::*;

    /// A buffer that shows whether it still exists.
    struct Lent {
        bytes: Vec<u8>,
        _held: Arc<()>,
    }

    impl AsRef<[u8]> for Lent {
        fn as_ref(&self) -> &[u8] {
            &self.bytes
        }
    }

    impl AsMut<[u8]> for Lent {
        fn as_mut(&mut self) -> &mut [u8] {
            &mut self.bytes
        }
    }

    /// A rank's side, and the engine's end of the rings.
    fn client() -> (NodeClient<Lent>, ShmPort) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let meets = std::thread::spawn(move || {
            let mut engine = rings();
            engine.connect(&theirs, Role::Create).unwrap();
            engine
        });
        let mut ranks = rings();
        ranks.connect(&ours, Role::Join).unwrap();
        (NodeClient::over(ranks, 1, false), meets.join().unwrap())
    }

    #[test]
    fn memory_stays_until_its_engine_has_let_go() {
        let (mut client, engine) = client();
        let held = Arc::new(());
        let memory = Lent { bytes: vec![0; 100_000], _held: held.clone() };
        client.receive(Source::Any, TagSelector::any(), memory, 0).unwrap();
        assert_eq!(client.release(Duration::ZERO).unwrap_err().kind(), FaultKind::Busy);
        drop(client);
        give_back();
        assert_eq!(Arc::strong_count(&held), 2, "the engine may write there");
        drop(engine);
        give_back();
        assert_eq!(Arc::strong_count(&held), 1);
    }

    #[test]
    fn a_late_answer_is_none_to_the_next_question() {
        let (mut client, mut engine) = client();
        client.overdue = true;
        assert_eq!(client.is_quiet().unwrap_err().kind(), FaultKind::Busy);
        for quiet in [true, false] {
            let event = Event::IsQuiet(quiet);
            let sent = engine.send(PeerIndex(0), event.length(), |into| event.write(into)).unwrap();
            assert_eq!(sent, Sent::Taken);
        }
        assert!(!client.is_quiet().unwrap());
    }
}
