//! The verdict: rows for each question, what the machine did meanwhile, and what to beware of.

use std::collections::BTreeSet;

use crate::comparison::{EQUALITY, near, overhead_share};
use crate::cost::softirqs_missing;
use crate::findings::{Nearness, PointFindings, Question, Verdict};
use crate::point::Path;
use crate::ranges::{ranges, shares};
use crate::sample::{Probe, Sample};
use crate::statistics::{median_interval, relative_spread};
use crate::{sweep, wording};

/// Points whose blocks spread by more than this are called noisy.
const NOISY: f64 = 0.25;

/// Judges what was measured; `network` is the path that stands for the network.
pub fn judge(points: &[PointFindings], network: &Path) -> Verdict {
    let mut rows = ranges(Question::SameHost, points);
    rows.extend(ranges(Question::BetweenHosts, points));
    let sweep = sweep::rows(points);
    let nearness = nearness(points.iter().flat_map(|p| &p.samples));
    let shared = points.iter().find_map(|p| shares(&p.spec));
    Verdict {
        sentence: wording::sentence(&rows, network, shared),
        warnings: warnings(points, nearness.as_ref()),
        ranges: rows,
        sweep,
        nearness,
    }
}

fn nearness<'a>(samples: impl Iterator<Item = &'a Sample>) -> Option<Nearness> {
    let probes: Vec<Probe> = samples.filter_map(|s| s.probe).collect();
    let one_way: Vec<f64> = probes.iter().map(|p| p.half_round_trip_ps as f64 / 1000.0).collect();
    let one_way_ns = median_interval(&one_way)?;
    let near_share = probes.iter().filter(|p| near(**p)).count() as f64 / probes.len() as f64;
    let note = match near_share {
        s if s > 0.98 => "near throughout",
        s if s < 0.02 => "far throughout",
        _ => "flipped between near and far",
    };
    Some(Nearness { one_way_ns, near_share, note: note.into() })
}

fn warnings(points: &[PointFindings], nearness: Option<&Nearness>) -> Vec<String> {
    let mut warnings = Vec::new();
    let measured: Vec<&PointFindings> = points.iter().filter(|p| !p.samples.is_empty()).collect();
    let spread = |p: &PointFindings| relative_spread(&p.samples.iter().map(|s| s.value).collect::<Vec<_>>());
    let noisy = measured.iter().filter(|p| spread(p).is_some_and(|s| s > NOISY)).count();
    if noisy > 0 {
        warnings.push(format!(
            "noise: the middle half of the blocks spreads by more than {:.0} % of the median at {noisy} of {} points; \
             comparisons are made within a round, so drift cancels, but close ones may stay undecided",
            NOISY * 100.0,
            measured.len()
        ));
    }
    if nearness.is_some_and(|n| n.note.starts_with("flipped")) {
        warnings.push(
            "the two cores moved between near and far while the study ran, as a virtual machine's may; only blocks \
             of the same nearness are compared"
                .into(),
        );
    }
    let shared: BTreeSet<_> = measured.iter().filter_map(|p| shares(&p.spec)).collect();
    for (core, whose) in shared {
        warnings.push(format!(
            "the dedicated engine shared {core} with {whose}: this is what it costs on this machine, not what a free \
             core would give"
        ));
    }
    let overhead = measured.iter().map(|p| overhead_share(&p.samples)).fold(0.0, f64::max);
    if overhead > EQUALITY {
        warnings.push(format!(
            "counting beside a block cost up to {:.1} % of it; smaller differences are not told apart there",
            overhead * 100.0
        ));
    }
    if let Some(reason) = measured.iter().flat_map(|p| &p.samples).find_map(softirqs_missing) {
        warnings.push(format!("CPU costs leave out softirq work that no thread was charged for: {reason}"));
    }
    let lost: u64 = measured.iter().flat_map(|p| &p.samples).map(|s| s.lost).sum();
    if lost > 0 {
        warnings.push(format!("{lost} datagrams were lost over kernel UDP; its figures count those that arrived"));
    }
    warnings
}
