//! Passive endpoints, fi_cm(3): they listen for connection requests and report them to their event queue.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use machine::Site;

use crate::abi::constants::*;
use crate::abi::fid::{Fid, Ops};
use crate::abi::info::Info;
use crate::abi::object::{ConnectionOps, EndpointOps, FidEndpoint, FidFabric, FidPassive};
use crate::arguments::{bytes, give, give_name, given};
use crate::event_queue::EventQueue;
use crate::fabric::Fabric;
use crate::handshake::{ConnectionMessage, DATA};
use crate::listener::{ConnectionRequest, Listener};
use crate::object::{self, Object, Used};
use crate::offer::{self, Progress};
use crate::refuse::{self, refused};
use crate::service::{self, Service};
use crate::{connection, parameters};

#[repr(C)]
pub struct PassiveEndpoint {
    fid: FidPassive,
    users: AtomicUsize,
    listener: Arc<Listener>,
    events: Mutex<Option<Used<EventQueue>>>,
    _fabric: Used<Fabric>,
}

// SAFETY: it begins with a `Fid`.
unsafe impl Object for PassiveEndpoint {
    const CLASS: usize = FI_CLASS_PEP;

    fn users(&self) -> &AtomicUsize {
        &self.users
    }
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
    cancel,
    getopt,
    setopt,
    tx_ctx: refuse::tx_ctx,
    rx_ctx: refuse::rx_ctx,
    rx_size_left: size_left,
    tx_size_left: size_left,
};

static CONNECTION: ConnectionOps = ConnectionOps {
    size: size_of::<ConnectionOps>(),
    setname,
    getname,
    getpeer,
    connect,
    listen,
    accept,
    reject,
    shutdown,
    join: connection::join,
};

refused! {
    cancel(*mut Fid, *mut c_void) -> crate::abi::Signed;
    setopt(*mut Fid, c_int, c_int, *const c_void, usize) -> c_int;
    size_left(*mut FidEndpoint) -> crate::abi::Signed;
    getpeer(*mut FidEndpoint, *mut c_void, *mut usize) -> c_int;
    connect(*mut FidEndpoint, *const c_void, *const c_void, usize) -> c_int;
    accept(*mut FidEndpoint, *const c_void, usize) -> c_int;
    shutdown(*mut FidEndpoint, u64) -> c_int;
}

pub unsafe extern "C" fn open(
    fabric: *mut FidFabric,
    info: *mut Info,
    into: *mut *mut FidPassive,
    context: *mut c_void,
) -> c_int {
    // SAFETY: libfabric's contract: the fabric is open, the rest NULL or good.
    unsafe {
        let api = match fabric.as_ref() {
            Some(fabric) => fabric.api_version,
            None => return -FI_EINVAL,
        };
        let (Some(fabric), Some(info)) = (object::of::<Fabric>(fabric.cast()), info.as_ref()) else {
            return -FI_EINVAL;
        };
        if given(info.ep_attr).is_none_or(|attr| attr.kind != FI_EP_MSG) {
            return -FI_EINVAL;
        }
        let settings = match parameters::settings() {
            Ok(settings) => settings,
            Err(fault) => {
                parameters::complain(&fault);
                return -FI_EINVAL;
            }
        };
        let progress = if settings.placement == Site::App { Progress::Manual } else { Progress::Automatic };
        let Ok(settled) = offer::settle(api, Some(info), progress) else { return -FI_EINVAL };
        let source = service::given(info.src_addr, info.src_addrlen).and_then(Service::read).unwrap_or(Service::ANY);
        let fid = Fid { class: FI_CLASS_PEP, context, ops: &BASE };
        let endpoint = PassiveEndpoint {
            fid: FidPassive { fid, ops: &OPS, cm: &CONNECTION },
            users: AtomicUsize::new(0),
            listener: Listener::new(settings, settled, source),
            events: Mutex::default(),
            _fabric: Used::new(fabric),
        };
        object::open(endpoint, into)
    }
}

impl PassiveEndpoint {
    fn events(&self) -> MutexGuard<'_, Option<Used<EventQueue>>> {
        self.events.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Refuses requests that the application does not know yet; the application still answers the others.
unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    // SAFETY: libfabric's contract: an open passive endpoint, used no more.
    unsafe {
        let Some(endpoint) = object::of::<PassiveEndpoint>(fid) else { return -FI_EINVAL };
        endpoint.listener.close();
        let events = endpoint.events().clone();
        if let Some(events) = &events {
            events.forget(fid);
        }
        let code = object::close::<PassiveEndpoint>(fid);
        if let Some(events) = &events {
            events.prune();
        }
        code
    }
}

unsafe extern "C" fn bind(fid: *mut Fid, other: *mut Fid, _: u64) -> c_int {
    // SAFETY: libfabric's contract: two open objects of one fabric.
    unsafe {
        let Some(endpoint) = object::of::<PassiveEndpoint>(fid) else { return -FI_EINVAL };
        let Some(queue) = object::of::<EventQueue>(other) else { return -FI_EINVAL };
        let mut events = endpoint.events();
        if events.is_some() {
            return -FI_EINVAL;
        }
        *events = Some(Used::new(queue));
        0
    }
}

unsafe extern "C" fn control(fid: *mut Fid, command: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: libfabric's contract; the argument of the backlog is a number.
    unsafe {
        let Some(endpoint) = object::of::<PassiveEndpoint>(fid) else { return -FI_EINVAL };
        match (command, argument.cast::<c_int>().as_ref()) {
            (FI_BACKLOG, Some(&most)) => {
                endpoint.listener.set_backlog(usize::try_from(most).unwrap_or(0));
                0
            }
            (FI_BACKLOG, None) => -FI_EINVAL,
            _ => -FI_ENOSYS,
        }
    }
}

unsafe extern "C" fn listen(endpoint: *mut FidPassive) -> c_int {
    // SAFETY: libfabric's contract.
    unsafe {
        let fid = endpoint.cast::<Fid>();
        let Some(endpoint) = object::of::<PassiveEndpoint>(fid) else { return -FI_EINVAL };
        let events = endpoint.events();
        let Some(queue) = events.as_ref() else { return -FI_ENOEQ };
        match endpoint.listener.listen() {
            Ok(()) => {
                queue.follow_listener(endpoint.listener.clone(), fid);
                0
            }
            Err(error) => -error,
        }
    }
}

unsafe extern "C" fn reject(endpoint: *mut FidPassive, handle: *mut Fid, data: *const c_void, length: usize) -> c_int {
    // SAFETY: libfabric's contract: the handle is of a request that was reported and not rejected yet, `data` holds
    // `length` bytes.
    unsafe {
        if object::of::<PassiveEndpoint>(endpoint.cast()).is_none()
            || handle.is_null()
            || (*handle).class != FI_CLASS_CONNREQ
        {
            return -FI_EINVAL;
        }
        let request = handle.cast::<ConnectionRequest>();
        let rejected = (*request).answer(ConnectionMessage::Refuse(bytes(data, length))).is_some();
        // A request that an endpoint was opened for is freed by that endpoint.
        if !(*request).taken.load(Ordering::Acquire) {
            drop(Box::from_raw(request));
        }
        if rejected { 0 } else { -FI_EINVAL }
    }
}

unsafe extern "C" fn setname(fid: *mut Fid, address: *mut c_void, length: usize) -> c_int {
    // SAFETY: libfabric's contract: `address` holds `length` bytes.
    unsafe {
        let Some(endpoint) = object::of::<PassiveEndpoint>(fid) else { return -FI_EINVAL };
        let Some(source) = service::given(address, length).and_then(Service::read) else { return -FI_EINVAL };
        endpoint.listener.place(source).map_or_else(|error| -error, |()| 0)
    }
}

unsafe extern "C" fn getname(fid: *mut Fid, into: *mut c_void, length: *mut usize) -> c_int {
    // SAFETY: libfabric's contract: `into` holds `*length` bytes.
    unsafe {
        let Some(endpoint) = object::of::<PassiveEndpoint>(fid) else { return -FI_EINVAL };
        match endpoint.listener.name() {
            Ok(name) => give_name(&name, into, length),
            Err(error) => -error,
        }
    }
}

unsafe extern "C" fn getopt(
    fid: *mut Fid,
    level: c_int,
    option: c_int,
    into: *mut c_void,
    length: *mut usize,
) -> c_int {
    // SAFETY: libfabric's contract: `into` holds `*length` bytes.
    unsafe {
        if object::of::<PassiveEndpoint>(fid).is_none() {
            return -FI_EINVAL;
        }
        match (level, option) {
            (FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE) => give(DATA, into, length),
            _ => -FI_ENOPROTOOPT,
        }
    }
}
