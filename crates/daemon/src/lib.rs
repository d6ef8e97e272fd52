//! Watches the jobs of this host and moves their ranks to other cores, by the decisions of [`mapping::decision`].
//!
//! Changes are written down before they are made (`journal`), and undone when the job or the daemon ends, or when the next daemon
//! starts.
#![forbid(unsafe_code)]

mod cores;
mod decision;
#[cfg(test)]
mod hostile;
pub mod jobs;
pub mod journal;
pub mod metrics;
pub mod mover;
pub mod process;
mod state;
#[cfg(test)]
mod testing;
mod timed_reads;
mod watched;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use linux::clock;
use linux::output::replace;
use machine::bounds::{WATCHED_JOBS, WATCHED_PROFILES};
use machine::budget::Budget;
use machine::{CpuSet, Fault, FaultKind, Nanoseconds, Result};
use mapping::decision::{self as deciding, Action, Change, Decider, Process};
use profile::live::{JobState, Watch};
use profile::printable::printable;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use cores::Cores;
pub use decision::{Decision, What};
use jobs::{Found, Job, Name, UnprofiledRanks};
use journal::Journal;
pub use state::{Counts, JobStatus, RankStatus, Shown, State, Status, folder};
use timed_reads::TimedReads;
use watched::{Host, LATE, Watched};

/// Options of a daemon.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Time of one observation.
    pub window: Duration,
    /// Decide, but move nothing.
    pub dry_run: bool,
    /// The only job to watch; else all that this user may see.
    pub only: Option<Job>,
    /// File to which each observation is added, as a line of JSON.
    pub record: Option<PathBuf>,
    /// File of figures for Prometheus, rewritten after each window.
    pub metrics: Option<PathBuf>,
    pub deciding: deciding::Settings,
}

/// Time from one search for jobs and check of all threads to the next.
const SEARCH: Duration = Duration::from_secs(5);

/// The most time that the daemon waits for a job's files.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A daemon with its jobs. Dropping it restores every process that it moved.
pub struct Daemon {
    settings: Settings,
    state: State,
    journal: Journal,
    host: Host,
    cores: Cores,
    jobs: Vec<Watched>,
    record: Option<File>,
    search: jobs::Search,
    /// Jobs that cannot be watched, already reported.
    left: BTreeSet<Job>,
    /// Memory budgets for profiles: of all together and by user.
    memory: (Arc<Budget>, BTreeMap<u32, Arc<Budget>>),
    reads: TimedReads,
    searched: Option<Nanoseconds>,
    began: (Nanoseconds, u64),
    counts: Counts,
    /// Callback for each decision.
    told: Box<dyn FnMut(&Decision)>,
}

impl Daemon {
    /// Takes the folder, and restores the processes that a killed daemon had moved.
    pub fn start(folder: &Path, settings: Settings, told: impl FnMut(&Decision) + 'static) -> Result<Daemon> {
        let host = Host::here();
        let state = State::take(folder)?;
        let mut journal = Journal::open(folder, &host.boot)?;
        // Restores first: the rest may fail.
        let restored = journal.restore(&journal.processes());
        let record = settings.record.as_ref().map(|path| {
            let file = File::options().append(true).create(true).open(path);
            file.map_err(|e| Fault::unwritable(path.display().to_string(), e, "name another file with --record"))
        });
        // Files of profiles stay open.
        let limit = getrlimit(Resource::Nofile);
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
        let mut daemon = Daemon {
            cores: Cores::open()?,
            record: record.transpose()?,
            began: (clock::monotonic(), now().as_secs()),
            jobs: vec![],
            search: jobs::Search::default(),
            left: BTreeSet::new(),
            memory: (Budget::new(WATCHED_PROFILES.total.bytes().0), BTreeMap::new()),
            reads: TimedReads::new(TIMEOUT),
            searched: None,
            counts: Counts::default(),
            told: Box::new(told),
            settings,
            state,
            journal,
            host,
        };
        daemon.tell_restored("an earlier daemon", restored)?;
        Ok(daemon)
    }

    /// Ends a window: observes, decides and acts.
    ///
    /// # Errors
    /// The daemon cannot continue, as on a full disk, and is to be dropped.
    pub fn turn(&mut self) -> Result<()> {
        let search = self.searched.is_none_or(|then| clock::monotonic().0 - then.0 >= SEARCH.as_nanos() as u64);
        if search {
            self.searched = Some(clock::monotonic());
            self.find_jobs()?;
        }
        self.cores.look()?;
        for place in 0..self.jobs.len() {
            let others = self.jobs.iter().enumerate().filter(|(other, _)| *other != place);
            let others: Vec<CpuSet> = others.flat_map(|(_, job)| job.seats().cloned()).collect();
            let notes = self.jobs[place].look(&self.host, &self.cores, search, &others, &mut self.reads);
            for note in notes {
                self.tell(place, What::Noted(note))?;
            }
            if !self.jobs[place].is_rated() {
                continue;
            }
            if let Some(record) = &mut self.record {
                let line = serde_json::to_string(&self.jobs[place].last).unwrap_or_default() + "\n";
                record.write_all(line.as_bytes()).map_err(|e| Fault::because("the record", e, "free space there"))?;
            }
            let Watched { decider, last, .. } = &mut self.jobs[place];
            let actions = decider.observe(last);
            self.carry_out(place, actions)?;
        }
        while let Some(place) = self.jobs.iter().position(Watched::is_over) {
            self.end(place)?;
        }
        self.counts.windows += 1;
        let status = self.status();
        self.state.show(&status)?;
        self.settings.metrics.as_ref().map_or(Ok(()), |path| replace(path, &metrics::text(&status)))
    }

    /// Begins to watch the jobs that are new.
    fn find_jobs(&mut self) -> Result<()> {
        let found = match &self.settings.only {
            Some(job @ Job { name: Name::Profile(_), .. }) => Found::from([(job.clone(), UnprofiledRanks::new())]),
            Some(only) => self.search.find().remove_entry(only).into_iter().collect(),
            None => self.search.find(),
        };
        self.left.retain(|job| found.contains_key(job));
        self.memory.1.retain(|_, of_user| of_user.drawn() > 0);
        for (job, ranks) in found {
            if let Some(known) = self.jobs.iter_mut().find(|known| known.job == job) {
                known.found(ranks);
                continue;
            }
            match self.begin(&job) {
                Ok(Some(mut watched)) => {
                    watched.found(ranks);
                    self.jobs.push(watched);
                }
                Ok(None) => {}
                Err(fault) if self.settings.only.is_some() => return Err(fault),
                Err(fault) => {
                    if self.left.insert(job.clone()) {
                        self.log(&printable(&job.to_string()), What::Noted(printable(&format!("left: {fault}"))))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Begins to watch a job; `None` where it is over.
    ///
    /// # Errors
    /// The job cannot be watched.
    fn begin(&mut self, job: &Job) -> Result<Option<Watched>> {
        let fault = |cause: &str| {
            Fault::new("the job", cause, "watch it alone, as its user: plimsoll daemon JOB").of_kind(FaultKind::Limit)
        };
        let of_user = self.jobs.iter().filter(|known| known.job.user == job.user).count();
        if of_user >= WATCHED_JOBS.each.count() || self.jobs.len() >= WATCHED_JOBS.total.count() {
            return Err(fault("as many jobs are watched as may be at once"));
        }
        let decider = Decider::new(self.settings.deciding.clone());
        let Name::Profile(folder) = job.name.clone() else {
            return Ok(Some(Watched::new(job.clone(), None, decider)));
        };
        let (all, by_user) = &mut self.memory;
        let of_user = by_user.entry(job.user).or_insert_with(|| all.part(WATCHED_PROFILES.each.bytes().0));
        let (user, here, memory) = (job.user, self.host.clone(), of_user.clone());
        let open = move || -> Result<Option<Watch>> {
            let watch = Watch::open(&folder, Some(user), memory)?;
            Ok((watch.state(&here.looking()) == JobState::Running).then_some(watch))
        };
        let watch = self.reads.read(user, open).ok_or_else(|| fault(LATE))??;
        Ok(watch.map(|watch| Watched::new(job.clone(), Some(watch), decider)))
    }

    /// Processor time of the threads that read profiles.
    pub fn reading(&self) -> Nanoseconds {
        self.reads.used
    }

    fn carry_out(&mut self, place: usize, actions: Vec<Action>) -> Result<()> {
        for action in actions {
            let step = match &action {
                Action::Move { step, .. } | Action::Undo { step, .. } => step.clone(),
                Action::Confirm { .. } | Action::Keep { .. } => vec![],
            };
            let (is_move, is_undo) = (matches!(action, Action::Move { .. }), matches!(action, Action::Undo { .. }));
            self.counts.confirmed += u64::from(matches!(action, Action::Confirm { .. }));
            self.tell(place, What::Decided(action))?;
            match self.apply(place, &step)? {
                Ok(()) => {
                    self.counts.moves += u64::from(is_move);
                    self.counts.undone += u64::from(is_undo);
                }
                Err(reason) => {
                    self.counts.refused += 1;
                    self.tell(place, What::Refused { step: step.clone(), reason })?;
                    if is_move {
                        let actions = self.jobs[place].decider.refused(&step);
                        return self.carry_out(place, actions);
                    }
                }
            }
        }
        Ok(())
    }

    /// Carries out a step in full or not at all; the inner error is the reason, in words.
    ///
    /// # Errors
    /// The change cannot be written to the journal.
    fn apply(&mut self, place: usize, step: &[Change]) -> Result<std::result::Result<(), String>> {
        if self.settings.dry_run && !step.is_empty() {
            return Ok(Err("this is a dry run".into()));
        }
        for (nth, Change { process, from, to, .. }) in step.iter().enumerate() {
            self.journal.note(*process, from, to)?;
            if let Err(fault) = mover::settle(*process, from, to) {
                for done in step[..nth].iter().map(Change::reverse) {
                    let _ = mover::settle(done.process, &done.from, &done.to);
                    self.jobs[place].moved(done.process, &done.to);
                }
                return Ok(Err(fault.to_string()));
            }
            self.jobs[place].moved(*process, to);
        }
        Ok(Ok(()))
    }

    /// Restores the processes of a job that is over.
    fn end(&mut self, place: usize) -> Result<()> {
        let job = self.jobs.remove(place);
        let of_others: Vec<Process> = self.jobs.iter().flat_map(Watched::processes).collect();
        let left: Vec<Process> =
            self.journal.processes().into_iter().filter(|process| !of_others.contains(process)).collect();
        self.restore(&left, &job.name)?;
        self.log(&job.name, What::Noted("it is over".into()))
    }

    fn restore(&mut self, processes: &[Process], job: &str) -> Result<()> {
        let restored = self.journal.restore(processes);
        self.tell_restored(job, restored)
    }

    /// Reports all restored processes, even where the log cannot keep them.
    fn tell_restored(&mut self, job: &str, restored: Vec<What>) -> Result<()> {
        let mut told = Ok(());
        for what in restored {
            self.counts.restored += u64::from(matches!(what, What::Restored(_)));
            told = told.and(self.log(job, what));
        }
        told
    }

    fn tell(&mut self, place: usize, what: What) -> Result<()> {
        let name = self.jobs[place].name.clone();
        self.log(&name, what)
    }

    fn log(&mut self, job: &str, what: What) -> Result<()> {
        let decision = Decision { at: now().as_millis() as u64, job: job.into(), what };
        (self.told)(&decision);
        self.state.log(&decision)
    }

    fn status(&self) -> Status {
        let lived = clock::monotonic().0.saturating_sub(self.began.0.0).max(1);
        let used = linux::accounting::process_time(std::process::id()).unwrap_or_default();
        Status {
            pid: std::process::id(),
            started: self.began.1,
            updated: now().as_secs(),
            window: self.settings.window.as_secs_f64(),
            dry_run: self.settings.dry_run,
            counts: self.counts,
            cpu_share: used.0 as f64 / lived as f64,
            jobs: self.jobs.iter().map(Watched::status).collect(),
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Processes that cannot be restored stay in the journal for the next daemon.
        let _ = self.restore(&self.journal.processes(), "this daemon ends");
        let status = Status { jobs: vec![], ..self.status() };
        let _ = self.state.show(&status);
    }
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use skip::disk::Disk;

    use super::*;
    use crate::jobs::Name;
    use crate::testing::{Sleeper, two_cores};

    /// A job that no process names.
    fn job() -> Job {
        Job { user: 0, name: Name::Launcher("none".into()) }
    }

    fn start(folder: &Path) -> Result<Daemon> {
        let settings = Settings {
            window: Duration::from_secs(1),
            dry_run: false,
            only: Some(job()),
            record: None,
            metrics: None,
            deciding: deciding::Settings::default(),
        };
        Daemon::start(folder, settings, |_| {})
    }

    #[test]
    fn a_full_disk_ends_moves_and_what_was_moved_is_put_back() {
        let Some(disk) = Disk::small() else { return };
        let Some([one, two]) = two_cores() else { return };
        let ranks = [Sleeper::start(), Sleeper::start(), Sleeper::start()];
        let step = |rank: &Sleeper, to: &CpuSet| {
            let (host, process, from) = (String::new(), rank.process, rank.seat());
            vec![Change { rank: 0, host, process, from, to: to.clone() }]
        };
        let are_back = || ranks.iter().all(|rank| rank.seat() == rank.before);
        let mut daemon = start(disk.path()).unwrap();
        daemon.jobs.push(Watched::new(job(), None, Decider::new(deciding::Settings::default())));
        for rank in &ranks[..2] {
            assert_eq!(daemon.apply(0, &step(rank, &one)).unwrap(), Ok(()));
            assert_eq!(rank.seat(), one);
        }
        disk.fill(0);
        // Processes that have ended, until the last page is full too.
        let ended = (1..).map(|later| Process { started: ranks[0].process.started + later, ..ranks[0].process });
        let full = ended.map(|process| daemon.journal.note(process, &one, &two)).find_map(Result::err).unwrap();
        assert!(full.next().starts_with("free space there"), "{full}");
        assert!(daemon.apply(0, &step(&ranks[2], &two)).is_err());
        assert_eq!(ranks[2].seat(), ranks[2].before);
        // Moving a process back takes no disk space.
        assert_eq!(daemon.apply(0, &step(&ranks[0], &ranks[0].before)).unwrap(), Ok(()));
        assert_eq!(daemon.apply(0, &step(&ranks[0], &one)).unwrap(), Ok(()));
        assert!(!are_back());
        drop(daemon);
        assert!(are_back());

        disk.free();
        let mut journal = Journal::open(disk.path(), &Host::here().boot).unwrap();
        for rank in &ranks {
            journal.note(rank.process, &rank.before, &one).unwrap();
            rank.settle(&one);
        }
        disk.fill(0);
        // Dropped whether or not it could start.
        let _started = start(disk.path());
        assert!(are_back());
    }
}
