//! Would the program gain if a core of its own did the protocol's work?

use super::{Answer, Choice, Evidence, Judgement, answer, share};

/// What a message costs the rank to hand it to another core and take the answer, in seconds: two crossings of a cache line
/// at 130 ns and the work around them (docs/performance.md, `core:N`).
const HANDOVER: f64 = 0.35e-6;

pub fn judge(evidence: &Evidence) -> Judgement {
    let posting = evidence.mean(|rank| (rank.posting - rank.messages as f64 * HANDOVER).max(0.0));
    let interrupting = evidence.mean(|rank| rank.interrupting());
    let protocol = evidence.mean(|rank| rank.protocol.value().copied().unwrap_or(0.0));
    let transfer = evidence.mean_of(|rank| rank.transfer.value().copied());
    let taken = posting + interrupting;
    let away = evidence.mean(|rank| rank.away.value().copied().unwrap_or(0.0));
    let at_most = (transfer.unwrap_or(evidence.mean(|rank| rank.mpi)) + away + protocol).max(taken);

    let mut why = vec![format!("it would take over {} to {} of the run", share(taken), share(at_most))];
    let mut cost: f64 = 0.0;
    for (index, host) in evidence.hosts.iter().enumerate() {
        let ranks: Vec<_> = evidence.ranks.iter().filter(|rank| rank.host == index).collect();
        let Some(cores) = host.cores else {
            why.push(format!("how many cores host {} has is not known", host.name));
            return Judgement {
                choice: Choice::DedicatedCore,
                answer: Answer::CannotTell,
                gain: None,
                why,
                next: None,
            };
        };
        if (ranks.len() as u32) < cores {
            why.push(format!("host {} has {} cores for {} ranks: one is free", host.name, cores, ranks.len()));
            continue;
        }
        if ranks.len() < 2 {
            why.push(format!("host {} has one core: there is none to give", host.name));
            return Judgement { choice: Choice::DedicatedCore, answer: Answer::DoesNot, gain: None, why, next: None };
        }
        let run = evidence.runtime();
        let compute = ranks.iter().map(|rank| rank.compute()).sum::<f64>() / ranks.len() as f64;
        let lost = if run > 0.0 { compute / run / (ranks.len() - 1) as f64 } else { 0.0 };
        if lost > cost {
            cost = lost;
        }
        why.push(format!(
            "host {} computes on all its {} cores: giving one up costs {} of the run",
            host.name,
            cores,
            share(lost)
        ));
    }
    let gain = (taken - cost, at_most - cost);
    let answer = answer(gain);
    let next = match answer {
        Answer::Gains => Some("plimsoll mpirun --placement core:N -- PROGRAM".into()),
        Answer::CannotTell => {
            Some("measure it: plimsoll mpirun --placement app and --placement core:N, in turns".into())
        }
        Answer::DoesNot => None,
    };
    Judgement { choice: Choice::DedicatedCore, answer, gain: Some(gain), why, next }
}
