//! `core:N`: offcodes run on a thread that is pinned to a core of its own and polls.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use linux::contention::Excluded;
use linux::doorbell::Sleep;
use linux::shield::Shield;
pub use linux::shield::Wanted as Protection;
use linux::xdp::{Dump, SharedWords};
use machine::{CoreId, Fault, Result, Site};
use offcode::{Activity, Channel, ChannelId, Specification, State};

use super::residents::{Log, Residents};
use super::{Client, Deployment, EndAt, Ends, Evidence, Preparation, SiteDriver, Slot, Trace, body};
use endpoint::{Placed, settle};

/// Time limit of a site's answer, which an offcode may keep from it.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Idle turns before a thread that shares its core lets others run.
const TURNS_BEFORE_YIELD: u32 = 16;
/// The same where no rival is known: one that comes later then waits microseconds, not time slices.
const TURNS_BEFORE_LOOKING_AWAY: u32 = 4096;

type Errand = Box<dyn FnOnce(&mut Residents) + Send>;

struct Shared {
    stop: AtomicBool,
    /// Whether an errand waits: read at every turn, so that the queue need not be.
    errand: AtomicBool,
    thread: AtomicI32,
}

/// A dedicated core as a site.
pub struct CoreSite {
    site: Site,
    core: CoreId,
    placed: Placed,
    protection: String,
    errands: Sender<Errand>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl CoreSite {
    /// Starts the polling thread, which is merely pinned. The calling thread is moved off the core where it has another, as long as it holds what
    /// comes beside the site; what was done about others that use the core is in [`CoreSite::placed`].
    pub fn open(core: CoreId, origin: Instant, log: Log) -> Result<(CoreSite, Option<Excluded>)> {
        Self::protected(core, Protection::Nothing, origin, log)
    }

    /// The same, with the thread's core protected from other work; by what is in [`CoreSite::protection`].
    ///
    /// # Errors
    /// The means was asked for by name and cannot be had.
    pub fn protected(
        core: CoreId,
        protection: Protection,
        origin: Instant,
        log: Log,
    ) -> Result<(CoreSite, Option<Excluded>)> {
        let site = Site::Core(core);
        let (placed, excluded) = settle(&site, &format!("site {site}"), &[])?;
        let (errands, waiting) = mpsc::channel();
        let shared = Arc::new(Shared {
            stop: AtomicBool::new(false),
            errand: AtomicBool::new(false),
            thread: AtomicI32::new(0),
        });
        let residents = Residents::new(site.clone(), origin, log);
        let patience = if placed.yields { TURNS_BEFORE_YIELD } else { TURNS_BEFORE_LOOKING_AWAY };
        let theirs = shared.clone();
        let (started, start) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name(format!("site-core-{}", core.0))
            .spawn(move || {
                theirs.thread.store(linux::accounting::current_thread(), Ordering::Relaxed);
                let shield = match Shield::raise(core, protection) {
                    Ok(shield) => shield,
                    Err(fault) => return drop(started.send(Err(fault))),
                };
                drop(started.send(Ok(shield.by().to_string())));
                poll(residents, &waiting, &theirs, patience);
                drop(shield);
            })
            .map_err(|e| Fault::because(site.to_string(), e, "raise the limit on processes (ulimit -u)"))?;
        let protection = start.recv().map_err(|_| gone(&site))??;
        Ok((CoreSite { site, core, placed, protection, errands, shared, thread: Some(thread) }, excluded))
    }

    /// Measures asked for and taken about other work on this core.
    pub fn placed(&self) -> &Placed {
        &self.placed
    }

    /// The protection of the core, as results print it.
    pub fn protection(&self) -> &str {
        &self.protection
    }

    /// The polling thread, for the accounting.
    pub fn thread(&self) -> i32 {
        self.shared.thread.load(Ordering::Relaxed)
    }

    /// Runs `work` on the site's thread, between two turns.
    pub fn there<R: Send + 'static>(&self, work: impl FnOnce(&mut Residents) -> R + Send + 'static) -> Result<R> {
        let (answer, answered) = mpsc::channel();
        let errand: Errand = Box::new(move |residents| drop(answer.send(work(residents))));
        self.errands.send(errand).map_err(|_| gone(&self.site))?;
        self.shared.errand.store(true, Ordering::Release);
        answered.recv_timeout(TIMEOUT).map_err(|e| match e {
            mpsc::RecvTimeoutError::Disconnected => gone(&self.site),
            mpsc::RecvTimeoutError::Timeout => Fault::new(
                self.site.to_string(),
                format!("its thread has not answered for {} s: an offcode does not return", TIMEOUT.as_secs()),
                "let the offcode's turns be short",
            ),
        })
    }
}

fn gone(site: &Site) -> Fault {
    Fault::new(site.to_string(), "its thread has ended", "look in the log for the reason, then start again")
}

fn poll(mut residents: Residents, errands: &Receiver<Errand>, shared: &Shared, patience: u32) {
    let mut idle = 0;
    while !shared.stop.load(Ordering::Relaxed) {
        if shared.errand.load(Ordering::Relaxed) && shared.errand.swap(false, Ordering::Acquire) {
            while let Ok(errand) = errands.try_recv() {
                errand(&mut residents);
            }
        }
        if residents.is_empty() {
            // A core that polls for nobody would only burn.
            match errands.recv() {
                Ok(errand) => errand(&mut residents),
                Err(_) => return,
            }
            continue;
        }
        match residents.turn() {
            Activity::Worked => idle = 0,
            Activity::Idle => {
                idle += 1;
                if idle >= patience {
                    idle = 0;
                    std::thread::yield_now();
                } else {
                    std::hint::spin_loop();
                }
            }
        }
    }
}

impl SiteDriver for CoreSite {
    fn site(&self) -> &Site {
        &self.site
    }

    fn preparation(&self) -> Preparation {
        body::compiled
    }

    fn deploy(&mut self, mut deployment: Deployment) -> Result<Slot> {
        // Compiled outside the core, where other offcodes would wait for it.
        let outer = |fault: Fault| fault.within(format!("offcode {}", deployment.name));
        deployment.code = body::compiled(deployment.code).map_err(outer)?;
        self.there(move |residents| residents.deploy(deployment))?
    }

    fn charge(&mut self, slot: Slot, client: &Client) -> Result<bool> {
        let client = client.clone();
        self.there(move |residents| residents.charge(slot, &client))?.map(|()| true)
    }

    fn initialize(&mut self, slot: Slot) -> Result<()> {
        self.there(move |residents| residents.initialize(slot))?
    }

    fn start(&mut self, slot: Slot) -> Result<()> {
        self.there(move |residents| residents.start(slot))?
    }

    fn connect(&mut self, slot: Slot, name: &str, specification: Specification) -> Result<Box<dyn Channel>> {
        let name = name.to_string();
        self.there(move |residents| residents.connect(slot, &name, specification))?
    }

    fn adopt(&mut self, slot: Slot, name: &str, end: Box<dyn Channel>) -> Result<ChannelId> {
        let name = name.to_string();
        self.there(move |residents| residents.adopt(slot, &name, end))?
    }

    fn set_attribute(&mut self, slot: Slot, name: &str, value: &str) -> Result<()> {
        let (name, value) = (name.to_string(), value.to_string());
        self.there(move |residents| residents.set_attribute(slot, &name, &value))?
    }

    fn remove(&mut self, slot: Slot) -> Result<()> {
        self.there(move |residents| residents.remove(slot))
    }

    fn suspend(&mut self, slot: Slot) -> Result<State> {
        self.there(move |residents| residents.suspend(slot))?
    }

    fn restore(&mut self, slot: Slot, state: &State) -> Result<()> {
        let state = state.clone();
        self.there(move |residents| residents.restore(slot, &state))?
    }

    fn resume(&mut self, slot: Slot) -> Result<()> {
        self.there(move |residents| residents.resume(slot))?
    }

    fn ends(&mut self, slot: Slot) -> Result<Vec<EndAt>> {
        self.there(move |residents| residents.ends(slot))?
    }

    fn surrender(&mut self, slot: Slot) -> Result<Ends> {
        self.there(move |residents| residents.surrender(slot))?
    }

    fn receive(&mut self, slot: Slot, ends: &mut Ends) -> Result<()> {
        let mut taken = std::mem::take(ends);
        let (outcome, left) = self.there(move |residents| (residents.receive(slot, &mut taken), taken))?;
        *ends = left;
        outcome
    }

    fn shared(&self, slot: Slot, words: &str) -> Result<SharedWords> {
        let words = words.to_string();
        self.there(move |residents| residents.shared(slot, &words))?
    }

    fn map(&mut self, slot: Slot, name: &str) -> Result<Dump> {
        let name = name.to_string();
        self.there(move |residents| residents.map(slot, &name))?
    }

    fn trace(&mut self, slot: Slot, trace: Option<Trace>) -> bool {
        self.there(move |residents| residents.trace(slot, trace)).unwrap_or(false)
    }

    /// Nothing here needs the caller's thread.
    fn arm(&mut self, _sleep: &mut Sleep, _turn: Duration) -> bool {
        true
    }

    fn evidence(&mut self, slot: Slot) -> Result<Evidence> {
        let mut evidence = self.there(move |residents| residents.evidence(slot))??;
        if evidence.whereabouts.is_empty() {
            let sharing = if self.placed.yields { ", shared with others" } else { "" };
            evidence.whereabouts = format!("thread {} on {}{sharing}", self.thread(), self.core);
        }
        Ok(evidence)
    }
}

impl Drop for CoreSite {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        // The thread ends as it finds the queue closed. An errand to wake it might be taken before it sleeps.
        self.errands = mpsc::channel().0;
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait_for(word: &AtomicBool) {
        while !word.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    }

    /// `stop` is set after the thread has looked at it and before the thread waits for the next errand.
    #[test]
    fn a_site_ends_whatever_its_thread_is_about_to_do() {
        let core = linux::affinity::allowed().unwrap()[0];
        let (site, _beside) = CoreSite::open(core, Instant::now(), Arc::new(|_| {})).unwrap();
        let (shared, second_is_there) = (site.shared.clone(), site.shared.clone());
        // The second errand is taken by a thread that is awake, and lasts until the site is being dropped.
        let first = move |_: &mut Residents| wait_for(&second_is_there.errand);
        let second = move |_: &mut Residents| {
            wait_for(&shared.stop);
            std::thread::sleep(Duration::from_millis(20));
        };
        site.errands.send(Box::new(first)).unwrap();
        site.errands.send(Box::new(second)).unwrap();
        site.shared.errand.store(true, Ordering::Release);
        let (ended, end) = mpsc::channel();
        std::thread::spawn(move || {
            drop(site);
            ended.send(())
        });
        end.recv_timeout(TIMEOUT).expect("the site's thread has ended");
    }
}
