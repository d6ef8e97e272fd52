//! The beginning of every object, and the calls that every object has.

use std::ffi::{c_char, c_int, c_void};

/// `struct fid`, the beginning of every object.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Fid {
    pub class: usize,
    pub context: *mut c_void,
    pub ops: *const Ops,
}

/// A table of calls.
macro_rules! table {
    ($(#[$doc:meta])* $name:ident { $($field:ident: fn($($argument:ty),* $(,)?) $(-> $result:ty)?,)* }) => {
        $(#[$doc])*
        #[repr(C)]
        pub struct $name {
            pub size: usize,
            $(pub $field: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        // SAFETY: a table holds addresses of functions and is never written.
        unsafe impl Sync for $name {}
    };
}
pub(super) use table;

table! {
    /// `struct fi_ops`.
    Ops {
        close: fn(*mut Fid) -> c_int,
        bind: fn(*mut Fid, *mut Fid, u64) -> c_int,
        control: fn(*mut Fid, c_int, *mut c_void) -> c_int,
        ops_open: fn(*mut Fid, *const c_char, u64, *mut *mut c_void, *mut c_void) -> c_int,
        tostr: fn(*const Fid, *mut c_char, usize) -> c_int,
        ops_set: fn(*mut Fid, *const c_char, u64, *mut c_void, *mut c_void) -> c_int,
    }
}
