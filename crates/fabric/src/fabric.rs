//! The fabric object: the root under which domains and event queues are opened.

use std::ffi::{c_int, c_void};
use std::sync::atomic::AtomicUsize;

use crate::abi::constants::{FI_CLASS_FABRIC, FI_EINVAL};
use crate::abi::fid::{Fid, Ops};
use crate::abi::info::Info;
use crate::abi::object::{FabricOps, FidDomain, FidFabric};
use crate::object::{self, Object};
use crate::refuse::{self, refused};
use crate::{domain, event_queue, passive_endpoint};

#[repr(C)]
pub struct Fabric {
    fid: FidFabric,
    users: AtomicUsize,
}

// SAFETY: it begins with a `Fid`.
unsafe impl Object for Fabric {
    const CLASS: usize = FI_CLASS_FABRIC;

    fn users(&self) -> &AtomicUsize {
        &self.users
    }
}

static BASE: Ops = Ops {
    size: size_of::<Ops>(),
    close: object::close::<Fabric>,
    bind: refuse::bind,
    control: refuse::control,
    ops_open: refuse::ops_open,
    tostr: refuse::tostr,
    ops_set: refuse::ops_set,
};

static OPS: FabricOps = FabricOps {
    size: size_of::<FabricOps>(),
    domain: open_domain,
    passive_ep: passive_endpoint::open,
    eq_open: event_queue::open,
    wait_open,
    trywait,
    domain2: open_domain_with_flags,
};

refused! {
    wait_open(*mut FidFabric, *mut c_void, *mut *mut c_void) -> c_int;
    trywait(*mut FidFabric, *mut *mut Fid, c_int) -> c_int;
}

/// # Safety
/// `into` is NULL or may be written.
pub unsafe fn open(api_version: u32, into: *mut *mut FidFabric, context: *mut c_void) -> c_int {
    let fid = Fid { class: FI_CLASS_FABRIC, context, ops: &BASE };
    let fabric = Fabric { fid: FidFabric { fid, ops: &OPS, api_version }, users: AtomicUsize::new(0) };
    // SAFETY: the caller's promise.
    unsafe { object::open(fabric, into) }
}

unsafe extern "C" fn open_domain(
    fabric: *mut FidFabric,
    info: *mut Info,
    into: *mut *mut FidDomain,
    context: *mut c_void,
) -> c_int {
    // SAFETY: libfabric's contract: the fabric is open, the rest NULL or good.
    unsafe { domain::open(fabric, info, into, context) }
}

unsafe extern "C" fn open_domain_with_flags(
    fabric: *mut FidFabric,
    info: *mut Info,
    into: *mut *mut FidDomain,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    if flags != 0 {
        return -FI_EINVAL;
    }
    // SAFETY: as above.
    unsafe { domain::open(fabric, info, into, context) }
}
