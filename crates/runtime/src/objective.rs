//! The objective of a plan: the user's wish, and the price under it of a second of core time, of a core that burns and
//! of a message.

use std::fmt;
use std::str::FromStr;

use machine::costs::{Cost, Interval, Item};
use machine::{Costs, Fault, Site, SiteKind};
use placement::Layout;
use serde::Serialize;

use crate::ground::Ground;

/// Weight of a second of another host's core, against one here.
const AWAY: f64 = 0.01;
/// Weight of host CPU under another objective: it decides between places that are equal.
const TIE: f64 = 1e-6;

/// The words, as the command line and application files have them.
pub const WORDS: &str = "host-cpu, latency or spare=SITE, such as spare=app or spare=core:0";

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub enum Objective {
    /// Core time a second, over all cores of this host.
    #[default]
    HostCpu,
    /// Time along the path of messages.
    Latency,
    /// Core time a second of one core, or of the application's own thread.
    Spare(Site),
}

impl FromStr for Objective {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        let unknown =
            || Fault::new(format!("objective '{text}'"), "there is no such objective", format!("write {WORDS}"));
        match text {
            "host-cpu" => Ok(Objective::HostCpu),
            "latency" => Ok(Objective::Latency),
            _ => {
                let site: Site = text.strip_prefix("spare=").ok_or_else(unknown)?.parse()?;
                match site.kind() {
                    SiteKind::App | SiteKind::Core => Ok(Objective::Spare(site)),
                    _ => Err(unknown()),
                }
            }
        }
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Objective::HostCpu => f.pad("host-cpu"),
            Objective::Latency => f.pad("latency"),
            Objective::Spare(site) => f.pad(&format!("spare={site}")),
        }
    }
}

impl From<Objective> for String {
    fn from(objective: Objective) -> String {
        objective.to_string()
    }
}

impl Objective {
    /// This objective first, then one of each other kind: a place that was not taken is judged by all.
    pub fn all(&self) -> Vec<Objective> {
        let spare = match self {
            Objective::Spare(_) => self.clone(),
            _ => Objective::Spare(Site::App),
        };
        let others = [Objective::HostCpu, Objective::Latency, spare].into_iter().filter(|other| other != self);
        std::iter::once(self.clone()).chain(others).collect()
    }

    /// Writes the prices of sites and crossings under this objective into a layout over `grounds`.
    pub fn price(&self, layout: &mut Layout, grounds: &[Ground], costs: &Costs) {
        let counted: Vec<(f64, f64)> = grounds.iter().map(|ground| self.seconds(ground)).collect();
        for (candidate, &(price, opening)) in layout.sites.iter_mut().zip(&counted) {
            (candidate.price, candidate.opening) = (price, opening);
        }
        let crossing = |one: usize, other: usize| {
            let (from, to) = (&grounds[one].site, &grounds[other].site);
            let half = known(costs.crossing(from, to)).middle / 2.0;
            half * (counted[one].0 + counted[other].0)
                + if self == &Objective::Latency { way(from, to, costs) } else { 0.0 }
        };
        let all = 0..grounds.len();
        layout.crossing_ns = all.clone().map(|one| all.clone().map(|other| crossing(one, other)).collect()).collect();
    }

    /// The price of a second of core time at a site, and that of its use at all. A dedicated core polls, so that what
    /// runs there takes nothing beyond.
    fn seconds(&self, ground: &Ground) -> (f64, f64) {
        let here = match ground.site.kind() {
            SiteKind::Core => (0.0, 1.0),
            _ if ground.site.agent().is_some() => (AWAY, 0.0),
            _ => (1.0, 0.0),
        };
        let tie = (here.0 * TIE, here.1 * TIE);
        match self {
            Objective::HostCpu => here,
            Objective::Latency => (1.0 + tie.0, tie.1),
            Objective::Spare(spared) if takes_from(ground, spared) => here,
            Objective::Spare(_) => tie,
        }
    }

    /// An amount of what plans cost under this objective; `rate` is that of the busiest channel.
    pub fn amount(&self, amount: f64, rate: f64) -> String {
        match self {
            Objective::HostCpu | Objective::Spare(_) => cores(amount),
            Objective::Latency => machine::figure::nanoseconds(amount / rate.max(1.0) * 1e9),
        }
    }

    /// The difference to a dearer plan, in the same words.
    pub fn more(&self, more: f64, rate: f64) -> String {
        let text = self.amount(more.abs(), rate);
        // A difference that the unit rounds to zero is none.
        if !text.contains(|digit: char| ('1'..='9').contains(&digit)) {
            return format!("{self} the same");
        }
        format!("{self} {}{text}", if more < 0.0 { '-' } else { '+' })
    }
}

pub(crate) fn known(cost: Cost) -> Interval {
    *cost.reading.value().expect("what layouts need has a model")
}

fn cores(amount: f64) -> String {
    match amount {
        a if a.abs() >= 0.1 => format!("{a:.3} cores"),
        a => format!("{:.3} millicores", a * 1e3),
    }
}

/// Whether core time at a site is, or may be, that of the spared core.
fn takes_from(ground: &Ground, spared: &Site) -> bool {
    match spared {
        Site::Core(core) if ground.site.agent().is_none() => {
            ground.cores.as_ref().is_none_or(|cores| cores.contains(core))
        }
        _ => ground.site == *spared,
    }
}

/// How long a message is under way from site to site, beside the core time of its ends.
fn way(from: &Site, to: &Site, costs: &Costs) -> f64 {
    if from == to {
        return 0.0;
    }
    // Two cores of one agent share memory there.
    let away = from.agent().map(|(host, _)| host) != to.agent().map(|(host, _)| host);
    known(costs.get(if away { &Item::Transit } else { &Item::Handover })).middle
}

#[cfg(test)]
mod tests {
    use machine::CoreId;

    use super::*;

    #[test]
    fn what_burns_is_paid_once_and_what_is_spared_may_be_anywhere_on_the_core() {
        let core = Ground::of(Site::Core(CoreId(1)));
        let app = Ground { cores: Some(vec![CoreId(0)]), ..Ground::of(Site::App) };
        let hook = Ground::of(Site::Xdp("eth0".into()));
        let agent = Ground::of(Site::Agent("dpu".into()));
        assert_eq!(
            [&core, &app, &agent].map(|of| Objective::HostCpu.seconds(of)),
            [(0.0, 1.0), (1.0, 0.0), (AWAY, 0.0)]
        );
        let spare = Objective::Spare(Site::Core(CoreId(0)));
        assert_eq!(spare.seconds(&app), (1.0, 0.0));
        let away = Ground::of("agent:dpu/xdp:eth0".parse().unwrap());
        assert_eq!([Objective::HostCpu.seconds(&away), spare.seconds(&away)], [(AWAY, 0.0), (AWAY * TIE, 0.0)]);
        // Where nothing tells the cores of a hook, it may take from any.
        assert_eq!(spare.seconds(&hook), (1.0, 0.0));
        assert_eq!([&core, &agent].map(|of| spare.seconds(of)), [(0.0, TIE), (AWAY * TIE, 0.0)]);
        for objective in [Objective::HostCpu, Objective::Latency, spare] {
            assert_eq!(objective.to_string().parse::<Objective>().unwrap(), objective);
            assert_eq!(objective.all().len(), 3, "{objective}");
        }
    }

    #[test]
    fn two_cores_of_one_agent_are_near_each_other() {
        let [one, two, other] = ["dpu/core:1", "dpu/core:2", "nic/core:1"].map(|name| Site::Agent(name.into()));
        let costs = Costs::modelled();
        assert!(way(&one, &two, &costs) < way(&one, &other, &costs) / 10.0);
        let crossing = |a, b| known(costs.crossing(a, b)).middle;
        assert!(crossing(&one, &two) < crossing(&one, &other) / 10.0);
        let hook = Site::Agent("dpu/xdp:eth0".into());
        assert!(crossing(&one, &hook) < crossing(&other, &hook) / 2.0);
        assert_eq!(crossing(&Site::App, &hook), crossing(&Site::App, &one));
    }
}
