//! Connected endpoints (FI_EP_MSG), fi_cm(3): connecting an endpoint to its one peer, and ending the connection. A client asks
//! a passive endpoint, which tells it the peer; from then on all that an endpoint sends goes there, and it receives from
//! nobody else. Each end always awaits the other's next handshake message: it comes, or that end is dead.

use std::ffi::{c_int, c_void};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use endpoint::{Direction, Envelope, Name, Source, Status, TagSelector};
use machine::{PeerIndex, Result};

use crate::abi::Signed;
use crate::abi::constants::*;
use crate::abi::fid::Fid;
use crate::abi::info::Info;
use crate::abi::object::{ConnectionOps, FidEndpoint, FidPassive};
use crate::arguments::{bytes, give_name};
use crate::endpoint::{Endpoint, State};
use crate::event_queue::EventQueue;
use crate::handshake::{ConnectionMessage, LABEL, LONGEST, selector};
use crate::listener::{ConnectionRequest, Listener};
use crate::memory::{Memory, own, role, wish};
use crate::object::{Context, Used};
use crate::refuse::{refused, signed};
use crate::service::{self, Service};

pub static CONNECTION: ConnectionOps = ConnectionOps {
    size: size_of::<ConnectionOps>(),
    setname,
    getname,
    getpeer,
    connect,
    listen,
    accept,
    reject,
    shutdown,
    join,
};

refused! {
    listen(*mut FidPassive) -> c_int;
    reject(*mut FidPassive, *mut Fid, *const c_void, usize) -> c_int;
    join(*mut FidEndpoint, *const c_void, u64, *mut *mut c_void, *mut c_void) -> c_int;
}

/// A connected endpoint's part of the state, before, during and after the connection.
pub struct Connection {
    stage: Stage,
    /// The other end, once it may send.
    peer: Option<PeerIndex>,
    name: Option<Name>,
    events: Option<Used<EventQueue>>,
    /// The object that its events name.
    fid: *mut Fid,
    /// The request that the endpoint was opened to accept.
    request: Option<Box<ConnectionRequest>>,
    /// The listener that sends the acceptance.
    listener: Option<Arc<Listener>>,
    /// Receives posted before there was a peer.
    held: Vec<(TagSelector, Memory, Context)>,
    /// Whether the other end was told of the connection's end.
    said_over: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Unconnected,
    /// Waits for a passive endpoint's answer.
    Asking,
    /// Accepted; the other end does not know it yet.
    Accepting,
    Connected,
    /// Ended by this side.
    Left,
    /// Ended by the other.
    Over,
}

impl Connection {
    /// The connection of a new endpoint, which accepts a request if `info` has one; errors are libfabric's.
    ///
    /// # Safety
    /// The handle of `info` is NULL or an object of this provider.
    pub unsafe fn of(info: &Info) -> std::result::Result<Box<Connection>, c_int> {
        // SAFETY: the caller's promise: a request that was reported and not rejected, and that has no endpoint yet.
        let request = unsafe {
            match info.handle.as_ref().map(|handle| handle.class) {
                None => None,
                Some(FI_CLASS_CONNREQ) => {
                    let request = info.handle.cast::<ConnectionRequest>();
                    if (*request).taken.swap(true, Ordering::AcqRel) {
                        return Err(FI_EBUSY);
                    }
                    Some(Box::from_raw(request))
                }
                Some(_) => return Err(FI_ENOSYS),
            }
        };
        Ok(Box::new(Connection {
            stage: Stage::Unconnected,
            peer: None,
            name: None,
            events: None,
            fid: null_mut(),
            request,
            listener: None,
            held: Vec::new(),
            said_over: false,
        }))
    }

    pub fn has_events(&self) -> bool {
        self.events.is_some()
    }

    /// The peer while connected.
    fn connected(&self) -> Option<PeerIndex> {
        if self.stage == Stage::Connected { self.peer } else { None }
    }

    fn tell(&self, event: c_int, data: &[u8]) {
        if let Some(events) = &self.events {
            events.push_connection(event, self.fid, data);
        }
    }

    fn fail(&mut self, error: c_int, data: &[u8]) {
        self.stage = Stage::Over;
        self.listener = None;
        if let Some(events) = &self.events {
            events.push_error(error, self.fid, data);
        }
    }
}

impl State {
    /// The peer of a connected endpoint, which no address names.
    #[cold]
    pub fn connected(&self) -> Option<PeerIndex> {
        self.connection.as_ref().and_then(|connection| connection.connected())
    }

    /// The source of a connected endpoint's receives, also of messages from before the connection's end.
    #[cold]
    pub fn connected_source(&self) -> Option<Source> {
        self.connection.as_ref().and_then(|connection| connection.peer).map(Source::Peer)
    }

    /// Whether requests of that peer are served.
    pub fn serves(&self, peer: PeerIndex) -> bool {
        self.connection.as_ref().is_none_or(|connection| connection.peer == Some(peer))
    }

    /// The error of a call without a peer.
    #[cold]
    pub fn nobody(&self) -> Signed {
        signed(if self.connection.is_some() { FI_ENOTCONN } else { FI_EINVAL })
    }

    /// Keeps a receive until there is a peer.
    #[cold]
    pub fn hold(&mut self, receive: (TagSelector, Memory, Context)) -> Signed {
        match &mut self.connection {
            Some(connection) if matches!(connection.stage, Stage::Unconnected | Stage::Asking) => {
                connection.held.push(receive);
                0
            }
            _ => self.nobody(),
        }
    }

    /// Cancels a kept receive; false if none has that context.
    pub fn cancel_held(&mut self, context: Context) -> bool {
        let Some(connection) = &mut self.connection else { return false };
        let Some(at) = connection.held.iter().position(|(_, _, held)| *held == context) else { return false };
        let (_, memory, _) = connection.held.remove(at);
        self.cancelled(&memory, context);
        true
    }

    /// Awaits the next handshake message of a peer, or its end.
    fn listen_to(&mut self, peer: PeerIndex) -> Result<()> {
        let Some(engine) = &mut self.engine else { return Ok(()) };
        let mut memory = Memory::owned(vec![0; LONGEST], wish::REMOTE);
        memory.source = role::WORD;
        engine.receive(Source::Peer(peer), selector(), memory, own(0)).map(drop)
    }

    fn say_word(&mut self, peer: PeerIndex, word: ConnectionMessage) -> Result<()> {
        let Some(engine) = &mut self.engine else { return Ok(()) };
        let bytes = word.write();
        if !engine.inject(peer, LABEL, &bytes)? {
            let mut memory = Memory::owned(bytes, wish::REMOTE);
            memory.source = role::WORD;
            engine.send(peer, LABEL, memory, own(0))?;
        }
        engine.flush_first()
    }

    /// Takes the peer, and posts the receives that waited for it.
    fn meet(&mut self, name: &Name) -> Result<Option<PeerIndex>> {
        let (Some(engine), Some(connection)) = (&mut self.engine, &mut self.connection) else { return Ok(None) };
        let peer = engine.insert(name)?;
        (connection.peer, connection.name) = (Some(peer), Some(*name));
        let held = std::mem::take(&mut connection.held);
        for (selector, mut memory, context) in held {
            if memory.wishes & wish::MULTIPLE != 0 {
                memory.source = peer.0;
            }
            self.post(Source::Peer(peer), selector, memory, context as u64)?;
        }
        self.listen_to(peer)?;
        Ok(Some(peer))
    }

    /// Asks the passive endpoint of that name, if it exists.
    fn ask(&mut self, name: Option<Name>, data: &[u8]) -> Result<()> {
        let (Some(engine), Some(connection)) = (&mut self.engine, &mut self.connection) else { return Ok(()) };
        let Some(name) = name else {
            connection.fail(FI_ECONNREFUSED, &[]);
            return Ok(());
        };
        let (listener, me) = (engine.insert(&name)?, engine.name());
        connection.stage = Stage::Asking;
        self.listen_to(listener)?;
        self.say_word(listener, ConnectionMessage::Ask(me, data))
    }

    fn accept(&mut self, data: &[u8]) -> Result<()> {
        let (Some(engine), Some(connection)) = (&mut self.engine, &mut self.connection) else { return Ok(()) };
        let Some(client) = connection.request.as_ref().map(|request| request.name) else { return Ok(()) };
        connection.stage = Stage::Accepting;
        let me = engine.name();
        self.meet(&client)?;
        let Some(connection) = &mut self.connection else { return Ok(()) };
        connection.listener =
            connection.request.as_ref().and_then(|request| request.answer(ConnectionMessage::Accept(me, data)));
        if connection.listener.is_none() {
            // The application has rejected it.
            connection.fail(FI_ECONNREFUSED, &[]);
        }
        Ok(())
    }

    /// Handles a handshake message that has come or was sent, or the end of its sender.
    pub fn handshake_ended(
        &mut self,
        direction: Direction,
        about: &Envelope,
        status: Status,
        buffer: &Memory,
    ) -> Result<()> {
        if direction == Direction::Send || matches!(status, Status::Cancelled | Status::Withdrawn) {
            return Ok(());
        }
        let bytes = if status == Status::Done { buffer.bytes() } else { &[] };
        let word = bytes.get(..about.length as usize).and_then(ConnectionMessage::read);
        let Some(connection) = &mut self.connection else { return Ok(()) };
        match (connection.stage, word) {
            (Stage::Asking, Some(ConnectionMessage::Accept(name, data))) => {
                connection.stage = Stage::Connected;
                connection.tell(FI_CONNECTED, data);
                match self.meet(&name)? {
                    Some(peer) => self.say_word(peer, ConnectionMessage::Ready),
                    None => Ok(()),
                }
            }
            (Stage::Asking, word) => {
                connection
                    .fail(FI_ECONNREFUSED, if let Some(ConnectionMessage::Refuse(data)) = word { data } else { &[] });
                Ok(())
            }
            (Stage::Accepting, Some(ConnectionMessage::Ready)) => {
                connection.stage = Stage::Connected;
                connection.listener = None;
                connection.tell(FI_CONNECTED, &[]);
                self.listen_to(about.peer)
            }
            (Stage::Accepting, _) => {
                connection.fail(FI_ECONNRESET, &[]);
                Ok(())
            }
            (Stage::Connected | Stage::Left, _) => {
                connection.stage = Stage::Over;
                connection.tell(FI_SHUTDOWN, &[]);
                Ok(())
            }
            (Stage::Unconnected | Stage::Over, _) => Ok(()),
        }
    }

    /// Tells the other end of the connection's end; false if there is no other end.
    pub fn hang_up(&mut self) -> Result<bool> {
        let Some(connection) = &mut self.connection else { return Ok(false) };
        let Some(peer) = connection.peer else { return Ok(false) };
        if connection.stage == Stage::Connected {
            connection.stage = Stage::Left;
        }
        if !std::mem::replace(&mut connection.said_over, true) {
            self.say_word(peer, ConnectionMessage::Over)?;
        }
        Ok(true)
    }
}

/// Binds an event queue to an endpoint; one without connections has no events.
///
/// # Safety
/// The domain is not entered; the endpoint is open.
pub unsafe fn bind(endpoint: &Endpoint, queue: &EventQueue) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        {
            let _entered = endpoint.domain.enter();
            let Some(connection) = &mut endpoint.state().connection else { return 0 };
            if connection.events.is_some() {
                return -FI_EINVAL;
            }
            connection.events = Some(Used::new(queue));
            connection.fid = std::ptr::from_ref(endpoint).cast_mut().cast();
        }
        queue.follow(NonNull::from(endpoint));
        0
    }
}

/// Takes the events away from an endpoint that is about to be closed.
///
/// # Safety
/// As for [`bind`].
pub unsafe fn leave_events(endpoint: &Endpoint) {
    // SAFETY: the caller's promise.
    let events = unsafe {
        let _entered = endpoint.domain.enter();
        endpoint.state().connection.as_ref().and_then(|connection| connection.events.clone())
    };
    if let Some(events) = events {
        events.forget(std::ptr::from_ref(endpoint).cast_mut().cast());
    }
}

unsafe extern "C" fn getname(fid: *mut Fid, into: *mut c_void, length: *mut usize) -> c_int {
    // SAFETY: libfabric's contract: `into` holds `*length` bytes.
    unsafe {
        let Some(endpoint) = Endpoint::given(fid) else { return -FI_EINVAL };
        let _entered = endpoint.domain.enter();
        match endpoint.state().appear(&endpoint.domain) {
            Ok(engine) => give_name(&engine.name(), into, length),
            Err(error) => -error,
        }
    }
}

unsafe extern "C" fn setname(fid: *mut Fid, address: *mut c_void, length: usize) -> c_int {
    // SAFETY: libfabric's contract: `address` holds `length` bytes.
    unsafe {
        let Some(endpoint) = Endpoint::given(fid) else { return -FI_EINVAL };
        let Some(source) = service::given(address, length).and_then(Service::read) else { return -FI_EINVAL };
        let _entered = endpoint.domain.enter();
        endpoint.state().place(source).map_or_else(|error| -error, |()| 0)
    }
}

unsafe extern "C" fn getpeer(ep: *mut FidEndpoint, into: *mut c_void, length: *mut usize) -> c_int {
    // SAFETY: libfabric's contract: `into` holds `*length` bytes.
    unsafe {
        let Some(endpoint) = Endpoint::given(ep.cast()) else { return -FI_EINVAL };
        let _entered = endpoint.domain.enter();
        let Some(connection) = &endpoint.state().connection else { return -FI_ENOSYS };
        match &connection.name {
            Some(name) => give_name(name, into, length),
            None => -FI_ENOTCONN,
        }
    }
}

/// Enters the domain of an enabled endpoint that has neither asked nor accepted yet.
///
/// # Safety
/// As for calls of applications.
unsafe fn begin(
    ep: *mut FidEndpoint,
    then: impl FnOnce(&mut State) -> std::result::Result<Result<()>, c_int>,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let Some(endpoint) = Endpoint::given(ep.cast()) else { return -FI_EINVAL };
        let _entered = endpoint.domain.enter();
        let state = endpoint.state();
        match &state.connection {
            None => return -FI_ENOSYS,
            Some(connection) if connection.stage != Stage::Unconnected => return -FI_EISCONN,
            Some(_) => {}
        }
        if let Err(error) = endpoint.enable(state) {
            return -error;
        }
        match then(state) {
            Ok(Ok(())) => 0,
            Ok(Err(fault)) => state.fail(&fault) as c_int,
            Err(error) => -error,
        }
    }
}

unsafe extern "C" fn connect(
    ep: *mut FidEndpoint,
    address: *const c_void,
    data: *const c_void,
    length: usize,
) -> c_int {
    // SAFETY: libfabric's contract: the address is as long as `fi_info` says, `data` holds `length` bytes.
    unsafe {
        let Some(address) = service::given(address, Name::LENGTH) else { return -FI_EINVAL };
        let name = match Service::read(address) {
            // An absent service is reported by an event.
            Some(service) => service.look().ok(),
            None => match Name::from_bytes(address) {
                Ok(name) => Some(name),
                Err(fault) => {
                    eprintln!("plimsoll: {fault}");
                    return -FI_EINVAL;
                }
            },
        };
        begin(ep, |state| match state.connection.as_ref().is_some_and(|connection| connection.request.is_some()) {
            true => Err(FI_EINVAL),
            false => Ok(state.ask(name, bytes(data, length))),
        })
    }
}

unsafe extern "C" fn accept(ep: *mut FidEndpoint, data: *const c_void, length: usize) -> c_int {
    // SAFETY: as above.
    let (accepted, listener) = unsafe {
        let mut listener = None;
        let accepted = begin(ep, |state| {
            if state.connection.as_ref().is_none_or(|connection| connection.request.is_none()) {
                return Err(FI_EINVAL);
            }
            let accepted = state.accept(bytes(data, length));
            let connection = state.connection.as_ref();
            listener =
                connection.and_then(|connection| Some((connection.events.clone()?, connection.listener.clone()?)));
            Ok(accepted)
        });
        (accepted, listener)
    };
    // The passive endpoint may be closed by now, or its queue unread: reads of this endpoint's queue drive the answer.
    if let Some((events, listener)) = listener {
        events.follow_listener(listener, null_mut());
    }
    accepted
}

unsafe extern "C" fn shutdown(ep: *mut FidEndpoint, flags: u64) -> c_int {
    // SAFETY: libfabric's contract.
    unsafe {
        let Some(endpoint) = Endpoint::given(ep.cast()) else { return -FI_EINVAL };
        if flags != 0 {
            return -FI_EINVAL;
        }
        let _entered = endpoint.domain.enter();
        let state = endpoint.state();
        let told = state.hang_up();
        state.hand_over();
        match told {
            Ok(true) => 0,
            Ok(false) => -FI_ENOTCONN,
            Err(fault) => state.fail(&fault) as c_int,
        }
    }
}
