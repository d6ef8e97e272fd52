//! What an application holds: one end of a message path, the same at every placement.

use std::time::{Duration, Instant};

use engine::{Claim, Counters, Envelope, Label, LinkConfig, RequestId, Source, StandIn, TagSelector};
use linux::contention::Excluded;
use machine::{CoreId, Dilation, Fault, PeerIndex, Port, Result, Site};

use crate::dilation::Dilated;
use crate::driver::{Buffer, Driver};
use crate::node::{EngineThread, NodeClient, Ticket};
use crate::patience::Patience;
use crate::settle::{Placed, settle};
use crate::verbs::QueuePairs;

/// A request in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Request(pub(crate) Number);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Number {
    App(RequestId),
    Node(Ticket),
    QueuePair(queue_pair::Request),
}

/// A request that has ended, with its buffer.
pub type Completion<B> = engine::Completion<B, Request>;

pub(crate) enum Place<P, B> {
    App(Box<Driver<P, B>>),
    /// There too, stretched. What is on the way of a message is a case of its own: any look beside it costs a message rate 6 %.
    Dilated(Box<Driver<P, B>>),
    /// Queue pairs in the engine's place.
    QueuePairs(Box<QueuePairs<P, B>>),
    /// On a core of its own, in the node's engine process or a thread of this one.
    Node(Box<NodeClient<B>>),
}

impl<P: Port, B: Buffer> Place<P, B> {
    fn app(driver: Driver<P, B>) -> Self {
        let place = if driver.dilated().is_some() { Place::Dilated } else { Place::App };
        place(Box::new(driver))
    }
}

/// The engine over one port, at one placement. Belongs to the thread that opened it.
pub struct Endpoint<P, B> {
    place: Place<P, B>,
    placed: Placed,
    patience: Patience,
    /// Keeps the application off the engine's core.
    _excluded: Option<Excluded>,
}

impl<P: Port + Send + 'static, B: Buffer> Endpoint<P, B> {
    /// Places the engine over `port`, whose peer `i` is configured by `links[i]`, at `site`: `app` or `core:N`.
    /// `claimed` are cores known to be needed by others, such as the peer's.
    pub fn open(port: P, links: &[LinkConfig], site: &Site, claimed: &[CoreId]) -> Result<Self> {
        Endpoint::open_dilated(port, links, site, claimed, Dilation::NONE)
    }

    /// As [`Endpoint::open`], with protocol work that takes as many times as long.
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
                let mut driver = Driver::new(port, links);
                driver.dilate(dilation);
                Place::Node(Box::new(NodeClient::start(driver, *core, &placed)?))
            }
            _ => {
                let mut driver = Driver::new(port, links);
                driver.dilate(dilation);
                Place::app(driver)
            }
        };
        let patience = Patience::new(placed.yields);
        Ok(Endpoint { place, placed, patience, _excluded: excluded })
    }

    pub(crate) fn over(driver: Driver<P, B>, placed: Placed) -> Self {
        let patience = Patience::new(placed.yields);
        Endpoint { place: Place::app(driver), placed, patience, _excluded: None }
    }

    pub(crate) fn over_queue_pairs(pairs: QueuePairs<P, B>, placed: Placed) -> Self {
        let patience = Patience::new(placed.yields);
        Endpoint { place: Place::QueuePairs(Box::new(pairs)), placed, patience, _excluded: None }
    }

    pub(crate) fn at_node(client: NodeClient<B>, placed: Placed) -> Self {
        let patience = Patience::new(placed.yields);
        Endpoint { place: Place::Node(Box::new(client)), placed, patience, _excluded: None }
    }

    pub(crate) fn place_mut(&mut self) -> &mut Place<P, B> {
        &mut self.place
    }

    /// Ranks share this host's cores: who waits yields soon.
    pub(crate) fn crowd(&mut self) {
        if !std::mem::replace(&mut self.placed.yields, true) {
            self.patience.crowd();
        }
    }

    /// What was asked and what runs.
    pub fn placed(&self) -> &Placed {
        &self.placed
    }

    /// Sends the whole of `buffer`; it comes back with the completion. Placement `app`: the packet is with the port
    /// when this returns, if the port had room; `flush` or `poll` hands it to the wire where the port batches.
    #[inline]
    pub fn send(&mut self, peer: PeerIndex, label: impl Into<Label>, buffer: B, context: u64) -> Result<Request> {
        let label = label.into();
        Ok(Request(match &mut self.place {
            Place::App(driver) => Number::App(driver.send_now::<false>(peer, label, buffer, context)?),
            Place::Dilated(driver) => Number::App(driver.send(peer, label, buffer, context)?),
            Place::Node(node) => Number::Node(node.send(peer, label, buffer, context, false)?),
            Place::QueuePairs(pairs) => Number::QueuePair(pairs.end.send(peer, label, buffer, context)?),
        }))
    }

    /// Sends as [`Endpoint::send`] does, but the completion says that the receiver has matched the message and has all
    /// of it.
    pub fn send_confirmed(
        &mut self,
        peer: PeerIndex,
        label: impl Into<Label>,
        buffer: B,
        context: u64,
    ) -> Result<Request> {
        let label = label.into();
        Ok(Request(match &mut self.place {
            Place::App(driver) | Place::Dilated(driver) => {
                Number::App(driver.send_confirmed(peer, label, buffer, context)?)
            }
            Place::Node(node) => Number::Node(node.send(peer, label, buffer, context, true)?),
            Place::QueuePairs(pairs) => Number::QueuePair(pairs.end.send_confirmed(peer, label, buffer, context)?),
        }))
    }

    /// Sends `bytes` if they can leave this instant; nothing completes then. False where they cannot: then
    /// [`Endpoint::send`] them from memory that stays.
    #[inline(always)]
    pub fn inject(&mut self, peer: PeerIndex, label: impl Into<Label>, bytes: &[u8]) -> Result<bool> {
        match &mut self.place {
            Place::App(driver) => driver.inject_now::<false>(peer, label.into(), bytes),
            Place::Dilated(driver) => driver.inject(peer, label.into(), bytes),
            Place::Node(node) => node.inject(peer, label.into(), bytes),
            Place::QueuePairs(pairs) => pairs.end.inject(peer, label.into(), bytes),
        }
    }

    /// Receives into `buffer` the first message that `source` and `selector` take.
    #[inline(always)]
    pub fn receive(&mut self, source: Source, selector: TagSelector, buffer: B, context: u64) -> Result<Request> {
        Ok(Request(match &mut self.place {
            Place::App(driver) => Number::App(driver.receive_now(source, selector, buffer, context)?),
            Place::Dilated(driver) => Number::App(driver.receive(source, selector, buffer, context)?),
            Place::Node(node) => Number::Node(node.receive(source, selector, buffer, context)?),
            Place::QueuePairs(pairs) => Number::QueuePair(pairs.end.receive(source, selector, buffer, context)?),
        }))
    }

    /// Moves what can move (placement `app`) and returns a request that has ended.
    #[inline]
    pub fn poll(&mut self) -> Result<Option<Completion<B>>> {
        match &mut self.place {
            Place::App(driver) => {
                if let Some(done) = driver.next_completion() {
                    return Ok(Some(done.named(of_engine)));
                }
                driver.turn_now::<false>(&mut |_, _, _| false)?;
                Ok(driver.next_completion().map(|done| done.named(of_engine)))
            }
            Place::Dilated(driver) => {
                if let Some(done) = driver.next_completion() {
                    return Ok(Some(done.named(of_engine)));
                }
                driver.turn()?;
                Ok(driver.next_completion().map(|done| done.named(of_engine)))
            }
            Place::Node(node) => node.poll(),
            Place::QueuePairs(pairs) => {
                if !pairs.end.has_ended() {
                    pairs.turn()?;
                }
                Ok(pairs.end.take_ended().map(|done| done.named(of_pairs)))
            }
        }
    }

    /// Moves what can move. `take` is told context, message and buffer of a receive that ends; where it says true, that was all
    /// of it, else it is left to [`Endpoint::take_ended`], as is whatever ends in other ways.
    #[inline(always)]
    pub fn turn_with(&mut self, mut take: impl FnMut(u64, &Envelope, &B) -> bool) -> Result<()> {
        match &mut self.place {
            Place::App(driver) => driver.turn_now::<false>(&mut take).map(|_| ()),
            Place::Dilated(driver) => driver.turn().map(|_| ()),
            Place::Node(node) => node.turn(),
            Place::QueuePairs(pairs) => pairs.turn(),
        }
    }

    /// Whether the next turn can be left out: there is nothing to take or to move.
    #[inline(always)]
    pub fn rests(&mut self) -> bool {
        match &mut self.place {
            Place::App(driver) => driver.rests(),
            Place::Dilated(_) | Place::Node(_) | Place::QueuePairs(_) => false,
        }
    }

    /// Whether [`Endpoint::take_ended`] has something to give.
    #[inline]
    pub fn has_ended(&self) -> bool {
        match &self.place {
            Place::App(driver) | Place::Dilated(driver) => driver.engine.has_ended(),
            Place::Node(node) => node.has_ended(),
            Place::QueuePairs(pairs) => pairs.end.has_ended(),
        }
    }

    /// A request that has ended already; moves nothing. Cheaper than [`Endpoint::poll`] where one came just before.
    #[inline]
    pub fn take_ended(&mut self) -> Result<Option<Completion<B>>> {
        match &mut self.place {
            Place::App(driver) | Place::Dilated(driver) => {
                Ok(driver.next_completion().map(|done| done.named(of_engine)))
            }
            Place::Node(node) => Ok(node.take_ended()),
            Place::QueuePairs(pairs) => Ok(pairs.end.take_ended().map(|done| done.named(of_pairs))),
        }
    }

    /// Hands everything sent so far to the wire. At `core:N` the engine does so by itself.
    #[inline]
    pub fn flush(&mut self) -> Result<()> {
        match &mut self.place {
            Place::App(driver) | Place::Dilated(driver) => driver.flush(),
            Place::QueuePairs(pairs) => pairs.end.flush(),
            Place::Node(_) => Ok(()),
        }
    }

    /// Starts a send off, for callers that may not poll soon: hands the first one since the last poll to the wire at
    /// once and leaves those that follow to the next poll, which sends them together.
    #[inline]
    pub fn start_off(&mut self) -> Result<()> {
        match &mut self.place {
            Place::App(driver) | Place::Dilated(driver) => driver.start_off(),
            Place::QueuePairs(pairs) => pairs.start_off(),
            Place::Node(_) => Ok(()),
        }
    }

    /// What to do between polls that found nothing: lets others run, soon where somebody needs this core, else now and then.
    #[inline]
    pub fn relax(&mut self) {
        if self.patience.relax() {
            match &mut self.place {
                Place::App(driver) | Place::Dilated(driver) => driver.waited(),
                Place::QueuePairs(pairs) => pairs.end.port_mut().waited(),
                Place::Node(_) => {}
            }
        }
    }

    /// Notes that a poll found something after polls that found nothing were followed by [`Endpoint::relax`].
    #[inline]
    pub fn relieved(&mut self) {
        self.patience.found();
    }

    /// The message that such a receive would take now, left where it is.
    pub fn probe(&mut self, source: Source, selector: TagSelector) -> Result<Option<Envelope>> {
        match &mut self.place {
            Place::App(driver) | Place::Dilated(driver) => {
                driver.turn()?;
                Ok(driver.engine.probe(source, selector))
            }
            Place::Node(node) => node.probe(source, selector),
            Place::QueuePairs(pairs) => {
                pairs.turn()?;
                Ok(pairs.end.probe(source, selector))
            }
        }
    }

    /// Takes that message out of the matching, for [`Endpoint::receive_claimed`] or [`Endpoint::discard`].
    pub fn claim(&mut self, source: Source, selector: TagSelector) -> Result<Option<(Envelope, Claim)>> {
        match &mut self.place {
            Place::App(driver) | Place::Dilated(driver) => {
                driver.turn()?;
                Ok(driver.engine.claim(source, selector))
            }
            Place::Node(node) => node.claim(source, selector),
            Place::QueuePairs(pairs) => {
                pairs.turn()?;
                Ok(pairs.end.claim(source, selector))
            }
        }
    }

    /// Receives the claimed message. Where it was received or discarded already: a fault, or at `core:N` a request that ends
    /// as [`engine::Status::Cancelled`].
    pub fn receive_claimed(&mut self, claim: Claim, buffer: B, context: u64) -> Result<Request> {
        Ok(Request(match &mut self.place {
            Place::App(driver) | Place::Dilated(driver) => Number::App(driver.receive_claimed(claim, buffer, context)?),
            Place::Node(node) => Number::Node(node.receive_claimed(claim, buffer, context)?),
            Place::QueuePairs(pairs) => Number::QueuePair(pairs.end.receive_claimed(claim, buffer, context)?),
        }))
    }

    /// Drops the claimed message; its sender takes it for received.
    pub fn discard(&mut self, claim: Claim) -> Result<()> {
        match &mut self.place {
            Place::App(driver) | Place::Dilated(driver) => {
                driver.engine.discard(claim);
                Ok(())
            }
            Place::Node(node) => node.discard(claim),
            Place::QueuePairs(pairs) => pairs.end.discard(claim),
        }
    }

    /// Withdraws a receive that has no message yet, or a send of which nothing has left; it completes as
    /// [`engine::Status::Cancelled`]. False if it is too late.
    pub fn cancel(&mut self, request: Request) -> Result<bool> {
        match (&mut self.place, request.0) {
            (Place::App(driver) | Place::Dilated(driver), Number::App(request)) => Ok(driver.engine.cancel(request)),
            (Place::Node(node), Number::Node(ticket)) => node.cancel(ticket),
            (Place::QueuePairs(pairs), Number::QueuePair(request)) => Ok(pairs.end.cancel(request)),
            _ => Ok(false),
        }
    }

    /// Takes the buffer of a request in progress back, whatever became of the message: once this returns, the engine touches
    /// that memory no more ([`engine::Engine::take_back`]). False if the request has ended.
    pub fn take_back(&mut self, request: Request, stand_in: StandIn<B>) -> Result<bool> {
        match (&mut self.place, request.0) {
            (Place::App(driver) | Place::Dilated(driver), Number::App(request)) => {
                Ok(driver.engine.take_back(request, stand_in))
            }
            (Place::Node(node), Number::Node(ticket)) => node.take_back(ticket, stand_in),
            (Place::QueuePairs(pairs), Number::QueuePair(request)) => Ok(pairs.end.take_back(request, stand_in)),
            _ => Ok(false),
        }
    }

    /// Cancels as [`Endpoint::cancel`] does, for a caller that knows only the context of a request. Walks all requests.
    pub fn cancel_context(&mut self, context: u64) -> Result<bool> {
        match &mut self.place {
            Place::App(driver) | Place::Dilated(driver) => {
                Ok(driver.engine.find(context).is_some_and(|request| driver.engine.cancel(request)))
            }
            Place::Node(node) => node.cancel_context(context),
            Place::QueuePairs(pairs) => Ok(pairs.end.find(context).is_some_and(|request| pairs.end.cancel(request))),
        }
    }

    pub fn counters(&mut self) -> Result<Counters> {
        match &mut self.place {
            Place::App(driver) | Place::Dilated(driver) => Ok(driver.engine.counters()),
            Place::Node(node) => Ok(node.report()?.counters),
            Place::QueuePairs(pairs) => Ok(pairs.counters()),
        }
    }

    /// Counts the time of an emulated adapter from now on, where there is one ([`Report::adapter`](crate::Report)).
    pub fn meter(&mut self) {
        if let Place::QueuePairs(pairs) = &mut self.place {
            pairs.meter();
        }
    }

    /// What was stretched of its protocol work; `None` where nothing is.
    pub fn dilated(&mut self) -> Result<Option<Dilated>> {
        match &mut self.place {
            Place::App(driver) | Place::Dilated(driver) => Ok(driver.dilated()),
            Place::Node(node) => Ok(node.report()?.dilated),
            Place::QueuePairs(_) => Ok(None),
        }
    }

    fn engine(&self) -> Option<&EngineThread> {
        match &self.place {
            Place::App(_) | Place::Dilated(_) | Place::QueuePairs(_) => None,
            Place::Node(node) => node.thread(),
        }
    }

    /// Turns that an engine's own thread has made, the proof that it runs; `None` where it has none in this process.
    pub fn engine_turns(&self) -> Option<u64> {
        self.engine().map(EngineThread::turns)
    }

    /// The kernel's id of that thread.
    pub fn engine_thread(&self) -> Option<i32> {
        self.engine().map(EngineThread::id)
    }

    /// The port, at placement `app` (a dedicated core has taken it along).
    pub fn port(&self) -> Option<&P> {
        match &self.place {
            Place::App(driver) | Place::Dilated(driver) => Some(driver.port()),
            Place::QueuePairs(pairs) => Some(pairs.end.adapter().port()),
            Place::Node(_) => None,
        }
    }

    /// An engine's own thread sleeps until [`Endpoint::resume`]; nothing moves meanwhile.
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
        self.drive_until(within, |driver| driver.engine.is_quiet(), |node| node.is_quiet(), |pairs| pairs.is_quiet())
    }

    /// Drives the engine of a closing end until what has left has arrived, at most for `within`. Messages that their
    /// receivers were told of and have not asked for are not waited for.
    pub fn linger(&mut self, within: Duration) -> Result<()> {
        let flushed = |pairs: &QueuePairs<P, B>| pairs.is_flushed();
        self.drive_until(within, |driver| driver.engine.is_flushed(), |node| node.is_flushed(), flushed)
    }

    /// Has the engine let go of the memory of all requests, which then never end. Where it is in a process of its own, that may
    /// take `within`; a fault of kind [`Busy`](machine::FaultKind::Busy) says that it does not answer and may still write there,
    /// and that this can be tried again. Buffers that own their memory need it not: an endpoint that is dropped keeps them as long.
    pub fn release(&mut self, within: Duration) -> Result<()> {
        match &mut self.place {
            // It works in this endpoint's calls only.
            Place::App(_) | Place::Dilated(_) | Place::QueuePairs(_) => Ok(()),
            Place::Node(node) => node.release(within),
        }
    }

    fn drive_until(
        &mut self,
        within: Duration,
        at_app: impl Fn(&Driver<P, B>) -> bool,
        at_node: impl Fn(&mut NodeClient<B>) -> Result<bool>,
        over_pairs: impl Fn(&QueuePairs<P, B>) -> bool,
    ) -> Result<()> {
        let deadline = Instant::now() + within;
        loop {
            let done = match &mut self.place {
                Place::App(driver) | Place::Dilated(driver) => {
                    driver.turn()?;
                    at_app(driver)
                }
                Place::Node(node) => at_node(node)?,
                Place::QueuePairs(pairs) => {
                    pairs.turn()?;
                    pairs.end.acknowledge_all()?;
                    over_pairs(pairs)
                }
            };
            if done {
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

fn of_engine(request: RequestId) -> Request {
    Request(Number::App(request))
}

fn of_pairs(request: queue_pair::Request) -> Request {
    Request(Number::QueuePair(request))
}
