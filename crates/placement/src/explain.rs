//! Plans as text and as a graph.

use std::fmt;

use machine::Bytes;

use crate::clash::sentence;
use crate::layout::{Layout, Resource, SiteIndex, Tie, UnitIndex};
use crate::plan::{Plan, Reason, Rejection};

/// A plan with the layout that it answers, for printing.
pub struct Explanation<'a> {
    plan: &'a Plan,
    layout: &'a Layout,
    figures: Option<Figures<'a>>,
}

/// What the plan costs, or with another assignment by how much that differs, in the caller's words.
pub type Figures<'a> = &'a dyn Fn(Option<&[SiteIndex]>) -> String;

impl<'a> Explanation<'a> {
    /// The explanation with the caller's figures in place of the cost alone.
    pub fn with(self, figures: Figures<'a>) -> Explanation<'a> {
        Explanation { figures: Some(figures), ..self }
    }
}

impl Plan {
    /// Text for the user: what goes where at which cost, and for every other site the reason. `layout` is the one solved.
    pub fn explain<'a>(&'a self, layout: &'a Layout) -> Explanation<'a> {
        Explanation { plan: self, layout, figures: None }
    }

    /// The assignment that was tried for `unit` at a site that it did not get; `None` where there was none to try.
    pub fn instead(&self, layout: &Layout, unit: UnitIndex, rejection: &Rejection) -> Option<Vec<SiteIndex>> {
        let Reason::Costlier { moves, .. } = &rejection.reason else { return None };
        let mut at = self.assignment.clone();
        let mut group = vec![unit];
        while let Some(one) = group.pop() {
            if at[one.0] == rejection.site {
                continue;
            }
            at[one.0] = rejection.site;
            group.extend(layout.constraints.iter().filter_map(|tie| match *tie {
                Tie::Pull(a, b) if a == one => Some(b),
                Tie::Pull(a, b) if b == one => Some(a),
                _ => None,
            }));
        }
        for (unit, site) in moves {
            at[unit.0] = *site;
        }
        Some(at)
    }

    /// Graphviz: a box a site, channels as arrows, Pull and Gang as lines.
    pub fn dot(&self, layout: &Layout) -> String {
        dot(self, layout)
    }
}

impl Rejection {
    /// The reason in words; `layout` is the one solved.
    pub fn sentence(&self, layout: &Layout) -> String {
        match &self.reason {
            Reason::Impossible(why) => format!("impossible: {why}"),
            Reason::Forbidden { by, chain } => {
                let mut text = format!("forbidden: {}", sentence(layout, *by));
                for (i, &tie) in chain.iter().enumerate() {
                    let word = if i == 0 { ", reached because" } else { ", and" };
                    text += &format!("{word} {}", sentence(layout, crate::layout::Demand::Tie(tie)));
                }
                text
            }
            Reason::Overflow { resource, needs, left, alone } => {
                let site = &layout.sites[self.site.0].site;
                let amount = |amount: f64| match resource {
                    Resource::Load => format!("{amount:.3} cores of load"),
                    Resource::Memory => format!("{} of memory", Bytes(amount as u64)),
                    Resource::Slots => format!("{amount} slots"),
                };
                if *alone {
                    format!("overflow: it needs {}, {site} holds {} in all", amount(*needs), amount(*left))
                } else {
                    format!(
                        "overflow: it needs {}, the others leave {} and no few of them can give way",
                        amount(*needs),
                        amount(*left)
                    )
                }
            }
            Reason::Costlier { more, moves } => {
                let mut text = if *more > 0.0 {
                    format!("would cost {} more", cores(*more))
                } else {
                    "would cost the same".to_string()
                };
                text += &moved(layout, moves);
                text
            }
        }
    }
}

fn moved(layout: &Layout, moves: &[(UnitIndex, SiteIndex)]) -> String {
    let mut text = String::new();
    for (i, (unit, site)) in moves.iter().take(3).enumerate() {
        let word = if i == 0 { ", with" } else { "," };
        text += &format!("{word} {} at {}", layout.units[unit.0].name, layout.sites[site.0].site);
    }
    if moves.len() > 3 {
        text += &format!(" and {} more moved", moves.len() - 3);
    }
    text
}

/// Core time in the unit that shows it.
fn cores(amount: f64) -> String {
    match amount {
        a if a >= 0.1 => format!("{a:.3} cores"),
        a if a >= 1e-4 => format!("{:.3} millicores", a * 1e3),
        a => format!("{:.3} microcores", a * 1e6),
    }
}

impl fmt::Display for Explanation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (plan, layout) = (self.plan, self.layout);
        let cost = &plan.cost;
        let mut parts = format!("work {}, crossings {}", cores(cost.work), cores(cost.crossings));
        if cost.opening > 0.0 {
            parts += &format!(", cores that burn {}", cores(cost.opening));
        }
        match self.figures {
            Some(figures) => writeln!(f, "cost (weighted by priority): {}", figures(None))?,
            None => writeln!(f, "cost {} (weighted by priority): {parts}", cores(cost.total))?,
        }
        for (candidate, usage) in layout.sites.iter().zip(&plan.usage) {
            let name = candidate.site.to_string();
            write!(
                f,
                "  {name:<16} {} offcodes, load {:.3} of {:.3}",
                usage.slots, usage.load.0, candidate.capacity.0
            )?;
            writeln!(f, ", memory {} of {}", usage.memory, candidate.memory)?;
        }
        for (n, ((unit, site), rejected)) in layout.units.iter().zip(&plan.assignment).zip(&plan.rejected).enumerate() {
            writeln!(f, "{} -> {} (priority {})", unit.name, layout.sites[site.0].site, unit.priority)?;
            for rejection in rejected {
                let name = layout.sites[rejection.site.0].site.to_string();
                let tried = self.figures.zip(plan.instead(layout, UnitIndex(n), rejection));
                let said = match (tried, &rejection.reason) {
                    (Some((figures, at)), Reason::Costlier { moves, .. }) => figures(Some(&at)) + &moved(layout, moves),
                    _ => rejection.sentence(layout),
                };
                writeln!(f, "  not {name:<12} {said}")?;
            }
        }
        Ok(())
    }
}

fn dot(plan: &Plan, layout: &Layout) -> String {
    let quote = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    let mut out = String::from("digraph plan {\n  compound=true; rankdir=LR; node [shape=box, style=rounded];\n");
    for (index, candidate) in layout.sites.iter().enumerate() {
        let label = quote(&candidate.site.to_string());
        out += &format!("  subgraph cluster_{index} {{\n    label={label};\n");
        for (unit, _) in plan.assignment.iter().enumerate().filter(|(_, site)| site.0 == index) {
            out += &format!("    u{unit} [label={}];\n", quote(&layout.units[unit].name));
        }
        out += "  }\n";
    }
    for channel in &layout.channels {
        let label = quote(&format!("{}/s", channel.rate));
        out += &format!("  u{} -> u{} [label={label}];\n", channel.from.0, channel.to.0);
    }
    for tie in &layout.constraints {
        match tie {
            Tie::Pull(a, b) => out += &format!("  u{} -> u{} [dir=none, style=bold, label=Pull];\n", a.0, b.0),
            Tie::Gang(a, b) => out += &format!("  u{} -> u{} [dir=none, style=dashed, label=Gang];\n", a.0, b.0),
            Tie::Pin(a, _) => out += &format!("  u{} [peripheries=2];\n", a.0),
        }
    }
    out + "}\n"
}
