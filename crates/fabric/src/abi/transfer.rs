//! Messages and remote memory as the `msg` calls describe them.

use std::ffi::c_void;

use super::{Address, Iovec};

/// `struct fi_msg`.
#[repr(C)]
pub struct Message {
    pub iov: *const Iovec,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: Address,
    pub context: *mut c_void,
    pub data: u64,
}

/// `struct fi_msg_tagged`.
#[repr(C)]
pub struct TaggedMessage {
    pub iov: *const Iovec,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: Address,
    pub tag: u64,
    pub ignore: u64,
    pub context: *mut c_void,
    pub data: u64,
}

/// `struct fi_rma_iov`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RemoteIovec {
    pub addr: u64,
    pub length: usize,
    pub key: u64,
}

/// `struct fi_msg_rma`.
#[repr(C)]
pub struct RemoteMessage {
    pub iov: *const Iovec,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: Address,
    pub remote_iov: *const RemoteIovec,
    pub remote_iov_count: usize,
    pub context: *mut c_void,
    pub data: u64,
}
