//! Refusals: table entries of calls that are not served, which return FI_ENOSYS, and why something is refused.

use std::ffi::{CStr, c_char, c_int, c_void};

use machine::Fault;

use crate::abi::Signed;
use crate::abi::constants::FI_ENOSYS;
use crate::abi::fid::Fid;
use crate::abi::info::{Info, ReceiveAttr, TransmitAttr};
use crate::abi::object::{FidDomain, FidEndpoint};
use crate::host::host;
use crate::offer;
use crate::provider;

/// Functions that only return FI_ENOSYS, for the types given.
macro_rules! refused {
    ($($name:ident($($argument:ty),* $(,)?) -> $result:ty;)*) => {
        $(pub unsafe extern "C" fn $name($(_: $argument),*) -> $result {
            (-$crate::abi::constants::FI_ENOSYS) as $result
        })*
    };
}
pub(crate) use refused;

refused! {
    close(*mut Fid) -> c_int;
    bind(*mut Fid, *mut Fid, u64) -> c_int;
    control(*mut Fid, c_int, *mut c_void) -> c_int;
    ops_open(*mut Fid, *const c_char, u64, *mut *mut c_void, *mut c_void) -> c_int;
    tostr(*const Fid, *mut c_char, usize) -> c_int;
    ops_set(*mut Fid, *const c_char, u64, *mut c_void, *mut c_void) -> c_int;
}

/// The error of a call on an unsuitable object.
pub const fn signed(error: c_int) -> Signed {
    -(error as Signed)
}

/// Tells who asks for it (FI_LOG_LEVEL=warn) why `call` refuses.
pub fn explain(call: &CStr, fault: &Fault) {
    if let (Some(host), Some(provider)) = (host(), provider::registered()) {
        host.warn(provider, call, fault);
    }
}

fn several_contexts(call: &CStr) -> c_int {
    explain(call, &offer::one_context("several contexts of an endpoint"));
    -FI_ENOSYS
}

pub unsafe extern "C" fn scalable_ep(
    _: *mut FidDomain,
    _: *mut Info,
    _: *mut *mut FidEndpoint,
    _: *mut c_void,
) -> c_int {
    several_contexts(c"fi_scalable_ep")
}

pub unsafe extern "C" fn tx_ctx(
    _: *mut FidEndpoint,
    _: c_int,
    _: *mut TransmitAttr,
    _: *mut *mut FidEndpoint,
    _: *mut c_void,
) -> c_int {
    several_contexts(c"fi_tx_context")
}

pub unsafe extern "C" fn rx_ctx(
    _: *mut FidEndpoint,
    _: c_int,
    _: *mut ReceiveAttr,
    _: *mut *mut FidEndpoint,
    _: *mut c_void,
) -> c_int {
    several_contexts(c"fi_rx_context")
}
