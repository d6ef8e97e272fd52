//! Raw samples of a study as CSV or JSON.

use std::io::Write;

use machine::{Fault, Result};
use rounds::cost::cpu_per_message;
use rounds::point::{Metric, PointKey, PointSpec};
use rounds::sample::Sample;
use serde::Serialize;

use crate::designs::Designed;
use crate::findings::{Fact, Question};
use crate::store::{Contents, Study};

/// How samples are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A row for each block.
    Csv,
    /// The study, its points and their blocks with all accounting.
    Json,
}

/// Writes every block of `study` to `out`, points in the order of their specification, blocks in the order of rounds.
pub fn export(study: &Study, contents: &Contents, format: Format, out: &mut dyn Write) -> Result<()> {
    let cannot = |error: std::io::Error| {
        Fault::because("export", error, "check the place it is written to, then export again: the store keeps all")
    };
    match format {
        Format::Csv => csv(study, contents, out).map_err(|error| cannot(error.into()))?,
        Format::Json => json(study, contents, out).map_err(|error| cannot(error.into()))?,
    }
    out.flush().map_err(cannot)
}

const COLUMNS: [&str; 24] = [
    "study",
    "point",
    "questions",
    "stack",
    "placement",
    "pattern",
    "size_bytes",
    "perturbation_bytes",
    "path",
    "local_core",
    "remote_core",
    "protocol_core",
    "peer_engine",
    "receiver",
    "round",
    "order",
    "started_ns",
    "messages",
    "elapsed_ns",
    "value",
    "unit",
    "lost",
    "probe_one_way_ps",
    "local_clock_hz",
];

fn csv(study: &Study, contents: &Contents, out: &mut dyn Write) -> csv::Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record(COLUMNS.iter().chain(&["cpu_ns_per_message", "notes"]))?;
    for spec in study.design.points() {
        let key = spec.key();
        let questions: Vec<&str> = study.design.questions_of(spec).iter().map(|q| q.name()).collect();
        for sample in contents.samples.get(&key).into_iter().flatten() {
            let optional = |value: Option<String>| value.unwrap_or_default();
            writer.write_record([
                study.id.to_string(),
                key.0.clone(),
                questions.join(" "),
                spec.stack.to_string(),
                spec.placement.to_string(),
                spec.pattern.to_string(),
                spec.size.0.to_string(),
                spec.perturbation.0.to_string(),
                spec.path.to_string(),
                spec.local_core.0.to_string(),
                spec.remote_core.0.to_string(),
                optional(spec.protocol_core.map(|c| c.0.to_string())),
                optional(spec.peer_engine.map(|c| c.0.to_string())),
                spec.receiver.to_string(),
                sample.round.to_string(),
                sample.order.to_string(),
                sample.started.0.to_string(),
                sample.messages.to_string(),
                sample.elapsed.0.to_string(),
                sample.value.to_string(),
                spec.pattern.metric().unit().to_string(),
                sample.lost.to_string(),
                optional(sample.probe.map(|p| p.half_round_trip_ps.to_string())),
                optional(sample.clocks.core(spec.local_core).map(|clock| clock.0.to_string())),
                optional(cpu_per_message(sample).value().map(f64::to_string)),
                sample.notes.join("; "),
            ])?;
        }
    }
    writer.flush()?;
    Ok(())
}

#[derive(Serialize)]
struct ExportedStudy<'a> {
    id: i64,
    version: &'a str,
    host: &'a str,
    seed: u64,
    design_hash: String,
    started_ns: u64,
    finished_ns: Option<u64>,
    spent_ns: u64,
    machine: &'a [Fact],
    notes: &'a [String],
    points: Vec<ExportedPoint<'a>>,
}

#[derive(Serialize)]
struct ExportedPoint<'a> {
    key: PointKey,
    questions: Vec<Question>,
    metric: Metric,
    unit: &'static str,
    spec: &'a PointSpec,
    samples: &'a [Sample],
    failures: Vec<&'a str>,
}

fn json(study: &Study, contents: &Contents, out: &mut dyn Write) -> serde_json::Result<()> {
    let points = study.design.points().into_iter().map(|spec| {
        let (key, metric) = (spec.key(), spec.pattern.metric());
        ExportedPoint {
            samples: contents.samples.get(&key).map_or(&[], Vec::as_slice),
            failures: contents.failures.get(&key).into_iter().flatten().map(|f| f.1.as_str()).collect(),
            key,
            questions: study.design.questions_of(spec),
            metric,
            unit: metric.unit(),
            spec,
        }
    });
    let exported = ExportedStudy {
        id: study.id,
        version: &study.version,
        host: &study.host,
        seed: study.seed,
        design_hash: study.design.hash(),
        started_ns: study.started.0,
        finished_ns: study.finished.map(|n| n.0),
        spent_ns: study.spent.0,
        machine: &study.facts,
        notes: &study.design.notes,
        points: points.collect(),
    };
    serde_json::to_writer_pretty(&mut *out, &exported)?;
    out.write_all(b"\n").map_err(serde_json::Error::io)
}
