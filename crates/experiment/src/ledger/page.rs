//! The ledger as one HTML page.

use askama::Template;
use chart::page::Page;
use chart::{Axis, Figure, Frame, LineChart, Look, Mark, Scale, Series, Shape, Threshold, clock, entry};
use machine::costs::Interval;

use super::terminal::{expected, summary, value, verdict};
use super::{Ledger, Settled, Tally, tallies};

#[derive(Template)]
#[template(path = "ledger.html")]
struct Body {
    kinds: Vec<Section>,
    open: Vec<[String; 4]>,
}

struct Section {
    name: &'static str,
    summary: String,
    figure: Option<Figure>,
    rows: Vec<[String; 6]>,
}

/// Renders the page.
pub fn render(ledger: &Ledger) -> String {
    let kinds = tallies(ledger).into_iter().map(|tally| Section {
        name: tally.kind.words(),
        summary: summary(&tally),
        figure: figure(&tally),
        rows: tally.settled.iter().map(row).collect(),
    });
    let open = ledger.open_predictions().map(|of| {
        [clock::date(of.made), format!("{} of {}", of.quantity, of.subject.words), expected(of), of.grounds()]
    });
    let body = Body { kinds: kinds.collect(), open: open.collect() };
    let head_line = vec!["ledger".into(), ledger.path().display().to_string()];
    Page { title: "What plimsoll predicted, and what came", head_line, body: body.to_string(), ..Page::default() }
        .render()
}

fn row(settled: &Settled) -> [String; 6] {
    let of = settled.prediction;
    [
        clock::date(settled.outcome.came),
        format!("{} of {}", of.quantity, of.subject.words),
        expected(of),
        value(of.kind, settled.outcome.value),
        verdict(settled).to_owned(),
        of.choice.clone().unwrap_or_default(),
    ]
}

/// Each outcome over what was expected, with the interval around 0, in order of time.
fn figure(tally: &Tally) -> Option<Figure> {
    let mut settled: Vec<&Settled> = tally.settled.iter().collect();
    settled.sort_by_key(|settled| settled.outcome.came);
    let percent = |value: f64, settled: &Settled| 100.0 * (value / settled.prediction.expected.middle - 1.0);
    let expected = settled.iter().enumerate().map(|(at, settled)| {
        let Interval { low, high, .. } = settled.prediction.expected;
        let title = format!("expected: {}", expected(settled.prediction));
        Mark { x: (at + 1) as f64, y: 0.0, low: percent(low, settled), high: percent(high, settled), title }
    });
    let came = settled.iter().enumerate().map(|(at, settled)| {
        let y = percent(settled.outcome.value, settled);
        let (low, high) =
            settled.outcome.interval.map_or((y, y), |(low, high)| (percent(low, settled), percent(high, settled)));
        let title = format!("came: {}", value(settled.prediction.kind, settled.outcome.value));
        Mark { x: (at + 1) as f64, y, low, high, title }
    });
    let expected = Series {
        name: "expected".into(),
        look: Look { colour: 5, shape: Shape::Square, line: 0 },
        joined: false,
        marks: expected.collect(),
    };
    let came = Series {
        name: "came".into(),
        look: Look { colour: 0, shape: Shape::Circle, line: 0 },
        joined: false,
        marks: came.collect(),
    };
    if came.marks.len() < 2 {
        return None;
    }
    let legend = [&expected, &came].map(|series| entry(series.look, &series.name)).into();
    let series = [expected, came];
    let chart = LineChart {
        id: tally.kind.words(),
        title: tally.kind.words(),
        description: "Outcomes over the middle of what was expected, with the expected interval, in the order in which they came",
        x: Axis { label: "outcome", scale: Scale::Linear, write: |at| format!("{at:.0}") },
        y: Axis { label: "from the middle, %", scale: Scale::Linear, write: chart::number::digits },
        series: &series,
        threshold: Some(Threshold { y: 0.0, label: "as expected".into() }),
    };
    Some(Figure {
        title: "Outcomes against predictions".into(),
        caption: "A circle within its square's bar held.".into(),
        legend,
        drawing: Frame::both(|frame| chart.svg(frame))?,
        ..Figure::default()
    })
}
