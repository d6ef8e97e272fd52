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
    /// Acceptable versions; `None`: any.
    pub version: Option<VersionReq>,
    /// Instances that meet peers: the peer's name in the manifest, and the instance's.
    pub peers: Vec<(String, String)>,
    pub attributes: Vec<(String, String)>,
    /// Source positions of attributes, by their names, for faults: 'APP.toml:9:21'.
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

    /// Sets the instance's name.
    pub fn named(mut self, instance: impl Into<String>) -> Wanted {
        self.instance = Some(instance.into());
        self
    }

    /// Takes this instance as the peer that the manifest calls `peer`.
    pub fn meeting(mut self, peer: &str, instance: &str) -> Wanted {
        self.peers.push((peer.into(), instance.into()));
        self
    }

    /// Restricts the versions, as `>=1.2, <2`.
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

    /// The instance's name, or else what is to be created.
    pub fn name(&self) -> &str {
        self.instance.as_ref().unwrap_or(&self.offcode)
    }

    pub(crate) fn is(&self, wanted: &str) -> bool {
        self.name() == wanted || self.offcode == wanted
    }
}
