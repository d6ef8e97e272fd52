//! Conducts a trial: whole runs in rounds, each stored before the next, until the answer is known or the time is over.

use std::ops::ControlFlow::{self, Break, Continue};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use machine::{Fault, Nanoseconds, Probe, Result, shell};
use rounds::clocks::Clocks;
use rounds::contrast::{FIRST_LOOK, looks};
use rounds::order::{self, turns};
use rounds::sitting::{End, Sitting, sit};

use super::aside::Stage;
use super::check::Check;
use super::design::{Arm, Design, letter};
use super::judgement::{Judgement, judge};
use super::store::{Store, Trial};
use super::{Run, Runs};
use crate::cause::Failure;
use crate::observer::{Observer, Progress};
use crate::patience;

/// Rounds that are tried for each comparable round, at most, where the machine changes within rounds.
const MOST_TRIES: usize = 8;

/// Results of a run before its judgement.
#[derive(Debug, Clone)]
pub struct Ran {
    /// Wall clock at the start, since the Unix epoch.
    pub started: Nanoseconds,
    pub elapsed: Nanoseconds,
    /// Time between MPI_Init and MPI_Finalize, if that is the trial's figure of merit.
    pub mpi: Option<Nanoseconds>,
    pub cpu: Option<Nanoseconds>,
    /// Part of the CPU time in the kernel.
    pub system: Option<Nanoseconds>,
    pub said: String,
    pub complained: String,
    /// The run's failure, if any.
    pub failure: Option<Failure>,
    /// The exit status, where the status alone makes the run a failure: some trials count such a run.
    pub status: Option<u8>,
    pub probes: [Option<Probe>; 2],
    /// Effective clocks of cores that the run may use, before and after the run.
    pub clocks: [Clocks; 2],
}

/// Runner of commands: real processes, or a simulation.
pub trait Commands {
    /// Runs the arm once, for `limit` at most.
    ///
    /// # Errors
    /// The command could not be started.
    fn run(&mut self, arm: &Arm, limit: Nanoseconds) -> Result<Ran>;

    /// Runs a command beside the runs of an arm, for `limit` at most.
    ///
    /// # Errors
    /// The command could not be started.
    fn aside(&mut self, arm: &Arm, stage: Stage, words: &[String], limit: Nanoseconds) -> Result<Ran>;

    /// Time by which the budget is counted.
    fn now(&self) -> Nanoseconds;

    /// Change of the commands since the trial began, if any.
    fn changed(&mut self, _design: &Design) -> Option<String> {
        None
    }
}

/// Conducts `trial`, from its stored state on.
///
/// # Errors
/// The store fails; the first arm cannot run; another arm's first run fails; six rounds exceed the budget; a command
/// beside the runs fails.
pub fn conduct(
    store: &mut Store,
    trial: &Trial,
    commands: &mut dyn Commands,
    observer: &mut dyn Observer,
    budget: Nanoseconds,
    stop: &dyn Fn() -> bool,
) -> Result<(Runs, End)> {
    let runs = store.runs(trial)?;
    let design = &trial.design;
    let mut conducted = Conducted {
        design,
        store,
        trial,
        commands,
        observer,
        budget,
        stop,
        runs,
        warm: 0,
        course: None,
        began: Nanoseconds(0),
        is_set_up: vec![false; design.arms.len()],
        prepared: None,
        around: vec![0; design.arms.len()],
        broken: None,
    };
    match (sit(&mut conducted), conducted.tidy()) {
        (Ok(end), Ok(())) => Ok((conducted.runs, end)),
        (Ok(_), Err(fault)) => Err(fault),
        (Err(fault), tidied) => {
            if let Err(other) = tidied {
                conducted.observer.note(&other.to_string());
            }
            Err(fault)
        }
    }
}

struct Conducted<'a> {
    design: &'a Design,
    store: &'a mut Store,
    trial: &'a Trial,
    commands: &'a mut dyn Commands,
    observer: &'a mut dyn Observer,
    budget: Nanoseconds,
    stop: &'a dyn Fn() -> bool,
    runs: Runs,
    /// Warm-up runs of each arm so far.
    warm: u32,
    /// The measured rounds; `None` while arms warm up.
    course: Option<Course>,
    /// Start of the run under way.
    began: Nanoseconds,
    /// Arms whose setup has begun in this sitting.
    is_set_up: Vec<bool>,
    /// The arm of a run that is prepared and not yet concluded.
    prepared: Option<usize>,
    /// Nanoseconds of the commands before and after the latest run of each arm.
    around: Vec<u64>,
    /// Fault that ends the trial: a run could not be prepared.
    broken: Option<Fault>,
}

/// State of the measured rounds.
struct Course {
    /// Number of the next round.
    round: u32,
    /// Rounds tried in this sitting.
    tries: usize,
    look: u32,
    /// Arms that need no further rounds, by the last look.
    beaten: Vec<bool>,
}

/// A run to come.
struct Turn {
    arm: usize,
    /// Round of the run; `None` for a warm-up run.
    round: Option<u32>,
    place: u32,
}

impl Sitting for Conducted<'_> {
    type Turn = Turn;
    type Block = Ran;

    fn next_round(&mut self) -> Result<ControlFlow<End, Vec<Turn>>> {
        let arms = self.design.arms.len();
        // Warm-up runs show at once which arm cannot run.
        if self.warm < self.design.warmup {
            self.warm += 1;
            return Ok(Continue((0..arms).map(|arm| Turn { arm, round: None, place: self.warm - 1 }).collect()));
        }
        let judgement = judge(self.design, &self.runs);
        let mut course = match self.course.take() {
            None => {
                let round = self.runs.next_round();
                self.fits(round)?;
                // Arms that were beaten before have no run in the last rounds; the very last round may be incomplete.
                let sat_out = |arm| self.runs.measured(arm).all(|run| run.round.is_none_or(|of| of + 2 < round));
                let beaten: Vec<bool> =
                    (0..arms).map(|arm| round > FIRST_LOOK + 1 && sat_out(arm) && judgement.is_beaten(arm)).collect();
                // The stored rounds may suffice.
                let rounds = self.rounds(&judgement, &beaten);
                let look = looks().find(|look| *look as usize >= rounds).unwrap_or(FIRST_LOOK);
                Course { round, tries: 0, look, beaten }
            }
            Some(_) if self.runs.left_out(0).is_some() || (1..arms).all(|arm| self.runs.left_out(arm).is_some()) => {
                return Ok(Break(End::Finished));
            }
            Some(course) => course,
        };
        let rounds = self.rounds(&judgement, &course.beaten);
        // Only a look decides anything.
        if rounds >= course.look as usize || course.tries >= MOST_TRIES * course.look as usize {
            if judgement.is_settled() || self.design.conditions.proposed && judgement.suffices() {
                return Ok(Break(End::Finished));
            }
            course.beaten = (0..arms).map(|arm| judgement.is_beaten(arm)).collect();
            course.look = looks().find(|next| *next > course.look && *next as usize > rounds).unwrap_or(course.look);
        }
        let takes = (0..arms).filter(|&arm| !course.beaten[arm]).map(|arm| self.takes(arm)).sum();
        if self.runs.spent + Nanoseconds(takes) > self.budget {
            return Ok(Break(if judgement.is_settled() { End::Finished } else { End::OutOfTime }));
        }
        if let Some(why) = self.commands.changed(self.design) {
            return Err(Fault::new("the trial", why, "begin anew: the same command with --fresh"));
        }
        let turns = turns(&[arms], self.trial.seed, course.round).into_iter();
        let turn = |turn: order::Turn| Turn { arm: turn.member, round: Some(course.round), place: turn.place };
        let turns = turns.filter(|turn| !course.beaten[turn.member]).map(turn).collect();
        self.course = Some(Course { round: course.round + 1, tries: course.tries + 1, ..course });
        Ok(Continue(turns))
    }

    fn is_due(&self, turn: &Turn) -> bool {
        self.runs.left_out(turn.arm).is_none()
    }

    fn block(&mut self, &Turn { arm, round, .. }: &Turn) -> Result<Ran> {
        let round = round.map_or("warming up".to_owned(), |round| format!("round {}", round + 1));
        let left = self.budget.0.saturating_sub(self.runs.spent.0) / 1_000_000_000;
        let state = format!("{round}, at most {left} s left");
        self.observer.progress(&Progress { state, now: Some(self.name(arm)), spent: self.runs.spent });
        let limit = patience::limit(self.usual(arm), self.budget);
        self.began = self.commands.now();
        if let Err(fault) = self.prepare(arm) {
            self.broken = Some(fault);
            return Err(Fault::new("the run", "it could not be prepared", "run again"));
        }
        let ran = self.commands.run(&self.design.arms[arm], limit)?;
        let Design { check, conditions, .. } = self.design;
        let counts = |status| *check == Some(Check::Status) || conditions.ignored.holds(status);
        match (&ran.failure, ran.status) {
            (Some(_), Some(status)) if counts(status) => Ok(ran),
            (Some(failure), status) => {
                let otherwise = match status {
                    Some(_) => "; where a run may end so: --ignore-failure, or --check status where it is the result",
                    None => "",
                };
                let next = format!("run the command alone until it works, then try again{otherwise}");
                Err(Fault::new("the run", &failure.words, next))
            }
            (None, _) => Ok(ran),
        }
    }

    fn keep(&mut self, Turn { arm, round, place }: Turn, outcome: Result<Ran>) -> Result<()> {
        if let Some(fault) = self.broken.take() {
            return Err(fault);
        }
        // The command that concludes a run may remove the file that is checked.
        let run = outcome.and_then(|ran| self.judged(arm, ran, round, place));
        let concluded = self.conclude();
        let spent = Nanoseconds(self.commands.now().0 - self.began.0);
        self.runs.spent = self.runs.spent + spent;
        match run {
            Ok(run) => {
                self.store.keep(self.trial, arm, &run, spent)?;
                self.runs.done[arm].push(run);
            }
            // An arm that cannot run ends the trial during its warm-up.
            Err(fault) if round.is_none() && (arm == 0 || !self.design.conditions.proposed) => {
                return Err(fault.within(self.name(arm)));
            }
            Err(fault) => {
                let why = format!("{}: {}", fault.subject(), fault.cause());
                self.store.keep_failure(self.trial, arm, &why, spent)?;
                self.observer.note(&format!("{}: {why}", letter(arm)));
                self.runs.failed[arm].push(why);
            }
        }
        concluded
    }

    fn stopped(&self) -> bool {
        (self.stop)()
    }
}

impl Conducted<'_> {
    /// Rounds of every arm that is still compared.
    fn rounds(&self, judgement: &Judgement, beaten: &[bool]) -> usize {
        let open = (1..beaten.len()).filter(|&arm| !beaten[arm] && self.runs.left_out(arm).is_none());
        open.map(|arm| judgement.rounds(arm)).min().unwrap_or(0)
    }

    /// Refuses a trial whose first look is beyond the budget.
    fn fits(&self, first: u32) -> Result<()> {
        let round: u64 = (0..self.design.arms.len()).map(|arm| self.takes(arm)).sum();
        let need = Nanoseconds(round * u64::from(FIRST_LOOK.saturating_sub(first))) + self.runs.spent;
        if need <= self.budget || self.runs.left_out(0).is_some() {
            return Ok(());
        }
        let minutes = (need.0 as f64 * 1.1 / 60e9).ceil();
        let cause = format!(
            "{FIRST_LOOK} rounds, the fewest that tell anything, take {} in all, more than the budget of {}",
            chart::clock::duration(need),
            chart::clock::duration(self.budget)
        );
        Err(Fault::new("the trial", cause, format!("give it more (--budget {minutes:.0}m), or a shorter input")))
    }

    /// Nanoseconds of a run of the arm, with the commands before and after the run.
    fn takes(&self, arm: usize) -> u64 {
        self.usual(arm).map_or(0, |usual| usual.0) + self.around[arm]
    }

    /// Runs the commands before a run of the arm.
    fn prepare(&mut self, arm: usize) -> Result<()> {
        if !self.is_set_up[arm] {
            // Cleanup also follows a setup that failed.
            self.is_set_up[arm] = true;
            self.aside(arm, Stage::Setup)?;
        }
        let since = self.commands.now();
        self.aside(arm, Stage::Prepare)?;
        self.prepared = Some(arm);
        self.around[arm] = self.commands.now().0 - since.0;
        Ok(())
    }

    /// Runs the command after a run. A command that a signal interrupts is repeated at the end.
    fn conclude(&mut self) -> Result<()> {
        let Some(arm) = self.prepared.take() else { return Ok(()) };
        let since = self.commands.now();
        let done = self.aside(arm, Stage::Conclude);
        self.around[arm] += self.commands.now().0 - since.0;
        if done.is_err() && self.stopped() {
            self.prepared = Some(arm);
            return Ok(());
        }
        done
    }

    /// Runs all remaining commands after runs and arms, despite failures; returns the first failure.
    fn tidy(&mut self) -> Result<()> {
        let mut all = self.prepared.take().map_or(Ok(()), |arm| self.aside(arm, Stage::Conclude));
        for arm in 0..self.design.arms.len() {
            if self.is_set_up[arm] {
                let done = self.aside(arm, Stage::Cleanup);
                all = all.and(done);
            }
        }
        all
    }

    fn aside(&mut self, arm: usize, stage: Stage) -> Result<()> {
        let design = self.design;
        let words = design.conditions.words(arm, stage);
        if words.is_empty() {
            return Ok(());
        }
        let of = &design.arms[arm];
        let outer = format!("{}: --{}", self.name(arm), stage.name());
        let limit = patience::limit(None, self.budget);
        let ran = self.commands.aside(of, stage, words, limit).map_err(|fault| fault.within(&outer))?;
        let next = "run it alone until it works; `plimsoll try --show` prints what was measured";
        match ran.failure {
            Some(failure) => Err(Fault::new(format!("{outer} {}", shell::words(words)), failure.words, next)),
            None => Ok(()),
        }
    }

    fn usual(&self, arm: usize) -> Option<Nanoseconds> {
        patience::usual(self.runs.done[arm].iter().map(|run| run.elapsed))
    }

    fn name(&self, arm: usize) -> String {
        format!("{}, {}", letter(arm), self.design.arms[arm].name)
    }

    /// The run with its figure of merit. A wrong result ends the arm.
    fn judged(&mut self, arm: usize, ran: Ran, round: Option<u32>, place: u32) -> Result<Run> {
        let value = self.design.merit.of(ran.mpi.unwrap_or(ran.elapsed), &ran.said, &ran.complained)?;
        if let Some(check) = &self.design.check {
            let began = UNIX_EPOCH + Duration::from_nanos(ran.started.0);
            let printed = (ran.said.as_str(), ran.complained.as_str());
            let evidence = check.evidence(Path::new(&self.design.folder), began, printed, ran.status.unwrap_or(0))?;
            match &self.runs.reference {
                None if arm == 0 => {
                    self.store.refer(self.trial, &evidence)?;
                    self.runs.reference = Some(evidence);
                }
                // The first arm has no result yet.
                None => {}
                Some(reference) => {
                    if let Some(difference) = check.difference(&evidence, reference) {
                        self.store.keep_wrong(self.trial, arm, &difference)?;
                        self.observer.note(&format!("{}: wrong: {difference}", letter(arm)));
                        self.runs.wrong[arm] = Some(difference);
                    }
                }
            }
        }
        let Ran { started, elapsed, cpu, system, probes, clocks, .. } = ran;
        let status = Some(ran.status.unwrap_or(0));
        Ok(Run { round, place, started, elapsed, cpu, system, status, value, probes, clocks })
    }
}
