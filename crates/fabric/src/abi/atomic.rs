//! Atomic operations.

use std::ffi::{c_int, c_void};

use super::Address;

/// `struct fi_ioc`: like an iovec, counted in elements.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Elements {
    pub base: *mut c_void,
    pub count: usize,
}

/// `struct fi_rma_ioc`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RemoteElements {
    pub addr: u64,
    pub count: usize,
    pub key: u64,
}

/// `struct fi_msg_atomic`.
#[repr(C)]
pub struct AtomicMessage {
    pub iov: *const Elements,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: Address,
    pub remote_iov: *const RemoteElements,
    pub remote_iov_count: usize,
    pub datatype: c_int,
    pub op: c_int,
    pub context: *mut c_void,
    pub data: u64,
}

/// `struct fi_atomic_attr`.
#[repr(C)]
pub struct AtomicAttr {
    pub count: usize,
    pub size: usize,
}
