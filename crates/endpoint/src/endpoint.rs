//! An application's end of a message path, the same at every placement.

use std::time::{Duration, Instant};

use engine::{Claim, Completion, Counters, Envelope, Label, LinkConfig, Request, Source, StandIn, TagSelector, Take};
use linux::contention::Excluded;
use machine::{CoreId, Dilation, Fault, PeerIndex, Port, Result, Site};

use crate::dilated::{DilatedDriver, DilatedPort};
use crate::dilation::Dilated;
use crate::driver::{Buffer, Driver};
use crate::node::{EngineThread, NodeClient};
use crate::settle::{Placed, settle};
use crate::verbs::QueuePairs;
use crate::yield_policy::YieldPolicy;

pub(crate) enum Place<P, B> {
    App(Box<Driver<P, B>>),
    /// The same with dilated work. A case of its own: a check on a message's path costs 6 % of the message rate.
    Dilated(Box<DilatedDriver<P, B>>),
    /// Queue pairs in the engine's place.
    QueuePairs(Box<QueuePairs<P, B>>),
    /// On a core of its own, in the node's engine process or a thread of this one.
    Node(Box<NodeClient<B>>),
}

/// Makes the same call on whichever layer carries the messages.
macro_rules! each {
    ($place:expr, $layer:ident => $call:expr) => {
        match $place {
            Place::App($layer) => $call,
            Place::Dilated($layer) => $call,
            Place::Node($layer) => $call,
            Place::QueuePairs(pairs) => {
                let $layer = &mut pairs.end;
                $call
            }
        }
    };
}

/// Evaluates `$look` on the engine or the queue pairs where they are in this process's reach, else asks the node's engine.
macro_rules! look {
    ($place:expr, $here:ident => $look:expr, $node:ident => $question:expr) => {
        match $place {
            Place::App(driver) => {
                let $here = &mut driver.engine;
                $look
            }
            Place::Dilated(dilated) => {
                let $here = &mut dilated.0.engine;
                $look
            }
            Place::QueuePairs(pairs) => {
                let $here = &mut pairs.end;
                $look
            }
            Place::Node($node) => $question,
        }
    };
}

impl<P: Port, B: Buffer> Place<P, B> {
    pub fn app(driver: Driver<P, B>) -> Self {
        Place::App(Box::new(driver))
    }

    pub fn dilated(driver: Driver<DilatedPort<P>, B>) -> Self {
        Place::Dilated(Box::new(DilatedDriver(driver)))
    }

    /// The port, or the client of the engine that holds it.
    pub fn port(&mut self) -> Result<&mut P, &mut NodeClient<B>> {
        match self {
            Place::App(driver) => Ok(driver.port_mut()),
            Place::Dilated(dilated) => Ok(dilated.0.port_mut().inner_mut()),
            Place::QueuePairs(pairs) => Ok(pairs.end.port_mut()),
            Place::Node(node) => Err(node),
        }
    }

    /// Takes in the port's new peers.
    pub fn admit(&mut self) {
        match self {
            Place::App(driver) => driver.admit(),
            Place::Dilated(dilated) => dilated.0.admit(),
            Place::QueuePairs(pairs) => pairs.admit(),
            Place::Node(_) => {}
        }
    }

    /// Moves whatever can move.
    #[inline]
    fn turn(&mut self) -> Result<()> {
        match self {
            Place::App(driver) => driver.turn().map(drop),
            Place::Dilated(dilated) => dilated.turn().map(drop),
            Place::Node(node) => node.turn(),
            Place::QueuePairs(pairs) => pairs.turn(),
        }
    }
}

/// The engine over one port, at one placement. It belongs to the thread that opened it.
pub struct Endpoint<P, B> {
    place: Place<P, B>,
    placed: Placed,
    patience: YieldPolicy,
    /// Keeps the application off the engine's core.
    _excluded: Option<Excluded>,
}

impl<P: Port + Send + 'static, B: Buffer> Endpoint<P, B> {
    /// Places the engine over `port`, whose peer `i` is configured by `links[i]`, at `site`: `app` or `core:N`.
    /// `claimed` are cores that others are known to need, such as the peer's.
    pub fn open(port: P, links: &[LinkConfig], site: &Site, claimed: &[CoreId]) -> Result<Self> {
        Endpoint::open_dilated(port, links, site, claimed, Dilation::NONE)
    }

    /// As [`Endpoint::open`], with protocol work stretched by `dilation`.
    pub fn open_dilated(
        port: P,
        links: &[LinkConfig],
        site: &Site,
        claimed: &[CoreId],
        dilation: Dilation,
    ) -> Result<Self> {
        let (placed, excluded) = settle(site, "the engine", claimed)?;
        let place = match site {
            Site::Core(core) => {
                let driver = Driver::new(DilatedPort::new(port, dilation), links);
                Place::Node(Box::new(NodeClient::start(driver, *core, &placed)?))
            }
            _ if dilation.is_none() => Place::app(Driver::new(port, links)),
            _ => Place::dilated(Driver::new(DilatedPort::new(port, dilation), links)),
        };
        Ok(Endpoint { _excluded: excluded, ..Endpoint::at(place, placed) })
    }

    pub(crate) fn at(place: Place<P, B>, placed: Placed) -> Self {
        let patience = YieldPolicy::new(placed.yields);
        Endpoint { place, placed, patience, _excluded: None }
    }

    pub(crate) fn place_mut(&mut self) -> &mut Place<P, B> {
        &mut self.place
    }

    /// Tells that ranks share this host's cores: waits yield soon.
    pub(crate) fn crowd(&mut self) {
        if !std::mem::replace(&mut self.placed.yields, true) {
            self.patience.crowd();
        }
    }

    /// The placement asked for and the one that runs.
    pub fn placed(&self) -> &Placed {
        &self.placed
    }

    /// Sends the whole of `buffer`; it comes back with the completion. Placement `app`: the packet is with the port on return,
    /// if the port had room; `flush` or `poll` hands it to the wire where the port batches.
    #[inline]
    pub fn send(&mut self, peer: PeerIndex, label: impl Into<Label>, buffer: B, context: u64) -> Result<Request> {
        let label = label.into();
        each!(&mut self.place, layer => layer.send(peer, label, buffer, context))
    }

    /// Sends as [`Endpoint::send`] does; the completion proves that the receiver has matched the message and has all of it.
    pub fn send_confirmed(
        &mut self,
        peer: PeerIndex,
        label: impl Into<Label>,
        buffer: B,
        context: u64,
    ) -> Result<Request> {
        let label = label.into();
        each!(&mut self.place, layer => layer.send_confirmed(peer, label, buffer, context))
    }

    /// Sends `bytes` if they can leave at once; nothing completes then. False otherwise: then [`Endpoint::send`] them from
    /// memory that stays.
    #[inline(never)]
    pub fn inject(&mut self, peer: PeerIndex, label: impl Into<Label>, bytes: &[u8]) -> Result<bool> {
        let label = label.into();
        each!(&mut self.place, layer => layer.inject(peer, &label, bytes))
    }

    /// As [`Endpoint::inject`] at placement `app`, compiled into its caller. False also at other placements and where the port
    /// has failed, which `inject` then tells.
    #[inline(always)]
    pub fn inject_here(&mut self, peer: PeerIndex, label: &Label, bytes: &[u8]) -> bool {
        match &mut self.place {
            Place::App(driver) => matches!(driver.inject(peer, label, bytes), Ok(true)),
            _ => false,
        }
    }

    /// Receives into `buffer` the first message that `source` and `selector` take.
    #[inline(always)]
    pub fn receive(&mut self, source: Source, selector: TagSelector, buffer: B, context: u64) -> Result<Request> {
        match &mut self.place {
            Place::App(driver) => driver.receive(source, selector, buffer, context),
            _ => self.receive_elsewhere((source, selector, buffer, context)),
        }
    }

    /// Out of line, so that only the commonest placement is compiled into callers, and with one argument, so that these need not
    /// have the parts in memory.
    #[inline(never)]
    fn receive_elsewhere(
        &mut self,
        (source, selector, buffer, context): (Source, TagSelector, B, u64),
    ) -> Result<Request> {
        each!(&mut self.place, layer => layer.receive(source, selector, buffer, context))
    }

    /// Moves what can move (placement `app`) and returns a request that has ended.
    #[inline]
    pub fn poll(&mut self) -> Result<Option<Completion<B>>> {
        match &mut self.place {
            Place::App(driver) => driver.poll(),
            Place::Dilated(dilated) => dilated.poll(),
            Place::Node(node) => node.poll(),
            Place::QueuePairs(pairs) => pairs.poll(),
        }
    }

    /// Moves what can move. At placement `app` `taker` may take receives that end; others are left to [`Endpoint::take_ended`].
    #[inline(always)]
    pub fn turn_with(&mut self, taker: &mut impl Take<B>) -> Result<()> {
        match &mut self.place {
            Place::App(driver) => driver.turn_with(taker).map(drop),
            place => place.turn(),
        }
    }

    /// Whether the next poll can be left out: nothing is there to take or to move.
    #[inline(always)]
    pub fn can_skip_poll(&mut self) -> bool {
        match &mut self.place {
            Place::App(driver) => driver.can_skip_poll(),
            Place::Dilated(_) | Place::Node(_) | Place::QueuePairs(_) => false,
        }
    }

    /// Whether [`Endpoint::take_ended`] has something to give.
    #[inline]
    pub fn has_ended(&self) -> bool {
        match &self.place {
            Place::App(driver) => driver.engine.has_ended(),
            Place::Dilated(dilated) => dilated.0.engine.has_ended(),
            Place::Node(node) => node.has_ended(),
            Place::QueuePairs(pairs) => pairs.end.has_ended(),
        }
    }

    /// Takes a request that has ended already; moves nothing. Cheaper than [`Endpoint::poll`] where one came just before.
    #[inline]
    pub fn take_ended(&mut self) -> Option<Completion<B>> {
        look!(&mut self.place, here => here.next_completion(), node => node.take_ended())
    }

    /// Hands everything sent so far to the wire. At `core:N` the engine does so by itself.
    #[inline]
    pub fn flush(&mut self) -> Result<()> {
        match &mut self.place {
            Place::App(driver) => driver.flush(),
            Place::Dilated(dilated) => dilated.flush(),
            Place::QueuePairs(pairs) => pairs.end.flush(),
            Place::Node(_) => Ok(()),
        }
    }

    /// Hands the first send since the last poll to the wire at once, for callers that may not poll soon; the next poll sends
    /// later ones together.
    #[inline]
    pub fn flush_first(&mut self) -> Result<()> {
        match &mut self.place {
            Place::App(driver) => driver.flush_first(),
            Place::Dilated(dilated) => dilated.0.flush_first(),
            Place::QueuePairs(pairs) => pairs.flush_first(),
            Place::Node(_) => Ok(()),
        }
    }

    /// Waits between polls that found nothing: yields the core, soon where somebody needs it, else now and then.
    #[inline]
    pub fn relax(&mut self) {
        if self.patience.relax() {
            match &mut self.place {
                Place::App(driver) => driver.waited(),
                Place::Dilated(dilated) => dilated.0.waited(),
                Place::QueuePairs(pairs) => pairs.end.port_mut().waited(),
                Place::Node(_) => {}
            }
        }
    }

    /// Ends a wait by [`Endpoint::relax`]: a poll found something.
    #[inline]
    pub fn relieved(&mut self) {
        self.patience.found();
    }

    /// The message that a receive of `source` and `selector` would take now; it stays in the queue.
    pub fn probe(&mut self, source: Source, selector: TagSelector) -> Result<Option<Envelope>> {
        self.turn_here()?;
        look!(&mut self.place, here => Ok(here.probe(source, selector)), node => node.probe(source, selector))
    }

    /// Claims the message of [`Endpoint::probe`] for [`Endpoint::receive_claimed`] or [`Endpoint::discard`].
    pub fn claim(&mut self, source: Source, selector: TagSelector) -> Result<Option<(Envelope, Claim)>> {
        self.turn_here()?;
        look!(&mut self.place, here => Ok(here.claim(source, selector)), node => node.claim(source, selector))
    }

    /// Receives the claimed message. A claim that was received or discarded before is a fault, or at `core:N` a request that
    /// ends as [`engine::Status::Cancelled`].
    pub fn receive_claimed(&mut self, claim: Claim, buffer: B, context: u64) -> Result<Request> {
        each!(&mut self.place, layer => layer.receive_claimed(claim, buffer, context))
    }

    /// Drops the claimed message; its sender takes it for received.
    pub fn discard(&mut self, claim: Claim) -> Result<()> {
        each!(&mut self.place, layer => layer.discard(claim))
    }

    /// Withdraws a receive that has no message yet, or a send of which nothing has left; it completes as
    /// [`engine::Status::Cancelled`]. False if it is too late.
    pub fn cancel(&mut self, request: Request) -> Result<bool> {
        look!(&mut self.place, here => Ok(here.cancel(request)), node => node.cancel(request))
    }

    /// Takes the buffer of a request in progress back: once this returns, the engine touches that memory no more
    /// ([`engine::Engine::take_back`]). False if the request has ended.
    pub fn take_back(&mut self, request: Request, stand_in: StandIn<B>) -> Result<bool> {
        look!(&mut self.place, here => Ok(here.take_back(request, stand_in)), node => node.take_back(request, stand_in))
    }

    /// Cancels as [`Endpoint::cancel`] does, for a caller that knows only the context of a request. Walks all requests.
    pub fn cancel_context(&mut self, context: u64) -> Result<bool> {
        look!(
            &mut self.place,
            here => Ok(here.find(context).is_some_and(|request| here.cancel(request))),
            node => node.cancel_context(context)
        )
    }

    pub fn counters(&mut self) -> Result<Counters> {
        match &mut self.place {
            Place::App(driver) => Ok(driver.engine.counters()),
            Place::Dilated(dilated) => Ok(dilated.0.engine.counters()),
            Place::Node(node) => Ok(node.report()?.counters),
            Place::QueuePairs(pairs) => Ok(pairs.counters()),
        }
    }

    /// Starts counting the time of an emulated adapter, where there is one ([`Report::adapter`](crate::Report)).
    pub fn meter(&mut self) {
        if let Place::QueuePairs(pairs) = &mut self.place {
            pairs.meter();
        }
    }

    /// Counts of dilated protocol work; `None` without dilation.
    pub fn dilated(&mut self) -> Result<Option<Dilated>> {
        match &mut self.place {
            Place::Dilated(dilated) => Ok(dilated.0.port().counts()),
            Place::Node(node) => Ok(node.report()?.dilated),
            Place::App(_) | Place::QueuePairs(_) => Ok(None),
        }
    }

    fn engine(&self) -> Option<&EngineThread> {
        match &self.place {
            Place::App(_) | Place::Dilated(_) | Place::QueuePairs(_) => None,
            Place::Node(node) => node.thread(),
        }
    }

    /// Polls of an engine's own thread, the proof that it runs; `None` without such a thread in this process.
    pub fn engine_turns(&self) -> Option<u64> {
        self.engine().map(EngineThread::turns)
    }

    /// The kernel's id of the engine's thread.
    pub fn engine_thread(&self) -> Option<i32> {
        self.engine().map(EngineThread::id)
    }

    /// The port at placement `app`; a dedicated core has taken it along.
    pub fn port(&self) -> Option<&P> {
        match &self.place {
            Place::App(driver) => Some(driver.port()),
            Place::Dilated(dilated) => Some(dilated.0.port().inner()),
            Place::QueuePairs(pairs) => Some(pairs.end.adapter().port()),
            Place::Node(_) => None,
        }
    }

    /// Has an engine's own thread sleep until [`Endpoint::resume`]; nothing moves meanwhile.
    pub fn pause(&self) {
        if let Some(engine) = self.engine() {
            engine.pause();
        }
    }

    pub fn resume(&self) {
        if let Some(engine) = self.engine() {
            engine.resume();
        }
    }

    /// Drives the engine until all that was sent has arrived. Completions stay to be polled.
    pub fn settle(&mut self, within: Duration) -> Result<()> {
        self.drive_until(within, |place| look!(place, here => Ok(here.is_quiet()), node => node.is_quiet()))
    }

    /// Drives the engine of a closing end until what has left has arrived, at most for `within`. Announced messages that their
    /// receivers have not asked for are not waited for.
    pub fn linger(&mut self, within: Duration) -> Result<()> {
        self.drive_until(within, |place| look!(place, here => Ok(here.is_flushed()), node => node.is_flushed()))
    }

    /// Has the engine let go of the memory of all requests, which then never end. An engine in a process of its own may take
    /// `within`; a fault of kind [`Busy`](machine::FaultKind::Busy) says that it does not answer and may still write there,
    /// and that a retry is possible. Buffers that own their memory do not need it: a dropped endpoint keeps them as long.
    pub fn release(&mut self, within: Duration) -> Result<()> {
        match &mut self.place {
            // The engine works in this endpoint's calls only.
            Place::App(_) | Place::Dilated(_) | Place::QueuePairs(_) => Ok(()),
            Place::Node(node) => node.release(within),
        }
    }

    /// Moves what can move, where the caller's calls do so.
    #[inline]
    fn turn_here(&mut self) -> Result<()> {
        if let Place::Node(_) = self.place { Ok(()) } else { self.place.turn() }
    }

    fn drive_until(&mut self, within: Duration, is_done: impl Fn(&mut Place<P, B>) -> Result<bool>) -> Result<()> {
        let deadline = Instant::now() + within;
        loop {
            self.turn_here()?;
            if let Place::QueuePairs(pairs) = &mut self.place {
                pairs.end.acknowledge_all()?;
            }
            if is_done(&mut self.place)? {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(Fault::new(
                    "endpoint",
                    format!("not everything sent had arrived after {within:?}"),
                    "check that the peers still run",
                ));
            }
            self.relax();
        }
    }
}
