//! The fabric object: the root under which domains and event queues are opened.

use std::ffi::{c_int, c_void};
use std::sync::atomic::AtomicUsize;

use crate::abi::constants::FI_CLASS_FABRIC;
use crate::abi::fid::{Fid, Ops};
use crate::abi::object::{FabricOps, FidFabric};
use crate::object::{self, Object};
use crate::refuse;

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

impl Fabric {
    pub fn api(&self) -> u32 {
        self.fid.api_version
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

/// # Safety
/// `into` is NULL or may be written.
pub unsafe fn open(
    ops: &'static FabricOps,
    api_version: u32,
    into: *mut *mut FidFabric,
    context: *mut c_void,
) -> c_int {
    let fid = Fid { class: FI_CLASS_FABRIC, context, ops: &BASE };
    let fabric = Fabric { fid: FidFabric { fid, ops, api_version }, users: AtomicUsize::new(0) };
    // SAFETY: the caller's promise.
    unsafe { object::open(fabric, into) }
}
