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
pub mod transfer;
pub mod trigger;

use std::ffi::{c_char, c_int, c_void};

use info::{FabricAttr, Info};
use object::FidFabric;

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

/// `struct fi_provider`.
#[repr(C)]
pub struct Provider {
    pub version: u32,
    pub fi_version: u32,
    /// The library's own.
    pub context: [*mut c_void; 4],
    pub name: *const c_char,
    pub getinfo:
        Option<unsafe extern "C" fn(u32, *const c_char, *const c_char, u64, *const Info, *mut *mut Info) -> c_int>,
    pub fabric: Option<unsafe extern "C" fn(*mut FabricAttr, *mut *mut FidFabric, *mut c_void) -> c_int>,
    pub cleanup: Option<unsafe extern "C" fn()>,
}

/// `FI_VERSION(major, minor)`.
pub const fn version(major: u32, minor: u32) -> u32 {
    major << 16 | minor
}
