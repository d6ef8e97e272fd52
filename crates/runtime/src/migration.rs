//! Moving running offcodes to another site, and replacing them by another version, with their state and channels.
//!
//! Where both sites share memory, an offcode's ends of its channels go to the other thread as they are: no message is
//! touched. An offcode that moves to where memory is not shared leaves its ends with the switchboard, which relays
//! between them and those at the site (a *bridge*), so that nobody at the other ends notices anything either.

mod group;
mod loss;
mod machine;

use std::thread;
use std::time::{Duration, Instant};

use ::machine::{Fault, Nanoseconds, Result, Site};
use offcode::depot::Depot;
use offcode::{Cast, Channel, Delivery, Specification, State};

pub use attach::moved::{Moved, Step};

pub use self::machine::{Machine, Order};
use crate::application::Runtime;
use crate::gang::Seated;
use crate::live::OffcodeId;
use crate::possible::Facts;
use crate::site::end::End;
use crate::site::{self, Deployment, EndAt, Ends, Slot};
use crate::switchboard::{BridgeId, Passed};

/// Time limit for messages under way to and from a site that shares no memory.
const DRAIN: Duration = Duration::from_secs(2);
/// Time between two looks at these messages.
const POLL_INTERVAL: Duration = Duration::from_micros(100);

/// One offcode of a move.
pub(crate) struct Mover {
    id: OffcodeId,
    from: Seated,
    deployment: Deployment,
    facts: Facts,
    slot: Option<Slot>,
    /// Names and specifications of its channels as they were in `Prepare`.
    channels: Vec<(String, Specification)>,
    /// Whether the old site is gone, with the old body.
    lost: bool,
    suspended: bool,
    state: State,
    /// Ends on their way from one site to the other.
    carried: Ends,
    /// Near ends of its channels at a new site that shares no memory.
    near: Vec<Box<dyn Channel>>,
    /// Near ends at such an old site, while the move may have to be taken back.
    behind: Vec<Box<dyn Channel>>,
    bridges: Vec<BridgeId>,
}

/// A move that is under way. It does nothing by itself: see [`Migration::advance`].
pub struct Migration {
    machine: Machine,
    movers: Vec<Mover>,
    target: usize,
    /// A package that replaces the running version.
    upgrade: Option<Depot>,
    moved: Moved,
    /// Notes of the target site, where it was opened for the move.
    notes: Vec<String>,
    still: Option<Instant>,
    failed: Option<Fault>,
}

impl Runtime {
    /// Moves a running offcode, and those that are pulled to it, to another site of this runtime.
    ///
    /// # Errors
    /// A constraint or a rule forbids it, and nothing was done; a step failed, and everything is as it was.
    pub fn migrate(&mut self, offcode: OffcodeId, site: &Site) -> Result<Moved> {
        let opened = self.sites.len();
        let mut migration = self.migration(offcode, site)?;
        while !migration.advance(self) {}
        let outcome = migration.outcome();
        if outcome.is_err() {
            self.close_from(opened);
        }
        outcome
    }

    /// Puts the version of a running offcode that is in `depot` in its place.
    ///
    /// # Errors
    /// The versions do not fit together, and nothing was done; a step failed, and everything is as it was.
    pub fn upgrade(&mut self, offcode: OffcodeId, depot: &Depot) -> Result<Moved> {
        let mut migration = self.upgrading(offcode, depot)?;
        while !migration.advance(self) {}
        migration.outcome()
    }

    /// The same as [`Runtime::migrate`], to be carried out step by step. A site that was opened for it stays open also where
    /// a step fails.
    ///
    /// # Errors
    /// A constraint or a rule forbids the move.
    pub fn migration(&mut self, offcode: OffcodeId, site: &Site) -> Result<Migration> {
        let from = self.live(offcode)?.seated.site;
        let opened = self.sites.len();
        let (target, notes) = self.site_or_open(site)?;
        let planned = self.planned(offcode, from, target);
        if planned.is_err() {
            self.close_from(opened);
        }
        planned.map(|planned| Migration { notes, ..planned })
    }

    fn planned(&mut self, offcode: OffcodeId, from: usize, target: usize) -> Result<Migration> {
        let site = self.sites[target].site().clone();
        if from == target {
            let name = &self.live(offcode)?.name;
            return Err(Fault::new(format!("offcode {name}"), format!("it is at {site} already"), "name another site"));
        }
        let movers = self.movers(offcode, target)?.into_iter().map(|id| {
            let live = self.live(id)?;
            let code = self.catalogue.code(&live.manifest, site.kind())?;
            let facts = self.catalogue.facts(&live.manifest, site.kind());
            let facts = facts.map_err(|why| why.fault(live.name.clone()))?;
            let deployment = Deployment {
                name: live.name.clone(),
                manifest: live.manifest.clone(),
                code,
                attributes: live.attributes.clone(),
                memory: self.names.granted(&live.manifest, site.kind()),
            };
            Ok(Mover::new(id, live.seated, deployment, facts))
        });
        Ok(Migration::new(movers.collect::<Result<_>>()?, self.sites[from].site().clone(), (target, site), None))
    }

    /// The same as [`Runtime::upgrade`], to be carried out step by step.
    ///
    /// # Errors
    /// The versions do not fit together.
    pub fn upgrading(&mut self, offcode: OffcodeId, depot: &Depot) -> Result<Migration> {
        let live = self.live(offcode)?;
        let (guid, name) = (live.manifest.package.guid, &live.name);
        let stored = depot.by_guid(guid).ok_or_else(|| {
            let subject = format!("offcode {name} ({guid})");
            Fault::new(subject, "the depot has no package of it", "name the depot that has")
        })?;
        let site = self.sites[live.seated.site].site().clone();
        let code = self.catalogue.code_in(std::slice::from_ref(depot), &stored.manifest, site.kind())?;
        let facts = Facts::read(&stored.manifest, site.kind(), &code).map_err(|why| why.fault(name.clone()))?;
        self.replaces(offcode, &stored.manifest, (&code, &facts))?;
        let deployment = Deployment {
            name: name.clone(),
            manifest: stored.manifest.clone(),
            code,
            attributes: live.attributes.clone(),
            memory: self.names.granted(&stored.manifest, site.kind()),
        };
        let mover = Mover::new(offcode, live.seated, deployment, facts);
        let target = live.seated.site;
        Ok(Migration::new(vec![mover], site.clone(), (target, site), Some(depot.only(&stored.manifest.package))))
    }
}

impl Mover {
    fn new(id: OffcodeId, from: Seated, deployment: Deployment, facts: Facts) -> Mover {
        Mover {
            id,
            from,
            deployment,
            facts,
            slot: None,
            channels: Vec::new(),
            lost: false,
            suspended: false,
            state: State::default(),
            carried: Ends::default(),
            near: Vec::new(),
            behind: Vec::new(),
            bridges: Vec::new(),
        }
    }

    fn slot(&self) -> Result<Slot> {
        self.slot.ok_or_else(|| Fault::new(&*self.deployment.name, "its new body is not there", "report this"))
    }
}

impl Migration {
    fn new(movers: Vec<Mover>, from: Site, (target, to): (usize, Site), upgrade: Option<Depot>) -> Migration {
        let named = |mover: &Mover| format!("{} {}", mover.deployment.name, mover.deployment.manifest.package.version);
        let offcodes = movers.iter().map(named).collect();
        let (steps, pause) = (Vec::new(), Nanoseconds(0));
        let moved = Moved { offcodes, from, to, steps, pause, state: 0, lost: 0 };
        let (machine, notes) = (Machine::default(), Vec::new());
        Migration { machine, movers, target, upgrade, moved, notes, still: None, failed: None }
    }

    /// The next order to carry out.
    pub fn order(&self) -> Order {
        self.machine.order()
    }

    /// Carries out one order; `true`: the move is over, and [`Migration::outcome`] tells how.
    pub fn advance(&mut self, runtime: &mut Runtime) -> bool {
        let begun = Instant::now();
        let order = self.machine.order();
        let outcome = match order {
            Order::Do(step) => {
                let outcome = self.carry_out(step, runtime);
                self.moved.steps.push((step, nanoseconds(begun)));
                outcome.map_err(|fault| fault.within(format!("{step:?}").to_lowercase()))
            }
            Order::Undo(step) => {
                self.take_back(step, runtime);
                Ok(())
            }
            Order::Moved | Order::Back => return true,
        };
        self.machine.came(outcome.is_ok());
        if let Err(fault) = outcome {
            match order {
                // An offcode that works at its new place stays there.
                Order::Do(Step::Release) => (runtime.log)(&fault.to_string()),
                _ => self.failed = self.failed.take().or(Some(fault)),
            }
        }
        if self.machine.order() == Order::Moved {
            std::mem::take(&mut self.notes).iter().for_each(|note| (runtime.log)(note));
        }
        matches!(self.machine.order(), Order::Moved | Order::Back)
    }

    /// What the move was.
    ///
    /// # Errors
    /// Why it was taken back.
    pub fn outcome(self) -> Result<Moved> {
        let Some(fault) = self.failed else { return Ok(self.moved) };
        let what = format!("{} from {} to {}", self.moved.offcodes.join(", "), self.moved.from, self.moved.to);
        let cause = format!("{}; everything is as it was", fault.cause().trim_end_matches('.'));
        Err(Fault::new(format!("{what}: {}", fault.subject()), cause, fault.next()))
    }

    fn carry_out(&mut self, step: Step, runtime: &mut Runtime) -> Result<()> {
        let Migration { movers, target, moved, still, upgrade, .. } = self;
        let target = *target;
        if step == Step::Snapshot {
            *still = Some(Instant::now());
        }
        for mover in movers.iter_mut() {
            match step {
                Step::Prepare => mover.prepare(runtime, target)?,
                Step::Quiesce => mover.quiesce(runtime)?,
                Step::Snapshot => {
                    moved.lost += mover.snapshot(runtime)?;
                    moved.state += mover.state.encode()?.len() as u64;
                }
                Step::Rebind => mover.rebind(runtime, target)?,
                Step::Restore => runtime.sites[target].restore(mover.slot()?, &mover.state)?,
                Step::Commit => runtime.sites[target].resume(mover.slot()?)?,
                Step::Release => {
                    mover.behind.clear();
                    runtime.sites[mover.from.site].remove(mover.from.slot)?;
                }
            }
        }
        if step == Step::Commit {
            for mover in movers.iter_mut() {
                for &bridge in &mover.bridges {
                    runtime.switchboard.fence(bridge, [false; 2]);
                }
                mover.reseat(runtime, target)?;
            }
            if let Some(depot) = upgrade {
                runtime.catalogue.replace(depot);
            }
            moved.pause = still.map_or(Nanoseconds(0), nanoseconds);
        }
        Ok(())
    }

    fn take_back(&mut self, step: Step, runtime: &mut Runtime) {
        let target = self.target;
        for mover in self.movers.iter_mut().rev() {
            let outcome = match step {
                Step::Prepare => mover.unprepare(runtime, target),
                Step::Quiesce => mover.lift(runtime),
                Step::Snapshot => mover.unsuspend(runtime),
                Step::Rebind => mover.unbind(runtime, target),
                // A body that began to work stands still again, so that it gives its ends up.
                Step::Commit => mover.slot().map(|slot| drop(runtime.sites[target].suspend(slot))),
                Step::Restore | Step::Release => Ok(()),
            };
            if let Err(fault) = outcome {
                (runtime.log)(&format!("{}: taking its move back: {fault}", mover.deployment.name));
            }
        }
    }
}

fn nanoseconds(since: Instant) -> Nanoseconds {
    Nanoseconds(since.elapsed().as_nanos() as u64)
}

fn shares(runtime: &Runtime, site: usize) -> bool {
    runtime.sites[site].site().kind().maps_memory()
}

impl Mover {
    /// Makes the new body beside the old one. Compiling takes long, and other offcodes go on meanwhile.
    fn prepare(&mut self, runtime: &mut Runtime, target: usize) -> Result<()> {
        let (prepare, code) = (runtime.sites[target].preparation(), self.deployment.code.clone());
        let compiling = thread::Builder::new().name("preparation".into()).spawn(move || prepare(code));
        let compiling =
            compiling.map_err(|e| Fault::because("preparation", e, "raise the limit on processes (ulimit -u)"))?;
        while !compiling.is_finished() {
            runtime.turn()?;
            thread::yield_now();
        }
        let lost = |_| Fault::new("preparation", "its thread panicked", "report this");
        let mut deployment = self.deployment.clone();
        deployment.code = compiling.join().map_err(lost)??;
        self.channels = channels(runtime, self.id)?;
        let slot = runtime.sites[target].deploy(deployment)?;
        self.slot = Some(slot);
        site::begin(runtime.sites[target].as_mut(), slot, &self.deployment.attributes)?;
        if !shares(runtime, target) {
            for (name, specification) in &self.channels {
                // To a reader elsewhere a multicast channel is one more channel with two ends.
                let specification = Specification { cast: Cast::Unicast, ..*specification };
                self.near.push(runtime.sites[target].connect(slot, name, specification)?);
            }
        }
        Ok(())
    }

    fn unprepare(&mut self, runtime: &mut Runtime, target: usize) -> Result<()> {
        self.near.clear();
        self.slot.take().map_or(Ok(()), |slot| runtime.sites[target].remove(slot))
    }

    /// Waits until all that was relayed to the old site has been read there.
    fn quiesce(&mut self, runtime: &mut Runtime) -> Result<()> {
        let (bridges, seated) = (runtime.live(self.id)?.bridges.clone(), self.from);
        if bridges.is_empty() || self.lost {
            return Ok(());
        }
        wait(runtime, "messages to it", |runtime| {
            let passed = pass(runtime, &bridges, [true, false])?;
            let ends = runtime.sites[seated.site].ends(seated.slot)?;
            let all = passed
                .iter()
                .zip(&ends)
                .all(|(passed, end)| passed.held == 0 && (end.counted.read >= passed.written || unreliable(end)));
            Ok(all)
        })
    }

    fn lift(&mut self, runtime: &mut Runtime) -> Result<()> {
        for &bridge in &runtime.live(self.id)?.bridges {
            runtime.switchboard.fence(bridge, [false; 2]);
        }
        Ok(())
    }

    /// Stops the old body and waits for what it wrote. Returns how many messages did not arrive.
    fn snapshot(&mut self, runtime: &mut Runtime) -> Result<u64> {
        let seated = self.from;
        if self.lost {
            return Ok(0);
        }
        self.state = runtime.sites[seated.site].suspend(seated.slot)?;
        self.suspended = true;
        let bridges = runtime.live(self.id)?.bridges.clone();
        if bridges.is_empty() {
            return Ok(0);
        }
        let mut missing: Vec<(String, u64)> = Vec::new();
        wait(runtime, "messages from it", |runtime| {
            let passed = pass(runtime, &bridges, [true, false])?;
            let ends = runtime.sites[seated.site].ends(seated.slot)?;
            missing.clear();
            let all = passed.iter().zip(&ends).all(|(passed, end)| {
                let left = end.counted.written.saturating_sub(passed.read);
                if unreliable(end) && left > 0 {
                    missing.push((end.name.clone(), left));
                }
                end.unsent == 0 && !passed.more && (left == 0 || unreliable(end))
            });
            Ok(all)
        })?;
        pass(runtime, &bridges, [true; 2])?;
        let lost = missing.iter().map(|(_, left)| left).sum();
        runtime.lost_in_move(self.id, &missing);
        Ok(lost)
    }

    fn unsuspend(&mut self, runtime: &mut Runtime) -> Result<()> {
        if std::mem::take(&mut self.suspended) {
            runtime.sites[self.from.site].resume(self.from.slot)?;
        }
        Ok(())
    }

    fn rebind(&mut self, runtime: &mut Runtime, target: usize) -> Result<()> {
        self.give_up(runtime)?;
        if self.carried.0.len() != self.channels.len() {
            let cause = "its channels changed while it was about to move";
            return Err(Fault::new(&*self.deployment.name, cause, "move it again"));
        }
        let slot = self.slot()?;
        if shares(runtime, target) {
            return runtime.sites[target].receive(slot, &mut self.carried);
        }
        let near = std::mem::take(&mut self.near);
        self.bridges = bridged(runtime, &mut self.carried, near);
        Ok(())
    }

    /// The old site's ends are with the move.
    fn give_up(&mut self, runtime: &mut Runtime) -> Result<()> {
        if shares(runtime, self.from.site) {
            self.carried = runtime.sites[self.from.site].surrender(self.from.slot)?;
            return Ok(());
        }
        let bridges = runtime.live_mut(self.id).map(|live| std::mem::take(&mut live.bridges));
        for bridge in bridges.unwrap_or_default() {
            let (end, behind) = runtime.switchboard.take_back(bridge).ok_or_else(|| gone(&self.deployment.name))?;
            self.carried.0.push(end);
            self.behind.push(behind);
        }
        Ok(())
    }

    fn unbind(&mut self, runtime: &mut Runtime, target: usize) -> Result<()> {
        if self.carried.0.is_empty() {
            if !self.bridges.is_empty() {
                let bridges = std::mem::take(&mut self.bridges);
                let ends = bridges.into_iter().filter_map(|bridge| runtime.switchboard.take_back(bridge));
                self.carried.0 = ends.map(|(end, _)| end).collect();
            } else if shares(runtime, target)
                && let Some(slot) = self.slot
                && runtime.sites[target].ends(slot).is_ok_and(|ends| ends.len() == self.channels.len())
            {
                self.carried = runtime.sites[target].surrender(slot)?;
            }
        }
        if self.carried.0.is_empty() {
            return Ok(());
        }
        if shares(runtime, self.from.site) {
            return runtime.sites[self.from.site].receive(self.from.slot, &mut self.carried);
        }
        let behind = std::mem::take(&mut self.behind);
        let bridges = bridged(runtime, &mut self.carried, behind);
        if let Some(live) = runtime.live_mut(self.id) {
            live.bridges = bridges;
        }
        Ok(())
    }

    /// Records that the offcode is at the new site from now on.
    fn reseat(&self, runtime: &mut Runtime, target: usize) -> Result<()> {
        let Some(slot) = self.slot else { return Ok(()) };
        let old = runtime.live(self.id)?.seated;
        let uses = runtime.sites[old.site].evidence(old.slot).map_or(0, |evidence| evidence.uses);
        if let Some(live) = runtime.live_mut(self.id) {
            let bridged = !self.bridges.is_empty();
            live.seated = Seated { site: target, slot, party: old.party, bridged };
            live.manifest = self.deployment.manifest.clone();
            live.facts = self.facts.clone();
            live.bridges = self.bridges.clone();
            live.before += uses;
        }
        Ok(())
    }
}

/// Names and specifications of a running offcode's channels, by their numbers.
fn channels(runtime: &mut Runtime, offcode: OffcodeId) -> Result<Vec<(String, Specification)>> {
    let live = runtime.live(offcode)?;
    if live.seated.bridged {
        let known = live.bridges.iter().filter_map(|&bridge| runtime.switchboard.stands_for(bridge));
        return Ok(known.collect());
    }
    let seated = live.seated;
    let ends = runtime.sites[seated.site].ends(seated.slot)?;
    Ok(ends.into_iter().map(|end| (end.name, end.specification)).collect())
}

fn bridged(runtime: &Runtime, ends: &mut Ends, near: Vec<Box<dyn Channel>>) -> Vec<BridgeId> {
    let ends: Vec<End> = std::mem::take(&mut ends.0);
    ends.into_iter().zip(near).filter_map(|(end, near)| runtime.switchboard.bridge(end, near)).collect()
}

fn unreliable(end: &EndAt) -> bool {
    end.specification.delivery == Delivery::Unreliable
}

fn gone(name: &str) -> Fault {
    Fault::new(format!("offcode {name}"), "a channel of it is not where it was", "report this")
}

fn pass(runtime: &Runtime, bridges: &[BridgeId], fenced: [bool; 2]) -> Result<Vec<Passed>> {
    let passed = bridges.iter().map(|&bridge| runtime.switchboard.fence(bridge, fenced));
    passed.collect::<Option<_>>().ok_or_else(|| gone("that is to move"))
}

/// Polls everything until `done` says so.
fn wait(runtime: &mut Runtime, what: &str, mut done: impl FnMut(&mut Runtime) -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + DRAIN;
    while !done(runtime)? {
        if Instant::now() > deadline {
            let cause = format!("they have not arrived within {} s", DRAIN.as_secs());
            return Err(Fault::new(what, cause, "look whether its peers read what is sent to them"));
        }
        runtime.switchboard.turn();
        runtime.turn()?;
        thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}
