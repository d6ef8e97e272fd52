//! What the movable offcodes of a runtime take, window by window, and the moves that follow from it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use ::machine::costs::Interval;
use ::machine::{Result, Site};
use offcode::manifest::{Constraint, StateKind};

use super::{Rebalancer, Verdict, Window};
use crate::application::Runtime;
use crate::layout::handling;
use crate::live::{Live, OffcodeId};
use crate::possible;
use crate::site::evidence::Timed;

/// Length of a window.
const WINDOW: Duration = Duration::from_secs(1);
/// Relative error assumed of times that were measured here.
const TIMED: f64 = 0.1;
/// Assumed cost of a move until one was seen, in nanoseconds.
const ASSUMED_MOVE_COST_NS: f64 = 5e6;

/// Rebalances the offcodes of one runtime.
pub struct Watch {
    origin: Instant,
    window: Duration,
    looked: Duration,
    each: HashMap<OffcodeId, Watched>,
}

struct Watched {
    decides: Rebalancer,
    site: Site,
    uses: u64,
    timed: Option<Timed>,
    move_cost: f64,
}

impl Default for Watch {
    fn default() -> Self {
        Watch::every(WINDOW)
    }
}

impl Watch {
    /// A watch with windows of another length than a second.
    pub fn every(window: Duration) -> Watch {
        Watch { origin: Instant::now(), window, looked: Duration::ZERO, each: HashMap::new() }
    }

    /// Time until the end of the window.
    pub fn left(&self) -> Duration {
        self.window.saturating_sub(self.origin.elapsed() - self.looked)
    }

    /// At the end of a window decides, and moves what is better off elsewhere. Returns a line for each move that was made or
    /// could not be.
    ///
    /// # Errors
    /// A site that does not say what its offcodes do.
    pub fn look(&mut self, runtime: &mut Runtime) -> Result<Vec<String>> {
        let now = self.origin.elapsed();
        let length = now - self.looked;
        if length < self.window {
            return Ok(Vec::new());
        }
        self.looked = now;
        let mut lines = Vec::new();
        let running: Vec<OffcodeId> = runtime.running().collect();
        self.each.retain(|id, _| running.contains(id));
        for id in running {
            lines.extend(self.one(runtime, id, now, length.as_secs_f64())?);
        }
        Ok(lines)
    }

    fn one(&mut self, runtime: &mut Runtime, id: OffcodeId, now: Duration, seconds: f64) -> Result<Option<String>> {
        let (name, site) = (runtime.live(id)?.name.clone(), runtime.site_of(id)?.clone());
        if !runtime.is_alone(id)? {
            return Ok(None);
        }
        let (uses, timed) = runtime.used(id)?;
        let fresh = || Watched {
            decides: Rebalancer::default(),
            site: site.clone(),
            uses,
            timed,
            move_cost: ASSUMED_MOVE_COST_NS,
        };
        let watched = self.each.entry(id).or_insert_with(fresh);
        let count = uses.saturating_sub(watched.uses) as f64;
        let measured = match (timed, watched.timed.filter(|_| watched.site == site)) {
            (Some(after), Some(before)) if after.uses > before.uses => {
                let time = after.time.0.saturating_sub(before.time.0) as f64;
                Some(time / (after.uses - before.uses) as f64)
            }
            (Some(after), None) => Some(after.each()),
            _ => None,
        };
        (watched.uses, watched.timed, watched.site) = (uses, timed, site.clone());
        let sites = runtime.offered();
        let Some(here) = sites.iter().position(|of| *of == site) else { return Ok(None) };
        let rate = count / seconds;
        let places: Vec<Option<Interval>> = sites
            .iter()
            .map(|of| {
                let each = if *of == site { measured.map(about) } else { None };
                Some(runtime.takes(id, of, each)?.times(rate))
            })
            .collect();
        // The way to it is not measured, so only its own work is compared with what was expected of that.
        let reach = runtime.crossing(&site).map_or(0.0, |reach| reach.middle);
        let measured = measured.map(|each| (each + reach) * rate);
        let window = Window { now, here, places: &places, measured, move_cost: watched.move_cost };
        let verdict = watched.decides.look(&window);
        let (Verdict::Move { to, .. } | Verdict::Back { to }) = verdict else { return Ok(None) };
        let of = |place: usize| places[place].map_or("an unknown time".into(), |takes| of_a_second(takes.middle));
        let why =
            format!("{} messages a second take {} at {site} and {} at {}", rate as u64, of(here), of(to), sites[to]);
        Ok(Some(match runtime.migrate(id, &sites[to]) {
            Ok(moved) => {
                watched.move_cost = moved.steps.iter().map(|(_, time)| time.0 as f64).sum();
                watched.decides.moved(now, here, verdict);
                format!("{name}: moved to {}: {why}", sites[to])
            }
            Err(fault) => {
                watched.decides.refused(now);
                format!("{name}: not moved to {}: {fault}", sites[to])
            }
        }))
    }
}

fn about(middle: f64) -> Interval {
    Interval { low: middle * (1.0 - TIMED), middle, high: middle * (1.0 + TIMED) }
}

fn of_a_second(nanoseconds: f64) -> String {
    format!("{:.2} % of a core", nanoseconds / 1e7)
}

impl Runtime {
    /// Whether the offcode can be moved, and takes no other along.
    fn is_alone(&self, offcode: OffcodeId) -> Result<bool> {
        let pulls = |live: &Live, to: Option<OffcodeId>| {
            live.requirements().any(|(of, peer)| of.constraint == Constraint::Pull && to.is_none_or(|to| to == peer))
        };
        let live = self.live(offcode)?;
        let mut others = self.live.iter().flatten();
        Ok(live.manifest.package.state != StateKind::FixedPlace
            && !pulls(live, None)
            && !others.any(|other| pulls(other, Some(offcode))))
    }

    fn used(&mut self, offcode: OffcodeId) -> Result<(u64, Option<Timed>)> {
        let live = self.live(offcode)?;
        let (seated, before) = (live.seated, live.before);
        let evidence = self.sites[seated.site].evidence(seated.slot)?;
        Ok((evidence.uses + before, evidence.timed))
    }

    /// Host time of a message for an offcode at a site, in nanoseconds: the two ends of its channel, and on this host its
    /// work. Known where that was timed, or its target states the work.
    fn takes(&self, offcode: OffcodeId, site: &Site, timed: Option<Interval>) -> Option<Interval> {
        // Nothing moves there.
        if site.is_hook_of_agent() {
            return None;
        }
        let manifest = &self.live(offcode).ok()?.manifest;
        let target = manifest.hardware.iter().find(|target| target.site == site.kind())?;
        let facts = self.catalogue.facts(manifest, site.kind()).ok()?;
        let work = match timed {
            _ if site.agent().is_some() => Interval::exactly(0.0),
            Some(timed) => timed,
            None => target.work.map(|_| handling(target, possible::Facts::kind(&facts), &self.costs))?,
        };
        Some(work.plus(self.crossing(site)?))
    }

    fn crossing(&self, site: &Site) -> Option<Interval> {
        self.costs.crossing(&Site::App, site).reading.value().copied()
    }
}
