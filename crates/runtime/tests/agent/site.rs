//! Sites as these tests need them: one that runs offcodes in the agent's thread, and one that hands the far ends of
//! channels to the test.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;

use machine::{Fault, Nanoseconds, Result, Site};
use offcode::registry::Described;
use offcode::{Activity, Attributes, Channel, ChannelId, Context, Guid, Incoming, Offcode, Refusal, Specification};
use offcode::{Manifest, Written};
use runtime::code::Code;
use runtime::site::{Deployment, Evidence, SiteDriver, Slot};

/// Sends back what comes, on the channel that it came by, or on one named 'out' where it has that. Refuses to start where its attribute `refuse` is set.
#[derive(Default)]
pub struct Echo {
    messages: u64,
}

/// Instances of [`Echo`] in this process that have started and not stopped.
pub static STARTED: AtomicUsize = AtomicUsize::new(0);

impl Described for Echo {
    const GUID: Guid = Guid::from_bytes(*b"plimsoll-echo-01");
    const INTERFACES: &'static [Guid] = &[];
    const SIGNATURE: u64 = offcode::signature(&[]);

    fn manifest() -> Manifest {
        let package = offcode::manifest::Package {
            guid: Self::GUID,
            name: "test.echo".into(),
            version: "1".into(),
            description: String::new(),
            interfaces: Vec::new(),
            bodies: Vec::new(),
            attributes: Vec::new(),
            state: Default::default(),
        };
        Manifest { package, hardware: Vec::new(), software: Default::default() }
    }
}

impl Offcode for Echo {
    fn interfaces(&self) -> &[Guid] {
        &[]
    }

    fn start(&mut self, context: &mut dyn Context) -> Result<()> {
        if context.attribute("refuse").is_some() {
            return Err(Fault::new("echo", "it was told to refuse", "tell it something else"));
        }
        STARTED.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn call(&mut self, _: Incoming<'_>, _: &mut Vec<u8>, _: &mut dyn Context) -> Result<(), Refusal> {
        Ok(())
    }

    fn message(&mut self, channel: ChannelId, message: &[u8], context: &mut dyn Context) {
        self.messages += 1;
        let to = context.channel("out").unwrap_or(channel);
        let _ = context.write(to, message);
    }

    fn stop(&mut self, _: &mut dyn Context) {
        STARTED.fetch_sub(1, Ordering::SeqCst);
    }
}

struct Resident {
    offcode: Box<dyn Offcode>,
    attributes: Attributes,
    ends: BTreeMap<u32, Box<dyn Channel>>,
    code: usize,
    started: bool,
    messages: u64,
}

struct Around<'a> {
    attributes: &'a Attributes,
    ends: &'a mut BTreeMap<u32, Box<dyn Channel>>,
}

impl Context for Around<'_> {
    fn now(&self) -> Nanoseconds {
        Nanoseconds(0)
    }

    fn channel(&self, _: &str) -> Option<ChannelId> {
        None
    }

    fn write(&mut self, channel: ChannelId, message: &[u8]) -> Written {
        self.ends.get_mut(&channel.0).map_or(Written::Gone, |end| end.write(message).unwrap_or(Written::Gone))
    }

    fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.get(name)
    }

    fn log(&mut self, _: &str) {}
}

/// Runs offcodes in the thread that gives it turns. A wasm body runs as [`Echo`], whatever its bytes are.
#[derive(Default)]
pub struct PlainSite {
    residents: BTreeMap<u32, Resident>,
    next: u32,
}

impl PlainSite {
    fn find(&mut self, slot: Slot) -> Result<&mut Resident> {
        self.residents.get_mut(&slot.0).ok_or_else(|| Fault::new("slot", "nothing is there", "deploy"))
    }
}

impl SiteDriver for PlainSite {
    fn site(&self) -> &Site {
        &Site::App
    }

    fn deploy(&mut self, deployment: Deployment) -> Result<Slot> {
        let (offcode, code): (Box<dyn Offcode>, usize) = match &deployment.code {
            Code::Native(constructor) => (constructor(), 0),
            Code::Wasm(bytes) => (Box::new(Echo::default()), bytes.len()),
            Code::Library(_) | Code::Compiled(_) | Code::Bpf(_) => {
                return Err(Fault::new("body", "not here", "elsewhere"));
            }
        };
        let attributes = deployment.attributes;
        let resident = Resident { offcode, attributes, ends: BTreeMap::new(), code, started: false, messages: 0 };
        self.residents.insert(self.next, resident);
        self.next += 1;
        Ok(Slot(self.next - 1))
    }

    fn initialize(&mut self, slot: Slot) -> Result<()> {
        let Resident { offcode, attributes, ends, .. } = self.find(slot)?;
        offcode.initialize(&mut Around { attributes, ends })
    }

    fn start(&mut self, slot: Slot) -> Result<()> {
        let Resident { offcode, attributes, ends, started, .. } = self.find(slot)?;
        offcode.start(&mut Around { attributes, ends })?;
        *started = true;
        Ok(())
    }

    fn connect(&mut self, _: Slot, _: &str, _: Specification) -> Result<Box<dyn Channel>> {
        Err(Fault::new("connect", "an agent makes its own ends", "adopt them"))
    }

    fn adopt(&mut self, slot: Slot, name: &str, end: Box<dyn Channel>) -> Result<ChannelId> {
        let resident = self.find(slot)?;
        let id = if name.is_empty() { 0 } else { resident.ends.keys().last().map_or(1, |last| last + 1) };
        resident.ends.insert(id, end);
        Ok(ChannelId(id))
    }

    fn set_attribute(&mut self, slot: Slot, name: &str, value: &str) -> Result<()> {
        self.find(slot)?.attributes.set(name, value)
    }

    fn remove(&mut self, slot: Slot) -> Result<()> {
        if let Some(mut resident) = self.residents.remove(&slot.0) {
            let Resident { offcode, attributes, ends, started, .. } = &mut resident;
            if *started {
                offcode.stop(&mut Around { attributes, ends });
            }
        }
        Ok(())
    }

    fn evidence(&mut self, slot: Slot) -> Result<Evidence> {
        let resident = self.find(slot)?;
        let (messages, code) = (resident.messages, resident.code as u64);
        let counter = |name: &str, value| runtime::site::evidence::Counter { name: name.into(), value };
        Ok(Evidence {
            whereabouts: "the agent's thread".into(),
            counters: vec![counter("messages", messages), counter("bytes of code", code)],
            ..Evidence::default()
        })
    }

    fn turn(&mut self) -> Result<Activity> {
        let mut activity = Activity::Idle;
        for resident in self.residents.values_mut().filter(|resident| resident.started) {
            let Resident { offcode, attributes, ends, messages, .. } = resident;
            let ids: Vec<u32> = ends.keys().copied().collect();
            for id in ids {
                let mut message = None;
                if let Some(end) = ends.get_mut(&id) {
                    end.read_with(&mut |bytes| message = Some(bytes.to_vec()))?;
                }
                if let Some(message) = message {
                    *messages += 1;
                    activity = Activity::Worked;
                    offcode.message(ChannelId(id), &message, &mut Around { attributes, ends });
                }
            }
        }
        Ok(activity)
    }
}

/// Hosts nothing: the far ends of channels go to the test.
pub struct Handing(pub Sender<Box<dyn Channel>>);

impl SiteDriver for Handing {
    fn site(&self) -> &Site {
        &Site::App
    }

    fn deploy(&mut self, _: Deployment) -> Result<Slot> {
        Ok(Slot(0))
    }

    fn initialize(&mut self, _: Slot) -> Result<()> {
        Ok(())
    }

    fn start(&mut self, _: Slot) -> Result<()> {
        Ok(())
    }

    fn connect(&mut self, _: Slot, _: &str, _: Specification) -> Result<Box<dyn Channel>> {
        Err(Fault::new("connect", "an agent makes its own ends", "adopt them"))
    }

    fn adopt(&mut self, _: Slot, _: &str, end: Box<dyn Channel>) -> Result<ChannelId> {
        self.0.send(end).map_err(|_| Fault::new("test", "it has ended", "run it again"))?;
        Ok(ChannelId(1))
    }

    fn set_attribute(&mut self, _: Slot, _: &str, _: &str) -> Result<()> {
        Ok(())
    }

    fn remove(&mut self, _: Slot) -> Result<()> {
        Ok(())
    }

    fn evidence(&mut self, _: Slot) -> Result<Evidence> {
        Ok(Evidence::default())
    }
}
