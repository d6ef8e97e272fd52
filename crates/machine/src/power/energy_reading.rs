//! The power and energy that a sensor told of an interval, as shown and stored.

use serde::{Deserialize, Serialize};

use super::sensor::{Covers, Sensor};
use super::track::{Gap, Track};
use crate::quantity::{Joules, Nanoseconds, Watts};
use crate::reading::Reading;

/// The power that an idle machine draws.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Floor {
    /// Mean power.
    pub watts: Watts,
    /// When and how it was measured, in words.
    pub how: String,
}

/// The power and energy that a sensor told of an interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EnergyReading {
    /// The sensor.
    pub sensor: Sensor,
    /// The energy of the covered time; absent where none is covered.
    pub joules: Reading<Joules>,
    /// How far the joules may be off.
    pub error: Reading<Joules>,
    /// Mean power of the covered time.
    pub watts: Reading<Watts>,
    /// The share of the interval that samples cover, 0 to 1.
    pub coverage: f64,
    /// The power of the idle machine.
    pub floor: Reading<Floor>,
    /// The energy less that of the floor over the same time; below 0 where less was drawn than in idleness.
    pub above: Reading<Joules>,
    /// Times without samples, in order, the first [`EnergyReading::MOST_GAPS`].
    pub gaps: Vec<Gap>,
    /// Remarks for the reader.
    pub notes: Vec<String>,
}

impl EnergyReading {
    /// Gaps that are kept; a note has the number of the others.
    pub const MOST_GAPS: usize = 16;

    /// The energy and power that `track`, the samples of `sensor`, gives for the time from `from` to `to`.
    pub fn of(
        sensor: &Sensor,
        track: &Track,
        from: Nanoseconds,
        to: Nanoseconds,
        floor: &Reading<Floor>,
    ) -> EnergyReading {
        let integral = track.told_between(from, to);
        let (joules, error, covered) = (integral.joules, integral.error, integral.covered);
        let mut gaps = integral.gaps;
        let mut notes = Vec::new();
        if gaps.len() > EnergyReading::MOST_GAPS {
            notes.push(format!("{} more gaps are left out here", gaps.len() - EnergyReading::MOST_GAPS));
        }
        let mean = joules.over(covered);
        let or_absent = |value: Option<Joules>| match (value, gaps.iter().max_by_key(|gap| gap.length())) {
            (Some(joules), _) => Reading::Measured(joules),
            (None, Some(gap)) => Reading::absent(&gap.cause),
            (None, None) => Reading::absent("the interval has no length"),
        };
        let known = mean.map(|_| joules);
        let above = match (floor, known) {
            (Reading::Measured(floor) | Reading::Modelled(floor), Some(joules)) => {
                Reading::Measured(joules - floor.watts.during(covered))
            }
            (Reading::Absent { reason }, Some(_)) => Reading::absent(reason),
            (Reading::NotPermitted { reason, next }, Some(_)) => Reading::not_permitted(reason, next),
            (_, None) => or_absent(None),
        };
        let watts = match mean {
            Some(watts) => Reading::Measured(watts),
            None => or_absent(None).map(|_| Watts(0.0)),
        };
        let drawn = EnergyReading {
            sensor: sensor.clone(),
            joules: or_absent(known),
            error: or_absent(known.map(|_| error)),
            watts,
            coverage: covered.0 as f64 / (to.0.saturating_sub(from.0) as f64).max(1.0),
            floor: floor.clone(),
            above,
            gaps: Vec::new(),
            notes,
        };
        gaps.truncate(EnergyReading::MOST_GAPS);
        EnergyReading { gaps, ..drawn }
    }

    /// Whether samples cover all of the interval but its last or first thousandth.
    pub fn is_whole(&self) -> bool {
        self.coverage >= 0.999
    }
}

/// The energy of packages and their memory, of the sensors whose names begin with `source`. Sensors that lie within
/// another are left out, since that includes theirs already, and so are sensors of the whole host.
pub fn total(drawn: &[EnergyReading], source: &str) -> Reading<Joules> {
    let parts = drawn.iter().filter(|drawn| {
        let sensor = &drawn.sensor;
        sensor.name.starts_with(source) && sensor.within.is_none() && sensor.covers != Covers::Node
    });
    let mut sum = None;
    for part in parts {
        match &part.joules {
            Reading::Measured(joules) | Reading::Modelled(joules) if part.is_whole() => {
                sum = Some(sum.unwrap_or_default() + *joules);
            }
            Reading::NotPermitted { reason, next } => return Reading::not_permitted(reason, next),
            Reading::Absent { reason } => return Reading::absent(format!("{}: {reason}", part.sensor.name)),
            _ => return Reading::absent(format!("{} does not cover the interval", part.sensor.name)),
        }
    }
    sum.map_or_else(|| Reading::absent(format!("{source} has no part to add")), Reading::Measured)
}
