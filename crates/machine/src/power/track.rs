//! The samples of one sensor, and the energy of any interval.

use serde::{Deserialize, Serialize};

use super::sensor::{Measure, Sensor};
use crate::quantity::{Joules, Nanoseconds, Watts};

/// The advance of a counter between two readings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advance {
    /// An advance in microjoules, across a wrap where the second reading is the smaller.
    By(u64),
    /// A reset: the counter fell, and a wrap would be no possible power.
    Reset,
    /// More than any power allows, or the counter may have wrapped unseen.
    Implausible,
}

/// The advance between two readings, `time` apart. A fall is a wrap only where `range` and `most` allow it.
pub fn advance(from: u64, to: u64, range: Option<u64>, most: Watts, time: Nanoseconds) -> Advance {
    let possible = most.during(time).0 * 1e6 + 1.0;
    if range.is_some_and(|range| possible >= range as f64) {
        return Advance::Implausible;
    }
    let (went, is_round) = match (to >= from, range) {
        (true, _) => (to - from, false),
        (false, Some(range)) => (to.saturating_add(range.saturating_sub(from)), true),
        (false, None) => return Advance::Reset,
    };
    match (went as f64 <= possible, is_round) {
        (true, _) => Advance::By(went),
        (false, true) => Advance::Reset,
        (false, false) => Advance::Implausible,
    }
}

/// A time of which nothing is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// Its begin, on the clock of the samples.
    pub from: Nanoseconds,
    /// Its end, on the clock of the samples.
    pub to: Nanoseconds,
    /// Why there is a gap.
    pub cause: String,
}

impl Gap {
    /// Its length.
    pub fn length(&self) -> Nanoseconds {
        Nanoseconds(self.to.0.saturating_sub(self.from.0))
    }
}

/// The energy of an interval.
#[derive(Debug, Clone, PartialEq)]
pub struct Integral {
    /// Energy of the time that is covered.
    pub joules: Joules,
    /// Greatest error of the joules: for a counter its steps and the interval's ends; for a gauge any power that is
    /// monotonic between two samples.
    pub error: Joules,
    /// The part of the interval that is known.
    pub covered: Nanoseconds,
    /// The rest of the interval, in order.
    pub gaps: Vec<Gap>,
}

/// One sample, with running totals.
#[derive(Debug, Clone, Copy)]
struct Point {
    at: u64,
    /// Power at this moment; for a counter the mean since the point before.
    watts: f64,
    /// Energy and known time since the first point, and a gauge's error in them.
    joules: f64,
    known: u64,
    error: f64,
    /// Whether the time since the point before is known.
    is_joined: bool,
}

/// The samples of one sensor, in order of time.
#[derive(Debug, Clone)]
pub struct Track {
    measure: Measure,
    most: Watts,
    /// Samples further apart than this are not joined.
    bridge: Nanoseconds,
    points: Vec<Point>,
    /// The last number.
    last: u64,
    /// Gaps between points, by the index of the point after them, with their causes.
    gaps: Vec<(usize, String)>,
    /// When and why the sensor stopped after the last point.
    stopped: Option<(u64, String)>,
    /// Samples with a time before that of their predecessor.
    disordered: u64,
}

impl Track {
    /// A track without samples. Gauges join samples at most `bridge` apart, counters any between which they cannot have wrapped.
    pub fn new(sensor: &Sensor, bridge: Nanoseconds) -> Track {
        let bridge = match sensor.measure {
            Measure::Gauge => bridge,
            Measure::Counter { .. } => Nanoseconds(bridge.0.max(LONGEST)),
        };
        Track {
            measure: sensor.measure,
            most: sensor.covers.most(),
            bridge,
            points: Vec::new(),
            last: 0,
            gaps: Vec::new(),
            stopped: None,
            disordered: 0,
        }
    }

    /// Adds a sample, in microjoules or microwatts. One no later than the last is left out; an impossible power counts
    /// as a failed reading.
    pub fn push(&mut self, at: Nanoseconds, micro: u64) {
        let gauge = micro as f64 / 1e6;
        if let Some(cause) = self.no_power(micro) {
            self.stop(at, &cause);
            return;
        }
        let Some(before) = self.points.last().copied() else {
            let watts = if matches!(self.measure, Measure::Gauge) { gauge } else { 0.0 };
            self.points.push(Point { at: at.0, watts, joules: 0.0, known: 0, error: 0.0, is_joined: false });
            (self.last, self.stopped) = (micro, None);
            return;
        };
        if at.0 <= before.at {
            self.disordered += u64::from(at.0 < before.at);
            return;
        }
        let time = Nanoseconds(at.0 - before.at);
        let went = match self.stopped.take() {
            Some((_, cause)) => Err(cause),
            None if time > self.bridge => Err(format!("no sample for {time}")),
            None => self.stretch(before.watts, micro, time),
        };
        let mut point = Point { at: at.0, is_joined: went.is_ok(), ..before };
        match went {
            Ok((joules, error)) => {
                (point.joules, point.error) = (before.joules + joules, before.error + error);
                point.known += time.0;
                point.watts = joules * 1e9 / time.0 as f64;
            }
            Err(cause) => {
                self.gaps.push((self.points.len(), cause));
            }
        }
        if matches!(self.measure, Measure::Gauge) {
            point.watts = gauge;
        }
        self.points.push(point);
        self.last = micro;
    }

    /// Why a gauge's number is no power.
    fn no_power(&self, micro: u64) -> Option<String> {
        let told = Watts(micro as f64 / 1e6);
        match self.measure {
            Measure::Counter { .. } => None,
            Measure::Gauge if is_all_ones(micro) => {
                Some(format!("it told {told}, all ones in 32 bits: its reading failed"))
            }
            Measure::Gauge => {
                (told > self.most).then(|| format!("it told {told}, more than the {} it can be", self.most))
            }
        }
    }

    /// Energy between the last number and this one, and its greatest error.
    fn stretch(&self, watts: f64, micro: u64, time: Nanoseconds) -> Result<(f64, f64), String> {
        let Measure::Counter { range, lag, .. } = self.measure else {
            let (seconds, gauge) = (time.0 as f64 / 1e9, micro as f64 / 1e6);
            return Ok(((watts + gauge) / 2.0 * seconds, (gauge - watts).abs() / 2.0 * seconds));
        };
        match advance(self.last, micro, range, self.most, Nanoseconds(time.0.saturating_add(lag.0))) {
            Advance::By(went) => Ok((went as f64 / 1e6, 0.0)),
            Advance::Reset => Err("the counter began again".to_owned()),
            Advance::Implausible => Err("the counter jumped, or may have gone round unseen".to_owned()),
        }
    }

    /// Notes that the sensor gave nothing at this moment: the time between its last sample and its next is not known.
    pub fn stop(&mut self, at: Nanoseconds, cause: &str) {
        if self.stopped.is_none() {
            self.stopped = Some((at.0, cause.to_owned()));
        }
    }

    /// Shifts all times by `by` ns, where the samples' clock differs from ours.
    pub fn shift(&mut self, by: i64) {
        self.points.iter_mut().for_each(|point| point.at = point.at.saturating_add_signed(by));
        self.stopped.iter_mut().for_each(|(at, _)| *at = at.saturating_add_signed(by));
    }

    /// When and why the sensor stopped, where no sample came since.
    pub fn stopped(&self) -> Option<(Nanoseconds, &str)> {
        self.stopped.as_ref().map(|(at, cause)| (Nanoseconds(*at), cause.as_str()))
    }

    /// Samples further apart than this are not joined.
    pub fn bridge(&self) -> Nanoseconds {
        self.bridge
    }

    /// Times of the first and the last sample.
    pub fn span(&self) -> Option<(Nanoseconds, Nanoseconds)> {
        Some((Nanoseconds(self.points.first()?.at), Nanoseconds(self.points.last()?.at)))
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.points.len()
    }

    /// Whether there is no sample.
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// Samples left out because their time was before that of their predecessor.
    pub fn disordered(&self) -> u64 {
        self.disordered
    }

    /// The median time between two samples; `None` below two samples.
    pub fn period(&self) -> Option<Nanoseconds> {
        let mut times: Vec<u64> = self.points.windows(2).map(|pair| pair[1].at - pair[0].at).collect();
        let middle = times.len().checked_sub(1)? / 2;
        Some(Nanoseconds(*times.select_nth_unstable(middle).1))
    }

    /// Drops the samples that no interval from `from` on needs.
    pub fn forget(&mut self, from: Nanoseconds) {
        let gone = self.points.partition_point(|point| point.at <= from.0).saturating_sub(1);
        if gone > 0 {
            self.points.drain(..gone);
            self.gaps.retain(|(at, _)| *at > gone);
            self.gaps.iter_mut().for_each(|(at, _)| *at -= gone);
        }
    }

    /// The energy from `from` to `to`. Takes time logarithmic in the samples, and linear in the gaps.
    pub fn between(&self, from: Nanoseconds, to: Nanoseconds) -> Integral {
        let mut integral =
            Integral { joules: Joules(0.0), error: Joules(0.0), covered: Nanoseconds(0), gaps: Vec::new() };
        let (from, to) = (from.0, to.0.max(from.0));
        let (Some(first), Some(last)) = (self.points.first(), self.points.last()) else {
            let cause = self.stopped.as_ref().map_or("no sample was taken", |(_, cause)| cause);
            integral.gaps.push(gap(from, to, cause));
            return integral;
        };
        if from < first.at {
            integral.gaps.push(gap(from, to.min(first.at), "before the first sample"));
        }
        let (begin, end) = (from.clamp(first.at, last.at), to.clamp(first.at, last.at));
        if begin < end {
            self.within(begin, end, &mut integral);
        }
        if to > last.at {
            let cause = self.stopped.as_ref().map_or("after the last sample", |(_, cause)| cause);
            integral.gaps.push(gap(from.max(last.at), to, cause));
        }
        integral
    }

    /// As [`Track::between`], but a counter that did not move at all covers nothing: some stand still for ever, and
    /// such a one says nothing of the power.
    pub fn told_between(&self, from: Nanoseconds, to: Nanoseconds) -> Integral {
        let mut integral = self.between(from, to);
        let is_counter = matches!(self.measure, Measure::Counter { .. });
        if is_counter && integral.covered.0 > 0 && integral.joules.0 <= 0.0 {
            let cause = format!("the counter did not move in {}", integral.covered);
            integral.gaps.insert(0, gap(from.0, to.0, &cause));
            integral.covered = Nanoseconds(0);
        }
        integral
    }

    /// [`Track::between`] for times between the first point and the last.
    fn within(&self, begin: u64, end: u64, integral: &mut Integral) {
        // The point at or after each end.
        let (left, right) = (self.from(begin), self.from(end));
        let (a, b) = (self.at(begin, left), self.at(end, right));
        integral.joules = Joules((b.joules - a.joules).max(0.0));
        integral.covered = Nanoseconds(b.known - a.known);
        let ends = if left == right { self.inside(begin, end, right) } else { a.after + b.before };
        let gauge = if left == right { 0.0 } else { self.points[right - 1].error - self.points[left].error };
        let gaps = &self.gaps[self.gaps.partition_point(|(at, _)| *at < left)..];
        let gaps = gaps.iter().take_while(|(at, _)| *at <= right);
        integral.gaps.extend(gaps.filter_map(|(at, cause)| {
            let (from, to) = (self.points[at - 1].at.max(begin), self.points[*at].at.min(end));
            (from < to).then(|| gap(from, to, cause))
        }));
        let readings = match self.measure {
            Measure::Counter { step, lag, .. } if integral.covered.0 > 0 => {
                // Each run of readings without a gap has two ends.
                let runs = integral.gaps.len() as f64 + 1.0;
                let mean = integral.joules.over(integral.covered).map_or(0.0, |watts| watts.0);
                let watts = mean.max(self.points[left].watts).max(self.points[right].watts);
                runs * (step as f64 / 1e6 + watts * lag.0 as f64 / 1e9)
            }
            _ => 0.0,
        };
        integral.error = Joules(ends + gauge.max(0.0) + readings);
    }

    /// Index of the first point not before `at`.
    fn from(&self, at: u64) -> usize {
        self.points.partition_point(|point| point.at < at)
    }

    /// The state at `at`, which lies between the point at `place` and the one before.
    fn at(&self, at: u64, place: usize) -> Edge {
        let next = &self.points[place];
        if at == next.at || place == 0 {
            return Edge {
                joules: next.joules,
                known: next.known,
                before: next.error - self.error_before(place),
                after: 0.0,
            };
        }
        let before = &self.points[place - 1];
        if !next.is_joined {
            return Edge { joules: before.joules, known: before.known, before: 0.0, after: 0.0 };
        }
        let time = (next.at - before.at) as f64;
        let share = (at - before.at) as f64 / time;
        let seconds = time / 1e9;
        let joules = match self.measure {
            Measure::Counter { .. } => (next.joules - before.joules) * share,
            Measure::Gauge => seconds * (before.watts * share + (next.watts - before.watts) * share * share / 2.0),
        };
        let (left, right) = (self.doubt(place, 0.0, share), self.doubt(place, share, 1.0));
        Edge { joules: before.joules + joules, known: before.known + (at - before.at), before: left, after: right }
    }

    fn error_before(&self, place: usize) -> f64 {
        place.checked_sub(1).map_or(0.0, |before| self.points[before].error)
    }

    /// Greatest error of the energy of a part, in shares, of the stretch before the point at `place`. A counter may have counted
    /// all of it in the part or none, within the possible power; a gauge may have stepped at once or at the end.
    fn doubt(&self, place: usize, from: f64, to: f64) -> f64 {
        let (before, next) = (&self.points[place - 1], &self.points[place]);
        let part = to - from;
        match self.measure {
            _ if !next.is_joined => 0.0,
            Measure::Counter { .. } if part >= 1.0 || part <= 0.0 => 0.0,
            Measure::Counter { .. } => {
                let whole = next.joules - before.joules;
                let possible = |share: f64| (self.most.0 * (next.at - before.at) as f64 / 1e9 * share).min(whole);
                let (least, most) = (whole - possible(1.0 - part), possible(part));
                (whole * part - least).max(most - whole * part)
            }
            Measure::Gauge => {
                let seconds = (next.at - before.at) as f64 / 1e9;
                // The integral of max(x, 1 - x) from 0 to `x`.
                let up_to = |x: f64| if x <= 0.5 { x - x * x / 2.0 } else { 0.25 + x * x / 2.0 };
                let whole = part >= 1.0;
                let widest = if whole { 0.5 } else { up_to(to) - up_to(from) };
                (next.watts - before.watts).abs() * seconds * widest
            }
        }
    }

    /// As `doubt`, for two ends that lie in one stretch.
    fn inside(&self, begin: u64, end: u64, place: usize) -> f64 {
        let (before, next) = (&self.points[place - 1], &self.points[place]);
        let share = |at: u64| (at - before.at) as f64 / (next.at - before.at) as f64;
        self.doubt(place, share(begin), share(end))
    }

    /// The lowest mean power over `length` that samples cover without a gap, and its begin; `None` where none is covered.
    pub fn least(&self, length: Nanoseconds) -> Option<(Watts, Nanoseconds)> {
        let starts = self.points.iter().map(|point| Nanoseconds(point.at));
        let means = starts.filter_map(|start| {
            let integral = self.between(start, Nanoseconds(start.0.saturating_add(length.0)));
            (integral.covered == length).then(|| Some((integral.joules.over(length)?, start)))?
        });
        means.min_by(|a, b| a.0.0.total_cmp(&b.0.0))
    }
}

/// The longest time between readings of a counter that are joined, ns: a suspended host is not rare.
const LONGEST: u64 = 600_000_000_000;

/// Whether a meter that reads in W, mW or uW reports a failed reading.
fn is_all_ones(micro: u64) -> bool {
    [1, 1_000, 1_000_000].iter().any(|unit| micro == unit * u64::from(u32::MAX))
}

/// The totals at a moment, and the error of the parts of its stretch before and after it.
struct Edge {
    joules: f64,
    known: u64,
    before: f64,
    after: f64,
}

fn gap(from: u64, to: u64, cause: &str) -> Gap {
    Gap { from: Nanoseconds(from), to: Nanoseconds(to), cause: cause.to_owned() }
}
