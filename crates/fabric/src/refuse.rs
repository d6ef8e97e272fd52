//! Table entries of calls that are not served. They return FI_ENOSYS.

use std::ffi::{c_char, c_int, c_void};

use crate::abi::Signed;
use crate::abi::fid::Fid;

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
