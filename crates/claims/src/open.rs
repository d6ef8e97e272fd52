//! Questions that the papers leave open, as far as closed forms answer them. Modelled, not measured.

use machine::Result;
use machine::costs::Interval;
use serde::Serialize;

use super::draws::{Sweep, interval, swept};
use super::rows::Calibration;
use super::stream::{FULL, Offload, Onload};

/// Dilations f0 / f: the clocks of paper 000, then slower ones than it could set.
pub const DILATIONS: [f64; 8] = [1.0, FULL / 3.4, FULL / 2.9, FULL / 2.4, FULL / 1.9, FULL / 1.4, 4.0, 8.0];

/// Cores that share the protocol's work.
pub const CORES: [u32; 5] = [1, 2, 3, 4, 8];

/// Onload against offload where cores are slower by `dilation` (paper 000's future work).
#[derive(Debug, Clone, Serialize)]
pub struct BreakEven {
    pub dilation: f64,
    /// Onload's bandwidth over offload's by number of cores ([`CORES`]); equal at full clock on one core.
    pub ratio: Vec<Interval>,
    /// Cores' worth of protocol work at which both have the same bandwidth.
    pub cores: Interval,
}

/// ```text
/// s + max(w, k x / n) = 1 + a (x - 1)   =>   n = k x / (1 + a (x - 1) - s)
/// ```
/// Peers are divided among n cores; the serial part s is no core's to divide. At full clock both cards are taken to be as fast,
/// since the paper prints only losses. Bandwidth alone: no number of cores shortens what one message waits for.
pub fn break_even(rows: &Calibration, sweep: Sweep) -> Result<Vec<BreakEven>> {
    let fits = swept(sweep.closed, |draw| Ok((Onload::fit(rows, draw)?, Offload::fit(rows, draw)?)))?;
    let over = |of: &dyn Fn(&Onload, &Offload) -> f64| interval(fits.iter().map(|(on, off)| of(on, off)).collect());
    let at = |dilation: f64| BreakEven {
        dilation,
        ratio: CORES.iter().map(|n| over(&|on, off| off.time(dilation) / on.shared(dilation, f64::from(*n)))).collect(),
        cores: over(&|on, off| on.core * dilation / (off.time(dilation) - on.serial)),
    };
    Ok(DILATIONS.iter().map(|dilation| at(*dilation)).collect())
}

/// From which size a node-wide engine stops scaling (papers 000 and 004).
#[derive(Debug, Clone, Serialize)]
pub struct Scaling {
    /// Cells' worth of computing that a core's messages of one step take: on the core, and in the node's one engine.
    pub on_core: Interval,
    pub in_engine: Interval,
    /// `in_engine` over `on_core`: the limit of onload's speedup.
    pub ratio: Interval,
    /// Cores of such a node up to which the engine keeps up with them at full clock; times the dilation at others.
    pub cores: Interval,
    /// By gain of onload in per cent, the cells a core below which it is at least that.
    pub cells: Vec<(f64, Interval)>,
    /// The cells of the same law with messages by surface: cells to a third, negative where no such law meets both rows.
    pub by_surface: Interval,
}

/// Cores of a node that the paper's 384 cores on 32 servers make.
const CORES_OF_A_NODE: f64 = 384.0 / 32.0;

/// A step of n cells a core takes n + v with messages on the cores, and n + u where the messages of all cores of a node pass one
/// engine; messages a step are as many at any n.
/// ```text
/// gain(n) = (u - v) / (n + v)
/// ```
pub fn scaling(rows: &Calibration, sweep: Sweep) -> Result<Scaling> {
    let draws: Vec<[f64; 3]> = swept(sweep.closed, |draw| {
        let mut of = |name| Ok(draw.within(rows.range(name)?));
        let (small, large) = (of("fluent/eddy/cells")?, of("fluent/truck/cells")?);
        let (high, low): (f64, f64) = (of("fluent/eddy/gain")? / 100.0, of("fluent/truck/gain")? / 100.0);
        // Of gain(n) (n + v) = u - v at both.
        let v = (low * large - high * small) / (high - low);
        let cube = |cells: f64| f64::cbrt(cells);
        Ok([v, v + high * (small + v), (low * cube(large) - high * cube(small)) / (high - low)])
    })?;
    let over = |of: &dyn Fn(f64, f64) -> f64| interval(draws.iter().map(|[v, u, _]| of(*v, *u)).collect());
    let cells = |gain: f64| (gain, over(&|v, u| (u - v) / (gain / 100.0) - v));
    Ok(Scaling {
        on_core: over(&|v, _| v),
        in_engine: over(&|_, u| u),
        ratio: over(&|v, u| u / v),
        cores: over(&|v, u| CORES_OF_A_NODE * v / u),
        cells: [200.0, 100.0, 50.0, 10.0].map(cells).to_vec(),
        by_surface: interval(draws.iter().map(|[.., surface]| *surface).collect()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slower_cores_need_more_of_them_and_more_of_them_are_never_slower() {
        let surface = break_even(&Calibration::of_papers(), Sweep::default()).unwrap();
        assert!(surface.windows(2).all(|pair| pair[0].cores.middle < pair[1].cores.middle));
        for row in &surface {
            assert!(row.ratio.windows(2).all(|pair| pair[0].middle <= pair[1].middle), "{row:?}");
            for (cores, ratio) in CORES.iter().zip(&row.ratio) {
                let enough = f64::from(*cores) >= row.cores.middle;
                assert!(!enough || ratio.middle > 0.999, "{row:?}");
            }
        }
    }

    #[test]
    fn the_law_of_scaling_meets_both_rows() {
        let scaling = scaling(&Calibration::of_papers(), Sweep::default()).unwrap();
        let (v, u) = (scaling.on_core.middle, scaling.in_engine.middle);
        let gain = |cells: f64| 100.0 * (u - v) / (cells + v);
        assert!((gain(1070.0) - 366.0).abs() < 4.0 && (gain(285_000.0) - 20.0).abs() < 1.0, "{scaling:?}");
        assert!(scaling.by_surface.middle < 0.0);
    }
}
