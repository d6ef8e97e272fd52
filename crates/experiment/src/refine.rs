//! What a finished study leaves to others: rows of the machine's costs, and its answers as predictions of the next study's.

use machine::costs::{self, ENGINE, Item, Row, Way};
use machine::{Nanoseconds, Reading, Result};

use crate::findings::{Choice, Findings, PointFindings, SizeRange};
use crate::ledger::{Kind, Ledger, Outcome, Prediction, Subject};
use crate::point::{Metric, Path, Pattern, Stack};
use crate::statistics::predictive_interval;

/// What stands for the MPI of a way that no MPI is above.
const NO_MPI: &str = "no MPI";

/// A row for each point whose values are costs of a message.
pub fn rows(findings: &Findings, source: &str, taken: Nanoseconds) -> Vec<Row> {
    let row = |point: &PointFindings| {
        let way = way(point)?;
        let values = point.samples.iter().map(|sample| sample.value);
        let (item, values): (Item, Vec<f64>) = match point.spec.pattern {
            Pattern::PingPong => (Item::HalfTrip(way), values.collect()),
            Pattern::MessageRate if point.spec.pattern.metric() == Metric::MessagesPerSecond => {
                (Item::Message(way), values.map(|value| 1e9 / value).collect())
            }
            _ => return None,
        };
        let cost = Reading::Measured(predictive_interval(&values)?);
        Some(Row { item, size: Some(point.spec.size), cost, source: source.to_owned(), taken })
    };
    findings.points.iter().filter_map(row).collect()
}

/// `None` where the point is of no way that a job's messages go.
fn way(point: &PointFindings) -> Option<Way> {
    let spec = &point.spec;
    if spec.protocol_core.is_some() || crate::ranges::shares(spec).is_some() {
        return None;
    }
    let here = spec.path == Path::Loopback;
    let (carrier, network) = match spec.stack {
        Stack::EngineShm if here => (ENGINE, None),
        Stack::EngineUdp if !here => (ENGINE, Some("udp")),
        Stack::EngineAfxdp if !here => (ENGINE, Some("afxdp")),
        Stack::EngineXdp if !here => (ENGINE, Some("xdp")),
        Stack::Tcp => ("tcp", (!here).then_some("lab")),
        _ => return None,
    };
    let (carrier, network) = (carrier.to_owned(), network.map(str::to_owned));
    Some(Way { carrier, mpi: NO_MPI.to_owned(), placement: spec.placement.kind(), network })
}

/// Holds the answers against those that earlier studies stored, and stores them for the next.
///
/// # Errors
/// The ledger cannot be written.
pub fn hold(ledger: &mut Ledger, findings: &Findings, source: &str, now: Nanoseconds) -> Result<()> {
    let machine: Vec<&str> = findings.machine.iter().map(|fact| fact.value.as_str()).collect();
    let subject =
        Subject { words: format!("study over {:?}", findings.path).to_lowercase(), digest: machine.join("; ") };
    for range in &findings.verdict.ranges {
        let (Choice::Place(chosen), Some(gain)) = (&range.choice, range.gain) else { continue };
        let quantity = quantity(range);
        let interval = Some((gain.low, gain.high));
        let outcome = Outcome { id: 0, came: now, value: gain.median, interval, source: source.to_owned() };
        ledger.settle(&subject, &quantity, &outcome)?;
        // The next study's estimate varies as this one's does.
        let expected = costs::Interval { low: gain.low, middle: gain.median, high: gain.high };
        ledger.predict(Prediction {
            id: 0,
            made: now,
            kind: Kind::Study,
            subject: subject.clone(),
            quantity,
            expected: expected.widened(std::f64::consts::SQRT_2),
            because: source.to_owned(),
            choice: Some(chosen.to_string()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        })?;
    }
    Ok(())
}

fn quantity(range: &SizeRange) -> String {
    let SizeRange { question, pattern, from, to, choice, .. } = range;
    let chosen = choice.contenders().first().map(ToString::to_string).unwrap_or_default();
    format!("{question}, {}, {from} to {to}: {chosen} over the next best", pattern.name())
}
