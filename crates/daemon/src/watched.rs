//! A watched job: an observation for the decider from each window.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use linux::clock;
use machine::{CoreId, CpuSet, FaultKind, Nanoseconds};
use mapping::decision::{CoreSeen, Decider, Observation, Process, RankSeen};
use profile::live::{Here, JobState, Look, RankState, Watch};
use profile::printable::printable;
use record::folder::variable;

use crate::cores::Cores;
use crate::jobs::{Job, Name, UnprofiledRanks};
use crate::mover;
use crate::process::{self, Environment, Held, Used};
use crate::state::{JobStatus, RankStatus};
use crate::timed_reads::TimedReads;

/// Share of sleep below which a rank is taken to spin while it waits; its waiting time is then unknown.
const LEAST_SLEEP: f64 = 0.02;

/// Share of rest from which a rank does not meet all that others do on its core.
const RESTS: f64 = 0.2;

/// Share of its cores that others must have taken in the last window for the kernel to be asked how they keep a rank from them:
/// that takes a file for each thread.
const LEAST_TAKEN: f64 = 0.05;

/// Reason why a rank of another host is left alone; a daemon there may move it.
const ELSEWHERE: &str = "it is on another host";

/// Most notes kept of a job.
const NOTES: usize = 100;
/// Most cores of other hosts kept of a job.
const MOST_REMOTE_CORES: usize = 16384;

enum By {
    /// `watch` is `None` once the profile could not be read in time.
    Profile {
        watch: Option<Box<Watch>>,
        last: Option<Box<Look>>,
    },
    SchedulingData,
}

/// A rank's process on this host.
struct Tracked {
    process: Held,
    /// The mask that was last read or set.
    seat: CpuSet,
    allowed: CpuSet,
    /// The NUMA node of its first seat, where its memory is.
    node: Option<u32>,
    held: Option<String>,
    before: Option<(Nanoseconds, Used)>,
    /// In the last window: use of one core, and shares of time.
    cpu: Option<f64>,
    denied: Option<f64>,
    rested: Option<f64>,
    /// Times a second that its threads were put on a core.
    turns: Option<f64>,
    /// Share of `cpu` in the kernel.
    system: Option<f64>,
}

pub struct Watched {
    /// The identity of the job from one search for jobs to the next.
    pub job: Job,
    /// The job in words.
    pub name: String,
    by: By,
    pub decider: Decider,
    /// Ranks of this host, by process.
    tracked: BTreeMap<Process, Tracked>,
    plain: UnprofiledRanks,
    /// Cores of other hosts where ranks of the job were seen.
    elsewhere: BTreeSet<(String, CoreId)>,
    pub last: Observation,
    notes: Vec<String>,
}

impl Watched {
    /// `watch` is that of the job's profile, where it has one.
    pub fn new(job: Job, watch: Option<Watch>, decider: Decider) -> Watched {
        let by = match watch {
            Some(watch) => By::Profile { watch: Some(Box::new(watch)), last: None },
            None => By::SchedulingData,
        };
        let name = printable(&job.to_string());
        let (tracked, plain, elsewhere, last, notes) = Default::default();
        Watched { job, name, by, decider, tracked, plain, elsewhere, last, notes }
    }

    /// Sets the ranks that a search found, for a job without a profile.
    pub fn found(&mut self, ranks: UnprofiledRanks) {
        self.plain = ranks;
    }

    /// Whether there is nothing left to watch.
    pub fn is_over(&self) -> bool {
        match &self.by {
            By::Profile { watch, last } => {
                let is_running = |look: &Look| look.job.state == JobState::Running;
                watch.is_none() || !last.as_deref().is_none_or(is_running)
            }
            By::SchedulingData => !self.plain.values().any(|process| process::is_there(*process)),
        }
    }

    /// The processes of this host that are followed.
    pub fn processes(&self) -> impl Iterator<Item = Process> {
        self.tracked.keys().copied()
    }

    /// Whether the last window has rates, which need two samples.
    pub fn is_rated(&self) -> bool {
        let first = |rank: &RankSeen| self.tracked.get(&rank.process).is_some_and(|tracked| tracked.cpu.is_none());
        !self.last.ranks.iter().any(first)
    }

    /// The seats of the job's ranks on this host.
    pub fn seats(&self) -> impl Iterator<Item = &CpuSet> {
        self.tracked.values().map(|tracked| &tracked.seat)
    }

    /// Notes that the daemon moved a process.
    pub fn moved(&mut self, process: Process, to: &CpuSet) {
        if let Some(tracked) = self.tracked.get_mut(&process) {
            tracked.seat = to.clone();
        }
    }

    /// Leaves a rank alone from now on; returns the remark, the first time.
    fn hold(&mut self, process: Process, why: String) -> Option<String> {
        let tracked = self.tracked.get_mut(&process).filter(|tracked| tracked.held.is_none())?;
        tracked.held = Some(why.clone());
        Some(format!("process {} is left alone: {why}", process.pid))
    }

    /// Ends a window. With `thorough`, also reads the masks of threads and the control groups. Returns the new remarks.
    pub fn look(
        &mut self,
        here: &Host,
        cores: &Cores,
        thorough: bool,
        others: &[CpuSet],
        beside: &mut TimedReads,
    ) -> Vec<String> {
        let mut said = Vec::new();
        let ranks = match &mut self.by {
            By::Profile { watch, last } => {
                let read = watch.take().and_then(|mut watch| {
                    let here = here.clone();
                    let look = move || (watch.look(&here.looking()), watch);
                    beside.read(self.job.user, look)
                });
                let Some((look, read)) = read else {
                    self.last = Observation::default();
                    return vec![format!("left: {LATE}")];
                };
                for note in look.notes.iter().map(|note| printable(note)) {
                    if self.notes.len() < NOTES && !self.notes.contains(&note) {
                        said.push(note.clone());
                        self.notes.push(note);
                    }
                }
                *watch = Some(read);
                *last = Some(Box::new(look.clone()));
                self.of_profile(here, cores, &look, thorough, &mut said)
            }
            By::SchedulingData => self.of_kernel(here, cores, thorough, &mut said),
        };
        let there: BTreeSet<Process> = ranks.iter().map(|rank| rank.process).collect();
        self.tracked.retain(|process, _| there.contains(process));
        let elsewhere = ranks.iter().filter(|rank| rank.host != here.name);
        let elsewhere = elsewhere.flat_map(|rank| rank.cores.iter().map(|core| (rank.host.clone(), core)));
        self.elsewhere.extend(elsewhere.take(MOST_REMOTE_CORES.saturating_sub(self.elsewhere.len())));
        let cores = self.cores(here, cores, others);
        self.last = Observation { time: clock::monotonic(), ranks, cores };
        said
    }

    fn of_profile(
        &mut self,
        here: &Host,
        cores: &Cores,
        look: &Look,
        thorough: bool,
        said: &mut Vec<String>,
    ) -> Vec<RankSeen> {
        let is_alive =
            |state: &RankState| matches!(state, RankState::Starting | RankState::Computing | RankState::Inside { .. });
        // The first living MPI_COMM_WORLD: others were spawned from it, or those before it are over.
        let world = look.ranks.iter().find(|now| is_alive(&now.state)).map_or(0, |now| now.world);
        // Messages measure progress; calls do only where there are no messages, since calls that poll count too.
        let by_messages = look.ranks.iter().any(|rank| rank.messages.is_some_and(|messages| messages > 0.0));
        let hosts: BTreeMap<u32, &str> = look
            .ranks
            .iter()
            .filter_map(|now| Some((now.rank.filter(|_| now.world == world)?, now.host.as_str())))
            .collect();
        let elsewhere = |host: &str, rank: &u32| hosts.get(rank).is_some_and(|its| *its != host);
        let mut ranks = Vec::new();
        for now in look.ranks.iter().filter(|now| now.world == world && is_alive(&now.state)) {
            let Some(rank) = now.rank else { continue };
            let mut seen = RankSeen {
                rank,
                host: printable(&now.host),
                mpi: now.mpi,
                wait: now.wait,
                blocked: now.blocked,
                pause: now.pause,
                progress: if by_messages { now.messages } else { now.calls },
                partner: now.partners.iter().copied().find(|rank| elsewhere(&now.host, rank)),
                ..RankSeen::default()
            };
            let process = (now.host == here.name).then(|| self.identify(now.pid)).flatten();
            match process.filter(|process| self.tracked.contains_key(process) || self.is_its_own(*process)) {
                Some(process) => self.follow(process, cores, thorough, false, said, &mut seen),
                None => {
                    seen.process.pid = now.pid;
                    seen.cores = now.core.map(CoreId).into_iter().collect();
                    seen.held = Some(ELSEWHERE.into());
                }
            }
            ranks.push(seen);
        }
        ranks
    }

    /// The process of this number: a living process that is already followed, or a new one.
    fn identify(&self, pid: u32) -> Option<Process> {
        let known = Process { pid, started: 0 }..=Process { pid, started: u64::MAX };
        let mut known = self.tracked.range(known).filter(|(_, tracked)| tracked.process.is_there());
        known.next().map(|(process, _)| *process).or_else(|| process::identify(pid))
    }

    /// Whether a process that a profile names writes that profile: a writer may name any process in a profile.
    fn is_its_own(&self, process: Process) -> bool {
        let Name::Profile(folder) = &self.job.name else { return false };
        let named = Environment::of(process.pid).and_then(|environment| environment.get(variable::FOLDER));
        named.is_some_and(|named| Path::new(&named) == folder.as_path())
            && process::user(process.pid) == Some(self.job.user)
    }

    fn of_kernel(&mut self, here: &Host, cores: &Cores, thorough: bool, said: &mut Vec<String>) -> Vec<RankSeen> {
        let mut ranks = Vec::new();
        for (rank, process) in self.plain.clone() {
            if self.identify(process.pid) != Some(process) {
                continue;
            }
            let mut seen = RankSeen { rank, host: here.name.clone(), ..RankSeen::default() };
            self.follow(process, cores, thorough, true, said, &mut seen);
            if let Some(tracked) = self.tracked.get(&process) {
                seen.denied = tracked.denied;
                seen.wait = tracked.rested.filter(|rested| *rested >= LEAST_SLEEP);
                seen.pause = seen.wait.zip(tracked.turns).map(|(wait, turns)| wait / turns);
            }
            ranks.push(seen);
        }
        ranks
    }

    /// Fills in the kernel's data on a process of this host.
    fn follow(
        &mut self,
        process: Process,
        cores: &Cores,
        thorough: bool,
        delays: bool,
        said: &mut Vec<String>,
        seen: &mut RankSeen,
    ) {
        seen.process = process;
        let is_new = !self.tracked.contains_key(&process);
        if is_new || thorough {
            said.extend(self.examine(process, cores));
        }
        let host = &seen.host;
        let taken = |core| {
            self.last
                .cores
                .iter()
                .any(|at| at.host == *host && at.core == core && at.taken.is_none_or(|taken| taken >= LEAST_TAKEN))
        };
        let Some(tracked) = self.tracked.get_mut(&process) else { return };
        let now = clock::monotonic();
        let wanted = delays || tracked.before.is_none() || tracked.seat.iter().any(taken);
        let used = Used::of(process, wanted);
        if let (Some((then, before)), Some(used)) = (tracked.before, used) {
            let share = |now: Nanoseconds, before: Nanoseconds, passed: u64| {
                now.0.saturating_sub(before.0) as f64 / passed.max(1) as f64
            };
            let passed = now.0.saturating_sub(then.0);
            let cpu = share(used.cpu, before.cpu, passed);
            let grown = used.denied.zip(before.denied);
            let denied = grown.map(|(now, before)| share(now.time, before.time, passed));
            tracked.turns = grown
                .map(|(now, before)| now.turns.saturating_sub(before.turns).max(1) as f64 * 1e9 / passed.max(1) as f64);
            tracked.system = (cpu > 0.0).then(|| (1.0 - share(used.user, before.user, passed) / cpu).max(0.0));
            tracked.cpu = Some(cpu);
            tracked.denied = denied.map(|denied| denied.min(1.0));
            tracked.rested = denied.map(|denied| (1.0 - cpu - denied).max(0.0));
        }
        tracked.before = used.map(|used| (now, used));
        seen.cores = tracked.seat.clone();
        seen.allowed = tracked.allowed.clone();
        seen.node = tracked.node;
        seen.held = tracked.held.clone();
        seen.system = tracked.system;
    }

    /// Reads the masks of all threads of a process and its control group.
    fn examine(&mut self, process: Process, cores: &Cores) -> Option<String> {
        let seat = mover::seat(process);
        let allowed = linux::shield::cores_of(process.pid).unwrap_or_else(|_| cores.online().clone());
        let tracked = self.tracked.entry(process).or_insert_with(|| {
            let seat = seat.as_ref().ok().cloned().flatten().unwrap_or_default();
            Tracked {
                process: Held::new(process),
                node: cores.node_of(&seat),
                seat,
                allowed: CpuSet::default(),
                held: None,
                before: None,
                cpu: None,
                denied: None,
                rested: None,
                turns: None,
                system: None,
            }
        });
        tracked.allowed = allowed.intersection(cores.online());
        let why = match seat {
            Ok(Some(seat)) if seat == tracked.seat => return None,
            Ok(Some(seat)) => {
                let before = std::mem::replace(&mut tracked.seat, seat.clone());
                format!("its program, or another, moved it from {before} to {seat}")
            }
            Ok(None) => "its program pinned its threads each for itself".into(),
            Err(fault) if fault.kind() == FaultKind::Closed => return None,
            Err(fault) => fault.to_string(),
        };
        self.hold(process, why)
    }

    /// Length of the stretches for which others, who take this share, keep the rank of a core from it; `None` where the core has
    /// not one rank, or the kernel was not asked.
    fn stretch(&self, core: CoreId, taken: Option<f64>) -> Option<f64> {
        let mut here = self.tracked.values().filter(|tracked| tracked.seat.contains(core));
        let (one, None) = (here.next()?, here.next()) else { return None };
        let (turns, denied, rested) = (one.turns?, one.denied?, one.rested?);
        // Of a rank that never rests, what others take without its being denied the core are interrupts.
        let share = if rested < RESTS { denied / taken?.max(f64::MIN_POSITIVE) } else { 1.0 };
        Some(denied / turns * share.min(1.0))
    }

    fn cores(&self, here: &Host, cores: &Cores, others: &[CpuSet]) -> Vec<CoreSeen> {
        // Share of each core that ranks used: a rank's use is spread evenly over the cores of its seat.
        let mut used: BTreeMap<CoreId, f64> = BTreeMap::new();
        for tracked in self.tracked.values() {
            let each = tracked.cpu.unwrap_or(0.0) / tracked.seat.len().max(1) as f64;
            tracked.seat.iter().for_each(|core| *used.entry(core).or_default() += each);
        }
        let look = match &self.by {
            By::Profile { last, .. } => last.as_deref(),
            By::SchedulingData => None,
        };
        let softirq = |host: &str, core: CoreId| {
            let now = look?.cores.iter().find(|now| now.host == host && now.core == core.0);
            now?.softirq
        };
        let own = cores.online().iter().map(|core| {
            let rest = cores.busy(core).map(|busy| (busy - used.get(&core).unwrap_or(&0.0)).clamp(0.0, 1.0));
            // Softirqs are charged to the thread that they interrupt, where the kernel does not count them apart.
            let taken = rest.map(|rest| rest.max(softirq(&here.name, core).unwrap_or(0.0)));
            CoreSeen {
                host: here.name.clone(),
                core,
                node: cores.node(core),
                taken,
                stretch: self.stretch(core, taken),
                occupied: others.iter().any(|seat| seat.contains(core)),
            }
        });
        let elsewhere = self.elsewhere.iter().map(|(host, core)| CoreSeen {
            host: host.clone(),
            core: *core,
            node: None,
            taken: softirq(host, *core),
            stretch: None,
            occupied: false,
        });
        own.chain(elsewhere).collect()
    }

    pub fn status(&self) -> JobStatus {
        let taken = |rank: &RankSeen| {
            let of = |core| self.last.cores.iter().find(|seen| seen.host == rank.host && seen.core == core)?.taken;
            let sum = rank.cores.iter().map(of).sum::<Option<f64>>()?;
            (!rank.cores.is_empty()).then(|| sum / rank.cores.len() as f64)
        };
        let rank = |rank: &RankSeen| RankStatus {
            rank: rank.rank,
            host: rank.host.clone(),
            pid: rank.process.pid,
            cores: rank.cores.to_string(),
            mpi: rank.mpi,
            wait: rank.wait,
            taken: taken(rank),
            held: rank.held.clone(),
        };
        let sees = match self.by {
            By::Profile { .. } => "its profile",
            By::SchedulingData => "scheduling data only: not who waits for whom; plimsoll profile would tell",
        };
        JobStatus {
            name: self.name.clone(),
            sees: sees.into(),
            ranks: self.last.ranks.iter().map(rank).collect(),
            notes: self.notes.clone(),
        }
    }
}

/// Reason why a job is not watched.
pub const LATE: &str = "its profile takes too long to be read";

/// This host, as profiles name it.
#[derive(Clone)]
pub struct Host {
    pub name: String,
    pub boot: String,
    pid_namespace: u32,
}

impl Host {
    pub fn here() -> Host {
        let boot = machine::here::boot().unwrap_or_default();
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Host { name, boot, pid_namespace: linux::accounting::pid_namespace() }
    }

    pub fn looking(&self) -> Here<'_> {
        Here {
            boot: self.boot.clone(),
            monotonic: &|| clock::monotonic().0,
            pid_namespace: self.pid_namespace,
            is_alive: &linux::accounting::is_there,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use machine::budget::Budget;
    use mapping::decision::Settings;
    use profile::job::Job as Run;

    use super::*;

    #[test]
    fn a_profile_moves_no_process_but_its_own() {
        let home = tempfile::tempdir().unwrap();
        let [ours, theirs] = ["ours", "theirs"].map(|name| home.path().join(name));
        [&ours, &theirs].into_iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
        Run::default().write(&ours).unwrap();
        let user = rustix::process::geteuid().as_raw();
        let watched = |user| {
            let watch = Watch::open(&ours, None, Budget::new(1 << 30)).unwrap();
            let job = Job { user, name: Name::Profile(ours.clone()) };
            Watched::new(job, Some(watch), Decider::new(Settings::default()))
        };
        let [job, of_another] = [user, user + 1].map(watched);
        for (folder, is_its_own) in [(&ours, true), (&theirs, false)] {
            let mut child = Command::new("sleep").arg("600").env(variable::FOLDER, folder).spawn().unwrap();
            let process = process::identify(child.id()).unwrap();
            // The child has its own environment once it has executed its program.
            while Environment::of(process.pid).and_then(|of| of.get(variable::FOLDER)).is_none() {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            assert_eq!(job.is_its_own(process), is_its_own);
            assert!(!of_another.is_its_own(process));
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert!(!job.is_its_own(process::identify(std::process::id()).unwrap()));
    }
}
