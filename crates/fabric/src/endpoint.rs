//! Endpoints: each a message engine with libfabric's state of it, under the endpoint and its aliases (FI_ALIAS).

use std::ffi::c_int;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use endpoint::{Claim, Endpoint as Engine, Name, Paths};
use machine::PeerIndex;

use crate::abi::Address;
use crate::abi::constants::*;
use crate::abi::fid::Fid;
use crate::abi::object::FidEndpoint;
use crate::address_vector::AddressVector;
use crate::completion_queue::{CompletionQueue, Reader};
use crate::connection::Connection;
use crate::counter::Counter;
use crate::domain::Domain;
use crate::memory::Memory;
use crate::object::{self, Context, Guarded, Object, Used};
use crate::receive_order::ReceiveOrder;
use crate::record::Record;
use crate::remote::Remote;
use crate::service::{NameServer, Service};
use crate::shared::{Shared, SharedReceives, SharedSends};
use crate::trigger::Deferred;

/// A buffer for several messages is given back once less room than this is left.
const MIN_MULTI_RECV: usize = 64;

/// The object that calls get: flags, and the state that an endpoint and its aliases share.
#[repr(C)]
pub struct Shell {
    pub fid: FidEndpoint,
    users: AtomicUsize,
    /// Flags of sends and of receives that have none of their own.
    flags: [AtomicU64; 2],
    /// The endpoint of an alias, kept open by it. An endpoint's own shell is at the endpoint's beginning, so that its calls
    /// follow no pointer to the state.
    alias_of: Option<Used<Endpoint>>,
}

/// Indices of `Shell::flags`.
pub const SENDS: usize = 0;
pub const RECEIVES: usize = 1;

#[repr(C)]
pub struct Endpoint {
    pub shell: Shell,
    pub domain: Used<Domain>,
    state: Guarded<State>,
}

// SAFETY: it begins with a `Fid`.
unsafe impl Object for Shell {
    const CLASS: usize = FI_CLASS_EP;

    fn users(&self) -> &AtomicUsize {
        &self.users
    }
}

// SAFETY: it begins with a shell, hence with a `Fid`.
unsafe impl Object for Endpoint {
    const CLASS: usize = FI_CLASS_EP;

    fn users(&self) -> &AtomicUsize {
        &self.shell.users
    }
}

/// Marks the absence of a peer in the tables below.
pub const NOBODY: u32 = u32::MAX;

/// Sources of the messages that receives take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sources {
    Anybody,
    /// Messages of the source that the receive names (FI_DIRECTED_RECV).
    Given,
    /// Messages of the one peer.
    Connected,
}

/// State that the domain's lock guards.
pub struct State {
    pub domain: Used<Domain>,
    /// The engine, once the endpoint has a name.
    pub engine: Option<Engine<Paths, Memory>>,
    enabled: bool,
    pub caps: u64,
    pub sources: Sources,
    /// FI_COMPLETION, if operations need not ask for it.
    pub always_sent: u64,
    pub always_received: u64,
    pub vector: Option<Used<AddressVector>>,
    pub sends: Option<Used<CompletionQueue>>,
    pub receives: Option<Used<CompletionQueue>>,
    /// Counters with the FI_SEND and FI_RECV that they count.
    pub counters: Vec<(Used<Counter>, u64)>,
    /// The engine's index of each address.
    pub peers: Vec<u32>,
    /// The address of each of the engine's indices.
    pub addresses: Vec<Address>,
    /// Claimed messages, by the context of their claim.
    pub claims: Vec<(Context, Claim, endpoint::Envelope)>,
    pub min_multi_recv: usize,
    pub order: ReceiveOrder,
    pub record: Option<Record>,
    /// Remote operations begun here, and peers' on this endpoint's regions.
    pub remote: Option<Box<Remote>>,
    /// Numbers of a datagram endpoint's copies that wait to leave, by the engine's index.
    pub waiting: Vec<usize>,
    /// Deferred work in progress.
    pub deferred: Deferred,
    /// Peers that an inject could not reach: the next operation fails for them.
    pub lost: Vec<PeerIndex>,
    /// Whether the engine has failed and that was reported.
    pub failed: bool,
    /// Whether its close only waits for the engine to let go of its memory.
    pub closing: bool,
    /// The address by which others find the endpoint, if the application gave one.
    pub source: Service,
    told: Option<NameServer>,
    /// The connection of an endpoint with one peer, which no address names.
    pub connection: Option<Box<Connection>>,
    /// State of a shared receive context, which is an endpoint without an engine.
    pub shared: Option<Box<Shared>>,
    pub receives_from: Option<Used<SharedReceives>>,
    pub sends_by: Option<Used<SharedSends>>,
}

impl Shell {
    fn new(fid: FidEndpoint, flags: [u64; 2], alias_of: Option<Used<Endpoint>>) -> Shell {
        Shell { fid, users: AtomicUsize::new(0), flags: flags.map(AtomicU64::new), alias_of }
    }

    /// An alias of the same state, with these flags.
    pub fn alias(&self, endpoint: Used<Endpoint>, flags: [u64; 2]) -> Shell {
        Shell::new(self.fid, flags, Some(endpoint))
    }

    /// # Safety
    /// `fid` is an open endpoint, alias or shared context.
    #[inline(always)]
    pub unsafe fn of<'a>(fid: *const FidEndpoint) -> &'a Shell {
        // SAFETY: the caller's promise: each begins with a shell.
        unsafe { &*fid.cast::<Shell>() }
    }

    #[inline(always)]
    pub fn is_alias(&self) -> bool {
        self.alias_of.is_some()
    }

    #[inline(always)]
    pub fn flags(&self, which: usize) -> u64 {
        self.flags[which].load(Ordering::Relaxed)
    }

    pub fn set_flags(&self, which: usize, flags: u64) {
        self.flags[which].store(flags, Ordering::Relaxed);
    }
}

impl Endpoint {
    pub fn new(fid: FidEndpoint, flags: [u64; 2], domain: Used<Domain>, state: State) -> Endpoint {
        Endpoint { shell: Shell::new(fid, flags, None), domain, state: Guarded::new(state) }
    }

    /// # Safety
    /// `fid` is an open endpoint, alias or shared context.
    #[inline(always)]
    pub unsafe fn of<'a>(fid: *const FidEndpoint) -> &'a Endpoint {
        // SAFETY: the caller's promise: what is no alias is an endpoint.
        unsafe {
            match &Shell::of(fid).alias_of {
                None => &*fid.cast::<Endpoint>(),
                Some(endpoint) => endpoint,
            }
        }
    }

    /// The endpoint, behind an alias or not; `None` if the object is no endpoint.
    ///
    /// # Safety
    /// `fid` is NULL or any open object.
    pub unsafe fn given<'a>(fid: *const Fid) -> Option<&'a Endpoint> {
        // SAFETY: the caller's promise: an object of this class is an endpoint or an alias.
        unsafe { object::of::<Shell>(fid).map(|_| Endpoint::of(fid.cast())) }
    }

    /// # Safety
    /// The domain is entered, and no other reference to the state is in use.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "the domain's lock makes it exclusive")]
    pub unsafe fn state(&self) -> &mut State {
        // SAFETY: the caller's promise.
        unsafe { self.state.get() }
    }

    /// Lets the endpoint progress, and delivers completions as far as `reader` has room.
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
        for (which, always) in [state.always_sent, state.always_received].into_iter().enumerate() {
            self.shell.set_flags(which, self.shell.flags(which) | always);
        }
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
    pub fn new(domain: Used<Domain>, caps: u64) -> State {
        State {
            domain,
            engine: None,
            enabled: false,
            caps,
            sources: if caps & FI_DIRECTED_RECV != 0 { Sources::Given } else { Sources::Anybody },
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
            order: ReceiveOrder::default(),
            record: None,
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

    /// Opens the engine, whereby the endpoint gets its name.
    pub fn appear(&mut self, domain: &Domain) -> Result<&mut Engine<Paths, Memory>, c_int> {
        if self.engine.is_none() {
            match Engine::join(&domain.settings) {
                Ok(mut engine) => {
                    if domain.account.is_some() {
                        engine.meter();
                    }
                    if self.source != Service::ANY {
                        self.told = Some(NameServer::at(self.source, engine.name())?);
                    }
                    self.record = domain.records.as_deref().map(Record::new);
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

    /// Sets the address by which others find it, before it has a name.
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

    /// The engine's index of a peer.
    #[inline]
    pub fn peer(&self, address: Address) -> Option<PeerIndex> {
        let Some(&peer) = self.peers.get(address as usize) else { return self.connected() };
        (peer != NOBODY).then_some(PeerIndex(peer))
    }

    /// The address of a peer; FI_ADDR_NOTAVAIL if it was never inserted.
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
