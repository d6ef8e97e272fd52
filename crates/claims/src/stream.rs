//! A stream's bandwidth over the clock, and what follows from it (paper 000, IV.A).
//!
//! Time a byte, 1 at full clock f0, with x = f0 / f:
//! ```text
//! onload   t(x) = s + max(w, k x),  s + w = 1      s serial, w wire, k protocol work on the core
//! offload  t(x) = 1 + a (x - 1)                    a: what of a byte's time stays with the host's clock
//! ```
//! The larger of wire and core is the bottleneck, since they work at the same time on different bytes.

use machine::Result;
use machine::costs::Interval;

use super::draws::{Draw, Sweep, interval, swept};
use super::model::{Model, fitted};
use super::rows::Calibration;
use super::statement::{Prediction, Statement};

/// Full clock of paper 000's processor, GHz.
pub const FULL: f64 = 3.8;

/// Clocks of paper 000, III.B, in GHz.
pub const CLOCKS: [f64; 6] = [1.4, 1.9, 2.4, 2.9, 3.4, 3.8];

/// Onload: `t(x) = serial + max(wire, core x)`.
#[derive(Debug, Clone, Copy)]
pub struct Onload {
    pub serial: f64,
    pub wire: f64,
    pub core: f64,
}

impl Onload {
    /// Fits the two published losses (A5, A6), with `t(1) = 1`: three parameters, two rows and the scale.
    pub fn fit(rows: &Calibration, draw: &mut Draw) -> Result<Onload> {
        let [near, far] = [time(rows, "onload/bandwidth/2.9", draw)?, time(rows, "onload/bandwidth/1.9", draw)?];
        let core = (far - near) / (FULL / 1.9 - FULL / 2.9);
        let serial = near - core * FULL / 2.9;
        Ok(Onload { serial, wire: 1.0 - serial, core })
    }

    /// Time per byte at `x` = f0 / f.
    pub fn time(&self, x: f64) -> f64 {
        self.shared(x, 1.0)
    }

    /// Time per byte where `cores` share the protocol's work, each for a part of the peers.
    pub fn shared(&self, x: f64, cores: f64) -> f64 {
        self.serial + self.wire.max(self.core * x / cores)
    }

    /// The clock below which the core is the bottleneck, GHz.
    pub fn knee(&self) -> f64 {
        FULL * self.core / self.wire
    }

    /// The time of both directions at once over that of one: the link is duplex, the core is one.
    pub fn both_ways(&self, x: f64) -> f64 {
        2.0 * self.time(x) / (self.serial + self.wire.max(2.0 * self.core * x))
    }
}

/// Offload: `t(x) = 1 + host (x - 1)`.
#[derive(Debug, Clone, Copy)]
pub struct Offload {
    pub host: f64,
}

impl Offload {
    /// Fits the published loss at 2.9 GHz (A7).
    pub fn fit(rows: &Calibration, draw: &mut Draw) -> Result<Offload> {
        Ok(Offload { host: (time(rows, "offload/bandwidth/2.9", draw)? - 1.0) / (FULL / 2.9 - 1.0) })
    }

    /// Time per byte at `x` = f0 / f.
    pub fn time(&self, x: f64) -> f64 {
        1.0 + self.host * (x - 1.0)
    }
}

/// Time per byte for a loss of bandwidth in percent.
fn time(rows: &Calibration, loss: &str, draw: &mut Draw) -> Result<f64> {
    Ok(1.0 / (1.0 + draw.within(rows.range(loss)?) / 100.0))
}

/// The change of bandwidth in percent.
pub fn change(time: f64) -> f64 {
    100.0 * (1.0 / time - 1.0)
}

pub fn predict(rows: &Calibration, sweep: Sweep) -> Result<Vec<Prediction>> {
    let both = swept(sweep.closed, |draw| Ok((Onload::fit(rows, draw)?, Offload::fit(rows, draw)?)))?;
    let of = |what: fn(&(Onload, Offload)) -> f64| both.iter().map(what).collect::<Vec<_>>();

    let onload = Model {
        equation: "t(x) = s + max(w, k x), s + w = 1, x = 3.8 GHz / f",
        parameters: vec![
            fitted("s, serial", of(|(on, _)| on.serial), "of a byte's time", "A5, A6"),
            fitted("w, wire", of(|(on, _)| on.wire), "of a byte's time", "t(1) = 1"),
            fitted("k, core", of(|(on, _)| on.core), "of a byte's time", "A5, A6"),
        ],
        rows: &["A5", "A6"],
    };
    let in_clock = |draw: &mut Draw| -> Result<f64> {
        let near = draw.within(rows.range("onload/bandwidth/2.9")?);
        let far = draw.within(rows.range("onload/bandwidth/1.9")?);
        Ok(far + (far - near) / (1.9 - 2.9) * (1.4 - 1.9))
    };
    let in_clock = swept(sweep.closed, in_clock)?;
    let slowest = interval(of(|(on, _)| change(on.time(FULL / 1.4))));

    let offload = Model {
        equation: "t(x) = 1 + a (x - 1), x = 3.8 GHz / f",
        parameters: vec![fitted("a, host", of(|(_, off)| off.host), "of a byte's time", "A7")],
        rows: &["A7"],
    };
    let halved = interval(of(|(_, off)| change(off.time(2.0))));

    let ways = both.iter().map(|(on, _)| {
        let most = CLOCKS.iter().map(|clock| on.both_ways(FULL / clock)).fold(0.0, f64::max);
        if most <= 2.0 { "at most twice" } else { "more than twice" }.to_owned()
    });
    let both_ways =
        Model { equation: "2 t(x) / (s + max(w, 2 k x)): the link has two ways, the core is one", ..onload.clone() };

    // At 1 MiB the time per byte decides: the remaining effect of the clock there is that of the stream.
    let spread =
        both.iter().map(|(_, off)| if off.time(FULL / 1.4) < 1.05 { "converges" } else { "stays apart" }.to_owned());
    let converges =
        Model { equation: "t(3.8 / 1.4) < 1.05: at 1 MiB the clock moves time by less than 5 %", ..offload.clone() };

    let step = |equation| Model { equation, parameters: Vec::new(), rows: &[] };
    let smooth = || vec![("a smooth curve", Statement::always("does not drop"))];
    Ok(vec![
        onload.predicts(
            "onload/bandwidth/1.4",
            slowest,
            vec![
                ("line in 1/f through the neighbours", slowest.into()),
                ("line in f through the neighbours", interval(in_clock).into()),
            ],
        ),
        offload.predicts("offload/bandwidth/1.9", halved, vec![("line in 1/f through the neighbours", halved.into())]),
        both_ways.predicts(
            "onload/bidirectional",
            Statement::said(ways),
            vec![("two independent ways", Statement::always("at most twice"))],
        ),
        converges.predicts(
            "offload/latency/1MiB",
            Statement::said(spread),
            vec![("parallel curves", Statement::always("stays apart"))],
        ),
        step("t(b) = o + G b + h [b > eager limit], h > 0").predicts(
            "onload/step/handshake",
            Statement::always("drops"),
            smooth(),
        ),
        step("t(b) = o ceil(b / VMTU) + G b").predicts("onload/step/vmtu", Statement::always("drops"), smooth()),
        Prediction::none(
            "latency/below-512B",
            "no row that feeds has a latency of either card, so that a slope has no length to show on",
        ),
        Prediction::none(
            "latency/small/sign",
            "no row that feeds has a latency of either card: the sign alone would be a guess",
        ),
    ])
}

/// The clock below which the core is the bottleneck of onload's stream, GHz.
///
/// # Errors
/// A figure that no row has.
pub fn knee(rows: &Calibration, sweep: Sweep) -> Result<Interval> {
    swept(sweep.closed, |draw| Ok(Onload::fit(rows, draw)?.knee())).map(interval)
}
