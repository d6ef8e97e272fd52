//! The decisions of the daemon: moves of ranks of a running job, verdicts on them, and undoing.
//!
//! A [`Decider`] gets one [`Observation`] a window and returns actions. It has no clock: observations have their time.
//! A proposal must promise a gain in each of several windows in a row, moves are few, and each is judged by the job's
//! progress before and after; a move that does not help is undone and not tried again for this job.
//!
//! A move that gains whatever waiting ranks do with their core is tried at once. One that gains only if they keep it is tried
//! once the job has run so long that what the trial may lose is a small share of it.

mod observation;
mod proposal;
mod seating;
mod settings;
mod trial;

#[cfg(test)]
mod scheduled;
#[cfg(test)]
mod simulated;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use machine::{CpuSet, Nanoseconds};
use serde::{Deserialize, Serialize};

pub use observation::{CoreSeen, Observation, Process, RankSeen};
use proposal::{Barred, Proposal, propose};
pub use proposal::{Change, Step};
use seating::{Seating, Waiting};
use settings::HOUR;
pub use settings::Settings;
use trial::Trial;
pub use trial::{Measure, Verdict};

/// An action for the daemon, with its evidence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Put ranks elsewhere: one to free cores, or two into each other's place.
    Move {
        /// The changes, carried out together or not at all.
        step: Step,
        /// The share of the job's time that the whole proposal should save: the least and the most of the windows.
        gain: (f64, f64),
        /// The evidence, in words.
        reason: String,
    },
    /// Take back a move that did not help.
    Undo {
        /// The changes, carried out together.
        step: Step,
        /// The evidence, in words.
        reason: String,
    },
    /// Keep the moves that were made.
    Confirm {
        /// The evidence, in words.
        reason: String,
    },
    /// Move nothing.
    Keep {
        /// The reason why nothing is moved.
        reason: String,
    },
}

impl Action {
    /// The action's reason, in words.
    pub fn reason(&self) -> &str {
        match self {
            Action::Move { reason, .. }
            | Action::Undo { reason, .. }
            | Action::Confirm { reason }
            | Action::Keep { reason } => reason,
        }
    }
}

enum Phase {
    Watching,
    /// Windows that must still pass before the next proposal.
    Cooling(usize),
    Trying(Trial),
}

/// Reason why nothing is moved; kept so that a reason is reported once.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Idle {
    NothingHelps,
    TooLittle,
    Risky,
    Unjudged,
    Spent,
}

/// The state of the decisions for one job.
pub struct Decider {
    settings: Settings,
    /// The latest windows, all alike.
    history: VecDeque<Observation>,
    phase: Phase,
    /// Where moves that were refused or taken back had put ranks.
    barred: Barred,
    /// Windows so far, and the windows' worth of work that trials lost.
    watched: usize,
    lost: f64,
    /// Times of the moves within the last hour.
    moves: VecDeque<Nanoseconds>,
    told: Option<Idle>,
}

impl Decider {
    /// A decider that has seen nothing yet.
    pub fn new(settings: Settings) -> Decider {
        let (history, barred, moves) = Default::default();
        Decider { settings, history, phase: Phase::Watching, barred, watched: 0, lost: 0.0, moves, told: None }
    }

    /// The actions after this window.
    pub fn observe(&mut self, seen: &Observation) -> Vec<Action> {
        self.watched += 1;
        if self.history.back().is_some_and(|before| !before.is_alike(seen)) {
            self.history.clear();
        }
        self.history.push_back(seen.clone());
        while self.history.len() > self.settings.steady.max(1) {
            self.history.pop_front();
        }
        match std::mem::replace(&mut self.phase, Phase::Watching) {
            Phase::Trying(trial) => self.go_on(trial, seen),
            Phase::Cooling(windows) if windows > 1 => {
                self.phase = Phase::Cooling(windows - 1);
                vec![]
            }
            Phase::Cooling(_) => vec![],
            Phase::Watching if self.history.len() < self.settings.steady.max(1) => vec![],
            Phase::Watching => self.consider(seen),
        }
    }

    /// The actions after a move that the caller could not or would not carry out.
    pub fn refused(&mut self, step: &[Change]) -> Vec<Action> {
        self.bar(step);
        let Phase::Trying(mut trial) = std::mem::replace(&mut self.phase, Phase::Watching) else { return vec![] };
        trial.done.retain(|done| done != step);
        let back = trial.reverse();
        self.cool();
        match back.is_empty() {
            true => vec![],
            false => vec![Action::Undo { step: back, reason: "the move was to go with one that was refused".into() }],
        }
    }

    fn cool(&mut self) {
        self.history.clear();
        self.told = None;
        self.phase = Phase::Cooling(self.settings.cooling);
    }

    fn bar(&mut self, step: &[Change]) {
        self.barred.extend(step.iter().map(|change| (change.rank, change.to.clone())));
    }

    fn go_on(&mut self, mut trial: Trial, seen: &Observation) -> Vec<Action> {
        if !trial.is_as_left(seen) {
            self.cool();
            let reason =
                "ranks ended, or others moved them or changed where they may be: the move is not judged".into();
            return vec![Action::Keep { reason }];
        }
        if !trial.pending.is_empty() {
            return self.carry_on(trial, seen);
        }
        let Some(verdict) = trial.judge(seen, self.settings.judged) else {
            self.phase = Phase::Trying(trial);
            return vec![];
        };
        let reason = verdict.told();
        if verdict.better >= self.settings.better {
            self.cool();
            return vec![Action::Confirm { reason }];
        }
        self.lost += verdict.lost();
        trial.done.iter().for_each(|step| self.bar(step));
        self.cool();
        vec![Action::Undo { step: trial.reverse(), reason }]
    }

    fn consider(&mut self, seen: &Observation) -> Vec<Action> {
        while self.moves.front().is_some_and(|moved| moved.0 + HOUR.0 <= seen.time.0) {
            self.moves.pop_front();
        }
        let left = self.settings.moves_an_hour.saturating_sub(self.moves.len());
        let Some(mean) = Observation::mean(self.history.iter()) else { return vec![] };
        let find = |waiting| {
            let proposal = propose(&mean, waiting, left.max(1), &self.barred)?;
            let gains = gains(self.history.iter(), &proposal.seats, waiting)?;
            Some((proposal, gains))
        };
        let enough = |(_, (least, _)): &(Proposal, (f64, f64))| *least >= self.settings.minimal_gain;
        let safe = find(Waiting::GivesWay).filter(enough);
        let is_safe = safe.is_some();
        let Some((proposal, gain)) = safe.or_else(|| find(Waiting::Keeps)) else {
            return self.keep(Idle::NothingHelps, nothing_helps(&mean));
        };
        let reason = evidence(&mean, &proposal, gain, self.history.len());
        if gain.0 < self.settings.minimal_gain {
            return self.keep(Idle::TooLittle, format!("too little, or not in each window: {reason}"));
        }
        if !self.may_stake((!is_safe).then_some(&proposal.seats[..])) {
            let why = "what may be lost, with what was, is too much for the time that the job has run";
            return self.keep(Idle::Risky, format!("{why}: {reason}"));
        }
        if left == 0 {
            let most = self.settings.moves_an_hour;
            return self.keep(Idle::Spent, format!("{most} moves were made within the hour: {reason}"));
        }
        let promise = (gain, reason.clone());
        let Some(trial) = Trial::of(proposal.steps, self.history.iter(), self.settings.settling, promise) else {
            return self.keep(Idle::Unjudged, format!("nothing would tell whether it helped: {reason}"));
        };
        self.carry_on(trial, seen)
    }

    /// Whether the job has run long enough for what trials lost, and for what one of these `risky` seats may lose.
    fn may_stake(&self, risky: Option<&[CpuSet]>) -> bool {
        let worst = risky.map_or(Some((0.0, 0.0)), |seats| gains(self.history.iter(), seats, Waiting::GivesWay));
        let Some((worst, _)) = worst else { return false };
        // A gain of -1 is twice the time, half of the work.
        let loss = (1.0 - 1.0 / (1.0 - worst.min(0.0))) * (self.settings.settling + 1) as f64;
        self.lost + loss <= self.settings.stake * self.watched as f64
    }

    fn carry_on(&mut self, mut trial: Trial, seen: &Observation) -> Vec<Action> {
        let steps = trial.next();
        self.moves.extend(steps.iter().map(|_| seen.time));
        let (gain, reason) = (trial.gain, trial.reason.clone());
        self.phase = Phase::Trying(trial);
        steps.into_iter().map(|step| Action::Move { step, gain, reason: reason.clone() }).collect()
    }

    fn keep(&mut self, idle: Idle, reason: String) -> Vec<Action> {
        if self.told.replace(idle) == Some(idle) { vec![] } else { vec![Action::Keep { reason }] }
    }
}

/// The least and the most of the windows' gains.
fn gains<'a>(
    mut windows: impl Iterator<Item = &'a Observation>,
    seats: &[CpuSet],
    waiting: Waiting,
) -> Option<(f64, f64)> {
    windows.try_fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), window| {
        let gain = Seating::of(window, waiting).gain(seats)?;
        Some((gain.min(least), gain.max(most)))
    })
}

impl Verdict {
    fn told(&self) -> String {
        let (what, digits) = match self.measure {
            Measure::Progress => ("progress of all ranks a second", 1),
            Measure::Undenied => ("ranks that others keep from no core", 3),
        };
        let Verdict { before, after, better, windows, .. } = self;
        format!(
            "{what}: {before:.digits$} before, {after:.digits$} after; better in {:.0} % of pairs with {windows} windows after",
            better * 100.0
        )
    }
}

/// A rank and its seat in words, with the known shares of computing, waiting and other work.
fn told(seating: &Seating, rank: &RankSeen) -> String {
    let taken = seating.capability(&rank.host, &rank.cores).map(|capability| 1.0 - capability);
    let computing = rank.mpi.map(|mpi| 1.0 - mpi);
    let known = [("computes", computing), ("waits", rank.wait), ("others take of its cores", taken)];
    let known = known.iter().filter_map(|(what, share)| Some(format!("{what} {:.0} %", (*share)? * 100.0)));
    let known: Vec<String> = known.collect();
    let known = if known.is_empty() { "nothing is known of it".into() } else { known.join(", ") };
    format!("rank {} on {}:{} ({known})", rank.rank, rank.host, rank.cores)
}

fn evidence(mean: &Observation, proposal: &Proposal, gain: (f64, f64), windows: usize) -> String {
    let seating = Seating::of(mean, Waiting::Keeps);
    let moved = |cores: &CpuSet, rank: &RankSeen| *cores != rank.cores;
    let ranks = mean.ranks.iter().zip(&proposal.seats).filter(|(rank, seat)| moved(seat, rank));
    let ranks: Vec<String> = ranks.map(|(rank, seat)| format!("{} to {seat}", told(&seating, rank))).collect();
    let (least, most) = (gain.0 * 100.0, gain.1 * 100.0);
    format!("{}; it should save {least:.0} to {most:.0} % of the time by {windows} windows", ranks.join("; "))
}

fn nothing_helps(mean: &Observation) -> String {
    let busy = |rank: &&RankSeen| 1.0 - rank.wait.unwrap_or(0.0);
    let slowest = mean.ranks.iter().max_by(|a, b| busy(a).total_cmp(&busy(b)));
    match slowest {
        Some(rank) => format!("no move would help the slowest, {}", told(&Seating::of(mean, Waiting::Keeps), rank)),
        None => "no rank is there".into(),
    }
}
