//! The sites `xdp:IFACE` and `tc:IFACE`: an offcode's bpf body at the driver hook of an interface, in the mode that was asked
//! for, or at its tc hook for packets that were received or are to be sent.
//!
//! The convention for objects, with macros for C in `crates/bpf/src/programs/offcode.h`; every part but the first is optional:
//!
//! | in the object | is |
//! |---|---|
//! | the `SEC("xdp")` program that the manifest names; for `tc` its `SEC("classifier")` | the body. A *hook* is attached by `start`, and runs for each frame that arrives. A *producer* is run by `start` on live frames, in a thread of its own, until it sets `finished` in the map `FRAME`; what it passes on by `XDP_TX` leaves through the interface |
//! | `SEC("syscall")` programs `initialize`, `start`, `stop` | the phases; a result other than 0 refuses |
//! | `SEC("syscall")` program `call` | carries out a call inside the kernel: context `struct offcode_call`, arguments in, result out |
//! | ring buffer `OUT` | what the offcode writes to a specialized channel |
//! | shared array `IN` | what it reads from it. Without a `message` program the body looks into it as it runs |
//! | `OUT_name`, `IN_name` | the same for the channel of this name, or whose last part it is (`peer/name`); all others share `OUT` and `IN` |
//! | `SEC("syscall")` program `message`, `message_name` | dispatch handler: run after each message that is written to `IN`, to `IN_name` |
//! | map of sockets `FRAMES_name` | the channel of this name is one of frames, unreliable: what the body redirects there is read at its other end |
//! | shared array `FRAME` | the frame of a producer, `struct offcode_frame` |
//! | variables (`u64`) | attributes of the same name: also constants, which can only be set before the code is taken in |
//! | other variables, shared arrays but `IN`s and `FRAME`, and hash maps | its state, where the manifest says `state = saved`: records of the same names, an array's with its index as key, those of a map with their keys. The attribute `STATE_VERSION` is its version. Frames pass by while it moves |
//!
//! The hooks of an interface run in the order of their attribute [`PRIORITY`], then as they came. Where a verdict is among
//! those of [`CHAINS`] the next one sees the frame too; the last one's is carried out. They are one program
//! ([`linux::xdp::Chain`]), which is replaced at once as one comes, goes or changes. A NIC (mode `hardware`) takes one.
//!
//! At a driver hook that program is alone. At a tc hook it comes before those of others, which see what it passes. There are
//! no producers and no channels of frames at tc.
//!
//! Nothing is pinned: when the process ends, however it ends, the kernel removes programs and maps.

mod channel;
mod frames;
mod moving;
mod producer;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use linux::doorbell::{Doorbell, Sleep};
use linux::xdp::{self, Chain, Counts, Dump, Interface, Object, Point, RunStatistics, SharedWords, Stage};
use machine::channel::Bell;
use machine::{BodyKind, Fault, Result, Site};
use offcode::manifest::ProgramRole;
use offcode::{Attributes, Channel, ChannelId, Manifest, Specification, State};

use super::evidence::{Counter, Evidence, Timed};
use super::{Code, Deployment, EndAt, Memory, SHOWN_BYTES, SHOWN_ENTRIES, SiteDriver, Slot};
use crate::ground::Ground;
use crate::possible::{self, Hook};
use channel::{Calls, Messages};
use frames::Frames;
pub use producer::{CORE, KEPT_BY, SHIELD};
use producer::{Producer, Protected};

/// An attribute of a producer: `off` leaves the kernel's run counter, which costs each run about 40 ns, off. Runs of hooks
/// are counted by their dispatcher.
pub const RUN_COUNTER: &str = "RUN_COUNTER";
/// An attribute of a hook: those of lower numbers see frames first; 50 where it is not set.
pub const PRIORITY: &str = "HOOK_PRIORITY";
/// An attribute of a hook: verdicts after which the next one sees the frame, such as `PASS,DROP`; where it is not set `PASS`,
/// and at tc also `NEXT`.
pub const CHAINS: &str = "HOOK_CHAINS";
const USUAL_PRIORITY: u32 = 50;

/// A hook of one interface.
pub struct XdpSite {
    site: Site,
    point: Point,
    interface: Arc<Interface>,
    /// Before the bodies, which stop when they run no more.
    chain: Chain,
    bodies: Vec<Body>,
    deployed: u32,
}

/// State shared by its channels and the offcode.
struct Inner {
    name: String,
    object: Object,
    hook: Hook,
    /// [`offcode::Guid::short`] of each of its interfaces.
    interfaces: Vec<u64>,
    /// Calls and messages that came from user space.
    uses: AtomicU64,
    /// Set when the offcode is removed.
    gone: std::sync::atomic::AtomicBool,
    /// Bell of a producer that has finished and sleeps: a program may have given it more to send.
    stirred: Option<Arc<Doorbell>>,
}

impl Inner {
    fn stir(&self) {
        self.stirred.iter().for_each(|bell| bell.ring());
    }
}

struct Body {
    slot: Slot,
    inner: Arc<Inner>,
    program: String,
    role: ProgramRole,
    /// Its channels; the first is out of band.
    channels: Vec<Wired>,
    manifest: Arc<Manifest>,
    attributes: Attributes,
    /// Keeps the names of its arrays, for other offcodes.
    _memory: Memory,
    /// The core that runs a producer.
    core: Protected,
    running: Option<Running>,
    phase: Phase,
    /// Its counters among those of the hook, and what they had when it came.
    place: usize,
    before: Counts,
    priority: u32,
    chains: u32,
    /// Held while the kernel is to count runs.
    statistics: Option<RunStatistics>,
}

/// A channel with its pair of maps.
struct Wired {
    name: String,
    pair: String,
    specification: Specification,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Deployed,
    Initialized,
    Started,
    /// Suspended for a move; see [`moving`].
    Suspended,
}

enum Running {
    Hook,
    Producer(Producer),
}

impl XdpSite {
    /// A hook of an interface of the calling thread's network namespace. A fault where a program has the driver hook already.
    pub fn open(interface: &str, point: impl Into<Point>) -> Result<XdpSite> {
        let (interface, point) = (Arc::new(Interface::named(interface)?), point.into());
        let chain = Chain::new(interface.clone(), point);
        chain.check_room()?;
        let name = interface.name().to_owned();
        Ok(XdpSite {
            site: match point {
                Point::Xdp(_) => Site::Xdp(name),
                Point::Tc(direction) => Site::Tc(name, direction),
            },
            point,
            interface,
            chain,
            bodies: Vec::new(),
            deployed: 0,
        })
    }

    /// The same under another name, for interfaces of one name in several network namespaces.
    pub fn named(self, name: &str) -> XdpSite {
        let site = match self.site {
            Site::Tc(_, direction) => Site::Tc(name.into(), direction),
            _ => Site::Xdp(name.into()),
        };
        XdpSite { site, ..self }
    }

    fn place(&self, slot: Slot) -> Result<usize> {
        self.bodies.iter().position(|body| body.slot == slot).ok_or_else(|| self.no_such(slot))
    }

    fn body(&self, slot: Slot) -> Result<&Body> {
        self.place(slot).map(|n| &self.bodies[n])
    }

    fn body_mut(&mut self, slot: Slot) -> Result<&mut Body> {
        self.place(slot).map(|n| &mut self.bodies[n])
    }

    /// The running hooks, in their order.
    fn hooks(&self) -> Vec<&Body> {
        let mut hooks: Vec<&Body> =
            self.bodies.iter().filter(|body| matches!(body.running, Some(Running::Hook))).collect();
        hooks.sort_by_key(|body| (body.priority, body.slot));
        hooks
    }

    /// Replaces the chain that the kernel runs by that of the running hooks.
    fn chain_up(&mut self) -> Result<()> {
        let hooks = self.hooks();
        let stage = |body: &&Body| -> (Arc<Inner>, String, usize, u32) {
            (body.inner.clone(), body.program.clone(), body.place, body.chains)
        };
        let hooks: Vec<_> = hooks.iter().map(stage).collect();
        let stages: Vec<Stage> = hooks
            .iter()
            .map(|(inner, program, place, chains)| Stage {
                object: &inner.object,
                program,
                place: *place,
                chains: *chains,
            })
            .collect();
        self.chain.set(&stages)
    }

    /// Begins the runs of a body: of a producer in its thread, of a hook in the chain.
    fn begin(&mut self, slot: Slot) -> Result<()> {
        let interface = self.interface.clone();
        let body = self.body_mut(slot)?;
        match body.role {
            ProgramRole::Producer => {
                let producer = Producer::start(body.inner.clone(), &body.program, interface, body.core)?;
                body.running = Some(Running::Producer(producer));
                Ok(())
            }
            ProgramRole::Hook => {
                body.running = Some(Running::Hook);
                self.chain_up().inspect_err(|_| {
                    if let Ok(body) = self.body_mut(slot) {
                        body.running = None;
                    }
                })
            }
        }
    }

    /// Ends the runs of a body.
    fn pause(&mut self, slot: Slot) -> Result<()> {
        let place = self.place(slot)?;
        if let Some(Running::Hook) = self.bodies[place].running.take() {
            self.chain_up().inspect_err(|_| self.bodies[place].running = Some(Running::Hook))?;
        }
        Ok(())
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

    /// Runs a phase's program, if the object has one.
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

/// The verdicts of [`CHAINS`], as bits.
fn verdicts(point: Point, value: &str) -> Result<u32> {
    let all = point.verdicts();
    value.split(',').map(str::trim).filter(|word| !word.is_empty()).try_fold(0, |bits, word| {
        let bit = all.iter().position(|known| known.eq_ignore_ascii_case(word));
        bit.map(|bit| bits | 1 << bit).ok_or_else(|| {
            let cause = format!("'{word}' is no verdict of a hook");
            Fault::new(format!("attribute {CHAINS}"), cause, format!("write some of {}", all.join(", ")))
        })
    })
}

fn priority(value: &str) -> Result<u32> {
    let number = number(PRIORITY, value)?;
    number.try_into().map_err(|_| {
        Fault::new(format!("attribute {PRIORITY}"), format!("{number} is too large"), "set at most 4294967295")
    })
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
        let mode = match self.point {
            Point::Xdp(mode) => Some(mode),
            Point::Tc(_) => None,
        };
        Ground { mode, slots: self.point.most(), ..Ground::of(self.site.clone()) }
    }

    fn deploy(&mut self, deployment: Deployment) -> Result<Slot> {
        let subject = format!("offcode {} at {}", deployment.name, self.site);
        let refuse = |cause: String, next: &str| Err(Fault::new(&subject, cause, next));
        let Code::Bpf(code) = &deployment.code else {
            return refuse("a hook runs bpf bodies only".into(), "give it a bpf body, or place it elsewhere");
        };
        let most = self.point.most();
        let free = (0..most).find(|place| self.bodies.iter().all(|body| body.place != *place));
        let Some(place) = free else {
            let names: Vec<&str> = self.bodies.iter().map(|body| body.inner.name.as_str()).collect();
            let cause = format!("a hook ({}) has room for {most}: {}", self.point, names.join(", "));
            return refuse(cause, "place one of them elsewhere, or at another interface");
        };
        let hook = Hook::read(&deployment.manifest, self.site.kind(), code).map_err(|why| why.fault(&subject))?;
        if let Some(limit) = deployment.memory.limit().filter(|limit| hook.memory(1) > *limit) {
            let cause = format!("its maps take {}, and its target's memory is {limit}", hook.memory(1));
            return refuse(cause, "state more for its target, or make them smaller");
        }
        let bodies = &deployment.manifest.package.bodies;
        let entry = bodies.iter().find(|body| body.kind == BodyKind::Bpf).and_then(|body| body.entry(self.site.kind()));
        let Some((program, role)) = entry else { return refuse("it has no program".into(), "name it in the ODF") };
        self.chain.check_room()?;
        let mut loader = xdp::loader_for(&deployment.name, code, &self.interface, self.point);
        let defaults =
            deployment.manifest.package.attributes.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in defaults.chain(deployment.attributes.iter()) {
            // What is no number is for the application, unless there is a variable, which `set_attribute` looks at.
            if let Ok(value) = value.trim().parse() {
                loader = loader.variable_if_any(name, value);
            }
        }
        let object = loader.load().map_err(|fault| fault.within(&subject))?;
        let mut memory = deployment.memory;
        if memory.has_words() {
            for name in object.arrays().filter(|name| !moving::is_no_state(name)) {
                memory.publish(&deployment.name, name, object.shared(name)?);
            }
        }
        let statistics = match (role, deployment.attributes.get(RUN_COUNTER)) {
            (ProgramRole::Hook, _) | (_, Some("off")) => None,
            _ => Some(RunStatistics::enable()?),
        };
        let attribute = |name: &str| {
            let given = deployment.attributes.get(name);
            let stated = || deployment.manifest.package.attributes.iter().find(|(stated, _)| stated == name);
            given.map(str::to_owned).or_else(|| stated().map(|(_, value)| value.clone()))
        };
        let priority = attribute(PRIORITY).map_or(Ok(USUAL_PRIORITY), |value| priority(&value))?;
        let chains = attribute(CHAINS).map_or(Ok(self.point.usual_chains()), |value| verdicts(self.point, &value))?;
        let before = self.chain.counts(place)?.unwrap_or_default();
        let stirred = (role == ProgramRole::Producer).then(Doorbell::new).transpose()?;
        self.deployed += 1;
        let slot = Slot(self.deployed);
        self.bodies.push(Body {
            slot,
            inner: Arc::new(Inner {
                name: deployment.name,
                object,
                hook,
                interfaces: deployment.manifest.package.interfaces.iter().map(|one| one.guid.short()).collect(),
                uses: AtomicU64::new(0),
                gone: std::sync::atomic::AtomicBool::new(false),
                stirred,
            }),
            program: program.to_owned(),
            role,
            core: Protected::of(&deployment.attributes)?,
            channels: Vec::new(),
            manifest: deployment.manifest,
            attributes: deployment.attributes,
            _memory: memory,
            running: None,
            phase: Phase::Deployed,
            place,
            before,
            priority,
            chains,
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
        let body = self.body_mut(slot)?;
        body.expect(Phase::Initialized)?;
        body.run("start")?;
        body.phase = Phase::Started;
        self.begin(slot)
    }

    fn suspend(&mut self, slot: Slot) -> Result<State> {
        self.body(slot)?.expect(Phase::Started)?;
        self.pause(slot)?;
        self.body_mut(slot)?.suspend()
    }

    fn restore(&mut self, slot: Slot, state: &State) -> Result<()> {
        self.body_mut(slot)?.restore(state)
    }

    fn resume(&mut self, slot: Slot) -> Result<()> {
        self.body(slot)?.expect(Phase::Suspended)?;
        self.begin(slot)?;
        self.body_mut(slot)?.phase = Phase::Started;
        Ok(())
    }

    fn ends(&mut self, slot: Slot) -> Result<Vec<EndAt>> {
        self.body(slot)?.ends()
    }

    fn connect(&mut self, slot: Slot, name: &str, specification: Specification) -> Result<Box<dyn Channel>> {
        let interface = self.interface.clone();
        let body = self.body_mut(slot)?;
        if name.is_empty() {
            body.channels.insert(0, Wired { name: String::new(), pair: String::new(), specification });
            return Ok(Box::new(Calls::new(body.inner.clone(), specification)));
        }
        let pair = body.inner.hook.pair(name);
        // The kernel's side of each map is one.
        if body.channels.iter().any(|channel| !channel.name.is_empty() && channel.pair == pair) {
            let subject = format!("channel {name} to offcode {}", body.inner.name);
            return Err(Fault::new(
                subject,
                "its IN and OUT are taken",
                "let the two share a channel, or add one by OFFCODE_CHANNEL",
            ));
        }
        let ends = possible::at_hook(&body.inner.hook, name, &specification)
            .map_err(|why| why.fault(format!("channel {name} to offcode {}", body.inner.name)))?;
        let end: Box<dyn Channel> = match ends.frames {
            true => Box::new(Frames::new(body.inner.clone(), &pair, specification, &interface)?),
            false => Box::new(Messages::new(body.inner.clone(), &pair, ends, specification)?),
        };
        body.channels.push(Wired { name: name.to_owned(), pair, specification });
        Ok(end)
    }

    fn adopt(&mut self, slot: Slot, name: &str, _end: Box<dyn Channel>) -> Result<ChannelId> {
        let body = self.body(slot)?;
        Err(Fault::new(
            format!("channel {name} to offcode {}", body.inner.name),
            "programs in the kernel cannot use memory of a process",
            "let this site make the channel",
        ))
    }

    fn shared(&self, slot: Slot, map: &str) -> Result<SharedWords> {
        self.body(slot)?.inner.object.shared(map)
    }

    fn set_attribute(&mut self, slot: Slot, name: &str, value: &str) -> Result<()> {
        let point = self.point;
        let body = self.body_mut(slot)?;
        let before = (body.priority, body.chains);
        match name {
            PRIORITY => body.priority = priority(value)?,
            CHAINS => body.chains = verdicts(point, value)?,
            _ => {}
        }
        if (body.priority, body.chains) != before && matches!(body.running, Some(Running::Hook)) {
            self.chain_up().inspect_err(|_| {
                if let Ok(body) = self.body_mut(slot) {
                    (body.priority, body.chains) = before;
                }
            })?;
        }
        let inner = &self.body(slot)?.inner;
        if inner.object.variable_size(name).is_some() {
            inner.object.set_variable(name, number(name, value)?)?;
            inner.stir();
        }
        Ok(())
    }

    fn remove(&mut self, slot: Slot) -> Result<()> {
        let Ok(place) = self.place(slot) else { return Ok(()) };
        self.pause(slot)?;
        self.bodies.remove(place);
        Ok(())
    }

    fn map(&mut self, slot: Slot, name: &str) -> Result<Dump> {
        self.body(slot)?.inner.object.dump(name, SHOWN_ENTRIES, SHOWN_BYTES)
    }

    /// Nothing here needs the caller's thread.
    fn arm(&mut self, _sleep: &mut Sleep, _turn: Duration) -> bool {
        true
    }

    fn evidence(&mut self, slot: Slot) -> Result<Evidence> {
        let (point, interface) = (self.point, self.interface.name());
        let body = self.body(slot)?;
        let program = body.inner.object.program(&body.program)?;
        let about = format!("program {} ({})", program.id(), program.name());
        let count = |name: &str, value: u64| Counter { name: name.into(), value };
        let used = body.inner.uses.load(Ordering::Relaxed);
        let (mut uses, mut timed, mut counters) = (used, None, Vec::new());
        let whereabouts = match &body.running {
            Some(Running::Hook) => {
                let found = self.chain.prove()?.ok_or_else(|| self.no_such(slot))?;
                let hooks = self.hooks();
                let stage = hooks.iter().position(|hook| hook.slot == slot).map_or(0, |n| n + 1);
                if let Some(counts) = self.chain.counts(body.place)? {
                    let counts = counts - body.before;
                    counters.push(count("runs of the program", counts.runs));
                    counters.push(count("runs that were timed", counts.timed.count));
                    counters.push(count("ns in these", counts.timed.time.0));
                    let verdicts = point.verdicts().iter().zip(counts.verdicts).filter(|(_, runs)| *runs > 0);
                    counters.extend(verdicts.map(|(verdict, runs)| count(&format!("runs to {verdict}"), runs)));
                    uses += counts.runs;
                    timed = Some(counts.timed).filter(|timed| timed.count > 0);
                }
                let of = format!("stage {stage} of {}, {}, on {interface}", hooks.len(), found.whereabouts);
                format!("{} in program {}, {of}", program.name(), found.id)
            }
            Some(Running::Producer(producer)) => {
                format!("{about}, live frames out of {interface}, {}", producer.whereabouts()?)
            }
            None => format!("{about}, verified for {} ({point}), not started", self.site),
        };
        if body.statistics.is_some() {
            let runs = program.runs()?;
            counters.push(count("runs of the program", runs.count));
            counters.push(count("ns in the program", runs.time.0));
            uses += runs.count;
            timed = Some(runs).filter(|runs| runs.count > 0);
        }
        counters.push(count("calls and messages", used));
        let timed = timed.map(|timed| Timed { uses: timed.count, time: timed.time });
        Ok(Evidence { whereabouts, counters, uses, timed, received: Vec::new() })
    }
}
