//! A library in this process.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, PoisonError};

use machine::{Fault, Result};
use offcode::manifest::Digest;
use offcode::registry::Constructor;
use offcode::{Guid, Manifest};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

use crate::SYMBOL;
use crate::functions::Functions;
use crate::hosted::Hosted;
use crate::inspection::{TARGET, examine, inspect};
use crate::table::{Sink, Table};

/// A loaded library. It stays loaded until the process ends.
#[derive(Clone, Copy)]
pub struct Library(&'static Functions);

/// The library's account of itself.
#[derive(Debug, Clone)]
pub struct Description {
    /// The manifest, as its source states it.
    pub manifest: Manifest,
    /// Calls to compare bodies by, as [`offcode::Call::message`] has them.
    pub script: Vec<Vec<u8>>,
}

/// Libraries loaded into this process. They are never unloaded: their code may be running on any thread.
static LOADED: Mutex<BTreeMap<Digest, Library>> = Mutex::new(BTreeMap::new());

impl Library {
    /// Loads `bytes`, whose hash is `digest`, from a sealed copy, so that what runs is what was looked at. Native code runs
    /// with all rights of this process: load only what the user trusts as a program.
    ///
    /// # Errors
    /// What [`inspect`] refuses; a dynamic linker that refuses; a table with holes.
    pub fn load(bytes: &[u8], digest: Digest, manifest: &Manifest) -> Result<Library> {
        inspect(bytes, TARGET, manifest)?;
        Library::open(bytes, digest)
    }

    /// The same without a manifest to hold it against, for who builds it: it tells its own.
    ///
    /// # Errors
    /// As [`Library::load`].
    pub fn open(bytes: &[u8], digest: Digest) -> Result<Library> {
        examine(bytes, TARGET)?;
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(library) = loaded.get(&digest) {
            return Ok(*library);
        }
        let library = Library(Box::leak(Box::new(link(bytes)?)));
        loaded.insert(digest, library);
        Ok(library)
    }

    /// The constructor of its instances, which state the manifest's interfaces as theirs.
    pub fn constructor(self, manifest: &Manifest) -> Constructor {
        let interfaces: Vec<Guid> = manifest.package.interfaces.iter().map(|interface| interface.guid).collect();
        Arc::new(move || Box::new(Hosted::new(self.0, interfaces.clone())))
    }

    /// # Errors
    /// It tells nothing, or not in this plimsoll's form.
    pub fn told(self) -> Result<Description> {
        let ask = |what: &str, function: unsafe extern "C" fn(Sink<'_>)| {
            let mut told = Vec::new();
            // SAFETY: a function of the library's table, called as the table says.
            unsafe { function(Sink::of(&mut told)) };
            match told.is_empty() {
                false => Ok(told),
                true => {
                    Err(Fault::new("native body", format!("it panicked where it tells its {what}"), "mend the offcode"))
                }
            }
        };
        let unclear = |error: postcard::Error| {
            let next = "build it with the sources that come with this plimsoll: plimsoll offcode build";
            Fault::new("native body", format!("what it tells of itself does not decode: {error}"), next)
        };
        let manifest = postcard::from_bytes(&ask("manifest", self.0.manifest)?).map_err(unclear)?;
        let script = ask("calls", self.0.script)?;
        let script: Vec<Result<Vec<u8>, String>> = postcard::from_bytes(&script).map_err(unclear)?;
        let wrong = |why| Fault::new("native body", why, "mend the calls of offcode::export!");
        let script = script.into_iter().collect::<Result<_, String>>().map_err(wrong)?;
        Ok(Description { manifest, script })
    }
}

fn link(bytes: &[u8]) -> Result<Functions> {
    let failed =
        |e| Fault::because("native body", std::io::Error::from(e), "see whether seccomp or vm.memfd_noexec forbids it");
    let memory = memfd_create("offcode", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).map_err(failed)?;
    let mut rest = bytes;
    while !rest.is_empty() {
        let written = rustix::io::write(&memory, rest).map_err(failed)?;
        rest = &rest[written..];
    }
    fcntl_add_seals(&memory, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
        .map_err(failed)?;
    let path = CString::new(format!("/proc/self/fd/{}", memory.as_raw_fd()))
        .map_err(|e| Fault::because("native body", e, "report this"))?;
    // The linker knows libraries by path, so the descriptor's number must not go to another file.
    std::mem::forget(memory);
    // SAFETY: what a library does when it is loaded is as trusted as its functions are.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        let cause = format!("the dynamic linker refuses it: {}", last_error());
        return Err(Fault::new("native body", cause, "build it on this machine, or install what it needs"));
    }
    let name = CString::new(SYMBOL).map_err(|e| Fault::because("native body", e, "report this"))?;
    // SAFETY: a handle that was just opened, and a name.
    let table = unsafe { libc::dlsym(handle, name.as_ptr()) }.cast::<Table>();
    if table.is_null() {
        return Err(Fault::new("native body", format!("it exports no {SYMBOL}"), "write offcode::export!(TYPE)"));
    }
    let mut known = MaybeUninit::<Table>::zeroed();
    // SAFETY: `examine` has seen under this symbol a table of at least `functions::LEAST` bytes that says its size first; nothing
    // writes to it. What one side has beyond the other is left out, or stays 0: a number, or a function that is not there.
    let functions = unsafe {
        let size = table.cast::<u32>().read() as usize;
        let common = size.min(size_of::<Table>());
        std::ptr::copy_nonoverlapping(table.cast::<u8>(), known.as_mut_ptr().cast::<u8>(), common);
        Functions::of(known.assume_init_ref())
    };
    functions
        .ok_or_else(|| Fault::new("native body", "its table lacks a function", "build it anew: plimsoll offcode build"))
}

fn last_error() -> String {
    // SAFETY: the string is this thread's own until the thread calls the linker again.
    let text = unsafe { libc::dlerror() };
    match text.is_null() {
        true => "it does not say why".into(),
        // SAFETY: a C string, copied at once.
        false => unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned(),
    }
}
