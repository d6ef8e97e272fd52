//! Carries a trial out: whole runs in rounds, each stored before the next, until it can be told or the time is over.

use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use machine::{Fault, Nanoseconds, Result};

use super::design::{Arm, Design, letter};
use super::judgement::{Judgement, judge};
use super::store::{Store, Trial};
use super::{Run, Runs};
use crate::contrast::{FIRST_LOOK, looks};
use crate::order::of_round;
use crate::sample::Probe;
use crate::statistics::median;

/// A run takes so many times as long as usual before it is ended.
const PATIENCE: u64 = 10;

/// And no less than this.
const LEAST_PATIENCE: Nanoseconds = Nanoseconds(60_000_000_000);

/// Rounds that are tried for one that can be held against the others, where the machine changes within rounds.
const MOST_TRIES: usize = 8;

/// What a run gave, before it is judged.
#[derive(Debug, Clone)]
pub struct Ran {
    /// Wall clock at the start, since the Unix epoch.
    pub started: Nanoseconds,
    pub elapsed: Nanoseconds,
    pub cpu: Option<Nanoseconds>,
    pub said: String,
    pub complained: String,
    /// Why it did not end as it should.
    pub failure: Option<String>,
    pub probes: [Option<Probe>; 2],
}

/// Runs commands. The real one starts processes.
pub trait Commands {
    /// Runs the arm once, for `limit` at most.
    ///
    /// # Errors
    /// It could not be started at all.
    fn run(&mut self, arm: &Arm, limit: Nanoseconds) -> Result<Ran>;

    /// The clock that the budget is counted by.
    fn now(&self) -> Nanoseconds;

    /// Why the commands are not what they were when the trial began, where that is so.
    fn changed(&mut self, _design: &Design) -> Option<String> {
        None
    }
}

/// Watches a trial.
pub trait Observer {
    /// `left` is the most time that it still takes.
    fn run_starts(&mut self, arm: usize, round: Option<u32>, left: Nanoseconds);
    fn note(&mut self, text: &str);
}

/// Why a trial ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Settled,
    OutOfTime,
    /// `stop` said so: it can go on.
    Interrupted,
}

/// Carries `trial` out from wherever it stands.
///
/// # Errors
/// The store fails; the first arm cannot be run; another cannot when it is first run; six rounds do not fit the budget.
pub fn conduct(
    store: &mut Store,
    trial: &Trial,
    commands: &mut dyn Commands,
    observer: &mut dyn Observer,
    budget: Nanoseconds,
    stop: &dyn Fn() -> bool,
) -> Result<(Runs, End)> {
    let runs = store.runs(trial)?;
    let mut sitting = Sitting { design: &trial.design, store, trial, commands, observer, budget, stop, runs };
    let end = sitting.sit()?;
    Ok((sitting.runs, end))
}

struct Sitting<'a> {
    design: &'a Design,
    store: &'a mut Store,
    trial: &'a Trial,
    commands: &'a mut dyn Commands,
    observer: &'a mut dyn Observer,
    budget: Nanoseconds,
    stop: &'a dyn Fn() -> bool,
    runs: Runs,
}

impl Sitting<'_> {
    fn sit(&mut self) -> Result<End> {
        if self.warm_up()? == End::Interrupted {
            return Ok(End::Interrupted);
        }
        let first = self.runs.next_round();
        self.fits(first)?;
        let arms = self.design.arms.len();
        let mut judgement = judge(self.design, &self.runs);
        // What was stored may be enough.
        let mut beaten = vec![false; arms];
        let mut rounds = self.rounds(&judgement, &beaten);
        let mut look = looks().find(|look| *look as usize >= rounds).unwrap_or(FIRST_LOOK);
        for (tries, round) in (first..).enumerate() {
            // Between two looks nothing is decided.
            if rounds >= look as usize || tries >= MOST_TRIES * look as usize {
                if judgement.is_settled() {
                    return Ok(End::Settled);
                }
                beaten = (0..arms).map(|arm| judgement.is_beaten(arm)).collect();
                look = looks().find(|next| *next > look && *next as usize > rounds).unwrap_or(look);
            }
            let takes = (0..arms).filter(|&arm| !beaten[arm]).map(|arm| self.usual(arm)).sum();
            if self.runs.spent + Nanoseconds(takes) > self.budget {
                return Ok(if judgement.is_settled() { End::Settled } else { End::OutOfTime });
            }
            if let Some(why) = self.commands.changed(self.design) {
                return Err(Fault::new(
                    "the trial",
                    why,
                    "begin anew: `plimsoll try --fresh`, with the same arguments",
                ));
            }
            for (order, arm) in of_round(self.trial.seed, round, arms).into_iter().enumerate() {
                if !beaten[arm] && self.take(arm, Some(round), order as u32)? == End::Interrupted {
                    return Ok(End::Interrupted);
                }
            }
            judgement = judge(self.design, &self.runs);
            rounds = self.rounds(&judgement, &beaten);
            if self.runs.left_out(0).is_some() || (1..arms).all(|arm| self.runs.left_out(arm).is_some()) {
                return Ok(End::Settled);
            }
        }
        Ok(End::OutOfTime)
    }

    /// Rounds that all arms have which are still compared.
    fn rounds(&self, judgement: &Judgement, beaten: &[bool]) -> usize {
        let open = (1..beaten.len()).filter(|&arm| !beaten[arm] && self.runs.left_out(arm).is_none());
        open.map(|arm| judgement.rounds(arm)).min().unwrap_or(0)
    }

    /// Runs that do not count, which show at once what cannot be run.
    fn warm_up(&mut self) -> Result<End> {
        for pass in 0..self.design.warmup {
            for arm in 0..self.design.arms.len() {
                if self.take(arm, None, pass)? == End::Interrupted {
                    return Ok(End::Interrupted);
                }
            }
        }
        Ok(End::Settled)
    }

    /// Refuses what cannot come to its first look in time.
    fn fits(&self, first: u32) -> Result<()> {
        let round: u64 = (0..self.design.arms.len()).map(|arm| self.usual(arm)).sum();
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

    /// What a run of the arm usually takes, with all around it.
    fn usual(&self, arm: usize) -> u64 {
        let lengths: Vec<f64> = self.runs.done[arm].iter().map(|run| run.elapsed.0 as f64).collect();
        median(&lengths).unwrap_or(0.0) as u64
    }

    fn take(&mut self, arm: usize, round: Option<u32>, order: u32) -> Result<End> {
        if (self.stop)() {
            return Ok(End::Interrupted);
        }
        if self.runs.left_out(arm).is_some() {
            return Ok(End::Settled);
        }
        self.observer.run_starts(arm, round, Nanoseconds(self.budget.0.saturating_sub(self.runs.spent.0)));
        let limit = match self.usual(arm) {
            0 => Nanoseconds(self.budget.0.max(LEAST_PATIENCE.0)),
            usual => Nanoseconds((PATIENCE * usual).max(LEAST_PATIENCE.0)),
        };
        let began = self.commands.now();
        let ran = self.commands.run(&self.design.arms[arm], limit);
        if (self.stop)() {
            return Ok(End::Interrupted);
        }
        let run = ran.and_then(|ran| self.judged(arm, ran, round, order));
        let spent = Nanoseconds(self.commands.now().0 - began.0);
        self.runs.spent = self.runs.spent + spent;
        match run {
            Ok(run) => {
                self.store.keep(self.trial, arm, &run, spent)?;
                self.runs.done[arm].push(run);
            }
            // What cannot be run at all shows at once.
            Err(fault) if round.is_none() => {
                return Err(fault.within(format!("{}, {}", letter(arm), self.design.arms[arm].name)));
            }
            Err(fault) => {
                let why = format!("{}: {}", fault.subject(), fault.cause());
                self.store.keep_failure(self.trial, arm, &why, spent)?;
                self.observer.note(&format!("{}: {why}", letter(arm)));
                self.runs.failed[arm].push(why);
            }
        }
        Ok(End::Settled)
    }

    /// A run as it counts; a result that is wrong ends its arm.
    fn judged(&mut self, arm: usize, ran: Ran, round: Option<u32>, order: u32) -> Result<Run> {
        if let Some(why) = ran.failure {
            return Err(Fault::new("the run", why, "run the command alone until it works, then try again"));
        }
        let value = self.design.merit.of(ran.elapsed, &ran.said, &ran.complained)?;
        if let Some(check) = &self.design.check {
            let began = UNIX_EPOCH + Duration::from_nanos(ran.started.0);
            let evidence = check.evidence(Path::new(&self.design.folder), began, &ran.said, &ran.complained)?;
            match &self.runs.reference {
                None if arm == 0 => {
                    self.store.refer(self.trial, &evidence)?;
                    self.runs.reference = Some(evidence);
                }
                // Nothing to hold it against yet.
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
        let Ran { started, elapsed, cpu, probes, .. } = ran;
        Ok(Run { round, order, started, elapsed, cpu, value, probes })
    }
}
