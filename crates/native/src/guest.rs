//! The library's side: the table of a type.

use std::any::Any;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use machine::{Fault, Nanoseconds, Result};
use offcode::{
    Activity, Call, ChannelId, Context, Described, Incoming, MapId, Offcode, Put, Refusal, Shape, State, Wake, Written,
};

use crate::table::{Host, HostTable, OnChannel, Room, Sink, Slice, Step, Table, fault_of, phase, written};
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
        attached: Some(attached::<T> as OnChannel),
        message: Some(message::<T> as OnChannel),
        turn: Some(turn::<T> as Step),
        attribute_set: Some(attribute_set::<T>),
        stop: Some(stop::<T> as Step),
        save: Some(save::<T> as Step),
        restore: Some(restore::<T>),
        timer: Some(timer::<T>),
    }
}

/// A call's message, or the reason why it has none.
pub fn scripted<R>(call: &Call<R>) -> Result<Vec<u8>, String> {
    call.message().map(<[u8]>::to_vec).map_err(|fault| fault.to_string())
}

/// Puts what `make` returns into the sink, unless it panics.
pub fn tell_script(sink: Sink<'_>, make: impl FnOnce() -> Vec<Result<Vec<u8>, String>>) {
    tell(sink, make);
}

fn tell<V: serde::Serialize>(sink: Sink<'_>, make: impl FnOnce() -> V) {
    // Without bytes the host reports a panic.
    if let Ok(Ok(bytes)) = catch_unwind(AssertUnwindSafe(|| postcard::to_allocvec(&make()))) {
        sink.append(&bytes);
    }
}

/// An instance, with the reply to its last call.
struct Instance<T> {
    offcode: T,
    reply: Vec<u8>,
}

/// Runs the author's code and catches its panics, whose message goes to the sink.
#[inline]
fn guarded(sink: Sink<'_>, work: impl FnOnce() -> u32) -> u32 {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        sink.append(text.unwrap_or("without a message").as_bytes());
        // Dropping the payload of a panic may panic again.
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
        phase(sink, offcode.attribute_set(&text(name), &text(value), &mut Outside(host)))
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

unsafe extern "C" fn timer<T: Offcode>(instance: *mut c_void, host: Host<'_>, timer: u32, sink: Sink<'_>) -> u32 {
    // SAFETY: the table's contract.
    let Instance { offcode, .. } = unsafe { entered::<T>(instance) };
    guarded(sink, || {
        offcode.timer(timer as u8, &mut Outside(host));
        outcome::DONE
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

    fn set_timer(&mut self, timer: u8, wake: Wake) -> Result<()> {
        self.service(|host, context, sink| {
            // SAFETY: as in `now`, here and in what follows; `service` has seen that the host has the function.
            unsafe { (host.set_timer)(context, timer.into(), wake.at.0, wake.every.0, sink) }
        })
        .map(drop)
    }

    fn share(&mut self, words: &str, count: u32) -> Result<()> {
        let words = Slice::of(words.as_bytes());
        // SAFETY: as in `set_timer`.
        self.service(|host, context, sink| unsafe { (host.share)(context, words, count, sink) }).map(drop)
    }

    fn store(&mut self, words: &str, at: u32, values: &[u64]) -> Result<()> {
        let values: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
        let (words, values) = (Slice::of(words.as_bytes()), Slice::of(&values));
        // SAFETY: as in `set_timer`.
        self.service(|host, context, sink| unsafe { (host.store)(context, words, at, values, sink) }).map(drop)
    }

    fn load(&mut self, words: &str, at: u32, values: &mut [u64]) -> Result<bool> {
        let (words, count) = (Slice::of(words.as_bytes()), values.len() as u32);
        // SAFETY: as in `set_timer`.
        let told = self.service(|host, context, sink| unsafe { (host.load)(context, words, at, count, sink) })?;
        values.iter_mut().zip(told.as_chunks().0).for_each(|(value, word)| *value = u64::from_ne_bytes(*word));
        Ok(!told.is_empty() || values.is_empty())
    }

    fn open_map(&mut self, name: &str, shape: Shape) -> Result<MapId> {
        let (name, Shape { entries, key, value }) = (Slice::of(name.as_bytes()), shape);
        let mut told = Vec::new();
        self.of_maps(&mut told, |host, context, sink| {
            // SAFETY: as in `now`, here and in what follows; `of_maps` has seen that the host has the function.
            unsafe { (host.open_map)(context, name, entries, key, value, sink) }
        })?;
        Ok(told.first_chunk().map_or(MapId::NONE, |number| MapId(u32::from_ne_bytes(*number))))
    }

    fn map_get(&mut self, map: MapId, key: &[u8], value: &mut [u8]) -> Result<bool> {
        let (key, room) = (Slice::of(key), Room::of(value));
        // SAFETY: as in `open_map`.
        let got = self.of_maps(&mut Vec::new(), |host, context, sink| unsafe {
            (host.map_get)(context, map.0, key, room, sink)
        })?;
        Ok(got == outcome::WORKED)
    }

    fn map_put(&mut self, map: MapId, key: &[u8], value: &[u8]) -> Result<Put> {
        let (key, value) = (Slice::of(key), Slice::of(value));
        // SAFETY: as in `open_map`.
        let put = self.of_maps(&mut Vec::new(), |host, context, sink| unsafe {
            (host.map_put)(context, map.0, key, value, sink)
        })?;
        Ok(match put {
            outcome::FULL => Put::Full,
            outcome::WORKED => Put::Replaced,
            _ => Put::New,
        })
    }

    fn map_remove(&mut self, map: MapId, key: &[u8]) -> Result<bool> {
        let key = Slice::of(key);
        // SAFETY: as in `open_map`.
        let removed = self
            .of_maps(&mut Vec::new(), |host, context, sink| unsafe { (host.map_remove)(context, map.0, key, sink) })?;
        Ok(removed == outcome::WORKED)
    }

    fn map_visit(&mut self, map: MapId, each: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        let mut visitor = Visitor { each, panic: None };
        let to = std::ptr::from_mut(&mut visitor).cast();
        // SAFETY: as in `open_map`; the visitor is what `visited` takes its first argument for, and is not used meanwhile.
        let done = self.of_maps(&mut Vec::new(), |host, context, sink| unsafe {
            (host.map_visit)(context, map.0, visited, to, sink)
        });
        // A panic must not unwind through the host's frames.
        if let Some(panic) = visitor.panic {
            resume_unwind(panic);
        }
        done.map(drop)
    }
}

/// The caller's closure that is shown the entries of a map, and the panic that it ended with.
struct Visitor<'a> {
    each: &'a mut dyn FnMut(&[u8], &[u8]) -> bool,
    panic: Option<Box<dyn Any + Send>>,
}

/// # Safety
/// `visitor` is a [`Visitor`] that nobody else uses during the call, and the slices can be read during it.
unsafe extern "C" fn visited(visitor: *mut c_void, key: Slice<'_>, value: Slice<'_>) -> u32 {
    // SAFETY: as the caller says.
    let (visitor, key, value) = unsafe { (&mut *visitor.cast::<Visitor<'_>>(), key.bytes(), value.bytes()) };
    if visitor.panic.is_some() {
        return 0;
    }
    let (key, value) = (key.unwrap_or_default(), value.unwrap_or_default());
    match catch_unwind(AssertUnwindSafe(|| (visitor.each)(key, value))) {
        Ok(goes_on) => goes_on.into(),
        Err(panic) => {
            visitor.panic = Some(panic);
            0
        }
    }
}

impl Outside<'_> {
    /// Calls one of the host's service functions, and returns what it put into the sink.
    fn service(&self, ask: impl FnOnce(&HostTable, *mut c_void, Sink<'_>) -> u32) -> Result<Vec<u8>> {
        self.has(HostTable::SERVICES, "services")?;
        let mut told = Vec::new();
        match ask(self.0.table, self.0.context, Sink::of(&mut told)) {
            outcome::DONE => Ok(told),
            _ => Err(fault_of(&told)),
        }
    }

    /// Calls one of the host's functions for maps, and returns its outcome.
    #[inline]
    fn of_maps(&self, told: &mut Vec<u8>, ask: impl FnOnce(&HostTable, *mut c_void, Sink<'_>) -> u32) -> Result<u32> {
        self.has(HostTable::MAPS, "maps")?;
        match ask(self.0.table, self.0.context, Sink::of(told)) {
            outcome::REFUSED | outcome::PANICKED => Err(fault_of(told)),
            outcome => Ok(outcome),
        }
    }

    #[inline]
    fn has(&self, end: usize, what: &str) -> Result<()> {
        if self.0.table.reaches(end) {
            return Ok(());
        }
        let cause = format!("the program that hosts this library is older, and has no {what}");
        Err(Fault::new("native body", cause, "install the plimsoll that the library was built with"))
    }
}
