//! The number of messages in a block, and the value of a block's counts.

use std::time::Duration;

use machine::{Bytes, Fault, Result};
use rounds::point::{Metric, Pattern, PointSpec};

use exchange::endpoint::{Job, Outcome};

/// Measured time of a block. Longer blocks vary no less, since disturbances last longer than they do: many short ones in
/// alternation tell more.
const BLOCK: Duration = Duration::from_millis(5);

/// Number of messages in a block of large ones, unless it would take more than [`LONGEST_BLOCK`].
const LEAST_MESSAGES: u64 = 24;
const LONGEST_BLOCK: Duration = Duration::from_millis(12);

/// Time after which a trial tells the time per message.
pub const TRIAL: Duration = Duration::from_millis(2);

/// Messages of a first trial.
pub const FIRST_TRIAL: u64 = 2;

/// Most messages of a job.
pub const MOST_MESSAGES: u64 = 1 << 22;

/// Most bytes that a verifying job moves.
const VERIFIED: usize = 4 << 20;

/// A job that checks the payload of up to `messages` messages, before anything is timed.
pub fn verifying(spec: &PointSpec, messages: u64) -> Job {
    let size = spec.size.0 as usize;
    let most = (VERIFIED / size).clamp(2, 64) as u64;
    Job { messages: messages.clamp(2, most), verify: true, ..job(spec, size, 1) }
}

pub fn job(spec: &PointSpec, size: usize, messages: u64) -> Job {
    Job {
        pattern: spec.pattern,
        size,
        messages: messages.clamp(1, MOST_MESSAGES),
        receiver: spec.receiver,
        verify: false,
    }
}

/// Number of messages in `time`.
pub fn messages_in(time: Duration, nanoseconds_per_message: f64) -> u64 {
    ((time.as_nanos() as f64 / nanoseconds_per_message.max(0.1)) as u64).clamp(2, MOST_MESSAGES)
}

/// Number of messages in a block of a point whose messages take so many nanoseconds each.
pub fn block_messages(nanoseconds_per_message: f64) -> u64 {
    let [aim, most] = [BLOCK, LONGEST_BLOCK].map(|time| messages_in(time, nanoseconds_per_message));
    aim.max(LEAST_MESSAGES.min(most))
}

/// The jobs of one block: NetPIPE's perturbed sizes in turn, smaller ones only if a byte is left.
pub fn block_jobs(spec: &PointSpec, messages: u64) -> Vec<Job> {
    let (size, by) = (spec.size.0, spec.perturbation.0);
    let mut sizes = vec![size];
    if by > 0 {
        if size > by {
            sizes.insert(0, size - by);
        }
        sizes.push(size + by);
    }
    let each = messages.div_ceil(sizes.len() as u64);
    sizes.into_iter().map(|size| job(spec, size as usize, each)).collect()
}

/// Largest size in a point's jobs.
pub fn largest(spec: &PointSpec) -> Bytes {
    spec.size + spec.perturbation
}

/// The value of a block: all its jobs together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Worth {
    /// Data messages delivered, both directions together; acknowledgements are not counted.
    pub messages: u64,
    pub lost: u64,
    /// Time by the initiator's clock, without the waits for lost messages.
    pub elapsed: Duration,
    /// The measured value in the unit of the pattern's metric, over all jobs: total over total.
    pub value: f64,
}

/// Values a block by both ends' outcomes. A fault if nothing arrived.
pub fn weigh(pattern: Pattern, jobs: &[Job], local: &[Outcome], remote: &[Outcome]) -> Result<Worth> {
    let (mut messages, mut lost, mut bytes, mut nanoseconds, mut round_trips) = (0, 0, 0, 0, 0);
    for ((job, local), remote) in jobs.iter().zip(local).zip(remote) {
        // An acknowledgement that the initiator received or missed is not a data message.
        let (back, back_lost) = match pattern {
            Pattern::PingPong | Pattern::Bidirectional => (local.received, local.lost),
            _ => (0, 0),
        };
        messages += remote.received + back;
        lost += remote.lost + back_lost;
        bytes += (remote.received + back) * job.size as u64;
        round_trips += local.received;
        nanoseconds += local.elapsed.saturating_sub(local.waited_for_lost.max(remote.waited_for_lost));
    }
    let counted = if pattern == Pattern::PingPong { round_trips } else { messages };
    if counted == 0 || nanoseconds == 0 {
        return Err(Fault::new(
            format!("block of {pattern}"),
            format!("none of its messages arrived ({lost} lost)"),
            "choose a reliable stack, a smaller size, or a larger net.core.rmem_max",
        ));
    }
    let seconds = nanoseconds as f64 / 1e9;
    let value = match pattern.metric() {
        Metric::HalfRoundTrip => nanoseconds as f64 / round_trips as f64 / 2.0,
        Metric::BytesPerSecond => bytes as f64 / seconds,
        Metric::MessagesPerSecond => messages as f64 / seconds,
    };
    Ok(Worth { messages, lost, elapsed: Duration::from_nanos(nanoseconds), value })
}

#[cfg(test)]
mod tests {
    use machine::CoreId;
    use rounds::point::Stack;

    use super::*;

    fn spec(size: u64, perturbation: u64) -> PointSpec {
        PointSpec {
            perturbation: Bytes(perturbation),
            ..PointSpec::plain(Stack::Tcp, Pattern::PingPong, size, (CoreId(0), CoreId(1)))
        }
    }

    #[test]
    fn perturbation_never_asks_for_an_empty_message() {
        let sizes = |size, by| block_jobs(&spec(size, by), 30).iter().map(|job| job.size).collect::<Vec<_>>();
        assert_eq!(sizes(2, 3), [2, 5]);
        assert_eq!(sizes(3, 3), [3, 6]);
        assert_eq!(sizes(4, 3), [1, 4, 7]);
        assert_eq!(sizes(64, 0), [64]);
        assert!(block_jobs(&spec(64, 3), 31).iter().all(|job| job.messages == 11));
    }

    #[test]
    fn blocks_of_large_messages_hold_enough_and_none_lasts_long() {
        let messages = [100.0, 100_000.0, 400_000.0, 2_000_000.0, 30_000_000.0].map(block_messages);
        assert_eq!(messages, [50_000, 50, 24, 6, 2]);
    }

    #[test]
    fn value_is_total_over_total_and_leaves_out_waits_for_lost_messages() {
        let jobs = block_jobs(&spec(100, 0), 10);
        let local = Outcome { sent: 10, received: 8, lost: 2, elapsed: 5_000, waited_for_lost: 1_800, digest: 0 };
        let remote = Outcome { sent: 10, received: 9, lost: 1, elapsed: 5_000, waited_for_lost: 900, digest: 0 };
        let worth = weigh(Pattern::PingPong, &jobs, &[local], &[remote]).unwrap();
        assert_eq!((worth.messages, worth.lost, worth.elapsed), (17, 3, Duration::from_nanos(3_200)));
        assert_eq!(worth.value, 200.0);
        let stream = weigh(Pattern::Stream, &jobs, &[Outcome { received: 1, ..local }], &[remote]).unwrap();
        assert_eq!((stream.messages, stream.lost), (9, 1));
        assert_eq!(stream.value, 900.0 / 3.2e-6);
        assert!(weigh(Pattern::Stream, &jobs, &[local], &[Outcome { received: 0, ..remote }]).is_err());
    }
}
