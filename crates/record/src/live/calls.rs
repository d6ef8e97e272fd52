//! Cells in use of a running rank's calls; a row has a cell for each class of size, most of them not in use.

use std::collections::HashMap;

use machine::Result;
use zerocopy::FromBytes;

use super::Glance;
use crate::functions::{self, FunctionId};
use crate::header::damaged;
use crate::layout::{Cell, ROW_CELLS, Region};
use crate::rank::Calls;

/// Looks from one search for new cells to the next, where no total shows a missing cell.
const SEARCH: u64 = 16;
/// Most cells of a rank that are followed; a program that calls MPI in many ways uses some hundred.
pub const CELLS: usize = 8192;

#[derive(Debug, Default)]
pub struct Counters {
    rows: Vec<Row>,
    known: Vec<Calls>,
    /// Offsets of the known cells in the file.
    places: Vec<u64>,
    /// Number of calls of each thread when its cells were last read.
    read: HashMap<u16, u64>,
    looks: u64,
}

#[derive(Debug)]
struct Row {
    thread: u16,
    function: FunctionId,
    group: u32,
    offset: u64,
    /// Whether the cell of each class of size is known to be in use.
    known: [bool; ROW_CELLS],
    is_new: bool,
}

impl Counters {
    pub fn known(&self) -> &[Calls] {
        &self.known
    }

    /// Approximate memory of the cells, in bytes.
    pub fn weight(&self) -> usize {
        size_of_val(&self.rows[..]) + size_of_val(&self.known[..]) + size_of_val(&self.places[..])
    }

    pub fn add_row(&mut self, region: &Region) -> Result<()> {
        let function = FunctionId(region.function);
        let is_row = (region.record_bytes as usize, region.capacity as usize) == (size_of::<Cell>(), ROW_CELLS);
        if !is_row || functions::function(function).is_none() {
            return Err(damaged("the calls of one of its functions are of no kind that there is"));
        }
        let (thread, group, offset) = (region.thread, region.group, region.offset);
        self.rows.push(Row { thread, function, group, offset, known: [false; ROW_CELLS], is_new: true });
        Ok(())
    }

    /// Updates the counters. A thread counts a call in its cell before its totals, which `glance` read earlier: if
    /// known cells have fewer calls than the totals, some cell is missing.
    pub fn look(&mut self, glance: &Glance, read: impl Fn(&mut [u8], u64) -> Result<()>) -> Result<()> {
        self.looks += 1;
        for (thread, totals) in &glance.threads {
            if self.read.insert(*thread, totals.calls) == Some(totals.calls) {
                continue;
            }
            let mut counted = glance.header.dropped.rows;
            let known = self.known.iter_mut().zip(&self.places);
            for (calls, place) in known.filter(|(calls, _)| calls.thread == *thread) {
                let mut bytes = [0; size_of::<Cell>()];
                read(&mut bytes, *place)?;
                calls.cell = Cell::read_from_bytes(&bytes).map_err(|_| damaged("a cell is cut off"))?;
                counted = counted.saturating_add(calls.cell.calls);
            }
            let is_short = counted < totals.calls || self.looks.is_multiple_of(SEARCH);
            self.search(|row| row.thread == *thread && (row.is_new || is_short), &read)?;
        }
        Ok(())
    }

    /// Searches rows for cells that came into use.
    fn search(&mut self, among: impl Fn(&Row) -> bool, read: impl Fn(&mut [u8], u64) -> Result<()>) -> Result<()> {
        for row in self.rows.iter_mut().filter(|row| among(row)) {
            let mut bytes = [0; ROW_CELLS * size_of::<Cell>()];
            read(&mut bytes, row.offset)?;
            row.is_new = false;
            for (size_class, bytes) in bytes.chunks_exact(size_of::<Cell>()).enumerate() {
                let cell = Cell::read_from_bytes(bytes).map_err(|_| damaged("a cell is cut off"))?;
                if cell.calls == 0 || std::mem::replace(&mut row.known[size_class], true) {
                    continue;
                }
                if self.known.len() == CELLS {
                    return Err(damaged("it has calls of too many kinds"));
                }
                let Row { thread, function, group, offset, .. } = *row;
                self.known.push(Calls { thread, function, group, size_class, cell });
                self.places.push(offset + (size_class * size_of::<Cell>()) as u64);
            }
        }
        Ok(())
    }
}
