//! Measurements of earlier runs of the same builds, by which layouts are priced beside the machine's costs.

use machine::costs::Interval;
use machine::{BodyKind, Site};
use offcode::Manifest;
use ring::digest::{Context, SHA256};
use serde::Serialize;

use crate::catalogue::Catalogue;
use crate::closure::Member;
use crate::code::Code;

/// A figure with its origin.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SourcedInterval {
    pub interval: Interval,
    /// 'measured: 3 runs', 'stated: its manifest', 'modelled: ...'.
    pub how: String,
}

/// An offcode as it was built: another build is another offcode.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Build {
    /// Package name.
    pub offcode: String,
    /// Instance name: the figures of one instance say nothing of another, which has other peers and attributes.
    pub instance: String,
    pub version: String,
    /// The kind of body; `None`: all together, for what does not depend on where it runs.
    pub body: Option<BodyKind>,
    /// SHA-256 of its manifest and code, the first half in hexadecimal; of a linked-in body the manifest alone counts.
    pub digest: String,
}

/// Looks up what earlier runs measured of a build, by a quantity in the words of this module.
pub type Earlier<'a> = &'a dyn Fn(&Build, &str) -> Option<SourcedInterval>;

/// The lookup where nothing was measured.
pub fn nothing(_: &Build, _: &str) -> Option<SourcedInterval> {
    None
}

/// The quantity of [`crate::site::evidence::Timed`].
pub fn time_at(site: &Site) -> String {
    format!("time for a message at {site}")
}

/// The quantity of that time without what its channels take.
pub fn work_at(site: &Site) -> String {
    format!("work for a message at {site}")
}

/// The quantity of all that an offcode is given.
pub const RATE: &str = "messages a second";

/// The quantity of what comes on one channel; the empty name stands for calls out of band.
pub fn rate_on(channel: &str) -> String {
    if channel.is_empty() { "calls a second".to_owned() } else { format!("messages a second on {channel}") }
}

impl Build {
    pub fn of(member: &Member, code: &Code) -> Build {
        let mut context = begun(&member.manifest);
        add(&mut context, code);
        Build::ended(member, Some(code.kind()), context)
    }

    /// The build with all bodies that the catalogue has.
    pub fn whole(catalogue: &Catalogue, member: &Member) -> Build {
        let manifest = &member.manifest;
        let mut context = begun(manifest);
        for target in &manifest.hardware {
            if let Ok(code) = catalogue.code(manifest, target.site) {
                add(&mut context, &code);
            }
        }
        Build::ended(member, None, context)
    }

    fn ended(member: &Member, body: Option<BodyKind>, context: Context) -> Build {
        let (package, instance) = (&member.manifest.package, member.name.clone());
        let (offcode, version) = (package.name.clone(), package.version.clone());
        let digest = context.finish().as_ref()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        Build { offcode, instance, version, body, digest }
    }
}

fn begun(manifest: &Manifest) -> Context {
    let mut context = Context::new(&SHA256);
    context.update(format!("{manifest:?}").as_bytes());
    context
}

fn add(context: &mut Context, code: &Code) {
    if let Code::Wasm(bytes) | Code::Bpf(bytes) = code {
        context.update(bytes);
    }
}
