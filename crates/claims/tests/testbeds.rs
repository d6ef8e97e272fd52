//! The simulator's protocols of constants beside the papers' figures that they rest on.

use std::path::Path;

use claims::Calibration;
use simulate::cluster::profile::Card;
use simulate::file::Simulation;

/// A5 and A7: the loss of watts at 2.9 of 3.8 GHz, in percent.
#[test]
fn watts_fall_as_the_papers_calibrate_rows_say() {
    let rows = Calibration::of_papers();
    for (card, row) in [(Card::Onload, "onload/power/2.9"), (Card::Offload, "offload/power/2.9")] {
        let [dynamic, exponent] = card.watts().map(|constant| *constant.value.value().unwrap());
        let saved = 100.0 * dynamic * (1.0 - (2.9_f64 / 3.8).powf(exponent));
        let range = rows.range(row).unwrap();
        assert!((range.low..=range.high).contains(&-saved), "{card:?}: {saved}");
    }
}

fn testbed(name: &str, change: &[(&str, &str)]) -> f64 {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../simulate/testbeds");
    let mut text = std::fs::read_to_string(folder.join(name)).unwrap();
    for (from, to) in change {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    let (_, outcome) = Simulation::parse(&text, &folder).and_then(Simulation::run).unwrap();
    outcome.finished.total() as f64
}

/// In points of per cent of the rows that the constants rest on (A5, A6, A7). A message has other costs beside those of its bytes,
/// which the rows' closed form does not know, and `verbs` above its eager limit takes nothing of the receiving core a byte.
#[test]
fn streams_lose_what_the_papers_calibrate_rows_say() {
    let rows = Calibration::of_papers();
    let mut misses = Vec::new();
    for (file, clock, row, bound) in [
        ("onload.toml", "2.9", "onload/bandwidth/2.9", 1.0),
        ("onload.toml", "1.9", "onload/bandwidth/1.9", 0.5),
        ("offload.toml", "2.9", "offload/bandwidth/2.9", 0.6),
    ] {
        let at = |clock: &str| testbed(file, &[("\nclock_ghz = 1.9", &format!("\nclock_ghz = {clock}"))]);
        let change = 100.0 * (at("3.8") / at(clock) - 1.0);
        let range = rows.range(row).unwrap();
        let miss = (change - (range.low + range.high) / 2.0).abs();
        misses.push((row, change, miss, miss <= bound));
    }
    assert!(misses.iter().all(|(.., holds)| *holds), "{misses:?}");
}

/// Streams over a host's three kinds of cores (B1), within 2 %: the row is rounded to a tenth.
#[test]
fn a_tcp_stream_is_as_fast_as_the_papers_calibrate_row_says() {
    let rows = Calibration::of_papers();
    let mut misses = Vec::new();
    for (core, row) in
        [(0, "tcp/bandwidth/interrupt"), (2, "tcp/bandwidth/other-socket"), (1, "tcp/bandwidth/same-socket")]
    {
        let host =
            ["0", "1"].map(|rank| (0..4).map(|at| if at == core { rank } else { "-1" }).collect::<Vec<_>>().join(", "));
        let text = format!(
            "[[machine]]\nname = \"host\"\ncount = 2\nsockets = [[0, 1], [2, 3]]\nfull_clock_ghz = 3.0\n[link]\nlatency_us = 50.0\n\
             gigabits_a_second = 10.0\n[protocol]\nprofile = \"mpich-tcp\"\n[mapping]\ntable = [[{}], [{}]]\n\
             [program]\nname = \"stream\"\nbytes = 1048576\nmessages = 50\n",
            host[0], host[1]
        );
        let (_, outcome) = Simulation::parse(&text, Path::new(".")).and_then(Simulation::run).unwrap();
        let finished = outcome.finished;
        let gigabits = finished.sent as f64 * 8e3 / finished.total() as f64;
        let range = rows.range(row).unwrap();
        let over = gigabits / ((range.low + range.high) / 2.0);
        misses.push((row, gigabits, over, (over - 1.0).abs() <= 0.02));
    }
    assert!(misses.iter().all(|(.., holds)| *holds), "{misses:?}");
}
