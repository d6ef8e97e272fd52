use proptest::prelude::*;

use super::*;
use crate::quantity::{Nanoseconds, Watts};
use crate::reading::Reading;

const SECOND: u64 = 1_000_000_000;

fn sensor(measure: Measure) -> Sensor {
    Sensor { name: "x".into(), covers: Covers::Package, band: Band::In, measure, within: None }
}

fn counter(range: Option<u64>) -> Track {
    let measure = Measure::Counter { range, step: 1, lag: Nanoseconds(0) };
    Track::new(&sensor(measure), Nanoseconds(SECOND))
}

fn gauge() -> Track {
    Track::new(&sensor(Measure::Gauge), Nanoseconds(10 * SECOND))
}

fn at(seconds: f64) -> Nanoseconds {
    Nanoseconds((seconds * 1e9).round() as u64)
}

/// A power that is constant between steps: each step's time in seconds and the watts from there on.
#[derive(Debug, Clone)]
struct Steps(Vec<(f64, f64)>);

impl Steps {
    fn energy(&self, from: f64, to: f64) -> f64 {
        let ends = self.0.iter().skip(1).map(|(at, _)| *at).chain([f64::INFINITY]);
        let parts =
            self.0.iter().zip(ends).map(|((begin, watts), end)| (to.min(end) - from.max(*begin)).max(0.0) * watts);
        parts.sum()
    }
}

/// Increasing times between 0 and `length`.
fn times(count: impl Into<prop::collection::SizeRange>, length: f64) -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(0.0..length, count).prop_map(|mut times| {
        times.sort_by(f64::total_cmp);
        times.dedup_by(|b, a| *b - *a < 1e-3);
        times
    })
}

fn power(length: f64) -> impl Strategy<Value = Steps> {
    (times(0..40, length), prop::collection::vec(0.0..2_500.0, 41))
        .prop_map(|(times, watts)| Steps([0.0].into_iter().chain(times).zip(watts).collect()))
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Event {
    Sample,
    /// The counter is reset, at a moment where a reset can be told from a wrap.
    Reset,
    Stop,
}

fn next_sample(events: &[(f64, Event)]) -> Option<f64> {
    events.iter().find(|(_, event)| *event == Event::Sample).map(|(time, _)| *time)
}

proptest! {
    /// For any power and any times of sampling: the known energy is right within its error, and lost times are never in it.
    #[test]
    fn counters_are_right_where_they_say_so(
        steps in power(60.0),
        range in 30_000_000_000_u64..70_000_000_000,
        start in 0.0..1.0_f64,
        events in prop::collection::vec((0.0..60.0_f64, prop_oneof![12 => Just(Event::Sample), 1 => Just(Event::Reset), 1 => Just(Event::Stop)]), 2..120),
        window in (0.0..60.0_f64, 0.0..60.0_f64),
    ) {
        let mut events = events;
        events.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut track = counter(Some(range));
        // The counter's exact value, the time of that value, the last sample, and lost times.
        let (mut stood, mut since, mut last) = (start * range as f64, 0.0, None::<f64>);
        let mut lost: Vec<(f64, f64)> = Vec::new();
        let mut broken = false;
        for (nth, (time, event)) in events.iter().copied().enumerate() {
            stood = (stood + steps.energy(since, time) * 1e6) % range as f64;
            since = time;
            match event {
                Event::Sample => {
                    if let (Some(last), true) = (last, broken) {
                        lost.push((last, time));
                    }
                    track.push(at(time), stood as u64);
                    (last, broken) = (Some(time), false);
                }
                Event::Stop => {
                    track.stop(at(time), "it was gone");
                    broken = true;
                }
                // A wrap would take 29 kJ or more, which is no possible power within nine seconds.
                Event::Reset
                    if stood > 0.45 * range as f64
                        && stood < 0.55 * range as f64
                        && range > 65_000_000_000
                        && last.is_some_and(|last| next_sample(&events[nth..]).is_none_or(|next| next - last < 9.0)) =>
                {
                    stood = 0.0;
                    broken = true;
                }
                Event::Reset => {}
            }
        }
        let (from, to) = if window.0 < window.1 { window } else { (window.1, window.0) };
        let integral = track.between(at(from), at(to));
        let seconds = |gap: &Gap| (gap.from.0 as f64 / 1e9, gap.to.0 as f64 / 1e9);
        let unknown: f64 = integral.gaps.iter().map(|gap| steps.energy(seconds(gap).0, seconds(gap).1)).sum();
        let truth = steps.energy(from, to) - unknown;
        let off = (integral.joules.0 - truth).abs();
        prop_assert!(off <= integral.error.0 + 1e-3, "{off} J off, {:?}", integral);
        let gaps: u64 = integral.gaps.iter().map(|gap| gap.length().0).sum();
        prop_assert_eq!(integral.covered.0 + gaps, at(to).0 - at(from).0);
        for (a, b) in lost {
            let (a, b) = (at(a.max(from)).0, at(b.min(to)).0);
            let is_gap = |gap: &Gap| gap.from.0 <= a && gap.to.0 >= b;
            prop_assert!(a >= b || integral.gaps.iter().any(is_gap), "{a} to {b} was lost: {:?}", integral.gaps);
        }
        // Forgetting samples before `from` changes nothing after it.
        track.forget(at(from));
        let again = track.between(at(from), at(to));
        prop_assert!((again.joules.0 - integral.joules.0).abs() < 1e-6);
        prop_assert_eq!((again.covered, again.gaps), (integral.covered, integral.gaps));
    }

    /// A power that rises or falls monotonically between two samples.
    #[test]
    fn gauges_are_right_within_their_error(
        samples in times(2..60, 60.0),
        watts in prop::collection::vec((0.0..500.0_f64, 0.0..1.0_f64), 60),
        window in (0.0..60.0_f64, 0.0..60.0_f64),
    ) {
        let mut track = gauge();
        // The power stays at each sample's value and steps to the next one's somewhere between.
        let mut steps = vec![(0.0, 0.0)];
        for (nth, time) in samples.iter().enumerate() {
            let (power, share) = watts[nth];
            track.push(at(*time), (power * 1e6) as u64);
            if let Some(before) = nth.checked_sub(1) {
                steps.push((samples[before] + share * (time - samples[before]), power));
            } else {
                steps.push((*time, power));
            }
        }
        let steps = Steps(steps);
        let (from, to) = if window.0 < window.1 { window } else { (window.1, window.0) };
        let integral = track.between(at(from), at(to));
        let unknown: f64 =
            integral.gaps.iter().map(|gap| steps.energy(gap.from.0 as f64 / 1e9, gap.to.0 as f64 / 1e9)).sum();
        let off = (integral.joules.0 - (steps.energy(from, to) - unknown)).abs();
        prop_assert!(off <= integral.error.0 + 1e-3, "{off} J off, {:?}", integral);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_clock_is_found_by_a_load(ahead in -20.0..20.0_f64, seed in any::<u64>(), phase in 0.0..0.1_f64) {
        let mut track = gauge();
        let on = [(31.0, 32.1), (34.0, 35.7), (36.5, 39.0), (40.2, 41.0), (43.5, 45.6), (46.3, 47.2), (49.0, 52.0)];
        let mut noise = seed | 1;
        for nth in 0..900 {
            noise ^= noise << 13;
            noise ^= noise >> 7;
            noise ^= noise << 17;
            let ours = phase + nth as f64 / 10.0;
            let is_on = on.iter().any(|(from, to)| (*from..*to).contains(&ours));
            let watts = if is_on { 180.0 } else { 90.0 } + (noise % 1600) as f64 / 100.0;
            track.push(at(ours + ahead + 20.0), (watts * 1e6) as u64);
        }
        let on: Vec<_> = on.iter().map(|(from, to)| (at(*from), at(*to))).collect();
        let Reading::Measured(offset) = fit(&track, &on, at(45.0)) else { panic!("the load shows") };
        let off = (offset.ahead as f64 / 1e9 - ahead - 20.0).abs();
        prop_assert!(off <= offset.within.0 as f64 / 1e9 + 1e-3 && off < 0.3, "{off} s off: {offset:?}");
    }
}

#[test]
fn a_load_that_does_not_show_gives_no_clock() {
    let mut track = gauge();
    for nth in 0..900_u64 {
        track.push(Nanoseconds(nth * SECOND / 10), 90_000_000 + nth * 7919 % 5_000_000);
    }
    let on = [(31.0, 32.1), (34.0, 35.7), (36.5, 39.0), (40.2, 41.0)].map(|(from, to)| (at(from), at(to)));
    assert!(matches!(fit(&track, &on, at(20.0)), Reading::Absent { .. }));
    assert!(matches!(fit(&gauge(), &on, at(20.0)), Reading::Absent { .. }));
    assert!(matches!(fit(&track, &on[..2], at(20.0)), Reading::Absent { .. }));
}

#[test]
fn a_fall_is_a_wrap_or_a_new_beginning() {
    let (range, most, tenth) = (Some(262_143_328_850), Watts(3e3), Nanoseconds(SECOND / 10));
    assert_eq!(advance(262_143_000_000, 5_000_000, range, most, tenth), Advance::By(5_328_850));
    assert_eq!(advance(5, 5, range, most, tenth), Advance::By(0));
    // 200 J is a possible energy; two wraps nobody could see.
    assert_eq!(advance(100_000_000_000, 7, range, most, tenth), Advance::Reset);
    assert_eq!(advance(7, 100_000_000_000, range, most, tenth), Advance::Implausible);
    assert_eq!(advance(7, 8, range, most, Nanoseconds(100 * SECOND)), Advance::Implausible);
    assert_eq!(advance(8, 7, None, most, tenth), Advance::Reset);
}

#[test]
fn what_is_not_known_has_its_cause() {
    let mut track = gauge();
    let all = |track: &Track| track.between(at(0.0), at(10.0));
    let causes = |integral: Integral| integral.gaps.into_iter().map(|gap| gap.cause).collect::<Vec<_>>();
    assert_eq!(causes(all(&track)), ["no sample was taken"]);
    track.push(at(1.0), 100_000_000);
    track.push(at(2.0), 100_000_000);
    track.stop(at(2.5), "it printed 'n/a'");
    track.stop(at(3.5), "later");
    assert_eq!(track.stopped(), Some((at(2.5), "it printed 'n/a'")));
    let open = all(&track);
    assert_eq!((open.joules.0, open.covered), (100.0, at(1.0)));
    assert_eq!(causes(open), ["before the first sample", "it printed 'n/a'"]);
    track.push(at(6.0), 100_000_000);
    track.push(at(8.0), 300_000_000);
    let integral = all(&track);
    assert_eq!((integral.joules.0, integral.error.0, integral.covered), (500.0, 200.0, at(3.0)));
    assert_eq!(causes(integral), ["before the first sample", "it printed 'n/a'", "after the last sample"]);
    track.push(at(7.0), 1);
    assert_eq!((track.len(), track.disordered()), (4, 1));
    assert_eq!(track.least(at(1.0)), Some((Watts(100.0), at(1.0))));
}

#[test]
fn nothing_is_never_a_zero() {
    let of = |track: &Track, floor: &Reading<Floor>| {
        EnergyReading::of(&sensor(Measure::Gauge), track, at(0.0), at(2.0), floor)
    };
    let floor = Reading::Measured(Floor { watts: Watts(60.0), how: "1 s before".into() });
    let nothing = of(&gauge(), &floor);
    assert_eq!(nothing.joules, Reading::absent("no sample was taken"));
    assert_eq!((nothing.watts.value(), nothing.above.value(), nothing.coverage), (None, None, 0.0));
    let mut track = gauge();
    track.push(at(0.0), 100_000_000);
    track.push(at(1.0), 100_000_000);
    let half = of(&track, &floor);
    assert_eq!(
        (half.joules, half.watts, half.coverage),
        (Reading::Measured(crate::Joules(100.0)), Reading::Measured(Watts(100.0)), 0.5)
    );
    assert_eq!(half.above, Reading::Measured(crate::Joules(40.0)));
    let without = of(&track, &Reading::absent("--idle 0"));
    assert_eq!(without.above, Reading::absent("--idle 0"));
    assert!(total(&[of(&track, &floor)], "x").value().is_none(), "half of it is unknown");
}

#[test]
fn more_than_its_kind_can_draw_is_no_power() {
    let of = |covers, every: u64| {
        let sensor = Sensor { covers, ..sensor(Measure::Gauge) };
        let mut track = Track::new(&sensor, at(10.0));
        for nth in 0..=6 {
            // The value of ACPI's meters where a reading failed.
            track.push(at(nth as f64), if nth % every == 1 % every { 4_294_967_295_000 } else { 100_000_000 });
        }
        EnergyReading::of(&sensor, &track, at(0.0), at(6.0), &Reading::absent("not measured"))
    };
    for covers in Covers::WORDS.map(|(covers, _)| covers) {
        let always = of(covers, 1);
        let cause = "it told 4.295 MW, all ones in 32 bits: its reading failed";
        assert_eq!((always.watts, always.coverage), (Reading::absent(cause), 0.0));
        let third = of(covers, 3);
        assert_eq!(third.watts, Reading::Measured(Watts(100.0)), "the rest is as it is");
        assert!(third.coverage < 0.5 && third.gaps.iter().all(|gap| gap.cause == cause), "{third:?}");
    }
    let mut track = gauge();
    track.push(at(0.0), 3_100_000_000);
    assert_eq!(track.stopped().map(|(_, cause)| cause), Some("it told 3.1 kW, more than the 3 kW it can be"));
    track.push(at(1.0), 3_000_000_000);
    assert_eq!((track.len(), track.stopped()), (1, None));
}

#[test]
fn a_counter_that_stands_still_is_no_reading() {
    let sensor = sensor(Measure::Counter { range: Some(262_143_328_850), step: 62, lag: Nanoseconds(1_000_000) });
    let floor = Reading::absent("not measured");
    let of = |numbers: &[u64]| {
        let mut track = Track::new(&sensor, at(1.0));
        numbers.iter().enumerate().for_each(|(nth, number)| track.push(at(nth as f64), *number));
        (
            EnergyReading::of(&sensor, &track, at(0.0), at(3.0), &floor),
            EnergyReading::of(&sensor, &track, at(0.0), at(1.0), &floor),
        )
    };
    let (stands, _) = of(&[5, 5, 5]);
    let why = Reading::absent("the counter did not move in 2 s");
    assert_eq!((&stands.joules, &stands.error, stands.coverage), (&why, &why, 0.0));
    assert_eq!(stands.watts.value(), None);
    let causes: Vec<&str> = stands.gaps.iter().map(|gap| gap.cause.as_str()).collect();
    assert_eq!(causes, ["the counter did not move in 2 s", "after the last sample"]);
    let sum = total(&[stands], "x");
    assert_eq!(sum, Reading::absent("x: the counter did not move in 2 s"));
    // A counter that moved counts also where it stood still, but not in an interval where it only stood still.
    let (moves, begins) = of(&[5, 5, 7, 8]);
    assert_eq!((moves.joules, moves.coverage), (Reading::Measured(crate::Joules(3e-6)), 1.0));
    assert_eq!(begins.joules.value(), None);
}

#[test]
fn parts_of_a_package_are_not_counted_twice() {
    let mut drawn = Vec::new();
    for (name, covers, within, watts) in [
        ("rapl:package-0", Covers::Package, None, 100),
        ("rapl:package-0/core", Covers::Cores, Some("rapl:package-0"), 80),
        ("rapl:package-0/dram", Covers::Memory, None, 20),
        ("rapl:psys", Covers::Node, None, 150),
        ("hwmon:x", Covers::Unstated, None, 9),
    ] {
        let sensor = Sensor {
            name: name.into(),
            covers,
            band: Band::In,
            measure: Measure::Gauge,
            within: within.map(Into::into),
        };
        let mut track = Track::new(&sensor, at(2.0));
        track.push(at(0.0), watts * 1_000_000);
        track.push(at(1.0), watts * 1_000_000);
        drawn.push(EnergyReading::of(&sensor, &track, at(0.0), at(1.0), &Reading::absent("not measured")));
    }
    assert_eq!(total(&drawn, "rapl:"), Reading::Measured(crate::Joules(120.0)));
    assert!(matches!(total(&drawn, "cray:"), Reading::Absent { .. }));
}
