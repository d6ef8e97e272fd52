//! Poll sets: one call that drives several completion queues and counters, and names those with news.

use std::ffi::c_int;
use std::sync::atomic::AtomicUsize;

use crate::abi::constants::*;
use crate::abi::fid::{Fid, Ops};
use crate::abi::info::PollAttr;
use crate::abi::object::{FidDomain, FidPoll, PollOps};
use crate::completion_queue::CompletionQueue;
use crate::counter::Counter;
use crate::domain::Domain;
use crate::object::{self, Context, Guarded, Object, Used};
use crate::refuse;

#[repr(C)]
pub struct PollSet {
    fid: FidPoll,
    users: AtomicUsize,
    domain: Used<Domain>,
    members: Guarded<Vec<Member>>,
}

enum Member {
    Queue(Used<CompletionQueue>),
    /// A counter, and its successes and errors as the application was last told.
    Counter(Used<Counter>, (u64, u64)),
}

// SAFETY: it begins with a `Fid`.
unsafe impl Object for PollSet {
    const CLASS: usize = FI_CLASS_POLL;

    fn users(&self) -> &AtomicUsize {
        &self.users
    }
}

static BASE: Ops = Ops {
    size: size_of::<Ops>(),
    close: object::close::<PollSet>,
    bind: refuse::bind,
    control: refuse::control,
    ops_open: refuse::ops_open,
    tostr: refuse::tostr,
    ops_set: refuse::ops_set,
};

static OPS: PollOps = PollOps { size: size_of::<PollOps>(), poll, poll_add: add, poll_del: delete };

pub unsafe extern "C" fn open(domain: *mut FidDomain, attr: *mut PollAttr, into: *mut *mut FidPoll) -> c_int {
    // SAFETY: libfabric's contract: the domain is open, the rest NULL or good.
    unsafe {
        let Some(domain) = object::of::<Domain>(domain.cast()) else { return -FI_EINVAL };
        if attr.as_ref().is_some_and(|attr| attr.flags != 0) {
            return -FI_EINVAL;
        }
        let fid = Fid { class: FI_CLASS_POLL, context: std::ptr::null_mut(), ops: &BASE };
        let set = PollSet {
            fid: FidPoll { fid, ops: &OPS },
            users: AtomicUsize::new(0),
            domain: Used::new(domain),
            members: Guarded::default(),
        };
        object::open(set, into)
    }
}

impl Member {
    /// # Safety
    /// `fid` is NULL or an open object. The domain is entered.
    unsafe fn of(fid: *const Fid, domain: &Used<Domain>) -> Option<Member> {
        // SAFETY: the caller's promise.
        unsafe {
            let member = match (object::of::<CompletionQueue>(fid), object::of::<Counter>(fid)) {
                (Some(queue), _) => Member::Queue(Used::new(queue)),
                (_, Some(counter)) => Member::Counter(Used::new(counter), counter.standing()),
                _ => return None,
            };
            let of = match &member {
                Member::Queue(queue) => queue.domain(),
                Member::Counter(counter, _) => counter.domain(),
            };
            (of.as_ptr() == domain.as_ptr()).then_some(member)
        }
    }

    fn fid(&self) -> *mut Fid {
        match self {
            Member::Queue(queue) => queue.as_ptr().cast(),
            Member::Counter(counter, _) => counter.as_ptr().cast(),
        }
    }

    /// Drives the member; whether it has news.
    ///
    /// # Safety
    /// The domain is entered.
    unsafe fn has_news(&mut self) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Member::Queue(queue) => queue.fill(),
                Member::Counter(counter, told) => {
                    counter.turn();
                    std::mem::replace(told, counter.standing()) != *told
                }
            }
        }
    }
}

/// Writes the contexts of members with news, at most `count`; members not reached keep theirs for the next call.
unsafe extern "C" fn poll(fid: *mut FidPoll, contexts: *mut Context, count: c_int) -> c_int {
    // SAFETY: libfabric's contract: an open set, an array of `count`.
    unsafe {
        let Some(set) = object::of::<PollSet>(fid.cast()) else { return -FI_EINVAL };
        let _entered = set.domain.enter();
        let mut told = 0;
        for member in set.members.get() {
            if told >= count {
                break;
            }
            if member.has_news() {
                *contexts.add(told as usize) = (*member.fid()).context;
                told += 1;
            }
        }
        told
    }
}

unsafe extern "C" fn add(fid: *mut FidPoll, other: *mut Fid, flags: u64) -> c_int {
    // SAFETY: libfabric's contract: an open set, an open object.
    unsafe {
        let Some(set) = object::of::<PollSet>(fid.cast()) else { return -FI_EINVAL };
        if flags != 0 {
            return -FI_EBADFLAGS;
        }
        let _entered = set.domain.enter();
        let Some(member) = Member::of(other, &set.domain) else { return -FI_EINVAL };
        let members = set.members.get();
        if members.iter().any(|known| known.fid() == other) {
            return -FI_EALREADY;
        }
        members.push(member);
        0
    }
}

unsafe extern "C" fn delete(fid: *mut FidPoll, other: *mut Fid, flags: u64) -> c_int {
    // SAFETY: as above.
    unsafe {
        let Some(set) = object::of::<PollSet>(fid.cast()) else { return -FI_EINVAL };
        if flags != 0 {
            return -FI_EBADFLAGS;
        }
        let _entered = set.domain.enter();
        let members = set.members.get();
        let Some(at) = members.iter().position(|member| member.fid() == other) else { return -FI_EINVAL };
        members.remove(at);
        0
    }
}
