//! Watts over clock and use: static and dynamic (paper 000, IV.A). Modelled, not measured.
//!
//! ```text
//! P(f, u) = P0 (1 - d + d u (f / f0) V^2),  V = max(f / f0, v)     P0: watts at full clock and full use
//! energy of a run = sum over its phases of seconds x P(clock, use)
//! ```
//! `d` is the dynamic share. The voltage V falls in proportion to the clock, down to its floor v, which is no row's. Both cards
//! sit in the same processor, so that v is one for both.

use machine::Result;
use machine::costs::Interval;
use serde::Serialize;

use super::draws::{Draw, Sweep, Unknown, interval, swept};
use super::model::{Model, fitted};
use super::rows::Calibration;
use super::statement::{Parameter, Prediction};
use super::stream::{CLOCKS, FULL, Offload, Onload};

const FLOOR: Unknown = Unknown {
    name: "v, least voltage",
    low: 0.5,
    high: 1.0,
    log: false,
    unit: "of that at full clock",
    why: "1: only the clock falls; above where onload's saving would need d > 1, it is cut",
};

/// Watts relative to full clock and full use.
#[derive(Debug, Clone, Copy)]
pub struct Power {
    /// The share of watts that follows clock and use.
    pub dynamic: f64,
    /// The least voltage over that at full clock.
    pub floor: f64,
}

/// A part of a run.
#[derive(Debug, Clone, Copy)]
pub struct Phase {
    pub seconds: f64,
    /// The clock over full clock.
    pub clock: f64,
    /// The share of the phase in which the core is busy.
    pub busy: f64,
}

impl Power {
    /// Watts over those at full clock and use, at `clock` of full clock.
    pub fn at(&self, clock: f64, busy: f64) -> f64 {
        1.0 - self.dynamic + self.dynamic * busy * clock * clock.max(self.floor).powi(2)
    }

    /// Energy over that of a second at full clock and use.
    pub fn energy(&self, run: &[Phase]) -> f64 {
        run.iter().map(|phase| phase.seconds * self.at(phase.clock, phase.busy)).sum()
    }

    /// The law that gives this saving, as a share, at `clock` of full clock.
    fn through(saving: f64, clock: f64, floor: f64) -> Power {
        Power { dynamic: saving / (1.0 - clock * clock.max(floor).powi(2)), floor }
    }
}

/// Onload's and offload's laws (A5, A7), with one floor.
pub fn fit(rows: &Calibration, draw: &mut Draw) -> Result<[Power; 2]> {
    let clock: f64 = 2.9 / FULL;
    let mut saving = |name| Ok(-draw.within(rows.range(name)?) / 100.0);
    let (onload, offload): (f64, f64) = (saving("onload/power/2.9")?, saving("offload/power/2.9")?);
    // The highest floor at which the larger saving is no more than all watts.
    let high = FLOOR.high.min(((1.0 - onload.max(offload)) / clock).sqrt());
    let floor = draw.of(&Unknown { high, ..FLOOR });
    Ok([onload, offload].map(|saving| Power::through(saving, clock, floor)))
}

/// Watts saved against performance lost at one clock, in per cent of full clock, with the energy of a byte.
#[derive(Debug, Clone, Serialize)]
pub struct Trade {
    /// GHz.
    pub clock: f64,
    pub saved: Interval,
    pub lost: Interval,
    /// Energy of a byte over that at full clock.
    pub energy: Interval,
    /// Whether the clock is the one where the saving exceeds the loss by most.
    pub knee: bool,
}

/// The curves of onload and of offload over the paper's clocks, for a stream, which keeps its core busy at any clock.
pub fn curves(rows: &Calibration, sweep: Sweep) -> Result<[Vec<Trade>; 2]> {
    let draws = swept(sweep.closed, |draw| {
        let (on, off, watts) = (Onload::fit(rows, draw)?, Offload::fit(rows, draw)?, fit(rows, draw)?);
        Ok([0, 1].map(|card| {
            CLOCKS.map(|clock| {
                let time = if card == 0 { on.time(FULL / clock) } else { off.time(FULL / clock) };
                let run = [Phase { seconds: time, clock: clock / FULL, busy: 1.0 }];
                let power = &watts[card];
                [100.0 * (1.0 - power.at(clock / FULL, 1.0)), 100.0 * (1.0 - 1.0 / time), power.energy(&run)]
            })
        }))
    })?;
    Ok([0, 1].map(|card: usize| {
        let of = |at: usize, what: usize| interval(draws.iter().map(|draw| draw[card][at][what]).collect());
        let mut curve: Vec<Trade> = (0..CLOCKS.len())
            .map(|at| Trade { clock: CLOCKS[at], saved: of(at, 0), lost: of(at, 1), energy: of(at, 2), knee: false })
            .collect();
        let gain = |trade: &Trade| trade.saved.middle - trade.lost.middle;
        if let Some(knee) = curve.iter_mut().max_by(|one, other| gain(one).total_cmp(&gain(other))) {
            knee.knee = true;
        }
        curve
    }))
}

/// The dynamic share of watts by onload's row and by offload's. It is the same processor: were the rows of one kind, they would
/// agree but for the card's own watts.
///
/// # Errors
/// A figure that no row has.
pub fn shares(rows: &Calibration, sweep: Sweep) -> Result<[Interval; 2]> {
    let fits = swept(sweep.closed, |draw| fit(rows, draw))?;
    Ok([0, 1].map(|card: usize| interval(fits.iter().map(|fit| 100.0 * fit[card].dynamic).collect())))
}

pub fn predict(rows: &Calibration, sweep: Sweep) -> Result<Vec<Prediction>> {
    let fits = swept(sweep.closed, |draw| fit(rows, draw))?;
    let dynamic = |card: usize| fits.iter().map(|fit| fit[card].dynamic).collect::<Vec<_>>();
    let model = Model {
        equation: "P(f, u) = P0 (1 - d + d u (f / f0) max(f / f0, v)^2), u = 1 for a stream",
        parameters: vec![
            fitted("d, dynamic share, onload", dynamic(0), "of watts", "A5"),
            fitted("d, dynamic share, offload", dynamic(1), "of watts", "A7"),
            Parameter::from(&FLOOR),
        ],
        rows: &["A5", "A7"],
    };
    let halved = interval(fits.iter().map(|[_, offload]| 100.0 * (offload.at(0.5, 1.0) - 1.0)).collect());
    let line = swept(sweep.closed, |draw| Ok(draw.within(rows.range("offload/power/2.9")?) * 1.9 / 0.9))?;
    Ok(vec![
        model.predicts("offload/power/1.9", halved, vec![("line in f through the neighbours", interval(line).into())]),
        Prediction::none(
            "milc/power",
            "no row that feeds has a card's watts; the two cards' savings by the clock (A5, A7) would imply 69 % more, which the \
             paper itself contradicts",
        ),
    ])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn phases() -> impl Strategy<Value = Vec<Phase>> {
        let phase = (0.0..10.0f64, 0.2..1.0f64, 0.0..1.0f64);
        proptest::collection::vec(phase.prop_map(|(seconds, clock, busy)| Phase { seconds, clock, busy }), 1..12)
    }

    proptest! {
        /// Energy is the integral of watts over time, however the run is cut, and the sum of its static and dynamic parts.
        #[test]
        fn energy_is_conserved(run in phases(), dynamic in 0.0..1.0f64, floor in 0.2..1.0f64, cut in 0.0..1.0f64) {
            let power = Power { dynamic, floor };
            let (energy, total): (f64, f64) = (power.energy(&run), run.iter().map(|phase| phase.seconds).sum());
            let watts = |time: f64| {
                let mut end = 0.0;
                let of = run.iter().find(|phase| { end += phase.seconds; time < end }).unwrap_or(&run[run.len() - 1]);
                power.at(of.clock, of.busy)
            };
            // The midpoint rule errs by at most one interval's worth at each edge of a phase.
            let pieces = 4000;
            let each = total / pieces as f64;
            let integral: f64 = (0..pieces).map(|at| each * watts((at as f64 + 0.5) * each)).sum();
            prop_assert!((integral - energy).abs() <= run.len() as f64 * each + 1e-9, "{integral} {energy}");

            let halves: Vec<Phase> = run.iter().flat_map(|phase| {
                [cut, 1.0 - cut].map(|share| Phase { seconds: share * phase.seconds, ..*phase })
            }).collect();
            prop_assert!((power.energy(&halves) - energy).abs() < 1e-9);

            let fixed = (1.0 - dynamic) * total;
            let moving = Power { dynamic: 1.0, floor }.energy(&run) * dynamic;
            prop_assert!((fixed + moving - energy).abs() < 1e-9);
        }

        #[test]
        fn more_clock_and_more_use_never_take_less(
            dynamic in 0.0..1.0f64, floor in 0.2..1.0f64, one in (0.2..1.0f64, 0.0..1.0f64), more in (0.0..1.0f64, 0.0..1.0f64),
        ) {
            let power = Power { dynamic, floor };
            prop_assert!(power.at(one.0, one.1) <= power.at(one.0 + more.0, one.1 + more.1) + 1e-12);
        }
    }

    #[test]
    fn the_fit_goes_through_its_rows() {
        let rows = Calibration::of_papers();
        for [onload, offload] in swept(64, |draw| fit(&rows, draw)).unwrap() {
            assert_eq!(onload.floor, offload.floor, "one processor");
            assert!((0.0..=1.0 + 1e-9).contains(&onload.dynamic), "{onload:?}");
            let saved = |power: Power| 100.0 * (1.0 - power.at(2.9 / FULL, 1.0));
            assert!((36.35..=36.45).contains(&saved(onload)) && (20.5..=22.5).contains(&saved(offload)));
        }
    }
}
