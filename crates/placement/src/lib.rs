//! Layouts and the solver that turns them into plans: which site runs what, at which cost, and why not elsewhere
//! (HYDRA section 1.4). Pure: no clock but the caller's, no file, no machine.
//!
//! # The model
//! Each [unit](layout::Unit) gets one [site](layout::Candidate). A plan is valid when
//! - no unit is where it is impossible (what its manifest needs, HYDRA section 1.5);
//! - units tied by Pull are at one site: symmetric and transitive (section 1.4, *Pull Constraint*);
//! - units tied by Gang are offloaded, which is at any site but `app`, each at a target of its own choice (*Gang
//!   Constraint*: 'the offload target can be a set of devices'). As being offloaded concerns each member alone, its
//!   transitivity needs no rule of its own; through a Pull it reaches who is pulled;
//! - pinned units are where the user wants them;
//! - no site gets more load, memory or units than it holds. Load is compared in whole nanoseconds a second.
//!
//! Link poses nothing (*Link Constraint*) and so has no variant. Priorities come resolved, own or inherited until a
//! Link is met (section 1.4, last paragraph).
//!
//! The cost of a plan, in cores: the load of each unit at its site times the site's price times its priority / 100, plus
//! for each channel its rate times [`layout::Layout::crossing_ns`] from the one site to the other, times the larger
//! priority of its two ends / 100 (a late message harms the more urgent end whichever side it is on), plus for each site
//! with a unit what opening it costs, whoever is there.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod check;
pub mod clash;
mod dual;
mod effort;
mod explain;
mod feasible;
pub mod layout;
mod model;
mod packing;
pub mod plan;
mod prove;
mod search;
mod state;
mod why;

pub use check::{MAX_SITES, MAX_UNITS};
pub use clash::{Clash, Minimality};
pub use effort::Effort;
pub use explain::{Explanation, Figures};
pub use layout::Layout;
pub use plan::{Plan, Reason, Rejection, Unsolved};
pub use prove::{Proof, prove};

use layout::SiteIndex;
use model::Model;
use search::Found;

/// Up to this many places (merged groups times sites) a short branch and bound follows the search: at that size the
/// answer need not depend on chance.
const EXACT: usize = 512;

/// The cheapest assignment found in the effort given, with its reasons. [`Effort::default`] answers in less than 50 ms at
/// 200 units and 16 sites.
///
/// # Errors
/// See [`Unsolved`]: the layout makes no sense, nothing satisfies it (with the demands that clash), or none was found.
pub fn solve(layout: &Layout, effort: &Effort) -> Result<Plan, Unsolved> {
    layout.check().map_err(Unsolved::Invalid)?;
    let model = Model::of(layout);
    match search::search(&model, effort) {
        Found::Assignment(at) => {
            let at = if model.packing.groups * model.packing.sites <= EXACT {
                let proof = Effort { steps: effort.steps.min(30_000), ..*effort };
                prove::bound_and_branch(&model, &at, &proof, 40).1.unwrap_or(at)
            } else {
                at
            };
            Ok(plan(layout, &model, at))
        }
        Found::Nothing => Err(clash::clash(layout).map_or(Unsolved::Nothing, Unsolved::Clash)),
        Found::Unknown => Err(Unsolved::NotFound { steps: effort.steps }),
    }
}

/// Calls [`solve`], then [`prove`] with an effort of its own; a cheaper assignment that the proof finds becomes the
/// plan.
///
/// # Errors
/// The errors of [`solve`].
pub fn solve_and_prove(layout: &Layout, effort: &Effort, proof: &Effort) -> Result<(Plan, Proof), Unsolved> {
    let mut answer = solve(layout, effort)?;
    let mut proven = prove(layout, &answer, proof);
    if let Proof::Cheaper { assignment, lower_bound, .. } = &proven {
        let model = Model::of(layout);
        let at = model.packing.members.iter().map(|units| assignment[units[0]].0).collect();
        answer = plan(layout, &model, at);
        proven = Proof::of(answer.cost.total, *lower_bound);
    }
    Ok((answer, proven))
}

fn plan(layout: &Layout, model: &Model, mut at: Vec<usize>) -> Plan {
    let rejected = why::reasons(layout, model, &mut at);
    debug_assert!(model.packing.holds(&at));
    let assignment: Vec<SiteIndex> = model.packing.group_of.iter().map(|&group| SiteIndex(at[group])).collect();
    let cost = layout.cost(&assignment);
    let usage = layout.usage(&assignment);
    Plan { assignment, cost, rejected, usage }
}
