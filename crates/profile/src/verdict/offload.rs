//! Would the program gain if a device did the protocol's work?

use super::{Answer, Choice, Evidence, Judgement, NOISE, amount, answer, share};

/// What handing a message to a device costs the host anyway, in seconds: a descriptor and a doorbell. At full clock an
/// offloading device is no faster with small messages than the host itself (claim A12).
const DEVICE_POST: f64 = 0.2e-6;

/// Where only the times of posting are known: all work of a message on both sides is at most this many times the
/// sender's. MILC's gain of 7.7 % at full clock is 3.3 times its time in Isend and Irecv (claims A17, A20, A24).
const BOTH_SIDES: f64 = 4.0;

pub fn judge(evidence: &Evidence) -> Judgement {
    let between = evidence.between_hosts.value().copied();
    if between == Some(0.0) {
        return Judgement {
            choice: Choice::Offload,
            answer: Answer::DoesNot,
            gain: Some((0.0, 0.0)),
            why: vec!["no message went to another host: there is nothing that a network device could take over".into()],
            next: Some("profile it as it is run in earnest, over several hosts".into()),
        };
    }
    let crossing = between.unwrap_or(1.0);
    let posting = evidence.mean(|rank| (rank.posting - rank.messages as f64 * DEVICE_POST).max(0.0));
    let interrupting = evidence.mean(|rank| rank.interrupting());
    let transfer = evidence.mean_of(|rank| rank.transfer.value().copied());
    let protocol = evidence.mean(|rank| rank.protocol.value().copied().unwrap_or(0.0));
    let away = evidence.mean(|rank| rank.away.value().copied().unwrap_or(0.0));
    let least = posting * crossing + interrupting;
    let most = ((transfer.unwrap_or(posting * BOTH_SIDES) + away) * crossing + protocol).max(least);

    let mut why = vec![format!(
        "{} messages a second take {} of the run in calls that only hand them over; a device would leave {:.1} us of each",
        amount(evidence.messages_per_second()),
        share(evidence.mean(|rank| rank.posting)),
        DEVICE_POST * 1e6
    )];
    match transfer {
        Some(transfer) => {
            why.push(format!("all transfer, copies and wire included, is {} of the run", share(transfer)))
        }
        None => why.push(format!(
            "all work for messages is taken as at most {BOTH_SIDES:.0} times that: the split is not known"
        )),
    }
    if away > 0.0 {
        why.push(format!(
            "{} of the run is waiting for data whose other end had begun and was outside of MPI, where only a device would \
             have moved it",
            share(away)
        ));
    }
    if protocol > 0.0 {
        why.push(format!(
            "the kernel's network work on the ranks' cores is {}, {} while they compute",
            share(protocol),
            share(interrupting)
        ));
    }
    if let Some(crossing) = between.filter(|crossing| *crossing < 1.0) {
        why.push(format!("{} of the messages go to another host", share(crossing)));
    }
    let answer = answer((least, most));
    if answer == Answer::DoesNot {
        why.push(format!("that is less than runs differ by anyway ({})", share(NOISE)));
    }
    let next = match answer {
        Answer::Gains => Some("run it over a device that does matching and protocol, at the clock that it is run at: the gain grows as clocks fall".into()),
        Answer::DoesNot => None,
        Answer::CannotTell => Some("compare: plimsoll mpirun --network afxdp:IFACE and xdp:IFACE; --trace shows which waits are for data in flight".into()),
    };
    Judgement { choice: Choice::Offload, answer, gain: Some((least, most)), why, next }
}
