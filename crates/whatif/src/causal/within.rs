//! Slopes from blocks of one run in which delays are on or off.
//!
//! The regressor is the assignment, and not the delay as recorded: a spin that loses its core is recorded longer and lengthens
//! the block, so that a regression on recorded delays is drawn towards 1. With signs c of the assignment, times y of blocks and
//! delays x: `v_f = sum c_f y`, `M_fg = sum c_f x_g`, slopes `s = v / M` (instrumental variables; Wald, Annals of Mathematical
//! Statistics 11:3, 1940). Blocks come in balanced rounds, which cancel what drifts from round to round.

use machine::{Fault, Result};
use profile::profile::Profile;
use profile::tables::Tables;
use record::blocks::{Blocks, Mark, Schedule};
use rounds::contrast::ERROR;
use rounds::estimate::Estimate;

use super::{NEAR, is_within};

/// Most batches of rounds, each of which gives one value: many, and each long beside what neighbouring blocks have in common.
const BATCHES: usize = 40;

/// Most looks at how well a slope was known meanwhile.
const LOOKS: usize = 40;

/// A block as all ranks had it.
#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    /// Its number in the run; 0 is before the first round.
    pub number: u64,
    /// Its measured part, ns, mean of the ranks.
    pub took: f64,
    /// Time injected meanwhile into all ranks, ns, by column.
    pub doses: Vec<f64>,
    /// Messages of all ranks.
    pub messages: f64,
}

/// The blocks of a run.
///
/// # Errors
/// A rank was not switched as the schedule says, or ranks passed the progress point unequally often.
pub fn blocks(profile: &Profile, schedule: &Schedule) -> Result<Vec<Block>> {
    let refused = |cause: String| {
        Fault::new("a run", cause, "name another progress point (--progress), or use delays of whole runs (--whole)")
    };
    let Some(of) = &schedule.blocks else { return Err(refused("its delays are not in blocks".into())) };
    let counts = profile.ranks.iter().map(|rank| rank.marks.last().map_or(0, |mark| mark.count));
    let (least, most) = (counts.clone().min().unwrap_or(0), counts.max().unwrap_or(0));
    if most - least > u64::from(of.every) {
        return Err(refused(format!("its ranks passed the progress point unequally often: {least} to {most} times")));
    }
    let mut found = Vec::new();
    for number in 0..least / u64::from(of.every) {
        let of_ranks = profile.ranks.iter().map(|rank| ends(rank, of, number));
        let Some(of_ranks) = of_ranks.collect::<Option<Vec<_>>>() else { continue };
        if of_ranks.iter().any(|[_, to]| to.on != schedule.on(number)) {
            return Err(refused(format!("the delays of block {number} are not those of the schedule")));
        }
        let ranks = || profile.ranks.iter().zip(&of_ranks);
        let nanoseconds = |rank: &Tables, from: u64, to: u64| 1e9 * rank.seconds(to.saturating_sub(from));
        let dose = |column: usize| {
            ranks().map(|(rank, [from, to])| nanoseconds(rank, from.doses[column], to.doses[column])).sum()
        };
        found.push(Block {
            number,
            took: ranks().map(|(rank, [from, to])| nanoseconds(rank, from.ticks, to.ticks)).sum::<f64>()
                / of_ranks.len() as f64,
            doses: (0..schedule.columns.len()).map(dose).collect(),
            messages: of_ranks.iter().map(|[from, to]| to.messages.saturating_sub(from.messages) as f64).sum(),
        });
    }
    Ok(found)
}

/// The marks at the ends of the measured part of a block.
fn ends<'m>(rank: &'m Tables, of: &Blocks, number: u64) -> Option<[&'m Mark; 2]> {
    let at = |count: u64| rank.marks.binary_search_by_key(&count, |mark| mark.count).ok().map(|at| &rank.marks[at]);
    let begin = number * u64::from(of.every);
    Some([at(begin + u64::from(of.guard))?, at(begin + u64::from(of.every))?])
}

/// Sums over the blocks of a round, and of rounds.
#[derive(Debug, Clone)]
struct Sums {
    rounds: f64,
    took: f64,
    /// With the signs of each column, and then with those that each had a block before: times; and doses of each column, and
    /// then those of the block before. All are taken from the round's mean.
    times: Vec<f64>,
    doses: Vec<Vec<f64>>,
    /// By column: messages with its signs; and of all blocks.
    messages: Vec<f64>,
    all_messages: f64,
}

impl Sums {
    fn none(columns: usize) -> Sums {
        let zeros = |of: usize| vec![0.0; of];
        let (times, doses) = (zeros(2 * columns), vec![zeros(2 * columns); 2 * columns]);
        Sums { rounds: 0.0, took: 0.0, times, doses, messages: zeros(columns), all_messages: 0.0 }
    }

    /// Of the blocks of a round; the first is the one before it.
    fn of(before_and_round: &[Block], schedule: &Schedule) -> Sums {
        let columns = schedule.columns.len();
        let mut sums = Sums::none(columns);
        sums.rounds = 1.0;
        let row = |pair: &[Block]| -> (Vec<f64>, Vec<f64>) {
            let of = |on: u64| (0..columns).map(move |column| if on >> column & 1 == 1 { 1.0 } else { -1.0 });
            let signs = of(schedule.on(pair[1].number)).chain(of(schedule.on(pair[0].number)));
            (signs.collect(), pair[1].doses.iter().chain(&pair[0].doses).copied().collect())
        };
        let rows: Vec<_> = before_and_round.windows(2).map(row).collect();
        let round = &before_and_round[1..];
        let blocks = round.len() as f64;
        sums.took = round.iter().map(|block| block.took).sum();
        sums.all_messages = round.iter().map(|block| block.messages).sum();
        let mean = |column: usize| rows.iter().map(|(_, doses)| doses[column]).sum::<f64>() / blocks;
        let means: Vec<f64> = (0..2 * columns).map(mean).collect();
        for ((signs, doses), block) in rows.iter().zip(round) {
            for (place, sign) in signs.iter().enumerate() {
                sums.times[place] += sign * (block.took - sums.took / blocks);
                let doses = doses.iter().zip(&means).map(|(dose, mean)| sign * (dose - mean));
                sums.doses[place].iter_mut().zip(doses).for_each(|(sum, dose)| *sum += dose);
            }
            sums.messages.iter_mut().zip(signs).for_each(|(sum, sign)| *sum += sign * block.messages);
        }
        sums
    }

    fn add(&mut self, other: &Sums) {
        let each = |to: &mut [f64], from: &[f64]| to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
        self.rounds += other.rounds;
        self.took += other.took;
        self.all_messages += other.all_messages;
        each(&mut self.times, &other.times);
        each(&mut self.messages, &other.messages);
        self.doses.iter_mut().zip(&other.doses).for_each(|(to, from)| each(to, from));
    }
}

/// The measurements of all runs so far.
#[derive(Debug, Clone)]
pub struct Rounds {
    columns: usize,
    /// Blocks in a round.
    blocks: u64,
    all: Vec<Sums>,
}

/// What the blocks say of a column.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// The part of injected time by which the run got longer; `None`: too few rounds, or nothing was injected.
    pub slope: Option<Estimate>,
    /// The part by which the next block gets longer; must be 0. `None` as above.
    pub later: Option<Estimate>,
    /// Time injected into all ranks while it is on, over the time of these blocks.
    pub dose: f64,
    /// Messages in blocks with it over those without, less 1.
    pub messages: f64,
    /// The number of blocks from which on the slope was known to [`NEAR`].
    pub near_after: Option<usize>,
}

impl Rounds {
    pub fn new(schedule: &Schedule) -> Rounds {
        Rounds { columns: schedule.columns.len(), blocks: schedule.round(), all: Vec::new() }
    }

    /// Adds the whole rounds of a run, each with the block before it.
    pub fn add(&mut self, run: &[Block], schedule: &Schedule) {
        for blocks in run.windows(self.blocks as usize + 1) {
            let is_round = blocks[0].number.is_multiple_of(self.blocks)
                && blocks[0].number + self.blocks == blocks[self.blocks as usize].number;
            if is_round {
                self.all.push(Sums::of(blocks, schedule));
            }
        }
    }

    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// Number of blocks.
    pub fn blocks(&self) -> usize {
        self.all.len() * self.blocks as usize
    }

    /// Mean time of a block's measured part, ns.
    pub fn block(&self) -> f64 {
        self.all.iter().map(|sums| sums.took).sum::<f64>() / self.blocks().max(1) as f64
    }

    fn batches(&self) -> Vec<Sums> {
        let (all, batches) = (self.all.len(), self.all.len().min(BATCHES));
        let batch = |nth: usize| {
            let mut sums = Sums::none(self.columns);
            self.all[nth * all / batches..(nth + 1) * all / batches].iter().for_each(|round| sums.add(round));
            sums
        };
        (0..batches).map(batch).collect()
    }

    /// The time of blocks with delays of no length, in `column`, over that of blocks without.
    pub fn null(&self, column: usize) -> Option<Estimate> {
        let effects: Vec<f64> =
            self.batches().iter().map(|batch| 1.0 + 2.0 * batch.times[column] / batch.took).collect();
        Estimate::once(&effects, ERROR)
    }

    /// The columns, in the order of the schedule.
    pub fn columns(&self) -> Vec<Column> {
        let given = self.given();
        let mut near = vec![None; self.columns];
        let looks = self.all.len().min(LOOKS);
        for rounds in (1..=looks).map(|look| look * self.all.len() / looks) {
            let part = Rounds { all: self.all[..rounds].to_vec(), ..*self };
            for (column, slope) in given.iter().zip(part.slopes(&given)) {
                let is_near = slope.is_some_and(|of| is_within(&of, NEAR));
                near[*column] = near[*column].or(Some(part.blocks())).filter(|_| is_near);
            }
        }
        let mut all = Sums::none(self.columns);
        self.all.iter().for_each(|round| all.add(round));
        let slopes = self.slopes(&given);
        let before = given.iter().map(|column| self.columns + column);
        let later = self.slopes(&given.iter().copied().chain(before).collect::<Vec<_>>());
        let of = |column: usize| {
            let place = given.iter().position(|of| *of == column);
            let on = (all.took + all.times[column]) / 2.0;
            let messages = all.messages[column] / (all.all_messages - all.messages[column]).max(1.0);
            Column {
                slope: place.and_then(|place| *slopes.get(place)?),
                later: place.and_then(|place| *later.get(given.len() + place)?),
                dose: if on > 0.0 { all.doses[column][column] / on } else { 0.0 },
                messages: 2.0 * messages,
                near_after: near[column],
            }
        };
        (0..self.columns).map(of).collect()
    }

    /// The columns in which something was injected.
    fn given(&self) -> Vec<usize> {
        let given = |column: usize| self.all.iter().map(|sums| sums.doses[column][column]).sum::<f64>() > 0.0;
        (0..self.columns).filter(|column| given(*column)).collect()
    }

    /// The parts of the doses in `places` by which times grow; empty where they cannot be told apart.
    fn slopes(&self, places: &[usize]) -> Vec<Option<Estimate>> {
        let mut all = Sums::none(self.columns);
        self.all.iter().for_each(|round| all.add(round));
        solved(&all, &self.batches(), places)
    }
}

/// The slopes of `places`, by the sums of all rounds and those of batches.
fn solved(all: &Sums, batches: &[Sums], places: &[usize]) -> Vec<Option<Estimate>> {
    let doses = |sums: &Sums| -> Vec<Vec<f64>> {
        places.iter().map(|row| places.iter().map(|column| sums.doses[*row][*column]).collect()).collect()
    };
    let Some(inverse) = inverse(doses(all)) else { return Vec::new() };
    let product = |matrix: &[Vec<f64>], of: &[f64]| -> Vec<f64> {
        matrix.iter().map(|row| row.iter().zip(of).map(|(one, other)| one * other).sum()).collect()
    };
    let times = |sums: &Sums| places.iter().map(|place| sums.times[*place]).collect::<Vec<f64>>();
    let slopes = product(&inverse, &times(all));
    // A batch's value by the doses of all rounds, with its own error of the doses: the mean of the values is the slope.
    let value = |batch: &Sums| {
        let expected = product(&doses(batch), &slopes);
        let rest: Vec<f64> = times(batch).iter().zip(expected).map(|(time, of)| time - of).collect();
        let more = product(&inverse, &rest).into_iter();
        more.zip(&slopes).map(|(more, slope)| slope + all.rounds / batch.rounds * more).collect::<Vec<f64>>()
    };
    let values: Vec<Vec<f64>> = batches.iter().map(value).collect();
    let of = |place: usize| Estimate::once(&values.iter().map(|of| of[place]).collect::<Vec<_>>(), ERROR);
    (0..places.len()).map(of).collect()
}

/// The inverse of a square matrix, by elimination with pivots; `None` where there is none.
pub(crate) fn inverse(mut matrix: Vec<Vec<f64>>) -> Option<Vec<Vec<f64>>> {
    let size = matrix.len();
    for (place, row) in matrix.iter_mut().enumerate() {
        row.extend((0..size).map(|column| if column == place { 1.0 } else { 0.0 }));
    }
    for place in 0..size {
        let pivot =
            (place..size).max_by(|one, other| matrix[*one][place].abs().total_cmp(&matrix[*other][place].abs()))?;
        matrix.swap(place, pivot);
        let by = matrix[place][place];
        if by.abs() < f64::MIN_POSITIVE {
            return None;
        }
        matrix[place].iter_mut().for_each(|value| *value /= by);
        let row = matrix[place].clone();
        for (_, values) in matrix.iter_mut().enumerate().filter(|(other, _)| *other != place) {
            let factor = values[place];
            values.iter_mut().zip(&row).for_each(|(value, of)| *value -= factor * of);
        }
    }
    Some(matrix.into_iter().map(|row| row[size..].to_vec()).collect())
}

#[cfg(test)]
mod tests;
