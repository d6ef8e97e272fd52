//! The delays of an experiment, by the figures of a first run.

use machine::{Fault, Result, figure};
use record::blocks::Schedule;
use record::perturbation::{LONGEST, Perturbation, SHARE};

use super::period::Period;
use super::{Factor, Shown, Target};

/// The lesser of the two doses: time injected into the rank with most delays, over the time of a run. The other is twice as much.
const DOSE: f64 = 0.02;

/// The usual dose of a factor in a block, and the most of all together: below [`SHARE`], at which delays stop.
pub const BLOCK_DOSE: f64 = 0.04;
pub const ALL_DOSES: f64 = 0.09;

/// The least greater dose of runs, and that of blocks: a smaller one cannot be told from noise in a reasonable time.
const LEAST: f64 = 0.01;
pub const LEAST_OF_BLOCK: f64 = 0.005;

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
    targets: Vec<Target>,
    /// Factors that cannot be measured here, and why.
    pub left_out: Vec<String>,
}

impl Design {
    /// Delays of no length at all ends that `targets` need: a first run under them counts the delays.
    pub fn counting(targets: &[Target]) -> Perturbation {
        let at = |wanted: &[Factor]| targets.iter().any(|target| wanted.contains(&target.factor)).then_some(0.0);
        Perturbation {
            send: at(&[Factor::Send, Factor::Byte, Factor::Compute]),
            receive: at(&[Factor::Receive]),
            ..Perturbation::default()
        }
    }

    /// # Errors
    /// None of the targets can be measured.
    pub fn of(targets: &[Target], first: &Shown) -> Result<Design> {
        let zero = Design::counting(targets);
        let mut design =
            Design { arms: vec![Arm { what: None }, Arm { what: Some(zero) }], targets: vec![], left_out: vec![] };
        for &target in targets {
            match dose(target, first, 2.0 * DOSE, LEAST) {
                Ok(dose) => {
                    design.targets.push(target);
                    design.arms.extend([0.5, 1.0].map(|part| Arm { what: Some(delays(target, zero, part * dose)) }));
                }
                Err(why) => design.left_out.push(format!("{target}: {why}")),
            }
        }
        some(&design.targets, &design.left_out)?;
        Ok(design)
    }

    /// The targets, each with the indices of its two arms.
    pub fn targets(&self) -> impl Iterator<Item = (Target, [usize; 2])> + '_ {
        self.targets.iter().enumerate().map(|(nth, target)| (*target, [2 + 2 * nth, 3 + 2 * nth]))
    }
}

/// The delays of blocks within a run.
#[derive(Debug, Clone, PartialEq)]
pub struct InBlocks {
    /// A column of delays without length, then one for each target.
    pub schedule: Schedule,
    pub targets: Vec<Target>,
    pub period: Period,
    /// Targets that cannot be measured here, and why.
    pub left_out: Vec<String>,
}

impl InBlocks {
    /// The column of delays without length.
    pub const NULL: usize = 0;

    /// `dose_of_each`: the time of a block that each factor's delays take, as a share; less where all together would take too much.
    ///
    /// # Errors
    /// None of the targets can be measured, or the run is too short.
    pub fn of(targets: &[Target], first: &Shown, period: Period, seed: u64, dose_of_each: f64) -> Result<InBlocks> {
        let at = |rank: usize| targets.iter().filter(|target| target.is_in(rank)).count();
        let together = (0..first.ranks.len()).map(at).max().unwrap_or(0).max(1);
        let share = dose_of_each.min(ALL_DOSES / together as f64);
        let (mut columns, mut known, mut left_out) = (vec![Design::counting(targets)], Vec::new(), Vec::new());
        for &target in targets {
            match dose(target, first, share, LEAST_OF_BLOCK) {
                Ok(dose) => {
                    columns.push(delays(target, Perturbation::default(), dose));
                    known.push(target);
                }
                Err(why) => left_out.push(format!("{target}: {why}")),
            }
        }
        some(&known, &left_out)?;
        let blocks = Some(period.blocks(columns.len(), seed)?);
        Ok(InBlocks { schedule: Schedule { blocks, columns }, targets: known, period, left_out })
    }

    /// The time of a block's measured part by the first run, ns.
    pub fn block(&self) -> f64 {
        self.schedule.blocks.map_or(0.0, |blocks| f64::from(blocks.every - blocks.guard) * self.period.period)
    }

    /// The time of a block with what is not measured, by the first run, ns.
    pub fn whole_block(&self) -> f64 {
        self.schedule.blocks.map_or(0.0, |blocks| f64::from(blocks.every) * self.period.period)
    }
}

fn some(targets: &[Target], left_out: &[String]) -> Result<()> {
    let next = "measure another factor, or a longer part of the program's work";
    let fault = || Fault::new("a causal experiment", left_out.join("; "), next);
    (!targets.is_empty()).then_some(()).ok_or_else(fault)
}

/// The delay of each message or byte, ns, or of computing, as a share, that takes `share` of a run in the rank with most; no
/// longer than may be, and at least `least` of a run.
fn dose(target: Target, first: &Shown, share: f64, least: f64) -> std::result::Result<f64, String> {
    let most_of = |of: &dyn Fn(&super::Amounts) -> f64| first.of_target(target).map(of).fold(0.0, f64::max);
    // The amount in the rank that has most, the largest dose of one delay, and the name of the amount.
    let (amount, most, what) = match target.factor {
        Factor::Send | Factor::Receive => {
            (most_of(&|rank| rank.delays[target.factor.kind()] as f64), LONGEST, "messages")
        }
        Factor::Byte => {
            let largest = first.sizes.iter().map(|(bytes, _)| bytes.0).max().unwrap_or(0);
            (most_of(&|rank| rank.bytes as f64), LONGEST / largest.max(1) as f64, "bytes")
        }
        Factor::Compute => (most_of(&|rank| rank.computing), SHARE, "computing"),
    };
    if amount <= 0.0 {
        return Err(format!("the program has no {what}"));
    }
    let dose = (share * first.elapsed / amount).min(most);
    let reached = dose * amount / first.elapsed;
    if reached < least {
        let amount = match target.factor {
            Factor::Compute => format!("{} of {what}", figure::nanoseconds(amount)),
            _ => format!("{amount:.0} {what}"),
        };
        return Err(format!(
            "{amount} in a run of {:.2} s are too few: the longest delays would take {:.2} % of it",
            first.elapsed / 1e9,
            100.0 * reached
        ));
    }
    Ok(dose)
}

/// The perturbation of a target, beside other delays that stay.
fn delays(target: Target, others: Perturbation, dose: f64) -> Perturbation {
    target.at_place(match target.factor {
        Factor::Send => Perturbation { send: Some(dose), ..others },
        Factor::Receive => Perturbation { receive: Some(dose), ..others },
        Factor::Byte => Perturbation { byte: dose, receive: None, ..others },
        Factor::Compute => Perturbation { compute: dose, ..others },
    })
}
