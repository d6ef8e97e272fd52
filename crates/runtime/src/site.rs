//! What every kind of site does for the runtime: it takes bodies, runs them, joins channels to them and proves it.

pub mod agent;
pub mod app;
mod body;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod core;
pub mod evidence;
pub mod residents;
pub mod xdp;

use std::sync::Arc;

use machine::{BodyKind, Result, Site};
use offcode::registry::Constructor;
use offcode::{Activity, Attributes, Channel, ChannelId, Manifest, Specification};

use crate::layout::Ground;
pub use evidence::Evidence;

/// The form of the code that a site gets.
#[derive(Clone)]
pub enum Code {
    Native(Constructor),
    /// The module's bytes.
    Wasm(Arc<[u8]>),
    /// The same, compiled: see [`SiteDriver::preparation`].
    Compiled(wasm::Module),
    /// The ELF object's bytes.
    Bpf(Arc<[u8]>),
}

impl Code {
    pub fn kind(&self) -> BodyKind {
        match self {
            Code::Native(_) => BodyKind::Native,
            Code::Wasm(_) | Code::Compiled(_) => BodyKind::Wasm,
            Code::Bpf(_) => BodyKind::Bpf,
        }
    }
}

/// Makes of code what takes the site less time to deploy.
pub type Preparation = fn(Code) -> Result<Code>;

/// One offcode to deploy.
#[derive(Clone)]
pub struct Deployment {
    /// Unique within the runtime.
    pub name: String,
    pub manifest: Arc<Manifest>,
    pub code: Code,
    pub attributes: Attributes,
}

/// A deployed offcode as one site numbers its own; never used again after [`SiteDriver::remove`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u32);

/// A site. Methods may take milliseconds; none waits for traffic.
///
/// The order for one slot: `deploy`, any number of `connect` and `adopt`, `initialize`, `start`, then any; `remove` at any
/// time. A fault of `deploy`, `initialize` or `start` leaves the slot as it was; the runtime then removes it.
pub trait SiteDriver: Send {
    fn site(&self) -> &Site;

    /// What the site offers to a layout.
    fn ground(&self) -> Ground {
        Ground::of(self.site().clone())
    }

    /// What may be done with code on any thread before it is deployed, so that the site's own goes on meanwhile.
    fn preparation(&self) -> Preparation {
        Ok
    }

    /// Takes the code in: links, compiles or verifies it. Nothing of it runs yet.
    fn deploy(&mut self, deployment: Deployment) -> Result<Slot>;

    /// First phase.
    fn initialize(&mut self, slot: Slot) -> Result<()>;

    /// Second phase.
    fn start(&mut self, slot: Slot) -> Result<()>;

    /// Makes a channel to the offcode: builds the far endpoint here, tells the offcode of it under `name`, and returns
    /// the near endpoint, which any thread of this process may use. The empty name is the out-of-band channel.
    fn connect(&mut self, slot: Slot, name: &str, specification: Specification) -> Result<Box<dyn Channel>>;

    /// Gives the offcode an endpoint that another site made. [`SiteDriver::adopts`] says whether that can work.
    fn adopt(&mut self, slot: Slot, name: &str, end: Box<dyn Channel>) -> Result<ChannelId>;

    /// Whether offcodes here can use endpoints that live in this process.
    fn adopts(&self) -> bool;

    fn set_attribute(&mut self, slot: Slot, name: &str, value: &str) -> Result<()>;

    /// Calls `stop` if it was started, and takes the code out. Removing what is not there is no fault.
    fn remove(&mut self, slot: Slot) -> Result<()>;

    /// What proves that the offcode works here, counted by the site or the kernel.
    fn evidence(&mut self, slot: Slot) -> Result<Evidence>;

    /// The caller's thread gives the site time. Only `app` needs it; others may use it for housekeeping.
    fn turn(&mut self) -> Result<Activity> {
        Ok(Activity::Idle)
    }
}
