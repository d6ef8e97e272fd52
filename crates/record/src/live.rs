//! Glances at a rank's tables while it runs: the header and the totals of its threads, in a few small reads; and its
//! calls and messages by peer, as far as they changed.

mod calls;

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::Path;

use machine::bounds::PROFILE_TABLES;
use machine::{Fault, Result};
use zerocopy::FromBytes;

use crate::functions;
use crate::header::{damaged, header};
use crate::layout::{DIRECTORY, Header, Peer, REGIONS, Region, THREADS, Thread, kind};
use crate::rank::{Calls, Rank};
use crate::untrusted;

/// A rank's file, held open: the file stays readable however the rank ends.
#[derive(Debug)]
pub struct Live {
    file: File,
    /// Number of entries of the directory read so far.
    seen: u32,
    /// Index of each thread and offset of its totals in the file.
    threads: Vec<(u16, u64)>,
    calls: calls::Counters,
    /// Regions in which threads count their messages by peer.
    peers: Vec<Region>,
}

/// State of a rank's tables at one moment.
#[derive(Debug, Clone)]
pub struct Glance {
    pub header: Header,
    /// The threads with their indices, in the order of their first call.
    pub threads: Vec<(u16, Thread)>,
}

impl Glance {
    pub fn calls(&self) -> u64 {
        self.threads.iter().fold(self.header.dropped.calls, |sum, (_, thread)| sum.saturating_add(thread.calls))
    }

    /// Ticks inside calls, by class, of all threads together.
    pub fn ticks(&self) -> [u64; 16] {
        self.threads.iter().fold([0; 16], |mut sums, (_, thread)| {
            sums.iter_mut().zip(thread.ticks).for_each(|(sum, ticks)| *sum = sum.saturating_add(ticks));
            sums
        })
    }
}

impl Live {
    /// Opens a rank's file; `None` where it does not exist, or has no header yet.
    ///
    /// # Errors
    /// The file cannot be read, is damaged, or is of another version.
    pub fn open(path: &Path) -> Result<Option<Live>> {
        match untrusted::open(path) {
            Ok(file) => Live::of(file).map_err(|fault| fault.within(path.display())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Fault::because(path.display().to_string(), error, "profile the program again")),
        }
    }

    /// As [`Live::open`], for an open file.
    ///
    /// # Errors
    /// As [`Live::open`].
    pub fn of(file: File) -> Result<Option<Live>> {
        if file.metadata().is_ok_and(|file| file.len() < DIRECTORY as u64) {
            return Ok(None);
        }
        let live = Live { file, seen: 0, threads: vec![], calls: calls::Counters::default(), peers: vec![] };
        Ok(live.begun()?.map(|_| live))
    }

    /// Approximate memory in use, in bytes.
    pub fn weight(&self) -> usize {
        self.threads.len() * size_of::<(u16, Thread)>() + size_of_val(&self.peers[..]) + self.calls.weight()
    }

    /// Frees the memory of [`Live::weight`]: the rank is not followed any more.
    pub fn forget(&mut self) {
        (self.threads, self.calls, self.peers) = Default::default();
    }

    /// All of the rank's tables; `None` where they are too long to read at once.
    pub fn whole(&self) -> Result<Option<Rank>> {
        Rank::within(&self.file, PROFILE_TABLES.each.bytes().0)
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
                // On another host an entry may become visible later than the count.
                if entry == Region::default() {
                    break 'directory;
                }
                if !entry.is_whole() {
                    return Err(damaged(&format!("the entry of its part {} is damaged", self.seen)));
                }
                match entry.kind {
                    kind::THREAD if self.threads.len() == THREADS => return Err(damaged("it has too many threads")),
                    kind::THREAD => self.threads.push((entry.thread, entry.offset)),
                    kind::ROW => self.calls.add_row(&entry)?,
                    kind::PEERS => self.peers.push(entry),
                    _ => {}
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

    /// Counters of the calls that ended before `glance`, and of some that ended after it. Known counters keep their
    /// index; new ones are appended. A size class may appear up to 16 glances after its first use, where calls of other
    /// classes hide it in the totals of its thread.
    pub fn calls(&mut self, glance: &Glance) -> Result<&[Calls]> {
        let file = &self.file;
        self.calls.look(glance, |bytes, at| read(file, bytes, at))?;
        Ok(self.calls.known())
    }

    /// Messages that the rank sent so far, by rank of MPI_COMM_WORLD, all threads together.
    pub fn peers(&self) -> Result<Vec<Peer>> {
        let mut sums: Vec<Peer> = Vec::new();
        let length = self.file.metadata().map_or(0, |file| file.len());
        let mut left = PROFILE_TABLES.each.bytes().0;
        for region in &self.peers {
            let end = region.offset.checked_add(region.bytes());
            if region.record_bytes as usize != size_of::<Peer>() || end.is_none_or(|end| end > length) {
                return Err(damaged("its messages by peer reach beyond its end"));
            }
            left = left
                .checked_sub(region.bytes())
                .ok_or_else(|| damaged("its messages by peer are of too many ranks"))?;
            let mut bytes = vec![0; region.capacity as usize * size_of::<Peer>()];
            self.bytes(&mut bytes, region.offset)?;
            sums.resize(sums.len().max(region.capacity as usize), Peer::default());
            let of_thread = bytes.chunks_exact(size_of::<Peer>()).flat_map(Peer::read_from_bytes);
            sums.iter_mut().zip(of_thread).for_each(|(sum, peer)| sum.add(&peer));
        }
        Ok(sums)
    }

    fn bytes(&self, bytes: &mut [u8], at: u64) -> Result<()> {
        read(&self.file, bytes, at)
    }
}

fn read(file: &File, bytes: &mut [u8], at: u64) -> Result<()> {
    file.read_exact_at(bytes, at).map_err(|e| Fault::because("the tables of a rank", e, "profile the program again"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::functions::FunctionId;
    use crate::image::Image;
    use crate::layout::{FIRST_REGION, Peer, WHOLE_RANK};

    /// Threads between regions of other kinds.
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

    /// Calls as `(function, size, number)`; the thread's totals lack `beside` of them.
    fn counted(calls: &[(u16, u64, u64)], beside: u64) -> Image {
        let mut image = Image::default();
        let sum: u64 = calls.iter().map(|(.., number)| number).sum();
        let totals = Thread { calls: sum - beside, ..Thread::default() };
        image.region(kind::THREAD, 0, (0, 0), &[totals]);
        for function in [1, 2] {
            let own = calls.iter().filter(|(of, ..)| *of == function);
            let each = own.clone().flat_map(|(_, size, number)| (0..*number).map(|_| (100, *size)));
            if own.clone().count() > 0 {
                image.row(0, FunctionId(function), 0, each);
            }
        }
        image
    }

    #[test]
    fn calls_are_told_as_cells_come_into_use() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("h.1.rank");
        counted(&[(1, 8, 10)], 0).write(&path).unwrap();
        let mut live = Live::open(&path).unwrap().unwrap();
        let mut look = |image: Image| -> Vec<(u16, usize, u64)> {
            image.write(&path).unwrap();
            let glance = live.glance().unwrap();
            let calls = live.calls(&glance).unwrap().iter();
            calls.map(|calls| (calls.function.0, calls.size_class, calls.cell.calls)).collect()
        };
        let [small, large] = [8, 4096].map(crate::scale::size_class);
        assert_eq!(look(counted(&[(1, 8, 10)], 0)), [(1, small, 10)]);
        assert_eq!(
            look(counted(&[(1, 8, 11), (1, 4096, 1)], 0)),
            [(1, small, 11), (1, large, 1)],
            "the totals show it"
        );
        // Known cells have counted on since the totals were read, and hide that a cell is missing.
        let mut hidden = vec![(1, 8, 20), (1, 4096, 5), (1, 0, 2)];
        assert_eq!(look(counted(&hidden, 3)), [(1, small, 20), (1, large, 5)]);
        for looks in 1.. {
            hidden[0].2 += 1;
            if look(counted(&hidden, 3)).contains(&(1, 0, 2)) {
                break;
            }
            assert!(looks < 20, "it is never told");
        }
        // The new cell keeps its index; a new row is found at once.
        hidden.push((2, 8, 1));
        let told = look(counted(&hidden, 0));
        assert_eq!(told[1..], [(1, large, 5), (1, 0, 2), (2, small, 1)]);
    }

    #[test]
    fn peers_are_summed_over_threads_and_none_is_read_beyond_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("h.1.rank");
        let mut image = image(2);
        image.region(kind::PEERS, 1, (0, 0), &[Peer { messages: 2, bytes: 9, ..Peer::default() }; 2]);
        image.region(kind::PEERS, 2, (0, 0), &[Peer { messages: 3, bytes: 1, ..Peer::default() }; 3]);
        image.write(&path).unwrap();
        let mut live = Live::open(&path).unwrap().unwrap();
        live.glance().unwrap();
        let sent: Vec<_> = live.peers().unwrap().iter().map(|peer| (peer.messages, peer.bytes)).collect();
        assert_eq!(sent, [(5, 10), (5, 10), (3, 1)]);
        live.peers[0].capacity = u32::MAX;
        assert!(live.peers().is_err());
    }

    /// The file is sparse: its length exceeds its space on disk.
    #[test]
    fn no_more_is_read_than_the_bounds_say_however_long_the_file_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("h.1.rank");
        let mut image = image(1);
        let small = size_of::<Peer>() as u64;
        image.region(kind::PEERS, WHOLE_RANK, (0, 0), &[Peer::default()]);
        image.write(&path).unwrap();
        let mut live = Live::open(&path).unwrap().unwrap();
        assert!(live.glance().is_ok() && live.peers().is_ok() && live.whole().unwrap().is_some());
        File::options().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
        live.peers.last_mut().unwrap().capacity = (PROFILE_TABLES.each.bytes().0 / small) as u32;
        assert!(live.peers().unwrap_err().cause().contains("too many ranks"));
        assert!(live.whole().unwrap().is_none());

        self::image(THREADS as u64 + 1).write(&path).unwrap();
        let fault = Live::open(&path).unwrap().unwrap().glance().unwrap_err();
        assert!(fault.cause().contains("too many threads"), "{fault}");
    }

    #[test]
    fn a_rank_whose_every_cell_is_in_use_does_not_fill_the_memory() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("h.1.rank");
        let classes = || (0..crate::scale::SIZE_CLASSES).map(|class| (100, crate::scale::size_floor(class)));
        let groups = calls::CELLS / crate::scale::SIZE_CLASSES + 1;
        let mut image = Image::default();
        image.region(kind::THREAD, 0, (0, 0), &[Thread { calls: 1, ..Thread::default() }]);
        (0..groups).for_each(|group| image.row(0, FunctionId(1), group as u32, classes()));
        image.write(&path).unwrap();
        let mut live = Live::open(&path).unwrap().unwrap();
        let glance = live.glance().unwrap();
        assert!(live.calls(&glance).unwrap_err().cause().contains("too many kinds"));
        assert!(live.weight() >= calls::CELLS * size_of::<Calls>());
        live.forget();
        assert_eq!(live.weight(), 0);
    }
}
