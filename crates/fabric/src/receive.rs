//! Receives of messages.

use std::ffi::c_void;
use std::ptr::NonNull;

use endpoint::{Source, Space, TagSelector};

use crate::abi::constants::*;
use crate::abi::fid::Fid;
use crate::abi::object::FidEndpoint;
use crate::abi::transfer::{Message, TaggedMessage};
use crate::abi::trigger::DeferredWork;
use crate::abi::{Address, Iovec, Signed};
use crate::endpoint::{Endpoint, NOBODY, RECEIVES, Shell, Sources, State};
use crate::memory::{Memory, pieces, total, wish};
use crate::object::Context;
use crate::offer::LONGEST;
use crate::refuse::signed;
use crate::shared::Posted;
use crate::trigger::{self, Asked};

/// Flags of receives that look at arrived messages.
const PEEK_FLAGS: u64 = FI_PEEK | FI_CLAIM | FI_DISCARD;

impl State {
    /// The source of a receive; `None` for an unknown address, and while there is no peer.
    #[inline]
    pub fn source(&self, from: Address) -> Option<Source> {
        match self.sources {
            Sources::Anybody => Some(Source::Any),
            Sources::Given if from == FI_ADDR_UNSPEC => Some(Source::Any),
            Sources::Given => self.peer(from).map(Source::Peer),
            Sources::Connected => self.connected_source(),
        }
    }

    /// Memory of a receive, or the error.
    ///
    /// # Safety
    /// The pieces stay, and are left alone, until the receive's completion.
    #[inline(always)]
    pub unsafe fn landing(&self, pieces: &[Iovec], wishes: u8, flags: u64) -> Result<Memory, Signed> {
        let Some(length) = total(pieces) else { return Err(signed(FI_EINVAL)) };
        if length > LONGEST {
            return Err(signed(FI_EMSGSIZE));
        }
        let completion = if flags & FI_COMPLETION != 0 { wish::COMPLETION } else { 0 };
        // SAFETY: the caller's promise.
        Ok(unsafe { Memory::scattered(pieces, wishes | completion) })
    }

    /// # Safety
    /// As for [`State::landing`].
    #[inline(always)]
    unsafe fn receive(
        &mut self,
        pieces: &[Iovec],
        from: Address,
        selector: TagSelector,
        context: Context,
        wishes: u8,
        flags: u64,
    ) -> Signed {
        let source = self.source(from);
        if source.is_none() && self.sources != Sources::Connected {
            return signed(FI_EINVAL);
        }
        // SAFETY: the caller's promise.
        let mut memory = match unsafe { self.landing(pieces, wishes, flags) } {
            Ok(memory) => memory,
            Err(error) => return error,
        };
        memory.defer(&mut self.deferred.posted);
        if flags & FI_MULTI_RECV != 0 && wishes & wish::TAGGED == 0 {
            if pieces.len() != 1 || memory.length() < self.min_multi_recv {
                return signed(FI_EINVAL);
            }
            memory.wishes |= wish::MULTIPLE;
            memory.source = match source {
                Some(Source::Peer(peer)) => peer.0,
                _ => NOBODY,
            };
        }
        let Some(source) = source else { return self.hold((selector, memory, context)) };
        if self.engine.is_none() {
            return self.post_shared(Posted { selector, memory, context });
        }
        match self.post(source, selector, memory, context as u64) {
            Ok(()) => 0,
            Err(fault) => self.fail(&fault),
        }
    }
}

/// # Safety
/// libfabric's contract: an open endpoint, pieces that stay until the completion.
#[inline(always)]
unsafe fn start(
    ep: *mut FidEndpoint,
    pieces: &[Iovec],
    from: Address,
    selector: TagSelector,
    context: Context,
    wishes: u8,
    flags: Option<u64>,
) -> Signed {
    // SAFETY: the caller's promise; the domain is entered before the state is touched.
    unsafe {
        let shell = Shell::of(ep);
        if flags.is_none() && shell.is_alias() {
            let selector = TagSelector::masked(selector.tag(), selector.mask()).within(selector.space());
            return start_of_alias(ep, pieces, from, selector, context, shell.flags(RECEIVES));
        }
        let endpoint = Endpoint::of(ep);
        let _entered = endpoint.domain.enter();
        let state = endpoint.state();
        let flags = flags.map_or_else(|| shell.flags(RECEIVES), |flags| flags | state.always_received);
        state.receive(pieces, from, selector, context, wishes, flags)
    }
}

/// Starts a receive with the flags of an alias, as a message with flags.
///
/// # Safety
/// As for [`start`].
#[cold]
#[inline(never)]
unsafe fn start_of_alias(
    ep: *mut FidEndpoint,
    pieces: &[Iovec],
    addr: Address,
    selector: TagSelector,
    context: Context,
    flags: u64,
) -> Signed {
    let (iov, iov_count, desc, data) = (pieces.as_ptr(), pieces.len(), std::ptr::null_mut(), 0);
    // SAFETY: the caller's promise.
    unsafe {
        if selector.space() != Space::Tagged {
            return receive_message(ep, &Message { iov, desc, iov_count, addr, context, data }, flags, None);
        }
        let (tag, ignore) = (selector.tag(), !selector.mask());
        receive_tagged(ep, &TaggedMessage { iov, desc, iov_count, addr, tag, ignore, context, data }, flags, None)
    }
}

/// Starts a receive of a rarer kind: out of line, not compiled into each of its callers.
///
/// # Safety
/// As for [`start`].
#[inline(never)]
unsafe fn start_listed(
    ep: *mut FidEndpoint,
    pieces: &[Iovec],
    from: Address,
    selector: TagSelector,
    context: Context,
    wishes: u8,
    flags: Option<u64>,
) -> Signed {
    // SAFETY: the caller's promise.
    unsafe { start(ep, pieces, from, selector, context, wishes, flags) }
}

/// Starts a receive with flags of its own, which may have it wait for a counter.
///
/// # Safety
/// As for [`start`]; the work is as fi_trigger(3) wants it.
unsafe fn start_given(
    ep: *mut FidEndpoint,
    pieces: &[Iovec],
    from: Address,
    selector: TagSelector,
    context: Context,
    flags: u64,
    work: Option<&DeferredWork>,
) -> Signed {
    let (wishes, kind) = match selector.space() {
        Space::Tagged => (wish::TAGGED, FI_TAGGED),
        _ => (0, FI_MSG),
    };
    if flags & FI_TRIGGER == 0 {
        // SAFETY: the caller's promise.
        return unsafe { start_listed(ep, pieces, from, selector, context, wishes, Some(flags)) };
    }
    if total(pieces).is_none() {
        return signed(FI_EINVAL);
    }
    let pieces = pieces.to_vec();
    // SAFETY: the caller's promise, until the receive has ended.
    let post = move |state: &mut State| unsafe {
        state.receive(&pieces, from, selector, context, wishes, flags | state.always_received)
    };
    let asked = Asked { to: from, context, flags, kind: FI_RECV | kind, work };
    // SAFETY: the caller's promise.
    unsafe { trigger::wait(ep, &asked, post) }
}

#[inline(always)]
fn flat(buffer: *mut c_void, length: usize) -> [Iovec; 1] {
    [Iovec { base: buffer, length }]
}

#[inline(always)]
pub fn tagged(tag: u64, ignore: u64) -> TagSelector {
    TagSelector::masked(tag, !ignore)
}

#[inline(always)]
fn plain() -> TagSelector {
    TagSelector::any().within(Space::Message)
}

pub unsafe extern "C" fn trecv(
    ep: *mut FidEndpoint,
    buffer: *mut c_void,
    length: usize,
    _desc: *mut c_void,
    from: Address,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> Signed {
    // SAFETY: libfabric's contract, as in all below.
    unsafe { start(ep, &flat(buffer, length), from, tagged(tag, ignore), context, wish::TAGGED, None) }
}

pub unsafe extern "C" fn trecvv(
    ep: *mut FidEndpoint,
    list: *const Iovec,
    _desc: *mut *mut c_void,
    count: usize,
    from: Address,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> Signed {
    // SAFETY: as above.
    unsafe {
        let Some(pieces) = pieces(list, count) else { return signed(FI_EINVAL) };
        start_listed(ep, pieces, from, tagged(tag, ignore), context, wish::TAGGED, None)
    }
}

/// # Safety
/// As for [`start_given`]; the message is good.
pub unsafe fn receive_tagged(
    ep: *mut FidEndpoint,
    message: &TaggedMessage,
    flags: u64,
    work: Option<&DeferredWork>,
) -> Signed {
    // SAFETY: the caller's promise.
    unsafe {
        if flags & PEEK_FLAGS != 0 {
            if flags & FI_TRIGGER != 0 {
                return signed(FI_EBADFLAGS);
            }
            let endpoint = Endpoint::of(ep);
            let _entered = endpoint.domain.enter();
            return endpoint.state().look(message, flags);
        }
        let Some(pieces) = pieces(message.iov, message.iov_count) else { return signed(FI_EINVAL) };
        let selector = tagged(message.tag, message.ignore);
        start_given(ep, pieces, message.addr, selector, message.context, flags, work)
    }
}

pub unsafe extern "C" fn trecvmsg(ep: *mut FidEndpoint, message: *const TaggedMessage, flags: u64) -> Signed {
    // SAFETY: as above.
    unsafe { message.as_ref().map_or(signed(FI_EINVAL), |message| receive_tagged(ep, message, flags, None)) }
}

pub unsafe extern "C" fn recv(
    ep: *mut FidEndpoint,
    buffer: *mut c_void,
    length: usize,
    _desc: *mut c_void,
    from: Address,
    context: *mut c_void,
) -> Signed {
    // SAFETY: as above.
    unsafe { start(ep, &flat(buffer, length), from, plain(), context, 0, None) }
}

pub unsafe extern "C" fn recvv(
    ep: *mut FidEndpoint,
    list: *const Iovec,
    _desc: *mut *mut c_void,
    count: usize,
    from: Address,
    context: *mut c_void,
) -> Signed {
    // SAFETY: as above.
    unsafe {
        let Some(pieces) = pieces(list, count) else { return signed(FI_EINVAL) };
        start_listed(ep, pieces, from, plain(), context, 0, None)
    }
}

/// # Safety
/// As for [`receive_tagged`].
pub unsafe fn receive_message(
    ep: *mut FidEndpoint,
    message: &Message,
    flags: u64,
    work: Option<&DeferredWork>,
) -> Signed {
    // SAFETY: the caller's promise.
    unsafe {
        if flags & PEEK_FLAGS != 0 {
            return signed(FI_EBADFLAGS);
        }
        let Some(pieces) = pieces(message.iov, message.iov_count) else { return signed(FI_EINVAL) };
        start_given(ep, pieces, message.addr, plain(), message.context, flags, work)
    }
}

pub unsafe extern "C" fn recvmsg(ep: *mut FidEndpoint, message: *const Message, flags: u64) -> Signed {
    // SAFETY: as above.
    unsafe { message.as_ref().map_or(signed(FI_EINVAL), |message| receive_message(ep, message, flags, None)) }
}

pub unsafe extern "C" fn cancel(fid: *mut Fid, context: *mut c_void) -> Signed {
    // SAFETY: as above.
    unsafe {
        let Some(endpoint) = Endpoint::given(fid) else { return signed(FI_EINVAL) };
        let _entered = endpoint.domain.enter();
        if endpoint.domain.triggers.cancel(NonNull::from(endpoint), context) {
            return 0;
        }
        let state = endpoint.state();
        if state.cancel_held(context) {
            return 0;
        }
        match state.cancel_waiting(context) {
            Ok(true) => return 0,
            Ok(false) => {}
            Err(fault) => return state.fail_for_now(&fault),
        }
        let Some(engine) = &mut state.engine else { return signed(FI_EOPBADSTATE) };
        match engine.cancel_context(context as u64) {
            Ok(true) => 0,
            Ok(false) => signed(FI_ENOENT),
            Err(fault) => state.fail_for_now(&fault),
        }
    }
}
