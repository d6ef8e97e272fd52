//! Calls on endpoints as objects, fi_endpoint(3).

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::abi::Signed;
use crate::abi::constants::*;
use crate::abi::fid::{Fid, Ops};
use crate::abi::info::Info;
use crate::abi::object::{EndpointOps, FidDomain, FidEndpoint};
use crate::abi::trigger::AliasAttr;
use crate::account::Account;
use crate::address_vector::AddressVector;
use crate::arguments::{give, given};
use crate::completion_queue::CompletionQueue;
use crate::connection::{self, CONNECTION, Connection};
use crate::counter::Counter;
use crate::domain::Domain;
use crate::endpoint::{Endpoint, RECEIVES, SENDS, Shell, Sources, State};
use crate::event_queue::EventQueue;
use crate::object::{self, Object, Used};
use crate::refuse;
use crate::service::{self, Service};
use crate::shared::{SharedReceives, SharedSends};
use crate::{atomic, datagram, handshake, offer, receive, report, rma, send};

/// Time for which a closing endpoint drives its last sends.
const SETTLE: Duration = Duration::from_secs(1);
/// Time in which the engine of a closing endpoint must let go of the application's memory.
const RELEASE: Duration = Duration::from_secs(10);

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
    tx_ctx: refuse::tx_ctx,
    rx_ctx: refuse::rx_ctx,
    rx_size_left: size_left,
    tx_size_left: size_left,
};

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
            // Reads of its event queue drive it too, which the application does not serialize with the domain.
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
        // Datagrams cannot be triggered.
        let caps = if kind == FI_EP_DGRAM { info.caps & !FI_TRIGGER } else { info.caps };
        let source = service::given(info.src_addr, info.src_addrlen).and_then(Service::read).unwrap_or(Service::ANY);
        (Used::new(domain), offer::implied(caps), send_flags, receive_flags, source, kind, connection)
    };
    let fid = Fid { class: FI_CLASS_EP, context, ops: &BASE };
    let mut state = State::new(domain.clone(), caps);
    state.source = source;
    if connection.is_some() {
        (state.sources, state.connection) = (Sources::Connected, connection);
    }
    let mut fid = with_tables(fid, &OPS);
    if kind == FI_EP_DGRAM {
        fid.msg = &datagram::MESSAGE;
    }
    // SAFETY: as above.
    unsafe { object::open(Endpoint::new(fid, [send_flags, receive_flags], domain, state), into) }
}

/// The beginning of an endpoint or a shared context, with the tables of its calls.
pub fn with_tables(fid: Fid, ops: &'static EndpointOps) -> FidEndpoint {
    FidEndpoint {
        fid,
        ops,
        cm: &CONNECTION,
        msg: &send::MESSAGE,
        rma: &rma::OPS,
        tagged: &send::TAGGED,
        atomic: &atomic::OPS,
        collective: std::ptr::null(),
    }
}

/// After a return of 0 the application's memory is its own again. An engine's process that does not answer may still write
/// there: then the endpoint stays, and can be closed once more.
unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    // SAFETY: libfabric's contract: an open endpoint, used no more.
    unsafe {
        let Some(shell) = object::of::<Shell>(fid) else { return -FI_EINVAL };
        if shell.is_alias() {
            return object::close::<Shell>(fid);
        }
        let endpoint = Endpoint::of(fid.cast());
        if endpoint.users().load(Ordering::Acquire) > 0 {
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
                    // Peers that have not closed yet may still need the last sends. An unsure end mostly means that a peer
                    // closed while its last acknowledgement was lost: no fault.
                    let lingered = engine.linger(SETTLE);
                    if domain.reports {
                        let remote = state.remote.as_ref().map_or_else(Default::default, |remote| remote.begun);
                        report::tell(engine, domain.account.as_ref().map(Account::sums), remote, lingered);
                    }
                    if let Some(record) = state.record.take() {
                        record.end();
                    }
                }
            }
            if let Some(engine) = &mut state.engine
                && let Err(fault) = engine.release(RELEASE)
            {
                let code = state.fail_for_now(&fault) as c_int;
                // No progress is made from now on.
                state.failed = true;
                return code;
            }
            // Until here the close of a region has asked this engine too.
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
            if state.receives_from.is_some() || state.is_enabled() {
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
        let endpoint = Endpoint::of(fid.cast());
        let _entered = endpoint.domain.enter();
        let state = endpoint.state();
        match command {
            FI_ENABLE => endpoint.enable(state).map_or_else(|error| -error, |()| 0),
            FI_ALIAS => open_alias(shell, endpoint, argument.cast()),
            FI_GETOPSFLAG | FI_SETOPSFLAG => {
                let Some(flags) = argument.cast::<u64>().as_mut() else { return -FI_EINVAL };
                let Some(which) = direction(*flags) else { return -FI_EINVAL };
                if command == FI_GETOPSFLAG {
                    *flags = shell.flags(which);
                    return 0;
                }
                let mut set = *flags & !DIRECTIONS;
                if !shell.is_alias() {
                    // Only an alias has these flags: calls without flags of their own then need not check them.
                    if set & (FI_TRIGGER | offer::UNKEPT) != 0 {
                        return -FI_EBADFLAGS;
                    }
                    set |= [state.always_sent, state.always_received][which];
                }
                shell.set_flags(which, set);
                0
            }
            _ => -FI_ENOSYS,
        }
    }
}

const DIRECTIONS: u64 = FI_SEND | FI_RECV;

/// Index of the flags that `flags` selects.
fn direction(flags: u64) -> Option<usize> {
    match flags & DIRECTIONS {
        FI_SEND => Some(SENDS),
        FI_RECV => Some(RECEIVES),
        _ => None,
    }
}

/// # Safety
/// The shell is the endpoint's or an alias's of it, and open; `attr` is NULL or good.
unsafe fn open_alias(shell: &Shell, endpoint: &Endpoint, attr: *const AliasAttr) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let Some(attr) = given(attr) else { return -FI_EINVAL };
        let Some(which) = direction(attr.flags) else { return -FI_EINVAL };
        let mut flags = [SENDS, RECEIVES].map(|which| shell.flags(which));
        flags[which] = attr.flags & !DIRECTIONS;
        object::open(shell.alias(Used::new(endpoint), flags), attr.fid)
    }
}

pub unsafe extern "C" fn getopt(
    fid: *mut Fid,
    level: c_int,
    option: c_int,
    into: *mut c_void,
    length: *mut usize,
) -> c_int {
    // SAFETY: libfabric's contract: `into` holds `*length` bytes.
    unsafe {
        let Some(endpoint) = Endpoint::given(fid) else { return -FI_EINVAL };
        if level != FI_OPT_ENDPOINT {
            return -FI_ENOPROTOOPT;
        }
        let _entered = endpoint.domain.enter();
        let state = endpoint.state();
        match option {
            FI_OPT_MIN_MULTI_RECV => give(state.min_multi_recv, into, length),
            FI_OPT_CM_DATA_SIZE => give(state.connection.as_ref().map_or(0, |_| handshake::DATA), into, length),
            _ => -FI_ENOPROTOOPT,
        }
    }
}

pub unsafe extern "C" fn setopt(
    fid: *mut Fid,
    level: c_int,
    option: c_int,
    from: *const c_void,
    length: usize,
) -> c_int {
    // SAFETY: libfabric's contract: `from` holds `length` bytes.
    unsafe {
        let Some(endpoint) = Endpoint::given(fid) else { return -FI_EINVAL };
        if level != FI_OPT_ENDPOINT || option != FI_OPT_MIN_MULTI_RECV {
            return -FI_ENOPROTOOPT;
        }
        if from.is_null() || length != size_of::<usize>() {
            return -FI_EINVAL;
        }
        let _entered = endpoint.domain.enter();
        endpoint.state().min_multi_recv = from.cast::<usize>().read_unaligned();
        0
    }
}
