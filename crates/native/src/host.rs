//! What a library calls of its host while one of its functions runs.

use std::ffi::c_void;

use machine::{Nanoseconds, Result};
use offcode::{ChannelId, Context, MapId, Put, Shape, Wake};

use crate::table::{Each, HostTable, Room, Sink, Slice, phase, written};
use crate::{VERSION, outcome};

pub(crate) static HOST: HostTable = HostTable {
    size: size_of::<HostTable>() as u32,
    version: VERSION,
    now,
    channel,
    write,
    attribute,
    log,
    set_timer,
    share,
    store,
    load,
    open_map,
    map_get,
    map_put,
    map_remove,
    map_visit,
};

/// # Safety
/// `context` is that of a [`Host`] that `Hosted::enter` made, during its call.
unsafe fn inside<'a>(context: *mut c_void) -> &'a mut dyn Context {
    // SAFETY: as the caller says: it points to `enter`'s own reference, which nobody else uses meanwhile.
    unsafe { &mut **context.cast::<&mut dyn Context>() }
}

unsafe extern "C" fn now(context: *mut c_void) -> u64 {
    // SAFETY: the library passes on what it was handed, here and below.
    unsafe { inside(context) }.now().0
}

unsafe extern "C" fn channel(context: *mut c_void, name: Slice<'_>) -> u64 {
    // SAFETY: as in `now`; the library's slice can be read during this call.
    let (context, name) = unsafe { (inside(context), name.bytes()) };
    let name = name.and_then(|name| std::str::from_utf8(name).ok());
    name.and_then(|name| context.channel(name)).map_or(u64::MAX, |channel| u64::from(channel.0))
}

unsafe extern "C" fn write(context: *mut c_void, channel: u32, message: Slice<'_>) -> u32 {
    // SAFETY: as in `channel`.
    let (context, message) = unsafe { (inside(context), message.bytes()) };
    written::to(context.write(ChannelId(channel), message.unwrap_or_default()))
}

unsafe extern "C" fn attribute(context: *mut c_void, name: Slice<'_>) -> Slice<'static> {
    // SAFETY: as in `channel`.
    let (context, name) = unsafe { (inside(context), name.bytes()) };
    let name = name.and_then(|name| std::str::from_utf8(name).ok());
    name.and_then(|name| context.attribute(name)).map_or(Slice::NONE, |value| Slice::lent(value.as_bytes()))
}

unsafe extern "C" fn log(context: *mut c_void, line: Slice<'_>) {
    // SAFETY: as in `channel`.
    let (context, line) = unsafe { (inside(context), line.bytes()) };
    context.log(&String::from_utf8_lossy(line.unwrap_or_default()));
}

/// # Safety
/// As of [`Slice::bytes`].
unsafe fn text<'a>(slice: Slice<'a>) -> &'a str {
    // SAFETY: as the caller says.
    unsafe { slice.bytes() }.and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default()
}

unsafe extern "C" fn set_timer(context: *mut c_void, timer: u32, at: u64, every: u64, sink: Sink<'_>) -> u32 {
    // SAFETY: as in `now`.
    let context = unsafe { inside(context) };
    let wake = Wake { at: Nanoseconds(at), every: Nanoseconds(every) };
    phase(sink, context.set_timer(u8::try_from(timer).unwrap_or(u8::MAX), wake))
}

unsafe extern "C" fn share(context: *mut c_void, words: Slice<'_>, count: u32, sink: Sink<'_>) -> u32 {
    // SAFETY: as in `channel`.
    let (context, words) = unsafe { (inside(context), text(words)) };
    phase(sink, context.share(words, count))
}

unsafe extern "C" fn store(context: *mut c_void, words: Slice<'_>, at: u32, values: Slice<'_>, sink: Sink<'_>) -> u32 {
    // SAFETY: as in `channel`.
    let (context, words, values) = unsafe { (inside(context), text(words), values.bytes()) };
    let values: Vec<u64> =
        values.unwrap_or_default().as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
    phase(sink, context.store(words, at, &values))
}

unsafe extern "C" fn load(context: *mut c_void, words: Slice<'_>, at: u32, count: u32, sink: Sink<'_>) -> u32 {
    // SAFETY: as in `channel`.
    let (context, words) = unsafe { (inside(context), text(words)) };
    let mut values = vec![0; count as usize];
    let loaded = context.load(words, at, &mut values).map(|there| {
        if there {
            values.iter().for_each(|value: &u64| sink.append(&value.to_ne_bytes()));
        }
    });
    phase(sink, loaded)
}

unsafe extern "C" fn open_map(
    context: *mut c_void,
    name: Slice<'_>,
    entries: u32,
    key: u32,
    value: u32,
    sink: Sink<'_>,
) -> u32 {
    // SAFETY: as in `channel`.
    let (context, name) = unsafe { (inside(context), text(name)) };
    let opened = context.open_map(name, Shape { entries, key, value });
    phase(sink, opened.map(|map| sink.append(&map.0.to_ne_bytes())))
}

/// The answer of a map; a fault goes to the sink.
#[inline]
fn answer<T>(sink: Sink<'_>, result: Result<T>, outcome: impl FnOnce(T) -> u32) -> u32 {
    match result {
        Ok(value) => outcome(value),
        Err(fault) => phase(sink, Err(fault)),
    }
}

fn there(is: bool) -> u32 {
    if is { outcome::WORKED } else { outcome::DONE }
}

unsafe extern "C" fn map_get(context: *mut c_void, map: u32, key: Slice<'_>, value: Room<'_>, sink: Sink<'_>) -> u32 {
    // SAFETY: as in `channel`; the library's room can be written during this call.
    let (context, key, value) = unsafe { (inside(context), key.bytes(), value.bytes()) };
    answer(sink, context.map_get(MapId(map), key.unwrap_or_default(), value), there)
}

unsafe extern "C" fn map_put(context: *mut c_void, map: u32, key: Slice<'_>, value: Slice<'_>, sink: Sink<'_>) -> u32 {
    // SAFETY: as in `channel`.
    let (context, key, value) = unsafe { (inside(context), key.bytes(), value.bytes()) };
    answer(sink, context.map_put(MapId(map), key.unwrap_or_default(), value.unwrap_or_default()), |put| match put {
        Put::New => outcome::DONE,
        Put::Replaced => outcome::WORKED,
        Put::Full => outcome::FULL,
    })
}

unsafe extern "C" fn map_remove(context: *mut c_void, map: u32, key: Slice<'_>, sink: Sink<'_>) -> u32 {
    // SAFETY: as in `channel`.
    let (context, key) = unsafe { (inside(context), key.bytes()) };
    answer(sink, context.map_remove(MapId(map), key.unwrap_or_default()), there)
}

unsafe extern "C" fn map_visit(context: *mut c_void, map: u32, each: Each, to: *mut c_void, sink: Sink<'_>) -> u32 {
    // SAFETY: as in `now`.
    let context = unsafe { inside(context) };
    // SAFETY: the library's function with the argument that it wants, during this call.
    let mut show = |key: &[u8], value: &[u8]| unsafe { each(to, Slice::of(key), Slice::of(value)) } == 1;
    answer(sink, context.map_visit(MapId(map), &mut show), |()| outcome::DONE)
}
