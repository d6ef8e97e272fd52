//! Calls of atomic operations on memory of peers.

use std::ffi::{c_int, c_void};

use crate::abi::atomic::{AtomicAttr, AtomicMessage, Elements};
use crate::abi::constants::*;
use crate::abi::object::{AtomicOps, FidDomain, FidEndpoint};
use crate::abi::trigger::DeferredWork;
use crate::abi::{Address, Iovec, Signed};
use crate::arithmetic::{Datatype, Operator};
use crate::endpoint::{Endpoint, SENDS, Shell, State};
use crate::initiator::{Action, Wanted};
use crate::memory::{Memory, total, wish};
use crate::object::Context;
use crate::offer::{PIECES, UNKEPT};
use crate::refuse::signed;
use crate::rma::Place;
use crate::send::Flags;
use crate::trigger::{self, Asked};
use crate::wire::INLINE;

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

/// The three forms of calls.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    Plain,
    Fetch,
    Compare,
}

/// Arguments of an operation.
struct Call<'a> {
    form: Form,
    place: Place,
    datatype: c_int,
    operator: c_int,
    operands: &'a [Elements],
    comparands: &'a [Elements],
    results: &'a [Elements],
    context: Context,
}

/// Datatype and operator, if that form has such an operation.
fn operation(form: Form, datatype: c_int, operator: c_int) -> Option<(Datatype, Operator)> {
    let (datatype, operator) = (Datatype::of(datatype)?, Operator::of(operator)?);
    let fits = match form {
        Form::Plain => !operator.compares() && operator != Operator::Read,
        Form::Fetch => !operator.compares(),
        Form::Compare => operator.compares(),
    };
    (fits && operator.serves(datatype)).then_some((datatype, operator))
}

/// Most elements of one operation.
fn most(form: Form, datatype: Datatype) -> usize {
    let operands = if form == Form::Compare { 2 } else { 1 };
    INLINE / operands / datatype.size()
}

/// Elements as bytes; `None` where there are too many pieces or bytes.
fn bytes(elements: &[Elements], size: usize, into: &mut Vec<Iovec>) -> Option<usize> {
    for piece in elements {
        into.push(Iovec { base: piece.base, length: piece.count.checked_mul(size)? });
    }
    total(into)
}

impl State {
    /// # Safety
    /// The elements stay as libfabric's contract has it.
    unsafe fn operate(&mut self, call: &Call, flags: u64) -> Signed {
        let Some(peer) = self.peer(call.place.peer) else { return self.nobody() };
        let Some((datatype, operator)) = operation(call.form, call.datatype, call.operator) else {
            return signed(FI_EOPNOTSUPP);
        };
        let (mut operands, mut comparands, mut results) = (Vec::new(), Vec::new(), Vec::new());
        let size = datatype.size();
        // A mere read has no operands: arguments for them are ignored.
        let reads = operator == Operator::Read;
        let given = if reads { &[] } else { call.operands };
        let (Some(given), Some(compared), Some(result)) = (
            bytes(given, size, &mut operands),
            bytes(call.comparands, size, &mut comparands),
            bytes(call.results, size, &mut results),
        ) else {
            return signed(FI_EINVAL);
        };
        let length = if reads { result } else { given };
        let fits = (call.form == Form::Plain || result == length)
            && (call.form != Form::Compare || compared == length)
            && length <= most(call.form, datatype) * size;
        if !fits {
            return signed(FI_EINVAL);
        }
        let wishes = if flags & FI_COMPLETION != 0 { wish::COMPLETION } else { 0 };
        // Operands always travel with the request, as a copy.
        let mut sent = vec![0; given + compared];
        // SAFETY: the caller's promise.
        let result = unsafe {
            engine::Buffer::read(&Memory::scattered(&operands, 0), 0, &mut sent[..given]);
            engine::Buffer::read(&Memory::scattered(&comparands, 0), 0, &mut sent[given..]);
            match call.form {
                Form::Plain => Memory::owned(Vec::new(), wish::REMOTE),
                _ => Memory::scattered(&results, wish::REMOTE),
            }
        };
        let wanted = Wanted {
            key: call.place.key,
            address: call.place.address,
            length,
            action: Action::Atomic { datatype, operator, fetch: call.form != Form::Plain },
            data: None,
        };
        self.begin(peer, &wanted, Memory::owned(sent, wish::REMOTE), result, call.context, wishes)
    }
}

/// # Safety
/// libfabric's contract: an open endpoint and good elements.
unsafe fn start(ep: *mut FidEndpoint, call: Call, flags: Flags) -> Signed {
    // SAFETY: the caller's promise; the domain is entered before the state is touched.
    unsafe {
        let shell = Shell::of(ep);
        if matches!(flags, Flags::Usual) && shell.is_alias() {
            return start_given(ep, call, shell.flags(SENDS), None);
        }
        let endpoint = Endpoint::of(ep);
        let _entered = endpoint.domain.enter();
        let state = endpoint.state();
        let flags = flags.in_all(shell, state);
        state.operate(&call, flags)
    }
}

/// Starts a call with flags of its own, which may have it wait for a counter.
///
/// # Safety
/// As for [`start`]; the work is as fi_trigger(3) wants it.
unsafe fn start_given(ep: *mut FidEndpoint, call: Call, flags: u64, work: Option<&DeferredWork>) -> Signed {
    if flags & UNKEPT != 0 {
        return signed(FI_EBADFLAGS);
    }
    // SAFETY: the caller's promise.
    unsafe {
        if flags & FI_TRIGGER == 0 {
            return start(ep, call, Flags::Given(flags));
        }
        let Call { form, place, datatype, operator, context, .. } = call;
        let Some((known, operation)) = operation(form, datatype, operator) else { return signed(FI_EOPNOTSUPP) };
        let kind = Action::Atomic { datatype: known, operator: operation, fetch: form != Form::Plain }.flags();
        let lists = [call.operands, call.comparands, call.results].map(<[Elements]>::to_vec);
        let post = move |state: &mut State| {
            let [operands, comparands, results] = &lists;
            let call = Call { form, place, datatype, operator, operands, comparands, results, context };
            state.operate(&call, flags | state.always_sent)
        };
        trigger::wait(ep, &Asked { to: place.peer, context, flags, kind, work }, post)
    }
}

fn flat(buffer: *const c_void, count: usize) -> [Elements; 1] {
    [Elements { base: buffer.cast_mut(), count }]
}

/// A list of an application; empty for none.
///
/// # Safety
/// It is NULL or holds `count`.
unsafe fn list<'a>(elements: *const Elements, count: usize) -> Option<&'a [Elements]> {
    if count > PIECES {
        return None;
    }
    if elements.is_null() || count == 0 {
        return Some(&[]);
    }
    // SAFETY: the caller's promise.
    Some(unsafe { std::slice::from_raw_parts(elements, count) })
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
    let operands = &flat(buffer, count);
    let place = Place { peer, address, key };
    let call = Call { form: Form::Plain, place, datatype, operator, operands, comparands: &[], results: &[], context };
    // SAFETY: libfabric's contract, as in all below.
    unsafe { start(ep, call, Flags::Usual) }
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
    let place = Place { peer, address, key };
    // SAFETY: as above.
    unsafe {
        let Some(operands) = list(elements, count) else { return signed(FI_EINVAL) };
        let form = Form::Plain;
        start(
            ep,
            Call { form, place, datatype, operator, operands, comparands: &[], results: &[], context },
            Flags::Usual,
        )
    }
}

/// A list in a `msg` call.
type List = (*const Elements, usize);

/// Starts a `msg` call of the form that its lists imply; it may wait for a counter.
///
/// # Safety
/// libfabric's contract: the message is NULL or good, the lists hold as many as they say, the work is as fi_trigger(3)
/// wants it.
pub unsafe fn start_message(
    ep: *mut FidEndpoint,
    message: *const AtomicMessage,
    comparands: Option<List>,
    results: Option<List>,
    flags: u64,
    work: Option<&DeferredWork>,
) -> Signed {
    let form = match (comparands, results) {
        (Some(_), _) => Form::Compare,
        (None, Some(_)) => Form::Fetch,
        (None, None) => Form::Plain,
    };
    let given = |list: Option<List>| list.unwrap_or((std::ptr::null(), 0));
    let ((comparands, compared), (results, fetched)) = (given(comparands), given(results));
    // SAFETY: the caller's promise.
    unsafe {
        let Some(message) = message.as_ref() else { return signed(FI_EINVAL) };
        let (Some(remote), 1) = (message.remote_iov.as_ref(), message.remote_iov_count) else {
            return signed(FI_EINVAL);
        };
        let (Some(operands), Some(comparands), Some(results)) =
            (list(message.iov, message.iov_count), list(comparands, compared), list(results, fetched))
        else {
            return signed(FI_EINVAL);
        };
        let context = message.context;
        let place = Place { peer: message.addr, address: remote.addr, key: remote.key };
        let (datatype, operator) = (message.datatype, message.op);
        let call = Call { form, place, datatype, operator, operands, comparands, results, context };
        start_given(ep, call, flags, work)
    }
}

unsafe extern "C" fn writemsg(ep: *mut FidEndpoint, message: *const AtomicMessage, flags: u64) -> Signed {
    // SAFETY: as above.
    unsafe { start_message(ep, message, None, None, flags, None) }
}

unsafe extern "C" fn inject(
    ep: *mut FidEndpoint,
    buffer: *const c_void,
    count: usize,
    peer: Address,
    address: u64,
    key: u64,
    datatype: c_int,
    operator: c_int,
) -> Signed {
    let operands = &flat(buffer, count);
    let (place, context) = (Place { peer, address, key }, std::ptr::null_mut());
    let call = Call { form: Form::Plain, place, datatype, operator, operands, comparands: &[], results: &[], context };
    // SAFETY: as above.
    unsafe { start(ep, call, Flags::Inject) }
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
    let results = &flat(result, count);
    let operands = &flat(buffer, count);
    let place = Place { peer, address, key };
    let call = Call { form: Form::Fetch, place, datatype, operator, operands, comparands: &[], results, context };
    // SAFETY: as above.
    unsafe { start(ep, call, Flags::Usual) }
}

unsafe extern "C" fn readwritev(
    ep: *mut FidEndpoint,
    elements: *const Elements,
    _desc: *mut *mut c_void,
    count: usize,
    results: *mut Elements,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    peer: Address,
    address: u64,
    key: u64,
    datatype: c_int,
    operator: c_int,
    context: *mut c_void,
) -> Signed {
    let place = Place { peer, address, key };
    // SAFETY: as above.
    unsafe {
        let (Some(operands), Some(results)) = (list(elements, count), list(results, result_count)) else {
            return signed(FI_EINVAL);
        };
        start(
            ep,
            Call { form: Form::Fetch, place, datatype, operator, operands, comparands: &[], results, context },
            Flags::Usual,
        )
    }
}

unsafe extern "C" fn readwritemsg(
    ep: *mut FidEndpoint,
    message: *const AtomicMessage,
    results: *mut Elements,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    flags: u64,
) -> Signed {
    // SAFETY: as above.
    unsafe { start_message(ep, message, None, Some((results, result_count)), flags, None) }
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
    let (operands, comparands, results) = (&flat(buffer, count), &flat(compare, count), &flat(result, count));
    let place = Place { peer, address, key };
    let call = Call { form: Form::Compare, place, datatype, operator, operands, comparands, results, context };
    // SAFETY: as above.
    unsafe { start(ep, call, Flags::Usual) }
}

unsafe extern "C" fn compwritev(
    ep: *mut FidEndpoint,
    elements: *const Elements,
    _desc: *mut *mut c_void,
    count: usize,
    compare: *const Elements,
    _compare_desc: *mut *mut c_void,
    compare_count: usize,
    results: *mut Elements,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    peer: Address,
    address: u64,
    key: u64,
    datatype: c_int,
    operator: c_int,
    context: *mut c_void,
) -> Signed {
    let place = Place { peer, address, key };
    // SAFETY: as above.
    unsafe {
        let (Some(operands), Some(comparands), Some(results)) =
            (list(elements, count), list(compare, compare_count), list(results, result_count))
        else {
            return signed(FI_EINVAL);
        };
        start(
            ep,
            Call { form: Form::Compare, place, datatype, operator, operands, comparands, results, context },
            Flags::Usual,
        )
    }
}

unsafe extern "C" fn compwritemsg(
    ep: *mut FidEndpoint,
    message: *const AtomicMessage,
    compare: *const Elements,
    _compare_desc: *mut *mut c_void,
    compare_count: usize,
    results: *mut Elements,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    flags: u64,
) -> Signed {
    // SAFETY: as above.
    unsafe { start_message(ep, message, Some((compare, compare_count)), Some((results, result_count)), flags, None) }
}

/// # Safety
/// `count` is NULL or may be written.
unsafe fn valid(form: Form, datatype: c_int, operator: c_int, count: *mut usize) -> c_int {
    let Some((datatype, _)) = operation(form, datatype, operator) else { return -FI_EOPNOTSUPP };
    if count.is_null() {
        return -FI_EINVAL;
    }
    // SAFETY: the caller's promise.
    unsafe { *count = most(form, datatype) };
    0
}

unsafe extern "C" fn writevalid(_: *mut FidEndpoint, datatype: c_int, operator: c_int, count: *mut usize) -> c_int {
    // SAFETY: libfabric's contract.
    unsafe { valid(Form::Plain, datatype, operator, count) }
}

unsafe extern "C" fn readwritevalid(_: *mut FidEndpoint, datatype: c_int, operator: c_int, count: *mut usize) -> c_int {
    // SAFETY: libfabric's contract.
    unsafe { valid(Form::Fetch, datatype, operator, count) }
}

unsafe extern "C" fn compwritevalid(_: *mut FidEndpoint, datatype: c_int, operator: c_int, count: *mut usize) -> c_int {
    // SAFETY: libfabric's contract.
    unsafe { valid(Form::Compare, datatype, operator, count) }
}

/// `fi_query_atomic`: whether an operation is served, and for how many elements.
pub unsafe extern "C" fn query(
    _: *mut FidDomain,
    datatype: c_int,
    operator: c_int,
    attr: *mut AtomicAttr,
    flags: u64,
) -> c_int {
    let form = match flags {
        0 => Form::Plain,
        FI_FETCH_ATOMIC => Form::Fetch,
        FI_COMPARE_ATOMIC => Form::Compare,
        _ => return -FI_EINVAL,
    };
    let Some((datatype, _)) = operation(form, datatype, operator) else { return -FI_EOPNOTSUPP };
    // SAFETY: libfabric's contract: NULL or good.
    let Some(attr) = (unsafe { attr.as_mut() }) else { return -FI_EINVAL };
    attr.size = datatype.size();
    attr.count = most(form, datatype);
    0
}
