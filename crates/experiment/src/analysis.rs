//! From a stored study to its findings.

use rounds::cost::cpu_per_message;
use rounds::point::PointSpec;
use rounds::statistics::median_interval;

use crate::design::REFERENCE_ROUNDS;
use crate::findings::{Findings, PointFindings};
use crate::ranges::collect_interval;
use crate::store::{Contents, Study};
use crate::tally::Tally;
use crate::verdict::judge;

/// Everything a report shows of `study`. Groups short of the first look's rounds are named in the notes only.
pub fn findings(study: &Study, contents: &Contents) -> Findings {
    let tally = Tally::of(&study.design);
    let judged = tally.groups().filter(|&group| tally.is_judged(contents, group));
    let mut specs: Vec<&PointSpec> = judged.flat_map(|group| &study.design.groups[group].points).collect();
    specs.sort();
    let points: Vec<PointFindings> = specs.into_iter().filter_map(|spec| point(study, contents, spec)).collect();
    let network = &study.design.grounds.network;
    let mut notes = study.design.notes.clone();
    notes.extend(tally.left_out(contents, study.spent));
    if study.finished.is_none() {
        notes.push("the study is not finished; `plimsoll study` goes on with it".into());
    }
    Findings {
        title: "Where should message processing run?".into(),
        path: network.clone(),
        started: study.started,
        took: study.spent,
        machine: study.facts.clone(),
        verdict: judge(&points, network, study.design.grounds.distance),
        points,
        notes,
    }
}

fn point(study: &Study, contents: &Contents, spec: &PointSpec) -> Option<PointFindings> {
    let key = spec.key();
    let candidate = study.design.is_candidate(spec);
    if !candidate && contents.samples_of(&key).len() < REFERENCE_ROUNDS as usize {
        return None;
    }
    let samples = contents.samples.get(&key)?.clone();
    let values: Vec<f64> = samples.iter().map(|s| s.value).collect();
    Some(PointFindings {
        key,
        questions: study.design.questions_of(spec),
        candidate,
        value: median_interval(&values)?,
        cpu_per_message: collect_interval(samples.iter().map(cpu_per_message)),
        spec: spec.clone(),
        samples,
    })
}
