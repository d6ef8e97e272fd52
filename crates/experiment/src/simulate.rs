//! Comparisons of contenders whose true ratio is known, measured on a simulated machine: how often the reported interval
//! covers the truth, and how often the verdict is wrong.
//!
//! Each study has two contenders or more and proceeds like a real one, look by look, until it is decided or 128 rounds
//! are measured; its blocks pass through the same code as measured ones.

use machine::{Nanoseconds, Probe};

use rounds::clocks::Clocks;
use rounds::comparison::{Answer, Paired, answer, is_open};
use rounds::contrast::{EQUALITY, looks};
use rounds::point::Metric;
use rounds::random::Random;
use rounds::sample::Sample;
use rounds::statistics::median;

/// Noise of one block, as a share of its value.
const NOISE: f64 = 0.02;
const MOST_ROUNDS: u32 = 128;
const BLOCK: Nanoseconds = Nanoseconds(50_000_000);
/// True performance of the first contender over the second.
const TRUTHS: [f64; 4] = [1.0, 1.02, 1.03, 1.10];
/// Least share of studies whose interval covers the truth, for a row to hold.
pub const LEAST_COVERED: f64 = 0.94;
pub const MOST_WRONG: f64 = 0.05;

machine::named! {
    /// The machine's effect on blocks beside their noise.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Disturbance {
        Calm = "noise of 2 % a block alone",
        Drift = "drift of 1 % a round",
        Flips = "cores that flip: far is 2x slower",
        Autocorrelation = "noise that stays: AR(1) of 0.5",
        SlowBlocks = "one block in ten 3x slower",
    }
}

/// Results of the studies of one truth on one machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub disturbance: Disturbance,
    pub contenders: usize,
    /// Performance of the first contender over that of each other.
    pub truth: f64,
    pub studies: usize,
    /// Studies whose shown interval covers the truth.
    pub covered: usize,
    /// Studies whose verdict costs more than [`EQUALITY`], or distinguishes equal contenders.
    pub wrong: usize,
    /// Studies without a decision.
    pub open: usize,
    /// Rounds that half of the studies needed at most.
    pub rounds: f64,
}

impl Row {
    pub fn covered_share(&self) -> f64 {
        self.covered as f64 / self.studies as f64
    }

    pub fn wrong_share(&self) -> f64 {
        self.wrong as f64 / self.studies as f64
    }

    /// Whether the statistics meet their requirements in this row.
    pub fn holds(&self) -> bool {
        self.covered_share() >= LEAST_COVERED && self.wrong_share() <= MOST_WRONG
    }
}

/// Simulates `studies` of every truth on every machine. The same seed gives the same rows.
pub fn simulate(studies: usize, seed: u64) -> Vec<Row> {
    let two = Disturbance::ALL.into_iter().map(|disturbance| (disturbance, 2));
    let rows = two.chain([(Disturbance::Calm, 6)]).flat_map(|machine| TRUTHS.map(|truth| (machine, truth)));
    rows.zip(0..).map(|((machine, truth), part)| row(machine, truth, studies, Random::stream(seed, part))).collect()
}

fn row((disturbance, contenders): (Disturbance, usize), truth: f64, studies: usize, mut random: Random) -> Row {
    let (mut covered, mut wrong, mut open) = (0, 0, 0);
    let mut rounds = Vec::with_capacity(studies);
    for _ in 0..studies {
        let held = vec![0.0; contenders];
        let blocks = Machine { disturbance, far: false, held, random: &mut random }.study(truth);
        let points: Vec<&[Sample]> = blocks.iter().map(Vec::as_slice).collect();
        rounds.push(points[0].len() as f64);
        let shown = Paired::performance(points[0], points[1], METRIC).interval();
        covered += usize::from(shown.is_some_and(|shown| shown.low <= truth && truth <= shown.high));
        let differ = truth > 1.0 + EQUALITY;
        match answer(&points, METRIC) {
            // Of equal contenders none is better.
            Some(Answer::Place(0)) => wrong += usize::from(truth == 1.0),
            Some(Answer::Place(_)) => wrong += 1,
            Some(Answer::Safe(0)) => {}
            Some(Answer::Safe(_)) => wrong += usize::from(differ),
            Some(Answer::Either(of)) => wrong += usize::from(differ && of != [0]),
            Some(Answer::Open(_)) | None => open += 1,
        }
    }
    Row { disturbance, contenders, truth, studies, covered, wrong, open, rounds: median(&rounds).unwrap_or(0.0) }
}

const METRIC: Metric = Metric::HalfRoundTrip;

/// The simulated machine that blocks run on.
struct Machine<'a> {
    disturbance: Disturbance,
    far: bool,
    /// Noise carried over from earlier blocks, by contender.
    held: Vec<f64>,
    random: &'a mut Random,
}

impl Machine<'_> {
    fn study(&mut self, truth: f64) -> Vec<Vec<Sample>> {
        let contenders = self.held.len();
        let mut blocks = vec![Vec::new(); contenders];
        for look in looks().take_while(|look| *look <= MOST_ROUNDS) {
            while blocks[0].len() < look as usize {
                let round = blocks[0].len() as u32;
                let mut order: Vec<usize> = (0..contenders).collect();
                self.random.shuffle(&mut order);
                for (place, who) in order.into_iter().enumerate() {
                    let value = 1000.0 * if who == 0 { 1.0 } else { truth };
                    let block = self.block(value, who, round, place as u32);
                    blocks[who].push(block);
                }
            }
            if !is_open(&blocks.iter().map(Vec::as_slice).collect::<Vec<_>>(), METRIC) {
                break;
            }
        }
        blocks
    }

    fn block(&mut self, value: f64, who: usize, round: u32, order: u32) -> Sample {
        let noise = NOISE * self.normal();
        let noise = match self.disturbance {
            Disturbance::Autocorrelation => {
                // The same total noise, half of it carried over from the previous block.
                self.held[who] = 0.5 * self.held[who] + 0.75f64.sqrt() * noise;
                self.held[who]
            }
            _ => noise,
        };
        let factor = match self.disturbance {
            Disturbance::Calm | Disturbance::Autocorrelation => 1.0,
            Disturbance::Drift => 1.01f64.powf(f64::from(round) + f64::from(order) / 2.0),
            Disturbance::Flips => {
                self.far ^= self.random.unit() < 0.1;
                if self.far { 2.0 } else { 1.0 }
            }
            Disturbance::SlowBlocks => {
                if self.random.unit() < 0.1 {
                    3.0
                } else {
                    1.0
                }
            }
        };
        Sample {
            round,
            order,
            started: Nanoseconds((u64::from(round) * self.held.len() as u64 + u64::from(order)) * BLOCK.0),
            messages: 1000,
            elapsed: BLOCK,
            value: value * factor * noise.exp(),
            lost: 0,
            probe: Some(Probe { half_round_trip_ps: if self.far { 120_000 } else { 50_000 } }),
            clocks: Clocks::default(),
            accounting: None,
            notes: Vec::new(),
        }
    }

    fn normal(&mut self) -> f64 {
        let (u, v) = (1.0 - self.random.unit(), self.random.unit());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }
}

/// The rows as a table.
pub fn table(rows: &[Row]) -> String {
    let mut text = format!(
        "{:<42} {:>6} {:>8} {:>7} {:>12} {:>7}\n",
        "machine", "truth", "covered", "wrong", "cannot tell", "rounds"
    );
    for row in rows {
        let share = |count: usize| 100.0 * count as f64 / row.studies as f64;
        text += &format!(
            "{:<42} {:>6} {:>6.1} % {:>5.1} % {:>10.1} % {:>7}  {}\n",
            match row.contenders {
                2 => row.disturbance.to_string(),
                more => format!("{}, {more} contenders", row.disturbance),
            },
            format!("{:.2}x", row.truth),
            share(row.covered),
            share(row.wrong),
            share(row.open),
            row.rounds,
            if row.holds() { "met" } else { "missed" },
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[ignore = "make check"]
    fn shown_intervals_cover_the_truth_and_verdicts_are_right() {
        let rows = simulate(200, 1);
        assert_eq!(rows.len(), (Disturbance::ALL.len() + 1) * TRUTHS.len());
        for row in &rows {
            assert!(row.holds(), "{row:?}");
        }
        let told = |row: &&Row| row.disturbance == Disturbance::Calm && row.truth == 1.10;
        assert_eq!(rows.iter().find(told).map(|row| (row.open, row.rounds)), Some((0, 6.0)), "10 % shows at once");
    }

    #[test]
    fn the_table_says_what_is_missed() {
        let row = Row {
            disturbance: Disturbance::Calm,
            contenders: 2,
            truth: 1.02,
            studies: 100,
            covered: 94,
            wrong: 5,
            open: 2,
            rounds: 16.0,
        };
        let last = |row: Row| table(&[row]).lines().last().unwrap().split_whitespace().last().unwrap().to_owned();
        assert_eq!(last(row.clone()), "met");
        assert_eq!(last(Row { covered: 93, ..row.clone() }), "missed");
        assert_eq!(last(Row { wrong: 6, ..row }), "missed");
    }
}
