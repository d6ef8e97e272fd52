//! What an object holds, read without the kernel.

use std::collections::BTreeMap;

use machine::Result;

use super::map::{self, Kind};
use super::object;
use super::program::ProgramKind;

/// The programs and maps that an object would have once it is loaded.
#[derive(Debug)]
pub struct Outline {
    programs: BTreeMap<String, ProgramKind>,
    maps: BTreeMap<String, MapOutline>,
    described: bool,
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
    /// What it takes when it is full, without what the kernel has beside.
    pub fn bytes(&self) -> u64 {
        match self.kind {
            Kind::Ring => self.entries.into(),
            Kind::Array { .. } => u64::from(self.value_size).next_multiple_of(8) * u64::from(self.entries),
            _ => (u64::from(self.key_size) + u64::from(self.value_size).next_multiple_of(8)) * u64::from(self.entries),
        }
    }
}

impl Outline {
    /// `name` is what faults call the object.
    ///
    /// # Errors
    /// It is no object that [`super::Loader::load`] would take.
    pub fn read(name: &str, code: &[u8]) -> Result<Outline> {
        let (_, object) = object::read(name, code, false)?;
        let program = |(name, program): (&String, &aya_obj::Program)| (name.clone(), object::kind(&program.section).0);
        let outlined = |definition: &aya_obj::Map| MapOutline {
            kind: map::kind(definition.map_type(), definition.map_flags()),
            key_size: definition.key_size(),
            value_size: definition.value_size(),
            entries: definition.max_entries(),
        };
        Ok(Outline {
            described: object.btf.is_some() && object.btf_ext.is_some(),
            programs: object.programs.iter().map(program).collect(),
            maps: object.maps.iter().map(|(name, map)| (name.clone(), outlined(map))).collect(),
        })
    }

    /// Whether it has debug information, without which its programs run only alone.
    pub fn is_described(&self) -> bool {
        self.described
    }

    pub fn program(&self, name: &str) -> Option<ProgramKind> {
        self.programs.get(name).copied()
    }

    /// Names of the programs.
    pub fn programs(&self) -> Vec<&str> {
        self.programs.keys().map(String::as_str).collect()
    }

    /// Names of the maps.
    pub fn maps(&self) -> impl Iterator<Item = &str> {
        self.maps.keys().map(String::as_str)
    }

    pub fn map(&self, name: &str) -> Option<MapOutline> {
        self.maps.get(name).copied()
    }
}
