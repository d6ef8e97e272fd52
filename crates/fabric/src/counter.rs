//! Counters of operations that have ended.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::abi::constants::*;
use crate::abi::fid::{Fid, Ops};
use crate::abi::info::CounterAttr;
use crate::abi::object::{CounterOps, FidCounter, FidDomain};
use crate::domain::Domain;
use crate::endpoint::Endpoint;
use crate::object::{self, Guarded, Object, Used};
use crate::refuse;
use crate::wait_object::WaitObject;
use crate::waiting::Wait;

#[repr(C)]
pub struct Counter {
    fid: FidCounter,
    users: AtomicUsize,
    domain: Used<Domain>,
    pub waits: WaitObject,
    /// What was there when its news were last asked for.
    seen: Mutex<(u64, u64)>,
    value: AtomicU64,
    errors: AtomicU64,
    counted: Guarded<Counted>,
}

/// Endpoints whose operations are counted.
#[derive(Default)]
struct Counted {
    /// Bound endpoints; each leaves before it is freed.
    endpoints: Vec<NonNull<Endpoint>>,
    /// Whether any endpoint of the domain may cause counts: a region was bound, or deferred work names the counter.
    everywhere: bool,
}

// SAFETY: it begins with a `Fid`.
unsafe impl Object for Counter {
    const CLASS: usize = FI_CLASS_CNTR;

    fn users(&self) -> &AtomicUsize {
        &self.users
    }
}

static BASE: Ops = Ops {
    size: size_of::<Ops>(),
    close: object::close::<Counter>,
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
    unsafe { object::of::<Counter>(fid).map_or(-FI_EINVAL, |object| object.waits.control(command, argument)) }
}

static OPS: CounterOps = CounterOps { size: size_of::<CounterOps>(), read, readerr, add, set, wait, adderr, seterr };

pub unsafe extern "C" fn open(
    domain: *mut FidDomain,
    attr: *mut CounterAttr,
    into: *mut *mut FidCounter,
    context: *mut c_void,
) -> c_int {
    // SAFETY: libfabric's contract: the domain is open, the rest NULL or good.
    let (domain, waits, events) = unsafe {
        let Some(domain) = object::of::<Domain>(domain.cast()) else { return -FI_EINVAL };
        let attr = attr.as_ref();
        (Used::new(domain), attr.map_or(FI_WAIT_UNSPEC, |attr| attr.wait_obj), attr.map_or(0, |attr| attr.events))
    };
    if events != 0 {
        return -FI_ENOSYS;
    }
    let waits = match WaitObject::open(waits) {
        Ok(waits) => waits,
        Err(error) => return error,
    };
    let counter = Counter {
        fid: FidCounter { fid: Fid { class: FI_CLASS_CNTR, context, ops: &BASE }, ops: &OPS },
        users: AtomicUsize::new(0),
        domain,
        waits,
        seen: Mutex::default(),
        value: AtomicU64::new(0),
        errors: AtomicU64::new(0),
        counted: Guarded::default(),
    };
    // SAFETY: as above.
    unsafe { object::open(counter, into) }
}

impl Counter {
    pub fn count(&self, failed: bool) {
        let counter = if failed { &self.errors } else { &self.value };
        counter.fetch_add(1, Ordering::Release);
    }

    /// # Safety
    /// The domain is entered, the endpoint stays until [`Counter::leave`].
    pub unsafe fn join(&self, endpoint: NonNull<Endpoint>) {
        // SAFETY: the caller's promise.
        let endpoints = unsafe { &mut self.counted.get().endpoints };
        if !endpoints.contains(&endpoint) {
            endpoints.push(endpoint);
        }
    }

    /// # Safety
    /// The domain is entered.
    pub unsafe fn leave(&self, endpoint: NonNull<Endpoint>) {
        // SAFETY: the caller's promise.
        unsafe { self.counted.get() }.endpoints.retain(|&other| other != endpoint);
    }

    /// # Safety
    /// The domain is entered.
    pub unsafe fn count_everywhere(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.counted.get() }.everywhere = true;
    }

    /// # Safety
    /// The domain is entered.
    pub unsafe fn counts_everywhere(&self) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.counted.get() }.everywhere
    }

    pub fn domain(&self) -> &Used<Domain> {
        &self.domain
    }

    /// Numbers of successes and errors.
    pub fn standing(&self) -> (u64, u64) {
        (self.value.load(Ordering::SeqCst), self.errors.load(Ordering::SeqCst))
    }

    /// Lets those endpoints progress whose operations are counted.
    ///
    /// # Safety
    /// The domain is entered, and no reference to the state of an endpoint of it is in use.
    pub unsafe fn turn(&self) {
        // SAFETY: the caller's promise; progress does not touch counters' lists, and the endpoints are open.
        unsafe {
            let Counted { endpoints, everywhere } = self.counted.get();
            if *everywhere {
                return self.domain.progress();
            }
            for endpoint in endpoints {
                endpoint.as_ref().progress(None);
            }
        }
    }

    pub fn add(&self, value: u64) {
        self.value.fetch_add(value, Ordering::SeqCst);
    }

    pub fn set(&self, value: u64) {
        self.value.store(value, Ordering::SeqCst);
    }

    /// After a change by the application: triggered work is done before the call returns.
    fn changed(&self) -> c_int {
        if self.domain.triggers.any() {
            drop(self.domain.enter());
        }
        0
    }

    /// Whether it has changed since it was last asked this, after a look for new operations.
    pub fn has_news(&self) -> bool {
        self.enter_and_turn();
        // A panic ends the process, so that nobody ever sees the poison.
        let mut seen = self.seen.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let standing = self.standing();
        let news = std::mem::replace(&mut *seen, standing) != standing;
        if news {
            self.waits.found();
        }
        news
    }

    fn enter_and_turn(&self) {
        let _entered = self.domain.enter();
        // SAFETY: the domain has just been entered.
        unsafe { self.turn() }
    }
}

/// Counts an operation in the counters bound for it.
#[inline]
pub fn count(counters: &[(Used<Counter>, u64)], what: u64, failed: bool) {
    if !counters.is_empty() {
        count_in(counters, what, failed);
    }
}

#[inline(never)]
fn count_in(counters: &[(Used<Counter>, u64)], what: u64, failed: bool) {
    for (counter, counted) in counters {
        if counted & what != 0 {
            counter.count(failed);
        }
    }
}

/// Calls `act` with the counter.
unsafe fn with<T>(fid: *mut FidCounter, otherwise: T, act: impl FnOnce(&Counter) -> T) -> T {
    // SAFETY: libfabric's contract.
    unsafe { object::of::<Counter>(fid.cast()) }.map_or(otherwise, act)
}

unsafe extern "C" fn read(fid: *mut FidCounter) -> u64 {
    // SAFETY: libfabric's contract, as in all below.
    unsafe {
        with(fid, 0, |counter| {
            counter.enter_and_turn();
            counter.value.load(Ordering::Acquire)
        })
    }
}

unsafe extern "C" fn readerr(fid: *mut FidCounter) -> u64 {
    // SAFETY: as above.
    unsafe {
        with(fid, 0, |counter| {
            counter.enter_and_turn();
            counter.errors.load(Ordering::Acquire)
        })
    }
}

unsafe extern "C" fn add(fid: *mut FidCounter, value: u64) -> c_int {
    // SAFETY: as above.
    unsafe {
        with(fid, -FI_EINVAL, |counter| {
            counter.add(value);
            counter.changed()
        })
    }
}

unsafe extern "C" fn set(fid: *mut FidCounter, value: u64) -> c_int {
    // SAFETY: as above.
    unsafe {
        with(fid, -FI_EINVAL, |counter| {
            counter.set(value);
            counter.changed()
        })
    }
}

unsafe extern "C" fn adderr(fid: *mut FidCounter, value: u64) -> c_int {
    // SAFETY: as above.
    unsafe {
        with(fid, -FI_EINVAL, |counter| {
            counter.errors.fetch_add(value, Ordering::SeqCst);
            counter.changed()
        })
    }
}

unsafe extern "C" fn seterr(fid: *mut FidCounter, value: u64) -> c_int {
    // SAFETY: as above.
    unsafe {
        with(fid, -FI_EINVAL, |counter| {
            counter.errors.store(value, Ordering::SeqCst);
            counter.changed()
        })
    }
}

/// Waits until the value is at least `threshold`. An error that is counted meanwhile ends the wait too. The wait is a poll and
/// needs no wait object.
unsafe extern "C" fn wait(fid: *mut FidCounter, threshold: u64, timeout: c_int) -> c_int {
    // SAFETY: as above.
    unsafe {
        with(fid, -FI_EINVAL, |counter| {
            let errors = counter.errors.load(Ordering::Acquire);
            let mut wait = Wait::new(timeout);
            loop {
                counter.enter_and_turn();
                if counter.value.load(Ordering::Acquire) >= threshold {
                    return 0;
                }
                if counter.errors.load(Ordering::Acquire) != errors {
                    return -FI_EAVAIL;
                }
                if !wait.goes_on() {
                    return -libc::ETIMEDOUT;
                }
            }
        })
    }
}
