//! Domains: the parent of an application's objects, with the lock that serializes its threads.

use std::ffi::c_int;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::atomic::AtomicUsize;
use std::sync::{Mutex, MutexGuard};

use endpoint::Settings;

use crate::abi::constants::*;
use crate::abi::info::Info;
use crate::abi::object::{FidDomain, FidFabric};
use crate::account::Account;
use crate::endpoint::Endpoint;
use crate::fabric::Fabric;
use crate::object::{self, Guarded, Object, Used};
use crate::parameters;
use crate::region::Regions;
use crate::trigger::Triggers;

#[repr(C)]
pub struct Domain {
    fid: FidDomain,
    users: AtomicUsize,
    lock: Mutex<()>,
    /// Whether the application serializes its calls itself (FI_THREAD_DOMAIN).
    single: bool,
    /// Whether a call has no lock to take and no account to keep.
    plain: bool,
    /// The lock and the account of the present call. Not in `Entered`, which would be written and read in every plain call.
    held: Guarded<Option<Held>>,
    pub triggers: Triggers,
    pub settings: Settings,
    pub reports: bool,
    /// The folder in which endpoints keep their reports while they are open.
    pub records: Option<PathBuf>,
    /// Present only if asked for: it costs two readings of the clock per call.
    pub account: Option<Account>,
    regions: Guarded<Regions>,
    /// Enabled endpoints, through which peers reach the regions; each leaves before it is freed.
    endpoints: Guarded<Vec<NonNull<Endpoint>>>,
    fabric: Used<Fabric>,
}

// SAFETY: it begins with a `Fid`.
unsafe impl Object for Domain {
    const CLASS: usize = FI_CLASS_DOMAIN;

    fn users(&self) -> &AtomicUsize {
        &self.users
    }
}

/// Exclusive use of the domain's objects by the caller.
pub struct Entered<'a>(&'a Domain);

/// What a call has until its end.
struct Held {
    /// Its start, where an account is kept.
    since: Option<u64>,
    /// Whether the call found nothing.
    in_vain: bool,
    _lock: Option<MutexGuard<'static, ()>>,
}

impl Drop for Entered<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if !self.0.plain || self.0.triggers.any() {
            self.0.finish();
        }
    }
}

impl Entered<'_> {
    /// Notes that the call found nothing.
    #[inline]
    pub fn was_in_vain(&self) {
        // SAFETY: the domain is entered.
        if let Some(held) = unsafe { self.0.held.get() } {
            held.in_vain = true;
        }
    }
}

impl Domain {
    /// Ends a call that needs more than a return, and releases the lock.
    #[inline(never)]
    fn finish(&self) {
        if self.triggers.any() {
            // SAFETY: the domain is entered still, and what the call held of an endpoint's state it uses no more.
            unsafe { self.trigger() };
        }
        // SAFETY: as above.
        let held = unsafe { self.held.get() }.take();
        if let (Some(account), Some(Held { since: Some(since), in_vain, .. })) = (&self.account, &held) {
            account.end(*since, *in_vain);
        }
    }

    #[inline(always)]
    pub fn enter(&self) -> Entered<'_> {
        if !self.plain {
            self.hold();
        }
        Entered(self)
    }

    #[inline(never)]
    fn hold(&self) {
        let since = self.account.as_ref().map(Account::begin);
        // SAFETY: the call ends, and with it the guard, before the domain is closed.
        let lock: &'static Mutex<()> = unsafe { &*std::ptr::from_ref(&self.lock) };
        // A panic ends the process, so that nobody ever sees the poison.
        let lock = || lock.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let held = Held { since, in_vain: false, _lock: (!self.single).then(lock) };
        // SAFETY: the domain is entered now.
        unsafe { *self.held.get() = Some(held) };
    }

    /// The version of the interface that the application was written for.
    pub fn api(&self) -> u32 {
        self.fabric.api()
    }

    /// Whether the application serializes its calls.
    pub fn is_single(&self) -> bool {
        self.single
    }

    /// # Safety
    /// The domain is entered, and no other reference to its regions is in use.
    #[expect(clippy::mut_from_ref, reason = "the domain's lock makes it exclusive")]
    pub unsafe fn regions(&self) -> &mut Regions {
        // SAFETY: the caller's promise.
        unsafe { self.regions.get() }
    }

    /// # Safety
    /// The domain is entered, the endpoint stays until [`Domain::leave`].
    pub unsafe fn join(&self, endpoint: NonNull<Endpoint>) {
        // SAFETY: the caller's promise.
        let endpoints = unsafe { self.endpoints.get() };
        if !endpoints.contains(&endpoint) {
            endpoints.push(endpoint);
        }
    }

    /// # Safety
    /// The domain is entered.
    pub unsafe fn leave(&self, endpoint: NonNull<Endpoint>) {
        // SAFETY: the caller's promise.
        unsafe { self.endpoints.get() }.retain(|&other| other != endpoint);
    }

    /// Lets all endpoints progress.
    ///
    /// # Safety
    /// The domain is entered, and no reference to the state of an endpoint of it is in use.
    pub unsafe fn progress(&self) {
        // SAFETY: the caller's promise; endpoints join and leave in calls of their own.
        unsafe { self.endpoints.get().iter().for_each(|endpoint| endpoint.as_ref().progress(None)) }
    }

    /// Hands all endpoints' sends to the wire.
    ///
    /// # Safety
    /// As for [`Domain::progress`].
    pub unsafe fn hand_over(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.endpoints.get().iter().for_each(|endpoint| endpoint.as_ref().hand_over()) }
    }

    /// Takes a region's memory back from peers: after a return of 0 nothing touches it any more.
    ///
    /// # Safety
    /// The domain is entered, and no reference to the state of an endpoint of it is in use.
    pub unsafe fn revoke(&self, key: u64) -> c_int {
        // SAFETY: the caller's promise; endpoints touch neither table when they revoke.
        unsafe {
            self.regions.get().remove(key);
            let revoked = self.endpoints.get().iter().map(|endpoint| endpoint.as_ref().revoke(key));
            // All endpoints, also after a failure of one.
            revoked.fold(0, |failed, code| if failed == 0 { code } else { failed })
        }
    }

    /// Address of a part of a registered region, if it may be accessed so. Called from within the domain.
    pub fn region(&self, key: u64, offset: u64, length: usize, access: u64) -> Option<*mut u8> {
        // SAFETY: endpoints progress with the domain entered; the reference ends here.
        unsafe { self.regions.get() }.find(key, offset, length, access)
    }

    /// Notes a peer's access to a region. Called from within the domain.
    pub fn accessed(&self, key: u64, access: u64) {
        // SAFETY: as above.
        unsafe { self.regions.get() }.accessed(key, access);
    }
}

/// # Safety
/// `fabric` is open, the rest NULL or good.
pub unsafe fn open(fid: FidDomain, fabric: *mut FidFabric, info: *mut Info, into: *mut *mut FidDomain) -> c_int {
    // SAFETY: the caller's promise.
    let (fabric, manner) = unsafe {
        let Some(fabric) = object::of::<Fabric>(fabric.cast()) else { return -FI_EINVAL };
        let attr = info.as_ref().and_then(|info| info.domain_attr.as_ref());
        let connects = info.as_ref().and_then(|info| info.ep_attr.as_ref()).is_some_and(|attr| attr.kind == FI_EP_MSG);
        let manner = DomainMode {
            // Not for connected endpoints: reads of an event queue, which is no object of the domain, drive them.
            single: attr.is_some_and(|attr| attr.threading == FI_THREAD_DOMAIN) && !connects,
            basic: attr.is_some_and(|attr| attr.mr_mode & FI_MR_BASIC != 0),
        };
        (Used::new(fabric), manner)
    };
    match parameters::settings() {
        // SAFETY: the caller's promise.
        Ok(settings) => unsafe { make(fid, fabric, manner, settings, into) },
        Err(fault) => {
            parameters::complain(&fault);
            -FI_EINVAL
        }
    }
}

/// Properties of a domain.
#[derive(Debug, Clone, Copy, Default)]
pub struct DomainMode {
    /// Whether the application serializes its calls itself (FI_THREAD_DOMAIN).
    pub single: bool,
    /// Whether regions are as in FI_MR_BASIC.
    pub basic: bool,
}

/// # Safety
/// `into` is NULL or good.
pub unsafe fn make(
    fid: FidDomain,
    fabric: Used<Fabric>,
    manner: DomainMode,
    settings: Settings,
    into: *mut *mut FidDomain,
) -> c_int {
    let account = parameters::accounts().then(Account::open);
    let domain = Domain {
        fid,
        users: AtomicUsize::new(0),
        lock: Mutex::new(()),
        single: manner.single,
        plain: manner.single && account.is_none(),
        held: Guarded::new(None),
        settings,
        reports: parameters::reports(),
        records: parameters::records(),
        account,
        regions: Guarded::new(Regions::new(manner.basic)),
        endpoints: Guarded::new(Vec::new()),
        triggers: Triggers::default(),
        fabric,
    };
    // SAFETY: the caller's promise.
    unsafe { object::open(domain, into) }
}
