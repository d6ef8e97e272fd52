//! Reading a rank's tables, also while it writes them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use machine::{Fault, Result};
use zerocopy::FromBytes;

use crate::functions::{self, FunctionId};
use crate::layout::{
    self, Cell, DIRECTORY, Header, MAGIC, Module, PAGE, Peer, Phase, REGIONS, ROW_CELLS, Region, Site, Thread, VERSION,
    clock, kind,
};

/// The calls of one function at groups of one size.
#[derive(Debug, Clone)]
pub struct Row {
    /// Index into [`Rank::threads`].
    pub thread: u16,
    pub function: FunctionId,
    /// Ranks of the communicator of a collective call; 0 for calls of other kinds.
    pub group: u32,
    /// By class of size.
    pub cells: Vec<Cell>,
}

/// One rank's tables.
#[derive(Debug, Clone)]
pub struct Rank {
    pub header: Header,
    pub threads: BTreeMap<u16, Thread>,
    pub rows: Vec<Row>,
    /// Of all threads, as they wrote them: one place may be there for each thread.
    pub sites: Vec<Site>,
    pub modules: Vec<Module>,
    /// By rank of MPI_COMM_WORLD, all threads together. Empty where it sent nothing.
    pub peers: Vec<Peer>,
    pub phases: Vec<Phase>,
    /// By number of the communicator: its members' ranks in MPI_COMM_WORLD.
    pub members: BTreeMap<u32, Vec<u32>>,
}

impl Rank {
    /// Files that are no tables of a rank, of another version or cut off are refused with what is wrong.
    ///
    /// Reads what is in use and not the room around it, of which a file has much.
    pub fn open(path: &Path) -> Result<Rank> {
        let unreadable = |e| Fault::because(path.display().to_string(), e, "profile the program again");
        let file = File::open(path).map_err(unreadable)?;
        let length = file.metadata().map_err(unreadable)?.len();
        Rank::from(&mut Source { bytes: &file, length, left: length }).map_err(|fault| fault.within(path.display()))
    }

    /// The same of bytes, wherever they lie in memory.
    pub fn read(file: &[u8]) -> Result<Rank> {
        let length = file.len() as u64;
        Rank::from(&mut Source { bytes: &file, length, left: length })
    }

    fn from(file: &mut Source) -> Result<Rank> {
        let header = header(file)?;
        let directory: Vec<Region> = file.records(DIRECTORY as u64, header.regions)?;
        let mut rank = Rank {
            header,
            threads: BTreeMap::new(),
            rows: Vec::new(),
            sites: Vec::new(),
            modules: Vec::new(),
            peers: Vec::new(),
            phases: Vec::new(),
            members: BTreeMap::new(),
        };
        for region in &directory {
            rank.take(region, file)?;
        }
        Ok(rank)
    }

    fn take(&mut self, region: &Region, file: &mut Source) -> Result<()> {
        match region.kind {
            kind::THREAD => {
                self.threads
                    .extend(file.region::<Thread>(region, 1)?.into_iter().map(|thread| (region.thread, thread)));
            }
            kind::ROW => {
                let cells = file.region::<Cell>(region, ROW_CELLS as u32)?;
                let function = FunctionId(region.function);
                functions::function(function).ok_or_else(|| damaged("a row is of no function that there is"))?;
                self.rows.push(Row { thread: region.thread, function, group: region.group, cells });
            }
            kind::SITES => self.sites.extend(file.region::<Site>(region, region.used)?),
            kind::PEERS => {
                let peers = file.region::<Peer>(region, region.used)?;
                self.peers.resize(self.peers.len().max(peers.len()), Peer::default());
                for (sum, peer) in self.peers.iter_mut().zip(&peers) {
                    sum.messages = sum.messages.wrapping_add(peer.messages);
                    sum.bytes = sum.bytes.wrapping_add(peer.bytes);
                    sum.operations = sum.operations.wrapping_add(peer.operations);
                    sum.operation_bytes = sum.operation_bytes.wrapping_add(peer.operation_bytes);
                }
            }
            kind::MODULES => self.modules.extend(file.region::<Module>(region, region.used)?),
            kind::PHASES => self.phases.extend(file.region::<Phase>(region, region.used)?),
            kind::MEMBERS => {
                self.members.insert(region.group, file.region::<u32>(region, region.used)?);
            }
            _ => return Err(damaged("a region is of no kind that there is")),
        }
        Ok(())
    }

    pub fn host(&self) -> String {
        layout::words(&self.header.host)
    }

    /// Nanoseconds of so many ticks; `None` while only one moment is known.
    pub fn nanoseconds(&self, ticks: u64) -> Option<f64> {
        Some(ticks as f64 * self.tick()?)
    }

    /// CLOCK_MONOTONIC of its host, ns, when the counter stood at `ticks`.
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

    /// CLOCK_MONOTONIC of its host, ns, when the counter stood at `ticks`.
    pub fn monotonic(&self, ticks: u64) -> Option<f64> {
        let since = ticks as f64 - self.started.ticks as f64;
        Some(self.started.monotonic as f64 + since * self.tick()?)
    }
}

/// Where the bytes come from.
trait Bytes {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()>;
}

impl Bytes for File {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(into, offset)
    }
}

impl Bytes for &[u8] {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        let found = usize::try_from(offset).ok().and_then(|at| self.get(at..)).and_then(|rest| rest.get(..into.len()));
        into.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

struct Source<'a> {
    bytes: &'a dyn Bytes,
    length: u64,
    /// What may still be read: regions do not overlap, so that together they are no longer than the file.
    left: u64,
}

impl Source<'_> {
    fn records<T: FromBytes>(&mut self, offset: u64, count: u32) -> Result<Vec<T>> {
        let bytes = u64::from(count) * size_of::<T>() as u64;
        if offset.checked_add(bytes).is_none_or(|end| end > self.length) {
            return Err(damaged("a part reaches beyond its end"));
        }
        self.left = self.left.checked_sub(bytes).ok_or_else(|| damaged("its regions overlap"))?;
        let mut read = vec![0; bytes as usize];
        self.bytes
            .read_at(&mut read, offset)
            .map_err(|e| Fault::because("the tables of a rank", e, "profile the program again"))?;
        Ok(read.chunks_exact(size_of::<T>()).filter_map(|record| T::read_from_bytes(record).ok()).collect())
    }

    /// The first `count` records of a region.
    fn region<T: FromBytes>(&mut self, region: &Region, count: u32) -> Result<Vec<T>> {
        if region.record_bytes as usize != size_of::<T>() || count > region.capacity {
            return Err(damaged("a region is not of the size that its records have"));
        }
        if !region.offset.is_multiple_of(PAGE as u64) || region.offset < layout::FIRST_REGION as u64 {
            return Err(damaged("a region lies where none can be"));
        }
        self.records(region.offset, count)
    }
}

fn header(file: &mut Source) -> Result<Header> {
    let short = |_| damaged("it is too short");
    let header: Header = file.records(0, 1).map_err(short)?.pop().ok_or_else(|| damaged("it is too short"))?;
    if header.magic != MAGIC {
        return Err(damaged("it does not begin as one"));
    }
    if header.version != VERSION || header.functions != functions::digest() {
        return Err(Fault::new(
            "the tables of a rank",
            "another version of plimsoll wrote them",
            "read them with the plimsoll that profiled the program, or profile it again",
        ));
    }
    if file.length < layout::FIRST_REGION as u64 || header.regions as usize > REGIONS {
        return Err(damaged("it ends within its directory"));
    }
    Ok(header)
}

fn damaged(how: &str) -> Fault {
    Fault::new("the tables of a rank", how, "the file is damaged or of something else; profile the program again")
}
