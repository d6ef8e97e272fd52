//! What every kind of site does for the runtime: it takes bodies, runs them, joins channels to them and proves it.

mod account;
pub mod agent;
pub mod app;
mod body;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod core;
pub(crate) mod end;
mod memory;
pub mod residents;
pub mod xdp;

use std::sync::Arc;
use std::time::Duration;

use linux::doorbell::Sleep;
use linux::xdp::{Dump, SharedWords};
use machine::{Fault, Result, Site};
use offcode::{Activity, Attributes, Channel, ChannelId, Manifest, Specification, State, attribute};

use crate::code::Code;
use crate::ground::Ground;
pub use crate::trace::Trace;
pub use account::Client;
pub use attach::evidence::{self, Evidence};
pub use end::{EndAt, Ends, OUT_OF_BAND};
pub use memory::{Memory, Names};

/// Entries of a map that are shown to people, and bytes of text that they take; an answer of the control socket is twice as long.
const SHOWN_ENTRIES: usize = 512;
const SHOWN_BYTES: usize = 32 << 10;

/// Transforms code into a form that the site deploys in less time.
pub type Preparation = fn(Code) -> Result<Code>;

/// One offcode to deploy.
#[derive(Clone)]
pub struct Deployment {
    /// Unique within the runtime.
    pub name: String,
    pub manifest: Arc<Manifest>,
    pub code: Code,
    pub attributes: Attributes,
    pub memory: Memory,
}

/// A deployed offcode as one site numbers its own; never used again after [`SiteDriver::remove`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u32);

/// The reason why an offcode does not begin.
#[derive(Debug)]
pub struct Unfit {
    /// The attribute that it refuses, if that is the reason.
    pub attribute: Option<String>,
    pub fault: Fault,
}

impl From<Unfit> for Fault {
    fn from(unfit: Unfit) -> Fault {
        unfit.fault
    }
}

/// The first phase of an offcode, which is then told of each attribute that it has. A program of a hook has them as its
/// variables since it was deployed.
///
/// # Errors
/// The first phase fails, or the offcode refuses an attribute.
pub fn begin(site: &mut dyn SiteDriver, slot: Slot, attributes: &Attributes) -> Result<(), Unfit> {
    site.initialize(slot).map_err(|fault| Unfit { attribute: None, fault })?;
    if site.site().kind().is_hook() || site.site().is_hook_of_agent() {
        return Ok(());
    }
    for (name, value) in attributes.iter().filter(|(name, _)| !attribute::is_predefined(name)) {
        let unfit = |fault| Unfit { attribute: Some(name.to_owned()), fault };
        site.set_attribute(slot, name, value).map_err(unfit)?;
    }
    Ok(())
}

/// A site. Methods may take milliseconds; none waits for traffic.
///
/// The order for one slot: `deploy`, any number of `connect` and `adopt`, `initialize`, `start`, then any; `remove` at any
/// time. A fault of `deploy`, `initialize` or `start` leaves the slot as it was; the runtime then removes it.
pub trait SiteDriver: Send {
    fn site(&self) -> &Site;

    /// The offer of the site to a layout.
    fn ground(&self) -> Ground {
        Ground::of(self.site().clone())
    }

    /// Preparation of code that any thread may do before the deployment, so that the site's own goes on meanwhile.
    fn preparation(&self) -> Preparation {
        Ok
    }

    /// Takes the code in: links, compiles or verifies it. Nothing of it runs yet.
    fn deploy(&mut self, deployment: Deployment) -> Result<Slot>;

    /// Counts what an offcode takes here as its client's, and gives it no turns while the client has had its share of the
    /// thread. `false`: the site does neither.
    fn charge(&mut self, _slot: Slot, _client: &Client) -> Result<bool> {
        Ok(false)
    }

    /// First phase; see [`begin`].
    fn initialize(&mut self, slot: Slot) -> Result<()>;

    /// Second phase.
    fn start(&mut self, slot: Slot) -> Result<()>;

    /// Makes a channel to the offcode: builds the far endpoint here, tells the offcode of it under `name`, and returns
    /// the near endpoint, which any thread of this process may use. The empty name is the out-of-band channel.
    fn connect(&mut self, slot: Slot, name: &str, specification: Specification) -> Result<Box<dyn Channel>>;

    /// Gives the offcode an endpoint that another site made. Only where offcodes can map memory of this process.
    fn adopt(&mut self, slot: Slot, name: &str, end: Box<dyn Channel>) -> Result<ChannelId>;

    /// Identity of the connection that several sites share, if one does: these join their offcodes themselves.
    fn connection(&self) -> Option<usize> {
        None
    }

    /// Joins an offcode here to one of a site with the same [`SiteDriver::connection`], each by its own name for the channel.
    fn join_here(&mut self, ends: [(Slot, &str); 2], _specification: Specification) -> Result<()> {
        let subject = format!("channel '{}' at {}", ends[0].1, self.site());
        Err(Fault::new(subject, "its ends are not joined by this site", "let the runtime join them"))
    }

    /// Tells the offcode of a new value.
    ///
    /// # Errors
    /// The offcode does not take the value, and has the one that it had.
    fn set_attribute(&mut self, slot: Slot, name: &str, value: &str) -> Result<()>;

    /// Calls `stop` if it was started, and takes the code out. Removing what is not there is no fault.
    fn remove(&mut self, slot: Slot) -> Result<()>;

    /// Ends the offcode's turns and returns what it saves. It stays, with its channels, until [`SiteDriver::resume`] or
    /// [`SiteDriver::remove`]; messages for it wait.
    fn suspend(&mut self, slot: Slot) -> Result<State> {
        Err(stays(self.site(), slot))
    }

    /// Follows `initialize` and the channels, in place of `start`: what another body of the offcode has saved. Its turns
    /// begin with [`SiteDriver::resume`].
    fn restore(&mut self, slot: Slot, state: &State) -> Result<()> {
        let _ = state;
        Err(stays(self.site(), slot))
    }

    /// Resumes an offcode that is suspended or was restored.
    fn resume(&mut self, slot: Slot) -> Result<()> {
        Err(stays(self.site(), slot))
    }

    /// The offcode's ends of its channels, by their numbers; the first is out of band.
    fn ends(&mut self, slot: Slot) -> Result<Vec<EndAt>> {
        Err(stays(self.site(), slot))
    }

    /// Takes out the ends of an offcode that does not run. Only where offcodes can map memory of this process.
    fn surrender(&mut self, slot: Slot) -> Result<Ends> {
        Err(stays(self.site(), slot))
    }

    /// Gives an offcode the ends that another site has surrendered; on a fault they stay in `ends`.
    fn receive(&mut self, slot: Slot, ends: &mut Ends) -> Result<()> {
        let _ = ends;
        Err(stays(self.site(), slot))
    }

    /// Words that the offcode shares, or a shared array of its object, as memory that an application works with in place.
    fn shared(&self, _slot: Slot, words: &str) -> Result<SharedWords> {
        let subject = format!("words {words} at {}", self.site());
        Err(Fault::new(subject, "memory there is another host's", "place the offcode on this host, or use a channel"))
    }

    /// The evidence of the offcode's work here, counted by the site or the kernel.
    fn evidence(&mut self, slot: Slot) -> Result<Evidence>;

    /// Why the site is gone for good, with what was there; its channels are abandoned and its methods fault.
    fn lost(&self) -> Option<Fault> {
        None
    }

    /// The entries of a map of the offcode, or of a variable of its object, for people.
    fn map(&mut self, _slot: Slot, name: &str) -> Result<Dump> {
        let cause = "what offcodes here hold is not seen from outside";
        Err(Fault::new(format!("{}: {name}", self.site()), cause, "ask the offcode by a call"))
    }

    /// Starts or ends noting the calls that the offcode gets over channels. `false`: they are not seen here.
    fn trace(&mut self, _slot: Slot, _trace: Option<Trace>) -> bool {
        false
    }

    /// Before the thread that gives the site time sleeps: has what the site's turns would find end the sleep, which lasts
    /// `turn` at most where offcodes have turns of their own. `false`, as by default: there is something already, or only a
    /// turn can tell.
    fn arm(&mut self, _sleep: &mut Sleep, _turn: Duration) -> bool {
        false
    }

    /// Polls the site in the caller's thread. Only `app` needs it; others may use it for housekeeping.
    fn turn(&mut self) -> Result<Activity> {
        Ok(Activity::Idle)
    }
}

fn stays(site: &Site, slot: Slot) -> Fault {
    let subject = format!("{site}: slot {}", slot.0);
    Fault::new(subject, "offcodes at this site stay where they are", "stop it, and create it elsewhere")
}
