//! The offer of a site to a layout.

use linux::xdp::{MOST_STAGES, Point};
use machine::bounds::SITE_FRAME;
use machine::{Bytes, CoreId, Site, SiteKind, XdpMode};
use offcode::manifest::Digest;
use offcode::service::{MAPS, MEMORY, TIMERS};
use offcode::{Guid, Service};
use placement::layout::Load;
use serde::{Deserialize, Serialize};

/// The offer of one site. Known without opening it, so that a plan can be made for sites that are not up.
#[derive(Debug, Clone, PartialEq)]
pub struct Ground {
    pub site: Site,
    /// The driver mode, at `xdp` only.
    pub mode: Option<XdpMode>,
    pub capacity: Load,
    pub memory: Bytes,
    pub slots: usize,
    /// Most bytes of the buffers of one channel, at an agent.
    pub buffers: Bytes,
    /// Cores of this host that may do the site's work; `None`: any.
    pub cores: Option<Vec<CoreId>>,
    /// Services of the site's runtime, beyond the basic ones.
    pub environment: Vec<Service>,
    /// Native bodies that an agent runs; `None`: not known.
    pub native: Option<NativeBodies>,
    /// The reason why nothing can be there now: no such core, not permitted.
    pub closed: Option<String>,
}

/// The native bodies that an agent runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NativeBodies {
    /// Packages whose body is linked in.
    pub linked: Vec<Guid>,
    /// Libraries of packages that it may load.
    pub libraries: Vec<Digest>,
}

impl Ground {
    /// The ground of a site with the usual capacities of its kind.
    pub fn of(site: Site) -> Ground {
        let (mode, slots) = match site.kind() {
            SiteKind::Xdp => (Some(XdpMode::Native), Point::Xdp(XdpMode::Native).most()),
            SiteKind::Tc => (None, MOST_STAGES),
            _ => (None, 1024),
        };
        let (capacity, memory, buffers) = (Load(1.0), Bytes(1 << 30), SITE_FRAME.each.bytes());
        let cores = match &site {
            Site::Core(core) => Some(vec![*core]),
            Site::Agent(_) => Some(Vec::new()),
            Site::App | Site::Xdp(_) | Site::Tc(..) => None,
        };
        let environment = offered(site.kind());
        Ground { site, mode, capacity, memory, slots, buffers, cores, environment, native: None, closed: None }
    }
}

/// The services that this build offers at sites of a kind.
pub fn offered(kind: SiteKind) -> Vec<Service> {
    match kind {
        SiteKind::Xdp | SiteKind::Tc => vec![MEMORY, MAPS],
        SiteKind::App | SiteKind::Core | SiteKind::Agent => vec![TIMERS, MEMORY, MAPS],
    }
}
