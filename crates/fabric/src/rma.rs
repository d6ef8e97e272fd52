//! Calls that read and write memory of peers.

use std::ffi::c_void;

use crate::abi::constants::*;
use crate::abi::object::{FidEndpoint, RemoteOps};
use crate::abi::transfer::RemoteMessage;
use crate::abi::trigger::DeferredWork;
use crate::abi::{Address, Iovec, Signed};
use crate::endpoint::{Endpoint, SENDS, Shell, State};
use crate::initiator::{Action, Wanted};
use crate::memory::{Memory, pieces, total, wish};
use crate::object::Context;
use crate::offer::{INJECT, LONGEST, UNKEPT};
use crate::refuse::signed;
use crate::send::{Flags, data_of, flat};
use crate::trigger::{self, Asked};

pub static OPS: RemoteOps = RemoteOps {
    size: size_of::<RemoteOps>(),
    read,
    readv,
    readmsg,
    write,
    writev,
    writemsg,
    inject,
    writedata,
    injectdata,
};

/// A place in a peer's memory.
#[derive(Clone, Copy)]
pub struct Place {
    pub peer: Address,
    pub address: u64,
    pub key: u64,
}

impl State {
    /// # Safety
    /// The pieces stay, and are left alone, as libfabric's contract has it for these flags.
    unsafe fn access(
        &mut self,
        pieces: &[Iovec],
        place: Place,
        action: Action,
        data: Option<u64>,
        context: Context,
        flags: u64,
    ) -> Signed {
        let Some(peer) = self.peer(place.peer) else { return self.nobody() };
        let Some(length) = total(pieces) else { return signed(FI_EINVAL) };
        // A read's buffer cannot be copied beforehand.
        let flags = if matches!(action, Action::Read) { flags & !FI_INJECT } else { flags };
        if length > LONGEST || (flags & FI_INJECT != 0 && length > INJECT) {
            return signed(FI_EMSGSIZE);
        }
        let wishes = if flags & FI_COMPLETION != 0 { wish::COMPLETION } else { 0 };
        // SAFETY: the caller's promise.
        let mut memory = unsafe { Memory::scattered(pieces, wish::REMOTE) };
        if flags & FI_INJECT != 0 {
            let mut copy = vec![0; length];
            engine::Buffer::read(&memory, 0, &mut copy);
            memory = Memory::owned(copy, wish::REMOTE);
        }
        let nothing = Memory::owned(Vec::new(), wish::REMOTE);
        let (operands, result) = match action {
            Action::Read => (nothing, memory),
            _ => (memory, nothing),
        };
        let wanted = Wanted { key: place.key, address: place.address, length, action, data };
        self.begin(peer, &wanted, operands, result, context, wishes)
    }
}

/// # Safety
/// libfabric's contract: an open endpoint; the pieces stay until the completion, or are copied if the flags say so.
unsafe fn start(
    ep: *mut FidEndpoint,
    pieces: &[Iovec],
    place: Place,
    action: Action,
    data: Option<u64>,
    context: Context,
    flags: Flags,
) -> Signed {
    // SAFETY: the caller's promise; the domain is entered before the state is touched.
    unsafe {
        let shell = Shell::of(ep);
        if matches!(flags, Flags::Usual) && shell.is_alias() {
            return start_given(ep, pieces, place, action, data, (context, shell.flags(SENDS)), None);
        }
        let endpoint = Endpoint::of(ep);
        let _entered = endpoint.domain.enter();
        let state = endpoint.state();
        let flags = flags.in_all(shell, state);
        state.access(pieces, place, action, data, context, flags)
    }
}

/// Starts a call with flags of its own, which may have it wait for a counter.
///
/// # Safety
/// As for `start`; the work is as fi_trigger(3) wants it.
unsafe fn start_given(
    ep: *mut FidEndpoint,
    pieces: &[Iovec],
    place: Place,
    action: Action,
    data: Option<u64>,
    (context, flags): (Context, u64),
    work: Option<&DeferredWork>,
) -> Signed {
    if flags & UNKEPT != 0 {
        return signed(FI_EBADFLAGS);
    }
    // A read's buffer cannot be copied beforehand.
    let flags = if matches!(action, Action::Read) { flags & !FI_INJECT } else { flags };
    // SAFETY: the caller's promise.
    unsafe {
        if flags & FI_TRIGGER == 0 {
            return start(ep, pieces, place, action, data, context, Flags::Given(flags));
        }
        if total(pieces).is_none() {
            return signed(FI_EINVAL);
        }
        let (to, kind, pieces) = (place.peer, action.flags(), pieces.to_vec());
        let post =
            move |state: &mut State| state.access(&pieces, place, action, data, context, flags | state.always_sent);
        trigger::wait(ep, &Asked { to, context, flags, kind, work }, post)
    }
}

/// # Safety
/// As for `start`; the message is good, the work as fi_trigger(3) wants it.
unsafe fn start_message(
    ep: *mut FidEndpoint,
    message: &RemoteMessage,
    flags: u64,
    action: Action,
    work: Option<&DeferredWork>,
) -> Signed {
    // SAFETY: the caller's promise.
    unsafe {
        let Some(pieces) = pieces(message.iov, message.iov_count) else { return signed(FI_EINVAL) };
        let (Some(remote), 1) = (message.remote_iov.as_ref(), message.remote_iov_count) else {
            return signed(FI_EINVAL);
        };
        if total(pieces) != Some(remote.length) {
            return signed(FI_EINVAL);
        }
        let place = Place { peer: message.addr, address: remote.addr, key: remote.key };
        let data = data_of(flags, message.data);
        start_given(ep, pieces, place, action, data, (message.context, flags), work)
    }
}

/// # Safety
/// As for [`start_message`].
pub unsafe fn read_message(
    ep: *mut FidEndpoint,
    message: &RemoteMessage,
    flags: u64,
    work: Option<&DeferredWork>,
) -> Signed {
    // A read carries no data.
    //
    // SAFETY: the caller's promise.
    unsafe { start_message(ep, message, flags & !FI_REMOTE_CQ_DATA, Action::Read, work) }
}

/// # Safety
/// As for [`start_message`].
pub unsafe fn write_message(
    ep: *mut FidEndpoint,
    message: &RemoteMessage,
    flags: u64,
    work: Option<&DeferredWork>,
) -> Signed {
    // SAFETY: the caller's promise.
    unsafe { start_message(ep, message, flags, Action::Write, work) }
}

unsafe extern "C" fn read(
    ep: *mut FidEndpoint,
    buffer: *mut c_void,
    length: usize,
    _desc: *mut c_void,
    peer: Address,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> Signed {
    let place = Place { peer, address, key };
    // SAFETY: libfabric's contract, as in all below.
    unsafe { start(ep, &flat(buffer, length), place, Action::Read, None, context, Flags::Usual) }
}

unsafe extern "C" fn readv(
    ep: *mut FidEndpoint,
    list: *const Iovec,
    _desc: *mut *mut c_void,
    count: usize,
    peer: Address,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> Signed {
    let place = Place { peer, address, key };
    // SAFETY: as above.
    unsafe {
        let Some(pieces) = pieces(list, count) else { return signed(FI_EINVAL) };
        start(ep, pieces, place, Action::Read, None, context, Flags::Usual)
    }
}

unsafe extern "C" fn readmsg(ep: *mut FidEndpoint, message: *const RemoteMessage, flags: u64) -> Signed {
    // SAFETY: as above.
    unsafe { message.as_ref().map_or(signed(FI_EINVAL), |message| read_message(ep, message, flags, None)) }
}

unsafe extern "C" fn write(
    ep: *mut FidEndpoint,
    buffer: *const c_void,
    length: usize,
    _desc: *mut c_void,
    peer: Address,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> Signed {
    let place = Place { peer, address, key };
    // SAFETY: as above.
    unsafe { start(ep, &flat(buffer, length), place, Action::Write, None, context, Flags::Usual) }
}

unsafe extern "C" fn writev(
    ep: *mut FidEndpoint,
    list: *const Iovec,
    _desc: *mut *mut c_void,
    count: usize,
    peer: Address,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> Signed {
    let place = Place { peer, address, key };
    // SAFETY: as above.
    unsafe {
        let Some(pieces) = pieces(list, count) else { return signed(FI_EINVAL) };
        start(ep, pieces, place, Action::Write, None, context, Flags::Usual)
    }
}

unsafe extern "C" fn writemsg(ep: *mut FidEndpoint, message: *const RemoteMessage, flags: u64) -> Signed {
    // SAFETY: as above.
    unsafe { message.as_ref().map_or(signed(FI_EINVAL), |message| write_message(ep, message, flags, None)) }
}

unsafe extern "C" fn inject(
    ep: *mut FidEndpoint,
    buffer: *const c_void,
    length: usize,
    peer: Address,
    address: u64,
    key: u64,
) -> Signed {
    let place = Place { peer, address, key };
    // SAFETY: as above.
    unsafe { start(ep, &flat(buffer, length), place, Action::Write, None, std::ptr::null_mut(), Flags::Inject) }
}

unsafe extern "C" fn writedata(
    ep: *mut FidEndpoint,
    buffer: *const c_void,
    length: usize,
    _desc: *mut c_void,
    data: u64,
    peer: Address,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> Signed {
    let place = Place { peer, address, key };
    // SAFETY: as above.
    unsafe { start(ep, &flat(buffer, length), place, Action::Write, Some(data), context, Flags::Usual) }
}

unsafe extern "C" fn injectdata(
    ep: *mut FidEndpoint,
    buffer: *const c_void,
    length: usize,
    data: u64,
    peer: Address,
    address: u64,
    key: u64,
) -> Signed {
    let place = Place { peer, address, key };
    // SAFETY: as above.
    unsafe { start(ep, &flat(buffer, length), place, Action::Write, Some(data), std::ptr::null_mut(), Flags::Inject) }
}
