//! Jobs for tests: ranks that compute and then wait for the slowest rank, on cores with other work.

use machine::{CoreId, CpuSet, Nanoseconds};

use super::{Action, CoreSeen, Decider, Observation, Process, RankSeen};

pub struct Rank {
    pub host: &'static str,
    pub core: u32,
    /// Computing of one iteration on a whole core.
    pub work: f64,
    pub partner: Option<u32>,
}

pub struct Job {
    pub ranks: Vec<Rank>,
    /// By host and core: the share that other work takes.
    pub cores: Vec<(&'static str, u32, f64)>,
    /// The factor by which an iteration is longer for a rank on a core, which no observation shows.
    pub hidden: fn(usize, u32) -> f64,
    /// Half the width of the noise of every share and rate.
    pub noise: f64,
    pub seed: u64,
    pub time: u64,
}

impl Job {
    /// A job of `mapping`, ranks by core with four cores a host; other work takes `taken` of the first core of each host.
    pub fn of(mapping: [[u32; 4]; 2], work: [f64; 8], taken: f64) -> Job {
        let seat = |rank: u32| {
            let place = mapping.iter().flatten().position(|there| *there == rank).unwrap();
            (["one", "two"][place / 4], place as u32 % 4)
        };
        let rank = |(rank, work): (usize, f64)| {
            let (host, core) = seat(rank as u32);
            Rank { host, core, work, partner: None }
        };
        let cores = ["one", "two"]
            .into_iter()
            .flat_map(|host| (0..4).map(move |core| (host, core, if core == 0 { taken } else { 0.0 })));
        Job {
            ranks: work.into_iter().enumerate().map(rank).collect(),
            cores: cores.collect(),
            hidden: |_, _| 1.0,
            noise: 0.0,
            seed: 1,
            time: 0,
        }
    }

    fn capability(&self, rank: usize) -> f64 {
        let Rank { host, core, .. } = self.ranks[rank];
        let taken = self.cores.iter().find(|(of, number, _)| (*of, *number) == (host, core)).unwrap().2;
        (1.0 - taken) / (self.hidden)(rank, core)
    }

    /// Time of each rank's computing, and of an iteration. Partners on unlike cores wait for each other.
    fn times(&self) -> (Vec<f64>, f64) {
        let busy: Vec<f64> = (0..self.ranks.len()).map(|rank| self.ranks[rank].work / self.capability(rank)).collect();
        let unlike = (0..self.ranks.len()).filter_map(|rank| {
            Some((self.capability(rank) - self.capability(self.ranks[rank].partner? as usize)).abs())
        });
        let out_of_phase: f64 = unlike.sum::<f64>() / self.ranks.len() as f64;
        let slowest = busy.iter().copied().fold(0.0, f64::max);
        (busy, slowest + out_of_phase)
    }

    /// Time of an iteration.
    pub fn iteration(&self) -> f64 {
        self.times().1
    }

    fn jitter(&mut self) -> f64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.seed >> 33) as f64 / f64::from(1_u32 << 31) * 2.0 - 1.0) * self.noise
    }

    pub fn window(&mut self) -> Observation {
        self.time += 1_000_000_000;
        let (busy, iteration) = self.times();
        let all: CpuSet = (0..4).map(CoreId).collect();
        let mut ranks = Vec::new();
        for (place, busy) in busy.into_iter().enumerate() {
            let wait = (1.0 - busy / iteration + self.jitter()).clamp(0.0, 1.0);
            let progress = 1000.0 / iteration * (1.0 + self.jitter());
            let Rank { host, core, partner, .. } = self.ranks[place];
            ranks.push(RankSeen {
                rank: place as u32,
                host: host.into(),
                process: Process { pid: 100 + place as u32, started: 1 },
                cores: [CoreId(core)].into_iter().collect(),
                allowed: all.clone(),
                node: Some(0),
                held: None,
                mpi: Some((wait + 0.05).min(1.0)),
                wait: Some(wait),
                blocked: None,
                pause: Some(wait * iteration * 1e-3),
                system: None,
                denied: None,
                progress: Some(progress),
                partner,
            });
        }
        let mut cores = Vec::new();
        for place in 0..self.cores.len() {
            let (host, core, taken) = self.cores[place];
            let taken = Some((taken + self.jitter()).clamp(0.0, 1.0));
            cores.push(CoreSeen {
                host: host.into(),
                core: CoreId(core),
                node: Some(0),
                taken,
                stretch: Some(0.0),
                occupied: false,
            });
        }
        Observation { time: Nanoseconds(self.time), ranks, cores }
    }

    pub fn apply(&mut self, actions: &[Action]) {
        for action in actions {
            let (Action::Move { step, .. } | Action::Undo { step, .. }) = action else { continue };
            for change in step {
                let rank = &mut self.ranks[change.rank as usize];
                assert_eq!([CoreId(rank.core)].into_iter().collect::<CpuSet>(), change.from);
                rank.core = change.to.first().unwrap().0;
            }
        }
    }

    /// The actions of `windows` windows, each carried out at once.
    pub fn run(&mut self, decider: &mut Decider, windows: usize) -> Vec<Action> {
        let mut all = Vec::new();
        for _ in 0..windows {
            let actions = decider.observe(&self.window());
            self.apply(&actions);
            all.extend(actions);
        }
        all
    }
}
