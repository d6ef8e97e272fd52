//! Applications that use triggered operations wrongly, or change counters and addresses meanwhile.

use std::ffi::c_int;
use std::ptr::{null, null_mut};

use crate::abi::completion::ErrorEntry;
use crate::abi::constants::*;
use crate::abi::fid::Fid;
use crate::abi::info::{EndpointAttr, Info, TransmitAttr};
use crate::abi::object::*;
use crate::abi::transfer::Message;
use crate::abi::trigger::{AliasAttr, AnyOperation, DeferredWork, Operation, TriggeredContext};
use crate::abi::{Address, Iovec, Signed};
use crate::hostile::{Victim, close};
use crate::refuse::signed;
use crate::{counter, endpoint_calls};

const CAPS: u64 = FI_MSG | FI_TRIGGER;

fn counter_of(victim: &Victim) -> *mut FidCounter {
    let mut counter = null_mut();
    // SAFETY: an open domain.
    assert_eq!(unsafe { counter::open(victim.domain, null_mut(), &mut counter, null_mut()) }, 0);
    counter
}

fn add(counter: *mut FidCounter) {
    // SAFETY: an open counter.
    assert_eq!(unsafe { ((*(*counter).ops).add)(counter, 1) }, 0);
}

fn standing(counter: *mut FidCounter) -> (u64, u64) {
    // SAFETY: an open counter.
    unsafe { (((*(*counter).ops).read)(counter), ((*(*counter).ops).readerr)(counter)) }
}

fn control(fid: *mut Fid, command: c_int, argument: *mut impl Sized) -> c_int {
    // SAFETY: an open object, an argument as the command wants it.
    unsafe { ((*(*fid).ops).control)(fid, command, argument.cast()) }
}

fn message(addr: Address, iov: &Iovec, context: *mut TriggeredContext) -> Message {
    Message { iov, desc: null_mut(), iov_count: 1, addr, context: context.cast(), data: 0 }
}

fn send(endpoint: *mut FidEndpoint, message: &Message, flags: u64) -> Signed {
    // SAFETY: an open endpoint, a good message.
    unsafe { ((*(*endpoint).msg).sendmsg)(endpoint, message, flags) }
}

fn nowhere() -> Iovec {
    Iovec { base: null_mut(), length: 0 }
}

fn failed(victim: &Victim) -> ErrorEntry {
    victim.poll().expect("something has ended").err().expect("it is an error")
}

#[test]
fn what_fails_when_it_is_triggered_is_an_error_of_its_own() {
    let victim = Victim::open(CAPS);
    let (waited, counted) = (counter_of(&victim), counter_of(&victim));
    let mut address = victim.insert(&victim.name());
    let mut context = TriggeredContext { event_type: FI_TRIGGER_THRESHOLD, counter: waited, threshold: 1 };
    let piece = nowhere();
    assert_eq!(send(victim.endpoint, &message(address, &piece, &mut context), FI_TRIGGER), 0);
    let op = Operation { ep: victim.endpoint, message: message(address, &piece, &mut context), flags: 0 };
    let mut work = DeferredWork {
        context: [null_mut(); 8],
        threshold: 1,
        triggering: waited,
        completion: counted,
        op_type: FI_OP_SEND,
        op: AnyOperation { msg: &op },
    };
    assert_eq!(control(victim.domain.cast(), FI_QUEUE_WORK, &mut work), 0);
    // The peer has no address any more.
    // SAFETY: an open vector, one address.
    assert_eq!(unsafe { ((*(*victim.vector).ops).remove)(victim.vector, &mut address, 1, 0) }, 0);
    assert!(victim.poll().is_none());
    add(waited);
    for _ in 0..2 {
        let error = failed(&victim);
        assert_eq!((error.error, error.op_context), (FI_EINVAL, (&raw mut context).cast()));
        assert_eq!(error.flags, FI_SEND | FI_MSG);
    }
    assert_eq!(standing(counted), (0, 1));
    assert_eq!(send(victim.endpoint, &message(address, &piece, &mut context), FI_TRIGGER), signed(FI_EINVAL));
    [waited, counted].into_iter().for_each(|counter| close(counter.cast()));
}

#[test]
fn what_no_message_ends_is_no_work() {
    let victim = Victim::open(CAPS);
    let waited = counter_of(&victim);
    let piece = nowhere();
    let op = |flags| Operation { ep: victim.endpoint, message: message(FI_ADDR_UNSPEC, &piece, null_mut()), flags };
    let (several, looked, injected) = (op(FI_MULTI_RECV), op(FI_PEEK), op(FI_INJECT));
    for (op, error) in [(&several, FI_ENOSYS), (&looked, FI_EBADFLAGS), (&injected, FI_EINVAL)] {
        let mut work = DeferredWork {
            context: [null_mut(); 8],
            threshold: 1,
            triggering: waited,
            completion: null_mut(),
            op_type: FI_OP_RECV,
            op: AnyOperation { msg: op },
        };
        assert_eq!(control(victim.domain.cast(), FI_QUEUE_WORK, &mut work), -error);
    }
    // Nothing waits: the counter can be closed; a flush of an object that is no counter fails.
    assert_eq!(control(victim.domain.cast(), FI_FLUSH_WORK, waited), 0);
    assert_eq!(control(victim.domain.cast(), FI_FLUSH_WORK, victim.endpoint), -FI_EINVAL);
    assert_eq!(control(victim.domain.cast(), FI_ENABLE, null_mut::<Fid>()), -FI_ENOSYS);
    close(waited.cast());
}

#[test]
fn only_calls_with_flags_and_aliases_trigger() {
    let victim = Victim::open(CAPS);
    let mut flags = FI_SEND | FI_TRIGGER;
    assert_eq!(control(victim.endpoint.cast(), FI_SETOPSFLAG, &mut flags), -FI_EBADFLAGS);
    assert_eq!(control(victim.endpoint.cast(), FI_ALIAS, null_mut::<AliasAttr>()), -FI_EINVAL);
    let mut attr = AliasAttr { fid: null_mut(), flags };
    assert_eq!(control(victim.endpoint.cast(), FI_ALIAS, &mut attr), -FI_EINVAL, "there is nowhere to write it");

    let mut alias = null_mut::<Fid>();
    attr.fid = &mut alias;
    assert_eq!(control(victim.endpoint.cast(), FI_ALIAS, &mut attr), 0);
    let mut second = null_mut::<Fid>();
    let mut attr = AliasAttr { fid: &mut second, flags: FI_RECV };
    assert_eq!(control(alias, FI_ALIAS, &mut attr), 0, "an alias of an alias");
    // An alias of either kind is the endpoint to work at the domain; what it sends with its flags has no context.
    let address = victim.insert(&victim.name());
    let (piece, waited) = (nowhere(), counter_of(&victim));
    // SAFETY: an open alias, arguments as for an endpoint.
    let sent = unsafe {
        let alias = second.cast::<FidEndpoint>();
        ((*(*alias).msg).send)(alias, null(), 0, null_mut(), address, null_mut())
    };
    assert_eq!(sent, signed(FI_EINVAL));
    let op = Operation { ep: second.cast(), message: message(address, &piece, null_mut()), flags: 0 };
    let mut work = DeferredWork {
        context: [null_mut(); 8],
        threshold: 0,
        triggering: waited,
        completion: waited,
        op_type: FI_OP_SEND,
        op: AnyOperation { msg: &op },
    };
    assert_eq!(control(victim.domain.cast(), FI_QUEUE_WORK, &mut work), 0);
    assert_eq!(standing(waited), (1, 0));
    assert!(victim.poll().is_none(), "deferred work is told of by its counter alone");
    close(alias);
    close(second);
    close(waited.cast());
}

#[test]
fn endpoints_that_could_not_be_triggered_are_not_opened_so() {
    let victim = Victim::open(CAPS);
    // SAFETY: zeroed attributes are what applications pass for the usual; all objects are open when they are used.
    unsafe {
        let mut info = std::mem::zeroed::<Info>();
        let mut transmit = std::mem::zeroed::<TransmitAttr>();
        let mut attr = std::mem::zeroed::<EndpointAttr>();
        let mut endpoint = null_mut::<FidEndpoint>();
        transmit.op_flags = FI_TRIGGER;
        (info.caps, info.tx_attr) = (CAPS, &mut transmit);
        assert_eq!(endpoint_calls::open(victim.domain, &mut info, &mut endpoint, null_mut()), -FI_EINVAL);

        attr.kind = FI_EP_DGRAM;
        (info.tx_attr, info.ep_attr) = (null_mut(), &mut attr);
        assert_eq!(endpoint_calls::open(victim.domain, &mut info, &mut endpoint, null_mut()), 0);
        let waited = counter_of(&victim);
        let mut context = TriggeredContext { event_type: FI_TRIGGER_THRESHOLD, counter: waited, threshold: 1 };
        let piece = nowhere();
        assert_eq!(send(endpoint, &message(0, &piece, &mut context), FI_TRIGGER), signed(FI_EINVAL));
        let receive = (*(*endpoint).msg).recvmsg;
        assert_eq!(receive(endpoint, &message(0, &piece, &mut context), FI_TRIGGER), signed(FI_EINVAL));
        close(endpoint.cast());
        close(waited.cast());
    }
}
