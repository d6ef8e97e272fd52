//! Calls on shared contexts as objects, fi_endpoint(3).

use std::ffi::{c_int, c_void};

use crate::abi::Signed;
use crate::abi::constants::*;
use crate::abi::fid::{Fid, Ops};
use crate::abi::info::{ReceiveAttr, TransmitAttr};
use crate::abi::object::{EndpointOps, FidDomain, FidEndpoint, FidTransmitContext};
use crate::domain::Domain;
use crate::endpoint::{Endpoint, State};
use crate::endpoint_calls::{getopt, setopt, size_left, with_tables};
use crate::object::{self, Used};
use crate::refuse::{self, signed};
use crate::shared::{SharedReceives, SharedSends};

static BASE: Ops = Ops {
    size: size_of::<Ops>(),
    close: object::close::<SharedReceives>,
    bind: refuse::bind,
    control: refuse::control,
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

pub unsafe extern "C" fn open_receives(
    domain: *mut FidDomain,
    attr: *mut ReceiveAttr,
    into: *mut *mut FidEndpoint,
    context: *mut c_void,
) -> c_int {
    // SAFETY: libfabric's contract: the domain is open, the rest NULL or good.
    unsafe {
        let Some(domain) = object::of::<Domain>(domain.cast()) else { return -FI_EINVAL };
        let (caps, flags) = attr.as_ref().map_or((0, 0), |attr| (attr.caps, attr.op_flags));
        // Each endpoint has its own indices of sources.
        if caps & FI_DIRECTED_RECV != 0 {
            return -FI_ENOSYS;
        }
        let domain = Used::new(domain);
        let mut state = State::new(domain.clone(), 0);
        state.always_received = 0;
        state.shared = Some(Box::default());
        let fid = Fid { class: FI_CLASS_SRX_CTX, context, ops: &BASE };
        object::open(SharedReceives(Endpoint::new(with_tables(fid, &OPS), [0, flags], domain, state)), into)
    }
}

unsafe extern "C" fn cancel(fid: *mut Fid, context: *mut c_void) -> Signed {
    // SAFETY: libfabric's contract: an open context.
    unsafe {
        let Some(SharedReceives(endpoint)) = object::of::<SharedReceives>(fid) else { return signed(FI_EINVAL) };
        let _entered = endpoint.domain.enter();
        endpoint.state().cancel_shared(context)
    }
}

static SENDS_BASE: Ops = Ops { close: object::close::<SharedSends>, ..BASE };

pub unsafe extern "C" fn open_sends(
    domain: *mut FidDomain,
    _attr: *mut TransmitAttr,
    into: *mut *mut FidTransmitContext,
    context: *mut c_void,
) -> c_int {
    // SAFETY: libfabric's contract: the domain is open, the rest NULL or good.
    unsafe {
        let Some(domain) = object::of::<Domain>(domain.cast()) else { return -FI_EINVAL };
        let fid = Fid { class: FI_CLASS_STX_CTX, context, ops: &SENDS_BASE };
        let fid = FidTransmitContext { fid, ops: &OPS };
        object::open(SharedSends::new(fid, Used::new(domain)), into)
    }
}
