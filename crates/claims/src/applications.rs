//! Offload's gain in an application's run time (paper 000, IV.B).
//!
//! MILC is scaled with the nodes. Its gain is seconds saved over seconds run; on N nodes
//! ```text
//! T(N) = T(1) + h(N) (T(4) - T(1))                 h: faces of the 4-D halo that cross nodes, over those on 4 nodes
//! gain(N) = (g(1) T(1) + h(N) W) / T(N),  W = g(4) T(4) - g(1) T(1)
//! ```
//! On 2 nodes one dimension is cut, so that 2 of 8 faces cross, on 4 nodes two, so that 4 do: h(2) = 1/2. `W` is what the wire's
//! messages save on 4 nodes; `g(1)` is no wire's. `T(4)` at 3.8 GHz is printed, at 1.4 GHz it is D times as long.

use machine::Result;

use super::draws::{Draw, Spread, Sweep, Unknown, interval, swept};
use super::model::{Model, fitted};
use super::rows::Calibration;
use super::statement::{Parameter, Prediction, Statement};
use super::stream::FULL;

const DILATION: Unknown = Unknown {
    name: "D, MILC's runtime at 1.4 GHz over 3.8 GHz",
    low: 1.0,
    high: FULL / 1.4,
    log: false,
    unit: "times",
    why: "1: bound by memory; 2.71: all of it follows the clock",
};

/// Of 8 faces of a 4-D block, 2 cross where one dimension is cut, 4 where two are.
const TWO_OVER_FOUR_NODES: f64 = 2.0 / 4.0;

/// The gain between means of three runs each, with the spread of the runs.
fn gain(rows: &Calibration, name: &str, spread: Spread, draw: &mut Draw) -> Result<f64> {
    Ok(draw.within(rows.range(name)?) + draw.normal(spread.of_difference()))
}

/// The prediction of the null: no gain, only the runs' spread.
fn none(rows: &Calibration, sweep: Sweep) -> Result<Statement> {
    let draws = swept(sweep.closed, |draw| Spread::fit(rows, draw).map(|spread| draw.normal(spread.of_difference())))?;
    Ok(interval(draws).into())
}

fn milc(rows: &Calibration, sweep: Sweep, clock: &str, slow: bool) -> Result<Prediction> {
    let one_node = format!("milc/gain/1/{clock}");
    let four_nodes = format!("milc/gain/4/{clock}");
    let draws = swept(sweep.closed, |draw| {
        let spread = Spread::fit(rows, draw)?;
        let mut share = |name: &str| Ok(gain(rows, name, spread, draw)? / 100.0);
        let (one, four): (f64, f64) = (share(&one_node)?, share(&four_nodes)?);
        let dilation = draw.of(&DILATION);
        let growth = 60.0 * draw.within(rows.range("milc/growth/1.4")?) / if slow { 1.0 } else { dilation };
        let longest = draw.within(rows.range("milc/runtime")?) * if slow { dilation } else { 1.0 };
        let shortest = longest - growth;
        let wire = four * longest - one * shortest;
        let runtime = shortest + TWO_OVER_FOUR_NODES * growth;
        let gained = 100.0 * (one * shortest + TWO_OVER_FOUR_NODES * wire) / runtime;
        Ok([gained + draw.normal(spread.of_difference()), wire, shortest])
    })?;
    let between = |share: f64| {
        swept(sweep.closed, |draw| {
            let spread = Spread::fit(rows, draw)?;
            let (one, four) = (gain(rows, &one_node, spread, draw)?, gain(rows, &four_nodes, spread, draw)?);
            Ok(one + (four - one) * share + draw.normal(spread.of_difference()))
        })
        .map(|draws| interval(draws).into())
    };
    let of = |at: usize| draws.iter().map(|draw| draw[at]).collect::<Vec<_>>();
    let model = Model {
        equation: "(g1 T1 + h W) / (T1 + h (T4 - T1)), W = g4 T4 - g1 T1, h = 2/4 faces of the halo",
        parameters: vec![
            fitted("W, seconds that the wire's messages cost more", of(1), "s", "A14, A15, A17, A21"),
            fitted("T1, runtime on one node", of(2), "s", "A14, A21"),
            Parameter::from(&DILATION),
        ],
        rows: &["A13", "A14", "A15", "A17", "A21"],
    };
    Ok(model.predicts(
        &format!("milc/gain/2/{clock}"),
        interval(of(0)),
        vec![
            ("line in nodes between the neighbours", between(1.0 / 3.0)?),
            ("line in log2 of nodes between the neighbours", between(0.5)?),
            ("no gain, with the runs' spread", none(rows, sweep)?),
        ],
    ))
}

/// LULESH's gain: MILC's times the ratio of their shares.
fn lulesh(rows: &Calibration, sweep: Sweep) -> Result<Prediction> {
    let scaled = |share: &dyn Fn(&mut Draw, &str) -> Result<f64>| {
        swept(sweep.closed, |draw| {
            let spread = Spread::fit(rows, draw)?;
            let of_milc = gain(rows, "milc/gain/4/3.8", spread, draw)?;
            let ratio = share(draw, "lulesh")? / share(draw, "milc")?;
            Ok(of_milc * ratio + draw.normal(spread.of_difference()))
        })
    };
    let value = |draw: &mut Draw, program: &str, what: &str| Ok(draw.within(rows.range(&format!("{program}/{what}"))?));
    let posting = |draw: &mut Draw, program: &str| {
        Ok(value(draw, program, "mpi")? * (value(draw, program, "time/isend")? + value(draw, program, "time/irecv")?))
    };
    let calls = |draw: &mut Draw, program: &str| Ok(value(draw, program, "calls")? / value(draw, program, "runtime")?);
    let in_mpi = |draw: &mut Draw, program: &str| value(draw, program, "mpi");
    let model = Model {
        equation: "MILC's gain x (share of the run in Isend and Irecv, LULESH over MILC)",
        parameters: Vec::new(),
        rows: &["A13", "A17", "A20", "A24"],
    };
    Ok(model.predicts(
        "lulesh/gain/4/3.8",
        interval(scaled(&posting)?),
        vec![
            ("MILC's gain by calls a second", interval(scaled(&calls)?).into()),
            ("MILC's gain by share in MPI", interval(scaled(&in_mpi)?).into()),
            ("no gain, with the runs' spread", none(rows, sweep)?),
        ],
    ))
}

pub fn predict(rows: &Calibration, sweep: Sweep) -> Result<Vec<Prediction>> {
    Ok(vec![
        milc(rows, sweep, "3.8", false)?,
        milc(rows, sweep, "1.4", true)?,
        lulesh(rows, sweep)?,
        Prediction::none(
            "generator/ratio",
            "nothing to predict: the paper's own tables say 4.0 and 8.6 times (C1, C2), and neither is the abstract's five",
        ),
    ])
}
