//! Objects that applications open and close, and their uses of one another.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::abi::constants::{FI_EBUSY, FI_EINVAL};
use crate::abi::fid::Fid;

/// An object that begins with a `struct fid` of its class.
///
/// # Safety
/// The type is `repr(C)` and its first field is, or begins with, a [`Fid`].
pub unsafe trait Object: Sized {
    const CLASS: usize;

    /// Number of other objects that use this one.
    fn users(&self) -> &AtomicUsize;
}

/// An object's use of another, which cannot be closed meanwhile.
pub struct Used<T: Object>(NonNull<T>);

impl<T: Object> Used<T> {
    /// # Safety
    /// The object is open.
    pub unsafe fn new(object: *const T) -> Self {
        let used = Used(NonNull::new(object.cast_mut()).expect("an open object is not NULL"));
        used.users().fetch_add(1, Ordering::Relaxed);
        used
    }

    /// Whether both use the same object.
    pub fn is(&self, other: &Used<T>) -> bool {
        self.0 == other.0
    }

    pub fn as_ptr(&self) -> *mut T {
        self.0.as_ptr()
    }
}

impl<T: Object> Clone for Used<T> {
    fn clone(&self) -> Self {
        // SAFETY: `self` keeps it open.
        unsafe { Used::new(self.0.as_ptr()) }
    }
}

impl<T: Object> Deref for Used<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: an object is freed by `close` only, which refuses while it has users, of which this is one.
        unsafe { self.0.as_ref() }
    }
}

impl<T: Object> Drop for Used<T> {
    fn drop(&mut self) {
        self.users().fetch_sub(1, Ordering::Release);
    }
}

/// Hands an object to the application.
///
/// # Safety
/// `into` may be written.
pub unsafe fn open<T: Object, F>(object: T, into: *mut *mut F) -> c_int {
    if into.is_null() {
        return -FI_EINVAL;
    }
    // SAFETY: the caller's promise.
    unsafe { into.write(Box::into_raw(Box::new(object)).cast()) };
    0
}

/// Takes an object back from the application and drops it, or refuses while others use it.
///
/// # Safety
/// `fid` is NULL, or an open object of which the application makes no further use.
pub unsafe extern "C" fn close<T: Object>(fid: *mut Fid) -> c_int {
    // SAFETY: the caller's promise.
    let Some(object) = (unsafe { of::<T>(fid) }) else { return -FI_EINVAL };
    if object.users().load(Ordering::Acquire) > 0 {
        return -FI_EBUSY;
    }
    // SAFETY: it was made by `open`, and nobody uses it.
    drop(unsafe { Box::from_raw(fid.cast::<T>()) });
    0
}

/// The object behind a `fid`, if it is of that class.
///
/// # Safety
/// `fid` is NULL or any open object, which stays open for `'a`.
#[inline]
pub unsafe fn of<'a, T: Object>(fid: *const Fid) -> Option<&'a T> {
    // SAFETY: every object begins with a `Fid`, and the class tells what follows.
    unsafe { (!fid.is_null() && (*fid).class == T::CLASS).then(|| &*fid.cast::<T>()) }
}

/// State that a domain's lock guards.
#[derive(Default)]
pub struct Guarded<T>(UnsafeCell<T>);

impl<T> Guarded<T> {
    pub fn new(value: T) -> Self {
        Guarded(UnsafeCell::new(value))
    }

    /// # Safety
    /// The caller has entered the domain, and no other reference to this state is in use.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "the domain's lock makes it exclusive")]
    pub unsafe fn get(&self) -> &mut T {
        // SAFETY: the caller's promise.
        unsafe { &mut *self.0.get() }
    }
}

pub type Context = *mut c_void;
