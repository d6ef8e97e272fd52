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
//! as = "left"                                   # the instance's name, where there are several; else the package's
//! version = ">=1.2, <2"                         # the versions that will do; else any
//! peers = { reporter = "left-report" }          # which instance meets a peer that its manifest requires
//! at = "core:1"                                 # the user's own choice of place
//! rate = 50000                                  # calls a second by the application
//! attributes = { OFFLOAD_PRIORITY = 300 }
//!
//! [[channel]]                                   # created by `from`, then the offcodes of `to` are attached
//! name = "frames"
//! from = "application"                          # or an instance
//! to = ["left"]
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

use machine::{Bytes, Fault, Result, Site, SiteInMode};
use offcode::{Attributes, Specification};

use crate::instance;
use crate::objective::Objective;
use crate::wanted::Wanted;

/// Larger files are refused unread.
pub const LARGEST: Bytes = Bytes(1 << 20);

/// An application file that is consistent in itself; whether its offcodes and sites exist is known later.
#[derive(Debug, Clone, PartialEq)]
pub struct AppFile {
    pub name: String,
    /// Folders of packages, resolved against the file's folder.
    pub depots: Vec<PathBuf>,
    pub sites: Sites,
    /// The offcodes that it requires.
    pub offcodes: Vec<Wanted>,
    pub channels: Vec<NamedChannel>,
    pub agents: BTreeMap<String, Agent>,
    pub capacities: BTreeMap<Site, Capacity>,
    pub duration: Option<Duration>,
    /// The application ends once its offcodes were given so many calls and messages, together.
    pub count: Option<u64>,
    /// The objective of its plan.
    pub objective: Objective,
}

/// The sites that may be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sites {
    /// `app`, every core that this process may use, and the agents of the file. A driver hook has to be named, since a
    /// program there decides about the traffic of an interface that others may need.
    All,
    Named(Vec<SiteInMode>),
}

/// A specialized channel (HYDRA section 1.3.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedChannel {
    pub name: String,
    pub from: Party,
    pub to: Vec<Party>,
    pub specification: Specification,
    /// Position in the file: 'APP.toml:12:1'.
    pub place: String,
    /// Messages a second; 0: unknown.
    pub rate: u64,
}

/// The party at an end of a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Party {
    Application,
    /// An offcode by its instance's name, or by package name or GUID where that has one instance.
    Offcode(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// Address as HOST:PORT.
    pub address: String,
    /// The folder with the client's certificate, its key and the authority; `None` for the user's own.
    pub keys: Option<PathBuf>,
}

/// The capacity of a site, where it is not the usual one.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Capacity {
    /// Load that the site takes, in cores.
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

    /// Places an instance that the file creates: 'INSTANCE=SITE', with the site as the file would write it.
    ///
    /// # Errors
    /// The file creates no such instance; no site, or one in another mode than the file says.
    pub fn place(&mut self, text: &str) -> Result<()> {
        let refuse = |cause: String, next: &str| Err(Fault::new(format!("place '{text}'"), cause, next));
        let Some((wanted, at)) = text.split_once('=') else {
            return refuse(
                "it is not of the form INSTANCE=SITE".into(),
                "write it like plimsoll.filter=xdp:eth0:native",
            );
        };
        let creation = self.entry(wanted).map_err(|fault| fault.within(format!("place '{text}'")))?;
        let chosen: SiteInMode = at.parse()?;
        self.offcodes[creation].pin = Some(chosen.site.clone());
        match &mut self.sites {
            Sites::Named(sites) => match sites.iter().find(|one| one.site == chosen.site) {
                Some(one) if chosen.mode.is_some() && one.runs_in() != chosen.mode => {
                    return refuse("the file names this hook in another mode".into(), "change one of the two");
                }
                Some(_) => {}
                None => sites.push(chosen),
            },
            Sites::All if chosen.site.kind().is_hook() => {
                return refuse("the file says \"all\", which has no hooks".into(), "name its sites in the file");
            }
            Sites::All => {}
        }
        Ok(())
    }

    /// Sets an attribute of an instance that the file creates: 'INSTANCE.NAME=VALUE'. Of two instances whose names fit the
    /// longer is meant.
    ///
    /// # Errors
    /// The file creates no such instance; a value that a predefined attribute cannot have.
    pub fn set(&mut self, text: &str) -> Result<()> {
        let outer = || format!("attribute '{text}'");
        let Some((left, value)) = text.split_once('=') else {
            let cause = "it is not of the form INSTANCE.NAME=VALUE";
            return Err(Fault::new(outer(), cause, "write it like plimsoll.filter.OFFLOAD_PRIORITY=300"));
        };
        let dots = left.rmatch_indices('.').map(|(at, _)| (&left[..at], &left[at + 1..]));
        let mut fits =
            dots.filter(|(instance, name)| !name.is_empty() && self.offcodes.iter().any(|of| of.is(instance)));
        let Some((instance, name)) = fits.next() else {
            let cause = format!("the file creates no instance whose name and a dot '{left}' begins with");
            return Err(Fault::new(outer(), cause, "name one of its [[offcode]] entries, then the attribute"));
        };
        let entry = self.entry(instance).map_err(|fault| fault.within(outer()))?;
        let Wanted { attributes: set, places, .. } = &mut self.offcodes[entry];
        let mut attributes = Attributes::default();
        for (name, value) in set.iter().map(|(name, value)| (name.as_str(), value.as_str())).chain([(name, value)]) {
            attributes.set(name, value).map_err(|fault| fault.within(outer()))?;
        }
        *set = attributes.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        places.retain(|(attribute, _)| attribute != name);
        places.push((name.to_owned(), format!("--set {left}")));
        Ok(())
    }

    /// The index of an [[offcode]] entry, found by its instance's name or what it creates.
    fn entry(&self, wanted: &str) -> Result<usize> {
        if let Some(named) = self.offcodes.iter().position(|creation| creation.name() == wanted) {
            return Ok(named);
        }
        let fitting: Vec<usize> = (0..self.offcodes.len()).filter(|&n| self.offcodes[n].is(wanted)).collect();
        match fitting.as_slice() {
            [one] => Ok(*one),
            [] => {
                let names: Vec<&str> = self.offcodes.iter().map(Wanted::name).collect();
                let cause = format!("the file creates no such instance; it creates {}", instance::listed(&names));
                Err(Fault::new(format!("offcode {wanted}"), cause, "name one of its [[offcode]] entries"))
            }
            several => {
                let names: Vec<&str> = several.iter().map(|&n| self.offcodes[n].name()).collect();
                let cause = format!("it fits several instances: {}", instance::listed(&names));
                Err(Fault::new(format!("offcode {wanted}"), cause, "name one of these"))
            }
        }
    }

    /// `path` is what relative paths are resolved against and what faults name.
    pub fn parse(text: &str, path: &Path) -> Result<AppFile> {
        read::parse(text, path)
    }
}
