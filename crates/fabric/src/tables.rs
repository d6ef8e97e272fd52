//! The tables of calls of the fabric and of domains, which open all other objects.

use std::ffi::{c_int, c_void};

use crate::abi::constants::*;
use crate::abi::fid::{Fid, Ops};
use crate::abi::info::Info;
use crate::abi::object::{DomainOps, FabricOps, FidDomain, FidEndpoint, FidFabric, MemoryRegionOps};
use crate::domain::{self, Domain};
use crate::object;
use crate::refuse::{self, refused};
use crate::{
    address_vector, atomic, completion_queue, counter, deferred_work, endpoint_calls, event_queue, fabric,
    passive_endpoint, poll_set, region, shared_calls, wait_object,
};

static FABRIC: FabricOps = FabricOps {
    size: size_of::<FabricOps>(),
    domain: open_domain,
    passive_ep: passive_endpoint::open,
    eq_open: event_queue::open,
    wait_open,
    trywait: wait_object::trywait,
    domain2: open_domain_with_flags,
};

refused! {
    wait_open(*mut FidFabric, *mut c_void, *mut *mut c_void) -> c_int;
}

/// # Safety
/// `into` is NULL or may be written.
pub unsafe fn open_fabric(api_version: u32, into: *mut *mut FidFabric, context: *mut c_void) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { fabric::open(&FABRIC, api_version, into, context) }
}

unsafe extern "C" fn open_domain(
    fabric: *mut FidFabric,
    info: *mut Info,
    into: *mut *mut FidDomain,
    context: *mut c_void,
) -> c_int {
    // SAFETY: libfabric's contract: the fabric is open, the rest NULL or good.
    unsafe { domain::open(domain_fid(context), fabric, info, into) }
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
    unsafe { domain::open(domain_fid(context), fabric, info, into) }
}

static DOMAIN_BASE: Ops = Ops {
    size: size_of::<Ops>(),
    close: object::close::<Domain>,
    bind,
    control,
    ops_open: refuse::ops_open,
    tostr: refuse::tostr,
    ops_set: refuse::ops_set,
};

static DOMAIN: DomainOps = DomainOps {
    size: size_of::<DomainOps>(),
    av_open: address_vector::open,
    cq_open: completion_queue::open,
    endpoint: endpoint_calls::open,
    scalable_ep: refuse::scalable_ep,
    cntr_open: counter::open,
    poll_open: poll_set::open,
    stx_ctx: shared_calls::open_sends,
    srx_ctx: shared_calls::open_receives,
    query_atomic: atomic::query,
    query_collective,
    endpoint2,
};

static REGIONS: MemoryRegionOps = MemoryRegionOps {
    size: size_of::<MemoryRegionOps>(),
    reg: region::register,
    regv: region::register_pieces,
    regattr: region::register_with_attributes,
};

refused! {
    query_collective(*mut FidDomain, c_int, *mut c_void, u64) -> c_int;
}

/// The beginning of a domain.
pub fn domain_fid(context: *mut c_void) -> FidDomain {
    FidDomain { fid: Fid { class: FI_CLASS_DOMAIN, context, ops: &DOMAIN_BASE }, ops: &DOMAIN, mr: &REGIONS }
}

/// An event queue may be bound; a domain has no events of its own.
unsafe extern "C" fn bind(_: *mut Fid, other: *mut Fid, _: u64) -> c_int {
    // SAFETY: libfabric's contract: NULL or an open object.
    match unsafe { other.as_ref() } {
        Some(other) if other.class == FI_CLASS_EQ => 0,
        _ => -FI_EINVAL,
    }
}

unsafe extern "C" fn control(fid: *mut Fid, command: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: libfabric's contract: an open domain, an argument as the command wants it.
    unsafe { object::of::<Domain>(fid).map_or(-FI_EINVAL, |domain| deferred_work::control(domain, command, argument)) }
}

unsafe extern "C" fn endpoint2(
    domain: *mut FidDomain,
    info: *mut Info,
    into: *mut *mut FidEndpoint,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    if flags != 0 {
        return -FI_EINVAL;
    }
    // SAFETY: as the caller promises.
    unsafe { endpoint_calls::open(domain, info, into, context) }
}
