//! The answer to `fi_getinfo`.

use std::ffi::{CStr, c_int, c_void};

use endpoint::{Name, Settings};
use machine::Site;

use crate::abi::constants::{FI_EINVAL, FI_ENODATA, FI_ENOMEM, FI_SOURCE};
use crate::abi::info::Info;
use crate::host::{Host, duplicate};
use crate::object::given;
use crate::offer::{self, Progress};
use crate::parameters;

pub const FABRIC: &CStr = c"plimsoll";

/// Makes the list of what suits, of one element; the error is positive.
///
/// # Safety
/// The pointers in `hints` are NULL or good.
pub unsafe fn answer(host: &Host, api: u32, named: bool, flags: u64, hints: Option<&Info>) -> Result<*mut Info, c_int> {
    // Endpoints are found by the names they give, not by hosts and services.
    if named && flags & FI_SOURCE == 0 {
        return Err(FI_ENODATA);
    }
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
        offer::settle(api, hints, progress).map_err(|_| FI_ENODATA)?
    };
    let mut info = host.allocate_info().ok_or(FI_ENOMEM)?;
    // SAFETY: the library has just made it, with all its parts.
    unsafe {
        let info = info.as_mut();
        settled.write(info);
        (*info.domain_attr).name = duplicate(&domain);
        (*info.fabric_attr).name = duplicate(&FABRIC.to_string_lossy());
        if let Some(hints) = hints {
            copy_destination(hints, info);
        }
    }
    Ok(info.as_ptr())
}

/// A domain is named after what carries its messages to other hosts.
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

/// # Safety
/// As above; `info` is the library's.
unsafe fn copy_destination(hints: &Info, info: &mut Info) {
    if hints.dest_addr.is_null() || hints.dest_addrlen != Name::LENGTH {
        return;
    }
    // SAFETY: the caller's promise; the library frees what malloc gave.
    unsafe {
        let copy = libc::malloc(Name::LENGTH).cast::<c_void>();
        if !copy.is_null() {
            std::ptr::copy_nonoverlapping(hints.dest_addr.cast::<u8>(), copy.cast(), Name::LENGTH);
            info.dest_addr = copy;
            info.dest_addrlen = Name::LENGTH;
        }
    }
}
