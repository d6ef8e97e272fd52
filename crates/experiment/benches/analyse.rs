//! How long the analysis of many runs takes: `cargo bench -p experiment --bench analyse -- [RUNS]`

use std::time::Instant;

use experiment::axes::{Axes, Value};
use experiment::campaign::analysis::{Named, analyse, csv, page};
use experiment::campaign::results::{Figure, Results, Run};
use machine::Nanoseconds;
use rounds::random::Random;

fn main() -> machine::Result<()> {
    let runs = std::env::args()
        .skip(1)
        .find(|word| word != "--bench")
        .and_then(|word| word.parse::<usize>().ok())
        .unwrap_or(1_000_000);
    let figure = |name: &str, unit: &str| Figure { name: name.into(), unit: unit.into(), more_is_better: false };
    let hosts = (0..4).map(|host| format!("node{host}")).collect();
    let figures = vec![figure("time", "s"), figure("watts", "W")];
    let mut results = Results { figures, hosts, ..Results::default() };
    for carrier in ["onload", "offload"] {
        for nodes in [1, 2, 4, 8] {
            for clock in ["1.4GHz", "1.9GHz", "2.4GHz", "2.9GHz", "3.4GHz", "3.8GHz"] {
                let axes = Axes::default().with("carrier", Value::Text(carrier.into()));
                results.points.push(axes.with("nodes", Value::Number(nodes)).with("clock", Value::Text(clock.into())));
            }
        }
    }
    let mut random = Random::new(1);
    let points = results.points.len();
    for nth in 0..runs {
        let time = 1.0 + 0.01 * random.unit();
        results.runs.push(Run {
            point: (nth % points) as u32,
            host: (nth / points % 4) as u32,
            round: (nth / points / 4) as u32,
            started: Nanoseconds(nth as u64),
            elapsed: Nanoseconds(1),
            values: vec![Some(time), Some(100.0 + random.unit())],
            clock: None,
        });
    }
    let begun = Instant::now();
    let analysis = analyse(&results, &Named::default())?;
    let analysed = begun.elapsed();
    let (rows, page) = (csv(&analysis).lines().count(), page(&analysis, "many runs", Vec::new()).len());
    println!(
        "{runs} runs of {points} points, {} comparisons: analysed in {:.2} s",
        analysis.comparisons,
        analysed.as_secs_f64()
    );
    println!("with CSV ({rows} lines) and page ({page} B): {:.2} s", begun.elapsed().as_secs_f64());
    Ok(())
}
