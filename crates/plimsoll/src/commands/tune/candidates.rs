//! Candidates to run the program: carriers, settings and a mapping of its ranks, each with a replay's expectation.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use experiment::trial::design::Arm;
use launch::carriers::{self, Carrier, Proof, Reach};
use launch::{auto, seats};
use machine::costs::store::Known;
use machine::costs::{ENGINE, Interval};
use machine::{Fault, Result, shell};
use mapping::advice::Advice;
use serde::{Deserialize, Serialize};
use whatif::answer::{Answer, Program};
use whatif::candidate::Recorded;
use whatif::lever::Lever;
use whatif::outcome::bank::Bank;
use whatif::outcome::{Forecast, Quality};
use whatif::replay::Buffer;

use super::today::{Today, arm};
use crate::commands::expectation::{CARRIER, MAPPING, MOST_OUTSIDE, SETTING, of_job};
use crate::commands::map::{Asked, Judged, Mapped, Proposed};
use crate::machine_state::MachineState;
use crate::opened::Opened;

/// A command that may be faster than today's.
pub struct Candidate {
    pub arm: Arm,
    /// The change, as the ledger's predictions name it.
    pub changes: &'static str,
    /// The time between MPI_Init and MPI_Finalize over today's; `None`: no replay can tell.
    pub replayed: Option<Interval>,
    /// The time of the whole job over today's; `None`: no replay can tell.
    pub predicted: Option<Interval>,
    /// The share of outcomes that are expected in these intervals; `None`: not known.
    pub level: Option<f64>,
    verified: Verified,
}

/// The way in which a candidate's command is verified, apart from its runs.
enum Verified {
    /// By the MPI's own report of its carrier.
    Says(Box<(Carrier, Proof)>),
    /// By ranks that report their places.
    Seats(Box<Proposed>),
    /// By each run itself, or not at all.
    Otherwise,
}

/// A candidate that is not tried, and the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    pub name: String,
    pub why: String,
}

/// The predicted time over today's above which a candidate is not tried.
const CLEARLY_SLOWER: f64 = 1.05;

/// The most that the low end of a setting's predicted time may be for it to be tried.
const AT_BEST: f64 = 0.99;

/// Candidates, the most promising first, and those left out.
pub struct Candidates {
    pub tried: Vec<Candidate>,
    pub left_out: Vec<LeftOut>,
    pub notes: Vec<String>,
}

/// A candidate that is not judged yet.
struct Possible {
    arm: Arm,
    changes: &'static str,
    lever: Option<Lever>,
    verified: Verified,
    /// The highest expected time over today's at which it is tried.
    most: f64,
}

impl Candidates {
    /// `every`: also candidates that a replay predicts to be slower.
    ///
    /// # Errors
    /// A file of carriers says what cannot be.
    pub fn of(today: &Today, opened: &Opened, known: &Known, folder: &Path, every: bool) -> Result<Candidates> {
        let recorded = opened.recorded();
        let mut all = Candidates { tried: Vec::new(), left_out: Vec::new(), notes: Vec::new() };
        let ways = recorded.ways(&known.costs, None);
        let program = ways.and_then(|ways| Program::over(&opened.graph, &known.costs, ways, Buffer::default()));
        if let Err(fault) = &program {
            all.notes.push(format!("nothing is predicted: {}: {}", fault.subject(), fault.cause()));
        }
        let possible = all.possible(today, opened, known, &recorded)?;
        let outside = outside(opened);
        let levers: Vec<&Lever> = possible.iter().filter_map(|one| one.lever.as_ref()).collect();
        let forecasts = program.ok().and_then(|program| {
            let state = MachineState::of(known);
            let quality = Quality::of(&program, opened.summary.as_ref()).now(state.moved(), state.taken());
            let answers = program.ask(&levers).ok()?.into_iter().zip(&levers);
            let forecast =
                |(answer, lever): (Answer, &&Lever)| Bank::shipped().of_answer(&program, &quality, lever, &answer);
            Some(answers.map(forecast).collect::<Vec<Forecast>>())
        });
        let mut forecasts = forecasts.into_iter().flatten();
        for Possible { arm, changes, lever, verified, most } in possible {
            let forecast = lever.and_then(|_| forecasts.next());
            if let Some(Forecast::CannotTell { reason, .. }) = &forecast {
                all.notes.push(format!("nothing is predicted of {}: {reason}", arm.name));
            }
            let (time, level) =
                (forecast.as_ref().and_then(Forecast::run), forecast.as_ref().and_then(Forecast::level));
            // Start and end of the job may take half to twice as long under another carrier.
            let predicted = time.filter(|_| outside <= MOST_OUTSIDE).map(|time| of_job(&time, outside, (0.5, 2.0)));
            let replayed = time;
            match time.filter(|time| time.low > most && !every) {
                Some(time) => all.leave_out(&arm.name, format!("a replay predicts {}", ratio(&faster(&time), level))),
                None => all.tried.push(Candidate { arm, changes, replayed, predicted, level, verified }),
            }
        }
        all.map(opened, known, folder);
        let expected = |candidate: &Candidate| candidate.replayed.map_or(1.0, |time| time.middle);
        all.tried.sort_by(|one, other| expected(one).total_cmp(&expected(other)));
        Ok(all)
    }

    fn leave_out(&mut self, name: &str, why: impl Into<String>) {
        self.left_out.push(LeftOut { name: name.to_owned(), why: why.into() });
    }

    /// All carriers of the MPI, plimsoll's engine, and settings.
    fn possible(
        &mut self,
        today: &Today,
        opened: &Opened,
        known: &Known,
        recorded: &Recorded,
    ) -> Result<Vec<Possible>> {
        let ways = recorded.ways(&known.costs, None).ok();
        let ranks = opened.graph.hosts.len() as u32;
        let allowed = linux::affinity::allowed()?;
        let (core, no_core) = auto::own_core(ranks, auto::threads(), &allowed)?;
        let priced = ways.as_ref().map(|ways| recorded.others(&known.costs, ways, Some(core.0))).unwrap_or_default();
        let carried = ways.as_ref().map(|ways| if recorded.between { &ways.between } else { &ways.within });
        let carried = carried.map(|way| way.carrier.clone());
        let mut possible = Vec::new();
        let own = machine::here::program()?.display().to_string();
        for candidate in priced.iter().filter(|of| of.ways.between.carrier == ENGINE) {
            let name = format!("plimsoll {}", candidate.name);
            let refused = recorded.refused(candidate).or(no_core.clone().filter(|_| candidate.is_on_core()));
            match (refused, today.program()) {
                (Some(why), _) => self.leave_out(&name, why),
                (None, None) => self.leave_out(&name, "the command does not start one program by a launcher"),
                (None, Some(at)) => {
                    let words = recorded.under(&candidate.options, ranks, at);
                    let arm = arm(&name, words, Vec::new(), Some(&own));
                    let lever = Some(Lever { ways: Some(candidate.ways.clone()), ..Lever::default() });
                    let (changes, verified, most) = (CARRIER, Verified::Otherwise, CLEARLY_SLOWER);
                    possible.push(Possible { arm, changes, lever, verified, most });
                }
            }
        }
        let installation = match &today.installation {
            Ok(installation) => installation,
            Err(fault) => {
                self.leave_out("carriers of the MPI", format!("{}: {}", fault.subject(), fault.cause()));
                return Ok(possible);
            }
        };
        let (reach, between) = match recorded.between {
            true => (Reach::Anywhere, Reach::Between("")),
            false => (Reach::Host, Reach::Host),
        };
        for carrier in carriers::known()? {
            let Some(variables) = carrier.variables(installation, between).and(carrier.variables(installation, reach))
            else {
                continue;
            };
            if carried.as_ref().is_some_and(|carried| carrier.is_called(carried)) {
                continue;
            }
            let name = format!("carrier {carrier}");
            if let Some(why) = carrier.missing(installation) {
                self.leave_out(&name, why);
                continue;
            }
            let arm = match (today.is_by_plimsoll(), today.program()) {
                (true, Some(at)) => {
                    let options = ["--carrier".to_owned(), carrier.name.clone()];
                    let words = recorded.under(&options, ranks, at);
                    Arm { proven: false, ..arm(&name, words, Vec::new(), Some(&own)) }
                }
                _ => today.with(&name, &variables),
            };
            let costs = priced.iter().find(|of| of.ways.between.carrier == carrier.name);
            let lever = costs.map(|of| Lever { ways: Some(of.ways.clone()), ..Lever::default() });
            let proof = carrier.proof(installation).cloned();
            let verified = proof.map_or(Verified::Otherwise, |proof| Verified::Says(Box::new((carrier, proof))));
            possible.push(Possible { arm, changes: CARRIER, lever, verified, most: CLEARLY_SLOWER });
        }
        let crowded = ranks as usize > allowed.len();
        for setting in carriers::settings()? {
            let carrier = carried.as_deref().unwrap_or_default();
            let Some(variables) = setting.variables(installation, carrier, crowded) else { continue };
            let arm = today.with(&setting.name, &variables);
            let lever = setting.eager.map(|eager| Lever { eager: Some(eager), ..Lever::default() });
            let most = if lever.is_some() { AT_BEST } else { CLEARLY_SLOWER };
            possible.push(Possible { arm, changes: SETTING, lever, verified: Verified::Otherwise, most });
        }
        Ok(possible)
    }

    /// Adds a mapping of the ranks, if `plimsoll map` advises one.
    fn map(&mut self, opened: &Opened, known: &Known, folder: &Path) {
        let judged = Mapped::of(opened).and_then(|of| Judged::of(&of, known, &Asked::default()));
        let found = judged.and_then(|judged| {
            let keeps = judged.page().advice() == Advice::Keep;
            let proposed = (!keeps).then(|| judged.proposed(opened, folder)).transpose()?;
            Ok((judged.time, proposed))
        });
        match found {
            Err(fault) => self.leave_out("mapping", format!("{}: {}", fault.subject(), fault.cause())),
            Ok((_, None)) => self.leave_out("mapping", "no other mapping of the ranks is predicted to be faster"),
            Ok((time, Some(proposed))) => {
                let seats::SeatedCommand { words, variables, .. } = proposed.line.clone();
                let arm = arm("mapping", words, variables, None);
                let outside = outside(opened);
                let predicted = (outside <= MOST_OUTSIDE).then(|| of_job(&time, outside, (0.9, 1.1)));
                self.tried.push(Candidate {
                    arm,
                    changes: MAPPING,
                    replayed: Some(time),
                    predicted,
                    level: None,
                    verified: Verified::Seats(Box::new(proposed)),
                });
            }
        }
    }
}

impl Candidate {
    /// Verifies that the command does what it is to do; the evidence, a sentence.
    ///
    /// # Errors
    /// It does something else.
    pub fn verify(&self, input: Option<&Path>) -> Result<Option<String>> {
        match &self.verified {
            Verified::Otherwise => Ok(None),
            Verified::Seats(proposed) => {
                Ok(Some(format!("{} read back that they are in their seats", proposed.verify()?)))
            }
            Verified::Says(how) => {
                let (carrier, proof) = &**how;
                let mut command = Command::new(&self.arm.command[0]);
                command.args(&self.arm.command[1..]).envs(self.arm.variables.iter().map(|(name, value)| (name, value)));
                let failed = |e| Fault::because(shell::words(&self.arm.command), e, "run it again");
                let stdin = input.map(File::open).transpose().map_err(failed)?.map_or_else(Stdio::null, Stdio::from);
                let output = command.envs(proof.variables()).stdin(stdin).output().map_err(failed)?;
                let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
                let said = said.join("\n");
                let found = proof.among(carrier, &said)?;
                Ok(Some(format!("the MPI says '{}'", found.trim())))
            }
        }
    }
}

/// The job's time outside of the replayed part, over that part's.
fn outside(opened: &Opened) -> f64 {
    let replayed = opened.summary.as_ref().map_or(0.0, |summary| summary.totals.seconds);
    opened.seconds.map_or(0.0, |whole| (whole / replayed.max(1e-9) - 1.0).max(0.0))
}

/// The speedup over today from a time over today's.
pub fn faster(time: &Interval) -> Interval {
    Interval { low: 1.0 / time.high, middle: 1.0 / time.middle, high: 1.0 / time.low }
}

/// `1.31x (1.22 .. 1.40)`; with the share of outcomes in it `1.31x (90 %: 1.22 .. 1.40)`.
pub fn ratio(of: &Interval, level: Option<f64>) -> String {
    let digits = |value: f64| machine::figure::significant(value, 3);
    let level = level.map_or_else(String::new, |level| format!("{:.0} %: ", 100.0 * level));
    match (digits(of.low), digits(of.high)) {
        (low, high) if low == high => format!("{}x", digits(of.middle)),
        (low, high) => format!("{}x ({level}{low} .. {high})", digits(of.middle)),
    }
}
