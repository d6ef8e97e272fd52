//! Reads a rank's tables, also while the rank writes them.

mod agreement;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use machine::{Fault, Result};
use zerocopy::FromBytes;

use crate::blocks::Mark;
use crate::functions::{self, FunctionId};
use crate::header::{damaged, header};
use crate::layout::{
    self, Cell, DIRECTORY, Header, Module, PAGE, Peer, Phase, REGIONS, ROW_CELLS, Region, Site, Thread, clock, kind,
};
use crate::{seal, untrusted};

/// The calls of one function at groups of one size.
#[derive(Debug, Clone)]
pub struct Row {
    /// Index in [`Rank::threads`].
    pub thread: u16,
    pub function: FunctionId,
    /// Number of ranks in the communicator of a collective call; 0 for other calls.
    pub group: u32,
    /// Cells by class of size.
    pub cells: Vec<Cell>,
}

/// The calls of one function at groups of one size with sizes of one class, by one thread.
#[derive(Debug, Clone)]
pub struct Calls {
    pub thread: u16,
    pub function: FunctionId,
    /// Number of ranks in the communicator of a collective call; 0 for other calls.
    pub group: u32,
    /// Class of size of [`crate::scale`].
    pub size_class: usize,
    pub cell: Cell,
}

/// One rank's tables.
#[derive(Debug, Clone)]
pub struct Rank {
    pub header: Header,
    pub threads: BTreeMap<u16, Thread>,
    pub rows: Vec<Row>,
    /// Call sites, each with the index of its thread; several threads may have the same place.
    pub sites: Vec<(u16, Site)>,
    pub modules: Vec<Module>,
    /// Messages by rank of MPI_COMM_WORLD, all threads together. Empty where none were sent.
    pub peers: Vec<Peer>,
    pub phases: Vec<Phase>,
    /// What was noted between blocks of delays.
    pub marks: Vec<Mark>,
    /// The members of each communicator, by its number: their ranks in MPI_COMM_WORLD.
    pub members: BTreeMap<u32, Vec<u32>>,
    /// Both groups of each intercommunicator, by its number ([`kind::SIDES`]).
    pub sides: BTreeMap<u32, Vec<u32>>,
    /// The first contradiction in the tables that a process which did not end in order may leave; the figures are not
    /// to be trusted then. `None`: there is none.
    pub doubt: Option<String>,
}

impl Rank {
    /// Reads a file. Refuses files that are no tables of a rank, of another version, cut off or damaged, with the reason.
    ///
    /// Of a running rank only the records in use are read: most of the file is empty.
    pub fn open(path: &Path) -> Result<Rank> {
        let file = opened(path)?;
        Source::of(&file).and_then(Rank::from).map_err(|fault| fault.within(path.display()))
    }

    /// As [`Rank::open`], for an open file; `None` where it is longer than `most` bytes.
    pub(crate) fn within(file: &File, most: u64) -> Result<Option<Rank>> {
        if file.length().map_err(unreadable)? > most {
            return Ok(None);
        }
        Source::of(&BoundedFile { file, most }).and_then(Rank::from).map(Some)
    }

    /// As [`Rank::open`], for bytes in memory.
    pub fn read(file: &[u8]) -> Result<Rank> {
        Source::of(&file).and_then(Rank::from)
    }

    /// The header alone, also where the rest is damaged.
    pub fn header(path: &Path) -> Result<Header> {
        let file = opened(path)?;
        Source::of(&file).and_then(|file| file.header()).map_err(|fault| fault.within(path.display()))
    }

    fn from(mut file: Source) -> Result<Rank> {
        let mut read = Read::default();
        // A thread updates its totals last in a call. They are read first, and again at the end: all other sums lie
        // between the two.
        let first = file.header()?;
        for region in file.directory(&first)?.iter().filter(|region| region.kind == kind::THREAD && region.is_whole()) {
            let thread = file.again(region).ok().and_then(|bytes| records::<Thread>(&bytes).next());
            read.before.extend(thread.map(|thread| (region.thread, thread)));
        }
        let header = file.header()?;
        let is_closed = header.closed != 0;
        let directory = file.directory(&header)?;
        // The file grows before the directory has the new region.
        file.measure()?;
        for (place, region) in directory.iter().enumerate() {
            let refused = |how| in_region(place, region, how);
            if *region == Region::default() && !is_closed {
                read.note(format!("its part {place} is not there yet"));
                continue;
            }
            let bytes = file.region(region, is_closed).map_err(refused)?;
            if is_closed && region.contents != layout::contents_seal(region, |at| seal::word(&bytes, at)) {
                read.changed.get_or_insert_with(|| named(place, region));
            }
            // The rank may have added records meanwhile.
            let now = if is_closed { region.used } else { file.entry(place)?.used };
            read.take(region, &bytes, now, is_closed).map_err(refused)?;
        }
        let after = file.header()?;
        if is_closed && header.closed != header.own_close() {
            read.changed.get_or_insert_with(|| "what it says to have left out".into());
        }
        if !is_closed || read.changed.is_some() {
            for region in directory.iter().filter(|region| region.kind == kind::THREAD) {
                let bytes = file.again(region)?;
                read.after.extend(records::<Thread>(&bytes).map(|thread| (region.thread, thread)));
            }
            if let Some(why) = agreement::disagreement(&read, &after) {
                read.note(why);
            }
        }
        read.finish(after)
    }

    pub fn host(&self) -> String {
        layout::words(&self.header.host)
    }

    /// Length of `ticks` in nanoseconds; `None` while only one moment is known.
    pub fn nanoseconds(&self, ticks: u64) -> Option<f64> {
        Some(ticks as f64 * self.tick()?)
    }

    /// CLOCK_MONOTONIC of the rank's host, ns, at `ticks`.
    pub fn monotonic(&self, ticks: u64) -> Option<f64> {
        self.header.monotonic(ticks)
    }

    /// The length of a tick, ns.
    pub fn tick(&self) -> Option<f64> {
        self.header.tick()
    }
}

impl Header {
    /// The length of a tick, ns; `None` while only one moment is known.
    pub fn tick(&self) -> Option<f64> {
        if self.clock == clock::MONOTONIC {
            return Some(1.0);
        }
        let (from, to) = (self.started, self.latest);
        let ticks = to.ticks.checked_sub(from.ticks).filter(|ticks| *ticks > 0)?;
        Some(to.monotonic.checked_sub(from.monotonic)? as f64 / ticks as f64)
    }

    /// CLOCK_MONOTONIC of the rank's host, ns, at `ticks`.
    pub fn monotonic(&self, ticks: u64) -> Option<f64> {
        let since = ticks as f64 - self.started.ticks as f64;
        Some(self.started.monotonic as f64 + since * self.tick()?)
    }
}

/// The parts that were read so far.
#[derive(Default)]
struct Read {
    /// Totals by thread index, read before the rest.
    before: BTreeMap<u16, Thread>,
    /// Totals read after the rest; empty where the file is closed and intact.
    after: BTreeMap<u16, Thread>,
    rows: Vec<Row>,
    /// Call sites with the index of their thread.
    sites: Vec<(u16, Site)>,
    modules: Vec<Module>,
    peers: Vec<(u16, Vec<Peer>)>,
    phases: Vec<Phase>,
    marks: Vec<Mark>,
    members: BTreeMap<u32, Vec<u32>>,
    sides: BTreeMap<u32, Vec<u32>>,
    /// The first part that was changed after the file was closed.
    changed: Option<String>,
    doubt: Option<String>,
}

impl Read {
    fn note(&mut self, doubt: String) {
        self.doubt.get_or_insert(doubt);
    }

    /// Adds a region. `now`: number of its records in use after it was read.
    fn take(
        &mut self,
        region: &Region,
        bytes: &[u8],
        now: u32,
        is_closed: bool,
    ) -> std::result::Result<(), &'static str> {
        let whole = |is_whole: bool| if is_whole { Ok(()) } else { Err("a record in it is damaged") };
        match region.kind {
            kind::THREAD if is_closed => {
                self.before.extend(records::<Thread>(bytes).map(|thread| (region.thread, thread)));
            }
            // The totals of a thread that began later were 0.
            kind::THREAD => _ = self.before.entry(region.thread).or_default(),
            kind::ROW => {
                let cells: Vec<Cell> = records(bytes).collect();
                let function = FunctionId(region.function);
                functions::function(function).ok_or("it is of no function that there is")?;
                self.rows.push(Row { thread: region.thread, function, group: region.group, cells });
            }
            kind::SITES => {
                for site in self.used::<Site>(region, bytes, now) {
                    whole(site.is_whole())?;
                    self.sites.push((region.thread, site));
                }
            }
            kind::PEERS => self.peers.push((region.thread, records(bytes).collect())),
            kind::MODULES => {
                for module in self.used::<Module>(region, bytes, now) {
                    whole(module.is_whole())?;
                    self.modules.push(module);
                }
            }
            kind::PHASES => {
                for phase in self.used::<Phase>(region, bytes, now) {
                    whole(phase.is_whole())?;
                    self.phases.push(phase);
                }
            }
            kind::MARKS => {
                for bytes in self.in_use(region, bytes, now) {
                    self.marks.push(Mark::read(bytes).ok_or("a record in it is damaged")?);
                }
            }
            kind::MEMBERS | kind::SIDES => {
                let mut members: Vec<u32> = records(bytes).take(region.used as usize).collect();
                let seal = members.pop();
                if region.used == region.capacity {
                    whole(seal == Some(layout::members_seal(&members)))?;
                    let of = if region.kind == kind::SIDES { &mut self.sides } else { &mut self.members };
                    of.insert(region.group, members);
                } else {
                    whole(region.used == 0)?;
                }
            }
            _ => return Err("it is of no kind that there is"),
        }
        Ok(())
    }

    fn used<T: FromBytes>(&mut self, region: &Region, bytes: &[u8], now: u32) -> Vec<T> {
        let records = self.in_use(region, bytes, now).into_iter();
        records.filter_map(|record| T::read_from_bytes(record).ok()).collect()
    }

    /// The bytes of the records in use. On another host parts of the file may be visible at different ages; records not yet visible are 0.
    fn in_use<'b>(&mut self, region: &Region, bytes: &'b [u8], now: u32) -> Vec<&'b [u8]> {
        let size = usize::from(region.record_bytes);
        let is_there = |record: &&[u8]| record.iter().any(|byte| *byte != 0);
        let (used, rest) = bytes.split_at((region.used as usize * size).min(bytes.len()));
        let there: Vec<&[u8]> = used.chunks_exact(size).filter(is_there).collect();
        // One more record may be in the middle of a write.
        let more = now.saturating_sub(region.used) as usize + 1;
        if there.len() < region.used as usize || rest.chunks_exact(size).skip(more).any(|record| is_there(&record)) {
            self.note("how many records a part of it has is not what it says".into());
        }
        there
    }

    fn finish(self, header: Header) -> Result<Rank> {
        let doubt = match (self.changed, self.doubt) {
            (Some(changed), Some(why)) => return Err(damaged(&format!("{changed} was changed afterwards: {why}"))),
            (Some(changed), None) => Some(format!("{changed} was changed after the process had ended")),
            (None, doubt) => doubt,
        };
        let mut threads = if self.after.is_empty() { self.before } else { self.after };
        if header.finalized != 0 {
            // After MPI_Finalize a thread is in no call of MPI.
            threads.values_mut().for_each(|thread| (thread.inside, thread.since) = (0, 0));
        }
        let mut peers: Vec<Peer> = Vec::new();
        for (_, of_thread) in &self.peers {
            peers.resize(peers.len().max(of_thread.len()), Peer::default());
            peers.iter_mut().zip(of_thread).for_each(|(sum, peer)| sum.add(peer));
        }
        Ok(Rank {
            header,
            threads,
            rows: self.rows,
            sites: self.sites,
            modules: self.modules,
            peers,
            phases: self.phases,
            marks: self.marks,
            members: self.members,
            sides: self.sides,
            doubt,
        })
    }
}

fn records<T: FromBytes>(bytes: &[u8]) -> impl Iterator<Item = T> {
    bytes.chunks_exact(size_of::<T>()).filter_map(|record| T::read_from_bytes(record).ok())
}

/// A name by which a reader can find the region.
fn named(place: usize, region: &Region) -> String {
    let function =
        || functions::function(FunctionId(region.function)).map_or("of no function", |function| function.name);
    match region.kind {
        kind::THREAD => format!("its part {place}, the totals of thread {},", region.thread),
        kind::ROW => format!("its part {place}, the calls of MPI_{} by thread {},", function(), region.thread),
        kind::SITES => format!("its part {place}, the call sites of thread {},", region.thread),
        kind::PEERS => format!("its part {place}, the messages of thread {},", region.thread),
        _ => format!("its part {place}"),
    }
}

fn in_region(place: usize, region: &Region, how: &str) -> Fault {
    damaged(&format!("{} cannot be: {how}", named(place, region)))
}

trait Bytes {
    fn length(&self) -> io::Result<u64>;
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()>;
}

impl Bytes for File {
    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(into, offset)
    }
}

/// A file of which at most `most` bytes are read, however it grows.
struct BoundedFile<'a> {
    file: &'a File,
    most: u64,
}

impl Bytes for BoundedFile<'_> {
    fn length(&self) -> io::Result<u64> {
        Ok(self.file.length()?.min(self.most))
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(into, offset)
    }
}

impl Bytes for &[u8] {
    fn length(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        let found = usize::try_from(offset).ok().and_then(|at| self.get(at..)).and_then(|rest| rest.get(..into.len()));
        into.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

fn opened(path: &Path) -> Result<File> {
    untrusted::open(path).map_err(|e| Fault::because(path.display().to_string(), e, "profile the program again"))
}

fn unreadable(error: io::Error) -> Fault {
    Fault::because("the tables of a rank", error, "profile the program again")
}

struct Source<'a> {
    bytes: &'a dyn Bytes,
    length: u64,
    /// Bytes that may still be read: regions do not overlap, so all together are no longer than the file.
    left: u64,
}

impl<'a> Source<'a> {
    fn of(bytes: &'a dyn Bytes) -> Result<Source<'a>> {
        let mut source = Source { bytes, length: 0, left: 0 };
        source.measure()?;
        Ok(source)
    }

    /// Updates the file's length.
    fn measure(&mut self) -> Result<()> {
        self.length = self.bytes.length().map_err(unreadable)?;
        self.left = self.length;
        Ok(())
    }

    fn header(&self) -> Result<Header> {
        if self.length < DIRECTORY as u64 {
            return Err(damaged("it is too short"));
        }
        let header = header(|page| self.at(page, 0))?.ok_or_else(|| damaged("it is not begun"))?;
        if self.length < layout::FIRST_REGION as u64 || header.regions > REGIONS as u64 {
            return Err(damaged("it ends within its directory"));
        }
        Ok(header)
    }

    fn directory(&self, header: &Header) -> Result<Vec<Region>> {
        let mut bytes = vec![0; header.regions as usize * size_of::<Region>()];
        self.at(&mut bytes, DIRECTORY as u64)?;
        Ok(records(&bytes).collect())
    }

    /// The present entry of the directory at this index.
    fn entry(&self, place: usize) -> Result<Region> {
        let mut bytes = [0; size_of::<Region>()];
        self.at(&mut bytes, (DIRECTORY + place * size_of::<Region>()) as u64)?;
        Region::read_from_bytes(&bytes).map_err(|_| damaged("it ends within its directory"))
    }

    fn at(&self, into: &mut [u8], offset: u64) -> Result<()> {
        self.bytes.read_at(into, offset).map_err(unreadable)
    }

    fn bytes(&mut self, offset: u64, bytes: u64) -> Result<Vec<u8>> {
        if offset.checked_add(bytes).is_none_or(|end| end > self.length) {
            return Err(damaged("a part reaches beyond its end"));
        }
        self.left = self.left.checked_sub(bytes).ok_or_else(|| damaged("its parts overlap"))?;
        let mut read = vec![0; bytes as usize];
        self.at(&mut read, offset)?;
        Ok(read)
    }

    /// The records in use of a region and a few more, or with `all` the whole region.
    fn region(&mut self, region: &Region, all: bool) -> std::result::Result<Vec<u8>, &'static str> {
        if !region.is_whole() {
            return Err("its entry is damaged");
        }
        let (records, fixed) = match region.kind {
            kind::THREAD => (size_of::<Thread>(), Some(1)),
            kind::ROW => (size_of::<Cell>(), Some(ROW_CELLS as u32)),
            kind::SITES => (size_of::<Site>(), None),
            kind::PEERS => (size_of::<Peer>(), Some(region.capacity)),
            kind::MODULES => (size_of::<Module>(), None),
            kind::PHASES => (size_of::<Phase>(), None),
            kind::MARKS if Mark::is_length(region.record_bytes.into()) => (region.record_bytes.into(), None),
            kind::MEMBERS | kind::SIDES => (size_of::<u32>(), None),
            _ => return Err("it is of no kind that there is"),
        };
        if usize::from(region.record_bytes) != records || fixed.is_some_and(|count| count != region.capacity) {
            return Err("it is not of the size that its records have");
        }
        if region.used > region.capacity || fixed.is_some_and(|count| count != region.used) {
            return Err("it says to have more records than it has room for");
        }
        if !region.offset.is_multiple_of(PAGE as u64) || region.offset < layout::FIRST_REGION as u64 {
            return Err("it lies where none can be");
        }
        let count = if all { region.capacity } else { region.capacity.min(region.used.saturating_add(3)) };
        let bytes = self.bytes(region.offset, u64::from(count) * records as u64);
        bytes.map_err(|_| "it reaches beyond the file's end, or into another")
    }

    /// The present totals of a thread.
    fn again(&self, region: &Region) -> Result<Vec<u8>> {
        let mut bytes = vec![0; region.bytes().min(size_of::<Thread>() as u64) as usize];
        self.at(&mut bytes, region.offset)?;
        Ok(bytes)
    }
}

/// Reason why a rank's file is left out, with the rank where the header is intact.
pub fn left_out(file: &Path, fault: &Fault) -> String {
    match placed(file) {
        Some(header) => {
            let (rank, file) = (header.rank, file.display());
            format!("left out: rank {rank}, {file}: {}. Next: {}", fault.cause().trim_end_matches('.'), fault.next())
        }
        None => format!("left out: {fault}"),
    }
}

/// The header, where the process is a rank and the header is intact.
pub fn placed(file: &Path) -> Option<Header> {
    Rank::header(file).ok().filter(|header| header.placed != 0)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell as Counter;

    use super::*;
    use crate::image::Image;

    /// A file that grows right after its length was first read.
    struct Growing {
        asked: Counter<bool>,
        before: u64,
        after: Vec<u8>,
    }

    impl Bytes for Growing {
        fn length(&self) -> io::Result<u64> {
            Ok(if self.asked.replace(true) { self.after.len() as u64 } else { self.before })
        }

        fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
            self.after.as_slice().read_at(into, offset)
        }
    }

    #[test]
    fn a_file_that_grows_while_it_is_read_is_not_damaged() {
        let mut image = Image::default();
        image.region(kind::THREAD, 0, (0, 0), &[Thread::default()]);
        let before = image.bytes().len() as u64;
        image.region(kind::PEERS, 0, (0, 0), &[Peer::default(); 500]);
        let growing = Growing { asked: Counter::new(false), before, after: image.bytes() };
        assert!(growing.after.len() as u64 > before);
        let rank = Source::of(&growing).and_then(Rank::from).unwrap();
        assert_eq!((rank.peers.len(), rank.doubt), (500, None));
    }
}
