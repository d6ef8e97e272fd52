//! Deferred work of a domain, fi_trigger(3): queued, cancelled and flushed by `fi_control`.

use std::ffi::{c_int, c_void};

use crate::abi::Signed;
use crate::abi::constants::*;
use crate::abi::fid::Fid;
use crate::abi::object::FidEndpoint;
use crate::abi::trigger::DeferredWork;
use crate::counter::Counter;
use crate::domain::Domain;
use crate::endpoint::Endpoint;
use crate::object;
use crate::refuse::signed;
use crate::{atomic, receive, rma, send};

/// `fi_control` of a domain.
///
/// # Safety
/// libfabric's contract: the argument is as the command wants it.
pub unsafe fn control(domain: &Domain, command: c_int, argument: *mut c_void) -> c_int {
    let name = argument.cast_const().cast::<DeferredWork>();
    // SAFETY: the caller's promise.
    unsafe {
        match (command, name.as_ref()) {
            (FI_QUEUE_WORK, Some(work)) => queue(domain, work) as c_int,
            (FI_CANCEL_WORK, Some(_)) => {
                let _entered = domain.enter();
                if domain.triggers.cancel_work(name) { 0 } else { -FI_ENOENT }
            }
            (FI_QUEUE_WORK | FI_CANCEL_WORK, None) => -FI_EINVAL,
            (FI_FLUSH_WORK, _) => {
                // A counter limits the flush to work that waits for it.
                let only = argument.cast_const().cast::<Fid>();
                let counter = object::of::<Counter>(only);
                if counter.is_none() && !only.is_null() {
                    return -FI_EINVAL;
                }
                let _entered = domain.enter();
                domain.triggers.flush_work(counter);
                0
            }
            _ => -FI_ENOSYS,
        }
    }
}

/// Queues deferred work. It is copied: applications reuse the structures for their next work.
///
/// # Safety
/// As for [`control`].
unsafe fn queue(domain: &Domain, work: &DeferredWork) -> Signed {
    // SAFETY: the caller's promise: the union's field is that of the type.
    unsafe {
        if !(FI_OP_RECV..=FI_OP_CNTR_ADD).contains(&work.op_type) {
            return signed(FI_ENOSYS);
        }
        if work.op.any.is_null() {
            return signed(FI_EINVAL);
        }
        if matches!(work.op_type, FI_OP_CNTR_SET | FI_OP_CNTR_ADD) {
            return domain.queue_count(work);
        }
        // All operations begin with their endpoint.
        let ep = match Endpoint::given(*work.op.any.cast::<*mut Fid>()) {
            Some(endpoint) if std::ptr::eq(&*endpoint.domain, domain) => {
                std::ptr::from_ref(endpoint).cast_mut().cast::<FidEndpoint>()
            }
            _ => return signed(FI_EINVAL),
        };
        let later = |flags| flags | FI_TRIGGER;
        let (op, work) = (&work.op, Some(work));
        match work.map_or(FI_OP_RECV, |work| work.op_type) {
            FI_OP_RECV => receive::receive_message(ep, &(*op.msg).message, later((*op.msg).flags), work),
            FI_OP_SEND => send::send_message(ep, &(*op.msg).message, later((*op.msg).flags), work),
            FI_OP_TRECV => receive::receive_tagged(ep, &(*op.tagged).message, later((*op.tagged).flags), work),
            FI_OP_TSEND => send::send_tagged(ep, &(*op.tagged).message, later((*op.tagged).flags), work),
            FI_OP_READ => rma::read_message(ep, &(*op.rma).message, later((*op.rma).flags), work),
            FI_OP_WRITE => rma::write_message(ep, &(*op.rma).message, later((*op.rma).flags), work),
            FI_OP_ATOMIC => {
                let op = &*op.atomic;
                atomic::start_message(ep, &op.message, None, None, later(op.flags), work)
            }
            FI_OP_FETCH_ATOMIC => {
                let op = &*op.fetch_atomic;
                let fetch = (op.fetch.iov.cast_const(), op.fetch.iov_count);
                atomic::start_message(ep, &op.message, None, Some(fetch), later(op.flags), work)
            }
            _ => {
                let op = &*op.compare_atomic;
                let fetch = (op.fetch.iov.cast_const(), op.fetch.iov_count);
                let compare = (op.compare.iov.cast_const(), op.compare.iov_count);
                atomic::start_message(ep, &op.message, Some(compare), Some(fetch), later(op.flags), work)
            }
        }
    }
}
