//! Listeners for connection requests: the message engine behind a passive endpoint. It outlives the endpoint until each
//! request is answered, since it sends the answers.

use std::ffi::c_int;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use endpoint::{Direction, Endpoint as Engine, Name, Paths, Settings, Source, Status};
use machine::bounds::CONNECTION_REQUESTS;
use machine::{PeerIndex, Result};

use crate::abi::constants::*;
use crate::abi::fid::{Fid, Ops};
use crate::handshake::{ConnectionMessage, LABEL, LONGEST, selector};
use crate::memory::{Memory, wish};
use crate::offer::Settled;
use crate::refuse;
use crate::service::{NameServer, Service};

/// Posted receives for requests; more requests wait in the engine.
const BUFFERS: usize = 16;
/// Most requests handled in one poll.
const AT_ONCE: usize = 64;
/// Most requests without an answer; more are refused.
pub const BACKLOG: usize = CONNECTION_REQUESTS.total.count();
/// Time for which the last answers are driven.
const SETTLE: Duration = Duration::from_secs(1);

pub struct Listener {
    settings: Settings,
    /// Settings of endpoints for its connections.
    pub settled: Settled,
    desk: Mutex<ListenerState>,
}

/// State for one caller at a time.
struct ListenerState {
    engine: Option<Engine<Paths, Memory>>,
    source: Service,
    told: Option<NameServer>,
    stage: Stage,
    /// Number of requests without an answer.
    waiting: usize,
    backlog: usize,
    /// Requests that the application does not know yet.
    fresh: Vec<(PeerIndex, Name, Vec<u8>)>,
    /// Whether each peer has asked, by its index: an endpoint asks once in its life, and gets one answer.
    asked: Vec<bool>,
}

// SAFETY: an engine is bound to no thread: only the engine uses its contents, and the lock admits one caller at a time.
unsafe impl Send for ListenerState {}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Unused,
    Listening,
    Closed,
    /// The engine has failed and that was reported.
    Failed,
}

/// A connection request in the application's hands, which `fi_info::handle` points to.
#[repr(C)]
pub struct ConnectionRequest {
    fid: Fid,
    /// Whether an endpoint was opened for it, which frees it.
    pub taken: AtomicBool,
    pub name: Name,
    client: PeerIndex,
    /// The listener until the request is answered.
    listener: Mutex<Option<Arc<Listener>>>,
}

static BASE: Ops = Ops {
    size: size_of::<Ops>(),
    close: refuse::close,
    bind: refuse::bind,
    control: refuse::control,
    ops_open: refuse::ops_open,
    tostr: refuse::tostr,
    ops_set: refuse::ops_set,
};

impl Listener {
    pub fn new(settings: Settings, settled: Settled, source: Service) -> Arc<Listener> {
        let desk = ListenerState {
            engine: None,
            source,
            told: None,
            stage: Stage::Unused,
            waiting: 0,
            fresh: Vec::new(),
            backlog: BACKLOG,
            asked: Vec::new(),
        };
        Arc::new(Listener { settings, settled, desk: Mutex::new(desk) })
    }

    fn desk(&self) -> MutexGuard<'_, ListenerState> {
        // A panic ends the process, so that nobody ever sees the poison.
        self.desk.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The name by which others reach it; errors are libfabric's.
    pub fn name(&self) -> std::result::Result<Name, c_int> {
        let mut desk = self.desk();
        desk.appear(&self.settings)?;
        desk.engine.as_mut().map(Engine::name).ok_or(FI_EOPBADSTATE)
    }

    /// Sets the address by which others find it, before it has a name.
    pub fn place(&self, source: Service) -> std::result::Result<(), c_int> {
        let mut desk = self.desk();
        if desk.engine.is_some() {
            return Err(FI_EOPBADSTATE);
        }
        desk.source = source;
        Ok(())
    }

    pub fn set_backlog(&self, most: usize) {
        self.desk().backlog = most.clamp(1, BACKLOG);
    }

    pub fn listen(&self) -> std::result::Result<(), c_int> {
        let mut desk = self.desk();
        if desk.stage != Stage::Unused {
            return Err(FI_EOPBADSTATE);
        }
        desk.appear(&self.settings)?;
        let posted = (0..BUFFERS).try_for_each(|_| desk.await_request(Memory::owned(vec![0; LONGEST], wish::REMOTE)));
        desk.stage = Stage::Listening;
        posted.map_err(|fault| desk.fail(&fault))
    }

    /// Stops taking requests.
    pub fn close(&self) {
        let mut desk = self.desk();
        desk.told = None;
        if desk.stage == Stage::Failed {
            return;
        }
        desk.stage = Stage::Closed;
        if let Err(fault) = desk.close() {
            desk.fail(&fault);
        }
    }

    /// Lets the engine progress.
    pub fn progress(&self) {
        let mut desk = self.desk();
        if !matches!(desk.stage, Stage::Unused | Stage::Failed)
            && let Err(fault) = desk.progress()
        {
            desk.fail(&fault);
        }
    }

    /// New requests, with the data of the clients' applications.
    pub fn requests(self: &Arc<Self>) -> Vec<(Box<ConnectionRequest>, Vec<u8>)> {
        let fresh = std::mem::take(&mut self.desk().fresh);
        let request = |(client, name, data)| {
            let fid = Fid { class: FI_CLASS_CONNREQ, context: std::ptr::null_mut(), ops: &BASE };
            let (taken, listener) = (AtomicBool::new(false), Mutex::new(Some(self.clone())));
            (Box::new(ConnectionRequest { fid, taken, name, client, listener }), data)
        };
        fresh.into_iter().map(request).collect()
    }
}

impl ListenerState {
    fn appear(&mut self, settings: &Settings) -> std::result::Result<(), c_int> {
        if self.engine.is_some() {
            return Ok(());
        }
        let mut engine = Engine::join(settings).map_err(|fault| {
            eprintln!("plimsoll: {fault}");
            FI_EINVAL
        })?;
        if self.source != Service::ANY {
            self.told = Some(NameServer::at(self.source, engine.name())?);
        }
        self.engine = Some(engine);
        Ok(())
    }

    fn fail(&mut self, fault: &machine::Fault) -> c_int {
        eprintln!("plimsoll: {fault}");
        self.stage = Stage::Failed;
        FI_EIO
    }

    fn await_request(&mut self, buffer: Memory) -> Result<()> {
        let Some(engine) = &mut self.engine else { return Ok(()) };
        engine.receive(Source::Any, selector(), buffer, 0).map(drop)
    }

    /// Refuses requests that the application does not know yet.
    fn close(&mut self) -> Result<()> {
        self.progress()?;
        for (client, ..) in std::mem::take(&mut self.fresh) {
            self.waiting -= 1;
            self.say(client, ConnectionMessage::Refuse(&[]))?;
        }
        Ok(())
    }

    fn progress(&mut self) -> Result<()> {
        for _ in 0..AT_ONCE {
            let Some(engine) = &mut self.engine else { return Ok(()) };
            let Some(done) = engine.poll()? else {
                engine.relax();
                break;
            };
            engine.relieved();
            if done.direction == Direction::Send || done.status == Status::Cancelled {
                continue;
            }
            let (client, length) = (done.envelope.peer, done.envelope.length as usize);
            let word = done.buffer.bytes().get(..length).and_then(ConnectionMessage::read);
            if let (Status::Done, Some(ConnectionMessage::Ask(name, data))) = (done.status, word)
                && self.is_first(client)
            {
                if self.stage == Stage::Listening && self.waiting < self.backlog {
                    self.waiting += 1;
                    self.fresh.push((client, name, data.to_vec()));
                } else {
                    self.say(client, ConnectionMessage::Refuse(&[]))?;
                }
            }
            self.await_request(done.buffer)?;
        }
        match &mut self.engine {
            Some(engine) => engine.flush(),
            None => Ok(()),
        }
    }

    fn is_first(&mut self, client: PeerIndex) -> bool {
        let at = client.0 as usize;
        if self.asked.len() <= at {
            self.asked.resize(at + 1, false);
        }
        !std::mem::replace(&mut self.asked[at], true)
    }

    fn say(&mut self, client: PeerIndex, word: ConnectionMessage) -> Result<()> {
        let Some(engine) = &mut self.engine else { return Ok(()) };
        let bytes = word.write();
        if !engine.inject(client, LABEL, &bytes)? {
            engine.send(client, LABEL, Memory::owned(bytes, wish::REMOTE), 0)?;
        }
        engine.flush()
    }
}

impl Drop for ListenerState {
    fn drop(&mut self) {
        self.told = None;
        if let Some(engine) = &mut self.engine
            && self.stage != Stage::Failed
            && self.asked.contains(&true)
        {
            // A client that has ended meanwhile needs no answer.
            let _ = engine.linger(SETTLE);
        }
    }
}

impl ConnectionRequest {
    /// Answers the request; returns the listener, to be kept until the answer has arrived. `None` if answered before.
    pub fn answer(&self, word: ConnectionMessage) -> Option<Arc<Listener>> {
        let listener = self.listener.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take()?;
        let mut desk = listener.desk();
        desk.waiting -= 1;
        if desk.stage != Stage::Failed
            && let Err(fault) = desk.say(self.client, word)
        {
            desk.fail(&fault);
        }
        drop(desk);
        Some(listener)
    }
}

/// An unanswered request is refused.
impl Drop for ConnectionRequest {
    fn drop(&mut self) {
        self.answer(ConnectionMessage::Refuse(&[]));
    }
}
