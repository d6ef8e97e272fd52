//! Reading a rank's tables, also while it writes them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use machine::{Fault, Result};
use zerocopy::{FromBytes, Immutable, KnownLayout};

use crate::functions::{self, FunctionId};
use crate::layout::{
    self, Cell, DIRECTORY, Header, MAGIC, Module, Peer, Phase, REGIONS, ROW_CELLS, Region, Site, Thread, VERSION,
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
    pub fn open(path: &Path) -> Result<Rank> {
        let subject = || format!("{}", path.display());
        let mut bytes = Vec::new();
        File::open(path)
            .and_then(|mut file| file.read_to_end(&mut bytes))
            .map_err(|e| Fault::because(subject(), e, "profile the program again"))?;
        Rank::read(&bytes).map_err(|fault| fault.within(subject()))
    }

    pub fn read(file: &[u8]) -> Result<Rank> {
        let header = header(file)?;
        let directory = <[Region]>::ref_from_prefix_with_elems(&file[DIRECTORY..], REGIONS)
            .map_err(|_| damaged("it ends within its directory"))?
            .0;
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
        for region in directory.iter().take(header.regions as usize) {
            rank.take(region, file)?;
        }
        Ok(rank)
    }

    fn take(&mut self, region: &Region, file: &[u8]) -> Result<()> {
        match region.kind {
            kind::THREAD => {
                if let [thread] = records::<Thread>(region, file, 1)? {
                    self.threads.insert(region.thread, *thread);
                }
            }
            kind::ROW => {
                let cells = records::<Cell>(region, file, ROW_CELLS as u32)?.to_vec();
                let function = FunctionId(region.function);
                functions::function(function).ok_or_else(|| damaged("a row is of no function that there is"))?;
                self.rows.push(Row { thread: region.thread, function, group: region.group, cells });
            }
            kind::SITES => self.sites.extend(records::<Site>(region, file, region.used)?),
            kind::PEERS => {
                let peers = records::<Peer>(region, file, region.used)?;
                self.peers.resize(self.peers.len().max(peers.len()), Peer::default());
                for (sum, peer) in self.peers.iter_mut().zip(peers) {
                    sum.messages = sum.messages.wrapping_add(peer.messages);
                    sum.bytes = sum.bytes.wrapping_add(peer.bytes);
                    sum.operations = sum.operations.wrapping_add(peer.operations);
                    sum.operation_bytes = sum.operation_bytes.wrapping_add(peer.operation_bytes);
                }
            }
            kind::MODULES => self.modules.extend(records::<Module>(region, file, region.used)?),
            kind::PHASES => self.phases.extend(records::<Phase>(region, file, region.used)?),
            kind::MEMBERS => {
                self.members.insert(region.group, records::<u32>(region, file, region.used)?.to_vec());
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
        let since = ticks as f64 - self.header.started.ticks as f64;
        Some(self.header.started.monotonic as f64 + since * self.tick()?)
    }

    /// The length of a tick, ns.
    pub fn tick(&self) -> Option<f64> {
        if self.header.clock == clock::MONOTONIC {
            return Some(1.0);
        }
        let (from, to) = (self.header.started, self.header.latest);
        let ticks = to.ticks.checked_sub(from.ticks).filter(|ticks| *ticks > 0)?;
        Some(to.monotonic.checked_sub(from.monotonic)? as f64 / ticks as f64)
    }
}

fn header(file: &[u8]) -> Result<Header> {
    let header = Header::read_from_prefix(file).map_err(|_| damaged("it is too short"))?.0;
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
    if file.len() < layout::FIRST_REGION || header.regions as usize > REGIONS {
        return Err(damaged("it ends within its directory"));
    }
    Ok(header)
}

/// The first `count` records of a region, which the file must hold whole.
fn records<'a, T: FromBytes + Immutable + KnownLayout>(region: &Region, file: &'a [u8], count: u32) -> Result<&'a [T]> {
    if region.record_bytes as usize != size_of::<T>() || count > region.capacity {
        return Err(damaged("a region is not of the size that its records have"));
    }
    let start = usize::try_from(region.offset).ok().filter(|at| at.is_multiple_of(layout::PAGE));
    let bytes = start.and_then(|at| file.get(at..)).ok_or_else(|| damaged("a region lies outside"))?;
    let (records, _) = <[T]>::ref_from_prefix_with_elems(bytes, count as usize)
        .map_err(|_| damaged("a region reaches beyond its end"))?;
    Ok(records)
}

fn damaged(how: &str) -> Fault {
    Fault::new("the tables of a rank", how, "the file is damaged or of something else; profile the program again")
}
