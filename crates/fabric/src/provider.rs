//! The provider as libfabric finds it.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;

use crate::abi::constants::{FI_EINVAL, FI_ENODATA};
use crate::abi::info::{FabricAttr, Info};
use crate::abi::object::FidFabric;
use crate::abi::provider::Provider;
use crate::abi::version;
use crate::host::host;
use crate::info;
use crate::parameters;
use crate::service::text;
use crate::tables;

/// The `struct fi_provider` that libfabric holds.
struct Registered(*mut Provider);

// SAFETY: the structure is libfabric's from then on; the provider only tells its address.
unsafe impl Send for Registered {}
// SAFETY: as above.
unsafe impl Sync for Registered {}

static PROVIDER: OnceLock<Registered> = OnceLock::new();

/// The entry point that libfabric calls. NULL if the host library is not found.
#[unsafe(no_mangle)]
pub extern "C" fn fi_prov_ini() -> *mut Provider {
    let Some(host) = host() else { return null_mut() };
    let registered = PROVIDER.get_or_init(|| {
        let provider = Box::leak(Box::new(Provider {
            version: version(env_number(env!("CARGO_PKG_VERSION_MAJOR")), env_number(env!("CARGO_PKG_VERSION_MINOR"))),
            // libfabric passes requests of its newest interface only to providers that claim its version.
            fi_version: host.version,
            context: [null_mut(); 4],
            name: c"plimsoll".as_ptr(),
            getinfo: Some(getinfo),
            fabric: Some(open_fabric),
            cleanup: Some(cleanup),
        }));
        for (name, help) in parameters::KNOWN {
            host.define_parameter(provider, name, help);
        }
        Registered(provider)
    });
    registered.0
}

/// The provider, once libfabric has asked for it.
pub fn registered() -> Option<&'static Provider> {
    // SAFETY: it is never freed, and libfabric changes none but its own part of it, `context`.
    PROVIDER.get().map(|registered| unsafe { &*registered.0 })
}

const fn env_number(text: &str) -> u32 {
    let (mut number, mut at) = (0, 0);
    while at < text.len() {
        number = number * 10 + (text.as_bytes()[at] - b'0') as u32;
        at += 1;
    }
    number
}

unsafe extern "C" fn getinfo(
    api: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const Info,
    into: *mut *mut Info,
) -> c_int {
    let Some(host) = host() else { return -FI_ENODATA };
    if into.is_null() {
        return -FI_EINVAL;
    }
    // SAFETY: libfabric passes NULL or good pointers.
    match unsafe { info::answer(host, api, (text(node), text(service)), flags, hints.as_ref()) } {
        Ok(info) => {
            // SAFETY: not NULL, as seen above.
            unsafe { *into = info };
            0
        }
        Err(error) => -error,
    }
}

unsafe extern "C" fn open_fabric(attr: *mut FabricAttr, into: *mut *mut FidFabric, context: *mut c_void) -> c_int {
    // SAFETY: libfabric passes NULL or good pointers.
    let Some(attr) = (unsafe { attr.as_ref() }) else { return -FI_EINVAL };
    if !attr.name.is_null() {
        // SAFETY: a name is a string.
        let name = unsafe { CStr::from_ptr(attr.name) };
        if name != info::FABRIC {
            return -FI_ENODATA;
        }
    }
    // SAFETY: as above.
    unsafe { tables::open_fabric(attr.api_version, into, context) }
}

unsafe extern "C" fn cleanup() {}
