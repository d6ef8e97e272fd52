//! `app`: offcodes run in the application's own thread, when it gives them time.

use std::time::Duration;

use linux::doorbell::Sleep;
use linux::xdp::{Dump, SharedWords};
use machine::{Result, Site};
use offcode::{Activity, Channel, ChannelId, Specification, State};

use super::residents::Residents;
use super::{Client, Deployment, EndAt, Ends, Evidence, Preparation, SiteDriver, Slot, Trace, body};

/// The application's thread as a site.
pub struct AppSite(Residents);

impl AppSite {
    /// `residents` must be those of [`Site::App`], or of an agent that runs them in its own thread.
    pub fn new(residents: Residents) -> Self {
        AppSite(residents)
    }
}

impl SiteDriver for AppSite {
    fn site(&self) -> &Site {
        self.0.site()
    }

    fn preparation(&self) -> Preparation {
        body::compiled
    }

    fn deploy(&mut self, deployment: Deployment) -> Result<Slot> {
        self.0.deploy(deployment)
    }

    fn charge(&mut self, slot: Slot, client: &Client) -> Result<bool> {
        self.0.charge(slot, client).map(|()| true)
    }

    fn initialize(&mut self, slot: Slot) -> Result<()> {
        self.0.initialize(slot)
    }

    fn start(&mut self, slot: Slot) -> Result<()> {
        self.0.start(slot)
    }

    fn connect(&mut self, slot: Slot, name: &str, specification: Specification) -> Result<Box<dyn Channel>> {
        self.0.connect(slot, name, specification)
    }

    fn adopt(&mut self, slot: Slot, name: &str, end: Box<dyn Channel>) -> Result<ChannelId> {
        self.0.adopt(slot, name, end)
    }

    fn set_attribute(&mut self, slot: Slot, name: &str, value: &str) -> Result<()> {
        self.0.set_attribute(slot, name, value)
    }

    fn remove(&mut self, slot: Slot) -> Result<()> {
        self.0.remove(slot);
        Ok(())
    }

    fn suspend(&mut self, slot: Slot) -> Result<State> {
        self.0.suspend(slot)
    }

    fn restore(&mut self, slot: Slot, state: &State) -> Result<()> {
        self.0.restore(slot, state)
    }

    fn resume(&mut self, slot: Slot) -> Result<()> {
        self.0.resume(slot)
    }

    fn ends(&mut self, slot: Slot) -> Result<Vec<EndAt>> {
        self.0.ends(slot)
    }

    fn surrender(&mut self, slot: Slot) -> Result<Ends> {
        self.0.surrender(slot)
    }

    fn receive(&mut self, slot: Slot, ends: &mut Ends) -> Result<()> {
        self.0.receive(slot, ends)
    }

    fn shared(&self, slot: Slot, words: &str) -> Result<SharedWords> {
        self.0.shared(slot, words)
    }

    fn evidence(&mut self, slot: Slot) -> Result<Evidence> {
        let mut evidence = self.0.evidence(slot)?;
        if evidence.whereabouts.is_empty() {
            evidence.whereabouts = format!("thread {}, the application's", linux::accounting::current_thread());
        }
        Ok(evidence)
    }

    fn map(&mut self, slot: Slot, name: &str) -> Result<Dump> {
        self.0.map(slot, name)
    }

    fn trace(&mut self, slot: Slot, trace: Option<Trace>) -> bool {
        self.0.trace(slot, trace)
    }

    fn arm(&mut self, sleep: &mut Sleep, turn: Duration) -> bool {
        self.0.arm(sleep, turn)
    }

    fn turn(&mut self) -> Result<Activity> {
        Ok(self.0.turn())
    }
}
