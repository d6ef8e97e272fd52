//! Receives of messages.

use std::ffi::c_void;

use endpoint::{Source, Space, TagSelector};

use crate::abi::constants::*;
use crate::abi::object::{Fid, FidEndpoint};
use crate::abi::transfer::{Message, TaggedMessage};
use crate::abi::{Address, Iovec, Signed};
use crate::endpoint::{Endpoint, NOBODY, Sources, State};
use crate::memory::{Memory, wish};
use crate::object::{self, Context};
use crate::offer::LONGEST;
use crate::refuse::signed;
use crate::send::{pieces, total};

impl State {
    /// Whose messages a receive takes; `None` for an address that is nobody's, and where there is no peer yet.
    #[inline]
    pub fn source(&self, from: Address) -> Option<Source> {
        match self.sources {
            Sources::Anybody => Some(Source::Any),
            Sources::Given if from == FI_ADDR_UNSPEC => Some(Source::Any),
            Sources::Given => self.peer(from).map(Source::Peer),
            Sources::Connected => self.connected_source(),
        }
    }

    /// Memory of a receive; the error otherwise.
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
        let Some(source) = source else { return self.hold(selector, memory, context) };
        let Some(engine) = &mut self.engine else { return self.post_shared(selector, memory, context) };
        match engine.receive(source, selector, memory, context as u64) {
            Ok(_) => 0,
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
        let endpoint = Endpoint::of(ep);
        let _entered = endpoint.domain.enter();
        let state = endpoint.state();
        let flags = flags.map_or(state.receive_flags, |flags| flags | state.always_received);
        state.receive(pieces, from, selector, context, wishes, flags)
    }
}

/// The same, where it is not what most programs call: not compiled into each of its callers.
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

pub unsafe extern "C" fn trecvmsg(ep: *mut FidEndpoint, message: *const TaggedMessage, flags: u64) -> Signed {
    // SAFETY: as above.
    unsafe {
        let Some(message) = message.as_ref() else { return signed(FI_EINVAL) };
        if flags & (FI_PEEK | FI_CLAIM | FI_DISCARD) != 0 {
            let endpoint = Endpoint::of(ep);
            let _entered = endpoint.domain.enter();
            return endpoint.state().look(message, flags);
        }
        let Some(pieces) = pieces(message.iov, message.iov_count) else { return signed(FI_EINVAL) };
        let selector = tagged(message.tag, message.ignore);
        start_listed(ep, pieces, message.addr, selector, message.context, wish::TAGGED, Some(flags))
    }
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

pub unsafe extern "C" fn recvmsg(ep: *mut FidEndpoint, message: *const Message, flags: u64) -> Signed {
    // SAFETY: as above.
    unsafe {
        let Some(message) = message.as_ref() else { return signed(FI_EINVAL) };
        if flags & (FI_PEEK | FI_CLAIM | FI_DISCARD) != 0 {
            return signed(FI_EBADFLAGS);
        }
        let Some(pieces) = pieces(message.iov, message.iov_count) else { return signed(FI_EINVAL) };
        start_listed(ep, pieces, message.addr, plain(), message.context, 0, Some(flags))
    }
}

pub unsafe extern "C" fn cancel(fid: *mut Fid, context: *mut c_void) -> Signed {
    // SAFETY: as above.
    unsafe {
        let Some(endpoint) = object::of::<Endpoint>(fid) else { return signed(FI_EINVAL) };
        let _entered = endpoint.domain.enter();
        let state = endpoint.state();
        if state.cancel_held(context) {
            return 0;
        }
        let Some(engine) = &mut state.engine else { return signed(FI_EOPBADSTATE) };
        match engine.cancel_context(context as u64) {
            Ok(true) => 0,
            Ok(false) => signed(FI_ENOENT),
            Err(fault) => state.fail(&fault),
        }
    }
}
