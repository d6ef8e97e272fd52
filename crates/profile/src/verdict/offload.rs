//! Would the program gain if a device did the protocol's work?

use machine::costs::{Item, how};
use machine::{Costs, figure};

use super::{Answer, Choice, Evidence, Judgement, NOISE, amount, judged, share};

pub fn judge(evidence: &Evidence, costs: &Costs) -> Judgement {
    let crossing = &evidence.between_hosts;
    if crossing.most == 0.0 {
        return Judgement {
            choice: Choice::Offload,
            answer: Answer::DoesNot,
            gain: Some((0.0, 0.0)),
            why: vec!["no message went to another host: there is nothing that a network device could take over".into()],
            next: Some("profile it as it is run in earnest, over several hosts".into()),
        };
    }
    let post = costs.get(&Item::DevicePost);
    let left = post.reading.value().map_or(f64::INFINITY, |interval| 1e-9 * interval.high);
    let posting = evidence.mean(|rank| (rank.posting - rank.messages as f64 * left).max(0.0));
    let interrupting = evidence.mean(|rank| rank.interrupting());
    let (transfer, away) = (evidence.bounds(|rank| &rank.transfer), evidence.bounds(|rank| &rank.away));
    let protocol = evidence.bounds(|rank| &rank.protocol);
    // Without a message that certainly crosses hosts, all of the kernel's work may be for the host itself.
    let least = posting * crossing.least + if crossing.least > 0.0 { interrupting } else { 0.0 };
    let most = (evidence.mean(|rank| rank.moving()) * crossing.most + protocol.most).max(least);

    let mut why = vec![format!(
        "{} messages a second take {} of the run in calls that only hand them over; a device would leave {} of each at \
         most ({}: {})",
        amount(evidence.messages_per_second()),
        share(evidence.mean(|rank| rank.posting)),
        figure::nanoseconds(left * 1e9),
        how(&post.reading),
        post.source
    )];
    match transfer.unknown() {
        None => why.push(format!("all transfer, copies and wire included, is {} of the run", share(transfer.most))),
        Some(reason) => why.push(format!("transfer is at most {} of the run: {reason}", share(transfer.most))),
    }
    match away.unknown() {
        None if away.most == 0.0 => {}
        None => why.push(format!(
            "{} of the run is waiting for data whose other end had begun and was outside of MPI, where only a device would \
             have moved it",
            share(away.most)
        )),
        Some(reason) => why.push(format!(
            "at most {} of the run is waiting for data that only a device would have moved: {reason}",
            share(away.most)
        )),
    }
    match protocol.unknown() {
        None if protocol.most == 0.0 => {}
        None => why.push(format!(
            "the kernel's network work on the ranks' cores is {}, {} while they compute",
            share(protocol.most),
            share(interrupting)
        )),
        Some(reason) => why.push(format!("the kernel's network work on the ranks' cores is not known: {reason}")),
    }
    match crossing.unknown() {
        None if crossing.least < 1.0 => {
            why.push(format!("{} of the messages go to another host", share(crossing.least)))
        }
        None => {}
        Some(reason) if crossing.least == 0.0 => {
            why.push(format!("whether messages go to another host is not known: {reason}"));
        }
        Some(reason) => {
            why.push(format!("at least {} of the messages go to another host: {reason}", share(crossing.least)));
        }
    }
    let (answer, gain) = judged(least, most);
    if answer == Answer::DoesNot {
        why.push(format!("that is less than runs differ by anyway ({})", share(NOISE)));
    }
    let next = match answer {
        Answer::Gains => Some("run it over a device that does matching and protocol, at the clock that it is run at: the gain grows as clocks fall".into()),
        Answer::DoesNot => None,
        Answer::CannotTell if away.unknown().is_some() || transfer.unknown().is_some() => {
            Some("plimsoll profile --trace shows which waits are for data in flight".into())
        }
        Answer::CannotTell => Some("compare: plimsoll mpirun --network afxdp:IFACE and xdp:IFACE".into()),
    };
    Judgement { choice: Choice::Offload, answer, gain, why, next }
}
