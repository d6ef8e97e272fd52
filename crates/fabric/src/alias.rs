//! Aliases of endpoints (FI_ALIAS): a shell with default flags of its own around the endpoint, whose tables of calls it shares.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::abi::constants::*;
use crate::abi::object::FidEndpoint;
use crate::abi::trigger::AliasAttr;
use crate::endpoint::Endpoint;
use crate::object::{self, Object, Used, given};

/// What calls of an endpoint are given: the beginning of the endpoint, or an alias.
#[repr(C)]
pub struct Shell {
    pub fid: FidEndpoint,
    users: AtomicUsize,
    alias: Option<Alias>,
}

struct Alias {
    /// It stays open as long as this.
    of: Used<Endpoint>,
    /// Of sends and of receives.
    flags: [AtomicU64; 2],
}

// SAFETY: it begins with a `Fid`.
unsafe impl Object for Shell {
    const CLASS: usize = FI_CLASS_EP;

    fn users(&self) -> &AtomicUsize {
        &self.users
    }
}

pub const SENDS: usize = 0;
pub const RECEIVES: usize = 1;

const DIRECTIONS: u64 = FI_SEND | FI_RECV;

/// Which flags are meant.
pub fn direction(flags: u64) -> Option<usize> {
    match flags & DIRECTIONS {
        FI_SEND => Some(SENDS),
        FI_RECV => Some(RECEIVES),
        _ => None,
    }
}

impl Shell {
    /// Of an endpoint, which begins with it.
    pub fn new(fid: FidEndpoint) -> Shell {
        Shell { fid, users: AtomicUsize::new(0), alias: None }
    }

    /// # Safety
    /// `fid` is an endpoint, an alias or a shared context, and open.
    #[inline(always)]
    pub unsafe fn of<'a>(fid: *const FidEndpoint) -> &'a Shell {
        // SAFETY: the caller's promise: each begins with a shell.
        unsafe { &*fid.cast::<Shell>() }
    }

    /// # Safety
    /// As for [`Shell::of`].
    #[inline(always)]
    pub unsafe fn endpoint<'a>(fid: *const FidEndpoint) -> &'a Endpoint {
        // SAFETY: the caller's promise: what is no alias is an endpoint.
        unsafe {
            match &Shell::of(fid).alias {
                None => &*fid.cast::<Endpoint>(),
                Some(alias) => &alias.of,
            }
        }
    }

    pub fn is_alias(&self) -> bool {
        self.alias.is_some()
    }

    /// The flags of an alias; `None` of an endpoint, which has its own.
    #[inline(always)]
    pub fn flags(&self, which: usize) -> Option<u64> {
        self.alias.as_ref().map(|alias| alias.flags[which].load(Ordering::Relaxed))
    }

    /// Reads or sets the flags of an alias (FI_GETOPSFLAG, FI_SETOPSFLAG); `false` of an endpoint.
    pub fn control_flags(&self, command: c_int, which: usize, flags: &mut u64) -> bool {
        let Some(alias) = &self.alias else { return false };
        match command {
            FI_GETOPSFLAG => *flags = alias.flags[which].load(Ordering::Relaxed),
            _ => alias.flags[which].store(*flags & !DIRECTIONS, Ordering::Relaxed),
        }
        true
    }

    /// Opens an alias of `endpoint`, whose shell or alias this is, and whose flags are `usual`.
    ///
    /// # Safety
    /// The endpoint is open; `attr` is NULL or good.
    pub unsafe fn open_alias(&self, endpoint: &Endpoint, usual: [u64; 2], attr: *const AliasAttr) -> c_int {
        // SAFETY: the caller's promise.
        unsafe {
            let Some(attr) = given(attr) else { return -FI_EINVAL };
            let Some(which) = direction(attr.flags) else { return -FI_EINVAL };
            let mut flags = [SENDS, RECEIVES].map(|which| self.flags(which).unwrap_or(usual[which]));
            flags[which] = attr.flags & !DIRECTIONS;
            let alias = Alias { of: Used::new(endpoint), flags: flags.map(AtomicU64::new) };
            object::open(Shell { alias: Some(alias), ..Shell::new(self.fid) }, attr.fid)
        }
    }
}
