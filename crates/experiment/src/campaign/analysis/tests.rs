use machine::Nanoseconds;
use rounds::random::Random;

use super::*;
use crate::axes::Axes;
use crate::campaign::results::{Figure, Run};

const CLOCKS: [&str; 4] = ["1.9GHz", "3.8GHz", "2.9GHz", "2.4GHz"];

fn text(value: &str) -> Value {
    Value::Text(value.to_owned())
}

fn hertz(clock: &str) -> f64 {
    text(clock).magnitude().unwrap() / 1e9
}

/// A program of 10 s at any clock, and `protocol` seconds for each node at full clock; watts follow the clock. Runs have
/// `noise`, rounds drift, and on offload the protocol's work is `offload` times as long at every clock.
struct Truth {
    protocol: f64,
    offload: f64,
    noise: f64,
}

impl Truth {
    fn time(&self, carrier: &str, nodes: f64, clock: f64) -> f64 {
        let protocol = self.protocol * nodes * if carrier == "offload" { self.offload } else { 3.8 / clock };
        10.0 + protocol
    }

    fn watts(clock: f64) -> f64 {
        40.0 + 60.0 * (clock / 3.8).powi(3)
    }

    fn study(&self, rounds: u32, seed: u64) -> Results {
        let figure = |name: &str, unit: &str| Figure { name: name.into(), unit: unit.into(), more_is_better: false };
        let figures = vec![figure("time", "s"), figure("watts", "W")];
        let mut results = Results { figures, hosts: vec!["here".into()], ..Results::default() };
        let mut random = Random::new(seed);
        for carrier in ["onload", "offload"] {
            for nodes in [1, 2, 4] {
                for clock in CLOCKS {
                    let axes = Axes::default().with("carrier", text(carrier)).with("nodes", Value::Number(nodes));
                    results.points.push(axes.with("clock", text(clock)).with("program", text("milc")));
                }
            }
        }
        let normal = |random: &mut Random| (0..12).map(|_| random.unit()).sum::<f64>() - 6.0;
        for round in 0..rounds {
            let drift = 1.0 + 0.05 * normal(&mut random);
            for (point, axes) in results.points.iter().enumerate() {
                let word = |name: &str| axes.get(name).unwrap().to_string();
                let (clock, nodes) = (hertz(&word("clock")), word("nodes").parse().unwrap());
                let mut noisy = |value: f64| value * (self.noise * normal(&mut random)).exp();
                let time = noisy(self.time(&word("carrier"), nodes, clock)) * drift;
                let watts = noisy(Truth::watts(clock));
                results.runs.push(Run {
                    point: point as u32,
                    host: 0,
                    round,
                    started: Nanoseconds(0),
                    elapsed: Nanoseconds((time * 1e9) as u64),
                    values: vec![Some(time), Some(watts)],
                    clock: None,
                });
            }
        }
        results
    }
}

fn found(truth: &Truth, rounds: u32, seed: u64) -> Analysis {
    analyse(&truth.study(rounds, seed), &Named::default()).unwrap()
}

#[test]
fn what_is_true_is_found_from_drifting_runs() {
    let truth = Truth { protocol: 0.5, offload: 0.1, noise: 0.003 };
    let analysis = found(&truth, 12, 1);
    let (roles, curves) = (&analysis.roles, &analysis.trades);
    assert_eq!((roles.carrier.as_deref(), roles.scale.as_deref()), (Some("carrier"), Some("nodes")));
    assert_eq!((roles.baseline.as_deref(), roles.power, curves.len()), (Some("onload"), Some(1), 6));
    for curve in curves {
        assert_eq!((curve.reference.as_str(), curve.steps.len()), ("3.8GHz", 4));
        let (carrier, nodes) = (curve.place.carrier.as_deref().unwrap(), curve.place.scale.as_deref().unwrap());
        let time = |clock: f64| truth.time(carrier, nodes.parse().unwrap(), clock);
        for step in &curve.steps[1..] {
            let clock = hertz(&step.clock);
            let near = |change: Option<Change>, true_value: f64| {
                let change = change.unwrap();
                assert!((change.middle - true_value).abs() < 0.6, "{} {change:?}: {true_value}", step.clock);
            };
            near(step.lost, 100.0 * (1.0 - time(3.8) / time(clock)));
            near(step.saved, 100.0 * (1.0 - Truth::watts(clock) / Truth::watts(3.8)));
            near(step.energy, 100.0 * (Truth::watts(clock) * time(clock) / Truth::watts(3.8) / time(3.8) - 1.0));
            assert!(step.saved.unwrap().sure);
        }
        // Watts fall by more than performance at every step.
        assert_eq!(curve.steps.last().map(|step| step.knee), Some(Knee::Here));
    }
    let [gain] = analysis.gains.as_slice() else { panic!("{:?}", analysis.gains) };
    assert_eq!((gain.carrier.as_str(), gain.steps.len()), ("offload", 12));
    assert!(gain.steps.iter().all(|step| step.performance.is_some_and(|of| of.sure && of.middle > 0.0)));
    // Offload gains more where the clock is lower and where there are more nodes.
    let trends = |by: &str| gain.trends.iter().filter(move |trend| trend.by.contains(by)).collect::<Vec<_>>();
    assert_eq!((trends("GHz").len(), trends("nodes").len()), (3, 4));
    assert!(trends("GHz").iter().all(|trend| trend.change.is_some_and(|of| of.sure && of.middle < 0.0)));
    assert!(trends("nodes").iter().all(|trend| trend.change.is_some_and(|of| of.sure && of.middle > 0.0)));
    // Onload at 4 nodes and a low clock is slower than offload for the same watts.
    let onload = curves.iter().find(|of| of.place.carrier.as_deref() == Some("onload")).unwrap();
    assert!(onload.steps.iter().all(|step| step.front != Front::On), "{onload:?}");
}

/// 400 studies in which both carriers are alike and clocks change nothing but watts.
#[test]
fn one_study_in_20_has_a_wrong_answer_at_most() {
    let truth = Truth { protocol: 0.0, offload: 1.0, noise: 0.01 };
    let studies = 400;
    let wrong = (0..studies).filter(|seed| {
        let analysis = found(&truth, 6, *seed);
        let lost = analysis.trades.iter().flat_map(|curve| &curve.steps).filter_map(|step| step.lost);
        let gains = analysis.gains.iter().flat_map(|gain| gain.steps.iter().flat_map(|of| [of.performance, of.power]));
        let trends = analysis.gains.iter().flat_map(|gain| gain.trends.iter().map(|trend| trend.change));
        lost.chain(gains.flatten()).chain(trends.flatten()).any(|change| change.sure)
    });
    let share = wrong.count() as f64 / studies as f64;
    assert!(share <= 0.05 + 3.0 * (0.05 * 0.95 / studies as f64).sqrt(), "{share}");
}

#[test]
fn what_is_absent_is_no_zero() {
    let truth = Truth { protocol: 0.5, offload: 0.1, noise: 0.003 };
    let mut results = truth.study(6, 3);
    results.figures.truncate(1);
    results.failures.push((0, "the node was lost".into()));
    results.runs.iter_mut().for_each(|run| run.values.truncate(1));
    // A point without runs, and one whose figure could not be read.
    results.runs.retain(|run| run.point != 5);
    results.runs.iter_mut().filter(|run| run.point == 6).for_each(|run| run.values[0] = None);
    let analysis = analyse(&results, &Named::default()).unwrap();
    let steps = || analysis.trades.iter().flat_map(|curve| &curve.steps);
    assert!(steps().all(|step| step.saved.is_none() && step.front == Front::Unknown && step.knee == Knee::No));
    assert_eq!((analysis.cells[5].runs, analysis.cells[6].figures[0]), (0, None));
    let notes = [analysis.notes.clone(), analysis.failures.clone()].concat().join("\n");
    assert!(
        notes.contains("No watts were measured") && notes.contains("Not counted, 1 run: the node was lost"),
        "{notes}"
    );
    let of = |point: usize| steps().find(|step| step.point == point).unwrap();
    // Point 5, the reference of point 6, has no runs; point 6 has no value.
    assert_eq!((of(5).lost, of(6).lost), (None, None));
}

/// Simulated points have one run each; clocks are GHz without a unit, and ranks a host follow from the nodes.
#[test]
fn simulated_points_are_compared_exactly() {
    let truth = Truth { protocol: 0.5, offload: 0.1, noise: 0.0 };
    let mut results = truth.study(1, 3);
    results.simulated = vec![true; results.points.len()];
    for axes in &mut results.points {
        let (clock, nodes) = (hertz(&axes.get("clock").unwrap().to_string()), axes.get("nodes").unwrap().to_string());
        let ranks = Value::Number(8 / nodes.parse::<i64>().unwrap());
        *axes = axes.clone().with("clock", text(&clock.to_string())).with("ranks_a_host", ranks);
    }
    let analysis = analyse(&results, &Named::default()).unwrap();
    assert!(analysis.cells.iter().all(|cell| cell.place.panel.is_empty()), "{:?}", analysis.cells[0].place);
    let curve = &analysis.trades[0];
    let lost = curve.steps[3].lost.unwrap();
    let expected = 100.0 * (1.0 - truth.time("onload", 1.0, 3.8) / truth.time("onload", 1.0, 1.9));
    assert!((lost.middle - expected).abs() < 1e-9 && lost.low == lost.high && lost.sure, "{lost:?}");
    assert_eq!((curve.reference.as_str(), curve.steps[3].knee), ("3.8", Knee::Here));
    assert_eq!(analysis.gains[0].trends.len(), 7);
    assert!(terminal(&analysis).contains("%, simulated"));
    assert!(
        analysis.notes.iter().any(|note| note.starts_with("24 of 24 points are simulated")),
        "{:?}",
        analysis.notes
    );
}

#[test]
fn a_page_has_the_numbers_of_axes_that_have_none() {
    let mut results = Truth { protocol: 0.5, offload: 0.1, noise: 0.003 }.study(2, 3);
    let of = |flag| Axes::default().with("flag", text(flag)).with("program", text("milc"));
    results.points = ["-O2", "-O3"].map(of).to_vec();
    results.runs.retain(|run| run.point < 2);
    let analysis = analyse(&results, &Named::default()).unwrap();
    let html = page(&analysis, "flags", Vec::new());
    let mean = crate::campaign::terminal::mean(&analysis.cells[1].figures[0]);
    assert!(html.contains("<td>flag -O3</td><td>2</td>") && html.contains(&format!("<td>{mean}</td>")), "{html}");
    assert!(html.contains("time, s</th>"), "{html}");
}

#[test]
fn names_that_the_study_lacks_are_refused() {
    let results = Truth { protocol: 0.5, offload: 0.1, noise: 0.003 }.study(2, 3);
    let named = |named: Named| analyse(&results, &named).unwrap_err().to_string();
    let clock = named(Named { clock: Some("frequency".into()), ..Named::default() });
    assert!(clock.contains("clock 'frequency'") && clock.contains("carrier, clock, nodes, program"), "{clock}");
    let figure = named(Named { performance: Some("speed".into()), ..Named::default() });
    assert!(figure.contains("figure 'speed'") && figure.contains("time, watts"), "{figure}");
    let baseline = named(Named { baseline: Some("verbs".into()), ..Named::default() });
    assert!(baseline.contains("baseline 'verbs'"), "{baseline}");
    let other = Named { baseline: Some("offload".into()), ..Named::default() };
    assert_eq!(analyse(&results, &other).unwrap().gains[0].carrier, "onload");
}

#[test]
fn the_carrier_that_the_file_names_first_is_the_baseline() {
    let results = Truth { protocol: 0.5, offload: 0.1, noise: 0.003 }.study(2, 3);
    let baseline = |first: Option<Axes>| {
        let named = Named { first, ..Named::default() };
        analyse(&results, &named).unwrap().gains[0].baseline.clone()
    };
    assert_eq!(baseline(None), "onload", "the first point's");
    assert_eq!(baseline(results.points.last().cloned()), "offload");
    assert_eq!(baseline(Some(Axes::default().with("carrier", text("verbs")))), "onload", "no point has that one");
}

#[test]
fn pages_and_tables() {
    let truth = Truth { protocol: 0.5, offload: 0.1, noise: 0.003 };
    let mut results = truth.study(6, 3);
    results.points.iter_mut().for_each(|axes| *axes = axes.clone().with("program", text("a \"b\", <c>")));
    let analysis = analyse(&results, &Named::default()).unwrap();
    insta::assert_snapshot!("analysis_terminal", terminal(&analysis));
    insta::assert_snapshot!("analysis_csv", csv(&analysis));
    let html = page(&analysis, "milc <4 nodes>", vec!["simulated".into()]);
    assert!(html.contains("milc &#60;4 nodes&#62;") || html.contains("milc &lt;4 nodes&gt;"));
    assert!(html.contains("Watts saved against performance lost") && html.matches("<svg").count() >= 3);
}
