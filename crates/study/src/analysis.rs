//! From a stored study to its findings.

use crate::conduct::left_out;
use crate::cost::cpu_per_message;
use crate::findings::{Findings, PointFindings};
use crate::point::PointSpec;
use crate::ranges::collect_interval;
use crate::statistics::median_interval;
use crate::store::{Contents, Study};
use crate::verdict::judge;

/// Everything a report shows of `study`. Points without a block are named in the notes only.
pub fn findings(study: &Study, contents: &Contents) -> Findings {
    let points: Vec<PointFindings> =
        study.design.points().into_iter().filter_map(|spec| point(study, contents, spec)).collect();
    let network = &study.design.grounds.network;
    let mut notes = study.design.notes.clone();
    notes.extend(left_out(&study.design, contents));
    if study.finished.is_none() {
        notes.push("the study is not finished; `plimsoll study` goes on with it".into());
    }
    Findings {
        title: "Where should message processing run?".into(),
        path: network.clone(),
        started: study.started,
        took: study.spent,
        machine: study.facts.clone(),
        verdict: judge(&points, network),
        points,
        notes,
    }
}

fn point(study: &Study, contents: &Contents, spec: &PointSpec) -> Option<PointFindings> {
    let key = spec.key();
    let samples = contents.samples.get(&key)?.clone();
    let values: Vec<f64> = samples.iter().map(|s| s.value).collect();
    Some(PointFindings {
        key,
        questions: study.design.questions_of(spec),
        value: median_interval(&values)?,
        cpu_per_message: collect_interval(samples.iter().map(cpu_per_message)),
        spec: spec.clone(),
        samples,
    })
}
