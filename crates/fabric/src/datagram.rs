//! Sends of datagram endpoints (FI_EP_DGRAM): at most one packet. A send completes when its call returns, since the provider
//! has sent or copied it; the sender is not told whether the peer exists.

use std::ffi::c_void;

use endpoint::{Label, Space};
use machine::PeerIndex;

use crate::abi::constants::*;
use crate::abi::object::{FidEndpoint, MessageOps};
use crate::abi::transfer::Message;
use crate::abi::{Address, Iovec, Signed};
use crate::endpoint::{Endpoint, SENDS, Shell, State};
use crate::memory::{Memory, own, pieces, role, total, wish};
use crate::object::Context;
use crate::offer::{LONGEST_DATAGRAM, UNKEPT};
use crate::progress::sent;
use crate::refuse::signed;
use crate::send::{self, Flags, data_of, flat};

/// Most datagrams that wait to leave for one peer.
const WAITING: usize = 1 << 12;

pub static MESSAGE: MessageOps =
    MessageOps { send: send_one, sendv, sendmsg, inject, senddata, injectdata, ..send::MESSAGE };

impl State {
    /// # Safety
    /// The pieces are the application's.
    unsafe fn send_datagram(
        &mut self,
        pieces: &[Iovec],
        to: Address,
        data: Option<u64>,
        context: Context,
        flags: u64,
    ) -> Signed {
        let (Some(peer), Some(length)) = (self.peer(to), total(pieces)) else { return signed(FI_EINVAL) };
        let Some(engine) = &mut self.engine else { return signed(FI_EOPBADSTATE) };
        if length > LONGEST_DATAGRAM {
            return signed(FI_EMSGSIZE);
        }
        let mut copy = [0; LONGEST_DATAGRAM];
        // SAFETY: the caller's promise.
        engine::Buffer::read(&unsafe { Memory::scattered(pieces, 0) }, 0, &mut copy[..length]);
        let label = Label { space: Space::Message, tag: 0, data };
        match engine.inject(peer, label, &copy[..length]) {
            Ok(true) => {}
            Ok(false) => {
                let PeerIndex(at) = peer;
                if self.waiting.len() <= at as usize {
                    self.waiting.resize(at as usize + 1, 0);
                }
                let waiting = &mut self.waiting[at as usize];
                if *waiting >= WAITING {
                    return signed(FI_EAGAIN);
                }
                *waiting += 1;
                let mut memory = Memory::owned(copy[..length].to_vec(), wish::REMOTE);
                memory.source = role::DATAGRAM;
                if let Err(fault) = engine.send(peer, label, memory, own(0)).and_then(|_| engine.flush_first()) {
                    return self.fail(&fault);
                }
            }
            Err(fault) => return self.fail(&fault),
        }
        if flags & FI_COMPLETION != 0
            && let Some(queue) = &self.sends
        {
            // SAFETY: the domain is entered.
            unsafe { queue.push(sent(context, 0, length, 0), FI_ADDR_NOTAVAIL) };
        }
        self.count(FI_SEND, false);
        0
    }
}

/// # Safety
/// libfabric's contract: an open endpoint and good pieces.
unsafe fn start(
    ep: *mut FidEndpoint,
    pieces: Option<&[Iovec]>,
    to: Address,
    data: Option<u64>,
    context: Context,
    flags: Flags,
) -> Signed {
    let Some(pieces) = pieces else { return signed(FI_EINVAL) };
    // SAFETY: the caller's promise; the domain is entered before the state is touched.
    unsafe {
        let shell = Shell::of(ep);
        let flags = match flags {
            Flags::Usual => Flags::Given(shell.flags(SENDS)),
            flags => flags,
        };
        if let Flags::Given(flags) = flags {
            if flags & UNKEPT != 0 {
                return signed(FI_EBADFLAGS);
            }
            if flags & FI_TRIGGER != 0 {
                return signed(FI_EINVAL);
            }
        }
        let endpoint = Endpoint::of(ep);
        let _entered = endpoint.domain.enter();
        let state = endpoint.state();
        let flags = flags.in_all(shell, state);
        state.send_datagram(pieces, to, data, context, flags)
    }
}

unsafe extern "C" fn send_one(
    ep: *mut FidEndpoint,
    buffer: *const c_void,
    length: usize,
    _desc: *mut c_void,
    to: Address,
    context: *mut c_void,
) -> Signed {
    // SAFETY: libfabric's contract, as in all below.
    unsafe { start(ep, Some(&flat(buffer, length)), to, None, context, Flags::Usual) }
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
    unsafe { start(ep, pieces(list, count), to, None, context, Flags::Usual) }
}

unsafe extern "C" fn sendmsg(ep: *mut FidEndpoint, message: *const Message, flags: u64) -> Signed {
    // SAFETY: as above.
    unsafe {
        let Some(message) = message.as_ref() else { return signed(FI_EINVAL) };
        let (pieces, data) = (pieces(message.iov, message.iov_count), data_of(flags, message.data));
        start(ep, pieces, message.addr, data, message.context, Flags::Given(flags))
    }
}

unsafe extern "C" fn inject(ep: *mut FidEndpoint, buffer: *const c_void, length: usize, to: Address) -> Signed {
    // SAFETY: as above.
    unsafe { start(ep, Some(&flat(buffer, length)), to, None, std::ptr::null_mut(), Flags::Inject) }
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
    unsafe { start(ep, Some(&flat(buffer, length)), to, Some(data), context, Flags::Usual) }
}

unsafe extern "C" fn injectdata(
    ep: *mut FidEndpoint,
    buffer: *const c_void,
    length: usize,
    data: u64,
    to: Address,
) -> Signed {
    // SAFETY: as above.
    unsafe { start(ep, Some(&flat(buffer, length)), to, Some(data), std::ptr::null_mut(), Flags::Inject) }
}
