//! The plan and the results of a study as text.

use chart::clock::duration;
use chart::number::digits;
use machine::count;

use super::analysis::{Analysis, Stat};
use super::definition::{Campaign, Interval, Shard, words};
use super::plan::{Expected, Plan, Planned};
use super::results::Results;

/// Most lines of a list.
const MOST: usize = 24;

/// The plan of a study as text.
pub fn plan(campaign: &Campaign, plan: &Plan) -> String {
    let count = |of: fn(&Planned) -> bool| plan.points.iter().filter(|point| of(point)).count() as u64;
    let mut text = format!("{}: {}", campaign.identity.name, count::of(campaign.points.len() as u64, "point"));
    let blocks = campaign.blocks.len();
    if blocks < campaign.points.len() {
        text += &format!(" in {} that are run side by side", count::of(blocks as u64, "block"));
    }
    if plan.shard != Shard::WHOLE {
        let mine = plan.points.len() as u64 - count(|point| *point == Planned::Elsewhere);
        text += &format!("; {} in shard {}", count::grouped(mine), plan.shard);
    }
    text += &format!("\n{}\n", stops(campaign));
    let time = match plan.expected {
        _ if plan.to_come == 0 && count(|point| matches!(point, Planned::Cannot(_))) > 0 => {
            "nothing else can run here".to_owned()
        }
        _ if plan.to_come == 0 => "nothing is left to run".to_owned(),
        Expected::Takes { time, of_all } => {
            let by = if of_all { "" } else { ", going by runs of the same programs at other points" };
            format!("{} to come at most: about {}{by}", count::of(plan.to_come as u64, "run"), duration(time))
        }
        Expected::NotKnown => format!(
            "{} to come at most; how long they take is not known until the first round (--calibrate runs each program once)",
            count::of(plan.to_come as u64, "run")
        ),
    };
    text += &format!("{} done, {time}\n", count::of(plan.done as u64, "run"));
    if !plan.first_round.is_empty() {
        text += "\nOrder of the first round\n";
        for (nth, point) in plan.first_round.iter().enumerate().take(MOST) {
            text += &format!("{:>5}  {}\n", nth + 1, campaign.words(*point));
        }
        text += &more(plan.first_round.len());
    }
    let listed = |title: &str, of: fn(&Planned) -> Option<&String>| {
        // By reason: the first point, and the number of points.
        let mut reasons: Vec<(&String, usize, u64)> = Vec::new();
        for (point, planned) in plan.points.iter().enumerate() {
            let Some(why) = of(planned) else { continue };
            match reasons.iter_mut().find(|(other, ..)| *other == why) {
                Some((.., points)) => *points += 1,
                None => reasons.push((why, point, 1)),
            }
        }
        if reasons.is_empty() {
            return String::new();
        }
        let mut text = format!("\n{title}\n");
        for (why, first, points) in reasons.iter().take(MOST) {
            let more = match points - 1 {
                0 => String::new(),
                more => format!(" and {}", count::of(more, "more point")),
            };
            text += &format!("       {}{more}: {why}\n", campaign.words(*first));
        }
        text + &more(reasons.len())
    };
    text += &listed("Cannot run here", |planned| match planned {
        Planned::Cannot(why) => Some(why),
        _ => None,
    });
    text += &listed("Left after failures (--retry runs them again)", |planned| match planned {
        Planned::Left(why) => Some(why),
        _ => None,
    });
    text
}

/// The mean of a figure at a point, with its interval.
pub(super) fn mean(of: &Option<Stat>) -> String {
    match of {
        Some(Stat { mean, interval: Some((low, high)), .. }) => {
            format!("{} ({} .. {})", number(*mean), number(*low), number(*high))
        }
        Some(Stat { mean, .. }) => number(*mean),
        None => "-".to_owned(),
    }
}

/// At least three digits, with an exponent below 0.1 and from 1e7 on.
fn number(value: f64) -> String {
    match value.abs() {
        size if size != 0.0 && !(0.1..1e7).contains(&size) => format!("{value:.3e}"),
        _ => digits(value),
    }
}

fn more(of: usize) -> String {
    if of > MOST { format!("       and {} more\n", count::grouped((of - MOST) as u64)) } else { String::new() }
}

/// The stopping rule in words.
fn stops(campaign: &Campaign) -> String {
    let stop = &campaign.stop;
    let runs = u64::from(stop.repetitions);
    let budget = stop.budget.map_or(String::new(), |of| format!(", for {} at most", duration(of)));
    let several = count::of(runs, "run");
    if (0..campaign.points.len()).all(|point| super::conduct::is_simulated(campaign, point)) {
        return "each simulated once, on all cores".to_owned();
    }
    let Some(Interval { figure, half_width, against }) = &stop.interval else {
        return format!("{several} of each, in an order by chance{budget}");
    };
    let of = match against {
        None => "each point's mean".to_owned(),
        Some(axes) => format!("each ratio to {}", words(axes, true)),
    };
    let figure = &campaign.identity.figures[*figure].name;
    format!(
        "until {of} of {figure} is known within {} %, {several} of each at most, in an order by chance{budget}",
        digits(half_width * 100.0)
    )
}

/// Means of all points with 95 % intervals, and the failures.
pub fn show(name: &str, results: &Results, analysis: &Analysis) -> String {
    let failures = results.failures.len() as u64;
    let hosts = results.hosts.join(", ");
    let mut text = format!(
        "{name}: {} of {}",
        count::of(results.runs.len() as u64, "run"),
        count::of(results.points.len() as u64, "point")
    );
    text += &format!(" on {}\n", if hosts.is_empty() { "no host" } else { &hosts });
    let programs: std::collections::BTreeSet<_> = results.points.iter().map(|axes| axes.get("program")).collect();
    let names: Vec<String> = results.points.iter().map(|axes| words(axes, programs.len() > 1)).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).max(5);
    text += &format!("\n{:<width$}  {:>5}", "Point", "runs");
    for figure in &results.figures {
        let unit = if figure.unit.is_empty() { String::new() } else { format!(" [{}]", figure.unit) };
        text += &format!("  {:>30}", figure.name.clone() + &unit);
    }
    text += "\n";
    for (name, cell) in names.iter().zip(&analysis.cells) {
        text += &format!("{name:<width$}  {:>5}", count::grouped(cell.runs as u64));
        for stat in &cell.figures {
            text += &format!("  {:>30}", mean(stat));
        }
        text += "\n";
    }
    if failures > 0 {
        text += &format!("\nNot counted: {}\n", count::of(failures, "run"));
        let mut causes: Vec<(String, u64)> = Vec::new();
        for (point, why) in &results.failures {
            let line = format!("{}: {why}", names[*point as usize]);
            match causes.iter_mut().find(|(other, _)| *other == line) {
                Some((_, times)) => *times += 1,
                None => causes.push((line, 1)),
            }
        }
        for (line, times) in causes.iter().take(MOST) {
            let times = if *times > 1 { format!(", {times} times") } else { String::new() };
            text += &format!("       {line}{times}\n");
        }
        text += &more(causes.len());
    }
    text
}
