//! The receiver at the driver hook: an offcode that times arrivals and keeps the histogram, read out while it runs.

pub mod word;

use std::sync::atomic::{AtomicU64, Ordering};

use machine::{Nanoseconds, Result};
use offcode::Call;
use runtime::site::xdp::RUN_COUNTER;

use crate::offcodes::{CountingProxy, PART};

/// Most numbers that a frame may be late and still be told from a duplicated one.
pub const WINDOW_BITS: u64 = 1024;
const HISTOGRAM_BUCKETS: usize = 1024;

/// The bands around the target gap that MoonGen reports, in ns.
pub const BANDS: [u64; 5] = [64, 128, 256, 512, 1000];

/// The stream that the receiver looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expected {
    /// Tag of the stream: [`crate::control::Asked::tag`].
    pub tag: u16,
    /// UDP destination port.
    pub port: u16,
    /// The intended mean gap; bands and deviation are taken about it.
    pub target: Nanoseconds,
    /// The largest gap within a burst: the frame's time on the wire, or an estimate of it.
    pub burst: Nanoseconds,
    /// Whether arrivals are timed: without it no clock is read and no gap known, for the highest rate.
    pub timing: bool,
    /// Hand the frames on to the kernel after they were counted, instead of dropping them.
    pub pass: bool,
}

impl Expected {
    /// The expectation as attributes of the receiving offcode.
    pub fn attributes(&self) -> Vec<(String, String)> {
        const DROP: u64 = 1;
        const PASS: u64 = 2;
        let numbers: [(&str, u64); 6] = [
            ("tag", self.tag.into()),
            ("port", self.port.into()),
            ("target_ns", self.target.0),
            ("burst_ns", self.burst.0),
            ("timing", self.timing.into()),
            ("verdict", if self.pass { PASS } else { DROP }),
        ];
        let mut all: Vec<_> = numbers.iter().map(|(name, value)| ((*name).to_owned(), value.to_string())).collect();
        // The kernel's counter of runs costs as much as the program.
        all.push((RUN_COUNTER.to_owned(), "off".to_owned()));
        all
    }
}

/// The arrivals counted until now.
#[derive(Debug, Clone, PartialEq)]
pub struct Arrivals {
    pub received: u64,
    pub bytes: u64,
    /// Frames of other streams, which were passed on.
    pub foreign: u64,
    /// Numbers between the lowest and the highest seen that never arrived.
    pub lost: u64,
    pub duplicated: u64,
    /// Frames that arrived after one with a higher number.
    pub reordered: u64,
    /// Frames more than 1024 numbers late: reordered or duplicated, which is not known.
    pub stale: u64,
    pub lowest: u64,
    pub highest: Option<u64>,
    pub first: Nanoseconds,
    pub last: Nanoseconds,
    /// Gaps; `None` without timing, or with fewer than two arrivals.
    pub gaps: Option<Gaps>,
    /// Receive queues that saw frames of the stream. Gaps and order are those within each.
    pub queues: u32,
}

/// Gaps between arrivals, in ns.
#[derive(Debug, Clone, PartialEq)]
pub struct Gaps {
    pub count: u64,
    pub mean: f64,
    pub deviation: f64,
    pub least: u64,
    pub most: u64,
    /// For each of [`BANDS`] the number of gaps whose distance from the target is at most that.
    pub within: [u64; 5],
    /// Gaps of at most [`Expected::burst`].
    pub bursts: u64,
    histogram: Vec<u64>,
}

impl Arrivals {
    /// What the receiving offcode has counted, wherever it is; `call` carries out calls of it. Frames that arrive meanwhile
    /// may be in some figures and not yet in others: ask after the sender has finished.
    ///
    /// # Errors
    /// The errors of `call`.
    pub fn ask(
        expected: &Expected,
        mut call: impl FnMut(&Call<[u64; PART]>) -> Result<[u64; PART]>,
    ) -> Result<Arrivals> {
        let mut queues = Vec::with_capacity(word::QUEUES);
        for queue in 0..word::QUEUES as u32 {
            let mut words = call(&CountingProxy.counted(queue, 0))?.to_vec();
            // A queue that has seen nothing of the stream has no further words.
            let parts = if words[word::RECEIVED] > 0 { (word::WORDS / PART) as u32 } else { 1 };
            for part in 1..parts {
                words.extend(call(&CountingProxy.counted(queue, part))?);
            }
            words.resize(word::WORDS, 0);
            queues.push(words);
        }
        Ok(Arrivals::from_words(&queues, expected))
    }

    pub(crate) fn of<'a>(queues: impl Iterator<Item = &'a [AtomicU64]>, expected: &Expected) -> Arrivals {
        let loaded = |words: &[AtomicU64]| words.iter().map(|word| word.load(Ordering::Relaxed)).collect();
        Arrivals::from_words(&queues.map(loaded).collect::<Vec<_>>(), expected)
    }

    fn from_words(queues: &[Vec<u64>], expected: &Expected) -> Arrivals {
        let foreign = queues.iter().map(|words| words[word::FOREIGN]).sum();
        let used: Vec<&Vec<u64>> = queues.iter().filter(|words| words[word::RECEIVED] > 0).collect();
        let sum = |at: usize| used.iter().map(|words| words[at]).sum::<u64>();
        let most = |at: usize| used.iter().map(|words| words[at]).max();
        let least = |at: usize| used.iter().map(|words| words[at]).min();
        let highest = most(word::NEXT).map(|next| next - 1);
        let lowest = least(word::LOWEST).unwrap_or(0);
        let (received, duplicated, stale) = (sum(word::RECEIVED), sum(word::DUPLICATED), sum(word::STALE));
        let numbers = highest.map_or(0, |highest| highest + 1 - lowest);
        Arrivals {
            received,
            bytes: sum(word::BYTES),
            foreign,
            lost: numbers.saturating_sub(received - duplicated - stale),
            duplicated,
            reordered: sum(word::REORDERED),
            stale,
            lowest,
            highest,
            first: Nanoseconds(least(word::FIRST_NS).unwrap_or(0)),
            last: Nanoseconds(most(word::LAST_NS).unwrap_or(0)),
            gaps: Gaps::of(&used, expected),
            queues: used.len() as u32,
        }
    }

    /// Frames a second between the first and the last arrival; `None` without timing or a second frame.
    pub fn rate(&self) -> Option<f64> {
        let time = self.last.0.checked_sub(self.first.0).filter(|&time| time > 0)?;
        Some((self.received - 1) as f64 * 1e9 / time as f64)
    }
}

impl Gaps {
    fn of(queues: &[&Vec<u64>], expected: &Expected) -> Option<Gaps> {
        let sum = |at: usize| queues.iter().map(|words| words[at]).sum::<u64>();
        let count = sum(word::GAPS);
        if !expected.timing || count == 0 {
            return None;
        }
        let timed = || queues.iter().filter(|words| words[word::GAPS] > 0);
        // Gaps of a queue add up to the time between its first and last arrival.
        let total: u64 = queues.iter().map(|words| words[word::LAST_NS] - words[word::FIRST_NS]).sum();
        let mean = total as f64 / count as f64;
        let squares: f64 = queues
            .iter()
            .map(|words| (u128::from(words[word::SQUARES_HIGH]) << 64 | u128::from(words[word::SQUARES_LOW])) as f64)
            .sum();
        let off = mean - expected.target.0 as f64;
        let mut within =
            [word::WITHIN_64, word::WITHIN_128, word::WITHIN_256, word::WITHIN_512, word::WITHIN_1000].map(sum);
        (1..within.len()).for_each(|band| within[band] += within[band - 1]);
        Some(Gaps {
            count,
            mean,
            // The deviation about the mean, from squares about the target.
            deviation: (squares / count as f64 - off * off).max(0.0).sqrt(),
            least: timed().map(|words| words[word::GAP_MIN_NS]).min()?,
            most: timed().map(|words| words[word::GAP_MAX_NS]).max()?,
            within,
            bursts: sum(word::BURSTS),
            histogram: (0..HISTOGRAM_BUCKETS).map(|bucket| sum(word::HISTOGRAM + bucket)).collect(),
        })
    }

    /// The gap that `share` (0 to 1) of all gaps do not exceed, to the upper end of its bucket: at most 3.2 % too high.
    pub fn percentile(&self, share: f64) -> u64 {
        let wanted = ((self.count as f64 * share).ceil() as u64).clamp(1, self.count);
        let mut seen = 0;
        let bucket = self.histogram.iter().position(|&gaps| {
            seen += gaps;
            seen >= wanted
        });
        bucket.map_or(self.most, |bucket| bucket_end(bucket).clamp(self.least, self.most))
    }

    /// `(first, last, gaps)` of each bucket that has any, in ns.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        let start = |bucket: usize| if bucket == 0 { 0 } else { bucket_end(bucket - 1) + 1 };
        self.histogram
            .iter()
            .enumerate()
            .filter(|(_, gaps)| **gaps > 0)
            .map(move |(n, &gaps)| (start(n), bucket_end(n), gaps))
    }
}

/// The largest gap that a bucket holds.
pub(crate) fn bucket_end(bucket: usize) -> u64 {
    match bucket {
        0..32 => bucket as u64,
        _ => {
            let exponent = bucket / 32 - 1;
            ((33 + (bucket % 32) as u64) << exponent) - 1
        }
    }
}

#[cfg(test)]
mod tests {
    use linux::xdp::{self, Loader, Object, SharedWords};
    use machine::FaultKind;
    use proptest::prelude::*;

    use super::*;
    use crate::stamp::{Stamp, tests as templates};

    const HEADER: &str = include_str!("../../bpf/src/programs/traffic.h");

    #[test]
    fn the_words_are_those_of_the_c_header() {
        macro_rules! same {
            ($($name:ident)*) => {
                [$((concat!("RESULT_", stringify!($name)), word::$name)),*]
            };
        }
        let ours = same!(RECEIVED BYTES FOREIGN FIRST_NS LAST_NS NEXT LOWEST DUPLICATED REORDERED STALE GAPS GAP_MAX_NS
            GAP_MIN_NS SQUARES_LOW SQUARES_HIGH BURSTS WITHIN_64 WITHIN_128 WITHIN_256 WITHIN_512 WITHIN_1000 WINDOW
            HISTOGRAM WORDS);
        for (name, at) in ours {
            let line = format!("{name} = {at},");
            assert!(HEADER.lines().any(|found| found.trim().starts_with(&line)), "traffic.h does not say {line}");
        }
        let in_header = HEADER.lines().filter(|line| line.trim().starts_with("RESULT_")).count();
        assert_eq!(in_header, ours.len(), "traffic.h has words that are not mirrored");
        assert_eq!(word::HISTOGRAM + HISTOGRAM_BUCKETS, word::WORDS);
        assert!(word::WORDS.is_multiple_of(PART) && HEADER.contains(&format!("QUEUES = {},", word::QUEUES)));
        assert!(include_str!("../../bpf/src/programs/traffic_receive.c").contains(&format!("PART = {PART} ")));
    }

    const EXPECTED: Expected =
        Expected { tag: 7, port: 54321, target: Nanoseconds(1000), burst: Nanoseconds(10), timing: true, pass: false };

    /// The program, run by hand on frames; `None` where it cannot be loaded.
    fn program() -> Option<(Object, SharedWords)> {
        let load = || {
            let code = xdp::built("the receiving program", bpf::TRAFFIC_RECEIVE)?;
            let numbers =
                EXPECTED.attributes().into_iter().filter_map(|(name, value)| Some((name, value.parse().ok()?)));
            numbers
                .fold(Loader::new("receive", code), |loader, (name, value)| loader.variable_if_any(&name, value))
                .load()
        };
        match load() {
            Ok(object) => {
                let result = object.shared("RESULT").unwrap();
                Some((object, result))
            }
            Err(fault) if [FaultKind::NotPermitted, FaultKind::Missing].contains(&fault.kind()) => {
                skip::test(fault);
                None
            }
            Err(fault) => panic!("{fault}"),
        }
    }

    fn arrivals(result: &SharedWords) -> Arrivals {
        Arrivals::of((0..result.entries()).map(|queue| result.value(queue)), &EXPECTED)
    }

    /// What the program must find, from a list of all numbers in the order of arrival.
    fn model(numbers: &[u64]) -> (u64, u64, u64, u64) {
        let (mut seen, mut highest) = (std::collections::BTreeSet::new(), None::<u64>);
        let (mut duplicated, mut reordered, mut stale) = (0, 0, 0);
        for &number in numbers {
            match highest {
                Some(top) if number <= top && top / 64 - number / 64 >= WINDOW_BITS / 64 => {
                    stale += 1;
                    continue;
                }
                Some(top) if number <= top => match seen.contains(&number) {
                    true => duplicated += 1,
                    false => reordered += 1,
                },
                _ => highest = Some(number),
            }
            seen.insert(number);
        }
        let span = seen.last().map_or(0, |last| last - seen.first().unwrap() + 1);
        (span - seen.len() as u64, duplicated, reordered, stale)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn lost_duplicated_and_reordered_are_found(
            start in 0u64..3000,
            steps in proptest::collection::vec(prop_oneof![6 => Just(1i64), 2 => -80i64..80, 1 => -2500i64..2500], 1..400),
        ) {
            let Some((object, result)) = program() else { return Ok(()) };
            let receive = object.program("receive").unwrap();
            let template = templates::ipv4(60);
            let stamp = Stamp::new(&template, EXPECTED.tag, false).unwrap();
            let mut at = start as i64 + 2500;
            let mut numbers = Vec::new();
            for step in steps {
                at = (at + step).max(0);
                numbers.push(at as u64);
                let mut frame = template.clone();
                stamp.write(&mut frame, at as u64, Nanoseconds(0));
                prop_assert_eq!(receive.try_frame(&frame).unwrap(), 1);
            }
            let found = arrivals(&result);
            let tally = crate::tally::Tally::new();
            for (now, &number) in numbers.iter().enumerate() {
                tally.arrived(&EXPECTED, number, 60, Nanoseconds(now as u64));
            }
            let in_user_space = Arrivals::of(std::iter::once(tally.words()), &EXPECTED);
            prop_assert_eq!(
                (found.lost, found.duplicated, found.reordered, found.stale, found.lowest, found.highest, found.bytes),
                (
                    in_user_space.lost,
                    in_user_space.duplicated,
                    in_user_space.reordered,
                    in_user_space.stale,
                    in_user_space.lowest,
                    in_user_space.highest,
                    in_user_space.bytes
                )
            );
            prop_assert_eq!((found.lost, found.duplicated, found.reordered, found.stale), model(&numbers));
            prop_assert_eq!(found.received, numbers.len() as u64);
            prop_assert_eq!(found.gaps.map_or(0, |gaps| gaps.count), numbers.len() as u64 - 1);
        }
    }

    #[test]
    fn other_frames_are_passed_on_and_counted_apart() {
        let Some((object, result)) = program() else { return };
        let receive = object.program("receive").unwrap();
        let mut other_tag = templates::ipv4(60);
        Stamp::new(&other_tag, 8, false).unwrap().write(&mut other_tag, 0, Nanoseconds(0));
        let mut ours = templates::ipv6(90);
        Stamp::new(&ours, 7, true).unwrap().write(&mut ours, 0, Nanoseconds(0));
        let mut tcp = ours.clone();
        tcp[20] = 6;
        let mut other_port = ours.clone();
        other_port[56] ^= 1;
        for frame in [&other_tag[..], &tcp, &other_port, &[0; 60], &ours[..77]] {
            assert_eq!(receive.try_frame(frame).unwrap(), 2);
        }
        assert_eq!(receive.try_frame(&ours).unwrap(), 1);
        let found = arrivals(&result);
        assert_eq!((found.received, found.foreign, found.bytes), (1, 5, 90));
    }

    #[test]
    fn buckets_meet_and_percentiles_are_found_in_them() {
        for bucket in 0..HISTOGRAM_BUCKETS - 1 {
            assert!(bucket_end(bucket) < bucket_end(bucket + 1), "{bucket}");
        }
        assert_eq!((bucket_end(31), bucket_end(32), bucket_end(63), bucket_end(64)), (31, 32, 63, 65));
        let mut words = vec![0u64; word::WORDS];
        // 1000, 1000, 1000 and 2000.
        for (at, value) in [
            (word::RECEIVED, 5),
            (word::NEXT, 5),
            (word::FIRST_NS, 1),
            (word::LAST_NS, 5001),
            (word::GAPS, 4),
            (word::GAP_MIN_NS, 1000),
            (word::GAP_MAX_NS, 2000),
            (word::SQUARES_LOW, 1_000_000),
            (word::WITHIN_64, 3),
            (word::WITHIN_1000, 1),
            (word::HISTOGRAM + 5 * 32 + 30, 3),
            (word::HISTOGRAM + 6 * 32 + 30, 1),
        ] {
            words[at] = value;
        }
        let queue: Vec<AtomicU64> = words.into_iter().map(AtomicU64::new).collect();
        let found = Arrivals::of(std::iter::once(&queue[..]), &EXPECTED);
        let gaps = found.gaps.as_ref().unwrap();
        assert_eq!((gaps.mean, gaps.deviation.round()), (1250.0, 433.0));
        assert_eq!(gaps.within, [3, 3, 3, 3, 4]);
        assert_eq!((gaps.percentile(0.5), gaps.percentile(0.99)), (1007, 2000));
        assert_eq!(gaps.buckets().map(|bucket| bucket.2).collect::<Vec<_>>(), [3, 1]);
        assert_eq!((found.lost, found.rate().unwrap()), (0, 800_000.0));
    }
}
