//! The inside of a sandbox: what makes an [`Offcode`] a wasm body. [`crate::export!`] is all that an author writes.
//!
//! ```text
//! #[derive(Default)]
//! struct Filter { ... }              // with #[offcode], as for the native body
//! offcode::export!(Filter);
//! ```
//!
//! Built as a `cdylib` for `wasm32-unknown-unknown`; `docs/wasm-abi.md` has the profile that keeps it small. The exports
//! hand records between host and offcode, and hold no unsafe code: the host finds the areas by address.

use std::sync::{Mutex, PoisonError};

use machine::{Fault, Nanoseconds, Result};

use crate::abi::{self, Action, Descriptor, Event, Record, Records};
use crate::map::{MapId, Maps, Shape};
use crate::service::{self, Wake};
use crate::{Activity, Attributes, ChannelId, Context, Incoming, Offcode, Refusal, State, Written};

/// Bytes of each record area.
const AREA: usize = 128 << 10;

/// Bytes of the output area that are kept free for the answer to a call.
const ANSWER: usize = 256;

/// Bytes kept of a panic's message.
const LAST_WORDS: usize = 512;

/// Makes the exports of a module, or of a library, for an offcode that implements `Default`. It expands to nothing where the
/// target is not wasm and `plimsoll offcode build` does not make a library, so that the same source can also be linked in.
///
/// `plimsoll offcode test` makes `calls` of each body, in order, and compares what they answer:
/// `offcode::export!(Filter, calls = [FilterProxy.limit(9), FilterProxy.passed(80)]);`
#[macro_export]
macro_rules! export {
    ($offcode:ty) => {
        $crate::export!($offcode, calls = []);
    };
    ($offcode:ty, calls = [$($call:expr),* $(,)?]) => {
        #[allow(unexpected_cfgs, reason = "set by plimsoll offcode build")]
        const _: () = {
            #[cfg(all(offcode_native, not(target_family = "wasm")))]
            ::native::export!($offcode, [$($call),*]);

            #[cfg(all(offcode_native, not(panic = "unwind")))]
            compile_error!("a native body has to unwind: leave panic = \"abort\" out of the profile; wasm bodies have it anyway");
        };

        #[cfg(target_family = "wasm")]
        const _: () = {
            static BODY: $crate::guest::Body<$offcode> = $crate::guest::Body::new();

            #[unsafe(no_mangle)]
            extern "C" fn offcode_describe() -> u32 {
                BODY.describe()
            }

            #[unsafe(no_mangle)]
            extern "C" fn offcode_handle(length: u32) -> u32 {
                BODY.handle(length)
            }
        };
    };
}

/// The one offcode of a module.
pub struct Body<T>(Mutex<Option<Box<Running<T>>>>);

struct Running<T> {
    offcode: T,
    input: Vec<u8>,
    outside: Outside,
    interfaces: Vec<u8>,
    descriptor: [u32; Descriptor::LENGTH / 4],
}

/// A sentence for the host to find after a trap: a length, then UTF-8.
static WORDS: Mutex<[u8; LAST_WORDS]> = Mutex::new([0; LAST_WORDS]);

impl<T: Offcode + Default> Body<T> {
    /// The body before its offcode is made.
    #[allow(clippy::new_without_default, reason = "a static is made of it")]
    pub const fn new() -> Self {
        Body(Mutex::new(None))
    }

    /// Makes the offcode and says where its areas are.
    pub fn describe(&self) -> u32 {
        std::panic::set_hook(Box::new(|panic| last_words(&panic.to_string())));
        let offcode = T::default();
        let mut running = Box::new(Running {
            interfaces: offcode.interfaces().iter().flat_map(|guid| *guid.bytes()).collect(),
            offcode,
            input: vec![0; AREA],
            outside: Outside::new(AREA),
            descriptor: Default::default(),
        });
        let words = WORDS.lock().unwrap_or_else(PoisonError::into_inner).as_ptr();
        let Running { input, outside, interfaces, .. } = &mut *running;
        running.descriptor = Descriptor {
            version: abi::VERSION,
            input: [address(input.as_mut_ptr()), AREA as u32],
            output: [address(outside.area.as_mut_ptr()), AREA as u32],
            last_words: [address(words), LAST_WORDS as u32],
            interfaces: [address(interfaces.as_ptr()), interfaces.len() as u32 / 16],
        }
        .to_words();
        let at = address(running.descriptor.as_ptr());
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(running);
        at
    }

    /// Handles the records that the host has written. Returns the length of the actions in the output area.
    pub fn handle(&self, length: u32) -> u32 {
        let mut body = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(running) = body.as_mut() else { return 0 };
        let Running { offcode, input, outside, .. } = &mut **running;
        outside.handle(offcode, &input[..abi::HEAD + length as usize]);
        outside.end as u32
    }
}

/// The address of what the pointer points to, 32 bits wide in wasm. Exposed, since the host writes there.
fn address<P>(pointer: *const P) -> u32 {
    pointer.expose_provenance() as u32
}

fn last_words(sentence: &str) {
    let mut words = WORDS.lock().unwrap_or_else(PoisonError::into_inner);
    let length = sentence.len().min(LAST_WORDS - 4);
    words[..4].copy_from_slice(&(length as u32).to_le_bytes());
    words[4..4 + length].copy_from_slice(&sentence.as_bytes()[..length]);
}

/// The [`Context`] of an offcode inside the sandbox: what the guest was told by events, and the actions that it asks
/// for.
pub struct Outside {
    now: Nanoseconds,
    room: Vec<u32>,
    names: Vec<(String, ChannelId)>,
    attributes: Attributes,
    area: Vec<u8>,
    end: usize,
    reply: Vec<u8>,
    /// Encoded state that is saved or restored in parts.
    parts: Vec<u8>,
    words: Vec<Words>,
    maps: Maps,
}

/// Shared words, as of this entry into the guest.
struct Words {
    name: String,
    /// The index among the guest's own words; `None` for those of others.
    own: Option<u32>,
    /// Number of words asked of the host.
    wanted: usize,
    /// The words; empty until the host has sent them.
    values: Vec<u64>,
}

impl Outside {
    /// A context whose actions go to an area of `area` bytes.
    pub fn new(area: usize) -> Self {
        Outside {
            now: Nanoseconds(0),
            room: Vec::with_capacity(abi::CHANNELS),
            names: Vec::new(),
            attributes: Attributes::default(),
            area: vec![0; area],
            end: 0,
            reply: Vec::new(),
            parts: Vec::new(),
            words: Vec::new(),
            maps: Maps::default(),
        }
    }

    /// The actions of the last [`Outside::handle`].
    pub fn output(&self) -> &[u8] {
        &self.area[..self.end]
    }

    /// Hands every event of `input`, an input area up to its last record, to the offcode.
    pub fn handle(&mut self, offcode: &mut impl Offcode, input: &[u8]) {
        self.end = 0;
        let Some((head, events)) = input.split_first_chunk::<{ abi::HEAD }>() else { return };
        let word = |i: usize| u32::from_le_bytes([head[i], head[i + 1], head[i + 2], head[i + 3]]);
        self.now = Nanoseconds(u64::from(word(0)) | u64::from(word(4)) << 32);
        self.room.clear();
        self.room.extend((0..(word(8) as usize).min(abi::CHANNELS)).map(|channel| word(16 + 4 * channel)));
        for (record, payload) in Records::of(events).flatten() {
            if let Some(event) = Event::from_kind(record.kind) {
                self.event(offcode, event, record, payload);
            }
        }
    }

    #[inline]
    fn event(&mut self, offcode: &mut impl Offcode, event: Event, record: Record, payload: &[u8]) {
        let channel = ChannelId(record.channel);
        match event {
            Event::Message => offcode.message(channel, payload, self),
            Event::Turn => {
                if offcode.turn(self) == Activity::Worked {
                    self.act(Action::Worked, 0, &[]);
                }
            }
            Event::Call => {
                let Some((interface, arguments)) = payload.split_first_chunk() else { return };
                let call = Incoming { interface: u64::from_le_bytes(*interface), method: record.detail, arguments };
                let mut reply = std::mem::take(&mut self.reply);
                reply.clear();
                match offcode.call(call, &mut reply, self) {
                    Ok(()) if self.act(Action::Reply, 0, &reply) => {}
                    Ok(()) => {
                        let (length, room) = (reply.len(), self.area.len() - self.end);
                        self.refuse(&format!(
                            "the reply of {length} bytes does not fit the {room} left of the output area"
                        ));
                    }
                    Err(Refusal(why)) => self.refuse(&why),
                }
                self.reply = reply;
            }
            Event::Answered => {
                let refusal = Refusal(String::from_utf8_lossy(payload).into_owned());
                let result = if record.detail == 1 { Ok(payload) } else { Err(&refusal) };
                offcode.answered(channel, record.id, result, self);
            }
            Event::Channel => {
                let name = String::from_utf8_lossy(payload);
                self.names.retain(|(known, _)| *known != name);
                self.names.push((name.clone().into_owned(), channel));
                if record.detail == 1 {
                    offcode.attached(channel, &name, self);
                }
            }
            Event::Attribute => {
                let Some((length, text)) = payload.split_first_chunk() else { return };
                let Some((name, value)) = text.split_at_checked(u32::from_le_bytes(*length) as usize) else { return };
                let (name, value) = (String::from_utf8_lossy(name), String::from_utf8_lossy(value));
                let before = self.attributes.get(&name).map(str::to_owned);
                // The host has checked the attribute.
                let _ = self.attributes.set(&name, &value);
                if record.detail == 1
                    && let Err(fault) = offcode.attribute_set(&name, &value, self)
                {
                    self.attributes.put_back(&name, before);
                    self.refuse(&fault.to_string());
                }
            }
            Event::Initialize => {
                if let Err(fault) = offcode.initialize(self) {
                    self.refuse(&fault.to_string());
                }
            }
            Event::Start => {
                if let Err(fault) = offcode.start(self) {
                    self.refuse(&fault.to_string());
                }
            }
            Event::Stop => offcode.stop(self),
            Event::Timer => offcode.timer(record.id as u8, self),
            Event::Words => {
                let Some((length, rest)) = payload.split_first_chunk() else { return };
                let length = u32::from_le_bytes(*length) as usize;
                let (name, values) = (rest.get(..length), payload.get(abi::words_at(length)..));
                let known = self.words.iter_mut().find(|words| name == Some(words.name.as_bytes()));
                if let (Some(words), Some(values)) = (known, values) {
                    words.values.clear();
                    words.values.extend(values.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)));
                }
            }
            Event::Save => self.save(offcode, record.id as usize),
            Event::Restore => {
                self.parts.extend_from_slice(payload);
                if record.detail == 1 {
                    let parts = std::mem::take(&mut self.parts);
                    let restored = State::decode(&parts).and_then(|mut state| {
                        self.maps.restore(&mut state)?;
                        offcode.restore(&state, self)
                    });
                    if let Err(fault) = restored {
                        self.refuse(&fault.to_string());
                    }
                }
            }
        }
    }

    fn save(&mut self, offcode: &mut impl Offcode, from: usize) {
        if from == 0 {
            let mut state = State::default();
            let saved = offcode.save(&mut state, self).and_then(|()| self.maps.save(&mut state));
            match saved.and_then(|()| state.encode()) {
                Ok(bytes) => self.parts = bytes,
                Err(fault) => return self.refuse(&fault.to_string()),
            }
        }
        let parts = std::mem::take(&mut self.parts);
        let left = parts.get(from..).unwrap_or_default();
        let room = (self.area.len() - self.end).saturating_sub(Record::LENGTH) & !7;
        self.act(Action::State, 0, &left[..left.len().min(room)]);
        if !left.is_empty() {
            self.parts = parts;
        }
    }

    /// Appends an action to the output; false where there is no room.
    #[inline]
    fn act(&mut self, action: Action, channel: u32, payload: &[u8]) -> bool {
        self.put(action, Record { channel, ..Record::default() }, payload)
    }

    /// Appends an action of a service; the fault says that there is no room.
    fn ask(&mut self, action: Action, record: Record, payload: &[u8]) -> Result<()> {
        match self.put(action, record, payload) {
            true => Ok(()),
            false => {
                Err(Fault::new("output area", "it has no room for more in this entry", "try again in a later turn"))
            }
        }
    }

    #[inline]
    fn put(&mut self, action: Action, record: Record, payload: &[u8]) -> bool {
        let record = Record { kind: action as u16, ..record };
        // Other actions leave room for an answer.
        let answers = matches!(action, Action::Reply | Action::Refuse | Action::State | Action::Worked);
        let kept = if answers { 0 } else { ANSWER };
        let size = self.area.len().saturating_sub(kept);
        match record.put(&mut self.area[..size], self.end, &[payload]) {
            Some(end) => {
                self.end = end;
                true
            }
            None => false,
        }
    }

    /// Refuses with as much of the sentence as there is room for; some room always is.
    fn refuse(&mut self, why: &str) {
        let room = (self.area.len() - self.end).saturating_sub(Record::LENGTH) & !7;
        self.act(Action::Refuse, 0, &why.as_bytes()[..why.len().min(room)]);
    }
}

impl Context for Outside {
    /// The time of the entry into the sandbox.
    fn now(&self) -> Nanoseconds {
        self.now
    }

    fn channel(&self, name: &str) -> Option<ChannelId> {
        self.names.iter().find(|(known, _)| known == name).map(|(_, channel)| *channel)
    }

    /// `Taken`: the host has the message, and keeps it where a reliable channel has no room; `Full`: it would not keep
    /// more. Drops of an unreliable channel are counted by the host and not known here.
    #[inline]
    fn write(&mut self, channel: ChannelId, message: &[u8]) -> Written {
        let line = abi::line(channel.0) as usize;
        match self.room.get(line) {
            None | Some(&abi::GONE) => return Written::Gone,
            Some(0) => return Written::Full,
            Some(_) => {}
        }
        if self.act(Action::Write, channel.0, message) {
            self.room[line] -= 1;
            return Written::Taken;
        }
        if Record::span(message.len()) + ANSWER > self.area.len() {
            self.log(&format!("a message of {} bytes is longer than the output area: lost", message.len()));
            return Written::Refused;
        }
        Written::Full
    }

    fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.get(name)
    }

    /// The line is lost where the output area is full.
    fn log(&mut self, line: &str) {
        self.act(Action::Log, 0, line.as_bytes());
    }

    /// The host checks that the manifest asks for timers, and ends the guest if not.
    fn set_timer(&mut self, timer: u8, wake: Wake) -> Result<()> {
        service::check_timer(timer)?;
        let record = Record { id: timer.into(), ..Record::default() };
        let payload: Vec<u8> = [wake.at.0, wake.every.0].iter().flat_map(|time| time.to_le_bytes()).collect();
        self.ask(Action::Timer, record, &payload)
    }

    /// The host checks that there is memory for the words, and ends the guest if not.
    fn share(&mut self, words: &str, count: u32) -> Result<()> {
        service::check_name(words)?;
        if let Some(own) = self.words.iter().find(|own| own.name == words) {
            return service::same_count(words, own.values.len(), count);
        }
        self.ask(Action::Share, Record { id: count, ..Record::default() }, words.as_bytes())?;
        let own = self.words.iter().filter(|words| words.own.is_some()).count() as u32;
        self.words.push(Words {
            name: words.into(),
            own: Some(own),
            wanted: count as usize,
            values: vec![0; count as usize],
        });
        Ok(())
    }

    fn store(&mut self, words: &str, at: u32, values: &[u64]) -> Result<()> {
        let place = self.words.iter().position(|own| own.name == words);
        let Some((place, channel)) = place.and_then(|place| Some((place, self.words[place].own?))) else {
            return Err(service::not_shared(words));
        };
        service::check_words(words, self.words[place].values.len(), at, values.len())?;
        let payload: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.ask(Action::Store, Record { channel, id: at, ..Record::default() }, &payload)?;
        self.words[place].values[at as usize..][..values.len()].copy_from_slice(values);
        Ok(())
    }

    fn load(&mut self, words: &str, at: u32, values: &mut [u64]) -> Result<bool> {
        let (wanted, known) = (at as usize + values.len(), self.words.iter().position(|known| known.name == words));
        if known.is_none_or(|known| self.words[known].own.is_none() && self.words[known].wanted < wanted) {
            // The guest has all words under its own names, so the host is not asked.
            if !words.contains('/') {
                return Ok(false);
            }
            self.ask(Action::Load, Record { id: wanted as u32, ..Record::default() }, words.as_bytes())?;
            match known {
                Some(known) => self.words[known].wanted = wanted,
                None => self.words.push(Words { name: words.into(), own: None, wanted, values: Vec::new() }),
            }
            return Ok(false);
        }
        let known = known.map(|known| &self.words[known]);
        let Some(known) = known.filter(|known| known.own.is_some() || known.values.len() >= wanted) else {
            return Ok(false);
        };
        service::check_words(words, known.values.len(), at, values.len())?;
        values.copy_from_slice(&known.values[at as usize..wanted]);
        Ok(true)
    }

    /// The map lies in the guest's memory; the host is told its address.
    fn open_map(&mut self, name: &str, shape: Shape) -> Result<MapId> {
        if let Some(there) = self.maps.opened(name, shape)? {
            return Ok(there);
        }
        let id = self.maps.open(name, shape)?;
        let at = address(self.maps.table(id)?.cells().as_ptr());
        let sizes = [shape.key, shape.value, at].map(u32::to_le_bytes);
        let payload = [sizes.as_flattened(), name.as_bytes()].concat();
        let asked = self.ask(Action::Map, Record { id: shape.entries, ..Record::default() }, &payload);
        if asked.is_err() {
            self.maps.close_last();
        }
        asked.map(|()| id)
    }

    fn maps(&mut self) -> Option<&mut Maps> {
        Some(&mut self.maps)
    }
}
