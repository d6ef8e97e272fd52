//! A site at which a step of a move fails.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use machine::{Fault, Result, Site};
use offcode::{Activity, Channel, ChannelId, Specification, State};
use runtime::site::app::AppSite;
use runtime::site::{Deployment, EndAt, Ends, Evidence, SiteDriver, Slot};

/// Fails at the step at which `left` is 0, counted over all sites while it is not negative.
pub struct Failing {
    pub inner: AppSite,
    pub left: Arc<AtomicI64>,
    pub failed: Arc<Mutex<BTreeSet<&'static str>>>,
}

impl Failing {
    fn step(&self, name: &'static str) -> Result<()> {
        if self.left.load(Ordering::Relaxed) < 0 || self.left.fetch_sub(1, Ordering::Relaxed) != 0 {
            return Ok(());
        }
        self.failed.lock().unwrap().insert(name);
        Err(Fault::new("injected", format!("{name} fails"), "count on"))
    }
}

impl SiteDriver for Failing {
    fn site(&self) -> &Site {
        self.inner.site()
    }
    fn deploy(&mut self, deployment: Deployment) -> Result<Slot> {
        self.step("deploy")?;
        self.inner.deploy(deployment)
    }
    fn initialize(&mut self, slot: Slot) -> Result<()> {
        self.step("initialize")?;
        self.inner.initialize(slot)
    }
    fn start(&mut self, slot: Slot) -> Result<()> {
        self.inner.start(slot)
    }
    fn connect(&mut self, slot: Slot, name: &str, specification: Specification) -> Result<Box<dyn Channel>> {
        self.inner.connect(slot, name, specification)
    }
    fn adopt(&mut self, slot: Slot, name: &str, end: Box<dyn Channel>) -> Result<ChannelId> {
        self.inner.adopt(slot, name, end)
    }
    fn set_attribute(&mut self, slot: Slot, name: &str, value: &str) -> Result<()> {
        self.inner.set_attribute(slot, name, value)
    }
    fn remove(&mut self, slot: Slot) -> Result<()> {
        self.inner.remove(slot)
    }
    fn suspend(&mut self, slot: Slot) -> Result<State> {
        self.step("suspend")?;
        self.inner.suspend(slot)
    }
    fn restore(&mut self, slot: Slot, state: &State) -> Result<()> {
        self.step("restore")?;
        self.inner.restore(slot, state)
    }
    fn resume(&mut self, slot: Slot) -> Result<()> {
        self.step("resume")?;
        self.inner.resume(slot)
    }
    fn ends(&mut self, slot: Slot) -> Result<Vec<EndAt>> {
        self.inner.ends(slot)
    }
    fn surrender(&mut self, slot: Slot) -> Result<Ends> {
        self.step("surrender")?;
        self.inner.surrender(slot)
    }
    fn receive(&mut self, slot: Slot, ends: &mut Ends) -> Result<()> {
        self.step("receive")?;
        self.inner.receive(slot, ends)
    }
    fn evidence(&mut self, slot: Slot) -> Result<Evidence> {
        self.inner.evidence(slot)
    }
    fn turn(&mut self) -> Result<Activity> {
        self.inner.turn()
    }
}
