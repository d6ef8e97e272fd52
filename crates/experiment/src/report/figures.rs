//! Charts of a report: the points of each, and its axes.

use std::collections::{BTreeMap, BTreeSet};

use chart::{Absences, Axis, Figure, Frame, LineChart, Look, Mark, Scale, Series, Threshold, entry, number};
use machine::{Bytes, CoreId};
use rounds::estimate::Estimate;
use rounds::point::{Contender, Metric, Pattern, Receiver};

use super::look::Looks;
use super::wording;
use crate::findings::{Findings, PointFindings, Question};
use crate::nearness;

/// The points of one contender along the sizes.
pub struct Line<'a> {
    pub contender: Contender,
    pub name: String,
    pub points: Vec<&'a PointFindings>,
}

impl<'a> Line<'a> {
    pub fn at(&self, size: Bytes) -> Option<&'a PointFindings> {
        self.points.iter().copied().find(|p| p.spec.size == size)
    }
}

/// Lines of a question along the sizes: points whose receiver only reads, on the cores that most points of the question
/// use. A contender that never ran on those cores has lines for the cores that it ran on, named after them.
pub fn lines(findings: &Findings, question: Question, pattern: Pattern) -> Vec<Line<'_>> {
    let asked = || {
        let points = findings.points.iter().filter(move |p| p.questions.contains(&question));
        points.filter(|p| p.spec.receiver == Receiver::Reads)
    };
    let mut pairs = BTreeMap::<(CoreId, CoreId), usize>::new();
    for point in asked() {
        *pairs.entry((point.spec.local_core, point.spec.remote_core)).or_default() += 1;
    }
    let usual = pairs.iter().max_by_key(|(pair, count)| (**count, std::cmp::Reverse(**pair))).map(|(pair, _)| *pair);
    let is_usual = |p: &PointFindings| Some((p.spec.local_core, p.spec.remote_core)) == usual;

    let mut lines = Vec::new();
    let contenders: BTreeSet<_> = asked().filter(|p| p.spec.pattern == pattern).map(|p| p.spec.contender()).collect();
    for contender in contenders {
        let all = || asked().filter(|p| p.spec.pattern == pattern && p.spec.contender() == contender);
        let at_home = all().any(is_usual);
        let mut by_cores = BTreeMap::<_, Vec<&PointFindings>>::new();
        for point in all().filter(|p| !at_home || is_usual(p)) {
            let cores = (point.spec.local_core, point.spec.remote_core, point.spec.protocol_core);
            by_cores.entry(cores).or_default().push(point);
        }
        let alone = at_home && by_cores.len() == 1;
        for mut points in by_cores.into_values() {
            points.sort_by_key(|p| p.spec.size);
            let name =
                if alone { contender.to_string() } else { format!("{contender}, {}", wording::cores(&points[0].spec)) };
            lines.push(Line { contender: contender.clone(), name, points });
        }
    }
    lines
}

fn write_size(value: f64) -> String {
    Bytes(value as u64).to_string()
}

const SIZES: Axis = Axis { label: "message size", scale: Scale::Log2, write: write_size };

/// Axis of a pattern's value: bandwidth from zero, as in NetPIPE; latency and rate on a log scale.
fn values(metric: Metric) -> Axis {
    match metric {
        Metric::HalfRoundTrip => {
            Axis { label: "half round trip", scale: Scale::Log10, write: |v| number::nanoseconds(v) }
        }
        Metric::BytesPerSecond => {
            Axis { label: "bandwidth", scale: Scale::Linear, write: |v| wording::value(Metric::BytesPerSecond, v) }
        }
        Metric::MessagesPerSecond => {
            let write = |v| wording::value(Metric::MessagesPerSecond, v).replace(" msg/s", "").replace("msg/", "/");
            Axis { label: "messages a second", scale: Scale::Log10, write }
        }
    }
}

fn mark(x: f64, interval: &Estimate, title: String) -> Mark {
    Mark { x, y: interval.middle, low: interval.low, high: interval.high, title }
}

/// Value against size for one pattern of one question.
pub fn value_figure(
    findings: &Findings,
    looks: &Looks,
    question: Question,
    pattern: Pattern,
    id: &str,
) -> Option<Figure> {
    let lines = lines(findings, question, pattern);
    let series: Vec<_> = lines
        .iter()
        .map(|line| Series {
            name: line.name.clone(),
            look: looks.get(&line.contender),
            joined: true,
            marks: line.points.iter().map(|p| mark(p.spec.size.0 as f64, &p.value, wording::point(p))).collect(),
        })
        .collect();
    let metric = pattern.metric();
    let title = wording::heading(pattern).to_string();
    let caption = format!("{} Bars: 95 % interval of the median.", sentence(wording::quantity(metric)));
    figure(id, title, caption, values(metric), &series, None, vec![])
}

/// CPU time per message against size for one pattern of one question.
pub fn cpu_figure(
    findings: &Findings,
    looks: &Looks,
    question: Question,
    pattern: Pattern,
    id: &str,
) -> Option<Figure> {
    let lines = lines(findings, question, pattern);
    let mut missing = Absences::default();
    let mut series = Vec::new();
    for line in &lines {
        let mut marks = Vec::new();
        for point in &line.points {
            match point.cpu_per_message.value() {
                Some(cpu) => {
                    let write = wording::interval(cpu, number::nanoseconds);
                    let title = format!("{}, {}: {write} of CPU a message", line.name, point.spec.size);
                    marks.push(mark(point.spec.size.0 as f64, cpu, title));
                }
                None => missing.add(&line.name, number::why_missing(&point.cpu_per_message).unwrap_or_default()),
            }
        }
        series.push(Series { name: line.name.clone(), look: looks.get(&line.contender), joined: true, marks });
    }
    let title = format!("CPU time a message, {}", pattern.name());
    let caption = "All participating threads and network softirqs of both ends; less is better.".to_string();
    let axis = Axis { label: "CPU time a message", scale: Scale::Log10, write: |v| number::nanoseconds(v) };
    figure(id, title, caption, axis, &series, None, missing.lines())
}

/// Distance of the two application cores, block by block.
pub fn nearness_figure(findings: &Findings) -> Option<Figure> {
    let mut marks: Vec<Mark> = findings
        .points
        .iter()
        .flat_map(|point| point.samples.iter().map(move |sample| (point, sample)))
        .filter_map(|(point, sample)| {
            let ns = sample.probe?.nanoseconds();
            let seconds = sample.started.0.saturating_sub(findings.started.0) as f64 / 1e9;
            let title = format!(
                "{} one way, {} into the study, beside {} {}",
                number::nanoseconds(ns),
                seconds_in(seconds),
                point.spec.contender(),
                point.spec.size
            );
            Some(Mark { x: seconds, y: ns, low: ns, high: ns, title })
        })
        .collect();
    marks.sort_by(|a, b| a.x.total_cmp(&b.x));
    let series = [Series { name: "probe beside a block".into(), look: Look::PLAIN, joined: false, marks }];
    let axis = Axis { label: "one way, core to core", scale: Scale::Log10, write: |v| number::nanoseconds(v) };
    let time = Axis { label: "time into the study", scale: Scale::Linear, write: seconds_in };
    let caption = "A raw cache-line ping-pong between the two application cores, beside each block. A virtual machine's \
                   cores can move between near and far within seconds; where they did, the compared blocks did not all \
                   meet the same machine.";
    let threshold = nearness::parted_at(&findings.points)
        .map(|near| Threshold { y: near.nanoseconds(), label: "near below, far above".into() });
    let title = "How near the cores were".to_string();
    render("nearness", title, caption.into(), (time, axis), &series, threshold, vec![])
}

fn seconds_in(seconds: f64) -> String {
    format!("{seconds:.0} s")
}

fn figure(
    id: &str,
    title: String,
    caption: String,
    y: Axis,
    series: &[Series],
    threshold: Option<Threshold>,
    missing: Vec<String>,
) -> Option<Figure> {
    render(id, title, caption, (SIZES, y), series, threshold, missing)
}

fn render(
    id: &str,
    title: String,
    caption: String,
    (x, y): (Axis, Axis),
    series: &[Series],
    threshold: Option<Threshold>,
    missing: Vec<String>,
) -> Option<Figure> {
    let description = describe(series);
    let chart = LineChart { id, title: &title, description: &description, x, y, series, threshold };
    let Some(drawing) = Frame::both(|frame| chart.svg(frame)) else {
        return (!missing.is_empty()).then(|| Figure { title, missing, ..Figure::default() });
    };
    let drawn = series.iter().filter(|s| !s.marks.is_empty());
    let legend = drawn.map(|s| entry(s.look, &s.name)).collect();
    Some(Figure { title, caption, legend, drawing, missing, ..Figure::default() })
}

/// Text in place of a chart, for readers who cannot see it: each series with its first and last mark.
fn describe(series: &[Series]) -> String {
    let said = series.iter().filter_map(|s| match (s.marks.first(), s.marks.last()) {
        (Some(first), Some(last)) if s.marks.len() > 1 => Some(format!("{} … {}", first.title, last.title)),
        (Some(only), _) => Some(only.title.clone()),
        _ => None,
    });
    said.collect::<Vec<_>>().join("; ")
}

pub fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|c| c.to_uppercase().chain(chars).collect::<String>() + ".").unwrap_or_default()
}
