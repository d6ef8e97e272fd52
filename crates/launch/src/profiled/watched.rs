//! The ranks of one host, as a sampler sees them: their tables, and what the kernel says of their threads.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use linux::accounting::{ThreadWatch, is_there, process_time};
use machine::CpuSet;
use record::folder;
use record::layout::words;
use record::live::Live;
use record::samples::{RankLoad, ThreadLoad, ThreadWork, Writer};

/// Threads of one rank that are sampled; the tables have them all.
const THREADS: usize = 16;

/// A folder may change twice within the grain of its time stamp.
const GRAIN: Duration = Duration::from_secs(2);

#[derive(Debug)]
struct Rank {
    pid: u32,
    live: Live,
    threads: Vec<Thread>,
    /// Its process was gone at the last survey: what it wrote last is looked at once more.
    is_gone: bool,
}

#[derive(Debug)]
struct Thread {
    index: u16,
    tid: u32,
    /// `None` once it has ended.
    watch: Option<ThreadWatch>,
    /// Where it was last, plus 1.
    core: u64,
}

#[derive(Debug)]
pub struct Watched {
    folder: PathBuf,
    boot: String,
    changed: Option<SystemTime>,
    /// Files that are watched, or are of another host.
    known: HashSet<OsString>,
    ranks: Vec<Rank>,
    /// Whether a rank of this host was seen at all.
    has_seen: bool,
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
        }
    }

    /// Looks for ranks that came, and lets go of those that went.
    pub fn survey(&mut self) {
        self.ranks.retain(|rank| !rank.is_gone);
        self.ranks.iter_mut().for_each(|rank| rank.is_gone = !is_there(rank.pid));
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
            // One that is not begun is looked at again.
            let begun = Live::open(&path).and_then(|live| Some((live.header().ok()?, live)));
            let Some((header, live)) = begun.filter(|(header, _)| header.boot[0] != 0) else {
                self.changed = None;
                continue;
            };
            self.known.insert(entry.file_name());
            if words(&header.boot) == self.boot {
                self.has_seen = true;
                self.ranks.push(Rank { pid: header.pid, live, threads: Vec::new(), is_gone: false });
            }
        }
    }

    /// Whether ranks of this host were there and are all gone.
    pub fn is_over(&self) -> bool {
        self.has_seen && self.ranks.is_empty()
    }

    pub fn has_seen(&self) -> bool {
        self.has_seen
    }

    /// The cores that ranks are bound to; ranks that may run anywhere are bound to none.
    pub fn bound(&self) -> CpuSet {
        let all = linux::affinity::allowed().map_or(0, |cores| cores.len());
        let masks = self.ranks.iter().filter_map(|rank| linux::affinity::of_process(rank.pid).ok());
        masks.filter(|mask| mask.len() < all).flat_map(|mask| mask.iter().collect::<Vec<_>>()).collect()
    }

    /// Gives the present work of every thread: pid, index in the tables, thread number, work.
    pub fn work(&mut self, mut give: impl FnMut(u32, u16, u32, &ThreadWork) -> io::Result<()>) -> io::Result<()> {
        for rank in &mut self.ranks {
            let Ok(glance) = rank.live.glance() else { continue };
            for (index, totals) in glance.threads.iter().take(THREADS) {
                let thread = match rank.threads.iter_mut().position(|thread| thread.index == *index) {
                    Some(place) => &mut rank.threads[place],
                    None => {
                        rank.threads.push(Thread { index: *index, tid: 0, watch: None, core: 0 });
                        rank.threads.last_mut().expect("it was just added")
                    }
                };
                // A place in the tables is handed on when its thread ends.
                if thread.tid != totals.tid {
                    (thread.tid, thread.watch) = (totals.tid, ThreadWatch::open(rank.pid, totals.tid).ok());
                }
                match thread.watch.as_ref().and_then(ThreadWatch::core) {
                    Some(core) => thread.core = u64::from(core.0) + 1,
                    None => thread.watch = None,
                }
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
                give(rank.pid, thread.index, thread.tid, &work)?;
            }
        }
        Ok(())
    }

    /// The present load of every rank and thread.
    pub fn load<W: io::Write>(&self, writer: &mut Writer<W>) -> io::Result<()> {
        for rank in &self.ranks {
            if let Some(cpu) = process_time(rank.pid) {
                writer.rank_load(rank.pid, &RankLoad { cpu: cpu.0 })?;
            }
            for thread in &rank.threads {
                if let Some(switches) = thread.watch.as_ref().and_then(ThreadWatch::switches) {
                    let load = ThreadLoad { voluntary: switches.voluntary, involuntary: switches.involuntary };
                    writer.thread_load(rank.pid, thread.index, thread.tid, &load)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
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
            let push = |pid, index, _, work: &ThreadWork| {
                all.push((pid, index, work.calls, work.on().is_some()));
                Ok(())
            };
            watched.work(push).unwrap();
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
}
