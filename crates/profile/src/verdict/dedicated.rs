//! Would the program gain if a core of its own did the protocol's work?

use chart::number;
use machine::costs::{Item, how};
use machine::{Costs, Reading, SiteKind};

use super::{Answer, Bounds, Choice, Evidence, Judgement, judged, share};

pub fn judge(evidence: &Evidence, costs: &Costs) -> Judgement {
    let crossing = costs.get(&Item::crossing(SiteKind::App, SiteKind::Core));
    // The rank hands the message over and takes the answer; each crossing may be entirely the rank's time.
    let handover = crossing.reading.value().map_or(f64::INFINITY, |interval| 2e-9 * interval.high);
    let posting = evidence.mean(|rank| (rank.posting - rank.messages as f64 * handover).max(0.0));
    let (transfer, away) = (evidence.bounds(|rank| &rank.transfer), evidence.bounds(|rank| &rank.away));
    // The kernel's network work beside a program that sends nothing is for others.
    let (protocol, interrupting) = match evidence.is_silent() {
        true => (Bounds::default(), 0.0),
        false => (evidence.bounds(|rank| &rank.protocol), evidence.mean(|rank| rank.interrupting())),
    };
    let taken = posting + interrupting;
    let at_most = (evidence.mean(|rank| rank.moving()) + protocol.most).min(1.0).max(taken);

    let mut why = vec![match at_most < 1.0 {
        true => format!("it would take over {} to {} of the run", share(taken), share(at_most)),
        false => format!("it would take over {} of the run or more, which nothing bounds", share(taken)),
    }];
    for (what, bounds) in [
        ("transfer", &transfer),
        ("waiting for data that such a core would have moved", &away),
        ("the kernel's network work on the ranks' cores", &protocol),
    ] {
        if let Some(reason) = bounds.unknown() {
            why.push(format!("how much is {what} is not known: {reason}"));
        }
    }
    why.push(format!(
        "handing a message to another core is taken as {} at most, to and fro ({}: {})",
        number::nanoseconds(handover * 1e9),
        how(&crossing.reading),
        crossing.source
    ));
    // Cost of giving up a core, on the host where the cost is highest.
    let (mut least_cost, mut most_cost): (f64, f64) = (0.0, 0.0);
    for (index, host) in evidence.hosts.iter().enumerate() {
        let ranks = evidence.ranks_on(index).count();
        let cores = number::reading(&host.cores, u32::to_string);
        let run = evidence.runtime();
        let compute = evidence.ranks_on(index).map(|(_, rank)| rank.compute).sum::<f64>() / ranks.max(1) as f64;
        let lost = if run > 0.0 { compute / run / ranks.saturating_sub(1).max(1) as f64 } else { 0.0 };
        match evidence.has_free_core(index) {
            Reading::Measured(true) | Reading::Modelled(true) => {
                why.push(format!("host {} has {cores} cores for {ranks} ranks: one is free", host.name));
            }
            Reading::Measured(false) | Reading::Modelled(false) if ranks < 2 => {
                why.push(format!("host {} has one core: there is none to give", host.name));
                return Judgement {
                    choice: Choice::DedicatedCore,
                    answer: Answer::DoesNot,
                    gain: None,
                    why,
                    next: None,
                };
            }
            Reading::Measured(false) | Reading::Modelled(false) => {
                (least_cost, most_cost) = (least_cost.max(lost), most_cost.max(lost));
                why.push(format!(
                    "host {} computes on all its {cores} cores: giving one up costs {} of the run",
                    host.name,
                    share(lost)
                ));
            }
            Reading::Absent { reason } | Reading::NotPermitted { reason, .. } => {
                most_cost = most_cost.max(lost);
                why.push(format!("whether host {} has a core to spare is not known: {reason}", host.name));
            }
        }
    }
    let (answer, gain) = judged(taken - most_cost, at_most - least_cost);
    let next = match answer {
        Answer::Gains => Some("plimsoll mpirun --placement core:N -- PROGRAM".into()),
        Answer::CannotTell => {
            Some("measure it: plimsoll mpirun --placement app and --placement core:N, in turns".into())
        }
        Answer::DoesNot => None,
    };
    Judgement { choice: Choice::DedicatedCore, answer, gain, why, next }
}
