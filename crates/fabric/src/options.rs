//! Options of endpoints, fi_endpoint(3).

use std::ffi::{c_int, c_void};

use crate::abi::constants::*;
use crate::abi::object::Fid;
use crate::endpoint::Endpoint;
use crate::handshake;

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

/// # Safety
/// `length` is NULL or good, `into` NULL or holds `*length` bytes.
pub unsafe fn give(value: usize, into: *mut c_void, length: *mut usize) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let Some(length) = length.as_mut() else { return -FI_EINVAL };
        if into.is_null() || *length < size_of::<usize>() {
            return -FI_ETOOSMALL;
        }
        into.cast::<usize>().write_unaligned(value);
        *length = size_of::<usize>();
        0
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
