//! Maps, created from an object's definitions.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use machine::{CoreId, CpuSet};

use super::ring::RingReader;
use super::shared::SharedWords;
use super::syscall::{self, Command};

const ARRAY: u32 = 2;
const PER_CORE_ARRAY: u32 = 6;
/// Hash maps: plain, and with eviction of the least recently used.
const HASH: [u32; 2] = [1, 9];
const SOCKETS: u32 = 17;
const RING: u32 = 27;
/// Kinds with a value for each core: arrays, hashes, and storage of control groups.
const PER_CORE: [u32; 4] = [5, PER_CORE_ARRAY, 10, 21];
const MAPPABLE: u32 = 1 << 10;
const READ_ONLY_FOR_PROGRAMS: u32 = 1 << 7;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Array {
        /// Whether its memory can be shared with user space.
        mappable: bool,
    },
    Ring,
    /// An array with a value of its own for each core.
    PerCoreArray,
    /// Values by arbitrary keys.
    Hash,
    /// AF_XDP sockets by queue.
    Sockets,
    /// Other kinds, which are created for programs only.
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

/// Size of a ring of at least `asked` bytes: a power of two of pages. `None`: too large.
pub(super) fn ring_bytes(asked: u32) -> Option<u32> {
    asked.max(rustix::param::page_size() as u32).checked_next_power_of_two()
}

/// A map. It ends with the last of: this value, the programs that use it, mappings of its memory.
#[derive(Debug)]
pub struct Map {
    descriptor: OwnedFd,
    kind: Kind,
    per_core: bool,
    key_size: u32,
    value_size: u32,
    entries: u32,
    /// Definition of the inner maps of a map of maps.
    inner: Option<aya_obj::Map>,
    /// Type numbers of keys and values in the object's debug information; 0 where unknown.
    types: (u32, u32),
}

impl Map {
    /// Creates a map. `debug` describes the types that the definition names, by which the kernel finds locks in values.
    pub(super) fn create(
        name: &str,
        definition: &aya_obj::Map,
        device: u32,
        debug: Option<BorrowedFd<'_>>,
    ) -> io::Result<Map> {
        let number = definition.map_type();
        let data = definition.data();
        let constant = definition.map_flags() & READ_ONLY_FOR_PROGRAMS != 0;
        // Variables are shared memory too, but constants are frozen, which forbids writable mappings.
        let flags = definition.map_flags() | if data.is_empty() || constant || device != 0 { 0 } else { MAPPABLE };
        let entries = if number == RING {
            ring_bytes(definition.max_entries()).ok_or(io::ErrorKind::InvalidInput)?
        } else {
            definition.max_entries()
        };
        // The kernel takes the shape of inner maps from an example, which it reads at once.
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

    /// A second handle of the same map.
    pub(super) fn again(&self) -> io::Result<Map> {
        let Map { kind, per_core, key_size, value_size, entries, types, .. } = *self;
        let descriptor = self.descriptor.try_clone()?;
        Ok(Map { descriptor, kind, per_core, key_size, value_size, entries, inner: self.inner.clone(), types })
    }

    /// Sets the value at `key`, a number of 32 bits. Panics where `value` is shorter than the map's.
    pub fn put(&self, key: u32, value: &[u8]) -> io::Result<()> {
        self.put_at(&key.to_ne_bytes(), value)
    }

    /// As [`Map::put`], for arbitrary keys.
    pub fn put_at(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.has_one_value()?;
        assert!(value.len() >= self.value_size as usize, "the kernel reads a whole value");
        assert!(key.len() >= self.key_size as usize, "the kernel reads a whole key");
        let (key, value) = (key.as_ptr() as u64, value.as_ptr() as u64);
        let map = syscall::number(self.as_fd());
        syscall::run(Command::MapUpdate, &mut syscall::MapElement { map, key, value, ..Default::default() })
    }

    /// An error for maps with a value for each core: the kernel reads and writes all of them, whatever the buffer's size.
    pub(super) fn has_one_value(&self) -> io::Result<()> {
        if self.per_core { Err(io::ErrorKind::Unsupported.into()) } else { Ok(()) }
    }

    /// Removes the entry at `key`.
    pub fn remove(&self, key: &[u8]) -> io::Result<()> {
        assert!(key.len() >= self.key_size as usize, "the kernel reads a whole key");
        let (map, key) = (syscall::number(self.as_fd()), key.as_ptr() as u64);
        syscall::run(Command::MapDelete, &mut syscall::MapElement { map, key, ..Default::default() })
    }

    /// The values at `key` of a per-core array, one for each possible core, in words. One system call.
    pub(crate) fn of_all_cores(&self, key: u32) -> io::Result<Vec<(CoreId, Vec<u64>)>> {
        if self.kind != Kind::PerCoreArray {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
        let possible = CpuSet::from_list(&possible).ok_or(io::ErrorKind::InvalidData)?;
        // The kernel writes a value of whole words for each core, without knowing the buffer's size: at most as many as
        // its masks are wide, even if a container has replaced the file.
        let room = crate::mask::read(0)?.width().max(possible.len());
        let words = self.value_size().div_ceil(8);
        let mut values = vec![0u64; words * room];
        let (at, value) = (key.to_ne_bytes(), values.as_mut_ptr() as u64);
        let map = syscall::number(self.as_fd());
        let mut element = syscall::MapElement { map, key: at.as_ptr() as u64, value, ..Default::default() };
        syscall::run(Command::MapLookup, &mut element)?;
        Ok(by_core(&possible, words, &values))
    }

    /// A new map that fits this map of maps, not yet in it.
    pub fn make_inner(&self, name: &str) -> io::Result<Map> {
        let inner = self.inner.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        Map::create(name, inner, 0, None)
    }

    pub(super) fn types(&self) -> (u32, u32) {
        self.types
    }

    /// Size of a key in bytes.
    pub fn key_size(&self) -> usize {
        self.key_size as usize
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Size of a value in bytes.
    pub fn value_size(&self) -> usize {
        self.value_size as usize
    }

    /// Number of entries; of a ring its size in bytes.
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

/// Splits values by core: the kernel writes them in the order of possible cores, whose numbers may have gaps.
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
