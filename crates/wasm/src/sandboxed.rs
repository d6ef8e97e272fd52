//! A wasm instance as an offcode.

use std::time::Duration;

use machine::bounds::OFFCODE_STATE;
use machine::{Fault, Result};
use offcode::abi::{self, Event, Record};
use offcode::map::Entries;
use offcode::{Activity, Attributes, ChannelId, Context, Guid, Incoming, Manifest, Offcode, Refusal, State};

use crate::instance::{Instance, cpu_time, printable};
use crate::limits::Limits;
use crate::module::Module;
use crate::outbox::Outbox;
use crate::output::{self, Allowed, Answer};
use crate::services::{Opened, Services};
use crate::ticker::{Presence, Ticker};

/// Messages that are handed to the guest in one entry. An entry costs more than the handling of a small message.
pub const BATCH: u32 = 16;

/// Number of entries whose time all parts of a state have together; the number of parts is the guest's choice.
const STATE_ENTRIES: u32 = 50;

/// Longest line of a guest in the log, and most lines of one entry.
const LINE: usize = 1024;
const LINES: usize = 16;

/// One instance of a [`Module`]. Messages are copied into the guest's memory as they arrive and handled together: when
/// [`BATCH`] have gathered, or before the next event of another kind, which is at the latest the turn of the same pass
/// through the site's loop.
///
/// Once the guest has done what it must not, [`Offcode::failure`] says what, calls are refused with the same sentence,
/// and nothing else happens any more.
pub struct Sandboxed {
    name: String,
    interfaces: Vec<Guid>,
    limits: Limits,
    instance: Instance,
    /// Bytes of the input area in use, and how many messages are among them.
    filled: usize,
    messages: u32,
    outbox: Outbox,
    services: Services,
    /// How many peers the manifest names.
    peers: u32,
    /// Names of peers whose channel has not been there yet.
    unresolved: Vec<String>,
    /// Attributes for `initialize`; empty after it.
    attributes: Attributes,
    initialized: bool,
    failure: Option<Fault>,
    counted: Counted,
    /// Keeps the time limit working.
    ticker: Presence,
}

/// The host's counters of one instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counted {
    /// Entries into the guest that returned.
    pub entries: u64,
    /// Messages given to the guest.
    pub messages: u64,
    /// Messages not given to the guest: longer than its input area, or after its failure.
    pub lost: u64,
    /// Writes carried out, or kept for lack of room outside.
    pub writes: u64,
}

impl Sandboxed {
    /// Makes an instance for an offcode: memory of its own, the module's start function run, and its interfaces compared
    /// with those that the manifest declares.
    ///
    /// The guest has the attributes `set` in `initialize`, over those of the manifest.
    pub fn new(module: &Module, manifest: &Manifest, set: &Attributes) -> Result<Self> {
        let name = manifest.package.name.clone();
        let fault = |cause: String, next: &str| Fault::new(format!("wasm body of {name}"), cause, next);
        let ticker = Ticker::of_guest()?;
        ticker.enter();
        let instantiated = Instance::new(&module.compiled, &module.limits);
        ticker.leave();
        let (instance, served) = instantiated.map_err(|cause| fault(cause, "mend the guest, or use another body"))?;
        let served: Vec<Guid> = served.into_iter().map(Guid::from_bytes).collect();
        let declared = &manifest.package.interfaces;
        if let Some(missing) = declared.iter().find(|interface| !served.contains(&interface.guid)) {
            let cause = format!("its manifest declares {} ({}), which it does not serve", missing.name, missing.guid);
            return Err(fault(cause, "build body and manifest from the same source"));
        }
        if let Some(extra) = served.iter().find(|guid| declared.iter().all(|interface| interface.guid != **guid)) {
            let cause = format!("it serves {extra}, which its manifest does not declare");
            return Err(fault(cause, "build body and manifest from the same source"));
        }
        let services = Services::of(manifest);
        if (services.timers || services.memory) && instance.version < abi::WITH_SERVICES {
            let cause =
                format!("it is written for version {} of the interface, which has no services", instance.version);
            return Err(fault(cause, "build it again, or leave the environment out of its manifest"));
        }
        if services.maps && instance.version < abi::WITH_MAPS {
            let cause = format!("it is written for version {} of the interface, which has no maps", instance.version);
            return Err(fault(cause, "build it again, or leave maps out of its manifest"));
        }
        let mut attributes = Attributes::default();
        let of_manifest = manifest.package.attributes.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in of_manifest.chain(set.iter()) {
            attributes.set(name, value)?;
        }
        Ok(Sandboxed {
            interfaces: served,
            limits: module.limits,
            instance,
            filled: abi::HEAD,
            messages: 0,
            services,
            outbox: Outbox::new(module.limits.kept, module.limits.output.0 as usize),
            peers: (manifest.software.peers.len() as u32).min(256),
            unresolved: manifest.software.peers.iter().map(|peer| peer.name.clone()).collect(),
            attributes,
            initialized: false,
            failure: None,
            counted: Counted::default(),
            ticker,
            name,
        })
    }

    pub fn counted(&self) -> Counted {
        self.counted
    }

    /// Appends an event, entering the guest first where it does not fit behind the messages that wait. Says whether it
    /// fits.
    #[inline]
    fn event(&mut self, event: Event, record: Record, parts: &[&[u8]], context: &mut dyn Context) -> bool {
        if !self.unresolved.is_empty() {
            self.resolve(context);
        }
        self.tell(context);
        let record = Record { kind: event as u16, ..record };
        if let Some(filled) = record.put(self.instance.input(), self.filled, parts) {
            self.filled = filled;
            return true;
        }
        if self.messages == 0 {
            return false;
        }
        self.flush(context);
        self.tell(context);
        match record.put(self.instance.input(), self.filled, parts) {
            Some(filled) => {
                self.filled = filled;
                true
            }
            None => false,
        }
    }

    /// Gives the guest a copy of the words that it wants, before the first event of an entry.
    #[inline]
    fn tell(&mut self, context: &mut dyn Context) {
        if self.services.has_copies() && self.filled == abi::HEAD && self.initialized {
            self.filled = self.services.tell(self.instance.input(), self.filled, context);
        }
    }

    /// Hands the guest the messages that have gathered.
    fn flush(&mut self, context: &mut dyn Context) {
        if self.messages != 0 {
            let _ = self.enter("messages", Allowed::default(), None, context);
        }
    }

    /// Hands the guest the gathered events and carries out its answer. Returns whether it worked, or its refusal.
    #[inline]
    fn enter(
        &mut self,
        what: &str,
        allowed: Allowed,
        reply: Option<&mut Vec<u8>>,
        context: &mut dyn Context,
    ) -> Result<bool, Refusal> {
        if let Some(failure) = &self.failure {
            return Err(Refusal(failure.to_string()));
        }
        let left = self.outbox.retry(context);

        let mut room = [0; abi::CHANNELS];
        // No channel works in `initialize`.
        let channels = if self.initialized { self.outbox.room(&mut room) } else { 0 };
        let area = self.instance.input();
        area[0..8].copy_from_slice(&context.now().0.to_le_bytes());
        area[8..12].copy_from_slice(&(channels as u32).to_le_bytes());
        for (entry, room) in area[16..abi::HEAD].as_chunks_mut::<4>().0.iter_mut().zip(&room[..channels]) {
            *entry = room.to_le_bytes();
        }

        let Services { timers, memory, maps, .. } = self.services;
        let allowed = Allowed { timers, memory, maps, ..allowed };
        let length = std::mem::replace(&mut self.filled, abi::HEAD) - abi::HEAD;
        let messages = u64::from(std::mem::take(&mut self.messages));
        self.ticker.enter();
        let entered = self.instance.enter(length);
        self.ticker.leave();
        let checked = entered.and_then(|output| {
            output::check(output, allowed, &mut room[..channels], self.peers).map(|said| (output, said))
        });
        let (output, said) = match checked {
            Ok(checked) => checked,
            Err(cause) => {
                self.counted.lost += messages;
                return Err(self.fail(what, &cause, context));
            }
        };
        self.counted.entries += 1;
        self.counted.messages += messages;
        let mut refused = None;
        let (mut shared, opened) = (0, self.services.opened.len());
        if said.acts {
            let mut lines = 0;
            for (record, payload) in abi::Records::of(output).flatten() {
                match abi::Action::from_kind(record.kind) {
                    Some(abi::Action::Write) => {
                        self.counted.writes += 1;
                        self.outbox.write(ChannelId(record.channel), payload, context);
                    }
                    Some(abi::Action::Log) => {
                        lines += 1;
                        if lines <= LINES {
                            context.log(&printable(&payload[..payload.len().min(LINE)]));
                        }
                    }
                    Some(action) if refused.is_none() => {
                        refused = self.services.carry_out((action, record, payload), context).err();
                        shared += if action == abi::Action::Share { record.id as usize * 8 } else { 0 };
                    }
                    _ => {}
                }
            }
            if lines > LINES {
                context.log(&format!("{} more lines of the same moment are left out", lines - LINES));
            }
        }
        let worked = said.worked;
        let answered = match said.answer {
            None => Ok(()),
            Some(Answer::Refused(why)) => Err(Refusal(printable(&why[..why.len().min(LINE)]))),
            Some(Answer::Reply(result)) if result.len() as u64 > self.limits.reply.0 => {
                let (length, limit) = (result.len(), self.limits.reply);
                Err(Refusal(format!("the reply of {length} bytes is longer than the limit of {limit}")))
            }
            Some(Answer::Reply(result) | Answer::State(result)) => {
                if let Some(reply) = reply {
                    reply.extend_from_slice(result);
                }
                Ok(())
            }
        };
        // Its memory and what it shares have one limit.
        let refused = refused.or_else(|| self.instance.reserve(shared).err());
        let refused = refused.or_else(|| self.services.lie_within(opened, self.instance.memory().len()).err());
        if let Some(cause) = refused {
            return Err(self.fail(what, &cause, context));
        }
        answered?;
        Ok(worked || left)
    }

    /// Ends the instance.
    #[cold]
    fn fail(&mut self, what: &str, cause: &str, context: &mut dyn Context) -> Refusal {
        let failure = Fault::new(
            format!("wasm body of {}", self.name),
            format!("while it handled {what}, {cause}; the instance is dead"),
            "mend the guest and create the offcode again",
        );
        context.log(&failure.to_string());
        let refusal = Refusal(failure.to_string());
        self.failure = Some(failure);
        refusal
    }

    /// Tells the guest of channels to peers that have appeared.
    #[cold]
    fn resolve(&mut self, context: &mut dyn Context) {
        if !self.initialized {
            return;
        }
        let mut unresolved = std::mem::take(&mut self.unresolved);
        unresolved.retain(|name| match context.channel(name) {
            Some(channel) => !self.name_channel(channel, name, 0, context),
            None => true,
        });
        self.unresolved = unresolved;
    }

    /// Names a channel to the guest; true where the guest now knows it by that name.
    fn name_channel(&mut self, channel: ChannelId, name: &str, detail: u16, context: &mut dyn Context) -> bool {
        let record = Record { detail, channel: channel.0, ..Record::default() };
        if !self.outbox.know(channel) {
            context.log(&format!("{channel:?} '{name}' is beyond the {} channels of a wasm body", abi::CHANNELS));
            return true;
        }
        let record = Record { kind: Event::Channel as u16, ..record };
        match record.put(self.instance.input(), self.filled, &[name.as_bytes()]) {
            Some(filled) => {
                self.filled = filled;
                true
            }
            None => false,
        }
    }

    fn phase(&mut self, event: Event, what: &str, context: &mut dyn Context) -> Result<()> {
        let allowed = Allowed { refusal: true, ..Allowed::default() };
        let subject = format!("wasm body of {}", self.name);
        if !self.event(event, Record::default(), &[], context) {
            return Err(Fault::new(subject, format!("its input area has no room for {what}"), "enlarge it"));
        }
        self.enter(what, allowed, None, context).map(drop).map_err(|refusal| self.refused(what, &refusal))
    }

    fn refused(&self, what: &str, refusal: &Refusal) -> Fault {
        let subject = format!("wasm body of {}", self.name);
        match &self.failure {
            Some(failure) => Fault::new(failure.subject(), failure.cause(), failure.next()),
            None => Fault::new(subject, format!("{what} refused: {}", refusal.0), "see what the offcode asks for"),
        }
    }

    /// A fault where the parts of a state have taken too long since `since`, a CPU time.
    fn in_time(&self, what: &str, since: Duration) -> Result<()> {
        let limit = Duration::from_nanos(self.limits.time.0) * STATE_ENTRIES;
        if cpu_time().saturating_sub(since) <= limit {
            return Ok(());
        }
        let cause = format!("{what} took more than {limit:?} of CPU time");
        Err(Fault::new(format!("wasm body of {}", self.name), cause, "keep less, or give it larger areas"))
    }

    /// A fault where the guest is of a version that has no state.
    fn has_state(&self) -> Result<()> {
        if self.instance.version >= abi::WITH_STATE {
            return Ok(());
        }
        let cause = format!("it is written for version {} of the interface, which has no state", self.instance.version);
        Err(Fault::new(format!("wasm body of {}", self.name), cause, "build it again"))
    }

    fn put_attribute(&mut self, name: &str, value: &str, detail: u16, context: &mut dyn Context) -> Result<()> {
        let length = (name.len() as u32).to_le_bytes();
        let parts = [&length[..], name.as_bytes(), value.as_bytes()];
        if self.event(Event::Attribute, Record { detail, ..Record::default() }, &parts, context) {
            return Ok(());
        }
        let cause = format!("attribute {name} is too long for its input area");
        Err(Fault::new(format!("wasm body of {}", self.name), cause, "pass long values by a call or a channel"))
    }
}

impl Offcode for Sandboxed {
    fn interfaces(&self) -> &[Guid] {
        &self.interfaces
    }

    fn initialize(&mut self, context: &mut dyn Context) -> Result<()> {
        for (name, value) in std::mem::take(&mut self.attributes).iter() {
            self.put_attribute(name, value, 0, context)?;
        }
        self.phase(Event::Initialize, "initialize", context)?;
        self.initialized = true;
        Ok(())
    }

    fn start(&mut self, context: &mut dyn Context) -> Result<()> {
        self.phase(Event::Start, "start", context)
    }

    #[inline]
    fn call(&mut self, call: Incoming<'_>, reply: &mut Vec<u8>, context: &mut dyn Context) -> Result<(), Refusal> {
        let record = Record { detail: call.method, ..Record::default() };
        let parts = [&call.interface.to_le_bytes()[..], call.arguments];
        if !self.event(Event::Call, record, &parts, context) {
            let (length, size) = (call.arguments.len(), self.instance.input().len());
            return Err(Refusal(format!(
                "arguments of {length} bytes do not fit the body's input area of {size} bytes"
            )));
        }
        let allowed = Allowed { answer: true, ..Allowed::default() };
        self.enter("a call", allowed, Some(reply), context).map(|_| ())
    }

    fn answered(&mut self, channel: ChannelId, id: u32, result: Result<&[u8], &Refusal>, context: &mut dyn Context) {
        let (detail, payload) = match result {
            Ok(result) => (1, result),
            Err(refusal) => (0, refusal.0.as_bytes()),
        };
        let record = Record { detail, channel: channel.0, id, ..Record::default() };
        if self.event(Event::Answered, record, &[payload], context) {
            let _ = self.enter("an answer", Allowed::default(), None, context);
        } else {
            let too_long = b"the answer does not fit the body's input area";
            if self.event(Event::Answered, Record { detail: 0, ..record }, &[too_long], context) {
                let _ = self.enter("an answer", Allowed::default(), None, context);
            }
        }
    }

    fn attached(&mut self, channel: ChannelId, name: &str, context: &mut dyn Context) {
        self.flush(context);
        self.unresolved.retain(|unresolved| unresolved != name);
        if self.name_channel(channel, name, 1, context) {
            let _ = self.enter("an attached channel", Allowed::default(), None, context);
        } else {
            context.log(&format!("the name of {channel:?} is too long for the guest's input area: not passed on"));
        }
    }

    #[inline]
    fn message(&mut self, channel: ChannelId, message: &[u8], context: &mut dyn Context) {
        if self.failure.is_some() {
            self.counted.lost += 1;
            return;
        }
        let record = Record { channel: channel.0, ..Record::default() };
        if !self.event(Event::Message, record, &[message], context) {
            self.counted.lost += 1;
            let length = message.len();
            context.log(&format!("a message of {length} bytes does not fit the body's input area: lost"));
            return;
        }
        self.messages += 1;
        if self.messages == BATCH {
            self.flush(context);
        }
    }

    #[inline]
    fn turn(&mut self, context: &mut dyn Context) -> Activity {
        let allowed = Allowed { worked: true, ..Allowed::default() };
        if self.failure.is_some() || !self.event(Event::Turn, Record::default(), &[], context) {
            return Activity::Idle;
        }
        match self.enter("a turn", allowed, None, context) {
            Ok(true) => Activity::Worked,
            _ => Activity::Idle,
        }
    }

    fn timer(&mut self, timer: u8, context: &mut dyn Context) {
        self.flush(context);
        if self.event(Event::Timer, Record { id: timer.into(), ..Record::default() }, &[], context) {
            let _ = self.enter("a timer", Allowed::default(), None, context);
        }
    }

    fn attribute_set(&mut self, name: &str, value: &str, context: &mut dyn Context) -> Result<()> {
        if !self.initialized {
            // An early attribute goes to the guest with the others, before `initialize`.
            return self.attributes.set(name, value);
        }
        self.flush(context);
        self.put_attribute(name, value, 1, context)?;
        let allowed = Allowed { refusal: true, ..Allowed::default() };
        let entered = self.enter("an attribute", allowed, None, context);
        entered.map(drop).map_err(|refusal| self.refused(&format!("attribute {name}"), &refusal))
    }

    fn save(&mut self, state: &mut State, context: &mut dyn Context) -> Result<()> {
        self.has_state()?;
        self.flush(context);
        let (mut bytes, since) = (Vec::new(), cpu_time());
        let allowed = Allowed { state: true, ..Allowed::default() };
        loop {
            let before = bytes.len();
            let record = Record { id: before as u32, ..Record::default() };
            if !self.event(Event::Save, record, &[], context) {
                return Err(Fault::new(format!("wasm body of {}", self.name), "its input area is full", "enlarge it"));
            }
            let entered = self.enter("save", allowed, Some(&mut bytes), context);
            entered.map_err(|refusal| self.refused("save", &refusal))?;
            self.in_time("save", since)?;
            // A state that is too long is not read to its end.
            if bytes.len() == before || bytes.len() > OFFCODE_STATE.each.bytes().0 as usize {
                *state = State::decode(&bytes)?;
                return Ok(());
            }
        }
    }

    fn restore(&mut self, state: &State, context: &mut dyn Context) -> Result<()> {
        self.has_state()?;
        let bytes = state.encode()?;
        self.tell(context);
        let room = self.instance.input().len().saturating_sub(self.filled + Record::LENGTH) & !7;
        let allowed = Allowed { refusal: true, ..Allowed::default() };
        let (mut parts, since) = (bytes.chunks(room.max(1)).peekable(), cpu_time());
        // No channel works until the state is restored.
        self.initialized = false;
        while let Some(part) = parts.next() {
            let detail = u16::from(parts.peek().is_none());
            if !self.event(Event::Restore, Record { detail, ..Record::default() }, &[part], context) {
                return Err(Fault::new(format!("wasm body of {}", self.name), "its input area is full", "enlarge it"));
            }
            let entered = self.enter("restore", allowed, None, context);
            entered.map_err(|refusal| self.refused("restore", &refusal))?;
            self.in_time("restore", since)?;
        }
        self.initialized = true;
        Ok(())
    }

    fn had(&mut self, channel: ChannelId, name: &str, context: &mut dyn Context) {
        self.unresolved.retain(|unresolved| unresolved != name);
        if !self.name_channel(channel, name, 0, context) {
            context.log(&format!("the name of {channel:?} is too long for the guest's input area: not passed on"));
        }
    }

    fn unsent(&mut self) -> Vec<(ChannelId, Vec<u8>)> {
        self.outbox.take()
    }

    fn own_maps(&self) -> Vec<(&str, Entries<'_>)> {
        let memory = self.instance.memory();
        let entries = |map: &'_ Opened| {
            let cells = memory.get(map.at..).and_then(|rest| rest.get(..map.shape.cells() as usize));
            Entries::within(map.shape, cells.unwrap_or_default())
        };
        self.services.opened.iter().map(|map| (map.name.as_str(), entries(map))).collect()
    }

    fn stop(&mut self, context: &mut dyn Context) {
        if self.failure.is_some() {
            return;
        }
        if self.event(Event::Stop, Record::default(), &[], context) {
            let _ = self.enter("stop", Allowed::default(), None, context);
        }
        self.outbox.retry(context);
        if self.outbox.kept() != 0 {
            context.log(&format!("{} messages found no room to the end and are lost", self.outbox.kept()));
        }
    }

    fn failure(&self) -> Option<&Fault> {
        self.failure.as_ref()
    }
}
