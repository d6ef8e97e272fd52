//! A profile as a table of sizes and gaps, the same for every body and every run with the same seed.

use machine::{BitsPerSecond, Nanoseconds, Result};

use crate::capture::Capture;
use crate::control::{Asked, Entry, Pacing, TABLE_ENTRIES};
use crate::profile::{Profile, Rate, Sizes, Timing, refuse};

/// Gaps of a table that serves only to carry fractions of a nanosecond over.
const FRACTIONS: usize = 1000;
/// A frame that leaves this much after its time has missed its deadline.
pub const LATE: Nanoseconds = Nanoseconds(1000);
/// Frames per reading of the clock, where no gap is kept.
const CLOCK_EVERY: u64 = 16;
/// Frames that go through a program at a driver hook before any leaves: the kernel's default, and the best found.
const BATCH: u32 = 64;
/// Runs of such a program at full rate that one call asks for: setting up a call costs as much as thousands of frames.
const RUNS: u32 = 1 << 22;
/// The longest wait of one run; the same in the program.
const LONGEST_WAIT: Nanoseconds = Nanoseconds(200_000);

/// The schedule that the bodies follow.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    /// Table of frames, repeated when it ends.
    pub entries: Vec<Entry>,
    /// Mean gap of the table, in ns; 0 where no gap is kept.
    pub mean_gap: f64,
    /// Mean size of the table, in bytes.
    pub mean_size: f64,
    /// Number of frames after which the profile ends.
    pub frames: Option<u64>,
    /// Changes that made it possible, for the report.
    pub notes: Vec<String>,
}

impl Schedule {
    /// # Errors
    /// The errors of [`Profile::check`]; gaps shorter than the frames' wire time; a gap of more than 3 days; a mix or bursts
    /// that do not fit a table.
    pub fn of(profile: &Profile) -> Result<Schedule> {
        profile.check()?;
        let mut notes = Vec::new();
        let (sizes, own_gaps) = match &profile.sizes {
            Sizes::Capture(capture) => replayed(profile, capture, &mut notes),
            _ => (mixed(profile)?, Vec::new()),
        };
        let mut random = Random(profile.seed ^ 0x9e37_79b9_7f4a_7c15);
        let gaps = match profile.timing {
            Timing::Flood => vec![0.0; sizes.len()],
            Timing::Capture if repeats(profile, sizes.len()) && own_gaps.iter().all(|gap| *gap == 0.0) => {
                let cause = "all packets of the capture have one time, so that it has no rate to go on with";
                return Err(refuse("timing", cause, "ask for a rate, or for no more frames than the capture has"));
            }
            Timing::Capture => own_gaps,
            Timing::Constant(rate) => vec![mean_gap(rate, &sizes); sizes.len()],
            Timing::Poisson(rate) => poisson(profile, mean_gap(rate, &sizes), &sizes, &mut random)?,
            Timing::Bursty { rate, frames, within } => {
                bursts(profile, mean_gap(rate, &sizes), &sizes, frames as usize, within)?
            }
        };
        if profile.is_paced() {
            fits_the_wire(profile, &sizes, &gaps)?;
        }
        let entries = whole_nanoseconds(&sizes, &gaps)?;
        let total: u64 = entries.iter().map(|entry| entry.gap.0).sum();
        let frames = match (profile.timing, profile.frames, profile.duration) {
            (Timing::Capture, None, None) => Some(entries.len() as u64),
            (_, frames, _) => frames,
        };
        Ok(Schedule {
            mean_gap: total as f64 / entries.len() as f64,
            mean_size: sizes.iter().map(|&size| f64::from(size)).sum::<f64>() / sizes.len() as f64,
            entries,
            frames,
            notes,
        })
    }

    /// Runs of a program at a driver hook that one call of the kernel asks for: paced, one call does it all and has few
    /// left over, since between two calls nothing leaves for 25 to 40 ms while the kernel waits for the last readers of
    /// the old call's pages.
    fn runs(&self, profile: &Profile) -> u32 {
        if !profile.is_paced() {
            return RUNS;
        }
        let gap = self.mean_gap.ceil().max(1.0) as u64;
        let in_time = profile.duration.map_or(u64::MAX, |duration| duration.0 / gap);
        let frames = in_time.min(self.frames.unwrap_or(u64::MAX));
        let runs = frames.saturating_mul(1 + gap / LONGEST_WAIT.0);
        runs.saturating_add(runs / 8).saturating_add(4096).min(1 << 26) as u32
    }

    /// What goes into a control block for a run that starts at `start` (CLOCK_MONOTONIC).
    ///
    /// # Errors
    /// The errors of [`crate::frame::Flow::template`].
    pub fn asked(&self, profile: &Profile, tag: u16, start: Nanoseconds) -> Result<Asked> {
        let longest = self.entries.iter().map(|entry| entry.length).max().unwrap_or(0);
        Ok(Asked {
            pacing: match profile.is_paced() {
                true => Pacing::Paced { late: LATE },
                false => Pacing::Rate { clock_every: CLOCK_EVERY },
            },
            table: self.entries.clone(),
            template: profile.flow.template(longest.into())?,
            tag,
            udp_checksum: true,
            frames: self.frames,
            start: Some(start),
            end: profile.duration.map(|duration| Nanoseconds(start.0.saturating_add(duration.0))),
            alive: None,
            runs: self.runs(profile),
            batch: profile.batch.max(BATCH),
        })
    }
}

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A uniform number: above 0, at most 1.
    fn share(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }
}

/// Sizes in exactly the shares asked, in a seeded order, as many as the timing needs.
fn mixed(profile: &Profile) -> Result<Vec<u16>> {
    let mix = profile.mix();
    let shares: u64 = mix.iter().map(|(_, weight)| u64::from(*weight)).sum();
    let burst = match profile.timing {
        Timing::Bursty { frames, .. } => u64::from(frames),
        _ => 1,
    };
    // A whole number of mixes and of bursts.
    let unit = (shares / gcd(shares, burst)).saturating_mul(burst);
    if unit > TABLE_ENTRIES as u64 {
        return Err(refuse(
            "sizes",
            format!(
                "a mix of {shares} shares in bursts of {burst} needs a table of {unit} frames, {TABLE_ENTRIES} fit"
            ),
            "use smaller weights or shorter bursts",
        ));
    }
    let unit = unit as usize;
    let wanted = match profile.timing {
        Timing::Poisson(_) => TABLE_ENTRIES,
        _ if mix.len() > 1 => TABLE_ENTRIES / 8,
        Timing::Constant(rate) if mean_gap(rate, &[mix[0].0]).fract() == 0.0 => 1,
        Timing::Flood => 1,
        _ => FRACTIONS,
    };
    let repeats = (wanted / unit).max(1);
    let once = mix.iter().flat_map(|&(size, weight)| std::iter::repeat_n(size, weight as usize));
    let mut sizes: Vec<u16> = once.collect::<Vec<_>>().repeat(unit / shares as usize * repeats);
    if mix.len() > 1 {
        let mut random = Random(profile.seed);
        (1..sizes.len()).rev().for_each(|at| sizes.swap(at, random.below(at + 1)));
    }
    Ok(sizes)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Whether a run may go beyond the end of a table of so many frames.
fn repeats(profile: &Profile, frames: usize) -> bool {
    profile.frames.map_or(profile.duration.is_some(), |asked| asked > frames as u64)
}

/// The sizes and gaps of a capture.
fn replayed(profile: &Profile, capture: &Capture, notes: &mut Vec<String>) -> (Vec<u16>, Vec<f64>) {
    let shortest = profile.shortest();
    let short = capture.packets.iter().filter(|packet| packet.length < shortest.into()).count();
    let all = capture.packets.len();
    notes.extend(capture.notes.iter().cloned());
    if short > 0 {
        notes.push(format!(
            "{short} of the capture's {all} packets are shorter than {shortest} bytes and are sent with {shortest}"
        ));
    }
    if capture.out_of_order > 0 {
        notes.push(format!(
            "the capture has packets out of order in {} places; they are sent by their times",
            capture.out_of_order
        ));
    }
    let mut gaps: Vec<f64> = capture.packets.windows(2).map(|pair| (pair[1].at.0 - pair[0].at.0) as f64).collect();
    let last = capture.packets.last().map_or(0, |packet| packet.at.0);
    gaps.push(last as f64 / gaps.len().max(1) as f64);
    let long = capture.packets.iter().filter(|packet| packet.length > profile.most()).count();
    if long == 0 {
        return (capture.packets.iter().map(|packet| (packet.length as u16).max(shortest)).collect(), gaps);
    }
    let (mut sizes, mut after, mut sent) = (Vec::new(), Vec::new(), 0);
    for (packet, gap) in capture.packets.iter().zip(gaps) {
        let segments = segments(packet.length, profile.most());
        let segments: Vec<u16> = segments.into_iter().map(|size| size.max(shortest)).collect();
        let busy: f64 = segments[..segments.len() - 1].iter().map(|&size| profile.wire_ns(size)).sum();
        after.extend(segments.iter().map(|&size| profile.wire_ns(size)));
        // The next packet keeps its time, unless the segments take longer.
        if let Some(last) = after.last_mut() {
            *last = (gap - busy).max(if busy > 0.0 { *last } else { 0.0 });
        }
        sizes.extend(segments);
        sent += 1;
        if sizes.len() >= TABLE_ENTRIES {
            break;
        }
    }
    let most = profile.most();
    notes.push(format!(
        "{long} of the capture's {all} packets are longer than {most} bytes, as before a network interface cuts them \
         (segmentation offload): they are sent as frames of at most {most} bytes"
    ));
    if sizes.len() > TABLE_ENTRIES || sent < all {
        notes.push(format!("these are more than {TABLE_ENTRIES} frames, and the first so many are sent"));
    }
    sizes.truncate(TABLE_ENTRIES);
    after.truncate(TABLE_ENTRIES);
    (sizes, after)
}

/// The frames of at most `most` bytes that an interface makes of a packet, each with headers of its own.
fn segments(length: u32, most: u32) -> Vec<u16> {
    /// Bytes of the headers of Ethernet, IPv4, and TCP with time stamps.
    const HEADERS: u32 = 66;
    let room = most.saturating_sub(HEADERS).max(1);
    let (mut left, mut frames) = (length, Vec::new());
    while left > most {
        frames.push(most as u16);
        left -= room;
    }
    frames.push(left as u16);
    frames
}

fn mean_gap(rate: Rate, sizes: &[u16]) -> f64 {
    match rate {
        Rate::Packets(rate) => 1e9 / rate,
        Rate::Bits(BitsPerSecond(rate)) => {
            let bits = sizes.iter().map(|&size| f64::from(size) * 8.0).sum::<f64>() / sizes.len() as f64;
            bits * 1e9 / rate
        }
    }
}

/// The mean gap without the frames' time on the wire.
fn rest(profile: &Profile, mean: f64, sizes: &[u16]) -> Result<f64> {
    let wire = sizes.iter().map(|&size| profile.wire_ns(size)).sum::<f64>() / sizes.len() as f64;
    match mean >= wire {
        true => Ok(mean - wire),
        false => Err(too_fast(
            profile,
            format!("the mean gap of {mean:.0} ns is shorter than the mean frame's {wire:.0} ns"),
        )),
    }
}

fn too_fast(profile: &Profile, what: String) -> machine::Fault {
    let speed = profile.link.map_or(String::new(), |speed| format!(" on a link of {speed}"));
    refuse(
        "gaps",
        format!("{what}{speed}"),
        "ask for a lower rate or shorter frames, or leave the link's speed out if it has none",
    )
}

fn poisson(profile: &Profile, mean: f64, sizes: &[u16], random: &mut Random) -> Result<Vec<f64>> {
    let rest = rest(profile, mean, sizes)?;
    let draws: Vec<f64> = sizes.iter().map(|_| -random.share().ln()).collect();
    // Random gaps would miss the mean by the luck of the draw, in every repetition of the table.
    let luck = draws.iter().sum::<f64>() / draws.len() as f64;
    Ok(sizes.iter().zip(draws).map(|(&size, draw)| profile.wire_ns(size) + draw / luck * rest).collect())
}

fn bursts(profile: &Profile, mean: f64, sizes: &[u16], frames: usize, within: Option<Nanoseconds>) -> Result<Vec<f64>> {
    let mut gaps = Vec::with_capacity(sizes.len());
    for burst in sizes.chunks(frames) {
        let period = mean * burst.len() as f64;
        let inner = |size: u16| within.map_or(profile.wire_ns(size), |within| within.0 as f64);
        let (last, first) = (burst[burst.len() - 1], &burst[..burst.len() - 1]);
        let busy: f64 = first.iter().map(|&size| inner(size)).sum();
        if busy + profile.wire_ns(last) > period {
            return Err(too_fast(
                profile,
                format!("a burst of {} frames takes {busy:.0} ns of the {period:.0} ns until the next", burst.len()),
            ));
        }
        gaps.extend(first.iter().map(|&size| inner(size)));
        gaps.push(period - busy);
    }
    Ok(gaps)
}

fn fits_the_wire(profile: &Profile, sizes: &[u16], gaps: &[f64]) -> Result<()> {
    // Rounding to whole nanoseconds takes up to half of one.
    let bad = sizes.iter().zip(gaps).enumerate().find(|(_, (size, gap))| **gap + 0.5 < profile.wire_ns(**size));
    match bad {
        None => Ok(()),
        Some((place, (&size, gap))) => {
            let wire = profile.wire_ns(size);
            Err(too_fast(
                profile,
                format!(
                    "the gap of {gap:.0} ns after frame {} is shorter than the {wire:.0} ns that its {size} bytes take",
                    place + 1
                ),
            ))
        }
    }
}

/// Gaps in whole nanoseconds whose sums stay within one of the exact ones.
fn whole_nanoseconds(sizes: &[u16], gaps: &[f64]) -> Result<Vec<Entry>> {
    let (mut exact, mut given) = (0.0f64, 0u64);
    sizes
        .iter()
        .zip(gaps)
        .map(|(&length, gap)| {
            exact += gap;
            let gap = (exact.round() as u64).saturating_sub(given);
            given += gap;
            match gap >> 48 {
                0 => Ok(Entry { length, gap: Nanoseconds(gap) }),
                _ => Err(refuse("gaps", format!("a gap of {} is too long", Nanoseconds(gap)), "ask for a higher rate")),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::control::ControlBlock;
    use crate::frame::tests::flow;

    fn profile(timing: Timing, sizes: Sizes) -> Profile {
        Profile { frames: Some(1000), ..Profile::new(flow(false), timing, sizes) }
    }

    fn bits(rate: f64) -> Rate {
        Rate::Bits(BitsPerSecond(rate))
    }

    fn captured(packets: &[(u32, u32, u32)]) -> Sizes {
        let file = crate::capture::tests::file(true, true, 1, packets);
        Sizes::Capture(Arc::new(Capture::read(&file[..]).unwrap()))
    }

    #[test]
    fn a_constant_gap_needs_one_entry_and_parts_of_a_nanosecond_are_carried_over() {
        let schedule =
            Schedule::of(&profile(Timing::Constant(Rate::Packets(1e9 / 34_000.0)), Sizes::Fixed(64))).unwrap();
        assert_eq!(schedule.entries, [Entry { length: 64, gap: Nanoseconds(34_000) }]);
        let schedule = Schedule::of(&profile(Timing::Constant(Rate::Packets(3e6)), Sizes::Fixed(64))).unwrap();
        assert!((schedule.mean_gap - 1e3 / 3.0).abs() < 1e-3, "{}", schedule.mean_gap);
        assert!(schedule.entries.iter().all(|entry| (333..=334).contains(&entry.gap.0)));
        let schedule = Schedule::of(&profile(Timing::Constant(bits(100e6)), Sizes::Fixed(1250))).unwrap();
        assert_eq!(schedule.entries[0].gap, Nanoseconds(100_000));
    }

    #[test]
    fn mixes_have_exactly_their_shares() {
        for ipv6 in [false, true] {
            let asked = Profile { flow: flow(ipv6), ..profile(Timing::Constant(bits(1e9)), Sizes::Imix) };
            let schedule = Schedule::of(&asked).unwrap();
            let mut counted = BTreeMap::new();
            schedule.entries.iter().for_each(|entry| *counted.entry(entry.length).or_insert(0) += 1);
            let one = counted[&1514];
            let shortest = if ipv6 { 78 } else { 60 };
            assert_eq!(counted, BTreeMap::from([(shortest, 7 * one), (590, 4 * one), (1514, one)]));
            let mean = (7.0 * f64::from(shortest) + 4.0 * 590.0 + 1514.0) / 12.0;
            assert!((schedule.mean_size - mean).abs() < 1e-9);
            assert!((schedule.mean_gap - mean * 8.0).abs() < 0.01, "{}", schedule.mean_gap);
        }
    }

    #[test]
    fn captures_keep_sizes_and_gaps_and_say_what_was_changed() {
        let sizes = captured(&[(1, 0, 54), (1, 4000, 1514), (1, 3000, 100), (1, 10_000, 60)]);
        let endless = Profile { frames: None, ..profile(Timing::Capture, sizes.clone()) };
        let schedule = Schedule::of(&endless).unwrap();
        let table: Vec<_> = schedule.entries.iter().map(|entry| (entry.length, entry.gap.0)).collect();
        assert_eq!(table, [(60, 3000), (100, 1000), (1514, 6000), (60, 3333)]);
        assert_eq!(schedule.frames, Some(4));
        assert!(schedule.notes[0].contains("1 of the capture's 4 packets") && schedule.notes.len() == 2);
        let constant = Schedule::of(&profile(Timing::Constant(Rate::Packets(1e6)), sizes)).unwrap();
        assert!(constant.entries.iter().all(|entry| entry.gap.0 == 1000));
    }

    #[test]
    fn offloaded_packets_are_cut_as_an_interface_cuts_them() {
        let sizes = captured(&[(1, 0, 64), (1, 1000, 66 + 2 * 1448 + 100), (1, 100_000, 1514), (1, 102_000, 64)]);
        let asked = Profile { frames: None, ..profile(Timing::Capture, sizes) };
        let table = |profile: &Profile| -> Vec<(u16, u64)> {
            let schedule = Schedule::of(profile).unwrap();
            assert!(
                schedule.notes.len() == 1 && schedule.notes[0].contains("1 of the capture's 4"),
                "{:?}",
                schedule.notes
            );
            schedule.entries.iter().map(|entry| (entry.length, entry.gap.0)).collect()
        };
        let all = [(64, 1000), (1514, 0), (1514, 0), (166, 99_000), (1514, 2000), (64, 34_000)];
        assert_eq!(table(&asked), all);
        // At 10 Gbit/s a frame of 1514 bytes takes 1230.4 ns.
        let fast = Profile { link: Some(BitsPerSecond(10e9)), ..asked.clone() };
        let gaps: Vec<u64> = table(&fast)[..4].iter().map(|(_, gap)| *gap).collect();
        assert!(gaps[1].abs_diff(1230) <= 1 && gaps[2].abs_diff(1230) <= 1, "{gaps:?}");
        assert_eq!(gaps.iter().sum::<u64>(), 100_000, "the next packet keeps its time");

        let most = captured(&vec![(1, 0, 60_000); 2000]);
        let schedule = Schedule::of(&profile(Timing::Flood, most)).unwrap();
        assert_eq!(schedule.entries.len(), TABLE_ENTRIES);
        assert!(schedule.notes[1].contains("the first so many"), "{:?}", schedule.notes);
    }

    #[test]
    fn what_cannot_be_honoured_is_refused_with_the_reason() {
        let constant = |rate| Timing::Constant(Rate::Packets(rate));
        let good = profile(constant(1e5), Sizes::Fixed(64));
        let link = Some(BitsPerSecond(1e9));
        let bursty = |frames| Timing::Bursty { rate: Rate::Packets(1e6), frames, within: None };
        let gigabit = |timing, sizes| Profile { link, ..profile(timing, sizes) };
        Schedule::of(&good).unwrap();
        for (bad, word) in [
            (profile(constant(0.0), Sizes::Fixed(64)), "0 sends nothing"),
            (profile(constant(f64::NAN), Sizes::Fixed(64)), "sends nothing"),
            (profile(Timing::Poisson(bits(-1.0)), Sizes::Fixed(64)), "sends nothing"),
            (profile(constant(1e-6), Sizes::Fixed(64)), "too long"),
            (Profile { frames: None, ..good.clone() }, "never end"),
            (Profile { frames: Some(0), ..good.clone() }, "send nothing"),
            (Profile { duration: Some(Nanoseconds(0)), ..good.clone() }, "send nothing"),
            (Profile { batch: 0, ..good.clone() }, "a batch of 0"),
            (Profile { batch: 8, ..good.clone() }, "leave together"),
            (Profile { link: Some(BitsPerSecond(0.0)), ..good.clone() }, "no positive number"),
            (Profile { mtu: 1400, ..profile(constant(1e5), Sizes::Imix) }, "MTU of 1400"),
            (Profile { mtu: 9000, ..profile(constant(1e5), Sizes::Fixed(4000)) }, "more than a body can hold"),
            (Profile { flow: flow(true), ..good.clone() }, "64 bytes are too few for a frame with IPv6"),
            (profile(constant(1e5), Sizes::Fixed(59)), "ask for 60 bytes or more"),
            (profile(constant(1e5), Sizes::Mix(vec![])), "none with a weight"),
            (profile(constant(1e5), Sizes::Mix(vec![(64, 0)])), "none with a weight"),
            (profile(constant(1e5), Sizes::Mix(vec![(64, 65_537), (99, 1)])), "needs a table of 65538 frames"),
            (profile(Timing::Capture, Sizes::Fixed(64)), "go with its sizes"),
            (profile(bursty(1), Sizes::Fixed(64)), "two frames or more"),
            (profile(bursty(70_000), Sizes::Fixed(64)), "needs a table"),
            // More frames than 64 bits count.
            (profile(bursty(u32::MAX - 4), Sizes::Mix(vec![(64, u32::MAX), (99, u32::MAX - 1)])), "needs a table"),
            (profile(Timing::Capture, captured(&[(1, 7, 64), (1, 7, 99)])), "have one time"),
            // (64 + 24) * 8 ns = 704 ns on a link of 1 Gbit/s.
            (gigabit(constant(1.5e6), Sizes::Fixed(64)), "667 ns after frame 1 is shorter than the 704 ns"),
            (gigabit(Timing::Poisson(Rate::Packets(1.5e6)), Sizes::Fixed(64)), "shorter than the mean frame's 704 ns"),
            (gigabit(constant(1e5), Sizes::Mix(vec![(64, 1), (1514, 1)])), "its 1514 bytes take"),
            (
                gigabit(
                    Timing::Bursty { rate: Rate::Packets(1e6), frames: 4, within: Some(Nanoseconds(100)) },
                    Sizes::Fixed(64),
                ),
                "shorter than the 704 ns",
            ),
            (gigabit(bursty(4), Sizes::Fixed(200)), "a burst of 4 frames takes"),
            (gigabit(Timing::Capture, captured(&[(1, 0, 64), (1, 100, 64)])), "the gap of 100 ns after frame 1"),
        ] {
            let fault = Schedule::of(&bad).expect_err(word);
            assert!(fault.to_string().contains(word), "{fault}");
        }
        // At 1 Gbit/s 1514 bytes take 12.3 us, so 50 kpps are possible.
        Schedule::of(&gigabit(constant(5e4), Sizes::Mix(vec![(64, 1), (1514, 1)]))).unwrap();
        Schedule::of(&Profile { batch: 64, ..profile(Timing::Flood, Sizes::Fixed(64)) }).unwrap();
    }

    #[test]
    fn poisson_gaps_are_exponential_and_seeded() {
        let asked = profile(Timing::Poisson(Rate::Packets(1e5)), Sizes::Fixed(64));
        let schedule = Schedule::of(&asked).unwrap();
        let gaps: Vec<f64> = schedule.entries.iter().map(|entry| entry.gap.0 as f64).collect();
        assert!((schedule.mean_gap - 10_000.0).abs() < 0.01);
        let variance = gaps.iter().map(|gap| (gap - 10_000.0).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((variance.sqrt() / 10_000.0 - 1.0).abs() < 0.02, "{}", variance.sqrt());
        // exp(-1) of all gaps are longer than the mean.
        let longer = gaps.iter().filter(|gap| **gap > 10_000.0).count() as f64 / gaps.len() as f64;
        assert!((longer - (-1f64).exp()).abs() < 0.01, "{longer}");
        assert_eq!(Schedule::of(&asked).unwrap(), schedule);
        assert_ne!(Schedule::of(&Profile { seed: 2, ..asked }).unwrap(), schedule);
    }

    proptest! {
        /// The mean rate is the asked one, no gap is shorter than its frame, and a control block takes the table.
        #[test]
        fn every_accepted_profile_keeps_its_rate(
            kind in 0..4, rate in 1e3f64..2e6, in_bits: bool, link in proptest::option::of(1e9f64..1e11), burst in 2u32..32,
            sizes in prop_oneof![(60u16..1514).prop_map(Sizes::Fixed), Just(Sizes::Imix),
                proptest::collection::vec((60u16..1514, 1u32..9), 2..5).prop_map(Sizes::Mix)],
            seed: u64,
        ) {
            let rate = if in_bits { bits(rate * 1000.0) } else { Rate::Packets(rate) };
            let timing = match kind {
                0 => Timing::Constant(rate),
                1 => Timing::Poisson(rate),
                2 => Timing::Bursty { rate, frames: burst, within: None },
                _ => Timing::Flood,
            };
            let asked = Profile { link: link.map(BitsPerSecond), seed, ..profile(timing, sizes) };
            let Ok(schedule) = Schedule::of(&asked) else { return Ok(()) };
            let wanted = match rate {
                _ if kind == 3 => 0.0,
                Rate::Packets(rate) => 1e9 / rate,
                Rate::Bits(BitsPerSecond(rate)) => schedule.mean_size * 8e9 / rate,
            };
            prop_assert!((schedule.mean_gap - wanted).abs() <= 0.6 / schedule.entries.len() as f64 + 1e-6 * wanted, "{} {wanted}", schedule.mean_gap);
            if kind != 3 {
                for entry in &schedule.entries {
                    prop_assert!(entry.gap.0 as f64 + 1.5 >= asked.wire_ns(entry.length));
                }
            }
            ControlBlock::in_process().ask(&schedule.asked(&asked, 3, Nanoseconds(5)).unwrap()).unwrap();
        }
    }

    #[test]
    fn texts_are_read() {
        let rate = |text: &str| text.parse::<Rate>().unwrap();
        assert_eq!(rate("30kpps"), Rate::Packets(30e3));
        assert_eq!(rate("1.5 Mpps"), Rate::Packets(1.5e6));
        assert_eq!(rate("100Mbit"), bits(100e6));
        assert_eq!(rate("10Gbit/s"), bits(10e9));
        assert_eq!(rate("12_000pps"), Rate::Packets(12e3));
        assert_eq!("10G".parse::<BitsPerSecond>().unwrap(), BitsPerSecond(10e9));
        for bad in ["", "pps", "30", "30k", "x pps", "30Tbit", "3 0pps"] {
            assert!(bad.parse::<Rate>().is_err(), "{bad}");
        }
        let sizes = |text: &str| text.parse::<Sizes>().unwrap();
        assert_eq!((sizes("64"), sizes("imix")), (Sizes::Fixed(64), Sizes::Imix));
        assert_eq!(sizes("64*7, 590*4,1514"), Sizes::Mix(vec![(64, 7), (590, 4), (1514, 1)]));
        for bad in ["", "sixty", "64,", "70000", "pcap:/nowhere/at/all"] {
            assert!(bad.parse::<Sizes>().is_err(), "{bad}");
        }
    }
}
