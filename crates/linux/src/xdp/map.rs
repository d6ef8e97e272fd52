//! Maps: made from an object's definition.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use machine::{CoreId, CpuSet};

use super::ring::RingReader;
use super::shared::SharedWords;
use super::syscall::{self, Command};

const ARRAY: u32 = 2;
const PER_CORE_ARRAY: u32 = 6;
/// Plain, and one that forgets the least used.
const HASH: [u32; 2] = [1, 9];
const SOCKETS: u32 = 17;
const RING: u32 = 27;
/// With a value for each core: arrays, hashes, and what control groups store.
const PER_CORE: [u32; 4] = [5, PER_CORE_ARRAY, 10, 21];
const MAPPABLE: u32 = 1 << 10;
const READ_ONLY_FOR_PROGRAMS: u32 = 1 << 7;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Array {
        /// Its memory can be shared with user space.
        mappable: bool,
    },
    Ring,
    /// An array with a value of its own for each core.
    PerCoreArray,
    /// Values by keys of any kind.
    Hash,
    /// AF_XDP sockets by queue.
    Sockets,
    /// Made, but only for programs.
    Other,
}

pub(super) fn kind(number: u32, flags: u32) -> Kind {
    match number {
        ARRAY => Kind::Array { mappable: flags & MAPPABLE != 0 },
        RING => Kind::Ring,
        PER_CORE_ARRAY => Kind::PerCoreArray,
        SOCKETS => Kind::Sockets,
        number if HASH.contains(&number) => Kind::Hash,
        _ => Kind::Other,
    }
}

/// The bytes of a ring that is to have so many: a power of two of pages. `None`: no ring has.
pub(super) fn ring_bytes(asked: u32) -> Option<u32> {
    asked.max(rustix::param::page_size() as u32).checked_next_power_of_two()
}

/// A map. It goes with the last of: this value, the programs that use it, memory made of it.
#[derive(Debug)]
pub struct Map {
    descriptor: OwnedFd,
    kind: Kind,
    per_core: bool,
    key_size: u32,
    value_size: u32,
    entries: u32,
    /// What a map of maps holds.
    inner: Option<aya_obj::Map>,
    /// Numbers of the types of keys and values in the object's debug information; 0 where they are not known.
    types: (u32, u32),
}

impl Map {
    /// `debug` describes the types that the definition names; the kernel finds locks in values by it.
    pub(super) fn create(
        name: &str,
        definition: &aya_obj::Map,
        device: u32,
        debug: Option<BorrowedFd<'_>>,
    ) -> io::Result<Map> {
        let number = definition.map_type();
        let data = definition.data();
        let constant = definition.map_flags() & READ_ONLY_FOR_PROGRAMS != 0;
        // Variables are shared memory too, but constants are frozen, which mappings for writing forbid.
        let flags = definition.map_flags() | if data.is_empty() || constant || device != 0 { 0 } else { MAPPABLE };
        let entries = if number == RING {
            ring_bytes(definition.max_entries()).ok_or(io::ErrorKind::InvalidInput)?
        } else {
            definition.max_entries()
        };
        // The kernel takes the shape of the maps to come from one that it looks at once.
        let inner = definition.inner();
        let example = inner.as_ref().map(|inner| Map::create(name, inner, 0, None)).transpose()?;
        let mut attributes = syscall::MapCreate {
            kind: number,
            key_size: definition.key_size(),
            value_size: if number == RING { 0 } else { definition.value_size() },
            entries,
            flags,
            name: syscall::name(name),
            inner: example.as_ref().map_or(0, |example| syscall::number(example.as_fd())),
            interface: device,
            extra: definition.map_extra(),
            ..Default::default()
        };
        if let (Some(debug), aya_obj::Map::Btf(map), ARRAY) = (debug, definition, number)
            && data.is_empty()
            && flags & MAPPABLE == 0
        {
            attributes.debug = syscall::number(debug);
            attributes.debug_key = map.def.btf_key_type_id;
            attributes.debug_value = map.def.btf_value_type_id;
        }
        let descriptor = syscall::make(Command::MapCreate, &mut attributes)?;
        let kind = kind(number, flags);
        let types = match definition {
            aya_obj::Map::Btf(map) => (map.def.btf_key_type_id, map.def.btf_value_type_id),
            aya_obj::Map::Legacy(_) => (0, 0),
        };
        let (key_size, value_size) = (attributes.key_size, attributes.value_size);
        let per_core = PER_CORE.contains(&number);
        let map = Map { descriptor, kind, per_core, key_size, value_size, entries, inner, types };
        if !data.is_empty() {
            map.put(0, data)?;
        }
        if constant {
            syscall::run(Command::MapFreeze, &mut syscall::Descriptor { descriptor: syscall::number(map.as_fd()) })?;
        }
        Ok(map)
    }

    /// The same map once more.
    pub(super) fn again(&self) -> io::Result<Map> {
        let Map { kind, per_core, key_size, value_size, entries, types, .. } = *self;
        let descriptor = self.descriptor.try_clone()?;
        Ok(Map { descriptor, kind, per_core, key_size, value_size, entries, inner: self.inner.clone(), types })
    }

    /// Sets the value at `key`, which is a number of 32 bits. Panics where `value` is shorter than the map's.
    pub fn put(&self, key: u32, value: &[u8]) -> io::Result<()> {
        self.put_at(&key.to_ne_bytes(), value)
    }

    /// As [`Map::put`], for keys of any kind.
    pub fn put_at(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.has_one_value()?;
        assert!(value.len() >= self.value_size as usize, "the kernel reads a whole value");
        assert!(key.len() >= self.key_size as usize, "the kernel reads a whole key");
        let (key, value) = (key.as_ptr() as u64, value.as_ptr() as u64);
        let map = syscall::number(self.as_fd());
        syscall::run(Command::MapUpdate, &mut syscall::MapElement { map, key, value, ..Default::default() })
    }

    /// An error where each core has its own: the kernel reads and writes all of them, however much room there is.
    pub(super) fn has_one_value(&self) -> io::Result<()> {
        if self.per_core { Err(io::ErrorKind::Unsupported.into()) } else { Ok(()) }
    }

    /// Removes what is at `key`.
    pub fn remove(&self, key: &[u8]) -> io::Result<()> {
        assert!(key.len() >= self.key_size as usize, "the kernel reads a whole key");
        let (map, key) = (syscall::number(self.as_fd()), key.as_ptr() as u64);
        syscall::run(Command::MapDelete, &mut syscall::MapElement { map, key, ..Default::default() })
    }

    /// The values of an array per core at `key`, one for each core that the kernel may ever have, each in words. One
    /// system call.
    pub(crate) fn of_all_cores(&self, key: u32) -> io::Result<Vec<(CoreId, Vec<u64>)>> {
        if self.kind != Kind::PerCoreArray {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
        let possible = CpuSet::from_list(&possible).ok_or(io::ErrorKind::InvalidData)?;
        // The kernel writes a value of whole words for each, without asking how many there is room for: as many as its
        // masks are wide at most, whatever the file says, which a container may have replaced.
        let room = crate::mask::read(0)?.width().max(possible.len());
        let words = self.value_size().div_ceil(8);
        let mut values = vec![0u64; words * room];
        let (at, value) = (key.to_ne_bytes(), values.as_mut_ptr() as u64);
        let map = syscall::number(self.as_fd());
        let mut element = syscall::MapElement { map, key: at.as_ptr() as u64, value, ..Default::default() };
        syscall::run(Command::MapLookup, &mut element)?;
        Ok(by_core(&possible, words, &values))
    }

    /// A new map such as this map of maps takes. It is not in it yet.
    pub fn make_inner(&self, name: &str) -> io::Result<Map> {
        let inner = self.inner.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        Map::create(name, inner, 0, None)
    }

    pub(super) fn types(&self) -> (u32, u32) {
        self.types
    }

    /// Bytes of a key.
    pub fn key_size(&self) -> usize {
        self.key_size as usize
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Bytes of a value.
    pub fn value_size(&self) -> usize {
        self.value_size as usize
    }

    /// Entries; of a ring its bytes.
    pub fn entries(&self) -> usize {
        self.entries as usize
    }

    /// The values of an array map as memory.
    pub fn words(&self) -> io::Result<SharedWords> {
        SharedWords::of(self.as_fd(), self.value_size, self.entries)
    }

    pub(super) fn reader(&self) -> io::Result<RingReader> {
        RingReader::of(self.descriptor.try_clone()?, self.entries as usize)
    }
}

/// The kernel writes value after value, in the order of the cores that are possible: their numbers may have gaps.
fn by_core(possible: &CpuSet, words: usize, values: &[u64]) -> Vec<(CoreId, Vec<u64>)> {
    possible.iter().zip(values.chunks(words.max(1)).map(<[u64]>::to_vec)).collect()
}

impl AsFd for Map {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_belong_to_the_cores_that_are_possible_not_to_places_in_a_row() {
        let possible: CpuSet = "0-1,1024-1025".parse().unwrap();
        let values: Vec<u64> = (0..8).chain([0; 6]).collect();
        let found = by_core(&possible, 2, &values);
        assert_eq!(found.len(), 4);
        assert_eq!(found[1], (CoreId(1), vec![2, 3]));
        assert_eq!(found[2], (CoreId(1024), vec![4, 5]));
    }
}
