//! Application files: what `plimsoll run APP.toml` creates and `plimsoll plan APP.toml` lays out.
//!
//! ```toml
//! name = "packets"
//! depots = ["depot"]                            # folders of packages, relative to this file
//! sites = ["app", "core:1", "xdp:veth0:native"] # which may be used, or "all"
//! duration = "10 s"                             # both limits are optional: whichever comes first
//! count = 1000000                               # calls and messages that its offcodes were given, together
//! objective = "host-cpu"                        # what the plan keeps small; or "latency", "spare=core:0"
//!
//! [[offcode]]                                   # the offcodes that the application itself requires
//! create = "example.filter"                     # by package name or GUID
//! at = "core:1"                                 # the user's own choice of place
//! rate = 50000                                  # calls a second by the application
//! attributes = { OFFLOAD_PRIORITY = 300 }
//!
//! [[channel]]                                   # created by `from`, then the offcodes of `to` are attached
//! name = "frames"
//! from = "application"                          # or an offcode
//! to = ["example.filter"]
//! rate = 100000
//! cast = "unicast"                              # these as in an ODF, with the same defaults
//! delivery = "reliable"
//! synchronization = "poll"
//! content = "messages"
//! buffers = 64
//! buffer-size = "4 KiB"
//! policy = "any"
//!
//! [agents.dpu-1]                                # for agent:dpu-1, agent:dpu-1/core:2, agent:dpu-1/xdp:eth0:native
//! address = "192.0.2.7:7117"
//! keys = "keys"                                 # the folder that `plimsoll agent keys` made
//!
//! [capacities."core:1"]                         # less, or more, than a site's usual
//! load = 0.8
//! memory = "64 MiB"
//! offcodes = 4
//! ```

mod read;
mod written;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use machine::{Bytes, Fault, Result, Site, SiteKind, XdpMode};
use offcode::Specification;

use crate::create::Wanted;
use crate::objective::Objective;

/// Larger files are refused unread.
pub const LARGEST: Bytes = Bytes(1 << 20);

/// An application file that makes sense by itself; whether its offcodes and sites exist is known later.
#[derive(Debug, Clone, PartialEq)]
pub struct AppFile {
    pub name: String,
    /// Resolved against the file's folder.
    pub depots: Vec<PathBuf>,
    pub sites: Sites,
    pub offcodes: Vec<Creation>,
    pub channels: Vec<NamedChannel>,
    pub agents: BTreeMap<String, Agent>,
    pub capacities: BTreeMap<Site, Capacity>,
    pub duration: Option<Duration>,
    /// The application ends once its offcodes were given so many calls and messages, together.
    pub count: Option<u64>,
    /// What its plan keeps small.
    pub objective: Objective,
}

/// Which sites may be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sites {
    /// `app`, every core that this process may use, and the agents of the file. A driver hook has to be named, since a
    /// program there decides about the traffic of an interface that others may need.
    All,
    Named(Vec<Chosen>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    pub site: Site,
    /// The mode at a driver hook, and only there.
    pub mode: Option<XdpMode>,
}

/// An offcode that the application requires directly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Creation {
    /// Package name or GUID.
    pub offcode: String,
    pub attributes: Vec<(String, String)>,
    /// The user's own choice.
    pub pin: Option<Site>,
    /// Calls a second by the application; 0: unknown.
    pub rate: u64,
}

/// A specialized channel (HYDRA section 1.3.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedChannel {
    pub name: String,
    pub from: Party,
    pub to: Vec<Party>,
    pub specification: Specification,
    /// Where it is written: 'APP.toml:12:1'.
    pub place: String,
    /// Messages a second; 0: unknown.
    pub rate: u64,
}

/// Who is at an end of a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Party {
    Application,
    /// Package name or GUID.
    Offcode(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// HOST:PORT.
    pub address: String,
    /// The folder with the client's certificate, its key and the authority; `None` for the user's own.
    pub keys: Option<PathBuf>,
}

/// What a site may take, where it is not the usual.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Capacity {
    /// The load that the site takes, in cores.
    pub load: Option<f64>,
    pub memory: Option<Bytes>,
    pub offcodes: Option<usize>,
}

impl AppFile {
    /// # Errors
    /// The file cannot be read, or the first mistake in it, with its line and column.
    pub fn open(path: &Path) -> Result<AppFile> {
        read::open(path)
    }

    /// What it asks a runtime for.
    pub fn wanted(&self) -> Vec<Wanted> {
        let wanted = |creation: &Creation| Wanted {
            offcode: creation.offcode.clone(),
            attributes: creation.attributes.clone(),
            pin: creation.pin.clone(),
            rate: creation.rate,
        };
        self.offcodes.iter().map(wanted).collect()
    }

    /// Places an offcode that the file creates: 'OFFCODE=SITE', with the site as the file would write it.
    ///
    /// # Errors
    /// The file creates no such offcode; no site, or one in another mode than the file says.
    pub fn place(&mut self, text: &str) -> Result<()> {
        let refuse = |cause: String, next: &str| Err(Fault::new(format!("place '{text}'"), cause, next));
        let Some((wanted, at)) = text.split_once('=') else {
            return refuse(
                "it is not of the form OFFCODE=SITE".into(),
                "write it like plimsoll.filter=xdp:eth0:native",
            );
        };
        let Some(creation) = self.offcodes.iter_mut().find(|creation| creation.offcode == wanted) else {
            return refuse(format!("the file creates no offcode {wanted}"), "name one of its [[offcode]] entries");
        };
        let chosen = Chosen::read(at)?;
        creation.pin = Some(chosen.site.clone());
        match &mut self.sites {
            Sites::Named(sites) => match sites.iter().find(|one| one.site == chosen.site) {
                Some(one) if one.mode != chosen.mode => {
                    return refuse("the file names this hook in another mode".into(), "change one of the two");
                }
                Some(_) => {}
                None => sites.push(chosen),
            },
            Sites::All if chosen.site.kind() == SiteKind::Xdp => {
                return refuse("the file says \"all\", which has no driver hook".into(), "name its sites in the file");
            }
            Sites::All => {}
        }
        Ok(())
    }

    /// `path` is what relative paths are resolved against and what faults name.
    pub fn parse(text: &str, path: &Path) -> Result<AppFile> {
        read::parse(text, path)
    }
}
