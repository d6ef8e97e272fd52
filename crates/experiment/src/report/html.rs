//! The report as one self-contained HTML page: no network, no script, no font.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use askama::Template;
use chart::page::Page;
use chart::{Entry, Figure, Frame, Section, clock, entry, number, swatch};
use machine::{Nanoseconds, count};
use rounds::contrast::looks;
use rounds::point::{Pattern, PointKey};

use super::figures::{cpu_figure, nearness_figure, value_figure};
use super::look::Looks;
use super::ruler::{Ruler, Segment, Track, untold_swatch};
use super::strip::strip;
use super::{softirqs, sweep, wording};
use crate::decision::command;
use crate::findings::{Choice, Decision, Fact, Findings, Line, PointFindings, Question, SizeRange};
use crate::wording::{decision, largest_losses};

pub fn render(findings: &Findings) -> String {
    Page {
        title: &findings.title,
        head_line: vec![
            wording::path(&findings.path),
            clock::date(findings.started),
            format!("took {}", clock::duration(findings.took)),
        ],
        style: include_str!("../../templates/report.css"),
        body: Body::of(findings).to_string(),
        ..Page::default()
    }
    .render()
}

#[derive(Template)]
#[template(path = "report.html")]
struct Body<'a> {
    title: &'a str,
    choices: Vec<ChoiceRow>,
    lines: &'a [Line],
    nearness: Option<String>,
    warnings: &'a [String],
    ruler: Option<Figure>,
    questions: Vec<QuestionRows>,
    sections: Vec<Section>,
    machine: &'a [Fact],
    how: Vec<Fact>,
    notes: Vec<String>,
    points: Vec<PointRow>,
}

/// One choice for all sizes, its command, and the largest loss of each contender.
struct ChoiceRow {
    said: String,
    command: String,
    losses: Vec<String>,
}

impl ChoiceRow {
    fn of(choice: &Decision) -> ChoiceRow {
        ChoiceRow { said: decision(choice).to_string(), command: command(choice), losses: largest_losses(choice) }
    }
}

/// Size ranges of the same question and pattern.
struct QuestionRows {
    name: String,
    rows: Vec<Row>,
}

struct Row {
    sizes: String,
    placed: bool,
    swatches: Vec<Entry>,
    choice: String,
    why_no_place: Option<String>,
    gain: String,
    cpu: String,
    cpu_known: bool,
    rejected: Vec<RejectedRow>,
    references: Vec<ReferenceRow>,
    evidence: Vec<Evidence>,
    evidence_count: usize,
}

struct RejectedRow {
    contender: String,
    why: String,
}

struct ReferenceRow {
    contender: String,
    gain: String,
    why: String,
}

/// One contender's points behind a row.
struct Evidence {
    contender: String,
    points: Vec<Link>,
}

struct Link {
    key: String,
    label: String,
    title: String,
}

struct PointRow {
    key: String,
    contender: String,
    swatch: String,
    pattern: String,
    size: String,
    setting: String,
    value: String,
    cpu: String,
    blocks: usize,
    messages: String,
    lost: String,
    strip: String,
}

impl<'a> Body<'a> {
    fn of(findings: &'a Findings) -> Self {
        let looks = Looks::of(findings);
        let verdict = &findings.verdict;
        Body {
            title: &findings.title,
            choices: verdict.decisions.iter().map(ChoiceRow::of).collect(),
            lines: &verdict.lines,
            nearness: verdict.nearness.as_ref().map(|n| {
                let share = n.near_share.map(|share| format!(", near in {:.0} % of the blocks", share * 100.0));
                format!(
                    "The two application cores were {} from each other one way{}: {}.",
                    wording::interval(&n.one_way_ns, number::nanoseconds),
                    share.unwrap_or_default(),
                    n.note.trim_end_matches('.')
                )
            }),
            warnings: &verdict.warnings,
            ruler: ruler(findings, &looks),
            questions: questions(findings, &looks),
            sections: sections(findings, &looks),
            machine: &findings.machine,
            how: how(findings),
            notes: notes(findings),
            points: findings.points.iter().enumerate().map(|(i, p)| point_row(i, p, &looks)).collect(),
        }
    }
}

/// Size ranges by question and pattern, in the order of the verdict.
fn grouped(findings: &Findings) -> Vec<(String, Vec<&SizeRange>)> {
    let mut groups: Vec<(String, Vec<&SizeRange>)> = Vec::new();
    for range in &findings.verdict.ranges {
        let name = wording::asked(range);
        match groups.iter_mut().find(|(known, _)| *known == name) {
            Some((_, ranges)) => ranges.push(range),
            None => groups.push((name, vec![range])),
        }
    }
    groups
}

fn ruler(findings: &Findings, looks: &Looks) -> Option<Figure> {
    let groups = grouped(findings);
    let tracks: Vec<_> = groups
        .iter()
        .map(|(name, ranges)| Track { name: short(name), segments: segments(name, ranges, looks) })
        .collect();
    let mut legend = BTreeMap::new();
    for range in &findings.verdict.ranges {
        if let Choice::Place(contender) = &range.choice {
            legend.insert(contender.to_string(), looks.get(contender));
        }
    }
    let open = findings.verdict.ranges.iter().any(|r| !matches!(r.choice, Choice::Place(_)));
    let untold = open.then(|| Entry { swatch: untold_swatch().into(), name: "either, or cannot tell".into() });
    let title = "Where to run, by message size";
    let description = tracks.iter().flat_map(|t| &t.segments).map(|s| s.title.clone()).collect::<Vec<_>>().join("; ");
    let write = |size: f64| machine::Bytes(size as u64).to_string();
    let chart = Ruler { id: "ruler", title, description: &description, tracks: &tracks, write };
    Some(Figure {
        title: title.into(),
        legend: legend.iter().map(|(name, look)| entry(*look, name)).chain(untold).collect(),
        drawing: Frame::both(|frame| chart.svg(frame))?,
        ..Figure::default()
    })
}

/// A heading without its text in parentheses.
fn short(name: &str) -> String {
    name.split_once(" (").map_or(name, |(short, _)| short).to_string()
}

/// Ruler segments of the ranges: neighbouring ranges meet halfway, on a log scale, between their measured sizes.
fn segments(name: &str, ranges: &[&SizeRange], looks: &Looks) -> Vec<Segment> {
    let place = |size: machine::Bytes| size.0.max(1) as f64;
    let step = 2_f64.sqrt();
    let mut segments = Vec::new();
    for (i, range) in ranges.iter().enumerate() {
        let before = i.checked_sub(1).map(|i| place(ranges[i].to));
        let after = ranges.get(i + 1).map(|next| place(next.from));
        let (from, to) = (place(range.from), place(range.to));
        segments.push(Segment {
            from: before.map_or(from / step, |end| (end * from).sqrt()),
            to: after.map_or(to * step, |start| (to * start).sqrt()),
            class: match &range.choice {
                Choice::Place(contender) => Some(looks.get(contender).class()),
                Choice::Either(_) | Choice::Alike { .. } | Choice::CannotTell { .. } => None,
            },
            name: wording::brief(&range.choice),
            title: format!("{name}, {}: {}", wording::sizes(range.from, range.to), wording::choice(&range.choice)),
        });
    }
    segments
}

fn questions(findings: &Findings, looks: &Looks) -> Vec<QuestionRows> {
    let points: BTreeMap<&PointKey, &PointFindings> = findings.points.iter().map(|p| (&p.key, p)).collect();
    grouped(findings)
        .into_iter()
        .map(|(name, ranges)| QuestionRows { name, rows: ranges.into_iter().map(|r| row(r, &points, looks)).collect() })
        .collect()
}

fn row(range: &SizeRange, points: &BTreeMap<&PointKey, &PointFindings>, looks: &Looks) -> Row {
    let mut evidence: Vec<Evidence> = Vec::new();
    for key in &range.evidence {
        let (contender, link) = match points.get(key) {
            Some(p) => {
                let link = Link { key: key.0.clone(), label: p.spec.size.to_string(), title: wording::point(p) };
                (p.spec.contender().to_string(), link)
            }
            None => {
                let label = format!("point {} is not in this report", key.0);
                ("elsewhere".into(), Link { key: String::new(), label, title: String::new() })
            }
        };
        match evidence.iter_mut().find(|e| e.contender == contender) {
            Some(known) => known.points.push(link),
            None => evidence.push(Evidence { contender, points: vec![link] }),
        }
    }
    Row {
        sizes: wording::sizes(range.from, range.to),
        placed: matches!(range.choice, Choice::Place(_)),
        swatches: range.choice.contenders().iter().map(|c| entry(looks.get(c), &c.to_string())).collect(),
        choice: wording::brief(&range.choice),
        why_no_place: wording::why_no_place(&range.choice).map(Cow::into_owned),
        gain: wording::gain_of(range),
        cpu: number::reading(&range.cpu_per_message, |i| wording::interval(i, number::nanoseconds)),
        cpu_known: range.cpu_per_message.value().is_some(),
        rejected: range
            .rejected
            .iter()
            .map(|r| RejectedRow { contender: r.contender.to_string(), why: r.why.clone() })
            .collect(),
        references: range
            .references
            .iter()
            .map(|r| ReferenceRow {
                contender: r.contender.to_string(),
                gain: r.gain.as_ref().map(wording::gain).unwrap_or_default(),
                why: r.why.clone(),
            })
            .collect(),
        evidence,
        evidence_count: range.evidence.len(),
    }
}

fn sections(findings: &Findings, looks: &Looks) -> Vec<Section> {
    let mut sections = Vec::new();
    for question in [Question::SameHost, Question::BetweenHosts] {
        let figures = |make: fn(&Findings, &Looks, Question, Pattern, &str) -> Option<Figure>, what: &str| {
            let one = |p: Pattern| make(findings, looks, question, p, &format!("{what}-{question}-{}", p.name()));
            Pattern::ALL.into_iter().filter_map(one).collect()
        };
        let (name, paths) = (question.title(), asked_on(findings, question));
        sections.push(Section {
            id: format!("speed-{question}"),
            title: format!("{name}: speed"),
            lead: format!(
                "Messages {paths}. Every mark is the median of a point's blocks; point at one for its figures."
            ),
            figures: figures(value_figure, "value"),
        });
        sections.push(Section {
            id: format!("cpu-{question}"),
            title: format!("{name}: CPU cost"),
            lead: "What a message costs the machine, wherever the work runs. A core that spins is charged in full."
                .into(),
            figures: figures(cpu_figure, "cpu"),
        });
        sections.push(Section {
            id: format!("softirqs-{question}"),
            title: format!("{name}: the kernel's network work by core"),
            lead:
                "NET_RX and NET_TX softirqs a message. Bars from the least to the most of a block; a small grey square \
                   marks what was not measured."
                    .into(),
            figures: softirqs::figures(findings, looks, question, &format!("softirqs-{question}")),
        });
    }
    sections.push(Section {
        id: "sweep".into(),
        title: Question::ProtocolCore.title().into(),
        lead: "Paper 002's question: should a process run beside the kernel's receive processing or away from it? The \
               answer turns on whether the receiver works on its data or only reads it, so both are shown."
            .into(),
        figures: sweep::figures(findings, looks),
    });
    sections.push(Section {
        id: "steadiness".into(),
        title: "How steady the machine was".into(),
        lead: String::new(),
        figures: Vec::from_iter(nearness_figure(findings)),
    });
    sections.retain(|s| !s.figures.is_empty());
    sections
}

/// The paths of a question's points.
fn asked_on(findings: &Findings, question: Question) -> String {
    let points = findings.points.iter().filter(|p| p.questions.contains(&question));
    let paths: BTreeSet<_> = points.map(|p| wording::path(&p.spec.path)).collect();
    paths.into_iter().collect::<Vec<_>>().join(" and ")
}

/// Facts on the measurement, by which a reader can judge or repeat it.
fn how(findings: &Findings) -> Vec<Fact> {
    let samples = || findings.points.iter().flat_map(|p| &p.samples);
    let rounds = count::of(samples().map(|s| s.round).max().map_or(0, |r| u64::from(r) + 1), "interleaved round");
    let messages: u64 = samples().map(|s| s.messages).sum();
    let mut overheads: Vec<u64> = samples().filter_map(|s| Some(s.accounting.as_ref()?.overhead.0)).collect();
    overheads.sort_unstable();
    let measured: Nanoseconds = samples().map(|s| s.elapsed).sum();
    let fact = |name: &str, value: String| Fact { name: name.into(), value };
    let spent: u64 = overheads.iter().sum();
    let overhead = match overheads.get(overheads.len() / 2) {
        None => "no accounting was taken".into(),
        Some(median) => format!(
            "{} a block (median), {} % of the measured time",
            number::nanoseconds(*median as f64),
            number::digits(spent as f64 * 100.0 / (measured.0.max(1)) as f64)
        ),
    };
    vec![
        fact("Questions", wording::answered(&findings.verdict)),
        fact("Points", findings.points.len().to_string()),
        fact("Blocks", format!("{} in {rounds}, order drawn at random", count::grouped(samples().count() as u64))),
        fact("Messages", count::grouped(messages)),
        fact("Time inside blocks", clock::duration(measured)),
        fact("Cost of the accounting itself", overhead),
        fact(
            "Statistics",
            format!(
                "median of the blocks, 95 % interval; gains paired by round; looked at after {} and so many more rounds, \
                 until they can tell: each comparison is wrong in 5 of 100 studies at most, however often it is looked at",
                looks().take(4).map(|look| look.to_string()).collect::<Vec<_>>().join(", ")
            ),
        ),
    ]
}

/// The study's notes, its losses, and the notes of blocks, each once with its number of blocks.
pub(super) fn notes(findings: &Findings) -> Vec<String> {
    let mut notes = findings.notes.clone();
    let mut said = BTreeMap::<&str, (BTreeSet<String>, usize)>::new();
    let mut losses = BTreeMap::<String, (u64, u64)>::new();
    for point in &findings.points {
        let contender = point.spec.contender().to_string();
        for sample in &point.samples {
            for note in &sample.notes {
                let (by, blocks) = said.entry(note).or_default();
                by.insert(contender.clone());
                *blocks += 1;
            }
            let loss = losses.entry(contender.clone()).or_default();
            *loss = (loss.0 + sample.lost, loss.1 + sample.messages);
        }
    }
    for (note, (by, blocks)) in said {
        let by = by.into_iter().collect::<Vec<_>>().join(", ");
        notes.push(format!("{by}: {} ({})", note.trim_end_matches('.'), count::of(blocks as u64, "block")));
    }
    for (contender, (lost, messages)) in losses.into_iter().filter(|(_, (lost, _))| *lost > 0) {
        let messages = count::of(messages, "message");
        notes.push(format!("{contender} lost {} of {messages}", count::grouped(lost)));
    }
    notes
}

fn point_row(index: usize, point: &PointFindings, looks: &Looks) -> PointRow {
    let spec = &point.spec;
    let metric = spec.pattern.metric();
    let values: Vec<f64> = point.samples.iter().map(|s| s.value).collect();
    let listed = values.iter().map(|v| wording::value(metric, *v)).collect::<Vec<_>>().join(", ");
    let lost: u64 = point.samples.iter().map(|s| s.lost).sum();
    PointRow {
        key: point.key.0.clone(),
        contender: spec.contender().to_string(),
        swatch: swatch(looks.get(&spec.contender())),
        pattern: spec.pattern.name().into(),
        size: match spec.perturbation.0 {
            0 => spec.size.to_string(),
            p => format!("{} ± {p} B", spec.size),
        },
        setting: format!("{}; {}; {}", spec.path, wording::cores(spec), wording::receiver(spec.receiver)),
        value: wording::interval(&point.value, |v| wording::value(metric, v)),
        cpu: number::reading(&point.cpu_per_message, |i| wording::interval(i, number::nanoseconds)),
        blocks: point.samples.len(),
        messages: count::grouped(point.samples.iter().map(|s| s.messages).sum()),
        lost: if lost == 0 { "none".into() } else { lost.to_string() },
        strip: strip(&format!("strip-{index}"), &listed, &values, &point.value).unwrap_or_default(),
    }
}
