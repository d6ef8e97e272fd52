//! The cost of a process's place where the kernel's protocol work is bound to one core (paper 002, section 5).
//!
//! Per bit, the interrupt core does s (softirq) and the process does a: a_near on the interrupt core's socket, a_far elsewhere.
//! ```text
//! stream  interrupt core 1 / (s + a_near), same socket 1 / max(s, a_near), other socket 1 / max(s, a_far)
//! ```
//! On another core the two work at the same time; on the interrupt core they take turns. Three bandwidths (B1) fix the three
//! costs up to one exchange: `max(s, a_near)` does not say which of them is the larger. Both solutions are drawn.

use machine::Result;

use super::draws::{Draw, Spread, Sweep, Unknown, interval, swept};
use super::model::{Model, fitted};
use super::rows::Calibration;
use super::statement::{Parameter, Prediction, Statement};

/// Costs in nanoseconds a bit.
#[derive(Debug, Clone, Copy)]
pub struct CoreCosts {
    pub softirq: f64,
    pub near: f64,
    pub far: f64,
}

impl CoreCosts {
    /// The costs that give the three bandwidths in B1, as one of the two solutions.
    pub fn fit(rows: &Calibration, draw: &mut Draw) -> Result<CoreCosts> {
        let mut cost = |name| Ok(1.0 / draw.within(rows.range(name)?));
        let (both, larger): (f64, f64) = (cost("tcp/bandwidth/interrupt")?, cost("tcp/bandwidth/same-socket")?);
        let far: f64 = cost("tcp/bandwidth/other-socket")?;
        let smaller = both - larger;
        let (softirq, near) = if draw.unit() < 0.5 { (larger, smaller) } else { (smaller, larger) };
        Ok(CoreCosts { softirq, near, far })
    }

    /// Time per bit of a stream on the interrupt core, the same socket, the other socket.
    pub fn stream(&self) -> [f64; 3] {
        [self.softirq + self.near, self.softirq.max(self.near), self.softirq.max(self.far)]
    }

    /// Time per bit of a message that is waited for, where nothing overlaps and another core has to be notified.
    pub fn waited_for(&self, handover: f64) -> [f64; 3] {
        [self.softirq + self.near, self.softirq + self.near + handover, self.softirq + self.far + handover]
    }
}

const OPTERON_NEAR: Unknown = Unknown {
    name: "q, what the same socket costs of what the other one does",
    low: 0.0,
    high: 0.5,
    log: false,
    unit: "",
    why: "caches of their own, on one die",
};
const OPTERON_FAR: Unknown = Unknown {
    name: "m, cost of the other socket over setup A's",
    low: 0.5,
    high: 1.5,
    log: false,
    unit: "times",
    why: "another interconnect, half to half as much again",
};
const HANDOVER: Unknown = Unknown {
    name: "h, telling another core",
    low: 0.0,
    high: 0.5,
    log: false,
    unit: "of a_near",
    why: "no row has it",
};

const CLASSES: [&str; 3] = ["interrupt core", "same socket", "other socket"];

/// The three places in words, from the shortest time to the longest.
fn order(times: [f64; 3]) -> String {
    let mut at = [0, 1, 2];
    at.sort_by(|one, other| times[*one].total_cmp(&times[*other]));
    at.map(|at| CLASSES[at]).join(" > ")
}

/// Each order as likely as any other.
fn any_order() -> Statement {
    let orders = [[0., 1., 2.], [0., 2., 1.], [1., 0., 2.], [1., 2., 0.], [2., 0., 1.], [2., 1., 0.]];
    Statement::said(orders.map(order))
}

fn evenly(words: &[&str]) -> Statement {
    Statement::said(words.iter().map(ToString::to_string))
}

pub fn predict(rows: &Calibration, sweep: Sweep) -> Result<Vec<Prediction>> {
    let costs = swept(sweep.closed, |draw| {
        let costs = CoreCosts::fit(rows, draw)?;
        let (q, m, h) = (draw.of(&OPTERON_NEAR), draw.of(&OPTERON_FAR), draw.of(&HANDOVER));
        let penalty = costs.far - costs.near;
        let opteron = CoreCosts { near: costs.near + q * penalty, far: costs.near + m * penalty, ..costs };
        Ok((costs, opteron, h))
    })?;
    let of = |what: fn(&CoreCosts) -> f64| costs.iter().map(|(costs, ..)| what(costs)).collect::<Vec<_>>();
    let said = |what: fn(&(CoreCosts, CoreCosts, f64)) -> String| Statement::said(costs.iter().map(what));
    let solved = [
        fitted("s, softirq", of(|costs| costs.softirq), "ns/bit", "B1, two solutions"),
        fitted("a_near", of(|costs| costs.near), "ns/bit", "B1, two solutions"),
        fitted("a_far", of(|costs| costs.far), "ns/bit", "B1"),
    ];
    let model = |equation, swept: &[&Unknown]| Model {
        equation,
        parameters: solved.iter().cloned().chain(swept.iter().map(|unknown| Parameter::from(*unknown))).collect(),
        rows: &["B1"],
    };
    let setup_a = Statement::always("same socket > other socket > interrupt core");
    let opteron = model(
        "1 / (s + a_near'), 1 / max(s, a_near'), 1 / max(s, a_far'), a_near' = a_near + q (a_far - a_near), a_far' = a_near + m (a_far - a_near)",
        &[&OPTERON_NEAR, &OPTERON_FAR],
    );
    let small = model("s + a_near, s + a_near + h, s + a_far + h: nothing overlaps", &[&HANDOVER]);
    let large = model("s + a_near, max(s, a_near), max(s, a_far): a message's parts overlap", &[]);
    let last = |(costs, ..): &(CoreCosts, CoreCosts, f64)| {
        let [interrupt, same, other] = costs.stream();
        if interrupt > same.max(other) { "interrupt core last" } else { "interrupt core not last" }.to_owned()
    };
    let misses = |(costs, ..): &(CoreCosts, CoreCosts, f64)| {
        if costs.near < costs.far { "fewer on the interrupt core's socket" } else { "no fewer there" }.to_owned()
    };
    let bound = |equation| Model { equation, parameters: Vec::new(), rows: &[] };
    let deviation = swept(sweep.closed, |draw| Ok(Spread::fit(rows, draw)?.of_mean(draw)))?;
    let deviation = interval(deviation);
    let device = Model {
        equation: "the work is the device's: between mappings only the runs' spread, log-normal, of means of three runs",
        parameters: Vec::new(),
        rows: &["A13", "B1"],
    };
    Ok(vec![
        opteron.predicts(
            "opteron/bandwidth",
            said(|(_, opteron, _)| order(opteron.stream())),
            vec![("setup A's order", setup_a.clone()), ("any order", any_order())],
        ),
        bound("interrupts are bound to one core (3.1)").predicts(
            "interrupts/share",
            Statement::exactly(100.0),
            vec![("spread over four cores", Statement::exactly(25.0))],
        ),
        model("a_near < a_far", &[]).predicts(
            "misses/order",
            said(misses),
            vec![("either", evenly(&["fewer on the interrupt core's socket", "no fewer there"]))],
        ),
        small.predicts(
            "tcp/latency/small",
            said(|(costs, _, h)| order(costs.waited_for(h * costs.near))),
            vec![("the order by bandwidth", setup_a), ("any order", any_order())],
        ),
        large.predicts(
            "tcp/latency/large",
            said(last),
            vec![
                ("the order by bandwidth", Statement::always("interrupt core last")),
                ("any order", evenly(&["interrupt core last", "interrupt core not last", "interrupt core not last"])),
            ],
        ),
        device.predicts("iwarp/deviation", deviation, vec![("no deviation", Statement::exactly(0.0))]),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both solutions give back the three bandwidths that they were found from.
    #[test]
    fn both_solutions_reproduce_the_row() {
        let rows = Calibration::of_papers();
        let costs = swept(64, |draw| CoreCosts::fit(&rows, draw)).unwrap();
        for of in &costs {
            let within = |name: &str, time: f64| {
                let range = rows.range(name).unwrap();
                assert!(range.low - 1e-9 <= 1.0 / time && 1.0 / time <= range.high + 1e-9, "{name}: {of:?}");
            };
            let [interrupt, same, other] = of.stream();
            within("tcp/bandwidth/interrupt", interrupt);
            within("tcp/bandwidth/same-socket", same);
            within("tcp/bandwidth/other-socket", other);
        }
        assert!(costs.iter().any(|of| of.softirq > of.near) && costs.iter().any(|of| of.softirq < of.near));
    }
}
