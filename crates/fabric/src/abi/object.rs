//! Objects and their tables of calls. Applications call through the tables without a check, so every entry is filled.

use std::ffi::{c_char, c_int, c_void};

use super::atomic::{AtomicAttr, AtomicMessage, Elements};
use super::completion::{ErrorEntry, EventErrorEntry};
use super::fid::{Fid, table};
use super::info::{
    AddressVectorAttr, CompletionQueueAttr, CounterAttr, EventQueueAttr, Info, MemoryRegionAttr, PollAttr, ReceiveAttr,
    TransmitAttr,
};
use super::transfer::{Message, RemoteMessage, TaggedMessage};
use super::{Address, Iovec, Signed};

macro_rules! object {
    ($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub struct $name {
            pub fid: Fid,
            $(pub $field: $type,)*
        }
    };
}

table! {
    /// `struct fi_ops_fabric`.
    FabricOps {
        domain: fn(*mut FidFabric, *mut Info, *mut *mut FidDomain, *mut c_void) -> c_int,
        passive_ep: fn(*mut FidFabric, *mut Info, *mut *mut FidPassive, *mut c_void) -> c_int,
        eq_open: fn(*mut FidFabric, *mut EventQueueAttr, *mut *mut FidEventQueue, *mut c_void) -> c_int,
        wait_open: fn(*mut FidFabric, *mut c_void, *mut *mut c_void) -> c_int,
        trywait: fn(*mut FidFabric, *mut *mut Fid, c_int) -> c_int,
        domain2: fn(*mut FidFabric, *mut Info, *mut *mut FidDomain, u64, *mut c_void) -> c_int,
    }
}

object! {
    /// `struct fid_fabric`.
    FidFabric {
        ops: *const FabricOps,
        api_version: u32,
    }
}

table! {
    /// `struct fi_ops_domain`.
    DomainOps {
        av_open: fn(*mut FidDomain, *mut AddressVectorAttr, *mut *mut FidAddressVector, *mut c_void) -> c_int,
        cq_open: fn(*mut FidDomain, *mut CompletionQueueAttr, *mut *mut FidCompletionQueue, *mut c_void) -> c_int,
        endpoint: fn(*mut FidDomain, *mut Info, *mut *mut FidEndpoint, *mut c_void) -> c_int,
        scalable_ep: fn(*mut FidDomain, *mut Info, *mut *mut FidEndpoint, *mut c_void) -> c_int,
        cntr_open: fn(*mut FidDomain, *mut CounterAttr, *mut *mut FidCounter, *mut c_void) -> c_int,
        poll_open: fn(*mut FidDomain, *mut PollAttr, *mut *mut FidPoll) -> c_int,
        stx_ctx: fn(*mut FidDomain, *mut TransmitAttr, *mut *mut FidTransmitContext, *mut c_void) -> c_int,
        srx_ctx: fn(*mut FidDomain, *mut ReceiveAttr, *mut *mut FidEndpoint, *mut c_void) -> c_int,
        query_atomic: fn(*mut FidDomain, c_int, c_int, *mut AtomicAttr, u64) -> c_int,
        query_collective: fn(*mut FidDomain, c_int, *mut c_void, u64) -> c_int,
        endpoint2: fn(*mut FidDomain, *mut Info, *mut *mut FidEndpoint, u64, *mut c_void) -> c_int,
    }
}

table! {
    /// `struct fi_ops_mr`.
    MemoryRegionOps {
        reg: fn(*mut Fid, *const c_void, usize, u64, u64, u64, u64, *mut *mut FidMemoryRegion, *mut c_void) -> c_int,
        regv: fn(
            *mut Fid, *const Iovec, usize, u64, u64, u64, u64, *mut *mut FidMemoryRegion, *mut c_void,
        ) -> c_int,
        regattr: fn(*mut Fid, *const MemoryRegionAttr, u64, *mut *mut FidMemoryRegion) -> c_int,
    }
}

object! {
    /// `struct fid_domain`.
    FidDomain {
        ops: *const DomainOps,
        mr: *const MemoryRegionOps,
    }
}

object! {
    /// `struct fid_mr`.
    FidMemoryRegion {
        mem_desc: *mut c_void,
        key: u64,
    }
}

table! {
    /// `struct fi_ops_av`.
    AddressVectorOps {
        insert: fn(*mut FidAddressVector, *const c_void, usize, *mut Address, u64, *mut c_void) -> c_int,
        insertsvc: fn(
            *mut FidAddressVector, *const c_char, *const c_char, *mut Address, u64, *mut c_void,
        ) -> c_int,
        insertsym: fn(
            *mut FidAddressVector, *const c_char, usize, *const c_char, usize, *mut Address, u64, *mut c_void,
        ) -> c_int,
        remove: fn(*mut FidAddressVector, *mut Address, usize, u64) -> c_int,
        lookup: fn(*mut FidAddressVector, Address, *mut c_void, *mut usize) -> c_int,
        straddr: fn(*mut FidAddressVector, *const c_void, *mut c_char, *mut usize) -> *const c_char,
        av_set: fn(*mut FidAddressVector, *mut c_void, *mut *mut c_void, *mut c_void) -> c_int,
    }
}

object! {
    /// `struct fid_av`.
    FidAddressVector {
        ops: *const AddressVectorOps,
    }
}

table! {
    /// `struct fi_ops_eq`.
    EventQueueOps {
        read: fn(*mut FidEventQueue, *mut u32, *mut c_void, usize, u64) -> Signed,
        readerr: fn(*mut FidEventQueue, *mut EventErrorEntry, u64) -> Signed,
        write: fn(*mut FidEventQueue, u32, *const c_void, usize, u64) -> Signed,
        sread: fn(*mut FidEventQueue, *mut u32, *mut c_void, usize, c_int, u64) -> Signed,
        strerror: fn(*mut FidEventQueue, c_int, *const c_void, *mut c_char, usize) -> *const c_char,
    }
}

object! {
    /// `struct fid_eq`.
    FidEventQueue {
        ops: *const EventQueueOps,
    }
}

table! {
    /// `struct fi_ops_cq`.
    CompletionQueueOps {
        read: fn(*mut FidCompletionQueue, *mut c_void, usize) -> Signed,
        readfrom: fn(*mut FidCompletionQueue, *mut c_void, usize, *mut Address) -> Signed,
        readerr: fn(*mut FidCompletionQueue, *mut ErrorEntry, u64) -> Signed,
        sread: fn(*mut FidCompletionQueue, *mut c_void, usize, *const c_void, c_int) -> Signed,
        sreadfrom: fn(
            *mut FidCompletionQueue, *mut c_void, usize, *mut Address, *const c_void, c_int,
        ) -> Signed,
        signal: fn(*mut FidCompletionQueue) -> c_int,
        strerror: fn(*mut FidCompletionQueue, c_int, *const c_void, *mut c_char, usize) -> *const c_char,
    }
}

object! {
    /// `struct fid_cq`.
    FidCompletionQueue {
        ops: *const CompletionQueueOps,
    }
}

table! {
    /// `struct fi_ops_cntr`.
    CounterOps {
        read: fn(*mut FidCounter) -> u64,
        readerr: fn(*mut FidCounter) -> u64,
        add: fn(*mut FidCounter, u64) -> c_int,
        set: fn(*mut FidCounter, u64) -> c_int,
        wait: fn(*mut FidCounter, u64, c_int) -> c_int,
        adderr: fn(*mut FidCounter, u64) -> c_int,
        seterr: fn(*mut FidCounter, u64) -> c_int,
    }
}

object! {
    /// `struct fid_cntr`.
    FidCounter {
        ops: *const CounterOps,
    }
}

table! {
    /// `struct fi_ops_poll`.
    PollOps {
        poll: fn(*mut FidPoll, *mut *mut c_void, c_int) -> c_int,
        poll_add: fn(*mut FidPoll, *mut Fid, u64) -> c_int,
        poll_del: fn(*mut FidPoll, *mut Fid, u64) -> c_int,
    }
}

object! {
    /// `struct fid_poll`.
    FidPoll {
        ops: *const PollOps,
    }
}

table! {
    /// `struct fi_ops_ep`.
    EndpointOps {
        cancel: fn(*mut Fid, *mut c_void) -> Signed,
        getopt: fn(*mut Fid, c_int, c_int, *mut c_void, *mut usize) -> c_int,
        setopt: fn(*mut Fid, c_int, c_int, *const c_void, usize) -> c_int,
        tx_ctx: fn(*mut FidEndpoint, c_int, *mut TransmitAttr, *mut *mut FidEndpoint, *mut c_void) -> c_int,
        rx_ctx: fn(*mut FidEndpoint, c_int, *mut ReceiveAttr, *mut *mut FidEndpoint, *mut c_void) -> c_int,
        rx_size_left: fn(*mut FidEndpoint) -> Signed,
        tx_size_left: fn(*mut FidEndpoint) -> Signed,
    }
}

object! {
    /// `struct fid_stx`.
    FidTransmitContext {
        ops: *const EndpointOps,
    }
}

table! {
    /// `struct fi_ops_cm`.
    ConnectionOps {
        setname: fn(*mut Fid, *mut c_void, usize) -> c_int,
        getname: fn(*mut Fid, *mut c_void, *mut usize) -> c_int,
        getpeer: fn(*mut FidEndpoint, *mut c_void, *mut usize) -> c_int,
        connect: fn(*mut FidEndpoint, *const c_void, *const c_void, usize) -> c_int,
        listen: fn(*mut FidPassive) -> c_int,
        accept: fn(*mut FidEndpoint, *const c_void, usize) -> c_int,
        reject: fn(*mut FidPassive, *mut Fid, *const c_void, usize) -> c_int,
        shutdown: fn(*mut FidEndpoint, u64) -> c_int,
        join: fn(*mut FidEndpoint, *const c_void, u64, *mut *mut c_void, *mut c_void) -> c_int,
    }
}

object! {
    /// `struct fid_pep`.
    FidPassive {
        ops: *const EndpointOps,
        cm: *const ConnectionOps,
    }
}

table! {
    /// `struct fi_ops_msg`.
    MessageOps {
        recv: fn(*mut FidEndpoint, *mut c_void, usize, *mut c_void, Address, *mut c_void) -> Signed,
        recvv: fn(*mut FidEndpoint, *const Iovec, *mut *mut c_void, usize, Address, *mut c_void) -> Signed,
        recvmsg: fn(*mut FidEndpoint, *const Message, u64) -> Signed,
        send: fn(*mut FidEndpoint, *const c_void, usize, *mut c_void, Address, *mut c_void) -> Signed,
        sendv: fn(*mut FidEndpoint, *const Iovec, *mut *mut c_void, usize, Address, *mut c_void) -> Signed,
        sendmsg: fn(*mut FidEndpoint, *const Message, u64) -> Signed,
        inject: fn(*mut FidEndpoint, *const c_void, usize, Address) -> Signed,
        senddata: fn(*mut FidEndpoint, *const c_void, usize, *mut c_void, u64, Address, *mut c_void) -> Signed,
        injectdata: fn(*mut FidEndpoint, *const c_void, usize, u64, Address) -> Signed,
    }
}

table! {
    /// `struct fi_ops_tagged`.
    TaggedOps {
        recv: fn(*mut FidEndpoint, *mut c_void, usize, *mut c_void, Address, u64, u64, *mut c_void) -> Signed,
        recvv: fn(
            *mut FidEndpoint, *const Iovec, *mut *mut c_void, usize, Address, u64, u64, *mut c_void,
        ) -> Signed,
        recvmsg: fn(*mut FidEndpoint, *const TaggedMessage, u64) -> Signed,
        send: fn(*mut FidEndpoint, *const c_void, usize, *mut c_void, Address, u64, *mut c_void) -> Signed,
        sendv: fn(*mut FidEndpoint, *const Iovec, *mut *mut c_void, usize, Address, u64, *mut c_void) -> Signed,
        sendmsg: fn(*mut FidEndpoint, *const TaggedMessage, u64) -> Signed,
        inject: fn(*mut FidEndpoint, *const c_void, usize, Address, u64) -> Signed,
        senddata: fn(
            *mut FidEndpoint, *const c_void, usize, *mut c_void, u64, Address, u64, *mut c_void,
        ) -> Signed,
        injectdata: fn(*mut FidEndpoint, *const c_void, usize, u64, Address, u64) -> Signed,
    }
}

table! {
    /// `struct fi_ops_rma`.
    RemoteOps {
        read: fn(*mut FidEndpoint, *mut c_void, usize, *mut c_void, Address, u64, u64, *mut c_void) -> Signed,
        readv: fn(
            *mut FidEndpoint, *const Iovec, *mut *mut c_void, usize, Address, u64, u64, *mut c_void,
        ) -> Signed,
        readmsg: fn(*mut FidEndpoint, *const RemoteMessage, u64) -> Signed,
        write: fn(*mut FidEndpoint, *const c_void, usize, *mut c_void, Address, u64, u64, *mut c_void) -> Signed,
        writev: fn(
            *mut FidEndpoint, *const Iovec, *mut *mut c_void, usize, Address, u64, u64, *mut c_void,
        ) -> Signed,
        writemsg: fn(*mut FidEndpoint, *const RemoteMessage, u64) -> Signed,
        inject: fn(*mut FidEndpoint, *const c_void, usize, Address, u64, u64) -> Signed,
        writedata: fn(
            *mut FidEndpoint, *const c_void, usize, *mut c_void, u64, Address, u64, u64, *mut c_void,
        ) -> Signed,
        injectdata: fn(*mut FidEndpoint, *const c_void, usize, u64, Address, u64, u64) -> Signed,
    }
}

table! {
    /// `struct fi_ops_atomic`.
    AtomicOps {
        write: fn(
            *mut FidEndpoint, *const c_void, usize, *mut c_void, Address, u64, u64, c_int, c_int, *mut c_void,
        ) -> Signed,
        writev: fn(
            *mut FidEndpoint, *const Elements, *mut *mut c_void, usize, Address, u64, u64, c_int, c_int, *mut c_void,
        ) -> Signed,
        writemsg: fn(*mut FidEndpoint, *const AtomicMessage, u64) -> Signed,
        inject: fn(*mut FidEndpoint, *const c_void, usize, Address, u64, u64, c_int, c_int) -> Signed,
        readwrite: fn(
            *mut FidEndpoint, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, Address, u64, u64, c_int,
            c_int, *mut c_void,
        ) -> Signed,
        readwritev: fn(
            *mut FidEndpoint, *const Elements, *mut *mut c_void, usize, *mut Elements, *mut *mut c_void, usize,
            Address, u64, u64, c_int, c_int, *mut c_void,
        ) -> Signed,
        readwritemsg: fn(
            *mut FidEndpoint, *const AtomicMessage, *mut Elements, *mut *mut c_void, usize, u64,
        ) -> Signed,
        compwrite: fn(
            *mut FidEndpoint, *const c_void, usize, *mut c_void, *const c_void, *mut c_void, *mut c_void, *mut c_void,
            Address, u64, u64, c_int, c_int, *mut c_void,
        ) -> Signed,
        compwritev: fn(
            *mut FidEndpoint, *const Elements, *mut *mut c_void, usize, *const Elements, *mut *mut c_void, usize,
            *mut Elements, *mut *mut c_void, usize, Address, u64, u64, c_int, c_int, *mut c_void,
        ) -> Signed,
        compwritemsg: fn(
            *mut FidEndpoint, *const AtomicMessage, *const Elements, *mut *mut c_void, usize, *mut Elements,
            *mut *mut c_void, usize, u64,
        ) -> Signed,
        writevalid: fn(*mut FidEndpoint, c_int, c_int, *mut usize) -> c_int,
        readwritevalid: fn(*mut FidEndpoint, c_int, c_int, *mut usize) -> c_int,
        compwritevalid: fn(*mut FidEndpoint, c_int, c_int, *mut usize) -> c_int,
    }
}

object! {
    /// `struct fid_ep`.
    FidEndpoint {
        ops: *const EndpointOps,
        cm: *const ConnectionOps,
        msg: *const MessageOps,
        rma: *const RemoteOps,
        tagged: *const TaggedOps,
        atomic: *const AtomicOps,
        collective: *const c_void,
    }
}
