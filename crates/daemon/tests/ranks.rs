//! Real ranks under a daemon that sees them by their profile: a move that helps and stays, one that does not and is taken
//! back, and ranks that outlive their launcher.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use daemon::jobs::Job;
use daemon::process::{self, Environment};
use daemon::{Daemon, Settings, Shown, What, mover};
use launch::family::Family;
use linux::{affinity, mask};
use machine::{CoreId, CpuSet};
use mapping::decision::{self, Action, Process};
use record::folder::{RANKS, variable};
use record::rank::Rank;
use rustix::process::{Pid, Signal, kill_process, setpriority_process};
use testbed::recording::{Recording, Recordings};
use testbed::unequal::{Hog, UNEQUAL};
use testbed::{Mpi, Place};

fn two_cores() -> Option<[CoreId; 2]> {
    match affinity::allowed().unwrap()[..] {
        [a, b, ..] => Some([a, b]),
        _ => {
            skip::test("a daemon needs two cores to move ranks between");
            None
        }
    }
}

fn record(mpi: &Mpi, place: &Place, program: &Path) -> Recordings {
    // Killed ranks leave their shared memory behind, which is removed with the place.
    let memory = "OMPI_MCA_btl_vader_backing_directory";
    Recording::under(mpi, 2, program).cores().env(memory, place.path()).run(place, "profile", skip::LIMIT)
}

/// The ranks that write this profile, once they have left MPI_Init and each is alone on its core.
fn bound(folder: &Path, cores: [CoreId; 2]) -> [Process; 2] {
    let rank = |pid: u32| {
        let environment = Environment::of(pid)?;
        let is_its = environment.get(variable::FOLDER).map(PathBuf::from).as_deref() == Some(folder);
        let rank = ["OMPI_COMM_WORLD_RANK", "PMI_RANK"].into_iter().find_map(|name| environment.get(name))?;
        let process = process::identify(pid).filter(|_| is_its)?;
        Some((rank.parse::<usize>().ok()?, process))
    };
    let is_begun = |path: PathBuf| Rank::header(&path).is_ok_and(|header| header.initialized != 0);
    let deadline = Instant::now() + skip::LIMIT;
    loop {
        let entries = std::fs::read_dir(folder.join(RANKS)).into_iter().flatten().flatten();
        let begun = entries.filter(|entry| is_begun(entry.path())).count();
        let ranks: BTreeMap<usize, Process> = process::all().filter_map(rank).collect();
        if let (2, [first, second]) = (begun, &ranks.into_values().collect::<Vec<_>>()[..]) {
            for (process, core) in [first, second].into_iter().zip(cores) {
                let seat = mover::seat(*process).unwrap().expect("its threads have one mask");
                mover::settle(*process, &seat, &[core].into_iter().collect()).unwrap();
            }
            return [*first, *second];
        }
        assert!(Instant::now() < deadline, "the ranks do not start");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn masks(ranks: [Process; 2]) -> Vec<CpuSet> {
    let of = |process: Process| process::threads(process).into_iter().filter_map(|thread| mask::get(thread).ok());
    ranks.into_iter().flat_map(of).collect()
}

fn settings(folder: &Path, window: Duration, deciding: decision::Settings) -> Settings {
    let only = Some(Job::named(folder).unwrap());
    Settings { window, dry_run: false, only, record: None, metrics: None, deciding }
}

/// Ends the ranks when dropped, also where the test fails.
struct Stop<'a>(&'a Place);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        std::fs::write(self.0.path().join("stop"), "").unwrap();
    }
}

/// The decisions of a daemon so far, without notes.
#[derive(Clone, Default)]
struct Log(Rc<RefCell<Vec<Action>>>);

impl Log {
    fn start(&self, state: &Path, settings: Settings) -> Daemon {
        let log = self.0.clone();
        let note = move |decision: &daemon::Decision| {
            if let What::Decided(action) = &decision.what {
                log.borrow_mut().push(action.clone());
            }
        };
        Daemon::start(state, settings, note).unwrap()
    }

    /// Runs the daemon until it makes a decision of this kind.
    fn until(&self, daemon: &mut Daemon, window: Duration, is_wanted: fn(&Action) -> bool) -> Action {
        let deadline = Instant::now() + skip::LIMIT;
        let known = self.0.borrow().len();
        loop {
            daemon.turn().unwrap();
            if let Some(action) = self.0.borrow()[known..].iter().find(|action| is_wanted(action)) {
                return action.clone();
            }
            assert!(Instant::now() < deadline, "{:#?}", self.0.borrow());
            std::thread::sleep(window);
        }
    }
}

/// The ranks have the highest priority: otherwise other processes on the two cores would decide what helps.
#[test]
fn a_move_that_helps_stays_and_one_that_does_not_is_taken_back() {
    let Some(cores) = two_cores() else { return };
    let Some(mpi) = Mpi::system(Family::OpenMpi) else { return };
    let place = Place::new();
    // The priority of this thread, and of all that it starts.
    if setpriority_process(None, -20).is_err() {
        return skip::test("root puts the ranks before other processes, by their priority");
    }
    let program = mpi.compile_text(UNEQUAL, &place.path().join("unequal"));
    let (folder, window) = (place.path().join("profile"), Duration::from_millis(300));
    let burden = Hog::on(cores[0]);
    let planted: Vec<Hog> = (0..4).map(|_| Hog::on(cores[1])).collect();
    let plant = |is_planted: bool| {
        burden.is_to_go_on(!is_planted);
        planted.iter().for_each(|hog| hog.is_to_go_on(is_planted));
    };
    plant(false);
    std::thread::scope(|scope| {
        let job = scope.spawn(|| record(&mpi, &place, &program));
        let stop = Stop(&place);
        let ranks = bound(&folder, cores);
        let before = masks(ranks);
        let (log, state) = (Log::default(), place.path().join("state"));
        let deciding =
            decision::Settings { steady: 4, cooling: 1, moves_an_hour: 1000, ..decision::Settings::default() };
        let start = || log.start(&state, settings(&folder, window, deciding.clone()));
        let is_move = |action: &Action| matches!(action, Action::Move { .. });
        let is_undo = |action: &Action| matches!(action, Action::Undo { .. });
        let is_judged = |action: &Action| matches!(action, Action::Undo { .. } | Action::Confirm { .. });

        // The rank that others wait for gets the core without a burden, which the profile tells: ranks that wait spin.
        let mut daemon = start();
        let Action::Move { step, reason, .. } = log.until(&mut daemon, window, is_move) else { unreachable!() };
        println!("moved: {reason}");
        let moved = masks(ranks);
        let changed: BTreeMap<u32, CpuSet> = step.iter().map(|change| (change.rank, change.to.clone())).collect();
        let [one, two]: [CpuSet; 2] = cores.map(|core| [core].into_iter().collect());
        assert_eq!(changed, BTreeMap::from([(0, two), (1, one)]), "{reason}");
        assert_ne!(moved, before);
        // The plan changes, so that the move does harm.
        plant(true);
        let undone = log.until(&mut daemon, window, is_judged);
        println!("then: {}", undone.reason());
        assert!(is_undo(&undone) && masks(ranks) == before, "{undone:?}");
        // It would help again, but was taken back once.
        plant(false);
        let decided = log.0.borrow().len();
        for _ in 0..20 {
            daemon.turn().unwrap();
            std::thread::sleep(window);
        }
        assert!(!log.0.borrow()[decided..].iter().any(is_move), "{:#?}", log.0.borrow());
        assert!(Shown::read(&state, 0).unwrap().status.unwrap().counts.undone == 1);
        drop(daemon);

        // Another daemon knows nothing of that.
        loop {
            let mut daemon = start();
            log.until(&mut daemon, window, is_move);
            let verdict = log.until(&mut daemon, window, is_judged);
            println!("then: {}", verdict.reason());
            if !is_undo(&verdict) {
                assert_eq!(masks(ranks), moved, "where the first move had put them");
                break;
            }
        }
        assert_eq!(masks(ranks), before);
        drop(stop);
        job.join().unwrap().well(&mpi);
    });
}

fn parent(pid: u32) -> u32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(')').unwrap().1.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Ranks of Open MPI end when they lose their launcher; those of MPICH go on where its proxy is gone too.
#[test]
#[ignore = "make check"]
fn ranks_that_outlive_their_launcher_are_put_back_and_given_up() {
    for family in [Family::OpenMpi, Family::Mpich] {
        let Some(mpi) = Mpi::system(family) else { continue };
        let place = Place::new();
        // Once it is this test's turn: another may have kept a core for itself.
        let Some(cores) = two_cores() else { return };
        let program = mpi.compile_text(UNEQUAL, &place.path().join("unequal"));
        let (folder, window) = (place.path().join("profile"), Duration::from_millis(100));
        let _burden = Hog::on(cores[0]);
        std::thread::scope(|scope| {
            let job = scope.spawn(|| record(&mpi, &place, &program));
            let stop = Stop(&place);
            let ranks = bound(&folder, cores);
            let before = masks(ranks);
            let (log, state) = (Log::default(), place.path().join("state"));
            let deciding = decision::Settings {
                steady: 1,
                minimal_gain: 0.0,
                moves_an_hour: usize::MAX,
                ..decision::Settings::default()
            };
            let mut daemon = log.start(&state, settings(&folder, window, deciding));
            while masks(ranks) == before {
                log.until(&mut daemon, window, |action| matches!(action, Action::Move { .. }));
            }
            // The launcher, and MPICH's proxy between it and the ranks.
            let of_ranks = parent(ranks[0].pid);
            let launchers = match family {
                Family::Mpich => vec![of_ranks, parent(of_ranks)],
                _ => vec![of_ranks],
            };
            for launcher in launchers {
                kill_process(Pid::from_raw(launcher as i32).unwrap(), Signal::KILL).unwrap();
            }
            let recorded = job.join().unwrap();
            assert!(!recorded.outcome.succeeded(), "{mpi}: its launcher was killed");
            let alive: Vec<Process> = ranks.into_iter().filter(|rank| process::is_there(*rank)).collect();
            daemon.turn().unwrap();
            let shown = Shown::read(&state, usize::MAX).unwrap();
            assert!(shown.status.as_ref().unwrap().jobs.is_empty(), "{mpi}: {shown:?}");
            let is_over = |what: &What| matches!(what, What::Noted(note) if note == "it is over");
            assert!(shown.decisions.iter().any(|decision| is_over(&decision.what)), "{mpi}: {shown:?}");
            let journal = std::fs::read_to_string(state.join(daemon::journal::NAME)).unwrap();
            assert_eq!(journal, "", "{mpi}: nothing is left to be put back");
            if family == Family::Mpich {
                assert_eq!((alive.len(), masks(ranks)), (2, before), "{mpi}");
                let is_restored = |what: &What| matches!(what, What::Restored(_));
                assert!(shown.decisions.iter().any(|decision| is_restored(&decision.what)), "{shown:?}");
            }
            drop(stop);
            for rank in alive.into_iter().filter(|rank| process::is_there(*rank)) {
                let _ = kill_process(Pid::from_raw(rank.pid as i32).unwrap(), Signal::KILL);
            }
        });
    }
}
