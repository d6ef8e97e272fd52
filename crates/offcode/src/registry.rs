//! The offcodes that are linked into this program.

use std::sync::Arc;

use machine::{Fault, Result, SiteKind};

use crate::common_interface::Offcode;
use crate::guid::Guid;
use crate::manifest::Manifest;

/// The constants and the manifest that `#[offcode]` generates for a type.
#[diagnostic::on_unimplemented(message = "`{Self}` is no offcode", note = "put #[offcode(...)] on the type")]
pub trait Described {
    /// The offcode's identifier.
    const GUID: Guid;
    /// Identifiers of the interfaces that the type serves.
    const INTERFACES: &'static [Guid];
    /// The [`crate::signature`] of the interfaces with their methods.
    const SIGNATURE: u64;

    /// The manifest.
    fn manifest() -> Manifest;

    /// Source position of the manifest, as 'src/filter.rs:12'; `None` where that is not known.
    fn place() -> Option<&'static str> {
        None
    }
}

/// Makes an instance of a linked-in type.
pub type Constructor = Arc<dyn Fn() -> Box<dyn Offcode> + Send + Sync>;

/// Linked-in types by GUID. An offcode may have several, each for kinds of site of its own.
///
/// ```
/// # use offcode::{Lifecycle, Registry, interface, offcode};
/// # use machine::SiteKind;
/// #[interface(guid = "3d0c6a0e-6b32-4b55-9a0e-5cf0a5a1f001")]
/// trait Sender {
///     fn send(&mut self, count: u64);
/// }
///
/// #[offcode(guid = "3d0c6a0e-6b32-4b55-9a0e-5cf0a5a1f002", name = "example.sender", version = "1.0.0",
///           implements(Sender), sites(app, core))]
/// #[derive(Default)]
/// struct SocketSender;
///
/// /// The same offcode, by other means.
/// #[offcode(body_of = SocketSender, implements(Sender))]
/// #[derive(Default)]
/// struct PollingSender;
/// # impl Sender for SocketSender { fn send(&mut self, _: u64) {} }
/// # impl Sender for PollingSender { fn send(&mut self, _: u64) {} }
/// # impl Lifecycle for SocketSender {}
/// # impl Lifecycle for PollingSender {}
///
/// let registry = Registry::new().with::<SocketSender>().with_at::<PollingSender>(&[SiteKind::Core]);
/// assert_eq!(registry.manifests()?.len(), 1);
/// # Ok::<(), machine::Fault>(())
/// ```
#[derive(Clone, Default)]
pub struct Registry {
    entries: Vec<Entry>,
    /// The first clash; every later use of the registry faults with it.
    clash: Option<(String, String)>,
}

#[derive(Clone)]
struct Entry {
    manifest: Arc<Manifest>,
    place: Option<&'static str>,
    interfaces: &'static [Guid],
    bodies: Vec<Native>,
}

#[derive(Clone)]
struct Native {
    type_name: &'static str,
    /// Kinds of site; `None`: every kind for which no other body is named.
    sites: Option<Vec<SiteKind>>,
    constructor: Constructor,
}

impl Registry {
    /// A registry without types.
    pub fn new() -> Self {
        Registry::default()
    }

    /// Adds a type that serves its offcode at every kind of site for which no other type was added.
    pub fn with<T: Offcode + Described + Default + 'static>(self) -> Self {
        self.add::<T>(None)
    }

    /// Adds a type that serves its offcode at these kinds of site.
    pub fn with_at<T: Offcode + Described + Default + 'static>(self, sites: &[SiteKind]) -> Self {
        self.add::<T>(Some(sites.to_vec()))
    }

    fn add<T: Offcode + Described + Default + 'static>(mut self, sites: Option<Vec<SiteKind>>) -> Self {
        let manifest = T::manifest();
        let body =
            Native { type_name: std::any::type_name::<T>(), sites, constructor: Arc::new(|| Box::new(T::default())) };
        let cause = match self.entries.iter_mut().find(|entry| entry.manifest.package.guid == T::GUID) {
            None => self.newcomer_clash(&manifest).or_else(|| {
                self.entries.push(Entry {
                    manifest: Arc::new(manifest.clone()),
                    place: T::place(),
                    interfaces: T::INTERFACES,
                    bodies: vec![body],
                });
                None
            }),
            Some(entry) => entry.clash(&manifest, &body, T::INTERFACES).or_else(|| {
                entry.bodies.push(body);
                None
            }),
        };
        if let (Some(cause), None) = (cause, &self.clash) {
            self.clash = Some((format!("linked-in type {}", std::any::type_name::<T>()), cause));
        }
        self
    }

    fn newcomer_clash(&self, manifest: &Manifest) -> Option<String> {
        let known = || self.entries.iter().map(|entry| &entry.manifest.package);
        if let Some(twin) = known().find(|package| package.name == manifest.package.name) {
            return Some(format!("another offcode, {}, is also called {}", twin.guid, twin.name));
        }
        // A call's header carries half a GUID only.
        manifest.package.interfaces.iter().find_map(|ours| {
            let mut others = known().flat_map(|package| &package.interfaces);
            let twin = others.find(|it| it.guid.short() == ours.guid.short() && *it != ours)?;
            Some(format!("its interface {} and another, {}, have GUIDs that are too alike: the exclusive or of their halves is the same", ours.name, twin.name))
        })
    }

    fn checked(&self) -> Result<&[Entry]> {
        match &self.clash {
            None => Ok(&self.entries),
            Some((subject, cause)) => Err(Fault::new(
                subject.clone(),
                cause.clone(),
                "give each offcode a GUID and a name of its own (`uuidgen` prints one), and each of its types its own sites",
            )),
        }
    }

    /// One manifest for each offcode, in the order in which they were added.
    ///
    /// # Errors
    /// Two types that clash.
    pub fn manifests(&self) -> Result<Vec<Arc<Manifest>>> {
        Ok(self.checked()?.iter().map(|entry| entry.manifest.clone()).collect())
    }

    /// Source position of a linked-in offcode's manifest, where its type states it.
    pub fn place(&self, offcode: &Guid) -> Option<&'static str> {
        self.entries.iter().find(|entry| entry.manifest.package.guid == *offcode)?.place
    }

    /// The constructor of the offcode for a kind of site; `None` where no type was added for it.
    ///
    /// # Errors
    /// Two types that clash.
    pub fn constructor(&self, offcode: &Guid, site: SiteKind) -> Result<Option<Constructor>> {
        let Some(entry) = self.checked()?.iter().find(|entry| entry.manifest.package.guid == *offcode) else {
            return Ok(None);
        };
        let named = entry.bodies.iter().find(|body| body.sites.as_ref().is_some_and(|sites| sites.contains(&site)));
        let body = named.or_else(|| entry.bodies.iter().find(|body| body.sites.is_none()));
        Ok(body.map(|body| body.constructor.clone()))
    }
}

impl Entry {
    /// Why this type cannot be one more body of the offcode.
    fn clash(&self, manifest: &Manifest, body: &Native, interfaces: &[Guid]) -> Option<String> {
        if *self.manifest != *manifest {
            let package = &self.manifest.package;
            return Some(format!("offcode {} has the same GUID, {}, and another manifest", package.name, package.guid));
        }
        if self.interfaces != interfaces {
            return Some(format!(
                "it does not implement the interfaces of {}, or in another order",
                self.bodies[0].type_name
            ));
        }
        self.bodies.iter().find_map(|other| match (&other.sites, &body.sites) {
            (None, None) => Some(format!("{} already serves this offcode at every kind of site", other.type_name)),
            (Some(theirs), Some(ours)) => {
                let both = ours.iter().find(|site| theirs.contains(site))?;
                Some(format!("{} already serves this offcode at sites of kind {both}", other.type_name))
            }
            _ => None,
        })
    }
}
