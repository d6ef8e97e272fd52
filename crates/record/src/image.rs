//! Files of ranks made without a rank, to test readers.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use crate::functions::{self, FunctionId};
use crate::layout::{
    COPY, Cell, DIRECTORY, FIRST_REGION, Header, MAGIC, Module, PAGE, Phase, ROW_CELLS, Region, Site, Thread, VERSION,
    WHOLE_RANK, contents_seal, kind, members_seal,
};
use crate::scale::{size_class, time_class};
use crate::seal;

/// The tables of a rank, region by region. They are closed where the header says that the process ended.
pub struct Image {
    pub header: Header,
    regions: Vec<(Region, Vec<u8>)>,
}

impl Default for Image {
    fn default() -> Self {
        let mut header = Header::new_zeroed();
        header.magic = MAGIC;
        header.version = VERSION;
        header.functions = functions::digest();
        Image { header, regions: Vec::new() }
    }
}

impl Image {
    /// Adds a region; `function` and `group` count only for kinds that have them.
    pub fn region<T: IntoBytes + Immutable>(
        &mut self,
        kind: u16,
        thread: u16,
        (function, group): (u16, u32),
        records: &[T],
    ) {
        let mut bytes = records.as_bytes().to_vec();
        match kind {
            kind::THREAD => seal_each(&mut bytes, Thread::sealed),
            kind::SITES => seal_each(&mut bytes, Site::sealed),
            kind::MODULES => seal_each(&mut bytes, Module::sealed),
            kind::PHASES => seal_each(&mut bytes, Phase::sealed),
            kind::MEMBERS | kind::SIDES => {
                let members: Vec<u32> = bytes.chunks_exact(4).flat_map(u32::read_from_bytes).collect();
                bytes.extend(members_seal(&members).as_bytes());
            }
            _ => {}
        }
        let count = (bytes.len() / size_of::<T>()) as u32;
        let record_bytes = size_of::<T>() as u16;
        let region =
            Region { kind, thread, function, record_bytes, group, capacity: count, used: count, ..Region::default() };
        self.regions.push((region, bytes));
    }

    /// Adds a function's calls, given as `(ticks, bytes)` each.
    pub fn row(&mut self, thread: u16, function: FunctionId, group: u32, calls: impl IntoIterator<Item = (u64, u64)>) {
        let mut cells = vec![Cell::EMPTY; ROW_CELLS];
        for (ticks, bytes) in calls {
            let cell = &mut cells[size_class(bytes)];
            cell.calls += 1;
            cell.ticks += ticks;
            cell.bytes += bytes;
            cell.most = cell.most.max(ticks);
            cell.least_from_top = cell.least_from_top.max(u64::MAX - ticks);
            cell.histogram[time_class(ticks)] += 1;
        }
        self.region(kind::ROW, thread, (function.0, group), &cells);
    }

    /// Adds a region of the whole rank.
    pub fn of_rank<T: IntoBytes + Immutable>(&mut self, kind: u16, records: &[T]) {
        self.region(kind, WHOLE_RANK, (0, 0), records);
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut file = vec![0; FIRST_REGION];
        self.parts(|offset, bytes| {
            let end = offset as usize + bytes.len();
            file.resize(file.len().max(end.next_multiple_of(PAGE)), 0);
            file[offset as usize..end].copy_from_slice(bytes);
            Ok(())
        })
        .expect("memory takes all parts");
        file
    }

    pub fn write(&self, path: &Path) -> io::Result<()> {
        let file = File::create(path)?;
        let mut length = FIRST_REGION as u64;
        self.parts(|offset, bytes| {
            length = length.max(offset + bytes.len() as u64);
            file.write_all_at(bytes, offset)
        })?;
        file.set_len(length.next_multiple_of(PAGE as u64))
    }

    fn parts(&self, mut put: impl FnMut(u64, &[u8]) -> io::Result<()>) -> io::Result<()> {
        let mut header = self.header;
        header.regions = self.regions.len() as u64;
        header.dropped_again = header.dropped;
        let is_closed = header.ended != 0;
        header.closed = if is_closed { header.own_close() } else { 0 };
        header.seal = header.own_seal();
        put(0, header.as_bytes())?;
        put(COPY as u64, &header.as_bytes()[..Header::SEALED + size_of_val(&header.seal)])?;
        let mut free = FIRST_REGION as u64;
        for (place, (region, records)) in self.regions.iter().enumerate() {
            let mut region = Region { offset: free, ..*region }.sealed();
            if is_closed {
                region.contents = contents_seal(&region, |place| seal::word(records, place));
            }
            put((DIRECTORY + place * size_of::<Region>()) as u64, region.as_bytes())?;
            put(free, records)?;
            free = (free + records.len() as u64).next_multiple_of(PAGE as u64);
        }
        Ok(())
    }
}

fn seal_each<T: FromBytes + IntoBytes + Immutable>(records: &mut [u8], sealed: impl Fn(T) -> T) {
    for bytes in records.chunks_exact_mut(size_of::<T>()) {
        let record = T::read_from_bytes(bytes).expect("as long as a record");
        bytes.copy_from_slice(sealed(record).as_bytes());
    }
}
