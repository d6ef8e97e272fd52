//! The verdict: rows for each question, the machine's state meanwhile, and warnings.

use std::collections::BTreeSet;

use machine::choice::Distance;
use machine::count;
use rounds::cost::softirqs_missing;
use rounds::point::Path;
use rounds::statistics::relative_spread;

use crate::decision::decisions;
use crate::findings::{Nearness, PointFindings, Question, Verdict};
use crate::nearness;
use crate::ranges::{ranges, shares};
use crate::sweep;
use crate::wording::lines;

/// Points whose blocks spread by more than this are called noisy.
const NOISY: f64 = 0.25;

/// Judges the points; `network` is the path that stands for the network, `distance` the topology's distance of the
/// two application cores.
pub fn judge(points: &[PointFindings], network: &Path, distance: Option<Distance>) -> Verdict {
    let mut rows = ranges(Question::SameHost, points);
    rows.extend(ranges(Question::BetweenHosts, points));
    let sweep = sweep::rows(points);
    let nearness = nearness::of(points, distance);
    let receiver = lines(&[], &sweep);
    let of_rows: BTreeSet<_> = rows.iter().map(|r| (r.question, r.pattern)).collect();
    let open: BTreeSet<_> = rows.iter().filter(|r| !r.choice.is_told()).map(|r| (r.question, r.pattern)).collect();
    let told = !receiver.is_empty() && receiver.iter().all(|line| line.told);
    Verdict {
        decisions: decisions(points),
        lines: lines(&rows, &sweep),
        asked: of_rows.len() + usize::from(!receiver.is_empty()),
        answered: of_rows.len() - open.len() + usize::from(told),
        warnings: warnings(points, network, nearness.as_ref()),
        ranges: rows,
        sweep,
        nearness,
    }
}

fn warnings(points: &[PointFindings], network: &Path, nearness: Option<&Nearness>) -> Vec<String> {
    let mut warnings = Vec::new();
    if *network == Path::Loopback && !points.is_empty() {
        warnings.push("between hosts: loopback stood in for the network".into());
    }
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
             measured at the same distance are compared"
                .into(),
        );
    }
    let beside = measured.iter().filter(|p| !p.candidate).filter_map(|p| shares(&p.spec)).next();
    if let Some((core, whose)) = beside {
        warnings.push(format!(
            "a core of its own is no choice here: its engine had to share {core} with {whose}, and was only measured \
             beside"
        ));
    }
    if let Some(reason) = measured.iter().flat_map(|p| &p.samples).find_map(softirqs_missing) {
        warnings.push(format!("CPU costs leave out softirq work that no thread was charged for: {reason}"));
    }
    let lost: u64 = measured.iter().flat_map(|p| &p.samples).map(|s| s.lost).sum();
    if lost > 0 {
        let (datagrams, were) = (count::of(lost, "datagram"), count::either(lost, "was", "were"));
        warnings.push(format!("{datagrams} {were} lost over kernel UDP; its figures count those that arrived"));
    }
    warnings
}
