//! A glance at a rank's tables while it runs: its header and the totals of its threads, in a few small reads.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use machine::{Fault, Result};
use zerocopy::FromBytes;

use crate::functions;
use crate::layout::{DIRECTORY, Header, MAGIC, REGIONS, Region, Thread, VERSION, kind};

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
    /// By index, in the order of their first call.
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
    /// `None` where the file is not there, not yet begun, or of another version.
    pub fn open(path: &Path) -> Option<Live> {
        let live = Live { file: File::open(path).ok()?, seen: 0, threads: Vec::new() };
        live.header().ok()?;
        Some(live)
    }

    pub fn header(&self) -> Result<Header> {
        let mut bytes = [0; size_of::<Header>()];
        self.bytes(&mut bytes, 0)?;
        let header = Header::read_from_bytes(&bytes).map_err(|_| damaged("it is too short"))?;
        let ours = header.magic == MAGIC && header.version == VERSION && header.functions == functions::digest();
        if ours { Ok(header) } else { Err(damaged("it is of another version, or not begun")) }
    }

    pub fn glance(&mut self) -> Result<Glance> {
        let header = self.header()?;
        let regions = header.regions.min(REGIONS as u32);
        while self.seen < regions {
            let mut bytes = [0; 64 * size_of::<Region>()];
            let count = (regions - self.seen).min(64);
            let bytes = &mut bytes[..count as usize * size_of::<Region>()];
            self.bytes(bytes, DIRECTORY as u64 + u64::from(self.seen) * size_of::<Region>() as u64)?;
            let entries = <[Region]>::ref_from_bytes(bytes).map_err(|_| damaged("it ends within its directory"))?;
            let threads = entries.iter().filter(|region| region.kind == kind::THREAD);
            self.threads.extend(threads.map(|region| (region.thread, region.offset)));
            self.seen += count;
        }
        let mut threads = Vec::with_capacity(self.threads.len());
        for &(index, offset) in &self.threads {
            let mut bytes = [0; size_of::<Thread>()];
            self.bytes(&mut bytes, offset)?;
            threads.push((index, Thread::read_from_bytes(&bytes).map_err(|_| damaged("a thread is cut off"))?));
        }
        Ok(Glance { header, threads })
    }

    fn bytes(&self, bytes: &mut [u8], at: u64) -> Result<()> {
        self.file
            .read_exact_at(bytes, at)
            .map_err(|e| Fault::because("the tables of a rank", e, "profile the program again"))
    }
}

fn damaged(how: &str) -> Fault {
    Fault::new("the tables of a rank", how, "the file is damaged or of something else; profile the program again")
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
        assert!(Live::open(&path).is_none());
        std::fs::write(&path, [0; 8192]).unwrap();
        assert!(Live::open(&path).is_none(), "nothing is written yet");
        image(1).write(&path).unwrap();
        let mut live = Live::open(&path).unwrap();
        assert_eq!(live.glance().unwrap().calls(), 1);
        image(100).write(&path).unwrap();
        let glance = live.glance().unwrap();
        assert_eq!((glance.threads.len(), glance.calls(), glance.ticks()[15]), (100, 5050, 5050));
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(FIRST_REGION as u64).unwrap();
        assert!(live.glance().is_err(), "a file that was cut off");
    }
}
