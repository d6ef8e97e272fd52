//! Contents of an object, read without the kernel.

use std::collections::{BTreeMap, BTreeSet};

use aya_obj::generated::bpf_insn;
use machine::{Bytes, Result};

use super::map::{self, Kind};
use super::object;
use super::program::ProgramKind;

/// The programs and maps that an object has once loaded.
#[derive(Debug)]
pub struct Outline {
    programs: BTreeMap<String, ProgramKind>,
    maps: BTreeMap<String, MapOutline>,
    reaches: BTreeSet<Reach>,
    described: bool,
}

/// A reference of a program beyond its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// A helper of the kernel, by its number in `enum bpf_func_id`.
    Helper(i32),
    /// A function or variable of the kernel, or a map by its descriptor.
    Foreign,
}

/// A map as its object defines it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapOutline {
    pub kind: Kind,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value.
    pub value_size: u32,
    pub entries: u32,
}

impl MapOutline {
    /// The kernel's memory for it on a machine with so many cores; `None` for unknown kinds.
    pub fn memory(&self, cores: u64) -> Option<Bytes> {
        /// Bytes of an element of a hash, with its share of the table.
        const ELEMENT: u64 = 80;
        let [key, value] = [self.key_size, self.value_size].map(|size| u64::from(size).next_multiple_of(8));
        let entry = match self.kind {
            Kind::Array { .. } => value,
            Kind::PerCoreArray => value * cores,
            Kind::Hash => ELEMENT + key + value,
            Kind::Sockets => 8,
            Kind::Ring => 1,
            Kind::Other => return None,
        };
        let entries = match self.kind {
            Kind::Ring => map::ring_bytes(self.entries).unwrap_or(u32::MAX),
            _ => self.entries,
        };
        let page = rustix::param::page_size() as u64;
        Some(Bytes(entry.saturating_mul(entries.into()).max(1).checked_next_multiple_of(page).unwrap_or(u64::MAX)))
    }
}

impl Outline {
    /// Reads an object; `name` is its name in faults.
    ///
    /// # Errors
    /// [`super::Loader::load`] would refuse the object.
    pub fn read(name: &str, code: &[u8]) -> Result<Outline> {
        let (_, object) = object::read(name, code, false)?;
        let program = |(name, program): (&String, &aya_obj::Program)| (name.clone(), object::kind(&program.section).0);
        let outlined = |definition: &aya_obj::Map| MapOutline {
            kind: map::kind(definition.map_type(), definition.map_flags()),
            key_size: definition.key_size(),
            value_size: definition.value_size(),
            entries: definition.max_entries(),
        };
        let instructions = object.functions.values().flat_map(|function| &function.instructions);
        Ok(Outline {
            reaches: instructions.filter_map(reach).collect(),
            described: object.btf.is_some() && object.btf_ext.is_some(),
            programs: object.programs.iter().map(program).collect(),
            maps: object.maps.iter().map(|(name, map)| (name.clone(), outlined(map))).collect(),
        })
    }

    /// Whether it has debug information, without which its programs can only run alone.
    pub fn is_described(&self) -> bool {
        self.described
    }

    /// References of its programs beyond it.
    pub fn reaches(&self) -> &BTreeSet<Reach> {
        &self.reaches
    }

    pub fn program(&self, name: &str) -> Option<ProgramKind> {
        self.programs.get(name).copied()
    }

    pub fn programs(&self) -> Vec<&str> {
        self.programs.keys().map(String::as_str).collect()
    }

    pub fn maps(&self) -> impl Iterator<Item = &str> {
        self.maps.keys().map(String::as_str)
    }

    pub fn map(&self, name: &str) -> Option<MapOutline> {
        self.maps.get(name).copied()
    }
}

/// The reference of an instruction. References to the object's own maps, variables and functions are filled in when it
/// is loaded, and are empty until then.
fn reach(instruction: &bpf_insn) -> Option<Reach> {
    const CALL: u8 = 0x85;
    const CALL_OF_REGISTER: u8 = 0x8d;
    const ADDRESS: u8 = 0x18;
    const OF_HELPER: u8 = 0;
    const OF_PROGRAM: u8 = 1;
    match (instruction.code, instruction.src_reg()) {
        (CALL, OF_HELPER) => Some(Reach::Helper(instruction.imm)),
        (CALL, OF_PROGRAM) | (ADDRESS, 0) => None,
        (CALL | CALL_OF_REGISTER | ADDRESS, _) => Some(Reach::Foreign),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_what_the_kernel_makes_of_the_definition() {
        let of = |kind, value_size, entries| MapOutline { kind, key_size: 4, value_size, entries }.memory(2).unwrap().0;
        let page = rustix::param::page_size() as u64;
        assert_eq!(of(Kind::Ring, 0, 1), page);
        assert_eq!(of(Kind::Ring, 0, (1 << 20) + 1), 2 << 20);
        assert_eq!(of(Kind::Array { mappable: true }, 8, 1), page);
        assert_eq!(of(Kind::PerCoreArray, 8, 1 << 20), 16 << 20);
        assert!(of(Kind::Ring, 0, u32::MAX) >= u32::MAX.into());
        assert!(of(Kind::Hash, u32::MAX, u32::MAX) > 1 << 63);
    }
}
