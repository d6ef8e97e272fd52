use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use experiment::ledger::Ledger;
use machine::costs::{Corner, Interval, Item, how};
use machine::{BodyKind, Costs, Fault, Machine, Nanoseconds, Reading, Result, Site, Source};
use offcode::Registry;
use offcode::depot::Depot;
use placement::layout::SiteIndex;
use placement::{Clash, Effort, Layout, Plan, Proof, Unsolved};
use runtime::app_file::{AppFile, Sites};
use runtime::closure::Closure;
use runtime::draft::{Draft, build, draft};
use runtime::ground::Ground;
use runtime::layout::{Knowledge, Laid, UNKNOWN_RATE};
use runtime::measured::{SourcedInterval, nothing};
use runtime::objective::Objective;
use runtime::{Catalogue, costs, grounds};
use serde::Serialize;

use super::expected;
use linux::output::{self, Destination};

/// Says where the offcodes of an application would go, and why; creates nothing
///
/// Where nothing satisfies the layout it prints the smallest set of constraints that clash, and the exit status is 1.
#[derive(clap::Args)]
pub struct Arguments {
    /// Application file, such as APP.toml
    file: PathBuf,
    /// Say why each other site was not taken, and how each price was found
    #[arg(long)]
    explain: bool,
    /// Print the plan as a graph for Graphviz
    #[arg(long, conflicts_with_all = ["explain", "json"])]
    dot: bool,
    /// Prove that no assignment is cheaper, or state by how much one could be at most
    #[arg(long)]
    prove: bool,
    /// Most time to look for the proof
    #[arg(long, value_name = "TIME", default_value = "10s", requires = "prove", value_parser = budget)]
    budget: Nanoseconds,
    /// Print layout, prices, plan and proof as JSON, or write them to FILE
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = Destination::STDOUT, conflicts_with = "explain")]
    json: Option<Destination>,
    /// Take costs from a model, not from what is kept of this machine and of earlier runs
    #[arg(long)]
    modelled: bool,
    /// Take agents to have what one usually has, and do not ask them
    #[arg(long)]
    unasked: bool,
    /// What the plan keeps small: host-cpu, latency or spare=SITE [default: what the file says, or host-cpu]
    #[arg(long, value_name = "OBJECTIVE")]
    objective: Option<Objective>,
}

/// The output of `--json`: a plan, or why there is none.
#[derive(Serialize)]
struct Page<'a> {
    application: &'a str,
    objective: &'a Objective,
    /// Time that an offcode takes for a message at each site, and the rate of each channel.
    works: &'a [Vec<Option<SourcedInterval>>],
    rates: &'a [SourcedInterval],
    layout: &'a Layout,
    prices: &'a [Price],
    plan: Option<&'a Plan>,
    proof: Option<&'a Proof>,
    clash: Option<&'a Clash>,
    /// Plans at the ends of the costs' intervals, as far as they differ.
    otherwise: &'a [Otherwise],
}

/// Units that would go elsewhere at a corner of the costs.
#[derive(Serialize)]
struct Otherwise {
    costs: Corner,
    moved: Vec<(String, Site)>,
}

/// The cost of a message between two sites, both ends together, or within one.
#[derive(Serialize)]
struct Price {
    between: [Site; 2],
    /// Cost in nanoseconds.
    ns: Reading<Interval>,
    /// The origin of the figure.
    how: String,
}

/// The price between each two grounds, and within each.
fn prices(grounds: &[Ground], costs: &Costs) -> Vec<Price> {
    let pairs = grounds.iter().enumerate().flat_map(|(n, one)| grounds[n..].iter().map(move |other| (one, other)));
    let price = |(one, other): (&Ground, &Ground)| {
        let cost = costs.crossing(&one.site, &other.site);
        Price { between: [one.site.clone(), other.site.clone()], ns: cost.reading, how: cost.source }
    };
    pairs.map(price).collect()
}

fn budget(text: &str) -> Result<Nanoseconds> {
    Nanoseconds::within(text, Nanoseconds::of_seconds(1), Nanoseconds::of_seconds(86_400))
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let app = AppFile::open(&arguments.file)?;
    let depots = app.depots.iter().map(|depot| Depot::open(depot)).collect::<Result<Vec<_>>>()?;
    let catalogue = Catalogue::new(Registry::new(), depots)?;
    let usable = linux::affinity::allowed()?;
    let mut grounds = grounds::survey(&app, &Machine::read(&Source::live())?, &usable);
    if !arguments.unasked {
        grounds::ask(&app, &mut grounds);
    }
    let (costs, note) = if arguments.modelled { (Costs::modelled(), None) } else { costs::known()? };
    if let Some(note) = note {
        eprintln!("plimsoll: {note}");
    }
    let prices = prices(&grounds, &costs);
    let objective = arguments.objective.as_ref().unwrap_or(&app.objective);
    let ledger = if arguments.modelled { None } else { Some(Ledger::open()) };
    let unread = |fault| eprintln!("plimsoll: what earlier runs measured is not known: {fault}");
    let ledger = ledger.and_then(|ledger| ledger.map_err(unread).ok());
    if let Some(note) = ledger.as_ref().and_then(|ledger| ledger.note.as_ref()) {
        eprintln!("plimsoll: {note}");
    }
    let told = ledger.as_ref().map(|ledger| expected::told(ledger, &app.name));
    let earlier = |of: &_, quantity: &_| told.as_ref().map_or_else(|| nothing(of, quantity), |told| told(of, quantity));
    let build = build(&catalogue);
    let at = |costs: &Costs| -> Result<Draft> {
        let know = Knowledge { costs, build: &build, earlier: &earlier, objective };
        draft(&catalogue, &grounds, &know, &app.offcodes, &app.channels, &[])
    };
    let Draft { closure, laid } = at(&costs)?;
    let layout = &laid.layout;
    let solved = solve(layout, arguments.prove.then(|| arguments.budget.duration()));
    let (plan, proof, clash) = match &solved {
        Ok((plan, proof)) => (Some(plan), proof.as_ref(), None),
        Err(Unsolved::Clash(clash)) => (None, None, Some(clash)),
        Err(_) => {
            return Err(solved.err().map_or_else(|| Fault::new("plan", "it was lost", "report this"), Fault::from));
        }
    };
    let otherwise = match plan {
        Some(plan) => corners(plan, layout, |corner| Ok(at(&costs.clone().at(corner))?.laid.layout))?,
        None => Vec::new(),
    };
    let as_json = arguments.json == Some(Destination::Stdout);
    if let Some(to) = &arguments.json {
        let (application, works, rates) = (app.name.as_str(), laid.works.as_slice(), laid.rates.as_slice());
        let (prices, otherwise) = (prices.as_slice(), otherwise.as_slice());
        let page = Page { application, objective, works, rates, layout, prices, plan, proof, clash, otherwise };
        let text = serde_json::to_string_pretty(&page).map_err(|error| Fault::because("plan", error, "report this"))?;
        to.write(&format!("{text}\n"))?;
    }
    let Some(plan) = plan else {
        if let Some(clash) = clash.filter(|_| !as_json) {
            eprintln!("plimsoll: {clash}");
        }
        return Ok(ExitCode::FAILURE);
    };
    if arguments.dot {
        output::print(&plan.dot(layout))?;
    } else if !as_json {
        let mut page = format!("application {}, objective {objective}\n", app.name);
        let judged = judged(objective, &laid, &grounds, &costs);
        let figures = |other: Option<&[SiteIndex]>| figures(&judged, plan, other);
        page += &match arguments.explain {
            true => plan.explain(layout).with(&figures).to_string(),
            false => brief(plan, layout),
        };
        if let Some(proof) = proof {
            let _ = writeln!(page, "{proof}");
        }
        page += &elsewhere(&otherwise);
        if arguments.explain {
            page += &versions(&closure, &catalogue);
            page += &evidence(&prices, &grounds, &app, &costs, &laid);
        }
        output::print(&page)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn solve(layout: &Layout, prove: Option<Duration>) -> Result<(Plan, Option<Proof>), Unsolved> {
    let Some(limit) = prove else {
        return placement::solve(layout, &Effort::default()).map(|plan| (plan, None));
    };
    let until = Instant::now() + limit;
    let stop = || Instant::now() > until;
    let proof = Effort { steps: u64::MAX, stop: Some(&stop), ..Effort::default() };
    let (plan, proof) = placement::solve_and_prove(layout, &Effort::default(), &proof)?;
    Ok((plan, Some(proof)))
}

/// Share of the cost that a change has to save to count.
const WORTH: f64 = 0.01;

/// Plans that differ where the costs lie at the ends of their intervals.
fn corners(plan: &Plan, layout: &Layout, at: impl Fn(Corner) -> Result<Layout>) -> Result<Vec<Otherwise>> {
    let mut all = Vec::new();
    for costs in Corner::ALL {
        let there = at(costs)?;
        let Ok(other) = placement::solve(&there, &Effort::default()) else { continue };
        // Of two plans that cost the same either may come out.
        if other.cost.total >= there.cost(&plan.assignment).total * (1.0 - WORTH) {
            continue;
        }
        let both = layout.units.iter().zip(plan.assignment.iter().zip(&other.assignment));
        let moved = both.filter(|(_, (one, other))| one != other);
        let moved: Vec<_> =
            moved.map(|(unit, (_, other))| (unit.name.clone(), layout.sites[other.0].site.clone())).collect();
        if !moved.is_empty() {
            all.push(Otherwise { costs, moved });
        }
    }
    Ok(all)
}

fn elsewhere(otherwise: &[Otherwise]) -> String {
    if otherwise.is_empty() {
        return "the same at all ends of the costs' intervals\n".to_owned();
    }
    let line = |other: &Otherwise| {
        let moved: Vec<String> = other.moved.iter().map(|(unit, site)| format!("{unit} -> {site}")).collect();
        format!("where {}: {}\n", other.costs, moved.join(", "))
    };
    let lines: String = otherwise.iter().map(line).collect();
    lines + "plimsoll calibrate makes the intervals of this machine's costs narrower\n"
}

/// The places in brief.
fn brief(plan: &Plan, layout: &Layout) -> String {
    let mut page = String::new();
    for (unit, site) in layout.units.iter().zip(&plan.assignment) {
        let _ = writeln!(page, "{} -> {}", unit.name, layout.sites[site.0].site);
    }
    page
}

/// The layout under each objective, that of the plan first.
fn judged(objective: &Objective, laid: &Laid, grounds: &[Ground], costs: &Costs) -> Vec<(Objective, Layout)> {
    let priced = |objective: Objective| {
        let mut layout = laid.layout.clone();
        objective.price(&mut layout, grounds, costs);
        (objective, layout)
    };
    objective.all().into_iter().map(priced).collect()
}

/// The cost of a plan under each objective, or the difference of another assignment.
fn figures(judged: &[(Objective, Layout)], plan: &Plan, other: Option<&[SiteIndex]>) -> String {
    let one = |(objective, layout): &(Objective, Layout)| {
        let rate = layout.channels.iter().map(|channel| channel.rate).fold(0.0, f64::max);
        let cost = layout.cost(&plan.assignment).total;
        match other {
            None => format!("{objective} {}", objective.amount(cost, rate)),
            Some(other) => objective.more(layout.cost(other).total - cost, rate),
        }
    };
    judged.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The chosen versions, where there are several.
fn versions(closure: &Closure, catalogue: &Catalogue) -> String {
    let mut page = String::new();
    for member in &closure.members {
        let taken = &member.manifest.package;
        let others = catalogue.manifests().iter().map(|manifest| &manifest.package);
        let others: Vec<&str> = others
            .filter(|other| other.guid == taken.guid && other.version != taken.version)
            .map(|other| other.version.as_str())
            .collect();
        if !others.is_empty() {
            let _ = writeln!(
                page,
                "{} is {} {}; there is also {}",
                member.name,
                taken.name,
                taken.version,
                others.join(", ")
            );
        }
    }
    page
}

/// The basis of the costs.
fn evidence(prices: &[Price], grounds: &[Ground], app: &AppFile, costs: &Costs, laid: &Laid) -> String {
    let mut page = String::from("prices of a message, both ends together\n");
    for price in prices {
        let [one, other] = &price.between;
        let ends = if one == other { format!("within {one}") } else { format!("{one} and {other}") };
        let ns = match &price.ns {
            Reading::Absent { reason } | Reading::NotPermitted { reason, .. } => reason.clone(),
            Reading::Measured(interval) | Reading::Modelled(interval) => format!("{interval} {}", how(&price.ns)),
        };
        let _ = writeln!(page, "  {ends:<24} {ns}: {}", price.how);
    }
    page += "work of an offcode for a message, with the call of its body\n";
    for (unit, works) in laid.layout.units.iter().zip(&laid.works) {
        for (site, told) in laid.layout.sites.iter().zip(works).filter_map(|(site, told)| Some((site, told.as_ref()?)))
        {
            let _ =
                writeln!(page, "  {:<24} {} {}", format!("{} at {}", unit.name, site.site), told.interval, told.how);
        }
    }
    page += "messages a second\n";
    for (channel, told) in laid.layout.channels.iter().zip(&laid.rates) {
        let name = |unit: placement::layout::UnitIndex| &laid.layout.units[unit.0].name;
        let ends = format!("{} -> {}", name(channel.from), name(channel.to));
        let _ = writeln!(page, "  {ends:<24} {:.0} {}", channel.rate, told.how);
    }
    page += "a call of a body, beside its work\n";
    for kind in BodyKind::ALL {
        let cost = costs.get(&Item::Entry(kind));
        if let Some(interval) = cost.reading.value() {
            let _ = writeln!(page, "  {:<24} {interval} {}: {}", kind.to_string(), how(&cost.reading), cost.source);
        }
    }
    page += "services of the sites' runtimes\n";
    for ground in grounds {
        let services: Vec<String> = ground.environment.iter().map(ToString::to_string).collect();
        let services = if services.is_empty() { "none".to_owned() } else { services.join(", ") };
        let _ = writeln!(page, "  {:<24} {services}", ground.site.to_string());
    }
    if let Some(work) = costs.get(&Item::Work).reading.value() {
        let _ = writeln!(page, "work for a message, where a manifest states none, is taken as {work}");
    }
    let _ = writeln!(page, "a rate that nothing states is taken as {UNKNOWN_RATE} messages a second");
    if app.sites == Sites::All {
        page += "hooks are used only where the file names them, as xdp:IFACE:native or tc:IFACE\n";
    }
    page
}

#[cfg(test)]
mod tests {
    use machine::Bytes;
    use machine::costs::End;
    use placement::layout::{Candidate, Load, Place, Unit};

    use super::*;

    /// One unit, whose work is dear at `app` and whose messages are dear at `core:1`.
    fn layout(app: f64, core: f64) -> Layout {
        let site = |name: &str| Candidate {
            site: name.parse().unwrap(),
            capacity: Load(1.0),
            memory: Bytes(1 << 20),
            slots: 8,
            price: 1.0,
            opening: 0.0,
        };
        let places = [app, core].map(|load| Place::Possible(Load(load))).to_vec();
        let unit = Unit { name: "a".into(), priority: 100, memory: Bytes(0), places };
        Layout {
            units: vec![unit],
            sites: ["app", "core:1"].map(site).to_vec(),
            channels: Vec::new(),
            constraints: Vec::new(),
            crossing_ns: vec![vec![0.0; 2]; 2],
        }
    }

    #[test]
    fn a_plan_that_hangs_on_the_costs_says_at_which() {
        let usual = layout(0.1, 0.2);
        let plan = placement::solve(&usual, &Effort::default()).unwrap();
        let dear = |corner: Corner| Ok(layout(if corner.work == End::High { 0.4 } else { 0.1 }, 0.2));
        let found = corners(&plan, &usual, dear).unwrap();
        let text = elsewhere(&found);
        assert!(
            text.starts_with("where moving messages costs least and work most: a -> core:1\nwhere moving"),
            "{text}"
        );
        assert_eq!(found.len(), 2);
        // A plan that costs the same is no other plan.
        let same = corners(&plan, &usual, |_| Ok(layout(0.2, 0.2))).unwrap();
        assert!(elsewhere(&same).starts_with("the same at all ends"), "{}", elsewhere(&same));
    }
}
