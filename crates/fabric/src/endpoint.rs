//! Endpoints: one message engine each.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use endpoint::{Claim, Endpoint as Engine, Name, Paths};
use machine::PeerIndex;

use crate::abi::constants::*;
use crate::abi::info::{Info, ReceiveAttr, TransmitAttr};
use crate::abi::object::{ConnectionOps, EndpointOps, Fid, FidDomain, FidEndpoint, Ops};
use crate::abi::{Address, Signed};
use crate::account::Account;
use crate::address_vector::AddressVector;
use crate::alias::Shell;
use crate::completion_queue::{CompletionQueue, Reader};
use crate::connection::{self, CONNECTION, Connection};
use crate::counter::Counter;
use crate::domain::Domain;
use crate::event_queue::EventQueue;
use crate::memory::Memory;
use crate::object::{self, Context, Guarded, Object, Used, given};
use crate::options::{getopt, setopt};
use crate::refuse::{self, refused};
use crate::remote::Remote;
use crate::report;
use crate::service::{self, Service, Told};
use crate::shared::{Shared, SharedReceives, SharedSends};
use crate::trigger::Deferred;
use crate::{alias, atomic, datagram, offer, receive, rma, send};

/// How long a closing endpoint goes on driving what it has sent.
const SETTLE: Duration = Duration::from_secs(1);
/// How long the engine of a closing endpoint may take to let go of the application's memory.
const RELEASE: Duration = Duration::from_secs(10);

/// A buffer for several messages is given back once less than this is left.
const MIN_MULTI_RECV: usize = 64;

#[repr(C)]
pub struct Endpoint {
    shell: Shell,
    pub domain: Used<Domain>,
    state: Guarded<State>,
}

// SAFETY: it begins with a `Fid`.
unsafe impl Object for Endpoint {
    const CLASS: usize = FI_CLASS_EP;

    fn users(&self) -> &AtomicUsize {
        self.shell.users()
    }
}

/// No peer, in the tables below.
pub const NOBODY: u32 = u32::MAX;

/// Whose messages receives take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sources {
    Anybody,
    /// Messages of the source that the receive names (FI_DIRECTED_RECV).
    Given,
    /// Messages of the one peer.
    Connected,
}

/// What the domain's lock guards.
pub struct State {
    pub domain: Used<Domain>,
    /// Once the endpoint has a name.
    pub engine: Option<Engine<Paths, Memory>>,
    enabled: bool,
    pub caps: u64,
    pub sources: Sources,
    /// Flags of sends and receives that carry none themselves; FI_COMPLETION among them unless it must be asked for.
    pub send_flags: u64,
    pub receive_flags: u64,
    /// FI_COMPLETION, where no operation need ask for it.
    pub always_sent: u64,
    pub always_received: u64,
    vector: Option<Used<AddressVector>>,
    pub sends: Option<Used<CompletionQueue>>,
    pub receives: Option<Used<CompletionQueue>>,
    /// With the FI_SEND and FI_RECV that they count.
    pub counters: Vec<(Used<Counter>, u64)>,
    /// The engine's number of each address.
    pub peers: Vec<u32>,
    /// The address of each of the engine's numbers.
    pub addresses: Vec<Address>,
    /// Messages taken out of the matching, by the context they were claimed with.
    pub claims: Vec<(Context, Claim, endpoint::Envelope)>,
    pub min_multi_recv: usize,
    /// Operations on memory of others, and theirs on ours.
    pub remote: Option<Box<Remote>>,
    /// Of a datagram endpoint: how many copies wait to leave for each of the engine's numbers.
    pub waiting: Vec<usize>,
    /// Deferred work that was begun.
    pub deferred: Deferred,
    /// Peers that an inject could not reach: the next operation says so.
    pub lost: Vec<PeerIndex>,
    /// The engine has failed; it was told.
    pub failed: bool,
    /// All is done for its close but that the engine lets go of its memory.
    closing: bool,
    /// What others find the endpoint by, where the application said so.
    source: Service,
    told: Option<Told>,
    /// Of an endpoint that has one peer, which no address names.
    pub connection: Option<Box<Connection>>,
    /// Of a shared receive context, which is an endpoint without an engine.
    pub shared: Option<Box<Shared>>,
    receives_from: Option<Used<SharedReceives>>,
    sends_by: Option<Used<SharedSends>>,
}

static BASE: Ops = Ops {
    size: size_of::<Ops>(),
    close,
    bind,
    control,
    ops_open: refuse::ops_open,
    tostr: refuse::tostr,
    ops_set: refuse::ops_set,
};

static OPS: EndpointOps = EndpointOps {
    size: size_of::<EndpointOps>(),
    cancel: receive::cancel,
    getopt,
    setopt,
    tx_ctx,
    rx_ctx,
    rx_size_left: size_left,
    tx_size_left: size_left,
};

refused! {
    tx_ctx(*mut FidEndpoint, c_int, *mut TransmitAttr, *mut *mut FidEndpoint, *mut c_void) -> c_int;
    rx_ctx(*mut FidEndpoint, c_int, *mut ReceiveAttr, *mut *mut FidEndpoint, *mut c_void) -> c_int;
}

/// The queues grow as needed.
pub unsafe extern "C" fn size_left(_: *mut FidEndpoint) -> Signed {
    offer::OPERATIONS as Signed
}

pub unsafe extern "C" fn open(
    domain: *mut FidDomain,
    info: *mut Info,
    into: *mut *mut FidEndpoint,
    context: *mut c_void,
) -> c_int {
    // SAFETY: libfabric's contract: the domain is open, the rest NULL or good.
    let (domain, caps, send_flags, receive_flags, source, kind, connection) = unsafe {
        let Some(domain) = object::of::<Domain>(domain.cast()) else { return -FI_EINVAL };
        let Some(info) = info.as_ref() else { return -FI_EINVAL };
        let kind = given(info.ep_attr).map_or(FI_EP_UNSPEC, |attr| attr.kind);
        let connection = match kind {
            FI_EP_UNSPEC | FI_EP_RDM | FI_EP_DGRAM => None,
            // Its event queue's reads move it too, which are not the domain's to serialize.
            FI_EP_MSG if domain.is_single() => return -FI_EINVAL,
            FI_EP_MSG => match Connection::of(info) {
                Ok(connection) => Some(connection),
                Err(error) => return -error,
            },
            _ => return -FI_EINVAL,
        };
        let send_flags = given(info.tx_attr).map_or(0, |attr| attr.op_flags);
        let receive_flags = given(info.rx_attr).map_or(0, |attr| attr.op_flags);
        if (send_flags | receive_flags) & (FI_TRIGGER | offer::UNKEPT) != 0 {
            return -FI_EINVAL;
        }
        // Datagrams are not triggered.
        let caps = if kind == FI_EP_DGRAM { info.caps & !FI_TRIGGER } else { info.caps };
        let source = service::given(info.src_addr, info.src_addrlen).and_then(Service::read).unwrap_or(Service::ANY);
        (Used::new(domain), offer::implied(caps), send_flags, receive_flags, source, kind, connection)
    };
    let fid = Fid { class: FI_CLASS_EP, context, ops: &BASE };
    let mut state = State::new(domain.clone(), caps, (send_flags, receive_flags));
    state.source = source;
    if connection.is_some() {
        (state.sources, state.connection) = (Sources::Connected, connection);
    }
    let mut endpoint = Endpoint::new(fid, (&OPS, &CONNECTION), domain, state);
    if kind == FI_EP_DGRAM {
        endpoint.shell.fid.msg = &datagram::MESSAGE;
    }
    // SAFETY: as above.
    unsafe { object::open(endpoint, into) }
}

impl Endpoint {
    pub fn new(
        fid: Fid,
        (ops, cm): (&'static EndpointOps, &'static ConnectionOps),
        domain: Used<Domain>,
        state: State,
    ) -> Endpoint {
        let fid = FidEndpoint {
            fid,
            ops,
            cm,
            msg: &send::MESSAGE,
            rma: &rma::OPS,
            tagged: &send::TAGGED,
            atomic: &atomic::OPS,
            collective: std::ptr::null(),
        };
        Endpoint { shell: Shell::new(fid), domain, state: Guarded::new(state) }
    }

    /// # Safety
    /// `fid` is an open endpoint, alias or shared context.
    #[inline(always)]
    pub unsafe fn of<'a>(fid: *mut FidEndpoint) -> &'a Endpoint {
        // SAFETY: libfabric's calls go through the tables of this very object.
        unsafe { Shell::endpoint(fid) }
    }

    /// The endpoint, behind an alias or not; `None` where it is no endpoint.
    ///
    /// # Safety
    /// `fid` is NULL or any open object.
    pub unsafe fn given<'a>(fid: *const Fid) -> Option<&'a Endpoint> {
        // SAFETY: the caller's promise: an object of this class is an endpoint or an alias.
        unsafe { object::of::<Shell>(fid).map(|_| Shell::endpoint(fid.cast())) }
    }

    /// # Safety
    /// The domain is entered, and no other reference to the state is in use.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "the domain's lock makes it exclusive")]
    pub unsafe fn state(&self) -> &mut State {
        // SAFETY: the caller's promise.
        unsafe { self.state.get() }
    }

    /// Moves what can move and hands on what has ended, as far as `reader` has room.
    ///
    /// # Safety
    /// As for [`Endpoint::state`].
    #[inline(always)]
    pub unsafe fn progress(&self, reader: Option<&mut Reader>) {
        // SAFETY: the caller's promise.
        unsafe { self.state().progress(reader) }
    }

    /// # Safety
    /// As for [`Endpoint::state`].
    #[inline]
    pub unsafe fn hand_over(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.state() }.hand_over();
    }

    /// # Safety
    /// As for [`Endpoint::state`], whose this is.
    pub unsafe fn enable(&self, state: &mut State) -> Result<(), c_int> {
        state.enable(&self.domain)?;
        // SAFETY: the caller's promise; it leaves when it is closed.
        unsafe { self.domain.join(NonNull::from(self)) };
        Ok(())
    }

    /// # Safety
    /// As for [`Endpoint::state`].
    pub unsafe fn revoke(&self, region: u64) -> c_int {
        // SAFETY: the caller's promise.
        let state = unsafe { self.state() };
        match state.revoke(region) {
            Ok(()) => 0,
            Err(fault) => state.fail_for_now(&fault) as c_int,
        }
    }

    /// # Safety
    /// As for [`Endpoint::state`].
    pub unsafe fn learn(&self, address: Address, name: &Name) {
        // SAFETY: the caller's promise.
        unsafe { self.state().learn(address, name) }
    }

    /// # Safety
    /// As for [`Endpoint::state`].
    pub unsafe fn forget(&self, address: Address) {
        // SAFETY: the caller's promise.
        unsafe { self.state().forget(address) }
    }
}

impl State {
    pub fn new(domain: Used<Domain>, caps: u64, (send_flags, receive_flags): (u64, u64)) -> State {
        State {
            domain,
            engine: None,
            enabled: false,
            caps,
            sources: if caps & FI_DIRECTED_RECV != 0 { Sources::Given } else { Sources::Anybody },
            send_flags,
            receive_flags,
            always_sent: FI_COMPLETION,
            always_received: FI_COMPLETION,
            vector: None,
            sends: None,
            receives: None,
            counters: Vec::new(),
            peers: Vec::new(),
            addresses: Vec::new(),
            claims: Vec::new(),
            min_multi_recv: MIN_MULTI_RECV,
            remote: None,
            waiting: Vec::new(),
            deferred: Deferred::default(),
            lost: Vec::new(),
            failed: false,
            closing: false,
            source: Service::ANY,
            told: None,
            connection: None,
            shared: None,
            receives_from: None,
            sends_by: None,
        }
    }

    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Opens the engine, which gives the endpoint its name.
    pub fn appear(&mut self, domain: &Domain) -> Result<&mut Engine<Paths, Memory>, c_int> {
        if self.engine.is_none() {
            match Engine::join(&domain.settings) {
                Ok(mut engine) => {
                    if domain.account.is_some() {
                        engine.meter();
                    }
                    if self.source != Service::ANY {
                        self.told = Some(Told::at(self.source, engine.name())?);
                    }
                    self.engine = Some(engine);
                }
                Err(fault) => {
                    eprintln!("plimsoll: {fault}");
                    return Err(FI_EINVAL);
                }
            }
        }
        self.engine.as_mut().ok_or(FI_EOPBADSTATE)
    }

    /// Where others find it, before it has a name.
    pub fn place(&mut self, source: Service) -> Result<(), c_int> {
        if self.engine.is_some() {
            return Err(FI_EOPBADSTATE);
        }
        self.source = source;
        Ok(())
    }

    fn enable(&mut self, domain: &Domain) -> Result<(), c_int> {
        if self.enabled {
            return Ok(());
        }
        let vector = self.vector.clone();
        match &self.connection {
            None if vector.is_none() => return Err(FI_ENOAV),
            Some(connection) if !connection.has_events() => return Err(FI_ENOEQ),
            _ => {}
        }
        let counts = |what| self.counters.iter().any(|(_, counted)| counted & what != 0);
        if (self.caps & FI_SEND != 0 && self.sends.is_none() && !counts(FI_SEND))
            || (self.caps & FI_RECV != 0 && self.receives.is_none() && !counts(FI_RECV))
        {
            return Err(FI_ENOCQ);
        }
        self.send_flags |= self.always_sent;
        self.receive_flags |= self.always_received;
        self.appear(domain)?;
        self.enabled = true;
        if let Some(shared) = &self.receives_from {
            // SAFETY: the domain is entered; the endpoint leaves the context before it is freed.
            unsafe { shared.enable(self) };
        }
        if self.caps & (FI_RMA | FI_ATOMIC) != 0
            && let Err(fault) = self.open_remote()
        {
            eprintln!("plimsoll: {fault}");
            return Err(FI_EIO);
        }
        // SAFETY: the domain is entered; learning does not touch the vector.
        let names = vector.as_ref().map_or(&[][..], |vector| unsafe { vector.names() });
        for (address, name) in names.iter().enumerate() {
            if let Some(name) = name {
                self.learn(address as Address, name);
            }
        }
        Ok(())
    }

    fn learn(&mut self, address: Address, name: &Name) {
        if !self.enabled {
            return;
        }
        let Some(engine) = &mut self.engine else { return };
        let peer = match engine.insert(name) {
            Ok(peer) => peer.0,
            Err(fault) => {
                eprintln!("plimsoll: {fault}");
                NOBODY
            }
        };
        put(&mut self.peers, address as usize, peer, NOBODY);
        if peer != NOBODY {
            let known = self.addresses.get(peer as usize).is_some_and(|&known| known != FI_ADDR_NOTAVAIL);
            if !known {
                put(&mut self.addresses, peer as usize, address, FI_ADDR_NOTAVAIL);
            }
        }
    }

    fn forget(&mut self, address: Address) {
        let Some(peer) = self.peers.get_mut(address as usize) else { return };
        let peer = std::mem::replace(peer, NOBODY);
        if let Some(known) = self.addresses.get_mut(peer as usize).filter(|known| **known == address) {
            *known = FI_ADDR_NOTAVAIL;
        }
    }

    /// The engine's number of a peer.
    #[inline]
    pub fn peer(&self, address: Address) -> Option<PeerIndex> {
        let Some(&peer) = self.peers.get(address as usize) else { return self.connected() };
        (peer != NOBODY).then_some(PeerIndex(peer))
    }

    /// The address of a peer; FI_ADDR_NOTAVAIL of one that was never inserted.
    #[inline]
    pub fn address(&self, peer: PeerIndex) -> Address {
        address_of(&self.addresses, peer)
    }
}

#[inline]
pub fn address_of(addresses: &[Address], peer: PeerIndex) -> Address {
    addresses.get(peer.0 as usize).copied().unwrap_or(FI_ADDR_NOTAVAIL)
}

fn put<T: Copy>(table: &mut Vec<T>, at: usize, value: T, nothing: T) {
    if table.len() <= at {
        table.resize(at + 1, nothing);
    }
    table[at] = value;
}

/// Where it returns 0, the application's memory is its own again. An engine's process that does not answer may still write there:
/// then the endpoint stays, and can be closed once more.
unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    // SAFETY: libfabric's contract: an open endpoint, used no more.
    unsafe {
        let Some(shell) = object::of::<Shell>(fid) else { return -FI_EINVAL };
        if shell.is_alias() {
            return object::close::<Shell>(fid);
        }
        let endpoint = Shell::endpoint(fid.cast());
        if endpoint.users().load(std::sync::atomic::Ordering::Acquire) > 0 {
            return -FI_EBUSY;
        }
        let domain = endpoint.domain.clone();
        connection::leave_events(endpoint);
        {
            let _entered = domain.enter();
            let me = NonNull::from(endpoint);
            let state = endpoint.state();
            if !std::mem::replace(&mut state.closing, true) {
                for queue in state.sends.iter().chain(&state.receives) {
                    queue.leave(me);
                }
                for (counter, _) in &state.counters {
                    counter.leave(me);
                }
                if let Some(vector) = &state.vector {
                    vector.leave(me);
                }
                domain.triggers.forget(me);
                if let Some(shared) = &state.receives_from {
                    shared.leave(me, state);
                }
                if let Err(fault) = state.hang_up() {
                    state.fail(&fault);
                }
                if let Some(engine) = &mut state.engine {
                    // What was sent last may still be needed by peers that have not closed yet.
                    // Where it ends unsure, it is mostly a peer that closed while its last acknowledgement was lost: no fault.
                    let lingered = engine.linger(SETTLE);
                    if domain.reports {
                        report::tell(engine, domain.account.as_ref().map(Account::sums), lingered);
                    }
                }
            }
            if let Some(engine) = &mut state.engine
                && let Err(fault) = engine.release(RELEASE)
            {
                let code = state.fail_for_now(&fault) as c_int;
                // Nothing moves it any more.
                state.failed = true;
                return code;
            }
            // Until here the close of a region has asked its engine too.
            domain.leave(me);
        }
        object::close::<Endpoint>(fid)
    }
}

unsafe extern "C" fn bind(fid: *mut Fid, other: *mut Fid, flags: u64) -> c_int {
    // SAFETY: libfabric's contract: two open objects of one domain.
    unsafe {
        let Some(endpoint) = Endpoint::given(fid) else { return -FI_EINVAL };
        if other.is_null() {
            return -FI_EINVAL;
        }
        if let Some(queue) = object::of::<EventQueue>(other) {
            return connection::bind(endpoint, queue);
        }
        let _entered = endpoint.domain.enter();
        let me = NonNull::from(endpoint);
        let state = endpoint.state();
        if let Some(queue) = object::of::<CompletionQueue>(other) {
            if flags & (FI_SEND | FI_RECV) == 0 || flags & !(FI_SEND | FI_RECV | FI_SELECTIVE_COMPLETION) != 0 {
                return -FI_EBADFLAGS;
            }
            if (flags & FI_SEND != 0 && state.sends.is_some()) || (flags & FI_RECV != 0 && state.receives.is_some()) {
                return -FI_EINVAL;
            }
            let always = if flags & FI_SELECTIVE_COMPLETION != 0 { 0 } else { FI_COMPLETION };
            queue.join(me);
            if flags & FI_SEND != 0 {
                state.sends = Some(Used::new(queue));
                state.always_sent = always;
            }
            if flags & FI_RECV != 0 {
                state.receives = Some(Used::new(queue));
                state.always_received = always;
            }
            0
        } else if let Some(vector) = object::of::<AddressVector>(other) {
            if state.vector.is_some() || state.connection.is_some() {
                return -FI_EINVAL;
            }
            vector.join(me);
            state.vector = Some(Used::new(vector));
            0
        } else if let Some(counter) = object::of::<Counter>(other) {
            counter.join(me);
            state.counters.push((Used::new(counter), flags));
            0
        } else if let Some(shared) = object::of::<SharedReceives>(other) {
            if state.receives_from.is_some() || state.enabled {
                return -FI_EINVAL;
            }
            shared.join(me);
            state.receives_from = Some(Used::new(shared));
            0
        } else if let Some(shared) = object::of::<SharedSends>(other) {
            state.sends_by = Some(Used::new(shared));
            0
        } else {
            -FI_EINVAL
        }
    }
}

unsafe extern "C" fn control(fid: *mut Fid, command: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: libfabric's contract; the argument of the flag commands is a number.
    unsafe {
        let Some(shell) = object::of::<Shell>(fid) else { return -FI_EINVAL };
        let endpoint = Shell::endpoint(fid.cast());
        let _entered = endpoint.domain.enter();
        let state = endpoint.state();
        match command {
            FI_ENABLE => endpoint.enable(state).map_or_else(|error| -error, |()| 0),
            FI_ALIAS => shell.open_alias(endpoint, [state.send_flags, state.receive_flags], argument.cast()),
            FI_GETOPSFLAG | FI_SETOPSFLAG => {
                let Some(flags) = argument.cast::<u64>().as_mut() else { return -FI_EINVAL };
                let Some(which) = alias::direction(*flags) else { return -FI_EINVAL };
                if shell.control_flags(command, which, flags) {
                    return 0;
                }
                // Only an alias has these: calls that have no flags of their own need not look for them then.
                if command == FI_SETOPSFLAG && *flags & (FI_TRIGGER | offer::UNKEPT) != 0 {
                    return -FI_EBADFLAGS;
                }
                let (set, always) = match which {
                    alias::SENDS => (&mut state.send_flags, state.always_sent),
                    _ => (&mut state.receive_flags, state.always_received),
                };
                if command == FI_GETOPSFLAG {
                    *flags = *set;
                } else {
                    *set = *flags & !(FI_SEND | FI_RECV) | always;
                }
                0
            }
            _ => -FI_ENOSYS,
        }
    }
}
