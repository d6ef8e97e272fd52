//! Triggered operations, deferred work and aliases of endpoints.

use std::ffi::{c_int, c_void};

use super::atomic::{AtomicMessage, Elements};
use super::fid::Fid;
use super::object::{FidCounter, FidEndpoint};
use super::transfer::{Message, RemoteMessage, TaggedMessage};

/// `struct fi_alias`.
#[repr(C)]
pub struct AliasAttr {
    pub fid: *mut *mut Fid,
    pub flags: u64,
}

/// `struct fi_triggered_context` with a `struct fi_trigger_threshold`; `struct fi_triggered_context2` begins the same.
#[repr(C)]
pub struct TriggeredContext {
    pub event_type: c_int,
    pub counter: *mut FidCounter,
    pub threshold: usize,
}

/// `struct fi_msg_fetch`, and `struct fi_msg_compare`, which has the same fields.
#[repr(C)]
pub struct ElementList {
    pub iov: *mut Elements,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
}

/// `struct fi_op_msg`, `fi_op_tagged`, `fi_op_rma` and `fi_op_atomic`, by what the message is.
#[repr(C)]
pub struct Operation<M> {
    pub ep: *mut FidEndpoint,
    pub message: M,
    pub flags: u64,
}

/// `struct fi_op_fetch_atomic`.
#[repr(C)]
pub struct FetchOperation {
    pub ep: *mut FidEndpoint,
    pub message: AtomicMessage,
    pub fetch: ElementList,
    pub flags: u64,
}

/// `struct fi_op_compare_atomic`.
#[repr(C)]
pub struct CompareOperation {
    pub ep: *mut FidEndpoint,
    pub message: AtomicMessage,
    pub fetch: ElementList,
    pub compare: ElementList,
    pub flags: u64,
}

/// `struct fi_op_cntr`.
#[repr(C)]
pub struct CounterOperation {
    pub counter: *mut FidCounter,
    pub value: u64,
}

/// The union in `struct fi_deferred_work`.
#[repr(C)]
#[derive(Clone, Copy)]
pub union AnyOperation {
    pub any: *const c_void,
    pub msg: *const Operation<Message>,
    pub tagged: *const Operation<TaggedMessage>,
    pub rma: *const Operation<RemoteMessage>,
    pub atomic: *const Operation<AtomicMessage>,
    pub fetch_atomic: *const FetchOperation,
    pub compare_atomic: *const CompareOperation,
    pub counter: *const CounterOperation,
}

/// `struct fi_deferred_work`.
#[repr(C)]
pub struct DeferredWork {
    pub context: [*mut c_void; 8],
    pub threshold: u64,
    pub triggering: *mut FidCounter,
    pub completion: *mut FidCounter,
    pub op_type: c_int,
    pub op: AnyOperation,
}
