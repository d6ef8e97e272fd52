//! The border itself, as C lays it out.

use std::ffi::c_void;
use std::marker::PhantomData;

use machine::{Fault, Result};

use crate::outcome;

/// Bytes that the callee may read during the call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Slice<'a> {
    at: *const u8,
    length: usize,
    lent: PhantomData<&'a [u8]>,
}

impl<'a> Slice<'a> {
    #[cfg(feature = "load")]
    pub(crate) const NONE: Slice<'static> = Slice { at: std::ptr::null(), length: 0, lent: PhantomData };

    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        Slice { at: bytes.as_ptr(), length: bytes.len(), lent: PhantomData }
    }

    /// A slice of any lifetime: the table tells the callee how long it may read.
    #[cfg(feature = "load")]
    pub(crate) fn lent(bytes: &[u8]) -> Slice<'static> {
        Slice { at: bytes.as_ptr(), length: bytes.len(), lent: PhantomData }
    }

    /// The bytes; `None` for a null pointer.
    ///
    /// # Safety
    /// It comes from the other side, which lets `length` bytes at `at` be read as long as `'a`.
    pub(crate) unsafe fn bytes(self) -> Option<&'a [u8]> {
        // SAFETY: as the caller says; a pointer to nothing is not followed.
        (!self.at.is_null()).then(|| unsafe { std::slice::from_raw_parts(self.at, self.length) })
    }
}

/// Bytes that the callee may write during the call.
#[repr(C)]
pub struct Room<'a> {
    at: *mut u8,
    length: usize,
    lent: PhantomData<&'a mut [u8]>,
}

impl<'a> Room<'a> {
    pub(crate) fn of(bytes: &'a mut [u8]) -> Self {
        Room { at: bytes.as_mut_ptr(), length: bytes.len(), lent: PhantomData }
    }

    /// # Safety
    /// It comes from the other side, which lends `length` initialized bytes at `at` as long as `'a`.
    #[cfg(feature = "load")]
    pub(crate) unsafe fn bytes(self) -> &'a mut [u8] {
        if self.at.is_null() {
            return &mut [];
        }
        // SAFETY: as the caller says; a pointer to nothing is not followed.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.length) }
    }
}

/// Callback for an entry of a map: the callback's own argument, key, value. Returns 1 to go on.
pub type Each = unsafe extern "C" fn(*mut c_void, Slice<'_>, Slice<'_>) -> u32;

/// Where the callee puts bytes during the call, as often as it likes: they are appended.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Sink<'a> {
    to: *mut c_void,
    put: unsafe extern "C" fn(*mut c_void, *const u8, usize),
    lent: PhantomData<&'a mut Vec<u8>>,
}

impl<'a> Sink<'a> {
    /// Appends to a vector of this side.
    pub(crate) fn of(bytes: &'a mut Vec<u8>) -> Self {
        unsafe extern "C" fn put(to: *mut c_void, at: *const u8, length: usize) {
            if !at.is_null() {
                // SAFETY: `to` is the vector of `Sink::of`, lent as long as the sink lives; the caller has `length` bytes at `at`.
                unsafe { (*to.cast::<Vec<u8>>()).extend_from_slice(std::slice::from_raw_parts(at, length)) };
            }
        }
        Sink { to: std::ptr::from_mut(bytes).cast(), put, lent: PhantomData }
    }

    pub(crate) fn append(&self, bytes: &[u8]) {
        // SAFETY: whoever made the sink lends `to` to its `put` as long as the sink lives.
        unsafe { (self.put)(self.to, bytes.as_ptr(), bytes.len()) }
    }
}

/// The table that a library exports. A null address stands for a function that a later version added.
#[repr(C)]
pub struct Table {
    /// Bytes of this table where the library was built.
    pub size: u32,
    /// [`crate::VERSION`] where the library was built.
    pub version: u32,
    /// The offcode's GUID.
    pub guid: [u8; 16],
    /// [`offcode::Described::SIGNATURE`].
    pub signature: u64,
    /// Puts the manifest (postcard) into the sink.
    pub manifest: Option<unsafe extern "C" fn(Sink<'_>)>,
    /// Puts calls to compare bodies by (postcard) into the sink.
    pub script: Option<unsafe extern "C" fn(Sink<'_>)>,
    /// Makes an instance; null where it panicked.
    pub new: Option<unsafe extern "C" fn(Sink<'_>) -> *mut c_void>,
    /// Frees an instance.
    pub delete: Option<unsafe extern "C" fn(*mut c_void)>,
    /// The functions of [`offcode::Offcode`], in its order.
    pub initialize: Option<Step>,
    /// As [`Table::initialize`].
    pub start: Option<Step>,
    /// Instance, host, interface, method, arguments.
    pub call: Option<unsafe extern "C" fn(*mut c_void, Host<'_>, u64, u32, Slice<'_>, Sink<'_>) -> u32>,
    /// Instance, host, channel, id, 1 with a result or 0 with a refusal, which follows.
    pub answered: Option<unsafe extern "C" fn(*mut c_void, Host<'_>, u32, u32, u32, Slice<'_>, Sink<'_>) -> u32>,
    /// Instance, host, channel, name.
    pub attached: Option<OnChannel>,
    /// Instance, host, channel, message.
    pub message: Option<OnChannel>,
    /// As [`Table::initialize`].
    pub turn: Option<Step>,
    /// Instance, host, name, value; a fault goes to the sink.
    pub attribute_set: Option<unsafe extern "C" fn(*mut c_void, Host<'_>, Slice<'_>, Slice<'_>, Sink<'_>) -> u32>,
    /// As [`Table::initialize`].
    pub stop: Option<Step>,
    /// Instance, host: tells the state, encoded.
    pub save: Option<Step>,
    /// Instance, host, an encoded state.
    pub restore: Option<Restore>,
    /// Instance, host, the timer's number.
    pub timer: Option<Timer>,
}

/// A step of an instance's life.
pub type Step = unsafe extern "C" fn(*mut c_void, Host<'_>, Sink<'_>) -> u32;
/// Takes what another body saved.
pub type Restore = unsafe extern "C" fn(*mut c_void, Host<'_>, Slice<'_>, Sink<'_>) -> u32;
/// Handles a timer that is due.
pub type Timer = unsafe extern "C" fn(*mut c_void, Host<'_>, u32, Sink<'_>) -> u32;
/// Handles what came on a channel.
pub type OnChannel = unsafe extern "C" fn(*mut c_void, Host<'_>, u32, Slice<'_>, Sink<'_>) -> u32;

// SAFETY: it holds numbers and addresses of functions, which any thread may read.
unsafe impl Sync for Table {}

/// What an instance may do during a call: the functions of [`offcode::Context`].
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Host<'a> {
    pub(crate) table: &'a HostTable,
    pub(crate) context: *mut c_void,
}

/// The host's functions; the first argument of each is `Host::context`.
#[repr(C)]
pub struct HostTable {
    /// Bytes of this table where the host was built.
    pub size: u32,
    /// [`crate::VERSION`] where the host was built.
    pub version: u32,
    /// Nanoseconds since the runtime started.
    pub now: unsafe extern "C" fn(*mut c_void) -> u64,
    /// The channel of a name, `u64::MAX` where there is none.
    pub channel: unsafe extern "C" fn(*mut c_void, Slice<'_>) -> u64,
    /// Channel and message; returns [`written`].
    pub write: unsafe extern "C" fn(*mut c_void, u32, Slice<'_>) -> u32,
    /// The value of a name, valid until the next call of the host; a null pointer where there is none.
    pub attribute: unsafe extern "C" fn(*mut c_void, Slice<'_>) -> Slice<'static>,
    /// A line of UTF-8.
    pub log: unsafe extern "C" fn(*mut c_void, Slice<'_>),
    /// Timer, at and every, in nanoseconds. These functions and those that follow return [`crate::outcome`], and put a
    /// fault into the sink.
    pub set_timer: unsafe extern "C" fn(*mut c_void, u32, u64, u64, Sink<'_>) -> u32,
    /// Name and number of words.
    pub share: unsafe extern "C" fn(*mut c_void, Slice<'_>, u32, Sink<'_>) -> u32,
    /// Name, first, and the words' bytes in the order of this machine.
    pub store: unsafe extern "C" fn(*mut c_void, Slice<'_>, u32, Slice<'_>, Sink<'_>) -> u32,
    /// Name, first, how many; the sink gets their bytes, or nothing where there are no words.
    pub load: unsafe extern "C" fn(*mut c_void, Slice<'_>, u32, u32, Sink<'_>) -> u32,
    /// Name, entries, bytes of a key and of a value; the sink gets the map's number (u32).
    pub open_map: unsafe extern "C" fn(*mut c_void, Slice<'_>, u32, u32, u32, Sink<'_>) -> u32,
    /// Map, key, where the value goes; the sink of this function and of those that follow gets a fault alone.
    pub map_get: unsafe extern "C" fn(*mut c_void, u32, Slice<'_>, Room<'_>, Sink<'_>) -> u32,
    /// Map, key, value.
    pub map_put: unsafe extern "C" fn(*mut c_void, u32, Slice<'_>, Slice<'_>, Sink<'_>) -> u32,
    /// Map, key.
    pub map_remove: unsafe extern "C" fn(*mut c_void, u32, Slice<'_>, Sink<'_>) -> u32,
    /// Map, what is shown each entry, and its first argument.
    pub map_visit: unsafe extern "C" fn(*mut c_void, u32, Each, *mut c_void, Sink<'_>) -> u32,
}

impl HostTable {
    /// Whether the host has the functions up to the one that ends at this byte: it may be older than the library.
    pub(crate) fn reaches(&self, end: usize) -> bool {
        self.size as usize >= end
    }

    /// Bytes of the table of hosts that have timers and shared words.
    pub(crate) const SERVICES: usize = std::mem::offset_of!(HostTable, open_map);
    /// Bytes of the table of hosts that have maps.
    pub(crate) const MAPS: usize = size_of::<HostTable>();
}

/// The outcome of a step; the parts of its fault go to the sink with zero bytes between them.
pub(crate) fn phase(sink: Sink<'_>, result: Result<()>) -> u32 {
    let Err(fault) = result else { return outcome::DONE };
    sink.append(&[fault.subject(), fault.cause(), fault.next()].join("\0").into_bytes());
    outcome::REFUSED
}

/// Reads a fault that [`phase`] wrote on the other side.
pub(crate) fn fault_of(told: &[u8]) -> Fault {
    let text = String::from_utf8_lossy(told);
    let mut parts = text.splitn(3, '\0');
    let mut part = |otherwise: &str| parts.next().filter(|part| !part.is_empty()).unwrap_or(otherwise).to_owned();
    Fault::new(part("native body"), part("it refuses"), part("see what the offcode says"))
}

/// [`offcode::Written`] as a number.
pub mod written {
    use offcode::Written;

    const ALL: [Written; 5] = [Written::Taken, Written::Full, Written::Dropped, Written::Gone, Written::Refused];

    #[cfg(feature = "load")]
    pub(crate) fn to(outcome: Written) -> u32 {
        ALL.iter().position(|known| *known == outcome).unwrap_or(ALL.len()) as u32
    }

    /// An unknown number counts as not taken.
    pub(crate) fn from(number: u32) -> Written {
        ALL.get(number as usize).copied().unwrap_or(Written::Refused)
    }
}
