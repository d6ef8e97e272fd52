//! Event queues: completions of address vector calls, and what applications write themselves.

use std::collections::VecDeque;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;

use crate::abi::Signed;
use crate::abi::completion::{EventEntry, EventErrorEntry};
use crate::abi::constants::*;
use crate::abi::info::EventQueueAttr;
use crate::abi::object::{EventQueueOps, Fid, FidEventQueue, FidFabric, Ops};
use crate::fabric::Fabric;
use crate::object::{self, Object, Used};
use crate::refuse::{self, signed};
use crate::waiting::Wait;

/// `FI_PEEK`-like flag of `fi_eq_read`: the event stays.
const PEEK: u64 = FI_PEEK;

#[repr(C)]
pub struct EventQueue {
    fid: FidEventQueue,
    users: AtomicUsize,
    events: Mutex<VecDeque<(u32, Vec<u8>)>>,
    waits: bool,
    _fabric: Used<Fabric>,
}

// SAFETY: it begins with a `Fid`.
unsafe impl Object for EventQueue {
    const CLASS: usize = FI_CLASS_EQ;

    fn users(&self) -> &AtomicUsize {
        &self.users
    }
}

static BASE: Ops = Ops {
    size: size_of::<Ops>(),
    close: object::close::<EventQueue>,
    bind: refuse::bind,
    control: refuse::control,
    ops_open: refuse::ops_open,
    tostr: refuse::tostr,
    ops_set: refuse::ops_set,
};

static OPS: EventQueueOps = EventQueueOps { size: size_of::<EventQueueOps>(), read, readerr, write, sread, strerror };

pub unsafe extern "C" fn open(
    fabric: *mut FidFabric,
    attr: *mut EventQueueAttr,
    into: *mut *mut FidEventQueue,
    context: *mut c_void,
) -> c_int {
    // SAFETY: libfabric's contract: the fabric is open, the rest NULL or good.
    let (fabric, waits) = unsafe {
        let Some(fabric) = object::of::<Fabric>(fabric.cast()) else { return -FI_EINVAL };
        (Used::new(fabric), attr.as_ref().map_or(FI_WAIT_UNSPEC, |attr| attr.wait_obj))
    };
    if !matches!(waits, FI_WAIT_NONE | FI_WAIT_UNSPEC | FI_WAIT_YIELD) {
        return -FI_ENOSYS;
    }
    let queue = EventQueue {
        fid: FidEventQueue { fid: Fid { class: FI_CLASS_EQ, context, ops: &BASE }, ops: &OPS },
        users: AtomicUsize::new(0),
        events: Mutex::default(),
        waits: waits != FI_WAIT_NONE,
        _fabric: fabric,
    };
    // SAFETY: as above.
    unsafe { object::open(queue, into) }
}

impl EventQueue {
    /// Tells of the end of an operation.
    pub fn push(&self, event: u32, entry: EventEntry) {
        // SAFETY: the entry is plain data without padding.
        let bytes = unsafe { std::slice::from_raw_parts((&raw const entry).cast::<u8>(), size_of::<EventEntry>()) };
        self.lock().push_back((event, bytes.to_vec()));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<(u32, Vec<u8>)>> {
        self.events.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// # Safety
    /// `into` holds `length` bytes, `event` may be written.
    unsafe fn take(&self, event: *mut u32, into: *mut c_void, length: usize, flags: u64) -> Signed {
        let mut events = self.lock();
        let Some((kind, bytes)) = events.front() else { return signed(FI_EAGAIN) };
        if length < bytes.len() {
            return signed(FI_ETOOSMALL);
        }
        // SAFETY: the caller's promise.
        unsafe {
            if !event.is_null() {
                *event = *kind;
            }
            if !bytes.is_empty() && !into.is_null() {
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), into.cast(), bytes.len());
            }
        }
        let taken = bytes.len() as Signed;
        if flags & PEEK == 0 {
            events.pop_front();
        }
        taken
    }
}

unsafe extern "C" fn read(
    queue: *mut FidEventQueue,
    event: *mut u32,
    into: *mut c_void,
    length: usize,
    flags: u64,
) -> Signed {
    // SAFETY: libfabric's contract.
    unsafe {
        match object::of::<EventQueue>(queue.cast()) {
            Some(queue) => queue.take(event, into, length, flags),
            None => signed(FI_EINVAL),
        }
    }
}

/// There are no errors: address vectors report theirs to the caller.
unsafe extern "C" fn readerr(_: *mut FidEventQueue, _: *mut EventErrorEntry, _: u64) -> Signed {
    signed(FI_EAGAIN)
}

unsafe extern "C" fn write(
    queue: *mut FidEventQueue,
    event: u32,
    from: *const c_void,
    length: usize,
    _flags: u64,
) -> Signed {
    // SAFETY: libfabric's contract.
    let Some(queue) = (unsafe { object::of::<EventQueue>(queue.cast()) }) else { return signed(FI_EINVAL) };
    if length > 1 << 20 || (from.is_null() && length > 0) {
        return signed(FI_EINVAL);
    }
    let bytes = match length {
        0 => Vec::new(),
        // SAFETY: as above.
        _ => unsafe { std::slice::from_raw_parts(from.cast::<u8>(), length) }.to_vec(),
    };
    queue.lock().push_back((event, bytes));
    length as Signed
}

unsafe extern "C" fn sread(
    queue: *mut FidEventQueue,
    event: *mut u32,
    into: *mut c_void,
    length: usize,
    timeout: c_int,
    flags: u64,
) -> Signed {
    // SAFETY: libfabric's contract.
    let Some(queue) = (unsafe { object::of::<EventQueue>(queue.cast()) }) else { return signed(FI_EINVAL) };
    if !queue.waits {
        return signed(FI_ENOSYS);
    }
    let mut wait = Wait::new(timeout);
    loop {
        // SAFETY: as above.
        let taken = unsafe { queue.take(event, into, length, flags) };
        if taken != signed(FI_EAGAIN) || !wait.goes_on() {
            return taken;
        }
    }
}

unsafe extern "C" fn strerror(
    _: *mut FidEventQueue,
    _: c_int,
    _: *const c_void,
    into: *mut c_char,
    length: usize,
) -> *const c_char {
    // SAFETY: libfabric's contract: `into` is NULL or holds `length` bytes.
    unsafe { tell(c"no error of the provider's own", into, length) }
}

/// Copies `text`, cut to fit, where there is room for it, and returns it.
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
