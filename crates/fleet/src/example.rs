//! A year of made-up jobs, so that a centre sees its pages before any job was recorded; what tests and benches begin with.
//!
//! The figures are invented, each program's of a kind: what it sends, waits for and would gain differs as such programs do.

use machine::Result;
use profile::verdict::Cause;
use rounds::random::Random;

use crate::harvest::SHORTEST;
use crate::store::Store;
use crate::summary::{End, Gain, Hindrance, Job, Lever, Owner, Program, Size, Summary, Unjudged, VERSION};

/// What every form of an example says first.
pub const LABEL: &str = "An example: a year of made-up jobs, of no centre.";

/// 2025-01-01.
const BEGAN: u64 = 1_735_689_600;
const DAY: u64 = 86_400;
const DAYS: u64 = 365;
const SEED: u64 = 0x00E8_A391;

/// The summary of a job: an hour on 10 cores, which an adapter would shorten.
pub fn job(number: u64, program: &str) -> Summary {
    Summary {
        version: VERSION,
        job: Job { cluster: "example".into(), id: number, array: None, step: 0, restart: 0 },
        owner: Owner { user: 1_000, group: "physics".into() },
        partition: "small".into(),
        program: Program { hash: Some("0".repeat(32)), name: program.into() },
        started: 1_767_225_600,
        seconds: 3_600.0,
        nodes: 1,
        cores: 10,
        ranks: 10,
        expected: 10,
        end: End::Finished,
        library: Some("Open MPI".into()),
        mpi: Some(0.5),
        wait: Some(0.25),
        sizes: vec![Size { floor: 8, messages: 3, bytes: 30 }],
        hindrances: vec![Hindrance { cause: "late".into(), share: 0.1 }],
        levers: vec![Gain { lever: Lever::Offload, share: (0.1, 0.2) }],
        unjudged: None,
        model: "example".into(),
        clocks_apart: None,
        unbound: Some(0),
    }
}

/// A program, and what its jobs are like.
struct Kind {
    name: &'static str,
    group: &'static str,
    partition: &'static str,
    users: u32,
    /// Jobs of the year.
    jobs: u64,
    /// Hours of a job, and nodes; a job has up to twice as many.
    hours: f64,
    nodes: u32,
    mpi: f64,
    wait: f64,
    /// Middles of what offload, a dedicated core and a mapping save.
    gains: [f64; 3],
    /// Floor of the messages' most frequent size.
    message: u64,
    cause: Cause,
    /// Days on which a new version came.
    versions: &'static [u64],
}

const CORES: u32 = 96;

#[rustfmt::skip]
const KINDS: [Kind; 10] = [
    // Many small messages to other hosts.
    Kind { name: "ocean", group: "climate", partition: "large", users: 9, jobs: 640, hours: 9.0, nodes: 24, mpi: 0.34, wait: 0.12, gains: [0.055, 0.021, 0.012], message: 1 << 9, cause: Cause::TinyMessages, versions: &[0, 96, 251] },
    // Pairs of neighbours of which many sit on two hosts.
    Kind { name: "airflow", group: "engineering", partition: "large", users: 14, jobs: 910, hours: 5.0, nodes: 12, mpi: 0.27, wait: 0.09, gains: [0.018, 0.009, 0.046], message: 1 << 13, cause: Cause::RunDelay, versions: &[0, 140] },
    // The version of August waits more.
    Kind { name: "molecules", group: "chemistry", partition: "small", users: 22, jobs: 1_500, hours: 6.0, nodes: 4, mpi: 0.31, wait: 0.08, gains: [0.034, 0.028, 0.006], message: 1 << 11, cause: Cause::Late, versions: &[0, 61, SLOWER, 310] },
    // All to all, in large messages.
    Kind { name: "bands", group: "chemistry", partition: "small", users: 17, jobs: 1_200, hours: 3.0, nodes: 6, mpi: 0.41, wait: 0.11, gains: [0.030, 0.002, 0.009], message: 1 << 17, cause: Cause::NoOverlap, versions: &[0, 180] },
    // Sums over all ranks, again and again.
    Kind { name: "lattice", group: "physics", partition: "large", users: 6, jobs: 420, hours: 11.0, nodes: 32, mpi: 0.22, wait: 0.06, gains: [0.024, 0.036, 0.004], message: 1 << 3, cause: Cause::Stolen, versions: &[0] },
    // Nearly no messages.
    Kind { name: "ensemble", group: "physics", partition: "long", users: 11, jobs: 1_050, hours: 20.0, nodes: 2, mpi: 0.015, wait: 0.006, gains: [0.001, 0.0, 0.0], message: 1 << 6, cause: Cause::Late, versions: &[0, 222] },
    // Ranks in a row, each of which waits for the one before.
    Kind { name: "seismic", group: "earth", partition: "large", users: 5, jobs: 330, hours: 7.0, nodes: 16, mpi: 0.38, wait: 0.29, gains: [0.008, 0.011, 0.002], message: 1 << 15, cause: Cause::Serialised, versions: &[0, 120] },
    // Parts of unequal size: its ranks wait, and no lever of the machine helps.
    Kind { name: "mesher", group: "engineering", partition: "small", users: 12, jobs: 800, hours: 1.5, nodes: 3, mpi: 0.36, wait: 0.31, gains: [0.002, 0.001, 0.003], message: 1 << 12, cause: Cause::Late, versions: &[0, 45, 200] },
    // Gradients of all devices.
    Kind { name: "training", group: "learning", partition: "gpu", users: 19, jobs: 700, hours: 14.0, nodes: 8, mpi: 0.18, wait: 0.10, gains: [0.021, 0.013, 0.001], message: 1 << 20, cause: Cause::NoOverlap, versions: &[0, 30, 75, 130, 190, 260, 330] },
    // Many jobs of which most are too short to be judged.
    Kind { name: "genomes", group: "life", partition: "small", users: 31, jobs: 1_900, hours: 0.0003, nodes: 1, mpi: 0.05, wait: 0.02, gains: [0.002, 0.001, 0.001], message: 1 << 8, cause: Cause::Late, versions: &[0] },
];

/// The day, 2025-08-12, and what its version waits more.
const SLOWER: u64 = 223;
const MORE: f64 = 0.06;

/// A store in memory with a year of jobs, the same ones every time.
///
/// # Errors
/// There is no memory for it.
pub fn store() -> Result<Store> {
    let mut store = Store::in_memory(LABEL)?;
    let kinds = KINDS.iter().enumerate();
    let jobs: Vec<Summary> = kinds.flat_map(|(place, kind)| kind.year(place as u64)).collect();
    store.add(&jobs)?;
    Ok(store)
}

impl Kind {
    fn year(&self, place: u64) -> impl Iterator<Item = Summary> {
        let mut random = Random::stream(SEED, place);
        (0..self.jobs).map(move |number| self.job(10_000 * place + number, place, &mut random))
    }

    fn job(&self, number: u64, place: u64, random: &mut Random) -> Summary {
        let day = random.below(DAYS as usize) as u64;
        let version = self.versions.iter().filter(|first| **first <= day).count() as u64;
        let hash = format!("{:016x}{:016x}", Random::stream(place, version).draw(), version);
        // From a half to twice, most near one; without functions whose last digit is another library's.
        let mut about = |middle: f64| match random.unit() + random.unit() {
            below @ ..1.0 => middle * (0.5 + 0.5 * below),
            above => middle * above,
        };
        let (mpi, wait) = (about(self.mpi).min(0.9), about(self.wait));
        let later = if self.name == "molecules" && day >= SLOWER { about(MORE) } else { 0.0 };
        let (wait, mpi) = (wait.min(0.9 * mpi) + later, mpi + later);
        let seconds = about(3_600.0 * self.hours);
        let nodes = about(f64::from(self.nodes)).round().max(1.0) as u32;
        let messages = about(400.0 * seconds * f64::from(nodes)) as u64;
        let gains = self.gains.map(&mut about);
        let levers = [Lever::Offload, Lever::DedicatedCore, Lever::Mapping].into_iter().zip(gains);
        let judged = seconds >= SHORTEST;
        let mut levers: Vec<Gain> =
            levers.map(|(lever, gain)| Gain { lever, share: (0.4 * gain, 1.6 * gain) }).collect();
        levers.push(Gain { lever: Lever::Clock, share: (0.0, (1.0 - wait) / 11.0) });
        let unjudged = match random.below(50) {
            _ if !judged => Some(Unjudged::TooShort),
            0 => Some(Unjudged::LostRanks),
            _ => None,
        };
        let ranks = nodes * CORES;
        Summary {
            owner: Owner {
                user: 1_000 + 100 * place as u32 + random.below(self.users as usize) as u32,
                group: self.group.into(),
            },
            partition: self.partition.into(),
            program: Program { hash: Some(hash), name: self.name.into() },
            started: BEGAN + day * DAY + random.below(DAY as usize) as u64,
            seconds,
            nodes,
            cores: ranks,
            ranks: ranks - u32::from(unjudged == Some(Unjudged::LostRanks)),
            expected: ranks,
            mpi: Some(mpi),
            wait: Some(wait),
            sizes: vec![Size { floor: self.message, messages, bytes: messages * self.message * 3 / 2 }],
            hindrances: vec![Hindrance { cause: self.cause.name().into(), share: wait }],
            levers: if unjudged.is_some() { Vec::new() } else { levers },
            unjudged,
            ..job(number, self.name)
        }
    }
}
