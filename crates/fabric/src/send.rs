//! Sends of messages, and the tables of both kinds of messages.

use std::ffi::c_void;

use endpoint::{Label, Space};
use machine::PeerIndex;

use crate::abi::constants::*;
use crate::abi::object::{FidEndpoint, MessageOps, TaggedOps};
use crate::abi::transfer::{Message, TaggedMessage};
use crate::abi::trigger::DeferredWork;
use crate::abi::{Address, Iovec, Signed};
use crate::endpoint::{Endpoint, NOBODY, SENDS, Shell, State};
use crate::memory::{Memory, pieces, total, wish};
use crate::object::Context;
use crate::offer::{CONFIRMED, INJECT, LONGEST, UNKEPT};
use crate::progress::sent;
use crate::receive;
use crate::refuse::signed;
use crate::trigger::{self, Asked};

pub static MESSAGE: MessageOps = MessageOps {
    size: size_of::<MessageOps>(),
    recv: receive::recv,
    recvv: receive::recvv,
    recvmsg: receive::recvmsg,
    send,
    sendv,
    sendmsg,
    inject,
    senddata,
    injectdata,
};

pub static TAGGED: TaggedOps = TaggedOps {
    size: size_of::<TaggedOps>(),
    recv: receive::trecv,
    recvv: receive::trecvv,
    recvmsg: receive::trecvmsg,
    send: tsend,
    sendv: tsendv,
    sendmsg: tsendmsg,
    inject: tinject,
    senddata: tsenddata,
    injectdata: tinjectdata,
};

impl State {
    /// Sends the pieces as one message.
    ///
    /// # Safety
    /// The pieces stay, and are left alone, as libfabric's contract has it for these flags.
    #[inline(never)]
    unsafe fn send(&mut self, pieces: &[Iovec], to: Address, label: Label, context: Context, flags: u64) -> Signed {
        let Some(peer) = self.peer(to) else { return self.nobody() };
        let Some(length) = total(pieces) else { return signed(FI_EINVAL) };
        let Some(engine) = &mut self.engine else { return signed(FI_EOPBADSTATE) };
        let mut wishes = if label.space == Space::Tagged { wish::TAGGED } else { 0 };
        if flags & FI_COMPLETION != 0 {
            wishes |= wish::COMPLETION;
        } else if context.is_null() {
            wishes |= wish::NAMELESS;
        }
        let confirmed = flags & CONFIRMED != 0;
        if let [only] = pieces
            && !confirmed
            && (flags & FI_INJECT == 0 || length <= INJECT)
        {
            let start = if length == 0 { std::ptr::dangling() } else { only.base.cast_const().cast::<u8>() };
            // SAFETY: the caller's promise; no length is over the limit of slices, since no memory is.
            let bytes = unsafe { std::slice::from_raw_parts(start, length.min(LONGEST)) };
            match engine.inject(peer, label, bytes) {
                Ok(true) => return self.has_sent(context, wishes, length, label.tag),
                Ok(false) => {}
                Err(fault) => return self.fail(&fault),
            }
        }
        if length > LONGEST || (flags & FI_INJECT != 0 && length > INJECT) {
            return signed(FI_EMSGSIZE);
        }
        if self.lost.contains(&peer) {
            return signed(FI_ECONNRESET);
        }
        // SAFETY: the caller's promise.
        let mut memory = unsafe { Memory::scattered(pieces, wishes) };
        memory.defer(&mut self.deferred.posted);
        if flags & FI_INJECT != 0 {
            let mut copy = vec![0; length];
            engine::Buffer::read(&memory, 0, &mut copy);
            memory = Memory::owned(copy, wishes);
        }
        let request = if confirmed {
            engine.send_confirmed(peer, label, memory, context as u64)
        } else {
            engine.send(peer, label, memory, context as u64)
        };
        match request.and_then(|_| engine.flush_first()) {
            Ok(()) => 0,
            Err(fault) => self.fail(&fault),
        }
    }

    /// Tells of a send that has ended in its call.
    #[inline(always)]
    fn has_sent(&self, context: Context, wishes: u8, length: usize, tag: u64) -> Signed {
        if wishes & wish::COMPLETION != 0
            && let Some(queue) = &self.sends
        {
            // SAFETY: the domain is entered.
            unsafe { queue.push(sent(context, wishes, length, tag), FI_ADDR_NOTAVAIL) };
        }
        self.count(FI_SEND, false);
        0
    }
}

/// The flags of a call.
#[derive(Clone, Copy)]
pub enum Flags {
    /// The endpoint's or the alias's own.
    Usual,
    /// None, and no completion, for an inject.
    Inject,
    /// The given flags.
    Given(u64),
}

impl Flags {
    /// With the flags that always hold.
    #[inline(always)]
    pub fn in_all(self, shell: &Shell, state: &State) -> u64 {
        match self {
            Flags::Usual => shell.flags(SENDS),
            Flags::Inject => FI_INJECT,
            Flags::Given(flags) => flags | state.always_sent,
        }
    }
}

/// Starts a send of whatever kind.
///
/// # Safety
/// libfabric's contract: an open endpoint; the pieces stay until the completion, or are copied if the flags say so.
#[inline(never)]
unsafe fn start(
    ep: *mut FidEndpoint,
    pieces: &[Iovec],
    to: Address,
    label: Label,
    context: Context,
    flags: Flags,
) -> Signed {
    // SAFETY: the caller's promise; the domain is entered before the state is touched.
    unsafe {
        let shell = Shell::of(ep);
        if matches!(flags, Flags::Usual) && shell.is_alias() {
            return start_of_alias(ep, pieces, to, label, context, shell.flags(SENDS));
        }
        let endpoint = Endpoint::of(ep);
        let _entered = endpoint.domain.enter();
        let state = endpoint.state();
        let flags = flags.in_all(shell, state);
        state.send(pieces, to, label, context, flags)
    }
}

/// Starts a message's send, which may wait for a counter.
///
/// # Safety
/// As for [`start`]; the work is as fi_trigger(3) wants it.
#[inline(always)]
unsafe fn start_given(
    ep: *mut FidEndpoint,
    pieces: &[Iovec],
    to: Address,
    label: Label,
    context: Context,
    flags: u64,
    work: Option<&DeferredWork>,
) -> Signed {
    // SAFETY: the caller's promise.
    unsafe {
        if flags & (FI_TRIGGER | UNKEPT) != 0 {
            return start_later(ep, pieces, to, label, context, flags, work);
        }
        start(ep, pieces, to, label, context, Flags::Given(flags))
    }
}

/// # Safety
/// As for [`start_given`].
#[cold]
#[inline(never)]
unsafe fn start_of_alias(
    ep: *mut FidEndpoint,
    pieces: &[Iovec],
    to: Address,
    label: Label,
    context: Context,
    flags: u64,
) -> Signed {
    // SAFETY: the caller's promise.
    unsafe { start_given(ep, pieces, to, label, context, flags, None) }
}

/// # Safety
/// As for [`start_given`].
#[cold]
#[inline(never)]
unsafe fn start_later(
    ep: *mut FidEndpoint,
    pieces: &[Iovec],
    to: Address,
    label: Label,
    context: Context,
    flags: u64,
    work: Option<&DeferredWork>,
) -> Signed {
    if flags & UNKEPT != 0 {
        return signed(FI_EBADFLAGS);
    }
    if total(pieces).is_none() {
        return signed(FI_EINVAL);
    }
    let kind = FI_SEND | if label.space == Space::Tagged { FI_TAGGED } else { FI_MSG };
    let pieces = pieces.to_vec();
    // SAFETY: the caller's promise, until the send has ended.
    let post = move |state: &mut State| unsafe { state.send(&pieces, to, label, context, flags | state.always_sent) };
    // SAFETY: the caller's promise.
    unsafe { trigger::wait(ep, &Asked { to, context, flags, kind, work }, post) }
}

/// Kinds of the calls with one buffer.
mod kind {
    pub const TAGGED: usize = 1 << 0;
    pub const DATA: usize = 1 << 1;
    /// An inject: without a context and a completion.
    pub const INJECT: usize = 1 << 2;
}

/// Sends one buffer. All calls that do so end here with the arguments of the longest of them, where they lie, so that what a short
/// message passes is compiled once, and in one piece.
///
/// # Safety
/// As for [`start`].
#[inline(never)]
unsafe extern "C" fn send_flat(
    ep: *mut FidEndpoint,
    buffer: *const c_void,
    length: usize,
    kinds: usize,
    data: u64,
    to: Address,
    tag: u64,
    context: *mut c_void,
) -> Signed {
    let data = (kinds & kind::DATA != 0).then_some(data);
    let (label, wishes) = match kinds & kind::TAGGED {
        0 => (plain(data), 0),
        _ => (tagged(tag, data), wish::TAGGED),
    };
    // SAFETY: the caller's promise; the domain is entered before the state is touched.
    unsafe {
        let shell = Shell::of(ep);
        let inject = kinds & kind::INJECT != 0;
        if shell.is_alias() {
            let flags = if inject { Flags::Inject } else { Flags::Usual };
            return start(ep, &flat(buffer, length), to, label, context, flags);
        }
        let endpoint = Endpoint::of(ep);
        let _entered = endpoint.domain.enter();
        let state = endpoint.state();
        let flags = if inject { FI_INJECT } else { shell.flags(SENDS) };
        if flags & CONFIRMED == 0
            && !buffer.is_null()
            && length <= INJECT
            && let Some(&peer) = state.peers.get(to as usize)
            && peer != NOBODY
            && let Some(engine) = &mut state.engine
            && engine.inject_here(PeerIndex(peer), &label, std::slice::from_raw_parts(buffer.cast(), length))
        {
            let completion = if flags & FI_COMPLETION != 0 { wish::COMPLETION } else { 0 };
            return state.has_sent(context, wishes | completion, length, label.tag);
        }
        state.send(&flat(buffer, length), to, label, context, flags)
    }
}

#[inline(always)]
pub fn flat(buffer: *const c_void, length: usize) -> [Iovec; 1] {
    [Iovec { base: buffer.cast_mut(), length }]
}

#[inline(always)]
fn tagged(tag: u64, data: Option<u64>) -> Label {
    Label { space: Space::Tagged, tag, data }
}

#[inline(always)]
fn plain(data: Option<u64>) -> Label {
    Label { space: Space::Message, tag: 0, data }
}

/// The data to send along, if the flags say so.
pub fn data_of(flags: u64, data: u64) -> Option<u64> {
    (flags & FI_REMOTE_CQ_DATA != 0).then_some(data)
}

unsafe extern "C" fn tsend(
    ep: *mut FidEndpoint,
    buffer: *const c_void,
    length: usize,
    _desc: *mut c_void,
    to: Address,
    tag: u64,
    context: *mut c_void,
) -> Signed {
    // SAFETY: libfabric's contract, as in all below.
    unsafe { send_flat(ep, buffer, length, kind::TAGGED, 0, to, tag, context) }
}

unsafe extern "C" fn tsendv(
    ep: *mut FidEndpoint,
    list: *const Iovec,
    _desc: *mut *mut c_void,
    count: usize,
    to: Address,
    tag: u64,
    context: *mut c_void,
) -> Signed {
    // SAFETY: as above.
    unsafe {
        let Some(pieces) = pieces(list, count) else { return signed(FI_EINVAL) };
        start(ep, pieces, to, tagged(tag, None), context, Flags::Usual)
    }
}

/// # Safety
/// As for [`start_given`]; the message is good.
#[inline(always)]
pub unsafe fn send_tagged(
    ep: *mut FidEndpoint,
    message: &TaggedMessage,
    flags: u64,
    work: Option<&DeferredWork>,
) -> Signed {
    // SAFETY: the caller's promise.
    unsafe {
        let Some(pieces) = pieces(message.iov, message.iov_count) else { return signed(FI_EINVAL) };
        let label = tagged(message.tag, data_of(flags, message.data));
        start_given(ep, pieces, message.addr, label, message.context, flags, work)
    }
}

unsafe extern "C" fn tsendmsg(ep: *mut FidEndpoint, message: *const TaggedMessage, flags: u64) -> Signed {
    // SAFETY: as above.
    unsafe { message.as_ref().map_or(signed(FI_EINVAL), |message| send_tagged(ep, message, flags, None)) }
}

unsafe extern "C" fn tinject(
    ep: *mut FidEndpoint,
    buffer: *const c_void,
    length: usize,
    to: Address,
    tag: u64,
) -> Signed {
    // SAFETY: as above.
    unsafe { send_flat(ep, buffer, length, kind::TAGGED | kind::INJECT, 0, to, tag, std::ptr::null_mut()) }
}

unsafe extern "C" fn tsenddata(
    ep: *mut FidEndpoint,
    buffer: *const c_void,
    length: usize,
    _desc: *mut c_void,
    data: u64,
    to: Address,
    tag: u64,
    context: *mut c_void,
) -> Signed {
    // SAFETY: as above.
    unsafe { send_flat(ep, buffer, length, kind::TAGGED | kind::DATA, data, to, tag, context) }
}

unsafe extern "C" fn tinjectdata(
    ep: *mut FidEndpoint,
    buffer: *const c_void,
    length: usize,
    data: u64,
    to: Address,
    tag: u64,
) -> Signed {
    // SAFETY: as above.
    unsafe {
        send_flat(ep, buffer, length, kind::TAGGED | kind::DATA | kind::INJECT, data, to, tag, std::ptr::null_mut())
    }
}

unsafe extern "C" fn send(
    ep: *mut FidEndpoint,
    buffer: *const c_void,
    length: usize,
    _desc: *mut c_void,
    to: Address,
    context: *mut c_void,
) -> Signed {
    // SAFETY: as above.
    unsafe { send_flat(ep, buffer, length, 0, 0, to, 0, context) }
}

unsafe extern "C" fn sendv(
    ep: *mut FidEndpoint,
    list: *const Iovec,
    _desc: *mut *mut c_void,
    count: usize,
    to: Address,
    context: *mut c_void,
) -> Signed {
    // SAFETY: as above.
    unsafe {
        let Some(pieces) = pieces(list, count) else { return signed(FI_EINVAL) };
        start(ep, pieces, to, plain(None), context, Flags::Usual)
    }
}

/// # Safety
/// As for [`send_tagged`].
#[inline(always)]
pub unsafe fn send_message(ep: *mut FidEndpoint, message: &Message, flags: u64, work: Option<&DeferredWork>) -> Signed {
    // SAFETY: the caller's promise.
    unsafe {
        let Some(pieces) = pieces(message.iov, message.iov_count) else { return signed(FI_EINVAL) };
        let label = plain(data_of(flags, message.data));
        start_given(ep, pieces, message.addr, label, message.context, flags, work)
    }
}

unsafe extern "C" fn sendmsg(ep: *mut FidEndpoint, message: *const Message, flags: u64) -> Signed {
    // SAFETY: as above.
    unsafe { message.as_ref().map_or(signed(FI_EINVAL), |message| send_message(ep, message, flags, None)) }
}

unsafe extern "C" fn inject(ep: *mut FidEndpoint, buffer: *const c_void, length: usize, to: Address) -> Signed {
    // SAFETY: as above.
    unsafe { send_flat(ep, buffer, length, kind::INJECT, 0, to, 0, std::ptr::null_mut()) }
}

unsafe extern "C" fn senddata(
    ep: *mut FidEndpoint,
    buffer: *const c_void,
    length: usize,
    _desc: *mut c_void,
    data: u64,
    to: Address,
    context: *mut c_void,
) -> Signed {
    // SAFETY: as above.
    unsafe { send_flat(ep, buffer, length, kind::DATA, data, to, 0, context) }
}

unsafe extern "C" fn injectdata(
    ep: *mut FidEndpoint,
    buffer: *const c_void,
    length: usize,
    data: u64,
    to: Address,
) -> Signed {
    // SAFETY: as above.
    unsafe { send_flat(ep, buffer, length, kind::DATA | kind::INJECT, data, to, 0, std::ptr::null_mut()) }
}
