//! The offcodes that one thread runs: their channels, their turns, and what keeps one that fails from harming the rest.

mod seat;
mod surroundings;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use machine::{Fault, Result, Site};
use offcode::{Activity, Channel, ChannelId, Specification};

use super::body;
use super::evidence::{Counter, Evidence};
use super::{Deployment, Slot};
use seat::{Phase, Seat};

/// Takes a line that an offcode or its site has to say.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// The offcodes of one thread. The same set serves the application's thread, a dedicated core and an agent.
pub struct Residents {
    site: Site,
    origin: Instant,
    log: Log,
    seats: Vec<Option<Seat>>,
    turns: u64,
}

impl Residents {
    /// An empty set. Offcodes see the time since `origin`.
    pub fn new(site: Site, origin: Instant, log: Log) -> Self {
        Residents { site, origin, log, seats: Vec::new(), turns: 0 }
    }

    pub fn site(&self) -> &Site {
        &self.site
    }

    /// Turns since the start: the proof that the loop runs.
    pub fn turns(&self) -> u64 {
        self.turns
    }

    /// How many offcodes are here.
    pub fn population(&self) -> usize {
        self.seats.iter().flatten().count()
    }

    fn seat(&mut self, slot: Slot) -> Result<&mut Seat> {
        let gone = || Fault::new(format!("slot {}", slot.0), "no offcode is there any more", "create it again");
        self.seats.get_mut(slot.0 as usize).and_then(Option::as_mut).ok_or_else(gone)
    }

    pub fn deploy(&mut self, deployment: Deployment) -> Result<Slot> {
        let offcode = guarded(&deployment.name, || body::embody(&deployment))??;
        let seat = Seat::new(offcode, deployment, self.origin, self.log.clone());
        self.seats.push(Some(seat));
        Ok(Slot(self.seats.len() as u32 - 1))
    }

    pub fn initialize(&mut self, slot: Slot) -> Result<()> {
        self.seat(slot)?.initialize()
    }

    pub fn start(&mut self, slot: Slot) -> Result<()> {
        self.seat(slot)?.start()
    }

    /// Makes a channel in memory, keeps the far end here and returns the near one.
    pub fn connect(&mut self, slot: Slot, name: &str, specification: Specification) -> Result<Box<dyn Channel>> {
        self.seat(slot)?;
        let (near, far) = linux::channel::unicast(&specification)?;
        self.adopt(slot, name, Box::new(far))?;
        Ok(Box::new(near))
    }

    pub fn adopt(&mut self, slot: Slot, name: &str, end: Box<dyn Channel>) -> Result<ChannelId> {
        self.seat(slot)?.adopt(name, end)
    }

    pub fn set_attribute(&mut self, slot: Slot, name: &str, value: &str) -> Result<()> {
        self.seat(slot)?.set_attribute(name, value)
    }

    pub fn remove(&mut self, slot: Slot) {
        if let Some(mut seat) = self.seats.get_mut(slot.0 as usize).and_then(Option::take) {
            seat.stop();
        }
    }

    pub fn evidence(&mut self, slot: Slot) -> Result<Evidence> {
        let turns = self.turns;
        let seat = self.seat(slot)?;
        let counter = |name: &str, value| Counter { name: name.into(), value };
        let mut counters = vec![counter("turns of the loop", turns)];
        counters.extend([counter("calls", seat.calls), counter("messages", seat.messages)]);
        counters.push(counter("turns with work", seat.worked));
        let whereabouts = match &seat.phase {
            Phase::Failed(why) => format!("failed: {why}"),
            _ => String::new(),
        };
        Ok(Evidence { whereabouts, counters, uses: seat.calls + seat.messages })
    }

    /// One turn of every offcode: what has arrived on its channels, then its own work.
    #[inline]
    pub fn turn(&mut self) -> Activity {
        self.turns += 1;
        let mut activity = Activity::Idle;
        for seat in self.seats.iter_mut().flatten() {
            if seat.turn() == Activity::Worked {
                activity = Activity::Worked;
            }
        }
        activity
    }
}

impl Drop for Residents {
    fn drop(&mut self) {
        for seat in self.seats.iter_mut().rev().flatten() {
            seat.stop();
        }
    }
}

/// Runs an author's code; a panic in it becomes a fault that names the offcode.
fn guarded<R>(name: &str, work: impl FnOnce() -> R) -> Result<R> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        let said = panic
            .downcast_ref::<&str>()
            .map(|s| s.to_string())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "without a message".into());
        Fault::new(format!("offcode {name}"), format!("it panicked: {said}"), "mend the offcode")
    })
}
