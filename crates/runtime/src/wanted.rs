//! An offcode that an application asks for.

use machine::{Result, Site};
use offcode::manifest::VersionReq;

use crate::closure;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Name or GUID of the package.
    pub offcode: String,
    /// Name of the instance; `None`: the package's.
    pub instance: Option<String>,
    /// The versions that will do; `None`: any.
    pub version: Option<VersionReq>,
    /// Which instance meets a peer that the manifest requires: the peer's name there, and the instance's.
    pub peers: Vec<(String, String)>,
    pub attributes: Vec<(String, String)>,
    /// Where attributes are written, by their names: 'APP.toml:9:21'. For faults.
    pub places: Vec<(String, String)>,
    /// The user's own choice of place.
    pub pin: Option<Site>,
    /// Calls a second by the application; 0: unknown.
    pub rate: u64,
}

impl Wanted {
    pub fn new(offcode: impl Into<String>) -> Wanted {
        Wanted { offcode: offcode.into(), ..Wanted::default() }
    }

    /// As one instance of several.
    pub fn named(mut self, instance: impl Into<String>) -> Wanted {
        self.instance = Some(instance.into());
        self
    }

    /// With this instance as the peer that the manifest calls `peer`.
    pub fn meeting(mut self, peer: &str, instance: &str) -> Wanted {
        self.peers.push((peer.into(), instance.into()));
        self
    }

    /// In one of these versions, as `>=1.2, <2`.
    ///
    /// # Errors
    /// The text is no range of versions.
    pub fn version(mut self, versions: &str) -> Result<Wanted> {
        self.version = Some(closure::versions(versions)?);
        Ok(self)
    }

    pub fn with(mut self, attribute: &str, value: impl ToString) -> Wanted {
        self.attributes.push((attribute.into(), value.to_string()));
        self
    }

    pub fn at(mut self, site: Site) -> Wanted {
        self.pin = Some(site);
        self
    }

    /// The instance's name, as far as it is told: of one without a name of its own what is to be created.
    pub fn name(&self) -> &str {
        self.instance.as_ref().unwrap_or(&self.offcode)
    }

    pub(crate) fn is(&self, wanted: &str) -> bool {
        self.name() == wanted || self.offcode == wanted
    }
}
