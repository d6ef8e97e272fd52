//! A runner whose machine is a formula: known truths, seeded noise.
#![allow(dead_code)]

use experiment::conduct::conduct;
use experiment::design::{Design, Grounds, Group, MINIMUM_ROUNDS};
use experiment::designs::Beginning;
use experiment::findings::Question;
use experiment::observer::{Observer, Progress};
use experiment::store::{Contents, Store, Study};
use machine::accounting::{Accounting, CoreCost, Softirq, ThreadCost};
use machine::{Bytes, CoreId, Fault, Nanoseconds, Probe, Reading, Result, Site};
use rounds::point::{Path, Pattern, PointSpec, Receiver, Stack};
use rounds::random::Random;
use rounds::sample::{Runner, Sample};
use rounds::sitting::End;

/// Value and CPU nanoseconds per message of a point, before noise.
pub type Truth = fn(&PointSpec) -> Result<(f64, f64)>;

pub struct Simulated {
    pub truth: Truth,
    pub random: Random,
    /// Standard deviation of a block, as a share.
    pub noise: f64,
    /// Share by which the whole machine drifts from one round to the next.
    pub drift: f64,
    pub blocks: usize,
    /// Called before a block, with how many were run.
    pub before: fn(usize),
    /// What a block of a point takes.
    pub cost: fn(&PointSpec) -> Nanoseconds,
    /// Whether the cores are near at a time of the clock.
    pub near: fn(Nanoseconds) -> bool,
    pub clock: Nanoseconds,
}

impl Simulated {
    pub fn new(truth: Truth, seed: u64) -> Self {
        Simulated {
            truth,
            random: Random::new(seed),
            noise: 0.02,
            drift: 0.0,
            blocks: 0,
            before: |_| {},
            cost: |_| Nanoseconds(50_000_000),
            near: |_| true,
            clock: Nanoseconds(0),
        }
    }

    fn normal(&mut self) -> f64 {
        let (u, v) = (1.0 - self.random.unit(), self.random.unit());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }
}

impl Runner for Simulated {
    fn run_block(&mut self, spec: &PointSpec, round: u32, order: u32) -> Result<Sample> {
        (self.before)(self.blocks);
        self.blocks += 1;
        let (value, cpu) = (self.truth)(spec)?;
        let noise = (1.0 + self.noise * self.normal()).max(0.1) * (1.0 + self.drift * f64::from(round));
        let messages = 1000;
        let started = Nanoseconds(1_700_000_000_000_000_000) + self.clock;
        let one_way = if (self.near)(self.clock) { 45_000 } else { 135_000 };
        self.clock = self.clock + (self.cost)(spec);
        Ok(Sample {
            round,
            order,
            started,
            messages,
            elapsed: Nanoseconds(50_000_000),
            value: value * noise,
            lost: 0,
            probe: Some(Probe { half_round_trip_ps: one_way }),
            clocks: Default::default(),
            accounting: Some(accounting(spec, cpu * messages as f64 * (1.0 + self.noise * self.normal()).max(0.1))),
            notes: Vec::new(),
        })
    }

    fn now(&self) -> Nanoseconds {
        self.clock
    }
}

fn accounting(spec: &PointSpec, cpu: f64) -> Accounting {
    let absent = || Reading::absent("the simulated machine has no such counter");
    let softirq = |time| Reading::Measured(Softirq { count: time / 1000, time: Nanoseconds(time) });
    Accounting {
        remote_cores: None,
        cores: vec![CoreCost {
            core: CoreId(63),
            net_rx: softirq(1_000_000),
            net_tx: softirq(0),
            interrupts: Reading::Measured(0),
        }],
        threads: vec![ThreadCost {
            end: "local".into(),
            role: "app".into(),
            core: Reading::Measured(spec.local_core),
            cpu: Reading::Measured(Nanoseconds(cpu as u64)),
            voluntary_switches: Reading::Measured(0),
            involuntary_switches: Reading::Measured(0),
            cycles: absent(),
            instructions: absent(),
            cache_misses: absent(),
        }],
        overhead: Nanoseconds(10_000),
    }
}

/// Conducts a study of `design` to its end in a store of its own.
pub fn run(design: &Design, runner: &mut dyn Runner, seed: u64) -> (Study, Contents) {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::open(&folder.path().join("study.sqlite")).unwrap();
    let beginning =
        Beginning { design, seed, host: "simulated", version: "0", facts: &[], now: Nanoseconds(1_700_000_000) };
    let mut study = store.begin(&beginning).unwrap();
    let outcome = conduct(&mut store, &mut study, runner, &mut Notes::default(), &|| false).unwrap();
    assert_eq!(outcome, End::Finished);
    store.finish(&mut study, Nanoseconds(1_700_000_001)).unwrap();
    let contents = store.contents(&study).unwrap();
    (study, contents)
}

/// What is noted.
#[derive(Default)]
pub struct Notes(pub Vec<String>);

impl Observer for Notes {
    fn progress(&mut self, _: &Progress) {}

    fn note(&mut self, text: &str) {
        self.0.push(text.to_owned());
    }
}

pub fn grounds() -> Grounds {
    Grounds {
        cores: vec![CoreId(0), CoreId(1)],
        distance: None,
        network: Path::Lab,
        protocol_core: Some(CoreId(0)),
        networks: Vec::new(),
        peer_cores: Vec::new(),
        at_app: false,
        open_mpi: false,
        budget: Nanoseconds(150_000_000_000),
    }
}

/// One comparison: the engine over UDP at `app` and the kernel's TCP, 8 B ping-pong in the lab.
pub fn duel() -> Design {
    let point = |stack| PointSpec {
        perturbation: Bytes(3),
        path: Path::Lab,
        ..PointSpec::plain(stack, Pattern::PingPong, 8, (CoreId(0), CoreId(1)))
    };
    Design {
        grounds: grounds(),
        minimum_rounds: MINIMUM_ROUNDS,
        groups: vec![Group {
            questions: vec![Question::BetweenHosts],
            pattern: Pattern::PingPong,
            size: Bytes(8),
            rank: 0,
            points: vec![point(Stack::EngineUdp), point(Stack::Tcp)],
        }],
        notes: Vec::new(),
    }
}

/// Shared memory and UDP behave as one would hope; TCP wins above 64 KiB; an own core is slower and dearer.
pub fn plausible(spec: &PointSpec) -> Result<(f64, f64)> {
    let (start, per_byte) = match (spec.stack, &spec.placement) {
        (Stack::EngineShm, Site::App) => (200.0, 0.1),
        (Stack::EngineShm, _) => (900.0, 0.15),
        (Stack::EngineUdp, Site::App) => (4_000.0, 0.5),
        (Stack::EngineUdp, _) => (9_000.0, 0.6),
        (Stack::EngineAfxdp, _) => (5_000.0, 0.8),
        (Stack::EngineXdp, _) => (5_500.0, 1.0),
        (Stack::Udp, _) => (4_500.0, 0.4),
        (Stack::Tcp, _) => (6_000.0, 0.45),
        (Stack::OpenMpi, _) => return Err(Fault::new("open-mpi", "not installed here", "install it")),
    };
    let own_core = if matches!(spec.placement, Site::Core(_)) { 2.0 } else { 1.0 };
    let on_protocol_core = spec.protocol_core == Some(spec.remote_core);
    let slowed = if on_protocol_core && spec.receiver == Receiver::Works { 1.5 } else { 1.0 };
    let half_round_trip = (start + per_byte * spec.size.0 as f64) * slowed;
    let value = match spec.pattern {
        Pattern::PingPong => half_round_trip,
        Pattern::MessageRate => 1e9 / half_round_trip,
        _ => spec.size.0 as f64 * 1e9 / half_round_trip,
    };
    Ok((value, half_round_trip * own_core))
}
