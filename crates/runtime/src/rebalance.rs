//! When an offcode is better off elsewhere: at a crossover of what it takes here and there, with hysteresis. Pure: who
//! measures tells one window after the other, and moves what is to be moved.

mod watch;

use std::time::Duration;

use machine::costs::Interval;

pub use watch::Watch;

/// Least share of an offcode's time that a move has to save.
const GAIN: f64 = 0.1;
/// Number of windows in a row that must agree.
const WINDOWS: u32 = 5;
/// Least ratio of what a move saves within [`HORIZON`] to what it costs.
const REPAID: f64 = 3.0;
const HORIZON: Duration = Duration::from_secs(60);
/// Time after a move without another one.
const DWELL: Duration = Duration::from_secs(30);
/// Longest such time, which doubles with each move that was taken back.
const LONGEST: Duration = Duration::from_secs(1920);

/// Measured and expected figures of one window, in nanoseconds of the host's time a second, by place.
#[derive(Debug, Clone, Copy)]
pub struct Window<'a> {
    /// Time since any fixed moment.
    pub now: Duration,
    /// The offcode's place.
    pub here: usize,
    /// Expected time at each place at this window's rates; `None`: impossible or not known.
    pub places: &'a [Option<Interval>],
    /// Measured time here, if there is one.
    pub measured: Option<f64>,
    /// Cost of a move, in nanoseconds.
    pub move_cost: f64,
}

/// The decision after a window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Verdict {
    Stay,
    /// Move to the place of this number, where the offcode is expected to take this much.
    Move {
        to: usize,
        expected: Interval,
    },
    /// Move back: the measured time is worse than all that was expected.
    Back {
        to: usize,
    },
}

/// Decides for one offcode.
#[derive(Debug, Clone)]
pub struct Rebalancer {
    /// The better place seen last, and for how many windows in a row.
    seen: Option<(usize, u32)>,
    /// Time before which no move is made.
    rests: Option<Duration>,
    dwell: Duration,
    /// The last move, as long as it has not been judged.
    moved: Option<LastMove>,
}

#[derive(Debug, Clone, Copy)]
struct LastMove {
    from: usize,
    to: usize,
    /// Windows in a row that came out worse than expected there, and as expected.
    worse: u32,
    held: u32,
}

impl Default for Rebalancer {
    fn default() -> Self {
        Rebalancer { seen: None, rests: None, dwell: DWELL, moved: None }
    }
}

impl Rebalancer {
    /// The decision after this window. The caller reports a move by [`Rebalancer::moved`].
    pub fn look(&mut self, window: &Window) -> Verdict {
        let here = window.places.get(window.here).copied().flatten();
        if let Some(to) = self.judge(window, here) {
            return Verdict::Back { to };
        }
        if self.rests.is_some_and(|until| window.now < until) {
            self.seen = None;
            return Verdict::Stay;
        }
        let Some((to, expected)) = here.and_then(|here| better(window, here)) else {
            self.seen = None;
            return Verdict::Stay;
        };
        let windows = match self.seen {
            Some((place, windows)) if place == to => windows + 1,
            _ => 1,
        };
        self.seen = Some((to, windows));
        if windows >= WINDOWS { Verdict::Move { to, expected } } else { Verdict::Stay }
    }

    /// Reports that the offcode has moved as decided.
    pub fn moved(&mut self, now: Duration, from: usize, verdict: Verdict) {
        self.seen = None;
        match verdict {
            Verdict::Move { to, .. } => self.moved = Some(LastMove { from, to, worse: 0, held: 0 }),
            Verdict::Back { .. } => {
                self.moved = None;
                self.dwell = (self.dwell * 2).min(LONGEST);
            }
            Verdict::Stay => return,
        }
        self.rests = Some(now + self.dwell);
    }

    /// Reports that it could not be moved, which is not tried again at once.
    pub fn refused(&mut self, now: Duration) {
        self.seen = None;
        self.rests = Some(now + self.dwell);
    }

    /// Compares the measured with the expected time, and returns the place to go back to, if any.
    fn judge(&mut self, window: &Window, here: Option<Interval>) -> Option<usize> {
        let moved = self.moved.as_mut().filter(|moved| moved.to == window.here)?;
        let (measured, expected) = (window.measured?, here?);
        if measured > expected.high {
            (moved.worse, moved.held) = (moved.worse + 1, 0);
        } else {
            (moved.worse, moved.held) = (0, moved.held + 1);
        }
        let (from, worse, held) = (moved.from, moved.worse, moved.held);
        if held >= WINDOWS {
            self.moved = None;
        }
        (worse >= WINDOWS).then_some(from)
    }
}

/// The place whose least saving is largest, if that is enough.
fn better(window: &Window, here: Interval) -> Option<(usize, Interval)> {
    let places = window.places.iter().enumerate().filter(|(place, _)| *place != window.here);
    let known = places.filter_map(|(place, takes)| Some((place, (*takes)?)));
    let enough = |takes: &Interval| {
        let least = here.low - takes.high;
        least > GAIN * here.middle && least * HORIZON.as_secs_f64() >= REPAID * window.move_cost
    };
    known.filter(|(_, takes)| enough(takes)).min_by(|(_, one), (_, other)| one.high.total_cmp(&other.high))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A second at a rate: at place 0 each message takes its time here; at place 1 less of it, and there is a fixed part.
    struct World {
        decides: Rebalancer,
        at: usize,
        now: u64,
        moves: Vec<(u64, usize)>,
        random: u64,
        /// What place 1 really takes, as a part of what is expected.
        truth: f64,
    }

    impl World {
        fn new() -> World {
            World { decides: Rebalancer::default(), at: 0, now: 0, moves: Vec::new(), random: 9, truth: 1.0 }
        }

        fn noise(&mut self) -> f64 {
            self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            1.0 + ((self.random >> 40) as f64 / f64::from(1 << 24) - 0.5) * 0.04
        }

        fn second(&mut self, rate: f64) {
            let about = |middle: f64| Some(Interval { low: 0.95 * middle, middle, high: 1.05 * middle });
            let takes = [rate * 1000.0 * self.noise(), (20e6 + rate * 200.0) * self.noise()];
            let places = [about(takes[0]), about(takes[1])];
            let measured = if self.at == 1 { takes[1] * self.truth } else { takes[0] };
            let now = Duration::from_secs(self.now);
            let window = Window { now, here: self.at, places: &places, measured: Some(measured), move_cost: 5e6 };
            let verdict = self.decides.look(&window);
            if let Verdict::Move { to, .. } | Verdict::Back { to } = verdict {
                self.decides.moved(now, self.at, verdict);
                self.at = to;
                self.moves.push((self.now, to));
            }
            self.now += 1;
        }

        /// Up over the crossover, at 25,000 messages a second, and down again.
        fn ramps(&mut self, count: u64, seconds: u64) {
            for second in 0..count * seconds {
                let part = (second % seconds) as f64 / seconds as f64;
                self.second(60_000.0 * (1.0 - (2.0 * part - 1.0).abs()));
            }
        }
    }

    #[test]
    fn twenty_slow_ramps_over_the_crossover_are_two_moves_each() {
        let mut world = World::new();
        world.ramps(20, 400);
        let places: Vec<usize> = world.moves.iter().map(|(_, to)| *to).collect();
        assert_eq!(places, [1, 0].repeat(20), "{:?}", world.moves);
    }

    #[test]
    fn what_swings_faster_than_it_dwells_moves_no_more_often_than_it_may() {
        for seconds in [4, 8, 16, 32] {
            let mut world = World::new();
            world.ramps(20 * 32 / seconds, seconds);
            let apart = world.moves.windows(2).all(|pair| pair[1].0 - pair[0].0 >= DWELL.as_secs());
            assert!(apart && world.moves.len() <= 20, "{seconds} s: {:?}", world.moves);
        }
        let mut world = World::new();
        world.ramps(160, 4);
        assert_eq!(world.moves, [], "never five windows in a row");
    }

    #[test]
    fn at_the_crossover_itself_it_stays() {
        let mut world = World::new();
        for _ in 0..2000 {
            world.second(25_000.0);
        }
        assert_eq!(world.moves, []);
    }

    #[test]
    fn a_move_that_disappoints_is_taken_back_and_tried_less_and_less() {
        let mut world = World::new();
        world.truth = 2.0;
        for _ in 0..1000 {
            world.second(50_000.0);
        }
        let there: Vec<u64> = world.moves.iter().filter(|(_, to)| *to == 1).map(|(at, _)| *at).collect();
        assert!(world.moves.len().is_multiple_of(2) && world.at == 0, "{:?}", world.moves);
        let gaps: Vec<u64> = there.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(gaps.len() >= 2 && gaps.windows(2).all(|pair| pair[1] > pair[0]), "{gaps:?}");
    }

    #[test]
    fn what_is_not_known_or_not_repaid_is_no_reason() {
        let cheap = Interval { low: 1.0, middle: 1.0, high: 1.0 };
        let here = Interval { low: 900.0, middle: 1000.0, high: 1100.0 };
        let stays = |places: &[Option<Interval>], move_cost: f64| {
            let mut decides = Rebalancer::default();
            (0..100).all(|n| {
                let now = Duration::from_secs(n);
                let window = Window { now, here: 0, places, measured: None, move_cost };
                decides.look(&window) == Verdict::Stay
            })
        };
        assert!(stays(&[Some(here), None], 0.0));
        assert!(stays(&[None, Some(cheap)], 0.0));
        assert!(stays(&[Some(here), Some(cheap)], 1e9));
        assert!(!stays(&[Some(here), Some(cheap)], 0.0));
    }
}
