//! The answer to `fi_getinfo`.

use std::ffi::{CStr, c_int, c_void};

use endpoint::Settings;
use machine::Site;

use crate::abi::constants::{CORE_PROVIDERS_ONLY, FI_EINVAL, FI_ENODATA, FI_ENOMEM, FI_SOURCE};
use crate::abi::fid::Fid;
use crate::abi::info::Info;
use crate::arguments::given;
use crate::host::{Host, duplicate, host};
use crate::listener::ConnectionRequest;
use crate::offer::{self, Progress, Settled};
use crate::parameters;
use crate::refuse;
use crate::service::{self, Service};

pub const FABRIC: &CStr = c"plimsoll";

/// Makes the answer, a list of one element; errors are positive.
///
/// # Safety
/// The pointers in `hints` are NULL or good.
pub unsafe fn answer(
    host: &Host,
    api: u32,
    (node, service): (Option<&str>, Option<&str>),
    flags: u64,
    hints: Option<&Info>,
) -> Result<*mut Info, c_int> {
    let named = node.is_some() || service.is_some();
    let here = Service::of(node, service).ok_or(FI_ENODATA)?;
    let (source, destination) = match flags & FI_SOURCE != 0 {
        true => (Some(here), None),
        false => (None, named.then_some(here)),
    };
    let settings = parameters::settings().map_err(|fault| {
        parameters::complain(&fault);
        FI_EINVAL
    })?;
    let domain = domain_name(&settings);
    let progress = if settings.placement == Site::App { Progress::Manual } else { Progress::Automatic };
    // SAFETY: the caller's promise.
    let settled = unsafe {
        if let Some(hints) = hints {
            names_fit(hints, &domain)?;
        }
        offer::settle(api, hints, progress)
    };
    let layer = flags & CORE_PROVIDERS_ONLY != 0;
    let settled = settled.map_err(|fault| {
        if !layer {
            refuse::explain(c"fi_getinfo", &fault);
        }
        FI_ENODATA
    })?;
    // A layer makes reliable datagram endpoints of others: ours exist already.
    if !settled.is_reliable_datagram() && layer {
        return Err(FI_ENODATA);
    }
    let (hinted_source, hinted_destination) = match hints {
        // SAFETY: the caller's promise.
        Some(hints) => unsafe {
            let hinted = |address, length| service::given(address, length).map(<[u8]>::to_vec);
            (hinted(hints.src_addr, hints.src_addrlen), hinted(hints.dest_addr, hints.dest_addrlen))
        },
        None => (None, None),
    };
    let bytes = |service: Service| service.bytes().to_vec();
    let source = source.map(bytes).or(hinted_source).unwrap_or_else(|| bytes(Service::ANY));
    let destination = destination.map(bytes).or(hinted_destination);
    write(host, &settled, &domain, &source, destination.as_deref()).ok_or(FI_ENOMEM)
}

/// The `fi_info` for an endpoint that accepts a connection request.
///
/// # Safety
/// The request is good.
pub unsafe fn of_request(settled: &Settled, request: *mut ConnectionRequest) -> Option<*mut Info> {
    let domain = domain_name(&parameters::settings().ok()?);
    // SAFETY: the caller's promise; the structure was just made.
    unsafe {
        let info = write(host()?, settled, &domain, &Service::ANY.bytes(), Some((*request).name.as_bytes()))?;
        (*info).handle = request.cast::<Fid>();
        Some(info)
    }
}

fn write(host: &Host, settled: &Settled, domain: &str, source: &[u8], destination: Option<&[u8]>) -> Option<*mut Info> {
    let mut info = host.allocate_info()?;
    // SAFETY: the library has just made it, with all its parts.
    unsafe {
        let info = info.as_mut();
        settled.write(info);
        (*info.domain_attr).name = duplicate(domain);
        (*info.fabric_attr).name = duplicate(&FABRIC.to_string_lossy());
        (info.src_addr, info.src_addrlen) = address(source);
        if let Some(destination) = destination {
            (info.dest_addr, info.dest_addrlen) = address(destination);
        }
    }
    Some(info.as_ptr())
}

/// Name of the domain: that of the port to other hosts.
pub fn domain_name(settings: &Settings) -> String {
    settings.network.to_string()
}

/// # Safety
/// The pointers in `hints` are NULL or good.
unsafe fn names_fit(hints: &Info, domain: &str) -> Result<(), c_int> {
    // SAFETY: the caller's promise; names are strings.
    let fits = unsafe {
        let asked = |name: *mut std::ffi::c_char| (!name.is_null()).then(|| CStr::from_ptr(name));
        given(hints.domain_attr).and_then(|attr| asked(attr.name)).is_none_or(|name| name.to_bytes() == domain.as_bytes())
            && given(hints.fabric_attr).and_then(|attr| asked(attr.name)).is_none_or(|name| name == FABRIC)
            // The list may name layers over several providers; libfabric has asked those that it names.
            && given(hints.fabric_attr).and_then(|attr| asked(attr.prov_name)).is_none_or(|name| {
                name.to_bytes().split(|&byte| byte == b';').any(|part| part.eq_ignore_ascii_case(b"plimsoll"))
            })
    };
    if fits { Ok(()) } else { Err(FI_ENODATA) }
}

/// A copy that the library may free, and its length.
fn address(bytes: &[u8]) -> (*mut c_void, usize) {
    // SAFETY: as many bytes as are copied; the library frees what malloc gave.
    unsafe {
        let copy = libc::malloc(bytes.len());
        if copy.is_null() {
            return (copy, 0);
        }
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), copy.cast(), bytes.len());
        (copy, bytes.len())
    }
}
