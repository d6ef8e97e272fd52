//! The structure by which the library knows a provider.

use std::ffi::{c_char, c_int, c_void};

use super::info::{FabricAttr, Info};
use super::object::FidFabric;

/// `struct fi_provider`.
#[repr(C)]
pub struct Provider {
    pub version: u32,
    pub fi_version: u32,
    /// For the library's use.
    pub context: [*mut c_void; 4],
    pub name: *const c_char,
    pub getinfo:
        Option<unsafe extern "C" fn(u32, *const c_char, *const c_char, u64, *const Info, *mut *mut Info) -> c_int>,
    pub fabric: Option<unsafe extern "C" fn(*mut FabricAttr, *mut *mut FidFabric, *mut c_void) -> c_int>,
    pub cleanup: Option<unsafe extern "C" fn()>,
}
