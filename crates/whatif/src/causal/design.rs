//! The delays of an experiment, by the figures of a first run.

use machine::{Fault, Result};
use record::perturbation::{LONGEST, Perturbation, SHARE};

use super::{Factor, Shown};

/// The lesser of the two doses: time injected into the rank with most delays, over the time of a run. The other is twice as much.
const DOSE: f64 = 0.02;

/// The least greater dose: a smaller one cannot be told from noise in a reasonable time.
const LEAST: f64 = 0.01;

/// An arm; each round runs every arm once.
#[derive(Debug, Clone, PartialEq)]
pub struct Arm {
    /// The delays; `None`: the program as it is, under the profiler.
    pub what: Option<Perturbation>,
}

/// The arms: without delays, with delays of no length, and two doses of each factor.
#[derive(Debug, Clone, PartialEq)]
pub struct Design {
    pub arms: Vec<Arm>,
    factors: Vec<Factor>,
    /// Factors that cannot be measured here, and why.
    pub left_out: Vec<String>,
}

impl Design {
    /// Delays of no length at all ends that `factors` need: a first run under them counts the delays.
    pub fn counting(factors: &[Factor]) -> Perturbation {
        let at = |wanted: &[Factor]| factors.iter().any(|factor| wanted.contains(factor)).then_some(0.0);
        Perturbation {
            send: at(&[Factor::Send, Factor::Byte, Factor::Compute]),
            receive: at(&[Factor::Receive]),
            ..Perturbation::default()
        }
    }

    /// # Errors
    /// None of the factors can be measured.
    pub fn of(factors: &[Factor], first: &Shown) -> Result<Design> {
        let zero = Design::counting(factors);
        let mut design =
            Design { arms: vec![Arm { what: None }, Arm { what: Some(zero) }], factors: vec![], left_out: vec![] };
        for &factor in factors {
            match doses(factor, zero, first) {
                Ok(doses) => {
                    design.factors.push(factor);
                    design.arms.extend(doses.map(|what| Arm { what: Some(what) }));
                }
                Err(why) => design.left_out.push(format!("{factor}: {why}")),
            }
        }
        if design.factors.is_empty() {
            let next = "measure another factor, or a longer part of the program's work";
            return Err(Fault::new("a causal experiment", design.left_out.join("; "), next));
        }
        Ok(design)
    }

    /// The factors, each with the indices of its two arms.
    pub fn factors(&self) -> impl Iterator<Item = (Factor, [usize; 2])> + '_ {
        self.factors.iter().enumerate().map(|(nth, factor)| (*factor, [2 + 2 * nth, 3 + 2 * nth]))
    }
}

fn doses(factor: Factor, zero: Perturbation, first: &Shown) -> std::result::Result<[Perturbation; 2], String> {
    // The amount in the rank that has most, the largest dose of one delay, and the name of the amount.
    let (amount, most, what) = match factor {
        Factor::Send | Factor::Receive => (first.most[factor.kind()] as f64, LONGEST, "messages"),
        Factor::Byte => {
            let largest = first.sizes.iter().map(|(bytes, _)| bytes.0).max().unwrap_or(0);
            (first.most_bytes as f64, LONGEST / largest.max(1) as f64, "bytes")
        }
        Factor::Compute => (first.most_computing, SHARE, "nanoseconds of computing"),
    };
    if amount <= 0.0 {
        return Err(format!("the program has no {what}"));
    }
    let dose = (DOSE * first.elapsed / amount).min(most / 2.0);
    let reached = 2.0 * dose * amount / first.elapsed;
    if reached < LEAST {
        return Err(format!(
            "{amount:.0} {what} in a run of {:.2} s are too few: the longest delays would take {:.2} % of it",
            first.elapsed / 1e9,
            100.0 * reached
        ));
    }
    let of = |dose: f64| match factor {
        Factor::Send => Perturbation { send: Some(dose), ..zero },
        Factor::Receive => Perturbation { receive: Some(dose), ..zero },
        Factor::Byte => Perturbation { byte: dose, receive: None, ..zero },
        Factor::Compute => Perturbation { compute: dose, ..zero },
    };
    Ok([of(dose), of(2.0 * dose)])
}
