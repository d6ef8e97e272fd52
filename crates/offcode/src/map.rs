//! Keyed maps ([`crate::service::MAPS`]): so many entries, with keys and values of fixed sizes.
//!
//! A map takes its memory when it is opened and none later. Its entries lie one behind the other in one piece of memory, so
//! that the host of a sandbox reads them where they are:
//!
//! ```text
//!  entries in use u32 | 0 u32 | of each: key | value
//! ```

mod table;

use machine::bounds::{OFFCODE_MAPS, OFFCODE_MAPS_MEMORY};
use machine::{Bytes, Fault, Result};

use crate::encoding::fixed::Fixed;
use crate::service::check_name;
pub use table::{Maps, Table};

/// Bytes before the first entry.
pub const HEAD: usize = 8;
/// Bytes of the longest key, which is the longest of a BPF map.
pub const LONGEST_KEY: u32 = 512;
/// Bytes of the longest value.
pub const LONGEST_VALUE: u32 = 64 << 10;
/// Maps of one offcode.
pub const MAPS_EACH: usize = OFFCODE_MAPS.each.count();

/// The shape of a map: number of entries, sizes of key and value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Most entries.
    pub entries: u32,
    /// Bytes of each key.
    pub key: u32,
    /// Bytes of each value.
    pub value: u32,
}

impl Shape {
    /// A shape for keys and values of types with a fixed encoding.
    pub const fn of<K: Fixed, V: Fixed>(entries: u32) -> Shape {
        Shape { entries, key: K::LENGTH as u32, value: V::LENGTH as u32 }
    }

    const fn entry(&self) -> usize {
        self.key as usize + self.value as usize
    }

    /// Bytes of the memory that the entries lie in.
    pub const fn cells(&self) -> u64 {
        HEAD as u64 + self.entries as u64 * (self.key as u64 + self.value as u64)
    }

    const fn buckets(&self) -> u64 {
        (self.entries as u64 + self.entries as u64 / 2 + 1).next_power_of_two()
    }

    /// Bytes that a map of this shape takes.
    pub const fn memory(&self) -> Bytes {
        Bytes(self.cells() + 4 * self.buckets())
    }

    /// # Errors
    /// No map has this name or this shape.
    pub fn check(&self, name: &str) -> Result<()> {
        check_name(name)?;
        let most = OFFCODE_MAPS_MEMORY.each.bytes();
        let cause = if !(1..=LONGEST_KEY).contains(&self.key) {
            format!("its keys have {} bytes, and keys have 1 to {LONGEST_KEY}", self.key)
        } else if !(1..=LONGEST_VALUE).contains(&self.value) {
            format!("its values have {} bytes, and values have 1 to {LONGEST_VALUE}", self.value)
        } else if self.entries == 0 {
            "it is to take no entries".to_owned()
        } else if self.memory() > most {
            format!("{} entries take {}, and the maps of an offcode take {most} at most", self.entries, self.memory())
        } else {
            return Ok(());
        };
        Err(Fault::new(format!("map {name}"), cause, "open it with other sizes"))
    }
}

/// A map as one offcode numbers its own, in the order in which they were opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapId(pub u32);

impl MapId {
    /// A number that no map has.
    pub const NONE: MapId = MapId(u32::MAX);
}

/// The result of putting an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a map may be full"]
pub enum Put {
    /// The entry is there, under a key that was new.
    New,
    /// The entry replaces the one under its key.
    Replaced,
    /// There is no room for another key, and nothing was changed.
    Full,
}

/// The entries of a map where they lie.
#[derive(Debug, Clone)]
pub struct Entries<'a> {
    shape: Shape,
    cells: std::slice::ChunksExact<'a, u8>,
}

impl<'a> Entries<'a> {
    /// The entries in `cells`, which somebody else has written: never more than fit.
    pub fn within(shape: Shape, cells: &'a [u8]) -> Entries<'a> {
        let (head, cells) = cells.split_at_checked(HEAD).unwrap_or_default();
        let count = head.first_chunk().map_or(0, |count| u32::from_le_bytes(*count)).min(shape.entries) as usize;
        let length = count.saturating_mul(shape.entry()).min(cells.len());
        Entries { shape, cells: cells[..length].chunks_exact(shape.entry().max(1)) }
    }

    /// The map's shape.
    pub fn shape(&self) -> Shape {
        self.shape
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = (&'a [u8], &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.cells.next()?.split_at_checked(self.shape.key as usize)
    }
}
