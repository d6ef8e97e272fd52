//! Flags, enumerations and error numbers.

use std::ffi::c_int;

/// Names the constants with their type and keeps a list of them for the comparison with the headers.
macro_rules! constants {
    ($list:ident: $type:ty; $($name:ident = $value:expr,)*) => {
        $(pub const $name: $type = $value;)*
        pub const $list: &[(&str, u64)] = &[$((stringify!($name), $name as u64),)*];
    };
}

constants! { FLAGS: u64;
    FI_MSG = 1 << 1,
    FI_RMA = 1 << 2,
    FI_TAGGED = 1 << 3,
    FI_ATOMIC = 1 << 4,
    FI_READ = 1 << 8,
    FI_WRITE = 1 << 9,
    FI_RECV = 1 << 10,
    FI_SEND = 1 << 11,
    FI_REMOTE_READ = 1 << 12,
    FI_REMOTE_WRITE = 1 << 13,
    FI_MULTI_RECV = 1 << 16,
    FI_REMOTE_CQ_DATA = 1 << 17,
    FI_MORE = 1 << 18,
    FI_PEEK = 1 << 19,
    FI_FENCE = 1 << 21,
    FI_COMPLETION = 1 << 24,
    FI_EVENT = 1 << 24,
    FI_INJECT = 1 << 25,
    FI_INJECT_COMPLETE = 1 << 26,
    FI_TRANSMIT_COMPLETE = 1 << 27,
    FI_DELIVERY_COMPLETE = 1 << 28,
    FI_AFFINITY = 1 << 29,
    FI_MATCH_COMPLETE = 1 << 31,
    FI_AV_USER_ID = 1 << 41,
    FI_LOCAL_COMM = 1 << 51,
    FI_REMOTE_COMM = 1 << 52,
    FI_RMA_EVENT = 1 << 56,
    FI_SOURCE = 1 << 57,
    FI_DISCARD = 1 << 58,
    FI_SYNC_ERR = 1 << 58,
    FI_CLAIM = 1 << 59,
    FI_DIRECTED_RECV = 1 << 59,
    FI_SELECTIVE_COMPLETION = 1 << 59,
    FI_FETCH_ATOMIC = 1 << 58,
    FI_COMPARE_ATOMIC = 1 << 59,
    FI_ORDER_RAR = 1 << 0,
    FI_ORDER_RAW = 1 << 1,
    FI_ORDER_RAS = 1 << 2,
    FI_ORDER_WAR = 1 << 3,
    FI_ORDER_WAW = 1 << 4,
    FI_ORDER_WAS = 1 << 5,
    FI_ORDER_SAR = 1 << 6,
    FI_ORDER_SAW = 1 << 7,
    FI_ORDER_SAS = 1 << 8,
    FI_ADDR_UNSPEC = u64::MAX,
    FI_ADDR_NOTAVAIL = u64::MAX,
}

constants! { COUNTS: usize;
    FI_SHARED_CONTEXT = usize::MAX,
}

constants! { CLASSES: usize;
    FI_CLASS_FABRIC = 1,
    FI_CLASS_DOMAIN = 2,
    FI_CLASS_EP = 3,
    FI_CLASS_SRX_CTX = 6,
    FI_CLASS_STX_CTX = 8,
    FI_CLASS_AV = 11,
    FI_CLASS_MR = 12,
    FI_CLASS_EQ = 13,
    FI_CLASS_CQ = 14,
    FI_CLASS_CNTR = 15,
    FI_CLASS_POLL = 17,
}

constants! { ENUMERATIONS: c_int;
    FI_EP_UNSPEC = 0,
    FI_EP_DGRAM = 2,
    FI_EP_RDM = 3,
    FI_AV_UNSPEC = 0,
    FI_AV_MAP = 1,
    FI_AV_TABLE = 2,
    FI_THREAD_UNSPEC = 0,
    FI_THREAD_SAFE = 1,
    FI_THREAD_FID = 2,
    FI_THREAD_DOMAIN = 3,
    FI_THREAD_COMPLETION = 4,
    FI_THREAD_ENDPOINT = 5,
    FI_PROGRESS_UNSPEC = 0,
    FI_PROGRESS_AUTO = 1,
    FI_PROGRESS_MANUAL = 2,
    FI_RM_ENABLED = 2,
    FI_CQ_FORMAT_UNSPEC = 0,
    FI_CQ_FORMAT_CONTEXT = 1,
    FI_CQ_FORMAT_MSG = 2,
    FI_CQ_FORMAT_DATA = 3,
    FI_CQ_FORMAT_TAGGED = 4,
    FI_WAIT_NONE = 0,
    FI_WAIT_UNSPEC = 1,
    FI_WAIT_YIELD = 5,
    FI_CQ_COND_NONE = 0,
    FI_ALIAS = 4,
    FI_GETWAIT = 5,
    FI_ENABLE = 6,
    FI_GETOPSFLAG = 2,
    FI_SETOPSFLAG = 3,
    FI_AV_COMPLETE = 5,
    FI_OPT_ENDPOINT = 0,
    FI_OPT_MIN_MULTI_RECV = 0,
    FI_OPT_CM_DATA_SIZE = 1,
    FI_PARAM_STRING = 0,
    FI_MR_BASIC = 1,
    FI_MR_SCALABLE = 2,
}

constants! { ERRORS: c_int;
    FI_ENOENT = 2,
    FI_EIO = 5,
    FI_EAGAIN = 11,
    FI_ENOMEM = 12,
    FI_EACCES = 13,
    FI_EBUSY = 16,
    FI_EINVAL = 22,
    FI_ENOSYS = 38,
    FI_ENOMSG = 42,
    FI_ENODATA = 61,
    FI_EMSGSIZE = 90,
    FI_ENOPROTOOPT = 92,
    FI_EOPNOTSUPP = 95,
    FI_ECONNRESET = 104,
    FI_ENOTCONN = 107,
    FI_EALREADY = 114,
    FI_ECANCELED = 125,
    FI_ETOOSMALL = 257,
    FI_EOPBADSTATE = 258,
    FI_EAVAIL = 259,
    FI_EBADFLAGS = 260,
    FI_ENOEQ = 261,
    FI_ENOCQ = 263,
    FI_ETRUNC = 265,
    FI_ENOKEY = 266,
    FI_ENOAV = 267,
}

/// A flag of `fi_getinfo` by which libfabric's own layers look for what they stack on; no header tells it.
pub const CORE_PROVIDERS_ONLY: u64 = 1 << 59;
/// `FI_PROGRESS_CONTROL_UNIFIED`, since 2.0.
pub const FI_PROGRESS_CONTROL_UNIFIED: c_int = 3;
