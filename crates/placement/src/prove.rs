//! Whether a plan is the cheapest, by branch and bound with the bound of [`crate::dual`].

use serde::{Deserialize, Serialize};

use crate::dual::Dual;
use crate::effort::Effort;
use crate::layout::{Layout, SiteIndex};
use crate::model::Model;
use crate::plan::{Cost, Plan};
use crate::search::SHARED;

/// What is known of a plan's distance from the cheapest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Proof {
    /// No assignment is cheaper, but for rounding (a share of 1e-9).
    Optimal,
    /// A cheaper assignment is neither known nor excluded.
    Gap {
        /// No assignment costs less than this.
        lower_bound: f64,
        /// The share of the plan's cost above the lower bound.
        gap: f64,
    },
    /// The proof found a cheaper assignment on its way. [`crate::solve_and_prove`] makes a plan of it.
    Cheaper {
        /// The cheaper one: one site a unit.
        assignment: Vec<SiteIndex>,
        /// What it costs.
        cost: Cost,
        /// No assignment costs less than this.
        lower_bound: f64,
    },
}

impl std::fmt::Display for Proof {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Proof::Optimal => write!(f, "optimal: no assignment is cheaper (proven by branch and bound)"),
            Proof::Gap { lower_bound, gap } => {
                write!(
                    f,
                    "not proven optimal: no assignment costs less than {lower_bound:.6} cores, {:.3} % below",
                    gap * 100.0
                )
            }
            Proof::Cheaper { cost, lower_bound, .. } => {
                write!(
                    f,
                    "not optimal: one of {:.6} cores was found; none costs less than {lower_bound:.6}",
                    cost.total
                )
            }
        }
    }
}

/// Relative rounding error: numbers that are closer count as equal.
const ROUNDING: f64 = 1e-9;
const ROOT_PASSES: usize = 400;
const NODE_PASSES: usize = 3;
/// Bytes that copies of the bound on the way down may take.
const MEMORY: usize = 512 << 20;

/// A proof for `plan`, which must answer `layout`.
pub fn prove(layout: &Layout, plan: &Plan, effort: &Effort) -> Proof {
    let model = Model::of(layout);
    let at: Vec<usize> = model.packing.members.iter().map(|units| plan.assignment[units[0]].0).collect();
    let (lower, better) = bound_and_branch(&model, &at, effort, ROOT_PASSES);
    let cost = plan.cost.total;
    match better {
        Some(at) => {
            let assignment: Vec<SiteIndex> = model.packing.group_of.iter().map(|&group| SiteIndex(at[group])).collect();
            let cost = layout.cost(&assignment);
            Proof::Cheaper { assignment, cost, lower_bound: lower.min(cost.total) }
        }
        None => Proof::of(cost, lower),
    }
}

impl Proof {
    pub(crate) fn of(cost: f64, lower_bound: f64) -> Self {
        if lower_bound >= cost - 2.0 * ROUNDING * cost.abs() {
            Proof::Optimal
        } else {
            Proof::Gap { lower_bound, gap: (cost - lower_bound) / cost }
        }
    }
}

/// A lower bound of all assignments (the cost of the best where it was found to be the best), and a cheaper one than
/// `at` if one came by.
pub(crate) fn bound_and_branch(
    model: &Model,
    at: &[usize],
    effort: &Effort,
    passes: usize,
) -> (f64, Option<Vec<usize>>) {
    let start = model.cost(at);
    let copy = (model.unary.len() + 2 * model.edges.len() * model.packing.sites) * 8;
    let mut tree = Tree { model, effort, steps: effort.steps, upper: start, best: None, deepest: MEMORY / copy.max(1) };
    let mut dual = Dual::new(model);
    let root = tree.root(&mut dual, passes);
    let lower = match root {
        Some(bound) => tree.descend(&dual, bound, 0),
        None => f64::INFINITY,
    };
    (lower.min(tree.upper), tree.best)
}

struct Tree<'m, 'e> {
    model: &'m Model,
    effort: &'e Effort<'e>,
    steps: u64,
    upper: f64,
    best: Option<Vec<usize>>,
    deepest: usize,
}

impl Tree<'_, '_> {
    /// Costs at or above this are of no interest.
    fn limit(&self) -> f64 {
        self.upper - ROUNDING * self.upper.abs()
    }

    /// Counts effort; false when it is spent.
    fn spend(&mut self) -> bool {
        let cost = (self.model.packing.groups + self.model.edges.len() * self.model.packing.sites / 8) as u64;
        if self.steps < cost || self.effort.stopped() {
            self.steps = 0;
            return false;
        }
        self.steps -= cost;
        true
    }

    /// The best bound before branching; `None` when nothing cheaper is left.
    fn root(&mut self, dual: &mut Dual, passes: usize) -> Option<f64> {
        let mut best = 0.0f64;
        let mut stale = 0;
        let mut pace = 1.0;
        let mut kept = dual.clone();
        for pass in 0..passes {
            if !dual.pass(pass % 2 == 0, self.limit(), None) {
                return None;
            }
            self.offer(&dual.choice.clone());
            let bound = dual.bound();
            if bound > best + 1e-7 * best.abs() {
                best = bound;
                kept = dual.clone();
                stale = 0;
            } else {
                stale += 1;
                if stale % 10 == 0 {
                    pace *= 0.6;
                }
                if stale > 60 {
                    break;
                }
            }
            if !self.spend() {
                break;
            }
            dual.reprice(self.upper - bound, pace);
            dual.share(SHARED * pace);
        }
        *dual = kept;
        if !dual.propagate() {
            return None;
        }
        Some(best)
    }

    fn offer(&mut self, at: &[usize]) {
        let cost = self.model.cost(at);
        if cost < self.limit() && self.model.packing.holds(at) {
            self.upper = cost;
            self.best = Some(at.to_vec());
        }
    }

    /// A lower bound of what was not searched under `parent`; infinite when all was.
    fn descend(&mut self, parent: &Dual, bound: f64, depth: usize) -> f64 {
        if bound >= self.limit() {
            return f64::INFINITY;
        }
        if depth >= self.deepest {
            return bound;
        }
        let Some((group, order)) = self.branch(parent) else {
            // Every group has one site left: this is an assignment.
            let at: Vec<usize> = (0..self.model.packing.groups).map(|g| parent.only(g).expect("one site")).collect();
            self.offer(&at);
            return f64::INFINITY;
        };
        let mut left = f64::INFINITY;
        for &site in &order {
            if !self.spend() {
                return left.min(bound);
            }
            let mut dual = parent.clone();
            for other in 0..self.model.packing.sites {
                if other != site {
                    dual.close(group, other);
                }
            }
            dual.share(0.0);
            left = left.min(match self.tighten(&mut dual, bound) {
                Some(bound) => self.descend(&dual, bound, depth + 1),
                None => f64::INFINITY,
            });
        }
        left
    }

    /// Passes at a node, down to the last useful one; `None` when nothing cheaper is under it.
    fn tighten(&mut self, dual: &mut Dual, mut bound: f64) -> Option<f64> {
        for round in 0..NODE_PASSES {
            if !dual.propagate() || !dual.pass(true, self.limit(), None) || !dual.pass(false, self.limit(), None) {
                return None;
            }
            self.offer(&dual.choice.clone());
            let now = dual.bound();
            let gain = now - bound;
            bound = bound.max(now);
            if bound >= self.limit() {
                return None;
            }
            if round > 0 && gain < 0.02 * (self.upper - bound) {
                break;
            }
            if round + 1 < NODE_PASSES {
                dual.reprice(self.upper - bound, 0.1);
                dual.share(SHARED);
                // Settles the group costs, so that the next pass may close sites.
                if !dual.pass(true, f64::INFINITY, None) {
                    return None;
                }
            }
        }
        dual.propagate().then_some(bound)
    }

    /// The open group with most at stake, and its sites, the most promising first.
    fn branch(&self, dual: &Dual) -> Option<(usize, Vec<usize>)> {
        let (groups, sites) = (self.model.packing.groups, self.model.packing.sites);
        let mut marginals = vec![0.0; groups * sites];
        let mut settled = dual.clone();
        if !settled.pass(true, f64::INFINITY, Some(&mut marginals)) {
            marginals.copy_from_slice(&dual.own);
        }
        let mut chosen: Option<(f64, usize)> = None;
        for group in 0..groups {
            let open: Vec<f64> =
                (0..sites).filter(|&s| dual.is_open(group, s)).map(|s| marginals[group * sites + s]).collect();
            if open.len() < 2 {
                continue;
            }
            let stake: f64 = open.iter().sum::<f64>() / open.len() as f64;
            let coupling: f64 = self.model.arcs(group).iter().map(|a| a.forward + a.backward).sum();
            let mean = self.model.cross.iter().sum::<f64>() / self.model.cross.len() as f64;
            let score = (stake + coupling * mean + 1e-12) / (open.len() as f64);
            if chosen.is_none_or(|(best, _)| score > best) {
                chosen = Some((score, group));
            }
        }
        let (_, group) = chosen?;
        let mut order: Vec<usize> = (0..sites).filter(|&s| dual.is_open(group, s)).collect();
        order.sort_by(|&a, &b| marginals[group * sites + a].total_cmp(&marginals[group * sites + b]).then(a.cmp(&b)));
        Some((group, order))
    }
}
