//! Memory regions. Messages need none; a region is a range that peers may reach by its key.

use std::ffi::{c_int, c_void};
use std::sync::atomic::AtomicUsize;

use crate::abi::Iovec;
use crate::abi::atomic::AtomicAttr;
use crate::abi::constants::*;
use crate::abi::info::MemoryRegionAttr;
use crate::abi::object::{Fid, FidDomain, FidMemoryRegion, Ops};
use crate::domain::Domain;
use crate::object::{self, Object, Used};
use crate::refuse;

#[repr(C)]
pub struct Region {
    fid: FidMemoryRegion,
    users: AtomicUsize,
    _domain: Used<Domain>,
}

// SAFETY: it begins with a `Fid`.
unsafe impl Object for Region {
    const CLASS: usize = FI_CLASS_MR;

    fn users(&self) -> &AtomicUsize {
        &self.users
    }
}

static BASE: Ops = Ops {
    size: size_of::<Ops>(),
    close: object::close::<Region>,
    bind,
    control,
    ops_open: refuse::ops_open,
    tostr: refuse::tostr,
    ops_set: refuse::ops_set,
};

/// Regions are usable as they are made; endpoints and counters may be bound and change nothing.
unsafe extern "C" fn bind(_: *mut Fid, _: *mut Fid, _: u64) -> c_int {
    0
}

unsafe extern "C" fn control(_: *mut Fid, command: c_int, _: *mut c_void) -> c_int {
    if command == FI_ENABLE { 0 } else { -FI_ENOSYS }
}

/// # Safety
/// `fid` is an open domain, `into` NULL or good.
unsafe fn make(fid: *mut Fid, key: u64, into: *mut *mut FidMemoryRegion, context: *mut c_void) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let Some(domain) = object::of::<Domain>(fid) else { return -FI_EINVAL };
        let fid = Fid { class: FI_CLASS_MR, context, ops: &BASE };
        let region = Region {
            fid: FidMemoryRegion { fid, mem_desc: std::ptr::null_mut(), key },
            users: AtomicUsize::new(0),
            _domain: Used::new(domain),
        };
        object::open(region, into)
    }
}

pub unsafe extern "C" fn register(
    domain: *mut Fid,
    _buffer: *const c_void,
    _length: usize,
    _access: u64,
    _offset: u64,
    key: u64,
    _flags: u64,
    into: *mut *mut FidMemoryRegion,
    context: *mut c_void,
) -> c_int {
    // SAFETY: libfabric's contract.
    unsafe { make(domain, key, into, context) }
}

pub unsafe extern "C" fn register_pieces(
    domain: *mut Fid,
    _pieces: *const Iovec,
    _count: usize,
    _access: u64,
    _offset: u64,
    key: u64,
    _flags: u64,
    into: *mut *mut FidMemoryRegion,
    context: *mut c_void,
) -> c_int {
    // SAFETY: libfabric's contract.
    unsafe { make(domain, key, into, context) }
}

pub unsafe extern "C" fn register_with_attributes(
    domain: *mut Fid,
    attr: *const MemoryRegionAttr,
    _flags: u64,
    into: *mut *mut FidMemoryRegion,
) -> c_int {
    // SAFETY: libfabric's contract.
    unsafe {
        let Some(attr) = attr.as_ref() else { return -FI_EINVAL };
        make(domain, attr.requested_key, into, attr.context)
    }
}

pub unsafe extern "C" fn query_atomic(_: *mut FidDomain, _: c_int, _: c_int, _: *mut AtomicAttr, _: u64) -> c_int {
    -FI_EOPNOTSUPP
}
