//! The site `xdp:IFACE`: an offcode's bpf body at the driver hook of an interface, in the mode that was asked for.
//!
//! The convention for objects, with macros for C in `crates/bpf/src/programs/offcode.h`; every part but the first is optional:
//!
//! | in the object | is |
//! |---|---|
//! | the `SEC("xdp")` program that the manifest names | the body. A *hook* is attached by `start`, and runs for each frame that arrives. A *producer* is run by `start` on live frames, in a thread of its own, until it sets `finished` in the map `FRAME`; what it passes on by `XDP_TX` leaves through the interface |
//! | `SEC("syscall")` programs `initialize`, `start`, `stop` | the phases; a result other than 0 refuses |
//! | `SEC("syscall")` program `call` | carries out a call inside the kernel: context `struct offcode_call`, arguments in, result out |
//! | `SEC("syscall")` program `message` | dispatch handler: run after each message that is written to `IN` |
//! | ring buffer `OUT` | what the offcode writes to its specialized channel; a multicast channel has none |
//! | shared array `IN` | what it reads from it. Without a `message` program the body looks into it as it runs |
//! | shared array `FRAME` | the frame of a producer, `struct offcode_frame` |
//! | variables (`u64`) | attributes of the same name: also constants, which can only be set before the code is taken in |
//!
//! One interface has one hook, so the site holds one offcode; and one offcode has one `IN` and one `OUT`, so it has one
//! specialized channel. Nothing is pinned: when the process ends, however it ends, the kernel removes programs and maps.

mod channel;
mod producer;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use linux::xdp::{self, Attachment, Interface, Object, ProgramKind, RunStatistics, SharedWords, word};
use machine::{Fault, Result, Site, XdpMode};
use offcode::manifest::{BodyKind, ProgramRole};
use offcode::{Channel, ChannelId, Specification};

use super::evidence::{Counter, Evidence, Timed};
use super::{Code, Deployment, SiteDriver, Slot};
use crate::layout::Ground;
use channel::{Calls, Messages};
use producer::Producer;

/// An attribute of an offcode here: `off` leaves the kernel's run counter, which costs each run about 40 ns, off.
pub const RUN_COUNTER: &str = "RUN_COUNTER";

/// The driver hook of one interface.
pub struct XdpSite {
    site: Site,
    mode: XdpMode,
    interface: Arc<Interface>,
    body: Option<Body>,
    deployed: u32,
}

/// What its channels share with the offcode.
struct Inner {
    name: String,
    object: Object,
    /// [`offcode::Guid::short`] of each of its interfaces.
    interfaces: Vec<u64>,
    /// Calls and messages from user space.
    uses: AtomicU64,
    /// Set when the offcode is removed.
    gone: std::sync::atomic::AtomicBool,
}

struct Body {
    slot: Slot,
    inner: Arc<Inner>,
    program: String,
    role: ProgramRole,
    connected: bool,
    running: Option<Running>,
    phase: Phase,
    /// Held while the kernel is to count runs.
    statistics: Option<RunStatistics>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Deployed,
    Initialized,
    Started,
}

enum Running {
    Hook(Attachment),
    Producer(Producer),
}

impl XdpSite {
    /// The hook of an interface of the calling thread's network namespace. A fault where a program is attached already.
    pub fn open(interface: &str, mode: XdpMode) -> Result<XdpSite> {
        let held = Interface::named(interface)?;
        xdp::check_vacant(&held)?;
        Ok(XdpSite { site: Site::Xdp(interface.into()), mode, interface: Arc::new(held), body: None, deployed: 0 })
    }

    pub fn mode(&self) -> XdpMode {
        self.mode
    }

    /// A shared array of the offcode in `slot`, as memory: for an application that works with it in place.
    pub fn shared(&self, slot: Slot, map: &str) -> Result<SharedWords> {
        self.body(slot)?.inner.object.shared(map)
    }

    fn body(&self, slot: Slot) -> Result<&Body> {
        self.body.as_ref().filter(|body| body.slot == slot).ok_or_else(|| self.no_such(slot))
    }

    fn body_mut(&mut self, slot: Slot) -> Result<&mut Body> {
        match &self.body {
            Some(body) if body.slot == slot => Ok(self.body.as_mut().expect("looked at above")),
            _ => Err(self.no_such(slot)),
        }
    }

    fn no_such(&self, slot: Slot) -> Fault {
        Fault::new(self.site.to_string(), format!("there is no offcode in slot {}", slot.0), "deploy it first")
    }
}

impl Body {
    fn expect(&self, phase: Phase) -> Result<()> {
        if self.phase == phase {
            return Ok(());
        }
        let cause = format!("it is {:?}, which the step that was asked for does not follow", self.phase).to_lowercase();
        Err(Fault::new(format!("offcode {}", self.inner.name), cause, "deploy, initialize, start; each once"))
    }

    /// Runs a phase's program, if the object has it.
    fn run(&self, phase: &str) -> Result<()> {
        if !self.inner.object.has_program(phase) {
            return Ok(());
        }
        match self.inner.object.program(phase)?.call(&mut [])? {
            0 => Ok(()),
            result => Err(Fault::new(
                format!("offcode {}", self.inner.name),
                format!("its program {phase} returned {result}"),
                "see in its source what this says; 0 is success",
            )),
        }
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        self.running = None;
        if self.phase == Phase::Started {
            let _ = self.run("stop");
        }
        self.inner.gone.store(true, Ordering::Release);
    }
}

/// The value of an attribute as programs know it.
fn number(name: &str, value: &str) -> Result<u64> {
    value.trim().parse().map_err(|_| {
        Fault::new(
            format!("attribute {name}"),
            format!("'{value}' is not a number, and the program has it in a variable"),
            "set a whole number from 0 to 2^64 - 1",
        )
    })
}

impl SiteDriver for XdpSite {
    fn site(&self) -> &Site {
        &self.site
    }

    fn ground(&self) -> Ground {
        Ground { mode: Some(self.mode), slots: 1, ..Ground::of(self.site.clone()) }
    }

    fn deploy(&mut self, deployment: Deployment) -> Result<Slot> {
        let subject = format!("offcode {} at {}", deployment.name, self.site);
        let refuse = |cause: String, next: &str| Err(Fault::new(&subject, cause, next));
        let Code::Bpf(code) = &deployment.code else {
            return refuse("a driver hook runs bpf bodies only".into(), "give it a bpf body, or place it elsewhere");
        };
        if let Some(body) = &self.body {
            let cause = format!("offcode {} is there already, and a driver hook has room for one", body.inner.name);
            return refuse(cause, "place one of them elsewhere, or at another interface");
        }
        let bodies = &deployment.manifest.package.bodies;
        let Some(entry) = bodies.iter().find(|body| body.kind == BodyKind::Bpf).and_then(|body| body.program.as_ref())
        else {
            return refuse("its manifest names no program of its bpf body".into(), "name it in the ODF");
        };
        xdp::check_vacant(&self.interface)?;
        let mut loader = xdp::loader_for(&deployment.name, code, &self.interface, self.mode);
        let defaults =
            deployment.manifest.package.attributes.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in defaults.chain(deployment.attributes.iter()) {
            // What is no number is for the application, unless there is a variable, which `set_attribute` looks at.
            if let Ok(value) = value.trim().parse() {
                loader = loader.variable_if_any(name, value);
            }
        }
        let object = loader.load().map_err(|fault| fault.within(&subject))?;
        let body_program = object.program(&entry.name).map_err(|fault| fault.within(&subject))?;
        if body_program.kind() != ProgramKind::Xdp {
            return refuse(format!("program {} is no SEC(\"xdp\")", entry.name), "name the body's program in the ODF");
        }
        if entry.role == ProgramRole::Producer && !object.has_map("FRAME") {
            return refuse("it is a producer without a map FRAME".into(), "add OFFCODE_FRAME() to its source");
        }
        let statistics = match deployment.attributes.get(RUN_COUNTER) {
            Some("off") => None,
            _ => Some(RunStatistics::enable()?),
        };
        self.deployed += 1;
        let slot = Slot(self.deployed);
        self.body = Some(Body {
            slot,
            inner: Arc::new(Inner {
                name: deployment.name,
                object,
                interfaces: deployment.manifest.package.interfaces.iter().map(|one| one.guid.short()).collect(),
                uses: AtomicU64::new(0),
                gone: std::sync::atomic::AtomicBool::new(false),
            }),
            program: entry.name.clone(),
            role: entry.role,
            connected: false,
            running: None,
            phase: Phase::Deployed,
            statistics,
        });
        Ok(slot)
    }

    fn initialize(&mut self, slot: Slot) -> Result<()> {
        let body = self.body_mut(slot)?;
        body.expect(Phase::Deployed)?;
        body.run("initialize")?;
        body.phase = Phase::Initialized;
        Ok(())
    }

    fn start(&mut self, slot: Slot) -> Result<()> {
        let (interface, mode) = (self.interface.clone(), self.mode);
        let body = self.body_mut(slot)?;
        body.expect(Phase::Initialized)?;
        body.run("start")?;
        body.phase = Phase::Started;
        body.running = Some(match body.role {
            ProgramRole::Hook => {
                Running::Hook(Attachment::new(body.inner.object.program(&body.program)?, &interface, mode)?)
            }
            ProgramRole::Producer => Running::Producer(Producer::start(body.inner.clone(), &body.program, interface)?),
        });
        Ok(())
    }

    fn connect(&mut self, slot: Slot, name: &str, specification: Specification) -> Result<Box<dyn Channel>> {
        let body = self.body_mut(slot)?;
        if name.is_empty() {
            return Ok(Box::new(Calls::new(body.inner.clone(), specification)));
        }
        if body.connected {
            return Err(Fault::new(
                format!("channel {name} to offcode {}", body.inner.name),
                "it has one specialized channel already, and its object one IN and one OUT",
                "let the two share a channel, or place it at a core",
            ));
        }
        let end = Messages::new(body.inner.clone(), name, specification)?;
        body.connected = true;
        Ok(Box::new(end))
    }

    fn adopt(&mut self, slot: Slot, name: &str, _end: Box<dyn Channel>) -> Result<ChannelId> {
        let body = self.body(slot)?;
        Err(Fault::new(
            format!("channel {name} to offcode {}", body.inner.name),
            "programs in the kernel cannot use memory of a process",
            "let this site make the channel",
        ))
    }

    fn adopts(&self) -> bool {
        false
    }

    fn set_attribute(&mut self, slot: Slot, name: &str, value: &str) -> Result<()> {
        let body = self.body(slot)?;
        match body.inner.object.variable_size(name) {
            Some(_) => body.inner.object.set_variable(name, number(name, value)?),
            None => Ok(()),
        }
    }

    fn remove(&mut self, slot: Slot) -> Result<()> {
        if self.body.as_ref().is_some_and(|body| body.slot == slot) {
            self.body = None;
        }
        Ok(())
    }

    fn evidence(&mut self, slot: Slot) -> Result<Evidence> {
        let interface = self.interface.clone();
        let (mode, site) = (self.mode, self.site.clone());
        let body = self.body(slot)?;
        let program = body.inner.object.program(&body.program)?;
        let about = format!("program {} ({})", program.id(), program.name());
        let whereabouts = match &body.running {
            Some(Running::Hook(attachment)) => {
                let found = attachment.prove(&interface)?;
                format!("{about}, {} mode, on {}", word(found.mode), interface.name())
            }
            Some(Running::Producer(producer)) => {
                format!("{about}, live frames out of {}, {}", interface.name(), producer.whereabouts()?)
            }
            None => format!("{about}, verified for {site} in {} mode, not started", word(mode)),
        };
        let count = |name: &str, value: u64| Counter { name: name.into(), value };
        let mut counters = Vec::new();
        let used = body.inner.uses.load(Ordering::Relaxed);
        let (mut uses, mut timed) = (used, None);
        if body.statistics.is_some() {
            let runs = program.runs()?;
            counters.push(count("runs of the program", runs.count));
            counters.push(count("ns in the program", runs.time.0));
            uses += runs.count;
            timed = (runs.count > 0).then_some(Timed { uses: runs.count, time: runs.time });
        }
        counters.push(count("calls and messages", used));
        Ok(Evidence { whereabouts, counters, uses, timed })
    }
}
