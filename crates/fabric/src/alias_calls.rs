//! The transfers of aliases: a call that has no flags becomes the `msg` call with those of the alias, and every `msg` call the
//! endpoint's. No call of this provider looks at descriptors.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use crate::abi::atomic::{AtomicMessage, Elements, RemoteElements};
use crate::abi::constants::*;
use crate::abi::object::*;
use crate::abi::transfer::{Message, RemoteIovec, RemoteMessage, TaggedMessage};
use crate::abi::{Address, Iovec, Signed};
use crate::alias::{RECEIVES, SENDS, flags, pass_on};
use crate::refuse::signed;
use crate::send;

fn piece(base: *const c_void, length: usize) -> Iovec {
    Iovec { base: base.cast_mut(), length }
}

pub mod message {
    use super::*;

    pub static OPS: MessageOps = MessageOps {
        size: size_of::<MessageOps>(),
        recv,
        recvv,
        recvmsg,
        send,
        sendv,
        sendmsg,
        inject,
        senddata,
        injectdata,
    };

    pass_on! { msg;
        recvmsg(FidEndpoint, message: *const Message, flags: u64) -> Signed;
        sendmsg(FidEndpoint, message: *const Message, flags: u64) -> Signed;
        inject(FidEndpoint, buffer: *const c_void, length: usize, to: Address) -> Signed;
        injectdata(FidEndpoint, buffer: *const c_void, length: usize, data: u64, to: Address) -> Signed;
    }

    fn of((iov, iov_count): (*const Iovec, usize), addr: Address, context: *mut c_void) -> Message {
        Message { iov, desc: null_mut(), iov_count, addr, context, data: 0 }
    }

    unsafe extern "C" fn recv(
        ep: *mut FidEndpoint,
        buffer: *mut c_void,
        length: usize,
        _desc: *mut c_void,
        from: Address,
        context: *mut c_void,
    ) -> Signed {
        // SAFETY: libfabric's contract, as in all below: an open alias, arguments as for the endpoint's call.
        unsafe { recvmsg(ep, &of((&piece(buffer, length), 1), from, context), flags(ep, RECEIVES)) }
    }

    unsafe extern "C" fn recvv(
        ep: *mut FidEndpoint,
        list: *const Iovec,
        _desc: *mut *mut c_void,
        count: usize,
        from: Address,
        context: *mut c_void,
    ) -> Signed {
        // SAFETY: as above.
        unsafe { recvmsg(ep, &of((list, count), from, context), flags(ep, RECEIVES)) }
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
        unsafe { sendmsg(ep, &of((&piece(buffer, length), 1), to, context), flags(ep, SENDS)) }
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
        unsafe { sendmsg(ep, &of((list, count), to, context), flags(ep, SENDS)) }
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
        let piece = piece(buffer, length);
        let message = Message { data, ..of((&piece, 1), to, context) };
        // SAFETY: as above.
        unsafe { sendmsg(ep, &message, flags(ep, SENDS) | FI_REMOTE_CQ_DATA) }
    }
}

pub mod tagged {
    use super::*;

    pub static OPS: TaggedOps = TaggedOps {
        size: size_of::<TaggedOps>(),
        recv,
        recvv,
        recvmsg,
        send,
        sendv,
        sendmsg,
        inject,
        senddata,
        injectdata,
    };

    pass_on! { tagged;
        recvmsg(FidEndpoint, message: *const TaggedMessage, flags: u64) -> Signed;
        sendmsg(FidEndpoint, message: *const TaggedMessage, flags: u64) -> Signed;
        inject(FidEndpoint, buffer: *const c_void, length: usize, to: Address, tag: u64) -> Signed;
        injectdata(FidEndpoint, buffer: *const c_void, length: usize, data: u64, to: Address, tag: u64) -> Signed;
    }

    fn of(list: (*const Iovec, usize), addr: Address, tag: u64, context: *mut c_void) -> TaggedMessage {
        let (iov, iov_count) = list;
        TaggedMessage { iov, desc: null_mut(), iov_count, addr, tag, ignore: 0, context, data: 0 }
    }

    unsafe extern "C" fn recv(
        ep: *mut FidEndpoint,
        buffer: *mut c_void,
        length: usize,
        _desc: *mut c_void,
        from: Address,
        tag: u64,
        ignore: u64,
        context: *mut c_void,
    ) -> Signed {
        // SAFETY: as above.
        unsafe { recvv(ep, &piece(buffer, length), null_mut(), 1, from, tag, ignore, context) }
    }

    unsafe extern "C" fn recvv(
        ep: *mut FidEndpoint,
        list: *const Iovec,
        _desc: *mut *mut c_void,
        count: usize,
        from: Address,
        tag: u64,
        ignore: u64,
        context: *mut c_void,
    ) -> Signed {
        let message = TaggedMessage { ignore, ..of((list, count), from, tag, context) };
        // SAFETY: as above.
        unsafe { recvmsg(ep, &message, flags(ep, RECEIVES)) }
    }

    unsafe extern "C" fn send(
        ep: *mut FidEndpoint,
        buffer: *const c_void,
        length: usize,
        _desc: *mut c_void,
        to: Address,
        tag: u64,
        context: *mut c_void,
    ) -> Signed {
        // SAFETY: as above.
        unsafe { sendmsg(ep, &of((&piece(buffer, length), 1), to, tag, context), flags(ep, SENDS)) }
    }

    unsafe extern "C" fn sendv(
        ep: *mut FidEndpoint,
        list: *const Iovec,
        _desc: *mut *mut c_void,
        count: usize,
        to: Address,
        tag: u64,
        context: *mut c_void,
    ) -> Signed {
        // SAFETY: as above.
        unsafe { sendmsg(ep, &of((list, count), to, tag, context), flags(ep, SENDS)) }
    }

    unsafe extern "C" fn senddata(
        ep: *mut FidEndpoint,
        buffer: *const c_void,
        length: usize,
        _desc: *mut c_void,
        data: u64,
        to: Address,
        tag: u64,
        context: *mut c_void,
    ) -> Signed {
        let piece = piece(buffer, length);
        let message = TaggedMessage { data, ..of((&piece, 1), to, tag, context) };
        // SAFETY: as above.
        unsafe { sendmsg(ep, &message, flags(ep, SENDS) | FI_REMOTE_CQ_DATA) }
    }
}

pub mod rma {
    use super::*;

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

    pass_on! { rma;
        readmsg(FidEndpoint, message: *const RemoteMessage, flags: u64) -> Signed;
        writemsg(FidEndpoint, message: *const RemoteMessage, flags: u64) -> Signed;
        inject(FidEndpoint, buffer: *const c_void, length: usize, peer: Address, address: u64, key: u64) -> Signed;
        injectdata(
            FidEndpoint, buffer: *const c_void, length: usize, data: u64, peer: Address, address: u64, key: u64
        ) -> Signed;
    }

    type Call = unsafe extern "C" fn(*mut FidEndpoint, *const RemoteMessage, u64) -> Signed;

    /// # Safety
    /// As for the endpoint's call.
    unsafe fn start(
        call: Call,
        ep: *mut FidEndpoint,
        (iov, iov_count): (*const Iovec, usize),
        addr: Address,
        (remote, key): (u64, u64),
        data: Option<u64>,
        context: *mut c_void,
    ) -> Signed {
        // SAFETY: the caller's promise.
        unsafe {
            let Some(length) = send::pieces(iov, iov_count).and_then(send::total) else { return signed(FI_EINVAL) };
            let remote = RemoteIovec { addr: remote, length, key };
            let desc = null_mut();
            let (remote_iov, remote_iov_count) = (&raw const remote, 1);
            let with_data = if data.is_some() { FI_REMOTE_CQ_DATA } else { 0 };
            let data = data.unwrap_or_default();
            let message = RemoteMessage { iov, desc, iov_count, addr, remote_iov, remote_iov_count, context, data };
            call(ep, &message, flags(ep, SENDS) | with_data)
        }
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
        // SAFETY: as above.
        unsafe { start(readmsg, ep, (&piece(buffer, length), 1), peer, (address, key), None, context) }
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
        // SAFETY: as above.
        unsafe { start(readmsg, ep, (list, count), peer, (address, key), None, context) }
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
        // SAFETY: as above.
        unsafe { start(writemsg, ep, (&piece(buffer, length), 1), peer, (address, key), None, context) }
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
        // SAFETY: as above.
        unsafe { start(writemsg, ep, (list, count), peer, (address, key), None, context) }
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
        // SAFETY: as above.
        unsafe { start(writemsg, ep, (&piece(buffer, length), 1), peer, (address, key), Some(data), context) }
    }
}

pub mod atomic {
    use super::*;

    pub static OPS: AtomicOps = AtomicOps {
        size: size_of::<AtomicOps>(),
        write,
        writev,
        writemsg,
        inject,
        readwrite,
        readwritev,
        readwritemsg,
        compwrite,
        compwritev,
        compwritemsg,
        writevalid,
        readwritevalid,
        compwritevalid,
    };

    pass_on! { atomic;
        writemsg(FidEndpoint, message: *const AtomicMessage, flags: u64) -> Signed;
        inject(
            FidEndpoint, buffer: *const c_void, count: usize, peer: Address, address: u64, key: u64, datatype: c_int,
            operator: c_int
        ) -> Signed;
        readwritemsg(
            FidEndpoint, message: *const AtomicMessage, results: *mut Elements, result_desc: *mut *mut c_void,
            result_count: usize, flags: u64
        ) -> Signed;
        compwritemsg(
            FidEndpoint, message: *const AtomicMessage, compare: *const Elements, compare_desc: *mut *mut c_void,
            compare_count: usize, results: *mut Elements, result_desc: *mut *mut c_void, result_count: usize, flags: u64
        ) -> Signed;
        writevalid(FidEndpoint, datatype: c_int, operator: c_int, count: *mut usize) -> c_int;
        readwritevalid(FidEndpoint, datatype: c_int, operator: c_int, count: *mut usize) -> c_int;
        compwritevalid(FidEndpoint, datatype: c_int, operator: c_int, count: *mut usize) -> c_int;
    }

    fn some(base: *const c_void, count: usize) -> Elements {
        Elements { base: base.cast_mut(), count }
    }

    fn at(addr: u64, key: u64) -> RemoteElements {
        // How many it takes by the operands.
        RemoteElements { addr, count: 0, key }
    }

    fn of(
        (iov, iov_count): (*const Elements, usize),
        (addr, remote): (Address, &RemoteElements),
        (datatype, op): (c_int, c_int),
        context: *mut c_void,
    ) -> AtomicMessage {
        let desc = null_mut();
        let (remote_iov, remote_iov_count) = (std::ptr::from_ref(remote), 1);
        AtomicMessage { iov, desc, iov_count, addr, remote_iov, remote_iov_count, datatype, op, context, data: 0 }
    }

    unsafe extern "C" fn write(
        ep: *mut FidEndpoint,
        buffer: *const c_void,
        count: usize,
        _desc: *mut c_void,
        peer: Address,
        address: u64,
        key: u64,
        datatype: c_int,
        operator: c_int,
        context: *mut c_void,
    ) -> Signed {
        // SAFETY: as above.
        unsafe { writev(ep, &some(buffer, count), null_mut(), 1, peer, address, key, datatype, operator, context) }
    }

    unsafe extern "C" fn writev(
        ep: *mut FidEndpoint,
        elements: *const Elements,
        _desc: *mut *mut c_void,
        count: usize,
        peer: Address,
        address: u64,
        key: u64,
        datatype: c_int,
        operator: c_int,
        context: *mut c_void,
    ) -> Signed {
        let remote = at(address, key);
        let message = of((elements, count), (peer, &remote), (datatype, operator), context);
        // SAFETY: as above.
        unsafe { writemsg(ep, &message, flags(ep, SENDS)) }
    }

    unsafe extern "C" fn readwrite(
        ep: *mut FidEndpoint,
        buffer: *const c_void,
        count: usize,
        _desc: *mut c_void,
        result: *mut c_void,
        _result_desc: *mut c_void,
        peer: Address,
        address: u64,
        key: u64,
        datatype: c_int,
        operator: c_int,
        context: *mut c_void,
    ) -> Signed {
        let (operands, mut results, none) = (some(buffer, count), some(result, count), null_mut());
        let (results, at) = (&raw mut results, (address, key));
        // SAFETY: as above.
        unsafe { readwritev(ep, &operands, none, 1, results, none, 1, peer, at.0, at.1, datatype, operator, context) }
    }

    unsafe extern "C" fn readwritev(
        ep: *mut FidEndpoint,
        elements: *const Elements,
        _desc: *mut *mut c_void,
        count: usize,
        results: *mut Elements,
        result_desc: *mut *mut c_void,
        result_count: usize,
        peer: Address,
        address: u64,
        key: u64,
        datatype: c_int,
        operator: c_int,
        context: *mut c_void,
    ) -> Signed {
        let remote = at(address, key);
        let message = of((elements, count), (peer, &remote), (datatype, operator), context);
        // SAFETY: as above.
        unsafe { readwritemsg(ep, &message, results, result_desc, result_count, flags(ep, SENDS)) }
    }

    unsafe extern "C" fn compwrite(
        ep: *mut FidEndpoint,
        buffer: *const c_void,
        count: usize,
        _desc: *mut c_void,
        compare: *const c_void,
        _compare_desc: *mut c_void,
        result: *mut c_void,
        _result_desc: *mut c_void,
        peer: Address,
        address: u64,
        key: u64,
        datatype: c_int,
        operator: c_int,
        context: *mut c_void,
    ) -> Signed {
        let (operands, comparands, mut results) = (some(buffer, count), some(compare, count), some(result, count));
        let none = null_mut();
        let remote = at(address, key);
        let message = of((&operands, 1), (peer, &remote), (datatype, operator), context);
        // SAFETY: as above.
        unsafe { compwritemsg(ep, &message, &comparands, none, 1, &mut results, none, 1, flags(ep, SENDS)) }
    }

    unsafe extern "C" fn compwritev(
        ep: *mut FidEndpoint,
        elements: *const Elements,
        _desc: *mut *mut c_void,
        count: usize,
        compare: *const Elements,
        compare_desc: *mut *mut c_void,
        compare_count: usize,
        results: *mut Elements,
        result_desc: *mut *mut c_void,
        result_count: usize,
        peer: Address,
        address: u64,
        key: u64,
        datatype: c_int,
        operator: c_int,
        context: *mut c_void,
    ) -> Signed {
        let remote = at(address, key);
        let message = of((elements, count), (peer, &remote), (datatype, operator), context);
        let (comparands, results) = ((compare, compare_desc, compare_count), (results, result_desc, result_count));
        // SAFETY: as above.
        unsafe {
            let flags = flags(ep, SENDS);
            compwritemsg(ep, &message, comparands.0, comparands.1, comparands.2, results.0, results.1, results.2, flags)
        }
    }
}
