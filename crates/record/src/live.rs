//! A glance at a rank's tables while it runs: its header and the totals of its threads, in a few small reads.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use machine::{Fault, Result};
use zerocopy::FromBytes;

use crate::functions;
use crate::header::{damaged, header};
use crate::layout::{DIRECTORY, Header, REGIONS, Region, Thread, kind};

/// A rank's file, held open: it stays readable however the rank ends.
#[derive(Debug)]
pub struct Live {
    file: File,
    /// Entries of the directory that were looked at.
    seen: u32,
    /// Where the totals of each thread are, by its index.
    threads: Vec<(u16, u64)>,
}

/// What a rank's file said at one moment.
#[derive(Debug, Clone)]
pub struct Glance {
    pub header: Header,
    /// The threads by index, in the order of their first call.
    pub threads: Vec<(u16, Thread)>,
}

impl Glance {
    /// Calls of all threads.
    pub fn calls(&self) -> u64 {
        self.threads.iter().fold(self.header.dropped.calls, |sum, (_, thread)| sum.wrapping_add(thread.calls))
    }

    /// Ticks inside calls, by class, of all threads together.
    pub fn ticks(&self) -> [u64; 16] {
        self.threads.iter().fold([0; 16], |mut sums, (_, thread)| {
            sums.iter_mut().zip(thread.ticks).for_each(|(sum, ticks)| *sum = sum.wrapping_add(ticks));
            sums
        })
    }
}

impl Live {
    /// `None` where the file is not there, or not yet begun.
    ///
    /// # Errors
    /// It is damaged, or of another version.
    pub fn open(path: &Path) -> Result<Option<Live>> {
        let Ok(file) = File::open(path) else { return Ok(None) };
        if file.metadata().is_ok_and(|file| file.len() < DIRECTORY as u64) {
            return Ok(None);
        }
        let live = Live { file, seen: 0, threads: Vec::new() };
        let begun = live.begun().map_err(|fault| fault.within(path.display()))?;
        Ok(begun.map(|_| live))
    }

    fn begun(&self) -> Result<Option<Header>> {
        header(|page| self.bytes(page, 0))
    }

    pub fn header(&self) -> Result<Header> {
        self.begun()?.ok_or_else(|| damaged("it is not begun"))
    }

    pub fn glance(&mut self) -> Result<Glance> {
        let header = self.header()?;
        let regions = header.regions.min(REGIONS as u64) as u32;
        'directory: while self.seen < regions {
            let mut bytes = [0; 64 * size_of::<Region>()];
            let count = (regions - self.seen).min(64);
            let bytes = &mut bytes[..count as usize * size_of::<Region>()];
            self.bytes(bytes, DIRECTORY as u64 + u64::from(self.seen) * size_of::<Region>() as u64)?;
            for entry in bytes.chunks_exact(size_of::<Region>()) {
                let entry = Region::read_from_bytes(entry).map_err(|_| damaged("it ends within its directory"))?;
                // On another host it may come later than what counts it.
                if entry == Region::default() {
                    break 'directory;
                }
                if !entry.is_whole() {
                    return Err(damaged(&format!("the entry of its part {} is damaged", self.seen)));
                }
                if entry.kind == kind::THREAD {
                    self.threads.push((entry.thread, entry.offset));
                }
                self.seen += 1;
            }
        }
        let mut threads = Vec::with_capacity(self.threads.len());
        for &(index, offset) in &self.threads {
            let mut bytes = [0; size_of::<Thread>()];
            self.bytes(&mut bytes, offset)?;
            let thread = Thread::read_from_bytes(&bytes).map_err(|_| damaged("a thread is cut off"))?;
            if thread.inside as usize > functions::functions().len() {
                return Err(damaged(&format!("thread {index} is in a function that there is not")));
            }
            threads.push((index, thread));
        }
        Ok(Glance { header, threads })
    }

    fn bytes(&self, bytes: &mut [u8], at: u64) -> Result<()> {
        self.file
            .read_exact_at(bytes, at)
            .map_err(|e| Fault::because("the tables of a rank", e, "profile the program again"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Image;
    use crate::layout::{FIRST_REGION, Peer, WHOLE_RANK};

    /// Threads among regions of other kinds.
    fn image(threads: u64) -> Image {
        let mut image = Image::default();
        for nth in 1..=threads {
            image.region(kind::PEERS, WHOLE_RANK, (0, 0), &[Peer::default(); 3]);
            let thread = Thread { calls: nth, ticks: [nth; 16], ..Thread::default() };
            image.region(kind::THREAD, nth as u16 - 1, (0, 0), &[thread]);
        }
        image
    }

    #[test]
    fn totals_of_all_threads_are_seen_as_they_grow() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("h.1.rank");
        assert!(Live::open(&path).unwrap().is_none());
        std::fs::write(&path, [0; 8192]).unwrap();
        assert!(Live::open(&path).unwrap().is_none(), "nothing is written yet");
        image(1).write(&path).unwrap();
        let mut live = Live::open(&path).unwrap().unwrap();
        assert_eq!(live.glance().unwrap().calls(), 1);
        image(100).write(&path).unwrap();
        let glance = live.glance().unwrap();
        assert_eq!((glance.threads.len(), glance.calls(), glance.ticks()[15]), (100, 5050, 5050));
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(FIRST_REGION as u64).unwrap();
        assert!(live.glance().is_err(), "a file that was cut off");
    }
}
