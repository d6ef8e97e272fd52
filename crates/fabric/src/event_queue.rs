//! Event queues: completions of address vector calls, events of connections, and applications' own events. A read that finds
//! nothing drives the connections of the queue's endpoints.

use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_void};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::abi::Signed;
use crate::abi::completion::{ConnectionEntry, EventEntry, EventErrorEntry};
use crate::abi::constants::*;
use crate::abi::fid::{Fid, Ops};
use crate::abi::info::{EventQueueAttr, Info};
use crate::abi::object::{EventQueueOps, FidEventQueue, FidFabric};
use crate::arguments::tell;
use crate::endpoint::Endpoint;
use crate::fabric::Fabric;
use crate::host::host;
use crate::info;
use crate::listener::{ConnectionRequest, Listener};
use crate::object::{self, Object, Used};
use crate::refuse::{self, signed};
use crate::wait_object::WaitObject;
use crate::waiting::Wait;

/// The flag of `fi_eq_read` that leaves the event in the queue.
const PEEK: u64 = FI_PEEK;

#[repr(C)]
pub struct EventQueue {
    fid: FidEventQueue,
    users: AtomicUsize,
    events: Mutex<VecDeque<Event>>,
    /// Data of the last error that was read, kept until the next.
    error_data: Mutex<Vec<u8>>,
    /// Objects that a read drives; each leaves before it is freed. Never locked within a domain.
    moved: Mutex<Vec<MovedHandle>>,
    pub waits: WaitObject,
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
    control,
    ops_open: refuse::ops_open,
    tostr: refuse::tostr,
    ops_set: refuse::ops_set,
};

/// # Safety
/// libfabric's contract.
unsafe extern "C" fn control(fid: *mut Fid, command: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { object::of::<EventQueue>(fid).map_or(-FI_EINVAL, |object| object.waits.control(command, argument)) }
}

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
    let waits = match WaitObject::open(waits) {
        Ok(waits) => waits,
        Err(error) => return error,
    };
    let queue = EventQueue {
        fid: FidEventQueue { fid: Fid { class: FI_CLASS_EQ, context, ops: &BASE }, ops: &OPS },
        users: AtomicUsize::new(0),
        events: Mutex::default(),
        error_data: Mutex::default(),
        moved: Mutex::default(),
        waits,
        _fabric: fabric,
    };
    // SAFETY: as above.
    unsafe { object::open(queue, into) }
}

struct Event {
    kind: Kind,
    bytes: Vec<u8>,
    /// The object whose end removes the event.
    of: *mut Fid,
    /// The connection request that comes with it.
    offered: Option<Offered>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// An event of this number, read as a whole.
    Whole(u32),
    /// An event of this number of which a short read takes a prefix, but no less than the entry.
    Connection(u32),
    Error(c_int),
}

/// A connection request until the application has read its event.
struct Offered {
    info: *mut Info,
    /// From `Box::into_raw`; NULL once it is the application's.
    request: *mut ConnectionRequest,
}

impl Drop for Offered {
    fn drop(&mut self) {
        if self.request.is_null() {
            return;
        }
        // SAFETY: the application was never told of either.
        unsafe {
            drop(Box::from_raw(self.request));
            if let Some(host) = host() {
                host.free_info(self.info);
            }
        }
    }
}

enum MovedHandle {
    Endpoint(NonNull<Endpoint>),
    /// A listener with its passive endpoint, NULL once that is closed.
    Listener(Arc<Listener>, *mut Fid),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic ends the process, so that nobody ever sees the poison.
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl EventQueue {
    /// Adds the end of an operation.
    pub fn push(&self, event: u32, entry: EventEntry) {
        // SAFETY: the entry is plain data without padding.
        let bytes = unsafe { std::slice::from_raw_parts((&raw const entry).cast::<u8>(), size_of::<EventEntry>()) };
        self.add(Event { kind: Kind::Whole(event), bytes: bytes.to_vec(), of: null_mut(), offered: None });
    }

    /// Adds an event of a connection, with the data of the application at the other end.
    pub fn push_connection(&self, event: c_int, fid: *mut Fid, data: &[u8]) {
        self.tell_connection(event, ConnectionEntry { fid, info: null_mut() }, data, None);
    }

    fn tell_connection(&self, event: c_int, entry: ConnectionEntry, data: &[u8], offered: Option<Offered>) {
        let of = entry.fid;
        // SAFETY: the entry is plain data without padding.
        let bytes =
            unsafe { std::slice::from_raw_parts((&raw const entry).cast::<u8>(), size_of::<ConnectionEntry>()) };
        self.add(Event { kind: Kind::Connection(event as u32), bytes: [bytes, data].concat(), of, offered });
    }

    /// Adds the failure of a connection.
    pub fn push_error(&self, error: c_int, fid: *mut Fid, data: &[u8]) {
        self.add(Event { kind: Kind::Error(error), bytes: data.to_vec(), of: fid, offered: None });
    }

    fn add(&self, event: Event) {
        lock(&self.events).push_back(event);
        self.waits.found();
        self.waits.wake();
    }

    /// # Safety
    /// The endpoint stays until [`EventQueue::forget`].
    pub unsafe fn follow(&self, endpoint: NonNull<Endpoint>) {
        lock(&self.moved).push(MovedHandle::Endpoint(endpoint));
    }

    /// `passive` is NULL if only answers go through the listener.
    pub fn follow_listener(&self, listener: Arc<Listener>, passive: *mut Fid) {
        let mut moved = lock(&self.moved);
        let known = |one: &MovedHandle| matches!(one, MovedHandle::Listener(known, _) if Arc::ptr_eq(known, &listener));
        if !moved.iter().any(known) {
            moved.push(MovedHandle::Listener(listener, passive));
        }
    }

    /// Removes the events of an endpoint of either kind that is about to be closed; requests among them are refused.
    pub fn forget(&self, fid: *mut Fid) {
        lock(&self.moved).retain_mut(|one| match one {
            MovedHandle::Endpoint(endpoint) => endpoint.as_ptr().cast() != fid,
            MovedHandle::Listener(_, passive) => {
                if *passive == fid {
                    *passive = null_mut();
                }
                true
            }
        });
        let mut events = lock(&self.events);
        let (gone, left) = std::mem::take(&mut *events).into_iter().partition(|event| event.of == fid);
        *events = left;
        drop(events);
        // Refusals are sent without the lock.
        let gone: VecDeque<Event> = gone;
        drop(gone);
    }

    /// Drops listeners of closed passive endpoints once nobody waits for an answer.
    pub fn prune(&self) {
        lock(&self.moved).retain(|one| match one {
            MovedHandle::Endpoint(_) => true,
            MovedHandle::Listener(listener, passive) => !passive.is_null() || Arc::strong_count(listener) > 1,
        });
    }

    /// Drives all objects; whether there were any.
    fn turn(&self) -> bool {
        let moved = lock(&self.moved);
        for one in &*moved {
            match one {
                // SAFETY: it leaves before it is freed, which this lock keeps from happening now.
                MovedHandle::Endpoint(endpoint) => unsafe {
                    let endpoint = endpoint.as_ref();
                    let _entered = endpoint.domain.enter();
                    endpoint.progress(None);
                },
                MovedHandle::Listener(listener, passive) => {
                    listener.progress();
                    if !passive.is_null() {
                        for (request, data) in listener.requests() {
                            self.offer(*passive, listener, request, &data);
                        }
                    }
                }
            }
        }
        let (any, ending) = (
            !moved.is_empty(),
            moved.iter().any(|one| matches!(one, MovedHandle::Listener(_, passive) if passive.is_null())),
        );
        drop(moved);
        if ending {
            self.prune();
        }
        any
    }

    fn offer(&self, passive: *mut Fid, listener: &Listener, request: Box<ConnectionRequest>, data: &[u8]) {
        let request = Box::into_raw(request);
        let mut offered = Offered { info: null_mut(), request };
        // SAFETY: it was just taken out of its box.
        let Some(info) = (unsafe { info::of_request(&listener.settled, request) }) else { return };
        offered.info = info;
        self.tell_connection(FI_CONNREQ, ConnectionEntry { fid: passive, info }, data, Some(offered));
    }

    /// # Safety
    /// `into` holds `length` bytes, `event` may be written.
    unsafe fn take(&self, event: *mut u32, into: *mut c_void, length: usize, flags: u64) -> Signed {
        let mut events = lock(&self.events);
        let Some(Event { kind, bytes, offered, .. }) = events.front_mut() else { return signed(FI_EAGAIN) };
        let (number, needed) = match *kind {
            Kind::Whole(number) => (number, bytes.len()),
            Kind::Connection(number) => (number, size_of::<ConnectionEntry>()),
            Kind::Error(_) => return signed(FI_EAVAIL),
        };
        if length < needed {
            return signed(FI_ETOOSMALL);
        }
        let taken = bytes.len().min(length);
        // SAFETY: the caller's promise.
        unsafe {
            if !event.is_null() {
                *event = number;
            }
            if taken > 0 && !into.is_null() {
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), into.cast(), taken);
            }
        }
        if flags & PEEK == 0 {
            // The application frees the structure, and answers the request.
            if let Some(offered) = offered {
                offered.request = null_mut();
            }
            events.pop_front();
        }
        taken as Signed
    }

    /// Whether a read would find an event, after a look for new ones.
    pub fn has_events(&self) -> bool {
        if lock(&self.events).is_empty() {
            self.turn();
        }
        !lock(&self.events).is_empty()
    }

    /// Takes an event, after a look for new ones.
    ///
    /// # Safety
    /// As for [`EventQueue::take`].
    unsafe fn look(&self, event: *mut u32, into: *mut c_void, length: usize, flags: u64) -> Signed {
        // SAFETY: the caller's promise.
        unsafe {
            match self.take(event, into, length, flags) {
                nothing if nothing == signed(FI_EAGAIN) && self.turn() => self.take(event, into, length, flags),
                taken => {
                    // The event may be the last answer for which a listener was kept.
                    self.prune();
                    taken
                }
            }
        }
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
            Some(queue) => queue.look(event, into, length, flags),
            None => signed(FI_EINVAL),
        }
    }
}

/// Reads errors, of connections only: address vectors report theirs to the caller.
unsafe extern "C" fn readerr(queue: *mut FidEventQueue, into: *mut EventErrorEntry, flags: u64) -> Signed {
    // SAFETY: libfabric's contract: `into` is good, its data NULL or as long as it says.
    unsafe {
        let (Some(queue), Some(into)) = (object::of::<EventQueue>(queue.cast()), into.as_mut()) else {
            return signed(FI_EINVAL);
        };
        let mut events = lock(&queue.events);
        let Some(Event { kind: Kind::Error(error), of, bytes, .. }) = events.front_mut() else {
            return signed(FI_EAGAIN);
        };
        into.fid = *of;
        into.context = if of.is_null() { null_mut() } else { (**of).context };
        into.data = 0;
        (into.error, into.provider_error) = (*error, *error);
        if into.error_data_size == 0 {
            // Valid until the next error is read.
            let mut kept = lock(&queue.error_data);
            kept.clone_from(bytes);
            (into.error_data, into.error_data_size) = (kept.as_mut_ptr().cast(), kept.len());
        } else {
            let most = bytes.len().min(into.error_data_size);
            if !into.error_data.is_null() {
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), into.error_data.cast(), most);
            }
            into.error_data_size = most;
        }
        if flags & PEEK == 0 {
            events.pop_front();
        }
        size_of::<EventErrorEntry>() as Signed
    }
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
    queue.add(Event { kind: Kind::Whole(event), bytes, of: null_mut(), offered: None });
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
    if queue.waits.is_none() {
        return signed(FI_ENOSYS);
    }
    let mut wait = Wait::new(timeout);
    loop {
        // SAFETY: as above.
        let taken = unsafe { queue.look(event, into, length, flags) };
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
