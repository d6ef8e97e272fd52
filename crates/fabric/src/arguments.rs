//! Arguments of calls, and results written through them.

use std::ffi::{CStr, c_char, c_int, c_void};

use endpoint::Name;

use crate::abi::constants::{FI_EINVAL, FI_ETOOSMALL};
use crate::handshake::DATA;

/// `pointer` as a reference; `None` for NULL.
///
/// # Safety
/// It is NULL or points to a `T` that stays for `'a`.
#[inline]
pub unsafe fn given<'a, T>(pointer: *const T) -> Option<&'a T> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }
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

/// Data that an application sends along, cut to the greatest length.
///
/// # Safety
/// `data` is NULL or holds `length` bytes, that outlive the result.
pub unsafe fn bytes<'a>(data: *const c_void, length: usize) -> &'a [u8] {
    if data.is_null() {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(data.cast(), length.min(DATA)) }
}

/// # Safety
/// `length` is NULL or good, `into` NULL or holds `*length` bytes.
pub unsafe fn give_name(name: &Name, into: *mut c_void, length: *mut usize) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let Some(length) = length.as_mut() else { return -FI_EINVAL };
        let room = std::mem::replace(length, Name::LENGTH);
        let most = if into.is_null() { 0 } else { room.min(Name::LENGTH) };
        std::ptr::copy_nonoverlapping(name.as_bytes().as_ptr(), into.cast(), most);
        if most < Name::LENGTH { -FI_ETOOSMALL } else { 0 }
    }
}

/// Copies `text`, cut to fit, if there is room; returns it.
///
/// # Safety
/// `into` is NULL or holds `length` bytes.
pub unsafe fn tell(text: &'static CStr, into: *mut c_char, length: usize) -> *const c_char {
    if into.is_null() || length == 0 {
        return text.as_ptr();
    }
    let bytes = text.to_bytes();
    let most = bytes.len().min(length - 1);
    // SAFETY: the caller's promise.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), into, most);
        *into.add(most) = 0;
    }
    into
}
