//! Commands whose truth is known, on a simulated machine, and trials of them.

use experiment::axes::{Axes, Value};
use experiment::cause::Failure;
use experiment::designs::Beginning;
use experiment::trial::Runs;
use experiment::trial::aside::{Aside, Stage};
use experiment::trial::conditions::Conditions;
use experiment::trial::conduct::{Commands, Ran, conduct};
use experiment::trial::design::{Arm, Design};
use experiment::trial::judgement::{Judgement, judge};
use experiment::trial::merit::Merit;
use experiment::trial::store::{Store, Trial};
use machine::{CoreId, Hertz, Nanoseconds, Probe, Reading, Result};
use rounds::clocks::Clocks;
use rounds::random::Random;
use rounds::sitting::End;

use crate::simulated::Notes;

pub const SECOND: u64 = 1_000_000_000;

/// Commands named by what they take, in seconds.
pub struct Simulated {
    pub random: Random,
    pub noise: f64,
    pub clock: u64,
    pub runs: Vec<String>,
    /// All that was run, in its order: `1`, or `setup 1` beside it.
    pub all: Vec<String>,
    /// The command beside the runs that fails.
    pub breaks: Option<Stage>,
    /// What a run prints, and why it fails.
    pub says: fn(&str, usize) -> (String, Option<String>),
    /// How near the cores are and how much slower all is, at a time.
    pub machine: fn(u64) -> (u64, f64),
    /// Of its only core, at a time, MHz.
    pub mhz: fn(u64) -> u64,
    /// How much longer the run of that number takes by what came before it.
    pub behind: fn(usize) -> f64,
}

impl Simulated {
    pub fn new(seed: u64, noise: f64) -> Simulated {
        let says = |_: &str, _| (String::new(), None);
        Simulated {
            random: Random::new(seed),
            noise,
            clock: 0,
            runs: vec![],
            all: vec![],
            breaks: None,
            says,
            machine: |_| (50_000, 1.0),
            mhz: |_| 3000,
            behind: |_| 1.0,
        }
    }
}

impl Commands for Simulated {
    fn run(&mut self, arm: &Arm, _: Nanoseconds) -> Result<Ran> {
        let truth: f64 = arm.command[0].parse().unwrap();
        let (u, v) = (1.0 - self.random.unit(), self.random.unit());
        let normal = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
        let (before, slower) = (self.machine)(self.clock);
        let slower = slower * (self.behind)(self.runs.len());
        let elapsed = Nanoseconds((truth * slower * (self.noise * normal).exp() * SECOND as f64) as u64);
        let started = Nanoseconds(self.clock);
        let clocks = |mhz: u64| Clocks::of([(CoreId(0), Reading::Measured(Hertz(mhz * 1_000_000)))]);
        let slow = clocks((self.mhz)(self.clock));
        self.clock += elapsed.0;
        let after = (self.machine)(self.clock).0;
        let (said, failure) = (self.says)(&arm.command[0], self.runs.len());
        self.runs.push(arm.command[0].clone());
        self.all.push(arm.command[0].clone());
        let probe = |ps| Some(Probe { half_round_trip_ps: ps });
        let probes = [probe(before), probe(after)];
        let clocks = [slow, clocks((self.mhz)(self.clock))];
        let complained = String::new();
        let failure = failure.map(|why| Failure::of_program(why, ""));
        let status = failure.as_ref().map(|_| 7);
        let (mpi, cpu, system) = (None, Some(elapsed), Some(Nanoseconds(elapsed.0 / 4)));
        Ok(Ran { started, elapsed, mpi, cpu, system, said, complained, failure, status, probes, clocks })
    }

    /// Takes as long as a run of 1 s, and is named by its only word.
    fn aside(&mut self, arm: &Arm, stage: Stage, words: &[String], _: Nanoseconds) -> Result<Ran> {
        self.all.push(format!("{} {}", words[0], arm.command[0]));
        self.clock += SECOND;
        Ok(Ran {
            started: Nanoseconds(self.clock),
            elapsed: Nanoseconds(SECOND),
            mpi: None,
            cpu: None,
            system: None,
            said: String::new(),
            complained: String::new(),
            failure: (self.breaks == Some(stage)).then(|| Failure::of_program("exit code 9: no room", "")),
            status: None,
            probes: [None; 2],
            clocks: Default::default(),
        })
    }

    fn now(&self) -> Nanoseconds {
        Nanoseconds(self.clock)
    }
}

pub fn design(arms: &[&str]) -> Design {
    let arm = |name: &&str| Arm {
        name: (*name).to_owned(),
        axes: Axes::default().with("command", Value::List(vec![(*name).to_owned()])),
        command: vec![(*name).to_owned()],
        variables: vec![],
        proven: false,
        line: (*name).to_owned(),
    };
    Design {
        arms: arms.iter().map(arm).collect(),
        merit: Merit::new(None, false).unwrap(),
        check: None,
        margin: 0.02,
        warmup: 1,
        folder: ".".into(),
        programs: vec![],
        nodes: String::new(),
        conditions: Conditions::default(),
    }
}

/// With all commands beside the runs of both arms.
pub fn surrounded() -> Design {
    let word = |stage: Stage| vec![stage.name().to_owned()];
    let [setup, prepare, conclude, cleanup] = Stage::ALL.map(word);
    let aside = vec![Aside { setup, prepare, conclude, cleanup }; 2];
    Design { conditions: Conditions { aside, ..Conditions::default() }, ..design(&["1", "2"]) }
}

pub struct Conducted {
    pub trial: Trial,
    pub runs: Runs,
    pub end: End,
    pub judgement: Judgement,
    pub notes: Vec<String>,
}

pub fn begin(store: &mut Store, design: Design, seed: u64, now: u64) -> Result<Trial> {
    let (host, now) = ("host", Nanoseconds(now));
    store.begin(&Beginning { design: &design, seed, host, version: "0", facts: &[], now })
}

pub fn carry_out(design: Design, machine: &mut Simulated, budget: u64) -> Result<Conducted> {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::open(&folder.path().join("try.sqlite")).unwrap();
    let seed = machine.random.draw();
    let trial = begin(&mut store, design, seed, 0).unwrap();
    let mut notes = Notes::default();
    let budget = Nanoseconds(budget * SECOND);
    let (runs, end) = conduct(&mut store, &trial, machine, &mut notes, budget, &|| false)?;
    assert_eq!(store.runs(&trial).unwrap(), runs, "what is stored is what is judged");
    let judgement = judge(&trial.design, &runs);
    Ok(Conducted { trial, runs, end, judgement, notes: notes.0 })
}
