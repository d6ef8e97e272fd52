//! The ranks of one host for its sampler: their tables, and the kernel's data on their threads.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use linux::accounting::{BlockedBy, ThreadWatch, is_there, number_here, process_time};
use machine::{CoreId, CpuSet, Nanoseconds, count};
use record::folder;
use record::layout::words;
use record::live::Live;
use record::samples::{RankLoad, ThreadBlocked, ThreadDelay, ThreadLoad, ThreadRan, ThreadStop, ThreadWork, Writer};

/// Threads of one rank that are sampled; the tables have all threads.
const THREADS: usize = 16;

/// Grain of time stamps: within it, a folder may change twice with one time stamp.
const GRAIN: Duration = Duration::from_secs(2);

#[derive(Debug)]
struct Rank {
    /// Number of the process in the rank's tables.
    pid: u32,
    /// Number of the process in this PID namespace.
    here: u32,
    live: Live,
    threads: Vec<Thread>,
    /// Its process was gone at the last survey: its last records are read once more.
    is_gone: bool,
}

#[derive(Debug)]
struct Thread {
    index: u16,
    tid: u32,
    /// `None` once the thread has ended.
    watch: Option<ThreadWatch>,
    /// Number of its last core, plus 1.
    core: u64,
    /// Time of the last read of its state.
    looked: Option<Nanoseconds>,
    stopped: Nanoseconds,
    blocked: ThreadBlocked,
    /// Totals of earlier threads at this place of the tables, and the same with the present thread's.
    before: Totals,
    totals: Totals,
}

#[derive(Debug, Clone, Copy, Default)]
struct Totals {
    load: ThreadLoad,
    delay: Option<ThreadDelay>,
    ran: Option<ThreadRan>,
}

/// Time in which a thread was neither on a core nor runnable, by sampling.
#[derive(Debug, Clone, Copy)]
pub struct Halts {
    pub stop: ThreadStop,
    pub blocked: ThreadBlocked,
}

impl Thread {
    fn new(index: u16) -> Thread {
        let (before, totals, blocked) = (Totals::default(), Totals::default(), ThreadBlocked::default());
        Thread { index, tid: 0, watch: None, core: 0, looked: None, stopped: Nanoseconds(0), blocked, before, totals }
    }

    /// Passes the place from a thread that ended to another.
    fn hand_on(&mut self, tid: u32, watch: Option<ThreadWatch>) {
        (self.tid, self.watch, self.before) = (tid, watch, self.totals);
    }

    /// Counts the time since the last read by the present state: errors of both signs are equally likely.
    fn look(&mut self, now: Nanoseconds, is_inside: bool) {
        let there = self.watch.as_ref().and_then(|watch| Some((watch, watch.whereabouts()?)));
        let Some((watch, there)) = there else {
            self.watch = None;
            return;
        };
        self.core = u64::from(there.core.0) + 1;
        let since = self.looked.replace(now).map_or(Nanoseconds(0), |before| now - before);
        if there.is_stopped {
            self.stopped = self.stopped + since;
        }
        let blocked = &mut self.blocked;
        match there.is_blocked {
            true if is_inside => blocked.inside += since.0,
            true => {
                blocked.outside += since.0;
                match watch.blocked_by(&there) {
                    BlockedBy::Sleep => blocked.sleep += since.0,
                    BlockedBy::Lock => blocked.lock += since.0,
                    BlockedBy::Storage => blocked.storage += since.0,
                    BlockedBy::Other => {}
                }
            }
            false => {}
        }
    }

    fn halts(&self) -> Option<Halts> {
        self.looked.map(|_| Halts { stop: ThreadStop { stopped: self.stopped.0 }, blocked: self.blocked })
    }

    /// `None` once the thread has ended.
    fn load(&mut self) -> Option<Totals> {
        let watch = self.watch.as_ref()?;
        let (switches, before) = (watch.switches()?, &self.before);
        self.totals.load = ThreadLoad {
            voluntary: before.load.voluntary + switches.voluntary,
            involuntary: before.load.involuntary + switches.involuntary,
        };
        if let Some(delay) = watch.run_delay() {
            let earlier = before.delay.map_or(0, |delay| delay.delayed);
            self.totals.delay = Some(ThreadDelay { delayed: earlier + delay.0 });
        }
        if let Some(ran) = watch.ran() {
            let earlier = before.ran.map_or(0, |ran| ran.ran);
            self.totals.ran = Some(ThreadRan { ran: earlier + ran.0 });
        }
        Some(self.totals)
    }
}

#[derive(Debug)]
pub struct Watched {
    folder: PathBuf,
    boot: String,
    changed: Option<SystemTime>,
    /// Files that are watched, or belong to another host.
    known: HashSet<OsString>,
    ranks: Vec<Rank>,
    /// Whether a rank of this host was ever seen.
    has_seen: bool,
    /// Ranks of this host in PID namespaces that are invisible from here, and the number of them already reported.
    unseen: usize,
    told: usize,
}

impl Watched {
    /// Ranks of the host with this `boot` in the profile at `profile`.
    pub fn new(profile: &std::path::Path, boot: &str) -> Watched {
        Watched {
            folder: profile.join(folder::RANKS),
            boot: boot.to_owned(),
            changed: None,
            known: HashSet::new(),
            ranks: Vec::new(),
            has_seen: false,
            unseen: 0,
            told: 0,
        }
    }

    /// Note for the reader on ranks found since the last call.
    pub fn news(&mut self) -> Option<String> {
        let unseen = self.unseen - std::mem::replace(&mut self.told, self.unseen);
        (unseen > 0).then(|| {
            format!(
                "{} {} in PID namespaces that the sampler does not see (other containers), so that the cores of {} are not \
                 known; start the ranks of a host in one PID namespace",
                count::of(unseen as u64, "rank"),
                count::either(unseen as u64, "is", "are"),
                count::either(unseen as u64, "it", "these")
            )
        })
    }

    /// Adds new ranks and drops ranks that have ended.
    pub fn survey(&mut self) {
        self.ranks.retain(|rank| !rank.is_gone);
        self.ranks.iter_mut().for_each(|rank| rank.is_gone = !is_there(rank.here));
        let changed = fs::metadata(&self.folder).and_then(|folder| folder.modified()).ok();
        let is_old = changed.is_some_and(|at| at.elapsed().is_ok_and(|age| age > GRAIN));
        if is_old && changed == self.changed {
            return;
        }
        self.changed = changed;
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.extension().is_none_or(|suffix| suffix != folder::RANK_SUFFIX)
                || self.known.contains(&entry.file_name())
            {
                continue;
            }
            // A file without a complete header is read again at the next survey.
            let begun = Live::open(&path).ok().flatten().and_then(|live| Some((live.header().ok()?, live)));
            let Some((header, live)) = begun.filter(|(header, _)| header.boot[0] != 0) else {
                self.changed = None;
                continue;
            };
            self.known.insert(entry.file_name());
            if words(&header.boot) != self.boot {
                continue;
            }
            match number_here(header.pid, header.pid_namespace) {
                Some(here) => {
                    self.has_seen = true;
                    self.ranks.push(Rank { pid: header.pid, here, live, threads: Vec::new(), is_gone: false });
                }
                None if header.ended == 0 => self.unseen += 1,
                None => {}
            }
        }
    }

    /// Whether ranks of this host were seen and have all ended.
    pub fn is_over(&self) -> bool {
        self.has_seen && self.ranks.is_empty()
    }

    pub fn has_seen(&self) -> bool {
        self.has_seen
    }

    /// The last cores of the ranks' threads.
    pub fn cores(&self) -> CpuSet {
        let threads = self.ranks.iter().flat_map(|rank| &rank.threads);
        threads.filter_map(|thread| thread.core.checked_sub(1)).map(|core| CoreId(core as u32)).collect()
    }

    /// The cores that ranks are bound to; ranks that may run anywhere are bound to none.
    pub fn bound(&self) -> CpuSet {
        let all = linux::affinity::allowed().map_or(0, |cores| cores.len());
        let masks = self.ranks.iter().filter_map(|rank| linux::affinity::of_process(rank.here).ok());
        masks.filter(|mask| mask.len() < all).flat_map(|mask| mask.iter().collect::<Vec<_>>()).collect()
    }

    /// Gives the present work of every thread: pid, index in the tables, thread number, work, and its halts.
    pub fn work(
        &mut self,
        now: Nanoseconds,
        mut give: impl FnMut(u32, u16, u32, &ThreadWork, Option<Halts>) -> io::Result<()>,
    ) -> io::Result<()> {
        for rank in &mut self.ranks {
            let Ok(glance) = rank.live.glance() else { continue };
            for (index, totals) in glance.threads.iter().take(THREADS) {
                let thread = match rank.threads.iter_mut().position(|thread| thread.index == *index) {
                    Some(place) => &mut rank.threads[place],
                    None => {
                        rank.threads.push(Thread::new(*index));
                        rank.threads.last_mut().expect("it was just added")
                    }
                };
                // A place of the tables passes to another thread when its own ends.
                if thread.tid != totals.tid {
                    thread.hand_on(totals.tid, watch(rank.here, rank.pid, totals.tid));
                }
                thread.look(now, totals.inside != 0);
                let mut ticks = [0; 12];
                ticks.copy_from_slice(&totals.ticks[..12]);
                let work = ThreadWork {
                    core: thread.core,
                    inside: totals.inside.into(),
                    since: totals.since,
                    calls: totals.calls,
                    messages: totals.messages,
                    bytes: totals.bytes,
                    ticks,
                };
                give(rank.pid, thread.index, thread.tid, &work, thread.halts())?;
            }
        }
        Ok(())
    }

    /// The present load of every rank and thread.
    pub fn load<W: io::Write>(&mut self, writer: &mut Writer<W>) -> io::Result<()> {
        for rank in &mut self.ranks {
            if let Some(cpu) = process_time(rank.here) {
                writer.rank_load(rank.pid, &RankLoad { cpu: cpu.0 })?;
            }
            for thread in &mut rank.threads {
                let Some(Totals { load, delay, ran }) = thread.load() else { continue };
                writer.thread_load(rank.pid, thread.index, thread.tid, &load)?;
                if let Some(delay) = delay {
                    writer.thread_delay(rank.pid, thread.index, thread.tid, &delay)?;
                }
                if let Some(ran) = ran {
                    writer.thread_ran(rank.pid, thread.index, thread.tid, &ran)?;
                }
            }
        }
        Ok(())
    }
}

/// The thread `tid` of a process with number `here` in this PID namespace and `pid` in its own. The first thread has the
/// number of its process; other threads are known in this namespace alone.
fn watch(here: u32, pid: u32, tid: u32) -> Option<ThreadWatch> {
    match (here == pid, tid == pid) {
        (true, _) => ThreadWatch::open(here, tid).ok(),
        (false, true) => ThreadWatch::open(here, here).ok(),
        (false, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use record::image::Image;
    use record::layout::{Thread as Totals, kind, text};

    use super::*;

    fn image(pid: u32, boot: &str, calls: u64) -> Image {
        let mut image = Image::default();
        (image.header.pid, image.header.boot) = (pid, text(boot));
        let totals = Totals { tid: pid, calls, ticks: [calls; 16], ..Totals::default() };
        image.region(kind::THREAD, 0, (0, 0), &[totals]);
        image
    }

    #[test]
    fn ranks_of_this_host_are_watched_from_their_first_word_until_they_are_gone() {
        let profile = tempfile::tempdir().unwrap();
        let ranks = profile.path().join(folder::RANKS);
        fs::create_dir(&ranks).unwrap();
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let file = ranks.join("h.1.rank");
        fs::write(&file, "").unwrap();
        image(child.id(), "elsewhere", 1).write(&ranks.join("other.1.rank")).unwrap();
        let mut watched = Watched::new(profile.path(), "here");
        let seen = |watched: &mut Watched| {
            let mut all = Vec::new();
            let push = |pid, index, _, work: &ThreadWork, halts: Option<Halts>| {
                assert_eq!(halts.is_some(), work.on().is_some());
                all.push((pid, index, work.calls, work.on().is_some()));
                Ok(())
            };
            watched.work(linux::clock::monotonic(), push).unwrap();
            all
        };
        watched.survey();
        assert!(seen(&mut watched).is_empty() && !watched.has_seen(), "nothing is written yet");
        image(child.id(), "here", 3).write(&file).unwrap();
        watched.survey();
        assert_eq!(seen(&mut watched), [(child.id(), 0, 3, true)]);
        image(child.id(), "here", 4).write(&file).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        watched.survey();
        assert!(!watched.is_over());
        assert_eq!(seen(&mut watched), [(child.id(), 0, 4, true)], "what it wrote last is seen, where it was last");
        watched.survey();
        assert!(watched.is_over() && seen(&mut watched).is_empty());
    }

    /// A thread of this process that has slept `times` times, and then waits until the sender is dropped.
    fn waiting(times: u32) -> (u32, mpsc::Sender<()>, std::thread::JoinHandle<()>) {
        let (tell, told) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            (0..times).for_each(|_| std::thread::sleep(Duration::from_millis(1)));
            tell.send(linux::accounting::current_thread()).unwrap();
            let _ = released.recv();
        });
        (told.recv().unwrap() as u32, release, thread)
    }

    #[test]
    fn totals_go_on_where_a_place_in_the_tables_is_handed_on() {
        let profile = tempfile::tempdir().unwrap();
        let ranks = profile.path().join(folder::RANKS);
        fs::create_dir(&ranks).unwrap();
        let mut watched = Watched::new(profile.path(), "here");
        let mut totals = |times: u32| {
            let (tid, release, thread) = waiting(times);
            let mut image = Image::default();
            (image.header.pid, image.header.boot) = (std::process::id(), text("here"));
            image.region(kind::THREAD, 0, (0, 0), &[Totals { tid, calls: 1, ..Totals::default() }]);
            image.write(&ranks.join("h.1.rank")).unwrap();
            watched.survey();
            watched.work(linux::clock::monotonic(), |_, _, _, _, _| Ok(())).unwrap();
            let totals = watched.ranks[0].threads[0].load().unwrap();
            drop(release);
            thread.join().unwrap();
            (totals.load.voluntary, totals.delay.map_or(0, |delay| delay.delayed), totals.ran.map_or(0, |ran| ran.ran))
        };
        let (first, second) = (totals(20), totals(0));
        assert!(first.0 >= 20 && second.0 >= first.0 && second.1 >= first.1, "{first:?}, then {second:?}");
        assert!(second.2 >= first.2, "{first:?}, then {second:?}");
    }

    #[test]
    fn a_thread_that_sleeps_is_blocked_and_where_it_does_so_is_told() {
        let (tid, release, sleeper) = waiting(0);
        let mut thread = Thread::new(0);
        thread.hand_on(tid, watch(std::process::id(), std::process::id(), tid));
        let until = std::time::Instant::now() + Duration::from_secs(60);
        // The thread is about to wait.
        while !thread.watch.as_ref().unwrap().whereabouts().unwrap().is_blocked {
            assert!(std::time::Instant::now() < until, "it does not wait");
            std::thread::yield_now();
        }
        for (now, is_inside) in [(10, false), (15, false), (17, true)] {
            thread.look(Nanoseconds(now), is_inside);
        }
        let blocked = thread.halts().unwrap().blocked;
        assert_eq!((blocked.outside, blocked.inside), (5, 2));
        assert!(blocked.sleep + blocked.lock + blocked.storage <= 5, "{blocked:?}");
        drop(release);
        sleeper.join().unwrap();
    }
}
