//! Address vectors: names of endpoints by the indices that applications use. Both types count from 0.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::NonNull;
use std::sync::atomic::AtomicUsize;

use endpoint::Name;
use machine::Fault;

use crate::abi::Address;
use crate::abi::completion::EventEntry;
use crate::abi::constants::*;
use crate::abi::fid::{Fid, Ops};
use crate::abi::info::AddressVectorAttr;
use crate::abi::object::{AddressVectorOps, FidAddressVector, FidDomain};
use crate::domain::Domain;
use crate::endpoint::Endpoint;
use crate::event_queue::EventQueue;
use crate::object::{self, Guarded, Object, Used};
use crate::refuse::{self, refused};
use crate::service::{self, Service};

#[repr(C)]
pub struct AddressVector {
    fid: FidAddressVector,
    users: AtomicUsize,
    domain: Used<Domain>,
    /// Insertions are reported to the event queue instead of by their result (FI_EVENT).
    asynchronous: bool,
    state: Guarded<State>,
}

#[derive(Default)]
struct State {
    names: Vec<Option<Name>>,
    /// Bound endpoints; each leaves before it is freed.
    endpoints: Vec<NonNull<Endpoint>>,
    events: Option<Used<EventQueue>>,
}

// SAFETY: it begins with a `Fid`.
unsafe impl Object for AddressVector {
    const CLASS: usize = FI_CLASS_AV;

    fn users(&self) -> &AtomicUsize {
        &self.users
    }
}

static BASE: Ops = Ops {
    size: size_of::<Ops>(),
    close: object::close::<AddressVector>,
    bind,
    control: refuse::control,
    ops_open: refuse::ops_open,
    tostr: refuse::tostr,
    ops_set: refuse::ops_set,
};

static OPS: AddressVectorOps = AddressVectorOps {
    size: size_of::<AddressVectorOps>(),
    insert,
    insertsvc,
    insertsym,
    remove,
    lookup,
    straddr,
    av_set,
};

refused! {
    insertsym(
        *mut FidAddressVector, *const c_char, usize, *const c_char, usize, *mut Address, u64, *mut c_void,
    ) -> c_int;
    av_set(*mut FidAddressVector, *mut c_void, *mut *mut c_void, *mut c_void) -> c_int;
}

pub unsafe extern "C" fn open(
    domain: *mut FidDomain,
    attr: *mut AddressVectorAttr,
    into: *mut *mut FidAddressVector,
    context: *mut c_void,
) -> c_int {
    // SAFETY: libfabric's contract: the domain is open, the rest NULL or good.
    let (domain, attr) = unsafe {
        let Some(domain) = object::of::<Domain>(domain.cast()) else { return -FI_EINVAL };
        let Some(attr) = attr.as_mut() else { return -FI_EINVAL };
        (Used::new(domain), attr)
    };
    if !attr.name.is_null() {
        // A name would make it shared between processes.
        return -FI_ENOSYS;
    }
    if attr.rx_ctx_bits != 0 || !(FI_AV_UNSPEC..=FI_AV_TABLE).contains(&attr.kind) || attr.flags & !FI_EVENT != 0 {
        return -FI_EINVAL;
    }
    if attr.kind == FI_AV_UNSPEC {
        attr.kind = FI_AV_TABLE;
    }
    let vector = AddressVector {
        fid: FidAddressVector { fid: Fid { class: FI_CLASS_AV, context, ops: &BASE }, ops: &OPS },
        users: AtomicUsize::new(0),
        domain,
        asynchronous: attr.flags & FI_EVENT != 0,
        state: Guarded::new(State { names: Vec::with_capacity(attr.count.min(1 << 16)), ..State::default() }),
    };
    // SAFETY: as above.
    unsafe { object::open(vector, into) }
}

impl AddressVector {
    /// Makes the endpoint learn the present names and all later ones.
    ///
    /// # Safety
    /// The domain is entered, the endpoint stays until [`AddressVector::leave`].
    pub unsafe fn join(&self, endpoint: NonNull<Endpoint>) {
        // SAFETY: the caller's promise.
        unsafe { self.state.get() }.endpoints.push(endpoint);
    }

    /// # Safety
    /// The domain is entered.
    pub unsafe fn leave(&self, endpoint: NonNull<Endpoint>) {
        // SAFETY: the caller's promise.
        unsafe { self.state.get() }.endpoints.retain(|&other| other != endpoint);
    }

    /// The names at present.
    ///
    /// # Safety
    /// The domain is entered, and the slice is gone before it is left.
    pub unsafe fn names(&self) -> &[Option<Name>] {
        // SAFETY: the caller's promise.
        unsafe { &self.state.get().names }
    }
}

unsafe extern "C" fn bind(fid: *mut Fid, other: *mut Fid, _: u64) -> c_int {
    // SAFETY: libfabric's contract.
    unsafe {
        let Some(vector) = object::of::<AddressVector>(fid) else { return -FI_EINVAL };
        let Some(queue) = object::of::<EventQueue>(other) else { return -FI_EINVAL };
        let _entered = vector.domain.enter();
        vector.state.get().events = Some(Used::new(queue));
        0
    }
}

unsafe extern "C" fn insert(
    vector: *mut FidAddressVector,
    names: *const c_void,
    count: usize,
    addresses: *mut Address,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: libfabric's contract: the vector is open, `names` and `addresses` hold `count`.
    unsafe {
        let Some(vector) = object::of::<AddressVector>(vector.cast()) else { return -FI_EINVAL };
        if (names.is_null() && count > 0) || count > c_int::MAX as usize || flags & FI_AV_USER_ID != 0 {
            return -FI_EINVAL;
        }
        let _entered = vector.domain.enter();
        let state = vector.state.get();
        if vector.asynchronous && state.events.is_none() {
            return -FI_ENOEQ;
        }
        let errors = if flags & FI_SYNC_ERR != 0 { context.cast::<c_int>() } else { std::ptr::null_mut() };
        let mut inserted = 0;
        for at in 0..count {
            let bytes = std::slice::from_raw_parts(names.cast::<u8>().add(at * Name::LENGTH), Name::LENGTH);
            let name = Service::read(bytes).map_or_else(|| Name::from_bytes(bytes), Service::ask);
            let outcome = match name {
                Ok(name) => {
                    let address = state.names.len() as Address;
                    state.names.push(Some(name));
                    for endpoint in &state.endpoints {
                        endpoint.as_ref().learn(address, &name);
                    }
                    inserted += 1;
                    Ok(address)
                }
                Err(fault) => {
                    eprintln!("plimsoll: {fault}");
                    Err(FI_EINVAL)
                }
            };
            if !addresses.is_null() {
                *addresses.add(at) = outcome.unwrap_or(FI_ADDR_NOTAVAIL);
            }
            if !errors.is_null() {
                *errors.add(at) = outcome.err().unwrap_or(0);
            }
        }
        match &state.events {
            Some(events) if vector.asynchronous => {
                let fid = (&raw const vector.fid.fid).cast_mut();
                events.push(FI_AV_COMPLETE as u32, EventEntry { fid, context, data: inserted as u64 });
                0
            }
            _ => inserted,
        }
    }
}

unsafe extern "C" fn insertsvc(
    vector: *mut FidAddressVector,
    node: *const c_char,
    service: *const c_char,
    address: *mut Address,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: libfabric's contract: the vector is open, `node` and `service` NULL or strings, `address` and with
    // FI_SYNC_ERR `context` NULL or good.
    unsafe {
        let (node, service) = (service::text(node), service::text(service));
        if let Some(found) = Service::of(node, service) {
            return insert(vector, found.bytes().as_ptr().cast(), 1, address, flags, context);
        }
        let subject = format!("endpoint {}:{}", node.unwrap_or("localhost"), service.unwrap_or("0"));
        let next = "name a host and a number of this host, or insert the name that the other one's fi_getname gives";
        eprintln!("plimsoll: {}", Fault::new(subject, "services are numbers, and are found on this host alone", next));
        if let Some(address) = address.as_mut() {
            *address = FI_ADDR_NOTAVAIL;
        }
        if let Some(error) = context.cast::<c_int>().as_mut().filter(|_| flags & FI_SYNC_ERR != 0) {
            *error = FI_EINVAL;
        }
        insert(vector, std::ptr::null(), 0, std::ptr::null_mut(), flags & !FI_SYNC_ERR, context)
    }
}

unsafe extern "C" fn remove(vector: *mut FidAddressVector, addresses: *mut Address, count: usize, _: u64) -> c_int {
    // SAFETY: libfabric's contract: the vector is open, `addresses` holds `count`.
    unsafe {
        let Some(vector) = object::of::<AddressVector>(vector.cast()) else { return -FI_EINVAL };
        if addresses.is_null() && count > 0 {
            return -FI_EINVAL;
        }
        let _entered = vector.domain.enter();
        let state = vector.state.get();
        for at in 0..count {
            let address = *addresses.add(at);
            let Some(name) = state.names.get_mut(address as usize) else { return -FI_EINVAL };
            *name = None;
            for endpoint in &state.endpoints {
                endpoint.as_ref().forget(address);
            }
        }
        0
    }
}

unsafe extern "C" fn lookup(
    vector: *mut FidAddressVector,
    address: Address,
    into: *mut c_void,
    length: *mut usize,
) -> c_int {
    // SAFETY: libfabric's contract: the vector is open, `into` holds `*length` bytes.
    unsafe {
        let Some(vector) = object::of::<AddressVector>(vector.cast()) else { return -FI_EINVAL };
        let Some(length) = length.as_mut() else { return -FI_EINVAL };
        let _entered = vector.domain.enter();
        let Some(name) = vector.state.get().names.get(address as usize).copied().flatten() else {
            return -FI_EINVAL;
        };
        let most = Name::LENGTH.min(*length);
        *length = Name::LENGTH;
        if most > 0 && !into.is_null() {
            std::ptr::copy_nonoverlapping(name.as_bytes().as_ptr(), into.cast(), most);
        }
        0
    }
}

unsafe extern "C" fn straddr(
    _: *mut FidAddressVector,
    name: *const c_void,
    into: *mut c_char,
    length: *mut usize,
) -> *const c_char {
    const NOTHING: &CStr = c"";
    // SAFETY: libfabric's contract: `name` holds a name, `into` `*length` bytes.
    unsafe {
        let Some(length) = length.as_mut() else { return NOTHING.as_ptr() };
        if name.is_null() {
            return NOTHING.as_ptr();
        }
        let bytes = std::slice::from_raw_parts(name.cast::<u8>(), Name::LENGTH);
        let text = match (Service::read(bytes), Name::from_bytes(bytes)) {
            (Some(service), _) => format!("plimsoll://{service}"),
            (None, Ok(name)) => format!("plimsoll://{name:?}"),
            (None, Err(_)) => "plimsoll://?".to_string(),
        };
        let room = *length;
        *length = text.len() + 1;
        if into.is_null() || room == 0 {
            return NOTHING.as_ptr();
        }
        let most = text.len().min(room - 1);
        std::ptr::copy_nonoverlapping(text.as_ptr(), into.cast(), most);
        *into.add(most) = 0;
        into
    }
}
