//! Conduct of a study: runs in rounds, in random order, each committed before the next.

use std::ops::ControlFlow;

use machine::{Fault, Nanoseconds, Result, count};
use rounds::order::turns;
use rounds::sitting::{End, Sitting, sit};

use super::definition::Campaign;
use super::simulated::{self, Simulator};
use super::stop::settled;
use super::store::{CountedRun, NewRun, Outcome, PointRuns, Store};
use crate::cause::{Cause, Failure};
use crate::observer::{Observer, Progress};
use crate::patience;

/// Time limit of a run of a point without earlier runs.
pub const FIRST_PATIENCE: Nanoseconds = Nanoseconds::of_seconds(24 * 3600);

/// Excess of disturbed runs (clock changed or not set, sensor stopped) over runs that count at which a point is left out.
const MOST_DISTURBED: usize = 6;

/// Runs points: by starting processes, or made up in tests.
pub trait Runner {
    /// Runs a point once, with its set-up, check and cleanup. The run itself takes at most `limit`.
    ///
    /// # Errors
    /// The reason why the run does not count.
    fn run(&mut self, campaign: &Campaign, point: usize, limit: Nanoseconds) -> Result<Outcome, Failure>;

    /// Time on the clock of the budget.
    fn now(&self) -> Nanoseconds;

    /// Wall clock, since the Unix epoch.
    fn wall(&self) -> Nanoseconds;

    /// A program that differs from the one at the start of the study, in words; `None` where none does.
    fn changed(&mut self) -> Option<String> {
        None
    }
}

/// Advice where a program has changed.
pub const OTHER_BUILD: &str = "measure it into a store of its own (--store FILE): two builds are never averaged";

/// Points to run, with time limits.
pub struct SessionPlan<'a> {
    pub campaign: &'a Campaign,
    /// By point: whether this session runs it.
    pub mine: Vec<bool>,
    /// Time for all sessions of the store.
    pub budget: Option<Nanoseconds>,
    /// Time for this session.
    pub sitting: Option<Nanoseconds>,
    /// Whether points that were left out run again.
    pub retry: bool,
    /// Number of threads for simulations.
    pub cores: usize,
}

/// Conducts a study from the state of its store on, as the store's current session.
///
/// # Errors
/// The store fails; a program has changed; a node is lost; the disk is full. Finished runs stay in the store.
pub fn conduct(
    order: SessionPlan,
    store: &mut Store,
    (runner, simulator): (&mut dyn Runner, &dyn Simulator),
    observer: &mut dyn Observer,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<End> {
    let campaign = order.campaign;
    store.add_points(&campaign.points, &order.mine)?;
    let mut known = store.known(&campaign.points)?;
    if order.retry {
        known.iter_mut().for_each(|known| known.failures.clear());
    }
    let due: Vec<usize> = (0..campaign.points.len())
        .filter(|&point| order.mine[point] && is_simulated(campaign, point))
        .filter(|&point| known[point].done.is_empty() && final_failure(campaign, &known[point]).is_none())
        .collect();
    simulated::run(campaign, &due, store, (simulator, order.cores), runner.wall(), observer, stop)?;
    let (spent, began, here) = (store.spent()?, Nanoseconds(0), Nanoseconds(0));
    sit(&mut Conducted { order, store, runner, observer, stop, known, spent, here, began, round: 0, left: 0 })
}

pub(super) fn is_simulated(campaign: &Campaign, point: usize) -> bool {
    campaign.identity.is_simulated(&campaign.points[point].axes)
}

/// The failure after which a point gets no more runs; `None` where it may get more.
pub fn final_failure<'a>(campaign: &Campaign, known: &'a PointRuns) -> Option<&'a Failure> {
    let mut of_point = 0;
    let mut round = None;
    let mut disturbed = 0;
    for (of, failure) in &known.failures {
        if failure.cause.is_of_point() {
            of_point = if round == Some(*of) { of_point + 1 } else { 1 };
            round = Some(*of);
        }
        disturbed +=
            usize::from(matches!(failure.cause, Cause::SensorStopped | Cause::ClockChanged | Cause::ClockNotSet));
        if of_point > campaign.retries || disturbed >= known.done.len() + MOST_DISTURBED {
            return Some(failure);
        }
    }
    None
}

/// Median time of the runs of a point; without any, of the runs of its program at all points. `None`: there are no runs.
pub fn usual(campaign: &Campaign, known: &[PointRuns], point: usize) -> Option<Nanoseconds> {
    let program = campaign.points[point].program;
    let of_program = || campaign.points.iter().zip(known).filter(|(point, _)| point.program == program);
    known[point].usual().or_else(|| patience::usual(of_program().flat_map(|(_, known)| known.took())))
}

struct Conducted<'a> {
    order: SessionPlan<'a>,
    store: &'a mut Store,
    runner: &'a mut dyn Runner,
    observer: &'a mut dyn Observer,
    stop: &'a (dyn Fn() -> bool + Sync),
    known: Vec<PointRuns>,
    /// Time spent by all sessions, and by this one.
    spent: Nanoseconds,
    here: Nanoseconds,
    /// Start of the present run.
    began: Nanoseconds,
    round: u32,
    left: usize,
}

/// One run to come.
struct Turn {
    point: usize,
    round: u32,
    place: u32,
}

impl Sitting for Conducted<'_> {
    type Turn = Turn;
    /// Start of the run on the wall clock, and its outcome. A failed run is stored with its cause.
    type Block = (Nanoseconds, Result<Outcome, Failure>);

    fn next_round(&mut self) -> Result<ControlFlow<End, Vec<Turn>>> {
        let campaign = self.order.campaign;
        let settled = settled(campaign, &self.known);
        while self.round < campaign.stop.repetitions {
            let wanted: Vec<Turn> = turns(&campaign.groups(), campaign.seed, self.round)
                .into_iter()
                .map(|turn| (campaign.blocks[turn.group][turn.member], turn.place))
                .filter(|&(point, _)| self.order.mine[point] && !settled[point])
                .map(|(point, place)| Turn { point, round: self.round, place })
                .filter(|turn| self.is_wanted(turn))
                .collect();
            if wanted.is_empty() {
                self.round += 1;
                continue;
            }
            if let Some(why) = self.runner.changed() {
                return Err(Fault::new("the study", why, OTHER_BUILD));
            }
            let fit: Vec<Turn> = wanted.into_iter().filter(|turn| self.fits(turn.point)).collect();
            self.left = fit.len();
            return Ok(if fit.is_empty() { ControlFlow::Break(End::OutOfTime) } else { ControlFlow::Continue(fit) });
        }
        Ok(ControlFlow::Break(End::Finished))
    }

    fn is_due(&self, turn: &Turn) -> bool {
        self.is_wanted(turn) && self.fits(turn.point)
    }

    fn block(&mut self, turn: &Turn) -> Result<Self::Block> {
        let campaign = self.order.campaign;
        let state = format!("round {}, {} of it left", turn.round + 1, count::of(self.left as u64, "run"));
        let now = Some(campaign.words(turn.point));
        self.observer.progress(&Progress { state, now, spent: self.spent });
        let usual = self.known[turn.point].usual();
        let limit = campaign.program(turn.point).limit.unwrap_or(patience::limit(usual, FIRST_PATIENCE));
        self.began = self.runner.now();
        let started = self.runner.wall();
        Ok((started, self.runner.run(campaign, turn.point, limit)))
    }

    fn keep(&mut self, turn: Turn, outcome: Result<Self::Block>) -> Result<()> {
        let (started, mut outcome) = outcome?;
        if let Err(failure) = &mut outcome
            && (self.stop)()
        {
            // The signal that ends this process also reaches the processes of the run.
            *failure = Failure::new(Cause::Preempted, "the run was cut short; it is done again");
        }
        let spent = Nanoseconds(self.runner.now().0.saturating_sub(self.began.0));
        (self.spent, self.here) = (self.spent + spent, self.here + spent);
        self.left = self.left.saturating_sub(1);
        let Turn { point, round, place } = turn;
        self.store.keep(&[NewRun { point, round, place, started, outcome: outcome.clone() }], spent)?;
        let words = || self.order.campaign.words(point);
        match outcome {
            Ok(Outcome { elapsed, values, note, .. }) => {
                self.known[point].done.push(CountedRun { session: self.store.session, round, elapsed, values });
                note.into_iter().for_each(|note| self.observer.note(&format!("{}: {note}", words())));
            }
            Err(failure) => {
                if failure.cause != Cause::Preempted {
                    self.observer.note(&format!("{}: {failure}", words()));
                }
                let fatal = failure.cause.ends_all().then(|| fatal(&failure));
                self.known[point].failures.push((round, failure));
                if let Some(fault) = fatal {
                    return Err(fault);
                }
                if final_failure(self.order.campaign, &self.known[point]).is_some() {
                    self.observer.note(&format!("{}: left; --retry runs it again", words()));
                }
            }
        }
        Ok(())
    }

    fn stopped(&self) -> bool {
        (self.stop)()
    }
}

/// The fault of a failure that every further run would have too.
fn fatal(failure: &Failure) -> Fault {
    let next = match failure.cause {
        Cause::NodeLost => "run the same command on nodes that are up: it goes on where it stopped",
        _ => "free some space and run the same command again: it goes on where it stopped",
    };
    Fault::new("the study", format!("{failure}; everything finished is kept"), next)
}

impl Conducted<'_> {
    fn is_wanted(&self, turn: &Turn) -> bool {
        let campaign = self.order.campaign;
        let known = &self.known[turn.point];
        !is_simulated(campaign, turn.point)
            && !known.done.iter().any(|run| run.round == turn.round)
            && final_failure(campaign, known).is_none()
    }

    /// Whether a run of the point is expected to end within both budgets.
    fn fits(&self, point: usize) -> bool {
        let takes = usual(self.order.campaign, &self.known, point).unwrap_or(Nanoseconds(0));
        let within =
            |spent: Nanoseconds, of: Option<Nanoseconds>| of.is_none_or(|of| spent + takes <= of && spent < of);
        within(self.spent, self.order.budget) && within(self.here, self.order.sitting)
    }
}
