//! A trial as one self-contained HTML page.

use std::path::{Path, PathBuf};

use askama::Template;
use chart::number::seconds;
use chart::page::Page;
use chart::{Axis, Figure, Frame, LineChart, Look, Mark, Scale, Series, Shape, Threshold, clock, entry};
use machine::{Nanoseconds, count, shell};
use rounds::contrast::{ERROR, FIRST_LOOK, looks};
use rounds::estimate::Estimate;
use rounds::sitting::End;

use super::aside::Stage;
use super::design::{Design, letter};
use super::judgement::{Judgement, differences};
use super::store::Trial;
use super::words::{self, Figures};
use super::{Run, Runs};
use crate::designs::Designed;

#[derive(Template)]
#[template(path = "trial.html")]
struct Body<'a> {
    /// Identifies the trial within its page.
    mark: String,
    verdict: &'a str,
    line: Option<&'a str>,
    merit: String,
    arms: Vec<Row<'a>>,
    figures: Vec<Figure>,
    notes: Vec<String>,
    facts: Vec<(&'static str, String)>,
}

struct Row<'a> {
    letter: char,
    name: &'a str,
    line: &'a str,
    figures: Figures,
    answer: String,
    runs: usize,
    cpu: String,
}

pub fn render(trial: &Trial, runs: &Runs, judgement: &Judgement, end: End) -> String {
    let design = &trial.design;
    let better = if design.merit.more_is_better { "more" } else { "less" };
    let rows = design.arms.iter().enumerate().map(|(arm, of)| Row {
        letter: letter(arm),
        name: &of.name,
        line: &of.line,
        figures: Figures::of(design, judgement.arms[arm].spread.as_ref()),
        answer: words::answer(design, judgement, arm),
        runs: runs.measured(arm).count(),
        cpu: cpu(runs, arm),
    });
    let verdict = words::verdict(design, judgement);
    let mut facts = vec![
        ("Rounds", format!("{} of every arm, in an order drawn anew", runs.measured(0).count())),
        ("Warm-up", count::of(design.warmup.into(), "run") + " of each arm, not counted"),
        ("Margin", format!("{}: smaller differences do not count", words::percent(design.margin))),
        (
            "Statistics",
            format!(
                "ratios within a round; looked at after {} and so many more rounds; all answers together are wrong in \
                 5 of 100 trials at most, however often they are looked at",
                looks().take(4).map(|look| look.to_string()).collect::<Vec<_>>().join(", ")
            ),
        ),
        ("Folder", design.folder.clone()),
    ];
    facts.extend(conditions(design));
    let body = Body {
        mark: mark(trial),
        verdict: &verdict,
        line: words::chosen(judgement).map(|arm| design.arms[arm].line.as_str()),
        merit: format!("{}, {better} is better", design.merit.name()),
        arms: rows.collect(),
        figures: figures(design, runs, judgement),
        notes: words::notes(design, runs, judgement, end),
        facts,
    };
    Page {
        title: &verdict,
        head_line: vec!["trial".into(), clock::date(trial.started), format!("took {}", clock::duration(runs.spent))],
        body: body.to_string(),
        ..Page::default()
    }
    .render()
}

/// Text that is in the page of this trial and in no other.
fn mark(trial: &Trial) -> String {
    format!("{}-{}", trial.design.hash(), trial.started.0)
}

/// File for the page of a trial: `wanted`, or with a number added where `wanted` is another file.
pub fn place(wanted: &Path, trial: &Trial) -> PathBuf {
    let mark = mark(trial);
    let is_own = |path: &Path| std::fs::read_to_string(path).is_ok_and(|text| text.contains(&mark));
    // Devices and pipes are always written to.
    let is_free = |path: &PathBuf| !path.is_file() || is_own(path);
    let beside = (2_u32..).map(|number| numbered(wanted, number));
    std::iter::once(wanted.to_owned()).chain(beside).find(is_free).unwrap_or_else(|| wanted.to_owned())
}

fn numbered(path: &Path, number: u32) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(format!("-{number}"));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

/// Conditions of every run, besides its command.
fn conditions(design: &Design) -> Vec<(&'static str, String)> {
    let conditions = &design.conditions;
    let mut facts = vec![match &conditions.shell {
        Some(shell) => ("Shell", format!("{shell} runs each command; its own start is in the time of a run")),
        None => ("Shell", "none".to_owned()),
    }];
    facts.extend(conditions.input.clone().map(|input| ("Standard input", input)));
    for stage in Stage::ALL {
        let mut words: Vec<String> =
            (0..design.arms.len()).map(|arm| shell::words(conditions.words(arm, stage))).collect();
        words.dedup();
        words.retain(|words| !words.is_empty());
        let name = match stage {
            Stage::Setup => "Before the first run",
            Stage::Prepare => "Before each run",
            Stage::Conclude => "After each run",
            Stage::Cleanup => "After the last run",
        };
        facts.extend((!words.is_empty()).then(|| (name, words.join("; ") + " (not timed)")));
    }
    facts
}

/// Medians of the CPU time of an arm's runs.
fn cpu(runs: &Runs, arm: usize) -> String {
    let middle = |of: fn(&Run) -> Option<Nanoseconds>| {
        let values: Vec<f64> = runs.measured(arm).filter_map(|run| Some(of(run)?.0 as f64 / 1e9)).collect();
        rounds::statistics::median(&values).map(seconds)
    };
    match (middle(|run| run.cpu), middle(|run| run.system)) {
        (Some(all), Some(system)) => format!("{all}, {system} of it in the kernel"),
        (Some(all), None) => all,
        (None, _) => "not known".to_owned(),
    }
}

fn look(arm: usize) -> Look {
    let shapes = [Shape::Circle, Shape::Square, Shape::Diamond, Shape::Up, Shape::Down];
    Look { colour: (arm % 6) as u8, shape: shapes[arm % shapes.len()], line: (arm / 6) as u8 }
}

/// Charts of all runs, and of the intervals from look to look.
fn figures(design: &Design, runs: &Runs, judgement: &Judgement) -> Vec<Figure> {
    let legend = |from: usize| {
        (from..design.arms.len()).map(|arm| entry(look(arm), &format!("{}, {}", letter(arm), design.arms[arm].name)))
    };
    let mark = |x: f64, y: f64, title: String| Mark { x, y, low: y, high: y, title };
    let usual = judgement.arms[0].median().unwrap_or(f64::NAN);
    let over = |value: f64| if design.merit.more_is_better { value / usual } else { usual / value };
    let every: Vec<Series> = (0..design.arms.len())
        .map(|arm| Series {
            name: letter(arm).to_string(),
            look: look(arm),
            joined: false,
            marks: (runs.measured(arm).filter_map(|run| Some((run.round?, run.value))))
                .map(|(round, value)| {
                    let said = format!("{}, round {}: {}", letter(arm), round + 1, words::figure(design, value));
                    mark(f64::from(round + 1), 100.0 * (over(value) - 1.0), said)
                })
                .collect(),
        })
        .collect();
    let pairs = (design.arms.len() * (design.arms.len() - 1) / 2) as f64;
    let narrowing: Vec<Series> = (1..design.arms.len())
        .map(|arm| {
            let all = differences(design, runs, arm, 0);
            let at = |rounds: usize| {
                let found = Estimate::of(&all[..rounds], ERROR / pairs)?;
                let title = format!(
                    "{} after {rounds} rounds: {} {}",
                    letter(arm),
                    words::difference(design, found.middle),
                    words::interval(design, &found)
                );
                let share = |d: f64| 100.0 * (d.exp() - 1.0);
                Some(Mark {
                    x: rounds as f64,
                    y: share(found.middle),
                    low: share(found.low),
                    high: share(found.high),
                    title,
                })
            };
            let seen = looks().map(|look| look as usize).take_while(|look| *look < all.len()).chain([all.len()]);
            let seen = seen.filter(|rounds| *rounds >= FIRST_LOOK as usize);
            Series {
                name: letter(arm).to_string(),
                look: look(arm),
                joined: true,
                marks: seen.filter_map(at).collect(),
            }
        })
        .collect();
    let drawn = |title: &str, caption: &str, chart: LineChart, legend: Vec<chart::Entry>| {
        let drawing = Frame::both(|frame| chart.svg(frame))?;
        Some(Figure { title: title.into(), caption: caption.into(), legend, drawing, ..Figure::default() })
    };
    let whole = |value: f64| format!("{value:.0}");
    let rounds = || Axis { label: "round", scale: Scale::Linear, write: whole };
    let better = Axis { label: "better, %", scale: Scale::Linear, write: |value| chart::number::digits(value) };
    let line = |label: &str| Some(Threshold { y: 0.0, label: label.to_owned() });
    let runs = LineChart {
        id: "runs",
        title: "Every run",
        description: "Every run, by round, over the median of the first arm",
        x: rounds(),
        y: better,
        series: &every,
        threshold: line("A's median"),
    };
    let narrowing = LineChart {
        id: "narrowing",
        title: "Better than A by, %",
        description: "How much better each arm is than the first, with its interval at each look",
        x: rounds(),
        y: better,
        series: &narrowing,
        threshold: line(""),
    };
    [
        drawn("Every run", "Runs of one round stand above each other; above 0 is better than the median of A.", runs, legend(0).collect()),
        drawn(
            "How it became certain",
            "Above 0 is better than A. The interval narrows from look to look; together all are right in 95 of 100 trials.",
            narrowing,
            legend(1).collect(),
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}
