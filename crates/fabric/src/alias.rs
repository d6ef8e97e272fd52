//! Aliases of endpoints (FI_ALIAS): an endpoint again, with default flags of its own. Each call goes on to the endpoint's: one
//! that has no flags to the `msg` call that takes those of the alias.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::abi::Signed;
use crate::abi::constants::*;
use crate::abi::object::*;
use crate::abi::trigger::AliasAttr;
use crate::alias_calls::{atomic, message, rma, tagged};
use crate::connection::{join, listen, reject};
use crate::endpoint::{Endpoint, rx_ctx, size_left, tx_ctx};
use crate::object::{self, Object, Used, given};
use crate::refuse;

/// Nothing but a domain's FI_QUEUE_WORK takes the `fid` of an endpoint that is not the call's own: for an alias's of the same
/// class there is [`endpoint_of`].
#[repr(C)]
struct Alias {
    fid: FidEndpoint,
    users: AtomicUsize,
    /// It stays open as long as this.
    endpoint: Used<Endpoint>,
    /// Of sends and of receives.
    flags: [AtomicU64; 2],
}

// SAFETY: it begins with a `Fid`.
unsafe impl Object for Alias {
    const CLASS: usize = FI_CLASS_EP;

    fn users(&self) -> &AtomicUsize {
        &self.users
    }
}

const DIRECTIONS: u64 = FI_SEND | FI_RECV;

/// `usual` are the flags of what is aliased.
///
/// # Safety
/// `attr` is NULL or good, the endpoint open.
pub unsafe fn open(endpoint: &Endpoint, usual: [u64; 2], attr: *const AliasAttr) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let Some(attr) = given(attr) else { return -FI_EINVAL };
        let mut flags = usual;
        let Some(which) = direction(attr.flags) else { return -FI_EINVAL };
        flags[which] = attr.flags & !DIRECTIONS;
        let fid = FidEndpoint {
            fid: Fid { class: FI_CLASS_EP, context: (*std::ptr::from_ref(endpoint).cast::<Fid>()).context, ops: &BASE },
            ops: &OPS,
            cm: &CONNECTION,
            msg: &message::OPS,
            rma: &rma::OPS,
            tagged: &tagged::OPS,
            atomic: &atomic::OPS,
            collective: std::ptr::null(),
        };
        let flags = flags.map(AtomicU64::new);
        let alias = Alias { fid, users: AtomicUsize::new(0), endpoint: Used::new(endpoint), flags };
        object::open(alias, attr.fid)
    }
}

/// The endpoint, behind an alias or not.
///
/// # Safety
/// `fid` is NULL or an open object.
pub unsafe fn endpoint_of<'a>(fid: *mut FidEndpoint) -> Option<&'a Endpoint> {
    // SAFETY: the caller's promise; the table of an object says whether it is an alias, which keeps its endpoint open.
    unsafe {
        let base = given(fid.cast::<Fid>())?.ops;
        if std::ptr::eq(base, &BASE) {
            return Some(&*parent(fid).cast::<Endpoint>());
        }
        object::of::<Endpoint>(fid.cast())
    }
}

/// Which flags are meant.
fn direction(flags: u64) -> Option<usize> {
    match flags & DIRECTIONS {
        FI_SEND => Some(0),
        FI_RECV => Some(1),
        _ => None,
    }
}

/// # Safety
/// `alias` is open.
pub unsafe fn parent(alias: *mut FidEndpoint) -> *mut FidEndpoint {
    // SAFETY: libfabric's calls go through the tables of this very alias.
    unsafe { (*alias.cast::<Alias>()).endpoint.as_ptr().cast() }
}

/// # Safety
/// `alias` is open.
pub unsafe fn flags(alias: *mut FidEndpoint, which: usize) -> u64 {
    // SAFETY: as above.
    unsafe { (&(*alias.cast::<Alias>()).flags)[which].load(Ordering::Relaxed) }
}

pub const SENDS: usize = 0;
pub const RECEIVES: usize = 1;

/// Calls that go on as they are, to the entry of the same name.
macro_rules! pass_on {
    ($table:ident; $($name:ident($fid:ty $(, $argument:ident: $type:ty)*) -> $result:ty;)*) => {
        $(unsafe extern "C" fn $name(fid: *mut $fid $(, $argument: $type)*) -> $result {
            // SAFETY: libfabric's contract: an open alias, whose endpoint is open.
            unsafe {
                let endpoint = $crate::alias::parent(fid.cast());
                ((*(*endpoint).$table).$name)(endpoint.cast() $(, $argument)*)
            }
        })*
    };
}

pub(crate) use pass_on;

static BASE: Ops = Ops {
    size: size_of::<Ops>(),
    close: object::close::<Alias>,
    bind,
    control,
    ops_open: refuse::ops_open,
    tostr: refuse::tostr,
    ops_set: refuse::ops_set,
};

unsafe extern "C" fn bind(fid: *mut Fid, other: *mut Fid, flags: u64) -> c_int {
    // SAFETY: libfabric's contract, as in all below: an open alias.
    unsafe {
        let endpoint = parent(fid.cast()).cast::<Fid>();
        ((*(*endpoint).ops).bind)(endpoint, other, flags)
    }
}

unsafe extern "C" fn control(fid: *mut Fid, command: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: as above; the argument is as the command wants it.
    unsafe {
        let alias = &*fid.cast::<Alias>();
        match command {
            FI_ALIAS => {
                let usual = [SENDS, RECEIVES].map(|which| flags(fid.cast(), which));
                open(&alias.endpoint, usual, argument.cast())
            }
            FI_GETOPSFLAG | FI_SETOPSFLAG => {
                let Some(asked) = argument.cast::<u64>().as_mut() else { return -FI_EINVAL };
                let Some(which) = direction(*asked) else { return -FI_EINVAL };
                match command {
                    FI_GETOPSFLAG => *asked = alias.flags[which].load(Ordering::Relaxed),
                    _ => alias.flags[which].store(*asked & !DIRECTIONS, Ordering::Relaxed),
                }
                0
            }
            _ => {
                let endpoint = parent(fid.cast()).cast::<Fid>();
                ((*(*endpoint).ops).control)(endpoint, command, argument)
            }
        }
    }
}

static OPS: EndpointOps = EndpointOps {
    size: size_of::<EndpointOps>(),
    cancel,
    getopt,
    setopt,
    tx_ctx,
    rx_ctx,
    rx_size_left: size_left,
    tx_size_left: size_left,
};

pass_on! { ops;
    cancel(Fid, context: *mut c_void) -> Signed;
    getopt(Fid, level: c_int, option: c_int, into: *mut c_void, length: *mut usize) -> c_int;
    setopt(Fid, level: c_int, option: c_int, from: *const c_void, length: usize) -> c_int;
}

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
    join,
};

pass_on! { cm;
    setname(Fid, address: *mut c_void, length: usize) -> c_int;
    getname(Fid, into: *mut c_void, length: *mut usize) -> c_int;
    getpeer(FidEndpoint, into: *mut c_void, length: *mut usize) -> c_int;
    connect(FidEndpoint, address: *const c_void, data: *const c_void, length: usize) -> c_int;
    accept(FidEndpoint, data: *const c_void, length: usize) -> c_int;
    shutdown(FidEndpoint, flags: u64) -> c_int;
}
