//! Results of a finished study for later ones: rows of the machine's costs, and its gains as predictions for the next study.

use machine::costs::{self, ENGINE, Item, Row, Way};
use machine::{Nanoseconds, Reading, Result, Site};
use rounds::comparison::Paired;
use rounds::contrast::FIRST_LOOK;
use rounds::estimate::Estimate;
use rounds::point::{Metric, Path, Pattern, PointSpec, Stack};
use rounds::statistics::predictive_interval;

use crate::findings::{Findings, PointFindings};
use crate::ledger::{Kind, Ledger, Outcome, Prediction, Subject};
use crate::ranges::shares;

/// The MPI of a way that is used without MPI.
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
            // A message rate is preferred where there is one.
            Pattern::Stream if !findings.points.iter().any(|other| is_rate_of(other, &point.spec)) => {
                (Item::Message(way), values.map(|value| point.spec.size.0 as f64 * 1e9 / value).collect())
            }
            _ => return None,
        };
        let cost = Reading::Measured(predictive_interval(&values)?);
        Some(Row { item, size: Some(point.spec.size), cost, source: source.to_owned(), taken })
    };
    findings.points.iter().filter_map(row).collect()
}

/// Whether `of` is the rate of the messages that `spec` streams.
fn is_rate_of(of: &PointFindings, spec: &PointSpec) -> bool {
    of.spec.pattern == Pattern::MessageRate
        && (of.spec.contender(), of.spec.size, &of.spec.path) == (spec.contender(), spec.size, &spec.path)
}

/// The way of a point; `None` where no job's messages go that way.
fn way(point: &PointFindings) -> Option<Way> {
    let spec = &point.spec;
    let here = match spec.path {
        Path::Loopback => true,
        Path::Lab => false,
        // The costs name no host.
        Path::Remote(_) => return None,
    };
    if spec.protocol_core.is_some() || shares(spec).is_some() {
        return None;
    }
    let (carrier, network) = match spec.stack {
        Stack::EngineShm if here => (ENGINE, None),
        Stack::Tcp => ("tcp", (!here).then_some("lab")),
        stack => (ENGINE, Some(stack.network().filter(|_| !here)?.name())),
    };
    let (carrier, network) = (carrier.to_owned(), network.map(str::to_owned));
    Some(Way { carrier, mpi: NO_MPI.to_owned(), placement: spec.placement.kind(), network })
}

/// Settles an earlier study's predictions of the engine's gain over the kernel's TCP at each size on this machine, and
/// predicts the gain for the next study.
///
/// # Errors
/// The ledger cannot be written.
pub fn hold(ledger: &mut Ledger, findings: &Findings, source: &str, now: Nanoseconds) -> Result<()> {
    let machine: Vec<&str> = findings.machine.iter().map(|fact| fact.value.as_str()).collect();
    let subject = Subject { words: "a study".to_owned(), digest: machine.join("; ") };
    let gains = gains(findings);
    for (quantity, Estimate { middle, low, high, .. }) in &gains {
        let interval = Some((*low, *high));
        let outcome = Outcome { id: 0, came: now, value: *middle, interval, source: source.to_owned() };
        ledger.settle(&subject, quantity, &outcome)?;
    }
    let widening = ledger.widening(Kind::Study, None);
    for (quantity, Estimate { middle, low, high, .. }) in gains {
        // The next study's estimate varies as this one's does.
        let expected = costs::Interval { low, middle, high }.widened(std::f64::consts::SQRT_2);
        let of = Prediction::new(Kind::Study, subject.clone(), quantity, expected, source);
        ledger.predict(Prediction { made: now, ..of }.widened(widening))?;
    }
    Ok(())
}

/// "engine-udp at app over tcp in the kernel, ping-pong at 8 B, lab", with the ratio of their performance.
fn gains(findings: &Findings) -> Vec<(String, Estimate)> {
    let free = |point: &&PointFindings| point.spec.protocol_core.is_none() && shares(&point.spec).is_none();
    let mut gains = Vec::new();
    for point in findings.points.iter().filter(free).filter(|point| point.spec.stack.is_engine()) {
        let usual = PointSpec { stack: Stack::Tcp, placement: Site::App, interface: None, ..point.spec.clone() };
        let Some(usual) = findings.points.iter().find(|other| other.spec == usual) else { continue };
        let PointSpec { pattern, size, path, .. } = &point.spec;
        let paired = Paired::performance(&point.samples, &usual.samples, pattern.metric());
        if let Some(interval) = paired.interval().filter(|interval| interval.samples >= FIRST_LOOK as usize) {
            let (one, other) = (point.spec.contender(), usual.spec.contender());
            gains.push((format!("{one} over {other}, {} at {size}, {path}", pattern.name()), interval));
        }
    }
    gains
}
