//! Expected core time and rates of offcodes at their places, stated before they start, for their sites to compare with.

use machine::costs::{Interval, Item, how};
use machine::{BodyKind, Result, Site};
use placement::Plan;
use placement::layout::UnitIndex;

use crate::catalogue::Catalogue;
use crate::draft::Draft;
use crate::ground::Ground;
use crate::layout::{Knowledge, UNKNOWN_RATE, handling};
use crate::measured::{Build, RATE, rate_on};

/// The expected figures of one offcode.
#[derive(Debug, Clone, PartialEq)]
pub struct Expectation {
    pub build: Build,
    /// The build with all bodies: how often an offcode is given something does not depend on where it runs.
    pub whole: Build,
    pub site: Site,
    /// Core time for one call, message or packet as [`crate::site::evidence::Timed`] has it, in nanoseconds.
    pub time: Interval,
    /// The part of `time` that the ends of its channels take, and not its own work, in nanoseconds.
    pub ends: f64,
    /// The rest of `time`: its own work, in nanoseconds.
    pub work: Interval,
    /// The basis of both.
    pub because: String,
    /// Messages a second, by quantity.
    pub rates: Vec<(String, Interval)>,
}

/// Factor by which a stated or assumed rate may be off either way.
const STATED: f64 = 2.0;
const ASSUMED: f64 = 1000.0;

/// The expectation for each member of the closure, as `plan` places them.
///
/// # Errors
/// Code that cannot be read.
pub fn expect(
    catalogue: &Catalogue,
    drafted: &Draft,
    grounds: &[Ground],
    plan: &Plan,
    know: &Knowledge,
) -> Result<Vec<Expectation>> {
    let costs = know.costs;
    let layout = &drafted.laid.layout;
    let mut all = Vec::new();
    for (n, member) in drafted.closure.members.iter().enumerate() {
        let manifest = &*member.manifest;
        let site = &grounds[plan.assignment[n].0].site;
        let code = catalogue.code(manifest, site.kind())?;
        let body = code.kind();
        let Some(target) = manifest.hardware.iter().find(|target| target.site == site.kind()) else { continue };
        let work = handling(target, body, costs);
        let mut time = work;
        let entry = costs.get(&Item::Entry(body)).reading;
        let mut because = match target.work {
            Some(work) => format!("work of {work}, as its manifest states"),
            None => "work that its manifest does not state".to_owned(),
        };
        if let Some(interval) = entry.value() {
            because += &format!("; a call of a {body} body takes {interval}, {}", how(&entry));
        }
        // A packet needs no channel. What comes through a channel is read, and at most both ends fall to this offcode.
        let (mut ends, mut given) = (0.0, 0.0);
        if body != BodyKind::Bpf {
            let crossing = |other: &Site| costs.crossing(site, other).reading.value().copied();
            let mut most = crossing(site).map_or(0.0, |within| within.high);
            for channel in &layout.channels {
                let (other, reads) = match UnitIndex(n) {
                    unit if channel.to == unit => (channel.from, true),
                    unit if channel.from == unit => (channel.to, false),
                    _ => continue,
                };
                let Some(crossing) = crossing(&layout.sites[plan.assignment[other.0].0].site) else { continue };
                most = most.max(crossing.high);
                ends += channel.rate * crossing.middle / 2.0;
                given += if reads { channel.rate } else { 0.0 };
            }
            if let Some(within) = crossing(site) {
                time = time.plus(Interval { low: 0.0, middle: within.middle / 2.0, high: most });
                because += &format!("; reading it, up to {}", machine::figure::nanoseconds(most));
            }
        }
        let whole = Build::whole(catalogue, member);
        let ends = if given > 0.0 { ends / given } else { 0.0 };
        let rates = rates(drafted, n);
        all.push(Expectation {
            build: Build::of(member, &code),
            whole,
            site: site.clone(),
            time,
            ends,
            work,
            because,
            rates,
        });
    }
    Ok(all)
}

/// The rates of all that member `n` is given, and of each of its channels.
fn rates(drafted: &Draft, n: usize) -> Vec<(String, Interval)> {
    let mut all: Vec<(String, f64, bool)> = vec![(RATE.to_owned(), 0.0, true)];
    for flow in drafted.laid.flows.iter().filter(|flow| flow.to == crate::layout::FlowEnd::Member(n)) {
        let quantity = rate_on(flow.channel.as_deref().unwrap_or(""));
        let known = flow.rate > 0;
        let rate = if known { flow.rate } else { UNKNOWN_RATE } as f64;
        let at = all.iter().position(|(other, ..)| *other == quantity).unwrap_or_else(|| {
            all.push((quantity, 0.0, true));
            all.len() - 1
        });
        for at in [0, at] {
            all[at].1 += rate;
            all[at].2 &= known;
        }
    }
    let told = all.into_iter().map(|(quantity, rate, known)| {
        let (rate, known) = if rate > 0.0 { (rate, known) } else { (UNKNOWN_RATE as f64, false) };
        let off = if known { STATED } else { ASSUMED };
        (quantity, Interval { low: rate / off, middle: rate, high: rate * off })
    });
    told.collect()
}
