//! Placement `core:N`: the engine turns on a thread pinned to its own core; the application reaches it through two
//! queues in shared memory, one of commands, one of events.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use std::collections::VecDeque;

use engine::{Claim, Counters, Direction, Envelope, Label, RequestId, Source, StandIn, Status, TagSelector};
use linux::queue::{self, Consumer, Producer};
use machine::{CoreId, Fault, PeerIndex, Port, Result};
use slotmap::{Key, KeyData, SlotMap};

use crate::driver::{Buffer, Driver};
use crate::endpoint::{Completion, Number, Request};

const QUEUE_SLOTS: usize = 1024;
/// Commands taken before the driver turns.
const COMMAND_BUDGET: usize = 32;
/// Empty turns before an engine that shares its core lets others run.
const TURNS_BEFORE_YIELD: u32 = 16;
/// The same for an engine that knows of no rival: one that came later then waits microseconds, not time slices.
const TURNS_BEFORE_LOOKING_AWAY: u32 = 2048;
/// How long a question may stay unanswered before the engine counts as gone.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

slotmap::new_key_type! {
    /// A request as the application's side numbers it.
    pub(crate) struct Ticket;
}

enum Command<B> {
    Send { peer: PeerIndex, label: Label, confirmed: bool, buffer: B, ticket: u64 },
    Receive { source: Source, selector: TagSelector, buffer: B, ticket: u64 },
    Cancel { ticket: u64 },
    TakeBack { ticket: u64, stand_in: StandIn<B> },
    Probe { source: Source, selector: TagSelector },
    Claim { source: Source, selector: TagSelector },
    ReceiveClaimed { claim: Claim, buffer: B, ticket: u64 },
    Discard { claim: Claim },
    Counters,
    IsQuiet,
    IsFlushed,
}

enum Event<B> {
    Completed { ticket: u64, direction: Direction, envelope: Envelope, status: Status, buffer: B },
    Cancelled(bool),
    Probed(Option<Envelope>),
    Claimed(Option<(Envelope, Claim)>),
    Counters(Box<Counters>),
    IsQuiet(bool),
    Failed(Box<Fault>),
}

/// Words that both sides look at outside the queues.
struct Shared {
    stop: AtomicBool,
    paused: AtomicBool,
    /// Turns of the engine's loop: the proof that it runs.
    turns: AtomicU64,
    /// The engine thread's id, for the accounting; 0 before it started.
    thread_id: AtomicI32,
}

/// The application's side.
pub(crate) struct Dedicated<B> {
    commands: Producer<Command<B>>,
    events: Consumer<Event<B>>,
    /// Contexts of requests in progress.
    requests: SlotMap<Ticket, u64>,
    /// Completions that came while an answer was awaited.
    set_aside: VecDeque<Event<B>>,
    shared: Arc<Shared>,
    engine: Thread,
    join: Option<JoinHandle<()>>,
}

impl<B: Buffer> Dedicated<B> {
    /// Starts the engine on `core`. `yields`: others need that core, so it lets them run whenever it is idle.
    pub fn start<P: Port + Send + 'static>(driver: Driver<P, B>, core: CoreId, yields: bool) -> Result<Dedicated<B>> {
        let (commands, command_end) = queue::pair(QUEUE_SLOTS);
        let (event_end, events) = queue::pair(QUEUE_SLOTS);
        let shared = Arc::new(Shared {
            stop: AtomicBool::new(false),
            paused: AtomicBool::new(false),
            turns: AtomicU64::new(0),
            thread_id: AtomicI32::new(0),
        });
        let (started, start) = std::sync::mpsc::channel();
        let theirs = shared.clone();
        let join = thread::Builder::new()
            .name(format!("engine-core-{}", core.0))
            .spawn(move || {
                let pinned = match linux::affinity::pin(core) {
                    Ok(pinned) => pinned,
                    Err(fault) => {
                        let _ = started.send(Err(fault));
                        return;
                    }
                };
                theirs.thread_id.store(linux::accounting::current_thread(), Ordering::Relaxed);
                let _ = started.send(Ok(()));
                let engine = Loop {
                    driver,
                    commands: command_end,
                    events: event_end,
                    untold: VecDeque::new(),
                    requests: Vec::new(),
                    shared: theirs,
                    yields,
                };
                engine.run();
                drop(pinned);
            })
            .map_err(|e| Fault::because("engine thread", e, "raise the limit on processes (ulimit -u)"))?;
        let engine = join.thread().clone();
        start.recv().unwrap_or_else(|_| Err(gone()))?;
        let requests = SlotMap::with_key();
        Ok(Dedicated { commands, events, requests, set_aside: Default::default(), shared, engine, join: Some(join) })
    }

    fn push(&mut self, mut command: Command<B>) -> Result<()> {
        loop {
            match self.commands.try_push(command) {
                Ok(()) => return Ok(()),
                Err(back) if self.commands.is_abandoned() => {
                    drop(back);
                    return Err(gone());
                }
                Err(back) => {
                    command = back;
                    // The engine may be waiting for room for its events.
                    if let Some(event) = self.events.try_pop() {
                        self.set_aside.push_back(event);
                    } else {
                        thread::yield_now();
                    }
                }
            }
        }
    }

    #[inline]
    pub fn send(&mut self, peer: PeerIndex, label: Label, buffer: B, context: u64, confirmed: bool) -> Result<Ticket> {
        let ticket = self.requests.insert(context);
        self.push(Command::Send { peer, label, confirmed, buffer, ticket: ticket.data().as_ffi() })?;
        Ok(ticket)
    }

    #[inline]
    pub fn receive(&mut self, source: Source, selector: TagSelector, buffer: B, context: u64) -> Result<Ticket> {
        let ticket = self.requests.insert(context);
        self.push(Command::Receive { source, selector, buffer, ticket: ticket.data().as_ffi() })?;
        Ok(ticket)
    }

    /// Waits for the answer to a question; completions that come first are set aside.
    fn ask<T>(&mut self, command: Command<B>, answer: impl Fn(Event<B>) -> Result<T, Event<B>>) -> Result<T> {
        self.push(command)?;
        let deadline = Instant::now() + ANSWER_WITHIN;
        loop {
            match self.events.try_pop() {
                Some(Event::Failed(fault)) => return Err(*fault),
                Some(event) => match answer(event) {
                    Ok(value) => return Ok(value),
                    Err(other) => self.set_aside.push_back(other),
                },
                None if self.events.is_abandoned() || Instant::now() > deadline => return Err(gone()),
                None => thread::yield_now(),
            }
        }
    }

    pub fn cancel(&mut self, ticket: Ticket) -> Result<bool> {
        if !self.requests.contains_key(ticket) {
            return Ok(false);
        }
        self.ask(Command::Cancel { ticket: ticket.data().as_ffi() }, |event| match event {
            Event::Cancelled(done) => Ok(done),
            other => Err(other),
        })
    }

    pub fn take_back(&mut self, ticket: Ticket, stand_in: StandIn<B>) -> Result<bool> {
        if !self.requests.contains_key(ticket) {
            return Ok(false);
        }
        self.ask(Command::TakeBack { ticket: ticket.data().as_ffi(), stand_in }, |event| match event {
            Event::Cancelled(done) => Ok(done),
            other => Err(other),
        })
    }

    /// Cancels the first request with this context that can be.
    pub fn cancel_context(&mut self, context: u64) -> Result<bool> {
        let tickets: Vec<Ticket> =
            self.requests.iter().filter(|(_, made)| **made == context).map(|(ticket, _)| ticket).collect();
        for ticket in tickets {
            if self.cancel(ticket)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub fn probe(&mut self, source: Source, selector: TagSelector) -> Result<Option<Envelope>> {
        self.ask(Command::Probe { source, selector }, |event| match event {
            Event::Probed(found) => Ok(found),
            other => Err(other),
        })
    }

    pub fn claim(&mut self, source: Source, selector: TagSelector) -> Result<Option<(Envelope, Claim)>> {
        self.ask(Command::Claim { source, selector }, |event| match event {
            Event::Claimed(found) => Ok(found),
            other => Err(other),
        })
    }

    pub fn receive_claimed(&mut self, claim: Claim, buffer: B, context: u64) -> Result<Ticket> {
        let ticket = self.requests.insert(context);
        self.push(Command::ReceiveClaimed { claim, buffer, ticket: ticket.data().as_ffi() })?;
        Ok(ticket)
    }

    pub fn discard(&mut self, claim: Claim) -> Result<()> {
        self.push(Command::Discard { claim })
    }

    pub fn counters(&mut self) -> Result<Counters> {
        self.ask(Command::Counters, |event| match event {
            Event::Counters(counters) => Ok(*counters),
            other => Err(other),
        })
    }

    pub fn is_quiet(&mut self) -> Result<bool> {
        self.ask_quiet(Command::IsQuiet)
    }

    pub fn is_flushed(&mut self) -> Result<bool> {
        self.ask_quiet(Command::IsFlushed)
    }

    fn ask_quiet(&mut self, command: Command<B>) -> Result<bool> {
        self.ask(command, |event| match event {
            Event::IsQuiet(quiet) => Ok(quiet),
            other => Err(other),
        })
    }

    #[inline]
    pub fn poll(&mut self) -> Result<Option<Completion<B>>> {
        let event = match self.set_aside.pop_front() {
            Some(event) => event,
            None => match self.events.try_pop() {
                Some(event) => event,
                None if self.events.is_abandoned() => return Err(gone()),
                None => return Ok(None),
            },
        };
        match event {
            Event::Completed { ticket, direction, envelope, status, buffer } => {
                let ticket = Ticket::from(KeyData::from_ffi(ticket));
                let context = self.requests.remove(ticket).unwrap_or_default();
                let request = Request(Number::Dedicated(ticket));
                Ok(Some(Completion { request, context, direction, envelope, status, buffer }))
            }
            Event::Failed(fault) => Err(*fault),
            Event::Cancelled(_) | Event::Probed(_) | Event::Claimed(_) | Event::Counters(_) | Event::IsQuiet(_) => {
                Ok(None)
            }
        }
    }

    /// Turns the engine has made.
    pub fn turns(&self) -> u64 {
        self.shared.turns.load(Ordering::Relaxed)
    }

    pub fn thread_id(&self) -> i32 {
        self.shared.thread_id.load(Ordering::Relaxed)
    }

    /// The engine sleeps until [`Dedicated::resume`]; nothing moves meanwhile.
    pub fn pause(&self) {
        self.shared.paused.store(true, Ordering::Release);
    }

    pub fn resume(&self) {
        self.shared.paused.store(false, Ordering::Release);
        self.engine.unpark();
    }
}

impl<B> Drop for Dedicated<B> {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.engine.unpark();
        if let Some(join) = self.join.take() {
            let _ = join.join();
        }
    }
}

fn gone() -> Fault {
    Fault::new("engine core", "the engine's thread has ended", "see the message it printed; open the endpoint again")
}

/// The engine's side.
struct Loop<P, B> {
    driver: Driver<P, B>,
    commands: Consumer<Command<B>>,
    events: Producer<Event<B>>,
    /// Events that found the queue full: an application that does not poll must not stop the engine.
    untold: VecDeque<Event<B>>,
    /// By slot of the ticket: the engine's number, for cancelling.
    requests: Vec<Option<RequestId>>,
    shared: Arc<Shared>,
    yields: bool,
}

impl<P: Port, B: Buffer> Loop<P, B> {
    fn run(mut self) {
        let mut idle = 0u32;
        let mut turns = 0u64;
        let patience = if self.yields { TURNS_BEFORE_YIELD } else { TURNS_BEFORE_LOOKING_AWAY };
        while !self.shared.stop.load(Ordering::Relaxed) {
            if self.shared.paused.load(Ordering::Acquire) {
                thread::park_timeout(Duration::from_millis(50));
                continue;
            }
            let busy = match self.turn() {
                Ok(busy) => busy,
                Err(fault) => {
                    self.tell(Event::Failed(Box::new(fault)));
                    return;
                }
            };
            turns += 1;
            self.shared.turns.store(turns, Ordering::Relaxed);
            idle = if busy { 0 } else { idle + 1 };
            if idle > patience {
                idle = 0;
                thread::yield_now();
            }
        }
    }

    #[inline]
    fn turn(&mut self) -> Result<bool> {
        let mut busy = false;
        if !self.untold.is_empty() {
            self.tell_untold();
        }
        for _ in 0..COMMAND_BUDGET {
            let Some(command) = self.commands.try_pop() else { break };
            busy = true;
            self.obey(command)?;
        }
        busy |= self.driver.turn()?;
        while let Some(done) = self.driver.next_completion() {
            busy = true;
            let engine::Completion { context, direction, envelope, status, buffer, .. } = done;
            self.tell(Event::Completed { ticket: context, direction, envelope, status, buffer });
        }
        Ok(busy)
    }

    fn obey(&mut self, command: Command<B>) -> Result<()> {
        match command {
            Command::Send { peer, label, confirmed, buffer, ticket } => {
                let request = match confirmed {
                    false => self.driver.send(peer, label, buffer, ticket)?,
                    true => self.driver.send_confirmed(peer, label, buffer, ticket)?,
                };
                self.remember(ticket, request);
            }
            Command::Receive { source, selector, buffer, ticket } => {
                let request = self.driver.receive(source, selector, buffer, ticket)?;
                self.remember(ticket, request);
            }
            Command::Cancel { ticket } => {
                let request = self.requests.get(slot(ticket)).copied().flatten();
                let done = request.is_some_and(|request| self.driver.engine.cancel(request));
                self.tell(Event::Cancelled(done));
            }
            Command::TakeBack { ticket, stand_in } => {
                let request = self.requests.get(slot(ticket)).copied().flatten();
                let done = request.is_some_and(|request| self.driver.engine.take_back(request, stand_in));
                self.tell(Event::Cancelled(done));
            }
            Command::Probe { source, selector } => {
                let found = self.driver.engine.probe(source, selector);
                self.tell(Event::Probed(found));
            }
            Command::Claim { source, selector } => {
                let found = self.driver.engine.claim(source, selector);
                self.tell(Event::Claimed(found));
            }
            Command::ReceiveClaimed { claim, buffer, ticket } => {
                let request = self.driver.receive_claimed(claim, buffer, ticket)?;
                self.remember(ticket, request);
            }
            Command::Discard { claim } => {
                self.driver.engine.discard(claim);
            }
            Command::Counters => {
                let counters = self.driver.engine.counters();
                self.tell(Event::Counters(Box::new(counters)));
            }
            Command::IsFlushed => {
                let flushed = self.driver.engine.is_flushed();
                self.tell(Event::IsQuiet(flushed));
            }
            Command::IsQuiet => {
                let quiet = self.driver.engine.is_quiet();
                self.tell(Event::IsQuiet(quiet));
            }
        }
        Ok(())
    }

    #[inline]
    fn remember(&mut self, ticket: u64, request: RequestId) {
        let slot = slot(ticket);
        if self.requests.len() <= slot {
            self.requests.resize(slot + 1, None);
        }
        self.requests[slot] = Some(request);
    }

    #[inline]
    fn tell(&mut self, event: Event<B>) {
        if !self.untold.is_empty() {
            self.untold.push_back(event);
        } else if let Err(back) = self.events.try_push(event) {
            self.untold.push_back(back);
        }
    }

    fn tell_untold(&mut self) {
        while let Some(event) = self.untold.pop_front() {
            if let Err(back) = self.events.try_push(event) {
                self.untold.push_front(back);
                return;
            }
        }
    }
}

/// The slot part of a ticket, dense from 1 (the low half of the key).
fn slot(ticket: u64) -> usize {
    (ticket & u64::from(u32::MAX)) as usize
}
