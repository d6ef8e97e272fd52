//! Readings of power sensors for the job, for the time between MPI_Init and MPI_Finalize, and for each phase.

use machine::power::{EnergyReading, Floor, Track};
use machine::{Joules, Nanoseconds, Reading, Watts};
use record::samples::{PowerSamples, Samples};

use super::{Joined, Window};
use crate::summary::{PhaseSummary, PowerSpan, PowerSummary};

const SECOND: u64 = 1_000_000_000;

/// Most gaps that are listed for each time.
const MOST_GAPS: usize = 4;

/// The summary of every sensor. `run`: from MPI_Init to MPI_Finalize; `job`: the whole job.
pub fn power(joined: &Joined, job: Option<Window>, run: Option<Window>, phases: &[PhaseSummary]) -> Vec<PowerSummary> {
    let sensors = joined.samples.iter().flat_map(|samples| samples.power.iter().map(move |power| (samples, power)));
    let of = |(samples, power): (&Samples, &PowerSamples)| {
        let floor = floor(&power.track, power.sensor.is_counter());
        let span = |what: &str, phase, window: Window| {
            let (from, to) = joined.span(samples, window);
            let drawn = EnergyReading::of(&power.sensor, &power.track, Nanoseconds(from), Nanoseconds(to), &floor);
            told(what, phase, drawn)
        };
        let whole =
            [("job", job), ("run", run)].into_iter().filter_map(|(what, window)| Some(span(what, None, window?)));
        let parts = phases.iter().enumerate();
        let parts = parts.map(|(place, phase)| span("phase", Some(place), Window { from: phase.from, to: phase.to }));
        PowerSummary {
            host: samples.head.host.clone(),
            sensor: power.sensor.name.clone(),
            covers: power.sensor.covers.to_string(),
            band: power.sensor.band.to_string(),
            within: power.sensor.within.clone(),
            floor: floor.clone().map(|floor| floor.watts.0),
            spans: whole.chain(parts).collect(),
        }
    };
    sensors.map(of).collect()
}

/// The machine's idle time is unknown: its lowest second bounds the idle power from above.
fn floor(track: &Track, is_counter: bool) -> Reading<Floor> {
    let length = Nanoseconds(track.period().map_or(SECOND, |period| period.0.saturating_mul(3).max(SECOND)));
    match track.least(length) {
        Some((watts, _)) if is_counter && watts.0 <= 0.0 => {
            Reading::absent(format!("the counter did not move for {length} of the recording"))
        }
        Some((watts, _)) => Reading::Measured(Floor { watts, how: format!("the lowest {length} of the recording") }),
        None => Reading::absent(format!("no {length} of the recording are covered")),
    }
}

fn told(what: &str, phase: Option<usize>, drawn: EnergyReading) -> PowerSpan {
    let joules = |reading: Reading<Joules>| reading.map(|joules| joules.0);
    let mut gaps = drawn.gaps;
    gaps.sort_by_key(|gap| std::cmp::Reverse(gap.length()));
    PowerSpan {
        what: what.to_owned(),
        phase,
        joules: joules(drawn.joules),
        error: joules(drawn.error),
        watts: drawn.watts.map(|watts: Watts| watts.0),
        above: joules(drawn.above),
        coverage: drawn.coverage,
        gaps: gaps.iter().take(MOST_GAPS).map(|gap| format!("{}: {}", gap.length(), gap.cause)).collect(),
    }
}
