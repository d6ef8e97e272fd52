//! Entries of completion and event queues.

use std::ffi::{c_int, c_void};

use super::fid::Fid;
use super::info::Info;

/// `struct fi_cq_tagged_entry`; the other formats are prefixes of it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Entry {
    pub op_context: *mut c_void,
    pub flags: u64,
    pub length: usize,
    pub buffer: *mut c_void,
    pub data: u64,
    pub tag: u64,
}

/// Bytes of `struct fi_cq_entry`, `fi_cq_msg_entry`, `fi_cq_data_entry` and `fi_cq_tagged_entry`.
pub const CONTEXT_ENTRY: usize = 8;
pub const MSG_ENTRY: usize = 24;
pub const DATA_ENTRY: usize = 40;
pub const TAGGED_ENTRY: usize = 48;

/// `struct fi_cq_err_entry`, as far as all versions since 1.5 have it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ErrorEntry {
    pub op_context: *mut c_void,
    pub flags: u64,
    pub length: usize,
    pub buffer: *mut c_void,
    pub data: u64,
    pub tag: u64,
    pub lost: usize,
    pub error: c_int,
    pub provider_error: c_int,
    pub error_data: *mut c_void,
    pub error_data_size: usize,
}

impl ErrorEntry {
    pub fn new(context: *mut c_void, flags: u64, error: c_int) -> Self {
        ErrorEntry {
            op_context: context,
            flags,
            length: 0,
            buffer: std::ptr::null_mut(),
            data: 0,
            tag: 0,
            lost: 0,
            error,
            provider_error: error,
            error_data: std::ptr::null_mut(),
            error_data_size: 0,
        }
    }
}

/// `struct fi_eq_entry`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct EventEntry {
    pub fid: *mut Fid,
    pub context: *mut c_void,
    pub data: u64,
}

/// `struct fi_eq_cm_entry`, followed by the other side's data.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ConnectionEntry {
    pub fid: *mut Fid,
    pub info: *mut Info,
}

/// `struct fi_eq_err_entry`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct EventErrorEntry {
    pub fid: *mut Fid,
    pub context: *mut c_void,
    pub data: u64,
    pub error: c_int,
    pub provider_error: c_int,
    pub error_data: *mut c_void,
    pub error_data_size: usize,
}
