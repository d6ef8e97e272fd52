//! What offcodes are expected to take where they are placed: said before they start, for their sites to hold against.

use machine::costs::{Interval, Item};
use machine::{BodyKind, Costs, Result, Site};
use offcode::Manifest;
use placement::Plan;
use placement::layout::{Layout, UnitIndex};
use ring::digest::{Context, SHA256};

use crate::catalogue::Catalogue;
use crate::closure::Closure;
use crate::layout::{Ground, handling};
use crate::site::Code;

/// Of one offcode.
#[derive(Debug, Clone, PartialEq)]
pub struct Expectation {
    /// Package name.
    pub offcode: String,
    pub version: String,
    /// Of its manifest and code, in hexadecimal: another build is another offcode. Of a linked-in body the manifest alone.
    pub digest: String,
    pub site: Site,
    pub body: BodyKind,
    /// Core time for one call, message or packet as [`crate::site::evidence::Timed`] has it, in nanoseconds.
    pub time: Interval,
    /// What it rests on.
    pub because: String,
}

/// One for each member of the closure, as `plan` places them. The rate of messages, which may be an assumption, is in none.
///
/// # Errors
/// Code that cannot be read.
pub fn expect(
    catalogue: &Catalogue,
    closure: &Closure,
    layout: &Layout,
    grounds: &[Ground],
    plan: &Plan,
    costs: &Costs,
) -> Result<Vec<Expectation>> {
    let mut all = Vec::new();
    for (n, member) in closure.members.iter().enumerate() {
        let manifest = &*member.manifest;
        let site = &grounds[plan.assignment[n].0].site;
        let code = catalogue.code(manifest, site.kind())?;
        let body = code.kind();
        let Some(target) = manifest.hardware.iter().find(|target| target.site == site.kind()) else { continue };
        let mut time = handling(target, body, costs);
        let entry = costs.get(&Item::Entry(body)).reading;
        let mut because = match target.work {
            Some(work) => format!("work of {work}, as its manifest states"),
            None => "work that its manifest does not state".to_owned(),
        };
        if let Some(interval) = entry.value() {
            because += &format!("; a call of a {body} body takes {interval}, {}", machine::costs::how(&entry));
        }
        // A packet is there already. What comes through a channel is read, and at most both ends fall to this one.
        if body != BodyKind::Bpf {
            let others = layout.channels.iter().filter_map(|channel| match UnitIndex(n) {
                unit if channel.from == unit => Some(channel.to),
                unit if channel.to == unit => Some(channel.from),
                _ => None,
            });
            let crossing = |other: &Site| costs.crossing(site, other).reading.value().copied();
            let ends = others.filter_map(|other| crossing(&layout.sites[plan.assignment[other.0].0].site));
            if let Some(within) = crossing(site) {
                let most = ends.map(|end| end.high).fold(within.high, f64::max);
                time = time.plus(Interval { low: 0.0, middle: within.middle / 2.0, high: most });
                because += &format!("; reading it, up to {most:.0} ns");
            }
        }
        let package = &manifest.package;
        let (offcode, version) = (package.name.clone(), package.version.clone());
        all.push(Expectation {
            offcode,
            version,
            digest: digest(manifest, &code),
            site: site.clone(),
            body,
            time,
            because,
        });
    }
    Ok(all)
}

fn digest(manifest: &Manifest, code: &Code) -> String {
    let mut context = Context::new(&SHA256);
    context.update(format!("{manifest:?}").as_bytes());
    if let Code::Wasm(bytes) | Code::Bpf(bytes) = code {
        context.update(bytes);
    }
    context.finish().as_ref()[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}
