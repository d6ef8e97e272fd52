//! libfabric's binary interface, as far as the provider meets it; see the headers `rdma/*.h` and fabric(7).
//!
//! Structures that the library allocates (`fi_info` and below) only ever grow at their end, so that these declarations
//! hold for every library since 1.5. Checked against the installed headers by `tests/abi.rs`.

pub mod atomic;
pub mod completion;
pub mod constants;
pub mod fid;
pub mod info;
pub mod object;
pub mod provider;
pub mod transfer;
pub mod trigger;

use std::ffi::c_void;

/// `ssize_t`.
pub type Signed = isize;

/// `fi_addr_t`.
pub type Address = u64;

/// `struct iovec`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Iovec {
    pub base: *mut c_void,
    pub length: usize,
}

/// `FI_VERSION(major, minor)`.
pub const fn version(major: u32, minor: u32) -> u32 {
    major << 16 | minor
}
