//! Memory regions: ranges of the application's memory that peers reach by key and offset. Messages need none.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::atomic::AtomicUsize;

use crate::abi::Iovec;
use crate::abi::constants::*;
use crate::abi::fid::{Fid, Ops};
use crate::abi::info::MemoryRegionAttr;
use crate::abi::object::FidMemoryRegion;
use crate::abi::version;
use crate::counter::{Counter, count};
use crate::domain::Domain;
use crate::object::{self, Object, Used};
use crate::offer;
use crate::refuse;

#[repr(C)]
pub struct Region {
    fid: FidMemoryRegion,
    users: AtomicUsize,
    domain: Used<Domain>,
    /// Whether it is in the domain's table.
    reachable: bool,
}

// SAFETY: it begins with a `Fid`.
unsafe impl Object for Region {
    const CLASS: usize = FI_CLASS_MR;

    fn users(&self) -> &AtomicUsize {
        &self.users
    }
}

/// A region's memory and rights.
struct Extent {
    base: usize,
    /// The address of its first byte as peers name it.
    origin: u64,
    length: usize,
    access: u64,
    /// Counters with the FI_REMOTE_READ and FI_REMOTE_WRITE that they count.
    counters: Vec<(Used<Counter>, u64)>,
}

/// Regions by key.
#[derive(Default)]
pub struct Regions {
    extents: HashMap<u64, Extent>,
    /// FI_MR_BASIC: keys are the provider's, and peers know memory by its virtual addresses.
    basic: bool,
    made: u64,
}

impl Regions {
    pub fn new(basic: bool) -> Regions {
        Regions { basic, ..Regions::default() }
    }

    /// Registers memory under the key asked for, or under one of the provider's. `None` if the key is taken.
    fn add(&mut self, asked: u64, base: usize, length: usize, access: u64) -> Option<u64> {
        self.made += 1;
        let (key, origin) = if self.basic { (self.made, base as u64) } else { (asked, 0) };
        if self.extents.contains_key(&key) {
            return None;
        }
        self.extents.insert(key, Extent { base, origin, length, access, counters: Vec::new() });
        Some(key)
    }

    /// Address of `length` bytes at `address` of a region, if all of that may be accessed so.
    pub fn find(&self, key: u64, address: u64, length: usize, access: u64) -> Option<*mut u8> {
        let extent = self.extents.get(&key).filter(|extent| extent.access & access == access)?;
        let offset = usize::try_from(address.checked_sub(extent.origin)?).ok()?;
        let inside = offset.checked_add(length)? <= extent.length;
        let first = extent.base.checked_add(offset)?;
        // A range of no bytes has an address too, not NULL.
        let first = if length == 0 { std::ptr::dangling_mut() } else { first as *mut u8 };
        (inside && (first as usize).checked_add(length).is_some()).then_some(first)
    }

    /// Counts peers' accesses to a region; false if there is none.
    fn watch(&mut self, key: u64, counter: Used<Counter>, what: u64) -> bool {
        let Some(extent) = self.extents.get_mut(&key) else { return false };
        extent.counters.push((counter, what));
        true
    }

    pub fn accessed(&self, key: u64, access: u64) {
        if let Some(extent) = self.extents.get(&key) {
            count(&extent.counters, access, false);
        }
    }

    /// Removes a region: accesses fail from then on.
    pub fn remove(&mut self, key: u64) {
        self.extents.remove(&key);
    }
}

const REACHABLE: u64 = FI_REMOTE_READ | FI_REMOTE_WRITE;

static BASE: Ops = Ops {
    size: size_of::<Ops>(),
    close,
    bind,
    control,
    ops_open: refuse::ops_open,
    tostr: refuse::tostr,
    ops_set: refuse::ops_set,
};

/// fi_mr(3): peers that access a closed region get an error, the endpoint goes on. Their operations in progress are cut short,
/// since a peer could make one last for ever.
unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    // SAFETY: libfabric's contract: an open region, used no more.
    unsafe {
        let Some(region) = object::of::<Region>(fid) else { return -FI_EINVAL };
        if region.reachable {
            let domain = region.domain.clone();
            let _entered = domain.enter();
            let failed = domain.revoke(region.fid.key);
            if failed != 0 {
                return failed;
            }
        }
        object::close::<Region>(fid)
    }
}

/// Regions are usable at once through all endpoints: binding an endpoint changes nothing.
unsafe extern "C" fn bind(fid: *mut Fid, other: *mut Fid, flags: u64) -> c_int {
    // SAFETY: libfabric's contract: two open objects of one domain.
    unsafe {
        let Some(region) = object::of::<Region>(fid) else { return -FI_EINVAL };
        let Some(counter) = object::of::<Counter>(other) else {
            return if !other.is_null() && (*other).class == FI_CLASS_EP { 0 } else { -FI_EINVAL };
        };
        if flags & REACHABLE == 0 || flags & !REACHABLE != 0 {
            return -FI_EBADFLAGS;
        }
        let _entered = region.domain.enter();
        if !region.reachable || !region.domain.regions().watch(region.fid.key, Used::new(counter), flags) {
            return -FI_EINVAL;
        }
        counter.count_everywhere();
        0
    }
}

unsafe extern "C" fn control(_: *mut Fid, command: c_int, _: *mut c_void) -> c_int {
    if command == FI_ENABLE { 0 } else { -FI_ENOSYS }
}

/// # Safety
/// `fid` is an open domain, `into` NULL or good.
unsafe fn make(
    fid: *mut Fid,
    pieces: &[Iovec],
    access: u64,
    key: u64,
    into: *mut *mut FidMemoryRegion,
    context: *mut c_void,
) -> c_int {
    let [piece] = pieces else { return -FI_EINVAL };
    // SAFETY: the caller's promise.
    unsafe {
        let Some(domain) = object::of::<Domain>(fid) else { return -FI_EINVAL };
        if into.is_null() {
            return -FI_EINVAL;
        }
        let reachable = access & REACHABLE != 0;
        let mut key = key;
        if reachable {
            let _entered = domain.enter();
            match domain.regions().add(key, piece.base as usize, piece.length, access) {
                Some(given) => key = given,
                None => return -FI_ENOKEY,
            }
        }
        let fid = Fid { class: FI_CLASS_MR, context, ops: &BASE };
        let region = Region {
            fid: FidMemoryRegion { fid, mem_desc: std::ptr::null_mut(), key },
            users: AtomicUsize::new(0),
            domain: Used::new(domain),
            reachable,
        };
        object::open(region, into)
    }
}

/// The interface's version in which attributes of a region name devices.
const DEVICES: u32 = version(1, 9);

/// FI_MR_DMABUF would make the list of pieces another structure, and flags of device memory ask for what is not done.
fn registers(flags: u64) -> bool {
    flags & !FI_RMA_EVENT == 0
}

pub unsafe extern "C" fn register(
    domain: *mut Fid,
    buffer: *const c_void,
    length: usize,
    access: u64,
    _offset: u64,
    key: u64,
    flags: u64,
    into: *mut *mut FidMemoryRegion,
    context: *mut c_void,
) -> c_int {
    if !registers(flags) {
        return -FI_EBADFLAGS;
    }
    // SAFETY: libfabric's contract.
    unsafe { make(domain, &[Iovec { base: buffer.cast_mut(), length }], access, key, into, context) }
}

pub unsafe extern "C" fn register_pieces(
    domain: *mut Fid,
    pieces: *const Iovec,
    count: usize,
    access: u64,
    _offset: u64,
    key: u64,
    flags: u64,
    into: *mut *mut FidMemoryRegion,
    context: *mut c_void,
) -> c_int {
    if !registers(flags) {
        return -FI_EBADFLAGS;
    }
    if pieces.is_null() || count != 1 {
        return -FI_EINVAL;
    }
    // SAFETY: libfabric's contract.
    unsafe { make(domain, std::slice::from_raw_parts(pieces, 1), access, key, into, context) }
}

pub unsafe extern "C" fn register_with_attributes(
    domain: *mut Fid,
    attr: *const MemoryRegionAttr,
    flags: u64,
    into: *mut *mut FidMemoryRegion,
) -> c_int {
    // SAFETY: libfabric's contract.
    unsafe {
        let Some(attr) = attr.as_ref() else { return -FI_EINVAL };
        let knows_devices = object::of::<Domain>(domain).is_some_and(|domain| domain.api() >= DEVICES);
        if knows_devices && attr.iface != FI_HMEM_SYSTEM {
            let subject = format!("iface {}", attr.iface);
            refuse::explain(c"fi_mr_regattr", &offer::no_device_memory(subject));
            return -FI_ENOSYS;
        }
        if !registers(flags) {
            return -FI_EBADFLAGS;
        }
        if attr.mr_iov.is_null() || attr.iov_count != 1 {
            return -FI_EINVAL;
        }
        make(domain, std::slice::from_raw_parts(attr.mr_iov, 1), attr.access, attr.requested_key, into, attr.context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_registered_is_found() {
        let mut regions = Regions::default();
        assert_eq!(regions.add(7, 0x1000, 100, FI_REMOTE_READ), Some(7));
        assert_eq!(regions.add(8, 0, usize::MAX, REACHABLE), Some(8));
        assert_eq!(regions.add(7, 0x2000, 1, FI_REMOTE_READ), None);
        let find = |key, offset, length| regions.find(key, offset, length, FI_REMOTE_READ).map(|at| at as usize);
        assert_eq!(find(7, 0, 100), Some(0x1000));
        assert_eq!(find(7, 60, 40), Some(0x103c));
        assert_eq!(find(8, 0x5000, 8), Some(0x5000));
        for (key, offset, length) in [(7, 60, 41), (7, u64::MAX, 1), (7, 1, usize::MAX), (9, 0, 1), (8, u64::MAX, 2)] {
            assert_eq!(find(key, offset, length), None, "{key} {offset} {length}");
        }
        assert_eq!(regions.find(7, 0, 1, FI_REMOTE_WRITE), None);

        let mut basic = Regions::new(true);
        let keys = [0, 0].map(|asked| basic.add(asked, 0x1000, 100, REACHABLE).unwrap());
        assert!(keys[0] != keys[1], "keys are the provider's");
        let find = |address, length| basic.find(keys[1], address, length, REACHABLE).map(|at| at as usize);
        assert_eq!((find(0x1000, 100), find(0x103c, 40)), (Some(0x1000), Some(0x103c)));
        assert_eq!((find(0xfff, 1), find(0x103c, 41), find(0, 1)), (None, None, None));
    }
}
