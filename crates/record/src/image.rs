//! A rank's file made in one go, where no rank runs: what readers are tested with.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use zerocopy::{FromZeros, Immutable, IntoBytes};

use crate::functions::{self, FunctionId};
use crate::layout::{Cell, DIRECTORY, FIRST_REGION, Header, MAGIC, PAGE, ROW_CELLS, Region, VERSION, WHOLE_RANK, kind};
use crate::scale::{size_class, time_class};

/// The tables of a rank, part by part.
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
    /// `function` and `group` say what the region is of, where its kind has such.
    pub fn region<T: IntoBytes + Immutable>(
        &mut self,
        kind: u16,
        thread: u16,
        (function, group): (u16, u32),
        records: &[T],
    ) {
        let count = records.len() as u32;
        let region = Region {
            kind,
            thread,
            function,
            reserved: 0,
            group,
            record_bytes: size_of::<T>() as u32,
            capacity: count,
            used: count,
            offset: 0,
        };
        self.regions.push((region, records.as_bytes().to_vec()));
    }

    /// The calls of a function as their durations and sizes: `(ticks, bytes)` of each.
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

    /// Of the rank, not of one of its threads.
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
        header.regions = self.regions.len() as u32;
        put(0, header.as_bytes())?;
        let mut free = FIRST_REGION as u64;
        for (place, (region, records)) in self.regions.iter().enumerate() {
            let region = Region { offset: free, ..*region };
            put((DIRECTORY + place * size_of::<Region>()) as u64, region.as_bytes())?;
            put(free, records)?;
            free = (free + records.len() as u64).next_multiple_of(PAGE as u64);
        }
        Ok(())
    }
}
