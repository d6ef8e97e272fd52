//! The library's side: the table of a type.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};

use machine::{Nanoseconds, Result};
use offcode::{Activity, Call, ChannelId, Context, Described, Incoming, Offcode, Refusal, State, Written};

use crate::table::{Host, Sink, Slice, Step, Table, Told, written};
use crate::{VERSION, outcome};

/// Makes the library's export; `offcode::export!` expands to it.
#[macro_export]
macro_rules! export {
    ($offcode:ty, [$($call:expr),*]) => {
        extern "C" fn offcode_script(sink: $crate::Sink<'_>) {
            $crate::guest::tell_script(sink, || vec![$($crate::guest::scripted(&$call)),*])
        }

        #[unsafe(no_mangle)]
        #[allow(non_upper_case_globals, reason = "a symbol of C")]
        pub static offcode_native: $crate::Table = $crate::guest::table::<$offcode>(offcode_script);
    };
}

/// The table of a type.
pub const fn table<T: Offcode + Described + Default>(script: extern "C" fn(Sink<'_>)) -> Table {
    Table {
        size: size_of::<Table>() as u32,
        version: VERSION,
        guid: *T::GUID.bytes(),
        signature: T::SIGNATURE,
        manifest: Some(manifest::<T>),
        script: Some(script),
        new: Some(new::<T>),
        delete: Some(delete::<T>),
        initialize: Some(initialize::<T> as Step),
        start: Some(start::<T> as Step),
        call: Some(call::<T>),
        answered: Some(answered::<T>),
        attached: Some(attached::<T> as Told),
        message: Some(message::<T> as Told),
        turn: Some(turn::<T> as Step),
        attribute_set: Some(attribute_set::<T>),
        stop: Some(stop::<T> as Step),
        save: Some(save::<T> as Step),
        restore: Some(restore::<T>),
    }
}

/// A call's message, or why it has none.
pub fn scripted<R>(call: &Call<R>) -> Result<Vec<u8>, String> {
    call.message().map(<[u8]>::to_vec).map_err(|fault| fault.to_string())
}

/// Tells what `make` makes, unless it panics.
pub fn tell_script(sink: Sink<'_>, make: impl FnOnce() -> Vec<Result<Vec<u8>, String>>) {
    tell(sink, make);
}

fn tell<V: serde::Serialize>(sink: Sink<'_>, make: impl FnOnce() -> V) {
    // Without bytes the host says that nothing was told.
    if let Ok(Ok(bytes)) = catch_unwind(AssertUnwindSafe(|| postcard::to_allocvec(&make()))) {
        sink.append(&bytes);
    }
}

/// An instance, with the answer to its last call.
struct Instance<T> {
    offcode: T,
    reply: Vec<u8>,
}

/// Runs the author's code. What it says last, and how it ends, goes to the host.
#[inline]
fn guarded(sink: Sink<'_>, work: impl FnOnce() -> u32) -> u32 {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        sink.append(text.unwrap_or("without a message").as_bytes());
        // What a panic holds may panic where it is dropped.
        std::mem::forget(panic);
        outcome::PANICKED
    })
}

/// # Safety
/// `instance` comes from `new::<T>`, was not deleted, and no other call of it is under way: the contract of the table.
#[inline]
unsafe fn entered<'a, T>(instance: *mut c_void) -> &'a mut Instance<T> {
    // SAFETY: as the caller says.
    unsafe { &mut *instance.cast::<Instance<T>>() }
}

extern "C" fn manifest<T: Described>(sink: Sink<'_>) {
    tell(sink, T::manifest);
}

extern "C" fn new<T: Default>(sink: Sink<'_>) -> *mut c_void {
    let mut made = std::ptr::null_mut();
    guarded(sink, || {
        made = Box::into_raw(Box::new(Instance { offcode: T::default(), reply: Vec::new() })).cast();
        outcome::DONE
    });
    made
}

unsafe extern "C" fn delete<T>(instance: *mut c_void) {
    // SAFETY: the table's contract: it comes from `new::<T>` and is used no more.
    let instance = unsafe { Box::from_raw(instance.cast::<Instance<T>>()) };
    let _ = catch_unwind(AssertUnwindSafe(|| drop(instance)));
}

fn phase(sink: Sink<'_>, result: Result<()>) -> u32 {
    let Err(fault) = result else { return outcome::DONE };
    // The parts of a fault have no zero bytes in them that anybody would miss.
    for (place, part) in [fault.subject(), fault.cause(), fault.next()].into_iter().enumerate() {
        sink.append(if place == 0 { b"" } else { b"\0" });
        sink.append(part.as_bytes());
    }
    outcome::REFUSED
}

unsafe extern "C" fn initialize<T: Offcode>(instance: *mut c_void, host: Host<'_>, sink: Sink<'_>) -> u32 {
    // SAFETY: the table's contract.
    let Instance { offcode, .. } = unsafe { entered::<T>(instance) };
    guarded(sink, || phase(sink, offcode.initialize(&mut Outside(host))))
}

unsafe extern "C" fn start<T: Offcode>(instance: *mut c_void, host: Host<'_>, sink: Sink<'_>) -> u32 {
    // SAFETY: the table's contract.
    let Instance { offcode, .. } = unsafe { entered::<T>(instance) };
    guarded(sink, || phase(sink, offcode.start(&mut Outside(host))))
}

unsafe extern "C" fn call<T: Offcode>(
    instance: *mut c_void,
    host: Host<'_>,
    interface: u64,
    method: u32,
    arguments: Slice<'_>,
    sink: Sink<'_>,
) -> u32 {
    // SAFETY: the table's contract, for the instance and for the slice.
    let (Instance { offcode, reply }, arguments) = unsafe { (entered::<T>(instance), arguments.bytes()) };
    guarded(sink, || {
        let Ok(method) = u16::try_from(method) else {
            sink.append(b"there is no method of this number");
            return outcome::REFUSED;
        };
        let call = Incoming { interface, method, arguments: arguments.unwrap_or_default() };
        reply.clear();
        match offcode.call(call, reply, &mut Outside(host)) {
            Ok(()) => {
                sink.append(reply);
                outcome::DONE
            }
            Err(Refusal(why)) => {
                sink.append(why.as_bytes());
                outcome::REFUSED
            }
        }
    })
}

unsafe extern "C" fn answered<T: Offcode>(
    instance: *mut c_void,
    host: Host<'_>,
    channel: u32,
    id: u32,
    carried_out: u32,
    result: Slice<'_>,
    sink: Sink<'_>,
) -> u32 {
    // SAFETY: the table's contract, for the instance and for the slice.
    let (Instance { offcode, .. }, result) = unsafe { (entered::<T>(instance), result.bytes()) };
    guarded(sink, || {
        let result = result.unwrap_or_default();
        let refusal = Refusal(String::from_utf8_lossy(result).into_owned());
        let result = if carried_out == 1 { Ok(result) } else { Err(&refusal) };
        offcode.answered(ChannelId(channel), id, result, &mut Outside(host));
        outcome::DONE
    })
}

unsafe extern "C" fn attached<T: Offcode>(
    instance: *mut c_void,
    host: Host<'_>,
    channel: u32,
    name: Slice<'_>,
    sink: Sink<'_>,
) -> u32 {
    // SAFETY: the table's contract, for the instance and for the slice.
    let (Instance { offcode, .. }, name) = unsafe { (entered::<T>(instance), name.bytes()) };
    guarded(sink, || {
        let name = String::from_utf8_lossy(name.unwrap_or_default());
        offcode.attached(ChannelId(channel), &name, &mut Outside(host));
        outcome::DONE
    })
}

unsafe extern "C" fn message<T: Offcode>(
    instance: *mut c_void,
    host: Host<'_>,
    channel: u32,
    message: Slice<'_>,
    sink: Sink<'_>,
) -> u32 {
    // SAFETY: the table's contract, for the instance and for the slice.
    let (Instance { offcode, .. }, message) = unsafe { (entered::<T>(instance), message.bytes()) };
    guarded(sink, || {
        offcode.message(ChannelId(channel), message.unwrap_or_default(), &mut Outside(host));
        outcome::DONE
    })
}

unsafe extern "C" fn turn<T: Offcode>(instance: *mut c_void, host: Host<'_>, sink: Sink<'_>) -> u32 {
    // SAFETY: the table's contract.
    let Instance { offcode, .. } = unsafe { entered::<T>(instance) };
    guarded(sink, || match offcode.turn(&mut Outside(host)) {
        Activity::Worked => outcome::WORKED,
        Activity::Idle => outcome::DONE,
    })
}

unsafe extern "C" fn attribute_set<T: Offcode>(
    instance: *mut c_void,
    host: Host<'_>,
    name: Slice<'_>,
    value: Slice<'_>,
    sink: Sink<'_>,
) -> u32 {
    // SAFETY: the table's contract, for the instance and for the slices.
    let (Instance { offcode, .. }, name, value) = unsafe { (entered::<T>(instance), name.bytes(), value.bytes()) };
    guarded(sink, || {
        let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
        offcode.attribute_set(&text(name), &text(value), &mut Outside(host));
        outcome::DONE
    })
}

unsafe extern "C" fn stop<T: Offcode>(instance: *mut c_void, host: Host<'_>, sink: Sink<'_>) -> u32 {
    // SAFETY: the table's contract.
    let Instance { offcode, .. } = unsafe { entered::<T>(instance) };
    guarded(sink, || {
        offcode.stop(&mut Outside(host));
        outcome::DONE
    })
}

unsafe extern "C" fn save<T: Offcode>(instance: *mut c_void, host: Host<'_>, sink: Sink<'_>) -> u32 {
    // SAFETY: the table's contract.
    let Instance { offcode, .. } = unsafe { entered::<T>(instance) };
    guarded(sink, || {
        let mut state = State::default();
        let saved = offcode.save(&mut state, &mut Outside(host)).and_then(|()| state.encode());
        phase(sink, saved.map(|bytes| sink.append(&bytes)))
    })
}

unsafe extern "C" fn restore<T: Offcode>(
    instance: *mut c_void,
    host: Host<'_>,
    state: Slice<'_>,
    sink: Sink<'_>,
) -> u32 {
    // SAFETY: the table's contract, for the instance and for the slice.
    let (Instance { offcode, .. }, state) = unsafe { (entered::<T>(instance), state.bytes()) };
    guarded(sink, || {
        let state = State::decode(state.unwrap_or_default());
        phase(sink, state.and_then(|state| offcode.restore(&state, &mut Outside(host))))
    })
}

/// The [`Context`] of an offcode in a library.
struct Outside<'a>(Host<'a>);

impl Context for Outside<'_> {
    fn now(&self) -> Nanoseconds {
        // SAFETY: host and context belong together, during the call that handed them over, which is as long as this lives.
        Nanoseconds(unsafe { (self.0.table.now)(self.0.context) })
    }

    fn channel(&self, name: &str) -> Option<ChannelId> {
        // SAFETY: as in `now`.
        let number = unsafe { (self.0.table.channel)(self.0.context, Slice::of(name.as_bytes())) };
        u32::try_from(number).ok().map(ChannelId)
    }

    #[inline]
    fn write(&mut self, channel: ChannelId, message: &[u8]) -> Written {
        // SAFETY: as in `now`.
        written::from(unsafe { (self.0.table.write)(self.0.context, channel.0, Slice::of(message)) })
    }

    fn attribute(&self, name: &str) -> Option<&str> {
        // SAFETY: as in `now`; the host lets the value be read until it is called to change something, which takes `&mut self`.
        let value = unsafe { (self.0.table.attribute)(self.0.context, Slice::of(name.as_bytes())).bytes() };
        value.and_then(|value| std::str::from_utf8(value).ok())
    }

    fn log(&mut self, line: &str) {
        // SAFETY: as in `now`.
        unsafe { (self.0.table.log)(self.0.context, Slice::of(line.as_bytes())) }
    }
}
