//! The library that loaded this provider, reached without linking to it: a program may bring its own libfabric, under any
//! path, and the provider must use the functions of that one only.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::OnceLock;

use machine::Fault;

use crate::abi::constants::{FI_LOG_CORE, FI_LOG_WARN, FI_PARAM_STRING};
use crate::abi::info::Info;
use crate::abi::provider::Provider;

type DupInfo = unsafe extern "C" fn(*const Info) -> *mut Info;
type FreeInfo = unsafe extern "C" fn(*mut Info);
type Version = unsafe extern "C" fn() -> u32;
type LogEnabled = unsafe extern "C" fn(*const Provider, c_int, c_int) -> c_int;
type Log = unsafe extern "C" fn(*const Provider, c_int, c_int, *const c_char, c_int, *const c_char, ...);
type ParamDefine = unsafe extern "C" fn(*const Provider, *const c_char, c_int, *const c_char, ...) -> c_int;

/// Functions of the library that the provider uses.
pub struct Host {
    pub version: u32,
    dup_info: DupInfo,
    free_info: FreeInfo,
    param_define: Option<ParamDefine>,
    log: Option<(LogEnabled, Log)>,
}

static HOST: OnceLock<Option<Host>> = OnceLock::new();

/// `None` where the process has no libfabric.
pub fn host() -> Option<&'static Host> {
    HOST.get_or_init(find).as_ref()
}

fn find() -> Option<Host> {
    // By its name if it was loaded for a plug-in only, else in the program itself.
    //
    // SAFETY: NOLOAD runs no code; the handle is kept for good, as the library outlives its provider anyway.
    let library = unsafe { libc::dlopen(c"libfabric.so.1".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    let scopes = [library, libc::RTLD_DEFAULT];
    // Names without a version find the newest functions: older ones take older, smaller structures.
    let symbol = |name: &CStr| {
        scopes.iter().enumerate().find_map(|(at, &scope)| {
            let usable = at > 0 || !scope.is_null();
            // SAFETY: the scope is open and the name ends with NUL.
            let found = if usable { unsafe { libc::dlsym(scope, name.as_ptr()) } } else { std::ptr::null_mut() };
            (!found.is_null()).then_some(found)
        })
    };
    // SAFETY: these are libfabric's public functions, whose types are as declared here in all its versions.
    unsafe {
        let version = std::mem::transmute::<*mut c_void, Version>(symbol(c"fi_version")?);
        Some(Host {
            version: version(),
            dup_info: std::mem::transmute::<*mut c_void, DupInfo>(symbol(c"fi_dupinfo")?),
            free_info: std::mem::transmute::<*mut c_void, FreeInfo>(symbol(c"fi_freeinfo")?),
            param_define: symbol(c"fi_param_define")
                .map(|found| std::mem::transmute::<*mut c_void, ParamDefine>(found)),
            log: symbol(c"fi_log_enabled").zip(symbol(c"fi_log")).map(|(enabled, log)| {
                (std::mem::transmute::<*mut c_void, LogEnabled>(enabled), std::mem::transmute::<*mut c_void, Log>(log))
            }),
        })
    }
}

impl Host {
    /// A zeroed `fi_info` with all its parts, of the library's sizes; `None` without memory.
    pub fn allocate_info(&self) -> Option<std::ptr::NonNull<Info>> {
        // SAFETY: NULL asks for a zeroed one.
        std::ptr::NonNull::new(unsafe { (self.dup_info)(std::ptr::null()) })
    }

    /// # Safety
    /// It was allocated by [`Host::allocate_info`], and nobody uses it any more.
    pub unsafe fn free_info(&self, info: *mut Info) {
        // SAFETY: the caller's promise.
        unsafe { (self.free_info)(info) };
    }

    /// Registers a parameter, so that `fi_info -e` lists it.
    pub fn define_parameter(&self, provider: &Provider, name: &CStr, help: &CStr) {
        if let Some(define) = self.param_define {
            // SAFETY: the help text is a format without arguments: "%s" and the text.
            unsafe { define(provider, name.as_ptr(), FI_PARAM_STRING, c"%s".as_ptr(), help.as_ptr()) };
        }
    }

    /// Writes to the library's log, where the user wants warnings (FI_LOG_LEVEL).
    pub fn warn(&self, provider: &Provider, call: &CStr, fault: &Fault) {
        let Some((enabled, log)) = self.log else { return };
        // SAFETY: the format has one argument, a string.
        unsafe {
            if enabled(provider, FI_LOG_WARN, FI_LOG_CORE) != 0 {
                let text = CString::new(fault.to_string()).unwrap_or_default();
                log(provider, FI_LOG_WARN, FI_LOG_CORE, call.as_ptr(), 0, c"%s\n".as_ptr(), text.as_ptr());
            }
        }
    }
}

/// A copy of `text` that the library may free.
pub fn duplicate(text: &str) -> *mut c_char {
    // SAFETY: as many bytes as the text has, and one for the NUL.
    unsafe {
        let copy = libc::malloc(text.len() + 1).cast::<u8>();
        if !copy.is_null() {
            std::ptr::copy_nonoverlapping(text.as_ptr(), copy, text.len());
            *copy.add(text.len()) = 0;
        }
        copy.cast()
    }
}
